"""Convex losses of a record's score m = a.x, with the constants that the privacy proofs need.

Classification losses are functions of t = y m with y in {-1, +1}; `deriv` is the derivative in m, so it carries the
factor y. Records lie in the unit ball: |deriv| <= lipschitz bounds a record's gradient, curv <= smoothness its Hessian.
Everything is elementwise, on arrays of any shape, and does not overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError
from privadmm.params import check_positive


class Loss(Protocol):
    """A loss of one record. The constants hold for every score and label that the loss accepts."""

    @property
    def lipschitz(self) -> float: ...  # L, a bound on |deriv|; infinite: no sensitivity can be certified
    @property
    def smoothness(self) -> float: ...  # c, a bound on curv; infinite: first-order methods only
    @property
    def flip(self) -> float: ...  # how far deriv can move when the label alone is replaced
    @property
    def convex(self) -> bool: ...  # only of a convex loss can an argmin be certified
    def value(self, m: Floats, y: Floats) -> Floats: ...
    def deriv(self, m: Floats, y: Floats) -> Floats: ...
    def curv(self, m: Floats, y: Floats) -> Floats: ...

    def prox(self, v: Floats, y: Floats, k: float) -> Floats:
        """argmin over z of loss(z; y) + k/2 (z - v)^2, to the last few bits: the label step where features are split.

        It is where loss'(z; y) + k (z - v) = 0. The losses write t = y z and s = y v.
        """
        ...

    @property
    def flip_smoothness(self) -> float:
        """c, or 0 where curv does not depend on the label."""
        return self.smoothness

    @property
    def classification(self) -> bool:
        """Labels are -1 or +1."""
        return True


@np.errstate(over="ignore")
def logistic_slope(t: Floats, y: Floats) -> Floats:
    """Compute -y / (1 + e^t), in place on t. From t = 710 on e^t is infinite, and the result 0."""
    np.exp(t, out=t)
    np.subtract(-1.0, t, out=t)
    return np.divide(y, t, out=t)


CAP = 400  # steps of Newton's method: six are usual, and for a tiny k about ln(1/k)
SHORT = 2.0**-27  # a step of Newton's method after which none is needed
AT_ONCE = 1 << 14  # roots that are looked for at a time: what a step computes for them stays in the processor's cache


def falling_root(s: Floats, k: float) -> Floats:
    """The t >= 0 with sigmoid(-t) = k (t - s), for s >= -1/(2k), by Newton's method.

    f(t) = k (t - s) - sigmoid(-t) increases and, for t >= 0, is concave: its tangents lie above it and meet 0 before it
    does. So steps from a start below the root never pass it, however small k is; a step that does not lead upwards is
    rounding. The start is s, or where the tangent at 0 leads to. Since -f''/f' is at most tanh(t/2), a step h < 1 leads
    to within -ln(1 - h) - h of the root, and to within about h^2/4 of it, relatively: SHORT is short enough.
    """
    flat, roots = s.reshape(-1), np.empty(s.size)
    for first in range(0, flat.size, AT_ONCE):
        part = flat[first : first + AT_ONCE]
        t, far = np.maximum(part, (k * part + 0.5) / (k + 0.25)), np.ones(part.shape, dtype=bool)
        for _ in range(CAP):
            e = np.exp(-t)
            rest = 1 / (1 + e)
            share = e * rest
            step = far * ((share - k * (t - part)) / (k + share * rest))  # after a short one, nobody moves again
            t += np.maximum(step, 0)
            far = step > SHORT
            if not far.any():
                break
        roots[first : first + AT_ONCE] = t
    return roots.reshape(s.shape)


@dataclass(frozen=True)
class Logistic(Loss):
    """ln(1 + e^-t)"""

    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25
    flip: ClassVar[float] = 1.0
    flip_smoothness: ClassVar[float] = 0.0
    convex: ClassVar[bool] = True

    def value(self, m: Floats, y: Floats) -> Floats:
        t = y * m
        return np.asarray(np.log1p(np.exp(-np.abs(t))) - np.minimum(t, 0))

    def deriv(self, m: Floats, y: Floats) -> Floats:
        return logistic_slope(y * m, y)

    def curv(self, m: Floats, y: Floats) -> Floats:
        # Through e^-|t|: s (1 - s) loses every digit once s rounds to 1.
        e = np.exp(-np.abs(m))
        return np.asarray(e / (1 + e) ** 2)

    def prox(self, v: Floats, y: Floats, k: float) -> Floats:
        # sigmoid(-t) = k (t - s) with s' = -s - 1/k in place of s has the solution -t: where t < 0, look for -t.
        s = y * v
        below = s < -1 / (2 * k)
        t = falling_root(np.where(below, -s - 1 / k, s), k)
        return np.where(below, -y, y) * t


@dataclass(frozen=True)
class HalfLogistic(Loss):
    """ln(1 + e^-t) for t >= 0, ln 2 - t/2 below; derivative -min(1/2, sigmoid(-t)) (docs/privacy.md#half-logistic)."""

    lipschitz: ClassVar[float] = 0.5
    smoothness: ClassVar[float] = 0.25
    flip: ClassVar[float] = 1.0
    convex: ClassVar[bool] = True

    def value(self, m: Floats, y: Floats) -> Floats:
        t = y * m
        return np.log1p(np.exp(-np.maximum(t, 0))) - np.minimum(t, 0) / 2

    def deriv(self, m: Floats, y: Floats) -> Floats:
        return logistic_slope(np.maximum(y * m, 0), y)

    def curv(self, m: Floats, y: Floats) -> Floats:
        t = y * m
        e = np.exp(-np.maximum(t, 0))
        return np.where(t >= 0, e / (1 + e) ** 2, 0.0)

    def prox(self, v: Floats, y: Floats, k: float) -> Floats:
        straight = y * v + 1 / (2 * k)  # t, where it is negative
        return y * np.where(straight < 0, straight, falling_root(np.maximum(y * v, -1 / (2 * k)), k))


@dataclass(frozen=True)
class HuberHinge(Loss):
    """0 for t > 1 + h, (1 + h - t)^2 / 4h for |1 - t| <= h, 1 - t below."""

    h: float = 0.5
    lipschitz: ClassVar[float] = 1.0
    flip: ClassVar[float] = 2.0
    convex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(h=self.h)

    @property
    def smoothness(self) -> float:
        return 1 / (2 * self.h)

    def value(self, m: Floats, y: Floats) -> Floats:
        t = y * m
        bend = np.clip(1 + self.h - t, 0, 2 * self.h)
        return bend**2 / (4 * self.h) + np.maximum(1 - self.h - t, 0)

    def deriv(self, m: Floats, y: Floats) -> Floats:
        return -y * np.clip((1 + self.h - y * m) / (2 * self.h), 0, 1)

    def curv(self, m: Floats, y: Floats) -> Floats:
        return np.where(np.abs(1 - y * m) <= self.h, self.smoothness, 0.0)

    def prox(self, v: Floats, y: Floats, k: float) -> Floats:
        s, c = y * v, self.smoothness
        bent = (k * s + c * (1 + self.h)) / (k + c)  # t, where the loss is bent
        return np.asarray(y * np.where(bent < 1 - self.h, s + 1 / k, np.maximum(s, np.minimum(bent, 1 + self.h))))


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - t). Its derivative jumps: `deriv` is a subgradient, and only first-order methods accept the loss."""

    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = math.inf
    flip: ClassVar[float] = 2.0
    convex: ClassVar[bool] = True

    def value(self, m: Floats, y: Floats) -> Floats:
        return np.maximum(1 - y * m, 0)

    def deriv(self, m: Floats, y: Floats) -> Floats:
        return np.where(y * m < 1, -y, 0.0)

    def curv(self, m: Floats, y: Floats) -> Floats:
        raise ConfigError("the hinge has no second derivative; use huber_hinge, or a first-order method")

    def prox(self, v: Floats, y: Floats, k: float) -> Floats:
        return np.asarray(y * np.clip(1.0, y * v, y * v + 1 / k))


@dataclass(frozen=True)
class Squared(Loss):
    """(m - y)^2 / 2 with labels clipped to the declared |y| <= label_bound, and straight beyond |m| = radius.

    The derivative is clip(m, radius) - clip(y, label_bound): with a declared radius it is bounded by their sum for
    every m, whatever the weights. Without one it is unbounded, and private methods refuse the loss. A radius below
    label_bound is refused: the derivative would never change its sign for a label between them, and the loss would have
    no minimum.
    """

    label_bound: float = 1.0
    radius: float | None = None
    smoothness: ClassVar[float] = 1.0
    flip_smoothness: ClassVar[float] = 0.0
    classification: ClassVar[bool] = False
    convex: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_positive(label_bound=self.label_bound)
        if self.radius is not None:
            check_positive(radius=self.radius)
            if self.radius < self.label_bound:
                raise ConfigError(
                    f"radius = {self.radius:g} is below label_bound = {self.label_bound:g}: labels between them would "
                    "draw predictions away without end. Declare a radius of at least label_bound"
                )

    @property
    def lipschitz(self) -> float:
        return math.inf if self.radius is None else self.label_bound + self.radius

    @property
    def flip(self) -> float:
        return 2 * self.label_bound

    def inside(self, m: Floats) -> Floats:
        return m if self.radius is None else np.clip(m, -self.radius, self.radius)

    def value(self, m: Floats, y: Floats) -> Floats:
        slope, beyond = self.deriv(m, y), m - self.inside(m)
        return slope**2 / 2 + slope * beyond

    def deriv(self, m: Floats, y: Floats) -> Floats:
        return self.inside(m) - np.clip(y, -self.label_bound, self.label_bound)

    def curv(self, m: Floats, y: Floats) -> Floats:
        return np.ones_like(m) if self.radius is None else (np.abs(m) <= self.radius).astype(np.float64)

    def prox(self, v: Floats, y: Floats, k: float) -> Floats:
        y = np.clip(y, -self.label_bound, self.label_bound)
        z = (k * v + y) / (k + 1)
        return np.where(self.inside(z) == z, z, v + (y - self.inside(z)) / k)


@dataclass(frozen=True)
class Debiased(Loss):
    """The loss of a label y' that randomised response kept with probability e^epsilon/(1 + e^epsilon):

        (e^epsilon loss(y') - loss(-y')) / (e^epsilon - 1)

    Its expectation is the loss of the true label. For the logistic loss it is loss(y') - y' m/(e^epsilon - 1), which is
    convex with the same curvature. For any other loss it is not convex, and only first-order methods accept it.
    """

    loss: Loss
    epsilon: float

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)
        if not self.loss.classification:
            raise ConfigError("labels of a regression cannot be randomised; use a loss of classes")

    @property
    def other(self) -> float:
        """The weight of the label that was not reported, 1/(e^epsilon - 1)."""
        return math.exp(-self.epsilon) / -math.expm1(-self.epsilon)

    @property
    def spread(self) -> float:
        """The sum of both weights, (e^epsilon + 1)/(e^epsilon - 1)."""
        return 1 + 2 * self.other

    @property
    def convex(self) -> bool:
        return isinstance(self.loss, Logistic)

    @property
    def lipschitz(self) -> float:
        return 1 + self.other if self.convex else self.spread * self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        return self.loss.smoothness if self.convex else (1 + self.other) * self.loss.smoothness

    @property
    def flip(self) -> float:
        return self.spread * self.loss.flip

    @property
    def flip_smoothness(self) -> float:
        return self.spread * self.loss.flip_smoothness

    def value(self, m: Floats, y: Floats) -> Floats:
        return (1 + self.other) * self.loss.value(m, y) - self.other * self.loss.value(m, -y)

    def deriv(self, m: Floats, y: Floats) -> Floats:
        return (1 + self.other) * self.loss.deriv(m, y) - self.other * self.loss.deriv(m, -y)

    def curv(self, m: Floats, y: Floats) -> Floats:
        if self.convex:
            return self.loss.curv(m, y)
        return (1 + self.other) * self.loss.curv(m, y) - self.other * self.loss.curv(m, -y)

    def prox(self, v: Floats, y: Floats, k: float) -> Floats:
        if not self.convex:
            raise ConfigError(
                "of randomised labels only the logistic loss stays convex: use it where an argmin is solved"
            )
        return self.loss.prox(v + y * self.other / k, y, k)


# By their names in a config file and in estimators; config/sections.py lists the names once more, without numpy.
LOSSES: dict[str, Callable[..., Loss]] = {
    "logistic": Logistic,
    "half_logistic": HalfLogistic,
    "huber_hinge": HuberHinge,
    "squared": Squared,
    "hinge": Hinge,
}
LINKED = (Logistic, HalfLogistic)  # losses whose score tells how likely a class is
Link = Literal["logistic", "half_logistic"]


def link_name(loss: Loss) -> Link | None:
    """Which of these a loss is, also of randomised labels; None if its scores tell no probability."""
    loss = loss.loss if isinstance(loss, Debiased) else loss
    names: dict[type[Loss], Link] = {Logistic: "logistic", HalfLogistic: "half_logistic"}
    return names.get(type(loss))


def link(loss: Loss, scores: Floats) -> Floats:
    """The probability of the positive class at which each of these scores is the best one.

    At probability p the expected loss p l(s) + (1 - p) l(-s) is least where p = l'(-s)/(l'(s) + l'(-s)): 1/(1 + e^-s)
    for the logistic loss, and 1/(1 + 2/(1 + e^s)) for s >= 0 of the half-logistic one. Its constants are the loss's.
    """
    up, down = loss.deriv(scores, -np.ones_like(scores)), -loss.deriv(scores, np.ones_like(scores))
    return np.asarray(up / (up + down))
