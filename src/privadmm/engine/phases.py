"""What an algorithm is made of: phases, the `Algorithm` protocol, and `tick`, one phase of one block.

Arrays have a party axis, x is (P, d); sweeps put a replica axis in front of it, (R, P, d), and the same code
runs. Quantities of one number per party are columns, (P, 1), so that they broadcast.

Every variable is one of three. *Cache*: a function of the data and of public anchors; never leaves. *State*: a
function of the transcript only. *Message*: released. A phase of a block is one pure function,

    tick(phase, t, local, state, inbox, door) -> (state, outbox)

Tests of replay, partition and kills call it directly, the worker wraps it in a ledger transaction, and engines
only carry its arguments.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Array, Floats, Ints
from privadmm.data.moments_map import Map
from privadmm.engine.mail import COORDINATOR, Mail, limited
from privadmm.engine.party import Local, Vertical
from privadmm.engine.public import Public
from privadmm.errors import AbsentError
from privadmm.privacy.accounting import Claim, Plan
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import Door, Released, Sealed
from privadmm.privacy.sums import Summands, Words

# Who sends to a party: the coordinator; its neighbours; or a relay, which holds all messages and has a row for each.
Topology = Literal["star", "graph", "relay"]
S = TypeVar("S")


def one_vector(public: Public, t: int) -> Floats:
    """A message of `public.dim` numbers, as most phases send it."""
    return public.zeros(1)


@dataclass(frozen=True)
class AtParties:
    """A phase that every block of parties runs beside its data, and whose message leaves through the door.

    run    the update: round, the block's `Local` or `Vertical`, its state, its inbox, the door
    sends  a party's message in a round, as one row (..., 1, width): 0 where a number must be, NaN where none is
    draws  what a block draws once for a job, for `local.kept`; the ledger keeps it, so a resumed job has the same.
           None: nothing
    sums   bounds on a round's messages from public facts, if only their sum is needed; None: it is not enough
    vital  whether the job cannot go on if the sum of a round is lost
    """

    run: Callable[[int, Any, Any, Mail, Door], tuple[Any, Released | Sealed]]
    sends: Callable[[Public, int], Floats] = one_vector
    draws: Callable[[Any, Noise], Mapping[str, Floats]] | None = None
    sums: Callable[[Public, int], Summands] | None = None
    vital: Callable[[int], bool] = lambda t: False

    def message(self, public: Public, t: int) -> Floats | Words:
        """What one party sends, by type and shape: `sends`, or the words of a secure sum."""
        row = self.sends(public, t)
        return row if public.privacy.sum is None else np.zeros((*row.shape[:-1], row.shape[-1] + 1), dtype=np.uint64)


@dataclass(frozen=True)
class AtCoordinator:
    """A phase on released values alone, run by whoever holds them all. It costs nothing."""

    run: Callable[[int, Public, Any, Mail], tuple[Any, Mail]]


@dataclass(frozen=True)
class AtLabels:
    """A phase at the coordinator that also reads the labels (N,), where it is the one who holds them.

    What it sends is derived from labels, so nothing protects these unless they were randomised before. That is the
    label holder's affair and costs the parties nothing: to them it is an inbox like any other.
    """

    run: Callable[[int, Public, Any, Mail, Floats], tuple[Any, Mail]]


Phase = AtParties | AtCoordinator | AtLabels


class Algorithm(Protocol):
    """One published method. States are frozen dataclasses of arrays; `memory` is the coordinator's state.

    algorithms/method.py has defaults for most of it.
    """

    @property
    def name(self) -> str: ...
    @property
    def topology(self) -> Topology: ...
    @property
    def adjacencies(self) -> tuple[str, ...]:
        """The kinds of neighbours for which it has a proof; empty: it is not private."""
        ...

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
        """The condition of the worst argmin that a party solves: all curvature over that which is not data's; or 1."""
        ...

    def advice(self, public: Public) -> str | None:
        """A sentence that a person should read about these parameters before a run; None if there is nothing to say."""
        ...

    def init(self, public: Public, ids: Ints) -> Any:
        """The state of a block of these parties before the first round."""
        ...

    def start(self, public: Public) -> tuple[Any, Mail]:
        """The coordinator's memory and the inbox before the first phase."""
        ...

    def model(self, public: Public, memory: Any, mail: Mail) -> Floats:
        """The weights handed out, (..., d): a function of the transcript."""
        ...


def vertical(algorithm: Algorithm) -> bool:
    """Whether the algorithm is for parties that hold columns, with the labels at the coordinator."""
    return any(isinstance(phase, AtLabels) for phase in algorithm.phases)


def at_parties(algorithm: Algorithm, number: int) -> AtParties:
    """The phase of this number, which must be one at the parties."""
    phase = algorithm.phases[number]
    assert isinstance(phase, AtParties)
    return phase


