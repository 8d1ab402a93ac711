"""Draws a study's figures: lines are means over runs, bands or whiskers their range, crosses the paper's figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.papers.framework.study import Figure, Line, Panel
from privadmm.runs.palette import LIGHT, Theme
from privadmm.runs.plots import BEYOND
from privadmm.runs.style import SMALL, band, finish, picture, symbols

WIDTH, HEIGHT = 5.2, 3.7  # inches of a panel
ROW = 0.19  # inches of a row of a legend
FEW = 12  # a line of fewer points has markers, and whiskers instead of a band
NARROW = 3.0  # largest over least value, below which an axis stays linear
COUNTED = ("round", "epoch", "iteration")  # x axes with whole numbers only
MARKERS = "osD^vPX"
LONG = 74  # letters of a legend's row that fit below a panel
SPREAD = "Bands and whiskers: the range over runs; whiskers at one x stand side by side"


def draw(figure: Figure, place: Path, quick: bool = False, theme: Theme = LIGHT) -> None:
    """Write PLACE.svg and PLACE.png; the picture of a quick run says so."""
    across = columns(figure)
    rows = -(-len(figure.panels) // across)
    most = max(0 if single(panel) else len(panel.lines) for panel in figure.panels)
    words = SPREAD if any(banded(line) for panel in figure.panels for line in panel.lines) else ""
    size = WIDTH * across, (HEIGHT + ROW * most) * rows
    with picture(place, *size, title=figure.caption, words=words, quick=quick, theme=theme) as (drawing, _):
        boxes = drawing.subplots(rows, across, squeeze=False).ravel()
        for axes, panel in zip(boxes, figure.panels, strict=False):
            fill(axes, panel, colored(figure, panel, theme), marked(figure, panel))
        for axes in boxes[len(figure.panels) :]:
            axes.set_axis_off()


def columns(figure: Figure) -> int:
    """How many panels stand side by side."""
    return 2 if len(figure.panels) == 4 else min(3, len(figure.panels))


def colored(figure: Figure, panel: Panel, theme: Theme = LIGHT) -> dict[str, str]:
    """The colour of every line of a panel, by label: from its meaning, its level, or its series."""
    named = [line for other in figure.panels for line in other.lines if line.meaning is None and line.level is None]
    series = list(dict.fromkeys(line.series or line.label for line in named))
    levels = sorted({line.level for line in panel.lines if line.level is not None and line.meaning is None})
    scale = dict(zip(levels, theme.scale(len(levels)), strict=True))
    colors = {}
    for line in panel.lines:
        if line.meaning is not None:
            colors[line.label] = theme.of(line.meaning)
        elif line.level is not None:
            colors[line.label] = scale[line.level]
        else:
            colors[line.label] = theme.series(series.index(line.series or line.label))
    return colors


def marked(figure: Figure, panel: Panel) -> dict[str, str]:
    """The marker of every line of a panel, by label: the same in all panels, if `name_of` tells all lines apart."""
    panels = [[name_of(line) for line in each.lines] for each in figure.panels]
    names = list(dict.fromkeys(name for each in panels for name in each))
    if len(names) > len(MARKERS) or any(len(set(each)) < len(each) for each in panels):
        return {line.label: MARKERS[number % len(MARKERS)] for number, line in enumerate(panel.lines)}
    return {line.label: MARKERS[names.index(name_of(line))] for line in panel.lines}


def name_of(line: Line) -> str:
    """The part of a line's label that all panels share: the text before a semicolon."""
    return line.label.partition(";")[0]


def single(panel: Panel) -> bool:
    """Whether all lines are single points: then they are drawn as rows, each with its range."""
    return bool(panel.lines) and all(len(line.x) == 1 for line in panel.lines)


def fill(axes: Any, panel: Panel, colors: Mapping[str, str], markers: Mapping[str, str]) -> None:
    if single(panel):
        dots(axes, panel, colors)
        return
    from matplotlib.ticker import MaxNLocator

    yscale = panel.yscale if wide(panel) else "linear"
    axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel, xscale=panel.xscale, yscale=yscale)
    ranges = [number for number, line in enumerate(panel.lines) if banded(line)]
    beside = step(panel) / max(len(ranges), 10) / 1.6
    for number, line in enumerate(panel.lines):
        apart = beside * (ranges.index(number) - (len(ranges) - 1) / 2) if number in ranges else 0.0
        plot(axes, line, colors[line.label], markers[line.label], len(ranges), apart)
    if panel.xscale == "linear" and panel.xlabel.startswith(COUNTED):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    at = sorted({float(x) for line in panel.lines for x in line.x if len(line.x) < FEW})
    finish(axes, x=at if all(x == float(f"{x:.2g}") for x in at) else (), legend=False)
    legend(axes)


