"""The trade-off between privacy and accuracy in the dual variable perturbation paper (section 5; docs/theory.md).

alpha is the privacy of one round. The loss after some rounds, averaged over noise, is fitted by

    L_acc(alpha) = c4 exp(-c5 alpha) + c6,    c4, c5, c6 >= 0                                              (1)

and set against the paper's utility of privacy, with its weights omega_p1..omega_p4 (0.02, 6, 9, 1 below its Figure 3):

    U_priv(alpha) = omega1 ln( omega2 / (omega3 alpha + omega4 alpha^2) )                                  (2)

The paper leaves the choice to the reader. Here the best alpha has the largest U_priv(alpha) - loss: among the alphas
that were run, by measured losses (`measured_best`), and between them, by a good fit (`best`). (2) is unbounded at 0, so
the best alpha may be an end of the range; `where` says so: such an optimum is the grid's, not the method's.

`tradeoff` runs DVP over a grid of alpha with two kinds of noise:

proof       the noise of the paper's proof for alpha (its box is not alpha-DP, and diverges)
certified   [algorithm] law at the total epsilon at which a single round, counted alone at [privacy] delta, costs alpha

It measures the paper's total empirical loss of every party's own f_p on its own records, C omega_p/B_p sum loss,
averaged over parties and over replicas with noise of their own; the labels are the true ones.
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np

from privadmm.algorithms.dvp import DVP
from privadmm.config import build
from privadmm.config.build import Prepared
from privadmm.config.file import Config
from privadmm.config.sections import PrivacyTable
from privadmm.data.arrays import Floats
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job
from privadmm.engine.loop import View
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.optim.losses import Debiased
from privadmm.papers.framework.nodes import one_round
from privadmm.papers.framework.runs import follow, own_losses
from privadmm.params import check_nonnegative, check_positive, check_whole
from privadmm.runs.compare import job_of

WEIGHTS = (0.02, 6.0, 9.0, 1.0)  # omega_p1 to omega_p4 below the paper's Figure 3
TIGHT = {"ftol": 1e-13, "xtol": 1e-13, "gtol": 1e-13}
GOOD_R2, GOOD_OFF = 0.9, 0.1  # the least R^2 and the largest relative error of a good fit
ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # the paper names 0.3 alone
CALIBRATIONS = ("proof", "certified")
CLOSE = 2e-4
Done = Callable[[int, int], None]


class FitError(PrivadmmError):
    """The losses do not follow the paper's curve: there is no trade-off to read off it."""


@dataclass(frozen=True)
class Fit:
    """The curve (1), the share r2 of the losses' variance that it explains, and its largest relative error."""

    c4: float
    c5: float
    c6: float
    r2: float
    off: float

    def __call__(self, alpha: Floats) -> Floats:
        return model(alpha, self.c4, self.c5, self.c6)

    @property
    def good(self) -> bool:
        """Whether the losses follow the curve; if not, neither its constants nor its best alpha mean anything."""
        return self.r2 >= GOOD_R2 and self.off <= GOOD_OFF


@dataclass(frozen=True)
class Weights:
    """omega_p1 to omega_p4 of (2)."""

    omega1: float
    omega2: float
    omega3: float
    omega4: float

    def __post_init__(self) -> None:
        check_positive(omega1=self.omega1, omega2=self.omega2, omega3=self.omega3)
        check_nonnegative(omega4=self.omega4)

    def privacy(self, alpha: Floats) -> Floats:
        """(2)"""
        return self.omega1 * np.log(self.omega2 / (self.omega3 * alpha + self.omega4 * alpha**2))


