"""A block of P parties' records, A_i (m_i x d) with labels y_i, behind one interface.

    margins(x) = A_i x_i        pull(g) = A_i^T g_i        gram(h) = A_i^T diag(h_i) A_i

Every record lies in the unit ball: a row is clipped to the declared bound in l2 norm and divided by it. With an
intercept b in (0, 1) it becomes (sqrt(1 - b^2) x, b): a constant feature inside the ball, regularised like the others.

Arrays by record (y, margins, the arguments of pull, gram and sums) are flat, (..., n): parties by number of records
(ties: dense first, then in block order), a party's records in the order given. Arrays by party are in block order.

A party's result does not depend, bit for bit, on who else is in the block: parties with equally many records are
stacked to (k, m, d), and matmul works party by party. Nothing is padded, and sums over records are cut at fixed places.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm import check
from privadmm.errors import ConfigError, DataError

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Part = tuple[Any, Array, Index]  # a table, its labels, and the rows that a party holds

CHUNK = 2048  # rows copied or summed at a time; where rows are cut decides the last bits of a Gram matrix
PIECE = 1 << 20  # non-zeros in one sparse piece; only a piece that is cut has its column indices copied


@dataclass(frozen=True, eq=False)
class Dense:
    """The records of k parties with m rows each: A is (k, m, d). x is (k, R, d), g is (k, R, m), h is (k, m)."""

    A: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.A.shape[0], self.A.shape[1]

    def margins(self, x: Array) -> Array:
        return np.asarray(np.matmul(x, self.A.swapaxes(1, 2)))

    def pull(self, g: Array) -> Array:
        return np.asarray(np.matmul(g, self.A))

    def gram(self, h: Array) -> Array:
        return np.stack([gram(A, h_i) for A, h_i in zip(self.A, h, strict=True)])

    def kernel(self) -> Array:
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
        return self.A.T  # the same arrays; but making it takes scipy as long as a product of a thousand rows

    def __reduce__(self) -> tuple[Any, ...]:
        return Sparse, (self.A, self.count)  # without the transpose, which would be sent as a second copy

    def margins(self, x: Array) -> Array:
        return self._times(self.A, x)

    def pull(self, g: Array) -> Array:
        return self._times(self.transposed, g)

    def _times(self, A: Any, v: Array) -> Array:
        k, R, width = v.shape
        flat = v.reshape(-1) if R == 1 else v.swapaxes(1, 2).reshape(k * width, R)
        return np.asarray(A @ flat).reshape(k, -1, R).swapaxes(1, 2)

    def gram(self, h: Array) -> Array:
        return np.stack([gram(self.cut(i, i + 1).A, h_i) for i, h_i in enumerate(h)])

    def kernel(self) -> Array:
        parties = (self.cut(i, i + 1).A for i in range(self.count))
        return np.stack([(A @ A.T).toarray() for A in parties])

    def tile(self, times: int) -> Sparse:
        return Sparse(diagonal([self.A] * times).A, times * self.count)

    def cut(self, start: int, stop: int) -> Sparse:
        if (start, stop) == (0, self.count):
            return self
        m, d, k = self.shape[1], int(self.A.shape[1]) // self.count, stop - start
        indptr = self.A.indptr[start * m : stop * m + 1]
        cells = slice(indptr[0], indptr[-1])
        A = type(self.A)(
            (k * m, k * d)
        )  # filled by hand: the usual constructor copies a slice of a larger array
        A.data, A.indices, A.indptr = (
            self.A.data[cells],
            self.A.indices[cells] - start * d,
            indptr - indptr[0],
        )
        return Sparse(A, k)


Piece = Dense | Sparse


def gram(A: Any, h: Array) -> Array:
    """A^T diag(h) A of one party, h >= 0, as Z^T Z: half the work of a general product."""
    m, d = A.shape
    total, buffer, root = np.zeros((d, d)), np.empty((min(m, CHUNK), d)), np.sqrt(h)[:, None]
    for start in range(0, m, CHUNK):
        rows, Z = A[start : start + CHUNK], buffer[: m - start]
        if hasattr(rows, "toarray"):
            rows = rows.toarray(out=Z)
        np.multiply(rows, root[start : start + CHUNK], out=Z)
        total += Z.T @ Z
    return total


@dataclass(frozen=True, eq=False)
class Slot:
    """Where a piece sits: the positions of its parties in the block, and its records in flat arrays."""

    at: slice | Index
    cells: slice
    shape: tuple[int, int]  # k parties, m rows
    piece: Piece


def lay(pieces: Iterable[tuple[Index, Piece]]) -> tuple[Slot, ...]:
    slots, start = [], 0
    for at, piece in pieces:
        (k, m), first = piece.shape, int(at[0])
        # Positions increase. Where they are a range, a slice copies nothing.
        where = slice(first, first + k) if at[-1] - first == k - 1 else at
        slots.append(Slot(where, slice(start, start + k * m), (k, m), piece))
        start += k * m
    return tuple(slots)


@dataclass(frozen=True, eq=False)
class Shards:
    """Made by `build` (pooled records) or `from_parties`; taken apart by `take` and `batches`, as views."""

    ids: Index  # (P,)
    sizes: Index  # (P,), public
    dim: int
    y: Array  # (n,)
    slots: tuple[Slot, ...]  # in flat order

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
        """Party i holds the records rows[i] of a pooled X (dense or scipy sparse) and y. X is copied, not changed."""
        X, y = table(X, y)
        parts = [(X, y, np.asarray(r, dtype=np.int64)) for r in rows]
        held = np.concatenate([part[2] for part in parts]) if parts else np.empty(0, dtype=np.int64)
        if len(np.unique(held)) != len(held):
            raise DataError("a record is held twice; replacing it would count twice")
        return cls._assemble(parts, Clip(row_bound, intercept), ids, classification)

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
        parts = [(X, y, np.arange(len(y))) for X, y in (table(*party) for party in parties)]
        return cls._assemble(parts, Clip(row_bound, intercept), ids, classification)

    @classmethod
    def _assemble(
        cls, parts: Sequence[Part], clip: Clip, ids: ArrayLike | None, classification: bool
    ) -> Shards:
        names = np.arange(len(parts)) if ids is None else np.asarray(ids, dtype=np.int64)
        if not parts or names.shape != (len(parts),) or len(np.unique(names)) != len(parts):
            raise ConfigError(f"ids must name each of {len(parts)} parties once, and one party at least")
        if len({X.shape[1] for X, _, _ in parts}) > 1:
            raise DataError("all parties must have the same columns")
        for name, (_, y, rows) in zip(names, parts, strict=True):
            check_labels(int(name), y[rows], classification)
        sizes = np.array([len(rows) for _, _, rows in parts], dtype=np.int64)
        # A party's storage, on which its last bits depend, follows from its own input alone.
        sparse = np.array([hasattr(X, "tocsr") for X, _, _ in parts])
        order = np.lexsort((np.arange(len(parts)), sparse, sizes))
        breaks = np.flatnonzero(np.diff(sizes[order]) | np.diff(sparse[order])) + 1
        pieces: list[tuple[Index, Piece]] = []
        for at in np.split(order, breaks):
            chosen = [(int(names[i]), parts[i][0], parts[i][2]) for i in at]
            pack = pack_sparse if sparse[at[0]] else pack_dense
            for piece in pack(chosen, clip):
                pieces.append((at[: piece.shape[0]], piece))
                at = at[piece.shape[0] :]
        labels = np.concatenate([parts[i][1][parts[i][2]] for i in order])
        return cls(names, sizes, int(parts[0][0].shape[1]) + (clip.intercept > 0), labels, lay(pieces))

    @property
    def size(self) -> int:
        """n, the number of records in the block."""
        return len(self.y)

    def margins(self, x: Array) -> Array:
        """(..., P, d) -> (..., n): the scores A_i x_i."""
        lead, stack = x.shape[:-2], x.reshape(-1, *x.shape[-2:]).swapaxes(0, 1)
        out = np.empty((stack.shape[1], self.size))
        for slot in self.slots:
            part = out[:, slot.cells].reshape(-1, *slot.shape)
            part[...] = slot.piece.margins(stack[slot.at]).swapaxes(0, 1)
        return out.reshape(*lead, self.size)

    def pull(self, g: Array) -> Array:
        """(..., n) -> (..., P, d): A_i^T g_i."""
        lead, flat = g.shape[:-1], g.reshape(-1, self.size)
        out = np.empty((len(flat), len(self.ids), self.dim))
        for slot in self.slots:
            part = flat[:, slot.cells].reshape(-1, *slot.shape)
            out[:, slot.at] = slot.piece.pull(part.swapaxes(0, 1)).swapaxes(0, 1)
        return out.reshape(*lead, len(self.ids), self.dim)

    def gram(self, h: Array) -> Array:
        """(n,) -> (P, d, d): A_i^T diag(h_i) A_i, h >= 0."""
        out = np.empty((len(self.ids), self.dim, self.dim))
        for slot in self.slots:
            out[slot.at] = slot.piece.gram(h[slot.cells].reshape(slot.shape))
        return out

    def kernel(self) -> Array:
        """(P, m, m): A_i A_i^T, of a block whose parties have equally many records."""
        out = np.empty((len(self.ids), int(self.sizes[0]), int(self.sizes[0])))
        for slot in self.slots:
            out[slot.at] = slot.piece.kernel()
        return out

    def sums(self, v: Array) -> Array:
        """(..., n) -> (..., P): the sum over each party's records."""
        out = np.empty((*v.shape[:-1], len(self.ids)))
        for slot in self.slots:
            out[..., slot.at] = v[..., slot.cells].reshape(*v.shape[:-1], *slot.shape).sum(axis=-1)
        return out

    def spread(self, v: Array) -> Array:
        """(..., P) -> (..., n): each party's number at each of its records."""
        return np.concatenate([np.repeat(v[..., s.at], s.shape[1], axis=-1) for s in self.slots], axis=-1)

    def take(self, parties: ArrayLike) -> Shards:
        """The sub-block of these positions, which must increase. Its records are views; labels are copied."""
        chosen = np.asarray(parties, dtype=np.int64)
        if not len(chosen) or np.any(np.diff(chosen) <= 0) or chosen[0] < 0 or chosen[-1] >= len(self.ids):
            raise ConfigError("take needs increasing positions inside the block, at least one")
        new = np.full(len(self.ids), -1)  # from positions here to positions there
        new[chosen] = np.arange(len(chosen))
        labels, pieces = list[Array](), list[tuple[Index, Piece]]()
        for slot in self.slots:
            at, y = new[slot.at], self.y[slot.cells].reshape(slot.shape)
            kept = np.flatnonzero(at >= 0)
            for run in np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1) if len(kept) else ():
                start, stop = int(run[0]), int(run[-1]) + 1
                labels.append(y[start:stop].ravel())
                pieces.append((at[start:stop], slot.piece.cut(start, stop)))
        return Shards(self.ids[chosen], self.sizes[chosen], self.dim, np.concatenate(labels), lay(pieces))

    @property
    def cells(self) -> int:
        """How many numbers the records are stored in."""
        return sum(int(slot.piece.A.size) for slot in self.slots)

    def tile(self, times: int) -> Shards:
        """The block so many times over, one after another. Its records are copied."""
        if times == 1:
            return self
        blocks, own = len(self.ids) * np.arange(times)[:, None], np.arange(len(self.ids))
        labels = [np.tile(self.y[slot.cells], times) for slot in self.slots]
        pieces = [((blocks + own[slot.at]).ravel(), slot.piece.tile(times)) for slot in self.slots]
        ids, sizes = np.tile(self.ids, times), np.tile(self.sizes, times)
        return Shards(ids, sizes, self.dim, np.concatenate(labels), lay(pieces))

    def batches(self, cells: int) -> Iterator[tuple[Index, Shards]]:
        """Positions and sub-blocks of parties with equally many records, each of about `cells` numbers or one party."""
        for slot in self.slots:
            k, y = slot.shape[0], self.y[slot.cells].reshape(slot.shape)
            most = max(1, cells * k // max(1, int(slot.piece.A.size)))  # stored numbers, also of a sparse A
            for start in range(0, k, most):
                stop = min(start + most, k)
                at = np.arange(len(self.ids))[slot.at][start:stop]
                slots = lay([(np.arange(stop - start), slot.piece.cut(start, stop))])
                yield at, Shards(self.ids[at], self.sizes[at], self.dim, y[start:stop].ravel(), slots)


def table(X: Any, y: ArrayLike) -> tuple[Any, Array]:
    X, labels = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or labels.shape != (X.shape[0],):
        raise DataError(f"X must be (n, d) and y (n,), not {X.shape} and {labels.shape}")
    return X, labels


def check_labels(name: int, y: Array, classification: bool) -> None:
    if not len(y):
        raise DataError(f"party {name} has no records; leave it out or give it some")
    if bad := int(np.sum(~np.isfinite(y))):
        raise DataError(f"party {name}: {bad} of {len(y)} labels are not finite")
    if classification and (bad := int(np.sum(np.abs(y) != 1))):
        raise DataError(f"party {name}: {bad} of {len(y)} labels are not -1 or +1; map the classes to these")


@dataclass(frozen=True)
class Clip:
    """The per-record map into the unit ball, with s = sqrt(1 - b^2) and b the intercept:

    x -> (s x / max(bound, |x|), b) = (s v / max(1, |v|), b),   v = x / max(bound, largest entry)

    The second form has no overflow: squares of large entries would turn a row into zeros.
    """

    bound: float
    intercept: float

    def __post_init__(self) -> None:
        check.positive(row_bound=self.bound)
        if not 0 <= self.intercept < 1:
            raise ConfigError(f"intercept must lie in [0, 1), 0 meaning none, not {self.intercept!r}")

    def factor(self, squares: Array) -> Array:
        """s / max(1, |v|), given |v|^2."""
        return math.sqrt(1 - self.intercept**2) / np.maximum(1.0, np.sqrt(squares))

    def refuse(self, name: int, bad: int, m: int) -> None:
        if bad:
            raise DataError(f"party {name}: {bad} of {m} rows are not finite; clean them or drop them")


def pack_dense(parties: Sequence[tuple[int, Any, Index]], clip: Clip) -> Iterator[Piece]:
    """Copied and clipped chunk by chunk, so that the stack is the only copy."""
    m, d = len(parties[0][2]), parties[0][1].shape[1]
    A = np.empty((len(parties), m, d + (clip.intercept > 0)))
    for out, (name, X, rows) in zip(A, parties, strict=True):
        bad = 0
        for start in range(0, m, CHUNK):
            part = out[start : start + CHUNK, :d]
            part[...] = X[rows[start : start + CHUNK]]
            largest = np.abs(part).max(axis=1, initial=clip.bound)
            bad += int(np.sum(~np.isfinite(largest)))
            if not bad:
                part /= largest[:, None]
                part *= clip.factor((part * part).sum(axis=1))[:, None]
        clip.refuse(name, bad, m)
    if clip.intercept > 0:
        A[..., d] = clip.intercept
    yield Dense(A)


def pack_sparse(parties: Sequence[tuple[int, Any, Index]], clip: Clip) -> Iterator[Piece]:
    """Block-diagonal pieces of at most PIECE non-zeros, or of one party."""
    ready, cells = list[Any](), 0
    for name, X, rows in parties:
        part = clip_sparse(name, X[rows], clip)
        if ready and cells + part.nnz > PIECE:
            yield diagonal(ready)
            ready, cells = [], 0
        ready.append(part)
        cells += part.nnz
    yield diagonal(ready)


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
    part.data *= clip.factor(np.bincount(row, part.data**2, minlength=m).astype(np.float64))[row]
    if clip.intercept == 0:
        return part
    ends = part.indptr[1:]
    data, indices = np.insert(part.data, ends, clip.intercept), np.insert(part.indices, ends, d)
    return type(part)((data, indices, part.indptr + np.arange(m + 1)), shape=(m, d + 1))


def diagonal(parts: Sequence[Any]) -> Sparse:
    (m, d), k = parts[0].shape, len(parts)
    starts = np.cumsum([0] + [p.nnz for p in parts])
    short = np.int32 if max(int(starts[-1]), k * d) < 2**31 else np.int64
    data = np.concatenate([p.data for p in parts])
    indices = np.concatenate([p.indices.astype(short) + i * d for i, p in enumerate(parts)])
    indptr = np.concatenate(
        [[0], *(p.indptr[1:] + start for p, start in zip(parts, starts[:-1], strict=True))]
    )
    return Sparse(type(parts[0])((data, indices, indptr.astype(short)), shape=(k * m, k * d)), k)
