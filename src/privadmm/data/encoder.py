"""Raw rows -> the features that a model was trained on. Made of declared constants, so nothing private is in it.

The same map as in training: a number is clipped to its declared range, an unknown category is a block of zeros. Where
no schema was declared, every column is a number as it stands. Prediction refuses a column that the model does not know,
which may be a misspelt one, unless it is told to ignore such columns.
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.data.readers import DROP, Columns, Format, opened
from privadmm.data.schema import (
    MISSING,
    Category,
    Number,
    OnBad,
    Schema,
    bad_numbers,
    check_on_bad,
    distinct_columns,
    numbers,
    require_column,
    words,
)
from privadmm.errors import ConfigError, DataError

Extra = Literal["refuse", "ignore"]
Unread = Mapping[str, Mapping[str, int]]  # cells by column and by what was amiss
Rows = Iterable[Mapping[str, Any]] | Mapping[str, Any] | NDArray[Any]
AMISS = {
    "unknown": "in no declared category, read as zeros",
    "missing": "left empty, read as zeros",
    "clipped": "beyond the declared range, clipped to it",
    "no_number": "with no number, read as the low end of the range",
}


@dataclass(frozen=True)
class Encoder:
    """`names` are the features in the model's order, and `label` a column that may stand beside them, unread."""

    names: tuple[str, ...]
    schema: Schema | None = None
    on_bad: OnBad = "refuse"
    label: str | None = None

    def __post_init__(self) -> None:
        check_on_bad(self.on_bad)
        if self.schema is not None and (unknown := set(self.names) - set(self.schema.names)):
            raise ConfigError(f"the schema makes no feature {min(unknown)!r}; the model needs one")

    @cached_property
    def columns(self) -> dict[str, Number | Category | None]:
        """The raw columns that are read, and how: None is a number as it stands."""
        if self.schema is None:
            return dict.fromkeys(self.names)
        used = set(self.names)
        return {name: column for name, column in self.schema.columns.items() if not used.isdisjoint(column.names(name))}

    @property
    def numeric(self) -> list[str]:
        return [name for name, column in self.columns.items() if not isinstance(column, Category)]

    def encode(self, table: Mapping[str, NDArray[Any]]) -> Floats:
        """Columns of one length -> (n, d), in the order of `names`. Numbers were checked before."""
        features: dict[str, Floats] = {}
        for name, column in self.columns.items():
            if column is None:
                features[name] = numbers(table[name])
            else:
                block = column.encode(table[name])
                features |= {encoded: block[:, j] for j, encoded in enumerate(column.names(name))}
        return np.stack([features[name] for name in self.names], axis=1)

    def unread(self, table: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, int]]:
        """How many cells of each declared column stand for something else than what they hold; see AMISS."""
        found: dict[str, dict[str, int]] = {}
        for name, column in self.columns.items():
            if column is None:
                continue
            if isinstance(column, Category):
                cells = words(table[name])
                off = [cells[row].casefold() in MISSING for row in np.flatnonzero(column.codes(table[name]) < 0)]
                counts = {"unknown": off.count(False), "missing": off.count(True)}
            else:
                x = numbers(table[name])
                beyond = (x < column.low) | (x > column.high)
                counts = {"clipped": int(beyond.sum()), "no_number": int(np.isnan(x).sum())}
            if any(counts.values()):
                found[name] = {kind: count for kind, count in counts.items() if count}
        return found


@dataclass(frozen=True, eq=False, repr=False)
class RawRows:
    """Rows for a model: features X (n, d), further columns that were asked for, and what was not read as it stood."""

    X: Floats
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unread: Unread = field(default_factory=dict)

    def __repr__(self) -> str:  # sizes only: a repr ends up in logs
        return f"RawRows({len(self.X)} rows, {self.X.shape[1]} features, kept={list(self.kept)})"


