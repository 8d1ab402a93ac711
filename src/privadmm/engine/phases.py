"""What an algorithm is made of: public facts, a party's own view, mail, and phases.

Arrays have a party axis, x is (P, d); sweeps put a replica axis in front of it, (R, P, d), and the same code
runs. Quantities of one number per party are columns, (P, 1), so that they broadcast.

Every variable is one of three. *Cache*: a function of the data and of public anchors; never leaves. *State*: a
function of the transcript only. *Message*: released. A phase of a block is one pure function,

    tick(algorithm, phase, local, state, inbox, door) -> (state, outbox)

which replay, partition and kill tests call directly, the worker wraps in a ledger transaction, and engines
only carry the arguments of.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Floats, Ints
from privadmm.data.moments_map import Map
from privadmm.engine.mail import Mail, limited
from privadmm.engine.party import Local, Vertical
from privadmm.engine.public import Public
from privadmm.privacy.accounting import Claim, Plan
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import Door, Released

# Who speaks to a party: the coordinator; its neighbours; or whoever holds all released messages, to each its own row.
Topology = Literal["star", "graph", "relay"]
S = TypeVar("S")


@dataclass(frozen=True)
class AtParties:
    """A phase that every block of parties runs beside its data, and whose message leaves through the door.

    The second argument is the block's `Local`, or its `Vertical`.
    """

    run: Callable[[int, Any, Any, Mail, Door], tuple[Any, Released]]


@dataclass(frozen=True)
class AtCoordinator:
    """A phase on released values only, run by whoever holds them all; it costs no event."""

    run: Callable[[int, Public, Any, Mail], tuple[Any, Mail]]


@dataclass(frozen=True)
class AtLabels:
    """A phase at the coordinator that also reads the labels (N,), where it is the one who holds them.

    What it sends is derived from labels, so nothing protects these unless they were randomised before. That is the
    label holder's affair and costs the parties nothing: they see it as they see any inbox.
    """

    run: Callable[[int, Public, Any, Mail, Floats], tuple[Any, Mail]]


Phase = AtParties | AtCoordinator | AtLabels


class Algorithm(Protocol):
    """One published method. States are frozen dataclasses of arrays; `memory` is the coordinator's state."""

    @property
    def name(self) -> str: ...
    @property
    def private(self) -> bool: ...
    @property
    def topology(self) -> Topology: ...

    adjacencies: ClassVar[tuple[str, ...]]

    @property
    def phases(self) -> tuple[Phase, ...]: ...
    def check(self, public: Public) -> None:
        """Refuse what has no proof or no convergence, with what to do instead."""

    def plan(self, public: Public) -> Plan:
        """Every event of the run, before any data is touched."""
        ...

    def published(self, public: Public, delta: float) -> Claim | None:
        """What the paper claims for the noise of this plan, if it claims anything."""
        ...

    def condition(self, public: Public) -> float:
        """Of the worst problem that a party solves: all curvature over what is not data's; 1 if it solves none."""
        ...

    def advice(self, public: Public) -> str | None:
        """What a person should know of these parameters before a run, in a sentence; None if there is nothing."""
        ...

    def width(self, public: Public) -> int:
        """Of a message to a party; a worker refuses any other."""
        ...

    def sends(self, public: Public) -> int:
        """The width of what a party sends, but for a first round of moments."""
        ...

    def message(self, public: Public, t: int) -> Floats:
        """What a party sends in round t, as one row (..., 1, width): 0 where a number must be, NaN where none is."""
        ...

    def keepsakes(self, local: Any, noise: Noise) -> dict[str, Floats]:
        """What a block draws once for a job, for `local.kept`; the ledger keeps it, so a resumed job has the same."""
        ...

    def go_on(self, public: Public, here: Ints) -> None:
        """Refuse to go on with these parties alone, where that has no meaning: an AbsentError."""

    def shares(self, public: Public, here: Ints, even: Floats) -> Floats:
        """How much each of these parties counts in a mean of what they released, a column that sums to 1."""
        ...

    def anew(self, state: Any) -> Any:
        """From what a block goes on in the first round after somebody left."""
        ...

    def init(self, public: Public, ids: Ints) -> Any: ...
    def start(self, public: Public) -> tuple[Any, Mail]:
        """The coordinator's memory and the inbox before the first phase."""
        ...

    def model(self, public: Public, memory: Any, mail: Mail) -> Floats:
        """The weights handed out, (..., d): a function of the transcript."""
        ...

    def features(self, public: Public, memory: Any) -> Map | None:
        """The public map through which the weights see a row; None: as it is."""
        ...


def vertical(algorithm: Algorithm) -> bool:
    """Its parties hold columns, and its coordinator the labels."""
    return any(isinstance(phase, AtLabels) for phase in algorithm.phases)


def tick(phase: AtParties, t: int, local: Local | Vertical, state: Any, inbox: Mail, door: Door) -> tuple[Any, Mail]:
    """One phase of one block: what it keeps, and what it may send."""
    state, released = phase.run(t, local, state, inbox, door)
    if not isinstance(released, Released):
        raise TypeError("a party phase returns what a door released, never a plain array")
    door.close()
    return state, Mail(local.ids, released.map(limited).value)


def rows(state: S, at: Ints) -> S:
    """The state of the parties at these positions of its block."""
    taken = {item.name: getattr(state, item.name)[..., at, :] for item in fields(state)}  # type: ignore[arg-type]
    return replace(state, **taken)  # type: ignore[type-var]


def pack_state(state: Any, absent: Ints | None = None) -> bytes:
    """A frozen dataclass of arrays as bytes, with who had left by then."""
    left = {} if absent is None or not len(absent) else {"absent": absent.tolist()}
    return arrays.pack({item.name: np.asarray(getattr(state, item.name)) for item in fields(state)}, **left)


def unpack_state(kind: type[S], data: bytes) -> S:
    return kind(**arrays.unpack(data)[0])


def absent_by(data: bytes) -> Ints:
    """Who had left when this state was packed."""
    return np.array(arrays.unpack(data)[1].get("absent", ()), dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Nothing:
    """The memory of a coordinator that remembers nothing."""
