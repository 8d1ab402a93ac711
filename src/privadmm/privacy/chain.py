"""A ledger's file: rows that are chained, transactions that are durable, and the anchor that is moved on with them.

    hash_n = sha256(hash_{n-1}, row n),      hash_0 = sha256(identity: mode, parties, policy)

At the beginning of every transaction, and so at every use, the file must hold what its anchor knows (anchor.py); else
it was put back from a copy, and is locked for its steward. After every COMMIT that changed something the anchor is
moved on, before anything is returned. The order matters in every crash:

    COMMIT, crash, anchor not moved      nobody was sent the row; the next transaction moves the anchor first
    a step is withdrawn                  the anchor forgets it before the COMMIT: else it would seem lost
    the first anchor of a ledger         the file is made before the COMMIT that says that there is one
"""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.errors import LedgerError, LockedError
from privadmm.privacy.alike import Alike
from privadmm.privacy.anchor import DOUBTED, NONE, Anchor, AnchorFile, Known, lacks, step_digest
from privadmm.privacy.events import Spent, added_all
from privadmm.privacy.ledger_file import (
    ADDED,
    ALTERED,
    APPLICATION_ID,
    FORMAT,
    NOTES,
    PUT_BACK,
    ROWS,
    TABLES,
    Identity,
    connect,
    current_facts,
    default_limits,
    facts_of,
    hash_of,
    link,
    pack_charges,
    stamped,
    unpack_charges,
    utc_now,
)
from privadmm.privacy.policy import Policy
from privadmm.privacy.verification import Accounts

PAGES = 256  # in the log of what was committed, before it is used anew: one that grows is waited for longer
# In its place, where there is a row: to remove and insert it would write other pages, too.
ACTIVE = "INSERT INTO activity VALUES (?, ?) ON CONFLICT (job) DO UPDATE SET at = excluded.at"


