"""Parse libsvm files, `label index:value index:value ...`, a few megabytes at a time; errors name the line.

scikit-learn's reader names no line, and its errors quote cells.
"""

from itertools import chain
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.data.raw import numbers
from privadmm.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BYTES_AT_ONCE = 1 << 22


def parse(file: IO[bytes], dim: int) -> "tuple[csr_array, Floats]":
    """X (n, dim) and the labels (n,). Indices in the file count from 1."""
    from scipy.sparse import csr_array

    blocks, before = [], 0
    while lines := file.readlines(BYTES_AT_ONCE):
        blocks.append(_block(lines, before, dim))
        before += len(lines)
    if not blocks:
        raise DataError("is empty; give a libsvm file with at least one record")
    y, counts, indices, values = (np.concatenate(part) for part in zip(*blocks, strict=True))
    # 32-bit indices where they fit: several solvers take no others.
    whole = np.int32 if len(values) < 1 << 31 else np.int64
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(whole)
    return csr_array((values, (indices - 1).astype(whole), indptr), shape=(len(y), dim)), y


def _block(lines: list[bytes], before: int, dim: int) -> tuple[NDArray[Any], ...]:
    """Parse whole lines at once: labels, entries per line, indices, values. `before` lines were parsed already."""
    records = [(k, body) for k, line in enumerate(lines, before + 1) if (body := line.split(b"#", 1)[0].strip())]
    tokens = [body.replace(b":", b" ").split() for _, body in records]
    counts = np.array([body.count(b":") for _, body in records], dtype=np.int64)
    owner = np.repeat(np.arange(len(records)), counts)  # the record of each entry

    def refuse(bad: NDArray[np.bool_], what: str) -> None:
        if bad.any():
            raise DataError(f"line {records[int(bad.argmax())][0]} {what}")

    def refuse_entries(bad: NDArray[np.bool_], what: str) -> None:
        refuse(np.bincount(owner[bad], minlength=len(records)) > 0, what)

    malformed = "is not `label index:value index:value ...` in numbers; correct or drop it"
    refuse(np.array([len(cells) for cells in tokens], dtype=np.int64) != 1 + 2 * counts, malformed)
    try:
        flat = np.fromiter(map(float, chain.from_iterable(tokens)), np.float64)
    except ValueError:
        refuse(np.array([np.isnan(numbers(np.array(cells))).any() for cells in tokens]), malformed)
        raise
    is_label = np.zeros(len(flat), dtype=bool)
    is_label[np.cumsum(1 + 2 * counts) - (1 + 2 * counts)] = True
    indices, values = flat[~is_label].reshape(-1, 2).T
    from_one = (indices >= 1) & (indices == np.floor(indices))
    refuse_entries(~from_one, "has an index that is no whole number from 1 up; libsvm counts from 1")
    refuse_entries(indices > dim, f"has an index beyond the declared dim = {dim}; correct one of them")
    again = np.zeros(len(indices), dtype=bool)
    again[1:] = (indices[1:] <= indices[:-1]) & (owner[1:] == owner[:-1])
    refuse_entries(again, "has indices that do not increase; sort them, each index once")
    return flat[is_label], counts, indices, values
