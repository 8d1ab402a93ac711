"""Ridge fits of one party's columns D (N, d) to a public target t, free or within a ball, with a certified error.

    x = argmin over |x| <= b of (mu/2) |x|^2 + (1/2) |D x - t|^2                                          (1)

Either the free minimiser is inside, or x = (D^T D + (mu + nu) I)^-1 D^T t with the nu > 0 at which |x| = b. Both come
from one spectral factorisation, of D^T D where there are more people than columns and of D itself otherwise, which
depends on the data alone and is kept. Scaling the free minimiser down to b is *not* (1), and breaks the privacy bounds.

Error. Let x be what floating point returned, |x| <= b, and x* be exact; e = D^T (D x - t) + (mu + nu) x is x's residual
and kappa = nu |x| (b - |x|). Adding the variational inequality of x* at x to that of x, its gradient e - nu x, at x*,

    |D (x - x*)|^2 + mu |x - x*|^2 <= |e| |x - x*| + kappa                                                (2)
    |D (x - x*)| <= sqrt(|e|^2/(4 mu) + kappa),      |x - x*| <= |e|/mu + sqrt(kappa/mu)                  (3)

|e| and kappa are compared with limits that follow from N, d, |t|, mu, b and a bound F on the Frobenius norm of D, all
public: `Leeway` is (3) at these limits. What misses them raises, and nothing is released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privadmm.errors import ToleranceError

if TYPE_CHECKING:
    from privadmm.data.columns import Features

Array = NDArray[np.float64]
LASSO_STEPS = 100_000


def secular(values: Array, c: Array, b: Array | float) -> tuple[Array, Array]:
    """The x of norm at most b that minimises x.diag(values) x/2 - c.x, and its multiplier nu; values > 0, c is (n, d).

    As a function of nu, 1/|x| is concave and grows, so Newton's method from nu = 0 comes from the left and never
    overshoots.
    """
    nu = np.zeros(len(c))
    for _ in range(100):
        x = c / (values + nu[:, None])
        size = np.linalg.norm(x, axis=1)
        # Of the direction alone: squares of what a hostile target makes of x would overflow.
        unit = x / np.where(size > 0, size, 1.0)[:, None]
        slope = np.sum(unit**2 / (values + nu[:, None]), axis=1)
        step = np.where(size > b, (size / b - 1) / np.where(slope > 0, slope, 1.0), 0.0)
        if np.all(step <= 1e-15 * nu):
            break
        nu += step
    return x, nu


@dataclass(frozen=True)
class Leeway:
    """How far a computed fit may be from (1), by public facts alone: (3). One number for each target."""

    reach: Array  # the most that |x| may be
    residual: Array  # the most that |e| may be, as computed
    slack: float  # the most that |x| may fall short of b where nu > 0, relative to b
    scores: Array  # bounds |D x - u*|, the rounding of the product D x included
    weights: Array  # bounds |x - x*|

    @staticmethod
    def of(t: Array, d: int, mu: float, b: float | None, F: float) -> Leeway:
        """t is (R, N)."""
        N, u = t.shape[1], 2.0**-53
        size = np.linalg.norm(t, axis=1)
        # |x*| is at most that of the free minimiser, whose part along a singular value s of D is s/(s^2 + mu) of t's.
        reach = 2 * size * min(1 / (2 * math.sqrt(mu)), F / mu)
        reach = reach if b is None else np.minimum(reach, b)
        # A product of length n rounds by n u times the product of absolute values. The limit is some ten times what
        # the factorisation leaves, and no less than what evaluating e can be off by; hence the 2.
        residual = 16 * u * (N + d + 8) * F * (F * reach + size)
        slack = 8 * (d + 8) * 2 * u
        # nu |x| is at most |D^T t| + |e|.
        kappa = 0.0 if b is None else (F * size + 2 * residual) * b * slack
        scores = np.sqrt(residual**2 / mu + kappa) + 2 * u * (d + 2) * F * reach
        return Leeway(reach, residual, slack, scores, 2 * residual / mu + np.sqrt(kappa / mu))


def fit(D: Features, t: Array, mu: float, b: float | None, F: float) -> Array:
    """(1) for each of the targets t (R, N): x (R, d), within the leeway."""
    values, vectors = D.spectrum
    d, allowed = len(vectors), Leeway.of(t, D.width, mu, b, F)
    x, nu = secular(values + mu, D.pull(t) @ vectors, math.inf if b is None else b)
    x = x @ vectors.T
    if b is not None:
        # Rounding may have left x outside by a few bits.
        inside = b * (1 - (d + 8) * 2.0**-52)
        x = x * (inside / np.maximum(inside, np.linalg.norm(x, axis=1, keepdims=True)))
        short = np.linalg.norm(x, axis=1) < b * (1 - allowed.slack / 2)
        if np.any(short & (nu > 0)):
            raise ToleranceError("a fit within the ball was not brought to its edge; nothing was released")
    e = D.pull(D.scores(x) - t) + (mu + nu)[:, None] * x
    good = (np.linalg.norm(e, axis=1) <= allowed.residual) & (np.linalg.norm(x, axis=1) <= allowed.reach)
    if not good.all():
        raise ToleranceError(
            "a ridge fit missed its tolerance: the columns are too nearly dependent for this weight of the "
            "regulariser over rho; raise one or lower the other. Nothing was released"
        )
    return x


def lasso(D: Features, t: Array, mu: float, l1: float) -> Array:
    """The same with l1 |x|_1 added, to ten digits: accelerated proximal gradient steps. For runs without privacy."""
    values, vectors = D.spectrum
    c = D.pull(t)
    steep = float(values.max(initial=0.0)) + mu
    x = ahead = np.zeros_like(c)
    momentum = 1.0
    enough = 1e-10 * steep * (np.linalg.norm(c, axis=1) / steep + 1e-12)
    for _ in range(LASSO_STEPS):
        gradient = (ahead @ vectors * values) @ vectors.T + mu * ahead - c
        new = shrink(ahead - gradient / steep, l1 / steep)
        if np.all(steep * np.linalg.norm(new - ahead, axis=1) <= enough):
            return new
        if np.sum((ahead - new) * (new - x)) > 0:  # the momentum points uphill: begin anew
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        x, ahead = new, new + (momentum - 1) / following * (new - x)
        momentum = following
    raise ToleranceError(
        f"an l1 fit did not settle after {LASSO_STEPS} steps; add some l2 (elastic_net), or lower rho"
    )


def shrink(x: Array, by: float) -> Array:
    return np.asarray(np.sign(x) * np.maximum(np.abs(x) - by, 0.0))
