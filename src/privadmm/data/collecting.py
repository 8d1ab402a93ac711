"""Parties' records, handed over one after another, as one block: with a limit on memory, a few parties at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privadmm.data.label_source import LabelSource
from privadmm.data.packing import PIECE, Clip, Index
from privadmm.data.shards import Part, Shards
from privadmm.data.store import Store


@dataclass
class Collector:
    """Tables wait until they are packed: all of them without a limit, and else PIECE numbers or one table."""

    clip: Clip
    classification: bool
    store: Store
    source: LabelSource | None = None  # of labels that are randomised
    _names: list[int] = field(default_factory=list)
    _parts: list[Part] = field(default_factory=list)
    _waiting: int = 0  # bytes of tables
    _blocks: list[Shards] = field(default_factory=list)

    def add(self, name: int, X: Any, y: Any, rows: Index) -> None:
        """Party `name` holds these rows of a table that is its own."""
        self._names.append(name)
        self._parts.append((X, np.asarray(y, dtype=np.float64), rows))
        self._waiting += nbytes(X)
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


def nbytes(X: Any) -> int:
    """Of a table, dense or CSR."""
    arrays = (X.data, X.indices, X.indptr) if hasattr(X, "tocsr") else (X,)
    return sum(int(array.nbytes) for array in arrays)
