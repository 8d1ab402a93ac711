"""Training to a given distance from the optimum: ADMM over ten parties against one fit of the pooled records."""

import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from scipy.optimize import fmin_l_bfgs_b
from scipy.special import expit

from privadmm.algorithms.admm_star import ADMMStar
from privadmm.config import build
from privadmm.config.file import read
from privadmm.data.arrays import Floats
from privadmm.data.moments_map import Map, moments
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.loop import View
from privadmm.engine.party import Local
from privadmm.engine.phases import features
from privadmm.optim.losses import HalfLogistic
from privadmm.papers.bench.workload import (
    Agreement,
    Floor,
    Goal,
    Line,
    Part,
    Ready,
    Reference,
    Workload,
    below,
    workload,
)
from privadmm.papers.bench.workloads import problems
from privadmm.papers.bench.workloads.commands import example, no_example
from privadmm.papers.framework.optimum import optimum
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs import metrics

CAP = 2000  # rounds
GRID = (1.0, 3.0, 10.0, 30.0)  # penalties of dask-glm, on summed losses
# C, the weight that goes with it, and our rho and relaxation: to come near the optimum, and very near (below NEAR).
SETTINGS = {
    1.0: (1e-3, (0.0008, 1.2), (0.003, 1.6)),
    1750.0: (0.044, (0.21, 1.5), (1.3, 1.7)),
}
NEAR = 1e-7
SOLVERS = ("newton-cg", "newton-cholesky", "lbfgs")
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


class ReachedError(Exception):
    """The gap is small enough."""


@dataclass(frozen=True)
class Fit:
    """C mean(loss) + weight/2 |w|^2 on Adult, and how near to its optimum a fit has to come, relative to it."""

    sparse: bool
    C: float
    gap: float
    records: int | None = None  # all, if None

    @cached_property
    def shards(self) -> Shards:
        return problems.census(self.sparse, records=self.records)

    @cached_property
    def pool(self) -> tuple[Any, Floats]:
        from scipy.sparse import csr_array

        parties = problems.apiece(self.shards)
        X = np.concatenate([A for A, _ in parties])
        return csr_array(X) if self.sparse else X, np.concatenate([y for _, y in parties])

    @cached_property
    def best(self) -> float:
        return optimum(Local(self.job(1).public, self.shards)).value

    @property
    def weight(self) -> float:
        return SETTINGS[self.C][0]

    def job(self, rounds: int) -> Job:
        weight, loose, close = SETTINGS[self.C]
        rho, relaxation = loose if self.gap > NEAR else close
        algorithm = ADMMStar(rho, 1e-2 * self.C * self.gap**0.5, relaxation)
        return Job(algorithm, problems.public(self.shards, rounds, weight=weight, C=self.C))

    def off(self, w: Floats) -> float:
        """How far weights are from the optimum, relative to it."""
        X, y = self.pool
        value = self.C * float(np.mean(np.logaddexp(0, -y * (X @ w)))) + self.weight / 2 * float(w @ w)
        return value / self.best - 1

    def trained(self, job: Job) -> Floats:
        return weights(job, train(job, cluster(job, self.shards, Simulation(0))))

    def rounds(self) -> int:
        """After how many rounds ADMM is near enough; found before the clock starts."""
        reached = list[int]()

        def watch(view: View) -> None:
            if self.off(view.model) <= self.gap:
                reached.append(view.progress.round)
                raise ReachedError

        job = self.job(CAP)
        try:
            train(job, cluster(job, self.shards, Simulation(0)), [watch])
        except ReachedError:
            return reached[0]
        raise RuntimeError(f"ADMM is not within {self.gap:g} of the optimum after {CAP} rounds")

    def sklearn(self, X: Any, solver: str, tol: float, steps: int = 10_000) -> tuple[Floats, int]:
        """The weights, and how many steps the solver took."""
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        C = self.C / (len(self.pool[1]) * self.weight)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # near enough is what `off` says
            model = LogisticRegression(C=C, solver=solver, tol=tol, fit_intercept=False, max_iter=steps)
            model.fit(X, self.pool[1])
        return np.asarray(model.coef_[0]), int(model.n_iter_[0])

    def reference(self) -> Callable[[], Floats]:
        """The fastest of scikit-learn's fits that come near enough, each with the fewest steps that do."""
        X, _ = self.pool
        dense = X.toarray() if self.sparse else X
        best, fastest = None, math.inf
        for solver in SOLVERS:
            on = dense if solver == "newton-cholesky" else X
            tried = ((tol, *self.sklearn(on, solver, tol)) for tol in TOLERANCES)
            tol, steps = next(((tol, steps) for tol, w, steps in tried if self.off(w) <= self.gap), (None, 0))
            if tol is None:
                continue
            while steps > 1 and self.off(self.sklearn(on, solver, tol, steps - 1)[0]) <= self.gap:
                steps -= 1
            begin = time.process_time()
            self.sklearn(on, solver, tol, steps)
            if (took := time.process_time() - begin) < fastest:
                best, fastest = (on, solver, tol, steps), took
        if best is None:
            raise RuntimeError(f"no solver of scikit-learn comes within {self.gap:g} of the optimum")
        return lambda: self.sklearn(*best)[0]


