"""The register of a ledger: all jobs with who asked for them, what for and when; refusals; decisions of its steward.

It is read from the rows of the chain, and says no more than they do. What a ledger of format 1 did not keep is None. A
simulation keeps no times.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privadmm.privacy.ledger import Asked
from privadmm.privacy.ledger_file import FORMAT, PUT_BACK, connect, readable, time_in
from privadmm.privacy.refusals import SALT

# Kinds of rows by which a steward decided, in words.
DECISIONS = {
    "unlock": "unlocked",
    "amend": "policy amended",
    "restore": "put back from a copy",
    "anew": "made anew",
    "decide": "proposal",
}


@dataclass(frozen=True)
class Entry:
    """A job on record. Times are UTC; None: not recorded, or not yet."""

    job: str
    asked: Asked
    admitted: str | None  # when its cost was set aside
    began: str | None  # the time of its first release
    last: str | None  # the time of its last row
    failed: bool


@dataclass(frozen=True)
class Refusal:
    """A refusal, and how often it came on its day."""

    kind: str
    why: str
    asked: Asked
    job: str | None
    first: str | None
    last: str | None
    count: int | None  # None: not told

    def as_dict(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"kind": self.kind, "why": self.why, "times": self.count}
        facts |= {"first": self.first, "last": self.last, "purpose": self.asked.purpose}
        facts |= {"requester": self.asked.requester, "algorithm": self.asked.algorithm}
        return facts | {"config": self.asked.config, "job": self.job}


@dataclass(frozen=True)
class Decided:
    """A decision of a steward that is on record."""

    what: str
    at: str | None
    why: str | None
    job: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {"what": self.what, "at": self.at, "why": self.why, "job": self.job}


@dataclass(frozen=True)
class Register:
    """What a ledger has on record besides spending."""

    entries: tuple[Entry, ...]
    refusals: tuple[Refusal, ...] | None  # None: the ledger is of format 1, and kept none
    decisions: tuple[Decided, ...]
    partial: bool  # the ledger was of format 1 once, which kept none of this

    def of(self, job: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.job == job), None)

    @property
    def name(self) -> str | None:
        """What people call the party, as its latest job on record says."""
        names = [entry.asked.party for entry in self.entries if entry.asked.party is not None]
        refused = [refusal.asked.party for refusal in self.refusals or () if refusal.asked.party is not None]
        return next(iter([*names[::-1], *refused[::-1]]), None)


def register(path: Path) -> Register:
    """Read the register of a ledger, as of one moment of its file."""
    with readable(path), closing(connect(path, read_only=True)) as db:
        db.execute("BEGIN")
        kept = db.execute("PRAGMA user_version").fetchone()[0] >= FORMAT
        row = db.execute("SELECT seq FROM ticks WHERE job = '' AND kind = 'format'").fetchone()
        return Register(
            tuple(_entries(db)),
            tuple(_refusals(db)) if kept else None,
            tuple(_decisions(db)),
            not kept or row is not None,
        )


def _entries(db: sqlite3.Connection) -> Iterator[Entry]:
    """Jobs in the order of their first rows, as `SqliteLedger.jobs` has them."""
    of_jobs = "SELECT job, max(seq) FROM ticks WHERE job NOT IN ('', ?) GROUP BY job ORDER BY min(seq)"
    first = "SELECT state, outbox FROM ticks WHERE job = ? AND kind = ? ORDER BY round, phase LIMIT 1"
    for job, last in db.execute(of_jobs, (PUT_BACK,)).fetchall():
        kinds = {kind for (kind,) in db.execute("SELECT DISTINCT kind FROM ticks WHERE job = ?", (job,))}
        reserve, tick = (db.execute(first, (job, kind)).fetchone() for kind in ("reserve", "tick"))
        end = db.execute("SELECT state FROM ticks WHERE seq = ?", (last,)).fetchone()
        yield Entry(
            job,
            Asked() if reserve is None else Asked.unpack(bytes(reserve[1])),
            None if reserve is None else time_in(reserve[0]),
            None if tick is None else time_in(tick[0]),
            time_in(end[0]),
            "fail" in kinds,
        )


def _refusals(db: sqlite3.Connection) -> Iterator[Refusal]:
    """Each refusal as its first row says, with its count from its last row, or from the table that counts it since."""
    rows = db.execute("SELECT seq, outbox, state FROM ticks WHERE job = '' AND kind = 'refuse' ORDER BY seq").fetchall()
    said = {seq: (json.loads(bytes(outbox)[SALT:]), time_in(state)) for seq, outbox, state in rows}
    again = {facts["again"]: facts for facts, _ in said.values() if "again" in facts}
    counted = {seq: (count, last or None) for seq, count, last in db.execute("SELECT seq, count, last FROM refused")}
    for seq, (facts, at) in said.items():
        if "again" in facts:
            continue
        later = again.get(seq)
        count, last = (later["count"], later["last"] or None) if later else counted.get(seq, (1, at))
        known = {name: facts.get(name) for name in ("purpose", "requester", "algorithm", "config", "party")}
        yield Refusal(facts["kind"], facts["why"], Asked(**known), facts.get("job"), at, last, count)


def _decisions(db: sqlite3.Connection) -> Iterator[Decided]:
    kinds = ", ".join(f"'{kind}'" for kind in DECISIONS)
    for kind, job, inbox, outbox, state in db.execute(
        f"SELECT kind, job, inbox, outbox, state FROM ticks WHERE kind IN ({kinds}) ORDER BY seq"
    ):
        if kind == "decide":
            said = json.loads(bytes(outbox)[SALT:])
            what = f"proposal {'approved' if said['approved'] else 'refused'}"
            yield Decided(what, time_in(state), said["why"] or None, said["job"])
        elif kind != "restore" or job == PUT_BACK:
            yield Decided(DECISIONS[kind], time_in(state), inbox or None)
