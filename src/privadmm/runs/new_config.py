"""Write a config to start from: the recommended method, set for public facts, with a reason beside each line."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Formatter
from typing import Any, get_args

from privadmm.config.reader import load
from privadmm.data.kinds import Category, Number
from privadmm.data.raw import words
from privadmm.data.readers import opened
from privadmm.data.schema import Encoding, Schema, columns_of
from privadmm.errors import ConfigError, did_you_mean
from privadmm.params import check_positive, check_probability, check_whole
from privadmm.privacy.sums import SecureSum
from privadmm.runs.new_schema import Declared, Note, comments, declare, listed, need_public, schema_lines, text
from privadmm.runs.recommend import HELD_OUT, LEAST_PARTIES, Facts, Recommendation, recommend

EVEN = """Bins suit numbers that crowd at the low end. Where they are spread evenly over their range, "minmax" or
# declared `edges` may do better: compare them in a simulation, on public or made-up data."""
PARTIES = 10  # if nothing says how many


@dataclass(frozen=True)
class Start:
    """What a config is written for. All of it is public."""

    config: Path
    source: Path
    label: str
    records: int | None
    parties: int | None
    party_column: str | None
    epsilon: float
    delta: float
    schema: Path | None

    def __post_init__(self) -> None:
        check_positive(epsilon=self.epsilon)
        check_probability(delta=self.delta)
        if self.parties is not None:
            check_whole(parties=self.parties)


@dataclass(frozen=True)
class Made:
    """The text of a config, the recommendation that it follows, and notes on columns."""

    text: str
    advice: Recommendation
    notes: tuple[Note, ...]

    @property
    def table(self) -> dict[str, Any]:
        notes = [{"column": note.column, "note": note.text} for note in self.notes]
        return {"recommended": self.advice.table, "notes": notes}


def start(
    asked: Start, classes: tuple[str, ...] | None, *, public: bool, drop: Sequence[str] = (), most: int = 50
) -> Made:
    """Write the config's text. Without a schema file the source itself is looked at, if that is public."""
    if asked.schema is not None:
        return from_schema(asked, asked.schema, classes, drop)
    need_public(asked.source, public)
    return from_public(asked, classes, drop, most)


def from_public(asked: Start, classes: tuple[str, ...] | None, drop: Sequence[str], most: int) -> Made:
    label, column = asked.label, asked.party_column
    declared = declare(asked.source, label, drop=[*drop, *([column] if column else [])], most=most)
    if declared.classes is None:
        raise ConfigError(
            f"{label!r} is a number to predict, and `init` writes configs for two classes, whose settings can do far "
            "worse than a constant for a number. Copy the config of docs/data.md#a-number-to-predict, which has those "
            f"for numbers, with label_bound and radius declared (this file's labels are within "
            f"{declared.label_bound or 1.0:g}) and labels shifted to a public middle; `account` says whether it can "
            "beat a constant"
        )
    if len(declared.classes) > 2:
        raise ConfigError(
            f"{label!r} has {len(declared.classes)} classes, and the command line trains two: group them into two in "
            "the file, or use ADMMClassifier(classes=...) in Python, which takes more (docs/python.md)"
        )
    if classes is not None and set(classes) != set(declared.classes):
        raise ConfigError(f"--classes are {list(classes)}, and {label!r} has {list(declared.classes)}")
    parties = asked.parties or PARTIES
    if column is not None:
        with opened(asked.source, None) as table:
            parties = len(set(words(table.load((), [column])[column])))
        if asked.parties not in (None, parties):
            raise ConfigError(f"--parties is {asked.parties}, and {column!r} has {parties} values; leave --parties out")
    negative, positive = declared.classes if classes is None else classes
    return written(asked, Schema(declared.columns, label, (negative, positive), 1.0), parties, declared, inline=True)


def from_schema(asked: Start, path: Path, classes: tuple[str, ...] | None, drop: Sequence[str]) -> Made:
    """Read no record. If a column of the schema file is left out, the others are listed in the config itself."""
    if classes is None:
        raise ConfigError(
            "--classes is missing: with --schema say the label's two values, negative first (for a number to "
            "predict copy the config of docs/data.md#a-number-to-predict)"
        )
    _, entries = load(path)
    column, parties = asked.party_column, asked.parties
    if column is not None:
        parties = declared_parties(asked, path, entries, column)
    for name in drop:
        if name not in entries:
            raise ConfigError(f"--drop {name}: {path} declares no such column, so there is nothing to leave out")
    kept = {name: entry for name, entry in entries.items() if name not in {*drop, column}}
    schema = Schema.from_table(kept, label=asked.label, classes=classes, row_bound=1.0)
    return written(asked, schema, parties or PARTIES, None, inline=len(kept) < len(entries))