WEIGHT = {
    1.0: "",
    1750.0: "The weight of the regulariser, 0.044, flatters us: with the 0.003 of the workloads `rounds-...`, ADMM "
    "was not within 1e-8 after 2,000 rounds with the penalty that was tried.",
}


def fit(sparse: bool, C: float, gap: float) -> Workload:
    def make(quick: bool) -> Ready:
        this = Fit(sparse, C, 100 * gap, 8000) if quick else Fit(sparse, C, gap)
        rounds = this.rounds()
        job, size = this.job(rounds), problems.size(this.shards)
        sides = {"sklearn": Reference(this.reference(), below(this.gap, this.off))}
        return Ready(
            lambda: this.trained(job),
            sides,
            Floor(rounds * size, rounds * 4.0 * this.shards.cells),
            data=size,
            full=not quick,
            needed=problems.solves(job, this.shards, 1),
        )

    stored = "by schema" if sparse else "dense"
    make.__doc__ = f"""ADMM over 10 parties to {gap:g} of the optimum, Adult {stored}, C = {C:g}.

    Fair: the reference sees all records in one place, which parties cannot allow; of scikit-learn's solvers it is the
    fastest that comes as near, with the loosest tolerance, of powers of ten, and the fewest steps for which it does.
    Our penalty, relaxation and tolerance were tuned, too, about twenty settings; the number of rounds is the least that
    suffices, found before the clock starts as the solver's steps are. {WEIGHT[C]}
    """
    goal = Goal("slower", 3.0 if gap > NEAR else 4.0)
    name = f"pooled-{'schema' if sparse else 'dense'}-{C:g}-{gap:.0e}".replace("e-0", "e-")
    return Workload(name, make, (Line("sklearn", "the best pooled scikit-learn fit", goal),))


FITS = tuple(
    fit(sparse, C, gap) for sparse, C in ((False, 1750.0), (True, 1750.0), (True, 1.0)) for gap in (1e-6, 1e-8)
)


class DaskGLM:
    """The ADMM of dask-glm 0.4.0 (`algorithms.admm`, `local_update`) on numpy arrays, without its scheduler.

    It minimises the sum of losses + lam/2 |w|^2. Local fits by fmin_l_bfgs_b with its default tolerance, maxiter=200
    and maxfun=250, value and gradient by separate calls, as there.
    """

    def __init__(self, parties: list[tuple[Floats, Floats]], lam: float, rho: float) -> None:
        self.parties, self.lam, self.rho = [(A, (y + 1) / 2) for A, y in parties], lam, rho

    def iterates(self) -> Iterator[Floats]:
        rho, n, p = self.rho, len(self.parties), self.parties[0][0].shape[1]
        z, u, betas = np.zeros(p), np.zeros((n, p)), np.ones((n, p))

        def f(beta: Floats, X: Floats, y: Floats, z: Floats, u: Floats) -> float:
            m = X @ beta
            return float(np.sum(np.log1p(np.exp(m))) - y @ m + rho / 2 * np.dot(beta - z + u, beta - z + u))

        def fprime(beta: Floats, X: Floats, y: Floats, z: Floats, u: Floats) -> Floats:
            return np.asarray(X.T @ (expit(X @ beta) - y) + rho * (beta - z + u))

        while True:
            betas = np.array(
                [
                    fmin_l_bfgs_b(f, beta, fprime, (X, y, z, own), maxiter=200, maxfun=250)[0]
                    for (X, y), beta, own in zip(self.parties, betas, u, strict=True)
                ]
            )
            z = np.mean(betas + u, axis=0) / (1 + self.lam / (rho * n))
            u = u + betas - z
            yield z

    def run(self, rounds: int) -> Floats:
        return next(z for t, z in enumerate(self.iterates(), 1) if t == rounds)


