"""A block of P parties' records, A_i (m_i x d) with labels y_i, behind one interface.

    margins(x) = A_i x_i        pull(g) = A_i^T g_i        gram(h) = A_i^T diag(h_i) A_i

Every record lies in the unit ball: a row is clipped to the declared bound in l2 norm and divided by it. With an intercept
b in (0, 1) the row becomes (sqrt(1 - b^2) x, b), a constant feature that stays inside the ball and is regularised.

Per-record arrays are flat, (..., n): parties ordered by number of records, ties in block order, a party's records together.
`y`, `margins` and the arguments of `pull`, `gram` and `sums` share that order. Per-party arrays are always in block order.

A party's result never depends, bit for bit, on which other parties are in the block: records of equally many rows are stacked
to (k, m, d) and multiplied by matmul, which works party by party; nothing is padded, and rows are cut at fixed places.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.errors import ConfigError, DataError

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Rows handled at a time: about a megabyte at a hundred columns. Fixed, because where rows are cut decides the last bits of a sum.
CHUNK = 1024
# Non-zeros in one sparse piece; only a piece that is taken apart has its column indices copied.
PIECE = 1 << 20


class Piece(Protocol):
    """The records of k parties with m rows each, in one storage. x is (k, R, d), g is (k, R, m), h is (k, m)."""

    count: int
    rows: int

    def margins(self, x: Array) -> Array: ...
    def pull(self, g: Array) -> Array: ...
    def gram(self, h: Array) -> Array: ...
    def kernel(self) -> Array: ...
    def cut(self, start: int, stop: int) -> Piece: ...


@dataclass(frozen=True, eq=False)
class Dense:
    """A is (k, m, d), C-contiguous."""

    A: Array

    @property
    def count(self) -> int:
        return self.A.shape[0]

    @property
    def rows(self) -> int:
        return self.A.shape[1]

    def margins(self, x: Array) -> Array:
        return np.matmul(x, self.A.swapaxes(1, 2))

    def pull(self, g: Array) -> Array:
        return np.matmul(g, self.A)

    def gram(self, h: Array) -> Array:
        return np.stack([gram(A, h_i) for A, h_i in zip(self.A, h, strict=True)])

    def kernel(self) -> Array:
        return np.asarray(np.matmul(self.A, self.A.swapaxes(1, 2)))

    def cut(self, start: int, stop: int) -> Dense:
        return Dense(self.A[start:stop])


@dataclass(frozen=True, eq=False)
class Sparse:
    """A is one block-diagonal scipy CSR matrix, (k m, k d): its products run row by row, so parties do not mix."""

    A: Any
    count: int

    @property
    def rows(self) -> int:
        return int(self.A.shape[0]) // self.count

    def margins(self, x: Array) -> Array:
        k, R, d = x.shape
        flat = self.A @ x.swapaxes(1, 2).reshape(k * d, R) if R > 1 else self.A @ x.reshape(k * d)
        return np.asarray(flat).reshape(k, -1, R).swapaxes(1, 2)

    def pull(self, g: Array) -> Array:
        k, R, m = g.shape
        flat = self.A.T @ g.swapaxes(1, 2).reshape(k * m, R) if R > 1 else self.A.T @ g.reshape(k * m)
        return np.asarray(flat).reshape(k, -1, R).swapaxes(1, 2)

    def gram(self, h: Array) -> Array:
        parties = (self.cut(i, i + 1).A for i in range(self.count))
        return np.stack([gram(A, h_i) for A, h_i in zip(parties, h, strict=True)])

    def kernel(self) -> Array:
        parties = (self.cut(i, i + 1).A for i in range(self.count))
        return np.stack([(A @ A.T).toarray() for A in parties])

    def cut(self, start: int, stop: int) -> Sparse:
        if (start, stop) == (0, self.count):
            return self
        m, d = self.rows, self.A.shape[1] // self.count
        indptr = self.A.indptr[start * m : stop * m + 1]
        cells = slice(indptr[0], indptr[-1])
        parts = (self.A.data[cells], self.A.indices[cells] - start * d, indptr - indptr[0])
        return Sparse(type(self.A)(parts, shape=((stop - start) * m, (stop - start) * d)), stop - start)


def gram(A: Any, h: Array) -> Array:
    """A^T diag(h) A of one party, h >= 0; Z^T Z is half the work of a general product."""
    total = np.zeros((A.shape[1], A.shape[1]))
    for start in range(0, A.shape[0], CHUNK):
        rows = A[start : start + CHUNK]
        Z = (rows.toarray() if hasattr(rows, "toarray") else rows) * np.sqrt(h[start : start + CHUNK, None])
        total += Z.T @ Z
    return total


@dataclass(frozen=True, eq=False)
class Shards:
    """Build with `Shards.build` (pooled records) or `Shards.from_parties`; part with `take` and `batches` (views)."""

    ids: Index  # (P,)
    sizes: Index  # (P,), public
    dim: int
    y: Array  # (n,)
    pieces: tuple[tuple[Index, Piece], ...]  # (positions in the block, records), in flat order

    @classmethod
    def build(
        cls,
        X: Any,
        y: ArrayLike,
        rows: Sequence[ArrayLike],
        *,
        row_bound: float,
        ids: ArrayLike | None = None,
        intercept: float = 0.0,
        classification: bool = True,
    ) -> Shards:
        """Parties hold the records `rows[i]` of a pooled X (dense or scipy sparse) and y. X is copied once, never changed."""
        X, y = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X), np.asarray(y, dtype=np.float64)
        if X.ndim != 2 or y.shape != (X.shape[0],):
            raise DataError(f"X must be (n, d) and y (n,), not {X.shape} and {y.shape}")
        parts = [(X, np.asarray(r, dtype=np.int64), y) for r in rows]
        return cls._assemble(parts, row_bound, ids, intercept, classification)

    @classmethod
    def from_parties(
        cls,
        parties: Sequence[tuple[Any, ArrayLike]],
        *,
        row_bound: float,
        ids: ArrayLike | None = None,
        intercept: float = 0.0,
        classification: bool = True,
    ) -> Shards:
        """One (X_i, y_i) per party; each may be dense or sparse."""
        parts = []
        for X, y in parties:
            X, y = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X), np.asarray(y, dtype=np.float64)
            if X.ndim != 2 or y.shape != (X.shape[0],):
                raise DataError(f"X must be (m, d) and y (m,), not {X.shape} and {y.shape}")
            parts.append((X, np.arange(len(y)), y))
        return cls._assemble(parts, row_bound, ids, intercept, classification)

    @classmethod
    def _assemble(
        cls,
        parts: Sequence[tuple[Any, Index, Array]],
        row_bound: float,
        ids: ArrayLike | None,
        intercept: float,
        classification: bool,
    ) -> Shards:
        if not (math.isfinite(row_bound) and row_bound > 0):
            raise ConfigError(f"row_bound must be a finite number above 0, not {row_bound!r}")
        if not 0 <= intercept < 1:
            raise ConfigError(f"intercept must lie in [0, 1) (0 means none), not {intercept!r}")
        names = np.arange(len(parts)) if ids is None else np.asarray(ids, dtype=np.int64)
        if names.shape != (len(parts),) or len(np.unique(names)) != len(parts) or not parts:
            raise ConfigError(f"ids must name each of the {len(parts)} parties once (and at least one party)")
        if len({X.shape[1] for X, _, _ in parts}) != 1:
            raise DataError("all parties must have the same columns")
        for name, (_, rows, y) in zip(names, parts, strict=True):
            check_labels(int(name), y[rows], classification)

        sizes = np.array([len(rows) for _, rows, _ in parts], dtype=np.int64)
        sparse = np.array([hasattr(X, "tocsr") for X, _, _ in parts])
        flat: list[Index] = []
        pieces: list[tuple[Index, Piece]] = []
        clip = Clip(row_bound, intercept)
        for m in np.unique(sizes):
            # A party's storage follows from its own input, never from its neighbours': the bits depend on it.
            for kind, pack in ((False, pack_dense), (True, pack_sparse)):
                at = np.flatnonzero((sizes == m) & (sparse == kind))
                if len(at):
                    chosen = [(int(names[i]), parts[i][0], parts[i][1]) for i in at]
                    packed = list(pack(chosen, clip))
                    ends = np.cumsum([p.count for p in packed])
                    pieces += zip(np.split(at, ends[:-1]), packed, strict=True)
                    flat.append(at)
        order = np.concatenate(flat)
        labels = np.concatenate([parts[i][2][parts[i][1]] for i in order])
        dim = int(parts[0][0].shape[1]) + (intercept > 0)
        return cls(names, sizes, dim, labels, tuple(pieces))

    @property
    def size(self) -> int:
        """n, the number of records in the block."""
        return len(self.y)

    def margins(self, x: Array) -> Array:
        """(..., P, d) -> (..., n): the scores A_i x_i."""
        lead = x.shape[:-2]
        x = np.moveaxis(x.reshape(-1, *x.shape[-2:]), 0, 1)
        parts = [piece.margins(x[at]).swapaxes(0, 1).reshape(x.shape[1], -1) for at, piece in self.pieces]
        return np.concatenate(parts, axis=-1).reshape(*lead, self.size)

    def pull(self, g: Array) -> Array:
        """(..., n) -> (..., P, d): A_i^T g_i."""
        flat = g.reshape(-1, self.size)
        out = np.empty((len(flat), len(self.ids), self.dim))
        for at, piece, cells in self._cells():
            part = flat[:, cells].reshape(len(flat), len(at), piece.rows)
            out[:, at] = piece.pull(part.swapaxes(0, 1)).swapaxes(0, 1)
        return out.reshape(*g.shape[:-1], len(self.ids), self.dim)

    def kernel(self) -> Array:
        """(P, m, m): A_i A_i^T, for parties with equally many rows."""
        out = np.empty((len(self.ids), *2 * (int(self.sizes[0]),)))
        for at, piece in self.pieces:
            out[at] = piece.kernel()
        return out

    def gram(self, h: Array) -> Array:
        """(n,) -> (P, d, d): A_i^T diag(h_i) A_i, h >= 0."""
        out = np.empty((len(self.ids), self.dim, self.dim))
        for at, piece, cells in self._cells():
            out[at] = piece.gram(h[cells].reshape(len(at), piece.rows))
        return out

    def sums(self, v: Array) -> Array:
        """(..., n) -> (..., P): the sum over each party's records."""
        out = np.empty((*v.shape[:-1], len(self.ids)))
        for at, piece, cells in self._cells():
            out[..., at] = v[..., cells].reshape(*v.shape[:-1], len(at), piece.rows).sum(axis=-1)
        return out

    def spread(self, v: Array) -> Array:
        """(..., P) -> (..., n): each party's number at each of its records."""
        parts = [np.repeat(v[..., at], piece.rows, axis=-1) for at, piece in self.pieces]
        return np.concatenate(parts, axis=-1)

    def take(self, parties: ArrayLike) -> Shards:
        """The sub-block of these positions, in increasing order. Records are views; the labels are copied."""
        chosen = np.asarray(parties, dtype=np.int64)
        if np.any(np.diff(chosen) <= 0) or not len(chosen) or chosen[0] < 0 or chosen[-1] >= len(self.ids):
            raise ConfigError("take needs increasing positions inside the block, at least one")
        new = np.full(len(self.ids), -1)
        new[chosen] = np.arange(len(chosen))
        labels, pieces = [], []
        for at, piece, cells in self._cells():
            y = self.y[cells].reshape(len(at), piece.rows)
            kept = np.flatnonzero(new[at] >= 0)
            for run in np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1) if len(kept) else ():
                start, stop = int(run[0]), int(run[-1]) + 1
                labels.append(y[start:stop].ravel())
                pieces.append((new[at[start:stop]], piece.cut(start, stop)))
        return Shards(self.ids[chosen], self.sizes[chosen], self.dim, np.concatenate(labels), tuple(pieces))

    def batches(self, cells: int) -> Iterator[tuple[Index, Shards]]:
        """Positions and sub-blocks of parties with equally many rows, each of at most `cells` entries or of one party."""
        for at, piece, where in self._cells():
            count, y = max(1, cells // (piece.rows * self.dim)), self.y[where].reshape(len(at), piece.rows)
            for start in range(0, len(at), count):
                part = at[start : start + count]
                stop = start + len(part)
                pieces = ((np.arange(len(part)), piece.cut(start, stop)),)
                yield part, Shards(self.ids[part], self.sizes[part], self.dim, y[start:stop].ravel(), pieces)

    def _cells(self) -> Iterator[tuple[Index, Piece, slice]]:
        start = 0
        for at, piece in self.pieces:
            stop = start + piece.count * piece.rows
            yield at, piece, slice(start, stop)
            start = stop


def check_labels(name: int, y: Array, classification: bool) -> None:
    if not len(y):
        raise DataError(f"party {name} has no records; leave it out or give it some")
    if bad := int(np.sum(~np.isfinite(y))):
        raise DataError(f"party {name}: {bad} of {len(y)} labels are not finite")
    if classification and (bad := int(np.sum(np.abs(y) != 1))):
        raise DataError(
            f"party {name}: {bad} of {len(y)} labels are not -1 or +1; map the declared classes to them"
        )


@dataclass(frozen=True)
class Clip:
    """The per-record map into the unit ball: row -> (s x / max(bound, ||x||), b), s = sqrt(1 - b^2)."""

    bound: float
    intercept: float

    @property
    def shrink(self) -> float:
        return math.sqrt(1 - self.intercept**2)

    def divisor(self, largest: Array, norm: Array) -> Array:
        """max(bound, ||x||), given each row's largest entry and the norm of the row divided by it."""
        return np.maximum(self.bound, largest * norm) / self.shrink


def pack_dense(parties: Sequence[tuple[int, Any, Index]], clip: Clip) -> Iterator[Dense]:
    """Copy and clip chunk by chunk, so that the stack is the only copy."""
    d, m = parties[0][1].shape[1], len(parties[0][2])
    A = np.empty((len(parties), m, d + (clip.intercept > 0)))
    for out, (name, X, rows) in zip(A, parties, strict=True):
        bad = 0
        for start in range(0, m, CHUNK):
            part = out[start : start + CHUNK, :d]
            part[:] = X[rows[start : start + CHUNK]]
            bad += int(np.sum(~np.isfinite(part).all(axis=1)))
            if not bad:
                # Scaled by the largest entry first: squares of large entries overflow, and a row must not turn into zeros.
                largest = np.abs(part).max(axis=1, initial=0.0)
                norm = np.linalg.norm(part / np.where(largest > 0, largest, 1)[:, None], axis=1)
                part /= clip.divisor(largest, norm)[:, None]
        if bad:
            raise DataError(
                f"party {name}: {bad} of {m} rows have entries that are not finite; clean or drop them"
            )
    if clip.intercept > 0:
        A[..., d] = clip.intercept
    yield Dense(A)


def pack_sparse(parties: Sequence[tuple[int, Any, Index]], clip: Clip) -> Iterator[Sparse]:
    """Block-diagonal pieces of at most PIECE non-zeros, or of one party."""
    ready: list[Any] = []
    for name, X, rows in parties:
        part = clip_sparse(name, X[rows], clip)
        if ready and sum(p.nnz for p in ready) + part.nnz > PIECE:
            yield stack(ready)
            ready = []
        ready.append(part)
    yield stack(ready)


def clip_sparse(name: int, part: Any, clip: Clip) -> Any:
    """One party's rows, clipped in place (indexing by rows has copied them)."""
    m, d = part.shape
    part = part.astype(np.float64, copy=False)
    part.sum_duplicates()
    cells = np.repeat(np.arange(m), np.diff(part.indptr))
    if not np.isfinite(part.data).all():
        bad = len(np.unique(cells[~np.isfinite(part.data)]))
        raise DataError(
            f"party {name}: {bad} of {m} rows have entries that are not finite; clean or drop them"
        )
    largest = np.zeros(m)
    np.maximum.at(largest, cells, np.abs(part.data))
    norm = np.sqrt(
        np.bincount(cells, (part.data / np.where(largest > 0, largest, 1)[cells]) ** 2, minlength=m)
    )
    part.data /= clip.divisor(largest, norm)[cells]
    if clip.intercept > 0:
        ends = part.indptr[1:]
        parts = (
            np.insert(part.data, ends, clip.intercept),
            np.insert(part.indices, ends, d),
            part.indptr + np.arange(m + 1),
        )
        part = type(part)(parts, shape=(m, d + 1))
    return part


def stack(parts: Sequence[Any]) -> Sparse:
    m, d = parts[0].shape
    starts = np.cumsum([0] + [p.nnz for p in parts[:-1]])
    data = np.concatenate([p.data for p in parts])
    indices = np.concatenate([p.indices + i * d for i, p in enumerate(parts)])
    indptr = np.concatenate([[0], *(p.indptr[1:] + start for p, start in zip(parts, starts, strict=True))])
    return Sparse(type(parts[0])((data, indices, indptr), shape=(len(parts) * m, len(parts) * d)), len(parts))
