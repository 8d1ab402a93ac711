"""The anchor: a small file beside a ledger that says how far it had come, so that an older copy of it is noticed.

A copy of a ledger is by itself a ledger like any other, and would spend again what was spent since. So the end of the
chain is kept outside of the database too, in `<ledger>-anchor`: number and hash of the last row, and the step that is
under way. It is moved on after each COMMIT and before anything is returned. A crash leaves it behind the ledger by
rows that nobody was sent, and never ahead. A ledger that lacks the anchor's row was put back from a copy.

Its first RECORD bytes are overwritten in place, in one sector of a disk. What follows them, `Known`, is rewritten when
a job begins or ends: what every party has spent or set aside in all, so that a restored backup can be charged with it.
"""

import json
import os
import sqlite3
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from privadmm.data.files import write_bytes
from privadmm.errors import LedgerError
from privadmm.privacy.events import Spent
from privadmm.privacy.ledger_file import pack_charges, sha, unpack_charges

RECORD = 512
FIRST = b"privadmm anchor of a ledger, 1\n"
# Hash at the start of the chain, number and hash of the last row, digest of the step under way, whether rows are known
# to be missing; length and digest of what follows the record.
BODY = struct.Struct("<32sq32s32s?q32s")
NONE = bytes(32).hex()
DOUBTED = "others hold proof of rows that it lacks"


@dataclass(frozen=True)
class Anchor:
    """How far a ledger had come."""

    start: str  # the hash at the start of the chain: whose ledger it is
    seq: int  # number and hash of the last row
    head: str
    intent: str = NONE  # digest of the step under way
    doubted: bool = False  # others hold proof of rows that it lacks, and its steward has not decided yet


@dataclass(frozen=True)
class Known:
    """What must not be lost with a ledger: what is spent or set aside, its policy, what was drawn once for all jobs."""

    aside: Mapping[int, Spent]
    policy: dict[str, str]  # as Identity.facts gives them
    kept: tuple[str, ...]
    epochs: tuple[str, ...] = ()  # the present one, those before it, and those of which others held proof

    def pack(self) -> bytes:
        return json.dumps([pack_charges(self.aside), self.policy, self.kept, self.epochs]).encode()

    @staticmethod
    def unpack(data: bytes) -> "Known":
        aside, policy, kept, *epochs = json.loads(data)
        return Known(unpack_charges(aside), policy, tuple(kept), *map(tuple, epochs))


Record = tuple[Anchor, int, bytes]  # with the length and the digest of what follows it


def step_digest(job: str, round: int, phase: int, inbox: str) -> str:
    """Name of a step that is under way."""
    return sha(job, str(round), str(phase), inbox)


def lacks(db: sqlite3.Connection, start: str, anchor: Anchor) -> str | None:
    """What the ledger whose chain starts from this hash lacks of what its anchor knows; None if nothing."""
    if anchor.start != start:
        return "the anchor beside it is that of another ledger"
    row = db.execute("SELECT hash FROM ticks WHERE seq = ?", (anchor.seq,)).fetchone()
    if anchor.head != (start if anchor.seq == 0 else row and row[0]):
        last = db.execute("SELECT coalesce(max(seq), 0) FROM ticks").fetchone()[0]
        return f"its anchor knows of row {anchor.seq}, and it has {last} rows and not that one"
    if anchor.intent == NONE:
        return None
    ended = "SELECT job, round, phase, inbox FROM ticks WHERE seq > ? AND kind IN ('tick', 'fail')"
    steps = db.execute(ended, (anchor.seq,)).fetchall()
    if db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'intents'").fetchone()[0]:
        steps += db.execute("SELECT job, round, phase, inbox FROM intents").fetchall()
    if all(step_digest(*step) != anchor.intent for step in steps):
        return "its anchor knows of a step that was under way, and it does not"
    return None


