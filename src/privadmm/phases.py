"""What an algorithm is made of: public facts, a party's own view, mail, and phases.

Arrays have a party axis, x is (P, d); sweeps put a replica axis in front of it, (R, P, d), and the same code
runs. Quantities of one number per party are columns, (P, 1), so that they broadcast.

Every variable is one of three. *Cache*: a function of the data and of public anchors; never leaves. *State*: a
function of the transcript only. *Message*: released. A phase of a block is one pure function,

    tick(algorithm, phase, local, state, inbox, door) -> (state, outbox)

which replay, partition and kill tests call directly, the worker wraps in a ledger transaction, and engines
only carry the arguments of.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Floats, Ints
from privadmm.data.moments_map import Map
from privadmm.errors import ConfigError, DataError
from privadmm.mail import COORDINATOR as COORDINATOR
from privadmm.mail import Mail as Mail
from privadmm.mail import limited
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Debiased, Loss
from privadmm.optim.regularizers import Regularizer
from privadmm.optim.solvers import CELLS, Cache, argmin
from privadmm.params import check_positive, check_whole
from privadmm.privacy.accounting import Claim, Plan
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import DiscreteGaussian, Event, Spent
from privadmm.privacy.history import AFRESH, Past, Start, composed
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import Door, Released

if TYPE_CHECKING:
    from privadmm.data.shards import Shards
    from privadmm.vertical import Vertical

# Who speaks to a party: the coordinator; its neighbours; or whoever holds all released messages, to each its own row.
Topology = Literal["star", "graph", "relay"]
S = TypeVar("S")
PATIENCE = 1e4  # the condition up to which a simulation, too, goes on with a solver that cannot fail


@dataclass(frozen=True)
class Public:
    """What everybody may know: sizes, dimension, graph, objective. No field is a function of a record.

    The objective is  C mean(loss) + R(w)  over all records. Party i minimises its share, scaled so that the
    shares average to the whole:  C omega_i/m_i sum_n loss(a_n.w) + R(w),  omega_i = N m_i/n; with
    weighting = "parties", omega_i = 1 as in the papers, and every party counts alike whatever its size.
    """

    sizes: Ints
    dim: int
    rounds: int
    graph: Graph
    loss: Loss
    regularizer: Regularizer
    privacy: Target | NoPrivacy
    C: float = 1.0
    weighting: Literal["records", "parties"] = "records"
    replicas: int | None = None
    start: Start | None = None  # weights that everybody starts from, with what they cost; 0 if None
    columns: tuple[int, ...] = ()  # of vertical parties: how many each holds
    # What was derived from these facts once and is asked for in every round; another Public starts anew.
    derived: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        check_positive(C=self.C)
        check_whole(rounds=self.rounds, dim=self.dim)
        if self.sizes.ndim != 1 or not len(self.sizes):
            raise ConfigError("there must be at least one party")
        if (self.sizes < 1).any():
            raise DataError(
                f"party {int(np.argmin(self.sizes))} has no records; leave it out or give it some"
            )
        # A sum that wraps would turn the sign of every weight.
        if self.sizes.astype(np.float64).sum() > 2**53:
            raise ConfigError("parties hold more than 2^53 records together; correct [parties] sizes")
        if self.columns and (len(self.columns) != self.parties or (self.sizes != self.dim).any()):
            raise ConfigError("vertical parties each have a number of columns, and the same people")
        if self.start is not None:
            self._check_start(self.start)

    def _check_start(self, start: object) -> None:
        if not isinstance(start, Start):
            raise ConfigError(
                "start: weights alone do not say what they cost. Give Start.public(weights) if no private record had "
                "a say in them, and Start(weights, job.past) if a job released them"
            )
        if self.columns:
            raise ConfigError("parties that hold columns start from 0: leave out start")
        if start.weights.shape != (self.dim,):
            raise ConfigError(
                f"start has {len(start.weights)} weights, and the job {self.dim} features: train on the features of "
                f"the training before, {AFRESH}"
            )

    @property
    def parties(self) -> int:
        return len(self.sizes)

    @property
    def ids(self) -> Ints:
        return np.arange(self.parties, dtype=np.int64)

    def scale(self, ids: Ints) -> Floats:
        """C omega_i as a column."""
        return self.once("scale", lambda: self.C * self.omega(self.ids))[ids]

    def omega(self, ids: Ints) -> Floats:
        """omega_i if these parties were all, as a column."""
        sizes = self.sizes[ids, None]
        return sizes * (len(ids) / sizes.sum()) if self.weighting == "records" else np.ones((len(ids), 1))

    def weight_among(self, ids: Ints) -> float:
        """The C of the objective that these parties minimise once the others have left.

        Shares keep the weights omega_i of the plan, since sensitivities rest on them: C is multiplied by their mean.
        """
        return float(self.scale(ids).mean())

    def zeros(self, rows: int, width: int | None = None) -> Floats:
        lead = () if self.replicas is None else (self.replicas,)
        return np.zeros((*lead, rows, self.dim if width is None else width))

    def origin(self, rows: int) -> Floats:
        """Where so many parties start: at `start`, or at 0."""
        return self.zeros(rows) if self.start is None else self.zeros(rows) + self.start.weights

    def once(self, key: Any, make: Callable[[], S]) -> S:
        """make(), remembered under this key."""
        if key not in self.derived:
            self.derived[key] = make()
        found: S = self.derived[key]
        return found

    @property
    def adjacency(self) -> str | None:
        """Which two data sets are neighbours; None where nothing is private."""
        return self.privacy.adjacency if isinstance(self.privacy, Target) else None

    def past(self, spent: Sequence[Spent]) -> tuple[Past, ...]:
        """The trainings behind `start`, and then this one, by party what it releases."""
        before = () if self.start is None else self.start.past
        numbers, named = tuple(map(str, self.ids.tolist())), before[-1].parties if before else ()
        names = named if len(named) == self.parties else numbers
        counted: tuple[float | None, str | None, str | None] = (None, None, None)
        if isinstance(target := self.privacy, Target):
            mode = "deployment" if target.kind is DiscreteGaussian else "simulation"
            counted = (target.delta, target.adjacency, mode)
        dealt = bool(before) and before[-1].dealt
        return (*before, Past(names, dealt, tuple(spent), *counted, self.label_epsilon))

    def in_all(self, spent: Sequence[Spent]) -> list[Spent]:
        """By party, what it releases here and what `start` cost."""
        return list(composed(self.past(spent)))

    @property
    def label_only(self) -> bool:
        """Neighbours differ in one label, and not in a whole record."""
        return self.adjacency == "label"

    @property
    def label_epsilon(self) -> float | None:
        """Of labels that are randomised before anything is learnt from them: those that a debiased loss is for."""
        return self.loss.epsilon if isinstance(self.loss, Debiased) else None

    @property
    def sensitivity(self) -> float:
        """How far a sum of per-record gradients moves between neighbours, rows being in the unit ball."""
        return self.loss.flip if self.label_only else 2 * self.loss.lipschitz

    @property
    def label_gain(self) -> float:
        """How many times less the exact gradient moves when one label is replaced than between the job's neighbours."""
        return max(1.0, self.sensitivity / self.loss.flip)

    @property
    def curvature(self) -> float:
        """The most that one record's curvature differs between neighbours: c, or 0 if only its label does."""
        return self.loss.flip_smoothness if self.label_only else self.loss.smoothness

    def condition(self, k: Floats | float) -> float:
        """The condition of the worst party's argmin, k being the curvature of each that is not data's."""
        return 1 + float(np.max(self.scale(self.ids)[:, 0] * self.loss.smoothness / np.ravel(k)))

    def need_argmin(self, who: str) -> None:
        """Refuse a loss whose argmin no solver here can certify; `who` opens the message."""
        if not math.isfinite(self.loss.smoothness):
            raise ConfigError(
                f"{who} solves an argmin and needs a smooth loss: use huber_hinge instead of hinge"
            )
        if not self.loss.convex:
            raise ConfigError(
                f"{who} solves an argmin, and this loss is not convex once its labels are randomised: use the "
                "logistic loss, or a first-order method such as dp_admm"
            )

    def need_bounded(self, who: str) -> None:
        """Refuse a loss whose derivative has no declared bound, where noise must cover it, or its sum's rounding."""
        bounded = math.isfinite(self.sensitivity) and math.isfinite(self.loss.lipschitz)
        if not bounded and not isinstance(self.privacy, NoPrivacy):
            raise ConfigError(
                f"{who} needs a loss with a bounded derivative; for the squared loss declare [loss] radius"
            )

    def need_smooth_regularizer(self, who: str) -> None:
        if not math.isfinite(self.regularizer.smoothness):
            raise ConfigError(
                f"{who} needs a smooth regulariser: use l2, or admm_star, pvp or dp_admm for l1"
            )

    def need_simulation(self, what: str) -> None:
        """Refuse a deployment of noise that only simulations may draw."""
        if isinstance(self.privacy, Target) and self.privacy.kind is DiscreteGaussian:
            raise ConfigError(
                f'a deployment refuses {what}; set calibration = "certified", Gaussian noise, and epsilon'
            )

    def everyone(self, event: Event) -> tuple[Event, ...]:
        return (event,) * self.parties


