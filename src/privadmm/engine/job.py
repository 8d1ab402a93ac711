"""A job: one algorithm on one set of public facts under one budget, checked as a whole before anything runs.

Estimators build jobs from their parameters, and config/build.py from a config file.
"""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from privadmm.data import arrays
from privadmm.data.arrays import Floats
from privadmm.engine import guarantees
from privadmm.engine.loop import Callback, Cluster, Progress, drive
from privadmm.engine.phases import Algorithm, vertical
from privadmm.engine.public import Public
from privadmm.engine.sums import check_summable, planned_sums
from privadmm.errors import ConfigError
from privadmm.privacy.accounting import Claim, Plan, by_round, together, totals, worst
from privadmm.privacy.alike import Alike
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import NotPrivate, RandomizedResponse, Spent, tables
from privadmm.privacy.history import STARTED_UNPROTECTED, Past
from privadmm.privacy.ledger import NOBODY, Asked, Ledger, affordable, payable
from privadmm.privacy.meaning import large_delta, large_epsilon
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.sums import Sums

BARE_LABELS = NotPrivate("what the coordinator sends is derived from labels")
LABELS_NOT_PROTECTED = (
    "labels are not protected: what the coordinator sends is derived from them. "
    "Randomise them with label_epsilon, or keep to coordinators that may tell"
)


