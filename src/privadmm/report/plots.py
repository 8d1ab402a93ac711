"""The two figures of a run: how it converged, and what each round cost. Both say what the run was."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from privadmm.model import SIMULATED
from privadmm.privacy.accounting import Claim
from privadmm.report.metrics import Row

BLUE, ORANGE, RED, GREY = "#2a6fbb", "#d9730d", "#c0392b", "0.45"


def convergence(
    rows: Sequence[Row], result: Mapping[str, Any], path: Path, reference: Mapping[str, Any] | None = None
) -> None:
    """Objective and accuracy by round, or the consensus gap where nothing is classified.

    Dashed lines: the non-private model, where `reference` is its result, and the majority class.
    """
    drawing = figure(result, height=5.8)
    above, below = drawing.subplots(2, 1, sharex=True)
    line(above, rows, [row.objective for row in rows], BLUE, "objective")
    if reference is not None:
        level(above, reference["objective"], "non-private model", "--")
    if max(row.objective for row in rows) > 100 * min(row.objective for row in rows) > 0:
        above.set_yscale("log")
    above.set(ylabel="objective")
    if rows[0].accuracy_train is not None:
        share = [100 * (row.accuracy_train or 0.0) for row in rows]
        line(below, rows, share, BLUE, f"train, {share[-1]:.1f} % at the end")
        if rows[0].accuracy_test is not None:
            share = [100 * (row.accuracy_test or 0.0) for row in rows]
            line(below, rows, share, ORANGE, f"test, {share[-1]:.1f} % at the end")
        if reference is not None and reference["accuracy_test"] is not None:
            best = 100 * reference["accuracy_test"]
            level(below, best, f"non-private model, test, {best:.1f} %", "--")
        most = result["majority_test"] or result["majority_train"]
        level(below, 100 * most, f"always the majority, {100 * most:.1f} %", ":")
        below.set(ylabel="accuracy (%)")
    else:
        known = [row for row in rows if row.gap is not None]
        line(below, known, [max(row.gap or 0.0, 1e-16) for row in known], BLUE, "largest over the parties")
        below.set(ylabel="consensus gap", yscale="log")
    finish(drawing, below, path)


def spending(epsilons: Sequence[float], result: Mapping[str, Any], claim: Claim | None, path: Path) -> None:
    """Epsilon of the transcript so far, by round. Without a guarantee the figure says so."""
    drawing = figure(result, height=4.4)
    axes = drawing.subplots()
    if not epsilons:
        words = "NOT PRIVATE\nno epsilon covers this run"
        axes.text(0.5, 0.5, words, ha="center", va="center", fontsize=18, color=RED, transform=axes.transAxes)
        axes.set_axis_off()
        drawing.savefig(path)
        return
    label = f"certified, {epsilons[-1]:.4g} at the end"
    axes.plot(
        range(len(epsilons) + 1),
        [0.0, *epsilons],
        color=RED,
        label=label,
        marker="o" if len(epsilons) < 3 else "",
    )
    if claim is not None and claim.epsilon is not None:
        # A published figure never stands without its caveat.
        said = fill(f"published, {claim.epsilon:.4g} at the end ({claim.caveat})", 52)
        axes.plot([len(epsilons)], [claim.epsilon], "x", color=GREY, label=said, clip_on=False)
    axes.set(ylabel=f"epsilon spent by each party (delta = {result['delta']:g})", ylim=(0, None))
    finish(drawing, axes, path)


def figure(result: Mapping[str, Any], height: float) -> Any:
    """An empty figure under a heading that says what is promised, and what is not."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    margins = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08)
    drawing = Figure(figsize=(7.2, height), dpi=120, layout=margins)
    FigureCanvasAgg(drawing)
    what = f"{result['algorithm']}, {result['parties']} parties, {result['rounds']} rounds"
    promise = (
        f"epsilon = {result['epsilon']:.4g}, delta = {result['delta']:g}"
        if result["private"]
        else "NOT PRIVATE"
    )
    drawing.suptitle(f"{what}, {promise}", color="black" if result["private"] else RED)
    if result["mode"] == "simulation":
        drawing.supxlabel(SIMULATED, fontsize=9, color=GREY)
    return drawing


def line(axes: Any, rows: Sequence[Row], values: Sequence[float], color: str, label: str) -> None:
    # A line through a single round would not be seen.
    axes.plot(
        [row.round for row in rows], values, color=color, label=label, marker="o" if len(rows) < 3 else ""
    )


def level(axes: Any, value: float, label: str, style: str) -> None:
    axes.axhline(value, color=GREY, linestyle=style, linewidth=1, label=label)


def finish(drawing: Any, lowest: Any, path: Path) -> None:
    from matplotlib.ticker import MaxNLocator

    lowest.set(xlabel="round")
    lowest.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    for axes in drawing.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    drawing.savefig(path)
