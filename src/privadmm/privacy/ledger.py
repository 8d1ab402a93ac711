"""A party's budget: what it has released, what it may still release, and a refusal before any noise is drawn.

MemoryLedger and SqliteLedger (sqlite_ledger.py, which outlives the process) offer a block of parties the same:

    ledger.reserve(job, charges of the whole plan)     # refused here, or never for lack of budget
    with ledger.turn():                                # a deployment's: one process at a time
        with ledger.transaction():
            stored = ledger.recall(tick, inbox_digest) # the same request again: the same bytes, no charge
            ledger.permit(job, charges)                # the whole tick's, before a record is read
            ledger.intend(tick, inbox_digest, charges) # a deployment's: on record before a record is read
        with ledger.transaction():                     # records are read, noise is drawn
            ledger.commit(tick, inbox_digest, charges, outbox, state)

So a retry costs nothing, and a message is sent only after the commit that paid for it. A simulation that crashes loses
nothing and never spends twice. In a deployment, a tick that ended without its commit may tell of records by that
(docs/privacy.md#lock): it is charged as if it had been sent, its job is over, and the ledger is locked until its
steward unlocks it. Only an interrupt by the party's own people takes the intent back.

What a party draws once and may never draw again (its randomised labels, say) is kept beside the ticks,

    data = ledger.keep(job, name, make, event)         # the first call's make(); every later call gets the same bytes

under its job, or under "" if it belongs to the data set and outlives jobs. It goes to nobody but the party's own
server, so its event is on record and is not part of what the transcript costs.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Protocol, SupportsBytes

import numpy as np

from privadmm.data.arrays import Ints
from privadmm.errors import ConfigError, LockedError, RefusedError
from privadmm.privacy.accounting import certified, epsilon, printed
from privadmm.privacy.alike import Alike, together
from privadmm.privacy.events import Charges, Event, Spent, add, added, dump, merge, same_events, tables
from privadmm.privacy.policy import Policy


@dataclass(frozen=True)
class Tick:
    """One phase of one round of a job. A block answers it, and pays for it, as a whole."""

    job: str
    round: int
    phase: int

    @property
    def key(self) -> tuple[str, int, int]:
        return self.job, self.round, self.phase


@dataclass(frozen=True)
class Keepsake:
    """A record that something was drawn once and is kept. Its bytes go to the party's own server only."""

    job: str  # "" for what belongs to the data set
    name: str
    event: Event | None

    def as_dict(self) -> dict[str, Any]:
        event = None if self.event is None else json.loads(dump(self.event))
        return {"job": self.job or None, "name": self.name, "event": event}


