"""A config to start from: the recommended method, set for public facts, with a reason beside each line."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from privadmm import check
from privadmm.data.declare import (
    Declared,
    Note,
    comments,
    declare,
    listed,
    need_public,
    schema_lines,
    short,
    text,
)
from privadmm.data.readers import opened
from privadmm.data.schema import Encoding, Schema, require_column, words
from privadmm.errors import ConfigError
from privadmm.recommend import Facts, Recommendation, recommend
from privadmm.toml.reader import load

HELD_OUT = 0.2


@dataclass(frozen=True)
class Start:
    """What a config is to be written for. All of it is public."""

    config: Path
    source: Path
    label: str
    records: int | None
    parties: int
    party_column: str | None
    epsilon: float
    delta: float
    schema: Path | None

    def __post_init__(self) -> None:
        check.positive(epsilon=self.epsilon)
        check.probability(delta=self.delta)
        check.whole(parties=self.parties)


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
    out = [*drop, *([asked.party_column] if asked.party_column else [])]
    if asked.schema is None:
        need_public(asked.source, public)
        found = declare(asked.source, asked.label, drop=out, most=most)
        if classes is not None and found.classes is not None and set(classes) != set(found.classes):
            raise ConfigError(f"--classes are {list(classes)}, and {asked.label!r} has {list(found.classes)}")
        if asked.party_column is not None:
            with opened(asked.source, None) as table:
                require_column(asked.party_column, table.header)
                owners = words(table.load((), [asked.party_column])[asked.party_column])
            asked = replace(asked, parties=len(set(owners)))
        pair = found.classes if classes is None else (classes[0], classes[1])
        declared = Schema(found.columns, asked.label, pair, 1.0)
        lines = ["", "[data.schema]", *schema_lines(found.columns)]
        return written(asked, declared, found, lines)
    if classes is None:
        raise ConfigError("--classes is missing: with --schema say the label's two values, negative first")
    _, entries = load(asked.schema)
    declared = Schema.from_table(entries, label=asked.label, classes=classes, row_bound=1.0)
    return written(asked, declared, None, [])


def written(asked: Start, schema: Schema, found: Declared | None, schema_text: list[str]) -> Made:
    rows = asked.records or (found.rows if found is not None else None)
    if rows is None:
        raise ConfigError("--records is missing: with --schema say how many records there are in all")
    train = rows - round(rows * HELD_OUT)
    dims = {encoding: schema.encoded(encoding).dim for encoding in get_args(Encoding)}
    advice = recommend(Facts(train, (asked.epsilon,) * asked.parties, asked.delta, dims))
    bound = None if found is None else found.label_bound
    split = "even" if asked.party_column is None else f"column:{asked.party_column}"
    missing = found is not None and found.missing

    def line(name: str, value: str, why: str) -> str:
        return f"{f'{name} = {value}':<38}# {why}"

    def near(path: Path) -> str:
        return text(Path(os.path.relpath(path, asked.config.parent)).as_posix())

    made_from = (
        f"Ranges and categories were read off {asked.source.name}, stated to be public or made up."
        if found is not None
        else "Ranges and categories are those of the schema file."
    )
    head = [
        f"The recommended method for about {train} records to train on, {asked.parties} parties, "
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
    if asked.schema is not None:
        parts.append(line("schema", near(asked.schema), "ranges and categories of the columns that are used"))
    bins = {"binned": "ten fixed bins of its range", "coarse": "five fixed bins of its range: noise is large"}
    parts += [
        line("encoding", text(advice.encoding), f"a number goes one-hot into {bins[advice.encoding]}"),
        line("rows", text("unit"), "every row is scaled to norm 1, so no bound has to be chosen"),
        line("test_fraction", f"{HELD_OUT}", "held out to measure accuracy; a deployment holds out nothing"),
    ]
    if missing:
        parts.append(line("on_bad", text("default"), "a missing number counts as the low end of its range"))
    parts += [*schema_text, "", "[parties]"]
    dealt = "as many as the column has values" if asked.party_column else "rows are dealt out between them"
    parts += [
        line("count", str(asked.parties), dealt),
        line("split", text(split), "a party for each value" if asked.party_column else "evenly"),
    ]
    loss = (
        [line("name", text("half_logistic"), "half the sensitivity of the logistic loss: half the noise")]
        if schema.classes is not None
        else [
            line("name", text("squared"), "a number is predicted"),
            line("label_bound", repr(short(bound or 1.0)), "labels are clipped to this size"),
            line(
                "radius", repr(short(bound or 1.0)), "predictions beyond it count linearly: bounds a record"
            ),
        ]
    )
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
        *loss,
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
    return Made("\n".join(parts), advice, found.notes if found is not None else ())
