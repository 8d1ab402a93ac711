"""What a table's columns mean, declared by its owner and never read off the records.

A category list or a range that is looked up in private data is itself a release. So the schema is written down first.
`Schema.encode` is a total map: every record, whatever it holds, becomes a point of [0, 1]^dim, and one record's point
does not depend on any other record.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data import raw
from privadmm.data.arrays import Floats
from privadmm.data.dates import Date, parts_of
from privadmm.data.kinds import COUNTS, Category, Encoding, Number, count_cuts
from privadmm.data.raw import Classes, ClassName, OnBad
from privadmm.errors import ConfigError, did_you_mean, listed
from privadmm.params import check_positive

__all__ = ["Category", "Column", "Date", "Encoding", "Number", "Schema", "column_of", "columns_of", "quoted_range"]

Column = Number | Category | Date
KEYS = {
    "range": ("range", "edges", "whole", "default", "missing"),
    "categories": ("categories", "other", "default", "missing"),
    "date": ("date", "range", "parts", "default", "missing"),
}
FORMS = (
    "write a range as [low, high] with two numbers, categories as a list of strings, or a table such as "
    '{ range = [0, 9], missing = true }, { categories = ["a", "b"], other = true } or '
    '{ date = "%Y-%m-%d", range = ["2020-01-01", "2029-12-31"] }'
)


@dataclass(frozen=True)
class Schema:
    """The declared columns of a table, in order, with its label and the bound on a row's 2-norm.

    classes is (negative, positive), or None when the label is a number to be predicted. Rows are clipped to
    row_bound later on, by `Shards`; `encode` does not clip them.
    """

    columns: Mapping[str, Column]
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

    def present(self, names: Iterable[str]) -> list[str]:
        """Translate the feature names of an older model, which named bins by their beginnings, `age>=17`."""
        earlier = {
            f"{column}>={start}": now
            for column, kind in self.columns.items()
            if not isinstance(kind, Category)
            for start, now in zip(kind.starts, kind.names(column), strict=False)
        }
        known = set(self.names)
        return [name if name in known else earlier.get(name, name) for name in names]

    @property
    def dim(self) -> int:
        return len(self.names)

    @property
    def sparse(self) -> bool:
        """Whether at most a quarter of a record's entries can differ from 0."""
        return 4 * sum(column.entries for column in self.columns.values()) <= self.dim

    @property
    def norm(self) -> float:
        """The 2-norm that no encoded record exceeds, whatever it holds: with it as row_bound, no row is clipped."""
        total = math.fsum(column.square for column in self.columns.values())
        root = math.sqrt(total)
        return root if root.is_integer() and root * root == total else math.nextafter(root, math.inf)

    def encoded(self, encoding: Encoding) -> "Schema":
        """Like this schema, with every number put into the bins of `encoding`."""
        columns = {name: column.encoded(encoding) for name, column in self.columns.items()}
        return replace(self, columns=columns)

    @classmethod
    def from_table(
        cls, table: Mapping[str, Any], *, label: str, classes: Sequence[ClassName] | None, row_bound: float
    ) -> "Schema":
        """Read the form of a TOML table: `age = [17, 90]` is a range, `sex = ["Female", "Male"]` is categories.

        With more to say, a column is a table: see `column_of`.
        """
        return cls(columns_of(table), label, None if classes is None else raw.class_pair(classes), row_bound)

    def encode(
        self,
        table: Mapping[str, NDArray[Any]],
        on_bad: OnBad = "refuse",
        where: Callable[[int], str] = raw.nth_record,
        fix: str = raw.DROP_OR_DEFAULT,
    ) -> Floats:
        """Encode records column by column: (n, dim), every entry in [0, 1]. Columns that are not declared are ignored.

        A cell that is no finite number, or no date, becomes what its column declares. If the column declares nothing,
        on_bad = "refuse" raises an error that says `where` the cell is and how to `fix` it, and "default" reads it as
        the low end of the range. With "default" nothing that a record holds can raise an error.
        """
        raw.check_choice(OnBad, on_bad=on_bad)
        raw.require_table(self.columns, table)
        blocks = []
        for name, column in self.columns.items():
            values = np.asarray(table[name])
            if on_bad == "refuse" and not column.forgiving:
                what = "date in the declared format" if isinstance(column, Date) else "finite number"
                raw.require_read(name, column.unreadable(values), what, where, fix)
            blocks.append(column.encode(values))
        return np.concatenate(blocks, axis=1)

    def unread(self, table: Mapping[str, NDArray[Any]]) -> dict[str, dict[str, int]]:
        """How many cells of each column stand for something else than what they hold, by what was amiss."""
        counts = {name: column.unread(table[name]) for name, column in self.columns.items()}
        some = {name: {kind: count for kind, count in kinds.items() if count} for name, kinds in counts.items()}
        return {name: kinds for name, kinds in some.items() if kinds}


