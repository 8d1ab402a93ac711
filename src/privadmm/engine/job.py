"""A job: one algorithm on one set of public facts under one budget, checked as a whole before anything runs.

`Job` is what the estimator and the command line build, each in its own way; `run` is the same for both.
"""

import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.columns import Columns, People
from privadmm.data.moments_map import Map
from privadmm.data.shards import Shards
from privadmm.engine import guarantees, phases
from privadmm.engine.inprocess import InProcess
from privadmm.engine.loop import Callback, Cluster, Progress, drive
from privadmm.engine.party import Local, Vertical
from privadmm.engine.phases import Algorithm, vertical
from privadmm.engine.public import Public
from privadmm.engine.worker import Worker
from privadmm.errors import ConfigError, DataError
from privadmm.privacy.accounting import Claim, Plan, by_round, together, totals, worst
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import NotPrivate, RandomizedResponse, Spent, dump
from privadmm.privacy.history import STARTED_UNPROTECTED, Past
from privadmm.privacy.labels import check_kept, reported_by_holder
from privadmm.privacy.ledger import Budget, Ledger, MemoryLedger, Policy
from privadmm.privacy.mechanisms import Noise

BARE_LABELS = NotPrivate("what the coordinator sends is derived from labels")
LABELS_NOT_PROTECTED = (
    "labels are not protected: what the coordinator sends is derived from them. "
    "Randomise them with label_epsilon, or keep to coordinators that may tell"
)


@dataclass(frozen=True)
class Job:
    """Construction fails closed: an unusable combination never reaches a party."""

    algorithm: Algorithm
    public: Public
    allowance: float | None = None  # what each party's ledger allows in all; the plan's total if None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    # Of a simulation: from which round on, counted from 0, a party gives no answer.
    leave: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        name, graph = self.algorithm.name, self.public.graph
        if graph.n != self.public.parties:
            raise ConfigError(f"the graph has {graph.n} parties and the data {self.public.parties}")
        if self.algorithm.topology == "star":
            graph.need_star(name)
        if self.algorithm.topology == "graph":
            graph.need_edges(name)
        if not self.algorithm.adjacencies and isinstance(self.public.privacy, Target):
            raise ConfigError(
                f"{name} is not private and cannot keep an epsilon: choose dp_admm, or give up the privacy target"
            )
        check_holding(self.algorithm, bool(self.public.columns))
        target, known = self.public.privacy, self.algorithm.adjacencies
        if isinstance(target, Target) and target.adjacency not in known:
            raise ConfigError(
                f"{name} has no proof for adjacency = {target.adjacency!r}; it has one for "
                f"{' and '.join(known)}: change [privacy] adjacency, or choose another algorithm"
            )
        if isinstance(target, Target) and target.copies > 1 and self.public.label_epsilon is not None:
            raise ConfigError(
                "labels of more than two classes cannot be randomised one class against the rest: each would be "
                "reported once for every class. Use two classes, or a loss that is not debiased"
            )
        self.algorithm.check(self.public)
        self._check_leave()
        if self.public.start is not None:
            _ = self.spends  # refused here if what the start cost and this plan do not add up

    def _check_leave(self) -> None:
        for party, first in self.leave.items():
            if not 0 <= party < self.public.parties:
                raise ConfigError(f"party {party} cannot leave: there are parties 0 to {self.public.parties - 1}")
            if not 0 <= first < self.public.rounds:
                raise ConfigError(
                    f"party {party} cannot leave in round {first + 1}: there are rounds 1 to {self.public.rounds}"
                )
        if len(self.leave) == self.public.parties:
            raise ConfigError("not every party can leave: one at least has to stay to the end")
        if self.leave and vertical(self.algorithm):
            raise ConfigError(f"{self.algorithm.name} needs every party's columns to the end, so nobody can leave")

    @cached_property
    def plan(self) -> Plan:
        return self.algorithm.plan(self.public)

    @property
    def delta(self) -> float | None:
        return self.public.privacy.delta if isinstance(self.public.privacy, Target) else None

    @cached_property
    def spends(self) -> list[Spent]:
        """By party, what it will have released: here, and in the trainings that the start descends from."""
        return self.public.in_all(totals(self.plan, self.public.parties))

    @cached_property
    def past(self) -> tuple[Past, ...]:
        """What to give along where another job starts from the weights of this one: Start(weights, job.past)."""
        return self.public.past(totals(self.plan, self.public.parties))

    @cached_property
    def epsilon(self) -> float | None:
        """The certified total of the worst party, the start's cost included; None when the result is not private."""
        return self._worst(self.spends)

    def _worst(self, spent: list[Spent]) -> float | None:
        total = math.inf if self.delta is None else worst(spent, self.delta)
        return total if math.isfinite(total) else None

    @property
    def private(self) -> bool:
        return self.epsilon is not None

    @property
    def published(self) -> Claim | None:
        """What the paper claims for this plan's noise; nothing if a start had a cost, which no paper counts."""
        start = self.public.start
        if self.delta is None or (start is not None and start.past):
            return None
        return self.algorithm.published(self.public, self.delta)

    @cached_property
    def adversaries(self) -> dict[str, Any]:
        """What a party's own server learns of a record, and what everybody else does."""
        return guarantees.views(self.algorithm, self.public, self.plan)

    @cached_property
    def of_people(self) -> dict[str, Any]:
        """Of vertical parties: what a person loses at one of them, at all of them together, and of the label."""
        if not self.public.columns:
            return {}
        one = self.private and self.public.adjacency == "person" and self.delta is not None
        total = together(totals(self.plan, self.public.parties), self.delta or 0.0) if one else None
        labels, rounds = self.public.label_epsilon, self.public.rounds
        event = BARE_LABELS if labels is None else RandomizedResponse(labels)
        count = rounds if labels is None else 1  # drawn once, whatever is done with it
        charged = {**json.loads(dump(event)), "count": count}
        return {
            "per_party": self.epsilon,
            "per_person": total,
            "label_holder": {"events": [charged], "epsilon": labels},
        }

    @property
    def caveats(self) -> list[str]:
        """What an epsilon of this job does not cover, or why there is none."""
        bare = self.private and bool(self.public.columns) and self.public.label_epsilon is None
        start = self.public.start
        unprotected = start is not None and not start.private
        return [
            *([LABELS_NOT_PROTECTED] if bare else []),
            *([STARTED_UNPROTECTED] if unprotected else []),
        ]

    @cached_property
    def epsilon_by_round(self) -> list[float]:
        """The worst party's epsilon after each round, the start's cost included; empty when nothing is private."""
        if self.delta is None or not self.private:
            return []
        return by_round(self.plan, self.public.parties, self.delta, self.public.in_all)

    @property
    def budget(self) -> Budget | None:
        """Of a ledger for this job alone: what the start cost is not part of it."""
        own = self._worst(totals(self.plan, self.public.parties))
        if self.delta is None or own is None:
            return None
        return Budget(own if self.allowance is None else self.allowance, self.delta)

    @property
    def policy(self) -> Policy:
        """What a ledger that is made for this job fixes; one that exists has its own, which is the authority."""
        target, labels = self.public.privacy, self.public.label_epsilon
        adjacency = target.adjacency if isinstance(target, Target) else "replace-one"
        return Policy(self.budget, adjacency=adjacency, label_epsilon=labels)

    def reserve(self, ledger: Ledger) -> None:
        """Set the plan's cost aside in the ledger: refused at once, or never half way."""
        ledger.policy.admit(self.algorithm.name)
        ledger.policy.agree(self.public.adjacency, self.public.label_epsilon)
        if ledger.policy.limits is not None:
            ledger.policy.limits.admit(self.algorithm, self.public)
        spends = totals(self.plan, self.public.parties)
        ledger.reserve(self.id, {party: spends[party] for party in ledger.ids})

    def worker(self, block: Shards | Columns, noise: Noise, ledger: Ledger) -> Worker:
        """Answers ticks for this block, whose records are here already; the labels and draws it needs are made now."""
        local = beside(self.public, block)
        parts = (self.algorithm, self.public, block.ids, lambda: local, self.plan, noise, ledger)
        worker = Worker(*parts, self.id, self.leave)
        _ = worker.local
        return worker


