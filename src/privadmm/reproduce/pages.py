"""A study written down: one JSON file, its figures, and a page for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.reproduce.study import VERDICTS, Check, Grid, Study

WHOLE = 1e9  # whole figures below this are written out


def save(study: Study, out: Path, quick: bool = False) -> None:
    """`out` gets study.json, results.md and a file for each figure."""
    from privadmm.reproduce.drawing import draw

    out.mkdir(parents=True, exist_ok=True)
    for figure in study.figures:
        draw(figure, out / f"{figure.name}.png", quick)
    (out / "results.md").write_text(page(study, quick), encoding="utf-8")
    write_json(out / "study.json", study.record | {"quick": quick})


def kind(quick: bool) -> str:
    return (
        "a quick run, with fewer seeds, rounds and settings than the results to cite"
        if quick
        else "a full run"
    )


def page(study: Study, quick: bool = False) -> str:
    """In Markdown: what was run, every check, every table."""
    parts = [
        f"# {study.title} ({study.paper}): {kind(quick)}",
        f"{study.tally}.",
        "### Settings",
        settings(study),
        "### Checks",
    ]
    parts.append(
        table(
            ("check", "claimed by", "published", "ours", "verdict", "remark"),
            [cells(check) for check in study.checks],
        )
    )
    for grid in study.grids:
        parts += [f"### {grid.caption}", table(grid.columns, [tuple(map(word, row)) for row in grid.rows])]
    for figure in study.figures:
        parts += [f"### {figure.caption}", f"![{figure.caption}]({figure.name}.png)"]
    parts += [f"- {note}" for note in study.notes]
    return "\n\n".join(parts) + "\n"


def settings(study: Study) -> str:
    rows = [
        (one.symbol, one.value, "the paper" if one.stated else "ours", one.why) for one in study.parameters
    ]
    return table(("setting", "value", "from", "reason"), rows)


BY = {"paper": "the paper", "ours": "us"}
STYLES = {True: "green", False: "bold red", None: "bold yellow"}


def cells(check: Check) -> tuple[str, ...]:
    within = "" if check.tolerance is None else f" +- {check.tolerance:g}"
    return (
        check.name,
        BY[check.of],
        word(check.published) + within,
        word(check.ours),
        f"**{VERDICTS[False]}**" if check.ok is False else VERDICTS[check.ok],
        check.why,
    )


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def word(value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) < WHOLE else f"{value:.4g}"


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
