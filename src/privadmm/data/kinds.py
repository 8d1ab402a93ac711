"""The kinds of columns that a schema declares. Each maps any cell to a block of [0, 1]^width, by what was declared.

A cell is missing if it is empty or cannot be read as what its column holds. What it becomes is declared too:
`default` is a value that stands in for it, and `missing` adds an indicator column that is 1 there and 0 elsewhere. With
an indicator and no default the rest of the block is 0.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from privadmm.data import raw
from privadmm.data.arrays import Floats, Ints
from privadmm.errors import ConfigError

Encoding = Literal["minmax", "binned", "coarse"]
# Where a number's bins begin, as fractions of its declared range: finer near the low end, where most columns are dense.
EDGES: dict[Encoding, tuple[float, ...]] = {
    "minmax": (),
    "binned": (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7),
    "coarse": (0.0, 0.02, 0.1, 0.25, 0.5),
}
COUNTS = "counts"
SMALL_COUNTS = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)  # where bins of counts begin; from 100 on a bin for each decade
MISSING, OTHER = "(missing)", "(other)"  # as in the names of features: age=(missing)


class Kind(ABC):
    """What a schema asks of a column, and how all kinds treat missing cells."""

    default: Any
    missing: bool

    @property
    def forgiving(self) -> bool:
        """Whether the column says what a missing cell becomes, so that none is refused."""
        return self.missing or self.default is not None

    @property
    def entries(self) -> int:
        """How many entries of a record's block can differ from 0."""
        return 2 if self.missing and self.default is not None else 1

    def read_as(self, otherwise: str) -> str:
        """The name under which missing cells are counted: what they become, or `otherwise`."""
        if self.missing:
            return "indicated"
        return otherwise if self.default is None else "default"

    @property
    @abstractmethod
    def square(self) -> float:
        """The largest squared 2-norm that a record's block can have."""

    @abstractmethod
    def names(self, column: str) -> tuple[str, ...]: ...

    @abstractmethod
    def encoded(self, encoding: Encoding) -> Self: ...

    @abstractmethod
    def unreadable(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Where cells are missing."""

    @abstractmethod
    def encode(self, values: NDArray[Any]) -> Floats: ...

    @abstractmethod
    def unread(self, values: NDArray[Any]) -> dict[str, int]:
        """Count the cells that stand for something else than what they hold, by what was amiss."""


@dataclass(frozen=True)
class Number(Kind):
    """A numeric column with its declared range; encoded as one column, (value - low) / (high - low).

    In bins it is encoded one-hot, by the last bin that it reaches. `cuts` are where bins begin, in the column's own
    units: the first begins at the low end. `edges` are fractions of the range that begin with 0, as an encoding of the
    whole table sets them; declared cuts come first. `whole` says that the column holds whole numbers: then bins of
    `edges` begin at the next whole number, and bins that would hold none are left out.
    """

    low: float
    high: float
    edges: tuple[float, ...] = ()
    cuts: tuple[float, ...] = ()
    default: float | None = None
    missing: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if self.edges and (self.edges[0] != 0 or not all(a < b < 1 for a, b in pairwise((*self.edges, 1 - 1e-12)))):
            raise ConfigError(f"edges are increasing fractions of the range, 0 first and below 1, not {self.edges}")
        for end in (self.low, self.high):
            if not is_number(end):
                kind = "in quotes" if isinstance(end, str) else f"a {type(end).__name__}"
                raise ConfigError(f"a range is two numbers, [low, high]; one end is {kind}")
        low, high = float(self.low), float(self.high)
        if not (low < high and math.isfinite(high - low)):
            raise ConfigError(f"a range needs finite ends with low < high, not [{low!r}, {high!r}]")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not all(map(is_number, self.cuts)) or not all(a < b for a, b in pairwise((low, *self.cuts, high))):
            between = f"increasing numbers above {low:g}, where the first bin begins, and below {high:g}"
            raise ConfigError(f"edges are {between}, not {list(self.cuts)}")
        object.__setattr__(self, "cuts", tuple(map(float, self.cuts)))
        check_flag(missing=self.missing, whole=self.whole)
        if self.whole and not (low.is_integer() and high.is_integer() and high - low < 2**53):
            raise ConfigError(f"whole = true needs a range of whole numbers, not [{low:g}, {high:g}]")
        if self.default is not None:
            if not is_number(self.default) or not low <= self.default <= high:
                raise ConfigError(f"default is a number within the range [{low:g}, {high:g}], not {self.default!r}")
            object.__setattr__(self, "default", float(self.default))

    @property
    def square(self) -> float:
        if self.default is None or not self.missing:
            return 1.0
        return 1.0 + (1.0 if self.cuts or self.edges else ((self.default - self.low) / (self.high - self.low)) ** 2)

    def encoded(self, encoding: Encoding) -> Self:
        """The same column in the bins of `encoding`, unless it declares its own."""
        return replace(self, edges=() if self.cuts else EDGES[encoding])

    @property
    def begins(self) -> tuple[float, ...]:
        """Where bins after the first begin, in the column's own units: `cuts`, or the edges of whole numbers."""
        if self.cuts or not self.whole:
            return self.cuts
        span, millionths = int(self.high - self.low), (round(1e6 * edge) for edge in self.edges[1:])
        return tuple(sorted({self.low - (-part * span // 10**6) for part in millionths}))

    @property
    def starts(self) -> list[str]:
        """The beginnings of bins as in their names: short, unless two would look alike; empty without bins."""
        if begins := self.begins:
            return [plain(start) for start in (self.low, *begins)]
        starts = [self.low + edge * (self.high - self.low) for edge in self.edges]
        short = [f"{start:g}" for start in starts]
        return short if raw.repeated(short) is None else list(map(repr, starts))

    def names(self, column: str) -> tuple[str, ...]:
        made = intervals(column, self.starts, plain(self.high)) or (column,)
        return (*made, f"{column}={MISSING}") if self.missing else made

    def unreadable(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return np.isnan(raw.numbers(values))

    def encode(self, values: NDArray[Any]) -> Floats:
        """Encode any values. Numbers out of range are clipped; other cells become what is declared, or the low end."""
        x = raw.numbers(values)
        gone = np.isnan(x)
        x = np.clip(np.where(gone, self.low if self.default is None else self.default, x), self.low, self.high)
        share = (x - self.low) / (self.high - self.low)
        block = share[:, None]
        if begins := self.begins:
            block = one_hot(np.searchsorted(begins, x, side="right"), len(begins) + 1)
        elif self.edges:
            block = one_hot(np.searchsorted(self.edges, share, side="right") - 1, len(self.edges))
        return marked(block, gone, self.default is None) if self.missing else block

    def unread(self, values: NDArray[Any]) -> dict[str, int]:
        x = raw.numbers(values)
        beyond = (x < self.low) | (x > self.high)
        return {"clipped": int(beyond.sum()), self.read_as("no_number"): int(np.isnan(x).sum())}


@dataclass(frozen=True)
class Category(Kind):
    """A column of words with its declared list; encoded one-hot, in the order of the list.

    `other` adds a level for words that are not on the list. `default` is the word that stands in for a missing cell.
    """

    values: tuple[str, ...]
    other: bool = False
    default: str | None = None
    missing: bool = False

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
        if isinstance(self.default, str):
            object.__setattr__(self, "default", self.default.strip())
        check_flag(other=self.other, missing=self.missing)
        for level, key, added in ((OTHER, "other", self.other), (MISSING, "missing", self.missing)):
            if added and level in values:
                raise ConfigError(f"{key} = true adds the level {level!r}; take it off the list of categories")
        if self.default is not None and self.default not in values:
            raise ConfigError(f"default is one of the categories, not {self.default!r}")

    @property
    def forgiving(self) -> bool:
        return True

    @property
    def square(self) -> float:
        return float(self.entries)

    def encoded(self, encoding: Encoding) -> Self:
        return self

    def names(self, column: str) -> tuple[str, ...]:
        further = [OTHER] * self.other + [MISSING] * self.missing
        return tuple(f"{column}={value}" for value in (*self.values, *further))

    def codes(self, values: NDArray[Any]) -> Ints:
        """The place of each value in the declared list; -1 if it is not on the list."""
        place = {value: j for j, value in enumerate(self.values)}
        return np.fromiter(map(place.get, raw.words(values), repeat(-1)), np.int64, len(values))

    def unreadable(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return self.gone(values, self.codes(values))

    def gone(self, values: NDArray[Any], codes: Ints) -> NDArray[np.bool_]:
        """Where cells are missing. A word on the declared list is never missing, even "none"."""
        cells = raw.words(values)
        gone = np.zeros(len(codes), dtype=bool)
        gone[[row for row in np.flatnonzero(codes < 0) if cells[row].casefold() in raw.MISSING]] = True
        return gone

    def encode(self, values: NDArray[Any]) -> Floats:
        """Encode any values. Missing ones, and those not on the list, become what is declared, or a block of zeros."""
        codes = self.codes(values)
        if not (self.other or self.missing or self.default is not None):
            return one_hot(codes, len(self.values))
        gone = self.gone(values, codes)
        if self.other:
            codes[(codes < 0) & ~gone] = len(self.values)
        if self.default is not None:
            codes[gone] = self.values.index(self.default)
        block = one_hot(codes, len(self.values) + self.other)
        return marked(block, gone, self.default is None) if self.missing else block

    def unread(self, values: NDArray[Any]) -> dict[str, int]:
        codes = self.codes(values)
        missing = int(self.gone(values, codes).sum())
        unknown = int((codes < 0).sum()) - missing
        return {"other" if self.other else "unknown": unknown, self.read_as("missing"): missing}


def intervals(column: str, starts: Sequence[str], end: str) -> tuple[str, ...]:
    """Names of bins that begin at `starts`, as intervals: age=[17, 30), age=[30, 90]."""
    return tuple(
        f"{column}=[{start}, {stop}{')' if place < len(starts) else ']'}"
        for place, (start, stop) in enumerate(pairwise((*starts, end)), start=1)
    )


def one_hot(codes: Ints, width: int) -> Floats:
    """(n, width): a 1 at each code, and a row of zeros for a code of -1."""
    block = np.zeros((len(codes), width))
    rows = np.flatnonzero(codes >= 0)
    block[rows, codes[rows]] = 1.0
    return block


def marked(block: Floats, gone: NDArray[np.bool_], empty: bool) -> Floats:
    """The block and, behind it, the indicator of missing cells; if `empty`, the block itself is 0 for these."""
    if empty:
        block[gone] = 0.0
    return np.concatenate([block, gone[:, None].astype(np.float64)], axis=1)


def count_cuts(low: float, high: float) -> tuple[float, ...]:
    """Where bins of a count begin, by its declared range alone: 1, 2, 3, 5, 10, 20, 50, 100, 1000, and so on."""
    if low < 0 or high <= 1:
        raise ConfigError(f'edges = "{COUNTS}" is for a count, whose range begins at 0 or above and ends above 1')
    decades = (10.0**power for power in range(2, math.ceil(math.log10(high)) + 1))
    cuts = tuple(cut for cut in (*SMALL_COUNTS, *decades) if low < cut < high)
    if not cuts:
        raise ConfigError(f'no bin of edges = "{COUNTS}" begins within [{low:g}, {high:g}]; list the edges')
    return cuts


def plain(number: float) -> str:
    """A number in six digits if that is exact, else in full."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_flag(**values: object) -> None:
    for name, value in values.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{name} is true or false, not {value!r}")
