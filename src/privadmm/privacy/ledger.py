"""A party's budget: what it has released, what it may still release, and a refusal before any noise.

Both ledgers tell the same story for a block of parties; the SQLite one is durable. One transaction per tick:

    with ledger.transaction():
        stored = ledger.recall(tick, inbox_digest)     # the same request again: the same bytes, no charge
        ledger.permit(charges)                         # raises before noise is drawn
        ledger.commit(tick, inbox_digest, charges, outbox, state)

so that a retry costs nothing, a crash at any point loses nothing and never spends twice, and a message is
sent only after the commit that paid for it.
"""

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from privadmm import check
from privadmm.errors import LedgerError, RefusedError
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.events import Charges, Spent, add, dump, load, merge

ADJACENCY = "replace-one"
APPLICATION_ID = 0x70616D6D
FORMAT = 1


@dataclass(frozen=True)
class Budget:
    """What each party of the ledger may spend in total, over all jobs."""

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check.probability(delta=self.delta)


@dataclass(frozen=True)
class Tick:
    """A phase of a round of a job: what a block is asked for, and pays for, at once."""

    job: str
    round: int
    phase: int


class Ledger(Protocol):
    ids: tuple[int, ...]
    budget: Budget | None

    @contextmanager
    def transaction(self) -> Iterator[None]: ...
    def recall(self, tick: Tick, inbox: str) -> bytes | None: ...
    def permit(self, charges: Charges) -> None: ...
    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: bytes, state: bytes) -> None: ...
    def latest(self, job: str) -> tuple[Tick, bytes] | None: ...
    def spent(self, party: int) -> Spent: ...


def afford(ledger: Ledger, charges: Mapping[int, Spent]) -> None:
    """Refuse unless every party can pay these charges on top of what it has spent."""
    if ledger.budget is None:
        return
    limit, delta = ledger.budget.epsilon, ledger.budget.delta
    for party, charge in charges.items():
        before = ledger.spent(party)
        after = epsilon(merge(before, charge), delta)
        if after > limit:
            raise RefusedError(
                f"party {party} may spend epsilon = {limit:.6g} in all at delta = {delta:g} and has spent "
                f"{epsilon(before, delta):.6g}; this would bring it to {after:.6g}. Nothing was released: "
                "ask for less, or have the party raise its budget"
            )


def match_digest(stored: str, inbox: str, tick: Tick) -> None:
    if stored != inbox:
        raise RefusedError(
            f"round {tick.round + 1} of job {tick.job} was answered for another inbox; "
            "answering it twice would be a second release"
        )


class MemoryLedger:
    """A ledger for the length of a process: simulations, sweeps and tests. Keeps the last answer only."""

    def __init__(self, ids: Sequence[int], budget: Budget | None) -> None:
        self.ids = tuple(int(party) for party in ids)
        self.budget = budget
        self._spent: dict[int, Spent] = {party: () for party in self.ids}
        self._last: tuple[Tick, str, bytes, bytes] | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield

    def recall(self, tick: Tick, inbox: str) -> bytes | None:
        if self._last is None or self._last[0] != tick:
            return None
        match_digest(self._last[1], inbox, tick)
        return self._last[2]

    def permit(self, charges: Charges) -> None:
        afford(self, {party: add((), events) for party, events in charges.items()})

    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: bytes, state: bytes) -> None:
        for party, events in charges.items():
            self._spent[party] = add(self._spent[party], events)
        self._last = (tick, inbox, outbox, state)

    def latest(self, job: str) -> tuple[Tick, bytes] | None:
        if self._last is None or self._last[0].job != job:
            return None
        return self._last[0], self._last[3]

    def spent(self, party: int) -> Spent:
        return self._spent[party]


