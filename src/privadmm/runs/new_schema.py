"""Write a schema from a file that is public or made up, which a steward would otherwise type.

A range or a category that is read off private records is a release that no ledger counts. So whoever asks has to state
that the file is not private (`need_public`), and the schema says what it was made from. Ranges are rounded outward to
readable numbers; a column that is no feature, an id or a constant, is left out, with a note.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.data.dates import parsed
from privadmm.data.kinds import COUNTS, count_cuts, is_number
from privadmm.data.raw import MISSING, ClassName, distinct_columns, numbers, words
from privadmm.data.readers import opened
from privadmm.data.schema import Category, Column, Date, Number, Schema, quoted_range
from privadmm.errors import ConfigError, DataError, did_you_mean, visible
from privadmm.params import HUGE, TINY, check_whole

IDS_FROM = 20  # rows from which on a column that never repeats itself looks like an id
SHOWN = 30  # names of columns in an error
FEW = 10  # whole numbers that may be codes
RARE = 0.01  # share of rows below which a category is rare, and may go to the level for others
COMMA = re.compile(r"[+-]?\d+,\d+")  # a number with a decimal comma, or with thousands grouped
COVERED = 0.9  # share of rows that the listed categories must cover, if there are too many of them
FORMATS = (
    *("%Y-%m-%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y"),
    *("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%d.%m.%Y %H:%M"),
)


@dataclass(frozen=True)
class Note:
    column: str
    text: str
    left_out: bool = False


@dataclass(frozen=True)
class Declared:
    """Columns as a schema has them, the label's classes (None: a number to predict, within label_bound), and notes."""

    source: Path
    rows: int
    label: str
    columns: dict[str, Column]
    classes: tuple[ClassName, ...] | None
    label_bound: float | None
    notes: tuple[Note, ...]
    missing: bool  # some number or date may be missing, and its column does not say what it becomes then

    @property
    def table(self) -> dict[str, Any]:
        return {
            "source": str(self.source),
            "rows": self.rows,
            "label": self.label,
            "classes": None if self.classes is None else list(self.classes),
            "label_bound": self.label_bound,
            "schema": {name: entry(column) for name, column in self.columns.items()},
            "left_out": [note.column for note in self.notes if note.left_out],
            "notes": [{"column": note.column, "note": note.text} for note in self.notes],
        }


def need_public(path: Path, public: bool) -> None:
    """Refuse a file before it is read, unless its owner has stated that it is public."""
    if not public:
        raise ConfigError(
            f"{path}: ranges and categories that are read off private records are a release which no budget counts, "
            "and a config shows them to everybody. If this file is public or made up, say so with --public; if it is "
            "private, write the schema by hand, from what the columns mean"
        )


def declare(path: str | Path, label: str, *, drop: Sequence[str] = (), most: int = 50) -> Declared:
    """Look at every column of a csv or parquet file that is public or made up."""
    check_whole(most=most)
    columns = dict[str, Column]()
    with opened(Path(path), None) as table:
        distinct_columns(table.header)
        for name in (label, *drop):
            named(name, table.header)
        cells = table.load((), table.header)
        if not len(cells[label]):
            raise DataError("has no records; give a file with at least one")
        classes, bound, notes = label_of(cells[label], label, most, table.where)
        for name in table.header:
            if name in drop or name == label:
                continue
            column, remarks = look(name, cells[name], most, table.where)
            twins = [other for other in table.header if other != name and other.casefold() == name.casefold()]
            if twins and column is not None:
                remarks.append(f"its name and {twins[0]!r} differ only in case; if they are one column, --drop one")
            notes += [Note(name, remark, left_out=column is None) for remark in remarks]
            if column is not None:
                columns[name] = column
        if not columns:
            raise DataError("no column is left to learn from; see what was left out, and give others")
        pair = (classes[0], classes[1]) if classes is not None and len(classes) == 2 else None
        Schema(columns, label, pair, 1.0)  # refuses names that cannot stand side by side
    missing = any(not column.forgiving for column in columns.values())
    return Declared(Path(path), len(cells[label]), label, columns, classes, bound, tuple(notes), missing)


