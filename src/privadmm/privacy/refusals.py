"""Refusals on record: what was asked and not done, when, and why, in the ledger's chain.

A refusal is decided by public facts before a record is read, and its reason names nothing else. Putting it on record
never changes it: if the ledger cannot be written, the disk is full or the copy is locked, the record is lost and the
refusal stands. Nor can whoever asks fill the ledger with refusals. On each UTC day (in a simulation, which has no
clock: in all)

    the first refusal of a kind, for a reason, by somebody     a row of kind `refuse`
    the same again                                             counted in the table `refused`, up to COUNTED
    further ones, once MOST different ones are listed          counted by kind alone

and when the day is over, one more row for each that was counted. So a day adds at most 2 (MOST + kinds) rows, however
often somebody asks. What a row says stands behind a secret of its own: the head, which travels with releases, must not
tell a coordinator what others asked for, nor what its steward said of it.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from privadmm.errors import LockedError, RefusedError, visible
from privadmm.privacy.chain import Chain
from privadmm.privacy.ledger import Asked
from privadmm.privacy.ledger_file import count_seal, sha, utc_now

MOST = 10  # different refusals of a day that are listed
COUNTED = 10_000  # how often the same refusal is counted in a day; beyond that nothing is written
LONGEST = 500  # characters of a reason
PATIENCE = 5.0  # seconds to wait for whoever writes to the ledger
SALT = 32  # bytes of secret before what a row says, without which guesses could be tried on a head
LOCKED = "the ledger is locked until its steward decides"
MORE = "other reasons, beyond those that are listed for this day"


class RefusalLog(Chain):
    """A chain that keeps refusals."""

    def note_refusal(self, error: RefusedError | LockedError, asked: Asked, job: str = "") -> None:
        """Put a refusal on record if that can be done at once. It never raises, and changes nothing else."""
        if error.recorded or self._db.in_transaction:
            return
        # The message of a LockedError may tell of records.
        why = LOCKED if isinstance(error, LockedError) else str(error).replace(f"{self.path.parent}/", "")
        facts = {"kind": error.kind, "why": bounded(why), **asked.told()}
        with suppress(Exception):
            self._db.execute(f"PRAGMA busy_timeout = {int(1000 * PATIENCE)}")
            try:
                with self.transaction():
                    self._count(facts, job)
                error.recorded = True
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {int(1000 * self._patience)}")

    def note_decision(self, job: str, approved: bool, why: str) -> None:
        """Put on record what the steward said about a proposed job."""
        said = {"job": job, "approved": approved, "why": bounded(why)}
        with self.transaction():
            self._say("decide", "", said)

    def _count(self, facts: dict[str, Any], job: str) -> None:
        now = utc_now() if self.identity.mode == "deployment" else ""
        day = now[:10]
        self._end_days(day)
        listed = self._execute("SELECT count(*) FROM refused").fetchone()[0]
        key = sha("refusal", json.dumps(facts, sort_keys=True))
        if self._counted(key) is None and listed >= MOST:
            facts = {"kind": facts["kind"], "why": MORE}
            key = sha("refusals", json.dumps(facts, sort_keys=True))
        known = self._counted(key)
        if known is None:
            seq = self._row_of(key, {**facts, **({"job": job} if job else {}), "count": 1})
            self._keep(key, day, seq, 1, now)
        elif known[1] < COUNTED:
            self._keep(key, day, known[0], known[1] + 1, now)

    def _counted(self, key: str) -> tuple[int, int] | None:
        """The number of the row of a refusal of this day, and how often it came."""
        row = self._execute("SELECT seq, count FROM refused WHERE key = ?", key).fetchone()
        return None if row is None else (int(row[0]), int(row[1]))

    def _keep(self, key: str, day: str, seq: int, count: int, last: str) -> None:
        values = (key, day, seq, count, last)
        row = self._execute("SELECT hash FROM ticks WHERE seq = ?", seq).fetchone()
        self._execute("INSERT OR REPLACE INTO refused VALUES (?, ?, ?, ?, ?, ?)", *values, count_seal(row[0], *values))

    def _row_of(self, key: str, said: dict[str, Any]) -> int:
        self._say("refuse", key, said)
        return self.rows

    def _say(self, kind: str, key: str, said: dict[str, Any]) -> None:
        # A simulation hides nothing: its rows have to be the same whenever it runs.
        salt = secrets.token_bytes(SALT) if self.identity.mode == "deployment" else bytes(SALT)
        self.append(kind, "", (-1, self.count(kind)), key, outbox=salt + json.dumps(said).encode())

    def _end_days(self, today: str) -> None:
        """Put what was counted on earlier days into the chain, and begin to count again."""
        for key, seq, count, last in self._execute(
            "SELECT key, seq, count, last FROM refused WHERE day != ? ORDER BY seq", today
        ).fetchall():
            if count > 1:
                self._row_of(key, {"again": seq, "count": count, "last": last})
            self._execute("DELETE FROM refused WHERE key = ?", key)


def bounded(text: str, most: int = LONGEST) -> str:
    """A text of limited length on one line, in which hidden characters are shown by their numbers."""
    shown = visible(text[:most])
    return shown if len(shown) <= most and len(text) <= most else f"{shown[: most - 1]}…"


@contextmanager
def recording(ledger: Any, asked: Asked, job: str = "") -> Iterator[None]:
    """Put refusals inside the `with` block on record in this ledger."""
    try:
        yield
    except (RefusedError, LockedError) as error:
        ledger.note_refusal(error, asked, job)
        raise
