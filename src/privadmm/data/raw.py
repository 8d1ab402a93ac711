"""Raw columns of a table: their cells as numbers, words or labels, and errors that never print what a cell holds."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError, DataError, listed, show

OnBad = Literal["refuse", "default"]
ClassName = str | float
Classes = tuple[ClassName, ClassName]
MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none", "-"})  # words for no value
DROP = "drop or fill in these rows"
DROP_OR_DEFAULT = (
    f"{DROP}, declare in the schema what they become (missing = true, or a default), or set "
    'on_bad = "default" to read them as the low end of the range'
)


def labels(values: NDArray[Any], classes: Sequence[ClassName], name: str = "label", more: str = "") -> Floats:
    """-1 for the first class and +1 for the second; anything else is refused.

    Blanks around a word do not count, and numbers are compared as numbers: "1", "+1", 1 and 1.0 are one class; true and
    false are 1 and 0. `more` is what an error adds for values that are not empty: how to declare further classes.
    """
    classes = class_pair(classes)
    signs = {_token(_word(classes[0])): -1.0, _token(_word(classes[1])): 1.0}
    values = np.asarray(values)
    place: Any = slice(None)
    if values.dtype.kind in "biuf":  # words of distinct numbers alone: those of all cells take ten times their memory
        values, place = np.unique(values, return_inverse=True)
    cells = words(values)
    sign_of = {word: signs.get(_token(word), 0.0) for word in set(cells)}
    y: Floats = np.fromiter(map(sign_of.__getitem__, cells), np.float64, len(cells))[place]
    if other := int(np.count_nonzero(y == 0)):
        kinds, either = list(sign_of.values()).count(0), f"{classes[0]!r} (negative) nor {classes[1]!r} (positive)"
        if kinds == 1 and sign_of.get("") == 0:
            raise DataError(
                f"label column {name!r}: {other} of {len(y)} rows have an empty label, neither {either}; drop these "
                "rows, or fill in their labels"
            )
        blank = "; some of them are empty" if sign_of.get("") == 0 else ""
        raise DataError(
            f"label column {name!r}: {other} of {len(y)} rows hold {kinds} value(s) that are neither {either}{blank}; "
            f"drop or relabel these rows, or declare the two classes as the data spell them{more}"
        )
    return y


def class_pair(classes: Sequence[ClassName]) -> Classes:
    """Check two declared classes, (negative, positive)."""
    if isinstance(classes, str) or len(classes) != 2:
        raise ConfigError(f"classes must be two values, [negative, positive], not {classes!r}")
    if not all(isinstance(value, str | int | float | np.integer | np.floating) for value in classes):
        raise ConfigError(f"classes must be strings or numbers, not {classes!r}")
    negative, positive = (_token(_word(value)) for value in classes)
    if negative == positive or "" in (negative, positive):
        raise ConfigError(f"classes must be two different values, neither of them blank, not {classes!r}")
    return classes[0], classes[1]


def check_choice(choices: Any, **values: object) -> None:
    """Refuse a value that is not one of a Literal's."""
    for name, value in values.items():
        if value not in get_args(choices):
            raise ConfigError(f"{name} must be {listed([show(choice) for choice in get_args(choices)])}, not {value!r}")


def require_column(name: str, have: Mapping[str, Any] | Sequence[str]) -> None:
    """Refuse a table without this column. Its other names are not told: without a header line they are a record."""
    if name not in have:
        likest, place = max(((likeness(name, other), -place) for place, other in enumerate(have, 1)), default=(0, 0))
        hint = f" Column {-place} has nearly this name." if likest >= ALIKE else ""
        hint += " A csv file may have another separator than the comma." if len(have) == 1 else ""
        raise DataError(
            f"column {name!r} is missing; the table has {len(have)} others.{hint} Rename the column in the data or in "
            "the declaration; if there is no header line, add one, and look for a quote that is not closed"
        )


ALIKE = 0.75  # the likeness from which on an error points to a column


def likeness(name: str, other: Any) -> float:
    """How much two names are alike, except for case and blanks: 1 if they are the same."""
    a, b = ("".join(c for c in str(word).casefold() if c not in " _-") for word in (name, other))
    return SequenceMatcher(None, a, b).ratio()


def repeated(values: Iterable[str]) -> str | None:
    """A value that occurs twice, if there is one."""
    return next((value for value, count in Counter(values).items() if count > 1), None)


def distinct_columns(header: Sequence[str]) -> None:
    """Refuse a table with one name twice. The name is not told: without a header line it is a record's."""
    if (name := repeated(header)) is not None:
        first, second, *_ = (number for number, other in enumerate(header, 1) if other == name)
        raise DataError(
            f"columns {first} and {second} have the same name; rename one of them, or add a line of names if the "
            "file has none"
        )


def require_table(names: Iterable[str], table: Mapping[str, Any]) -> None:
    """Refuse a table that lacks one of these columns, or whose columns are not lists of one length."""
    for name in names:
        require_column(name, table)
    shapes = {name: np.shape(table[name]) for name in names}
    for name, shape in shapes.items():
        if len(shape) != 1 or shape != next(iter(shapes.values())):
            raise DataError(f"column {name!r} has shape {shape}; all columns must be 1-d of one length")


def require_numbers(name: str, values: NDArray[Any], where: Callable[[int], str], fix: str) -> Floats:
    """Convert a column of finite numbers. An error says where other cells are and how many, never what they hold."""
    x = numbers(values)
    require_read(name, np.isnan(x), "finite number", where, fix)
    return x


def require_read(name: str, bad: NDArray[np.bool_], what: str, where: Callable[[int], str], fix: str) -> None:
    """Refuse a column with `bad` cells. The error says where they are and how many, never what they hold."""
    if bad.any():
        raise DataError(
            f"column {name!r}: {int(bad.sum())} of {len(bad)} rows hold no {what} "
            f"(the first is {where(int(bad.argmax()))}); {fix}"
        )


def nth_record(row: int) -> str:
    return f"record {row + 1}"


def numbers(values: NDArray[Any]) -> Floats:
    """Convert to float64, with NaN for whatever is not a finite number: blanks, words, infinities, dates."""
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
    """Convert to stripped strings: whole numbers without a decimal point, and "" for None and NaN."""
    cells = np.asarray(values).tolist()
    try:
        return list(map(str.strip, cells))
    except TypeError:
        return [_word(cell) for cell in cells]


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
    try:
        return str(value).strip()
    except ValueError:  # Python does not write out an integer of thousands of digits
        return "?"


def _token(word: str) -> str | float:
    """The number that a word spells, so that "+1" and "1.0" are the same class; any other word as it is."""
    if word.casefold() in ("true", "false"):
        return float(word.casefold() == "true")
    number = _number(word)
    return number if math.isfinite(number) else word
