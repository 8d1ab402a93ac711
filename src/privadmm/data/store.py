"""Where packed records are kept: in memory up to a limit, and beyond it in files that are mapped into memory.

A file has no name from the start (where the system cannot do that, it is deleted as soon as it is open) and is readable
by nobody else, so a process that is killed leaves nothing to be found. Its pages belong to the system, which writes
them out and forgets them when memory is short. Arrays hold the same numbers in the same order wherever they are kept,
so what is computed from them has the same bits.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from privadmm.errors import StorageError

LEAST = 1 << 23  # bytes of a file: many small arrays share one, since open files are few
ALIGN = 64


@dataclass(eq=False)
class Store:
    """Makes arrays. `limit` is how many bytes of them memory may hold; None is no limit."""

    limit: int | None = None
    held: int = 0  # bytes in memory
    filed: int = 0  # bytes in files
    _open: mmap.mmap | None = field(default=None, repr=False)
    _used: int = field(default=0, repr=False)  # of the open file

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """An array to be filled."""
        kind = np.dtype(dtype)
        count = math.prod(shape)
        need = count * kind.itemsize
        if self.limit is None or self.held + need <= self.limit:
            self.held += need
            return np.empty(shape, kind)
        at = self._place(need)
        assert self._open is not None
        return np.frombuffer(self._open, kind, count, at).reshape(shape)

    def keep(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array itself, or a copy of it in a file."""
        if self.limit is None:
            return array
        if self.held + array.nbytes <= self.limit:
            self.held += array.nbytes
            return array
        kept = self.empty(array.shape, array.dtype)
        kept[...] = array
        return kept

    def _place(self, need: int) -> int:
        """So many bytes of the open file, or of a new one: ever larger ones, so that there are never many."""
        at = -(-self._used // ALIGN) * ALIGN
        if self._open is None or at + need > len(self._open):
            self._open, at = mapped(max(need, LEAST, self.filed // 8)), 0
            self.filed += len(self._open)
        self._used = at + need
        return at


def mapped(size: int) -> mmap.mmap:
    """A file of this size in the folder for temporary files, without a name, open as memory.

    It takes its place on the disk now: a disk found full when a page is written would end the process without a word.
    """
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            reserve(file, size)
            return mmap.mmap(file.fileno(), size)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(
            f"{folder}: cannot keep {size:,} bytes of records there ({reason}); make room, or name another folder "
            "with the environment variable TMPDIR, or raise [run] memory"
        ) from error


def reserve(file: IO[bytes], size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
        return
    zeros = bytes(1 << 20)
    for start in range(0, size, len(zeros)):
        file.write(zeros[: size - start])
    file.flush()
