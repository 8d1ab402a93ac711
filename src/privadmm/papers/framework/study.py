"""The result of reproducing a paper: checks, the settings behind them, tables and figures."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from privadmm.data.arrays import Floats
from privadmm.runs.palette import Meaning

Whose = Literal["paper", "ours"]
Scale = Literal["linear", "log"]
Row = tuple[str | float | None, ...]
VERDICTS = {True: "holds", False: "does not hold", None: "cannot be judged"}
TOO_FEW = "too few settings were run to judge it"


@dataclass(frozen=True)
class Check:
    """Something that a paper prints or claims, or that we expect, and whether it holds.

    `published` and `ours` are figures within `tolerance` of each other, or words. `ok` is a key of VERDICTS; None means
    that the runs cannot decide. `why` explains a check that does not hold or cannot be judged; for others it says what
    they rest on. `of` says whose claim it is: the paper's, or ours (an earlier trial, a control, a certified variant).
    """

    name: str
    published: float | str | None
    ours: float | str
    ok: bool | None
    tolerance: float | None = None
    why: str = ""
    of: Whose = "paper"


def near(name: str, published: float, ours: float, tolerance: float, why: str = "", of: Whose = "paper") -> Check:
    """Compare a printed figure with ours."""
    return Check(name, published, ours, bool(abs(ours - published) <= tolerance), tolerance, why, of)


class Claim(NamedTuple):
    """A claim in words: the paper's, or, if it is ours, an expectation that the paper does not state."""

    name: str
    words: str
    of: Whose = "paper"

    def judged(self, seen: str, ok: bool | np.bool_ | None, why: str = "") -> Check:
        """Make a check of the claim, from what was `seen`."""
        unjudged = ok is None
        why = why or (TOO_FEW if unjudged else "")
        return Check(self.name, self.words, seen, None if unjudged else bool(ok), None, why, self.of)


def expect(name: str, words: str) -> Claim:
    return Claim(name, words, "ours")


def falls(values: ArrayLike) -> bool | None:
    """Tell whether every value is below the one before; None if there are fewer than two."""
    steps = np.diff(np.asarray(values, dtype=float))
    return bool(np.all(steps < 0)) if steps.size else None


def rises(values: ArrayLike) -> bool | None:
    return falls(-np.asarray(values, dtype=float))


def listed(values: Iterable[float], digits: str = "g") -> str:
    return ", ".join(f"{value:{digits}}" for value in values)


def pairs(name: str, at: Iterable[float], values: Iterable[float]) -> str:
    """`name a: value, b: value`"""
    return f"{name} " + ", ".join(f"{a:.3g}: {value:.4g}" for a, value in zip(at, values, strict=True))


def spread_words(values: ArrayLike, digits: int = 4) -> str:
    """`mean (low to high)` of several runs."""
    runs = np.asarray(values, dtype=float)
    return f"{runs.mean():.{digits}g} ({runs.min():.{digits}g} to {runs.max():.{digits}g})"


@dataclass(frozen=True)
class Line:
    """One curve: mean and range over runs for each x; `published` marks what was read off the paper.

    A curve has the colour of its `meaning`; else of its `level`, a number by which the curves of a panel are ordered;
    else of its `series` (or label), the same in all panels of a figure. `shade` below 1 makes it paler.
    """

    label: str
    x: Sequence[float]
    mean: Floats
    low: Floats
    high: Floats
    published: bool = False
    dashed: bool = False
    series: str = ""
    meaning: Meaning | None = None
    level: float | None = None
    shade: float = 1.0

    @staticmethod
    def of(
        label: str,
        values: ArrayLike,
        x: Sequence[float] | None = None,
        dashed: bool = False,
        series: str = "",
        meaning: Meaning | None = None,
        level: float | None = None,
        shade: float = 1.0,
    ) -> "Line":
        """Draw values (points, runs), or (points,) of a single run, over x or else over rounds 1, 2, ..."""
        runs = np.asarray(values, dtype=float)
        runs, x = runs.reshape(len(runs), -1), range(1, len(runs) + 1) if x is None else x
        ends = runs.mean(axis=-1), runs.min(axis=-1), runs.max(axis=-1)
        return Line(label, x, *ends, False, dashed, series, meaning, level, shade)

    @property
    def record(self) -> dict[str, Any]:
        # JSON has no infinity: a value that ran away is null.
        ends = {
            name: [float(value) if math.isfinite(value) else None for value in getattr(self, name)]
            for name in ("mean", "low", "high")
        }
        return {"label": self.label, "x": [float(x) for x in self.x], **ends, "published": self.published}


@dataclass(frozen=True)
class Panel:
    """Lines over one pair of axes. A `closer` panel repeats lines of another panel, without those that dwarf them."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    xscale: Scale = "linear"
    yscale: Scale = "linear"
    closer: bool = False

    @property
    def record(self) -> dict[str, Any]:
        return {"title": self.title, "xlabel": self.xlabel, "lines": [line.record for line in self.lines]}


@dataclass(frozen=True)
class Figure:
    """Panels side by side, in the files NAME.svg and NAME.png."""

    name: str
    caption: str
    panels: Sequence[Panel]

    @property
    def record(self) -> list[dict[str, Any]]:
        """The panels' numbers, each once."""
        return [panel.record for panel in self.panels if not panel.closer]


@dataclass(frozen=True)
class Grid:
    """A table; cells are text or figures."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Parameter:
    """A setting of the experiment: `stated` by the paper, or else ours, with the reason."""

    symbol: str
    value: str
    stated: bool
    why: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of the table of settings."""
        return self.symbol, self.value, "the paper" if self.stated else "ours", self.why


def ours(symbol: str, value: str, why: str) -> Parameter:
    return Parameter(symbol, value, False, why)


def counts(checks: Iterable[Check]) -> dict[str, int]:
    """How many checks have each verdict, and how many there are."""
    count = Counter(check.ok for check in checks)
    return {"held": count[True], "failed": count[False], "unjudged": count[None], "claims": count.total()}


@dataclass(frozen=True)
class Study:
    paper: str
    title: str
    parameters: Sequence[Parameter]
    checks: Sequence[Check]
    figures: Sequence[Figure] = ()
    grids: Sequence[Grid] = ()
    notes: Sequence[str] = ()  # what was not run, and why

    @property
    def verdicts(self) -> dict[str, dict[str, int]]:
        """How many checks have each verdict, the paper's claims and our own expectations apart."""
        return {of: counts(check for check in self.checks if check.of == of) for of in ("paper", "ours")}

    @property
    def tally(self) -> str:
        """How many checks hold, the paper's claims and our own expectations apart."""
        parts = []
        for of, what in (("paper", "the paper's claims"), ("ours", "our own expectations")):
            count = self.verdicts[of]
            if count["claims"]:
                unjudged = f", {count['unjudged']} cannot be judged" if count["unjudged"] else ""
                parts.append(f"{count['held']} of {count['claims']} of {what} hold{unjudged}")
        return "; ".join(parts)

    @property
    def record(self) -> dict[str, Any]:
        return {
            "paper": self.paper,
            "title": self.title,
            "checks": [asdict(check) for check in self.checks],
            **{word: count for word, count in counts(self.checks).items() if word != "claims"},
            "tally": self.tally,
            "parameters": [asdict(parameter) for parameter in self.parameters],
            "tables": [{"name": grid.name, "columns": grid.columns, "rows": grid.rows} for grid in self.grids],
            "figures": [
                {"name": figure.name, "caption": figure.caption, "panels": figure.record} for figure in self.figures
            ],
            "notes": list(self.notes),
        }
