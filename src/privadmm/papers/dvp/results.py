"""Results of the dual perturbation paper's runs: curves over alpha, their fits, Figures 2 and 3, and tables."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.dvp.tradeoff import WEIGHTS, Fit, FitError, Weights, fit, measured_best, model
from privadmm.papers.framework.nodes import Seen
from privadmm.papers.framework.study import Figure, Grid, Line, Panel, Row, spread_words
from privadmm.runs.palette import Meaning

EARLY, LATE = (0.2, 25.0), (20.0, 20.0)  # c4, c5 as printed: "at all iterations", and then "for iteration t > 1"
KINDS = ("proof", "certified")
MEANINGS: dict[str, Meaning] = {"proof": "published", "certified": "certified"}


@dataclass(frozen=True)
class Results:
    """Runs by (kind, alpha), ("rho", rho), ("plain", rho) and ("refused", alpha)."""

    of: dict[Any, Any]
    rho: float
    chosen: float
    middle: int  # the round of Figure 3(a); 3(b) is at the last

    def alphas(self, kind: str) -> list[float]:
        return sorted(alpha for name, alpha in self.of if name == kind)

    def seen(self, kind: str, alpha: float) -> Seen:
        seen: Seen = self.of[kind, alpha]
        return seen

    @property
    def rounds(self) -> int:
        return len(self.seen("proof", self.alphas("proof")[0]).loss)

    def over(self, kind: str, what: str, round: int) -> Floats:
        """Loss or error after this round, (alphas, seeds)."""
        return np.array([getattr(self.seen(kind, alpha), what)[round - 1] for alpha in self.alphas(kind)])

    @cached_property
    def fits(self) -> dict[tuple[str, int], Fit | str]:
        """Fits of the mean losses, by kind and round, or the reason why there is no fit."""
        return {(kind, round): self.fit(kind, round) for kind in KINDS for round in (self.middle, self.rounds)}

    def fit(self, kind: str, round: int) -> Fit | str:
        alphas = self.alphas(kind)
        if len(alphas) < 4:
            return f"{len(alphas)} alphas were run, and a fit needs four"
        try:
            return fit(alphas, self.over(kind, "loss", round).mean(axis=1).tolist())
        except FitError as error:
            return str(error)

    def best(self, kind: str, round: int) -> dict[str, Any]:
        """The best of the alphas that were run, by the printed weights and the measured mean losses."""
        losses = self.over(kind, "loss", round).mean(axis=1)
        return measured_best(self.alphas(kind), losses.tolist(), Weights(*WEIGHTS))

    @property
    def floor(self) -> float:
        """c6 by the paper's second rule, the loss averaged from a fifth of the rounds on, at the largest alpha."""
        return float(self.seen("proof", self.alphas("proof")[-1]).loss[self.middle - 1 :].mean())

    @property
    def by_rho(self) -> dict[float, Floats]:
        """The loss at the chosen alpha, by rho, after the last round that all of these runs have."""
        losses = {rho: self.seen("rho", rho).loss for rho in self.alphas("rho")}
        at = min(len(loss) for loss in losses.values())
        losses[self.rho] = self.seen("proof", self.chosen).loss
        return {rho: losses[rho][at - 1] for rho in sorted(losses)}


def figures(ran: Results) -> tuple[Figure, ...]:
    rates = [
        Line.of(f"{kind} noise", ran.over(kind, "error", ran.rounds), ran.alphas(kind), meaning=MEANINGS[kind])
        for kind in KINDS
    ]
    title = f"(d) error rate after round {ran.rounds}"
    tradeoff = (
        *(losses(ran, round) for round in (ran.middle, ran.rounds)),
        Panel(title, "alpha of a round", "error rate on test records", rates, xscale="log"),
        utility(ran),  # the paper draws it into the other panels
    )
    return (
        Figure(
            "figure-2",
            "Figure 2: loss by round, for the alpha of a round",
            [
                Panel(f"{kind} noise", "round", "mean loss", by_round(ran, kind), yscale="log")
                for kind in (*KINDS, "box")
            ],
        ),
        Figure("figure-3", "Figure 3: privacy against accuracy", tradeoff),
    )


