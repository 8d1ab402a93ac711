"""The durable ledger: one SQLite file per data set, outliving jobs, that shows when it was tampered with.

A job opens with a row that sets aside what its whole plan costs, so that of two jobs racing for the last of a budget
one is refused at its start and none half way. Then every tick is one row: what was asked (job, round, phase, digest of
the inbox), what it cost (events by party), what was sent, and the digest of the state that was kept. A job that is
given up is closed by a row of its own; what it did not spend is free again. What is drawn once and kept is a row of
round -1, with its name, its event and its bytes.

In a deployment a tick is first an intent, outside the chain: what it will cost, on record before records are read. Its
row takes the intent's place; an interrupt takes it away. An intent without a process at work on it shows a tick that
failed. A row charges that tick, ends its job and locks the ledger; unlocking is a row too. Rows are chained,

    hash_n = sha256(hash_{n-1}, row n),      hash_0 = sha256(identity: mode, parties, policy)

so a row that was altered or removed shows (verification.py says when). The last hash, the head, travels with every
release, so a tail that was cut off, or a backup that was put back, shows to whoever kept the heads (`verify` with those
of a run directory). Heads must tell nothing: all that is hashed was released, but for what is kept and why a tick
failed, which are hashed behind a secret of their own.
"""

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

from privadmm.errors import LedgerError, LockedError, RefusedError
from privadmm.privacy.events import Charges, Event, Spent, merge_all
from privadmm.privacy.key_file import KeyFile
from privadmm.privacy.ledger import Keepsake, Tick, affordable, match_digest, permitted, tallied
from privadmm.privacy.ledger_file import (
    ADDED,
    APPLICATION_ID,
    FORMAT,
    ROWS,
    TABLES,
    Identity,
    connect,
    default_limits,
    link,
    pack_charges,
    readable,
    sha,
    unpack_charges,
)
from privadmm.privacy.policy import Policy
from privadmm.privacy.verification import ALTERED, Accounts

SALT = 32  # bytes of secret before what is kept, without which guesses could be tried on a head
OF_TICK = "WHERE job = ? AND round = ? AND phase = ?"
DIED = "the process was killed in the middle of this step, or its machine went down"


