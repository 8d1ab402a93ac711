"""Figures of a fitted estimator: how it converged, what each release cost, and its coefficients."""

import copy
from typing import Any

import numpy as np

from privadmm.errors import ConfigError
from privadmm.estimators.account import account_of
from privadmm.estimators.coefficients import Coefficients
from privadmm.privacy.accounting import printed, spending, worst
from privadmm.privacy.events import Spent, merge
from privadmm.privacy.history import composed
from privadmm.runs.metrics import amount
from privadmm.runs.palette import LIGHT
from privadmm.runs.style import HEADING, SMALL, canvas, caption, finish, look

SHOWN = 20  # coefficients


def axes_of(ax: Any, title: str, height: float = 4.2) -> Any:
    """Set the title of the given axes, or of those of a new figure, which needs no display."""
    if ax is None:
        with look():
            figure = canvas(height=height)
            ax = figure.subplots()
            figure.supxlabel(caption("simulation"), fontsize=SMALL, color=LIGHT.muted)
    if not hasattr(ax, "plot"):
        raise ConfigError(f"ax must be matplotlib's Axes, or None for a figure of its own, not {ax!r}")
    ax.set_title(title, fontsize=HEADING)
    return ax


def convergence(fitted: Any, X: Any, y: Any, ax: Any) -> Any:
    """Draw by round the distance of the released weights from the last ones or, with X and y, the score on these."""
    steps = fitted.path_
    if len(steps) < 2:
        raise ConfigError("this method hands out its weights after the last round only, so there is no curve to draw")
    rounds, last = [number for number, _ in steps], steps[-1][1]
    if (X is None) != (y is None):
        raise ConfigError("give X and y, to draw the score on them, or neither")
    if X is None:
        size = max(float(np.linalg.norm([model.weights for model in last])), np.finfo(float).tiny)
        heights = [far(models, last) / size for _, models in steps]
        words = "distance from the last weights, relative"
    else:
        heights, words = [scored(fitted, models, X, y) for _, models in steps], "score on the rows given"
    ax = axes_of(ax, f"{fitted.jobs_[0].algorithm.name}: convergence")
    ax.plot(rounds, heights, color=LIGHT.certified if fitted.private_ else LIGHT.non_private)
    ax.set(xlabel="round", ylabel=words)
    finish(ax)
    return ax


def far(models: Any, last: Any) -> float:
    pairs = zip(models, last, strict=True)
    return float(np.linalg.norm([model.weights - final.weights for model, final in pairs]))


def scored(fitted: Any, models: Any, X: Any, y: Any) -> float:
    then = copy.copy(fitted)
    then.models_ = models
    return float(then.score(X, y))


def spends(fitted: Any) -> list[float]:
    """Epsilon of the worst party after each round of each class, including earlier fits of a warm start."""
    jobs, past = fitted.jobs_, fitted.history_[:-1]
    before: list[Spent] = list(composed(past)) if past else [()] * jobs[0].public.parties
    epsilons = list[float]()
    for job in jobs:
        now = before
        for _, spent in spending(job.plan, job.public.parties):
            now = [merge(earlier, more) for earlier, more in zip(before, spent, strict=True)]
            epsilons.append(worst(now, fitted.delta_))
        before = now
    return epsilons


def privacy(fitted: Any, ax: Any) -> Any:
    """Draw epsilon by round, and what the ledger allows and has counted, if there is one."""
    if not fitted.private_:
        raise ConfigError("this fit is not private, so there is no epsilon to draw: give epsilon and delta")
    epsilons = spends(fitted)
    ax = axes_of(ax, f"{fitted.jobs_[0].algorithm.name}: what was spent")
    label = f"this model, epsilon = {printed(epsilons[-1])}"
    ax.plot(
        range(len(epsilons) + 1),
        [0.0 if len(fitted.history_) == 1 else epsilons[0], *epsilons],
        color=LIGHT.certified,
        label=label,
    )
    if (account := account_of(fitted.ledger)) is not None:
        total = account.total()
        cost = f"{printed(total.epsilon)} at delta = {printed(total.delta, '.6g')}"
        words = f"the ledger after {amount(total.fits, 'fit')}, {cost}"
        ax.axhline(total.epsilon, color=LIGHT.muted, linestyle="--", linewidth=1, label=words)
        ax.axhline(total.budget, color=LIGHT.ink, linewidth=1, label=f"the ledger's budget, {total.budget:g}")
    ax.set(xlabel="round", ylabel=f"epsilon (delta = {printed(fitted.delta_, '.6g')})", ylim=(0, None))
    finish(ax)
    return ax


def bars(coefficients: Coefficients, ax: Any) -> Any:
    """Draw the largest coefficients, with whiskers that hold 95 % of the noise's draws."""
    sizes = np.abs(coefficients.values).max(axis=0)
    chosen = np.argsort(-sizes)[:SHOWN][::-1]
    title = "coefficients" if coefficients.linear else "coefficients, before rows are normalised"
    ax = axes_of(ax, title, 2 + len(chosen) / 4)
    height = 0.8 / len(coefficients.values)
    for number, row in enumerate(coefficients.values):
        at = np.arange(len(chosen)) + (number - (len(coefficients.values) - 1) / 2) * height
        spread = None if coefficients.noise is None else 1.96 * coefficients.noise[number, chosen]
        label = f"{coefficients.classes[number]} against the rest" if coefficients.classes else None
        ax.barh(at, row[chosen], height=height, xerr=spread, label=label, color=LIGHT.series(number), alpha=0.7)
    ax.set_yticks(np.arange(len(chosen)), [coefficients.names[j] for j in chosen])
    ax.axvline(0, color=LIGHT.muted, linewidth=1)
    if coefficients.noise is not None:
        ax.set_xlabel("value; whiskers: 95 % of what the noise alone does (estimated on invented rows)")
    finish(ax)
    return ax


class Rounds:
    """Callback that keeps the model of each round or, if these would be more than MOST numbers, of every n-th."""

    MOST = 1_000_000

    def __init__(self, model: Any, rounds: int, dim: int) -> None:
        self.model, self.every, self.kept = model, max(1, -(-rounds * dim // self.MOST)), list[tuple[int, Any]]()

    def __call__(self, view: Any) -> None:
        t = view.progress.round
        if (t % self.every == 0 or t == view.public.rounds) and np.isfinite(view.model).all():
            self.kept.append((t, self.model(view.progress)))


def by_round(kept: list[Rounds]) -> list[tuple[int, list[Any]]]:
    """Pair up the models of all classes, round by round."""
    together = zip(*(each.kept[::-1] for each in kept), strict=False)
    return [(step[0][0], [model for _, model in step]) for step in together][::-1]
