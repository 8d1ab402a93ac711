"""What `privadmm recommend` and `frontier` leave: text for people, a figure, and the figures as data."""

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.runs.metrics import amount
from privadmm.runs.plots import BLUE, GREY, ORANGE, RED, canvas
from privadmm.runs.recommend import THIN, TOO_SMALL, Expected

COLOURS = {"good": "green", "thin": "yellow", "too small": "bold red"}
HONEST = "an estimate for two classes from public facts; what the data hold decides, and it is not an accuracy"


def recommendation(r: dict[str, Any]) -> str:
    width = "" if r["dim"] is None else f", {r['dim']} features"
    bins = "ten" if r["encoding"] == "binned" else "five"
    facts: screen.Facts = [
        ("facts", f"{r['records']} records to train on, {amount(r['parties'], 'party')}"),
        ("budget", f"epsilon = {r['epsilon']:g}, delta = {r['delta']:g}, for each party"),
        ("method", f"{r['method']}, {r['rounds']} rounds: one of moments, {r['rounds'] - 1} of gradients"),
        ("loss", r["loss"]),
        ("encoding", f"{r['encoding']}: numbers one-hot in {bins} bins, rows of norm 1{width}"),
    ]
    if r["warning"] is not None:
        facts.append(("warning", f"[bold red]{escape(r['warning'])}[/]"))
    else:
        found = Expected(r["expected"]["noise_to_signal"])
        facts.append(("verdict", f"[{COLOURS[found.verdict]}]{found.verdict}[/]: {found.meaning}"))
    facts.append(("mind", HONEST))
    made = Table(title="Noise, in times the signal of a middling data set", title_justify="left")
    for heading in ("method", "noise", "verdict"):
        made.add_column(heading, justify="right" if heading == "noise" else "left")
    for one in r["methods"]:
        colour = COLOURS[one["verdict"]]
        made.add_row(one["method"], f"{one['noise_to_signal']:.2g}", f"[{colour}]{one['verdict']}[/]")
    return screen.shown([screen.rows(facts), made])


def frontier(r: dict[str, Any], out: Path | None) -> str:
    made = Table(
        title=f"{r['records']} records at {amount(r['parties'], 'party')}, delta = {r['delta']:g}",
        title_justify="left",
    )
    for heading in ("epsilon", "noise / signal", "verdict", "encoding"):
        made.add_column(heading, justify="right" if heading in ("epsilon", "noise / signal") else "left")
    for line in r["lines"]:
        colour = COLOURS[line["verdict"]]
        made.add_row(
            f"{line['epsilon']:g}",
            f"{line['noise_to_signal']:.2g}",
            f"[{colour}]{line['verdict']}[/]",
            line["encoding"],
        )
    least = r["least_epsilon"]
    facts: screen.Facts = [
        ("not too small", f"from epsilon = {least['not too small']:.2g} on"),
        ("good", f"from epsilon = {least['good']:.2g} on"),
        ("mind", HONEST),
    ]
    if out is not None:
        facts.append(("written to", out))
    return screen.shown([made, screen.rows(facts)])


def save(result: dict[str, Any], out: Path) -> None:
    write_json(out / "frontier.json", result)
    draw(result, out / "frontier.png")


def draw(r: dict[str, Any], path: Path) -> None:
    """Noise over signal by epsilon, both on logarithmic axes, with the two lines that divide the verdicts."""
    drawing = canvas(height=4.4)
    axes = drawing.subplots()
    points = [(line["epsilon"], line["noise_to_signal"]) for line in r["lines"]]
    axes.plot(*zip(*points, strict=True), color=BLUE, marker="o", label="recommended method")
    axes.axhline(TOO_SMALL, color=RED, linestyle="--", linewidth=1, label="above: too small")
    axes.axhline(THIN, color=ORANGE, linestyle="--", linewidth=1, label="below: good")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel=f"epsilon of each party (delta = {r['delta']:g})",
        ylabel="noise / signal",
        title=f"{r['records']} records at {amount(r['parties'], 'party')}",
    )
    axes.set_xticks([point[0] for point in points], [f"{point[0]:g}" for point in points])
    axes.xaxis.minorticks_off()
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    drawing.supxlabel(HONEST, fontsize=9, color=GREY)
    drawing.savefig(path)
