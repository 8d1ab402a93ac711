"""The DP-ADMM paper's simulations: Adult in 14 columns, 100 providers, and what is measured after every round.

A simulation draws 162 records for D_w, 21,000 to train on, 210 for each provider, and 9,000 to test on (Table II).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np

from privadmm.algorithms.admm_star import ADMMStar
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.pvp import PVP
from privadmm.data import adult
from privadmm.data.arrays import Floats
from privadmm.data.schema import Number
from privadmm.data.shards import Shards
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job
from privadmm.engine.loop import View
from privadmm.engine.party import Local
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import Logistic
from privadmm.optim.regularizers import L1, L2
from privadmm.papers.dp_admm.abreast import abreast
from privadmm.papers.framework.optimum import Optimum, optimum, shares
from privadmm.papers.framework.runs import Counting, accuracies, follow
from privadmm.privacy.accounting import delta_curve, moments_accountant, totals
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

PRETRAINING, TRAINING = 162, 21_000  # Table II; the rest, 9,000, is to test on
PROVIDERS, RHO, LAMBDA = 100, 1.0, 0.17  # section VI, Setup
TOLERANCE = 1e-6  # of every argmin, ours

Penalty = Literal["l1", "l2"]
Method = Literal["Algorithm 1", "Algorithm 2", "DP-ADMM"]
Noise = Literal["off", "published", "certified"]
Family = tuple[Penalty, Method, Noise, float]  # and delta: the curves of all epsilons
PENALTIES: tuple[Penalty, ...] = ("l1", "l2")


@dataclass(frozen=True)
class Case:
    """One curve. `epsilon` is the paper's for a round; certified noise costs in all the total that the paper gives."""

    penalty: Penalty
    method: Method
    noise: Noise
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Found:
    """The values of one curve: sums over providers, (rounds looked at, simulations), and accuracies (simulations,)."""

    objective: Floats  # sum_i f_i(mean of w_i) + |mean of w_i - mean of w|, means over the rounds so far
    loss: Floats  # sum_i mean loss of w
    accuracy: Floats  # of the last w, on the held-out records
    certified: float | None  # the exact total epsilon; None without noise
    alone: float | None  # the exact delta at epsilon = 0: the largest total variation between neighbours' transcripts


@dataclass(frozen=True)
class Ran:
    """All that was run."""

    curves: dict[Case, Found]
    known: dict[str, list[float]]  # see `references`
    work: dict[tuple[float, Method], float]  # passes over all records, by epsilon
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    rounds: int

    def of(self, penalty: Penalty, method: Method, noise: Noise, epsilon: float = 0.1, delta: float = 1e-3) -> Found:
        return self.curves[Case(penalty, method, noise, epsilon, delta)]

    def plain(self, penalty: Penalty) -> Found:
        return self.of(penalty, "Algorithm 1", "off")

    def total(self, epsilon: float, delta: float) -> float:
        """The total epsilon, as the paper counts."""
        return moments_accountant(epsilon, delta, self.rounds)


class Draw(NamedTuple):
    """The records of one simulation."""

    train: Shards
    test: Shards
    pretraining: Shards


@cache
def attributes() -> tuple[Floats, Floats]:
    """The complete rows of adult.data: 14 columns, each brought to [0, 1] by its declared range, and labels."""
    every = adult.load("raw")
    records = every.take(np.flatnonzero(every.columns["part"] == "train"))
    ends = [
        (column.low, column.high) if isinstance(column, Number) else (0, len(column.names("")) - 1)
        for column in adult.SCHEMA.columns.values()
    ]
    low, high = np.array(ends, dtype=float).T
    return np.clip((np.asarray(records.X) - low) / (high - low), 0.0, 1.0), records.y


@cache
def draw(seed: int) -> Draw:
    X, y = attributes()
    order = np.random.default_rng(seed).permutation(len(y))
    first, train, test = np.split(order, [PRETRAINING, PRETRAINING + TRAINING])
    providers = np.split(train, PROVIDERS)
    # Our reading of "normalised": rows longer than 1 are scaled down to 1.
    return Draw(*(Shards.build(X, y, rows, row_bound=1.0) for rows in (providers, [test], [first])))


def public(shards: Shards, penalty: Penalty, privacy: Target | NoPrivacy, rounds: int) -> Public:
    regularizer, star = (L1 if penalty == "l1" else L2)(LAMBDA / PROVIDERS), graphs.star(len(shards.sizes))
    facts = (shards.sizes, shards.dim, rounds, star, Logistic(), regularizer, privacy)
    return Public(*facts, weighting="parties")


def best(shards: Shards, penalty: Penalty) -> Optimum:
    return optimum(Local(public(shards, penalty, NoPrivacy(), 1), shards))


@cache
def reach(seed: int, penalty: Penalty) -> float:
    """D_w: the |w| of the classifier that the 162 records of pretraining give."""
    return float(np.linalg.norm(best(draw(seed).pretraining, penalty).w))