def alike(words: Sequence[str]) -> str | None:
    """Which words differ only in case, the first of them by name; None if none do. The file is public."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word.casefold(), []).append(word)
    found = [group for group in groups.values() if len(group) > 1]
    if not found:
        return None
    more = f", and {len(found) - 1} more such groups" if len(found) > 1 else ""
    return f"{' and '.join(map(repr, found[0]))} differ only in case{more}"


def named(name: str, header: Sequence[str]) -> None:
    """Refuse a name that is no column. The file is public, so its first line may be shown, header or not."""
    if name not in header:
        hint = did_you_mean(name, header, repr)
        more = f" and {len(header) - SHOWN} more" if len(header) > SHOWN else ""
        alone = " Only commas separate columns: is there another separator?" if len(header) == 1 else ""
        if len(header) == 1 and ";" in header[0]:
            alone += " If it is the semicolon, save the file with commas, and with decimal points, as in 3.5."
        first_line = f"The first line has {', '.join(map(repr, header[:SHOWN]))}{more}.{alone}"
        raise DataError(f"column {name!r} is missing{'; ' + hint if hint else '.'} {first_line}")


@dataclass(frozen=True)
class Odd:
    """Cells that are neither missing nor numbers, in a column that has other cells, too."""

    cells: tuple[str, ...]
    first: str  # where the first of them is

    @property
    def commas(self) -> int:
        """How many would be numbers without a comma."""
        return sum(COMMA.fullmatch(cell) is not None for cell in self.cells)

    @property
    def shown(self) -> str:
        """The place of the first such cell; not its content, since a schema is shown to everybody."""
        return f"the first {self.first}"

    @property
    def with_commas(self) -> str:
        """What to do about numbers with commas."""
        return f"numbers with a comma ({self.shown}): write a decimal point, as in 3.5, and group no thousands"


def sorted_out(cells: NDArray[Any], where: Callable[[int], str]) -> tuple[list[str], Floats, Odd]:
    """The words of the cells that are not missing, as numbers (NaN: none), and those that are none."""
    at = [(row, word) for row, word in enumerate(words(cells)) if word.casefold() not in MISSING]
    present = [word for _, word in at]
    values = numbers(np.array(present, dtype=object))
    odd = [at[place] for place in np.flatnonzero(np.isnan(values))]
    return present, values, Odd(tuple(word for _, word in odd), where(odd[0][0]) if odd else "")


def label_of(
    cells: NDArray[Any], name: str, most: int, where: Callable[[int], str]
) -> tuple[tuple[ClassName, ...] | None, float | None, list[Note]]:
    """The label's classes, or the bound of a number to predict; and notes."""
    (present, _, odd), notes = sorted_out(cells, where), list[Note]()
    kinds = sorted(set(present))
    values = numbers(np.array(kinds, dtype=object))
    numeric = bool(kinds) and not np.isnan(values).any()
    if empty := len(cells) - len(present):
        notes.append(Note(name, f"{empty} rows have no label; drop them, training refuses them"))
    if numeric and len(set(values.tolist())) > 2:
        bound = float(max(outward(0.0, float(np.abs(values).max()))))
        loss = f"[loss] name = 'squared', label_bound = {bound:g}, radius = {bound:g}"
        recipe = "`init` writes no config for it, docs/data.md#a-number-to-predict has one to copy"
        return None, bound, [*notes, Note(name, f"a number to predict: {loss}; {recipe}")]
    if len(kinds) != 2:
        mixed = ""
        if odd.commas:
            mixed = f" It has {odd.with_commas}."
        elif 0 < len(odd.cells) < len(present):
            mixed = f" Of its cells {len(odd.cells)} are no numbers ({odd.shown})."
        elif (same := alike(kinds)) is not None:
            mixed = f" {same}: spell them alike in the file."
        if not mixed and 2 < len(kinds) <= most:
            several = "the command line trains two classes, group them for that; ADMMClassifier(classes=...) takes all"
            return tuple(kinds), None, [*notes, Note(name, f"{len(kinds)} classes: {several}")]
        raise DataError(
            f"label column {name!r} has {len(kinds)} different values; two classes are needed (estimators: up to {most}"
            f", --most), or a number to predict.{mixed} Group them, or name another --label"
        )
    negative, positive = (kinds[place] for place in (np.argsort(values).tolist() if numeric else [0, 1]))
    order = f"{negative!r} is the negative class and {positive!r} the positive; swap them if not"
    if (same := alike(kinds)) is not None:
        notes.append(Note(name, f"its two classes {same}; if they are one, spell them alike in the file"))
    return (negative, positive), None, [*notes, Note(name, order)]


