"""A column of dates: declared format and range; a number over the range, and month and weekday if asked for."""

import math
import re
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from privadmm.data import raw
from privadmm.data.arrays import Floats
from privadmm.data.kinds import MISSING, Encoding, Kind, check_flag, intervals, marked, one_hot
from privadmm.errors import ConfigError

Part = Literal["month", "weekday"]
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DIRECTIVES = "YymdHMSfj"  # the directives of strptime that mean the same in every language
LONGEST = 40
# Dates are spread more evenly over their range than other numbers: bins of equal length.
EDGES: dict[Encoding, tuple[float, ...]] = {
    "minmax": (),
    "binned": tuple(tenth / 10 for tenth in range(10)),
    "coarse": tuple(fifth / 5 for fifth in range(5)),
}
EPOCH = date(1970, 1, 1).toordinal()
FIRST, LAST = date.min.toordinal() - EPOCH, date.max.toordinal() - EPOCH  # the range of Python's dates


@dataclass(frozen=True)
class Date(Kind):
    """Dates written in `format` (as for strptime), from `low` to `high`, which are written in it too.

    The number is (date - low) / (high - low), clipped to [0, 1], or its bin; each of `parts` adds a one-hot block.
    """

    format: str
    low: str
    high: str
    parts: tuple[Part, ...] = ()
    edges: tuple[float, ...] = ()
    default: str | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        check_format(self.format)
        for part in self.parts:
            raw.check_choice(Part, **{"a part of a date": part})
        if (again := raw.repeated(self.parts)) is not None:
            raise ConfigError(f"part {again!r} is declared twice")
        low, high = self.day(self.low), self.day(self.high)
        if not low < high:
            raise ConfigError(f"a range of dates needs low < high, not [{self.low!r}, {self.high!r}]")
        if self.edges not in EDGES.values():
            raise ConfigError(f"bins of dates are tenths or fifths of the range, not {self.edges}")
        check_flag(missing=self.missing)
        if self.default is not None and not low <= self.day(self.default) <= high:
            raise ConfigError(f"default is a date within [{self.low!r}, {self.high!r}], not {self.default!r}")

    def day(self, written: Any) -> float:
        """A declared date in days since 1970."""
        if not isinstance(written, str):
            raise ConfigError(f"dates are written as strings, in the format {self.format!r}, not as {written!r}")
        day = parsed(written.strip(), self.format)
        if math.isnan(day):
            raise ConfigError(f"{written!r} is no date in the format {self.format!r}")
        return day

    @property
    def entries(self) -> int:
        return super().entries + len(self.parts)

    @property
    def square(self) -> float:
        present = 1.0 + len(self.parts)
        if self.default is None or not self.missing:
            return present
        low, high = self.day(self.low), self.day(self.high)
        return present + (1.0 if self.edges else ((self.day(self.default) - low) / (high - low)) ** 2)

    def encoded(self, encoding: Encoding) -> Self:
        return replace(self, edges=EDGES[encoding])

    @property
    def unit(self) -> Literal["D", "s"]:
        """The precision of bins' names: a day, or a second where two bins would begin on one day."""
        few = self.day(self.high) - self.day(self.low) < 2 * len(self.edges)
        return "s" if "H" in self.format and few else "D"

    @property
    def starts(self) -> list[str]:
        """The beginnings of bins, written as in their names; empty without bins."""
        low, high = self.day(self.low), self.day(self.high)
        return [stamp(low + edge * (high - low), self.unit) for edge in self.edges]

    @property
    def last(self) -> str:
        return stamp(self.day(self.high), self.unit)

    def names(self, column: str) -> tuple[str, ...]:
        made = list(intervals(column, self.starts, self.last)) or [column]
        if "month" in self.parts:
            made += [f"{column}=month:{month}" for month in range(1, 13)]
        if "weekday" in self.parts:
            made += [f"{column}=weekday:{day}" for day in WEEKDAYS]
        return (*made, f"{column}={MISSING}") if self.missing else tuple(made)

    def days(self, values: NDArray[Any]) -> Floats:
        """Days since 1970, with NaN for whatever is not a date: dates as they are, and words in the format."""
        values = np.asarray(values)
        if values.dtype.kind == "M":
            gone = np.isnat(values)
            whole = values.astype("datetime64[D]")
            seconds = (values - whole).astype("timedelta64[ms]").astype(np.float64) / 1000
            return within(np.where(gone, np.nan, whole.astype(np.int64) + seconds / 86400))
        cells = [cell if isinstance(cell, date) else None for cell in values.tolist()]
        words = raw.words(values)
        known = {word: parsed(word, self.format) for word in set(words)}
        days = (known[word] if cell is None else ordinal(cell) for cell, word in zip(cells, words, strict=True))
        return within(np.fromiter(days, np.float64, len(words)))

    def unreadable(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return np.isnan(self.days(values))

    def encode(self, values: NDArray[Any]) -> Floats:
        """Encode any values. Dates out of range are clipped; other cells become what is declared, or the low end."""
        days, low, high = self.days(values), self.day(self.low), self.day(self.high)
        gone = np.isnan(days)
        filled = np.where(gone, low if self.default is None else self.day(self.default), days)
        share = (np.clip(filled, low, high) - low) / (high - low)
        blocks = [share[:, None]]
        if self.edges:
            blocks = [one_hot(np.searchsorted(self.edges, share, side="right") - 1, len(self.edges))]
        whole = np.floor(filled).astype(np.int64)
        unknown = gone & (self.default is None)
        if "month" in self.parts:
            months = whole.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
            blocks.append(one_hot(np.where(unknown, -1, months), 12))
        if "weekday" in self.parts:
            blocks.append(one_hot(np.where(unknown, -1, (whole + 3) % 7), 7))  # 1970 began on a Thursday
        block = np.concatenate(blocks, axis=1)
        return marked(block, gone, self.default is None) if self.missing else block

    def unread(self, values: NDArray[Any]) -> dict[str, int]:
        days = self.days(values)
        beyond = (days < self.day(self.low)) | (days > self.day(self.high))
        return {"clipped": int(beyond.sum()), self.read_as("no_date"): int(np.isnan(days).sum())}


def check_format(format: object) -> None:
    """Refuse a format without a year, with a part twice, or with words that differ by language."""
    if not isinstance(format, str) or not format.strip() or len(format) > LONGEST:
        raise ConfigError(f'a date has a format such as "%Y-%m-%d", of {LONGEST} characters at most, not {format!r}')
    if "%" not in format:
        raise ConfigError(f"format {format!r} has no %: write %Y for the year, %m for the month and %d for the day")
    used = re.findall("%(.?)", format.replace("%%", ""))
    if odd := [letter for letter in used if letter not in DIRECTIVES or not letter]:
        known = ", ".join(f"%{letter}" for letter in DIRECTIVES)
        raise ConfigError(f"format {format!r} has %{odd[0]}; known are {known} (names of months differ by language)")
    if (again := raw.repeated(used)) is not None:
        raise ConfigError(f"format {format!r} has %{again} twice")
    if ("Y" in used) == ("y" in used):
        raise ConfigError(f"format {format!r} needs a year, %Y or %y; write it as the file does")


def parsed(word: str, format: str) -> float:
    """Days since 1970 of a date that is written in this format; NaN for any other word."""
    try:
        return ordinal(datetime.strptime(word, format))
    except (ValueError, OverflowError):
        return math.nan


def ordinal(cell: date) -> float:
    """Days since 1970, by the cell's own clock whatever its time zone; NaN for pandas' NaT."""
    try:
        day = float(cell.toordinal() - EPOCH)
        if isinstance(cell, datetime):
            day += (cell.hour * 3600 + cell.minute * 60 + cell.second + cell.microsecond / 1e6) / 86400
        return day
    except (ValueError, TypeError, AttributeError):
        return math.nan


def within(days: Floats) -> Floats:
    """Mark as missing (NaN) the days that Python cannot write: before the year 1 and after the year 9999."""
    days[~((days >= FIRST) & (days < LAST + 1))] = np.nan
    return days


def stamp(day: float, unit: Literal["D", "s"]) -> str:
    """Write days since 1970 as a date ("D"), or to the second ("s")."""
    return str((np.datetime64(0, "s") + np.timedelta64(round(day * 86400), "s")).astype(f"datetime64[{unit}]"))


def parts_of(names: Any) -> tuple[Part, ...]:
    """Check that declared parts are a list."""
    if isinstance(names, str) or not isinstance(names, list | tuple):
        raise ConfigError(f"parts are a list of {' and '.join(map(repr, get_args(Part)))}, not {names!r}")
    return tuple(names)
