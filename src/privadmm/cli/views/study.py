"""What `privadmm reproduce` prints of a paper's study."""

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from privadmm.cli.views import screen
from privadmm.papers.framework.pages import cells, kind, word
from privadmm.papers.framework.study import VERDICTS, Check, Grid, Study

STYLES = {True: "green", False: "bold red", None: "bold yellow"}


def shown(study: Study, out: Path, quick: bool = False) -> str:
    """For the terminal."""
    checks = Table(title=escape(f"{study.title}, {kind(quick)}: {study.tally}"), title_justify="left")
    for name in ("check", "claimed by", "published", "ours", "verdict"):
        checks.add_column(name)
    for check in study.checks:
        checks.add_row(*map(escape, cells(check)[:4]), f"[{STYLES[check.ok]}]{VERDICTS[check.ok]}[/]")
    grids = [small(grid) for grid in study.grids]
    facts: screen.Facts = [("note", escape(note)) for note in study.notes]
    facts.append(("written to", out))
    return screen.shown([*grids, checks, remarks(study.checks), screen.rows(facts)])


def remarks(checks: Sequence[Check]) -> list[Text]:
    """Why checks do not hold or cannot be judged, each below the check's name."""
    room, lines = min(screen.console().width, 100) - 4, list[Text]()
    for check in checks:
        if not check.ok and check.why:
            lines += Text(f"{VERDICTS[check.ok]}: {check.name}", "bold").wrap(screen.console(), room + 4)
            lines += [Text("    ") + part for part in Text(check.why).wrap(screen.console(), room)]
    for line in lines:
        line.rstrip()
    return lines


def small(grid: Grid) -> Table:
    made = Table(title=escape(grid.caption), title_justify="left")
    for name in grid.columns:
        made.add_column(escape(name))
    for row in grid.rows:
        made.add_row(*(escape(word(cell)) for cell in row))
    return made
