"""A block of P parties' records, A_i (m_i x d) with labels y_i, behind one interface.

    margins(x) = A_i x_i        pull(g) = A_i^T g_i        gram(h) = A_i^T diag(h_i) A_i

Every record lies in the unit ball: a row is clipped to the declared bound in l2 norm and divided by it. With an
intercept b in (0, 1) it becomes (sqrt(1 - b^2) x, b): a constant feature inside the ball, regularised like the others.

Arrays by record (y, margins, the arguments of pull, gram and sums) are flat, (..., n). Parties follow by number of
records (ties: dense first, then in block order), and a party's records in the order given. Arrays by party are in block
order.

A party's result does not depend, bit for bit, on who else is in the block. Parties with equally many records are
stacked to (k, m, d), and matmul works party by party. Nothing is padded, and sums over records are cut at fixed places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privadmm.data.arrays import Floats, Ints
from privadmm.data.label_source import UNNAMED, LabelSource, digest_of
from privadmm.data.replicas import Piece, Shared
from privadmm.data.storage import PIECE, Clip, Dense, Derivative, Mask, Store, chunks, gram, pack_dense, pack_sparse
from privadmm.data.threads import hands, spread
from privadmm.errors import ConfigError, DataError

Part = tuple[Any, Floats, Ints]  # a table, its labels, and the rows that a party holds
Placed = tuple[Ints, Piece, Floats]  # parties' increasing positions in the block, their records and flat labels


@dataclass(frozen=True, eq=False)
class Slot:
    """Where a piece sits: its parties' positions in the block, and its records' place in flat arrays."""

    positions: Ints
    at: slice | Ints  # the positions; as a slice, which copies nothing, where they are a range
    cells: slice
    shape: tuple[int, int]  # k parties, m rows
    piece: Piece


def lay(parts: Sequence[Placed]) -> tuple[Floats, tuple[Slot, ...]]:
    """Lay pieces out one after another: all labels, and the slots."""
    slots, start = [], 0
    for positions, piece, _ in parts:
        (k, m), first = piece.shape, int(positions[0])
        at = slice(first, first + k) if positions[-1] - first == k - 1 else positions
        slots.append(Slot(positions, at, slice(start, start + k * m), (k, m), piece))
        start += k * m
    return np.concatenate([y for _, _, y in parts]), tuple(slots)


@dataclass(frozen=True, eq=False)
class Shards:
    """A block, made by `build` (pooled records) or `from_parties`. `take` and `batches` give sub-blocks, as views."""

    ids: Ints  # (P,)
    sizes: Ints  # (P,), public
    dim: int
    y: Floats  # (n,)
    slots: tuple[Slot, ...]  # in flat order
    store: Store = field(default_factory=Store)  # where records and copies of them are kept
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
        """Give party i the records rows[i] of a pooled X (dense or scipy sparse) and y. X is copied, not changed."""
        X, y = table(X, y)
        parts = [(X, y, np.asarray(r, dtype=np.int64)) for r in rows]
        held = np.zeros(len(y), dtype=bool)
        for _, _, own in parts:
            held[own] = True
        if np.count_nonzero(held) != sum(len(own) for _, _, own in parts):
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
        """Take one (X_i, y_i) per party; each X_i may be dense or sparse."""
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
        """Pack tables whose rows nobody holds twice. With a `source` rows are digested: labels may be randomised."""
        names = party_ids(ids, len(parts))
        if len({X.shape[1] for X, _, _ in parts}) > 1:
            raise DataError("all parties must have the same columns")
        for name, (_, y, rows) in zip(names, parts, strict=True):
            if not len(rows):
                raise DataError(f"party {name} has no records; leave it out or give it some")
            check_labels(y[rows], classification, f"party {name}: ")
        sizes = np.array([len(rows) for _, _, rows in parts], dtype=np.int64)
        # A party's storage, on which its last bits depend, follows from its own input alone.
        sparse = np.array([hasattr(X, "tocsr") for X, _, _ in parts])
        order = np.lexsort((np.arange(len(parts)), sparse, sizes))
        breaks = np.flatnonzero(np.diff(sizes[order]) | np.diff(sparse[order])) + 1
        placed = list[Placed]()
        for at in np.split(order, breaks):
            chosen = [(int(names[i]), parts[i][0], parts[i][2]) for i in at]
            pack = pack_sparse if sparse[at[0]] else pack_dense
            for piece in pack(chosen, clip, store):
                own, at = np.split(at, piece.shape[:1])
                placed.append((own, piece, np.concatenate([parts[i][1][parts[i][2]] for i in own])))
        dim = int(parts[0][0].shape[1]) + (clip.intercept > 0)
        if source is not None:
            source = replace(source, rows=tuple(digest_of(X, rows) for X, _, rows in parts))
        return cls(names, sizes, dim, *lay(placed), store, source)

    @classmethod
    def join(cls, blocks: Sequence[Shards]) -> Shards:
        """Join blocks to one, their parties one block after another. Records stay where they are."""
        if len({block.dim for block in blocks}) > 1:
            raise DataError("all parties must have the same columns")
        parts, start = list[Placed](), 0
        for block in blocks:
            parts += [(start + slot.positions, slot.piece, block.y[slot.cells]) for slot in block.slots]
            start += len(block.ids)
        parts.sort(key=lambda part: (part[1].shape[1], not isinstance(part[1], Dense), int(part[0][0])))
        ids, sizes = np.concatenate([b.ids for b in blocks]), np.concatenate([b.sizes for b in blocks])
        source = LabelSource.join([block.source for block in blocks])
        return cls(ids, sizes, blocks[0].dim, *lay(parts), blocks[0].store, source)

    @property
    def size(self) -> int:
        """n, the number of records in the block."""
        return len(self.y)

    def hands(self, passes: int = 1) -> int:
        """How many threads take part in this many passes over the records."""
        return hands(self.store.threads, passes * self.cells)

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

    def slope(self, x: Floats, deriv: Derivative) -> Floats:
        """pull(deriv(margins(x), y)), in one pass over the records."""
        stack = x.reshape(-1, *x.shape[-2:]).swapaxes(0, 1)
        threads = self.hands(stack.shape[1])
        each = threads if len(self.slots) < threads else 1  # on how many threads each slot is
        if len(self.slots) == 1:  # of which no copy needs to be made
            slopes = self.slots[0].piece.slope(stack, self.y.reshape(self.slots[0].shape), deriv, each)
            return np.ascontiguousarray(slopes.swapaxes(0, 1)).reshape(x.shape)
        out = np.empty((stack.shape[1], len(self.ids), self.dim))

        def fill(slot: Slot) -> None:
            y = self.y[slot.cells].reshape(slot.shape)
            out[:, slot.at] = slot.piece.slope(stack[slot.at], y, deriv, each).swapaxes(0, 1)

        spread(fill, self.slots, 1 if each > 1 else threads)
        return out.reshape(*x.shape[:-2], len(self.ids), self.dim)

    def gram(self, h: Floats, single: Mask | None = None) -> Floats:
        """(n,) -> (P, d, d): A_i^T diag(h_i) A_i, h >= 0; in single precision for parties marked in `single` (P,)."""
        single = np.zeros(len(self.ids), dtype=bool) if single is None else single
        out = np.empty((len(self.ids), self.dim, self.dim))
        for slot in self.slots:
            parties = zip(slot.positions, slot.piece.parties(), h[slot.cells].reshape(slot.shape), strict=True)
            last = -1, None, np.empty(0)
            for i, A, weights in parties:
                same = A is last[1] and single[i] == single[last[0]] and np.array_equal(weights, last[2])
                out[i] = out[last[0]] if same else gram(A, weights, single[i])  # replicas begin at the same point
                last = i, A, weights
        return out

    def kernel(self) -> Floats:
        """(P, m, m): A_i A_i^T; all parties of the block must have equally many records."""
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
        """Each party's labels, in block order."""
        labels = [np.empty(0)] * len(self.ids)
        for slot in self.slots:
            for i, y in zip(slot.positions, self.y[slot.cells].reshape(slot.shape), strict=True):
                labels[i] = y
        return labels

    def with_labels(self, labels: Sequence[Floats]) -> Shards:
        """Replace the labels; `labels` are each party's, in block order."""
        if [len(y) for y in labels] != self.sizes.tolist():
            raise DataError("labels must have one array for each party, one label for each record")
        return replace(self, y=np.concatenate([labels[i] for slot in self.slots for i in slot.positions]))

    def mapped(self, maps: Sequence[Callable[[Floats, Floats], Any]], dim: int) -> Shards:
        """Map each party's rows by its own map, which writes them, into the unit ball of R^dim; the copy is dense."""
        parts = list[Placed]()
        for slot in self.slots:
            A = self.store.empty((*slot.shape, dim))
            for i, out, party in zip(slot.positions, A, slot.piece.parties(), strict=True):
                for at, rows in chunks(party):
                    maps[i](rows, out[at])
            parts.append((slot.positions, Dense(A), self.y[slot.cells]))
        return replace(self, dim=dim, slots=lay(parts)[1])

    def take(self, parties: ArrayLike) -> Shards:
        """The sub-block of these positions, which must increase. Its records are views; labels are copied."""
        chosen = positions(parties, len(self.ids))
        if len(chosen) == len(self.ids):
            return self
        new = np.full(len(self.ids), -1)  # from positions here to positions there
        new[chosen] = np.arange(len(chosen))
        parts = list[Placed]()
        for slot in self.slots:
            at, y = new[slot.at], self.y[slot.cells].reshape(slot.shape)
            kept = np.flatnonzero(at >= 0)
            if isinstance(slot.piece, Shared) and len(kept):
                parts.append((at[kept], slot.piece.pick(kept), y[kept].ravel()))
                continue
            for run in np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1) if len(kept) else ():
                start, stop = int(run[0]), int(run[-1]) + 1
                parts.append((at[start:stop], slot.piece.cut(start, stop), y[start:stop].ravel()))
        source = None if self.source is None else self.source.take(chosen)
        return Shards(self.ids[chosen], self.sizes[chosen], self.dim, *lay(parts), self.store, source)

    @property
    def cells(self) -> int:
        """How many numbers the records are stored in."""
        return sum(slot.piece.cells for slot in self.slots)

    @property
    def replicated(self) -> bool:
        """Whether it was made by `repeat`."""
        return isinstance(self.slots[0].piece, Shared)

    def repeat(self, times: int) -> Shards:
        """Put this many replicas of each party, one after another, in its place. They share its records."""
        if times == 1:
            return self
        parts = list[Placed]()
        for slot in self.slots:
            assert not isinstance(slot.piece, Shared)
            at = (times * slot.positions[:, None] + np.arange(times)).ravel()
            y = np.repeat(self.y[slot.cells].reshape(slot.shape), times, axis=0)
            parts.append((at, Shared(slot.piece, np.full(slot.shape[0], times)), y.ravel()))
        return Shards(np.repeat(self.ids, times), np.repeat(self.sizes, times), self.dim, *lay(parts), self.store)

    def batches(self, cells: int, alike: bool = True) -> Iterator[tuple[Ints, Shards]]:
        """Cut into sub-blocks of about `cells` numbers or one party, given with their positions.

        If `alike`, all parties of a sub-block have the same size and storage. Replicas of a party stay together.
        """
        ready, held = list[Placed](), 0
        for slot in self.slots:
            k, y = slot.shape[0], self.y[slot.cells].reshape(slot.shape)
            grain = slot.piece.grain
            each = max(1, slot.piece.cells * grain // k)  # stored numbers of a party, also of a sparse A
            most = grain * max(1, cells // each)
            for start in range(0, k, most):
                stop = min(start + most, k)
                if ready and (alike or held + each * ((stop - start) // grain) > cells):
                    yield self._batch(ready)
                    ready, held = [], 0
                ready.append((slot.positions[start:stop], slot.piece.cut(start, stop), y[start:stop].ravel()))
                held += each * ((stop - start) // grain)
        yield self._batch(ready)

    def _batch(self, parts: Sequence[Placed]) -> tuple[Ints, Shards]:
        at = np.sort(np.concatenate([own for own, _, _ in parts]))
        placed = [(np.searchsorted(at, own), piece, y) for own, piece, y in parts]
        return at, Shards(self.ids[at], self.sizes[at], self.dim, *lay(placed), self.store)


@dataclass
class Collector:
    """Makes one block of parties' records that are handed over one after another.

    Tables wait until they are packed: without a limit on memory all of them, else up to PIECE numbers or one table.
    """

    clip: Clip
    classification: bool
    store: Store
    source: LabelSource | None = None  # given if labels are randomised
    _names: list[int] = field(default_factory=list)
    _parts: list[Part] = field(default_factory=list)
    _waiting: int = 0  # bytes of tables
    _blocks: list[Shards] = field(default_factory=list)

    def add(self, name: int, X: Any, y: Any, rows: Ints) -> None:
        """Give party `name` these rows of a table that is its own."""
        self._names.append(name)
        self._parts.append((X, np.asarray(y, dtype=np.float64), rows))
        arrays = (X.data, X.indices, X.indptr) if hasattr(X, "tocsr") else (X,)
        self._waiting += sum(int(array.nbytes) for array in arrays)
        if self.store.limit is not None and self._waiting > 8 * PIECE:
            self._pack()

    def block(self) -> Shards | None:
        """Everybody's records, parties in the order in which they came; None if nobody has any."""
        self._pack()
        return Shards.join(self._blocks) if self._blocks else None

    def _pack(self) -> None:
        if self._parts:
            ready = Shards.assemble(self._parts, self.clip, self._names, self.classification, self.store, self.source)
            self._blocks.append(ready)
            self._names, self._parts, self._waiting = [], [], 0


def party_ids(ids: ArrayLike | None, count: int) -> Ints:
    """The ids of `count` parties, checked: each has its own. None: 0, 1, ..."""
    names = np.arange(count) if ids is None else np.asarray(ids, dtype=np.int64)
    if not count or names.shape != (count,) or len(set(names.tolist())) != count:
        raise ConfigError(f"ids must name each of {count} parties once, and one party at least")
    return names


def positions(parties: ArrayLike, count: int) -> Ints:
    """Positions of a sub-block of `count` parties, checked: they must increase."""
    chosen = np.asarray(parties, dtype=np.int64)
    if not len(chosen) or np.any(np.diff(chosen) <= 0) or chosen[0] < 0 or chosen[-1] >= count:
        raise ConfigError("take needs increasing positions inside the block, at least one")
    return chosen


def table(X: Any, y: ArrayLike) -> tuple[Any, Floats]:
    """X as an array or CSR matrix and y as floats, of matching shapes."""
    X, labels = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X), np.asarray(y, dtype=np.float64)
    if X.ndim != 2 or labels.shape != (X.shape[0],):
        raise DataError(f"X must be (n, d) and y (n,), not {X.shape} and {labels.shape}")
    return X, labels


def check_labels(y: Floats, classification: bool, whose: str = "") -> None:
    if bad := int(np.sum(~np.isfinite(y))):
        raise DataError(f"{whose}{bad} of {len(y)} labels are not finite; clean them or drop their records")
    if classification and (bad := int(np.sum(np.abs(y) != 1))):
        raise DataError(f"{whose}{bad} of {len(y)} labels are not -1 or +1; map the classes to these")
