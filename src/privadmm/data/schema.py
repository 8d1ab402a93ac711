"""What a table's columns mean, declared by its owner and never read off the records.

A category list or a range that is looked up in private data is itself a release. So a schema is written down
first, and `Schema.encode` is a total map under it: every record, whatever it holds, goes to a point of
[0, 1]^dim, and one record's point does not depend on any other record.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.errors import ConfigError, DataError
from privadmm.params import check_positive

OnBad = Literal["refuse", "default"]
ClassName = str | float
Classes = tuple[ClassName, ClassName]
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none", "-"})  # words for no value
DROP_OR_DEFAULT = 'drop or fill in these rows, or set on_bad = "default" to read them as the low end of the range'


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

    With `edges`, which are fractions of the range and begin with 0, it is encoded one-hot instead: by the last edge
    that its fraction reaches.
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
        """Total: out of range is clipped, and what is not a finite number becomes the low end."""
        x = numbers(values)
        x = np.clip(np.where(np.isnan(x), self.low, x), self.low, self.high)
        share = (x - self.low) / (self.high - self.low)
        if not self.edges:
            return share[:, None]
        block = np.zeros((len(share), len(self.edges)))
        block[np.arange(len(share)), np.searchsorted(self.edges, share, side="right") - 1] = 1.0
        return block


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
        if repeated := [value for value, count in Counter(values).items() if count > 1]:
            raise ConfigError(f"category {repeated[0]!r} is declared twice; each needs one place in the list")
        object.__setattr__(self, "values", values)

    def names(self, column: str) -> tuple[str, ...]:
        return tuple(f"{column}={value}" for value in self.values)

    def codes(self, values: NDArray[Any]) -> Ints:
        """The place of each value in the declared list, -1 for a value that is not on it."""
        place = {value: j for j, value in enumerate(self.values)}
        return np.fromiter(map(place.get, words(values), repeat(-1)), np.int64, len(values))

    def encode(self, values: NDArray[Any]) -> Floats:
        """Total: a value that is not on the list, a missing one included, becomes a block of zeros."""
        block = np.zeros((len(values), len(self.values)))
        codes = self.codes(values)
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
            object.__setattr__(self, "classes", class_pair(self.classes))
        if not self.columns:
            raise ConfigError("schema declares no columns; give at least one range or list of categories")
        for name in (*self.columns, self.label):
            if not isinstance(name, str) or name != name.strip() or not name:
                raise ConfigError(f"schema column {name!r}: a name is a string without blanks around it")
        if self.label in self.columns:
            raise ConfigError(f"schema column {self.label!r} is the label; a model may not see it, remove it")
        if repeated := [name for name, count in Counter(self.names).items() if count > 1]:
            raise ConfigError(
                f"schema column {repeated[0]!r} would be encoded twice; rename one of the columns behind it"
            )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the encoded columns: `age` for a number, `sex=Female` for a category."""
        return tuple(encoded for name, column in self.columns.items() for encoded in column.names(name))

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def sparse(self) -> bool:
        """At most a quarter of a record's entries can differ from 0: a declared column has one of them at most."""
        return 4 * len(self.columns) <= self.dim

    def encoded(self, encoding: Encoding) -> "Schema":
        """The same declaration with every number in these bins."""
        columns = {
            name: replace(column, edges=EDGES[encoding]) if isinstance(column, Number) else column
            for name, column in self.columns.items()
        }
        return replace(self, columns=columns)

    @classmethod
    def from_table(
        cls, table: Mapping[str, Any], *, label: str, classes: Sequence[ClassName] | None, row_bound: float
    ) -> "Schema":
        """The form of a TOML table: `age = [17, 90]` is a range, `sex = ["Female", "Male"]` is categories."""
        columns: dict[str, Number | Category] = {}
        for name, entry in table.items():
            try:
                columns[name] = _column(entry)
            except ConfigError as error:
                raise ConfigError(f"schema column {name!r}: {error}") from None
        return cls(columns, label, None if classes is None else class_pair(classes), row_bound)

    def encode(self, table: Mapping[str, NDArray[Any]], on_bad: OnBad = "refuse") -> Floats:
        """Encode records column by column: (n, dim), every entry in [0, 1].

        Number: clipped to its range and scaled to [0, 1]. Category: one-hot, unknown -> zeros. A missing or
        non-finite number is refused, or becomes the low end of its range with on_bad="default". With
        "default" nothing that a record holds can raise. Columns that are not declared are ignored.
        """
        check_on_bad(on_bad)
        for name in self.columns:
            require_column(name, table)
        lengths = {name: np.shape(table[name]) for name in self.columns}
        n = next(iter(lengths.values()))
        for name, shape in lengths.items():
            if len(shape) != 1 or shape != n:
                raise DataError(f"column {name!r} has shape {shape}; all columns must be 1-d of one length")
        blocks = []
        for name, column in self.columns.items():
            values = np.asarray(table[name])
            if isinstance(column, Number):
                values = numbers(values)
                if on_bad == "refuse" and (bad := np.isnan(values)).any():
                    raise DataError(bad_numbers(name, bad, f"record {int(bad.argmax()) + 1}", DROP_OR_DEFAULT))
            blocks.append(column.encode(values))
        return np.concatenate(blocks, axis=1)


