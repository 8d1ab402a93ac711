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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privadmm.data.arrays import Floats
from privadmm.data.label_source import UNNAMED, LabelSource, digest_of
from privadmm.data.packing import PIECE, Clip, Dense, Index, Mask, Piece, pack_dense, pack_sparse
from privadmm.data.store import Store
from privadmm.errors import ConfigError, DataError

Part = tuple[Any, Floats, Index]  # a table, its labels, and the rows that a party holds


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
    y: Floats  # (n,)
    slots: tuple[Slot, ...]  # in flat order
    store: Store = field(default_factory=Store)  # where records are kept, and copies of them
    source: LabelSource | None = None  # None: these labels cannot be randomised

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
        store: Store | None = None,
        source: LabelSource | None = UNNAMED,
    ) -> Shards:
        """Party i holds the records rows[i] of a pooled X (dense or scipy sparse) and y. X is copied, not changed."""
        X, y = table(X, y)
        parts = [(X, y, np.asarray(r, dtype=np.int64)) for r in rows]
        held = np.concatenate([part[2] for part in parts]) if parts else np.empty(0, dtype=np.int64)
        if len(np.unique(held)) != len(held):
            raise DataError("a record is held twice; replacing it would count twice")
        return cls.assemble(parts, Clip(row_bound, intercept), ids, classification, store or Store(), source)

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
        return cls.assemble(parts, Clip(row_bound, intercept), ids, classification, Store(), UNNAMED)

    @classmethod
    def assemble(
        cls,
        parts: Sequence[Part],
        clip: Clip,
        ids: ArrayLike | None,
        classification: bool,
        store: Store,
        source: LabelSource | None,
    ) -> Shards:
        """Of tables whose rows nobody holds twice. With a `source` they are digested, for labels to be randomised."""
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
            for piece in pack(chosen, clip, store):
                pieces.append((at[: piece.shape[0]], piece))
                at = at[piece.shape[0] :]
        labels = np.concatenate([parts[i][1][parts[i][2]] for i in order])
        dim = int(parts[0][0].shape[1]) + (clip.intercept > 0)
        if source is not None:
            source = replace(source, rows=tuple(digest_of(X, rows) for X, _, rows in parts))
        return cls(names, sizes, dim, labels, lay(pieces), store, source)

    @classmethod
    def join(cls, blocks: Sequence[Shards]) -> Shards:
        """The parties of these blocks, one block after another, in one. Records stay where they are."""
        if len({block.dim for block in blocks}) > 1:
            raise DataError("all parties must have the same columns")
        found, start = list[tuple[Index, Piece, Floats]](), 0
        for block in blocks:
            own = np.arange(start, start + len(block.ids))
            found += [(own[slot.at], slot.piece, block.y[slot.cells]) for slot in block.slots]
            start += len(own)
        found.sort(key=lambda one: (one[1].shape[1], not isinstance(one[1], Dense), int(one[0][0])))
        ids, sizes = (np.concatenate(each) for each in ([b.ids for b in blocks], [b.sizes for b in blocks]))
        labels = np.concatenate([y for _, _, y in found])
        slots = lay([(at, piece) for at, piece, _ in found])
        source = LabelSource.join([block.source for block in blocks])
        return cls(ids, sizes, blocks[0].dim, labels, slots, blocks[0].store, source)

    @property
    def size(self) -> int:
        """n, the number of records in the block."""
        return len(self.y)

    def margins(self, x: Floats) -> Floats:
        """(..., P, d) -> (..., n): the scores A_i x_i."""
        if x.ndim == 2 and len(self.slots) == 1:
            return self.slots[0].piece.margins(x[:, None, :]).reshape(self.size)
        lead, stack = x.shape[:-2], x.reshape(-1, *x.shape[-2:]).swapaxes(0, 1)
        out = np.empty((stack.shape[1], self.size))
        for slot in self.slots:
            part = out[:, slot.cells].reshape(-1, *slot.shape)
            part[...] = slot.piece.margins(stack[slot.at]).swapaxes(0, 1)
        return out.reshape(*lead, self.size)

    def pull(self, g: Floats) -> Floats:
        """(..., n) -> (..., P, d): A_i^T g_i."""
        if g.ndim == 1 and len(self.slots) == 1:
            k, m = self.slots[0].shape
            return self.slots[0].piece.pull(g.reshape(k, 1, m)).reshape(k, self.dim)
        lead, flat = g.shape[:-1], g.reshape(-1, self.size)
        out = np.empty((len(flat), len(self.ids), self.dim))
        for slot in self.slots:
            part = flat[:, slot.cells].reshape(-1, *slot.shape)
            out[:, slot.at] = slot.piece.pull(part.swapaxes(0, 1)).swapaxes(0, 1)
        return out.reshape(*lead, len(self.ids), self.dim)

    def slope(self, x: Floats, deriv: Callable[[Floats, Floats], Floats]) -> Floats:
        """pull(deriv(margins(x), y)); a few parties at a time where memory is short, with the same bits."""
        if self.store.limit is None:
            return self.pull(deriv(self.margins(x), self.y))
        out = np.empty((*x.shape[:-2], len(self.ids), self.dim))
        for at, few in self.batches(PIECE):
            out[..., at, :] = few.pull(deriv(few.margins(x[..., at, :]), few.y))
        return out

    def gram(self, h: Floats, single: Mask | None = None) -> Floats:
        """(n,) -> (P, d, d): A_i^T diag(h_i) A_i, h >= 0; in single precision for the parties (P,) that say so."""
        single = np.zeros(len(self.ids), dtype=bool) if single is None else single
        out = np.empty((len(self.ids), self.dim, self.dim))
        for slot in self.slots:
            out[slot.at] = slot.piece.gram(h[slot.cells].reshape(slot.shape), single[slot.at])
        return out

    def kernel(self) -> Floats:
        """(P, m, m): A_i A_i^T, of a block whose parties have equally many records."""
        out = np.empty((len(self.ids), int(self.sizes[0]), int(self.sizes[0])))
        for slot in self.slots:
            out[slot.at] = slot.piece.kernel()
        return out

    def sums(self, v: Floats) -> Floats:
        """(..., n) -> (..., P): the sum over each party's records."""
        out = np.empty((*v.shape[:-1], len(self.ids)))
        for slot in self.slots:
            out[..., slot.at] = v[..., slot.cells].reshape(*v.shape[:-1], *slot.shape).sum(axis=-1)
        return out

    def spread(self, v: Floats) -> Floats:
        """(..., P) -> (..., n): each party's number at each of its records."""
        return np.concatenate([np.repeat(v[..., s.at], s.shape[1], axis=-1) for s in self.slots], axis=-1)

    def labels(self) -> list[Floats]:
        """Those of each party, in block order."""
        by_slot = [(s.at, self.y[s.cells].reshape(s.shape)) for s in self.slots]
        order = np.concatenate([np.arange(len(self.ids))[at] for at, _ in by_slot])
        found = [y for _, rows in by_slot for y in rows]
        return [found[i] for i in np.argsort(order)]

    def with_labels(self, labels: Sequence[Floats]) -> Shards:
        """The same records with other labels, for each party in block order."""
        if [len(y) for y in labels] != self.sizes.tolist():
            raise DataError("labels must have one array for each party, one label for each record")
        order = np.concatenate([np.arange(len(self.ids))[s.at] for s in self.slots])
        return replace(self, y=np.concatenate([labels[i] for i in order]))

    def mapped(self, maps: Sequence[Callable[[Floats], Floats]], dim: int) -> Shards:
        """Every party's records through its own map of rows into the unit ball of R^dim; dense, and a copy."""
        pieces = []
        for slot in self.slots:
            at = np.arange(len(self.ids))[slot.at]
            A = self.store.empty((*slot.shape, dim))
            for i, out, chunks in zip(at, A, slot.piece.chunks(), strict=True):
                start = 0
                for rows in chunks:
                    out[start : start + len(rows)] = maps[i](rows)
                    start += len(rows)
            pieces.append((at, Dense(A)))
        return replace(self, dim=dim, slots=lay(pieces))

    def take(self, parties: ArrayLike) -> Shards:
        """The sub-block of these positions, which must increase. Its records are views; labels are copied."""
        chosen = np.asarray(parties, dtype=np.int64)
        if not len(chosen) or np.any(np.diff(chosen) <= 0) or chosen[0] < 0 or chosen[-1] >= len(self.ids):
            raise ConfigError("take needs increasing positions inside the block, at least one")
        if len(chosen) == len(self.ids):
            return self
        new = np.full(len(self.ids), -1)  # from positions here to positions there
        new[chosen] = np.arange(len(chosen))
        labels, pieces = list[Floats](), list[tuple[Index, Piece]]()
        for slot in self.slots:
            at, y = new[slot.at], self.y[slot.cells].reshape(slot.shape)
            kept = np.flatnonzero(at >= 0)
            for run in np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1) if len(kept) else ():
                start, stop = int(run[0]), int(run[-1]) + 1
                labels.append(y[start:stop].ravel())
                pieces.append((at[start:stop], slot.piece.cut(start, stop)))
        y = np.concatenate(labels)
        source = None if self.source is None else self.source.take(chosen)
        return Shards(self.ids[chosen], self.sizes[chosen], self.dim, y, lay(pieces), self.store, source)

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

    def batches(self, cells: int, alike: bool = True) -> Iterator[tuple[Index, Shards]]:
        """Positions and sub-blocks of about `cells` numbers each, or one party; `alike`: of one size and storage."""
        ready, held = list[tuple[Index, Piece, Floats]](), 0
        for slot in self.slots:
            k, y = slot.shape[0], self.y[slot.cells].reshape(slot.shape)
            each = max(1, int(slot.piece.A.size) // k)  # stored numbers of a party, also of a sparse A
            most, own = max(1, cells // each), np.arange(len(self.ids))[slot.at]
            for start in range(0, k, most):
                stop = min(start + most, k)
                if ready and (alike or held + each * (stop - start) > cells):
                    yield self._batch(ready)
                    ready, held = [], 0
                ready.append((own[start:stop], slot.piece.cut(start, stop), y[start:stop].ravel()))
                held += each * (stop - start)
        yield self._batch(ready)

    def _batch(self, parts: Sequence[tuple[Index, Piece, Floats]]) -> tuple[Index, Shards]:
        at = np.sort(np.concatenate([own for own, _, _ in parts]))
        slots = lay([(np.searchsorted(at, own), piece) for own, piece, _ in parts])
        y = np.concatenate([labels for _, _, labels in parts])
        return at, Shards(self.ids[at], self.sizes[at], self.dim, y, slots, self.store)


def table(X: Any, y: ArrayLike) -> tuple[Any, Floats]:
    X, labels = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or labels.shape != (X.shape[0],):
        raise DataError(f"X must be (n, d) and y (n,), not {X.shape} and {labels.shape}")
    return X, labels


def check_labels(name: int, y: Floats, classification: bool) -> None:
    if not len(y):
        raise DataError(f"party {name} has no records; leave it out or give it some")
    if bad := int(np.sum(~np.isfinite(y))):
        raise DataError(f"party {name}: {bad} of {len(y)} labels are not finite")
    if classification and (bad := int(np.sum(np.abs(y) != 1))):
        raise DataError(f"party {name}: {bad} of {len(y)} labels are not -1 or +1; map the classes to these")
