"""A study written down: one JSON file, its figures, and a page for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from privadmm.report import screen
from privadmm.report.rundir import write_json
from privadmm.reproduce.study import Check, Grid, Study


def save(study: Study, out: Path, quick: bool = False) -> None:
    """`out` gets study.json, results.md and a file for each figure."""
    from privadmm.reproduce.drawing import draw

    out.mkdir(parents=True, exist_ok=True)
    for figure in study.figures:
        draw(figure, out / f"{figure.name}.png")
    (out / "results.md").write_text(page(study), encoding="utf-8")
    write_json(out / "study.json", study.record | {"quick": quick})


def page(study: Study) -> str:
    """In Markdown: what was run, every check, every table."""
    parts = [
        f"{study.held} of {len(study.checks)} checks hold.",
        "### Settings",
        settings(study),
        "### Checks",
    ]
    parts.append(
        table(("check", "published", "ours", "holds", "remark"), [cells(check) for check in study.checks])
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


def cells(check: Check) -> tuple[str, ...]:
    within = "" if check.tolerance is None else f" +- {check.tolerance:g}"
    return (
        check.name,
        word(check.published) + within,
        word(check.ours),
        "yes" if check.ok else "**no**",
        check.why,
    )


def table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def word(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def shown(study: Study, out: Path) -> str:
    """For the terminal."""
    checks = Table(
        title=f"{study.title}: {study.held} of {len(study.checks)} checks hold", title_justify="left"
    )
    for name in ("check", "published", "ours", "holds"):
        checks.add_column(name)
    facts: screen.Facts = []
    for check in study.checks:
        name, published, ours, _, why = cells(check)
        verdict = "[green]yes[/]" if check.ok else "[bold red]no[/]"
        checks.add_row(escape(name), escape(published), escape(ours), verdict)
        if not check.ok:
            facts.append((check.name, escape(why)))
    grids = [small(grid) for grid in study.grids]
    facts += [("note", escape(note)) for note in study.notes]
    facts.append(("written to", out))
    return screen.shown([*grids, checks, screen.rows(facts)])


def small(grid: Grid) -> Table:
    made = Table(title=escape(grid.caption), title_justify="left")
    for name in grid.columns:
        made.add_column(escape(name))
    for row in grid.rows:
        made.add_row(*(escape(word(cell)) for cell in row))
    return made