def fit(alphas: Sequence[float], losses: Sequence[float], what: str = "the losses") -> Fit:
    """Fit (1) by least squares, from several first guesses; `what` opens the message of a FitError."""
    from scipy.optimize import OptimizeWarning, curve_fit

    x, y = np.array(alphas, dtype=float), np.array(losses, dtype=float)
    if len(set(alphas)) < 4:
        raise ConfigError(f"a curve of three constants needs four alphas or more, not {len(set(alphas))}")
    if not np.isfinite(y).all():
        raise FitError(f"{what} are not finite: the iterates ran away; leave out the smallest alphas")
    spread = float(np.sum((y - y.mean()) ** 2))
    if spread <= 1e-24 * float(np.sum(y**2)):
        raise FitError(f"{what} do not change with alpha, so nothing is traded: try alphas further apart")
    fits: list[tuple[float, Floats]] = []
    for c5 in 1 / np.unique(x):
        guess = (max(float(np.ptp(y)), 1e-12), float(c5), max(float(y.min()), 0.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizeWarning)  # of covariances, which are not used
            try:
                c, _ = curve_fit(model, x, y, p0=guess, bounds=(0, np.inf), maxfev=20_000, **TIGHT)
            except (RuntimeError, ValueError):
                continue
        fits.append((float(np.sum((model(x, *c) - y) ** 2)), c))
    if not fits:
        raise FitError(f"{what} could not be fitted by c4 exp(-c5 alpha) + c6: try other alphas, or more seeds")
    left, (c4, c5, c6) = min(fits, key=lambda squares: squares[0])
    r2 = 1 - left / spread
    if not r2 > 1e-6:
        raise FitError(
            f"{what} do not fall as alpha grows: c4 exp(-c5 alpha) + c6 explains nothing of them. Try alphas further "
            "apart, or more seeds"
        )
    off = float(np.max(np.abs(model(x, c4, c5, c6) - y) / np.maximum(np.abs(y), 1e-12)))
    return Fit(float(c4), float(c5), float(c6), r2, off)


def model(alpha: Floats, c4: float, c5: float, c6: float) -> Floats:
    return np.asarray(c4 * np.exp(-c5 * alpha) + c6)


def optimum(alpha: float, loss: float, weights: Weights, first: bool, last: bool) -> dict[str, Any]:
    """Record a best alpha, and whether it is at an end of the range that was searched."""
    privacy = float(weights.privacy(np.array(alpha)))
    return {
        "alpha": alpha,
        "where": "smallest" if first else "largest" if last else "inside",
        "loss": loss,
        "privacy_utility": privacy,
        "utility": privacy - loss,
    }


def measured_best(alphas: Sequence[float], losses: Sequence[float], weights: Weights) -> dict[str, Any]:
    """Choose the alpha with the largest U_priv - measured loss among those that were run, in rising order."""
    at = int(np.argmax(weights.privacy(np.array(alphas, dtype=float)) - np.array(losses, dtype=float)))
    return optimum(float(alphas[at]), float(losses[at]), weights, at == 0, at == len(alphas) - 1)


def best(curve: Fit, weights: Weights, low: float, high: float) -> dict[str, Any]:
    """Choose the alpha in [low, high] with the largest U_priv - L_acc: of a fine grid, then of its neighbourhood."""
    from scipy.optimize import minimize_scalar

    def cost(log: float) -> float:
        alpha = np.array(math.exp(log))
        return float(curve(alpha) - weights.privacy(alpha))

    grid = np.linspace(math.log(low), math.log(high), 2001)
    at = int(np.argmin([cost(log) for log in grid]))
    around = (grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)])
    inside = float(minimize_scalar(cost, bounds=around, method="bounded", options={"xatol": 1e-12}).x)
    log = min((inside, *around), key=cost)
    alpha = min(max(math.exp(log), low), high)
    return optimum(alpha, float(curve(np.array(alpha))), weights, log <= grid[0], log >= grid[-1])


@dataclass(frozen=True)
class Point:
    """One alpha: losses (rounds, seeds), or why there are none."""

    alpha: float
    epsilon: float | None = None
    losses: Floats | None = None
    problem: str | None = None

    def record(self, at: int) -> dict[str, Any]:
        seeds = None if self.losses is None else self.losses[at]
        error = None if seeds is None or len(seeds) < 2 else float(seeds.std(ddof=1) / math.sqrt(len(seeds)))
        return {
            "alpha": self.alpha,
            "epsilon_certified": self.epsilon,
            "loss": None if seeds is None else float(seeds.mean()),
            "standard_error": error,
            "problem": self.problem,
        }


def tradeoff(
    config: Config,
    alphas: Sequence[float],
    seeds: int,
    rounds: Sequence[int],
    weights: Weights,
    done: Done = lambda ran, of: None,
) -> dict[str, Any]:
    """Record points, fit and best alphas of both calibrations, after each of these rounds (the config's if empty)."""
    grid, marks = tuple(sorted(set(alphas))), tuple(sorted(set(rounds))) or (config.algorithm.rounds,)
    privacy = checked(config, grid, marks)
    check_whole(seeds=seeds)
    config = replace(config, privacy=privacy, algorithm=replace(config.algorithm, rounds=marks[-1]))
    prepared, ran, lines = build.prepare(config), 0, []
    for calibration in CALIBRATIONS:
        points = []
        for alpha in grid:
            points.append(point(config, prepared, calibration, alpha, seeds, marks))
            done(ran := ran + 1, len(CALIBRATIONS) * len(grid))
        lines += list(read_off(calibration, points, marks, weights))
    return {
        "algorithm": DVP.name,
        "delta": privacy.delta,
        "seeds": seeds,
        "weights": list(astuple(weights)),
        "rounds": list(marks),
        "lines": lines,
    }


