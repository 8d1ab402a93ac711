"""How records are stored: parties with equally many rows in one piece, dense or sparse, every row in the unit ball.

`pack_dense` and `pack_sparse` copy the rows that parties hold and clip them; `Shards` puts the pieces together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.data.store import Store
from privadmm.errors import ConfigError, DataError
from privadmm.params import check_positive

Index = Ints
Mask = NDArray[np.bool_]

CHUNK = 2048  # rows copied or summed at a time; where rows are cut decides the last bits of a Gram matrix
# Numbers in one piece that is sparse, or kept in a file. Only a sparse piece that is cut has its column indices copied.
PIECE = 1 << 20


@dataclass(frozen=True, eq=False)
class Dense:
    """The records of k parties with m rows each: A is (k, m, d). x is (k, R, d), g is (k, R, m), h is (k, m)."""

    A: Floats

    @property
    def shape(self) -> tuple[int, int]:
        return self.A.shape[0], self.A.shape[1]

    def margins(self, x: Floats) -> Floats:
        return np.asarray(np.matmul(x, self.A.swapaxes(1, 2)))

    def pull(self, g: Floats) -> Floats:
        return np.asarray(np.matmul(g, self.A))

    def gram(self, h: Floats, single: Mask) -> Floats:
        return np.stack([gram(A, *one) for A, *one in zip(self.A, h, single, strict=True)])

    def rows(self) -> Iterator[Floats]:
        """Each party's records, (m, d)."""
        return iter(self.A)

    def chunks(self) -> Iterator[Iterator[Floats]]:
        """The same, CHUNK rows at a time."""
        return (chunks(A) for A in self.A)

    def kernel(self) -> Floats:
        return np.asarray(np.matmul(self.A, self.A.swapaxes(1, 2)))

    def tile(self, times: int) -> Dense:
        return Dense(np.tile(self.A, (times, 1, 1)))

    def cut(self, start: int, stop: int) -> Dense:
        return Dense(self.A[start:stop])


@dataclass(frozen=True, eq=False)
class Sparse:
    """The same in one block-diagonal scipy CSR matrix, (k m, k d): its products go row by row, parties do not mix."""

    A: Any
    count: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, int(self.A.shape[0]) // self.count

    @cached_property
    def transposed(self) -> Any:
        """The same arrays, filled in by hand: scipy would look through them, which takes as long as a product."""
        from scipy.sparse import csc_array

        across = csc_array(self.A.shape[::-1], dtype=self.A.dtype)
        across.data, across.indices, across.indptr = self.A.data, self.A.indices, self.A.indptr
        return across

    def __reduce__(self) -> tuple[Any, ...]:
        return Sparse, (self.A, self.count)  # without the transpose, which would be sent as a second copy

    def margins(self, x: Floats) -> Floats:
        return self._times(self.A, x)

    def pull(self, g: Floats) -> Floats:
        return self._times(self.transposed, g)

    def _times(self, A: Any, v: Floats) -> Floats:
        k, R, width = v.shape
        flat = v.reshape(-1) if R == 1 else v.swapaxes(1, 2).reshape(k * width, R)
        return np.asarray(A @ flat).reshape(k, -1, R).swapaxes(1, 2)

    def gram(self, h: Floats, single: Mask) -> Floats:
        parties = (self.cut(i, i + 1).A for i in range(self.count))
        return np.stack([gram(A, *one) for A, *one in zip(parties, h, single, strict=True)])

    def rows(self) -> Iterator[Floats]:
        return (self.cut(i, i + 1).A.toarray() for i in range(self.count))

    def chunks(self) -> Iterator[Iterator[Floats]]:
        return (chunks(self.cut(i, i + 1).A) for i in range(self.count))

    def kernel(self) -> Floats:
        parties = (self.cut(i, i + 1).A for i in range(self.count))
        return np.stack([(A @ A.T).toarray() for A in parties])

    def tile(self, times: int) -> Sparse:
        return Sparse(diagonal([self.A] * times).A, times * self.count)

    def cut(self, start: int, stop: int) -> Sparse:
        if (start, stop) == (0, self.count):
            return self
        m, d = self.shape[1], int(self.A.shape[1]) // self.count
        part = rows_of(self.A, start * m, stop * m, (stop - start) * d)
        part.indices = part.indices - start * d
        return Sparse(part, stop - start)


Piece = Dense | Sparse


def rows_of(A: Any, start: int, stop: int, width: int) -> Any:
    """Rows of a CSR matrix, as views, filled in by hand: scipy would copy and check them."""
    part, indptr = type(A)((stop - start, width), dtype=A.dtype), A.indptr[start : stop + 1]
    cells = slice(indptr[0], indptr[-1])
    part.data, part.indices, part.indptr = A.data[cells], A.indices[cells], indptr - indptr[0]
    return part


def cut_up(A: Any) -> Iterator[tuple[slice, Any]]:
    """The rows of one party, CHUNK at a time, as views: where they are, and they."""
    m, d = A.shape
    for start in range(0, m, CHUNK):
        stop = min(start + CHUNK, m)
        part = rows_of(A, start, stop, d) if hasattr(A, "toarray") else A[start:stop]
        yield slice(start, stop), part


def chunks(A: Any) -> Iterator[Floats]:
    """The same, dense."""
    return (part.toarray() if hasattr(part, "toarray") else part for _, part in cut_up(A))


