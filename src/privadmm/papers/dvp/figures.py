"""Figures 2 and 3 of the dual perturbation paper, drawn again, and the tables beside them."""

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.dvp.results import EARLY, KINDS, LATE, Results
from privadmm.papers.dvp.tradeoff import WEIGHTS, Fit, Weights, model
from privadmm.papers.framework.study import Figure, Grid, Line, Panel, Spread, spread_words


def figures(found: Results) -> tuple[Figure, ...]:
    return convergence(found), tradeoff(found)


def convergence(found: Results) -> Figure:
    """Figure 2."""
    panels = [
        Panel(f"{kind} noise", "round", "mean loss", tuple(by_round(found, kind)), yscale="log")
        for kind in (*KINDS, "box")
    ]
    return Figure("figure-2", "Figure 2: loss by round, for the alpha of a round", tuple(panels))


def by_round(found: Results, kind: str) -> list[Line]:
    lines = []
    for alpha in found.alphas(kind):
        seen = found.seen(kind, alpha)
        label = f"alpha = {alpha:g}; certified {words(seen.epsilon)} in all"
        curve = Spread.of(seen.loss)
        lines.append(Line(label, range(1, len(seen.loss) + 1), curve, series=f"alpha = {alpha:g}"))
    rho, plain = next((rho, seen) for (name, rho), seen in found.of.items() if name == "plain")
    shown = plain.loss[: len(found.seen(kind, found.alphas(kind)[0]).loss)]
    label = f"no noise, rho = {rho:g}"
    return [*lines, Line(label, range(1, len(shown) + 1), Spread.of(shown), dashed=True)]


def words(epsilon: float | None) -> str:
    return "no epsilon" if epsilon is None else f"epsilon {epsilon:.3g}"


def tradeoff(found: Results) -> Figure:
    """Figure 3, with what the paper calls the utility of privacy in a panel of its own."""
    panels = [losses(found, round) for round in (found.middle, found.rounds)]
    panels.append(
        Panel(
            f"(d) error rate after round {found.rounds}",
            "alpha of a round",
            "error rate on test records",
            tuple(
                Line(f"{kind} noise", found.alphas(kind), Spread.of(found.over(kind, "error", found.rounds)))
                for kind in KINDS
            ),
            xscale="log",
        )
    )
    panels.append(utility(found))
    return Figure("figure-3", "Figure 3: privacy against accuracy", tuple(panels))


def losses(found: Results, round: int) -> Panel:
    lines = []
    for kind in KINDS:
        alphas = found.alphas(kind)
        lines.append(Line(f"{kind} noise", alphas, Spread.of(found.over(kind, "loss", round))))
        curve = found.fits[kind, round]
        if isinstance(curve, Fit):
            fine = grid(alphas)
            fitted = f"{curve.c4:.3g} exp(-{curve.c5:.3g} alpha) + {curve.c6:.3g}"
            label = f"{'fit' if curve.good else 'a poor fit'}: {fitted}"
            lines.append(Line(label, fine.tolist(), flat(curve(fine)), dashed=True, series=f"fit, {kind}"))
    alphas = found.alphas("proof")
    printed = model(np.array(alphas), *LATE, found.floor)
    lines.append(Line("20 exp(-20 alpha) + c6", alphas, flat(printed), published=True))
    place = "(a)" if round == found.middle else "(b), (c)"
    return Panel(
        f"{place} loss after round {round}", "alpha of a round", "mean loss", tuple(lines), xscale="log", yscale="log"
    )


def utility(found: Results) -> Panel:
    """From alpha = 0.1 on: below, the loss of the proof's noise hides all else."""
    lines, weights = [], Weights(*WEIGHTS)
    for kind in KINDS:
        alphas, top = np.array(found.alphas(kind)), found.best(kind, found.rounds)
        worth = weights.privacy(alphas)[:, None] - found.over(kind, "loss", found.rounds)
        edge = "" if top["where"] == "inside" else f", the {top['where']} that was run"
        label, drawn = f"{kind} noise; best alpha {top['alpha']:.3g}{edge}", alphas >= 0.1
        lines.append(Line(label, alphas[drawn].tolist(), Spread.of(worth[drawn]), series=f"{kind} noise"))
    return Panel(
        "utility of privacy less measured loss", "alpha of a round", "U_priv - loss", tuple(lines), xscale="log"
    )


def grid(alphas: list[float]) -> Floats:
    return np.geomspace(alphas[0], alphas[-1], 60)


def flat(values: Floats) -> Spread:
    return Spread(values, values, values)


def grids(found: Results) -> tuple[Grid, ...]:
    runs = tuple(
        (
            kind,
            alpha,
            seen.one_round,
            seen.epsilon,
            spread_words(seen.last) if np.isfinite(seen.last).all() else "ran away",
            spread_words(seen.error[-1]) if np.isfinite(seen.last).all() else "-",
        )
        for kind in (*KINDS, "box")
        for alpha in found.alphas(kind)
        for seen in [found.seen(kind, alpha)]
    )
    fits = tuple(
        (kind, round, curve.c4, curve.c5, curve.c6, curve.r2, f"{100 * curve.off:.0f} %", top)
        if isinstance(curve, Fit)
        else (kind, round, curve, None, None, None, None, top)
        for (kind, round), curve in found.fits.items()
        for top in [found.best(kind, round)["alpha"]]
    )
    boxed = max(len(found.seen("box", alpha).loss) for alpha in found.alphas("box"))
    printed = (
        ("printed, all iterations", None, *EARLY, "min over t of the loss", None, None, None),
        ("printed, t > 1", None, *LATE, "mean over t = 20..100", None, None, None),
    )
    return (
        Grid(
            "runs",
            f"Runs: loss and error rate at the end, mean (range); {found.rounds} rounds, the box {boxed}",
            ("noise", "alpha", "certified, one round", "certified, all rounds", "mean loss", "error rate"),
            runs,
        ),
        Grid(
            "fits",
            "Figure 3: L_acc = c4 exp(-c5 alpha) + c6",
            ("noise", "round", "c4", "c5", "c6", "R^2", "off by up to", "best alpha, by measured losses"),
            fits + printed,
        ),
    )