@dataclass(frozen=True)
class Asked:
    """Public facts of a job for a ledger's register; None for what nobody said."""

    purpose: str | None = None
    requester: str | None = None
    algorithm: str | None = None
    config: str | None = None  # digest of the config
    party: str | None = None  # the party's name among people

    def told(self) -> dict[str, str]:
        """The facts that are known."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def pack(self) -> bytes:
        known = self.told()
        return json.dumps(known).encode() if known else b""

    @staticmethod
    def unpack(data: bytes) -> "Asked":
        return Asked(**json.loads(data)) if data else Asked()


NOBODY = Asked()


class Ledger(Protocol):
    """What a worker asks of a ledger. The bodies are those of a ledger that keeps nothing on record."""

    ids: tuple[int, ...]
    policy: Policy

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def recall(self, tick: Tick, inbox: str) -> bytes | None: ...
    def reserve(self, job: str, charges: Mapping[int, Spent], asked: Asked = NOBODY) -> None:
        """Set aside what the whole job will cost, or refuse it. A second call for the job changes nothing."""
        ...

    def note_refusal(self, error: RefusedError | LockedError, asked: Asked, job: str = "") -> None:
        """Put a refusal on record, if that can be done. Never raises."""
        return

    def permit(self, job: str, charges: Charges) -> None: ...
    @contextmanager
    def turn(self) -> Iterator[None]:
        """Be alone with a deployment's ledger. Raises a LockedError if it is locked."""
        yield

    def intend(self, tick: Tick, inbox: str, charges: Charges) -> None:
        """In a deployment, put on record what the tick will cost, before records are read."""
        return

    def withdraw(self, tick: Tick) -> None:
        """Take the intent back: the party's own people interrupted the tick."""
        return

    @property
    def guards(self) -> bool:
        """Whether a tick that fails locks the ledger, as in a deployment."""
        return False

    def fail(self, tick: Tick, why: str) -> None:
        """Charge the tick that was intended, end its job, and lock. The LockedError that it raises does not say why."""
        return

    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: SupportsBytes, state: SupportsBytes) -> None: ...
    def latest(self, job: str) -> tuple[Tick, bytes] | None:
        """The last tick of a job and the state after it."""
        ...

    def spent(self, party: int, job: str | None = None) -> Spent:
        """What the party released, in all or for one job."""
        ...

    def reserved(self, party: int, job: str) -> Spent | None:
        """What is set aside for this job; None if nothing ever was."""
        ...

    def over(self, job: str) -> bool:
        """Whether the job was closed, or failed: it can release no more."""
        return False

    def others(self, party: int, job: str) -> Spent:
        """What all other jobs have spent or set aside, whichever is more for each of them."""
        return ()

    def charged(self, parties: Ints, job: str | None = None) -> Alike[Spent]:
        """`spent` of each of these parties."""
        ...

    def promised(self, parties: Ints, job: str) -> Alike[Spent | None]:
        """`reserved` of each of these parties."""
        ...

    def elsewhere(self, parties: Ints, job: str) -> Alike[Spent]:
        """`others` of each of these parties."""
        return Alike.same(parties, ())

    def keep(self, job: str, name: str, make: Callable[[], bytes], event: Event | None) -> bytes:
        """Return what the first call with this job and name made and put on record, in a transaction of its own."""
        ...

    def kept(self, job: str, name: str) -> bytes | None:
        """What `keep` made for this job and name, if it was called."""
        ...

    def keepsakes(self) -> tuple[Keepsake, ...]:
        """All that `keep` recorded, in order."""
        ...

    def secret(self, job: str, make: Callable[[], bytes] | None = None) -> bytes | None:
        """The job's own key, made by the first call that gives `make`; None if there is none, or it was erased."""
        ...

    def sent(self, tick: Tick, over: bool) -> None:
        """Remember, in a file beside the ledger, that this tick was committed; if the job is over, erase its key."""
        return

    def check_sent(self, job: str) -> None:
        """Refuse a ledger that lacks a committed tick of this job: it was put back from a copy."""
        return

    def receipt(self, tick: Tick) -> str | None:
        """The hash of the row that recorded this tick, which travels with its release; None if nothing is kept."""
        return None

    @property
    def head(self) -> str | None:
        """The end of the hash chain."""
        return None


def affordable(ledger: Ledger, job: str, charges: Mapping[int, Spent]) -> None:
    """Refuse unless every party can pay these charges on top of what it has spent, in all and for this job."""
    if ledger.policy.budget is None:
        return
    charges = Alike.of(charges)
    before = together(ledger.charged(charges.ids, job), ledger.elsewhere(charges.ids, job), charges)
    for party, (mine, others, charge) in zip(before.firsts(), before.kinds, strict=True):
        payable(ledger.policy, party, mine, others, charge)


def payable(policy: Policy, party: int, mine: Spent, others: Spent, charge: Spent) -> None:
    """Refuse a charge on top of what a party has spent for the job and for others."""
    if (budget := policy.budget) is not None:
        within(merge(others, mine), charge, budget.epsilon, budget.delta, party, "in all")
        if policy.per_job is not None:
            within(mine, charge, policy.per_job, budget.delta, party, "for one job")


