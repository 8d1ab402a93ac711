"""From events to (epsilon, delta), for one party and the whole transcript.

Gaussian releases with ratios z_t compose exactly to mu-GDP, mu^2 = sum 1/z_t^2, and

    delta(eps) = Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2).                                  (1)

The discrete Gaussian of a deployment is counted as zCDP, which it satisfies exactly: D_alpha = alpha mu^2/2,

    eps = min over alpha of  D_alpha + ln(1 - 1/alpha) - ln(alpha delta)/(alpha - 1).              (2)

Every epsilon is rounded up and every noise ratio is calibrated from below, so that a figure printed
here may be a hair too large, never too small. An event without a proof counts as infinite.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privadmm import check
from privadmm.errors import ConfigError
from privadmm.privacy.events import DiscreteGaussian, Event, Gaussian, NotPrivate, Spent, add, merge

# (round, phase) -> for each release of that tick, in order, one event per party.
Plan = Mapping[tuple[int, int], tuple[tuple[Event, ...], ...]]


@dataclass(frozen=True)
class Claim:
    """What a paper says of its own noise. Shown for comparison, never without the caveat."""

    epsilon: float | None
    caveat: str


Law = type[Gaussian] | type[DiscreteGaussian]


@dataclass(frozen=True)
class Target:
    """What each party's whole transcript may cost, and the law of the noise that will pay for it."""

    epsilon: float | None
    delta: float
    kind: Law = Gaussian

    def __post_init__(self) -> None:
        check.probability(delta=self.delta)
        if self.epsilon is not None:
            check.positive(epsilon=self.epsilon)

    def split(self, releases: int) -> Gaussian | DiscreteGaussian:
        """The event with the least noise of which `releases` together stay within the target."""
        if self.epsilon is None:
            raise ConfigError("a certified calibration needs the total epsilon: set [privacy] epsilon")
        return calibrate(self.epsilon, self.delta, releases, discrete=self.kind is DiscreteGaussian)


@dataclass(frozen=True)
class NoPrivacy:
    """Noise off, visibly: every release is charged as not private."""

    reason: str = "noise is switched off"

    @property
    def event(self) -> NotPrivate:
        return NotPrivate(self.reason)


def gdp_delta(mu: float, epsilon: float) -> float:
    """(1), the smallest delta of a mu-GDP transcript at this epsilon."""
    if mu == 0:
        return 0.0
    upper = math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) / 2
    lower = math.erfc((epsilon / mu + mu / 2) / math.sqrt(2)) / 2
    # Past e^700 the second term is dropped, which only makes delta larger.
    return upper - math.exp(epsilon) * lower if epsilon < 700 else upper


def gdp_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon of a mu-GDP transcript at this delta, rounded up."""
    check.probability(delta=delta)
    check.nonnegative(mu=mu)
    if gdp_delta(mu, 0.0) <= delta:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(1 / delta))
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if gdp_delta(mu, middle) <= delta else (middle, high)
    return high * (1 + 1e-12)


def zcdp_epsilon(mu: float, delta: float) -> float:
    """(2) for rho = mu^2/2. Any alpha is a valid bound, so a grid is safe."""
    check.probability(delta=delta)
    if mu == 0:
        return 0.0
    centre = 1 + math.sqrt(2 * math.log(1 / delta)) / mu
    alpha = 1 + (centre - 1) * np.exp(np.linspace(-3, 3, 20001))
    curve = alpha * mu * mu / 2 + np.log1p(-1 / alpha) - np.log(alpha * delta) / (alpha - 1)
    return max(0.0, float(curve.min())) * (1 + 1e-12)


@lru_cache(maxsize=65536)
def epsilon(spent: Spent, delta: float) -> float:
    """The certified epsilon of everything a party released, at this delta."""
    if any(isinstance(event, NotPrivate) for event, _ in spent):
        return math.inf
    mu = math.sqrt(
        math.fsum(count / event.ratio**2 for event, count in spent if not isinstance(event, NotPrivate))
    )
    discrete = any(isinstance(event, DiscreteGaussian) for event, _ in spent)
    return zcdp_epsilon(mu, delta) if discrete else gdp_epsilon(mu, delta)


@lru_cache(maxsize=1024)
def calibrate(
    target: float, delta: float, releases: int, discrete: bool = False
) -> Gaussian | DiscreteGaussian:
    """The event with the least noise of which `releases` cost at most (target, delta) together."""
    check.positive(epsilon=target)
    check.probability(delta=delta)
    kind, curve = (DiscreteGaussian, zcdp_epsilon) if discrete else (Gaussian, gdp_epsilon)
    low, high = 0.0, 1.0
    while curve(high, delta) <= target:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if curve(middle, delta) <= target else (low, middle)
    if low == 0.0:
        raise ConfigError(f"no finite noise reaches epsilon = {target:g} at delta = {delta:g}")
    ratio = math.sqrt(releases) / low
    while epsilon(((kind(ratio), releases),), delta) > target:
        ratio *= 1 + 1e-12
    return kind(ratio)


def classical_ratio(round_epsilon: float, delta: float) -> float:
    """The textbook noise of one (epsilon, delta) Gaussian release, sqrt(2 ln(1.25/delta))/epsilon."""
    check.positive(round_epsilon=round_epsilon)
    check.probability(delta=delta)
    return math.sqrt(2 * math.log(1.25 / delta)) / round_epsilon


def moments_accountant(round_epsilon: float, delta: float, rounds: int) -> float:
    """The total that the DP-ADMM paper prints: min over integer orders tau of its log-moment bound."""
    tau = np.arange(1, 100_001, dtype=np.float64)
    bound = rounds * (tau + 1) * round_epsilon**2 / (4 * math.log(1.25 / delta)) + math.log(1 / delta) / tau
    return float(bound.min())


def spending(plan: Plan, parties: int) -> Iterator[tuple[int, list[Spent]]]:
    """After each tick of the plan: its round, and what every party has spent by then."""
    spent: list[Spent] = [()] * parties
    for (t, _), releases in sorted(plan.items()):
        for events in releases:
            spent = [add(before, (event,)) for before, event in zip(spent, events, strict=True)]
        yield t, spent


def totals(plan: Plan, parties: int) -> list[Spent]:
    """What each party will have spent after the whole plan."""
    spent: list[Spent] = [()] * parties
    # Most plans repeat one round: count it once.
    for events, times in Counter(events for releases in plan.values() for events in releases).items():
        spent = [merge(before, ((event, times),)) for before, event in zip(spent, events, strict=True)]
    return spent


def worst(spent: list[Spent], delta: float) -> float:
    """Horizontal parties: the total is the largest one, since no person has records at two of them."""
    return max(epsilon(one, delta) for one in set(spent))


def by_round(plan: Plan, parties: int, delta: float) -> list[float]:
    """The worst party's epsilon after each round: what the plot of spending shows."""
    return list({t: worst(spent, delta) for t, spent in spending(plan, parties)}.values())
