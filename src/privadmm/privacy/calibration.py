"""From a target to noise: the plan whose events cost each party what it may spend, and no more.

An algorithm writes its plan at noise level 1, which says how loud each event is relative to the others. `fit` finds
each party's level, the smallest whose total stays within that party's epsilon. Events that do not scale, such as the
cover of an inexact argmin, are marked `Fixed`.

A budget may be split in two: a first Gaussian release has a share f of it, and the rest has what that leaves.

With mu the GDP parameter that a party's (epsilon, delta) buys, the first release has 1/z^2 = f mu^2. What is Gaussian,
continuous or on a grid, then has (1 - f) mu^2 left, exactly. What is counted in Renyi form costs more together with the
first release than apart. It gets less: the most with which both, counted together, stay within the party's epsilon.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from typing import Any, ClassVar, Literal, get_args

from privadmm.errors import ConfigError, RefusedError
from privadmm.params import check_positive, check_probability, check_whole
from privadmm.privacy.accounting import Plan, epsilon, least_delta, pure
from privadmm.privacy.events import (
    DiscreteGaussian,
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    NotPrivate,
    SharedGaussian,
    Spent,
    merge,
)
from privadmm.privacy.sums import SecureSum

Kind = type[Gaussian] | type[DiscreteGaussian]
Law = Literal["gaussian", "gamma"]
Adjacency = Literal["replace-one", "label", "person", "column"]
Output = Gaussian | DiscreteGaussian | SharedGaussian
UNIT = Gaussian(1.0)
COVER = 1e-4  # the cost of the output noise that covers an inexact argmin: its mu or, under pure noise, its epsilon


@dataclass(frozen=True)
class Target:
    """What each party's whole transcript may cost, between which neighbours, and how noise is spread over rounds."""

    epsilon: float | None
    delta: float
    kind: Kind = Gaussian
    adjacency: Adjacency = "replace-one"
    party_epsilon: tuple[float, ...] = ()  # one for each party, where they differ
    decay: float = 1.0  # the variance of a round's noise over that of the round before
    profile: tuple[float, ...] = ()  # instead of decay, the noise of every round relative to the others
    # How many transcripts of the same plan share the epsilon: one for each class of a one-vs-rest model. Moments are
    # released once, by the first transcript, and serve all.
    copies: int = 1
    sum: SecureSum | None = None  # only the sum of messages is read; None: each party's own noise covers its message

    def __post_init__(self) -> None:
        if self.delta != 0:
            check_probability(delta=self.delta)
        if self.epsilon is not None:
            check_positive(epsilon=self.epsilon)
        if self.adjacency not in get_args(Adjacency):
            raise ConfigError(f"adjacency must be one of {', '.join(get_args(Adjacency))}, not {self.adjacency!r}")
        for name in ("party_epsilon", "profile"):
            check_positive(**{f"{name}[{number}]": value for number, value in enumerate(getattr(self, name))})
        check_positive(decay=self.decay)
        check_whole(copies=self.copies)
        if self.profile and self.decay != 1:
            raise ConfigError("decay and profile both spread the noise over rounds: give one of them")

    def of(self, party: int, parties: int) -> float:
        """The epsilon of one party."""
        if self.party_epsilon:
            if len(self.party_epsilon) != parties:
                raise ConfigError(
                    f"party_epsilon has {len(self.party_epsilon)} figures for {parties} parties; give one for each"
                )
            return self.party_epsilon[party]
        if self.epsilon is None:
            raise ConfigError("a certified calibration needs the total epsilon; give one")
        return self.epsilon

    def event(self, ratio: float, parties: int) -> Output:
        """The event of one release, with noise of this ratio, by one of this many parties."""
        return self.kind(ratio) if self.sum is None else SharedGaussian(ratio, self.sum.tolerated(parties), parties)

    def levels(self, rounds: int) -> tuple[float, ...]:
        """The noise of every round relative to the first (decay) or to the others (profile)."""
        if not self.profile:
            levels = tuple(self.decay ** (t / 2) for t in range(rounds))
            if not 1e-50 < min(levels) <= max(levels) < 1e50:
                raise ConfigError(
                    f"decay = {self.decay:g} over {rounds} rounds leaves no noise or no signal; bring it nearer to 1"
                )
            return levels
        if len(self.profile) != rounds:
            raise ConfigError(f"profile has {len(self.profile)} figures for {rounds} rounds; give one for each")
        return self.profile


