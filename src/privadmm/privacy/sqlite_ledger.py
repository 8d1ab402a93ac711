"""The durable ledger: one SQLite file per data set, outliving jobs, that shows when it was tampered with.

A job opens with a row that sets aside what its whole plan costs, so that of two jobs racing for the last of a budget
one is refused at its start and none half way. Then every tick is one row: what was asked (job, round, phase, digest of
the inbox), what it cost (events by party), what was sent, and the digest of the state that was kept. A job that is
given up is closed by a row of its own; what it did not spend is free again. What is drawn once and kept is a row of
round -1, with its name, its event and its bytes.

In a deployment a tick is first an intent, outside the chain: what it will cost, on record before records are read. Its
row takes the intent's place; an interrupt takes it away. An intent without a process at work on it shows a tick that
failed. A row charges that tick, ends its job and locks the ledger; unlocking is a row too. So is another policy, proof
of others that rows are missing, and what a steward charged for them.

Rows are chained by hashes (chain.py), so a row that was altered or removed shows (verification.py says when). An older
copy that was put back shows by the ledger's anchor. The last hash, the head, travels with every release, so that a copy
that was put back with its anchor shows to whoever kept the heads (`verify` with those of a run directory). Heads must
tell nothing: all that is hashed was released, is a policy, a job's public fact, a time or a steward's reason, but for
what is kept, why a tick failed, what was refused and what was said of a proposal, which are hashed behind a secret of
their own. The row that opens a job says who asked for it and what for (register.py); what is refused is a row, too
(refusals.py). In a deployment every row says when it was written.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import NoReturn, SupportsBytes

from privadmm.data.arrays import Ints
from privadmm.errors import LedgerError, LockedError, RefusedError
from privadmm.privacy.alike import Alike, together
from privadmm.privacy.amendments import check_amended
from privadmm.privacy.anchor import NONE
from privadmm.privacy.events import Charges, Event, Spent, added_all, less, merge_all
from privadmm.privacy.key_file import KeyFile
from privadmm.privacy.ledger import NOBODY, Asked, Keepsake, Tick, affordable, match_digest, permitted, tallied
from privadmm.privacy.ledger_file import PUT_BACK, Receipt, alone_beside, pack_charges, readable, sha, unpack_charges
from privadmm.privacy.policy import Policy
from privadmm.privacy.refusals import SALT, RefusalLog

OF_TICK = "WHERE job = ? AND round = ? AND phase = ?"
KEPT = (  # in its place, like ACTIVE of chain.py
    "INSERT INTO states VALUES (?, ?, ?, ?) ON CONFLICT (job) "
    "DO UPDATE SET round = excluded.round, phase = excluded.phase, state = excluded.state"
)
DIED = "the process was killed in the middle of this step, or its machine went down"


class SqliteLedger(RefusalLog):
    """The ledger of a block of parties in one file. A file that exists must have the same parties and policy."""

    _turn = False
    _intended: Tick | None = None  # the step that this transaction puts on record as under way
    _latest: tuple[Tick, str] | None = None  # the receipt of the tick that was committed last

    @cached_property
    def _keys(self) -> KeyFile:
        return KeyFile(self.path)

    def _roll_back(self) -> None:
        self._latest = self._intended = None
        super()._roll_back()

    @contextmanager
    def turn(self, patience: float = 30.0) -> Iterator[None]:
        """Be alone with a deployment's ledger, while this process lives. A tick that died is recorded as failed."""
        if not self.guards or self._turn:
            yield
            return
        try:
            with alone_beside(self.path, patience):
                self._turn = True
                with readable(self.path), self.transaction():
                    died = [Tick(*row) for row in self._execute("SELECT job, round, phase FROM intents").fetchall()]
                    for tick in died:
                        self._fail(tick, DIED)
                self._keys.erase_ended(tick.job for tick in died)
                if self.failed is not None:
                    raise self._locked()
                yield
        finally:
            self._turn = False

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
        row = self._execute(f"SELECT outbox FROM ticks {OF_TICK} AND kind = 'fail'", *tick.key).fetchone()
        return bytes(row[0])[SALT:].decode(errors="replace")

    def intend(self, tick: Tick, inbox: str, charges: Charges) -> None:
        if self.guards:
            packed = pack_charges(tallied(charges))
            self._execute("INSERT INTO intents VALUES (?, ?, ?, ?, ?)", *tick.key, inbox, packed)
            self._intended, self._now = tick, None
            self._changed, self._moved = True, self._moved or self.accounts.of(tick.job).reserved is None

    def _move_on(self) -> None:
        tick, self._intended = self._intended, None
        try:
            super()._move_on()
        except LedgerError:
            if tick is not None:  # no record was read yet, so the step is taken back
                with suppress(Exception):
                    self.withdraw(tick)
            raise

    def withdraw(self, tick: Tick) -> None:
        self._roll_back()  # the interrupt may have come just before a transaction that was begun could handle it
        with self._alone():
            known = self._compared()
            self._forget(tick)
            if known is not None and known.intent != NONE:  # before the COMMIT: after a crash it would seem lost
                self._anchor.move(self._present(), None)

    @property
    def guards(self) -> bool:
        return self.identity.mode == "deployment"

    def fail(self, tick: Tick, why: str) -> None:
        with suppress(Exception), self.transaction():  # without a row, the intent says it to the next turn
            if self.receipt(tick) is None:
                self._fail(tick, why)
        sent = False
        with suppress(Exception):
            sent = self.failed is None and self.receipt(tick) is not None
        if sent:
            raise LedgerError(
                f"{self.path}: a step is on record, and its anchor could not be written, so it was not sent. Make room "
                "on the disk and ask for it again"
            )
        self._keys.erase_ended([tick.job])
        locked = self._locked()
        locked.recorded = True  # as a failure; what is asked for from now on is refused
        raise locked

    def _fail(self, tick: Tick, why: str) -> None:
        intents = self._execute(f"SELECT inbox, charges FROM intents {OF_TICK}", *tick.key)
        inbox, packed = intents.fetchone()
        self._forget(tick)
        reason = secrets.token_bytes(SALT) + why.encode()
        self.append("fail", tick.job, (tick.round, tick.phase), inbox, unpack_charges(packed), reason)

    def _forget(self, tick: Tick) -> None:
        self._execute(f"DELETE FROM intents {OF_TICK}", *tick.key)
        self._now = None

    def unlock(self, why: str) -> None:
        """Put the steward's decision on record. What the failed tick cost stays charged, and its job stays over."""
        with self.transaction():
            if self.failed is None:
                raise LedgerError(f"{self.path}: is not locked")
            self.append("unlock", "", (-1, self.count("unlock")), why)

    def recall(self, tick: Tick, inbox: str) -> bytes | None:
        row = self._row(f"{OF_TICK} AND kind = 'tick'", *tick.key)
        if row is None:
            return None
        match_digest(row[0], inbox, tick)
        return row[1]

    def reserve(self, job: str, charges: Mapping[int, Spent], asked: Asked = NOBODY) -> None:
        with self.turn(), self.transaction():
            known = self.accounts.of(job).reserved
            if known is None:
                affordable(self, job, charges)
                self.append("reserve", job, (-1, -1), "", charges, asked.pack())
            elif known != charges or self.over(job):
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
                self.append("close", job, (-1, -1), "")
        self._keys.erase_ended([job])

    def freed_by(self, job: str) -> dict[int, Spent]:
        """By party, what `close_job` would free: set aside and not spent. Empty if there is nothing."""
        account = self.accounts.of(job)
        if account.reserved in (None, account.spent) or account.over:
            return {}
        held = together(account.reserved, account.spent.over(account.reserved.ids, ()))
        return dict(held.map(lambda pair: less(*pair)))

    def unfinished(self, job: str) -> bool:
        """Whether the job may still release something."""
        account = self.accounts.of(job)
        return not account.over and account.reserved != account.spent

    def still_owed(self, job: str) -> dict[int, Spent]:
        """What an unfinished job may have cost beyond what is on record: what it set aside, or its step under way."""
        if self.accounts.of(job).reserved is not None:
            return self.freed_by(job)
        rows = self._execute("SELECT charges FROM intents WHERE job = ?", job).fetchall()
        return {party: charge for (packed,) in rows for party, charge in unpack_charges(packed).items()}

    def forget_steps(self) -> None:
        """Forget the steps under way, of a copy whose jobs are over and charged."""
        self._execute("DELETE FROM intents")
        self._now = None

    def amend(self, policy: Policy, why: str) -> None:
        """Put another policy in the place of the current one, on record; what was spent stays. Use the ledger anew."""
        with self.turn(), self.transaction():
            amended = check_amended(self, policy, why)
            self.append("amend", "", (-1, self.count("amend")), why, outbox=json.dumps(amended.facts()).encode())
            self.identity, self.policy = amended, amended.policy

    def lock_behind(self, why: str, epoch: str = "") -> NoReturn:
        """Lock it, since others hold proof of rows that it lacks: its steward decides what these have cost.

        `epoch` is that of the rows, which the decision then settles.
        """
        with self.transaction():
            self.append("behind", "", (-1, self.count("behind")), why, outbox=epoch.encode())
        raise self._behind(why)

    def has(self, receipt: Receipt) -> bool:
        """Whether the ledger has the row of this receipt."""
        job, round, phase, seen = receipt
        return self.receipt(Tick(job, round, phase)) == seen

    def silent(self) -> dict[str, float]:
        """The jobs that hold something and had no row for longer than the policy allows, with the time of the last."""
        before = time.time() - 86400 * self.policy.silent_days
        rows = self._execute("SELECT job, at FROM activity WHERE at < ? ORDER BY at", before).fetchall()
        return {job: at for job, at in rows if self.freed_by(job)}

    def permit(self, job: str, charges: Charges) -> None:
        permitted(self, job, tallied(charges))

    def commit(self, tick: Tick, inbox: str, charges: Charges, outbox: SupportsBytes, state: SupportsBytes) -> None:
        if self.guards:
            self._forget(tick)
        at, sent, kept = (tick.round, tick.phase), bytes(outbox), bytes(state)
        self._latest = (tick, self.append("tick", tick.job, at, inbox, tallied(charges), sent, sha(kept)))
        self._execute(KEPT, *tick.key, kept)

    def keep(self, job: str, name: str, make: Callable[[], bytes], event: Event | None) -> bytes:
        with self.transaction():
            if (stored := self.kept(job, name)) is not None:
                return stored
            data = make()
            charges = {} if event is None else dict.fromkeys(self.ids, ((event, 1),))
            self.append("keep", job, (-1, self.count("keep", job)), name, charges, secrets.token_bytes(SALT) + data)
        return data

    def kept(self, job: str, name: str) -> bytes | None:
        row = self._row("WHERE kind = 'keep' AND job = ? AND inbox = ?", job, name)
        if row is None:
            if self.count("keep", job) != self.accounts.of(job).kept:
                raise LedgerError(f"{self.path}: a row of what was drawn once was removed; nothing was released")
            return None
        return row[1][SALT:]

    def keepsakes(self) -> tuple[Keepsake, ...]:
        rows = self._execute("SELECT job, inbox, charges FROM ticks WHERE kind = 'keep' ORDER BY seq")
        events = ((job, name, next(iter(unpack_charges(text).values()), ())) for job, name, text in rows)
        return tuple(Keepsake(job, name, charge[0][0] if charge else None) for job, name, charge in events)

    def latest(self, job: str) -> tuple[Tick, bytes] | None:
        row = self._execute("SELECT round, phase, state FROM states WHERE job = ?", job).fetchone()
        stored = None if row is None else (row[0], row[1], sha(row[2]))
        if stored != self.accounts.of(job).last:
            raise LedgerError(f"{self.path}: job {job}: the state that is kept is not the one of its last row")
        return None if row is None else (Tick(job, row[0], row[1]), bytes(row[2]))

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
        return merge_all(account.counts.get(party, ()) for name, account in accounts if name != job)

    def charged(self, parties: Ints, job: str | None = None) -> Alike[Spent]:
        if job is not None:
            return self.accounts.of(job).spent.over(parties, ())
        return added_all(parties, (account.spent for account in self.accounts.all().values()))

    def promised(self, parties: Ints, job: str) -> Alike[Spent | None]:
        known = self.accounts.of(job).reserved
        return Alike.same(parties, None) if known is None else known.over(parties, ())

    def elsewhere(self, parties: Ints, job: str) -> Alike[Spent]:
        accounts = self.accounts.all().items()
        return added_all(parties, (account.counts for name, account in accounts if name != job))

    def jobs(self) -> list[str]:
        """The jobs that have rows, in the order of their first ones."""
        rows = self._execute("SELECT job FROM ticks WHERE job NOT IN ('', ?) GROUP BY job ORDER BY min(seq)", PUT_BACK)
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
        row = self._execute(f"SELECT hash FROM ticks {OF_TICK} AND kind = 'tick'", *tick.key).fetchone()
        return None if row is None else str(row[0])
