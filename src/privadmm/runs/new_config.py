"""A config to start from: the recommended method, set for public facts, with a reason beside each line."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from privadmm.config.reader import load
from privadmm.data.raw import words
from privadmm.data.readers import opened
from privadmm.data.schema import Encoding, Number, Schema
from privadmm.errors import ConfigError
from privadmm.params import check_positive, check_probability, check_whole
from privadmm.runs.new_schema import (
    Declared,
    Note,
    comments,
    declare,
    listed,
    need_public,
    schema_lines,
    text,
)
from privadmm.runs.recommend import Facts, Recommendation, recommend

HELD_OUT = 0.2
PARTIES = 10  # if nothing says how many


@dataclass(frozen=True)
class Start:
    """What a config is to be written for. All of it is public."""

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
    text: str
    advice: Recommendation
    notes: tuple[Note, ...]

    @property
    def table(self) -> dict[str, Any]:
        notes = [{"column": note.column, "note": note.text} for note in self.notes]
        return {"recommended": self.advice.table, "notes": notes}


def start(
    asked: Start,
    classes: tuple[str, ...] | None,
    *,
    public: bool,
    drop: Sequence[str] = (),
    most: int = 50,
) -> Made:
    """The text of the config. Without a schema file the source itself is looked at, if that is public."""
    if asked.schema is None:
        need_public(asked.source, public)
        return from_public(asked, classes, drop, most)
    return from_schema(asked, asked.schema, classes, drop)


def from_public(asked: Start, classes: tuple[str, ...] | None, drop: Sequence[str], most: int) -> Made:
    column = asked.party_column
    found = declare(asked.source, asked.label, drop=[*drop, *([column] if column else [])], most=most)
    if found.classes is None:
        raise ConfigError(regression(asked.label, found.label_bound or 1.0))
    if classes is not None and set(classes) != set(found.classes):
        raise ConfigError(f"--classes are {list(classes)}, and {asked.label!r} has {list(found.classes)}")
    parties = asked.parties or PARTIES
    if column is not None:
        with opened(asked.source, None) as table:
            parties = len(set(words(table.load((), [column])[column])))
        if asked.parties not in (None, parties):
            raise ConfigError(f"--parties is {asked.parties}, and {column!r} has {parties} values; leave --parties out")
    pair = found.classes if classes is None else (classes[0], classes[1])
    declared = Schema(found.columns, asked.label, pair, 1.0)
    return written(asked, declared, found.rows, parties, found, inline=True)


def from_schema(asked: Start, path: Path, classes: tuple[str, ...] | None, drop: Sequence[str]) -> Made:
    """No record is read. Where a column of the file has to go, the rest of them stand in the config itself."""
    if classes is None:
        raise ConfigError(
            "--classes is missing: with --schema say the label's two values, negative first (a number to predict "
            "has no recommended method; see docs/recommend.md)"
        )
    if asked.party_column is not None and asked.parties is None:
        raise ConfigError(
            f"--parties is missing: with --schema no record is read, so say how many values {asked.party_column!r} has"
        )
    _, entries = load(path)
    for name in drop:
        if name not in entries:
            raise ConfigError(f"--drop {name}: {path} declares no such column, so there is nothing to leave out")
    out = {*drop, asked.party_column}
    kept = {name: entry for name, entry in entries.items() if name not in out}
    declared = Schema.from_table(kept, label=asked.label, classes=classes, row_bound=1.0)
    return written(asked, declared, None, asked.parties or PARTIES, None, inline=len(kept) < len(entries))


def regression(label: str, bound: float) -> str:
    return (
        f"{label!r} is a number to predict, and no method is recommended for that: with the settings for two classes a "
        "private regression can do far worse than a constant, so no such config is written. By hand: "
        f'[loss] name = "squared" with label_bound and radius declared (this file\'s labels are within {bound:g}), no '
        "[data] classes, and labels shifted to a public middle; then compare it with a constant on public data. Or "
        "predict two classes, such as above and below a limit"
    )


def written(
    asked: Start, schema: Schema, counted: int | None, parties: int, found: Declared | None, *, inline: bool
) -> Made:
    rows = asked.records or counted
    if rows is None:
        raise ConfigError("--records is missing: with --schema say how many records there are in all")
    train = rows - round(rows * HELD_OUT)
    dims = {encoding: schema.encoded(encoding).dim for encoding in get_args(Encoding)}
    advice = recommend(Facts(train, (asked.epsilon,) * parties, asked.delta, dims))
    split = "even" if asked.party_column is None else f"column:{asked.party_column}"
    # Records that were not looked at may lack a number anywhere.
    unseen = found is None and any(isinstance(column, Number) for column in schema.columns.values())
    notes = [] if found is None else list(found.notes)
    if asked.party_column is not None:
        notes.append(Note(asked.party_column, "left out of the features: it says whose a row is", True))

    def line(name: str, value: str, why: str) -> str:
        return f"{f'{name} = {value}':<38}# {why}"

    def near(path: Path) -> str:
        return text(Path(os.path.relpath(path, asked.config.parent)).as_posix())

    made_from = (
        f"Ranges and categories were read off {asked.source.name}, stated to be public or made up."
        if found is not None
        else "Ranges and categories are those of the schema file"
        + (", but for columns that were left out." if inline else ".")
    )
    head = [
        f"The recommended method for about {train} records to train on, {parties} parties, "
        f"epsilon = {asked.epsilon:g}, delta = {asked.delta:g}.",
        made_from,
        "They are facts for everybody to see.",
        f"Expected: noise {advice.expected.noise_to_signal:.2g} times the signal of a middling data set, which is "
        f"{advice.expected.verdict}: {advice.expected.meaning}.",
    ]
    parts = [
        *comments(head),
        "",
        "[data]",
        line("source", near(asked.source), "paths are relative to this file"),
        line("label", text(asked.label), "what is predicted"),
    ]
    if schema.classes is not None:
        parts.append(line("classes", listed(schema.classes), "negative first; declared, not looked up"))
    if asked.schema is not None and not inline:
        parts.append(line("schema", near(asked.schema), "ranges and categories of the columns that are used"))
    bins = {"binned": "ten fixed bins of its range", "coarse": "five fixed bins of its range: noise is large"}
    parts += [
        line("encoding", text(advice.encoding), f"a number goes one-hot into {bins[advice.encoding]}"),
        line("rows", text("unit"), "every row is scaled to norm 1, so no bound has to be chosen"),
        line("test_fraction", f"{HELD_OUT}", "held out to measure accuracy; a deployment holds out nothing"),
    ]
    if unseen or (found is not None and found.missing):
        why = "a missing number counts as the low end of its range"
        why += '; "refuse" stops training there' if unseen else ""
        parts.append(line("on_bad", text("default"), why))
    if inline:
        parts += ["", "[data.schema]", *schema_lines(schema.columns)]
    parts += ["", "[parties]"]
    dealt = "rows are dealt out between them"
    if asked.party_column is not None:
        dealt = "as many as the column has values" if found else "as many as the column was said to have values"
    parts += [
        line("count", str(parties), dealt),
        line("split", text(split), "a party for each value" if asked.party_column else "evenly"),
    ]
    parts += [
        "",
        "[features]",
        line("moments", "true", "a first private release, to centre and scale features"),
        line("nonnegative", "true", "encoded features are: less noise on that release"),
        "",
        "[algorithm]",
        line("name", text("first_order_consensus"), "noisy gradients, free consensus on them"),
        line("rounds", str(advice.rounds), "one of moments, the rest of gradients"),
        "",
        "[loss]",
        line("name", text("half_logistic"), "half the sensitivity of the logistic loss: half the noise"),
        "",
        "[regularizer]",
        line("name", text("l2"), "there is a penalty only if weight is above 0"),
        line("weight", "0.0", "noise and averaging regularise enough"),
        "",
        "[privacy]",
        line("epsilon", repr(asked.epsilon), "what each party may lose in all, certified"),
        line("delta", repr(asked.delta), "with what probability it may be more"),
        "",
        "[run]",
        line("mode", text("simulation"), 'noise from the seed, to study; then "deployment"'),
        line("seed", "0", "remove it in a deployment, which draws secure noise"),
        "",
    ]
    return Made("\n".join(parts), advice, tuple(notes))
