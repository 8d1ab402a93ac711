"""Events: what was released, as frozen records. How they are counted is accounting.py's business.

An event holds only the ratios that the guarantee depends on, never a scale or a sensitivity. So equal events are equal
objects, and a thousand rounds of one event are a number and a count.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from privadmm.data.arrays import Ints
from privadmm.errors import ConfigError, LedgerError
from privadmm.params import check_nonnegative, check_positive, check_ratio, check_whole
from privadmm.privacy.alike import Alike, same_array, together

# Accounting relies on what mechanisms.Deployment keeps to: in every release of d numbers, the standard deviation is at
# least STEPS sqrt(d) steps of the grid.
STEPS = 2.0**40
# Shares of a sum's noise have at least STEPS steps each, whatever d is. Their accounting relies on d below this: a row
# of a ledger holds less than 2^31 bytes.
WIDEST = 2**28


class Event:
    """What a party released, or drew once and keeps."""


@dataclass(frozen=True)
class WithRatio(Event):
    ratio: float

    def __post_init__(self) -> None:
        check_ratio(ratio=self.ratio)


class Gaussian(WithRatio):
    """A query of l2 sensitivity Delta released with N(0, (ratio Delta)^2 I); continuous, so simulation only."""


class DiscreteGaussian(WithRatio):
    """Like Gaussian, from the discrete Gaussian on a fine grid, Delta including the rounding to it: deployment."""


@dataclass(frozen=True)
class SharedGaussian(WithRatio):
    """A summand of a secure sum over `parties`, of which `colluding` may tell all they know to whoever reads the sum.

    The noise of the others has a standard deviation of at least ratio Delta, Delta including the rounding to the grid.
    """

    colluding: int
    parties: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(colluding=self.colluding, parties=self.parties)
        if self.colluding >= self.parties:
            raise ConfigError("a secure sum needs a party that does not collude")

    def among(self, colluding: int, present: int) -> "SharedGaussian":
        """The event if this many collude in a sum over `present` parties; unchanged if it tolerates them."""
        if colluding <= self.colluding:
            return self
        left = (present - colluding) / (present - self.colluding)
        return SharedGaussian(self.ratio * math.sqrt(left), colluding, self.parties)


class EarlyDiscreteGaussian(WithRatio):
    """A release that a ledger recorded before its grid followed STEPS: only its Renyi curve is proved."""


class GammaOutput(WithRatio):
    """A query of l2 sensitivity Delta released with noise of density exp(-|u|/h); ratio = h/Delta. Simulation only."""


class Unproved(WithRatio):
    """Gaussian noise `ratio` times a sensitivity that a paper claims wrongly. It counts as if there were no noise."""


@dataclass(frozen=True)
class GaussianObjective(Event):
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
class GammaObjective(Event):
    """Like GaussianObjective, with noise of density ~ exp(-zeta |b|); slope = Delta zeta. Simulation only."""

    slope: float
    w: float

    def __post_init__(self) -> None:
        check_ratio(slope=self.slope)
        check_nonnegative(w=self.w)


@dataclass(frozen=True)
class RandomizedResponse(Event):
    """Every label kept with probability e^epsilon/(1 + e^epsilon), drawn once and stored."""

    epsilon: float

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)


@dataclass(frozen=True)
class Lost(Event):
    """Releases that a ledger has forgotten, at the most that its steward says they have cost: (epsilon, delta)."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)
        check_nonnegative(delta=self.delta)


@dataclass(frozen=True)
class NotPrivate(Event):
    """Something left in the clear. No finite epsilon covers it."""

    reason: str


KINDS: dict[str, type[Event]] = {
    "gaussian": Gaussian,
    "grid_gaussian": DiscreteGaussian,
    "shared_gaussian": SharedGaussian,
    "discrete_gaussian": EarlyDiscreteGaussian,
    "gaussian_objective": GaussianObjective,
    "gamma_objective": GammaObjective,
    "gamma_output": GammaOutput,
    "randomized_response": RandomizedResponse,
    "unproved": Unproved,
    "lost": Lost,
    "not_private": NotPrivate,
}
NAMES = {kind: name for name, kind in KINDS.items()}

