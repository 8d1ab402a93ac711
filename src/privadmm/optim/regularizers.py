"""Regularisers R(x) over the last axis, with the constants that the proofs and ADMM need.

Consensus ADMM splits R = smooth + rest. The parties' problems include the smooth part, a square; the coordinator takes
the prox of the rest, if there is any. An intercept is a feature like any other, and regularised.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError
from privadmm.params import check_nonnegative


@dataclass(frozen=True)
class Regularizer:
    """R(x) = l1 ||x||_1 + (l2 / 2) ||x||^2; each kind says which share of its weight is l1 and which is l2."""

    weight: float

    def __post_init__(self) -> None:
        check_nonnegative(weight=self.weight)

    @property
    def l1(self) -> float:
        return 0.0

    @property
    def l2(self) -> float:
        return 0.0

    @property
    def smooth(self) -> L2:
        return L2(self.l2)

    @property
    def rest(self) -> L1 | None:
        return L1(self.l1) if self.l1 else None

    def value(self, x: Floats) -> Floats:
        square = self.l2 / 2 * np.sum(x * x, axis=-1)
        return np.asarray(square + self.l1 * np.sum(np.abs(x), axis=-1) if self.l1 else square)

    def subgradient(self, x: Floats) -> Floats:
        return self.l2 * x + self.l1 * np.sign(x) if self.l1 else self.l2 * x

    def prox(self, x: Floats, step: float) -> Floats:
        """argmin over z of step R(z) + ||z - x||^2 / 2"""
        x = np.sign(x) * np.maximum(np.abs(x) - step * self.l1, 0) if self.l1 else x
        return x / (1 + step * self.l2)

    @property
    def strong_convexity(self) -> float:
        return self.l2

    @property
    def smoothness(self) -> float:
        """The Lipschitz constant of the gradient; infinite where R has a kink."""
        return math.inf if self.l1 else self.l2

    def subgradient_bound(self, dim: int) -> float:
        """A bound on ||subgradient|| for every x."""
        return math.inf if self.l2 else self.l1 * math.sqrt(dim)


@dataclass(frozen=True)
class L2(Regularizer):
    """(weight / 2) ||x||^2"""

    @property
    def l2(self) -> float:
        return self.weight


@dataclass(frozen=True)
class L1(Regularizer):
    """weight ||x||_1"""

    @property
    def l1(self) -> float:
        return self.weight


@dataclass(frozen=True)
class ElasticNet(Regularizer):
    """weight (l1_ratio ||x||_1 + (1 - l1_ratio)/2 ||x||^2)"""

    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.l1_ratio <= 1:
            raise ConfigError(f"l1_ratio must lie between 0 and 1, not {self.l1_ratio!r}")

    @property
    def l1(self) -> float:
        return self.weight * self.l1_ratio

    @property
    def l2(self) -> float:
        return self.weight * (1 - self.l1_ratio)


# Regularisers by their names in configs and estimators; config/sections.py lists the names again, to load no numpy.
REGULARIZERS: dict[str, Callable[..., Regularizer]] = {"l2": L2, "l1": L1, "elastic_net": ElasticNet}
