"""A party's packed records, kept in its cache/, so that a letter neither parses a file nor fills memory.

    cache/source.json     the digest of the file of records, and the file's size, inode and times at that moment
    cache/*.packed        packed records: a header, then arrays, which are mapped into memory when they are read

An entry is named by a digest of the file's content and of all that decides how it is read and packed, the code
included. So it holds, bit for bit, what reading the file again would give. If anything is wrong with the cache, the
file is read again.

How a change of the file is seen. A letter does not read the whole file: it compares size, inode, mtime and ctime. A
program can set ctime only by writing to the file, or by turning back the clock of the machine. A file that is written
twice within one tick of that clock has the same times. So times count only if they were older than `SETTLED` seconds
when the digest was taken; else the digest is taken again at every letter. Every job takes it again when it begins,
whatever the times say. Two changes stay unseen: after the clock was turned back, and by a program that has the file
mapped. All of the job is then answered with the records that the party held when it began, so nobody learns more than
the ledger says.
"""

import hashlib
import io
import json
import mmap
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from privadmm.data.arrays import digest
from privadmm.data.files import PARTIAL, for_owner, write_bytes
from privadmm.data.storage import ALIGN, reserve

T = TypeVar("T")
FOLDER, SOURCE, ENTRY = "cache", "source.json", ".packed"
HEADER = 4096  # bytes of a header with its digest, filled up with spaces
SETTLED = 2.0  # seconds, longer than a tick of any file system's clock
KEPT = 4  # entries of one file of records, since jobs clip and split in several ways
ABANDONED = 3600.0  # seconds after which a half-written file counts as left behind
State = list[int]


class UnfitError(Exception):
    """A cache file cannot be used or written; the message is for the party's own log."""


