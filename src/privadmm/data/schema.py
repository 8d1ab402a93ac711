"""What a table's columns mean, declared by its owner and never read off the records.

A category list or a range that is looked up in private data is itself a release. So the schema is written down first.
`Schema.encode` is a total map: every record, whatever it holds, becomes a point of [0, 1]^dim, and one record's point
does not depend on any other record.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privadmm.data import raw
from privadmm.data.arrays import Floats, Ints
from privadmm.data.raw import Classes, ClassName, OnBad
from privadmm.errors import ConfigError
from privadmm.params import check_positive

Encoding = Literal["minmax", "binned", "coarse"]
# Where a number's bins begin, as fractions of its declared range: finer near the low end, where most columns are dense.
EDGES: dict[Encoding, tuple[float, ...]] = {
    "minmax": (),
    "binned": (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7),
    "coarse": (0.0, 0.02, 0.1, 0.25, 0.5),
}


@dataclass(frozen=True)
class Number:
    """A numeric column with its declared range; encoded as one column, (value - low) / (high - low).

    With `edges`, fractions of the range that begin with 0, it is encoded one-hot by the last edge that it reaches.
    """

    low: float
    high: float
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.edges and (self.edges[0] != 0 or not all(a < b < 1 for a, b in pairwise((*self.edges, 1 - 1e-12)))):
            raise ConfigError(f"edges are increasing fractions of the range, 0 first and below 1, not {self.edges}")
        for end in (self.low, self.high):
            if isinstance(end, bool) or not isinstance(end, int | float | np.integer | np.floating):
                raise ConfigError(f"a range is two numbers, [low, high]; one end is a {type(end).__name__}")
        low, high = float(self.low), float(self.high)
        if not (low < high and math.isfinite(high - low)):
            raise ConfigError(f"a range needs finite ends with low < high, not [{low!r}, {high!r}]")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def names(self, column: str) -> tuple[str, ...]:
        if not self.edges:
            return (column,)
        return tuple(f"{column}>={self.low + edge * (self.high - self.low):g}" for edge in self.edges)

    def encode(self, values: NDArray[Any]) -> Floats:
        """Encode any values: out of range is clipped, and what is not a finite number becomes the low end."""
        x = raw.numbers(values)
        x = np.clip(np.where(np.isnan(x), self.low, x), self.low, self.high)
        share = (x - self.low) / (self.high - self.low)
        if not self.edges:
            return share[:, None]
        return one_hot(np.searchsorted(self.edges, share, side="right") - 1, len(self.edges))


@dataclass(frozen=True)
class Category:
    """A column of words with its declared list; encoded one-hot, in the order of the list."""

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if isinstance(self.values, str) or not all(isinstance(value, str) for value in self.values):
            raise ConfigError('categories are a list of strings; write numbers as ["1", "2"]')
        values = tuple(value.strip() for value in self.values)
        if not values:
            raise ConfigError("the list of categories is empty; declare every category, or drop the column")
        if "" in values:
            raise ConfigError("a category is blank; an empty cell has no category, so leave it off the list")
        if (value := raw.repeated(values)) is not None:
            raise ConfigError(f"category {value!r} is declared twice; each needs one place in the list")
        object.__setattr__(self, "values", values)

    def names(self, column: str) -> tuple[str, ...]:
        return tuple(f"{column}={value}" for value in self.values)

    def codes(self, values: NDArray[Any]) -> Ints:
        """The place of each value in the declared list; -1 if it is not on the list."""
        place = {value: j for j, value in enumerate(self.values)}
        return np.fromiter(map(place.get, raw.words(values), repeat(-1)), np.int64, len(values))

    def encode(self, values: NDArray[Any]) -> Floats:
        """Encode any values: one that is not on the list, or missing, becomes a block of zeros."""
        return one_hot(self.codes(values), len(self.values))


def one_hot(codes: Ints, width: int) -> Floats:
    """(n, width): a 1 at each code, and a row of zeros for a code of -1."""
    block = np.zeros((len(codes), width))
    rows = np.flatnonzero(codes >= 0)
    block[rows, codes[rows]] = 1.0
    return block


@dataclass(frozen=True)
class Schema:
    """The declared columns of a table, in order, with its label and the bound on a row's 2-norm.

    classes is (negative, positive), or None when the label is a number to be predicted. Rows are clipped to
    row_bound later on, by `Shards`; `encode` does not clip them.
    """

    columns: Mapping[str, Number | Category]
    label: str
    classes: Classes | None
    row_bound: float

    def __post_init__(self) -> None:
        check_positive(row_bound=self.row_bound)
        object.__setattr__(self, "columns", dict(self.columns))
        if self.classes is not None:
            object.__setattr__(self, "classes", raw.class_pair(self.classes))
        if not self.columns:
            raise ConfigError("schema declares no columns; give at least one range or list of categories")
        for name in (*self.columns, self.label):
            if not isinstance(name, str) or name != name.strip() or not name:
                raise ConfigError(f"schema column {name!r}: a name is a string without blanks around it")
        if self.label in self.columns:
            raise ConfigError(f"schema column {self.label!r} is the label; a model may not see it, remove it")
        if (again := raw.repeated(self.names)) is not None:
            raise ConfigError(f"schema column {again!r} would be encoded twice; rename one of the columns behind it")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns: `age` for a number, `sex=Female` for a category."""
        return tuple(encoded for name, column in self.columns.items() for encoded in column.names(name))

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def sparse(self) -> bool:
        """Whether at most a quarter of a record's entries can differ from 0: a column has one such entry at most."""
        return 4 * len(self.columns) <= self.dim

    def encoded(self, encoding: Encoding) -> "Schema":
        """Like this schema, with every number put into the bins of `encoding`."""
        columns = {
            name: replace(column, edges=EDGES[encoding]) if isinstance(column, Number) else column
            for name, column in self.columns.items()
        }
        return replace(self, columns=columns)

    @classmethod
    def from_table(
        cls, table: Mapping[str, Any], *, label: str, classes: Sequence[ClassName] | None, row_bound: float
    ) -> "Schema":
        """Read the form of a TOML table: `age = [17, 90]` is a range, `sex = ["Female", "Male"]` is categories."""
        columns: dict[str, Number | Category] = {}
        for name, entry in table.items():
            try:
                columns[name] = _column(entry)
            except ConfigError as error:
                raise ConfigError(f"schema column {name!r}: {error}") from None
        return cls(columns, label, None if classes is None else raw.class_pair(classes), row_bound)

    def encode(
        self,
        table: Mapping[str, NDArray[Any]],
        on_bad: OnBad = "refuse",
        where: Callable[[int], str] = raw.nth_record,
        fix: str = raw.DROP_OR_DEFAULT,
    ) -> Floats:
        """Encode records column by column: (n, dim), every entry in [0, 1]. Columns that are not declared are ignored.

        A missing or non-finite number is refused, with an error that says `where` it is and how to `fix` it, or becomes
        the low end of its range with on_bad = "default". With "default" nothing that a record holds can raise an error.
        """
        raw.check_choice(OnBad, on_bad=on_bad)
        raw.require_table(self.columns, table)
        blocks = []
        for name, column in self.columns.items():
            values = np.asarray(table[name])
            if isinstance(column, Number) and on_bad == "refuse":
                values = raw.require_numbers(name, values, where, fix)
            blocks.append(column.encode(values))
        return np.concatenate(blocks, axis=1)


def _column(entry: Any) -> Number | Category:
    if isinstance(entry, list | tuple):
        if entry and all(isinstance(item, str) for item in entry):
            return Category(tuple(entry))
        if len(entry) == 2 and not any(isinstance(item, str) for item in entry):
            return Number(entry[0], entry[1])
    raise ConfigError("write a range as [low, high] with two numbers, or categories as a list of strings")
