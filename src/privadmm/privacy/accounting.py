"""From events to (epsilon, delta), for one party and the whole transcript.

Each event has a rule: Gaussian, pure, or a Renyi curve (the formulas are in curves.py). A transcript is counted in the
strongest form that all of its events have: Gaussian and pure releases exactly, anything else in Renyi form.

Deployments draw noise on a grid. Counted as Gaussian, their releases cost a slack in delta. Where it would be too
large, releases with noise on the output are counted by a Renyi curve, which needs no slack. Noise inside of an argmin,
or shared by a sum's parties, has no proof without the slack.

Every epsilon is rounded up and every noise level calibrated from above: a figure may be a hair too large, never too
small. An event without a rule counts as infinite.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache, partial, singledispatch
from typing import TypeVar

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.files import finite
from privadmm.params import check_positive, check_probability
from privadmm.privacy import curves
from privadmm.privacy.alike import Alike
from privadmm.privacy.events import (
    STEPS,
    WIDEST,
    DiscreteGaussian,
    EarlyDiscreteGaussian,
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    Lost,
    NotPrivate,
    RandomizedResponse,
    SharedGaussian,
    Spent,
    added,
    merge,
    merge_all,
)

T = TypeVar("T")

# eta of a release whose grid does not follow its dimension: a summand, since one grid serves a whole job, or an argmin
# in an early ledger. A sum of shares is not quite a discrete Gaussian; that adds less than e^(-2^80) to eta.
WIDE = curves.grid_distance(WIDEST, STEPS)

Row = tuple[Event, ...]  # the events of one release, one per party
# (round, phase) -> a row for each release of that tick, in order.
Plan = Mapping[tuple[int, int], tuple[Row, ...]]


@dataclass(frozen=True)
class Claim:
    """What a paper says of its own noise. It is shown for comparison, never without the caveat."""

    epsilon: float | None
    caveat: str
    of_one_round: bool = False


@singledispatch
def gdp(event: object) -> float | None:
    """The GDP parameter mu of an event that is Gaussian, apart from the slack of its grid; else None."""
    return None


@singledispatch
def pure(event: object) -> float | None:
    """The epsilon of an event that is (epsilon, 0)-DP, apart from its delta in `Sorted.lost`; else None."""
    return None


@singledispatch
def rdp(event: object, alpha: Floats) -> Floats:
    """The Renyi divergence D_alpha, infinite for an event without a rule."""
    return np.full_like(alpha, np.inf)


gdp.register(Gaussian, lambda event: 1 / event.ratio)
gdp.register(DiscreteGaussian, lambda event: 1 / event.ratio)
gdp.register(SharedGaussian, lambda event: 1 / event.ratio)
# If no record changes the curvature (w = 0: a label flip of the logistic loss), the argmin maps the noise one to one.
gdp.register(GaussianObjective, lambda event: None if event.w else 1 / event.ratio)
rdp.register(Gaussian, lambda event, alpha: curves.gaussian_rdp(alpha, 1 / event.ratio))
rdp.register(DiscreteGaussian, lambda event, alpha: curves.gaussian_rdp(alpha, 1 / event.ratio))
rdp.register(SharedGaussian, lambda event, alpha: curves.gaussian_rdp(alpha, 1 / event.ratio))
rdp.register(EarlyDiscreteGaussian, lambda event, alpha: curves.gaussian_rdp(alpha, 1 / event.ratio))
rdp.register(GaussianObjective, lambda event, alpha: curves.objective_rdp(alpha, event.ratio, event.w))
pure.register(GammaObjective, lambda event: event.slope + math.log1p(event.w))
pure.register(GammaOutput, lambda event: 1 / event.ratio)
pure.register(RandomizedResponse, lambda event: event.epsilon)
pure.register(Lost, lambda event: event.epsilon)
for _kind in (GammaObjective, GammaOutput, RandomizedResponse, Lost):
    rdp.register(_kind, lambda event, alpha: curves.pure_rdp(alpha, pure(event) or math.inf))


@dataclass(frozen=True)
class Sorted:
    """Everything a party released, by the form in which it can be counted."""

    mu: float
    pure: tuple[tuple[float, int], ...]
    others: tuple[Event, ...]
    eta: float  # the distance of the noise from rounded Gaussians, in total variation; 0 in simulations
    lost: float  # the part of delta that goes to `Lost` events, of which only one pair (epsilon, delta) is known
    inside: float  # the part of eta that costs a slack in Renyi form, too: noise inside of argmins, shared noise

    @property
    def hopeless(self) -> bool:
        return any(isinstance(event, NotPrivate) for event in self.others)


@lru_cache(maxsize=65536)
def sort(spent: Spent) -> Sorted:
    mus, pures, others = [], [], []
    for event, count in spent:
        if (mu := gdp(event)) is not None:
            mus.append(count * mu**2)
        elif (eps := pure(event)) is not None:
            pures.append((eps, count))
        else:
            others.append(event)
    outputs = sum(count for event, count in spent if isinstance(event, DiscreteGaussian))
    shared = sum(count for event, count in spent if isinstance(event, SharedGaussian))
    argmins = sum(count for event, count in spent if isinstance(event, GaussianObjective))
    early = any(isinstance(event, EarlyDiscreteGaussian) for event, _ in spent)
    per_release = curves.grid_distance(1, STEPS)  # d/(24 s^2) of d numbers with s = STEPS sqrt(d)
    # An argmin's cover is on a grid if the noise inside is. So without outputs on a grid, that noise is continuous.
    inside = (WIDE if early else per_release) * argmins if outputs or early else 0.0
    inside += WIDE * shared
    lost = curves.plain_sum((event.delta, count) for event, count in spent if isinstance(event, Lost))
    return Sorted(math.sqrt(math.fsum(mus)), tuple(pures), tuple(others), per_release * outputs + inside, lost, inside)


def renyi(spent: Spent, alpha: Floats) -> Floats:
    """The Renyi curve of all events together. Argmins may differ in every round: they are evaluated in one go."""
    argmins = [(event.ratio, event.w, count) for event, count in spent if isinstance(event, GaussianObjective)]
    others = [(event, count) for event, count in spent if not isinstance(event, GaussianObjective)]
    total = sum((count * rdp(event, alpha) for event, count in others), np.zeros_like(alpha))
    if argmins:
        ratio, w, count = np.array(argmins).T[:, :, None]
        total = total + (count * curves.objective_rdp(alpha, ratio, w)).sum(axis=0)
    return total


@lru_cache(maxsize=65536)
def epsilon(spent: Spent, delta: float) -> float:
    """The certified epsilon of everything a party released, in the strongest form that all its events have."""
    parts = sort(spent)
    if parts.lost:
        delta -= parts.lost
        if delta <= 0:
            return math.inf
    if not parts.others:
        exact = partial(curves.mixed_epsilon, parts.mu, parts.pure)
        total = curves.epsilon_with_slack(exact, parts.eta, delta)
        if math.isfinite(total):
            return total
    if delta == 0 or parts.hopeless:
        return math.inf
    return curves.epsilon_with_slack(partial(curves.rdp_epsilon, partial(renyi, spent)), parts.inside, delta)


def least_delta(spent: Spent) -> float:
    """The least delta at which an epsilon is proved: 0 but for `Lost` events, shared noise, and argmins on a grid."""
    parts = sort(spent)
    return parts.lost + curves.slack(parts.inside, 0.0) / curves.SET_ASIDE


def most_epsilon(spent: Spent, delta: float) -> float | None:
    """The largest epsilon that can be proved at this delta, whatever the noise; None if none can.

    It is infinite unless shared noise, or noise inside of argmins, was drawn on a grid: its slack grows with e^epsilon,
    and may take SET_ASIDE of delta.
    """
    parts = sort(spent)
    if parts.hopeless or (parts.lost and delta <= parts.lost):
        return None
    if parts.inside == 0:
        return math.inf
    room = curves.SET_ASIDE * (delta - parts.lost) / parts.inside - 1  # e^epsilon of curves.slack
    return math.log(room) if room >= 1 else None


def certified(spent: Spent, delta: float | None) -> float | None:
    """`epsilon` as results show it: None without a delta, or where epsilon is infinite."""
    return None if delta is None else finite(epsilon(spent, delta))


def largest_next(spent: Spent, most: float, delta: float) -> float:
    """The epsilon of the largest Gaussian release that a budget of `most` still covers besides `spent`, from below."""
    low, high = 0.0, 1e3  # of mu, the release's GDP parameter
    if epsilon(spent, delta) >= most:
        return 0.0
    for _ in range(50):
        mu = (low + high) / 2
        fits = epsilon(merge(spent, ((Gaussian(1 / mu), 1),)), delta) <= most
        low, high = (mu, high) if fits else (low, mu)
    return epsilon(((Gaussian(1 / low), 1),), delta) if low > 1e-90 else 0.0


def delta_curve(spent: Spent) -> Callable[[float], float]:
    """The certified delta at every epsilon: the inverse of `epsilon`."""
    parts = sort(spent)
    if parts.hopeless:
        return lambda epsilon: 1.0
    forms = []
    if not parts.others:
        forms.append(curves.delta_with_slack(curves.mixed_delta(parts.mu, parts.pure), parts.eta))
    if parts.others or parts.eta:
        forms.append(curves.delta_with_slack(partial(curves.rdp_delta, partial(renyi, spent)), parts.inside))
    return lambda epsilon: min(1.0, parts.lost + min(form(epsilon) for form in forms))


def printed(value: float, spec: str = ".4g") -> str:
    """Write an epsilon or delta for people, rounded up, so that it is never below what was spent."""
    text = format(value, spec)
    if not float(text) < value:
        return text
    digits = int(spec[1:-1])
    if spec.endswith("f"):
        return format(Decimal(value).quantize(Decimal(1).scaleb(-digits), ROUND_CEILING), spec)
    return format(float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(value))), spec)


def rounded_down(value: float) -> str:
    """What is left of a budget, for people to read: six digits and four decimals at most, and never more than it is."""
    left = Context(prec=6, rounding=ROUND_FLOOR).create_decimal(Decimal(value))
    return format(float(left.quantize(Decimal("1e-4"), ROUND_FLOOR) if left < 100 else left), "g")


def classical_ratio(round_epsilon: float, delta: float) -> float:
    """The textbook noise of one (epsilon, delta) Gaussian release, sqrt(2 ln(1.25/delta))/epsilon."""
    check_positive(round_epsilon=round_epsilon)
    check_probability(delta=delta)
    return math.sqrt(2 * math.log(1.25 / delta)) / round_epsilon


def moments_accountant(round_epsilon: float, delta: float, rounds: int) -> float:
    """The total that the DP-ADMM paper prints: min over integer orders tau of its log-moment bound."""
    tau = np.arange(1, 100_001, dtype=np.float64)
    bound = rounds * (tau + 1) * round_epsilon**2 / (4 * math.log(1.25 / delta)) + math.log(1 / delta) / tau
    return float(bound.min())


def spending(plan: Plan, parties: int) -> Iterator[tuple[int, list[Spent]]]:
    """After each tick of the plan: its round, and what every party has spent by then."""
    spent: Alike[Spent] = Alike.same(np.arange(parties), ())
    for (t, _), releases in sorted(plan.items()):
        for events in releases:
            spent = added(spent, _once(events))
        yield t, spent.listing()


def shared(plan: Plan) -> Plan:
    """Replace equal events of a plan by one object, and equal rounds too, so that each kind is counted only once."""
    events, rows, rounds = dict[Event, Event](), dict[tuple[int, ...], Row](), dict[tuple[int, ...], tuple[Row, ...]]()

    def interned(releases: tuple[Row, ...]) -> tuple[Row, ...]:
        alike = [tuple(events.setdefault(event, event) for event in row) for row in releases]
        same = tuple(rows.setdefault(tuple(map(id, row)), row) for row in alike)
        return rounds.setdefault(tuple(map(id, same)), same)

    made = {key: interned(releases) for key, releases in {id(given): given for given in plan.values()}.items()}
    return {tick: made[id(releases)] for tick, releases in plan.items()}


def totals(plan: Plan, parties: int) -> list[Spent]:
    """What each party will have spent after the whole plan."""
    spent: Alike[Spent] = Alike.same(np.arange(parties), ())
    # Most plans repeat one round: count it once.
    rows = [events for releases in plan.values() for events in releases]
    times = Counter(map(id, rows))
    for key, events in {id(events): events for events in rows}.items():
        spent = added(spent, _once(events, times[key]))
    return spent.listing()


def _once(events: Sequence[Event], times: int = 1) -> Alike[Spent]:
    """What each party spends if this row of a plan is released this many times."""
    return Alike.listed(np.arange(len(events)), events).map(lambda event: ((event, times),))


def worst(spent: Sequence[Spent], delta: float) -> float:
    """The total of horizontal parties: that of the worst party, since no person has records at two of them."""
    return max(epsilon(events, delta) for events in distinct(spent))


def distinct(values: Iterable[T]) -> set[T]:
    """The set of these values. Most are one object: dropping equal addresses first saves hashing."""
    return set({id(value): value for value in values}.values())


def together(spent: list[Spent], delta: float) -> float:
    """The total of vertical parties: a person has a row at each of them, so the releases of all parties compose."""
    return epsilon(merge_all(spent), delta)


def by_round(
    plan: Plan, parties: int, delta: float, in_all: Callable[[list[Spent]], list[Spent]] = list
) -> list[float]:
    """The worst party's epsilon after each round; in_all(spent) adds what the parties had spent before these rounds."""
    return list({t: worst(in_all(spent), delta) for t, spent in spending(plan, parties)}.values())