def job(case: Case, rounds: int, seed: int) -> Job:
    method: Algorithm = ADMMStar(RHO, TOLERANCE)
    privacy: Target | NoPrivacy = NoPrivacy()
    if case.method != "Algorithm 1":
        published, total = case.noise == "published", moments_accountant(case.epsilon, case.delta, rounds)
        calibration: Literal["published", "certified"] = "published" if published else "certified"
        privacy = Target(None if published else total, case.delta, Simulation.kind)
        own = case.epsilon if published else None
        step: Literal["smooth", "nonsmooth"] = "smooth" if case.penalty == "l2" else "nonsmooth"
        method = PVP(RHO, TOLERANCE, calibration, own)
        if case.method == "DP-ADMM":
            method = DPADMM(reach(seed, case.penalty), RHO, step, calibration, own)
    return Job(method, public(draw(seed).train, case.penalty, privacy, rounds))


def looked(rounds: int) -> list[int]:
    """Rounds after which something is measured: the first five, and every fifth."""
    return [t for t in range(1, rounds + 1) if t <= 5 or t % 5 == 0 or t == rounds]


class Look:
    """Measures the augmented objective of the averages, the loss and the accuracy of the global classifier."""

    def __init__(self, job: Job, records: Draw) -> None:
        self.local, self.records = Local(job.public, records.train), records
        self.own, self.whole = np.zeros(1), np.zeros(1)

    def __call__(self, view: View, parties: InProcess) -> Floats:
        """Returns (3, runs), for all runs abreast."""
        t, shards = view.progress.round, self.records.train
        w = view.model.reshape(-1, 1, shards.dim)
        copies = parties.local_models().reshape(len(shards.ids), -1, shards.dim)  # of each provider, one for each run
        self.own, self.whole = self.own + copies.swapaxes(0, 1), self.whole + w
        if t not in looked(view.public.rounds):
            return np.full((3, len(w)), np.nan)
        apart = np.linalg.norm((self.own - self.whole) / t, axis=-1)
        margins = shards.margins(np.broadcast_to(w, self.own.shape))
        losses = shards.sums(view.public.loss.value(margins, shards.y)) / shards.sizes
        objective = (shares(self.local, self.own / t) + apart).sum(axis=-1)
        return np.stack([objective, losses.sum(axis=-1), accuracies(self.records.test, w[:, 0])])


def curves(jobs: Sequence[Job], seed: int) -> Floats:
    """What `Look` measures of these jobs in one simulation, (rounds, 3, jobs)."""
    records = draw(seed)
    if isinstance(jobs[0].algorithm, DPADMM):
        many, shards, noise = abreast(jobs, records.train, seed)
        return follow(many, shards, 1, Look(jobs[0], records), noise=noise)
    return np.concatenate([follow(job, records.train, 1, Look(job, records), seed) for job in jobs], axis=-1)


def several(cases: Sequence[Case], rounds: int, simulations: int) -> dict[Case, Found]:
    """Run cases of one family several times. Every simulation has records and a D_w of its own: none is a replica."""
    jobs = [[job(case, rounds, seed) for case in cases] for seed in range(simulations)]
    seen = np.stack([curves(runs, seed) for seed, runs in enumerate(jobs)], axis=-1)[np.array(looked(rounds)) - 1]
    results = {}
    for number, case in enumerate(cases):
        (objective, loss, accuracy), this = seen[:, :, number].transpose(1, 0, 2), jobs[-1][number]
        spent = () if this.epsilon is None else set(totals(this.plan, PROVIDERS))
        alone = max((delta_curve(events)(0.0) for events in spent), default=None)
        results[case] = Found(objective, loss, accuracy[-1], this.epsilon, alone)
    return results


def references(simulations: int) -> dict[str, list[float]]:
    """The majority, the figures of the exact l2 optimum, and D_w, for every simulation."""
    rows = []
    for seed in range(simulations):
        train, test, _ = draw(seed)
        w = best(train, "l2").w
        loss = PROVIDERS * Logistic().value(train.margins(np.tile(w, (PROVIDERS, 1))), train.y).mean()
        majority = max(np.mean(test.y > 0), np.mean(test.y < 0))
        rows.append((majority, loss, accuracies(test, w), *(reach(seed, penalty) for penalty in PENALTIES)))
    names = ("majority", "loss", "accuracy", "D_w l1", "D_w l2")
    return dict(zip(names, np.array(rows, dtype=float).T.tolist(), strict=True))


def passes(case: Case, rounds: int) -> float:
    """Count how often a run reads all records: Table III without a clock, the same on every machine."""
    this = job(case, rounds, 0)
    counting: Any = Counting(this.public.loss)
    this = replace(this, public=replace(this.public, loss=counting))
    follow(this, draw(0).train, 1, lambda view, parties: np.zeros(1))
    return float(sum(counting.asked.values())) / TRAINING