@dataclass(frozen=True)
class Local:
    """What a party phase may read besides its state and inbox: the block's records and the public facts.

    `kept` is what the algorithm drew once for this job (its `keepsakes`); like the records, it never leaves.
    """

    public: Public
    shards: "Shards"
    cache: Cache = field(default_factory=Cache, compare=False)
    kept: Mapping[str, Floats] = field(default_factory=dict)
    certain: bool = False  # its parameters were admitted: no solve may fail, however long it takes

    @property
    def ids(self) -> Ints:
        return self.shards.ids

    @cached_property
    def weight(self) -> Floats:
        """C omega_i / m_i, the weight of one record, as a column."""
        return self.public.scale(self.ids) / self.shards.sizes[:, None]

    @cached_property
    def moves(self) -> Floats:
        """How far `gradient` can move between neighbours: 2 C omega_i L/m_i when one record is replaced."""
        return self.public.sensitivity * self.weight

    @cached_property
    def summation(self) -> Floats:
        """A bound on the rounding error of `gradient`'s sum over m_i records, each at most C omega_i L/m_i long.

        A record's own term is a function of that record and of x, however it rounds; only the sum joins records.
        """
        return (
            2.0**-50 * self.shards.sizes[:, None] * self.public.scale(self.ids) * self.public.loss.lipschitz
        )

    def zeros(self) -> Floats:
        return self.public.zeros(len(self.ids))

    def gradient(self, x: Floats) -> Floats:
        """Of the block's weighted losses, C omega_i/m_i sum_n loss'(a_n.x_i) a_n, without the regulariser."""
        return self.weight * self.shards.slope(x, self.public.loss.deriv)

    def argmin(
        self,
        linear: Floats,
        quadratic: Floats | float,
        start: Floats,
        anchor: Floats,
        tolerance: float,
        planned: "Exactness | None" = None,
    ) -> Floats:
        """Of C omega_i/m_i sum_n loss(a_n.x) + <linear_i, x> + quadratic_i/2 |x|^2, as exactly as `exactness` says.

        It is `planned` where linear_i has noise in it, which must not tell how exactly.
        """
        shards, loss, P = self.shards, self.public.loss, len(self.ids)
        scale, k = self.public.scale(self.ids)[:, 0], np.broadcast_to(np.ravel(quadratic), P)
        tau, reach = np.full(P, tolerance), None
        if isinstance(self.public.privacy, Target):
            planned = planned or self.exactness(linear, k[:, None], tolerance)
            tau = planned.tau[:, 0]
            if self.certain or planned.condition <= PATIENCE:
                reach = planned.reach[:, 0]
        flat = [
            np.broadcast_to(a, start.shape).reshape(-1, *start.shape[-2:]) for a in (linear, start, anchor)
        ]
        # Replicas of a small block are solved together, as if they were further parties: the bits are the same.
        together, solved = max(1, CELLS // max(1, shards.cells)), []
        for first in range(0, len(flat[0]), together):
            b, x, a = (part[first : first + together].reshape(-1, shards.dim) for part in flat)
            n, cache = len(b) // P, self.cache.branch(first) if self.roomy else None
            far = None if reach is None else np.tile(reach, n)
            many = (np.tile(scale, n), b, np.tile(k, n), x, a, np.tile(tau, n), cache, far)
            solved.append(argmin(shards.tile(n), loss, *many))
        return np.concatenate(solved).reshape(start.shape)

    @property
    def roomy(self) -> bool:
        """Whether there is memory for what solves keep: matrices of each party, perhaps as large as its records."""
        store, order = self.shards.store, np.minimum(self.shards.sizes, self.shards.dim)
        return store.limit is None or store.held + 16 * int((order * order).sum()) <= store.limit

    def take(self, at: Ints) -> "Local":
        """The block of these positions alone; its cache starts anew."""
        kept = {name: drawn[..., at, :] for name, drawn in self.kept.items()}
        return Local(self.public, self.shards.take(at), kept=kept, certain=self.certain)

    def through(self, maps: Sequence[Map]) -> "Local":
        """The same parties with their records seen through public maps, one each; the last ones are remembered."""
        key = b"".join(one.key for one in maps)
        if self.cache.seen.get("maps") != key:
            dim = self.public.dim + 1
            shards = self.shards.mapped(maps, dim)
            through = replace(
                self, public=replace(self.public, dim=dim, replicas=None), shards=shards, cache=Cache()
            )
            self.cache.seen.update(maps=key, local=through)
        found: Local = self.cache.seen["local"]
        return found

    def exactness(
        self, linear: Floats, k: Floats, tolerance: float, noise: Floats | float = 0.0
    ) -> "Exactness":
        """How exactly `argmin` solves, from public facts, for linear terms up to linear + noise.

        Rounding of a gradient: its sum over records, its scores (by |x| times the curvature), its public terms. From 0
        on no iterate is longer than twice the bound on the gradient there over k (docs/privacy.md#worst-case).
        """
        scale, loss = self.public.scale(self.ids), self.public.loss
        reach = scale * (loss.lipschitz if math.isfinite(loss.lipschitz) else loss.smoothness)
        reach = reach + largest(linear) + np.reshape(noise, (-1, 1)) + tolerance
        bend = scale * loss.smoothness / k
        error = self.summation + 2.0**-49 * (bend * self.public.dim + 4) * reach
        tau = np.maximum(tolerance, 4 * error)
        return Exactness(tau, tau + error, reach, 1 + float(np.max(bend)))

    def moved(self, error: Floats) -> Floats:
        """How far a gradient that is off by up to `error` can move between neighbours, as a column.

        Between data sets that differ in one label the exact gradient moves `label_gain` times less than between the
        job's neighbours. With the error counted so many times, so does the computed one (privacy/adversaries.py).
        """
        moves: Floats = self.moves + 2 * self.public.label_gain * error
        return moves

    def perturbed(
        self,
        release: Door,
        linear: Floats,
        k: Floats,
        start: Floats,
        anchor: Floats,
        tolerance: float,
    ) -> Released:
        """The argmin of the losses + <linear + C omega_i/m_i b, x> + k/2 |x|^2, noise b: docs/privacy.md#objective."""
        weight = self.weight

        def planned(reach: Floats) -> Exactness:
            return self.exactness(linear, k, tolerance, weight[:, 0] * reach)

        return release.objective(
            lambda b, reach: self.argmin(linear + weight * b, k, start, anchor, tolerance, planned(reach)),
            start,
            sensitivity=self.public.sensitivity,
            w=weight * self.public.curvature / k,
            weight=weight,
            k=k,
            error=lambda reach: planned(reach).left,
        )


@dataclass(frozen=True)
class Exactness:
    """How exactly the parties of a block solve their local problems: one number a party, as columns (P, 1)."""

    tau: Floats  # the gradient norm, as computed, at which a solve ends
    left: Floats  # a bound on the true gradient norm there
    reach: Floats  # a bound on the gradient norm at 0
    condition: float  # of the worst: all curvature over the curvature that is not data's


def largest(*terms: Floats) -> Floats:
    """The summed l2 norms of these public terms, a column (P, 1), the worst over replicas."""
    size: Floats = sum((np.linalg.norm(term, axis=-1, keepdims=True) for term in terms), np.zeros((1, 1)))
    return np.asarray(size.reshape(-1, *size.shape[-2:]).max(axis=0))


def rounding(*terms: Floats) -> Floats:
    """A bound on the l2 rounding error of a sum of these public terms, likewise."""
    return 2.0**-50 * largest(*terms)


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


def tick(
    phase: AtParties, t: int, local: "Local | Vertical", state: Any, inbox: Mail, door: Door
) -> tuple[Any, Mail]:
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