@dataclass(frozen=True)
class Cache:
    """The cache of one party's directory. `tell` writes a line into the party's own log."""

    folder: Path
    tell: Callable[[str], None]

    def fetch(self, source: Path, reading: Sequence[Any], kind: type[T], read: Callable[[], T], anew: bool) -> T:
        """Return what `read` makes of the file, cached if possible; `reading` lists all that decides how it is read.

        With `anew`, as when a job begins, the file and the entry are digested again.
        """
        try:
            self._own()
            content = self._content(source, anew)
        except (UnfitError, OSError) as error:
            self.tell(f"records are read anew, without {FOLDER}/: {reason(error)}")
            return read()
        key = digest(repr((content, sys.version, np.__version__, *reading)).encode())
        path = self.folder / f"{content[:16]}-{key[:32]}{ENTRY}"
        try:
            return unpacked(path, key, kind, anew)
        except FileNotFoundError:
            pass
        except Exception as error:
            self.tell(f"{path.name} is damaged, and made anew: {reason(error)}")
        made = read()
        try:
            # The file may have changed since it was digested, and both states may have been read.
            if self._content(source, anew=True) != content:
                raise UnfitError(f"{source.name} changed while it was read")
            pack(path, key, made)
            self._tidy(path)
            return unpacked(path, key, kind, thorough=True)
        except Exception as error:
            self.tell(f"packed records could not be kept in {FOLDER}/: {reason(error)}")
            with suppress(OSError):
                path.unlink()
            return made

    def _own(self) -> None:
        """Make the folder, which nobody else may enter."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        check_owner(os.lstat(self.folder), self.folder)

    def _content(self, source: Path, anew: bool) -> str:
        """Digest of the file's content; the stored one if the file has not changed."""
        path = self.folder / SOURCE
        known: dict[str, Any] = {}
        with suppress(OSError, ValueError, UnfitError):
            check_owner(os.lstat(path), path)
            known = json.loads(path.read_bytes())
        state = state_of(os.stat(source))
        if not anew and known.get("state") == [str(source), *state] and known.get("settled") is True:
            return str(known["digest"])
        began = time.time()
        with open(source, "rb") as file:
            before = os.fstat(file.fileno())
            sha = hashlib.file_digest(file, "sha256").hexdigest()
            if state_of(before) != state or state_of(os.stat(source)) != state:
                raise UnfitError(f"{source.name} changed while it was read")
        settled = max(before.st_mtime, before.st_ctime) + SETTLED < began
        fresh = {"state": [str(source), *state], "settled": settled, "digest": sha}
        if known != fresh:
            write_bytes(path, json.dumps(fresh).encode(), private=True)
        return sha

    def _tidy(self, newest: Path) -> None:
        """Remove entries of an older content, the oldest beyond KEPT, and files left half-written by dead processes."""
        content, left = newest.name.partition("-")[0], time.time() - ABANDONED
        entries = sorted(self.folder.glob(f"*{ENTRY}"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        mine = [path for path in entries if path.name.startswith(f"{content}-") and path != newest]
        for path in {*entries} - {newest, *mine[: KEPT - 1]}:
            path.unlink(missing_ok=True)
        for path in self.folder.glob(f"*{PARTIAL}"):
            if path.stat().st_mtime < left:
                path.unlink(missing_ok=True)


def state_of(state: os.stat_result) -> State:
    return [state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]


def check_owner(state: os.stat_result, path: Path) -> None:
    if state.st_uid != os.geteuid() or state.st_mode & 0o077:
        raise UnfitError(f"{path.name} is not its owner's alone: chmod -R go= {FOLDER}, or remove it")


def reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class Packer(pickle.Pickler):
    """Pickles arrays with their memory as it is; refuses a view with gaps, which pickle would copy to other places."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray) and not obj.flags.forc:
            raise UnfitError("an array is not in one piece")
        return NotImplemented


def pack(path: Path, key: str, made: Any) -> None:
    """Write an entry in one step: its pickle, in which arrays are references, and the arrays' memory behind it."""
    parts: list[Any] = []
    script = io.BytesIO()
    Packer(script, protocol=5, buffer_callback=lambda part: parts.append(part.raw())).dump(made)
    parts.insert(0, script.getbuffer())
    places, end, total = [], HEADER, hashlib.sha256()
    for part in parts:
        start = -(-end // ALIGN) * ALIGN
        total.update(bytes(start - end))
        total.update(part)
        places.append((start, len(part)))
        end = start + len(part)
    facts = {"key": key, "size": end, "places": places, "script": digest(parts[0]), "body": total.hexdigest()}
    text = json.dumps(facts).encode()
    if len(text) > HEADER - 64:
        raise UnfitError("it has too many arrays")
    fresh = path.with_name(f"{path.name}-{os.getpid()}{PARTIAL}")
    try:
        with open(fresh, "wb", buffering=0, opener=for_owner) as file:
            reserve(file, end)  # a full disk shows before anything is written
            file.write((digest(text.ljust(HEADER - 64)).encode() + text).ljust(HEADER))
            for (start, _), part in zip(places, parts, strict=True):
                file.seek(start)
                view = memoryview(part).cast("B")
                while len(view):
                    view = view[file.write(view[: 1 << 30]) :]
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def unpacked(path: Path, key: str, kind: type[T], thorough: bool) -> T:
    """Read an entry: arrays are mapped, and their pages are read when they are used.

    The header and the pickle are always checked, and with `thorough` every byte. The mapping is private: a program may
    write to an array, and this never reaches the file.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb", buffering=0) as file:
        state = os.fstat(file.fileno())
        check_owner(state, path)
        head = file.read(HEADER)
        if len(head) != HEADER or head[:64] != digest(head[64:]).encode():
            raise UnfitError("its header is not what was written")
        facts = json.loads(head[64:])
        if facts["key"] != key or facts["size"] != state.st_size:
            raise UnfitError("it is of another length, or of other records")
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    view = memoryview(memory)
    script, *parts = (view[start : start + length] for start, length in facts["places"])
    if digest(script) != facts["script"] or (thorough and digest(view[HEADER:]) != facts["body"]):
        raise UnfitError("its content is not what was written")
    made = pickle.loads(script, buffers=parts)
    if not isinstance(made, kind):
        raise UnfitError("it holds something else")
    return made
