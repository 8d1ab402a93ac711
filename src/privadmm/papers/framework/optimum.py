"""The exact optimum against which bounds are measured, from a non-private solve on the pooled records.

    F(w) = mean_i f_i(w),    f_i(w) = C omega_i/m_i sum_n loss(a_n.w; y_n) + R(w)                          (1)

Damped Newton's method. Functions without a second derivative are rounded, less and less: the hinge to a Huberised
hinge of width h, which lies at most h/4 above it, and |x| to sqrt(x^2 + s^2), at most s above. The minimum of the
rounded problem, less the most that rounding can add, is a lower bound on the minimum of (1): a gap that is measured
against it is never too small.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.engine.party import Local
from privadmm.errors import ConfigError, ToleranceError
from privadmm.optim.losses import Hinge, HuberHinge, Loss

CAP, HALVINGS, DAMPING = 500, 50, 1e-2
TOLERANCE = 1e-10  # gradient norm, for C L = 1
ROUNDINGS = (1e-1, 1e-2, 1e-3, 1e-4)  # h; s is a hundredth of it
LOST = (
    "the non-private problem, against which bounds are measured, has no optimum that was found: give [regularizer] "
    "a weight above 0"
)


@dataclass(frozen=True)
class Optimum:
    """w minimises (1); its minimum lies between `value` and value + slack."""

    w: Floats
    value: float
    slack: float


def condition(words: str, value: float, limit: float) -> dict[str, Any]:
    """Record of a theorem's assumption, value <= limit, and whether it holds."""
    return {"condition": words, "value": value, "limit": limit, "holds": value <= limit}


def measured_record(values: Floats) -> dict[str, Any]:
    """Record of values (rounds, seeds): their means, and standard errors if there are several seeds."""
    seeds = values.shape[1]
    error = (values.std(axis=1, ddof=1) / math.sqrt(seeds)).tolist() if seeds > 1 else None
    return {"measured": values.mean(axis=1).tolist(), "standard_error": error}


def shares(local: Local, w: Floats) -> Floats:
    """f_i(w_i) of every party, (..., P), for weights (..., P, d) of their own."""
    losses = local.shards.sums(local.public.loss.value(local.shards.margins(w), local.shards.y))
    return np.asarray(local.weight[:, 0] * losses + local.public.regularizer.value(w))


def optimum(local: Local) -> Optimum:
    """Minimise (1), for the labels that these parties train on."""
    public = local.public
    if not public.loss.convex:
        raise ConfigError(
            "this loss is not convex once its labels are randomised, and no bound holds for it: use the logistic loss"
        )
    rough, w = isinstance(public.loss, Hinge), np.zeros(public.dim)
    kinks = 0.0 if public.regularizer.rest is None else public.regularizer.rest.weight
    for h in ROUNDINGS if rough or kinks else (0.0,):
        problem = Rounded(local, HuberHinge(h) if rough else public.loss, kinks, h / 100)
        w = problem.minimise(w)
    slope, strong = float(np.linalg.norm(problem.gradient(w))), public.regularizer.strong_convexity
    # Without strong convexity, assume that the optimum is not much further from 0 than w.
    left = slope**2 / (2 * strong) if strong else slope * (1 + 2 * float(np.linalg.norm(w)))
    rounding = kinks * public.dim * problem.s + (public.C * h / 4 if rough else 0.0)
    value = problem.value(w) - rounding - left
    exact = float(shares(local, np.broadcast_to(w, (len(local.ids), public.dim))).mean())
    return Optimum(w, value, max(0.0, exact - value))


@dataclass(frozen=True)
class Rounded:
    """(1) with a smooth loss, and with kinks |x|_1 as kinks sum sqrt(x^2 + s^2)."""

    local: Local
    loss: Loss
    kinks: float
    s: float

    def margins(self, w: Floats) -> Floats:
        return self.local.shards.margins(np.broadcast_to(w, (len(self.local.ids), len(w))))

    def value(self, w: Floats) -> float:
        losses = self.local.shards.sums(self.loss.value(self.margins(w), self.local.shards.y))
        smooth, rounded = float(self.local.public.regularizer.smooth.value(w)), float(np.hypot(w, self.s).sum())
        return float((self.local.weight[:, 0] * losses).mean()) + smooth + self.kinks * rounded

    def gradient(self, w: Floats) -> Floats:
        pulls = self.local.shards.pull(self.loss.deriv(self.margins(w), self.local.shards.y))
        rest = self.kinks * w / np.hypot(w, self.s) if self.kinks else 0.0
        smooth = self.local.public.regularizer.smooth.subgradient(w)
        return np.asarray((self.local.weight * pulls).mean(axis=0) + smooth + rest)

    def hessian(self, w: Floats, more: float) -> Floats:
        """The Hessian, with `more` on its diagonal, since the problem itself may be flat."""
        grams = self.local.shards.gram(self.loss.curv(self.margins(w), self.local.shards.y))
        bend = self.local.public.regularizer.smooth.weight + more
        diagonal = bend + (self.kinks * self.s**2 / np.hypot(w, self.s) ** 3 if self.kinks else np.zeros_like(w))
        return np.asarray((self.local.weight[:, :, None] * grams).mean(axis=0) + np.diag(diagonal))

    def minimise(self, w: Floats) -> Floats:
        scale, g = max(1.0, self.local.public.C), self.gradient(w)
        for _ in range(CAP):
            slope = float(np.linalg.norm(g))
            if slope <= TOLERANCE * scale:
                return w
            step = np.asarray(np.linalg.solve(self.hessian(w, DAMPING * slope / scale), g), dtype=float)
            w = self.descend(w, step, float(step @ g), slope)
            g = self.gradient(w)
        raise ToleranceError(LOST)

    def descend(self, w: Floats, step: Floats, down: float, slope: float) -> Floats:
        """Take the longest of step, step/2, step/4, ... that makes enough of the promised descent."""
        here = self.value(w)
        # If values agree to their last digits, only the slope shows progress.
        flat = down <= 1e-12 * (1 + abs(here))
        for halved in range(HALVINGS):
            length = 0.5**halved
            x: Floats = w - length * step
            if self.value(x) <= here - 1e-4 * length * down:
                return x
            if flat and np.linalg.norm(self.gradient(x)) < (1 - 1e-4 * length) * slope:
                return x
        raise ToleranceError(LOST)
