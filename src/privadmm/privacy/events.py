"""What was released, as a frozen record of ratios. How it is counted is accounting.py's business.

An event never holds a scale or a sensitivity of its own, only what the guarantee depends on, so that
equal events are equal objects and a thousand rounds of one event are a number and a count.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache

from privadmm.errors import LedgerError
from privadmm.params import check_nonnegative, check_positive, check_ratio

# What mechanisms.Deployment keeps to in every release of d numbers, and accounting relies on: the standard deviation is
# at least STEPS sqrt(d) steps of the grid.
STEPS = 2.0**40


@dataclass(frozen=True)
class Gaussian:
    """A query of l2 sensitivity Delta released with N(0, (ratio Delta)^2 I); continuous, so simulation only."""

    ratio: float

    def __post_init__(self) -> None:
        check_ratio(ratio=self.ratio)


@dataclass(frozen=True)
class DiscreteGaussian:
    """The same from the discrete Gaussian on a fine grid, Delta including the rounding to it: deployment."""

    ratio: float

    def __post_init__(self) -> None:
        check_ratio(ratio=self.ratio)


@dataclass(frozen=True)
class EarlyDiscreteGaussian:
    """A release that a ledger recorded before its grid followed STEPS: only its Renyi curve is proved."""

    ratio: float

    def __post_init__(self) -> None:
        check_ratio(ratio=self.ratio)


@dataclass(frozen=True)
class GaussianObjective:
    """An argmin whose objective carries noise b ~ N(0, (ratio Delta)^2 I), b in units of summed gradients.

    w = C c/(m k): the most that one record can add to the curvature, over the curvature that is not data's.
    Its release is followed by that of the argmin's cover, which shows the law of b: continuous before a Gaussian, and
    rounded to a grid before a DiscreteGaussian. A door releases no other pair.
    """

    ratio: float
    w: float

    def __post_init__(self) -> None:
        check_ratio(ratio=self.ratio)
        check_nonnegative(w=self.w)


@dataclass(frozen=True)
class GammaObjective:
    """The same with noise of density proportional to exp(-zeta |b|); slope = Delta zeta. Simulation only."""

    slope: float
    w: float

    def __post_init__(self) -> None:
        check_ratio(slope=self.slope)
        check_nonnegative(w=self.w)


@dataclass(frozen=True)
class GammaOutput:
    """A query of l2 sensitivity Delta released with noise of density exp(-|u|/h); ratio = h/Delta. Simulation only."""

    ratio: float

    def __post_init__(self) -> None:
        check_ratio(ratio=self.ratio)


@dataclass(frozen=True)
class RandomizedResponse:
    """Every label kept with probability e^epsilon/(1 + e^epsilon), drawn once and stored."""

    epsilon: float

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)


@dataclass(frozen=True)
class Unproved:
    """Gaussian noise `ratio` times a sensitivity that a paper claims and that is none. It counts as no noise would."""

    ratio: float

    def __post_init__(self) -> None:
        check_ratio(ratio=self.ratio)


@dataclass(frozen=True)
class NotPrivate:
    """Something left in the clear. No finite epsilon covers it."""

    reason: str


Event = (
    Gaussian
    | DiscreteGaussian
    | EarlyDiscreteGaussian
    | GaussianObjective
    | GammaObjective
    | GammaOutput
    | RandomizedResponse
    | Unproved
    | NotPrivate
)
KINDS: dict[str, type[Event]] = {
    "gaussian": Gaussian,
    "grid_gaussian": DiscreteGaussian,
    "discrete_gaussian": EarlyDiscreteGaussian,
    "gaussian_objective": GaussianObjective,
    "gamma_objective": GammaObjective,
    "gamma_output": GammaOutput,
    "randomized_response": RandomizedResponse,
    "unproved": Unproved,
    "not_private": NotPrivate,
}
NAMES = {kind: name for name, kind in KINDS.items()}

# What a tick charges: for each party of the block, its events in order.
Charges = dict[int, tuple[Event, ...]]

# What one party released so far: distinct events with their counts, in a fixed order.
Spent = tuple[tuple[Event, int], ...]


@lru_cache(maxsize=4096)
def dump(event: Event) -> str:
    """One line of JSON, as the ledger stores and exports it. Memoised: every round writes the same few."""
    return json.dumps({"kind": NAMES[type(event)], **asdict(event)}, sort_keys=True)


def load(text: str) -> Event:
    """The event that `dump` wrote; anything else fails closed."""
    try:
        record = json.loads(text)
        return KINDS[record.pop("kind")](**record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(f"the ledger holds an event this version cannot count: {text!r}") from error


@lru_cache(maxsize=4096)
def merge(spent: Spent, more: Spent) -> Spent:
    """Both together. Memoised: parties with equal histories share one object."""
    counts = dict(spent)
    for event, count in more:
        counts[event] = counts.get(event, 0) + count
    return tuple(sorted(counts.items(), key=lambda item: dump(item[0])))


def add(spent: Spent, events: Iterable[Event]) -> Spent:
    return merge(spent, tuple((event, 1) for event in events))
