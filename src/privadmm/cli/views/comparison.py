"""What `privadmm compare` leaves: a table for people, a figure, and both as data."""

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.privacy.accounting import printed
from privadmm.runs.metrics import amount
from privadmm.runs.model import SIMULATED
from privadmm.runs.plots import BLUE, GREY, ORANGE, canvas


def shown(result: dict[str, Any], out: Path | None) -> str:
    """Best first; what could not be run is listed below the tables, with the reason."""
    facts: screen.Facts = []
    for one in result["tables"]:
        for line in one["lines"]:
            if line["problem"] is not None:
                what = f"{line['algorithm']}, {line['calibration']}, epsilon = {one['epsilon']:g}"
                facts.append((what, escape(f"not run: {line['problem']}")))
    facts.append(("mode", SIMULATED))
    if out is not None:
        facts.append(("written to", out))
    return screen.shown([*(table(result, one) for one in result["tables"]), screen.rows(facts)])


def table(result: dict[str, Any], one: dict[str, Any]) -> Table:
    budget = f"epsilon = {one['epsilon']:g}, delta = {result['delta']:g}"
    made = Table(title=f"Test accuracy at {budget}, {amount(result['seeds'], 'noise seed')}", title_justify="left")
    for heading in ("config", "noise", "accuracy", "s.e.", "claimed", "certified"):
        made.add_column(heading, justify="left" if heading in ("config", "noise") else "right", no_wrap=True)
    for line in one["lines"]:
        if line["problem"] is None:
            certified = line["epsilon_certified"]
            made.add_row(
                line["config"],
                "[bold red]NOT PRIVATE[/]" if line["calibration"] == "not private" else line["calibration"],
                screen.percent(line["accuracy"]),
                "" if line["standard_error"] is None else f"{100 * line['standard_error']:.2f}",
                number(line["epsilon_published"]),
                "[bold red]none[/]" if certified is None else printed(certified),
            )
    made.add_row("always the majority", "", screen.percent(result["majority"]), "", "", "")
    return made


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def save(result: dict[str, Any], out: Path) -> None:
    write_json(out / "comparison.json", result)
    for one in result["tables"]:
        name = "comparison" if len(result["tables"]) == 1 else f"comparison-{one['epsilon']:g}"
        draw(result, one, out / f"{name}.png")


def draw(result: dict[str, Any], one: dict[str, Any], path: Path) -> None:
    """A point for each line that was run, with its standard error, and the majority class as a dashed line."""
    lines = [line for line in one["lines"] if line["problem"] is None][::-1]
    drawing = canvas(height=1.6 + 0.34 * len(lines))
    axes = drawing.subplots()
    names = [f"{line['config']}, {line['calibration']}" for line in lines]
    values = [100 * line["accuracy"] for line in lines]
    errors = [100 * (line["standard_error"] or 0.0) for line in lines]
    colors = {"certified": BLUE, "not private": GREY}
    for at, (line, value, error) in enumerate(zip(lines, values, errors, strict=True)):
        color = colors.get(line["calibration"], ORANGE)
        axes.errorbar(value, at, xerr=error, fmt="o", color=color, markersize=5, capsize=3)
    axes.set_yticks(range(len(lines)), names)
    axes.grid(axis="y", color="0.93")
    most = 100 * result["majority"]
    axes.axvline(most, color="black", linestyle="--", linewidth=1, label=f"always the majority, {most:.1f} %")
    axes.set(xlabel="test accuracy (%)")
    axes.set_title(f"epsilon = {one['epsilon']:g}, delta = {result['delta']:g}", loc="right")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1))
    drawing.supxlabel(f"blue: certified; orange: the paper's own noise. {SIMULATED}", fontsize=9, color=GREY)
    drawing.savefig(path)
