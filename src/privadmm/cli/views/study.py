"""What `privadmm reproduce` prints about a paper's study."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from privadmm.cli.views import screen
from privadmm.cli.views.screen import escape
from privadmm.papers.framework.pages import cells, kind, word
from privadmm.papers.framework.study import VERDICTS, Check, Study

if TYPE_CHECKING:
    from rich.text import Text

STYLES = {True: "green", False: "bold red", None: "bold yellow"}
COLUMNS = ("check", "claimed by", "published", "ours", "verdict")


def shown(study: Study, out: Path, quick: bool = False) -> str:
    grids = []
    for grid in study.grids:
        rows, names = (
            [[escape(word(cell)) for cell in row] for row in grid.rows],
            [escape(name) for name in grid.columns],
        )
        grids.append(screen.table(escape(grid.caption), names, rows, left=names))
    checks = [(*map(escape, cells(c)[:4]), f"[{STYLES[c.ok]}]{VERDICTS[c.ok]}[/]") for c in study.checks]
    title = escape(f"{study.title}, {kind(quick)}: {study.tally}")
    return screen.shown(
        *grids,
        screen.table(title, COLUMNS, checks, left=COLUMNS),
        remarks(study.checks),
        screen.rows([("note", escape(note)) for note in study.notes], out),
    )


def remarks(checks: Sequence[Check]) -> "list[Text]":
    """Why checks do not hold or cannot be judged, each below the check's name."""
    from rich.text import Text

    room, lines = min(screen.console().width, 100), list[Text]()
    for check in checks:
        if not check.ok and check.why:
            lines += screen.wrapped(Text(f"{VERDICTS[check.ok]}: {check.name}", "bold"), room)
            lines += [Text("    ") + part for part in screen.wrapped(Text(check.why), room - 4)]
    return lines
