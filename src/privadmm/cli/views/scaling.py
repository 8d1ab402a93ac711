"""What `privadmm scale` leaves: a table for people, a figure, and both as data."""

from pathlib import Path
from typing import Any

from rich.table import Table

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.runs.plots import BLUE, GREY, ORANGE, canvas

NAMES = {
    "star": "star",
    "graph": "graph, relayed by the coordinator",
    "peers": "graph, neighbours directly",
    "sharing": "split features",
}
MODELLED = "A model of the network, not a measurement."


def shown(result: dict[str, Any], out: Path | None) -> str:
    wires = result["network"]
    made = Table(
        title=f"One round of {result['algorithm']} on {result['engine']}, latency {1000 * wires['latency']:g} ms",
        title_justify="left",
    )
    for heading in ("parties", "who talks to whom", "seconds", "bytes in all", "through the coordinator"):
        made.add_column(heading, justify="left" if heading.startswith("who") else "right")
    for line in result["lines"]:
        figures = (duration(line["seconds"]), size(line["bytes"]), size(line["bytes_at_hub"]))
        made.add_row(f"{line['nodes']:,}", NAMES[line["kind"]], *figures)
    facts: screen.Facts = [("note", MODELLED)]
    if out is not None:
        facts.append(("written to", out))
    return screen.shown([made, screen.rows(facts)])


def duration(seconds: float) -> str:
    return f"{seconds:.3g}" if seconds < 100 else f"{seconds:,.0f}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.4g} TB"


def save(result: dict[str, Any], out: Path) -> None:
    write_json(out / "scale.json", result)
    draw(result, out / "scale.png")


def draw(result: dict[str, Any], path: Path) -> None:
    drawing = canvas(height=4.6)
    drawing.set_size_inches(9.5, 4.6)
    left, right = drawing.subplots(1, 2)
    for kind, color in zip(NAMES, (BLUE, BLUE, ORANGE, BLUE), strict=True):
        lines = [line for line in result["lines"] if line["kind"] == kind]
        if not lines:
            continue
        nodes = [line["nodes"] for line in lines]
        left.plot(nodes, [line["seconds"] for line in lines], "o-", color=color, label=NAMES[kind])
        right.plot(nodes, [line["bytes"] for line in lines], "o-", color=color, label=NAMES[kind])
    left.set(xlabel="parties", ylabel="seconds a round", xscale="log", yscale="log")
    right.set(xlabel="parties", ylabel="bytes a round, on all wires", xscale="log", yscale="log")
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    drawing.suptitle(f"{result['algorithm']} on {result['engine']}")
    drawing.supxlabel(MODELLED, fontsize=9, color=GREY)
    drawing.savefig(path)
