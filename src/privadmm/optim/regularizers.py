"""Regularisers R(x) over the last axis, with what the proofs and ADMM need of them.

Consensus ADMM splits R = smooth + rest: the smooth part, a square, is handled inside the parties' problems; the rest
(None if nothing is left) by its prox at the coordinator. An intercept is a feature like any other, and regularised.
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
    @property
    def weight(self) -> float: ...
    @property
    def strong_convexity(self) -> float: ...
    @property
    def smoothness(self) -> float:
        """The Lipschitz constant of the gradient; infinite where there is a kink."""

    @property
    def smooth(self) -> L2: ...
    @property
    def rest(self) -> L1 | None: ...

    def value(self, x: Floats) -> Floats: ...
    def subgradient(self, x: Floats) -> Floats: ...
    def prox(self, x: Floats, step: float) -> Floats:
        """argmin over z of step R(z) + ||z - x||^2 / 2"""

    def subgradient_bound(self, dim: int) -> float:
        """A bound on ||subgradient|| for every x."""


@dataclass(frozen=True)
class L2:
    """(weight / 2) ||x||^2"""

    weight: float

    def __post_init__(self) -> None:
        check_nonnegative(weight=self.weight)

    @property
    def strong_convexity(self) -> float:
        return self.weight

    @property
    def smoothness(self) -> float:
        return self.weight

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

    def subgradient_bound(self, dim: int) -> float:
        return math.inf if self.weight > 0 else 0.0


@dataclass(frozen=True)
class L1:
    """weight ||x||_1"""

    weight: float

    def __post_init__(self) -> None:
        check_nonnegative(weight=self.weight)

    @property
    def strong_convexity(self) -> float:
        return 0.0

    @property
    def smoothness(self) -> float:
        return math.inf if self.weight > 0 else 0.0

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

    def subgradient_bound(self, dim: int) -> float:
        return self.weight * math.sqrt(dim)


@dataclass(frozen=True)
class ElasticNet:
    """weight (l1_ratio ||x||_1 + (1 - l1_ratio)/2 ||x||^2)"""

    weight: float
    l1_ratio: float = 0.5

    def __post_init__(self) -> None:
        check_nonnegative(weight=self.weight)
        if not 0 <= self.l1_ratio <= 1:
            raise ConfigError(f"l1_ratio must lie between 0 and 1, not {self.l1_ratio!r}")

    @property
    def smooth(self) -> L2:
        return L2(self.weight * (1 - self.l1_ratio))

    @property
    def rest(self) -> L1 | None:
        return L1(self.weight * self.l1_ratio).rest

    @property
    def strong_convexity(self) -> float:
        return self.smooth.weight

    @property
    def smoothness(self) -> float:
        return self.smooth.weight if self.rest is None else math.inf

    def value(self, x: Floats) -> Floats:
        return np.asarray(self.smooth.value(x) + L1(self.weight * self.l1_ratio).value(x))

    def subgradient(self, x: Floats) -> Floats:
        return self.smooth.subgradient(x) + L1(self.weight * self.l1_ratio).subgradient(x)

    def prox(self, x: Floats, step: float) -> Floats:
        return self.smooth.prox(L1(self.weight * self.l1_ratio).prox(x, step), step)

    def subgradient_bound(self, dim: int) -> float:
        return math.inf if self.smooth.weight > 0 else self.weight * self.l1_ratio * math.sqrt(dim)


REGULARIZERS: dict[str, type[Regularizer]] = {"l2": L2, "l1": L1, "elastic_net": ElasticNet}
