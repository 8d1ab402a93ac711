"""The two figures of a run: how it converged, and what each round cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from privadmm.report.metrics import Row


def figure(width: float = 7.2, height: float = 4.2) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height), dpi=120, layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing


def convergence(rows: Sequence[Row], title: str, path: Path, reference: float | None = None) -> None:
    """Objective and, for classifiers, accuracy by round; a dashed line where the non-private optimum is known."""
    drawing = figure(height=5.6)
    classifier = rows[0].accuracy_train is not None
    above, below = drawing.subplots(2, 1, sharex=True)
    rounds = [row.round for row in rows]
    above.plot(rounds, [row.objective for row in rows], color="tab:blue", label="objective")
    if reference is not None:
        above.axhline(reference, color="0.4", linestyle="--", linewidth=1, label="non-private optimum")
    above.set(ylabel="objective", title=title)
    above.legend(frameon=False)
    if classifier:
        below.plot(rounds, [100 * (row.accuracy_train or 0) for row in rows], color="tab:blue", label="train")
        if rows[0].accuracy_test is not None:
            below.plot(
                rounds, [100 * (row.accuracy_test or 0) for row in rows], color="tab:orange", label="test"
            )
        below.set(ylabel="accuracy (%)", xlabel="round")
        below.legend(frameon=False)
    else:
        below.semilogy(rounds, [max(row.gap, 1e-16) for row in rows], color="tab:blue")
        below.set(ylabel="consensus gap", xlabel="round")
    for axes in (above, below):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    drawing.savefig(path)


def spending(
    epsilons: Sequence[float], delta: float | None, published: float | None, title: str, path: Path
) -> None:
    """Epsilon of the transcript so far, by round. Without a guarantee the figure says so."""
    drawing = figure()
    axes = drawing.subplots()
    if epsilons:
        axes.plot(range(1, len(epsilons) + 1), epsilons, color="tab:red", label="certified")
        if published is not None:
            axes.axhline(
                published, color="0.4", linestyle=":", label=f"published claim at the end: {published:.3g}"
            )
        axes.set(xlabel="round", ylabel=f"epsilon spent (delta = {delta:g})", ylim=(0, None))
        axes.annotate(f"{epsilons[-1]:.4g}", (len(epsilons), epsilons[-1]), ha="right", va="bottom")
        axes.legend(frameon=False, loc="lower right")
        axes.grid(alpha=0.25)
    else:
        axes.text(0.5, 0.5, "NOT PRIVATE\nno epsilon covers this run", ha="center", va="center", fontsize=18)
        axes.set_axis_off()
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    drawing.savefig(path)
