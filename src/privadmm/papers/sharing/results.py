"""Results of the ADMM sharing paper's runs: its figures drawn again, and tables of where the curves end."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.papers.framework.study import Figure, Grid, Line, Panel, Row, spread_words
from privadmm.papers.sharing.runs import ACCURACY, LOSS, OBJECTIVE, Kind, Level, Noisy
from privadmm.runs.palette import Meaning

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
        return np.asarray(self.results[form, rho or self.rho])

    @property
    def rhos(self) -> list[float]:
        return sorted(key[1] for key in self.results if key[0] == "sharing")

    @property
    def sgd(self) -> tuple[float, Floats]:
        """The step with the least training objective in the end, and its curve."""
        curves = {key[1]: value for key, value in self.results.items() if key[0] == "sgd"}
        step = min(curves, key=lambda step: float(curves[step][-1, OBJECTIVE]))
        return step, curves[step]

    @property
    def pooled(self) -> Floats:
        """(3,)"""
        return np.asarray(self.results["pooled",])

    @property
    def first(self) -> Floats:
        """(3,), of the first party alone."""
        return np.asarray(self.results["first",])

    def noisy(self, kind: Kind) -> list[tuple[Level, Noisy]]:
        """Noisy runs of this kind, from little noise to much."""
        chosen = [level for level in self.levels if level.kind == kind]
        return [(level, self.results[level,]) for level in sorted(chosen, key=lambda level: -level.epsilon)]


def figures(ran: list[Ran]) -> list[Figure]:
    return [
        *(convergence(number, data) for number, data in enumerate(ran, 1)),
        Figure("figure-3", "Figure 3: test loss under noise", [noise(data, kind) for data in ran for kind in KINDS]),
        Figure("forms", "The printed update and the scaled one", [forms(data) for data in ran]),
    ]


def convergence(number: int, ran: Ran) -> Figure:
    step, steps = ran.sgd
    panels = []
    for what, title in ((OBJECTIVE, "training objective"), (LOSS, "test loss")):
        lines = (
            Line.of(f"ADMM sharing, rho = {ran.rho:g}", ran.admm()[:, what], meaning="non_private"),
            Line.of(f"SGD, step {step:g}", steps[:, what], meaning="baseline"),
            Line.of("pooled, sklearn", np.full(len(steps), ran.pooled[what]), dashed=True, meaning="curator"),
        )
        panels.append(Panel(title, "epoch", title, lines, yscale="log"))
    return Figure(f"figure-{number}", f"Figure {number}: {ran.called}, without noise", panels)


def noise(ran: Ran, kind: Kind) -> Panel:
    runs = ran.noisy(kind)
    epochs = runs[0][1].epochs
    lines = []
    for level, run in runs:
        # The epsilon that the paper claims, or the one certified for a person over all parties.
        label = f"epsilon {level.epsilon:g} a round; certified for a person: none"
        label = label if kind == "published" else f"certified for a person: epsilon {run.per_person:.3g}"
        lines.append(Line.of(label, run.values[:, LOSS], epochs, level=level.epsilon))
    references: dict[str, tuple[Meaning, Floats]] = {
        "no noise": ("non_private", ran.admm()[np.array(epochs) - 1, LOSS]),
        "pooled, sklearn": ("curator", np.full(len(epochs), ran.pooled[LOSS])),
        "first party alone, sklearn": ("baseline", np.full(len(epochs), ran.first[LOSS])),
    }
    lines += [Line.of(name, y, epochs, dashed=True, meaning=meaning) for name, (meaning, y) in references.items()]
    title = "the paper's noise" if kind == "published" else "certified noise"
    return Panel(f"{ran.called}, {title}", "epochs of the run", "test loss", lines, yscale="log")


def forms(ran: Ran) -> Panel:
    lines = [
        Line.of(f"{form}, rho = {rho:g}", ran.admm(rho, form)[:, OBJECTIVE], dashed=form == "sharing", level=rho)
        for rho in ran.rhos
        for form in ("printed", "sharing")
    ]
    return Panel(ran.called, "epoch", "training objective", lines, yscale="log")


def grids(ran: list[Ran]) -> tuple[Grid, ...]:
    ends, levels = list[Row](), list[Row]()
    for data in ran:
        step, steps = data.sgd
        methods = {
            f"ADMM sharing, {len(steps)} epochs": data.admm()[-1],
            f"SGD, step {step:g}, {len(steps)} epochs": steps[-1],
            "pooled, sklearn": data.pooled,
            "first party alone, sklearn": data.first,
        }
        ends += [(data.called, method, *(float(value) for value in values)) for method, values in methods.items()]
        for kind, per in KINDS.items():
            for level, run in data.noisy(kind):
                best, name = run.best, f"{kind}, {level.epsilon:g} {per}"
                bounds = run.claimed[best], run.per_person or "none"
                reached = (spread_words(run.values[best, what]) for what in (LOSS, ACCURACY))
                levels.append((data.called, name, *bounds, run.epochs[best], *reached))
    columns = ("data", "method", "training objective", "test loss", "test accuracy")
    totals = ("claimed total for a column", "certified total for a person")
    headings = ("data", "noise, epsilon", *totals, "epochs", "test loss (range)", "accuracy (range)")
    return (
        Grid("ends", "Figures 1 and 2: where the curves end", columns, ends),
        Grid("noise", "Figure 3: noise levels, at the best of the epochs run", headings, levels),
    )
