"""A study's figures as files: a line is the mean over runs, its band their range, and crosses are the paper's."""

from pathlib import Path
from typing import Any

import numpy as np

from privadmm.papers.framework.study import Figure, Line, Panel
from privadmm.runs.model import SIMULATED
from privadmm.runs.plots import BEYOND, GREY, RED, canvas

COLORS: tuple[str, ...] = ("#2a6fbb", "#d9730d", "#2e8b57", "#8e44ad", "#c0392b", "#7f8c8d")
COLORS += ("#b7950b", "#17a2b8", "#e377c2", "#5d4037", "#7cb342", "#1a237e")
WIDTH, HEIGHT = 5.2, 4.2
MANY, LONG = 4, 45  # lines, and characters of a label, beyond which legends go below the axes
QUICK = "QUICK RUN: fewer seeds, rounds and settings than a full one"
NARROW = 3.0  # the largest over the least value, below which a logarithmic axis shows nothing
COUNTED = ("round", "epoch", "iteration")  # x axes that have whole numbers alone


def draw(figure: Figure, path: Path, quick: bool = False) -> None:
    """Draw the figure; the picture of a quick run says so."""
    lines = [line for panel in figure.panels for line in panel.lines]
    columns = 2 if len(figure.panels) == 4 else min(3, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    most = max(len(panel.lines) for panel in figure.panels)
    below = most > MANY or any(len(line.label) > LONG for line in lines)
    height = HEIGHT + (0.18 * most if below else 0.0)
    drawing = canvas(height=height * rows)
    drawing.set_size_inches(WIDTH * columns, height * rows + 0.5)
    boxes, colors = drawing.subplots(rows, columns, squeeze=False).ravel(), colored(figure)
    for axes, panel in zip(boxes, figure.panels, strict=False):
        fill(axes, panel, colors, below)
    for axes in boxes[len(figure.panels) :]:
        axes.set_axis_off()
    title = f"{QUICK}\n{figure.caption}" if quick else figure.caption
    drawing.suptitle(title, fontsize=11, color=RED if quick else None)
    if any(banded(line) for line in lines):
        drawing.supxlabel(f"Bands: the range over runs. {SIMULATED}", fontsize=8, color=GREY)
    drawing.savefig(path)


def colored(figure: Figure) -> dict[str, str]:
    """Give every series a colour, in the order in which they come; the same in all panels."""
    names = dict.fromkeys(line.series or line.label for panel in figure.panels for line in panel.lines)
    return {name: COLORS[number % len(COLORS)] for number, name in enumerate(names)}


def fill(axes: Any, panel: Panel, colors: dict[str, str], below: bool = False) -> None:
    from matplotlib.ticker import MaxNLocator

    for line in panel.lines:
        plot(axes, line, colors[line.series or line.label])
    yscale = panel.yscale if wide(panel) else "linear"
    axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel, xscale=panel.xscale, yscale=yscale)
    if panel.xscale == "linear" and panel.xlabel.startswith(COUNTED):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.title.set_fontsize(10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.lines and below:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False, fontsize=8)
    elif panel.lines:
        axes.legend(loc="best", framealpha=0.6, fontsize=8)


def wide(panel: Panel) -> bool:
    """Tell whether what is drawn spans enough for a logarithmic axis."""
    means = np.concatenate([[], *(line.mean for line in panel.lines)])
    drawn = means[np.isfinite(means) & (means < BEYOND) & (means > 0)]
    return bool(drawn.size and drawn.max() >= NARROW * drawn.min())


def banded(line: Line) -> bool:
    return not line.published and bool((line.high > line.low).any())


def plot(axes: Any, line: Line, color: str) -> None:
    x, mean = np.asarray(line.x, dtype=float), line.mean
    shown = np.isfinite(mean) & (np.abs(mean) < BEYOND)
    if line.published:
        axes.plot(x[shown], mean[shown], "x", color=color, label=f"{line.label}, published")
        return
    style, marker = "--" if line.dashed else "-", "o" if len(x) < 12 else ""
    label = line.label if shown.all() else f"{line.label} (ran away)"
    axes.plot(x[shown], mean[shown], style, marker=marker, markersize=4, color=color, label=label)
    if banded(line):
        low, high = np.clip([line.low, line.high], -BEYOND, BEYOND)
        axes.fill_between(x, low, high, where=shown, color=color, alpha=0.15, linewidth=0)
