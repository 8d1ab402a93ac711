"""Split every party's records, by public facts alone, into those to train on and those to evaluate with.

Which places of a party's list are held out follows from its number of records, its own number, the declared fraction
and a declared seed. It depends on no value of a record, so neighbouring data sets are split alike.
"""

from typing import Any

import numpy as np

from privadmm.data import splits
from privadmm.data.arrays import Ints
from privadmm.data.shards import Placed, Shards, Slot, lay
from privadmm.data.storage import Dense, Sparse, diagonal


def held_sizes(sizes: Ints, fraction: float) -> Ints:
    """How many records each party holds out: the rounded fraction, but never all of them."""
    return np.array([min(round(n * fraction), n - 1) for n in sizes.tolist()], dtype=np.int64)


def parted(shards: Shards, fraction: float, seed: int) -> tuple[Shards, Shards | None]:
    """The block to train on, and the held-out records of those parties that have any; None if nobody has."""
    places = [
        splits.of_party(int(n), fraction, seed, int(party)) for n, party in zip(shards.sizes, shards.ids, strict=True)
    ]
    train, test = ([rows[k] for rows in places] for k in (0, 1))
    return chosen(shards, train), chosen(shards, test) if any(map(len, test)) else None


def chosen(shards: Shards, rows: list[Ints]) -> Shards:
    """A copy of these rows of each party, in block order; parties without any are left out."""
    sizes = np.array([len(own) for own in rows], dtype=np.int64)
    new = np.cumsum(sizes > 0) - 1  # the position that each party gets in the copy
    parts = list[Placed]()
    for slot in shards.slots:
        if (m := int(sizes[slot.positions[0]])) == 0:  # a slot's parties have equally many records, and keep so many
            continue
        own = [rows[i] for i in slot.positions]
        labels = shards.y[slot.cells].reshape(slot.shape)
        y = np.concatenate([labels[k][at] for k, at in enumerate(own)])
        parts.append((new[slot.positions], piece_of(shards, slot, own, m), y))
    at = np.flatnonzero(sizes)
    return Shards(shards.ids[at], sizes[at], shards.dim, *lay(parts), shards.store)


def piece_of(shards: Shards, slot: Slot, rows: list[Ints], m: int) -> Dense | Sparse:
    tables: list[Any] = list(slot.piece.parties())
    if hasattr(tables[0], "tocsr"):
        return diagonal([table[at] for table, at in zip(tables, rows, strict=True)])
    A = shards.store.empty((len(rows), m, shards.dim))
    for out, table, at in zip(A, tables, rows, strict=True):
        np.take(table, at, axis=0, out=out)
    return Dense(A)
