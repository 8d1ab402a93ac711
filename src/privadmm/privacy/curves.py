"""The mathematics of composition: privacy curves in closed form, and the conversions between them.

mu-GDP (Gaussian transcripts, mu^2 = sum of 1/z^2):

    delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2)                                    (1)

Pure releases beside it. Every (e, 0)-DP release is dominated by randomised response, whose privacy loss is +e with
probability p = e^e/(1+e^e) and -e otherwise; n equal ones have loss (n - 2j) e with binomial weight. Losses of
independent parts add, so with L the sum of the pure losses and delta_mu the curve (1), for any real argument,

    delta(eps) = E[ delta_mu(eps - L) ]                                                             (2)

exactly: no discretisation. Renyi curves, where only those are proved, add and convert by

    eps = min over alpha of  D_alpha + ln(1 - 1/alpha) - ln(alpha delta)/(alpha - 1).               (3)

Noise on a grid. A query rounded to integers, plus a Gaussian rounded to integers, is a Gaussian release rounded: (1)
holds. The discrete Gaussian of standard deviation s steps is within total variation 1/(24 s^2) of the rounded one, in
each coordinate (docs/privacy.md#discrete); the distances of coordinates and releases add up to eta, and what is drawn
keeps

    delta(eps) = delta_rounded(eps) + (1 + e^eps) eta,     eta = sum of d/(24 s^2).                 (4)

The last term is the slack. A thousandth of delta is set aside for it; what would need more has no epsilon in this form.
The smallest root of (4) would be lower by 5e-5 of epsilon at delta = 1e-6. But a job may choose its noise after it saw
what others released, and could then trade mu for eta on the way; with a fixed part each has a bound of its own.
"""

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cache, partial

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.params import check_nonnegative, check_positive, check_probability

# More terms of (2) than this go to a discretised distribution instead, which rounds up.
TERMS = 1_000_000
# The share of delta that is set aside for the slack of (4).
SET_ASIDE = 1e-3
# The least number that has all its digits. What is multiplied by e^epsilon must not be smaller.
LEAST = sys.float_info.min


def gdp_delta(mu: float, epsilon: float) -> float:
    """(1), the smallest delta of a mu-GDP transcript at this epsilon."""
    if mu == 0:
        return max(0.0, -math.expm1(epsilon))
    x = epsilon / mu - mu / 2
    upper = math.erfc(x / math.sqrt(2)) / 2
    lower = math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    # The second term is dropped past e^700, and where it has hardly a digit left: that only makes delta larger. What is
    # added bounds the digits lost where the two terms nearly cancel: an error of 2^-52 in x moves erfc by about x^2
    # times that.
    exact = upper - math.exp(epsilon) * lower if epsilon < 700 and lower >= LEAST else upper
    return exact + 1e-15 * (1 + x * x) * upper


def smallest(delta_at: Callable[[float], float], delta: float, high: float) -> float:
    """The smallest epsilon in [0, high] with delta_at(epsilon) <= delta, rounded up; delta_at(high) must hold."""
    if delta_at(0.0) <= delta:
        return 0.0
    low = 0.0
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(middle) <= delta else (middle, high)
    return high * (1 + 1e-12)


def tail(mu: float, delta: float) -> float:
    """An epsilon that a mu-GDP transcript certainly keeps at this delta."""
    return mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))


