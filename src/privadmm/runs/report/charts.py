"""Charts as inline SVG: a few shapes, coloured by the page's own style, each with a table that says the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from privadmm.runs.axis import MOST, Axis
from privadmm.runs.report.safe import safe, short

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 74, 26, 14, 44
POINTS = 240  # of a line; more would not be seen
ROWS = 40  # of its table
LINE, LETTER = 25, 10.9  # height of a row of a `Spread`, width of a letter where it is largest: on a narrow screen

Point = tuple[float, float]
T = TypeVar("T")


@dataclass(frozen=True)
class Series:
    """A line through points; `errors` are how far the band around it reaches upwards and downwards, for each point."""

    name: str
    points: tuple[Point, ...]
    errors: tuple[float, ...] = ()

    @property
    def band(self) -> list[Point]:
        """The outline of the band: above the points there, and below them back."""
        ends = [(x, y + e) for (x, y), e in zip(self.points, self.errors, strict=bool(self.errors))]
        return ends + [(x, y - e) for (x, y), e in zip(self.points, self.errors, strict=bool(self.errors))][::-1]


@dataclass(frozen=True)
class Lines:
    """Lines over one horizontal axis. `levels` are dotted lines that everything is compared with."""

    key: str
    title: str
    words: str  # what the picture shows, for those who do not see it
    x: str
    y: str
    series: tuple[Series, ...]
    levels: tuple[tuple[str, float], ...] = ()
    log: bool = False
    diagonal: str = ""  # the name of the line from corner to corner, where there is one


@dataclass(frozen=True)
class Spread:
    """Values one below the other, each with its standard deviation on both sides where that is known."""

    key: str
    title: str
    words: str
    x: str
    rows: tuple[tuple[str, float, float | None], ...]
    levels: tuple[tuple[str, float], ...] = ()


Chart = Lines | Spread


def drawn(chart: Chart) -> str:
    """The chart as an SVG element. Every text is escaped; colours come from classes of the page."""
    body, height = lines(chart) if isinstance(chart, Lines) else spread(chart)
    told = f'<title id="{chart.key}-t">{short(chart.title)}</title><desc id="{chart.key}-d">{safe(chart.words)}</desc>'
    named = f'role="img" aria-labelledby="{chart.key}-t {chart.key}-d"'
    shape = type(chart).__name__.lower()
    return f'<svg class="{shape}" viewBox="0 0 {WIDTH} {height}" {named}>{told}{body}</svg>'


def lines(chart: Lines) -> tuple[str, int]:
    points = [point for one in chart.series for point in one.points]
    xs, ys = [x for x, _ in points], [y for _, y in points] + [value for _, value in chart.levels]
    # Both axes of a chart with a diagonal are rates: nothing is beyond 0 and 1.
    bands = [[(x, min(max(y, 0.0), 1.0) if chart.diagonal else y) for x, y in one.band] for one in chart.series]
    ys += [y for band in bands for _, y in band]
    if chart.diagonal:
        xs, ys = [*xs, 0.0, 1.0], [*ys, 0.0, 1.0]
    log = chart.log and min(ys) > 0
    x_axis, y_axis = Axis.rounded(xs, LEFT, WIDTH - RIGHT, ends=True), Axis.rounded(ys, HEIGHT - BOTTOM, TOP, log)
    across, height, parts = x_axis.at, y_axis.at, []
    for tick in y_axis.ticks(MOST):
        parts.append(rule("grid", LEFT, height(tick), WIDTH - RIGHT, height(tick)))
        parts.append(text(LEFT - 8, height(tick) + 4, number(tick), "end"))
    for tick in x_axis.ticks(MOST):
        parts.append(text(across(tick), HEIGHT - BOTTOM + 18, number(tick), "middle"))
    parts.append(rule("axis", LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, chart.x, "middle"))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text transform="translate(14 {middle:.1f}) rotate(-90)" text-anchor="middle">{short(chart.y)}</text>'
    )
    for _, value in chart.levels:
        parts.append(rule("level", LEFT, height(value), WIDTH - RIGHT, height(value)))
    if chart.diagonal:
        parts.append(rule("level", across(0), height(0), across(1), height(1)))
    for number_, (one, band) in enumerate(zip(chart.series, bands, strict=True), start=1):
        if band:
            outline = " ".join(f"{across(x):.1f},{height(y):.1f}" for x, y in band)
            parts.append(f'<polygon class="band b{number_}" points="{outline}"/>')
        some = thinned([point for point in one.points if not log or point[1] > 0])
        path = " ".join(f"{across(x):.1f},{height(y):.1f}" for x, y in some)
        parts.append(f'<polyline class="s{number_}" points="{path}"/>')
        if len(some) <= 12:
            parts += [dot(f"d{number_}", across(x), height(y)) for x, y in some]
    return "".join(parts), HEIGHT


def spread(chart: Spread) -> tuple[str, int]:
    """Rows of dots with whiskers; labels on the left take what they need, up to 0.45 of the width."""
    ends = [value + side * (deviation or 0.0) for _, value, deviation in chart.rows for side in (-1, 1)]
    longest = int(0.45 * WIDTH / LETTER)
    names = [name if len(name) <= longest else name[: longest - 1] + "…" for name, _, _ in chart.rows]
    left = 16 + LETTER * max(map(len, names), default=0)
    bottom = TOP + LINE * len(names)
    axis = Axis.rounded([*ends, 0.0, *(value for _, value in chart.levels)], left, WIDTH - RIGHT)
    across, parts = axis.at, []
    for tick in axis.ticks(MOST):
        parts.append(rule("grid", across(tick), TOP, across(tick), bottom))
        parts.append(text(across(tick), bottom + 18, number(tick), "middle"))
    parts.append(rule("axis", across(0.0), TOP, across(0.0), bottom))
    parts += [rule("level", across(value), TOP, across(value), bottom) for _, value in chart.levels]
    parts.append(text((left + WIDTH - RIGHT) / 2, bottom + 38, chart.x, "middle"))
    for place, (name, (_, value, deviation)) in enumerate(zip(names, chart.rows, strict=True)):
        y = TOP + LINE * (place + 0.5)
        parts.append(text(left - 8, y + 4, name, "end"))
        if deviation:
            parts.append(rule("whisker", across(value - deviation), y, across(value + deviation), y))
        parts.append(dot("d1", across(value), y))
    return "".join(parts), bottom + BOTTOM


def table(chart: Chart) -> tuple[str, list[str], list[list[str]]]:
    """Caption, heads and rows of a table that says what the chart shows; the caption says which rows it leaves out."""
    if isinstance(chart, Spread):
        head = ["Name", chart.x, "standard deviation of the noise"]
        known = any(deviation is not None for _, _, deviation in chart.rows)
        rows = [[name, number(value), "" if sd is None else number(sd)] for name, value, sd in chart.rows]
        rows += [[name, number(value), ""] for name, value in chart.levels]
        return (chart.title, head, rows) if known else (chart.title, head[:2], [row[:2] for row in rows])
    values = [(one.name, dict(one.points)) for one in chart.series]
    for one in chart.series:
        errors = [(x, error) for (x, _), error in zip(one.points, one.errors, strict=bool(one.errors))]
        values += [(f"± of {one.name}", dict(errors))] if errors else []
    every = sorted({x for _, one in values for x in one})
    at = thinned(every, ROWS)
    some = f" ({len(at)} of {len(every)} rows, evenly spaced; the model card has all)" if len(at) < len(every) else ""
    rows = [[number(x), *(number(one[x]) if x in one else "" for _, one in values)] for x in at]
    return chart.title + some, [chart.x, *(name for name, _ in values)], rows


def legend(chart: Chart) -> list[tuple[str, str]]:
    """Classes and names of what the chart's marks stand for."""
    if isinstance(chart, Spread):
        return [("l", f"{name}: {number(value)}") for name, value in chart.levels]
    named = [(f"k{place}", one.name) for place, one in enumerate(chart.series, start=1)]
    levels = [("l", f"{name}: {number(value)}") for name, value in chart.levels]
    return [*named, *levels, *([("l", chart.diagonal)] if chart.diagonal else [])]


def thinned(points: Sequence[T], most: int = POINTS) -> list[T]:
    """At most so many of the points, evenly spaced, the first and the last among them."""
    if len(points) <= most:
        return list(points)
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def number(value: float) -> str:
    """A number as short as it can be read."""
    return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")


def rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def dot(kind: str, x: float, y: float) -> str:
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>'


def text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{short(words)}</text>'


def apart(points: Sequence[Point]) -> bool:
    """Whether values span so much that an axis by powers of ten shows them better."""
    values = [y for _, y in points]
    return bool(values) and min(values) > 0 and max(values) > 100 * min(values)
