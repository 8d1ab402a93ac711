"""A job: one algorithm on one set of public facts under one budget, checked as a whole before anything runs.

`Job` is what the estimator and the command line build, each in its own way; `run` is the same for both.
"""

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privadmm.data.shards import Shards
from privadmm.drive import Callback, Cluster, Progress, drive
from privadmm.engines.inprocess import InProcess
from privadmm.engines.worker import Worker
from privadmm.errors import ConfigError, DataError
from privadmm.phases import Algorithm, Floats, Local, Public
from privadmm.privacy.accounting import Claim, Plan, by_round, totals, worst
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.ledger import Budget, Ledger, MemoryLedger, Policy
from privadmm.privacy.mechanisms import Noise


@dataclass(frozen=True)
class Job:
    """Construction fails closed: an unusable combination never reaches a party."""

    algorithm: Algorithm
    public: Public
    allowance: float | None = None  # what each party's ledger allows in all; the plan's total if None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        name, graph = self.algorithm.name, self.public.graph
        if graph.n != self.public.parties:
            raise ConfigError(f"the graph has {graph.n} parties and the data {self.public.parties}")
        if self.algorithm.topology == "star":
            graph.need_star(name)
        else:
            graph.need_edges(name)
        if not self.algorithm.private and isinstance(self.public.privacy, Target):
            raise ConfigError(
                f"{name} is not private and cannot keep an epsilon: choose dp_admm, or give up the privacy target"
            )
        target, known = self.public.privacy, self.algorithm.adjacencies
        if isinstance(target, Target) and target.adjacency not in known:
            raise ConfigError(
                f"{name} has no proof for adjacency = {target.adjacency!r}; it has one for {' and '.join(known)}"
            )
        self.algorithm.check(self.public)

    @cached_property
    def plan(self) -> Plan:
        return self.algorithm.plan(self.public)

    @property
    def delta(self) -> float | None:
        return self.public.privacy.delta if isinstance(self.public.privacy, Target) else None

    @cached_property
    def epsilon(self) -> float | None:
        """The certified total of the worst party, known before the run; None when the run is not private."""
        if self.delta is None:
            return None
        total = worst(totals(self.plan, self.public.parties), self.delta)
        return total if math.isfinite(total) else None

    @property
    def private(self) -> bool:
        return self.epsilon is not None

    @property
    def published(self) -> Claim | None:
        """What the paper claims for this plan's noise."""
        return None if self.delta is None else self.algorithm.published(self.public, self.delta)

    @cached_property
    def epsilon_by_round(self) -> list[float]:
        return (
            by_round(self.plan, self.public.parties, self.delta)
            if self.delta is not None and self.private
            else []
        )

    @property
    def budget(self) -> Budget | None:
        if isinstance(self.public.privacy, NoPrivacy) or self.epsilon is None:
            return None
        return Budget(self.epsilon if self.allowance is None else self.allowance, self.public.privacy.delta)

    @property
    def policy(self) -> Policy:
        """What a ledger that is made for this job fixes; one that exists has its own, which is the authority."""
        return Policy(self.budget)

    def reserve(self, ledger: Ledger) -> None:
        """Set the plan's cost aside in the ledger: refused at once, or never half way."""
        spends = totals(self.plan, self.public.parties)
        ledger.policy.admit(self.algorithm.name)
        ledger.reserve(self.id, {party: spends[party] for party in ledger.ids})


def cluster(
    job: Job,
    shards: Shards,
    noise: Noise,
    ledger: Ledger | None = None,
    parts: Sequence[Sequence[int]] | None = None,
) -> InProcess:
    """The job's parties in this process: one block with this ledger, or `parts`, each with a ledger in memory."""
    if job.public.loss.classification and not np.all(np.abs(shards.y) == 1):
        raise DataError("a loss of classes needs labels -1 and +1; the sensitivity rests on it")
    if parts is not None:
        if sorted(party for part in parts for party in part) != list(range(len(shards.ids))):
            raise ConfigError("parts must hold every party once")
        blocks = [shards.take(np.asarray(part)) for part in parts]
        ledgers: list[Ledger] = [MemoryLedger(block.ids.tolist(), job.policy) for block in blocks]
    else:
        blocks, ledgers = [shards], [ledger or MemoryLedger(shards.ids.tolist(), job.policy)]
    for one in ledgers:
        job.reserve(one)
    return InProcess(
        [
            Worker(job.algorithm, Local(job.public, block), job.plan, noise, one, job.id)
            for block, one in zip(blocks, ledgers, strict=True)
        ]
    )


def train(
    job: Job, parties: Cluster, callbacks: Sequence[Callback] = (), progress: Progress | None = None
) -> Progress:
    return drive(parties, job.algorithm, job.public, callbacks, progress)


def weights(job: Job, progress: Progress) -> Floats:
    """The model handed out after these rounds, (..., d)."""
    return job.algorithm.model(job.public, progress.memory, progress.mail)
