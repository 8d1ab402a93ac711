"""The runs of the paper on recycled ADMM: its methods, noise at equal claimed totals, and two controls.

R-ADMM and MR-ADMM make a pair of iterations from each release. Conventional ADMM with noise in the objective is R-ADMM
with even steps of length 0 (gamma = STILL); stopped after half the iterations it releases as much as R-ADMM.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.m_admm import MADMM
from privadmm.algorithms.mr_admm import MRADMM
from privadmm.data.arrays import Floats
from privadmm.engine.job import Job
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.papers.framework import nodes
from privadmm.papers.framework.nodes import DELTA, PUBLISHED, TOLERANCE, Seen
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

STILL = 1e300
RHO, GAMMA, GROWTH = 0.22, 0.5, 1.04
MR, R, ADMM, M = "MR-ADMM", "R-ADMM", "ADMM", "M-ADMM"
HALF, GROWING = "ADMM, half the rounds", "ADMM, half the rounds, growing penalty"


@dataclass(frozen=True)
class Plan:
    """One method: how fast its penalty grows, how short its even step is, and for how many releases it runs."""

    growth: float
    gamma: float
    rounds: int
    eta: float = 1.0  # times growth, in the first round
    inside: bool = False  # whether the noise is in the penalty, as in M-ADMM

    @property
    def iterations(self) -> list[int]:
        """The iterations after which it is measured: the odd ones, for a method that makes pairs."""
        pairs = self.gamma < STILL and not self.inside
        return [2 * t + 1 if pairs else t + 1 for t in range(self.rounds)]

    @property
    def method(self) -> MADMM | MRADMM:
        first = self.eta * self.growth
        if self.inside:
            return MADMM(eta=first, growth=self.growth, tolerance=TOLERANCE)
        return MRADMM(eta=first, growth=self.growth, gamma=self.gamma, tolerance=TOLERANCE)


def plans(pairs: int) -> dict[str, Plan]:
    """The methods and controls. M-ADMM's growth is not stated: its penalty ends where MR-ADMM's does."""
    return {
        MR: Plan(GROWTH, GAMMA, pairs),
        R: Plan(1.0, GAMMA, pairs),
        ADMM: Plan(1.0, STILL, 2 * pairs),
        M: Plan(GROWTH**0.5, STILL, 2 * pairs, inside=True),
        HALF: Plan(1.0, STILL, pairs),
        GROWING: Plan(GROWTH, STILL, pairs),
    }


@dataclass(frozen=True)
class Run:
    seen: Seen
    iterations: list[int]  # of the losses
    spent: Floats  # the total that the paper claims after each of them

    @property
    def last(self) -> Floats:
        return self.seen.last

    @property
    def error(self) -> Floats:
        return np.asarray(self.seen.error[-1])


def job(plan: Plan, privacy: Target | NoPrivacy, alpha: float | None = None, rho: float = RHO) -> Job:
    method = plan.method
    if alpha is not None:
        method = replace(method, calibration="published", alpha=alpha)
    return nodes.job(method, plan.rounds, rho / 5, privacy)


def published(plan: Plan, alpha: float, like: Plan | None, seeds: int) -> Run:
    """Run with noise exp(-alpha |e|), or with the noise whose claimed total is that of `like` with this alpha."""
    if like is not None:
        total = claim(job(like, PUBLISHED, alpha))
        alpha = claiming(lambda value: job(plan, PUBLISHED, value), total)
    this = job(plan, PUBLISHED, alpha)
    spent = np.cumsum([plan.method.claimed(this.public, t, alpha) for t in range(plan.rounds)], axis=0).max(axis=1)
    return Run(nodes.run(this, seeds), plan.iterations, spent)


def certified(plan: Plan, epsilon: float, seeds: int) -> Run:
    this = job(plan, Target(epsilon, DELTA, Simulation.kind))
    return Run(nodes.run(this, seeds), plan.iterations, np.array([]))


def claim(this: Job) -> float:
    """The total that the paper claims."""
    assert this.published is not None
    assert this.published.epsilon is not None
    return this.published.epsilon


def claiming(at: Callable[[float], Job], total: float) -> float:
    """The alpha for which the paper claims this total."""
    from scipy.optimize import brentq

    return float(brentq(lambda alpha: claim(at(alpha)) - total, 1e-6, 1e6, xtol=1e-9))


@dataclass(frozen=True)
class Apart(MRADMM):
    """Every party's penalty grows at a rate of its own, as in the paper's Figure 1(b)."""

    rates: tuple[float, ...] = ()

    def penalties(self, public: Public, t: int) -> Floats:
        return np.asarray(np.array(self.party_eta) * np.array(self.rates) ** (t + 1))


FIRST = (1.0, 1.03, 1.02, 0.8, 1.01)  # eta_1 to eta_5 of Figure 1(b)
RATES = (0.01, 0.005, 0.003, 0.015, 0.01)  # its q_2


def gammas(size: int, values: tuple[float, ...], pairs: int) -> dict[float, Seen]:
    """Figure 1(a): without noise, eta = 0.5; gamma = STILL for twice the rounds is conventional ADMM."""
    return {
        gamma: quiet(MRADMM(eta=0.5, gamma=gamma, tolerance=TOLERANCE), pairs * (2 if gamma == STILL else 1), size=size)
        for gamma in (*values, STILL)
    }


def speeds(steps: tuple[int, ...], pairs: int) -> dict[tuple[str, int], Seen]:
    """Figures 1(b) and 1(c): without noise, rates of each node's own, 1 + k q_2, and a rate for all, 1 + k/100."""
    seen = {}
    for k in steps:
        rates = tuple(1 + k * rate for rate in RATES)
        seen["apart", k] = quiet(Apart(gamma=GAMMA, tolerance=TOLERANCE, party_eta=FIRST, rates=rates), pairs)
        seen["alike", k] = quiet(Plan(1 + k / 100, GAMMA, pairs).method, pairs)
    return seen


def overfitting(rhos: tuple[float, ...], rounds: int) -> dict[float, Seen]:
    """Figure 2: conventional ADMM without noise."""
    return {rho: quiet(ADMMGraph(eta=1.0, tolerance=TOLERANCE), rounds, rho) for rho in rhos}


def quiet(method: Algorithm, rounds: int, rho: float = RHO, size: int = 5) -> Seen:
    """Run a method once, without noise."""
    return nodes.run(nodes.job(method, rounds, rho / size, NoPrivacy(), size), 1)