def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon of a mu-GDP transcript at this delta, rounded up."""
    check_probability(delta=delta)
    check_nonnegative(mu=mu)
    return smallest(lambda eps: gdp_delta(mu, eps), delta, tail(mu, delta))


def mixed_epsilon(mu: float, pure: Sequence[tuple[float, int]], delta: float) -> float:
    """The epsilon of (2): Gaussians of total mu beside `count` releases of each pure epsilon."""
    total = plain_sum(pure)
    if delta == 0:
        return total if mu == 0 else math.inf
    check_probability(delta=delta)
    if not pure:
        return gdp_epsilon(mu, delta)
    if crowded(pure):
        return min(rdp_epsilon(pure_and_gaussian(mu, pure), delta), total if mu == 0 else math.inf)
    least = smallest(mixed_delta(mu, pure), delta, total + tail(mu, delta))
    return min(least, total if mu == 0 else math.inf)


def plain_sum(pure: Iterable[tuple[float, int]]) -> float:
    """The sum of so many of each of these numbers, rounded up."""
    exact = sum((count * Fraction(each) for each, count in pure), Fraction(0))
    nearest = float(exact)
    return nearest if nearest >= exact else math.nextafter(nearest, math.inf)


def crowded(pure: Iterable[tuple[float, int]]) -> bool:
    return math.prod(count + 1 for _, count in pure) > TERMS


def mixed_delta(mu: float, pure: Sequence[tuple[float, int]]) -> Callable[[float], float]:
    """delta of (2), as a function of epsilon."""
    if not pure:
        return lambda eps: gdp_delta(mu, eps)
    if crowded(pure):
        return partial(rdp_delta, pure_and_gaussian(mu, pure))
    from scipy.special import gammaln, ndtr

    losses, weights = loss_distribution(pure)
    # The weights are made of logarithms of factorials, which err by a few units of their last digit.
    lost = 1e-12 + 4e-15 * sum(float(gammaln(count + 1)) for _, count in pure)
    total = plain_sum(pure)

    def delta_at(eps: float) -> float:
        if mu == 0 and eps >= total:
            return 0.0
        rest = eps - losses
        if mu == 0:
            parts = -np.expm1(np.minimum(rest, 0.0))
        else:
            x = rest / mu - mu / 2
            upper, lower = ndtr(-x), ndtr(-rest / mu - mu / 2)
            parts = upper - np.exp(np.minimum(rest, 700.0)) * np.where(lower >= LEAST, lower, 0.0)
            parts = parts + 1e-15 * (1 + x * x) * upper  # as in gdp_delta
        return float(np.sum(weights * parts)) * (1 + lost) + LEAST * len(weights)  # weights below LEAST may be missing

    return delta_at


def loss_distribution(pure: Iterable[tuple[float, int]]) -> tuple[Floats, Floats]:
    """Values and probabilities of the summed privacy loss of randomised responses."""
    from scipy.special import gammaln

    losses, logs = np.zeros(1), np.zeros(1)
    for eps, count in pure:
        j = np.arange(count + 1)
        ways = gammaln(count + 1) - gammaln(j + 1) - gammaln(count - j + 1)
        keep, flip = -np.logaddexp(0, -eps), -np.logaddexp(0, eps)
        losses = (losses[:, None] + (count - 2 * j) * eps).ravel()
        logs = (logs[:, None] + ways + (count - j) * keep + j * flip).ravel()
    return losses, np.exp(logs)


def pure_and_gaussian(mu: float, pure: Sequence[tuple[float, int]]) -> Callable[[Floats], Floats]:
    """The Renyi curve of Gaussians beside pure releases, for where (2) has too many terms to be summed."""
    return lambda alpha: gaussian_rdp(alpha, mu) + sum(count * pure_rdp(alpha, eps) for eps, count in pure)


def gaussian_rdp(alpha: Floats, mu: float) -> Floats:
    return alpha * mu**2 / 2


def pure_rdp(alpha: Floats, epsilon: float) -> Floats:
    """The curve of randomised response, the worst pure release: ln(p^a q^(1-a) + q^a p^(1-a))/(a - 1), a = alpha.

    With p/q = e^epsilon that is ln cosh((a - 1/2) epsilon) - ln cosh(epsilon/2), over a - 1. A million small ones are
    summed, so it is written in a form in which nothing cancels.
    """
    s = np.minimum(alpha * epsilon, 600.0) / 2
    t = np.minimum((alpha - 1) * epsilon, 600.0) / 2
    near = np.log1p(2 * np.sinh(s) * np.sinh(t) / np.cosh(min(epsilon / 2, 300.0))) / (alpha - 1)
    far = epsilon + (np.log1p(np.exp(-(2 * alpha - 1) * epsilon)) - math.log1p(math.exp(-epsilon))) / (alpha - 1)
    return np.where(alpha * epsilon < 600, near, far)


def objective_rdp(alpha: Floats, ratio: Floats | float, w: Floats | float) -> Floats:
    """alpha/(2 ratio^2) - ln(1 - alpha(alpha-1) w^2/(1+w))/(alpha-1) where (alpha-1) w < 1; unproved elsewhere.

    The last ratio is that of determinants of Hessians that differ in one record, largest for orthogonal records.
    """
    proved = (alpha - 1) * w < 1
    inside = np.where(proved, alpha * (alpha - 1) * w**2 / (1 + w), 0.0)
    return np.where(proved, alpha / (2 * ratio**2) - np.log1p(-inside) / (alpha - 1), np.inf)


def least_over_alpha(bound: Callable[[Floats], Floats]) -> float:
    """The least bound over alpha > 1. Every alpha gives a valid bound, so a point beside the best one costs no proof.

    (alpha - 1) times a Renyi curve is convex in alpha, and so is what (3) adds to it: the bound is quasiconvex. So the
    best point of a grid of ln(alpha - 1) is next to the least bound, and finer grids close in on it: to 1e-6, which
    leaves 1e-12 of the bound.
    """
    centre, width, points, best = 0.0, 14.0, 281, math.inf
    while width > 1e-6:
        logs = np.linspace(centre - width, centre + width, points)
        bounds = bound(1 + np.exp(logs))
        at = int(np.argmin(bounds))
        best, centre, width, points = min(best, float(bounds[at])), float(logs[at]), 2 * width / (points - 1), 41
    return best


def rdp_epsilon(curve: Callable[[Floats], Floats], delta: float) -> float:
    """epsilon of (3)"""
    check_probability(delta=delta)
    best = least_over_alpha(lambda alpha: curve(alpha) + np.log1p(-1 / alpha) - np.log(alpha * delta) / (alpha - 1))
    return max(0.0, best) * (1 + 1e-12)


def rdp_delta(curve: Callable[[Floats], Floats], epsilon: float) -> float:
    """(3), solved for delta."""
    best = least_over_alpha(lambda alpha: (alpha - 1) * (curve(alpha) + np.log1p(-1 / alpha) - epsilon) - np.log(alpha))
    return min(1.0, math.exp(min(0.0, best)) * (1 + 1e-12))


def grid_distance(dim: float, sigma: float) -> float:
    """eta of one release: `dim` coordinates, each with `sigma` grid steps in a standard deviation."""
    check_positive(dim=dim, sigma=sigma)
    return dim / (24 * sigma**2)


def slack(eta: float, epsilon: float) -> float:
    """The last term of (4)."""
    return eta * (1 + math.exp(epsilon)) if epsilon < 700 else math.inf


def epsilon_with_slack(epsilon_at: Callable[[float], float], eta: float, delta: float) -> float:
    """The epsilon of a transcript within eta of one with this curve; infinite if the slack is too large."""
    if eta == 0:
        return epsilon_at(delta)
    if slack(eta, 0.0) > SET_ASIDE * delta:
        return math.inf
    least = epsilon_at((1 - SET_ASIDE) * delta)
    return least if slack(eta, least) <= SET_ASIDE * delta else math.inf


def delta_with_slack(delta_at: Callable[[float], float], eta: float) -> Callable[[float], float]:
    """The delta of a transcript within eta of one with this curve; the last proved one where the slack is too large."""
    if eta == 0:
        return delta_at

    def at(epsilon: float) -> float:
        return min(1.0, delta_at(epsilon) / (1 - SET_ASIDE))

    def holds(epsilon: float) -> bool:
        return slack(eta, epsilon) <= SET_ASIDE * at(epsilon)

    @cache
    def least() -> float:
        if not holds(0.0):
            return 1.0
        low, high = 0.0, math.log(1 / eta)
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if holds(middle) else (low, middle)
        return at(low)

    return lambda epsilon: at(epsilon) if holds(epsilon) else least()


def joint_label(label_epsilon: float, delta_at: Callable[[float], float], delta: float) -> float:
    """The label's epsilon against those who see only the transcript of a run on randomised labels, at this delta.

    If the transcript is (e2, d2)-DP for the reported label, it is (e, d)-DP for the true one with
    e = ln((e^(eps+e2) + 1)/(e^eps + e^e2)) and d = d2 (e^eps - 1)/(e^eps + e^e2). Every e2 on the curve gives a valid
    pair; e grows and d falls with e2, so the best pair is where d meets delta.
    """
    check_positive(label_epsilon=label_epsilon)

    def joint_delta(e2: float) -> float:
        return delta_at(e2) * -math.expm1(-label_epsilon) / (1 + math.exp(e2 - label_epsilon))

    high = 1.0
    while joint_delta(high) > delta and high < 500:
        high *= 2
    if joint_delta(high) > delta:
        return label_epsilon
    e2 = smallest(joint_delta, delta, high)
    joint = float(np.logaddexp(label_epsilon + e2, 0) - np.logaddexp(label_epsilon, e2))
    # The exact value is below label_epsilon and e2; 1e-15 of their sum bounds what the difference lost to rounding.
    return min(label_epsilon, e2, joint + 1e-15 * (1 + label_epsilon + e2))