def one_time_draws(algorithm: Algorithm, local: Any, noise: Noise) -> dict[str, Floats]:
    """What a block draws once for a job, by name: for `local.kept`."""
    draws = (phase.draws for phase in algorithm.phases if isinstance(phase, AtParties))
    return {name: drawn for draw in draws if draw is not None for name, drawn in draw(local, noise).items()}


def inbox_width(algorithm: Algorithm, public: Public) -> int:
    """How many numbers a message to a party has; a worker refuses messages of any other width."""
    if vertical(algorithm):
        return public.dim
    width: int = public.once((algorithm, "inbox"), lambda: algorithm.start(public)[1].values.shape[-1])
    return width


def message_width(algorithm: Algorithm, public: Public) -> int:
    """How many numbers a party sends in the last round."""
    phase = next(phase for phase in algorithm.phases if isinstance(phase, AtParties))
    return int(phase.message(public, public.rounds - 1).shape[-1])


def heard(algorithm: Algorithm, public: Public, ids: Ints) -> Ints:
    """The senders that these parties hear: the coordinator, or their neighbours; of a relay, a row for each of them."""
    match algorithm.topology:
        case "star":
            return np.array([COORDINATOR], dtype=np.int64)
        case "graph":
            return public.graph.neighbourhood(ids)
        case "relay":
            return np.sort(ids)


def check_departure(algorithm: Algorithm, public: Public, here: Ints) -> None:
    """Raise an AbsentError if these parties cannot go on alone."""
    if vertical(algorithm):
        gone = np.setdiff1d(public.ids, here).tolist()
        raise AbsentError(
            f"party {gone[0]} left, and nobody else has its columns: without them there is no score. Nothing more was "
            "released; resume when it is back, or start a new job with the columns of the others"
        )
    if algorithm.topology == "graph":
        if len(here) == 1:
            raise AbsentError(f"party {here[0]} alone is left, and has nobody to agree with; nothing more was released")
        public.graph.need_reach(here)


def tick(phase: AtParties, t: int, local: Local | Vertical, state: Any, inbox: Mail, door: Door) -> tuple[Any, Mail]:
    """Run one phase of one block. Returns the state that it keeps, and the mail that it may send."""
    state, released = phase.run(t, local, state, inbox, door)
    if not isinstance(released, Released | Sealed):
        raise TypeError("a party phase returns what a door released, never a plain array")
    door.close()
    sent = Sealed.words_of(released) if isinstance(released, Sealed) else released.map(limited).value
    return state, Mail(local.ids, sent)


def rows(state: S, at: Ints) -> S:
    """The state of the parties at these positions of its block."""
    taken = {item.name: getattr(state, item.name)[..., at, :] for item in fields(state)}  # type: ignore[arg-type]
    return replace(state, **taken)  # type: ignore[type-var]


def flattened(state: Any, prefix: str = "") -> dict[str, Array]:
    """The arrays of a frozen dataclass, and of those inside it, by dotted names."""
    flat: dict[str, Array] = {}
    for item in fields(state):
        value, name = getattr(state, item.name), prefix + item.name
        flat |= flattened(value, f"{name}.") if is_dataclass(value) else {name: np.asarray(value)}
    return flat


def restored(like: S, kept: Mapping[str, Array], prefix: str = "") -> S:
    """The state from which `flattened` made these arrays; `like` is any state of the same class."""
    values = {}
    for item in fields(like):  # type: ignore[arg-type]
        value, name = getattr(like, item.name), prefix + item.name
        values[item.name] = restored(value, kept, f"{name}.") if is_dataclass(value) else kept[name]
    return type(like)(**values)


def pack_state(state: Any, absent: Ints | None = None) -> bytes:
    """A block's state as bytes, with the parties that had left by then."""
    left = {} if absent is None or not len(absent) else {"absent": absent.tolist()}
    return arrays.pack(flattened(state), **left)


def unpack_state(like: S, data: bytes) -> tuple[S, Ints]:
    """Read what `pack_state` wrote: the state, and the parties that had left."""
    kept, facts = arrays.unpack(data)
    return restored(like, kept), np.array(facts.get("absent", ()), dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class Nothing:
    """The memory of a coordinator that remembers nothing."""


@dataclass(frozen=True)
class Mapped:
    """The memory of a coordinator that holds the public map of the features, around the method's own memory."""

    map: Floats  # (..., 2 d), M and A side by side
    constant: Floats  # (1,), the feature that the map adds
    inner: Any


@dataclass(frozen=True)
class Wrapped(ABC):
    """The memory of a coordinator that does more than the method, around the method's own memory."""

    inner: Any

    @property
    @abstractmethod
    def front(self) -> int:
        """How many numbers stand in front of the method's own message."""


def features(memory: Any) -> Map | None:
    """The public map through which the weights see rows; None without a map, or if replicas have a map each."""
    if isinstance(memory, Wrapped):
        return features(memory.inner)
    if not isinstance(memory, Mapped) or memory.map.ndim > 1:
        return None
    centre, scale = np.split(memory.map, 2)
    return Map(centre, scale, memory.constant.item())
