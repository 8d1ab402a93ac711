"""How and where records are stored: parties with equally many rows in one piece, every row in the unit ball.

`pack_dense` and `pack_sparse` copy the rows that parties hold and clip them; `Shards` puts the pieces together. A
`Store` keeps them in memory up to a limit, and beyond it in files that are mapped into memory. Arrays hold the same
numbers in the same order wherever they are kept, so results have the same bits.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.data.threads import spread
from privadmm.errors import ConfigError, DataError, StorageError
from privadmm.params import check_positive

Mask = NDArray[np.bool_]
Derivative = Callable[[Floats, Floats], Floats]  # of a loss, from scores and labels

CHUNK = 2048  # rows copied or summed at a time; where rows are cut decides the last bits of a Gram matrix
PIECE = 1 << 20  # numbers in a piece that is sparse or kept in a file; a cut sparse piece copies its column indices
BLOCK = 1 << 18  # numbers of records that a pass reads twice: few enough to be in the processor's cache the second time
SCORES = 1 << 16  # scores of several parties or replicas that are made at a time, for the same reason
WIDE = 32  # numbers in a row from which on a dot product for each row is faster than BLAS on all of them
LEAST = 1 << 23  # bytes of a file: many small arrays share one, since a process may open few files
ALIGN = 64


@dataclass(eq=False)
class Store:
    """Makes arrays, of which memory may hold `limit` bytes (None: all) and files hold the others.

    `threads` may work on them at a time; None: as many as this machine has cores.
    """

    limit: int | None = None
    threads: int | None = None
    held: int = 0  # bytes in memory
    filed: int = 0  # bytes in files
    _open: mmap.mmap | None = field(default=None, repr=False)
    _used: int = field(default=0, repr=False)  # bytes of the open file

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
        """An array to be filled."""
        kind, count = np.dtype(dtype), math.prod(shape)
        need = count * kind.itemsize
        if self.limit is None or self.held + need <= self.limit:
            self.held += need
            return np.empty(shape, kind)
        at = -(-self._used // ALIGN) * ALIGN
        if self._open is None or at + need > len(self._open):
            # Ever larger files, so that there are never many.
            self._open, at = mapped(max(need, LEAST, self.filed // 8)), 0
            self.filed += len(self._open)
        self._used = at + need
        return np.frombuffer(self._open, kind, count, at).reshape(shape)

    def keep(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array itself, or a copy of it in a file."""
        if self.limit is None or self.held + array.nbytes <= self.limit:
            self.held += array.nbytes
            return array
        kept = self.empty(array.shape, array.dtype)
        kept[...] = array
        return kept


def mapped(size: int) -> mmap.mmap:
    """A file of this size in the folder for temporary files, mapped into memory.

    The file has no name (where the system cannot do that, it is deleted as soon as it is open) and nobody else can read
    it, so a process that is killed leaves nothing behind. Its space on the disk is reserved now: a disk that turns out
    full when a page is written would kill the process without a message.
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


def scores(A: Floats, x: Floats) -> Floats:
    """Scores A_i x_i of each party i: A is (k, m, d), x is (k, R, d), the result (k, R, m)."""
    if x.shape[1] == 1 and A.shape[2] >= WIDE:
        return np.asarray(np.vecdot(A, x)[:, None])
    return np.asarray(np.matmul(x, A.swapaxes(1, 2)))


@dataclass(frozen=True, eq=False)
class Dense:
    """The records of k parties with m rows each: A is (k, m, d). Products take x (k, R, d) and g (k, R, m)."""

    A: Floats
    grain: ClassVar[int] = 1  # how many of its rows must stay together

    @property
    def shape(self) -> tuple[int, int]:
        return self.A.shape[0], self.A.shape[1]

    @property
    def cells(self) -> int:
        """How many numbers the records are stored in."""
        return int(self.A.size)

    def margins(self, x: Floats) -> Floats:
        return scores(self.A, x)

    def pull(self, g: Floats) -> Floats:
        return np.asarray(np.matmul(g, self.A))

    def slope(self, x: Floats, y: Floats, deriv: Derivative, threads: int = 1) -> Floats:
        """pull(deriv(margins(x), y)) for labels y (k, m), in one pass over records that stay in the processor's cache.

        Parties with few rows go several at a time. Those with many are cut at places that follow from d and R alone.
        """
        (k, m, d), out = self.A.shape, np.empty(x.shape)
        rows = max(1, min(BLOCK // d, SCORES // x.shape[1]))
        few, most = max(1, rows // m), min(m, rows)

        def pulled(block: tuple[slice, slice]) -> Floats:
            part, cut = block
            A, into = self.A[part, cut], None if cut.start else out[part]
            return np.matmul(deriv(scores(A, x[part]), y[part, None, cut]), A, out=into)

        cuts = [slice(first, first + most) for first in range(0, m, most)]
        blocks = [(slice(start, start + few), cut) for start in range(0, k, few) for cut in cuts]
        for (part, cut), found in zip(blocks, spread(pulled, blocks, threads), strict=True):
            if cut.start:
                out[part] += found
        return out

    def kernel(self) -> Floats:
        return np.asarray(np.matmul(self.A, self.A.swapaxes(1, 2)))

    def parties(self) -> Iterator[Floats]:
        """Each party's records, (m, d)."""
        return iter(self.A)

    def cut(self, start: int, stop: int) -> Dense:
        return Dense(self.A[start:stop])