class Chain:
    """The rows of one ledger, by one connection. A file that exists must have the same parties and policy."""

    def __init__(
        self,
        path: Path,
        ids: Sequence[int],
        policy: Policy,
        mode: str,
        anchored: bool = True,
        patience: float = 30.0,
        make: bool = True,
    ) -> None:
        """`anchored`: compare it with its anchor. Only a steward's commands, which release nothing, do not.

        `patience`: seconds to wait for another process that writes to it. `make`: make a ledger where there is none.
        """
        self.path = Path(path)
        self.ids = tuple(int(party) for party in ids)
        self.parties = np.array(self.ids, dtype=np.int64)
        if policy.limits is None:
            policy = replace(policy, limits=default_limits(mode))
        self.policy = policy
        self.identity = Identity(mode, self.ids, policy)
        self._anchor = AnchorFile(self.path, durable=mode == "deployment")
        self._anchored, self._marked = anchored, False
        self._changed = self._moved = False  # by this transaction: anything that the anchor knows; what is set aside
        self._accounts: Accounts | None = None
        self._version = -1
        self._closed = False
        self._now: Anchor | None = None  # the anchor that belongs to the file as it is, if it was made out
        if not self.path.exists():
            with suppress(ValueError):  # of what is no path; `connect` says so
                self._vacant()
        self._patience = patience
        self._db = connect(self.path, patience=patience, make=make)
        try:
            self._open()
        except BaseException as error:
            self.close()
            if not isinstance(error, sqlite3.Error):
                raise
            raise LedgerError(f"{self.path}: cannot be used as a ledger ({error}); name another file") from error

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA wal_autocheckpoint = {PAGES}")
        with self._alone():
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
            if not tables:
                self._vacant()
                self._db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._db.execute(f"PRAGMA user_version = {FORMAT}")
                for table in TABLES:
                    self._db.execute(table)
                self._db.executemany("INSERT INTO identity VALUES (?, ?)", self.identity.facts().items())
            for statement in ADDED:
                if statement.split()[5] not in tables:
                    self._db.execute(statement)
            if tables and "activity" not in tables:  # a ledger of an earlier version: times are kept from now on
                self._db.execute("INSERT INTO activity SELECT DISTINCT job, ? FROM ticks", (time.time(),))
            self._start = hash_of(facts_of(self._db))
            self._agree()
            if self.accounts.of("").amended != self.count("amend"):  # `accounts` verifies rows added since the last use
                raise LedgerError(f"{self.path}: a row that amended the policy was removed; nothing was released")
            self._hold()
            self._migrate()
        if self._changed:
            self._move_on()

    def _migrate(self) -> None:
        """Bring a ledger of format 1 to the present one by a row that says so. In a transaction: all of it or nothing.

        The rows before it stay as they are. One that is behind its anchor is left alone.
        """
        if self._anchored and (before := self._execute("PRAGMA user_version").fetchone()[0]) != FORMAT:
            self._execute(f"PRAGMA user_version = {FORMAT}")
            self.append("format", "", (-1, FORMAT), "", outbox=json.dumps({"from": before, "to": FORMAT}).encode())

    def _vacant(self) -> None:
        """Refuse to make a ledger where there was one."""
        found = self._read_anchor() if self._anchored else None
        if found is None:
            return
        if found.seq or found.intent != NONE:
            raise LockedError(
                f"{self.path}: there is no ledger, and {self._anchor.path.name} is of one with {found.seq} rows. "
                f"Nothing was released. Its steward puts it back, or a backup with `privadmm ledger restore BACKUP "
                f'{self.path} --because "..."`; for other records, `privadmm ledger create {self.path} --anew '
                '--because "..."` makes another'
            )
        self._anchor.path.unlink()  # of a ledger that was never used

    def _agree(self) -> None:
        """Refuse a policy that is not the ledger's current one."""
        fixed, asked = current_facts(self._db), self.identity.facts()
        for fact in {**asked, **fixed}:
            if fixed.get(fact) != asked.get(fact):
                raise LedgerError(
                    f"{self.path}: this ledger fixed {fact} = {fixed.get(fact)} when it was made or last amended, and "
                    f"the job has {asked.get(fact)}; use the ledger's own, amend it (`privadmm ledger amend`), or name "
                    "another file"
                )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One transaction, without a look at the anchor before it."""
        self._execute("BEGIN IMMEDIATE")
        try:
            self._look()
            yield
            self._execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _look(self) -> None:
        """Forget what is known of the file if another process wrote to it: only an unchanged one is known by heart."""
        version = self._execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._accounts = self._now = None
            self._version = version

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._alone():
            if self._accounts is None:
                self._agree()
            self._hold()
            yield
        if self._changed:
            self._move_on()

    def _roll_back(self) -> None:
        self._accounts = self._now = None
        self._changed = self._moved = False
        # An interrupt as a transaction begins may leave it to be ended after the file was closed, which rolled it back.
        if not self._closed and self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _hold(self) -> None:
        """Refuse a file that lacks what its anchor knows; move the anchor on to what the file has. In a transaction."""
        found = self._compared()
        if not self._anchored:
            return
        now = self._present()
        if found != now:
            self._anchor.move(now, self._known())
        if not self._marked:
            self._execute("INSERT INTO anchored VALUES (?)", time.time())
        if now.doubted:
            raise self._behind(DOUBTED)

    def _compared(self) -> Anchor | None:
        """The anchor, which must know of nothing that the file lacks. In a transaction."""
        if not self._anchored:
            return None
        self._marked = self._marked or self._execute("SELECT count(*) FROM anchored").fetchone()[0] > 0
        found = self._read_anchor()
        if found is None and self._marked:
            raise self._behind(f"its anchor, {self._anchor.path.name}, is missing")
        # An anchor of this very moment knows of nothing else: the rows need not be asked.
        if found is not None and found != self._now and (missing := lacks(self._db, self._start, found)):
            raise self._behind(missing)
        return found

    def _move_on(self) -> None:
        """Move the anchor on to what was committed, by this process or by another."""
        moved, self._changed, self._moved = self._moved, False, False
        if self._anchored:
            self._execute("BEGIN IMMEDIATE")  # whoever writes the anchor holds the lock, so that it never goes back
            try:
                self._look()
                self._anchor.move(self._present(), self._known() if moved else None)
            finally:
                self._db.execute("ROLLBACK")

    def _read_anchor(self) -> Anchor | None:
        try:
            return self._anchor.read()
        except LedgerError as error:
            raise self._behind(str(error)) from error

    def _behind(self, what: str) -> LockedError:
        return LockedError(
            f"{self.path}: is locked: {what}. It was put back from a copy, or moved without its anchor, and may have "
            "forgotten what was released since. Nothing was released. Its steward puts its own files back, or a backup "
            f'with `privadmm ledger restore BACKUP {self.path} --because "..."`, which charges what was lost'
        )

    def _present(self) -> Anchor:
        """The anchor that belongs to the file as it is now. In a transaction."""
        if self._now is None:
            intent = self._execute("SELECT job, round, phase, inbox FROM intents").fetchone()
            step = NONE if intent is None else step_digest(*intent)
            self._now = Anchor(self._start, *self._end(), step, self.doubted)
        return self._now

    def _known(self) -> Known:
        """What must stay known if the file is lost. Called in a transaction."""
        return Known(self.aside(), current_facts(self._db), self.kept_for_all(), self.epochs())

    @property
    def epoch(self) -> str:
        """Name of the time since the steward last decided what missing rows have cost: the hash of that row."""
        row = self._decision()
        return self._start if row is None else str(row[0])

    @property
    def first_epoch(self) -> str:
        return self._start

    @property
    def settled(self) -> tuple[str, ...]:
        """The epochs before this one: rows that are missing from them were decided about."""
        row = self._decision()
        return () if row is None else tuple(json.loads(row[1])["settled"])

    def epochs(self) -> tuple[str, ...]:
        """All epochs that the ledger has heard of: its own, and those of rows that others proved to be missing."""
        proved = self._execute("SELECT outbox FROM ticks WHERE job = '' AND kind = 'behind'").fetchall()
        named = (bytes(outbox).decode() for (outbox,) in proved)
        return tuple(dict.fromkeys([self.epoch, *self.settled, *filter(None, named)]))

    def _decision(self) -> tuple[str, bytes] | None:
        """Hash and content of the last row by which the steward decided about rows of an earlier file."""
        last = "SELECT seq, hash, outbox FROM ticks WHERE job = ? AND kind = ? ORDER BY phase DESC LIMIT 1"
        rows = [self._execute(last, job, kind).fetchone() for job, kind in ((PUT_BACK, "restore"), ("", "anew"))]
        found = max((row for row in rows if row is not None), default=None)
        return None if found is None else (str(found[1]), bytes(found[2]))

    def kept_for_all(self) -> tuple[str, ...]:
        """Names of what was drawn once for all jobs."""
        rows = self._execute("SELECT inbox FROM ticks WHERE kind = 'keep' AND job = '' ORDER BY seq")
        return tuple(name for (name,) in rows)

    def anchor_now(self) -> tuple[Anchor, Known]:
        """What an anchor of this moment says."""
        with self.transaction():
            return self._present(), self._known()

    def aside(self) -> Alike[Spent]:
        """By party, what its jobs have spent or set aside, whichever is more, and what steps under way will cost."""
        steps = [
            unpack_charges(packed)
            for job, packed in self._execute("SELECT job, charges FROM intents").fetchall()
            if self.accounts.of(job).reserved is None
        ]
        return added_all(self.parties, [*(account.counts for account in self.accounts.all().values()), *steps])

    @property
    def doubted(self) -> bool:
        """Whether others hold proof of rows that it lacks, and its steward has not decided what that costs."""
        last = "SELECT kind FROM ticks WHERE kind IN ('behind', 'restore') ORDER BY seq DESC LIMIT 1"
        return bool(self._execute(last).fetchone() == ("behind",))

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise LedgerError(
                f"{self.path}: the ledger could not be written or read ({error}); nothing was released"
            ) from error

    @property
    def head(self) -> str:
        """The end of the hash chain."""
        return self._end()[1]

    @property
    def rows(self) -> int:
        """How many there are."""
        return self._end()[0]

    def _end(self) -> tuple[int, str]:
        """Number and hash of the last row."""
        row = self._execute("SELECT seq, hash FROM ticks ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, self._start) if row is None else (int(row[0]), str(row[1]))

    def _row(self, where: str, *values: Any) -> tuple[str, bytes] | None:
        """The inbox and outbox of a row, which must fit its hash and that of the row before."""
        found = self._execute(f"{ROWS} {where}", *values).fetchone()
        if found is None:
            return None
        *row, stored = found
        before = self._execute("SELECT hash FROM ticks WHERE seq = ?", row[0] - 1).fetchone()
        if link(self._start if row[0] == 1 else str(before and before[0]), tuple(row)) != stored:
            raise LedgerError(f"{self.path}: row {row[0]}: {ALTERED}; nothing was released")
        return str(row[5]), bytes(row[7])

    def append(
        self,
        kind: str,
        job: str,
        at: tuple[int, int],
        inbox: str,
        charges: Mapping[int, Spent] | None = None,
        outbox: bytes = b"",
        state: str = "",
    ) -> str:
        """Add a row to the chain, in a transaction, and return its hash. `at`: its round and phase."""
        account = self.accounts.of(job)  # read before the row is there, which would count it twice
        self.accounts.save()
        before, self._now = self._present(), None
        cost = Alike.of(charges or {})
        when = utc_now() if self.identity.mode == "deployment" else ""
        row = (before.seq + 1, kind, job, *at, inbox, pack_charges(cost), outbox, stamped(state, when))
        seen = link(before.head, row)
        self._execute("INSERT INTO ticks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *row, seen)
        self._execute(ACTIVE, job, time.time())
        self._changed = True
        self._moved = self._moved or (kind not in NOTES and (kind != "tick" or account.reserved is None))
        account.read(kind, cost, (*at, row[-1]))
        if kind == "tick":  # no other row says whether rows are missing, and is so frequent
            self._now = Anchor(self._start, row[0], seen, before.intent, before.doubted)
        return seen

    def count(self, kind: str, job: str = "") -> int:
        """How many rows of a kind a job has: the number of the next one."""
        found: int = self._execute("SELECT count(*) FROM ticks WHERE kind = ? AND job = ?", kind, job).fetchone()[0]
        return found

    @property
    def accounts(self) -> Accounts:
        """What jobs have spent and set aside, read again whenever another process may have written to the file."""
        if self._accounts is None and not self._db.in_transaction:
            with self.transaction():  # they are of one moment of the file
                return self.accounts
        if self._accounts is None:
            self._accounts = Accounts(self.path, self._db, self._start)
        return self._accounts

    def close(self) -> None:
        self._closed = True
        self._db.close()
