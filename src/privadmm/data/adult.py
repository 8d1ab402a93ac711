"""UCI Adult (Census Income), all 48,842 rows, embedded: no download, no path, the same bytes everywhere.

`load("onehot")` encodes the 14 columns under SCHEMA, which adult.toml declares; `load("a9a")` gives the 123 binary
columns of LIBSVM's a9a and a9a.t, a fixed function of the same rows; `load("raw")` leaves the columns as they are.
Attribution and licence of the data: ADULT_LICENSE.md.
"""

import tomllib
import zlib
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import pairwise
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.data.dates import Date
from privadmm.data.kinds import Category, Encoding, Number
from privadmm.data.raw import check_choice
from privadmm.data.readers import Matrix, Records
from privadmm.data.schema import Schema
from privadmm.errors import DataError

Form = Literal["onehot", "a9a", "raw"]
Rows = Literal["complete", "all"]

TRAIN_ROWS = 32_561  # adult.data comes first, adult.test (16,281 rows) after it
MISSING = "?"
MISSING_CODE = 255
DECLARED = tomllib.loads((resources.files("privadmm.data") / "adult.toml").read_text())
CLASSES: tuple[str, str] = tuple(DECLARED["classes"])
SCHEMA = Schema.from_table(DECLARED["columns"], label="income", classes=CLASSES, row_bound=DECLARED["row_bound"])
A9A_EDGES: Mapping[str, Sequence[int]] = DECLARED["a9a_edges"]
A9A_BOUND = 14**0.5  # every row of a9a has at most fourteen ones


def load(
    form: Form = "onehot",
    rows: Rows | None = None,
    encoding: Encoding = "minmax",
    sparse: bool = False,
    raw: bool = True,
) -> Records:
    """Adult as Records with y = -1 (<=50K) or +1 (>50K).

    form: "onehot" is SCHEMA's 105 columns, or more if `encoding` puts its numbers into bins, dense or `sparse` (CSR);
    "a9a" is 123 binary columns, CSR; "raw" is the 14 columns, a category as its place in SCHEMA's list and -1 where
    missing.
    rows: "complete" leaves out the 3,620 rows with a missing cell (45,222 stay); "all" keeps them, as zero blocks; None
    is the usual choice, complete for onehot and raw, all for a9a.
    Records.columns: the raw columns with "?" where missing, the label "income", and "part", which is "train" for the
    rows of adult.data and "test" for those of adult.test. To make them takes as long as all the rest: raw=False leaves
    them out.
    """
    check_choice(Form, **{"adult form": form})
    check_choice(Rows, **{"adult rows": "all" if rows is None else rows})
    coded = _embedded()
    part = np.where(np.arange(len(coded[SCHEMA.label])) < TRAIN_ROWS, "train", "test")
    if rows == "complete" or (rows is None and form != "a9a"):
        words = [name for name, column in SCHEMA.columns.items() if isinstance(column, Category)]
        known = np.all([coded[name] != MISSING_CODE for name in words], axis=0)
        coded, part = {name: code[known] for name, code in coded.items()}, part[known]
    codes = {name: coded[name].astype(np.int64) for name in SCHEMA.columns}
    for name, column in SCHEMA.columns.items():
        if isinstance(column, Category):
            codes[name][codes[name] == MISSING_CODE] = -1
    columns = _raw_columns(codes) | {SCHEMA.label: np.array(CLASSES)[coded[SCHEMA.label]], "part": part} if raw else {}
    X: Matrix
    if form == "onehot":
        schema = SCHEMA.encoded(encoding)
        entries = [
            _of_category(codes[name], len(column.values))
            if isinstance(column, Category)
            else _of_number(codes[name], column)
            for name, column in schema.columns.items()
        ]
        X, names = _matrix(entries, sparse), schema.names
    elif form == "raw":
        X, names = np.stack(list(codes.values()), axis=1).astype(np.float64), tuple(codes)
    else:
        entries = [_of_category(code, len(_a9a_names(name))) for name, code in _a9a_codes(codes).items()]
        X, names = _matrix(entries, sparse=True), A9A_NAMES
    return Records(X, np.where(coded[SCHEMA.label] == 1, 1.0, -1.0), names, columns)


def _raw_columns(codes: Mapping[str, Ints]) -> dict[str, NDArray[Any]]:
    """The columns before they were coded."""
    return {
        # Code -1 takes the last entry, the mark of a missing cell.
        name: np.array([*column.values, MISSING])[codes[name]] if isinstance(column, Category) else codes[name]
        for name, column in SCHEMA.columns.items()
    }


def _a9a_names(name: str) -> tuple[str, ...]:
    column = SCHEMA.columns[name]
    if isinstance(column, Category):
        return column.names(name)
    edges = A9A_EDGES[name]
    between = (f"{low}<={name}<{high}" for low, high in pairwise(edges))
    return (f"{name}<{edges[0]}", *between, f"{name}>={edges[-1]}")


A9A_NAMES = tuple(encoded for name in SCHEMA.columns for encoded in _a9a_names(name))


def _a9a_codes(codes: Mapping[str, Ints]) -> dict[str, Ints]:
    """Each column's bin or category."""
    return {
        name: np.searchsorted(A9A_EDGES[name], code, side="right") if name in A9A_EDGES else code
        for name, code in codes.items()
    }


def _matrix(entries: Sequence[tuple[Ints, Floats, int]], sparse: bool) -> Matrix:
    """Join blocks of columns, given as (place and value of every record's only entry in the block, width)."""
    starts = np.cumsum([0, *(width for _, _, width in entries)])
    places, values = (np.empty((len(entries[0][0]), len(entries)), kind) for kind in (np.int32, np.float64))
    for block, (place, value, _) in enumerate(entries):
        places[:, block], values[:, block] = starts[block] + place, value
    shape = (len(values), int(starts[-1]))
    if not sparse:
        X = np.zeros(shape)
        np.put_along_axis(X, places, values, axis=1)
        return X
    from scipy.sparse import csr_array

    kept = values != 0
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return csr_array((values[kept], places[kept], indptr.astype(np.int32)), shape=shape)


def _of_category(codes: Ints, width: int) -> tuple[Ints, Floats, int]:
    """The block of a category: a 1 at the code, and no entry where the code is -1."""
    return np.maximum(codes, 0), (codes >= 0).astype(np.float64), width


def _of_number(codes: Ints, column: Number | Date) -> tuple[Ints, Floats, int]:
    """The block of a number: its share of the range, or a 1 at its bin."""
    block = column.encode(codes)
    return block.argmax(axis=1), block.max(axis=1), block.shape[1]


def _embedded() -> dict[str, NDArray[Any]]:
    """The integer-coded columns, as tools/build_adult.py wrote them."""
    source = resources.files("privadmm.data") / "adult.npz"
    try:
        with source.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in (*SCHEMA.columns, SCHEMA.label)}
    except (OSError, KeyError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise DataError(
            f"{source}: the embedded Adult data are missing or damaged ({type(error).__name__}); install privadmm again"
        ) from None
