"""Writes a study: a JSON file, its figures, and a page for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privadmm.data.files import write_json
from privadmm.papers.framework.study import VERDICTS, Check, Study

WHOLE = 1e9  # whole numbers below this are written with all digits
SETTINGS = ("setting", "value", "from", "reason")
BY = {"paper": "the paper", "ours": "us"}


def save(study: Study, out: Path, quick: bool = False) -> None:
    """Write study.json, results.md and a file for each figure into `out`."""
    from privadmm.papers.framework.drawing import draw

    out.mkdir(parents=True, exist_ok=True)
    for figure in study.figures:
        draw(figure, out / figure.name, quick)
    (out / "results.md").write_text(page(study, quick), encoding="utf-8")
    write_json(out / "study.json", study.record | {"quick": quick})


def kind(quick: bool) -> str:
    return "a quick run, with fewer seeds, rounds and settings than the results to cite" if quick else "a full run"


def page(study: Study, quick: bool = False) -> str:
    """Write the settings, every check and every table in Markdown."""
    headings = ("check", "claimed by", "published", "ours", "verdict", "remark")
    parts = [f"# {study.title} ({study.paper}): {kind(quick)}", f"{study.tally}."]
    parts += ["### Settings", table(SETTINGS, [parameter.cells for parameter in study.parameters])]
    parts += ["### Checks", table(headings, [cells(check) for check in study.checks])]
    for grid in study.grids:
        parts += [f"### {grid.caption}", table(grid.columns, [tuple(map(word, row)) for row in grid.rows])]
    for figure in study.figures:
        parts += [f"### {figure.caption}", f"![{figure.caption}]({figure.name}.png)"]
    parts += [f"- {note}" for note in study.notes]
    return "\n\n".join(parts) + "\n"


def cells(check: Check) -> tuple[str, ...]:
    """A check's row of the table, without Markdown's bars."""
    within = "" if check.tolerance is None else f" +- {check.tolerance:g}"
    verdict = f"**{VERDICTS[False]}**" if check.ok is False else VERDICTS[check.ok]
    return check.name, BY[check.of], word(check.published) + within, word(check.ours), verdict, check.why


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)


def word(value: Any) -> str:
    """A cell as text."""
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) < WHOLE else f"{value:.4g}"