def look(name: str, cells: NDArray[Any], most: int, where: Callable[[int], str]) -> tuple[Column | None, list[str]]:
    """A column's declaration, or None if it is left out; and remarks on it."""
    if cells.dtype.kind == "M":  # dates of a parquet file
        cells = np.array(
            [None if np.isnat(cell) else str(cell.astype("datetime64[D]")) for cell in cells], dtype=object
        )
    present, values, odd = sorted_out(cells, where)
    holes, remarks = len(cells) - len(present), list[str]()
    if of_numbers(values, odd):
        if odd.commas > RARE * len(present):
            return None, [f"left out: {odd.with_commas}"]
        remarks.append(
            f"{len(odd.cells)} cells are no numbers ({odd.shown}); they count as missing. Correct them in the file if "
            "they should be numbers; if these are codes, list the column's categories instead"
        )
        number = ~np.isnan(values)
        present, values = [present[place] for place in np.flatnonzero(number)], values[number]
        holes = len(cells) - len(present)
    kinds = sorted(set(present))

    def out(why: str) -> tuple[None, list[str]]:
        return None, [f"left out: {why}"]

    if not name or name != name.strip():
        return out("its name is blank, or has blanks around it; rename it")
    if len(kinds) < 2:
        return out("it is the same in every row" if kinds else "it is empty")
    numeric, unique = not np.isnan(values).any(), len(kinds) == len(present) >= IDS_FROM
    whole = numeric and bool((values == np.floor(values)).all())
    if holes:
        remarks.append(f"{holes} cells are missing; an indicator column tells them apart (missing = true)")
    if numeric and not (whole and len(kinds) == 2):
        if unique and whole and values.max() - values.min() == len(present) - 1:
            return out("a running number, which looks like an id")
        low, high = outward(float(values.min()), float(values.max()))
        if max(abs(low), abs(high)) > HUGE or high - low < TINY:
            return out(f"its values are beyond what a config takes, {TINY:g} to {HUGE:g} in size")
        ends = (float(low), float(high))
        if whole and is_count(values, *ends):
            remarks.append('most of its whole numbers are small, so it has bins of a count (edges = "counts")')
            return Number(*ends, cuts=count_cuts(*ends), missing=holes > 0), remarks
        if whole and len(kinds) <= FEW:
            remarks.append(f"{len(kinds)} whole numbers, taken as a range; if they are codes, list them")
        return Number(*ends, missing=holes > 0, whole=whole), remarks
    if not numeric and (formats := [format for format in FORMATS if dated(kinds, format)]):
        if len(formats) > 1:
            remarks.append(f"taken as dates in the format {formats[0]}; correct it if it is {formats[1]}")
        return dates(kinds, formats[0], holes > 0), [*remarks, 'add parts = ["month", "weekday"] if these matter']
    if unique:
        return out("every row has another value, which looks like an id")
    mixed = f"{len(present) - len(odd.cells)} cells are numbers beside words ({odd.shown})"
    if not numeric and len(odd.cells) < len(present):
        remarks.append(f"{mixed}; all are taken as categories")
    if (same := alike(kinds)) is not None:
        remarks.append(f"{same}; each is a category of its own. If they are one, spell them alike in the file")
    counts = Counter(present)
    often = sorted(word for word, count in counts.most_common(most) if count >= RARE * len(present))
    rare = len(kinds) - len(often)
    if rare > 1 and len(often) > 1 and sum(counts[word] for word in often) >= COVERED * len(present):
        remarks.append(f"{rare} of {len(kinds)} categories are rare; they are one level, the other ones (other = true)")
        return Category(tuple(often), other=True, missing=holes > 0), remarks
    if len(kinds) > most:
        beside = f"; {mixed}" if not numeric and len(odd.cells) < len(present) else ""
        beside += "" if same is None else f"; {same}"
        return out(f"{len(kinds)} categories, more than {most}; group them, or raise --most{beside}")
    return Category(tuple(kinds), missing=holes > 0), remarks


def of_numbers(values: Floats, odd: Odd) -> bool:
    """Whether some cells are no numbers, or have commas, in a column that otherwise is one of numbers."""
    found = values[~np.isnan(values)]
    other_words = {cell for cell in odd.cells if COMMA.fullmatch(cell) is None}
    if not odd.cells or len(other_words) > FEW or 2 * (len(found) + odd.commas) < len(values):
        return False
    return odd.commas > RARE * len(values) or len(set(found.tolist())) > FEW


def is_count(values: Floats, low: float, high: float) -> bool:
    """Whether whole numbers look like a count: from 0 or 1 on, and three quarters of them in the lowest fifth."""
    lowest, most = float(values.min()), float(np.quantile(values, 0.75))
    return low >= 0 and lowest <= 1 and high > FEW and most <= high / 5


def dated(words: Sequence[str], format: str) -> bool:
    """Whether all of these words are dates in this format."""
    return not any(math.isnan(parsed(word, format)) for word in words)


