"""A schema written from a file that is public or made up: what the steward would otherwise type.

A range or a category that is read off private records is a release that no ledger counts. So whoever asks has to state
that the file is none of those (`need_public`), and the schema says what it was made from. Ranges are rounded outward to
readable numbers; a column that is no feature, an id or a constant, is left out, with a note.
"""

import difflib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.raw import MISSING, Classes, distinct_columns, numbers, words
from privadmm.data.readers import Format, opened
from privadmm.data.schema import Category, Number, Schema
from privadmm.errors import ConfigError, DataError
from privadmm.params import HUGE, TINY, check_whole

IDS_FROM = 20  # rows from which on a column that never repeats itself looks like an id
SHOWN = 30  # names of columns in an error
FEW = 10  # whole numbers that may be codes


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
    columns: dict[str, Number | Category]
    classes: Classes | None
    label_bound: float | None
    notes: tuple[Note, ...]
    missing: bool  # some declared number has cells without one

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
    """Fail closed: nothing is read before its owner has said what it is."""
    if not public:
        raise ConfigError(
            f"{path}: ranges and categories that are read off private records are a release which no budget counts, "
            "and a config shows them to everybody. If this file is public or made up, say so with --public; if it is "
            "private, write the schema by hand, from what the columns mean"
        )


def declare(
    path: str | Path, label: str, *, format: Format | None = None, drop: Sequence[str] = (), most: int = 50
) -> Declared:
    """Look at every column of a csv or parquet file that is public or made up."""
    check_whole(most=most)
    path, notes = Path(path), list[Note]()
    with opened(path, format) as table:
        distinct_columns(table.header)
        for name in (label, *drop):
            named(name, table.header)
        cells = table.load((), table.header)
        rows = len(cells[label])
        if not rows:
            raise DataError("has no records; give a file with at least one")
        classes, bound = label_of(cells[label], label, notes)
        columns: dict[str, Number | Category] = {}
        gaps = False
        for name in table.header:
            if name in drop or name == label:
                continue
            column, found, holes = look(name, cells[name], most)
            notes += found
            if column is not None:
                columns[name] = column
                gaps |= holes and isinstance(column, Number)
        if not columns:
            raise DataError("no column is left to learn from; see what was left out, and give others")
        Schema(columns, label, classes, 1.0)  # refuses names that cannot stand side by side
    return Declared(path, rows, label, columns, classes, bound, tuple(notes), gaps)


