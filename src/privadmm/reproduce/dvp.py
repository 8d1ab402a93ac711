"""Dual variable perturbation (Zhang & Zhu), section 5: logistic regression on Adult, rho = 10^-2.5, C^R = 1750.

The paper's Figure 2 draws the parties' mean empirical loss C^R/B_p sum loss(f_p(t)) by round, for several alpha.
"""

import functools
from typing import Any

import numpy as np

from privadmm import graphs
from privadmm.algorithms.dvp import DVP
from privadmm.data import adult, splits
from privadmm.data.shards import Shards
from privadmm.job import Job
from privadmm.losses import Logistic
from privadmm.phases import Floats, Public
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Simulation
from privadmm.regularizers import L2
from privadmm.reproduce.bench import Failed, Setting, Task
from privadmm.reproduce.runs import follow, own_losses
from privadmm.reproduce.study import Check, Figure, Line, Panel, Parameter, Spread, Study, claim

NAME, TITLE = "dvp", "Dual variable perturbation"
C, RHO, PARTIES = 1750.0, 10**-2.5, 10
ALPHAS = (0.05, 0.1, 0.3, 1.0)


@functools.cache
def records() -> Shards:
    found = adult.load("onehot")
    held = splits.gather(found.X, splits.even(len(found), PARTIES, 0), PARTIES)
    return Shards.build(found.X, found.y, held, row_bound=adult.SCHEMA.row_bound)


def job(calibration: str, alpha: float, rounds: int) -> Job:
    shards = records()
    method = DVP(eta=1.0, tolerance=1e-6, calibration=calibration, alpha=alpha)  # type: ignore[arg-type]
    target = Target(None, 1e-6, Simulation.kind)
    public = Public(
        sizes=shards.sizes,
        dim=shards.dim,
        rounds=rounds,
        graph=graphs.random(PARTIES, 13),
        loss=Logistic(),
        regularizer=L2(RHO),
        privacy=target,
        C=C,
    )
    return Job(method, public)


def losses(calibration: str, alpha: float, rounds: int, seeds: int) -> Floats:
    """The parties' mean loss after each round, (rounds, seeds)."""
    this = job(calibration, alpha, rounds)
    return follow(
        this,
        records(),
        seeds,
        lambda view, parties: own_losses(this, records(), parties.local_models()).mean(axis=-1),
    )


def tasks(setting: Setting) -> list[Task]:
    rounds = 10 if setting.quick else 100
    return [
        Task(
            (kind, alpha),
            losses,
            (kind, alpha, rounds, setting.seeds),
            f"{kind} noise, alpha = {alpha:g}",
            may_fail=True,
        )
        for kind in ("box", "proof")
        for alpha in ALPHAS
    ]


def study(setting: Setting, results: dict[Any, Any]) -> Study:
    lines = tuple(
        Line(
            f"alpha = {alpha:g}",
            range(1, len(results["proof", alpha]) + 1),
            Spread.of(results["proof", alpha]),
        )
        for alpha in ALPHAS
    )
    last = [float(np.mean(results["proof", alpha][-1])) for alpha in ALPHAS]
    checks: list[Check] = [
        claim(
            "Figure 2: a larger alpha ends with a smaller loss",
            "falls with alpha",
            ", ".join(f"{value:.4g}" for value in last),
            bool(np.all(np.diff(last) < 0)),
        ),
    ]
    refused = results["box", ALPHAS[0]]
    seen = refused.message if isinstance(refused, Failed) else "it ran"
    checks.append(
        claim("the algorithm box can be run", "converges", seen, not isinstance(refused, Failed), seen)
    )
    return Study(
        NAME,
        TITLE,
        (Parameter("C^R", "1750", True), Parameter("rho", "10^-2.5", True)),
        tuple(checks),
        (
            Figure(
                "figure-2",
                "Figure 2: loss by round",
                (Panel("the proof's noise", "round", "empirical loss", lines),),
            ),
        ),
    )
