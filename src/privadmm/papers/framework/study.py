"""What comes of reproducing a paper: checks, the parameters they rest on, tables and figures."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from privadmm.data.arrays import Floats

Whose = Literal["paper", "ours"]
VERDICTS = {True: "holds", False: "does not hold", None: "cannot be judged"}
TOO_FEW = "too few settings were run to judge it"


@dataclass(frozen=True)
class Check:
    """One thing that a paper prints or claims, or that we expect, and whether it came out.

    published and ours are figures within `tolerance` of each other, or a claim in words and what was seen. `ok` is one
    of VERDICTS: None where what was run cannot decide. `why` explains a check that does not hold or cannot be judged,
    and says of any other what it rests on. `of` says whose claim it is: the paper's own, or ours (an earlier trial, a
    control, a certified variant).
    """

    name: str
    published: float | str | None
    ours: float | str
    ok: bool | None
    tolerance: float | None = None
    why: str = ""
    of: Whose = "paper"

    @property
    def record(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "of": self.of,
            "published": self.published,
            "ours": self.ours,
            "tolerance": self.tolerance,
            "ok": self.ok,
            "why": self.why,
        }


def near(name: str, published: float, ours: float, tolerance: float, why: str = "", of: Whose = "paper") -> Check:
    """A printed figure against ours."""
    return Check(name, published, ours, bool(abs(ours - published) <= tolerance), tolerance, why, of)


def claim(name: str, words: str, seen: str, ok: bool | None, why: str = "", of: Whose = "paper") -> Check:
    """What a paper says in words, or what we expect, and what was seen."""
    if ok is None:
        return Check(name, words, seen, None, None, why or TOO_FEW, of)
    return Check(name, words, seen, bool(ok), None, why, of)


def falls(values: ArrayLike) -> bool | None:
    """Whether every value is below the one before; None if there are fewer than two."""
    steps = np.diff(np.asarray(values, dtype=float))
    return bool(np.all(steps < 0)) if steps.size else None


def rises(values: ArrayLike) -> bool | None:
    return falls(-np.asarray(values, dtype=float))


@dataclass(frozen=True)
class Spread:
    """Mean and range over runs, for each point of a curve. Made from an array (points, runs)."""

    mean: Floats
    low: Floats
    high: Floats

    @staticmethod
    def of(values: ArrayLike) -> "Spread":
        found = np.asarray(values, dtype=float)
        return Spread(found.mean(axis=-1), found.min(axis=-1), found.max(axis=-1))


def spread_words(values: ArrayLike, digits: int = 4) -> str:
    """`mean (low to high)` of several runs."""
    found = np.asarray(values, dtype=float)
    return f"{found.mean():.{digits}g} ({found.min():.{digits}g} to {found.max():.{digits}g})"


@dataclass(frozen=True)
class Line:
    """One curve: y over x with the range over runs; `published` marks what was read off the paper.

    Curves of one `series` (or else of one label) have one colour in all panels of a figure.
    """

    label: str
    x: Sequence[float]
    y: Spread
    published: bool = False
    dashed: bool = False
    series: str = ""

    @property
    def record(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "x": [float(one) for one in self.x],
            "mean": finite(self.y.mean),
            "low": finite(self.y.low),
            "high": finite(self.y.high),
            "published": self.published,
        }


def finite(values: Floats) -> list[float | None]:
    """For JSON, which has no infinity: what ran away is null."""
    return [float(one) if math.isfinite(one) else None for one in np.asarray(values)]


@dataclass(frozen=True)
class Panel:
    title: str
    xlabel: str
    ylabel: str
    lines: tuple[Line, ...]
    xscale: Literal["linear", "log"] = "linear"
    yscale: Literal["linear", "log"] = "linear"

    @property
    def record(self) -> dict[str, Any]:
        return {"title": self.title, "xlabel": self.xlabel, "lines": [line.record for line in self.lines]}


@dataclass(frozen=True)
class Figure:
    """Panels side by side; `name` is its file's, as `figure-2`."""

    name: str
    caption: str
    panels: tuple[Panel, ...]

    @property
    def record(self) -> dict[str, Any]:
        return {"name": self.name, "caption": self.caption, "panels": [one.record for one in self.panels]}


@dataclass(frozen=True)
class Grid:
    """A table; cells are text or figures."""

    name: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float | None, ...], ...]

    @property
    def record(self) -> dict[str, Any]:
        return {"name": self.name, "columns": list(self.columns), "rows": [list(row) for row in self.rows]}


@dataclass(frozen=True)
class Parameter:
    """A setting of the experiment. `stated` by the paper, or else ours, with the reason."""

    symbol: str
    value: str
    stated: bool
    why: str = ""


@dataclass(frozen=True)
class Study:
    paper: str
    title: str
    parameters: tuple[Parameter, ...]
    checks: tuple[Check, ...]
    figures: tuple[Figure, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = field(default=())  # what was not run, and why

    @property
    def counts(self) -> dict[str, int]:
        """How many checks have each verdict."""
        verdicts = Counter(check.ok for check in self.checks)
        return {"held": verdicts[True], "failed": verdicts[False], "unjudged": verdicts[None]}

    @property
    def tally(self) -> str:
        """How many checks hold, the paper's claims and our own expectations apart."""
        said = []
        for of, what in (("paper", "the paper's claims"), ("ours", "our own expectations")):
            verdicts = Counter(check.ok for check in self.checks if check.of == of)
            if verdicts:
                unjudged = f", {verdicts[None]} cannot be judged" if verdicts[None] else ""
                said.append(f"{verdicts[True]} of {verdicts.total()} of {what} hold{unjudged}")
        return "; ".join(said)

    @property
    def record(self) -> dict[str, Any]:
        return {
            "paper": self.paper,
            "title": self.title,
            "checks": [check.record for check in self.checks],
            **self.counts,
            "tally": self.tally,
            "parameters": [
                {"symbol": one.symbol, "value": one.value, "stated": one.stated, "why": one.why}
                for one in self.parameters
            ],
            "tables": [grid.record for grid in self.grids],
            "figures": [figure.record for figure in self.figures],
            "notes": list(self.notes),
        }