def epsilons(given: Any) -> tuple[float, ...]:
    """Check epsilons that were given for the parties; None gives an empty tuple."""
    try:
        return tuple(float(value) for value in (() if given is None else given))
    except (TypeError, ValueError):
        raise ConfigError(f"party_epsilon is a list of numbers, one for each party, and not {given!r}") from None


@dataclass(frozen=True)
class NoPrivacy:
    """No noise: every release is charged as not private."""

    reason: str = "noise is switched off"
    # Fields of `Target` that have no value here.
    delta: ClassVar[None] = None
    adjacency: ClassVar[None] = None
    sum: ClassVar[None] = None

    @property
    def event(self) -> NotPrivate:
        return NotPrivate(self.reason)


@dataclass(frozen=True)
class Fixed:
    """An event of a plan at level 1 that stays as it is at every level."""

    event: Event


Unscaled = Mapping[tuple[int, int], tuple[tuple[Event | Fixed, ...], ...]]


@singledispatch
def scaled(event: Any, level: float) -> Event:
    """The event with `level` times its noise."""
    raise TypeError(f"{event!r} has no noise to scale")


scaled.register(Fixed, lambda fixed, level: fixed.event)
scaled.register(NotPrivate, lambda event, level: event)
scaled.register(Gaussian, lambda event, level: Gaussian(level * event.ratio))
scaled.register(DiscreteGaussian, lambda event, level: DiscreteGaussian(level * event.ratio))
scaled.register(SharedGaussian, lambda event, level: replace(event, ratio=level * event.ratio))
scaled.register(GaussianObjective, lambda event, level: GaussianObjective(level * event.ratio, event.w))
scaled.register(GammaObjective, lambda event, level: GammaObjective(event.slope / level, event.w))
scaled.register(GammaOutput, lambda event, level: GammaOutput(level * event.ratio))


def objective(law: Law, kind: Kind, level: float, w: float) -> tuple[Event, Fixed]:
    """The two events of an argmin: noise in its objective, and the output noise that covers how inexact it is."""
    if law == "gaussian":
        return GaussianObjective(level, w), Fixed(kind(1 / COVER))
    return GammaObjective(1 / level, w), Fixed(GammaOutput(1 / COVER))


def fit(target: Target, unscaled: Unscaled) -> Plan:
    """The plan with the least noise of this shape that keeps every party within its epsilon."""
    distinct = {id(releases): releases for releases in unscaled.values()}
    times = dict.fromkeys(distinct, 0)
    for releases in unscaled.values():
        times[id(releases)] += 1
    parties = len(next(iter(distinct.values()))[0])
    rows = [(row, target.copies * times[key]) for key, releases in distinct.items() for row in releases]
    levels = [
        _level(target.of(party, parties), target.delta, tuple((row[party], count) for row, count in rows))
        for party in range(parties)
    ]
    fitted = {
        key: tuple(tuple(_scaled(event, level) for event, level in zip(row, levels, strict=True)) for row in releases)
        for key, releases in distinct.items()
    }
    return {tick: fitted[id(releases)] for tick, releases in unscaled.items()}


_scaled = lru_cache(maxsize=65536)(scaled)


@lru_cache(maxsize=4096)
def _level(target: float, delta: float, shape: tuple[tuple[Event | Fixed, int], ...]) -> float:
    def spend(level: float) -> Spent:
        return merge((), tuple((scaled(event, level), count) for event, count in shape))

    if delta == 0 and any(pure(event) is None for event, _ in spend(1.0)):
        raise ConfigError('delta = 0 needs pure noise: set law = "gamma" where the algorithm has it, or give a delta')
    return calibrate(target, delta, spend)


def calibrate(target: float, delta: float, spend: Callable[[float], Spent]) -> float:
    """The smallest noise level x, to a relative 1e-12 and from above, at which spend(x) costs at most the target.

    spend must cost less as x grows. What no noise can reach is refused with the smallest feasible epsilon.
    """
    check_positive(epsilon=target)

    def cost(level: float) -> float:
        return epsilon(spend(level), delta) / target

    low, high = 1.0, 1.0
    while cost(low) <= 1:
        low, high = low / 16, low
        if low < 1e-9:
            return high
    while cost(high) > 1:
        low, high = high, 16 * high
        if high > 1e15:
            least, needed = epsilon(spend(high), delta), least_delta(spend(high))
            if delta < needed:
                raise RefusedError(
                    f"delta = {delta:g} is too small for so many releases on a deployment's grid, however noisy: "
                    f"give a delta of at least {needed:.3g}, or fewer rounds"
                )
            if not math.isfinite(least):
                raise RefusedError(
                    f"no Gaussian noise reaches epsilon = {target:g} at delta = {delta:g}, however much there is: give "
                    "delta = 1e-6, say, below one over the number of records"
                )
            raise RefusedError(
                f"no noise reaches epsilon = {target:g} at delta = {delta:g}: the smallest feasible is {least:.6g}"
            )
    return _narrowed(low, high, cost)


