"""Records that several rows of a block share: a party's replicas are right-hand sides of one pass over its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats, Ints
from privadmm.data.storage import Derivative, Stored


@dataclass(frozen=True, eq=False)
class Shared:
    """The records of k parties, of which party i has counts[i] consecutive rows of the block, perhaps none.

    It has the products of `Dense`, with one row for each replica in place of one for each party. How a party's sums are
    rounded depends on the number of its rows, and not on other parties.
    """

    piece: Stored
    counts: Ints

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.counts.sum()), self.piece.shape[1]

    @property
    def cells(self) -> int:
        return self.piece.cells * int((self.counts > 0).sum()) // len(self.counts)

    @property
    def grain(self) -> int:
        return int(self.counts[0])

    @cached_property
    def _alone(self) -> list[tuple[Stored, slice]]:
        """The records of each party that has rows, and which rows; one piece for all if they have equally many."""
        if (self.counts == self.counts[0]).all():
            return [(self.piece, slice(0, int(self.counts.sum())))]
        ends = np.cumsum(self.counts).tolist()
        owners = [i for i, count in enumerate(self.counts) if count]
        return [(self.piece.cut(i, i + 1), slice(ends[i] - int(self.counts[i]), ends[i])) for i in owners]

    def _each(self, product: Callable[[Stored, Floats, slice], Floats], v: Floats) -> Floats:
        """Join the products of parties' records with v (rows, R, width), all rows of a party at once."""
        products = (product(piece, v[at].reshape(piece.shape[0], -1, v.shape[-1]), at) for piece, at in self._alone)
        rows = [part.reshape(-1, v.shape[1], part.shape[-1]) for part in products]
        return rows[0] if len(rows) == 1 else np.concatenate(rows)

    def margins(self, x: Floats) -> Floats:
        return self._each(lambda piece, x, at: piece.margins(x), x)

    def pull(self, g: Floats) -> Floats:
        return self._each(lambda piece, g, at: piece.pull(g), g)

    def slope(self, x: Floats, y: Floats, deriv: Derivative, threads: int = 1) -> Floats:
        def product(piece: Stored, x: Floats, at: slice) -> Floats:
            labels = y[at].reshape(piece.shape[0], -1, piece.shape[1])[:, 0]  # those of a party's rows are the same
            return piece.slope(x, labels, deriv, threads)

        return self._each(product, x)

    def kernel(self) -> Floats:
        return np.repeat(self.piece.kernel(), self.counts, axis=0)

    def parties(self) -> Iterator[Any]:
        """The records of each row, (m, d)."""
        for A, count in zip(self.piece.parties(), self.counts.tolist(), strict=True):
            for _ in range(count):
                yield A

    def pick(self, rows: Ints) -> Shared:
        """These rows alone, which must increase."""
        owners = np.repeat(np.arange(len(self.counts)), self.counts)[rows]
        return Shared(self.piece, np.bincount(owners, minlength=len(self.counts)))

    def cut(self, start: int, stop: int) -> Shared:
        first, last = np.searchsorted(np.cumsum(self.counts), [start, stop - 1], side="right").tolist()
        return Shared(self.piece.cut(first, last + 1), self.pick(np.arange(start, stop)).counts[first : last + 1])


Piece = Stored | Shared
