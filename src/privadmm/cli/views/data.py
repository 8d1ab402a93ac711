"""What `privadmm schema`, `init` and `predict` print for people."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from privadmm.cli.views import screen
from privadmm.cli.views.screen import escape
from privadmm.data.schema import Number

if TYPE_CHECKING:
    from privadmm.runs.model import Model
    from privadmm.runs.new_config import Made
    from privadmm.runs.new_schema import Declared


def schema(declared: "Declared", out: Path) -> str:
    ranges = sum(isinstance(column, Number) for column in declared.columns.values())
    facts: screen.Facts = [
        ("made from", escape(f"{declared.source}, {declared.rows} rows, stated to be public or made up")),
        ("columns", f"{ranges} ranges, {len(declared.columns) - ranges} lists of categories"),
    ]
    if left_out := [note.column for note in declared.notes if note.left_out]:
        facts.append(("left out", escape(", ".join(left_out))))
    after = "read it through: everybody will see it; then name it in \\[data] schema, or use `privadmm init`"
    return screen.shown(screen.rows([*facts, ("written to", out), ("next", after)]))


def init(made: "Made", config: Path) -> str:
    advice = made.advice
    method = f"first_order_consensus, {advice.rounds} rounds, {advice.encoding}, {advice.dim} features"
    facts: screen.Facts = [
        ("written to", config),
        ("method", method),
        ("noise", f"{advice.expected.noise_to_signal:.2g} times the signal of a middling data set"),
    ]
    if advice.warning is not None:
        facts.append(screen.warning(advice.warning))
    else:
        facts.append(("which is", f"{advice.expected.verdict}: {advice.expected.meaning} (an estimate)"))
    return screen.shown(screen.rows([*facts, ("next", f"privadmm train {escape(config)}")]))


def predictions(model: "Model", predicted: NDArray[Any], out: Path) -> str:
    facts: screen.Facts = [("rows", str(len(predicted)))]
    if model.frame.classes is not None:
        counts = Counter(predicted.tolist())
        facts.append(("classes", ", ".join(f"{escape(k)} {counts[k]}" for k in model.frame.classes)))
    return screen.shown(screen.rows(facts, out))
