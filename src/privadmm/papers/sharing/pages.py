"""The ADMM sharing paper's figures, drawn again, and tables of their ends."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.framework.study import Figure, Grid, Line, Panel, Spread, spread_words
from privadmm.papers.sharing.runs import ACCURACY, LOSS, OBJECTIVE, Kind, Level, Noisy

KINDS: dict[Kind, str] = {"published": "a round", "certified": "a party"}


@dataclass(frozen=True)
class Ran:
    """All that was run on one data set."""

    called: str
    rho: float
    levels: list[Level]
    results: dict[Any, Any]

    def admm(self, rho: float | None = None, form: str = "sharing") -> Floats:
        """(epochs, 3)"""
        found: Floats = self.results[form, rho or self.rho]
        return found

    @property
    def rhos(self) -> list[float]:
        return sorted(key[1] for key in self.results if key[0] == "sharing")

    @property
    def sgd(self) -> tuple[float, Floats]:
        """The step with the least training objective in the end, and its curve."""
        found = {key[1]: value for key, value in self.results.items() if key[0] == "sgd"}
        step = min(found, key=lambda one: float(found[one][-1, OBJECTIVE]))
        return step, found[step]

    @property
    def pooled(self) -> Floats:
        """(3,)"""
        found: Floats = self.results[("pooled",)]
        return found

    @property
    def first(self) -> Floats:
        found: Floats = self.results[("first",)]
        return found

    def noisy(self, kind: Kind) -> list[tuple[Level, Noisy]]:
        """From little noise to much."""
        chosen = [level for level in self.levels if level.kind == kind]
        return [(one, self.results[one,]) for one in sorted(chosen, key=lambda level: -level.epsilon)]


def figures(ran: list[Ran]) -> tuple[Figure, ...]:
    found = [convergence(number, one) for number, one in enumerate(ran, 1)]
    found.append(
        Figure("figure-3", "Figure 3: test loss under noise", tuple(noise(one, kind) for one in ran for kind in KINDS))
    )
    found.append(Figure("forms", "The printed update and the scaled one", tuple(forms(one) for one in ran)))
    return tuple(found)


def single(label: str, y: Floats, dashed: bool = False) -> Line:
    return Line(label, range(1, len(y) + 1), Spread.of(y[:, None]), dashed=dashed)


def convergence(number: int, ran: Ran) -> Figure:
    step, steps = ran.sgd
    panels = tuple(
        Panel(
            title,
            "epoch",
            title,
            (
                single(f"ADMM sharing, rho = {ran.rho:g}", ran.admm()[:, what]),
                single(f"SGD, step {step:g}", steps[:, what]),
                single("pooled, sklearn", np.full(len(steps), ran.pooled[what]), dashed=True),
            ),
            yscale="log",
        )
        for what, title in ((OBJECTIVE, "training objective"), (LOSS, "test loss"))
    )
    return Figure(f"figure-{number}", f"Figure {number}: {ran.called}, without noise", panels)


def noise(ran: Ran, kind: Kind) -> Panel:
    runs = ran.noisy(kind)
    epochs = runs[0][1].epochs
    lines = [Line(named(level, found), epochs, Spread.of(found.values[:, LOSS])) for level, found in runs]
    at = np.array(epochs) - 1
    for label, y in (
        ("no noise", ran.admm()[at, LOSS]),
        ("pooled, sklearn", np.full(len(at), ran.pooled[LOSS])),
        ("first party alone, sklearn", np.full(len(at), ran.first[LOSS])),
    ):
        lines.append(Line(label, epochs, Spread.of(y[:, None]), dashed=True))
    title = "the paper's noise" if kind == "published" else "certified noise"
    return Panel(f"{ran.called}, {title}", "epochs of the run", "test loss", tuple(lines), yscale="log")


def named(level: Level, found: Noisy) -> str:
    """A curve's label: what the paper claims, and what is certified for a person over all parties."""
    if level.kind == "published":
        return f"epsilon {level.epsilon:g} a round; certified for a person: none"
    return f"certified for a person: epsilon {found.per_person:.3g}"


def forms(ran: Ran) -> Panel:
    lines = [
        single(f"{form}, rho = {rho:g}", ran.admm(rho, form)[:, OBJECTIVE], dashed=form == "sharing")
        for rho in ran.rhos
        for form in ("printed", "sharing")
    ]
    return Panel(ran.called, "epoch", "training objective", tuple(lines), yscale="log")


def grids(ran: list[Ran]) -> tuple[Grid, ...]:
    return ends(ran), noise_levels(ran)


def ends(ran: list[Ran]) -> Grid:
    rows: list[tuple[str | float | None, ...]] = []
    for one in ran:
        step, steps = one.sgd
        epochs = len(steps)
        for method, found in (
            (f"ADMM sharing, {epochs} epochs", one.admm()[-1]),
            (f"SGD, step {step:g}, {epochs} epochs", steps[-1]),
            ("pooled, sklearn", one.pooled),
            ("first party alone, sklearn", one.first),
        ):
            rows.append((one.called, method, *(float(value) for value in found)))
    columns = ("data", "method", "training objective", "test loss", "test accuracy")
    return Grid("ends", "Figures 1 and 2: where the curves end", columns, tuple(rows))


def noise_levels(ran: list[Ran]) -> Grid:
    rows: list[tuple[str | float | None, ...]] = []
    for one in ran:
        for kind, per in KINDS.items():
            for level, found in one.noisy(kind):
                best = found.best
                bounds = found.claimed[best], found.per_person or "none"
                ends = tuple(spread_words(found.values[best, what]) for what in (LOSS, ACCURACY))
                rows.append((one.called, f"{kind}, {level.epsilon:g} {per}", *bounds, found.epochs[best], *ends))
    columns = (
        "data",
        "noise, epsilon",
        "claimed total for a column",
        "certified total for a person",
        "epochs",
        "test loss (range)",
        "accuracy (range)",
    )
    return Grid("noise", "Figure 3: noise levels, at the best of the epochs run", columns, tuple(rows))
