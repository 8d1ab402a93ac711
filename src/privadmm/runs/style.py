"""One look for all figures of matplotlib: fonts, ticks that read, bands, stamps and captions; SVG and PNG.

    with picture(out / "frontier", title="...", mode="simulation") as (figure, theme):
        axes = figure.subplots()
        axes.plot(x, y, color=theme.secure_sum, label="secure sums")
        finish(axes)

writes frontier.svg and frontier.png. matplotlib is loaded when a figure is drawn, and not before.
"""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

from privadmm.data.files import write_bytes
from privadmm.runs.model import SIMULATED
from privadmm.runs.palette import DARK, LIGHT, Theme

Mode = Literal["simulation", "deployment"] | None  # None: nothing was run, or both were
Kind = Literal["svg", "png"]
WIDTH, HEIGHT, DPI = 7.2, 4.2, 144  # inches
TEXT, SMALL, HEADING = 9.5, 8.5, 11.5  # points
QUICK = "QUICK RUN: fewer seeds, rounds and settings"
DEPLOYED = "deployment: noise of the operating system"
SYMBOLS = {
    **{"epsilon": "ε", "delta": "δ", "alpha": "α", "beta": "β", "gamma": "γ", "eta": "η", "rho": "ρ"},
    **{"lambda": "λ", "mu": "μ", "sigma": "σ", "l1": "L1", "l2": "L2"},
}
WORD = re.compile(rf"\b({'|'.join(SYMBOLS)})\b")
POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)e([-+]\d+)\b")
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
APART = 0.055  # of an axis between two ticks
LINE = 0.17  # inches of a line of small text
LETTER = 0.065  # inches of a letter of small text, roughly
BOLD = 1.47  # times that: a letter of a title


def symbols(text: str) -> str:
    """The text with Greek letters in place of their names, and powers of ten as such: ε = 1, δ = 10⁻⁶."""
    return POWER.sub(power, WORD.sub(lambda found: SYMBOLS[found[0]], text))


def power(found: re.Match[str]) -> str:
    if 0 <= int(found[2]) < 6:
        return plain(float(found[0]))
    factor = "" if found[1] == "1" else f"{found[1]}·"
    return f"{factor}10{str(int(found[2])).translate(RAISED)}"


def caption(mode: Mode, words: str = "") -> str:
    """What stands below a figure: its own words, then whether noise was simulated."""
    told = {"simulation": SIMULATED, "deployment": DEPLOYED, None: ""}[mode]
    first = words.rstrip()
    stop = "" if not first or first.endswith((".", ":", "?")) else "."
    return " ".join(part for part in (f"{first}{stop}", told[:1].upper() + told[1:]) if part)