@dataclass(frozen=True, eq=False)
class Sparse:
    """Like `Dense`, in one block-diagonal CSR matrix (k m, k d). Its products go row by row: parties do not mix."""

    A: Any
    count: int
    grain: ClassVar[int] = 1

    @property
    def cells(self) -> int:
        return int(self.A.size)

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, int(self.A.shape[0]) // self.count

    @cached_property
    def transposed(self) -> Any:
        return transposed(self.A)

    def __reduce__(self) -> tuple[Any, ...]:
        return Sparse, (self.A, self.count)  # without the transpose, which would be sent as a second copy

    def margins(self, x: Floats) -> Floats:
        return self._times(self.A, x)

    def pull(self, g: Floats) -> Floats:
        return self._times(self.transposed, g)

    def slope(self, x: Floats, y: Floats, deriv: Derivative, threads: int = 1) -> Floats:
        """The same on one thread: products with a part of its rows would be rounded differently."""
        return self.pull(deriv(self.margins(x), y[:, None]))

    def _times(self, A: Any, v: Floats) -> Floats:
        k, R, width = v.shape
        flat = v.reshape(-1) if R == 1 else v.swapaxes(1, 2).reshape(k * width, R)
        return np.asarray(A @ flat).reshape(k, -1, R).swapaxes(1, 2)

    def kernel(self) -> Floats:
        return np.stack([(A @ A.T).toarray() for A in self.parties()])

    def parties(self) -> Iterator[Any]:
        return (self.cut(i, i + 1).A for i in range(self.count))

    def cut(self, start: int, stop: int) -> Sparse:
        if (start, stop) == (0, self.count):
            return self
        m, d = self.shape[1], int(self.A.shape[1]) // self.count
        part = rows_of(self.A, start * m, stop * m, (stop - start) * d)
        part.indices = part.indices - start * d
        return Sparse(part, stop - start)


Stored = Dense | Sparse


def transposed(A: Any) -> Any:
    """A^T of a dense or CSR matrix, with the same arrays; scipy would check them, which takes as long as a product."""
    if not hasattr(A, "toarray"):
        return A.T
    from scipy.sparse import csc_array

    across = csc_array(A.shape[::-1], dtype=A.dtype)
    across.data, across.indices, across.indptr = A.data, A.indices, A.indptr
    return across


def rows_of(A: Any, start: int, stop: int, width: int) -> Any:
    """Rows of a CSR matrix as views, set by hand: scipy would copy and check them."""
    part, indptr = type(A)((stop - start, width), dtype=A.dtype), A.indptr[start : stop + 1]
    cells = slice(indptr[0], indptr[-1])
    part.data, part.indices, part.indptr = A.data[cells], A.indices[cells], indptr - indptr[0]
    return part


def cut_up(A: Any) -> Iterator[tuple[slice, Any]]:
    """One party's rows, CHUNK at a time: where they are, and a view of them."""
    m, d = A.shape
    for start in range(0, m, CHUNK):
        stop = min(start + CHUNK, m)
        yield slice(start, stop), rows_of(A, start, stop, d) if hasattr(A, "toarray") else A[start:stop]


def chunks(A: Any) -> Iterator[tuple[slice, Floats]]:
    """Like `cut_up`, with dense rows."""
    return ((at, part.toarray() if hasattr(part, "toarray") else part) for at, part in cut_up(A))


def gram(A: Any, h: Floats | None = None, single: bool = False) -> Floats:
    """A^T diag(h) A of one party, h >= 0, as Z^T Z: half the work of a general product. None: every h is 1.

    Chunks are added in double precision. `single` precision within a chunk takes half the time; its error is at most
    CHUNK 2^-24 sum_n h_n |a_n|^2 in operator norm.
    """
    (m, d), kind, root = A.shape, np.float32 if single else np.float64, None if h is None else np.sqrt(h)
    total, buffer = np.zeros((d, d)), np.empty((min(m, CHUNK), d), kind)
    for at, part in cut_up(A):
        Z = buffer[: at.stop - at.start]
        if hasattr(part, "toarray"):
            if root is not None:
                part.data = part.data * np.repeat(root[at], np.diff(part.indptr))
            part.data = part.data.astype(kind, copy=False)
            part.toarray(out=Z)
        elif root is not None:
            np.multiply(part, root[at, None], out=Z, casting="same_kind")
        else:
            Z = part.astype(kind, copy=False)
        total += Z.T @ Z
    return total


