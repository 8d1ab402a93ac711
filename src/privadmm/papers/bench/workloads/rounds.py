"""Rounds of exact consensus ADMM between neighbours: every party's problem is solved in every round."""

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array

from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.data.arrays import Floats
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.optim import graphs
from privadmm.optim.losses import HalfLogistic, HuberHinge, Logistic, Loss
from privadmm.papers.bench.workload import Agreement, Check, Floor, Goal, Line, Ready, Reference, Workload
from privadmm.papers.bench.workloads import problems
from privadmm.privacy.mechanisms import Simulation

PARTIES, TOLERANCE = 10, 1e-9
SETTINGS = {1.0: (0.01, 1e-3), 1750.0: (1.0, 10**-2.5)}  # C, and the eta and weight that go with it
Tables = list[tuple[Any, Floats]]  # each party's records, dense or CSR, and its labels
TIGHT = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 0.0}


class Neighbours:
    """Consensus ADMM in numpy, equations (10) and (11) of its module, with scipy's L-BFGS-B party by party."""

    def __init__(self, job: Job, parties: Tables, options: dict[str, Any]) -> None:
        public = job.public
        algorithm = job.algorithm
        assert isinstance(algorithm, ADMMGraph)
        self.near = np.zeros((PARTIES, PARTIES))
        for i, row in enumerate(public.graph.neighbours):
            self.near[i, list(row)] = 1.0
        self.parties = [(A, A.T, y) for A, y in parties]  # transposed once: scipy makes another object each time
        self.options, self.eta, self.weight = options, algorithm.eta, public.regularizer.smooth.weight
        self.scale, self.loss, self.rounds = public.scale(public.ids)[:, 0], public.loss, public.rounds

    def solve(self, i: int, linear: Floats, k: float, start: Floats) -> Floats:
        (A, across, y), C, loss = self.parties[i], self.scale[i], self.loss

        def both(x: Floats) -> tuple[float, Floats]:
            m = A @ x
            value = C * np.mean(loss.value(m, y)) + linear @ x + k / 2 * x @ x
            return value, C / len(y) * (across @ loss.deriv(m, y)) + linear + k * x

        found = minimize(both, start, jac=True, method="L-BFGS-B", options=self.options)
        return np.asarray(found.x)

    def run(self) -> Floats:
        f = np.zeros((PARTIES, self.parties[0][0].shape[1]))
        dual, V, eta = np.zeros_like(f), self.near.sum(axis=1), self.eta
        for _ in range(self.rounds):
            heard = self.near @ f
            dual = dual + eta / 2 * (V[:, None] * f - heard)  # (11)
            linear = 2 * dual - eta * (V[:, None] * f + heard)
            f = np.stack([self.solve(i, linear[i], 2 * eta * V[i] + self.weight, f[i]) for i in range(PARTIES)])  # (10)
        return np.asarray(f.mean(axis=0))


def same_objective(job: Job, parties: Tables, allowed: float) -> Check:
    """Compare what all records' objective is at either side's mean, relative to it."""

    def value(w: Floats) -> float:
        public = job.public
        losses = [
            C * np.mean(public.loss.value(A @ w, y))
            for C, (A, y) in zip(public.scale(public.ids)[:, 0], parties, strict=True)
        ]
        return float(np.mean(losses) + public.regularizer.value(w))

    def check(ours: Floats, theirs: Floats) -> Agreement:
        return Agreement(abs(value(ours) - value(theirs)) / value(theirs), allowed)

    return check


def made(quick: bool, sparse: bool, C: float, loss: Loss) -> Ready:
    (eta, weight), rounds = SETTINGS[C], 8 if quick else 50
    shards, graph = problems.census(sparse, PARTIES), graphs.random(PARTIES, 15)
    job = Job(ADMMGraph(eta, TOLERANCE), problems.public(shards, rounds, graph, weight, loss=loss, C=C))
    parties: Tables = [(csr_array(A) if sparse else A, y) for A, y in problems.apiece(shards)]
    tight = TIGHT | {"gtol": TOLERANCE / shards.dim**0.5}
    return Ready(
        lambda: weights(job, train(job, cluster(job, shards, Simulation(0)))),
        {
            "tight": Reference(Neighbours(job, parties, tight).run, same_objective(job, parties, 1e-9)),
            "default": Reference(Neighbours(job, parties, {}).run, same_objective(job, parties, 1e-4)),
        },
        Floor(rounds * problems.size(shards), rounds * 4.0 * shards.cells),
        rounds,
        problems.size(shards),
        not quick,
        needed=problems.solves(job, shards, rounds),
    )


STORED = {False: "dense", True: "by schema"}


def logistic(sparse: bool, C: float) -> Workload:
    def make(quick: bool) -> Ready:
        return made(quick, sparse, C, Logistic())

    make.__doc__ = f"""Consensus ADMM between 10 neighbours, Adult {STORED[sparse]}, logistic, C = {C:g}, a round.

    Fair: scipy's L-BFGS-B has each party's records stored as ours are, warm-started, with value and gradient in one
    call, of the same vectorised loss and derivative as ours. Asked for our gradient norm of 1e-9 it often gives up
    earlier, which counts in its favour; with its default tolerance it does less work than ours.{
        " The goals were set beside dense records, on which the reference takes 1.1 to 1.4 times as long."
        if sparse
        else ""
    }
    """
    goals = (18.0, 6.0) if sparse else (10.0, 3.5)
    lines = (
        Line("tight", "L-BFGS-B, same gradient norm", Goal("faster", goals[0])),
        Line("default", "L-BFGS-B, its default tolerance", Goal("faster", goals[1])),
    )
    return Workload(f"rounds-{'schema' if sparse else 'dense'}-{C:g}", make, lines, "round")


def other(name: str, loss: Loss) -> Workload:
    def make(quick: bool) -> Ready:
        ready = made(quick, True, 1750.0, loss)
        return replace(ready, references={"tight": ready.references["tight"]})

    make.__doc__ = f"""Consensus ADMM between 10 neighbours, Adult by schema, {name} loss, C = 1750, a round.

    Fair: as with the logistic loss; the reference evaluates the same vectorised loss and derivative as ours.
    """
    return Workload(
        f"rounds-{name}", make, (Line("tight", "L-BFGS-B, same gradient norm", Goal("faster", 10.0)),), "round"
    )


LOGISTIC = tuple(logistic(sparse, C) for C in (1750.0, 1.0) for sparse in (False, True))
OTHERS = (other("half-logistic", HalfLogistic()), other("huber", HuberHinge(0.5)))
