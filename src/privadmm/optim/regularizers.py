"""Regularisers R(x) over the last axis, with the constants that the proofs and ADMM need.

Consensus ADMM splits R = smooth + rest. The parties' problems include the smooth part, a square; the coordinator takes
the prox of the rest, if there is any. An intercept is a feature like any other, and regularised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError
from privadmm.params import check_nonnegative


class Regularizer(Protocol):
    """R, and what follows from its two parts."""

    weight: float

    def __post_init__(self) -> None:
        check_nonnegative(weight=self.weight)

    @property
    def smooth(self) -> L2: ...
    @property
    def rest(self) -> L1 | None: ...
    def value(self, x: Floats) -> Floats: ...
    def subgradient(self, x: Floats) -> Floats: ...
    def prox(self, x: Floats, step: float) -> Floats:
        """argmin over z of step R(z) + ||z - x||^2 / 2"""

    @property
    def strong_convexity(self) -> float:
        return self.smooth.weight

    @property
    def smoothness(self) -> float:
        """The Lipschitz constant of the gradient; infinite where R has a kink."""
        return self.smooth.weight if self.rest is None else math.inf

    def subgradient_bound(self, dim: int) -> float:
        """A bound on ||subgradient|| for every x."""
        if self.smooth.weight > 0:
            return math.inf
        return 0.0 if self.rest is None else self.rest.weight * math.sqrt(dim)


@dataclass(frozen=True)
class L2(Regularizer):
    """(weight / 2) ||x||^2"""

    weight: float

    @property
    def smooth(self) -> L2:
        return self

    @property
    def rest(self) -> None:
        return None

    def value(self, x: Floats) -> Floats:
        return np.asarray(self.weight / 2 * np.sum(x * x, axis=-1))

    def subgradient(self, x: Floats) -> Floats:
        return self.weight * x

    def prox(self, x: Floats, step: float) -> Floats:
        return x / (1 + step * self.weight)


@dataclass(frozen=True)
class L1(Regularizer):
    """weight ||x||_1"""

    weight: float

    @property
    def smooth(self) -> L2:
        return L2(0.0)

    @property
    def rest(self) -> L1 | None:
        return self if self.weight > 0 else None

    def value(self, x: Floats) -> Floats:
        return np.asarray(self.weight * np.sum(np.abs(x), axis=-1))

    def subgradient(self, x: Floats) -> Floats:
        return self.weight * np.sign(x)

    def prox(self, x: Floats, step: float) -> Floats:
        return np.sign(x) * np.maximum(np.abs(x) - step * self.weight, 0)


@dataclass(frozen=True)
class ElasticNet(Regularizer):
    """weight (l1_ratio ||x||_1 + (1 - l1_ratio)/2 ||x||^2)"""

    weight: float
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.l1_ratio <= 1:
            raise ConfigError(f"l1_ratio must lie between 0 and 1, not {self.l1_ratio!r}")

    @property
    def smooth(self) -> L2:
        return L2(self.weight * (1 - self.l1_ratio))

    @property
    def absolute(self) -> L1:
        return L1(self.weight * self.l1_ratio)

    @property
    def rest(self) -> L1 | None:
        return self.absolute.rest

    def value(self, x: Floats) -> Floats:
        return np.asarray(self.smooth.value(x) + self.absolute.value(x))

    def subgradient(self, x: Floats) -> Floats:
        return self.smooth.subgradient(x) + self.absolute.subgradient(x)

    def prox(self, x: Floats, step: float) -> Floats:
        return self.smooth.prox(self.absolute.prox(x, step), step)
