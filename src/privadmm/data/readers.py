"""Read csv, parquet, npz and libsvm files into `Records`, and check them before anything else sees them.

Reading happens at the owner, before any release. So a reader may refuse a file and say where it is wrong: the file, the
line, the column, how many rows. It never prints what a cell holds. What would otherwise be looked up in the data
(categories, ranges, classes, the number of columns of a libsvm file) has to be declared.
"""

import bz2
import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Union, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.data import libsvm, npz, raw
from privadmm.data.arrays import Floats
from privadmm.data.misread import Unread
from privadmm.data.raw import DROP, Classes, ClassName, OnBad, nth_record, numbers, words
from privadmm.data.schema import Number, Schema
from privadmm.data.storage import Store, cut_up
from privadmm.errors import ConfigError, DataError, PrivadmmError
from privadmm.params import MOST_FEATURES

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Format = Literal["csv", "parquet", "npz", "libsvm"]
Matrix = Union[Floats, "csr_array"]
Columns = dict[str, NDArray[Any]]
EXTENSIONS: dict[Format, tuple[str, ...]] = {
    "csv": (".csv", ".csv.gz"),
    "parquet": (".parquet",),
    "npz": (".npz",),
    "libsvm": (".libsvm", ".svm", ".txt", ".gz"),
}
FOREIGN = (OSError, EOFError, ValueError, NotImplementedError, csv.Error, zlib.error, zipfile.BadZipFile)
DROP_OR_DECLARE = f"{DROP}, or declare a schema if the column holds categories"
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, eq=False, repr=False)
class Records:
    """n records: features X (n, d), dense or CSR, and y (n,), which is -1 / +1 or a number to predict.

    `names` are the d feature names; `columns` holds further raw columns of length n, for splitting by them.
    """

    X: Matrix
    y: Floats
    names: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unread: Unread = field(default_factory=dict)  # cells that were not read as they stood, if they were counted

    def __post_init__(self) -> None:
        if len(self.X.shape) != 2 or self.y.shape != (self.X.shape[0],):
            raise DataError(f"X must be (n, d) and y (n,), not {self.X.shape} and {self.y.shape}")
        if len(self.names) != self.X.shape[1]:
            raise DataError(f"{len(self.names)} names for {self.X.shape[1]} features")
        for name, values in self.columns.items():
            if values.shape != self.y.shape:
                raise DataError(f"column {name!r} has shape {values.shape} beside {len(self)} records")

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:  # sizes only: a repr ends up in logs
        return f"Records({len(self)} records, {len(self.names)} features, columns={list(self.columns)})"

    def take(self, rows: ArrayLike) -> "Records":
        """The records at these row numbers (or under this mask), in this order."""
        index = np.asarray(rows)
        columns = {name: values[index] for name, values in self.columns.items()}
        return Records(self.X[index], self.y[index], self.names, columns, self.unread)


def read(
    path: str | Path,
    format: Format | None = None,
    *,
    label: str | None = None,
    classes: Sequence[ClassName] | None = None,
    schema: Schema | None = None,
    keep: Sequence[str] = (),
    on_bad: OnBad = "refuse",
    dim: int | None = None,
    store: Store | None = None,
    counted: bool = False,
) -> Records:
    """Read one file; its format follows from the extension unless it is given.

    csv, parquet: with a schema the declared columns are encoded and others are ignored; without one, every column but
    the label and those in `keep` is a number. npz: arrays X (n, d) and y (n,). libsvm: indices from 1, and `dim` is
    declared. csv and libsvm may be gzipped. classes = (negative, positive) gives y = -1 / +1; None leaves y a number.
    A schema brings its own label and classes. `store` decides where X of an npz file is kept; None: in memory.
    `counted`: also count cells that a schema reads as something else than they hold; for a simulation or their owner.
    """
    path = Path(path)
    raw.check_choice(OnBad, on_bad=on_bad)
    kind = _format(path, format)
    pair = None if classes is None else raw.class_pair(classes)
    if schema is not None:
        for what, given, declared in (("label", label, schema.label), ("classes", pair, schema.classes)):
            if given not in (None, declared):
                raise ConfigError(f"{what} = {given!r}, but the schema declares {declared!r}; keep one of them")
        label, pair = schema.label, schema.classes
        if kind not in TABLES:
            raise ConfigError(f"{path}: a schema names columns, and {kind} has none; use csv or parquet")
    elif on_bad == "default":
        raise ConfigError(f'{path}: on_bad = "default" needs a schema, which declares the default; add one')
    if dim is not None and not 1 <= dim <= MOST_FEATURES:
        raise ConfigError(f"{path}: dim must be 1 to {MOST_FEATURES:,}, not {dim!r}; hash more features to fewer")
    with _readable(path, kind):
        if kind == "npz":
            records = _read_npz(path, label or "y", pair, keep, store or Store())
        elif kind == "libsvm":
            if keep:
                raise ConfigError(f"{path}: keep = {list(keep)!r}, but a libsvm file has no further columns")
            if dim is None:
                raise ConfigError(
                    f"{path}: a libsvm file does not say how many features there are, and its largest index may fall "
                    "short (a9a.t has 122 of 123); declare dim = ..."
                )
            with _open(path) as file:
                records = _matrix(*libsvm.parse(file, dim), label or "y", pair, {})
        else:
            if label is None:
                raise ConfigError(f'{path}: name the label column, label = "..."')
            records = _read_table(TABLES[kind](path), label, pair, schema, keep, on_bad, counted)
        if len(records) == 0:
            raise DataError("has no records; give a file with at least one")
        if dim not in (None, records.X.shape[1]):
            raise DataError(f"has {records.X.shape[1]} features, but dim = {dim}; correct one of them")
    return records