def columns_of(table: Mapping[str, Any]) -> dict[str, Column]:
    """Read every column of a schema's table; errors name the column."""
    columns: dict[str, Column] = {}
    for name, entry in table.items():
        try:
            columns[name] = column_of(entry)
        except ConfigError as error:
            raise ConfigError(f"schema column {name!r}: {error}") from None
    return columns


def column_of(entry: Any) -> Column:
    """Read one column, a list or a table.

    [17, 90]                                                        a range
    ["Female", "Male"]                                              categories
    { range = [0, 80], edges = [1, 5, 20], default = 2, missing = true }
    { range = [0, 80], edges = "counts" }                           bins for a count
    { range = [15, 100], whole = true }                             bins that begin at whole numbers
    { categories = ["a", "b"], other = true, default = "a", missing = true }
    { date = "%d.%m.%Y", range = ["01.01.2020", "31.12.2029"], parts = ["month", "weekday"], missing = true }
    """
    if isinstance(entry, Mapping):
        return _table(entry)
    if isinstance(entry, list | tuple):
        if entry and all(isinstance(item, str) for item in entry):
            if problem := quoted_range(entry):
                raise ConfigError(problem)
            return Category(tuple(entry))
        if len(entry) == 2 and not any(isinstance(item, str) for item in entry):
            return Number(entry[0], entry[1])
    raise ConfigError(FORMS)


def quoted_range(words: Sequence[str]) -> str | None:
    """The complaint about two quoted numbers that look like a range, as "17" and "90" do; None for other words."""
    try:
        low, high = map(float, words)
    except ValueError:
        return None
    if not low + 1 < high < math.inf:
        return None
    low_word, high_word = words
    table = f'{{ categories = ["{low_word}", "{high_word}"] }}'
    return f"is two numbers in quotes: write [{low_word}, {high_word}], or {table} if they are words"


def _table(entry: Mapping[str, Any]) -> Column:
    kind = next((kind for kind in ("date", "categories", "range") if kind in entry), None)
    if kind is None:
        near = next((hint for key in entry if (hint := did_you_mean(key, KEYS, repr))), "")
        raise ConfigError(f"a table needs range, categories or date (docs/data.md){near and f'; {near}'}")
    for key in entry:
        if key not in KEYS[kind]:
            hint = did_you_mean(key, KEYS[kind], repr)
            takes = f"a column with {kind} takes {listed(KEYS[kind], 'and')}"
            raise ConfigError(f"{key!r} is no key of it: {takes}{hint and f'; {hint}'}")
    default, missing = entry.get("default"), entry.get("missing", False)
    if kind == "categories":
        return Category(_list(entry, "categories"), entry.get("other", False), default, missing)
    if "range" not in entry:
        raise ConfigError("a date needs a range: the first and the last date that are told apart, as two strings")
    low, high = _list(entry, "range", 2)
    if kind == "date":
        return Date(entry["date"], low, high, parts_of(entry.get("parts", ())), default=default, missing=missing)
    edges = entry.get("edges", ())
    if isinstance(edges, str) and edges != COUNTS:
        raise ConfigError(f'edges are a list of numbers, or "{COUNTS}", not {edges!r}')
    if "edges" in entry and not edges:
        raise ConfigError("edges is an empty list; name where bins begin, or leave it out")
    Number(low, high)  # so that a wrong range is refused before its bins are looked at
    cuts = count_cuts(low, high) if edges == COUNTS else _list(entry, "edges") if "edges" in entry else ()
    return Number(low, high, cuts=cuts, default=default, missing=missing, whole=entry.get("whole", False))


def _list(entry: Mapping[str, Any], key: str, length: int | None = None) -> tuple[Any, ...]:
    """The list under a key of a column's table, as a tuple."""
    value = entry[key]
    if not isinstance(value, list | tuple) or length not in (None, len(value)):
        raise ConfigError(f"{key} is a list{'' if length is None else f' of {length}'}, not {value!r}")
    return tuple(value)
