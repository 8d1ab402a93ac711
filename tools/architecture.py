"""Draw the rooms of src/privadmm and who imports whom, from the import graph, into docs/architecture.svg and -dark.svg.

    python tools/architecture.py

A line is as wide as the number of imports that it stands for. All of them point downwards: tests/test_layers.py holds
the layers, and fails where one does not.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from privadmm.runs.palette import DARK, LIGHT, Theme  # noqa: E402
from test_layers import LAYERS, PACKAGE, edges, named  # noqa: E402

PICTURES = {ROOT / "docs" / "architecture.svg": LIGHT, ROOT / "docs" / "architecture-dark.svg": DARK}
QUESTIONS = {
    "errors": "the errors that people see",
    "params": "declared parameters, checked in one place",
    "data": "what is a record, and how do blocks of them multiply?",
    "optim": "what is minimised, and how?",
    "privacy": "what may leave, what does it cost, who wrote it down?",
    "engine": "how does one round run?",
    "algorithms": "one file per published method",
    "config": "from a TOML file to a job",
    "deploy": "the same round on other machines",
    "runs": "one config, one run directory",
    "papers": "the five papers again",
    "estimators": "the scikit-learn face",
    "cli": "the command line's face",
}


def rooms() -> dict[str, tuple[int, int]]:
    """Modules and lines of each room."""
    found: dict[str, tuple[int, int]] = {}
    for path in PACKAGE.rglob("*.py"):
        room = named(path, PACKAGE).partition(".")[0]
        modules, lines = found.get(room, (0, 0))
        found[room] = (modules + 1, lines + len(path.read_text().splitlines()))
    return found


def imports() -> Counter[tuple[str, str]]:
    """How many modules of a room import from another room."""
    count: Counter[tuple[str, str]] = Counter()
    for importer, imported in edges(PACKAGE):
        pair = importer.partition(".")[0], imported.partition(".")[0]
        if pair[0] != pair[1] and set(pair) <= QUESTIONS.keys():
            count[pair] += 1
    return count


def draw(path: Path, theme: Theme) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "privadmm", "svg.fonttype": "none", "text.color": theme.ink})
    from matplotlib.figure import Figure
    from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

    layers = [layer for layer in LAYERS if set(layer) <= QUESTIONS.keys()]
    figure = Figure(figsize=(9, 0.95 * len(layers) + 0.4), facecolor=theme.paper)
    axes: Any = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-5, 5), ylim=(-0.7, len(layers) - 0.3))
    axes.axis("off")
    sizes, places = rooms(), {}
    for height, layer in enumerate(layers):
        width = 6.4 / len(layer)
        for number, room in enumerate(layer):
            x = (number - (len(layer) - 1) / 2) * (width + 0.2)
            places[room] = (x, height, width)
            modules, lines = sizes[room]
            corner, colours = (x - width / 2, height - 0.28), {"fc": theme.faint, "ec": theme.certified}
            box = FancyBboxPatch(corner, width, 0.56, "round,pad=0.02", **colours, zorder=3)
            axes.add_patch(box)
            axes.text(x - width / 2 + 0.1, height + 0.09, room, weight="bold", va="center", fontsize=11, zorder=4)
            axes.text(x - width / 2 + 0.1, height - 0.13, QUESTIONS[room], va="center", fontsize=8, zorder=4)
            size = f"{modules} modules, {lines:,} lines" if modules > 1 else f"{lines:,} lines"
            axes.text(x + width / 2 - 0.1, height + 0.11, size, ha="right", va="center", fontsize=7, zorder=4)
    for (importer, imported), count in sorted(imports().items()):
        (x, top, width), (x2, bottom, width2) = places[importer], places[imported]
        side = (1 if x > 0 else -1) if x else (1 if (top + bottom) % 2 else -1)
        far = abs(top - bottom) > 1
        start = (x + side * width / 2, top) if far else (x, top - 0.28)
        end = (x2 + side * width2 / 2, bottom) if far else (x2, bottom + 0.28)
        bend = f"arc3,rad={-side * 0.32 if top > bottom else 0}" if far else "arc3"
        arrow = FancyArrowPatch(
            start, end, connectionstyle=bend, arrowstyle="-|>", mutation_scale=7, lw=0.3 + 0.05 * min(count, 40),
            color=theme.majority, alpha=0.55, zorder=1,
        )  # fmt: skip
        axes.add_patch(arrow)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    for picture, colours in PICTURES.items():
        draw(picture, colours)
        print(f"wrote {picture.relative_to(ROOT)}")