def dates(words: Sequence[str], format: str, missing: bool) -> Date:
    """A column of dates, from the first day of the first year to the last day of the last."""
    years = [datetime.strptime(word, format).year for word in words]
    ends = (datetime(min(years), 1, 1).strftime(format), datetime(max(years), 12, 31).strftime(format))
    return Date(format, *ends, missing=missing)


def outward(low: float, high: float) -> tuple[Decimal, Decimal]:
    """Round a range outward to multiples of 1, 2 or 5 times a power of ten, about a tenth of its length."""
    exact = Decimal(repr(low)), Decimal(repr(high))
    length = exact[1] - exact[0]
    if not length > 0:
        return exact
    ten = Decimal(10) ** (math.floor(math.log10(float(length / 20))))
    step = next(times * ten for times in (1, 2, 5, 10) if times * ten * 20 >= length)
    below = (exact[0] / step).to_integral_value(ROUND_FLOOR) * step
    above = (exact[1] / step).to_integral_value(ROUND_CEILING) * step
    return below.normalize(), above.normalize()


def entry(column: Column) -> list[Any] | dict[str, Any]:
    """A column as a TOML schema has it: a list, or a table if it says more than its categories or range."""
    if isinstance(column, Category):
        made: dict[str, Any] = {"categories": list(column.values), "other": column.other}
    elif isinstance(column, Date):
        made = {"date": column.format, "range": [column.low, column.high], "parts": list(column.parts)}
    else:
        counted = (
            column.cuts and column.low >= 0 and column.high > 1 and column.cuts == count_cuts(column.low, column.high)
        )
        edges = COUNTS if counted else [short(cut) for cut in column.cuts]
        made = {"range": [short(column.low), short(column.high)], "edges": edges, "whole": column.whole}
    default = short(column.default) if is_number(column.default) else column.default
    made |= {"default": default, "missing": column.missing}
    made = {key: value for key, value in made.items() if value not in (None, False, [])}
    # Two numbers as words would be taken for a range in quotes.
    alone = len(made) == 1 and not (isinstance(column, Category) and quoted_range(column.values))
    return next(iter(made.values())) if alone else made


def short(number: Any) -> Any:
    """A number without ".0" behind it if it is whole."""
    return int(number) if float(number).is_integer() and abs(number) < 1e15 else float(number)


def schema_lines(columns: Mapping[str, Column]) -> list[str]:
    """A line for each column, such as `weight = [30, 200]`."""
    return [f"{key(name)} = {toml(entry(column))}" for name, column in columns.items()]


def schema_file(declared: Declared) -> str:
    """The file that `[data] schema` names, with what it was made from."""
    head = [
        f"Declared from {declared.source.name}, {declared.rows} rows, which its user stated to be public or made up.",
        "Everything here is a fact for everybody to see: never put into it what private records say.",
        "What is beyond its range is clipped to it. A category that is not listed becomes zeros, or a level for others",
        "where other = true; a missing cell becomes zeros with an indicator beside them where missing = true.",
        "",
        "In the config, under [data]:",
        f"  label = {text(declared.label)}",
    ]
    if declared.classes is not None:
        order = "negative first" if len(declared.classes) == 2 else "a config takes two; estimators take all of them"
        head.append(f"  classes = {listed(declared.classes)}          ({order})")
    if declared.missing:
        head.append(
            '  on_bad = "default"          (a missing cell of another number counts as the low end of its range)'
        )
    head += ["", *(f"{note.column}: {note.text}" for note in declared.notes)] if declared.notes else []
    return "\n".join([*comments(head), "", *schema_lines(declared.columns), ""])


def comments(lines: Sequence[str]) -> list[str]:
    """Comment lines. A line break in a column's name must not end a comment: what is hidden is spelt out."""
    return [f"# {visible(line)}".rstrip() for line in lines]


def listed(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(toml, values))}]"


def toml(value: Any) -> str:
    """A value as TOML writes it, a table in one line."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key(name)} = {toml(inner)}' for name, inner in value.items())} }}"
    if isinstance(value, list | tuple):
        return listed(value)
    if isinstance(value, bool):
        return str(value).lower()
    return text(value) if isinstance(value, str) else repr(value)


def key(name: str) -> str:
    """A TOML key, bare where that is allowed."""
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else text(name)


def text(value: str) -> str:
    """A TOML string: as in JSON (no file holds surrogates), with what hides spelt out: people read it through."""
    return visible(json.dumps(value, ensure_ascii=False))
