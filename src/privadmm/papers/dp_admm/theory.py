"""DP-ADMM's two utility theorems, as printed and as their proofs support them, beside a simulation.

Both bound, after t rounds, the expected distance from the optimum plus the weighted distance from consensus

    E sum_i ( f_i(wbar_i^t) - f_i(w*) + beta |wbar_i^t - wbar^t| )

of averaged iterates: wbar^t of w^1..w^t, wbar_i^t of wt_i^1..wt_i^t (Theorem 4) or of wt_i^0..wt_i^{t-1} (Theorem 3).
Party i has its own constants, S1 = C omega_i L and S3 = C omega_i c; with omega_i = 1 they are the paper's. Per
coordinate (rho + 1/eta) xi_i has the standard deviation v_i = z 2 S1/m_i in every round (Lemma 1). Printed:

    Theorem 3   sum_i sqrt(2) D_w G_i/sqrt(t)  + N (rho D_w^2 + beta^2/rho)/(2t),   G_i = S1 + S2
    Theorem 4   sum_i sqrt(2) D_w v_i/sqrt(t)  + N (rho D_w^2 + beta^2/rho)/(2t) + sum_i D_w^2 (S3 + S4)/(2t)

(the paper's 4 sqrt(ln(1.25/delta)) S1/(m_i epsilon) is sqrt(2) v_i). Three steps of the proofs do not hold as printed.

1. E |f' - (rho + 1/eta) xi|^2 is |f'|^2 + d v^2. Appendix C takes |f'|^2, so that Theorem 3 knows no noise, and
   Appendix E takes v^2 for d v^2, the square of one coordinate. With all d, and the sum over rounds as it is,
   h(t) = sum_{k=1}^t k^-1/2 <= 2 sqrt(t):

    Theorem 3   sum_i [ D_w (G_i + d v_i^2/G_i) h(t)/(2 sqrt(2) t) + D_w G_i/sqrt(2t) ]  + the terms in 1/t        (C3)
    Theorem 4   sum_i v_i D_w [ d h(t)/(2 sqrt(2) t) + 1/sqrt(2t) ]                      + the terms in 1/t        (C4)

2. sum_k (|w* - wt_i^k|^2 - |w* - wt_i^{k+1}|^2)/(2 eta^{k+1}) does not telescope while 1/eta grows. It is at most
   D_w^2/(2 eta^t) if E |w* - wt_i^k|^2 <= D_w^2 in every round, not only in the first: a condition on the run.
3. Theorem 3's averages are one round apart: its proof bounds beta |.| for the averages of rounds 1 to t.

The bounded quantity is measured by round over replicas, runs with noise of their own on the same records: its
expectation is over noise alone. What a theorem assumes about the run is checked on the same replicas.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job, train
from privadmm.engine.loop import View
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, DivergedError
from privadmm.papers.framework.optimum import Optimum, condition, measured_record, optimum, shares
from privadmm.params import check_positive
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Noise

Done = Callable[[int, int], None]


@dataclass(frozen=True)
class Constants:
    """The arguments of both theorems; arrays have a number for each party."""

    theorem: Literal[3, 4]
    S1: Floats
    rest: Floats  # S2, or S3 + S4
    v: Floats
    D_w: float
    rho: float
    beta: float
    dim: int

    @staticmethod
    def of(algorithm: DPADMM, public: Public, beta: float) -> "Constants":
        """Derive them from public facts and declared constants alone."""
        check_positive(beta=beta)
        target = public.privacy
        if isinstance(target, Target) and len(set(target.levels(public.rounds))) > 1:
            raise ConfigError(
                "Theorems 3 and 4 are about noise that is alike in all rounds: leave out [privacy] decay and profile"
            )
        scale, ids = public.scale(public.ids)[:, 0], public.ids
        S1, R = scale * public.loss.lipschitz, public.regularizer
        v = algorithm.ratio(public, 0)[ids, 0] * public.sensitivity * scale / public.sizes
        known = (v, algorithm.D_w, algorithm.rho, beta, public.dim)
        if algorithm.step_size == "smooth":
            return Constants(4, S1, scale * public.loss.smoothness + R.smoothness, *known)
        kinks = 0.0 if R.rest is None else R.rest.subgradient_bound(public.dim)
        return Constants(3, S1, np.full_like(S1, R.smooth.weight * algorithm.D_w + kinks), *known)

    @property
    def start(self) -> float:
        """t times the terms in 1/t that both theorems share."""
        return len(self.S1) * (self.rho * self.D_w**2 + self.beta**2 / self.rho) / 2

    @property
    def record(self) -> dict[str, object]:
        facts = {"D_w": self.D_w, "rho": self.rho, "beta": self.beta, "dim": self.dim, "S1": self.S1.tolist()}
        return {**facts, "S2" if self.theorem == 3 else "S3_plus_S4": self.rest.tolist(), "v": self.v.tolist()}


def published(c: Constants, t: int) -> float:
    """The right-hand side as the paper prints it."""
    if c.theorem == 3:
        slopes = math.sqrt(2) * c.D_w * float(np.sum(c.S1 + c.rest))
        return slopes / math.sqrt(t) + c.start / t
    noise = math.sqrt(2) * c.D_w * float(np.sum(c.v))
    return noise / math.sqrt(t) + (c.start + c.D_w**2 * float(np.sum(c.rest)) / 2) / t


def corrected(c: Constants, t: int) -> float:
    """(C3) or (C4): with the noise of all d coordinates."""
    h = float(np.sum(np.arange(1, t + 1) ** -0.5))
    if c.theorem == 3:
        G = c.S1 + c.rest
        steps = c.D_w * float(np.sum(G + c.dim * c.v**2 / G)) * h / (2 * math.sqrt(2) * t)
        return steps + c.D_w * float(np.sum(G)) / math.sqrt(2 * t) + c.start / t
    factor = c.dim * h / (2 * math.sqrt(2) * t) + 1 / math.sqrt(2 * t)
    return c.D_w * float(np.sum(c.v)) * factor + (c.start + c.D_w**2 * float(np.sum(c.rest)) / 2) / t


class Curves:
    """Callback that follows every replica's averaged iterates, and the largest norms of the iterates themselves."""

    def __init__(self, parties: InProcess, local: Local, best: Optimum, late: bool, done: Done) -> None:
        """With `late`, average wt_i^1..wt_i^t for the objective (Theorem 4), else wt_i^0..wt_i^{t-1} (Theorem 3)."""
        self.parties, self.local, self.best, self.late, self.done = parties, local, best, late, done
        rows = local.public.origin(len(local.ids))
        self.before, self.after = np.zeros_like(rows), np.zeros_like(rows)  # sums of wt_i^0.., and of wt_i^1..
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
    constants = Constants.of(algorithm, job.public, beta)
    many = Job(algorithm, replace(job.public, replicas=seeds), job.allowance)
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
    seen = measured_record(measured)
    printed, proved = ([bound(constants, t) for t in rounds] for bound in (published, corrected))
    sure = measured.mean(axis=1) - 2 * np.array(seen["standard_error"] or 0.0)
    return {
        "theorem": constants.theorem,
        "constants": constants.record,
        "optimum": {"value": best.value, "slack": best.slack, "norm": float(np.linalg.norm(best.w))},
        "rounds": list(rounds),
        "published": printed,
        "corrected": proved,
        **seen,
        "gap": gaps.mean(axis=1).tolist(),
        "violation": violations.mean(axis=1).tolist(),
        "rounds_above_published": int(np.sum(sure > printed)),
        "rounds_above_corrected": int(np.sum(sure > proved)),
        "conditions": [condition(words, value, constants.D_w) for words, value in assumed(constants, best, curves)],
        "deviations": deviations(algorithm, job.public),
    }