class AnchorFile:
    """The anchor of one ledger. Whoever writes to it holds the ledger's write lock."""

    def __init__(self, ledger: Path, durable: bool = True) -> None:
        self.ledger, self.durable = ledger, durable
        self._last: tuple[bytes, Record] | None = None  # the record that was last read or written, and what it says

    @cached_property
    def path(self) -> Path:
        """The anchor's file: the same one by whichever path its ledger is opened."""
        place = self.ledger.resolve()
        return place.with_name(f"{place.name}-anchor")

    def read(self) -> Anchor | None:
        """The anchor's content; None if there is no such file."""
        record = self._read()
        return None if record is None else record[0]

    def known(self) -> Known | None:
        """What was spent or set aside when the anchor was written; None if unknown, or not written in full."""
        record = self._read()
        if record is None:
            return None
        _, length, digest = record
        with self._opened(os.O_RDONLY) as file:
            os.lseek(file, RECORD, os.SEEK_SET)
            data = os.read(file, length)
        return Known.unpack(data) if sha256(data).digest() == digest else None

    def make(self, anchor: Anchor, known: Known | None) -> None:
        """Write a new file, in one step, whatever is there."""
        content = b"" if known is None else known.pack()
        with self._named():
            write_bytes(self.path, _packed(anchor, len(content), sha256(content).digest()) + content, private=True)
            if self.durable:
                _sync_folder(self.path.parent)

    def move(self, anchor: Anchor, known: Known | None) -> None:
        """Overwrite the record in place, and `known` behind it if given. In a deployment, wait until it is on disk."""
        try:
            with self._opened(os.O_RDWR) as file:
                if known is None:
                    _, length, digest = self._record(file)
                else:
                    content = known.pack()
                    length, digest = len(content), sha256(content).digest()
                    _put(file, RECORD, content)
                    os.ftruncate(file, RECORD + length)
                record = _packed(anchor, length, digest)
                _put(file, 0, record)
                self._last = record, (anchor, length, digest)
                if self.durable:
                    getattr(os, "fdatasync", os.fsync)(file)
        except FileNotFoundError:
            self.make(anchor, known)

    def _read(self) -> Record | None:
        with suppress(FileNotFoundError), self._opened(os.O_RDONLY) as file:
            return self._record(file)
        return None

    def _record(self, file: int) -> Record:
        """What the record in the file says, which is made out only if it is another one than before."""
        data = os.read(file, RECORD)
        if self._last is None or self._last[0] != data:
            self._last = data, _unpacked(self.path, data)
        return self._last[1]

    @contextmanager
    def _opened(self, how: int) -> Iterator[int]:
        """A descriptor of the file: it is read and written in every round, by single calls to the system."""
        with self._named():
            file = os.open(self.path, how | getattr(os, "O_BINARY", 0))
            try:
                yield file
            finally:
                os.close(file)

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LedgerError(
                f"{self.path}: the anchor of the ledger could not be written or read ({error.strerror}); "
                "nothing was released"
            ) from error


def _put(file: int, place: int, data: bytes) -> None:
    """Write all of it, or fail: a disk that is full takes a part."""
    os.lseek(file, place, os.SEEK_SET)
    if (written := os.write(file, data)) != len(data):
        raise OSError(28, f"{written} of {len(data)} bytes were written")


def _packed(anchor: Anchor, length: int, digest: bytes) -> bytes:
    start, head, intent = (bytes.fromhex(text) for text in (anchor.start, anchor.head, anchor.intent))
    body = FIRST + BODY.pack(start, anchor.seq, head, intent, anchor.doubted, length, digest)
    return (body + sha256(body).digest()).ljust(RECORD, b"\0")


def _unpacked(path: Path, record: bytes) -> Record:
    end = len(FIRST) + BODY.size
    body, checksum = record[:end], record[end : end + 32]
    if len(record) != RECORD or not body.startswith(FIRST) or sha256(body).digest() != checksum:
        raise LedgerError(f"{path}: is no anchor of a ledger, or damaged")
    start, seq, head, intent, doubted, length, digest = BODY.unpack_from(body, len(FIRST))
    return Anchor(start.hex(), seq, head.hex(), intent.hex(), doubted), length, digest


def _sync_folder(folder: Path) -> None:
    """See that a file's name is on the disk, where the system offers it."""
    if hasattr(os, "O_DIRECTORY"):
        at = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(at)
        finally:
            os.close(at)
