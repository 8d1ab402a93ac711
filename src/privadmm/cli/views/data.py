"""What `privadmm examples`, `schema`, `init` and `predict` print for people."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from privadmm.cli.views import screen
from privadmm.cli.views.screen import escape
from privadmm.data.schema import Category, Date, Number
from privadmm.errors import apart
from privadmm.runs.metrics import amount, held_by

if TYPE_CHECKING:
    from privadmm.runs.model import Model
    from privadmm.runs.new_config import Made
    from privadmm.runs.new_schema import Declared


MOST_NAMES = 10


def examples(names: Sequence[str], out: Path) -> str:
    kinds = Counter(Path(name).suffix for name in names)
    facts: screen.Facts = [
        ("configs", f"{kinds['.toml']}, every method among them: `privadmm train {escape(str(out))}/dp_admm.toml`"),
        ("scripts", f"{kinds['.py']}: `python {escape(str(out))}/hospitals.py`"),
        ("records", "patients.csv, and sample.csv to declare a schema from; stays.csv: made up, nobody's"),
        ("written to", out),
    ]
    return screen.shown(screen.rows(facts))


def schema(declared: "Declared", out: Path) -> str:
    kinds = Counter(type(column) for column in declared.columns.values())
    dates = f", {kinds[Date]} of dates" if kinds[Date] else ""
    ranges, lists = amount(kinds[Number], "range"), amount(kinds[Category], "list")
    facts: screen.Facts = [
        ("made from", escape(f"{declared.source}, {amount(declared.rows, 'row')}, stated to be public or made up")),
        ("columns", f"{ranges}, {lists} of categories{dates}"),
        ("left out", escape(", ".join(note.column for note in declared.notes if note.left_out)) or None),
        ("written to", out),
        ("next", f"read it through: everybody will see it; then {after(declared)}"),
    ]
    return screen.shown(screen.rows(facts))


def after(declared: "Declared") -> str:
    """The next step with a schema. Only for two classes can `init` write the config."""
    if declared.classes is None:
        return "copy the config of docs/data.md#a-number-to-predict, and name it in \\[data] schema"
    if len(declared.classes) > 2:
        return "give it to SchemaEncoder, before an ADMMClassifier(classes=...) (docs/data.md)"
    return "name it in \\[data] schema, or use `privadmm init`"


def init(made: "Made", config: Path) -> str:
    advice, expected = made.advice, made.advice.expected
    verdict = f"{expected.verdict}: {expected.meaning} (an estimate)"
    facts: screen.Facts = [
        ("written to", config),
        ("records", held_by(advice.facts.records, advice.facts.trained, advice.facts.parties)),
        ("method", f"first_order_consensus, {advice.rounds} rounds, {advice.encoding}, {advice.dim} features"),
        ("sums", "secure: one noise for all parties together" if advice.facts.sum is not None else None),
        ("noise", f"{expected.noise_to_signal:.2g} times the signal of a middling data set"),
        ("warning", screen.alarm(advice.warning)),
        *(("warning", screen.alarm(advice.table[which])) for which in ("epsilon_warning", "delta_warning")),
        ("which is", verdict if advice.warning is None else None),
        ("next", f"privadmm train {escape(config)}"),
    ]
    return screen.shown(screen.rows(facts))


def exported(model: "Model", file: Path) -> str:
    columns = f"{len(model.frame.names)} numbers a row, in the order of the file's metadata"
    encoded = ", as the schema encodes them: raw cells are not encoded in the file" if model.frame.schema else ""
    outputs = "scores" if model.frame.classes is None else "scores and label"
    facts: screen.Facts = [("written to", file), ("input", f"columns: {columns}{encoded}"), ("output", outputs)]
    return screen.shown(screen.rows(facts))


def ignored(names: Sequence[str]) -> list[str]:
    """The line about columns that were not read, if there are any."""
    if not names:
        return []
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    shown = ", ".join(map(apart, names[:MOST_NAMES])) + more
    return [f"not read, since the model has no such column: {shown} (--keep NAME copies one to the predictions)"]


def predictions(model: "Model", predicted: NDArray[Any], out: Path) -> str:
    facts: screen.Facts = [("rows", str(len(predicted)))]
    if model.frame.classes is not None:
        counts = Counter(predicted.tolist())
        facts.append(("classes", ", ".join(f"{escape(k)} {counts[k]}" for k in model.frame.classes)))
    return screen.shown(screen.rows([*facts, ("written to", out)]))