def within(before: Spent, charge: Spent, limit: float, delta: float, party: int, span: str) -> None:
    after = epsilon(merge(before, charge), delta)
    if after > limit:
        spent, asked, total = (printed(cost, ".6g") for cost in (epsilon(before, delta), epsilon(charge, delta), after))
        smaller = "ask for a smaller epsilon, or ask" if float(spent) < limit else "the budget is spent; ask"
        raise RefusedError(
            f"party {party} may spend epsilon = {limit:.6g} {span} at delta = {delta:g}; {spent} is spent or set "
            f"aside, and this asks for {asked}, which would bring it to {total}. Nothing more was released: {smaller} "
            "the party's steward for a larger budget (`privadmm ledger amend`; in a federation: a larger epsilon in "
            "party.toml, then `privadmm federation ledger DIR --amend`)",
            "budget",
        )


def permitted(ledger: Ledger, job: str, charges: Mapping[int, Spent]) -> None:
    """Refuse charges beyond a job's reservation or, if it has none, beyond what is affordable now.

    One check serves all parties that have the same promise, history and charge. The first party that may not pay is
    named, as if they were asked one after another.
    """
    if ledger.over(job):
        raise RefusedError(f"job {job} was closed, and is over here. Nothing more was released")
    charges = Alike.of(charges)
    promised, mine = ledger.promised(charges.ids, job), ledger.charged(charges.ids, job)
    free = any(promise is None for promise in promised.kinds)
    others = ledger.elsewhere(charges.ids, job) if free else Alike.same(charges.ids, ())
    asked = together(promised, mine, others, charges)
    for party, (promise, spent, elsewhere, charge) in zip(asked.firsts(), asked.kinds, strict=True):
        if promise is None:
            payable(ledger.policy, party, spent, elsewhere, charge)
        elif not covers(promise, merge(spent, charge)):
            raise RefusedError(
                f"job {job} asks party {party} for more than is set aside for it. Nothing more was released"
            )


def covers(promise: Spent, spent: Spent) -> bool:
    if same_events(promise, spent):
        return all(count <= most for (_, most), (_, count) in zip(promise, spent, strict=True))
    counts = dict(promise)
    return all(counts.get(event, 0) >= count for event, count in spent)


def tallied(charges: Charges) -> Alike[Spent]:
    return Alike.of(charges).map(lambda events: add((), events))


def match_digest(stored: str, inbox: str, tick: Tick) -> None:
    if stored != inbox:
        raise RefusedError(
            f"round {tick.round + 1} of job {tick.job} was answered for another inbox; "
            "answering it twice would be a second release"
        )


