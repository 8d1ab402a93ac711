"""Verify a durable ledger: in full when a job begins or its steward asks, and from the last verified row at every use.

In full means every page, hash, state, total and summary of the file, and the receipts that others keep of it. That
takes the longer, the more was ever released. `Accounts` verifies only the rows that were added since the last use.
"""

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from privadmm.data.files import finite
from privadmm.errors import LedgerError
from privadmm.privacy.accounting import epsilon, printed, together
from privadmm.privacy.anchor import DOUBTED, AnchorFile, lacks
from privadmm.privacy.events import alone, merge_all
from privadmm.privacy.ledger_file import (
    ALTERED,
    ROWS,
    Account,
    Identity,
    Receipt,
    connect,
    count_seal,
    link,
    printable,
    readable,
    same_but_for_policy,
    sha,
    start_of,
    unpack_charges,
)


class Accounts:
    """The accounts of a ledger's jobs, from its summaries and the rows after them.

    The table `summaries` holds, for each job, its account up to one of its rows (`seq`), sealed with that row's hash.
    All rows up to the newest of these are covered by the summaries, and were verified before. Rows after it must chain
    on from its hash, and are verified here; `save` then moves the summaries on. So each use reads what the last one
    wrote, whatever the ledger's age. A ledger without summaries is read from its first row.

    An altered row that a summary covers is noticed when it is read again, or by the next full verification. Everything
    else fails closed here: a summary without its row or with another account, a job without its summary, rows that do
    not chain on. Hashes have no key: whoever can write to the file and computes them again is found by receipts alone.
    """

    def __init__(self, path: Path, db: sqlite3.Connection, start: str) -> None:
        """Read the accounts in one transaction of `db`. The first row chains on from `start`."""
        self._path, self._db = path, db
        self._known: dict[str, Account] = {}
        self._unsaved: dict[str, tuple[int, str]] = {}  # number and hash of the last row of each job with new rows
        with readable(path):
            self._verify_tail(start)

    def _verify_tail(self, head: str) -> None:
        db = self._db
        self._covered: int = db.execute("SELECT coalesce(max(seq), 0) FROM summaries").fetchone()[0]
        seq = self._covered
        if seq:
            row = db.execute("SELECT hash FROM ticks WHERE seq = ?", (seq,)).fetchone()
            if row is None:
                raise LedgerError(f"row {seq}, the last one that was verified, is missing: a tail was cut off")
            head = row[0]
        elif damage := damaged_pages(db):
            raise LedgerError(damage[0])
        for *row, stored in db.execute(f"{ROWS} WHERE seq > ? ORDER BY seq", (seq,)):
            number, kind, job, round, phase, _, charges, _, state = row
            self.of(job).read(kind, unpack_charges(charges), (round, phase, state))
            seq, head = seq + 1, link(head, tuple(row))
            if (number, stored) != (seq, head):
                raise LedgerError(f"row {number}: {ALTERED}")
            self._unsaved[job] = (seq, head)

    def of(self, job: str) -> Account:
        """The account of one job; an empty one if the ledger has no row of that job."""
        if job not in self._known:
            with readable(self._path):
                self._known[job] = self._summary(job)
        return self._known[job]

    def all(self) -> dict[str, Account]:
        """Every job's account; a job that has rows and no summary is an error."""
        for (job,) in self._db.execute("SELECT DISTINCT job FROM ticks").fetchall():
            self.of(job)
        return self._known

    def _summary(self, job: str) -> Account:
        row = self._db.execute(
            "SELECT account, seal, hash FROM summaries LEFT JOIN ticks USING (seq, job) WHERE job = ?", (job,)
        ).fetchone()
        if row is not None:
            account, seal, head = row
            if head is None or seal != sha(head, job, account):
                raise LedgerError(f"the summary of job {printable(job)} does not match its last row")
            return Account.unpack(account)
        before = "SELECT count(*) FROM (SELECT 1 FROM ticks WHERE job = ? AND seq <= ? LIMIT 1)"
        if self._db.execute(before, (job, self._covered)).fetchone()[0]:
            raise LedgerError(f"job {printable(job)} has rows and no summary of them")
        return Account()

    def save(self) -> None:
        """Put the accounts of verified rows on record. Call it in a transaction, before another row is counted."""
        for job, (seq, head) in self._unsaved.items():
            account = self._known[job].pack()
            self._db.execute(
                "INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?)", (seq, job, account, sha(head, job, account))
            )
        self._unsaved = {}


