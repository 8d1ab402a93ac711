"""A party's budget: what it has released, what it may still release, and a refusal before any noise.

Both ledgers tell the same story for a block of parties; the one in durable.py outlives the process. One transaction
per tick:

    ledger.reserve(job, charges of the whole plan)     # refused here, or never for lack of budget
    with ledger.transaction():
        stored = ledger.recall(tick, inbox_digest)     # the same request again: the same bytes, no charge
        ledger.permit(job, charges)                    # raises before noise is drawn
        ledger.commit(tick, inbox_digest, charges, outbox, state)

so that a retry costs nothing, a crash at any point loses nothing and never spends twice, and a message is
sent only after the commit that paid for it.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from privadmm import check
from privadmm.errors import RefusedError
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.events import Charges, Spent, add, dump, merge

ADJACENCY = "replace-one"


@dataclass(frozen=True)
class Budget:
    """What each party of the ledger may spend in total, over all jobs."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        if self.delta != 0:
            check.probability(delta=self.delta)


@dataclass(frozen=True)
class Policy:
    """What the party has decided, once and for all jobs. A job is a proposal; this is the authority.

    budget      in total (None: nothing is private here, and nothing is refused for its cost)
    per_job     the most that one job may cost
    algorithms  the only ones allowed
    row_bound   the only bound to which records may be clipped
    """

    budget: Budget | None
    per_job: float | None = None
    algorithms: tuple[str, ...] | None = None
    row_bound: float | None = None

    def __post_init__(self) -> None:
        if self.per_job is not None:
            check.positive(per_job=self.per_job)
        if self.row_bound is not None:
            check.positive(row_bound=self.row_bound)

    def admit(self, algorithm: str, row_bound: float | None = None) -> None:
        """Refuse a job that the party does not run at all, whatever it costs."""
        if self.algorithms is not None and algorithm not in self.algorithms:
            raise RefusedError(
                f"the party's policy allows {', '.join(self.algorithms)} and not {algorithm}. Nothing was released"
            )
        if self.row_bound is not None and row_bound is not None and row_bound != self.row_bound:
            raise RefusedError(
                f"the party's policy clips records to row_bound = {self.row_bound:g} and the job to {row_bound:g}. "
                "Nothing was released"
            )


@dataclass(frozen=True)
class Tick:
    """A phase of a round of a job: what a block is asked for, and pays for, at once."""

    job: str
    round: int
    phase: int


class Ledger(Protocol):
    ids: tuple[int, ...]
    policy: Policy

    @contextmanager
    def transaction(self) -> Iterator[None]: ...
    def recall(self, tick: Tick, inbox: str) -> bytes | None: ...
    def reserve(self, job: str, charges: Mapping[int, Spent]) -> None:
        """Set aside what the whole job will cost, or refuse it; the same again changes nothing."""
        ...

    def permit(self, job: str, charges: Charges) -> None: ...
    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: bytes, state: bytes) -> None: ...
    def latest(self, job: str) -> tuple[Tick, bytes] | None: ...
    def spent(self, party: int, job: str | None = None) -> Spent:
        """What the party released, in all or for one job."""
        ...

    def reserved(self, party: int, job: str) -> Spent | None:
        """What is set aside for this job, if anything was."""
        ...

    def others(self, party: int, job: str) -> Spent:
        """What every other job has spent or set aside, whichever is more."""
        ...

    def receipt(self, tick: Tick) -> str | None:
        """The hash of the row that recorded this tick, which travels with its release; None if nothing is kept."""
        ...

    @property
    def head(self) -> str | None:
        """The end of the hash chain."""
        ...


def affordable(ledger: Ledger, job: str, charges: Mapping[int, Spent]) -> None:
    """Refuse unless every party can pay these charges on top of what it has spent, in all and for this job."""
    budget, per_job = ledger.policy.budget, ledger.policy.per_job
    if budget is None:
        return
    for party, charge in charges.items():
        mine, others = ledger.spent(party, job), ledger.others(party, job)
        within(merge(others, mine), charge, budget.epsilon, budget.delta, party, "in all")
        if per_job is not None:
            within(mine, charge, per_job, budget.delta, party, "for one job")


