"""DVP over a grid of alpha, with its paper's noise and with certified noise that costs alpha a round.

proof       the noise of the paper's proof for alpha (its box is not alpha-DP, and diverges)
certified   [algorithm] law at the total epsilon at which a single round, counted alone at [privacy] delta, costs alpha

What is measured is the paper's total empirical loss of every party's own f_p on its own records, C omega_p/B_p sum
loss, averaged over parties and over replicas with noise of their own; the labels are the true ones.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.algorithms.dvp import DVP
from privadmm.config import build
from privadmm.config.build import Prepared
from privadmm.config.file import Config
from privadmm.config.sections import PrivacyTable
from privadmm.data.arrays import Floats
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.loop import View
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.optim.losses import Debiased
from privadmm.papers.dvp.tradeoff import FitError, Weights, best, fit, measured_best
from privadmm.params import check_positive, check_whole
from privadmm.privacy.accounting import totals, worst
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs.compare import job_of

Done = Callable[[int, int], None]
CALIBRATIONS = ("proof", "certified")
CLOSE = 2e-4


@dataclass(frozen=True)
class Point:
    """One alpha: losses (rounds, seeds), or why there are none."""

    alpha: float
    epsilon: float | None = None
    losses: Floats | None = None
    problem: str | None = None

    def record(self, at: int) -> dict[str, Any]:
        found = None if self.losses is None else self.losses[at]
        error = None if found is None or len(found) < 2 else float(found.std(ddof=1) / math.sqrt(len(found)))
        return {
            "alpha": self.alpha,
            "epsilon_certified": self.epsilon,
            "loss": None if found is None else float(found.mean()),
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
    """Points, fit and best alphas of both calibrations, after each of these rounds (those of the config if empty)."""
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
        "weights": [weights.omega1, weights.omega2, weights.omega3, weights.omega4],
        "rounds": list(marks),
        "lines": lines,
    }


def checked(config: Config, alphas: Sequence[float], rounds: Sequence[int]) -> PrivacyTable:
    """The [privacy] of the runs: their own delta, and no figure of the file's that alpha stands for."""
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
    for number, alpha in enumerate(alphas):
        check_positive(**{f"alphas[{number}]": alpha})
    for number, mark in enumerate(rounds):
        check_whole(**{f"rounds[{number}]": mark})
    if len(alphas) < 4:
        raise ConfigError(f"a curve of three constants needs four alphas or more, not {len(alphas)}")
    return replace(config.privacy, epsilon=None, party_epsilon=None, budget=None)


def point(
    config: Config, prepared: Prepared, calibration: str, alpha: float, seeds: int, marks: Sequence[int]
) -> Point:
    try:
        job = (paper if calibration == "proof" else certified)(config, prepared, alpha)
        found = Point(alpha, job.epsilon)
        with np.errstate(over="ignore", invalid="ignore"):
            losses = measured(job, prepared, config.run.seed or 0, seeds, marks)
    except ConfigError:
        raise  # whatever alpha is
    except PrivadmmError as error:
        return Point(alpha, problem=str(error))
    if not np.isfinite(losses).all():
        return replace(found, problem="the iterates ran away")
    return replace(found, losses=losses)


def paper(config: Config, prepared: Prepared, alpha: float) -> Job:
    dvp: DVP = config.algorithm.parameters
    return job_of(
        config, prepared, replace(dvp, calibration="proof", alpha=alpha, party_alpha=None, negative_phi=False)
    )


def certified(config: Config, prepared: Prepared, alpha: float) -> Job:
    """The config's job, with certified noise of which one round costs alpha."""
    dvp: DVP = replace(config.algorithm.parameters, calibration="certified", alpha=None, party_alpha=None)
    own = config.privacy
    assert own is not None
    return costing(lambda total: job_of(replace(config, privacy=replace(own, epsilon=total)), prepared, dvp), alpha)


def costing(at: Callable[[float], Job], alpha: float) -> Job:
    """Of the jobs by total epsilon, the one whose first round costs alpha, to a relative 1e-3 and from below."""
    from scipy.optimize import brentq

    def above(log: float) -> float:
        return math.log(one_round(at(math.exp(log))) / alpha)

    low = math.log(alpha)  # several rounds cost at least as much as one of them
    high = low
    while above(high) < -CLOSE and high < low + 20:
        low, high = high, high + 1
    return at(math.exp(high if high == low else brentq(above, low, high, xtol=CLOSE) - 2 * CLOSE))


def one_round(job: Job) -> float:
    """What the first round alone is certified to cost the worst party."""
    assert job.delta is not None
    return worst(totals({(0, 0): job.plan[(0, 0)]}, job.public.parties), job.delta)


def measured(job: Job, prepared: Prepared, seed: int, seeds: int, marks: Sequence[int]) -> Floats:
    """The parties' mean loss after these rounds, (rounds, seeds)."""
    public, shards = job.public, prepared.shards
    loss = public.loss.loss if isinstance(public.loss, Debiased) else public.loss
    weight = public.scale(shards.ids)[:, 0] / shards.sizes
    many = Job(job.algorithm, replace(public, replicas=seeds), None)
    parties, found = cluster(many, shards, Simulation(seed)), list[Floats]()

    def watch(view: View) -> None:
        if view.progress.round in marks:
            losses = loss.value(shards.margins(parties.local_models()), shards.y)
            found.append((weight * shards.sums(losses)).mean(axis=-1))

    train(many, parties, [watch])
    return np.array(found)


def read_off(
    calibration: str, points: Sequence[Point], marks: Sequence[int], weights: Weights
) -> Iterator[dict[str, Any]]:
    """The fit and the best alphas after each round: by measured losses, and by the fit where it is good."""
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
            "fit": curve.record,
            "best_measured": measured_best(alphas, losses, weights),
            "best_fitted": best(curve, weights, alphas[0], alphas[-1]) if curve.good else None,
        }
