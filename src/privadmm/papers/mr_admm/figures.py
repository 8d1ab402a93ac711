"""Figures 1 to 5 of the paper on recycled ADMM, drawn again, and the tables beside them."""

import numpy as np

from privadmm.papers.framework.nodes import Seen
from privadmm.papers.framework.study import Figure, Grid, Line, Panel, Spread, spread_words
from privadmm.papers.mr_admm.results import Results
from privadmm.papers.mr_admm.runs import RHO, STILL, Run


def figures(found: Results) -> tuple[Figure, ...]:
    panels = [varied(found, alpha) for alpha in found.levels("published") if found.varied(alpha)]
    return (
        convergence(found),
        overfitting(found),
        Figure("figures-3-and-4", "Figures 3 and 4: MR-ADMM by gamma and growth of its penalty", tuple(panels)),
        comparison(found, "published"),
        comparison(found, "certified"),
    )  # fmt: skip


def convergence(found: Results) -> Figure:
    panels = []
    for size in found.sizes():
        lines = [both(f"gamma = {gamma:g}", seen) for gamma, seen in found.gammas(size).items() if gamma < STILL]
        lines.append(plain("ADMM", found.gammas(size)[STILL]))
        panels.append(Panel(f"(a) R-ADMM, {size} nodes", "iteration", "mean loss", tuple(lines)))
    for place, name, words in (("(b)", "apart", "1 + {k} q_2"), ("(c)", "alike", "1 + {k}/100")):
        lines = [both(words.format(k=k), seen, f"k = {k}") for k, seen in found.speeds(name).items()]
        panels.append(Panel(f"{place} MR-ADMM, penalties grow by", "iteration", "mean loss", tuple(lines)))
    return Figure("figure-1", "Figure 1: convergence without noise", tuple(panels))


def both(label: str, seen: Seen, series: str = "") -> Line:
    """Odd and even iterates in turn."""
    loss = np.stack([seen.loss, seen.even], axis=1).reshape(-1, seen.loss.shape[-1])
    return Line(label, range(1, len(loss) + 1), Spread.of(loss), series=series)


def plain(label: str, seen: Seen) -> Line:
    return Line(label, range(1, len(seen.loss) + 1), Spread.of(seen.loss), dashed=True)


def overfitting(found: Results) -> Figure:
    rhos = sorted(found.overfitting)
    errors = Spread.of([found.overfitting[rho].error[-1] for rho in rhos])
    panel = Panel("no noise", "rho", "error rate on test records", (Line("ADMM", rhos, errors),), xscale="log")
    return Figure("figure-2", "Figure 2: the effect of rho", (panel,))


def varied(found: Results, alpha: float) -> Panel:
    lines = []
    for (gamma, growth), run in found.varied(alpha).items():
        cost = f"published {run.seen.claimed:.3g}, certified {run.seen.epsilon:.3g}"
        name = f"gamma {gamma:g}, growth {growth:g}"
        lines.append(line(f"{name}; {cost}", run, name))
    return Panel(f"alpha = {alpha:g}", "iteration", "mean loss", tuple(lines))


def line(label: str, run: Run, series: str) -> Line:
    return Line(label, run.iterations, Spread.of(run.seen.loss), series=series)


def comparison(found: Results, kind: str) -> Figure:
    letter = {"published": "alpha", "certified": "epsilon"}[kind]
    panels = []
    for level in found.levels(kind):
        lines = []
        for name in found.names(kind, level):
            run = found.run(kind, name, level)
            claimed = f"; published {run.seen.claimed:.3g}" if run.seen.claimed is not None else ""
            lines.append(line(f"{name}{claimed}; certified {run.seen.epsilon:.3g}", run, name))
        lines.append(plain("ADMM, no noise", found.overfitting[RHO]))
        panels.append(Panel(f"{letter} = {level:g}", "iteration", "mean loss", tuple(lines)))
    if kind == "published":
        panels += [spent(found, level) for level in found.levels(kind)]
    levels = found.levels(kind)
    rates = [
        Line(name, levels, Spread.of([found.run(kind, name, level).error for level in levels]))
        for name in found.names(kind, levels[0])
        if all(name in found.names(kind, level) for level in levels)
    ]
    panels.append(Panel("error rate at the end", letter, "error rate on test records", tuple(rates)))
    caption = {
        "published": "Figure 5: noise by the paper, at its own total",
        "certified": "Figure 5, certified: the same total epsilon for all",
    }[kind]
    return Figure(f"figure-5-{kind}", caption, tuple(panels))


def spent(found: Results, alpha: float) -> Panel:
    """Figures 5(d) to 5(f)."""
    lines = [
        Line(name, run.iterations, Spread(run.spent, run.spent, run.spent))
        for name in found.names("published", alpha)
        for run in [found.run("published", name, alpha)]
    ]
    return Panel(f"published total, alpha = {alpha:g}", "iteration", "P(t)", tuple(lines))


def grids(found: Results) -> tuple[Grid, ...]:
    made = [
        Grid(
            f"comparison-{kind}",
            {"published": "Figure 5 at the end: noise by the paper", "certified": "The same with certified noise"}[
                kind
            ],
            ("level", "method", "releases", "published", "certified", "loss", "loss, even", "error rate"),
            tuple(
                row(level, name, found.run(kind, name, level))
                for level in found.levels(kind)
                for name in found.names(kind, level)
            ),
        )
        for kind in ("published", "certified")
    ]
    rows = tuple(
        (
            "recycled" if recycled else "plain",
            f"{eta:g}, {growth:g}, {rounds}",
            spread_words(run.last),
            spread_words(run.error),
        )
        for recycled, runs in found.tried.items()
        for (eta, growth, rounds), run in runs.items()
    )
    if rows:
        made.append(
            Grid(
                "tried",
                "Certified epsilon = 1, other penalties",
                ("rounds", "eta, growth, releases", "loss", "error rate"),
                rows,
            )
        )
    return tuple(made)


def row(level: float, name: str, run: Run) -> tuple[str | float | None, ...]:
    seen = run.seen
    return (
        level,
        name,
        float(len(seen.loss)),
        seen.claimed,
        seen.epsilon,
        spread_words(run.last),
        spread_words(seen.even[-1]),
        spread_words(run.error),
    )
