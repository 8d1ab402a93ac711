"""What DP-ADMM's theorems bound, measured in a simulation beside the bounds, round by round.

Replicas are runs with noise of their own on the same records: the expectation is over noise alone. What a theorem
assumes of the run is checked on the same replicas.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job, train
from privadmm.engine.loop import View
from privadmm.engine.party import Local
from privadmm.errors import DivergedError
from privadmm.papers.dp_admm.bounds import Constants, corrected, published
from privadmm.papers.framework.optimum import Optimum, optimum, shares
from privadmm.privacy.mechanisms import Noise

Done = Callable[[int, int], None]


class Curves:
    """A callback that follows the averaged iterates of every replica, and how far the iterates themselves go."""

    def __init__(self, parties: InProcess, local: Local, best: Optimum, late: bool, done: Done) -> None:
        """late: average wt_i^1..wt_i^t for the objective (Theorem 4), else wt_i^0..wt_i^{t-1} (Theorem 3)."""
        self.parties, self.local, self.best, self.late, self.done = parties, local, best, late, done
        rows = local.public.origin(len(local.ids))
        self.before, self.after = (
            np.zeros_like(rows),
            np.zeros_like(rows),
        )  # sums of wt_i^0.., and of wt_i^1..
        self.last, self.mean = rows, np.zeros_like(rows[..., :1, :])
        self.gaps: list[Floats] = []
        self.violations: list[Floats] = []
        self.far, self.large = 0.0, 0.0  # the largest mean squares, over rounds and parties

    def __call__(self, view: View) -> None:
        t, wt = view.progress.round, self.parties.local_models()
        self.before, self.after = self.before + self.last, self.after + wt
        self.mean = self.mean + view.model[..., None, :]
        f = shares(self.local, (self.after if self.late else self.before) / t)
        self.gaps.append(f.sum(axis=-1) - len(self.local.ids) * self.best.value)
        self.violations.append(np.linalg.norm((self.after - self.mean) / t, axis=-1).sum(axis=-1))
        # The bound on round t uses the iterates before it.
        self.far = max(self.far, float(np.square(self.last - self.best.w).sum(axis=-1).mean(axis=0).max()))
        self.large = max(self.large, float(np.square(self.last).sum(axis=-1).mean(axis=0).max()))
        self.last = wt
        self.done(t, view.public.rounds)


def dp_admm(job: Job, shards: Shards, noise: Noise, seeds: int, beta: float, done: Done) -> dict[str, Any]:
    """Both readings of the theorem that goes with the job's step size, and the measured curve, for t = 1, 2, ..."""
    algorithm = job.algorithm
    assert isinstance(algorithm, DPADMM)
    many = Job(algorithm, replace(job.public, replicas=seeds), job.allowance)
    constants = Constants.of(algorithm, job.public, beta)
    parties = cluster(many, shards, noise)
    local = parties.workers[0].local
    assert isinstance(local, Local)
    best = optimum(local)
    curves = Curves(parties, local, best, constants.theorem == 4, done)
    train(many, parties, [curves])
    gaps, violations = np.array(curves.gaps), np.array(curves.violations)  # (rounds, seeds)
    measured = gaps + beta * violations
    if not np.isfinite(measured).all():
        raise DivergedError("the iterates ran away, and there is no curve to draw: raise D_w or rho")
    rounds = range(1, job.public.rounds + 1)
    error = measured.std(axis=1, ddof=1) / math.sqrt(seeds) if seeds > 1 else np.full(len(rounds), np.nan)
    printed, proved = ([bound(constants, t) for t in rounds] for bound in (published, corrected))
    sure = measured.mean(axis=1) - 2 * np.nan_to_num(error)
    return {
        "theorem": constants.theorem,
        "constants": constants.record,
        "optimum": {"value": best.value, "slack": best.slack, "norm": float(np.linalg.norm(best.w))},
        "rounds": list(rounds),
        "published": printed,
        "corrected": proved,
        "measured": measured.mean(axis=1).tolist(),
        "standard_error": error.tolist() if seeds > 1 else None,
        "gap": gaps.mean(axis=1).tolist(),
        "violation": violations.mean(axis=1).tolist(),
        "rounds_above_published": int(np.sum(sure > printed)),
        "rounds_above_corrected": int(np.sum(sure > proved)),
        "conditions": conditions(job, constants, best, curves),
        "deviations": deviations(job),
    }


def conditions(job: Job, c: Constants, best: Optimum, curves: Curves) -> list[dict[str, Any]]:
    """What the corrected bound needs of the records and of the run; where one fails, it is no bound."""
    found = [
        ("|w*| <= D_w", float(np.linalg.norm(best.w))),
        ("sqrt(E |wt_i^k - w*|^2) <= D_w for every party and round", math.sqrt(curves.far)),
    ]
    if c.theorem == 3 and job.public.regularizer.smooth.weight:
        found.append(("sqrt(E |wt_i^k|^2) <= D_w, beyond which S2 does not bound R'", math.sqrt(curves.large)))
    return [{"condition": words, "value": value, "limit": c.D_w, "holds": value <= c.D_w} for words, value in found]


def deviations(job: Job) -> list[str]:
    """Where this run is not the paper's, and what becomes of the theorem."""
    public, omega = job.public, job.public.scale(job.public.ids)[:, 0] / job.public.C
    found = [
        "D_w is declared; the paper estimates |w*| on private records",
        "the theorem is about averages over rounds; the model handed out is the last w^t",
        "sums over parties are the paper's; the objective of a run is their mean, 1/N of it",
    ]
    if np.ptp(omega) > 1e-12 or public.C != 1:
        found.append(
            "f_i carries C omega_i (omega_i = N m_i/n, [loss] C): every party has its own S1 and S3, and the paper's N "
            "times a constant is a sum over parties"
        )
    if public.regularizer.weight:
        found.append("[regularizer] weight is the paper's lambda/N; S2 and S4 include it")
    if (
        isinstance(job.algorithm, DPADMM)
        and job.algorithm.step_size == "nonsmooth"
        and public.regularizer.smooth.weight
    ):
        found.append("an l2 penalty has no bounded gradient: S2 is its bound on |w| <= D_w")
    if public.label_only:
        found.append("neighbours differ in one label: v_i covers that move, not the paper's 2 S1/m_i")
    if public.label_epsilon is not None:
        found.append("labels are randomised: f_i is the debiased loss of the reported labels, and w* its optimum")
    return found
