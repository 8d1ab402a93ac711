"""Looking a durable ledger through: every hash, every state, every total, and what others received from it."""

import math
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from privadmm.errors import LedgerError
from privadmm.privacy.accounting import epsilon, printed
from privadmm.privacy.events import Spent, merge
from privadmm.privacy.ledger_file import (
    Account,
    Identity,
    Receipt,
    connect,
    link,
    printable,
    readable,
    sha,
    unpack_charges,
)


@dataclass(frozen=True)
class Verification:
    """What a look at a ledger file found; `problems` is empty when everything fits."""

    rows: int
    head: str
    problems: tuple[str, ...]
    epsilon: dict[int, float]
    adjacency: str


def verify(path: Path, heads: Sequence[Receipt] = ()) -> Verification:
    """Recompute every hash and every total. `heads` are (job, round, phase, head) as others received them."""
    with readable(path):
        return looked_through(path, heads)


def sound(path: Path) -> None:
    """Refuse to show or change a ledger in which something does not fit."""
    if problems := verify(path).problems:
        raise LedgerError(f"{path}: {problems[0]}; see `privadmm ledger verify {path}`")


def looked_through(path: Path, heads: Sequence[Receipt]) -> Verification:
    problems: list[str] = []
    with closing(connect(path, read_only=True)) as db:
        db.execute("BEGIN")  # one moment of the file, whoever writes to it
        # An index that lacks a row would have a release made a second time: the hashes of rows do not show that.
        for (said,) in db.execute("PRAGMA integrity_check"):
            if said != "ok":
                problems.append(f"SQLite finds the file damaged: {printable(said)}")
        if db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'intents'").fetchone()[0]:
            for (charges,) in db.execute("SELECT charges FROM intents"):
                unpack_charges(charges)  # a step that is under way, or was killed: what it costs must be readable
        identity = Identity.of(dict(db.execute("SELECT fact, value FROM identity")))
        rows = db.execute(
            "SELECT seq, kind, job, round, phase, inbox, charges, outbox, state, hash FROM ticks ORDER BY seq"
        ).fetchall()
        states = {row[0]: row[1:] for row in db.execute("SELECT job, round, phase, state FROM states")}
    charges = [unpack_charges(row[6]) for row in rows]
    head, known, kept, accounts = identity.hash, {}, {}, defaultdict[str, Account](Account)
    for place, ((*row, stored), charge) in enumerate(zip(rows, charges, strict=True), start=1):
        seq, kind, job, round, phase, *_, state = row
        whose = printable(f"job {job}" if job else "the data set")
        name = f"row {seq} ({f'round {round + 1}' if kind == 'tick' else printable(kind)} of {whose})"
        if seq != place:
            problems.append(f"{name}: stands where row {place} should")
        head = link(head, tuple(row))
        if head != stored:
            problems.append(f"{name}: its hash does not fit; this row or one before it was altered or removed")
            head = stored  # go on from what is there, to name the next break and not every row after this one
        accounts[job].read(kind, charge)
        if kind == "tick":
            known[job, round, phase], kept[job] = stored, (round, phase, state)
    for job, (round, phase, state) in kept.items():
        found = states.get(job)
        if found is None or (*found[:2], sha(found[2])) != (round, phase, state):
            problems.append(f"job {printable(job)}: the state that is kept is not the one of its last row")
    strangers = {job for job, *_ in heads} - {row[2] for row in rows}
    problems += [f"job {job} is not in this ledger: it was made with another, or removed" for job in strangers]
    for job, round, phase, seen in heads:
        if job in strangers:
            continue
        if known.get((job, round, phase)) != seen:
            what = "is another now" if (job, round, phase) in known else "is not in the ledger"
            problems.append(
                f"round {round + 1} of job {job} was received from these parties, and {what}: "
                "a tail was cut off, or a backup was put back"
            )
    budget, totals = identity.policy.budget, {}
    for party in identity.parties:
        spent: Spent = ()
        for account in accounts.values():
            spent = merge(spent, account.spent.get(party, ()))
        totals[party] = epsilon(spent, budget.delta) if budget else math.inf
        if budget is not None and totals[party] > budget.epsilon:
            problems.append(
                f"party {party} has spent epsilon = {printed(totals[party], '.6g')} of {budget.epsilon:.6g}"
            )
    return Verification(len(rows), head, tuple(problems), totals, identity.policy.adjacency)