Charges = Mapping[int, tuple[Event, ...]]  # what a tick charges: for each party of the block, its events in order
Spent = tuple[tuple[Event, int], ...]  # what one party released: distinct events with their counts, in a fixed order


@lru_cache(maxsize=4096)
def dump(event: Event) -> str:
    """One line of JSON, as the ledger stores and exports it. Memoised: every round writes the same few."""
    return json.dumps({"kind": NAMES[type(event)], **asdict(event)}, sort_keys=True)  # type: ignore[call-overload]


def load(text: str) -> Event:
    """The event that `dump` wrote; anything else fails closed."""
    try:
        record = json.loads(text)
        return KINDS[record.pop("kind")](**record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(f"the ledger holds an event this version cannot count: {text!r}") from error


def tables(spent: Spent) -> list[dict[str, Any]]:
    """Events with their counts, as results and exports hold them."""
    return [{**json.loads(dump(event)), "count": count} for event, count in spent]


def untabled(rows: Iterable[Mapping[str, Any]]) -> Spent:
    """The tally that `tables` made a list of."""
    return tuple((load(json.dumps({key: row[key] for key in row if key != "count"})), row["count"]) for row in rows)


def merge(spent: Spent, more: Spent) -> Spent:
    """Add two tallies. The second may be any list of events with counts."""
    if not spent and len(more) == 1:
        return more
    if same_events(spent, more):  # another round like those before, at a party unlike all others
        return tuple((event, count + extra) for (event, count), (_, extra) in zip(spent, more, strict=True))
    return _merged(spent, more)


def same_events(one: Spent, other: Spent) -> bool:
    """Whether two tallies have the same event objects in the same order: a quick check, which compares no events."""
    return len(one) == len(other) and all(a is b for (a, _), (b, _) in zip(one, other, strict=True))


@lru_cache(maxsize=4096)
def _merged(spent: Spent, more: Spent) -> Spent:
    counts = dict(spent)
    for event, count in more:
        counts[event] = counts.get(event, 0) + count
    return tuple(sorted(counts.items(), key=lambda item: dump(item[0])))


def less(whole: Spent, part: Spent) -> Spent:
    """The first tally minus the second; what would be negative is left out."""
    counts = dict(part)
    return tuple((event, count - counts.get(event, 0)) for event, count in whole if count > counts.get(event, 0))


def alone(spent: Spent) -> Spent | None:
    """The releases if everybody else colluded: of each sum's noise only one share is left. None without sums."""
    if not any(isinstance(event, SharedGaussian) for event, _ in spent):
        return None
    return tuple(
        (event.among(event.parties - 1, event.parties) if isinstance(event, SharedGaussian) else event, count)
        for event, count in spent
    )


def merge_all(tallies: Iterable[Spent]) -> Spent:
    total: Spent = ()
    for tally in tallies:
        total = merge(total, tally)
    return total


def add(spent: Spent, events: Iterable[Event]) -> Spent:
    return merge(spent, tuple((event, 1) for event in events))


def added(before: Alike[Spent], more: Alike[Spent]) -> Alike[Spent]:
    """Add two tallies for each party. A party that is in only one of them keeps that one."""
    ids = before.ids
    if not same_array(ids, more.ids):
        ids = np.concatenate([ids, more.ids[~np.isin(more.ids, ids)]])
    return together(before.over(ids, ()), more.over(ids, ())).map(lambda pair: merge(*pair))


def added_all(ids: Ints, tallies: Iterable[Alike[Spent]]) -> Alike[Spent]:
    """The sum of each party's tallies, for these parties."""
    total: Alike[Spent] = Alike.same(ids, ())
    for tally in tallies:
        total = together(total, tally.over(ids, ())).map(lambda pair: merge(*pair))
    return total