def check_holding(algorithm: Algorithm, columns: bool) -> None:
    """Refuse a method for parties that hold columns where they hold records, and the other way round."""
    if vertical(algorithm) != columns:
        holds, split = ("records", '"even", say') if columns else ("columns", '"features"')
        raise ConfigError(
            f"{algorithm.name} is for parties that hold {holds}: set [parties] split = {split}, or choose another"
        )


def cluster(
    job: Job,
    shards: Shards | People,
    noise: Noise,
    ledger: Ledger | None = None,
    parts: Sequence[Sequence[int]] | None = None,
) -> InProcess:
    """The job's parties in this process: one block with this ledger, or `parts`, each with a ledger in memory."""
    check_labels(job, shards, ledger)
    held = shards.columns if isinstance(shards, People) else shards
    blocks: list[Shards | Columns] = [held]
    if parts is not None:
        if sorted(party for part in parts for party in part) != list(range(len(shards.ids))):
            raise ConfigError("parts must hold every party once")
        blocks = [held.take(np.asarray(part)) for part in parts]
        ledgers: list[Ledger] = [MemoryLedger(block.ids.tolist(), job.policy) for block in blocks]
    else:
        ledgers = [ledger or MemoryLedger(shards.ids.tolist(), job.policy)]
    for one in ledgers:
        job.reserve(one)
    workers = [job.worker(block, noise, one) for block, one in zip(blocks, ledgers, strict=True)]
    labels, randomised = shards.y if isinstance(shards, People) else None, job.public.label_epsilon
    if labels is not None and randomised is not None:
        labels = reported_by_holder(labels, shards.source, ledgers[0], noise, randomised)
    return InProcess(workers, labels)


def check_labels(job: Job, shards: Shards | People, ledger: Ledger | None) -> None:
    """Refuse labels that the job's loss is not for, or of which the ledger keeps reports that are not theirs."""
    if job.public.loss.classification and not np.all(np.abs(shards.y) == 1):
        raise DataError("a loss of classes needs labels -1 and +1; the sensitivity rests on it")
    if ledger is not None and job.public.label_epsilon is not None:
        check_kept(shards, ledger, job.public.label_epsilon)


def beside(public: Public, block: Shards | Columns) -> Local | Vertical:
    """What the party phases of this block may read."""
    if isinstance(block, Columns):
        if block.people != public.dim or block.widths != tuple(public.columns[party] for party in block.ids):
            raise DataError("these columns are not those that the job was made for: other people, or other widths")
        return Vertical(public, block)
    if public.columns:
        raise DataError("the job is for parties that hold columns, and these hold records")
    return Local(public, block)


def train(job: Job, parties: Cluster, callbacks: Sequence[Callback] = (), progress: Progress | None = None) -> Progress:
    return drive(parties, job.algorithm, job.public, callbacks, progress)


def features(job: Job, progress: Progress) -> Map | None:
    """The public map through which the model sees a row; None: as it is."""
    return phases.features(progress.memory)


def weights(job: Job, progress: Progress) -> Floats:
    """The model handed out after these rounds, (..., d)."""
    return job.algorithm.model(job.public, progress.memory, progress.mail)