@contextmanager
def opened(path: Path, format: Format | None) -> Iterator["_Table"]:
    """Open a csv or parquet file, from which columns can be loaded by name."""
    kind = _format(path, format)
    if kind not in TABLES:
        raise ConfigError(f"{path}: columns are asked for by name, and {kind} has none; use csv or parquet")
    with _readable(path, kind):
        yield TABLES[kind](path)


def load_features(
    table: "_Table",
    features: Sequence[str],
    schema: Schema | None,
    on_bad: OnBad,
    numeric: Sequence[str] = (),
    text: Sequence[str] = (),
) -> tuple[Floats, Columns]:
    """X (n, d) of these columns, encoded by their schema or as plain numbers, and all columns that were read.

    `numeric` and `text` name further columns to read.
    """
    if not features:
        raise DataError("has no feature columns; add at least one")
    measured = [name for name in features if schema is None or isinstance(schema.columns[name], Number)]
    columns = table.load([*measured, *numeric], sorted({*features, *text} - {*measured, *numeric}))
    if schema is not None:
        return schema.encode(columns, on_bad, table.where), columns
    own = [raw.require_numbers(name, columns[name], table.where, DROP_OR_DECLARE) for name in features]
    return np.stack(own, axis=1), columns


def _format(path: Path, given: Format | None) -> Format:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; check the path")
    if not path.is_file():
        raise ConfigError(f"{path}: not a file; give one csv, parquet, npz or libsvm file")
    if given in EXTENSIONS:
        return given
    if given is not None:
        raise ConfigError(f"{path}: format must be one of {', '.join(EXTENSIONS)}, not {given!r}")
    # csv comes first, so that .csv.gz is not taken for the .gz of libsvm.
    for kind, endings in EXTENSIONS.items():
        if path.name.lower().endswith(endings):
            return kind
    known = ", ".join(ending for endings in EXTENSIONS.values() for ending in endings)
    raise ConfigError(f"{path}: no format is known for this name (known: {known}); set format = ...")


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Name the file in every failure. For other libraries' errors only the type is shown: their text may quote data."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except PrivadmmError:
        raise
    except UnicodeDecodeError:
        raise DataError(
            f"{path}: is not text in UTF-8, as {kind} is; save it as UTF-8, or set format = ... if it is no {kind}"
        ) from None
    except FOREIGN as error:
        raise DataError(
            f"{path}: cannot be read as {kind} ({type(error).__name__}); "
            "check that the file is complete and readable, or set format = ..."
        ) from None


def _open(path: Path) -> IO[bytes]:
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    return cast(IO[bytes], openers.get(path.suffix.lower(), open)(path, "rb"))


