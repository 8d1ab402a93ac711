"""Results of the runs of the paper on recycled ADMM: its Figures 1 to 5 drawn again, and tables."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privadmm.papers.framework.nodes import Seen
from privadmm.papers.framework.study import Figure, Grid, Line, Panel, Row, spread_words
from privadmm.papers.mr_admm.runs import GAMMA, GROWTH, MR, RHO, STILL, R, Run, plans

KINDS = ("published", "certified")


@dataclass(frozen=True)
class Results:
    """Results by the keys of the tasks; see paper.py."""

    of: dict[Any, Any]

    @property
    def pairs(self) -> int:
        return len(self.runs("published", self.levels("published")[0])[R].seen.loss)

    def levels(self, kind: str) -> list[float]:
        """The alphas or epsilons of Figure 5, the least private first."""
        return sorted({key[2] for key in self.of if key[0] == kind and len(key) == 3}, reverse=True)

    def runs(self, kind: str, level: float) -> dict[str, Run]:
        """The runs at this alpha or epsilon, by the name of their method."""
        return {name: self.of[kind, name, level] for name in plans(1) if (kind, name, level) in self.of}

    def varied(self, alpha: float) -> dict[tuple[float, float], Run]:
        """MR-ADMM by gamma and growth, for Figures 3 and 4; one of them is Figure 5's."""
        runs = {(key[2], key[3]): run for key, run in self.of.items() if key[:2] == ("varied", alpha)}
        if runs:
            runs[GAMMA, GROWTH] = self.of["published", MR, alpha]
        return dict(sorted(runs.items()))

    def tried(self, recycled: bool) -> dict[tuple[float, float, int], Run]:
        """Runs at a certified epsilon of 1, with recycled rounds or plain ones, by eta, growth and releases."""
        runs = {key[1:]: run for key, run in self.of.items() if key[0] == "tried"}
        return {key[1:]: run for key, run in runs.items() if (key[0] < STILL) == recycled}

    @property
    def gammas(self) -> dict[int, dict[float, Seen]]:
        """The curves of Figure 1(a), by the number of nodes."""
        return {key[1]: self.of[key] for key in sorted(key for key in self.of if key[0] == "gammas")}

    def speeds(self, name: str) -> dict[int, Seen]:
        return {k: seen for (kind, k), seen in self.of["speeds"].items() if kind == name}

    @property
    def overfitting(self) -> dict[float, Seen]:
        return dict(sorted(self.of["overfitting"].items()))


def figures(ran: Results) -> tuple[Figure, ...]:
    rhos = ran.overfitting
    line = Line.of("ADMM", [seen.error[-1] for seen in rhos.values()], list(rhos), meaning="non_private")
    panel = Panel("no noise", "rho", "error rate on test records", [line], xscale="log")
    varied_panels = [varied(ran, alpha) for alpha in ran.levels("published") if ran.varied(alpha)]
    return (
        convergence(ran),
        Figure("figure-2", "Figure 2: the effect of rho", [panel]),
        Figure("figures-3-and-4", "Figures 3 and 4: MR-ADMM by gamma and growth of its penalty", varied_panels),
        *(comparison(ran, kind) for kind in KINDS),
    )


def convergence(ran: Results) -> Figure:
    panels = []
    for size, runs in ran.gammas.items():
        lines = [both(f"gamma = {gamma:g}", seen, gamma) for gamma, seen in runs.items() if gamma < STILL]
        lines.append(Line.of("ADMM", runs[STILL].loss, dashed=True, meaning="non_private"))
        panels.append(Panel(f"(a) R-ADMM, {size} nodes", "iteration", "mean loss", lines))
    for place, name, words in (("(b)", "apart", "1 + {k} q_2"), ("(c)", "alike", "1 + {k}/100")):
        lines = [both(words.format(k=k), seen, k) for k, seen in ran.speeds(name).items()]
        panels.append(Panel(f"{place} MR-ADMM, penalties grow by", "iteration", "mean loss", lines))
    return Figure("figure-1", "Figure 1: convergence without noise", panels)


def both(label: str, seen: Seen, level: float) -> Line:
    """Draw odd and even iterates in turn."""
    return Line.of(label, np.stack([seen.loss, seen.even], axis=1).reshape(-1, seen.loss.shape[-1]), level=level)


def varied(ran: Results, alpha: float) -> Panel:
    lines = []
    for (gamma, growth), run in ran.varied(alpha).items():
        name = f"gamma {gamma:g}, growth {growth:g}"
        label = f"{name}; published {run.seen.claimed:.3g}, certified {run.seen.epsilon:.3g}"
        lines.append(Line.of(label, run.seen.loss, run.iterations, series=name))
    return Panel(f"alpha = {alpha:g}", "iteration", "mean loss", lines)


def comparison(ran: Results, kind: str) -> Figure:
    """Draw Figure 5: the losses, published totals (its panels d to f) and error rates."""
    letter, caption = {
        "published": ("alpha", "Figure 5: noise by the paper, at its own total"),
        "certified": ("epsilon", "Figure 5, certified: the same total epsilon for all"),
    }[kind]
    runs, panels = {level: ran.runs(kind, level) for level in ran.levels(kind)}, []
    for level, by_name in runs.items():
        lines = []
        for name, run in by_name.items():
            claimed = f"; published {run.seen.claimed:.3g}" if run.seen.claimed is not None else ""
            label = f"{name}{claimed}; certified {run.seen.epsilon:.3g}"
            lines.append(Line.of(label, run.seen.loss, run.iterations, series=name))
        lines.append(Line.of("ADMM, no noise", ran.overfitting[RHO].loss, dashed=True, meaning="non_private"))
        panels.append(Panel(f"{letter} = {level:g}", "iteration", "mean loss", lines))
    for level, by_name in runs.items() if kind == "published" else ():
        lines = [Line.of(name, run.spent, run.iterations) for name, run in by_name.items()]
        panels.append(Panel(f"published total, alpha = {level:g}", "iteration", "P(t)", lines))
    rates = [
        Line.of(name, [by_name[name].error for by_name in runs.values()], list(runs))
        for name in plans(1)
        if all(name in by_name for by_name in runs.values())
    ]
    panels.append(Panel("error rate at the end", letter, "error rate on test records", rates))
    return Figure(f"figure-5-{kind}", caption, panels)


def grids(ran: Results) -> list[Grid]:
    captions = {"published": "Figure 5 at the end: noise by the paper", "certified": "The same with certified noise"}
    columns = ("level", "method", "releases", "published", "certified", "loss", "loss, even", "error rate")
    tables = []
    for kind in KINDS:
        ends = [row(level, name, run) for level in ran.levels(kind) for name, run in ran.runs(kind, level).items()]
        tables.append(Grid(f"comparison-{kind}", captions[kind], columns, ends))
    rows = [
        (name, f"{eta:g}, {growth:g}, {rounds}", spread_words(run.last), spread_words(run.error))
        for name in ("recycled", "plain")
        for (eta, growth, rounds), run in ran.tried(name == "recycled").items()
    ]
    if rows:
        headings = ("rounds", "eta, growth, releases", "loss", "error rate")
        tables.append(Grid("tried", "Certified epsilon = 1, other penalties", headings, rows))
    return tables


def row(level: float, name: str, run: Run) -> Row:
    seen = run.seen
    ends = (spread_words(values) for values in (run.last, seen.even[-1], run.error))
    return level, name, float(len(seen.loss)), seen.claimed, seen.epsilon, *ends
