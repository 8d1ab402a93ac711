"""The one door. A party can emit only `Released` values, and only a door makes them.

A door is opened for one tick (a phase of a round at a block of parties) with the events that the plan
foresees. Each release takes the next planned event, asks the ledger whether every party may still afford
it, and only then draws noise. What was charged is in `door.charges` when the tick ends.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privadmm.errors import PrivadmmError, RefusedError
from privadmm.privacy.events import Charges, Event, NotPrivate
from privadmm.privacy.mechanisms import Noise

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_KEY = object()


@dataclass(frozen=True)
class Released:
    """A value that may leave its party. `map` is post-processing: it must read released values only."""

    value: Floats
    _key: object = None

    def __post_init__(self) -> None:
        if self._key is not _KEY:
            raise TypeError("only a door makes Released values: call release.output(...)")

    def map(self, function: Callable[[Floats], Floats]) -> "Released":
        return Released(function(self.value), _KEY)


class Door:
    """The release interface of one tick. `permit` is the ledger's: it raises before any noise is drawn."""

    def __init__(
        self,
        ids: Ints,
        planned: tuple[tuple[Event, ...], ...],
        noise: Noise,
        round: int,
        phase: int,
        permit: Callable[[Charges], None],
    ) -> None:
        self.ids = ids
        self.charges: Charges = {party: () for party in ids.tolist()}
        self._planned = planned
        self._noise = noise
        self._at = (round, phase)
        self._permit = permit
        self._calls = 0

    def output(self, x: Floats, sensitivity: Floats | float) -> Released:
        """x (..., P, d), of which one record moves party i's row by at most sensitivity_i in l2 norm."""
        events = self._next()
        if any(isinstance(event, NotPrivate) for event in events):
            # One party in the clear among private ones is not a thing anybody asks for: all or none.
            if not all(isinstance(event, NotPrivate) for event in events):
                raise RefusedError("a block mixes private and non-private parties; give every party an event")
            value = x
        else:
            value = self._noise.gaussian(
                x, self._column(sensitivity), self._ratios(events), self.ids, self._call()
            )
        self._calls += 1
        if not np.all(np.isfinite(value)):
            raise PrivadmmError(
                f"the iterates diverged at round {self._at[0] + 1}: choose a larger penalty or a smaller step size"
            )
        return Released(value, _KEY)

    def close(self) -> Charges:
        """What to charge, once the tick has made every release that its plan foresees."""
        if self._calls != len(self._planned):
            raise RefusedError(
                f"round {self._at[0] + 1} made {self._calls} releases where its plan has {len(self._planned)}"
            )
        return self.charges

    def _planned_now(self) -> list[Event]:
        if self._calls >= len(self._planned):
            raise RefusedError(f"round {self._at[0] + 1} asks for a release that its plan does not have")
        return [self._planned[self._calls][party] for party in self.ids.tolist()]

    def _next(self) -> list[Event]:
        events = self._planned_now()
        proposed = {
            party: (*self.charges[party], event) for party, event in zip(self.charges, events, strict=True)
        }
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

    def _ratios(self, events: list[Event]) -> Floats:
        ratios = []
        for event in events:
            if not isinstance(event, self._noise.kind):
                raise RefusedError(
                    f"a {self._noise.mode} cannot release {event!r}: it honours {self._noise.kind.__name__} only"
                )
            ratios.append(event.ratio)
        return np.array(ratios)