class _Csv:
    """A csv file, from which columns are loaded by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[int] = []
        with self._open() as file:
            _, header = next(self._rows(file), (0, []))
        if not header:
            raise DataError("is empty; give a csv file with a header line and at least one record")
        self.header = tuple(name.strip() for name in header)
        if not np.isnan(numbers(np.array(self.header, dtype=object))).any():
            raise DataError("the first line holds only numbers; put a header line with column names first")

    def _open(self) -> IO[str]:
        return io.TextIOWrapper(_open(self.path), encoding="utf-8-sig", newline="")

    @staticmethod
    def _rows(file: IO[str]) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(file, skipinitialspace=True)
        for row in reader:
            # A blank line is not a record; csv gives [] for it, or one blank cell when it holds spaces.
            if len(row) > 1 or any(row):
                yield reader.line_num, row

    def load(self, numeric: Sequence[str], text: Sequence[str]) -> Columns:
        place = {name: j for j, name in enumerate(self.header)}
        parts: dict[str, list[NDArray[Any]]] = {name: [np.empty(0)] for name in numeric}
        parts |= {name: [np.empty(0, dtype="U1")] for name in text}
        with self._open() as file:
            rows = self._rows(file)
            next(rows)
            while chunk := list(islice(rows, ROWS_AT_ONCE)):
                for line, row in chunk:
                    if len(row) != len(self.header):
                        raise DataError(
                            f"line {line} has {len(row)} cells where the header has {len(self.header)}; "
                            "correct or drop it"
                        )
                    self.lines.append(line)
                cells = list(zip(*(row for _, row in chunk), strict=True))
                for name, part in parts.items():
                    column = np.array(cells[place[name]], dtype=object)
                    part.append(numbers(column) if part[0].dtype == np.float64 else np.array(words(column)))
        return {name: np.concatenate(part) for name, part in parts.items()}

    def where(self, row: int) -> str:
        return f"on line {self.lines[row]}"


class _Parquet:
    """A parquet file, with the methods of `_Csv`."""

    def __init__(self, path: Path) -> None:
        try:
            from pyarrow import parquet, types
        except ImportError:
            raise ConfigError(
                f"{path}: reading parquet needs pyarrow; install the extra, pip install 'privadmm[parquet]'"
            ) from None
        self.file, self.types = parquet.ParquetFile(path), types
        self.header: tuple[str, ...] = tuple(self.file.schema_arrow.names)

    def load(self, numeric: Sequence[str], text: Sequence[str]) -> Columns:
        with self.file as file:
            table = file.read(columns=[*numeric, *text])
        columns: Columns = {}
        for name in (*numeric, *text):
            column = table.column(name)
            # pyarrow would turn a null of a dictionary column into the dictionary's last word.
            if self.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            columns[name] = column.to_numpy(zero_copy_only=False)
        return columns | {name: numbers(columns[name]) for name in numeric}

    def where(self, row: int) -> str:
        return nth_record(row)


_Table = _Csv | _Parquet
TABLES: dict[str, type[_Table]] = {"csv": _Csv, "parquet": _Parquet}


def _read_table(
    table: _Table,
    label: str,
    classes: Classes | None,
    schema: Schema | None,
    keep: Sequence[str],
    on_bad: OnBad,
    counted: bool,
) -> Records:
    raw.distinct_columns(table.header)
    features = [name for name in table.header if name != label and name not in keep]
    if schema is not None:
        features = list(schema.columns)
    for name in (*features, label, *keep):
        raw.require_column(name, table.header)
    numeric, text = ([label], keep) if classes is None else ([], [label, *keep])
    X, columns = load_features(table, features, schema, on_bad, numeric, text)
    y = label_values(columns[label], label, classes, table.where)
    names = tuple(features) if schema is None else schema.names
    unread = schema.unread(columns) if counted and schema is not None else {}
    return Records(X, y, names, {name: columns[name] for name in keep}, unread)


def label_values(values: NDArray[Any], label: str, classes: Classes | None, where: Callable[[int], str]) -> Floats:
    """-1 / +1 of a column that holds the two classes, or finite numbers where there are no classes."""
    return raw.require_numbers(label, values, where, DROP) if classes is None else raw.labels(values, classes, label)


def _read_npz(path: Path, label: str, classes: Classes | None, keep: Sequence[str], store: Store) -> Records:
    with path.open("rb") as file, npz.opened(file) as arrays:
        for name in ("X", label, *keep):
            raw.require_column(name, arrays.files)
        X = npz.features(arrays, store)
        y, kept = npz.array(arrays, label), {name: npz.array(arrays, name) for name in keep}
    if y.shape != X.shape[:1]:
        raise DataError(f"{label} must have shape ({len(X)},) like the rows of X, not {y.shape}")
    return _matrix(X, y, label, classes, kept)


def feature_names(d: int) -> tuple[str, ...]:
    """Feature names for files without column names: x1, x2, ... as libsvm counts."""
    return tuple(f"x{j + 1}" for j in range(d))


def _matrix(X: Any, y: NDArray[Any], label: str, classes: Classes | None, kept: Columns) -> Records:
    """Records of a file without column names. Features that are not finite are refused."""
    names, dense = feature_names(X.shape[1]), isinstance(X, np.ndarray)
    if dense:
        bad = np.zeros(len(names), dtype=bool)
        for _, part in cut_up(X):
            bad |= ~np.isfinite(part).all(axis=0)
        columns = np.flatnonzero(bad)
    else:
        columns = X.indices[~np.isfinite(X.data)]
    if len(columns):
        first = X[:, [columns.min()]]
        raw.require_numbers(names[columns.min()], (first if dense else first.toarray())[:, 0], nth_record, DROP)
    return Records(X, label_values(y, label, classes, nth_record), names, kept)