@dataclass(frozen=True)
class Verification:
    """The outcome of a full verification of a ledger; `problems` is empty if everything fits."""

    rows: int
    head: str
    problems: tuple[str, ...]
    epsilon: dict[int, float]
    if_all_collude: dict[int, float]  # epsilon if everybody else colluded in every secure sum; empty without any
    adjacency: str
    behind: str | None = None  # rows that the anchor knows and it lacks: it was put back from a copy, and is locked
    receipts: tuple[str, ...] = ()  # the problems with what others received; the rows themselves may fit
    weak: str | None = None  # the warning of a total that promises little
    unanchored: bool = False  # its anchor is not beside it: it is a backup, or was moved without the anchor


def verify(path: Path, heads: Sequence[Receipt] = ()) -> Verification:
    """Recompute every hash and every total. `heads` are (job, round, phase, head) as others received them."""
    with readable(path):
        try:
            anchor, behind = AnchorFile(path).read(), None  # read before the rows, so that it is never ahead of them
        except LedgerError as error:
            anchor, behind = None, str(error)
        with closing(connect(path, read_only=True)) as db:
            db.execute("BEGIN")  # all reads see one moment of the file, whoever writes to it
            verified = _verify(db, heads)
            if anchor is not None:
                behind = lacks(db, start_of(db).hash, anchor) or (DOUBTED if anchor.doubted else None)
            marked = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'anchored'").fetchone()[0]
            had = marked and db.execute("SELECT count(*) FROM anchored").fetchone()[0]
            return replace(verified, behind=behind, unanchored=bool(had) and anchor is None and behind is None)


def sound(path: Path) -> None:
    """Refuse a ledger whose full verification finds a problem."""
    if problems := verify(path).problems:
        raise LedgerError(f"{path}: {problems[0]}; see `privadmm ledger verify {path}`")


def damaged_pages(db: sqlite3.Connection) -> list[str]:
    """Damage that SQLite finds in the file and the rows' hashes do not show, such as an index that lacks a row."""
    lines = (line for (line,) in db.execute("PRAGMA integrity_check"))
    return [f"SQLite finds the file damaged: {printable(line)}" for line in lines if line != "ok"]


