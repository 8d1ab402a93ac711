"""The one way out of a party: it can emit only `Released` values, and only a `Door` makes them.

A door is opened for one tick (a phase of a round at a block of parties) with the events that the plan foresees. Each
release takes the next planned event, asks the ledger whether every party may still afford it, and only then draws
noise. What was charged is in `door.charges` when the tick ends.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from privadmm.data.arrays import Floats, Ints
from privadmm.errors import DivergedError, RefusedError
from privadmm.privacy.alike import Alike, together
from privadmm.privacy.events import (
    Charges,
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    NotPrivate,
    SharedGaussian,
    Unproved,
    WithRatio,
)
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.sums import Summing, Words

_KEY = object()
DIVERGED = "the iterates diverged at round {}: choose a larger penalty or a smaller step size"


@dataclass(frozen=True)
class Released:
    """A value that may leave its party. The function given to `map` must read released values only."""

    value: Floats
    _key: object = None

    def __post_init__(self) -> None:
        if self._key is not _KEY:
            raise TypeError("only a door makes Released values: call release.output(...)")

    def map(self, function: Callable[[Floats], Floats]) -> "Released":
        return Released(function(self.value), _KEY)


class Sealed:
    """What a block sends for a sum: words that tell nothing until those of all blocks are added up.

    A party phase cannot keep a value of it: `words_of` is for the mail alone.
    """

    __slots__ = ("__words",)

    def __init__(self, words: Words, key: object = None) -> None:
        if key is not _KEY:
            raise TypeError("only a door makes Sealed words: call release.summand(...)")
        self.__words = words

    @staticmethod
    def words_of(sealed: "Sealed") -> Words:
        return sealed.__words


class Door:
    """The release interface of one tick. `permit` is the ledger's: it raises before any noise is drawn."""

    def __init__(
        self,
        ids: Ints,
        planned: Sequence[Sequence[Event] | Alike[Event]],
        noise: Noise,
        round: int,
        phase: int,
        permit: Callable[[Charges], None],
        rows: tuple[int, ...] | None = None,
        summing: Summing | None = None,
    ) -> None:
        """`planned` has the events of each release, by party.

        `rows` is the shape of a release without its width: one row a party, after the replicas if there are any.

        `summing`: only the sum of messages is read, and the noise of all parties together covers each message.
        """
        self._summing = summing
        self.ids = ids
        self.charges: Charges = Alike.same(ids, ())
        self._planned, self._noise, self._permit = planned, noise, permit
        self._at, self._rows = (round, phase), (len(ids),) if rows is None else rows
        self._calls = 0

    def output(self, x: Floats, sensitivity: Floats | float) -> Released:
        """Release x (..., P, d), of which one record moves party i's row by at most sensitivity_i in l2 norm."""
        if self._summing is not None:
            raise RefusedError("a secure sum takes summands, and this release would be read by itself")
        self._check_rows(x)
        events = self._next()
        if isinstance(events.kinds[0], NotPrivate):
            value = x
        elif isinstance(events.kinds[0], GammaOutput):
            value = self._noise.gamma(x, self._column(sensitivity) * by_party(events), self.ids, self._call())
        else:
            if isinstance(events.kinds[0], Unproved):
                if self._noise.kind is not Gaussian:
                    raise RefusedError(f"a {self._noise.mode} refuses noise that no proof covers")
            elif other := [event for event in events.kinds if not isinstance(event, self._noise.kind)]:
                honoured = self._noise.kind.__name__
                raise RefusedError(f"a {self._noise.mode} cannot release {other[0]!r}: it honours {honoured} only")
            value = self._noise.gaussian(x, self._column(sensitivity), by_party(events), self.ids, self._call())
        self._calls += 1
        if not np.all(np.isfinite(value)):
            raise DivergedError(DIVERGED.format(self._at[0] + 1))
        return Released(value, _KEY)

    def summand(self, x: Floats, sensitivity: Floats | float) -> Released | Sealed:
        """Release x as `output` does, for a message of which only the sum is needed: sealed in a secure sum."""
        if self._summing is None:
            return self.output(x, sensitivity)
        self._check_rows(x)
        events, summing = self._next(), self._summing
        sums, column = summing.sums, self._column(sensitivity)
        if not all(isinstance(event, SharedGaussian) and event.colluding <= sums.colluding for event in events.kinds):
            raise RefusedError("a summand needs a planned share of its sum's noise. Nothing was released")
        if self._noise.kind is not sums.kind:
            raise RefusedError(f"a {self._noise.mode} cannot draw the noise of a sum that is planned for another mode")
        needed = by_party(events) * (column + sums.step * math.sqrt(x.shape[-1]))
        if not np.all(needed <= sums.deviation[summing.at]):
            raise RefusedError("the noise of the sum does not cover how far this message moves. Nothing was released")
        scale, call = sums.share(summing.at, summing.present), self._call()
        noise = self._noise.shares(x.shape, scale, self.ids, call)
        self._calls += 1
        return Sealed(summing.sealed(x, self.ids, noise, call[-1]), _KEY)

    def _check_rows(self, x: Floats) -> None:
        if x.shape[:-1] != self._rows:
            raise RefusedError(f"a release of shape {x.shape} where one charge covers {self._rows} rows")
        if not np.all(np.isfinite(x)):
            raise DivergedError(DIVERGED.format(self._at[0] + 1))

    def objective(
        self,
        solve: Callable[[Floats, Floats], Floats],
        like: Floats,
        sensitivity: float,
        w: Floats,
        weight: Floats,
        k: Floats,
        error: Callable[[Floats], Floats],
    ) -> Released:
        """Release the argmin of an objective with noise in it: solve(b, r) for the linear term weight <b, x>, |b| <= r.

        b is in units of summed gradients and has the shape of `like`; sensitivity is how far these move;
        w = C c/(m k) and weight = C/m are columns; k is the strong convexity that is not data's; error(r) bounds the
        gradient norm that solve leaves. Takes two planned events: the noise in the objective, and the
        output noise that covers how far an inexact argmin, or a b on a grid, may be from the exact one.
        """
        events = self._next()
        w, weight, k = (np.broadcast_to(np.ravel(a), len(self.ids)) for a in (w, weight, k))
        d = like.shape[-1]
        b, grid, reach = np.zeros_like(like), np.zeros(len(self.ids)), np.zeros(len(self.ids))
        if not isinstance(events.kinds[0], NotPrivate):
            argmins = [event for event in events.kinds if isinstance(event, GaussianObjective | GammaObjective)]
            if len(argmins) < len(events.kinds) or not np.all(w <= spread([event.w for event in argmins], events)):
                raise RefusedError("an argmin needs a planned objective event whose w covers the party's own")
            # |b| is beyond its reach with probability e^-800. It is cut to it, whatever the records are.
            if isinstance(events.kinds[0], GaussianObjective):
                scale = sensitivity * by_party(events)
                grid, reach = self._noise.grid(scale), scale * (math.sqrt(d) + 40)
                b = self._noise.gaussian(b, self._column(sensitivity), by_party(events), self.ids, self._call())
            else:
                slopes = [event.slope for event in events.kinds if isinstance(event, GammaObjective)]
                width = sensitivity / spread(slopes, events)
                reach = width * (d + 40 * math.sqrt(d) + 800)
                b = self._noise.gamma(b, width, self.ids, self._call())
            size = np.linalg.norm(b, axis=-1, keepdims=True)
            b = np.where(size > reach[:, None], b * (reach[:, None] / np.maximum(size, reach[:, None])), b)
        self._calls += 1
        left = np.broadcast_to(np.ravel(error(reach)), len(self.ids))
        off = left / k + weight * grid * math.sqrt(d) / (2 * k)
        return self.output(solve(b, reach), sensitivity=2 * off)

    def close(self) -> Charges:
        """The charges of a tick that is done; refused unless it made every release that its plan foresees."""
        if self._calls != len(self._planned):
            raise RefusedError(
                f"round {self._at[0] + 1} made {self._calls} releases where its plan has {len(self._planned)}"
            )
        return self.charges

    def _planned_now(self) -> Alike[Event]:
        if self._calls >= len(self._planned):
            raise RefusedError(f"round {self._at[0] + 1} asks for a release that its plan does not have")
        events = events_of(self._planned[self._calls], self.ids)
        if len({type(event) for event in events.kinds}) > 1:
            raise RefusedError("a block mixes laws of noise, or private and non-private parties; split the block")
        return events

    def _next(self) -> Alike[Event]:
        """Take the events of the next planned release, one for each party, after asking the ledger."""
        events = self._planned_now()
        proposed = together(Alike.of(self.charges), events).map(lambda pair: (*pair[0], pair[1]))
        self._permit(proposed)
        self.charges = proposed
        return events

    def _call(self) -> tuple[int, int, int]:
        return (*self._at, self._calls)

    def _column(self, sensitivity: Floats | float) -> Floats:
        column = np.asarray(sensitivity, dtype=np.float64)
        column = np.broadcast_to(column.reshape(-1) if column.ndim else column, (len(self.ids),))
        if not (np.all(np.isfinite(column)) and np.all(column > 0)):
            raise RefusedError(
                "a release needs a finite sensitivity above 0: this loss has no declared bound on its derivative"
            )
        return column


def events_of(row: Sequence[Event] | Alike[Event], ids: Ints) -> Alike[Event]:
    """The events of these parties in a row of a plan."""
    if isinstance(row, Alike):
        return row.over(ids)
    return Alike.listed(ids, [row[party] for party in ids.tolist()])


def spread(values: Sequence[float] | Floats, events: Alike[Event]) -> Floats:
    """Spread numbers given for each kind of event out into an array by party."""
    return np.asarray(values, dtype=np.float64)[events.which]


def by_party(events: Alike[Event]) -> Floats:
    """The ratio of noise to sensitivity of each party."""
    return spread(ratios(events.kinds), events)


def ratios(events: Sequence[Event]) -> Floats:
    return np.array([event.ratio for event in events if isinstance(event, WithRatio | GaussianObjective)])
