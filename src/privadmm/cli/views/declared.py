"""What people see after `privadmm schema`, `init` and `predict`."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray
from rich.markup import escape

from privadmm.cli.views import screen
from privadmm.data.schema import Number

if TYPE_CHECKING:
    from privadmm.runs.model import Model
    from privadmm.runs.new_config import Made
    from privadmm.runs.new_schema import Declared


def schema(found: "Declared", out: Path) -> str:
    ranges = sum(isinstance(column, Number) for column in found.columns.values())
    left = [note.column for note in found.notes if note.left_out]
    facts: screen.Facts = [
        ("made from", escape(f"{found.source}, {found.rows} rows, stated to be public or made up")),
        ("columns", f"{ranges} ranges, {len(found.columns) - ranges} lists of categories"),
    ]
    if left:
        facts.append(("left out", escape(", ".join(left))))
    facts += [
        ("written to", out),
        (
            "next",
            "read it through: everybody will see it; then name it in \\[data] schema, or use `privadmm init`",
        ),
    ]
    return screen.shown([screen.rows(facts)])


def init(made: "Made", config: Path) -> str:
    advice = made.advice
    facts: screen.Facts = [
        ("written to", config),
        (
            "method",
            f"first_order_consensus, {advice.rounds} rounds, {advice.encoding}, {advice.dim} features",
        ),
        ("noise", f"{advice.expected.noise_to_signal:.2g} times the signal of a middling data set"),
    ]
    if advice.warning is not None:
        facts.append(("warning", f"[bold red]{escape(advice.warning)}[/]"))
    else:
        facts.append(("which is", f"{advice.expected.verdict}: {advice.expected.meaning} (an estimate)"))
    facts.append(("next", f"privadmm train {escape(str(config))}"))
    return screen.shown([screen.rows(facts)])


def predictions(model: "Model", found: NDArray[Any], out: Path) -> str:
    facts: screen.Facts = [("rows", str(len(found)))]
    if model.frame.classes is not None:
        counts = Counter(found.tolist())
        facts.append(("classes", ", ".join(f"{escape(str(k))} {counts[k]}" for k in model.frame.classes)))
    facts.append(("written to", out))
    return screen.shown([screen.rows(facts)])
