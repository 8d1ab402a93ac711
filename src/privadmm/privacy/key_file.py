"""Keys of secure sums, in a file beside the ledger: one for each job, to be erased, and in no copy of the ledger.

Whoever has a block's key and recorded what it sent could take its masks off again. So a key is drawn for one job, is
erased with it, and is not part of the ledger, which is kept for ever and copied to be safe.

The file also remembers the last tick that was committed for each job. A ledger that lacks it was put back from a copy,
and would answer the same tick again with other noise: its key is erased instead.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from privadmm.errors import LedgerError

At = tuple[int, int]


class KeyFile:
    """The keys of one ledger's jobs."""

    def __init__(self, ledger: Path) -> None:
        self.path = ledger.with_name(f"{ledger.name}-keys")

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        try:
            db = sqlite3.connect(self.path, isolation_level=None, timeout=30)
            try:
                db.execute("PRAGMA secure_delete = ON")
                db.execute("PRAGMA synchronous = EXTRA")
                db.execute("BEGIN IMMEDIATE")
                db.execute("CREATE TABLE IF NOT EXISTS keys (job TEXT PRIMARY KEY, key BLOB, round INT, phase INT)")
                yield db
                db.execute("COMMIT")
            finally:
                db.close()
        except sqlite3.Error as error:
            raise LedgerError(f"{self.path}: the keys could not be written or read ({error})") from error

    def key(self, job: str, make: Callable[[], bytes] | None = None) -> bytes | None:
        """The key of a job: the one that was made first; None if there is none, or if it was erased."""
        if make is None and not self.path.exists():
            return None
        with self._opened() as db:
            row = db.execute("SELECT key FROM keys WHERE job = ?", (job,)).fetchone()
            if row is None and make is not None:
                row = (make(),)
                db.execute("INSERT INTO keys VALUES (?, ?, -1, -1)", (job, *row))
            return None if row is None or row[0] is None else bytes(row[0])

    def sent(self, job: str, at: At, over: bool) -> None:
        """Remember that this tick was committed, if none after it was; the key of a job that is over is erased."""
        if not self.path.exists():
            return
        with self._opened() as db:
            now = "UPDATE keys SET round = ?, phase = ? WHERE job = ? AND (round, phase) < (?, ?)"
            db.execute(now, (*at, job, *at))
            if over:
                db.execute("UPDATE keys SET key = NULL WHERE job = ?", (job,))

    def last(self, job: str) -> At | None:
        """The last tick that was committed; None if none was."""
        if not self.path.exists():
            return None
        with self._opened() as db:
            row = db.execute("SELECT round, phase FROM keys WHERE job = ? AND round >= 0", (job,)).fetchone()
            return None if row is None else (int(row[0]), int(row[1]))

    def erase(self, job: str) -> None:
        """Overwrite the key of a job. That there was one is remembered, so that no other is drawn."""
        if self.path.exists():
            with self._opened() as db:
                db.execute("UPDATE keys SET key = NULL WHERE job = ?", (job,))
