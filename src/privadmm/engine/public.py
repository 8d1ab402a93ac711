"""The public facts of a job: sizes, dimension, graph and objective, and what follows from them alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from privadmm.data.arrays import Floats, Ints
from privadmm.errors import ConfigError, DataError
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Debiased, Loss
from privadmm.optim.regularizers import Regularizer
from privadmm.params import check_positive, check_whole
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import DiscreteGaussian, Event, Spent
from privadmm.privacy.history import AFRESH, Past, Start, composed

S = TypeVar("S")


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
    columns: tuple[int, ...] = ()  # how many columns each vertical party holds; empty if parties hold records
    # What `once` derived from these facts, for use in every round; another Public starts without it.
    derived: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    declared: ClassVar[bool] = True  # all of these facts are known

    def __post_init__(self) -> None:
        check_positive(C=self.C)
        check_whole(rounds=self.rounds, dim=self.dim)
        if self.sizes.ndim != 1 or not len(self.sizes):
            raise ConfigError("there must be at least one party")
        if (self.sizes < 1).any():
            raise DataError(f"party {int(np.argmin(self.sizes))} has no records; leave it out or give it some")
        # A sum of sizes that wraps around would turn the sign of every weight.
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
        """C omega_i of these parties, as a column."""
        return self.once("scale", lambda: self.C * self.omega(self.ids))[ids]

    def omega(self, ids: Ints) -> Floats:
        """omega_i of these parties, as if there were no other parties; a column."""
        sizes = self.sizes[ids, None]
        return sizes * (len(ids) / sizes.sum()) if self.weighting == "records" else np.ones((len(ids), 1))

    def weight_among(self, ids: Ints) -> float:
        """The weight C of the objective that these parties minimise once the others have left.

        Shares keep the weights omega_i of the plan, since sensitivities rest on them: C is multiplied by their mean.
        """
        return float(self.scale(ids).mean())

    def moves(self, ids: Ints) -> Floats:
        """How far a party's gradient can move between neighbours: 2 C omega_i L/m_i when one record is replaced."""
        return self.sensitivity * (self.scale(ids) / self.sizes[ids, None])

    def summation(self, ids: Ints) -> Floats:
        """A bound on the rounding error of a gradient's sum over m_i records, each at most C omega_i L/m_i long.

        A record's own term is a function of that record and of x, however it rounds; only the sum joins records.
        """
        return 2.0**-50 * self.sizes[ids, None] * self.scale(ids) * self.loss.lipschitz

    def moved(self, ids: Ints, error: Floats) -> Floats:
        """How far a gradient that is off by up to `error` can move between neighbours, as a column.

        When one label is replaced, the exact gradient moves `label_gain` times less than between the job's neighbours.
        The error is counted `label_gain` times, so that the computed gradient, too, moves that much less
        (engine/guarantees.py).
        """
        return self.moves(ids) + 2 * self.label_gain * error

    def zeros(self, rows: int, width: int | None = None) -> Floats:
        lead = () if self.replicas is None else (self.replicas,)
        return np.zeros((*lead, rows, self.dim if width is None else width))

    def origin(self, rows: int) -> Floats:
        """The first iterate of this many parties: `start`, or 0."""
        return self.zeros(rows) if self.start is None else self.zeros(rows) + self.start.weights

    def once(self, key: Any, make: Callable[[], S]) -> S:
        """Call make() once for these public facts, and remember its result under this key."""
        if key not in self.derived:
            self.derived[key] = make()
        value: S = self.derived[key]
        return value

    def past(self, spent: Sequence[Spent]) -> tuple[Past, ...]:
        """The trainings that `start` descends from, and this one as the last; `spent` is what it releases, by party."""
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
        """What each party releases in this job and in the trainings that `start` descends from."""
        return list(spent if self.start is None else composed(self.past(spent)))

    @property
    def label_only(self) -> bool:
        """Whether neighbours differ in one label, and not in a whole record."""
        return self.privacy.adjacency == "label"

    @property
    def label_epsilon(self) -> float | None:
        """The epsilon with which labels are randomised beforehand; None where the loss is not debiased."""
        return self.loss.epsilon if isinstance(self.loss, Debiased) else None

    @property
    def sensitivity(self) -> float:
        """How far a sum of per-record gradients moves between neighbours, with rows in the unit ball."""
        return self.loss.flip if self.label_only else 2 * self.loss.lipschitz

    @property
    def label_gain(self) -> float:
        """How many times further the exact gradient moves between neighbours than when one label is replaced."""
        return max(1.0, self.sensitivity / self.loss.flip)

    @property
    def curvature(self) -> float:
        """The most that one record's curvature differs between neighbours: c, or less if only its label differs."""
        return self.loss.flip_smoothness if self.label_only else self.loss.smoothness

    def condition(self, k: Floats | float) -> float:
        """The condition of the worst party's argmin; k is the curvature that does not come from records."""
        return 1 + float(np.max(self.scale(self.ids)[:, 0] * self.loss.smoothness / np.ravel(k)))

    def everyone(self, event: Event) -> tuple[Event, ...]:
        return (event,) * self.parties