def assumed(c: Constants, best: Optimum, curves: Curves) -> Iterator[tuple[str, float]]:
    """Values that must be at most D_w for the corrected bound to hold."""
    yield "|w*| <= D_w", float(np.linalg.norm(best.w))
    yield "sqrt(E |wt_i^k - w*|^2) <= D_w for every party and round", math.sqrt(curves.far)
    if c.theorem == 3 and curves.local.public.regularizer.smooth.weight:
        yield "sqrt(E |wt_i^k|^2) <= D_w, beyond which S2 does not bound R'", math.sqrt(curves.large)


def deviations(algorithm: DPADMM, public: Public) -> list[str]:
    """How this run deviates from the paper's, and what that means for the theorem."""
    omega = public.scale(public.ids)[:, 0] / public.C
    texts = [
        "D_w is declared; the paper estimates |w*| on private records",
        "the theorem is about averages over rounds; the model handed out is the last w^t",
        "sums over parties are the paper's; the objective of a run is their mean, 1/N of it",
    ]
    if np.ptp(omega) > 1e-12 or public.C != 1:
        texts.append(
            "f_i carries C omega_i (omega_i = N m_i/n, [loss] C): every party has its own S1 and S3, and the paper's N "
            "times a constant is a sum over parties"
        )
    if public.regularizer.weight:
        texts.append("[regularizer] weight is the paper's lambda/N; S2 and S4 include it")
    if algorithm.step_size == "nonsmooth" and public.regularizer.smooth.weight:
        texts.append("an l2 penalty has no bounded gradient: S2 is its bound on |w| <= D_w")
    if public.label_only:
        texts.append("neighbours differ in one label: v_i covers that move, not the paper's 2 S1/m_i")
    if public.label_epsilon is not None:
        texts.append("labels are randomised: f_i is the debiased loss of the reported labels, and w* its optimum")
    return texts