@workload(
    "dask-glm",
    Line("admm", "dask-glm's ADMM, its penalty tuned, without its scheduler", Goal("faster", 10.0)),
)
def dask_glm(quick: bool) -> Ready:
    """ADMM over 10 parties to 1e-6 of the optimum, Adult dense, C = 1, against dask-glm's.

    Fair: the reference is its algorithm on numpy arrays in one process, so it is spared Dask's scheduler and the passes
    of its normalisation; its rho is the best of a grid, and the number of its rounds the least that suffices.
    """
    this = Fit(False, 1.0, 1e-4, 8000) if quick else Fit(False, 1.0, 1e-6)
    parties, n = problems.apiece(this.shards), this.shards.size
    lam = n * this.weight / this.C

    def needed(rho: float) -> tuple[float, int, float]:
        """CPU seconds and rounds that it takes with this penalty."""
        begin = time.process_time()
        enough = (
            t for t, z in enumerate(DaskGLM(parties, lam, rho).iterates(), 1) if this.off(z) <= this.gap or t == 100
        )
        rounds = next(enough)
        return time.process_time() - begin, rounds, rho

    _, rounds, rho = min(map(needed, GRID))
    theirs, job = DaskGLM(parties, lam, rho), this.job(this.rounds())
    size = problems.size(this.shards)
    floor = Floor(job.public.rounds * size, job.public.rounds * 4.0 * this.shards.cells)
    return Ready(
        lambda: this.trained(job),
        {"admm": Reference(lambda: theirs.run(rounds), below(this.gap, this.off))},
        floor,
        data=size,
        full=not quick,
        needed=problems.solves(job, this.shards, 1),
    )


@workload(
    "private-training",
    Line("lbfgs", "scikit-learn's lbfgs on the pooled records", Goal("slower", 3.0)),
    missing=no_example("first_order_consensus"),
)
def private(quick: bool) -> Ready:
    """A whole private training: Adult, 10 parties, examples/first_order_consensus.toml.

    Fair: ours includes calibration, ledgers and moments; the reference is not private, holds all records, sparse as
    ours are, and has scikit-learn's defaults but for enough iterations. They reach different models: accuracies are
    within 3 points.
    """
    from scipy.sparse import csr_array
    from sklearn.linear_model import LogisticRegression  # here, so that no call that is timed loads it

    config = read(example("first_order_consensus"))
    prepared = build.prepare(config)
    shards, test = prepared.train, prepared.test
    assert isinstance(shards, Shards)
    assert isinstance(test, Shards)
    pool, unseen = (csr_array(np.concatenate([A for A, _ in problems.apiece(part)])) for part in (shards, test))
    labels, unseen_labels = (np.concatenate([y for _, y in problems.apiece(part)]) for part in (shards, test))

    def ours() -> Floats:
        job = build.job(config, shards.sizes, shards.dim)
        progress = train(job, cluster(job, shards, Simulation(0)))
        seen = metrics.through(test, features(progress.memory))
        return np.array([metrics.accuracy(seen, metrics.scores(seen, weights(job, progress)))])

    def lbfgs() -> Floats:
        return np.array([LogisticRegression(max_iter=1000).fit(pool, labels).score(unseen, unseen_labels)])

    def check(mine: Floats, theirs: Floats) -> Agreement:
        return Agreement(float(np.abs(mine - theirs)[0]), 0.03)

    @cache
    def mapped() -> tuple[Map, Shards]:
        job = build.job(config, shards.sizes, shards.dim)
        seen_through = features(train(job, cluster(job, shards, Simulation(0))).memory)
        assert seen_through is not None
        return seen_through, shards.mapped([seen_through] * len(shards.ids), shards.dim + 1)

    def gradients() -> Floats:
        seen = mapped()[1]
        return seen.slope(np.zeros((len(seen.ids), seen.dim)), HalfLogistic().deriv)

    needed = (
        Part("moments", lambda: moments(shards, nonnegative=True)),
        Part("records through their map", lambda: shards.mapped([mapped()[0]] * len(shards.ids), shards.dim + 1)),
        Part("gradients", gradients, config.algorithm.rounds - 1),
    )
    return Ready(ours, {"lbfgs": Reference(lbfgs, check)}, data=problems.size(shards), needed=needed)