def named(name: str, header: Sequence[str]) -> None:
    """The file is public, so its first line may be shown, header or not."""
    if name not in header:
        near = difflib.get_close_matches(name, header, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        alone = " Only commas separate columns: is there another separator?" if len(header) == 1 else ""
        raise DataError(
            f"column {name!r} is missing; {hint}The first line has {', '.join(map(repr, header[:SHOWN]))}"
            f"{f' and {len(header) - SHOWN} more' if len(header) > SHOWN else ''}.{alone}"
        )


def label_of(cells: NDArray[Any], name: str, notes: list[Note]) -> tuple[Classes | None, float | None]:
    found = sorted({word for word in words(cells) if word.casefold() not in MISSING})
    values = numbers(np.array(found, dtype=object))
    numeric = bool(found) and not np.isnan(values).any()
    if empty := sum(word.casefold() in MISSING for word in words(cells)):
        notes.append(Note(name, f"{empty} rows have no label; drop them, training refuses them"))
    if numeric and len(set(values.tolist())) > 2:
        bound = float(max(outward(0.0, float(np.abs(values).max()))))
        notes.append(
            Note(
                name,
                f"a number to predict: [loss] name = 'squared', label_bound = {bound:g}; `init` writes none",
            )
        )
        return None, bound
    if len(found) != 2:
        raise DataError(
            f"label column {name!r} has {len(found)} different values; two classes are needed, or a number to predict. "
            "Group them into two, or name another --label"
        )
    order = np.argsort(values).tolist() if numeric else [0, 1]
    negative, positive = found[order[0]], found[order[1]]
    notes.append(Note(name, f"{negative!r} is the negative class and {positive!r} the positive; swap them if not"))
    return (negative, positive), None


def look(name: str, cells: NDArray[Any], most: int) -> tuple[Number | Category | None, list[Note], bool]:
    """A column's declaration, or None if it is left out; what to say of it; whether cells are missing."""
    written = words(cells)
    here = [word for word in written if word.casefold() not in MISSING]
    holes = len(written) - len(here)
    kinds, values = sorted(set(here)), numbers(np.array(here, dtype=object))

    def out(why: str) -> tuple[None, list[Note], bool]:
        return None, [Note(name, f"left out: {why}", left_out=True)], bool(holes)

    if not name or name != name.strip():
        return out("its name is blank, or has blanks around it; rename it")
    if not kinds:
        return out("it is empty")
    if len(kinds) == 1:
        return out("it is the same in every row")
    numeric, alone = not np.isnan(values).any(), len(kinds) == len(here) >= IDS_FROM
    notes: list[Note] = []
    whole = numeric and bool((values == np.floor(values)).all())
    if numeric and not (whole and len(kinds) == 2):
        if alone and whole and values.max() - values.min() == len(here) - 1:
            return out("a running number, which looks like an id")
        if holes:
            notes.append(Note(name, f"{holes} cells hold no number; they are read as the low end of the range"))
        if whole and len(kinds) <= FEW:
            notes.append(Note(name, f"{len(kinds)} whole numbers, taken as a range; if they are codes, list them"))
        low, high = outward(float(values.min()), float(values.max()))
        if max(abs(low), abs(high)) > HUGE or high - low < TINY:
            return out(f"its values are beyond what a config takes, {TINY:g} to {HUGE:g} in size")
        return Number(float(low), float(high)), notes, bool(holes)
    if alone:
        return out("every row has another value, which looks like an id")
    if len(kinds) > most:
        return out(f"{len(kinds)} categories, more than {most}; group them, or raise --most")
    odd = 0 if numeric else int(np.count_nonzero(~np.isnan(values)))
    if odd:
        notes.append(Note(name, f"{odd} cells are numbers beside words; all are taken as categories"))
    if holes:
        notes.append(Note(name, f"{holes} cells are missing; like an unknown category they become zeros"))
    return Category(tuple(kinds)), notes, bool(holes)


def outward(low: float, high: float) -> tuple[Decimal, Decimal]:
    """The range in multiples of 1, 2 or 5 times a power of ten, a tenth of its length or so."""
    exact = Decimal(repr(low)), Decimal(repr(high))
    length = exact[1] - exact[0]
    if not length > 0:
        return exact
    ten = Decimal(10) ** (math.floor(math.log10(float(length / 20))))
    step = next(times * ten for times in (1, 2, 5, 10) if times * ten * 20 >= length)
    below = (exact[0] / step).to_integral_value(ROUND_FLOOR) * step
    above = (exact[1] / step).to_integral_value(ROUND_CEILING) * step
    return below.normalize(), above.normalize()


def entry(column: Number | Category) -> list[float | str]:
    """As a TOML schema has it."""
    return list(column.values) if isinstance(column, Category) else [short(column.low), short(column.high)]


def short(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def schema_lines(columns: Mapping[str, Number | Category]) -> list[str]:
    """`age = [15, 90]`, a line for each column."""
    return [f"{key(name)} = {listed(entry(column))}" for name, column in columns.items()]


def schema_file(found: Declared) -> str:
    """The file that `[data] schema` names, with what it was made from."""
    head = [
        f"Declared from {found.source.name}, {found.rows} rows, which its user stated to be public or made up.",
        "Everything here is a fact for everybody to see: never put into it what private records say.",
        "A number beyond its range is clipped to it, and a category that is not listed becomes zeros.",
        "",
        "In the config, under [data]:",
        f"  label = {text(found.label)}",
    ]
    if found.classes is not None:
        head.append(f"  classes = {listed(found.classes)}          (negative first)")
    if found.missing:
        head.append('  on_bad = "default"          (a number that is missing counts as the low end of its range)')
    head += ["", *(f"{note.column}: {note.text}" for note in found.notes)] if found.notes else []
    return "\n".join([*comments(head), "", *schema_lines(found.columns), ""])


def comments(lines: Sequence[str]) -> list[str]:
    """No line break and no control character of a column's name ends a comment early."""
    clean = ("".join(c if c.isprintable() else "?" for c in line) for line in lines)
    return [f"# {line}".rstrip() for line in clean]


def listed(values: Sequence[Any]) -> str:
    return f"[{', '.join(text(value) if isinstance(value, str) else repr(value) for value in values)}]"


def key(name: str) -> str:
    """A bare key where TOML allows one."""
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else text(name)


def text(value: str) -> str:
    """A TOML string. It is JSON's but for one character, and surrogates, which no file holds."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
