"""What the runs of the paper on recycled ADMM found, by figure."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.framework.nodes import Seen
from privadmm.papers.mr_admm.runs import GAMMA, GROWTH, MR, STILL, R, Run, plans


@dataclass(frozen=True)
class Results:
    """By the keys of the tasks; see mr_admm.py."""

    of: dict[Any, Any]

    @property
    def pairs(self) -> int:
        return len(self.run("published", R, self.levels("published")[0]).seen.loss)

    def levels(self, kind: str) -> list[float]:
        """The alphas or epsilons of Figure 5, the least private first."""
        return sorted({key[2] for key in self.of if key[0] == kind and len(key) == 3}, reverse=True)

    def names(self, kind: str, level: float) -> list[str]:
        return [name for name in plans(1) if (kind, name, level) in self.of]

    def run(self, kind: str, name: str, level: float) -> Run:
        found: Run = self.of[kind, name, level]
        return found

    def varied(self, alpha: float) -> dict[tuple[float, float], Run]:
        """Figures 3 and 4: MR-ADMM by gamma and growth; one of them is Figure 5's."""
        found = {(key[2], key[3]): run for key, run in self.of.items() if key[:2] == ("varied", alpha)}
        if found:
            found[GAMMA, GROWTH] = self.run("published", MR, alpha)
        return dict(sorted(found.items()))

    @property
    def tried(self) -> dict[bool, dict[tuple[float, float, int], Run]]:
        """At a certified epsilon of 1, recycled rounds (True) and plain ones, by eta, growth and releases."""
        found: dict[bool, dict[tuple[float, float, int], Run]] = {True: {}, False: {}}
        for key, run in self.of.items():
            if key[0] == "tried":
                found[key[1] < STILL][key[2:]] = run
        return found

    def sizes(self) -> list[int]:
        return sorted(key[1] for key in self.of if key[0] == "gammas")

    def gammas(self, size: int) -> dict[float, Seen]:
        found: dict[float, Seen] = self.of["gammas", size]
        return found

    def speeds(self, name: str) -> dict[int, Seen]:
        return {k: seen for (kind, k), seen in self.of["speeds"].items() if kind == name}

    @property
    def overfitting(self) -> dict[float, Seen]:
        found: dict[float, Seen] = self.of["overfitting"]
        return found


def oscillation(seen: Seen) -> float:
    """How far an even iterate raises the loss above that of the odd one before, averaged over pairs."""
    return float(np.maximum(seen.even - seen.loss, 0).mean())


def listed(at: list[float] | list[int], values: list[float] | Floats, name: str = "gamma") -> str:
    return f"{name} " + ", ".join(f"{a:g}: {value:.4g}" for a, value in zip(at, values, strict=True))


def ranges(runs: Mapping[str, Floats]) -> str:
    """Runs of methods or settings, in the order that is claimed of their means: how far their ranges agree with it."""
    pairs = [(a, b) for a, b in pairwise(runs) if runs[a].max() >= runs[b].min() and runs[b].max() >= runs[a].min()]
    if not pairs:
        return "judged by means; neighbouring ranges do not touch"
    return "judged by means; ranges overlap: " + ", ".join(f"{a} and {b}" for a, b in pairs)