def labels(values: NDArray[Any], classes: Sequence[ClassName], name: str = "label") -> Floats:
    """-1 for the first class and +1 for the second; anything else is refused.

    Words are compared without the blanks around them, and numbers as numbers, so that "1", "+1", 1 and 1.0
    are one class; true and false count as 1 and 0.
    """
    classes = class_pair(classes)
    sign = {_token(_word(classes[0])): -1.0, _token(_word(classes[1])): 1.0}
    found = words(values)
    known = {word: sign.get(_token(word), 0.0) for word in set(found)}
    y = np.fromiter(map(known.__getitem__, found), np.float64, len(found))
    if other := int(np.count_nonzero(y == 0)):
        kinds = sum(1 for value in known.values() if value == 0)
        raise DataError(
            f"label column {name!r}: {other} of {len(y)} rows hold {kinds} value(s) that are neither "
            f"{classes[0]!r} (negative) nor {classes[1]!r} (positive); "
            "drop or relabel these rows, or declare the two classes as the data spell them"
        )
    return y


def class_pair(classes: Sequence[ClassName]) -> Classes:
    """Check a declaration of (negative, positive)."""
    if isinstance(classes, str) or len(classes) != 2:
        raise ConfigError(f"classes must be two values, [negative, positive], not {classes!r}")
    if not all(isinstance(value, str | int | float | np.integer | np.floating) for value in classes):
        raise ConfigError(f"classes must be strings or numbers, not {classes!r}")
    negative, positive = (_token(_word(value)) for value in classes)
    if negative == positive or "" in (negative, positive):
        raise ConfigError(f"classes must be two different values, neither of them blank, not {classes!r}")
    return classes[0], classes[1]


def check_on_bad(on_bad: str) -> None:
    if on_bad not in ("refuse", "default"):
        raise ConfigError(f'on_bad must be "refuse" or "default", not {on_bad!r}')


def require_column(name: str, have: Mapping[str, Any] | Sequence[str]) -> None:
    if name not in have:
        # Where a header is missing its names are a record: they are not repeated here.
        close = [place for place, other in enumerate(have, 1) if alike(name, other)]
        hint = f" Column {close[0]} has nearly this name." if close else ""
        hint += " A csv file may have another separator than the comma." if len(have) == 1 else ""
        raise DataError(
            f"column {name!r} is missing; the table has {len(have)} others.{hint} Rename the column in the data or in "
            "the declaration; if there is no header line, add one, and look for a quote that is not closed"
        )


def alike(name: str, other: Any) -> bool:
    """But for its case, blanks and a slip or two."""
    a, b = ("".join(c for c in str(word).casefold() if c not in " _-") for word in (name, other))
    return SequenceMatcher(None, a, b).ratio() >= 0.75


def distinct_columns(header: Sequence[str]) -> None:
    """Refuse a table with one name twice, which is not told: a file without a header begins with a record."""
    first: dict[str, int] = {}
    for number, name in enumerate(header, 1):
        if (before := first.setdefault(name, number)) != number:
            raise DataError(
                f"columns {before} and {number} have the same name; rename one of them, or add a line of names if the "
                "file has none"
            )


def bad_numbers(name: str, bad: NDArray[np.bool_], first: str, fix: str) -> str:
    """What to tell the owner about cells that are not finite numbers: where and how many, never what."""
    count = int(np.count_nonzero(bad))
    return f"column {name!r}: {count} of {len(bad)} rows hold no finite number (the first is {first}); {fix}"


def numbers(values: NDArray[Any]) -> Floats:
    """As float64, with NaN for whatever is not a finite number: blanks, words, infinities, dates."""
    values = np.asarray(values)
    kind = values.dtype.kind
    if kind in "biuf":
        with np.errstate(over="ignore"):
            x = values.astype(np.float64)
    elif kind in "OSU":
        cells = values.tolist()
        try:
            x = np.fromiter(map(float, cells), np.float64, len(cells))
        except (TypeError, ValueError, OverflowError):
            x = np.fromiter(map(_number, cells), np.float64, len(cells))
    else:
        return np.full(values.shape, np.nan)
    x[np.isinf(x)] = np.nan
    return x


def words(values: NDArray[Any]) -> list[str]:
    """As stripped strings: whole numbers without a decimal point, and "" for None and NaN."""
    cells = np.asarray(values).tolist()
    try:
        return list(map(str.strip, cells))
    except TypeError:
        return [_word(cell) for cell in cells]


def _column(entry: Any) -> Number | Category:
    if isinstance(entry, list | tuple):
        if entry and all(isinstance(item, str) for item in entry):
            return Category(tuple(entry))
        if len(entry) == 2 and not any(isinstance(item, str) for item in entry):
            return Number(entry[0], entry[1])
    raise ConfigError("write a range as [low, high] with two numbers, or categories as a list of strings")


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _word(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _token(word: str) -> str | float:
    """A number where the word spells one, so that "+1" and "1.0" are the same class."""
    if word.casefold() in ("true", "false"):
        return float(word.casefold() == "true")
    number = _number(word)
    return number if math.isfinite(number) else word