def checked(config: Config, alphas: Sequence[float], rounds: Sequence[int]) -> PrivacyTable:
    """The [privacy] of the runs: the config's, without the budgets that alpha replaces."""
    if not isinstance(config.algorithm.parameters, DVP):
        raise ConfigError(
            f"{config.path}: the trade-off is the dvp paper's, and [algorithm] name is {config.algorithm.name!r}; "
            "give a config of dvp, such as examples/dvp.toml"
        )
    if config.run.mode != "simulation":
        raise ConfigError(f'{config.path}: a trade-off is measured on records: set [run] mode = "simulation"')
    if config.privacy is None:
        raise ConfigError(f"{config.path}: [privacy] is missing; the certified noise needs its delta")
    if config.privacy.decay != 1 or config.privacy.profile:
        raise ConfigError(f"{config.path}: alpha is the same in all rounds here: leave out [privacy] decay and profile")
    check_positive(**{f"alphas[{number}]": alpha for number, alpha in enumerate(alphas)})
    check_whole(**{f"rounds[{number}]": mark for number, mark in enumerate(rounds)})
    if len(alphas) < 4:
        raise ConfigError(f"a curve of three constants needs four alphas or more, not {len(alphas)}")
    return replace(config.privacy, epsilon=None, party_epsilon=None, budget=None)


def point(
    config: Config, prepared: Prepared, calibration: str, alpha: float, seeds: int, marks: Sequence[int]
) -> Point:
    try:
        job = (paper if calibration == "proof" else certified)(config, prepared, alpha)
        losses = measured(job, prepared, config.run.seed or 0, seeds, marks)
    except ConfigError:
        raise  # it does not depend on alpha
    except PrivadmmError as error:
        return Point(alpha, problem=str(error))
    if not np.isfinite(losses).all():
        return Point(alpha, job.epsilon, problem="the iterates ran away")
    return Point(alpha, job.epsilon, losses)


def paper(config: Config, prepared: Prepared, alpha: float) -> Job:
    dvp: DVP = config.algorithm.parameters
    dvp = replace(dvp, calibration="proof", alpha=alpha, party_alpha=None, negative_phi=False)
    return job_of(config, prepared, dvp)


def certified(config: Config, prepared: Prepared, alpha: float) -> Job:
    """The config's job with certified noise, one round of which costs alpha."""
    dvp: DVP = replace(config.algorithm.parameters, calibration="certified", alpha=None, party_alpha=None)
    own = config.privacy
    assert own is not None
    return costing(lambda total: job_of(replace(config, privacy=replace(own, epsilon=total)), prepared, dvp), alpha)


def costing(at: Callable[[float], Job], alpha: float) -> Job:
    """Find the job whose first round costs alpha, by its total epsilon, to a relative 1e-3 and from below."""
    from scipy.optimize import brentq

    def above(log: float) -> float:
        return math.log(one_round(at(math.exp(log))) / alpha)

    low = math.log(alpha)  # several rounds cost at least as much as one of them
    high = low
    while above(high) < -CLOSE and high < low + 20:
        low, high = high, high + 1
    return at(math.exp(high if high == low else brentq(above, low, high, xtol=CLOSE) - 2 * CLOSE))


def measured(job: Job, prepared: Prepared, seed: int, seeds: int, marks: Sequence[int]) -> Floats:
    """The parties' mean loss after these rounds, (rounds, seeds)."""
    loss, shards = job.public.loss, prepared.shards
    honest = replace(job.public, loss=loss.loss) if isinstance(loss, Debiased) else job.public

    def look(view: View, parties: InProcess) -> Floats:
        return np.asarray(own_losses(honest, shards, parties.local_models()).mean(axis=-1))

    return follow(Job(job.algorithm, job.public), shards, seeds, look, seed, at=marks)


def read_off(
    calibration: str, points: Sequence[Point], marks: Sequence[int], weights: Weights
) -> Iterator[dict[str, Any]]:
    """Records of the fit and the best alphas after each round: by measured losses, and by the fit if it is good."""
    good = [point for point in points if point.losses is not None]
    if len(good) < 4:
        lost = "; ".join(f"alpha = {p.alpha:g}: {p.problem}" for p in points if p.problem is not None)
        raise FitError(f"{calibration}: only {len(good)} alphas could be run, and a fit needs four ({lost})")
    for at, mark in enumerate(marks):
        alphas = [point.alpha for point in good]
        losses = [float(point.losses[at].mean()) for point in good if point.losses is not None]
        curve = fit(alphas, losses, f"{calibration}, after round {mark}: the losses")
        yield {
            "calibration": calibration,
            "round": mark,
            "points": [point.record(at) for point in points],
            "fit": asdict(curve),
            "best_measured": measured_best(alphas, losses, weights),
            "best_fitted": best(curve, weights, alphas[0], alphas[-1]) if curve.good else None,
        }