def _narrowed(low: float, high: float, cost: Callable[[float], float]) -> float:
    """Narrow a bracket, cost(low) > 1 >= cost(high), to a relative 1e-12, and return its upper end.

    By secants, since ln(cost) is nearly straight in ln(level); the value of an end that stays twice is halved
    (Illinois). A new point keeps 0.9e-12 away from the ends, so that the last points close the bracket. Where a cost is
    infinite, or three points did not halve the bracket, bisection halves it.
    """
    enough, stayed, goal, tries = 1e-12, 0, math.log(high / low) / 2, 0
    above, below = math.log(cost(low)), math.log(max(cost(high), 1e-300))
    while (width := math.log(high / low)) > enough:
        tries += 1
        if width <= goal:
            goal, tries = width / 2, 0
        share = above / (above - below) if math.isfinite(above) and tries < 3 else 0.5
        edge = min(0.5, 0.9 * enough / width)
        middle = low * math.exp(width * min(max(share, edge), 1 - edge))
        size = math.log(max(cost(middle), 1e-300))
        if size > 0:
            low, above, below, stayed = middle, size, below / 2 if stayed > 0 else below, 1
        else:
            high, below, above, stayed = middle, size, above / 2 if stayed < 0 else above, -1
    return high


@lru_cache(maxsize=1024)
def widest(target: float, delta: float, law: Law, rounds: int) -> float:
    """The largest w at which `rounds` argmins with unlimited noise cost half of the target at most.

    Beyond it an algorithm adds curvature of its own (DVP's Phi), as the paper's rule alpha/2 does for one round.
    """

    def cost(w: float) -> float:
        return epsilon(((objective(law, Gaussian, 1e50, w)[0], rounds),), delta)

    low, high = 1e-12, 1e6
    if cost(high) <= target / 2:
        return high
    while high > (1 + 1e-6) * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle) <= target / 2 else (low, middle)
    return low


@lru_cache(maxsize=1024)
def gdp_parameter(total: float, delta: float, unit: Output = UNIT) -> float:
    """The GDP parameter mu of a transcript with noise like `unit` that costs exactly this epsilon."""
    return 1 / calibrate(total, delta, lambda level: ((scaled(unit, level), 1),))


@lru_cache(maxsize=1024)
def remainder(total: float, delta: float, share: float, unit: Output = UNIT) -> float:
    """The epsilon of a transcript like that of `gdp_parameter`, with 1 - share of its mu squared."""
    rest = gdp_parameter(total, delta, unit) * math.sqrt(1 - share)
    return epsilon(((scaled(unit, 1 / rest), 1),), delta) * (1 - 1e-9)


def first(target: Target, total: float, share: float, parties: int) -> Output:
    """The event of a release beside the method, at a party with this epsilon. All copies of the method share it."""
    mu = gdp_parameter(total, target.delta, target.event(1.0, parties))
    return target.event(1 / (mu * math.sqrt(share)), parties)


def left_over(
    target: Target,
    totals: Sequence[float],
    shares: Sequence[float],
    spend: Callable[[tuple[float, ...]], list[Spent]],
    key: str,
) -> tuple[float, ...]:
    """The epsilon that each party's method may cost beside releases with these shares.

    spend(left) is what the method costs if calibrated to `left`; `key` of a config says how large the shares are.
    """
    unit, share = target.event(1.0, len(totals)), sum(shares)

    def within(cut: float) -> tuple[float, ...] | None:
        left = tuple(cut * remainder(total, target.delta, share, unit) for total in totals)
        for spent, total in zip(spend(left), totals, strict=True):
            rest = tuple((event, target.copies * count) for event, count in spent)
            beside = tuple((first(target, total, part, len(totals)), 1) for part in shares)
            if epsilon(merge(rest, beside), target.delta) > total:
                return None
        return left

    if (whole := within(1.0)) is not None:
        return whole
    low, high, best = 0.0, 1.0, None
    for _ in range(24):
        middle = (low + high) / 2 if best else 0.98 * high
        if (affordable := within(middle)) is not None:
            low, best = middle, affordable
        else:
            high = middle
    if best is None:
        raise RefusedError(f"what is released beside the method leaves it too little of the budget: lower {key}")
    return best
