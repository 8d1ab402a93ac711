"""A study's figures as files: a line is the mean over runs, its band their range, and crosses are the paper's."""

from pathlib import Path
from typing import Any

import numpy as np

from privadmm.model import SIMULATED
from privadmm.report.plots import BEYOND, GREY, canvas
from privadmm.reproduce.study import Figure, Line, Panel

COLORS = ("#2a6fbb", "#d9730d", "#2e8b57", "#8e44ad", "#c0392b", "#7f8c8d", "#b7950b", "#17a2b8")
WIDTH, HEIGHT = 5.2, 4.2


def draw(figure: Figure, path: Path) -> None:
    columns = min(3, len(figure.panels))
    rows = -(-len(figure.panels) // columns)
    drawing = canvas(height=HEIGHT * rows)
    drawing.set_size_inches(WIDTH * columns, HEIGHT * rows + 0.5)
    boxes = drawing.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(boxes, figure.panels, strict=False):
        fill(axes, panel)
    for axes in boxes[len(figure.panels) :]:
        axes.set_axis_off()
    drawing.suptitle(figure.caption, fontsize=11)
    drawing.supxlabel(f"Bands: the range over runs. {SIMULATED}", fontsize=8, color=GREY)
    drawing.savefig(path)


def fill(axes: Any, panel: Panel) -> None:
    for number, line in enumerate(panel.lines):
        one(axes, line, COLORS[number % len(COLORS)])
    axes.set(
        title=panel.title,
        xlabel=panel.xlabel,
        ylabel=panel.ylabel,
        xscale=panel.xscale,
        yscale=panel.yscale,
    )
    axes.title.set_fontsize(10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)


def one(axes: Any, line: Line, color: str) -> None:
    x, mean = np.asarray(line.x, dtype=float), np.asarray(line.y.mean, dtype=float)
    shown = np.isfinite(mean) & (np.abs(mean) < BEYOND)
    gone = "" if shown.all() else " (ran away)"
    if line.published:
        axes.plot(x[shown], mean[shown], "x", color=color, label=f"{line.label}, published")
        return
    style = "--" if line.dashed else "-"
    marker = "o" if len(x) < 12 else ""
    axes.plot(x[shown], mean[shown], style, marker=marker, markersize=4, color=color, label=line.label + gone)
    low, high = (
        np.clip(np.asarray(side, dtype=float), -BEYOND, BEYOND) for side in (line.y.low, line.y.high)
    )
    if (high > low).any():
        axes.fill_between(x, low, high, where=shown, color=color, alpha=0.15, linewidth=0)