def encode_file(
    encoder: Encoder,
    path: str | Path,
    format: Format | None = None,
    *,
    keep: Sequence[str] = (),
    extra: Extra = "refuse",
) -> RawRows:
    """A csv or parquet file with the raw columns, in any order; errors name the file, the line and the column."""
    check_extra(extra)
    with opened(Path(path), format) as table:
        distinct_columns(table.header)
        for name in (*encoder.columns, *keep):
            require_column(name, table.header)
        unknown = [name for name in table.header if name not in {*encoder.columns, *keep, encoder.label}]
        if unknown and extra == "refuse":
            raise DataError(
                f"column {unknown[0]!r} is none that the model knows"
                + (f", nor are {len(unknown) - 1} others" if len(unknown) > 1 else "")
                + f"; rename or remove it, or ask for extra = {'ignore'!r} (--extra ignore), or keep it (--keep)"
            )
        numeric = encoder.numeric
        text = sorted({*encoder.columns, *keep} - set(numeric))
        columns = table.load(numeric, text)
        check_numbers(encoder, columns, table.where)
        raw = {name: columns[name] for name in keep}
        found = RawRows(encoder.encode(columns), raw, encoder.unread(columns))
        if not len(found.X):
            raise DataError("has no rows to predict for; give a file with at least one")
    return found


def encode_rows(encoder: Encoder, rows: Rows, *, extra: Extra = "refuse") -> Floats:
    """Rows as mappings from column to cell, or a table as a mapping from column to cells, or a structured array.

    Errors name the row, counted from 1, and the column.
    """
    check_extra(extra)
    if isinstance(rows, np.ndarray) and rows.dtype.names is not None:
        rows = {name: rows[name] for name in rows.dtype.names}
    table = whole(encoder, rows, extra) if isinstance(rows, Mapping) else one_by_one(encoder, rows, extra)
    check_numbers(encoder, table, lambda row: f"row {row + 1}")
    return encoder.encode(table)


def whole(encoder: Encoder, columns: Mapping[str, Any], extra: Extra) -> Columns:
    for name in encoder.columns:
        require_column(name, columns)
    check_known(encoder, list(columns), extra, "the table")
    table = {name: np.asarray(columns[name]) for name in encoder.columns}
    shapes = {values.shape for values in table.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1:
        raise DataError(f"the table's columns have shapes {sorted(shapes)}; all must be 1-d of one length")
    return table


def one_by_one(encoder: Encoder, rows: Iterable[Mapping[str, Any]], extra: Extra) -> Columns:
    known, cells = encoder.columns, {name: list[Any]() for name in encoder.columns}
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is a {type(row).__name__}; give each as a mapping of column to cell")
        for name in known:
            if name not in row:
                raise DataError(f"row {number} has no column {name!r}; give every column that the model was trained on")
            cells[name].append(row[name])
        check_known(encoder, list(row), extra, f"row {number}")
    return {name: column_of(values) for name, values in cells.items()}


def check_known(encoder: Encoder, names: Sequence[str], extra: Extra, where: str) -> None:
    unknown = [name for name in names if name not in encoder.columns and name != encoder.label]
    if unknown and extra == "refuse":
        raise DataError(
            f"{where} has a column {unknown[0]!r}, which is none that the model knows; rename or remove it, "
            f"or ask for extra = {'ignore'!r}"
        )


def column_of(cells: Sequence[Any]) -> NDArray[Any]:
    """As they are: numpy would make one type of them all."""
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


def check_numbers(encoder: Encoder, table: Mapping[str, NDArray[Any]], where: Any) -> None:
    if encoder.on_bad == "default" and encoder.schema is not None:
        return
    for name in encoder.numeric:
        bad = np.isnan(numbers(table[name]))
        if bad.any():
            raise DataError(bad_numbers(name, bad, where(int(bad.argmax())), DROP))


def amiss(unread: Unread, rows: int) -> list[str]:
    """A line for each column and kind: counts, never what a cell holds."""
    return [
        f"{name}: {count} of {rows} cells {AMISS[kind]}"
        for name, kinds in unread.items()
        for kind, count in kinds.items()
    ]


def check_extra(extra: str) -> None:
    if extra not in ("refuse", "ignore"):
        raise ConfigError(f'extra must be "refuse" or "ignore", not {extra!r}')


def as_csv(rows: RawRows, scores: Floats, predictions: NDArray[Any] | None) -> str:
    """A line for each row, in its order: what was kept, the score, and the class where there are classes."""
    columns: dict[str, Any] = {**rows.kept, "score": map(repr, scores.tolist())}
    if predictions is not None:
        columns["prediction"] = predictions.tolist()
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