class MemoryLedger(Ledger):
    """A ledger for the length of a process and of one job: simulations, sweeps, tests. Keeps the last answer only."""

    def __init__(self, ids: Sequence[int], policy: Policy) -> None:
        self.ids = tuple(int(party) for party in ids)
        self.policy = policy
        self._spent: Alike[Spent] = Alike.same(np.array(self.ids, dtype=np.int64), ())
        self._reserved: Alike[Spent] = Alike.of({})
        self._last: tuple[Tick, str, SupportsBytes, SupportsBytes] | None = None
        self._kept: dict[Keepsake, bytes] = {}
        self._secret: bytes | None = None

    def recall(self, tick: Tick, inbox: str) -> bytes | None:
        if self._last is None or self._last[0] != tick:
            return None
        match_digest(self._last[1], inbox, tick)
        return bytes(self._last[2])

    def reserve(self, job: str, charges: Mapping[int, Spent], asked: Asked = NOBODY) -> None:
        if not self._reserved:
            affordable(self, job, charges)
            self._reserved = Alike.of(charges)

    def permit(self, job: str, charges: Charges) -> None:
        permitted(self, job, tallied(charges))

    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: SupportsBytes, state: SupportsBytes) -> None:
        more = tallied(charges)
        self._spent.over(more.ids)  # a KeyError for a party that the ledger does not have
        self._spent = added(self._spent, more)
        self._last = (tick, inbox, outbox, state)

    def latest(self, job: str) -> tuple[Tick, bytes] | None:
        if self._last is None or self._last[0].job != job:
            return None
        return self._last[0], bytes(self._last[3])

    def spent(self, party: int, job: str | None = None) -> Spent:
        return self._spent[party]

    def reserved(self, party: int, job: str) -> Spent | None:
        return self._reserved.get(party)

    def charged(self, parties: Ints, job: str | None = None) -> Alike[Spent]:
        return self._spent.over(parties)

    def promised(self, parties: Ints, job: str) -> Alike[Spent | None]:
        return self._reserved.over(parties, None)

    def keep(self, job: str, name: str, make: Callable[[], bytes], event: Event | None) -> bytes:
        if (stored := self.kept(job, name)) is not None:
            return stored
        return self._kept.setdefault(Keepsake(job, name, event), make())

    def kept(self, job: str, name: str) -> bytes | None:
        return next((data for made, data in self._kept.items() if (made.job, made.name) == (job, name)), None)

    def keepsakes(self) -> tuple[Keepsake, ...]:
        return tuple(self._kept)

    def secret(self, job: str, make: Callable[[], bytes] | None = None) -> bytes | None:
        if self._secret is None and make is not None:
            self._secret = make()
        return self._secret

    def sent(self, tick: Tick, over: bool) -> None:
        if over:
            self._secret = None


@dataclass(frozen=True)
class Statement:
    """The contents of a ledger at one moment, to be sent and exported."""

    ids: tuple[int, ...]
    policy: Policy
    head: str | None
    charged: Mapping[int, Spent]
    aside: Mapping[int, Spent]  # by party, what its jobs have spent or set aside, whichever is more
    kept: tuple[Keepsake, ...]

    @staticmethod
    def of(ledger: Ledger, ended: str = "") -> "Statement":
        """Take the statement of a ledger. For the job `ended`, only what it spent counts as set aside."""
        with ledger.transaction():  # all of it as of one moment, whoever else writes
            ids = np.array(ledger.ids, dtype=np.int64)
            charged, before = ledger.charged(ids), together(ledger.elsewhere(ids, ended), ledger.charged(ids, ended))
            aside = before.map(lambda pair: merge(*pair))
            return Statement(ledger.ids, ledger.policy, ledger.head, charged, aside, ledger.keepsakes())

    @staticmethod
    def join(parts: Sequence["Statement"]) -> "Statement":
        """One statement for all blocks, which have one policy. Its head covers every block's."""
        if len({part.policy for part in parts}) > 1:
            raise ConfigError("the ledgers of the blocks have different policies; make them with the same")
        ids = tuple(sorted(party for part in parts for party in part.ids))
        charged = {party: spent for part in parts for party, spent in part.charged.items()}
        aside = {party: spent for part in parts for party, spent in part.aside.items()}
        heads = "".join(part.head or "" for part in parts).encode()
        head = parts[0].head if len(parts) == 1 else hashlib.sha256(heads).hexdigest()
        kept = dict.fromkeys(made for part in parts for made in part.kept)
        return Statement(ids, parts[0].policy, head, charged, aside, tuple(kept))


def export(statement: Statement) -> dict[str, Any]:
    """Per party: every distinct event with its count, and the certified epsilon (null: none can be given)."""
    budget = statement.policy.budget

    def told(spent: Spent) -> dict[str, Any]:
        return {"events": tables(spent), "epsilon": certified(spent, budget.delta if budget else None)}

    facts = Alike.of(statement.charged).map(told)
    return {
        "adjacency": statement.policy.adjacency,
        "budget": asdict(budget) if budget else None,
        "policy": asdict(statement.policy),
        "head": statement.head,
        "kept": [made.as_dict() for made in statement.kept],
        "parties": [{"party": party, **facts[party]} for party in statement.ids],
    }
