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

from privadmm.data.arrays import Ints
from privadmm.data.kinds import Category, Encoding, one_hot
from privadmm.data.raw import check_choice, labels
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


def load(form: Form = "onehot", rows: Rows | None = None, encoding: Encoding = "minmax") -> Records:
    """Adult as Records with y = -1 (<=50K) or +1 (>50K).

    form: "onehot" is SCHEMA's 105 columns, dense, or more if `encoding` puts its numbers into bins; "a9a" is 123 binary
    columns, CSR; "raw" is the 14 columns, a category as its place in SCHEMA's list and -1 where missing.
    rows: "complete" leaves out the 3,620 rows with a missing cell (45,222 stay); "all" keeps them, as zero blocks; None
    is the custom, complete for onehot and raw, all for a9a.
    Records.columns: the raw columns with "?" where missing, the label "income", and "part", which is "train" for the
    rows of adult.data and "test" for those of adult.test.
    """
    check_choice(Form, **{"adult form": form})
    check_choice(Rows, **{"adult rows": "all" if rows is None else rows})
    coded = _embedded()
    codes, columns = dict[str, Ints](), dict[str, NDArray[Any]]()
    for name, column in SCHEMA.columns.items():
        code = columns[name] = coded[name].astype(np.int64)
        if isinstance(column, Category):
            code = np.where(code == MISSING_CODE, -1, code)
            columns[name] = np.array([*column.values, MISSING])[code]  # -1 finds the mark, which stands last
        codes[name] = code
    columns[SCHEMA.label] = np.array(CLASSES)[coded[SCHEMA.label]]
    columns["part"] = np.where(np.arange(len(coded["age"])) < TRAIN_ROWS, "train", "test")
    y = labels(columns[SCHEMA.label], CLASSES, SCHEMA.label)
    X: Matrix
    if form == "onehot":
        schema = SCHEMA.encoded(encoding)
        X, names = schema.encode(columns), schema.names
    elif form == "raw":
        X, names = np.stack(list(codes.values()), axis=1).astype(np.float64), tuple(codes)
    else:
        X, names = _a9a(codes), A9A_NAMES
    records = Records(X, y, names, columns)
    if rows == "all" or (rows is None and form == "a9a"):
        return records
    return records.take(np.flatnonzero(np.all([code >= 0 for code in codes.values()], axis=0)))


def _a9a_names(name: str) -> tuple[str, ...]:
    column = SCHEMA.columns[name]
    if isinstance(column, Category):
        return column.names(name)
    edges = A9A_EDGES[name]
    between = (f"{low}<={name}<{high}" for low, high in pairwise(edges))
    return (f"{name}<{edges[0]}", *between, f"{name}>={edges[-1]}")


A9A_NAMES = tuple(encoded for name in SCHEMA.columns for encoded in _a9a_names(name))


def _a9a(codes: Mapping[str, Ints]) -> Any:
    """For each column of Adult a 1 at the record's bin or category; none where the cell is missing."""
    from scipy.sparse import csr_array, hstack

    def places(name: str) -> Ints:
        return np.searchsorted(A9A_EDGES[name], codes[name], side="right") if name in A9A_EDGES else codes[name]

    blocks = [csr_array(one_hot(places(name), len(_a9a_names(name)))) for name in codes]
    return hstack(blocks, format="csr")


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
