"""UCI Adult (Census Income), all 48,842 rows, embedded: no download, no path, the same bytes everywhere.

`load("onehot")` encodes the 14 columns under SCHEMA; `load("a9a")` gives the 123 binary columns of LIBSVM's a9a and
a9a.t, a fixed function of the same rows; `load("raw")` leaves the columns as they are. Attribution and licence
of the data: ADULT_LICENSE.md.
"""

import zlib
from collections.abc import Mapping
from importlib import resources
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Ints
from privadmm.data.raw import labels
from privadmm.data.readers import Matrix, Records
from privadmm.data.schema import Category, Encoding, Number, Schema
from privadmm.errors import ConfigError, DataError

Form = Literal["onehot", "a9a", "raw"]
Rows = Literal["complete", "all"]

TRAIN_ROWS = 32_561  # adult.data comes first, adult.test (16,281 rows) after it
MISSING = "?"
MISSING_CODE = 255
CLASSES = ("<=50K", ">50K")


def _list(words: str) -> Category:
    return Category(tuple(words.split()))


# The lists are those of the data's public description and the ranges are round numbers: neither was read off the rows.
# Never-worked is declared although no complete row has it; a schema made from the complete rows would lose it.
SCHEMA = Schema(
    columns={
        "age": Number(17, 90),
        "workclass": _list(
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked"
        ),
        "fnlwgt": Number(1e4, 1.5e6),
        "education": _list(
            "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th 12th Masters "
            "1st-4th 10th Doctorate 5th-6th Preschool"
        ),
        "education-num": Number(1, 16),
        "marital-status": _list(
            "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent Married-AF-spouse"
        ),
        "occupation": _list(
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty Handlers-cleaners "
            "Machine-op-inspct Adm-clerical Farming-fishing Transport-moving Priv-house-serv Protective-serv "
            "Armed-Forces"
        ),
        "relationship": _list("Wife Own-child Husband Not-in-family Other-relative Unmarried"),
        "race": _list("White Asian-Pac-Islander Amer-Indian-Eskimo Other Black"),
        "sex": _list("Female Male"),
        "capital-gain": Number(0, 1e5),
        "capital-loss": Number(0, 5e3),
        "hours-per-week": Number(1, 99),
        "native-country": _list(
            "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) India "
            "Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica Vietnam Mexico "
            "Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti Columbia Hungary Guatemala "
            "Nicaragua Scotland Thailand Yugoslavia El-Salvador Trinadad&Tobago Peru Hong Holand-Netherlands"
        ),
    },
    label="income",
    classes=CLASSES,
    # Eight one-hot blocks alone have norm sqrt(8) = 2.83; six numbers could take a row to sqrt(14) = 3.74.
    # At 3 five rows in six stay whole; Shards clips the others, which reach 3.32.
    row_bound=3.0,
)

A9A_BOUND = 14**0.5  # every row of a9a has at most fourteen ones
# a9a cuts each number into bins; these are the smallest values of the second bin and on, and give every row of LIBSVM's
# files. A cut could lie anywhere in a gap between rows (106,638 to 106,648 for the first of fnlwgt): its upper end.
A9A_EDGES = MappingProxyType(
    {
        "age": (26, 33, 41, 50),
        "fnlwgt": (106_648, 158_662, 196_338, 259_873),
        "education-num": (9, 10, 11, 13),
        "capital-gain": (1,),
        "capital-loss": (1,),
        "hours-per-week": (35, 40, 41, 48),
    }
)


def load(form: Form = "onehot", rows: Rows | None = None, encoding: Encoding = "minmax") -> Records:
    """Adult as Records with y = -1 (<=50K) or +1 (>50K).

    form: "onehot" is SCHEMA's 105 columns, dense, or more if `encoding` puts its numbers into bins; "a9a" is 123 binary
    columns, CSR; "raw" is the 14 columns, a category as its place in SCHEMA's list and -1 where missing.
    rows: "complete" leaves out the 3,620 rows with a missing cell (45,222 stay); "all" keeps them, as zero blocks; None
    is the custom, complete for onehot and raw, all for a9a.
    Records.columns: the raw columns with "?" where missing, the label "income", and "part", which is "train" for the
    rows of adult.data and "test" for those of adult.test.
    """
    if form not in ("onehot", "a9a", "raw"):
        raise ConfigError(f'adult form must be "onehot", "a9a" or "raw", not {form!r}')
    if rows not in ("complete", "all", None):
        raise ConfigError(f'adult rows must be "complete" or "all", not {rows!r}')
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
    from scipy.sparse import csr_array

    start, places = 0, []
    for name, code in codes.items():
        place = np.searchsorted(A9A_EDGES[name], code, side="right") if name in A9A_EDGES else code
        places.append(np.where(place < 0, -1, start + place))
        start += len(_a9a_names(name))
    cells = np.stack(places, axis=1)
    present = cells >= 0
    indices = cells[present].astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int32)
    return csr_array((np.ones(len(indices)), indices, indptr), shape=(len(cells), start))


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
