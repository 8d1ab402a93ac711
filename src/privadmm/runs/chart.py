"""Draw lines over rounds as an SVG file, in milliseconds: loading a plotting library takes longer than most runs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from privadmm.data.files import write_text
from privadmm.runs.axis import FAR, Axis
from privadmm.runs.report.safe import safe

Style = Literal["line", "dashed", "dotted", "cross"]
DASHES: dict[Style, str] = {"dashed": ' stroke-dasharray="7 4"', "dotted": ' stroke-dasharray="2 3"'}
INK, GREY = "#222222", "#737373"
WIDTH, LEFT, RIGHT = 720, 92, 24  # pixels
TOP, TALL, ROW, GAP = 46, 190, 18, 32  # to the first panel, of a panel's axes, of a legend's row, between panels


@dataclass(frozen=True)
class Line:
    """Points (round, value) with a row in the legend. A `cross` marks points and does not join them."""

    points: Sequence[tuple[float, float]]
    label: str
    color: str
    style: Style = "line"


@dataclass
class Panel:
    """Lines over one pair of axes, their legend above."""

    name: str  # of the vertical axis
    log: bool = False
    zero: bool = False  # whether the vertical axis starts at 0
    lines: list[Line] = field(default_factory=list)

    def level(self, value: float, label: str, style: Style) -> None:
        """Add a horizontal line."""
        self.lines.append(Line([(0.0, value), (math.inf, value)], label, GREY, style))

    @property
    def legend(self) -> list[tuple[Line | None, str]]:
        """Rows of text; the first of each line stands beside its mark."""
        rows = ((line, text.splitlines()) for line in self.lines for text in [line.label])
        return [(None if more else line, text) for line, texts in rows for more, text in enumerate(texts)]

    @property
    def height(self) -> int:
        return ROW * len(self.legend) + TALL


def draw(
    path: Path, title: str, panels: Sequence[Panel], rounds: int, note: str = "", color: str = INK, words: str = ""
) -> None:
    """Write a figure: a title, panels over the same rounds or `words` in their place, and a grey note below."""
    below, parts = TOP, list[str]()
    for panel in panels:
        below += panel.height
        parts += drawn(panel, below, rounds)
        below += GAP
    for number, text in enumerate(words.splitlines()):
        parts.append(written(WIDTH / 2, TOP + 60 + 30 * number, text, color, 22, "middle"))
    below = below + 24 if panels else TOP + 150
    if panels:
        parts.append(written((LEFT + WIDTH - RIGHT) / 2, below - 10, "round", anchor="middle"))
    if note:
        parts.append(written(WIDTH / 2, below + 12, note, GREY, 11, "middle"))
    tall = below + 24
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {tall}" width="{WIDTH}" height="{tall}"'
    lines = [
        f'{head} font-family="sans-serif" role="img">',
        f"<title>{safe(title)}</title>",
        '<rect width="100%" height="100%" fill="white"/>',
        written(WIDTH / 2, 26, title, color, 15, "middle"),
        *parts,
        "</svg>",
    ]
    write_text(path, "\n".join(lines) + "\n")


def drawn(panel: Panel, bottom: float, rounds: int) -> Iterator[str]:
    """One panel, whose horizontal axis is at `bottom`."""
    across = Axis(0, 1.03 * rounds, LEFT, WIDTH - RIGHT)
    least = 1 / FAR if panel.log else -FAR
    lines = [(line, [(number, value) for number, value in line.points if least < value < FAR]) for line in panel.lines]
    values = [value for _, points in lines for _, value in points]
    up = Axis.around(values, bottom, bottom - TALL, panel.log and bool(values), panel.zero)
    for value in up.ticks(5):
        yield stroke([(across.start, up.at(value)), (across.end, up.at(value))], "#e2e2e2")
        yield written(LEFT - 8, up.at(value) + 4, f"{value:.12g}", anchor="end")
    for value in across.ticks(8, whole=True):
        yield stroke([(across.at(value), bottom), (across.at(value), bottom - TALL)], "#e2e2e2")
        yield written(across.at(value), bottom + 17, f"{value:.12g}", anchor="middle")
    yield stroke([(LEFT, bottom - TALL), (LEFT, bottom), (WIDTH - RIGHT, bottom)], INK)
    turned = f' transform="rotate(-90 16 {bottom - TALL / 2:.0f})"'
    yield written(16, bottom - TALL / 2, panel.name, anchor="middle", more=turned)
    for line, points in lines:
        yield from marked(line, [(across.at(min(number, across.high)), up.at(value)) for number, value in points])
    for number, (owner, text) in enumerate(panel.legend):
        row = bottom - panel.height + ROW * number + 6
        if owner is not None:
            yield from marked(owner, [(LEFT, row), (LEFT + 26, row)] if owner.style != "cross" else [(LEFT + 13, row)])
        yield written(LEFT + 34, row + 4, text)


def marked(line: Line, points: Sequence[tuple[float, float]]) -> Iterator[str]:
    """A line through these pixels, crosses at them, or a dot at each where a line would hardly be seen."""
    if line.style == "cross":
        for x, y in points:
            yield stroke([(x - 4, y - 4), (x + 4, y + 4)], line.color, 2)
            yield stroke([(x - 4, y + 4), (x + 4, y - 4)], line.color, 2)
        return
    if len(points) > 1:
        yield stroke(points, line.color, 2 if line.style == "line" else 1.2, DASHES.get(line.style, ""))
    if line.style == "line" and len(line.points) < 3:
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{line.color}"/>'


def stroke(points: Sequence[tuple[float, float]], color: str, width: float = 1, more: str = "") -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="{width}"{more}/>'


def written(
    x: float, y: float, text: str, color: str = INK, size: int = 12, anchor: str = "start", more: str = ""
) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" fill="{color}" font-size="{size}" text-anchor="{anchor}"'
    return f"<text {place}{more}>{safe(text)}</text>"