def gram(A: Any, h: Floats, single: bool = False) -> Floats:
    """A^T diag(h) A of one party, h >= 0, as Z^T Z: half the work of a general product.

    Chunks are added in double; within one, `single` precision takes half the time, and is wrong by at most
    CHUNK 2^-24 sum_n h_n |a_n|^2 in operator norm.
    """
    (m, d), kind, root = A.shape, np.float32 if single else np.float64, np.sqrt(h)
    total, buffer = np.zeros((d, d)), np.empty((min(m, CHUNK), d), kind)
    for at, part in cut_up(A):
        Z = buffer[: at.stop - at.start]
        if hasattr(part, "toarray"):
            part.data = (part.data * np.repeat(root[at], np.diff(part.indptr))).astype(kind)
            part.toarray(out=Z)
        else:
            np.multiply(part, root[at, None], out=Z, casting="same_kind")
        total += Z.T @ Z
    return total


def diagonal(parts: Sequence[Any]) -> Sparse:
    (m, d), k = parts[0].shape, len(parts)
    starts = np.cumsum([0] + [p.nnz for p in parts])
    short = np.int32 if max(int(starts[-1]), k * d) < 2**31 else np.int64
    data = np.concatenate([p.data for p in parts])
    indices = np.concatenate([p.indices.astype(short) + i * d for i, p in enumerate(parts)])
    indptr = np.concatenate([[0], *(p.indptr[1:] + start for p, start in zip(parts, starts[:-1], strict=True))])
    return Sparse(type(parts[0])((data, indices, indptr.astype(short)), shape=(k * m, k * d)), k)


@dataclass(frozen=True)
class Clip:
    """The per-record map into the unit ball, with s = sqrt(1 - b^2) and b the intercept:

    x -> (s x / max(bound, |x|), b) = (s v / max(1, |v|), b),   v = x / max(bound, largest entry)

    The second form has no overflow: squares of large entries would turn a row into zeros.
    """

    bound: float
    intercept: float

    def __post_init__(self) -> None:
        check_positive(row_bound=self.bound)
        if not 0 <= self.intercept < 1:
            raise ConfigError(f"intercept must lie in [0, 1), 0 meaning none, not {self.intercept!r}")

    def factor(self, squares: Floats, cells: int) -> Floats:
        """s / max(1, |v|), given |v|^2 as a sum of so many squares; |v| is taken up by what their sum may have lost."""
        lost = 1 + (cells + 8) * 2.0**-52
        return math.sqrt(1 - self.intercept**2) / np.maximum(1.0, lost * np.sqrt(squares))

    def refuse(self, name: int, bad: int, m: int) -> None:
        if bad:
            raise DataError(f"party {name}: {bad} of {m} rows are not finite; clean them or drop them")


def pack_dense(parties: Sequence[tuple[int, Any, Index]], clip: Clip, store: Store) -> Iterator[Piece]:
    """Copied and clipped chunk by chunk, so that the stack is the only copy; with a limit, stacks of PIECE numbers."""
    m, d = len(parties[0][2]), parties[0][1].shape[1]
    width = d + (clip.intercept > 0)
    most = len(parties) if store.limit is None else max(1, PIECE // (m * width))
    for first in range(0, len(parties), most):
        stacked = parties[first : first + most]
        A = store.empty((len(stacked), m, width))
        for out, (name, X, rows) in zip(A, stacked, strict=True):
            clip_dense(name, X, rows, out, clip)
        yield Dense(A)


def clip_dense(name: int, X: Any, rows: Index, out: Floats, clip: Clip) -> None:
    """One party's rows into `out`, (m, d) or with the intercept (m, d + 1)."""
    (m, d), bad = (len(rows), X.shape[1]), 0
    for start in range(0, m, CHUNK):
        part = out[start : start + CHUNK, :d]
        part[...] = X[rows[start : start + CHUNK]]
        largest = np.abs(part).max(axis=1, initial=clip.bound)
        bad += int(np.sum(~np.isfinite(largest)))
        if not bad:
            part /= largest[:, None]
            part *= clip.factor((part * part).sum(axis=1), d)[:, None]
    clip.refuse(name, bad, m)
    if clip.intercept > 0:
        out[:, d] = clip.intercept


def pack_sparse(parties: Sequence[tuple[int, Any, Index]], clip: Clip, store: Store) -> Iterator[Piece]:
    """Block-diagonal pieces of at most PIECE non-zeros, or of one party."""
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
    """One party's rows, already a copy, clipped."""
    m, d = part.shape
    part = part.astype(np.float64, copy=False)
    part.sum_duplicates()
    row = np.repeat(np.arange(m), np.diff(part.indptr))
    clip.refuse(name, len(np.unique(row[~np.isfinite(part.data)])), m)
    largest = np.full(m, clip.bound)
    np.maximum.at(largest, row, np.abs(part.data))
    part.data /= largest[row]
    squares = np.bincount(row, part.data**2, minlength=m).astype(np.float64)
    part.data *= clip.factor(squares, int(part.shape[1]))[row]
    if clip.intercept == 0:
        return part
    ends = part.indptr[1:]
    data, indices = np.insert(part.data, ends, clip.intercept), np.insert(part.indices, ends, d)
    return type(part)((data, indices, part.indptr + np.arange(m + 1)), shape=(m, d + 1))
