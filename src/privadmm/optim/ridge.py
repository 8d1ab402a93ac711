"""Ridge fits of one party's columns D (N, d) to a public target t, free or inside a ball, with a certified error.

    x = argmin over |x| <= b of (mu/2) |x|^2 + (1/2) |D x - t|^2                                          (1)

Either the free minimiser is inside, or x = (D^T D + (mu + nu) I)^-1 D^T t with the nu > 0 for which |x| = b. Both come
from one spectral factorisation, `Features.spectrum`, which depends on the data alone and is kept. Without a ball a
Cholesky factor does, which takes a tenth of the time. Scaling the free minimiser down to norm b is *not* (1), and
breaks the privacy bounds.

Error. Let x be the computed fit, |x| <= b, and x* the exact one. The residual of x is e = D^T (D x - t) + (mu + nu) x,
and kappa = nu |x| (b - |x|). Add the variational inequality of x* at x to that of x (gradient e - nu x) at x*:

    |D (x - x*)|^2 + mu |x - x*|^2 <= |e| |x - x*| + kappa                                                (2)
    |D (x - x*)| <= sqrt(|e|^2/(4 mu) + kappa),      |x - x*| <= |e|/mu + sqrt(kappa/mu)                  (3)

|e| and kappa have limits that follow from N, d, |t|, mu, b and a bound F on the Frobenius norm of D, all public:
`Leeway` is (3) at these limits. A fit that misses them is done again by a method that cannot miss them
(docs/privacy.md#worst-case-ridge), steps of 1/M with M = F^2 + mu and a projection P onto the ball:

    x_{j+1} = P(x_j - gradient/M),   at most 1 + (33/8) M/mu ln((F |t|/E)^2 M/(8 mu)) times                 (4)

E bounds the rounding error of a gradient. The objective decreases while steps are longer than 4 E/M. A shorter step
ends within the limit on |e|, which is 16 E.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.errors import ToleranceError
from privadmm.optim.regularizers import L1

if TYPE_CHECKING:
    from privadmm.data.columns import Features

LASSO_STEPS = 100_000


def secular(values: Floats, c: Floats, b: Floats | float) -> tuple[Floats, Floats]:
    """The x of norm at most b that minimises x.diag(values) x/2 - c.x, and its multiplier nu; values > 0, c is (n, d).

    1/|x| is a concave, increasing function of nu, so Newton's method from nu = 0 never overshoots.
    """
    nu = np.zeros(len(c))
    for _ in range(100):
        x = c / (values + nu[:, None])
        size = np.linalg.norm(x, axis=1)
        # Normalised first: with a hostile target the squares of x would overflow.
        unit = x / np.where(size > 0, size, 1.0)[:, None]
        slope = np.sum(unit**2 / (values + nu[:, None]), axis=1)
        step = np.where(size > b, (size / b - 1) / np.where(slope > 0, slope, 1.0), 0.0)
        if np.all(step <= 1e-15 * nu):
            break
        nu += step
    return x, nu


@dataclass(frozen=True)
class Leeway:
    """Bounds (3) on how far a computed fit may be from (1), from public facts alone; one number for each target."""

    reach: Floats  # limit of |x|
    residual: Floats  # limit of |e|, as computed
    rounding: Floats  # E of (4)
    slack: float  # limit of (b - |x|)/b where nu > 0
    scores: Floats  # bounds |D x - D x*|, the rounding of the product D x included
    weights: Floats  # bounds |x - x*|

    @staticmethod
    def of(t: Floats, d: int, mu: float, b: float | None, F: float) -> Leeway:
        """t is (R, N)."""
        N, u = t.shape[1], 2.0**-53
        size = np.linalg.norm(t, axis=1)
        # |x*| is at most that of the free minimiser, whose part along a singular value s of D is s/(s^2 + mu) of t's.
        reach = 2 * size * min(1 / (2 * math.sqrt(mu)), F / mu)
        reach = reach if b is None else np.minimum(reach, b)
        # A product of length n rounds by n u times the product of absolute values.
        rounding = u * (N + 6 * d + 48) * (F * (F * reach + size) + mu * reach)
        residual = 16 * rounding
        slack = 8 * (d + 8) * 2 * u
        # nu |x| is at most |D^T t| + |e|.
        kappa = 0.0 if b is None else (F * size + 2 * residual) * b * slack
        scores = np.sqrt(residual**2 / mu + kappa) + 2 * u * (d + 2) * F * reach
        return Leeway(reach, residual, rounding, slack, scores, 2 * residual / mu + np.sqrt(kappa / mu))

    def kept(
        self, D: Features, t: Floats, mu: float, b: float | None, x: Floats, nu: Floats, scores: Floats
    ) -> NDArray[np.bool_]:
        """Which fits are within the limits, as computed; their scores are D x."""
        e = D.pull(scores - t) + (mu + nu)[:, None] * x
        length = np.linalg.norm(x, axis=1)
        good = (np.linalg.norm(e, axis=1) <= self.residual) & (length <= self.reach)
        edge = True if b is None else (length >= b * (1 - self.slack / 2)) | ~(nu > 0)
        return np.asarray(good & edge)


def fit(D: Features, t: Floats, mu: float, b: float | None, F: float, certain: bool = False) -> tuple[Floats, Floats]:
    """Solve (1) for each of the targets t (R, N), within the leeway: x (R, d), and the scores D x (R, N).

    A fit that misses it is done again by (4) if `certain`, and otherwise raises a ToleranceError.
    """
    allowed = Leeway.of(t, D.width, mu, b, F)
    try:
        x, nu = direct(D, t, mu, b)
        scores = D.scores(x)
        good = allowed.kept(D, t, mu, b, x, nu, scores)
    except np.linalg.LinAlgError:  # no factorisation
        x, good = np.zeros((len(t), D.width)), np.zeros(len(t), dtype=bool)
    if good.all():
        return x, scores
    if not certain:
        raise ToleranceError(
            "a ridge fit missed its tolerance: the columns are too nearly dependent for this weight of the "
            "regulariser over rho; raise one or lower the other. Nothing was released"
        )
    for i in np.flatnonzero(~good):
        x[i] = slowly(D, t[i : i + 1], mu, b, F)
    return x, D.scores(x)


def direct(D: Features, t: Floats, mu: float, b: float | None) -> tuple[Floats, Floats]:
    """Solve (1) by a factorisation: the fits and their multipliers nu."""
    if b is None:
        return D.ridge(t, mu), np.zeros(len(t))
    values, vectors = D.spectrum
    x, nu = secular(values + mu, D.pull(t) @ vectors, b)
    return within(x @ vectors.T, b), nu


def within(x: Floats, b: float) -> Floats:
    """Scale rows down to norm b, with room for the rounding of the norm."""
    inside = b * (1 - (x.shape[1] + 8) * 2.0**-52)
    return np.asarray(x * (inside / np.maximum(inside, np.linalg.norm(x, axis=1, keepdims=True))))


@np.errstate(over="ignore", invalid="ignore")
def slowly(D: Features, t: Floats, mu: float, b: float | None, F: float) -> Floats:
    """Run (4) from 0 for one target (1, N) until the leeway is kept, at the latest after `worst_case` steps."""
    M, allowed, x, scores = F * F + mu, Leeway.of(t, D.width, mu, b, F), np.zeros((1, D.width)), np.zeros_like(t)
    for _ in range(worst_case(t, D.width, mu, b, F)):
        y = x - (D.pull(scores - t) + mu * x) / M
        x = y if b is None else within(y, b)
        scores, beyond = D.scores(x), 0.0 if b is None else max(0.0, float(np.linalg.norm(y)) / b - 1)
        if allowed.kept(D, t, mu, b, x, np.array([M * beyond]), scores).all():
            break
    return np.asarray(x[0])


def worst_case(t: Floats, d: int, mu: float, b: float | None, F: float) -> int:
    """The most steps that (4) takes for one target (1, N): the objective falls from (F |t|)^2/(2 mu) to rounding."""
    M, E, size = F * F + mu, float(Leeway.of(t, d, mu, b, F).rounding[0]), float(np.linalg.norm(t))
    if not size:
        return 1
    return 1 + math.ceil(33 / 8 * M / mu * max(0.0, 2 * math.log(F * size / E) + math.log(M / (8 * mu))))


def lasso(D: Features, t: Floats, mu: float, l1: float) -> Floats:
    """Minimise (1) without the ball plus l1 |x|_1, to ten digits, by accelerated proximal gradient; without privacy."""
    values, vectors = D.spectrum
    c = D.pull(t)
    steep = float(values.max(initial=0.0)) + mu
    kink = L1(l1 / steep)
    x = ahead = np.zeros_like(c)
    momentum = 1.0
    enough = 1e-10 * steep * (np.linalg.norm(c, axis=1) / steep + 1e-12)
    for _ in range(LASSO_STEPS):
        gradient = (ahead @ vectors * values) @ vectors.T + mu * ahead - c
        new = kink.prox(ahead - gradient / steep, 1.0)
        if np.all(steep * np.linalg.norm(new - ahead, axis=1) <= enough):
            return new
        if np.sum((ahead - new) * (new - x)) > 0:  # the momentum points uphill: reset it
            momentum = 1.0
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        x, ahead = new, new + (momentum - 1) / following * (new - x)
        momentum = following
    raise ToleranceError(f"an l1 fit did not settle after {LASSO_STEPS} steps; add some l2 (elastic_net), or lower rho")