def by_round(ran: Results, kind: str) -> list[Line]:
    lines, alphas = [], ran.alphas(kind)
    for alpha in alphas:
        seen, name = ran.seen(kind, alpha), f"alpha = {alpha:g}"
        cost = "no epsilon" if seen.epsilon is None else f"epsilon {seen.epsilon:.3g}"
        lines.append(Line.of(f"{name}; certified {cost} in all", seen.loss, level=alpha))
    rho = ran.alphas("plain")[0]
    shown = ran.seen("plain", rho).loss[: len(ran.seen(kind, alphas[0]).loss)]
    return [*lines, Line.of(f"no noise, rho = {rho:g}", shown, dashed=True, meaning="non_private")]


def losses(ran: Results, round: int) -> Panel:
    lines = []
    for kind in KINDS:
        alphas, curve = ran.alphas(kind), ran.fits[kind, round]
        meaning = MEANINGS[kind]
        lines.append(Line.of(f"{kind} noise", ran.over(kind, "loss", round), alphas, meaning=meaning))
        if isinstance(curve, Fit):
            fine = np.geomspace(alphas[0], alphas[-1], 60)
            fitted = f"{curve.c4:.3g} exp(-{curve.c5:.3g} alpha) + {curve.c6:.3g}"
            label = f"{'fit' if curve.good else 'a poor fit'}: {fitted}"
            lines.append(Line.of(label, curve(fine), fine.tolist(), dashed=True, meaning=meaning))
    alphas = ran.alphas("proof")
    printed = model(np.array(alphas), *LATE, ran.floor)
    lines.append(replace(Line.of("20 exp(-20 alpha) + c6", printed, alphas, meaning="published"), published=True))
    title = f"{'(a)' if round == ran.middle else '(b), (c)'} loss after round {round}"
    return Panel(title, "alpha of a round", "mean loss", lines, xscale="log", yscale="log")


def utility(ran: Results) -> Panel:
    """Draw utility of privacy less loss, from alpha = 0.1 on: below, the loss of the proof's noise dwarfs all else."""
    lines = []
    for kind in KINDS:
        alphas, top = np.array(ran.alphas(kind)), ran.best(kind, ran.rounds)
        worth = Weights(*WEIGHTS).privacy(alphas)[:, None] - ran.over(kind, "loss", ran.rounds)
        edge = "" if top["where"] == "inside" else f", the {top['where']} that was run"
        label, drawn = f"{kind} noise; best alpha {top['alpha']:.3g}{edge}", alphas >= 0.1
        lines.append(Line.of(label, worth[drawn], alphas[drawn].tolist(), meaning=MEANINGS[kind]))
    return Panel("utility of privacy less measured loss", "alpha of a round", "U_priv - loss", lines, xscale="log")


def grids(ran: Results) -> tuple[Grid, ...]:
    runs, fits = list[Row](), list[Row]()
    for kind in (*KINDS, "box"):
        for alpha in ran.alphas(kind):
            seen = ran.seen(kind, alpha)
            ends = spread_words(seen.last), spread_words(seen.error[-1])
            ends = ends if np.isfinite(seen.last).all() else ("ran away", "-")
            runs.append((kind, alpha, seen.one_round, seen.epsilon, *ends))
    for (kind, round), curve in ran.fits.items():
        constants: Row = (curve, None, None, None, None)  # type: ignore[assignment]  # the reason
        if isinstance(curve, Fit):
            constants = (curve.c4, curve.c5, curve.c6, curve.r2, f"{100 * curve.off:.0f} %")
        fits.append((kind, round, *constants, ran.best(kind, round)["alpha"]))
    fits.append(("printed, all iterations", None, *EARLY, "min over t of the loss", None, None, None))
    fits.append(("printed, t > 1", None, *LATE, "mean over t = 20..100", None, None, None))
    boxed = max(len(ran.seen("box", alpha).loss) for alpha in ran.alphas("box"))
    caption = f"Runs: loss and error rate at the end, mean (range); {ran.rounds} rounds, the box {boxed}"
    columns = ("noise", "alpha", "certified, one round", "certified, all rounds", "mean loss", "error rate")
    fitted = ("noise", "round", "c4", "c5", "c6", "R^2", "off by up to", "best alpha, by measured losses")
    return (
        Grid("runs", caption, columns, runs),
        Grid("fits", "Figure 3: L_acc = c4 exp(-c5 alpha) + c6", fitted, fits),
    )