class SqliteLedger:
    """One file, outliving jobs. It fixes its mode, parties, adjacency and budget when it is made."""

    def __init__(self, path: Path, ids: Sequence[int], budget: Budget | None, mode: str) -> None:
        self.path = Path(path)
        self.ids = tuple(int(party) for party in ids)
        self.budget = budget
        self.mode = mode
        self._cache: dict[int, Spent] = {}
        self._version = -1
        try:
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=30)
            self._open()
        except sqlite3.DatabaseError as error:
            raise LedgerError(
                f"{self.path}: cannot be used as a ledger ({error}); name another file"
            ) from error

    def _open(self) -> None:
        db = self._db
        ours = db.execute("PRAGMA application_id").fetchone()[0]
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if tables and ours != APPLICATION_ID:
            raise LedgerError(f"{self.path}: is a database, but not a privadmm ledger; name another file")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        if tables:
            self._check_identity()
            return
        with self.transaction():
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
            db.execute("CREATE TABLE identity (fact TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT")
            db.execute(
                "CREATE TABLE ticks (job TEXT, round INTEGER, phase INTEGER, inbox TEXT NOT NULL, "
                "outbox BLOB NOT NULL, PRIMARY KEY (job, round, phase)) STRICT"
            )
            db.execute(
                "CREATE TABLE events (job TEXT, round INTEGER, phase INTEGER, party INTEGER, "
                "number INTEGER, event TEXT NOT NULL, PRIMARY KEY (job, round, phase, party, number)) STRICT"
            )
            db.execute(
                "CREATE TABLE states (job TEXT PRIMARY KEY, round INTEGER NOT NULL, phase INTEGER NOT NULL, "
                "state BLOB NOT NULL) STRICT"
            )
            db.executemany("INSERT INTO identity VALUES (?, ?)", self._identity().items())

    def _identity(self) -> dict[str, str]:
        facts = {
            "mode": self.mode,
            "parties": list(self.ids),
            "adjacency": ADJACENCY,
            "budget": asdict(self.budget) if self.budget else None,
        }
        return {fact: json.dumps(value) for fact, value in facts.items()}

    def _check_identity(self) -> None:
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version != FORMAT:
            raise LedgerError(f"{self.path}: has ledger format {version}; this version reads {FORMAT}")
        found = dict(self._db.execute("SELECT fact, value FROM identity"))
        for fact, value in self._identity().items():
            if found.get(fact) != value:
                raise LedgerError(
                    f"{self.path}: this ledger fixed {fact} = {found.get(fact)} when it was made, and the job has "
                    f"{value}; use the ledger's own or name another file"
                )

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        # Another process may have charged this ledger since: only an unchanged file may be counted from memory.
        version = self._execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._cache.clear()
            self._version = version
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            self._cache.clear()
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise LedgerError(
                f"{self.path}: the ledger could not be written or read ({error}); nothing was released"
            ) from error

    def recall(self, tick: Tick, inbox: str) -> bytes | None:
        row = self._execute(
            "SELECT inbox, outbox FROM ticks WHERE job = ? AND round = ? AND phase = ?",
            *(tick.job, tick.round, tick.phase),
        ).fetchone()
        if row is None:
            return None
        match_digest(row[0], inbox, tick)
        return bytes(row[1])

    def permit(self, charges: Charges) -> None:
        afford(self, {party: add((), events) for party, events in charges.items()})

    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: bytes, state: bytes) -> None:
        key = (tick.job, tick.round, tick.phase)
        self._execute("INSERT INTO ticks VALUES (?, ?, ?, ?, ?)", *key, inbox, outbox)
        for party, events in charges.items():
            for number, event in enumerate(events):
                self._execute(
                    "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", *key, party, number, dump(event)
                )
            self._cache[party] = add(self.spent(party), events)
        self._execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", *key, state)

    def latest(self, job: str) -> tuple[Tick, bytes] | None:
        row = self._execute("SELECT round, phase, state FROM states WHERE job = ?", job).fetchone()
        return None if row is None else (Tick(job, row[0], row[1]), bytes(row[2]))

    def spent(self, party: int) -> Spent:
        if party not in self._cache:
            rows = self._execute(
                "SELECT event FROM events WHERE party = ? ORDER BY job, round, phase, number", party
            )
            self._cache[party] = merge((), tuple(Counter(load(text) for (text,) in rows).items()))
        return self._cache[party]

    def close(self) -> None:
        self._db.close()


def export(ledger: Ledger) -> dict[str, Any]:
    """Per party: every distinct event with its count, and the certified epsilon (null: none can be given)."""
    parties = []
    for party in ledger.ids:
        spent = ledger.spent(party)
        total = epsilon(spent, ledger.budget.delta) if ledger.budget else math.inf
        parties.append(
            {
                "party": party,
                "events": [{**json.loads(dump(event)), "count": count} for event, count in spent],
                "epsilon": total if math.isfinite(total) else None,
            }
        )
    budget = asdict(ledger.budget) if ledger.budget else None
    return {"adjacency": ADJACENCY, "budget": budget, "parties": parties}