def legend(axes: Any) -> None:
    """Put the legend below the axes, where it hides nothing."""
    from matplotlib.transforms import ScaledTranslation

    handles, labels = axes.get_legend_handles_labels()
    if handles:
        below = axes.transAxes + ScaledTranslation(0, -0.44, axes.figure.dpi_scale_trans)
        texts = [shortened(symbols(label)) for label in labels]
        place = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": below, "borderaxespad": 0}
        axes.legend(handles, texts, **place, labelspacing=0.25)


def shortened(label: str) -> str:
    return label if len(label) <= LONG else f"{label[: LONG - 1]}…"


def dots(axes: Any, panel: Panel, colors: Mapping[str, str]) -> None:
    """Draw a row for each line of a single point: its value and range. The x of the panel goes into the axis label."""
    rows = panel.lines[::-1]
    for at, line in enumerate(rows):
        value, color = float(line.mean[0]), colors[line.label]
        if not np.isfinite(value) or abs(value) >= BEYOND:
            axes.annotate("ran away", (0.02, at), xycoords=("axes fraction", "data"), va="center", fontsize=SMALL)
            continue
        spread = [[max(value - float(line.low[0]), 0.0)], [max(float(line.high[0]) - value, 0.0)]]
        axes.errorbar([value], [at], xerr=spread, fmt="x" if line.published else "o", color=color, linewidth=1.4)
    axes.set_yticks(range(len(rows)), [shortened(symbols(line.label)) for line in rows])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    (x,) = {float(line.x[0]) for line in rows} if len({line.x[0] for line in rows}) == 1 else (None,)
    where = "" if x is None else f" ({panel.xlabel} = {x:g})"
    axes.set(title=panel.title, xlabel=f"{panel.ylabel}{where}", xscale=panel.yscale if wide(panel) else "linear")
    finish(axes, legend=False)


def wide(panel: Panel) -> bool:
    """Whether the values span enough for a logarithmic axis."""
    means = np.concatenate([[], *(line.mean for line in panel.lines)])
    drawn = means[np.isfinite(means) & (means < BEYOND) & (means > 0)]
    return bool(drawn.size and drawn.max() >= NARROW * drawn.min())


def banded(line: Line) -> bool:
    return not line.published and bool((line.high > line.low).any())


def plot(axes: Any, line: Line, color: str, marker: str = "o", among: int = 1, apart: float = 0.0) -> None:
    """Draw one line. `among` ranges share the axes; the whiskers of this one stand `apart` from its x."""
    x, mean = np.asarray(line.x, dtype=float), line.mean
    shown = np.isfinite(mean) & (np.abs(mean) < BEYOND)
    if line.published:
        axes.plot(x[shown], mean[shown], "x", color=color, label=f"{line.label}, published")
        return
    style = {"linestyle": "--" if line.dashed else "-", "color": color, "alpha": line.shade}
    label = line.label if shown.all() else f"{line.label} (ran away)"
    low, high = np.clip([line.low, line.high], -BEYOND, BEYOND)
    few = len(x) < FEW
    moved = np.exp(np.log(x) + apart) if axes.get_xscale() == "log" else x + apart
    place = moved if few and banded(line) and len(x) > 1 else x
    axes.plot(place[shown], mean[shown], marker=marker if few else "", label=label, **style)
    if banded(line) and few:
        ends = np.maximum([mean - low, high - mean], 0.0)[:, shown]
        axes.errorbar(place[shown], mean[shown], yerr=ends, fmt="none", color=color, alpha=0.6 * line.shade, lw=1)
    elif banded(line):
        band(axes, x[shown], low[shown], high[shown], color, among)


def step(panel: Panel) -> float:
    """The least distance between two x of a line; between their logarithms, if the axis is logarithmic."""
    gaps = []
    for line in panel.lines:
        x = np.unique(np.asarray(line.x, dtype=float))
        if len(x) > 1:
            gaps.append(float(np.diff(np.log(x) if panel.xscale == "log" else x).min()))
    return min(gaps, default=0.0)
