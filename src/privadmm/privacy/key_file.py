"""Keys of secure sums, in a file beside the ledger: one for each job, to be erased, and in no copy of the ledger.

Whoever has a block's key, and recorded what the block sent, could take its masks off. So a key is drawn for one job, is
erased when the job is over, and is not part of the ledger, which is kept for ever and backed up. Nor is it in a
database: SQLite writes pages to journals, which are deleted but not overwritten. Here a job has a record of a fixed
size that stays in its place, and erasing writes zeros over the key itself.

The file also remembers the last tick that was committed for each job. A ledger that lacks that tick was put back from a
copy, and would answer the tick again with other noise: its key is erased instead.
"""

import hashlib
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from privadmm.data.files import write_bytes
from privadmm.errors import LedgerError

At = tuple[int, int]
RECORD = 128  # bytes, so that none crosses a sector of a disk
FIRST = b"privadmm keys of secure sums, 1".ljust(RECORD, b"\n")  # the file's header, as long as a record
NAME, KEY, LAST = 32, 32, struct.Struct("<qq")  # parts of a record: the digest of a job, its key, the tick sent last
ERASED, NONE = bytes(KEY), (-1, -1)


@dataclass(frozen=True)
class KeyFile:
    """The keys of one ledger's jobs. The ledger's lock keeps two processes from making a key at once."""

    ledger: Path

    @cached_property
    def path(self) -> Path:
        """The ledger's file of keys: the same file, by whichever path the ledger is opened."""
        place = self.ledger.resolve()
        return place.with_name(f"{place.name}-keys")

    def key(self, job: str, make: Callable[[], bytes] | None = None) -> bytes | None:
        """The key of a job, made now if it never was and `make` is given; None if there is none, or it was erased."""
        if make is not None and not self.path.exists():
            write_bytes(self.path, FIRST, private=True)
        with self._record(job) as (file, place, private, _):
            if place or make is None:
                return None if private == ERASED else private
            private = make()
            end = file.seek(0, os.SEEK_END) // RECORD * RECORD  # overwrites a record that a crash has cut short
            write(file, end, (_name(job) + private + LAST.pack(*NONE)).ljust(RECORD, b"\0"))
            return private

    def sent(self, job: str, at: At, over: bool) -> None:
        """Remember this committed tick, unless a later one is remembered. If the job is `over`, erase its key."""
        with self._record(job) as (file, place, _, last):
            if place and last < at:
                write(file, place + NAME + KEY, LAST.pack(*at))
        if over:
            self.erase(job)

    def last(self, job: str) -> At | None:
        """The last tick that was committed; None if none was."""
        with self._record(job) as (_, _, _, last):
            return None if last == NONE else last

    def erase(self, job: str) -> None:
        """Overwrite the key of a job with zeros. Its record stays, so that no other key is drawn for the job."""
        with self._record(job) as (file, place, _, _):
            if place:
                write(file, place + NAME, ERASED)

    def erase_ended(self, jobs: Iterable[str]) -> None:
        """Erase the keys of jobs that are over. A damaged file is no error here."""
        for job in jobs:
            with suppress(LedgerError):
                self.erase(job)

    def erase_all(self) -> None:
        """Overwrite every key. A file that cannot be written is removed: without it there is no key either."""
        try:
            if self.path.exists():
                with self._opened() as file:
                    for place in range(RECORD, self.path.stat().st_size - RECORD + 1, RECORD):
                        write(file, place + NAME, ERASED)
        except LedgerError:
            self.path.unlink(missing_ok=True)

    def holds(self, job: str) -> bool:
        """Whether the key of a job may still be there: also if the file is damaged."""
        try:
            return self.key(job) is not None
        except LedgerError:
            return True

    def check_last(self, job: str, last: At | None) -> None:
        """Refuse to go on with a ledger whose last tick of a job is this one, if a later one was committed."""
        sent = self.last(job)
        if sent is not None and (last is None or last < sent):
            self.erase(job)
            raise LedgerError(
                f"{self.ledger}: was put back from a copy that is older than what job {job} has sent; answering again "
                "would be a second release. The job is over here: find out what happened. Nothing was released"
            )

    @contextmanager
    def _record(self, job: str) -> Iterator[tuple[Any, int, bytes, At]]:
        """The open file, the offset of a job's record in it (0: there is none), its key, and its last tick."""
        if not self.path.exists():
            yield None, 0, ERASED, NONE
            return
        with self._opened() as file:
            content, name = file.read(), _name(job)
            if content[:RECORD] != FIRST:
                raise LedgerError(f"{self.path}: is no file of keys, or damaged: the jobs with keys there are over")
            for place in range(RECORD, len(content) - RECORD + 1, RECORD):
                if content[place : place + NAME] == name:
                    private = content[place + NAME : place + NAME + KEY]
                    round, phase = LAST.unpack_from(content, place + NAME + KEY)
                    yield file, place, private, (round, phase)
                    return
            yield file, 0, ERASED, NONE

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            with open(self.path, "r+b", buffering=0) as file:
                yield file
        except OSError as error:
            raise LedgerError(f"{self.path}: the keys could not be written or read ({error.strerror})") from error


def keys_beside(ledger: Path) -> Path | None:
    """The file of a ledger's keys, if there is one."""
    return path if (path := KeyFile(ledger).path).exists() else None


def erase_keys(ledger: Path) -> None:
    """Overwrite every key of a ledger."""
    KeyFile(ledger).erase_all()


def write(file: Any, place: int, data: bytes) -> None:
    """Put bytes where they belong and wait until they are on the disk."""
    file.seek(place)
    file.write(data)
    getattr(os, "fdatasync", os.fsync)(file.fileno())


def _name(job: str) -> bytes:
    return hashlib.sha256(job.encode()).digest()
