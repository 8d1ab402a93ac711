"""What `privadmm compare` prints and writes: tables for people, a figure for each, and all of it as data."""

from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.privacy.accounting import printed
from privadmm.runs.metrics import amount
from privadmm.runs.model import SIMULATED
from privadmm.runs.plots import BLUE, GREY, ORANGE, canvas

COLUMNS = ("config", "noise", "accuracy", "s.e.", "claimed", "certified")


def shown(result: dict[str, Any], out: Path | None) -> str:
    """Best first; what could not be run is listed below the tables, with the reason."""
    facts: screen.Facts = []
    tables = []
    for ranking in result["tables"]:
        budget = f"epsilon = {ranking['epsilon']:g}, delta = {result['delta']:g}"
        title = f"Test accuracy at {budget}, {amount(result['seeds'], 'noise seed')}"
        rows = [cells(line) for line in ranking["lines"] if line["problem"] is None]
        rows.append(("always the majority", "", screen.percent(result["majority"]), "", "", ""))
        tables.append(screen.table(title, COLUMNS, rows, left=COLUMNS[:2], no_wrap=True))
        for line in ranking["lines"]:
            if line["problem"] is not None:
                what = f"{line['algorithm']}, {line['calibration']}, epsilon = {ranking['epsilon']:g}"
                facts.append((what, screen.escape(f"not run: {line['problem']}")))
    return screen.shown(*tables, screen.rows([*facts, ("mode", SIMULATED)], out))


def cells(line: dict[str, Any]) -> tuple[str, ...]:
    return (
        line["config"],
        "[bold red]NOT PRIVATE[/]" if line["calibration"] == "not private" else line["calibration"],
        screen.percent(line["accuracy"]),
        "" if line["standard_error"] is None else f"{100 * line['standard_error']:.2f}",
        screen.number(line["epsilon_published"]),
        "[bold red]none[/]" if line["epsilon_certified"] is None else printed(line["epsilon_certified"]),
    )


def save(result: dict[str, Any], out: Path) -> None:
    write_json(out / "comparison.json", result)
    for ranking in result["tables"]:
        name = "comparison" if len(result["tables"]) == 1 else f"comparison-{ranking['epsilon']:g}"
        draw(result, ranking, out / f"{name}.png")


def draw(result: dict[str, Any], ranking: dict[str, Any], path: Path) -> None:
    """A point for each line that was run, with its standard error, and the majority class as a dashed line."""
    lines = [line for line in ranking["lines"] if line["problem"] is None][::-1]
    drawing = canvas(height=1.6 + 0.34 * len(lines))
    axes = drawing.subplots()
    colors = {"certified": BLUE, "not private": GREY}
    for at, line in enumerate(lines):
        value, error = 100 * line["accuracy"], 100 * (line["standard_error"] or 0.0)
        color = colors.get(line["calibration"], ORANGE)
        axes.errorbar(value, at, xerr=error, fmt="o", color=color, markersize=5, capsize=3)
    axes.set_yticks(range(len(lines)), [f"{line['config']}, {line['calibration']}" for line in lines])
    axes.grid(axis="y", color="0.93")
    most = 100 * result["majority"]
    axes.axvline(most, color="black", linestyle="--", linewidth=1, label=f"always the majority, {most:.1f} %")
    axes.set(xlabel="test accuracy (%)")
    axes.set_title(f"epsilon = {ranking['epsilon']:g}, delta = {result['delta']:g}", loc="right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1))
    drawing.supxlabel(f"blue: certified; orange: the paper's own noise. {SIMULATED}", fontsize=9, color=GREY)
    drawing.savefig(path)