def diagonal(parts: Sequence[Any]) -> Sparse:
    """One block-diagonal piece of CSR matrices of one shape."""
    (m, d), k = parts[0].shape, len(parts)
    starts = np.cumsum([0] + [p.nnz for p in parts])
    short = np.int32 if max(int(starts[-1]), k * d) < 2**31 else np.int64
    data = np.concatenate([p.data for p in parts])
    indices = np.concatenate([p.indices.astype(short) + i * d for i, p in enumerate(parts)])
    indptr = np.concatenate([[0], *(p.indptr[1:] + start for p, start in zip(parts, starts[:-1], strict=True))])
    return Sparse(type(parts[0])((data, indices, indptr.astype(short)), shape=(k * m, k * d)), k)


@dataclass(frozen=True)
class Clip:
    """The map of a record into the unit ball, with s = sqrt(1 - b^2) and b the intercept:

    x -> (s x / max(bound, |x|), b) = (s v / max(1, |v|), b),   v = x / max(bound, largest entry)

    The second form does not overflow: squares of large entries would turn a row into zeros.
    """

    bound: float
    intercept: float

    def __post_init__(self) -> None:
        check_positive(row_bound=self.bound)
        if not 0 <= self.intercept < 1:
            raise ConfigError(f"intercept must lie in [0, 1), 0 meaning none, not {self.intercept!r}")

    def factor(self, squares: Floats, cells: int) -> Floats:
        """s / max(1, |v|) from |v|^2, a sum of so many squares; |v| is rounded up by what the sum may have lost."""
        lost = 1 + (cells + 8) * 2.0**-52
        return math.sqrt(1 - self.intercept**2) / np.maximum(1.0, lost * np.sqrt(squares))


def refuse_rows(name: int, bad: int, m: int) -> None:
    if bad:
        raise DataError(f"party {name}: {bad} of {m} rows are not finite; clean them or drop them")


def pack_dense(parties: Sequence[tuple[int, Any, Ints]], clip: Clip, store: Store) -> Iterator[Stored]:
    """Clip the rows of parties (name, table, row numbers) into one stack; with a limit, stacks of PIECE numbers.

    Rows are copied chunk by chunk, so that the stack is the only copy.
    """
    m, d = len(parties[0][2]), parties[0][1].shape[1]
    width = d + (clip.intercept > 0)
    most = len(parties) if store.limit is None else max(1, PIECE // (m * width))
    for first in range(0, len(parties), most):
        stacked = parties[first : first + most]
        A = store.empty((len(stacked), m, width))
        for out, (name, X, rows) in zip(A, stacked, strict=True):
            clip_dense(name, X, rows, out, clip)
        yield Dense(A)


def clip_dense(name: int, X: Any, rows: Ints, out: Floats, clip: Clip) -> None:
    """Write one party's clipped rows to `out`, (m, d) or with the intercept (m, d + 1)."""
    (m, d), bad = (len(rows), X.shape[1]), 0
    for start in range(0, m, CHUNK):
        part = out[start : start + CHUNK, :d]
        part[...] = X[rows[start : start + CHUNK]]
        largest = np.abs(part).max(axis=1, initial=clip.bound)
        bad += int(np.sum(~np.isfinite(largest)))
        if not bad:
            part /= largest[:, None]
            part *= clip.factor((part * part).sum(axis=1), d)[:, None]
    refuse_rows(name, bad, m)
    if clip.intercept > 0:
        out[:, d] = clip.intercept


def pack_sparse(parties: Sequence[tuple[int, Any, Ints]], clip: Clip, store: Store) -> Iterator[Stored]:
    """Clip parties' rows into block-diagonal pieces of at most PIECE non-zeros, or of one party."""
    ready, cells = list[Any](), 0
    for name, X, rows in parties:
        part = clip_sparse(name, X[rows], clip)
        if ready and cells + part.nnz > PIECE:
            yield stored(diagonal(ready), store)
            ready, cells = [], 0
        ready.append(part)
        cells += part.nnz
    yield stored(diagonal(ready), store)


def stored(piece: Sparse, store: Store) -> Sparse:
    A = piece.A
    A.data, A.indices, A.indptr = store.keep(A.data), store.keep(A.indices), store.keep(A.indptr)
    return piece


def clip_sparse(name: int, part: Any, clip: Clip) -> Any:
    """Clip one party's rows, in place where it can: `part` is already a copy."""
    m, d = part.shape
    part = part.astype(np.float64, copy=False)
    part.sum_duplicates()
    row = np.repeat(np.arange(m), np.diff(part.indptr))
    finite = np.isfinite(part.data)
    refuse_rows(name, 0 if finite.all() else len(np.unique(row[~finite])), m)
    largest = np.full(m, clip.bound)
    np.maximum.at(largest, row, np.abs(part.data))
    part.data /= largest[row]
    squares = np.bincount(row, part.data**2, minlength=m).astype(np.float64)
    part.data *= clip.factor(squares, d)[row]
    if clip.intercept == 0:
        return part
    ends = part.indptr[1:]
    data, indices = np.insert(part.data, ends, clip.intercept), np.insert(part.indices, ends, d)
    return type(part)((data, indices, part.indptr + np.arange(m + 1)), shape=(m, d + 1))
