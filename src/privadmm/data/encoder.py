"""Turn raw rows into the features that a model was trained on. The map is declared, so it holds nothing private.

It is the map of training: a number or date is clipped to its declared range, an unknown category is a block of zeros or
the declared level for others, a missing cell is what its column declares, and without a schema every column is a number
as it stands. A column that the model does not know is refused, or ignored and named, as the caller says. The label,
and columns that named the party or the person of a row, may be in the table and are not read.
"""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privadmm.data import raw
from privadmm.data.arrays import Floats
from privadmm.data.misread import Unread
from privadmm.data.raw import OnBad, check_choice, require_column
from privadmm.data.readers import Columns, Format, opened
from privadmm.data.schema import Number, Schema
from privadmm.errors import ConfigError, DataError

Extra = Literal["refuse", "ignore"]
Rows = Iterable[Mapping[str, Any]] | Mapping[str, Any] | NDArray[Any]


@dataclass(frozen=True)
class Encoder:
    """Makes the features `names`, in the model's order. Columns `beside` may be in a table, and are not read."""

    names: tuple[str, ...]
    schema: Schema | None = None
    on_bad: OnBad = "refuse"
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice(OnBad, on_bad=self.on_bad)
        if self.schema is not None and (unknown := set(self.names) - set(self.schema.names)):
            raise ConfigError(f"the schema makes no feature {min(unknown)!r}; the model needs one")

    @cached_property
    def used(self) -> Schema | None:
        """The schema of the columns that `names` are made of; None: they are plain numbers."""
        if self.schema is None:
            return None
        made, columns = set(self.names), self.schema.columns
        used = {name: columns[name] for name in columns if not made.isdisjoint(columns[name].names(name))}
        return replace(self.schema, columns=used)

    @cached_property
    def columns(self) -> dict[str, None]:
        """The raw columns that are read, in order."""
        return dict.fromkeys(self.names if self.used is None else self.used.columns)

    @property
    def numeric(self) -> list[str]:
        return [name for name in self.columns if self.used is None or isinstance(self.used.columns[name], Number)]

    def encode(self, table: Mapping[str, NDArray[Any]], where: Callable[[int], str]) -> Floats:
        """Encode columns of one length: (n, d), in the order of `names`. Errors say `where` a row is."""
        if self.used is None:
            return np.stack([raw.require_numbers(name, table[name], where, raw.DROP) for name in self.names], axis=1)
        place = {name: j for j, name in enumerate(self.used.names)}
        encoded = self.used.encode(table, self.on_bad, where, raw.DROP)
        return np.take(encoded, [place[name] for name in self.names], axis=1)

    def unread(self, table: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, int]]:
        """How many cells of each declared column stand for something else than what they hold; see `AMISS`."""
        return {} if self.used is None else self.used.unread(table)

    def check_known(self, names: Iterable[str], extra: Extra, where: str = "") -> list[str]:
        """The columns that the model does not know; refused if `extra` says so."""
        unknown = [name for name in names if name not in self.columns and name not in self.beside]
        if unknown and extra == "refuse":
            others = {1: "", 2: f", nor is {unknown[-1]!r}"}.get(len(unknown), f", nor are {len(unknown) - 1} others")
            raise DataError(
                f"{where}column {unknown[0]!r} is none that the model knows{others}; rename or remove it, or ask for "
                "extra = 'ignore' (--extra ignore), or keep it (--keep)"
            )
        return unknown


@dataclass(frozen=True, eq=False, repr=False)
class RawRows:
    """Rows for a model: features X (n, d), further columns that were asked for, and counts of misread cells."""

    X: Floats
    kept: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    unread: Unread = field(default_factory=dict)
    ignored: Sequence[str] = ()  # columns that the model does not know

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
    """Encode a csv or parquet file with the raw columns in any order; errors name the file, line and column."""
    check_choice(Extra, extra=extra)
    with opened(Path(path), format) as table:
        raw.distinct_columns(table.header)
        for name in (*encoder.columns, *keep):
            require_column(name, table.header)
        ignored = encoder.check_known([name for name in table.header if name not in keep], extra)
        columns = table.load(encoder.numeric, sorted({*encoder.columns, *keep} - set(encoder.numeric)))
        X = encoder.encode(columns, table.where)
        if not len(X):
            raise DataError("has no rows to predict for; give a file with at least one")
        return RawRows(X, {name: columns[name] for name in keep}, encoder.unread(columns), ignored)


def encode_rows(encoder: Encoder, rows: Rows, *, extra: Extra = "refuse") -> Floats:
    """Encode rows as mappings from column to cell, a table as a mapping from column to cells, or a structured array.

    Errors name the row, counted from 1, and the column.
    """
    check_choice(Extra, extra=extra)
    if isinstance(rows, np.ndarray) and rows.dtype.names is not None:
        rows = {name: rows[name] for name in rows.dtype.names}
    if isinstance(rows, Mapping):
        raw.require_table(encoder.columns, rows)
        encoder.check_known(rows, extra)
        table = {name: np.asarray(rows[name]) for name in encoder.columns}
    else:
        table = _one_by_one(encoder, rows, extra)
    return encoder.encode(table, lambda row: f"row {row + 1}")


def _one_by_one(encoder: Encoder, rows: Iterable[Mapping[str, Any]], extra: Extra) -> Columns:
    rows = list(rows)
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"row {number} is a {type(row).__name__}; give each as a mapping of column to cell")
        for name in encoder.columns:
            if name not in row:
                raise DataError(f"row {number} has no column {name!r}; give every column that the model was trained on")
        encoder.check_known(row, extra, f"row {number}: ")
    table = {name: np.empty(len(rows), dtype=object) for name in encoder.columns}
    for name, column in table.items():
        column[:] = [row[name] for row in rows]  # of mixed types, which np.array would convert to one type
    return table


def as_csv(rows: RawRows, scores: Floats, predictions: NDArray[Any] | None, label: str | None = None) -> str:
    """Write a line for each row, in order: the kept columns, the score, and the class if there are classes.

    Without classes the score is the number that was to be predicted, and its column is named after the label.
    """
    number = "prediction" if label is None else f"predicted_{label}"
    columns: dict[str, Any] = {**rows.kept, number if predictions is None else "score": map(repr, scores.tolist())}
    if predictions is not None:
        columns["prediction"] = predictions.tolist()
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