@contextmanager
def look(theme: Theme = LIGHT) -> Iterator[None]:
    """Draw in this look: what matplotlib makes inside has these fonts, sizes and colours."""
    from matplotlib import rc_context

    settings: Any = {
        **{"font.family": ["DejaVu Sans"], "font.size": TEXT, "axes.titlesize": TEXT + 0.5, "axes.labelsize": TEXT},
        **{"legend.fontsize": SMALL, "xtick.labelsize": SMALL, "ytick.labelsize": SMALL},
        **{"figure.facecolor": theme.paper, "axes.facecolor": theme.paper, "savefig.facecolor": theme.paper},
        **{"text.color": theme.ink, "axes.labelcolor": theme.ink, "axes.edgecolor": theme.ink},
        **{"xtick.color": theme.ink, "ytick.color": theme.ink, "axes.titlecolor": theme.ink},
        **{"grid.color": theme.faint, "grid.linewidth": 0.7, "axes.axisbelow": True},
        **{"axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8},
        **{"lines.linewidth": 1.7, "lines.markersize": 4.5, "errorbar.capsize": 3.0},
        **{"legend.frameon": False, "legend.edgecolor": theme.faint, "legend.facecolor": theme.paper},
        **{"svg.hashsalt": "privadmm", "svg.fonttype": "path"},
    }
    with rc_context(settings):
        yield


def canvas(width: float = WIDTH, height: float = HEIGHT) -> Any:
    """Make an empty figure that needs no display; `look` decides its colours."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), dpi=DPI, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06))
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def picture(
    place: Path,
    width: float = WIDTH,
    height: float = HEIGHT,
    *,
    title: str = "",
    words: str = "",
    mode: Mode = "simulation",
    quick: bool = False,
    theme: Theme = LIGHT,
    kinds: Sequence[Kind] = ("svg", "png"),
) -> Iterator[tuple[Any, Theme]]:
    """Yield a figure to draw on, and its colours; on leaving, it is written to PLACE.svg and PLACE.png.

    `height` is that of the axes; title, caption (`words` and the mode) and the stamp of a quick run come on top.
    """
    with look(theme):
        figure = canvas(width, height)
        yield figure, theme
        frame(figure, title, caption(mode, words), quick, theme)
        for kind in kinds:
            content = BytesIO()
            figure.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else {"Software": None})
            write_bytes(place.with_name(f"{place.name}.{kind}"), content.getvalue())


def pictures(place: Path, width: float = WIDTH, height: float = HEIGHT, **words: Any) -> Iterator[tuple[Any, Theme]]:
    """Yield a figure for light paper and then one for dark paper, to draw the same on both.

        for figure, theme in pictures(out / "frontier", title="..."):
            axes = figure.subplots()

    writes frontier.svg and frontier.png, then frontier-dark.svg. `words` are those of `picture`.
    """
    with picture(place, width, height, theme=LIGHT, **words) as light:
        yield light
    with picture(place.with_name(f"{place.name}-dark"), width, height, theme=DARK, kinds=("svg",), **words) as dark:
        yield dark


def frame(figure: Any, title: str, below: str, quick: bool, theme: Theme) -> None:
    """Put a title above, a caption below, and the stamp of a quick run; the figure grows by what they need."""
    width, height = figure.get_size_inches()
    letters = (width - 0.2) / LETTER  # that fit between the margins
    heads = wrap(symbols(title), int(letters / BOLD)) if title else []
    feet = wrap(symbols(below), int(letters)) if below else []
    above = 0.24 * len(heads) + (0.26 if quick else 0.0) + (0.1 if heads or quick else 0.0)
    under = LINE * len(feet) + (0.1 if feet else 0.0)
    tall = height + above + under
    figure.set_size_inches(width, tall)
    figure.get_layout_engine().set(rect=(0, under / tall, 1, height / tall))
    left, top = 0.12 / width, 1 - 0.08 / tall
    if heads:
        figure.text(left, top, "\n".join(heads), va="top", fontsize=HEADING, fontweight="bold", linespacing=1.2)
    if quick:
        box = {"boxstyle": "round,pad=0.25", "facecolor": theme.zones["poor"], "edgecolor": theme.verdicts["poor"]}
        line = top - (0.24 * len(heads) + 0.06) / tall
        figure.text(left + 0.04 / width, line, QUICK, va="top", fontsize=SMALL, color=theme.verdicts["poor"], bbox=box)
    if feet:
        figure.text(left, 0.07 / tall, "\n".join(feet), va="bottom", fontsize=SMALL, color=theme.muted)


def finish(axes: Any, x: Sequence[float] = (), y: Sequence[float] = (), legend: bool | str = True) -> None:
    """Finish a pair of axes: grid, Greek letters, ticks that read, legend. `x`, `y`: ticks of logarithmic axes."""
    axes.grid(visible=True)
    axes.spines[["top", "right"]].set_visible(False)
    for name, given in (("x", x), ("y", y)):
        if getattr(axes, f"get_{name}scale")() == "log":
            low, high = getattr(axes, f"get_{name}lim")()
            ticks = spaced([value for value in given if low <= value <= high], low, high) or log_ticks(low, high)
            getattr(axes, f"set_{name}ticks")(ticks, [plain(value) for value in ticks])
            getattr(axes, f"{name}axis").minorticks_off()
            getattr(axes, f"set_{name}lim")(low, high)
    axes.set(title=symbols(axes.get_title()), xlabel=symbols(axes.get_xlabel()), ylabel=symbols(axes.get_ylabel()))
    handles, labels = axes.get_legend_handles_labels()
    if handles and legend:
        axes.legend(
            handles,
            [symbols(label) for label in labels],
            loc=legend if isinstance(legend, str) else "best",
            frameon=False,
        )


def spaced(values: Sequence[float], low: float, high: float) -> list[float]:
    """Those of the values, in rising order, whose labels do not touch on a logarithmic axis from low to high."""
    kept: list[float] = []
    for value in sorted(values):
        if not kept or math.log(value / kept[-1]) >= APART * math.log(high / low):
            kept.append(value)
    return kept


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round numbers on a logarithmic axis: 1, 2, 5 in every decade, fewer where there are many decades."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))

    def inside(steps: Sequence[float], every: int = 1) -> list[float]:
        powers = (power for power in range(first, last + 1) if power % every == 0)
        values = (float(f"{step}e{power}") for power in powers for step in steps)
        return [value for value in values if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]

    finest: Sequence[float] = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
    for steps in (finest, (1, 1.5, 2, 2.5, 3, 4, 6, 8), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        if len(found := inside(steps)) <= most:
            return found
    return inside((1,), every=-(-(last - first + 1) // most))


def plain(value: float) -> str:
    """A number as people write it: 0.25, 2, 1,000; powers of ten beyond that."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:,.10g}"
    digits, power = f"{value:.3g}".split("e") if "e" in f"{value:.3g}" else f"{value:.3e}".split("e")
    mantissa = float(digits)
    factor = "" if mantissa == 1 else f"{mantissa:g} \\times "
    return f"${factor}10^{{{int(power)}}}$"


def band(axes: Any, x: Any, low: Any, high: Any, color: str, among: int = 1) -> None:
    """Shade a range; `among` is how many ranges share the axes: edges stay, so that no band hides another."""
    axes.fill_between(x, low, high, color=color, alpha=0.22 / max(among, 1) ** 0.7, linewidth=0, zorder=1)
    for edge in (low, high):
        axes.plot(x, edge, color=color, linewidth=0.6, alpha=0.55, zorder=1.5)


def outline(color: str) -> list[Any]:
    """Path effects for words that a line may cross: an outline in the colour of the ground."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3, foreground=color)]
