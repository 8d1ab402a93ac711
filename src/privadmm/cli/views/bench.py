"""What `privadmm bench` prints."""

from typing import Any

from privadmm.cli.views import screen
from privadmm.cli.views.screen import escape
from privadmm.papers.bench import page
from privadmm.papers.bench.growth import ABOUT
from privadmm.papers.bench.running import GROWTH
from privadmm.papers.bench.workloads import everything

COLOURS = {"yes": "green", "no": "yellow", "DISAGREE": "bold red"}


def catalogue(names: list[str]) -> list[dict[str, Any]]:
    """The workloads as data, for --json."""
    known = everything()
    told = [
        {
            "name": name,
            "title": known[name].title,
            "lines": [{"against": line.against, "goal": line.goal and line.goal.words} for line in known[name].lines],
        }
        for name in names
        if name in known
    ]
    return told + [{"name": GROWTH, "title": ABOUT, "lines": []} for name in names if name == GROWTH]


def listed(names: list[str]) -> str:
    rows = [
        [work["name"], escape(work["title"]), ", ".join(line["goal"] or "-" for line in work["lines"]) or "-"]
        for work in catalogue(names)
    ]
    return screen.shown(screen.table("Workloads", ("name", "what", "goals"), rows, ("name", "what", "goals")))


def shown(result: dict[str, Any]) -> str:
    """The tables of speed and of growth, with a reason for each goal that was missed."""
    parts: list[Any] = []
    if result["lines"]:
        rows = [[coloured(cell) for cell in page.cells(line)] for line in result["lines"]]
        shape = screen.table("Speed", page.COLUMNS, rows, ("workload", "goal"))
        shape.columns[0].no_wrap = True  # names are what the command takes
        parts.append(shape)
    if result["growth"]:
        parts.append(screen.table("Growth", page.GROWN, page.grown(result), ("of",)))
    said: screen.Facts = [("machine", escape(page.facts(result)))]
    said += [(name, escape(why)) for name, why in page.reasons(result)]
    said += [("FAILED", screen.alarm(why)) for why in result["failures"]]
    if result["quick"]:
        said.append(("quick", "sizes and repeats are cut: goals of cut sizes are not judged"))
    if result["out"]:
        said.append(("page", escape(result["out"])))
    return screen.shown(*parts, screen.rows(said))


def coloured(cell: str) -> str:
    return f"[{COLOURS[cell]}]{cell}[/]" if cell in COLOURS else escape(cell)
