"""A workload: something that privadmm does, beside a reference that a competent user would write, and a goal.

Answers are arrays of numbers, so that one check can compare both sides, and a test can plant a fault in one of them.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.bench.shares import Shares

Run = Callable[[], Floats]
Check = Callable[[Floats, Floats], "Agreement"]
Kind = Literal["faster", "slower", "cpu", "wall", "over_data", "peak"]
# The figure that a goal bounds, and the words for its bound.
WORDS: Mapping[Kind, str] = {
    "faster": ">= {:g}x",
    "slower": "<= {:g}x slower",
    "cpu": "<= {} CPU",
    "wall": "<= {} by the clock",
    "over_data": "<= {:g}x the data",
    "peak": "<= {}",
}


@dataclass(frozen=True)
class Goal:
    """A bound: on the ratio of CPU times (theirs/ours: "faster", ours/theirs: "slower"), on seconds, or on memory."""

    kind: Kind
    value: float

    @property
    def words(self) -> str:
        shown: Any = self.value
        if self.kind in ("cpu", "wall"):
            shown = duration(self.value)
        elif self.kind == "peak":
            shown = size(self.value)
        return WORDS[self.kind].format(shown)

    def margin(self, figure: float) -> float:
        """How many times better than the goal a figure is; below 1 the goal is missed."""
        return figure / self.value if self.kind == "faster" else self.value / figure


@dataclass(frozen=True)
class Agreement:
    """The distance between both sides' answers, and the distance that is allowed."""

    apart: float
    allowed: float

    @property
    def reached(self) -> bool:
        return bool(self.apart <= self.allowed)  # False for NaN


@dataclass(frozen=True)
class Floor:
    """The least work of any program for a workload: bytes to read, multiplications and additions, normals to draw."""

    bytes: float = 0.0
    flops: float = 0.0
    normals: float = 0.0

    def seconds(self, rates: Mapping[str, float]) -> float | None:
        """The floor in seconds: reading and arithmetic overlap, drawing does not. None if nothing is counted."""
        passing = max(self.bytes / rates["bandwidth"], self.flops / rates["gemm"])
        return passing + self.normals / rates["normals"] or None


@dataclass(frozen=True)
class Reference:
    """The other side, ready to run. `share` is the part of our work that it does, if all would take minutes."""

    run: Run | None
    check: Check
    share: float = 1.0


@dataclass(frozen=True)
class Part:
    """Work that our side cannot leave out without changing a bit of its answer; it is timed alone.

    A unit of the workload needs it `times` times.
    """

    what: str
    run: Callable[[], Any]
    times: float = 1.0


@dataclass(frozen=True)
class Ready:
    """Both sides, with their data. `full` is False if sizes were cut, so that goals cannot be judged."""

    ours: Run
    references: Mapping[str, Reference]  # by the names of the workload's lines
    floor: Floor = field(default_factory=Floor)
    units: float = 1.0  # how many units (rounds, say) a call has; times are shown for one unit
    data: float = 0.0  # bytes of records
    full: bool = True
    peak: Callable[[], int] | None = None  # memory of the process that does the work, if that is another one
    shares: Callable[[], Shares] | None = None  # where the time of that process goes
    needed: tuple[Part, ...] = ()  # a lower bound on our side's time


@dataclass(frozen=True)
class Line:
    """A line of the table: one reference (or none), and the goal against it."""

    name: str
    against: str
    goal: Goal | None


@dataclass(frozen=True)
class Workload:
    """Something to measure, by name. The docstring of `make` says what it is, and after "Fair:" why it is fair."""

    name: str
    make: Callable[[bool], Ready]  # True: quick, which is smaller
    lines: tuple[Line, ...]
    unit: str = ""  # the name of a unit, such as "round"
    missing: Callable[[], str | None] = lambda: None  # why this machine cannot run it

    @property
    def title(self) -> str:
        return (self.make.__doc__ or "").strip().splitlines()[0].rstrip(".")

    @property
    def fairness(self) -> str:
        return " ".join((self.make.__doc__ or "").partition("Fair:")[2].split())

    def label(self, line: Line) -> str:
        """The line's name in tables."""
        return self.name if len(self.lines) == 1 else f"{self.name}/{line.name}"


def workload(
    name: str, *lines: Line, unit: str = "", missing: Callable[[], str | None] = lambda: None
) -> Callable[[Callable[[bool], Ready]], Workload]:
    """Decorate the function that makes both sides ready: it becomes a workload."""
    return lambda make: Workload(name, make, lines, unit, missing)


def alike(allowed: float) -> Check:
    """Compare numbers: the largest difference, relative to the largest number."""

    def check(ours: Floats, theirs: Floats) -> Agreement:
        if np.shape(ours) != np.shape(theirs):
            return Agreement(math.inf, allowed)
        most = float(np.max(np.abs(theirs), initial=1e-300))
        return Agreement(float(np.max(np.abs(ours - theirs), initial=0.0)) / most, allowed)

    return check


def below(target: float, value: Callable[[Floats], float]) -> Check:
    """Compare what both reach: each side's value must be at most the target."""

    def check(ours: Floats, theirs: Floats) -> Agreement:
        worst = max(value(ours), value(theirs))
        return Agreement(worst if math.isfinite(worst) else math.inf, target)

    return check


def duration(seconds: float) -> str:
    """Seconds in a unit that suits them."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 0.9995 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def size(count: float) -> str:
    """Bytes in a unit that suits them."""
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"