def _verify(db: sqlite3.Connection, heads: Sequence[Receipt]) -> Verification:
    problems = damaged_pages(db)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
    if "intents" in tables:
        for (charges,) in db.execute("SELECT charges FROM intents"):
            unpack_charges(charges)  # the cost of a tick that is under way, or was killed, must be readable
    made = identity = start_of(db)
    rows = db.execute(f"{ROWS} ORDER BY seq").fetchall()
    states = {job: (round, phase, sha(state)) for job, round, phase, state in db.execute("SELECT * FROM states")}
    summaries = db.execute("SELECT * FROM summaries").fetchall() if "summaries" in tables else []
    covered = max((seq for seq, *_ in summaries), default=0)
    head, known, accounts = made.hash, {}, defaultdict[str, Account](Account)
    decided = ""  # names the last row by which the steward decided on missing rows
    ends: dict[str, tuple[int, str]] = {}  # number and hash of each job's last row so far
    for place, (*row, stored) in enumerate(rows, start=1):
        seq, kind, job, round, phase, _, charges, _, state = row
        whose = printable(f"job {job}" if job else "the data set")
        name = f"row {seq} ({f'round {round + 1}' if kind == 'tick' else printable(kind)} of {whose})"
        if seq != place:
            problems.append(f"{name}: stands where row {place} should")
        if link(head, tuple(row)) != stored:
            problems.append(f"{name}: {ALTERED}")
        head = stored  # also after a break, so that the rows after it are not all named as broken
        accounts[job].read(kind, unpack_charges(charges), (round, phase, state))
        ends[job] = (seq, stored)
        if kind == "tick":
            known[job, round, phase] = stored
        if kind in ("restore", "anew"):
            decided = f" (row {seq} is its steward's decision of what earlier rows that are missing have cost)"
        if kind == "amend":
            identity = Identity.of(json.loads(row[7]))
            if not same_but_for_policy(made, identity):
                problems.append(f"{name}: amends what is fixed: mode, parties, adjacency or label_epsilon")
        if seq == covered and not _fit(summaries, ends, accounts):
            problems.append(f"{name}: the summaries that end with it do not match the rows")
    if covered > len(rows):
        problems.append(f"row {covered}, which was verified before, is missing: a tail was cut off")
    for job, account in accounts.items():
        if account.last is not None and states.get(job) != account.last:
            problems.append(f"job {printable(job)}: the state that is kept is not the one of its last row")
    problems += _wrong_counts(db) if "refused" in tables else []
    strangers = {job for job, *_ in heads} - accounts.keys()
    receipts = [
        f"job {job} is not in this ledger: the run used another one, or this one is older than the run{decided}"
        for job in sorted(strangers)
    ]
    for job, round, phase, seen in heads:
        if job not in strangers and known.get((job, round, phase)) != seen:
            what = "is another now" if (job, round, phase) in known else "is not in the ledger"
            receipts.append(
                f"round {round + 1} of job {job} was received from these parties, and {what}: "
                f"a tail was cut off, or a backup was put back{decided}"
            )
    budget, totals, apart = identity.policy.budget, {}, {}
    spends = {
        party: merge_all(account.spent.get(party, ()) for account in accounts.values()) for party in identity.parties
    }
    for party, spent in spends.items():
        totals[party] = epsilon(spent, budget.delta) if budget else math.inf
        if budget and (by_itself := alone(spent)) is not None:
            apart[party] = epsilon(by_itself, budget.delta)
        if budget is not None and totals[party] > budget.epsilon:
            problems.append(
                f"party {party} has spent epsilon = {printed(totals[party], '.6g')} of {budget.epsilon:.6g}"
            )
    everything = tuple(problems + receipts)
    policy = identity.policy
    person = together(list(spends.values()), budget.delta) if budget and policy.adjacency == "person" else None
    return Verification(
        len(rows),
        head,
        everything,
        totals,
        apart,
        policy.adjacency,
        receipts=tuple(receipts),
        weak=policy.weak_total(map(finite, totals.values()), finite(person)),
    )


def _fit(
    summaries: list[tuple[int, str, str, str]], ends: dict[str, tuple[int, str]], accounts: dict[str, Account]
) -> bool:
    """Whether the summaries (seq, job, account, seal) are those that the rows of every job give."""
    return {job: seq for seq, job, _, _ in summaries} == {job: seq for job, (seq, _) in ends.items()} and all(
        seal == sha(ends[job][1], job, account) and Account.unpack(account) == accounts[job]
        for _, job, account, seal in summaries
    )


def _wrong_counts(db: sqlite3.Connection) -> list[str]:
    """The problems in the counts of refusals (refusals.py). Each count is sealed with the hash of its row."""
    counts = "SELECT key, day, seq, count, last, seal, hash, inbox FROM refused LEFT JOIN ticks USING (seq)"
    return [
        f"the count of refusals like row {values[2]} was altered"
        for *values, seal, row, key in db.execute(counts)
        if row is None or key != values[0] or seal != count_seal(row, *values)
    ]