class SqliteLedger:
    """The ledger of a block of parties in one file. A file that exists must have fixed the same parties and policy."""

    def __init__(self, path: Path, ids: Sequence[int], policy: Policy, mode: str) -> None:
        self.path = Path(path)
        self.ids = tuple(int(party) for party in ids)
        if policy.limits is None:
            policy = replace(policy, limits=default_limits(mode))
        self.policy = policy
        self.identity = Identity(mode, self.ids, policy)
        self._turn: sqlite3.Connection | None = None
        self._accounts: Accounts | None = None
        self._latest: tuple[Tick, str] | None = None  # the receipt of the tick that was committed last
        self._version = -1
        self._keys = KeyFile(self.path)
        self._db = connect(self.path)
        try:
            self._open()
        except BaseException as error:
            self._db.close()
            if not isinstance(error, sqlite3.Error):
                raise
            raise LedgerError(f"{self.path}: cannot be used as a ledger ({error}); name another file") from error

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        with self.transaction():
            if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {FORMAT}")
                for table in TABLES:
                    self._db.execute(table)
                self._db.executemany("INSERT INTO identity VALUES (?, ?)", self.identity.facts().items())
            for statement in ADDED:
                self._db.execute(statement)
            fixed, asked = dict(self._db.execute("SELECT fact, value FROM identity")), self.identity.facts()
            for fact in {**asked, **fixed}:
                if fixed.get(fact) != asked.get(fact):
                    raise LedgerError(
                        f"{self.path}: this ledger fixed {fact} = {fixed.get(fact)} when it was made, and the job has "
                        f"{asked.get(fact)}; use the ledger's own or name another file"
                    )
            _ = self.accounts  # verifies the rows that were added since the last use

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        # Another process may have charged this ledger since: only an unchanged file may be counted from memory.
        version = self._execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._accounts = None
            self._version = version
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        self._accounts = self._latest = None
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    @contextmanager
    def turn(self, patience: float = 30.0) -> Iterator[None]:
        """Be alone with a deployment's ledger, while this process lives. A tick that died is put on record as failed.

        A second file is locked in place of the ledger, which must be free for commits meanwhile.
        """
        if not self.guards or self._turn is not None:
            yield
            return
        beside = self.path.with_name(f"{self.path.name}-turn")
        if not beside.exists():  # to open and close it again would let go of what this process holds
            with suppress(FileExistsError):
                os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        lock = sqlite3.connect(beside, isolation_level=None, timeout=patience)
        try:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error as error:
                raise LedgerError(
                    f"{self.path}: another process is at work on this ledger ({error}); nothing was released"
                ) from error
            self._turn = lock
            with readable(self.path), self.transaction():
                died = [Tick(*row) for row in self._execute("SELECT job, round, phase FROM intents").fetchall()]
                for tick in died:
                    self._fail(tick, DIED)
            self._keys.erase_ended(tick.job for tick in died)
            if self.failed is not None:
                raise self._locked()
            yield
        finally:
            self._turn = None
            lock.close()

    def _locked(self) -> LockedError:
        return LockedError(
            f"{self.path}: is locked: a step failed, or was killed, after records were read. Its steward sees the "
            f"reason with `privadmm ledger show {self.path}` and decides with `privadmm ledger unlock {self.path} "
            '--because "..."`. Nothing more was released'
        )

    def settle(self) -> bool:
        """Put a step that died on record, so that it is shown. False: a process is at work on a step now."""
        try:
            with self.turn(patience=0.1):
                return True
        except LockedError:
            return True
        except LedgerError:
            if self._execute("SELECT count(*) FROM intents").fetchone()[0]:
                return False
            raise

    def failures(self) -> set[str]:
        """The jobs of which a step failed."""
        return {job for (job,) in self._execute("SELECT job FROM ticks WHERE kind = 'fail'")}

    @property
    def failed(self) -> Tick | None:
        """The tick that locked the ledger; None if it is not locked."""
        row = self._execute(
            "SELECT kind, job, round, phase FROM ticks WHERE kind IN ('fail', 'unlock') ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return None if row is None or row[0] == "unlock" else Tick(*row[1:])

    @property
    def why(self) -> str | None:
        """What the steward may know of the failure that locked the ledger."""
        if (tick := self.failed) is None:
            return None
        row = self._execute(f"SELECT outbox FROM ticks {OF_TICK} AND kind = 'fail'", *astuple(tick)).fetchone()
        return bytes(row[0])[SALT:].decode(errors="replace")

    def intend(self, tick: Tick, inbox: str, charges: Charges) -> None:
        if self.guards:
            packed = pack_charges(tallied(charges))
            self._execute("INSERT INTO intents VALUES (?, ?, ?, ?, ?)", *astuple(tick), inbox, packed)

    def withdraw(self, tick: Tick) -> None:
        self._roll_back()  # the interrupt may have come just before a transaction that was begun could handle it
        with self.transaction():
            self._forget(tick)

    @property
    def guards(self) -> bool:
        return self.identity.mode == "deployment"

    def fail(self, tick: Tick, why: str) -> None:
        with suppress(Exception), self.transaction():  # without a row, the intent says it to the next turn
            self._fail(tick, why)
        self._keys.erase_ended([tick.job])
        raise self._locked()

    def _fail(self, tick: Tick, why: str) -> None:
        intents = self._execute(f"SELECT inbox, charges FROM intents {OF_TICK}", *astuple(tick))
        inbox, packed = intents.fetchone()
        self._forget(tick)
        reason = secrets.token_bytes(SALT) + why.encode()
        self._append("fail", *astuple(tick), inbox, unpack_charges(packed), reason, "")

    def _forget(self, tick: Tick) -> None:
        self._execute(f"DELETE FROM intents {OF_TICK}", *astuple(tick))

    def unlock(self, why: str) -> None:
        """Put the steward's decision on record. What the failed tick cost stays charged, and its job stays over."""
        with self.transaction():
            if self.failed is None:
                raise LedgerError(f"{self.path}: is not locked")
            number = self._execute("SELECT count(*) FROM ticks WHERE kind = 'unlock'").fetchone()[0]
            self._append("unlock", "", -1, number, why, {}, b"", "")

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise LedgerError(
                f"{self.path}: the ledger could not be written or read ({error}); nothing was released"
            ) from error

    @property
    def head(self) -> str:
        return self._end()[1]

    def _end(self) -> tuple[int, str]:
        """Number and hash of the last row."""
        row = self._execute("SELECT seq, hash FROM ticks ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, self.identity.hash) if row is None else (int(row[0]), str(row[1]))

    def recall(self, tick: Tick, inbox: str) -> bytes | None:
        row = self._row(f"{OF_TICK} AND kind = 'tick'", *astuple(tick))
        if row is None:
            return None
        match_digest(row[0], inbox, tick)
        return row[1]

    def _row(self, where: str, *values: Any) -> tuple[str, bytes] | None:
        """The inbox and outbox of a row, which must fit its hash and that of the row before."""
        found = self._execute(f"{ROWS} {where}", *values).fetchone()
        if found is None:
            return None
        *row, stored = found
        before = self._execute("SELECT hash FROM ticks WHERE seq = ?", row[0] - 1).fetchone()
        if link(self.identity.hash if row[0] == 1 else str(before and before[0]), tuple(row)) != stored:
            raise LedgerError(f"{self.path}: row {row[0]}: {ALTERED}; nothing was released")
        return str(row[5]), bytes(row[7])

    def reserve(self, job: str, charges: Mapping[int, Spent]) -> None:
        with self.turn(), self.transaction():
            known = self.accounts.of(job).reserved
            if known is None:
                affordable(self, job, charges)
                self._append("reserve", job, -1, -1, "", charges, b"", "")
            elif known != dict(charges) or self.over(job):
                raise RefusedError(
                    f"{self.path}: job {job} failed or was closed here, or reserved something else at its start: "
                    "start a new run"
                )
            jobs = self.accounts.all().items()
            ended = [name for name, account in jobs if account.over or account.reserved == account.spent]
        self._keys.erase_ended(ended)  # whose processes died before they could

    def close_job(self, job: str) -> None:
        """Give a job up: what it set aside and did not spend is free again, and it can release no more."""
        with self.turn(), self.transaction():
            account = self.accounts.of(job)
            if account.reserved not in (None, account.spent) and not account.over:
                self._append("close", job, -1, -1, "", {}, b"", "")
        self._keys.erase_ended([job])

    def permit(self, job: str, charges: Charges) -> None:
        permitted(self, job, tallied(charges))

    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: bytes, state: bytes) -> None:
        self._forget(tick)
        self._latest = (tick, self._append("tick", *astuple(tick), inbox, tallied(charges), outbox, sha(state)))
        self._execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", *astuple(tick), state)

    def keep(self, job: str, name: str, make: Callable[[], bytes], event: Event | None) -> bytes:
        with self.transaction():
            if (stored := self.kept(job, name)) is not None:
                return stored
            data = make()
            charges = {} if event is None else dict.fromkeys(self.ids, ((event, 1),))
            number = self._execute("SELECT count(*) FROM ticks WHERE kind = 'keep' AND job = ?", job).fetchone()[0]
            self._append("keep", job, -1, number, name, charges, secrets.token_bytes(SALT) + data, "")
        return data

    def kept(self, job: str, name: str) -> bytes | None:
        row = self._row("WHERE kind = 'keep' AND job = ? AND inbox = ?", job, name)
        if row is None:
            rows = self._execute("SELECT count(*) FROM ticks WHERE kind = 'keep' AND job = ?", job).fetchone()[0]
            if rows != self.accounts.of(job).kept:
                raise LedgerError(f"{self.path}: a row of what was drawn once was removed; nothing was released")
            return None
        return row[1][SALT:]

    def keepsakes(self) -> tuple[Keepsake, ...]:
        rows = self._execute("SELECT job, inbox, charges FROM ticks WHERE kind = 'keep' ORDER BY seq")
        events = ((job, name, next(iter(unpack_charges(text).values()), ())) for job, name, text in rows)
        return tuple(Keepsake(job, name, charge[0][0] if charge else None) for job, name, charge in events)

    def _append(self, kind: str, job: str, *rest: Any) -> str:
        """Add a row to the chain, and return its hash."""
        round, phase, inbox, charges, outbox, state = rest
        account = self.accounts.of(job)  # read before the row is there, which would count it twice
        self.accounts.save()
        last, head = self._end()
        row = (last + 1, kind, job, round, phase, inbox, pack_charges(charges), outbox, state)
        seen = link(head, row)
        self._execute("INSERT INTO ticks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *row, seen)
        account.read(kind, dict(charges), (round, phase, state))
        return seen

    def latest(self, job: str) -> tuple[Tick, bytes] | None:
        row = self._execute("SELECT round, phase, state FROM states WHERE job = ?", job).fetchone()
        stored = None if row is None else (row[0], row[1], sha(row[2]))
        if stored != self.accounts.of(job).last:
            raise LedgerError(f"{self.path}: job {job}: the state that is kept is not the one of its last row")
        return None if row is None else (Tick(job, row[0], row[1]), bytes(row[2]))

    @property
    def accounts(self) -> Accounts:
        """What jobs have spent and set aside, read again whenever another process may have written to the file."""
        if self._accounts is None and not self._db.in_transaction:
            with self.transaction():  # they are of one moment of the file
                return self.accounts
        if self._accounts is None:
            self._accounts = Accounts(self.path, self._db, self.identity.hash)
        return self._accounts

    def spent(self, party: int, job: str | None = None) -> Spent:
        accounts = self.accounts.all().values() if job is None else [self.accounts.of(job)]
        return merge_all(account.spent.get(party, ()) for account in accounts)

    def reserved(self, party: int, job: str) -> Spent | None:
        known = self.accounts.of(job).reserved
        return None if known is None else known.get(party, ())

    def over(self, job: str) -> bool:
        return self.accounts.of(job).over

    def others(self, party: int, job: str) -> Spent:
        accounts = self.accounts.all().items()
        return merge_all(account.counts_for(party) for name, account in accounts if name != job)

    def jobs(self) -> list[str]:
        """The jobs that have rows, in the order of their first ones."""
        rows = self._execute("SELECT job FROM ticks WHERE job != '' GROUP BY job ORDER BY min(seq)")
        return [job for (job,) in rows]

    def secret(self, job: str, make: Callable[[], bytes] | None = None) -> bytes | None:
        if make is None or self._db.in_transaction:
            return self._keys.key(job, make)
        with self.transaction():  # one process at a time makes one
            return self._keys.key(job, make)

    def sent(self, tick: Tick, over: bool) -> None:
        self._keys.sent(tick.job, (tick.round, tick.phase), over)

    def check_sent(self, job: str) -> None:
        last = self.accounts.of(job).last
        self._keys.check_last(job, None if last is None else last[:2])

    def holds_key(self, job: str) -> bool:
        """Whether the key of a job's secure sums is still there, for its steward."""
        return self._keys.holds(job)

    def receipt(self, tick: Tick) -> str | None:
        if self._latest is not None and self._latest[0] == tick:
            return self._latest[1]
        row = self._execute(f"SELECT hash FROM ticks {OF_TICK} AND kind = 'tick'", *astuple(tick)).fetchone()
        return None if row is None else str(row[0])

    def close(self) -> None:
        self._db.close()