@dataclass(frozen=True)
class Job:
    """An algorithm on public facts. Construction fails closed: an unusable combination never reaches a party."""

    algorithm: Algorithm
    public: Public
    allowance: float | None = None  # what each party's ledger allows in all; the plan's total if None
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    # Parties that leave in a simulation, with the round, counted from 0, from which on each gives no answer.
    leave: Mapping[int, int] = field(default_factory=dict)
    asked: Asked = NOBODY  # for the ledgers' register

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
        check_summable(self.algorithm, self.public)
        self.algorithm.check(self.public)
        if self.public.declared:
            _ = planned_sums(self.algorithm, self.public)  # refuses sums whose words could wrap
        self._check_leave()
        if self.public.start is not None:
            _ = self.spends  # refuses a start whose cost cannot be added to this plan's

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

    @cached_property
    def sums(self) -> Sums | None:
        """The secure sums of the job; None where every message leaves by itself."""
        return planned_sums(self.algorithm, self.public)

    @cached_property
    def digest(self) -> str:
        """A digest of all that defines the job; all blocks of a secure sum must have the same."""
        public = self.public
        facts = (public.dim, public.rounds, public.loss, public.regularizer, public.privacy, public.C, public.weighting)
        # Shares are rounded, so that machines whose last digits differ agree on the digest.
        shares = [] if self.sums is None else [self.sums.share(at, public.parties) for at in self.sums.deviation]
        grid = None if self.sums is None else (self.sums.exponent, shares)
        whole = (self.id, self.algorithm, public.sizes.tolist(), public.replicas, *facts, grid)
        return arrays.digest(repr(whole).encode())

    @property
    def delta(self) -> float | None:
        return self.public.privacy.delta

    @cached_property
    def costs(self) -> list[Spent]:
        """What each party will have released in this job alone."""
        return totals(self.plan, self.public.parties)

    @cached_property
    def spends(self) -> list[Spent]:
        """What each party will have released: in this job, and in the trainings that the start descends from."""
        return self.public.in_all(self.costs)

    @cached_property
    def past(self) -> tuple[Past, ...]:
        """The history that a later job needs to start from these weights: Start(weights, job.past)."""
        return self.public.past(self.costs)

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
        """What a person loses at one vertical party, at all, and of the label; empty if parties hold records."""
        if not self.public.columns:
            return {}
        counted = self.private and self.public.privacy.adjacency == "person" and self.delta is not None
        total = together(self.costs, self.delta or 0.0) if counted else None
        labels, rounds = self.public.label_epsilon, self.public.rounds
        event = BARE_LABELS if labels is None else RandomizedResponse(labels)
        count = rounds if labels is None else 1  # a randomised label is drawn once, however often it is used
        return {
            "per_party": self.epsilon,
            "per_person": total,
            "label_holder": {"events": tables(((event, count),)), "epsilon": labels},
        }

    def weak_promise(self, spends: Sequence[Spent] | None = None) -> str | None:
        """The warning of an epsilon of a record, a person or a label that promises little; None if there is none.

        `spends` is what each party will have released in all, if that is more than in this job.
        """
        tallies = self.spends if spends is None else list(spends)
        total = self.epsilon if spends is None else self._worst(tallies)
        of: str = self.public.privacy.adjacency or "replace-one"
        if total is not None and self.delta is not None and of == "person":
            total, of = together(tallies, self.delta), "people"
        return large_epsilon(total, of, self.public.label_epsilon)

    def weak_delta(self) -> str | None:
        """The warning of a delta that promises nothing; None if it is small enough, or nothing is private."""
        public = self.public
        if not self.private or not self.delta:
            return None
        if public.privacy.adjacency == "column":
            return large_delta(self.delta, sum(public.columns), "columns")
        people = bool(public.columns)
        count = public.dim if people else int(public.sizes.sum())
        return large_delta(self.delta, count, "people" if people else "records")

    @cached_property
    def in_sums(self) -> dict[str, Any]:
        """What the guarantee of secure sums rests on, and what is lost where that does not hold; empty without them."""
        facts = guarantees.collusion(self.public, self.costs)
        return {"secure_sum": facts} if facts else {}

    @property
    def colluding(self) -> int | None:
        """How many parties may collude in secure sums without breaking the epsilon; None if it rests on no sums."""
        return guarantees.tolerated(self.spends) if self.private else None

    @property
    def caveats(self) -> list[str]:
        """What an epsilon of this job does not cover, or why there is none."""
        return self.caveats_where()

    def caveats_where(self, pinned: bool = False) -> list[str]:
        """The caveats; `pinned`: parties of secure sums know each other's keys, as those of a federation may."""
        few = self.colluding
        bare = self.private and bool(self.public.columns) and self.public.label_epsilon is None
        start = self.public.start
        unprotected = start is not None and not start.private
        return [
            *([LABELS_NOT_PROTECTED] if bare else []),
            *([STARTED_UNPROTECTED] if unprotected else []),
            *([] if few is None else [guarantees.summed(few, self.public.parties, pinned)]),
        ]

    @cached_property
    def epsilon_by_round(self) -> list[float]:
        """The worst party's epsilon after each round, the start's cost included; empty when nothing is private."""
        if self.delta is None or not self.private:
            return []
        return by_round(self.plan, self.public.parties, self.delta, self.public.in_all)

    @property
    def budget(self) -> Budget | None:
        """The budget of a ledger for this job alone; the cost of the start is not part of it."""
        own = self._worst(self.costs)
        if self.delta is None or own is None:
            return None
        return Budget(own if self.allowance is None else self.allowance, self.delta)

    @cached_property
    def policy(self) -> Policy:
        """The policy of a ledger that is made for this job. An existing ledger has its own, which is the authority."""
        public = self.public
        below: Any = public.privacy.sum.below_usual(public.parties) if public.privacy.sum else {}
        adjacency = public.privacy.adjacency or "replace-one"
        return Policy(self.budget, adjacency=adjacency, label_epsilon=public.label_epsilon, **below)

    def admit(self, policy: Policy, bounds: Sequence[float] = ()) -> None:
        """Refuse a ledger whose policy does not allow this job. `bounds` are those to which rows are clipped."""
        for bound in bounds or (None,):
            policy.admit(self.algorithm.name, bound)
        policy.agree(self.public.privacy.adjacency, self.public.label_epsilon)
        policy.admit_sum(self.public.privacy.sum, self.public.parties)
        if policy.limits is not None:
            policy.limits.admit(self.algorithm, self.public)

    def check_allowance(self) -> None:
        """Refuse a job that even an empty ledger made for it could not pay."""
        costs = Alike.listed(self.public.ids, self.costs)
        for party, cost in zip(costs.firsts(), costs.kinds, strict=True):
            payable(self.policy, party, (), (), cost)

    def afford(self, ledger: Ledger) -> None:
        """Refuse a job that the ledger's budget does not allow, or a ledger that is locked. Sets nothing aside."""
        with ledger.turn():
            if any(ledger.reserved(party, self.id) is None for party in ledger.ids):
                affordable(ledger, self.id, {party: self.costs[party] for party in ledger.ids})

    def reserve(self, ledger: Ledger, asked: Asked | None = None) -> None:
        """Set the plan's whole cost aside in the ledger, or refuse the job. So no job is refused half way."""
        ledger.reserve(self.id, {party: self.costs[party] for party in ledger.ids}, asked or self.asked)


def check_holding(algorithm: Algorithm, columns: bool) -> None:
    """Refuse a method for parties that hold columns where they hold records, and the other way round."""
    if vertical(algorithm) != columns:
        holds, split = ("records", '"even", say') if columns else ("columns", '"features"')
        raise ConfigError(
            f"{algorithm.name} is for parties that hold {holds}: set [parties] split = {split}, or choose another"
        )


def train(
    job: Job,
    parties: Cluster,
    callbacks: Sequence[Callback] = (),
    progress: Progress | None = None,
    asked: int = 0,
) -> Progress:
    return drive(parties, job.algorithm, job.public, callbacks, progress, asked)


def weights(job: Job, progress: Progress) -> Floats:
    """The weights (..., d) that are handed out after these rounds."""
    return job.algorithm.model(job.public, progress.memory, progress.mail)
