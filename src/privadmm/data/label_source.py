"""Which labels a block holds, and of which records; to compare with randomised labels that were stored before.

A stored label belongs to the record at its place, and the record is known by a digest of its features. The digest is of
the numbers as they were read, before they are clipped, so it is the same for dense and sparse storage, for every bound
and intercept, and on every machine. It does not cover the labels: it is stored, and nothing stored may tell more of a
label than its randomised report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.data.arrays import Ints
from privadmm.data.storage import CHUNK

CELLS = 1 << 14  # numbers of a dense table that are digested at a time


@dataclass(frozen=True)
class LabelSource:
    """The label column, its classes (negative first) and a digest of each party's records."""

    column: str = "y"
    classes: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    @staticmethod
    def declared(column: str | None, classes: Sequence[Any] | None, rows: Sequence[str] = ()) -> LabelSource:
        """The source that a config or an estimator declares; a file without column names calls its labels y."""
        return LabelSource(column or "y", tuple(str(name) for name in classes or ()), tuple(rows))

    def take(self, parties: Ints) -> LabelSource:
        """The source of the parties at these positions."""
        return replace(self, rows=tuple(self.rows[i] for i in parties))

    @staticmethod
    def join(sources: Sequence[LabelSource | None]) -> LabelSource | None:
        """Join the sources of a job's blocks; None if a block has no source."""
        known = [source for source in sources if source is not None]
        if len(known) < len(sources):
            return None
        return replace(known[0], rows=tuple(digest for source in known for digest in source.rows))


UNNAMED = LabelSource()


def digest_of(X: Any, rows: Ints) -> str:
    """Digest these rows of a table in this order: how many entries of each are not 0, their columns and values."""
    counts, places, values = (hashlib.sha256() for _ in range(3))
    sparse = hasattr(X, "tocsr")
    step = CHUNK if sparse else max(1, CELLS // int(X.shape[1]))
    for start in range(0, len(rows), step):
        part = X[rows[start : start + step]]
        if sparse:
            part = part.tocsr().astype(np.float64, copy=False)
            part.sum_duplicates()
            part.eliminate_zeros()
            many, columns, numbers = np.diff(part.indptr), part.indices, part.data
        else:
            part = np.asarray(part, dtype=np.float64)
            mask = part != 0
            many, columns, numbers = mask.sum(axis=1), np.nonzero(mask)[1], part[mask]
        counts.update(many.astype("<i8", copy=False).tobytes())
        places.update(columns.astype("<i8", copy=False).tobytes())
        values.update(numbers.astype("<f8", copy=False).tobytes())
    shape = f"{len(rows)} {int(X.shape[1])} ".encode()
    return hashlib.sha256(shape + counts.digest() + places.digest() + values.digest()).hexdigest()