def within(before: Spent, charge: Spent, limit: float, delta: float, party: int, span: str) -> None:
    after = epsilon(merge(before, charge), delta)
    if after > limit:
        raise RefusedError(
            f"party {party} may spend epsilon = {limit:.6g} {span} at delta = {delta:g}; {epsilon(before, delta):.6g} "
            f"is spent or set aside, and this would bring it to {after:.6g}. Nothing more was released: "
            "ask for a smaller epsilon"
        )


def permitted(ledger: Ledger, job: str, charges: Mapping[int, Spent]) -> None:
    """Before noise is drawn: a job with a reservation keeps to it; any other must be affordable now."""
    for party, charge in charges.items():
        promise = ledger.reserved(party, job)
        if promise is None:
            affordable(ledger, job, {party: charge})
        elif not covers(promise, merge(ledger.spent(party, job), charge)):
            raise RefusedError(
                f"job {job} asks party {party} for more than was set aside at its start. Nothing more was released"
            )


def covers(promise: Spent, spent: Spent) -> bool:
    counts = dict(promise)
    return all(counts.get(event, 0) >= count for event, count in spent)


def tallied(charges: Charges) -> dict[int, Spent]:
    return {party: add((), events) for party, events in charges.items()}


def match_digest(stored: str, inbox: str, tick: Tick) -> None:
    if stored != inbox:
        raise RefusedError(
            f"round {tick.round + 1} of job {tick.job} was answered for another inbox; "
            "answering it twice would be a second release"
        )


class MemoryLedger:
    """A ledger for the length of a process and of one job: simulations, sweeps, tests. Keeps the last answer only."""

    head = None

    def __init__(self, ids: Sequence[int], policy: Policy) -> None:
        self.ids = tuple(int(party) for party in ids)
        self.policy = policy
        self._spent: dict[int, Spent] = {party: () for party in self.ids}
        self._reserved: dict[int, Spent] = {}
        self._last: tuple[Tick, str, bytes, bytes] | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def recall(self, tick: Tick, inbox: str) -> bytes | None:
        if self._last is None or self._last[0] != tick:
            return None
        match_digest(self._last[1], inbox, tick)
        return self._last[2]

    def reserve(self, job: str, charges: Mapping[int, Spent]) -> None:
        if not self._reserved:
            affordable(self, job, charges)
            self._reserved = dict(charges)

    def permit(self, job: str, charges: Charges) -> None:
        permitted(self, job, tallied(charges))

    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: bytes, state: bytes) -> None:
        for party, events in charges.items():
            self._spent[party] = add(self._spent[party], events)
        self._last = (tick, inbox, outbox, state)

    def latest(self, job: str) -> tuple[Tick, bytes] | None:
        if self._last is None or self._last[0].job != job:
            return None
        return self._last[0], self._last[3]

    def spent(self, party: int, job: str | None = None) -> Spent:
        return self._spent[party]

    def reserved(self, party: int, job: str) -> Spent | None:
        return self._reserved.get(party)

    def others(self, party: int, job: str) -> Spent:
        return ()

    def receipt(self, tick: Tick) -> str | None:
        return None


def export(ledger: Ledger) -> dict[str, Any]:
    """Per party: every distinct event with its count, and the certified epsilon (null: none can be given)."""
    budget = ledger.policy.budget
    parties = []
    for party in ledger.ids:
        spent = ledger.spent(party)
        total = epsilon(spent, budget.delta) if budget else math.inf
        parties.append(
            {
                "party": party,
                "events": [{**json.loads(dump(event)), "count": count} for event, count in spent],
                "epsilon": total if math.isfinite(total) else None,
            }
        )
    return {
        "adjacency": ADJACENCY,
        "budget": asdict(budget) if budget else None,
        "policy": asdict(ledger.policy),
        "head": ledger.head,
        "parties": parties,
    }