def declared_parties(asked: Start, path: Path, entries: Mapping[str, Any], column: str) -> int:
    """How many parties the column of parties has, by the schema file; or as was said, where that lists none."""
    if column not in entries:
        hint = did_you_mean(column, entries, repr)
        raise ConfigError(
            f"--party-column {column}: {path} declares no such column{f'; {hint}' if hint else '.'} It has "
            f"{', '.join(entries)}. If the records have it, declare it there, too, with the parties as its categories: "
            "it becomes no feature"
        )
    kind = columns_of({column: entries[column]})[column]
    known = len(kind.values) if isinstance(kind, Category) and not kind.other else None
    if known is None and asked.parties is None:
        raise ConfigError(
            f"--parties is missing: {path} does not list the values of {column!r}, and no record is read, so say how "
            "many it has"
        )
    if known is not None and asked.parties not in (None, known):
        raise ConfigError(
            f"--parties is {asked.parties}, and {path} lists {known} categories of {column!r}; leave --parties out, or "
            "correct the list"
        )
    return known or asked.parties or PARTIES


def written(asked: Start, schema: Schema, parties: int, declared: Declared | None, *, inline: bool) -> Made:
    """Write the config. `declared` is what was read off a public source; `inline` lists the columns in the config."""
    rows = asked.records or (declared.rows if declared else None)
    if rows is None:
        raise ConfigError("--records is missing: with --schema say how many records there are in all")
    dims = {encoding: schema.encoded(encoding).dim for encoding in get_args(Encoding)}
    summed = SecureSum() if parties >= LEAST_PARTIES else None
    advice = recommend(Facts(rows, (asked.epsilon,) * parties, asked.delta, dims, summed, round(rows * HELD_OUT)))
    column, notes = asked.party_column, list(declared.notes) if declared else []
    if column is not None:
        notes.append(Note(column, "left out of the features: it says whose a row is", True))
    if declared is not None:
        origin = f"Ranges and categories were read off {asked.source.name}, stated to be public or made up."
        gaps = "" if declared.missing else None
    else:
        left_out = ", but for columns that were left out" if inline else ""
        origin = f"Ranges and categories are those of the schema file{left_out}."
        # Records that were not looked at may lack a number anywhere.
        numeric = any(not column.forgiving for column in schema.columns.values())
        gaps = '; "refuse" stops training there' if numeric else None
    dealt = "rows are dealt out between them"
    if column is not None:
        dealt = "as many as the column has values"

    def near(path: Path) -> str:
        return text(Path(os.path.relpath(path, asked.config.parent)).as_posix())

    coarse, numbers = advice.encoding == "coarse", any(isinstance(column, Number) for column in schema.columns.values())
    lines = filled(
        train=advice.facts.trained,
        rows=rows,
        parties=parties,
        epsilon=asked.epsilon,
        delta=asked.delta,
        origin=comments([origin])[0],
        noise=advice.expected.noise_to_signal,
        verdict=advice.expected.verdict,
        meaning=advice.expected.meaning,
        source=near(asked.source),
        label=text(asked.label),
        classes=listed(schema.classes or ()),
        schema=None if asked.schema is None or inline else near(asked.schema),
        encoding=advice.encoding,
        even=EVEN if numbers else None,
        bins=("five" if coarse else "ten") + " bins of its range, finer at its low end" + coarse * ": noise is large",
        held_out=HELD_OUT,
        gaps=gaps,
        columns="\n".join(["", "[data.schema]", *schema_lines(schema.columns)]) if inline else None,
        dealt=dealt,
        split=text("even" if column is None else f"column:{column}"),
        shares="evenly" if column is None else "a party for each value",
        rounds=advice.rounds,
        engine="" if summed is None else ", by Dask or as a federation",
        secure=None if summed is None else "secure",
        colluding=None if summed is None else summed.tolerated(parties),
    )
    return Made("\n".join([*lines, ""]), advice, tuple(notes))


def filled(**values: Any) -> Iterator[str]:
    """Fill in the lines of the template, with reasons aligned; a line that has a value of None is left out."""
    template = resources.files("privadmm.runs").joinpath("new_config.template").read_text(encoding="utf-8")
    for line in template.splitlines():
        if all(values[name] is not None for _, name, _, _ in Formatter().parse(line) if name):
            setting, mark, why = (part.format(**values) for part in line.partition("  # "))
            yield f"{setting:<38}# {why}" if mark else setting
