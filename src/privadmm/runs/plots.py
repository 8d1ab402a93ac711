"""Draw the two figures of a run: how it converged, and what each round cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from privadmm.privacy.accounting import Claim, printed
from privadmm.runs.metrics import Row, amount
from privadmm.runs.model import SIMULATED

BLUE, ORANGE, RED, GREEN, GREY = "#2a6fbb", "#d9730d", "#c0392b", "#2e8b57", "0.45"
BEYOND = 1e100  # from which on a model has run away, and an axis has no ticks


def convergence(
    rows: Sequence[Row], result: Mapping[str, Any], path: Path, reference: Mapping[str, Any] | None = None
) -> None:
    """Draw objective and accuracy by round, or the consensus gap where nothing is classified.

    Dashed lines show the non-private model, where `reference` is its result, and the majority class.
    """
    drawing = figure(result, height=5.8)
    above, below = drawing.subplots(2, 1, sharex=True)
    values = [(row.round, row.objective) for row in rows if abs(row.objective) < BEYOND]
    words = "objective" if len(rows) > 1 or result["rounds"] == 1 else "a model is there after the last round only"
    line(above, values, BLUE, words if values else "the model ran away: no objective is finite")
    if reference is not None and reference["objective"] is not None:
        level(above, reference["objective"], "non-private model", "--")
    heights = [value for _, value in values]
    above.set(ylabel="objective", yscale="log" if heights and max(heights) > 100 * min(heights) > 0 else "linear")
    if result["accuracy_train"] is not None:
        shares = [(row.round, 100 * row.accuracy_train) for row in rows if row.accuracy_train is not None]
        line(below, shares, BLUE, f"train, {shares[-1][1]:.1f} % at the end")
        shares = [(row.round, 100 * row.accuracy_test) for row in rows if row.accuracy_test is not None]
        if shares:
            line(below, shares, ORANGE, f"test, {shares[-1][1]:.1f} % at the end")
        if reference is not None and reference["accuracy_test"] is not None:
            best = 100 * reference["accuracy_test"]
            level(below, best, f"non-private model, test, {best:.1f} %", "--")
        most = 100 * (result["majority_test"] or result["majority_train"])
        level(below, most, f"always the majority, {most:.1f} %", ":")
        below.set(ylabel="accuracy (%)")
    else:
        gaps = [(row.round, row.gap) for row in rows if row.gap is not None and 0 < row.gap < BEYOND]
        line(below, gaps, BLUE, "largest over the parties")
        below.set(ylabel="consensus gap", yscale="log" if gaps else "linear")
    finish(drawing, below, path, result["rounds"])


def spending(epsilons: Sequence[float], result: Mapping[str, Any], claim: Claim | None, path: Path) -> None:
    """Draw epsilon of the transcript so far, by round. Without a guarantee the figure says so."""
    drawing = figure(result, height=4.4)
    axes = drawing.subplots()
    if not epsilons:
        words = "NOT PRIVATE\nno epsilon covers this run"
        axes.text(0.5, 0.5, words, ha="center", va="center", fontsize=18, color=RED, transform=axes.transAxes)
        axes.set_axis_off()
        drawing.savefig(path)
        return
    marker = "o" if len(epsilons) < 3 else ""
    label = f"certified, {printed(epsilons[-1])} at the end"
    axes.plot(range(len(epsilons) + 1), [0.0, *epsilons], color=RED, label=label, marker=marker)
    if claim is not None and claim.epsilon is not None:
        # A published figure never stands without its caveat.
        label = fill(f"published, {claim.epsilon:.4g} at the end ({claim.caveat})", 52)
        axes.plot([len(epsilons)], [claim.epsilon], "x", color=GREY, label=label, clip_on=False)
    axes.set(ylabel=f"epsilon spent by each party (delta = {result['delta']:g})", ylim=(0, None))
    finish(drawing, axes, path, len(epsilons))


def side_by_side(lines: Mapping[str, tuple[Sequence[Row], Mapping[str, Any]]], title: str, path: Path) -> None:
    """Draw the test accuracy of several runs on the same records by round; by name, their metrics and results."""
    drawing = canvas(height=4.8)
    axes, most = drawing.subplots(), 0.0
    for (name, (rows, result)), color in zip(lines.items(), (GREY, GREEN, ORANGE), strict=True):
        shares = [(row.round, 100 * row.accuracy_test) for row in rows if row.accuracy_test is not None]
        promise = f"epsilon = {printed(result['epsilon'])}" if result["private"] else "NOT PRIVATE"
        line(axes, shares, color, f"{name}, {promise}: {shares[-1][1]:.1f} % at the end")
        most = 100 * result["majority_test"]
    axes.axhline(most, color=GREY, linestyle=":", linewidth=1, label=f"always the majority, {most:.1f} %")
    axes.set(ylabel="test accuracy (%)")
    drawing.suptitle(title)
    drawing.supxlabel(SIMULATED, fontsize=9, color=GREY)
    finish(drawing, axes, path, max(result["rounds"] for _, result in lines.values()))


def figure(result: Mapping[str, Any], height: float) -> Any:
    """Make an empty figure under a heading that names the method and its guarantee."""
    drawing = canvas(height)
    what = f"{result['algorithm']}, {amount(result['parties'], 'party')}, {amount(result['rounds'], 'round')}"
    promise, color = "NOT PRIVATE", RED
    if result["private"]:
        promise, color = f"epsilon = {printed(result['epsilon'])}, delta = {result['delta']:g}", "black"
    drawing.suptitle(f"{what}, {promise}", color=color)
    if result["mode"] == "simulation":
        drawing.supxlabel(SIMULATED, fontsize=9, color=GREY)
    return drawing


def canvas(height: float) -> Any:
    """Make an empty figure that needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    margins = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    drawing = Figure(figsize=(7.2, height), dpi=120, layout=margins)
    FigureCanvasAgg(drawing)
    return drawing


def line(axes: Any, points: Sequence[tuple[int, float]], color: str, label: str) -> None:
    rounds, values = [point[0] for point in points], [point[1] for point in points]
    # A line through a single round would not be seen.
    axes.plot(rounds, values, color=color, label=label, marker="o" if len(points) < 3 else "")


def level(axes: Any, value: float, label: str, style: str) -> None:
    axes.axhline(value, color=GREY, linestyle=style, linewidth=1, label=label)


def finish(drawing: Any, lowest: Any, path: Path, rounds: int) -> None:
    from matplotlib.ticker import MaxNLocator

    lowest.set(xlabel="round", xlim=(0, 1.03 * rounds))
    lowest.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    for axes in drawing.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    drawing.savefig(path)
