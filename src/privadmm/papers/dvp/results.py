"""What the runs of the dual perturbation paper found, read off: curves over alpha, their fits, the best alpha."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.dvp.tradeoff import WEIGHTS, Fit, FitError, Weights, fit, measured_best
from privadmm.papers.framework.nodes import Seen

EARLY, LATE = ((0.2, 25.0), (20.0, 20.0))  # c4, c5 as printed: "at all iterations", and then "for iteration t > 1"
KINDS = ("proof", "certified")


@dataclass(frozen=True)
class Results:
    """By (kind, alpha), ("rho", rho), ("plain", rho) and ("refused", alpha)."""

    of: dict[Any, Any]
    rho: float
    chosen: float
    middle: int  # the round of Figure 3(a); 3(b) is at the last

    def alphas(self, kind: str) -> list[float]:
        return sorted(alpha for name, alpha in self.of if name == kind)

    def seen(self, kind: str, alpha: float) -> Seen:
        found: Seen = self.of[kind, alpha]
        return found

    @property
    def rounds(self) -> int:
        return len(self.seen("proof", self.alphas("proof")[0]).loss)

    def over(self, kind: str, what: str, round: int) -> Floats:
        """Loss or error after this round, (alphas, seeds)."""
        return np.array([getattr(self.seen(kind, alpha), what)[round - 1] for alpha in self.alphas(kind)])

    @cached_property
    def fits(self) -> dict[tuple[str, int], Fit | str]:
        """Of the mean losses; why there is none, otherwise."""
        found: dict[tuple[str, int], Fit | str] = {}
        for kind in KINDS:
            for round in (self.middle, self.rounds):
                alphas = self.alphas(kind)
                if len(alphas) < 4:
                    found[kind, round] = f"{len(alphas)} alphas were run, and a fit needs four"
                    continue
                try:
                    found[kind, round] = fit(alphas, self.over(kind, "loss", round).mean(axis=1).tolist())
                except FitError as error:
                    found[kind, round] = str(error)
        return found

    def best(self, kind: str, round: int) -> dict[str, Any]:
        """Of the alphas that were run, the best by the printed weights and the measured mean losses."""
        losses = self.over(kind, "loss", round).mean(axis=1)
        return measured_best(self.alphas(kind), losses.tolist(), Weights(*WEIGHTS))

    @property
    def floor(self) -> float:
        """c6 by the paper's second rule, the loss averaged from a fifth of the rounds on, at the largest alpha."""
        largest = self.seen("proof", self.alphas("proof")[-1])
        return float(largest.loss[self.middle - 1 :].mean())

    @property
    def by_rho(self) -> dict[float, Floats]:
        """The loss at the chosen alpha after the round to which every rho was run."""
        found = {rho: self.of["rho", rho].loss for name, rho in self.of if name == "rho"}
        at = min(len(loss) for loss in found.values())
        found[self.rho] = self.seen("proof", self.chosen).loss
        return {rho: found[rho][at - 1] for rho in sorted(found)}


def listed(at: list[float], values: Floats | list[float], name: str = "alpha") -> str:
    return f"{name} " + ", ".join(f"{a:.3g}: {value:.4g}" for a, value in zip(at, values, strict=True))
