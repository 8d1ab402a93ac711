"""Many runs of an exact method on the same records, which differ in noise alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from privadmm.algorithms.mr_admm import MRADMM
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.optim import graphs
from privadmm.papers.bench.workload import Floor, Goal, Line, Ready, Reference, workload
from privadmm.papers.bench.workloads import problems
from privadmm.papers.bench.workloads.problems import relative, same_noise
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

ONE_BY_ONE = "the same runs one by one"


def job(shards: Shards, rounds: int, privacy: Target | NoPrivacy, replicas: int | None) -> Job:
    graph = graphs.random(len(shards.ids), 7)
    facts = problems.public(shards, rounds, graph, 0.044, privacy, C=1750.0, replicas=replicas)
    return Job(MRADMM(eta=1.04, growth=1.04, gamma=0.5, tolerance=1e-7), facts)


def made(quick: bool, sparse: bool) -> Ready:
    rounds, count, few = (2, 8, 2) if quick else (4, 120, 4)
    shards, target = problems.census(sparse, 5, 4000 if quick else 20_000), Target(4.0, 1e-6)
    this = job(shards, rounds, target, count)
    _ = this.plan  # noise is calibrated before the clock starts, for both sides

    def trained(one: Job, seed: int) -> Floats:
        return weights(one, train(one, cluster(one, shards, Simulation(seed))))

    single = job(shards, rounds, target, None)
    _ = single.plan

    def alone() -> Floats:
        return np.stack([trained(replace(single, id=f"{seed}"), seed) for seed in range(1, few + 1)])

    @cache
    def exact() -> float:
        quiet = trained(job(shards, rounds, NoPrivacy(), None), 0)
        return relative(trained(job(shards, rounds, NoPrivacy(), 2), 0)[1], quiet)

    quiet: Callable[[], Floats] = cache(lambda: trained(job(shards, rounds, NoPrivacy(), None), 0))
    check = same_noise(quiet, exact, 1.5)
    floor = Floor(rounds * problems.size(shards), count * rounds * 4.0 * shards.cells)
    sides = {"one-by-one": Reference(alone, check, few / count)}
    needed = problems.solves(this, shards, count, count)
    return Ready(lambda: trained(this, 0), sides, floor, count, problems.size(shards), not quick, needed=needed)


@workload("replicas-dense", Line("one-by-one", ONE_BY_ONE, Goal("faster", 3.0)), unit="run")
def dense(quick: bool) -> Ready:
    """120 runs of MR-ADMM at once, Adult dense, 5 parties.

    Fair: the reference is this library itself with one run at a time, calibrated before the clock starts like ours; it
    does four of the runs. Each side opens its own ledgers. The floor counts one pass for each round and run.
    """
    return made(quick, sparse=False)


@workload("replicas-sparse", Line("one-by-one", ONE_BY_ONE, Goal("faster", 1.5)), unit="run")
def sparse(quick: bool) -> Ready:
    """120 runs of MR-ADMM at once, Adult stored by its schema, 5 parties.

    Fair: as with dense records; storage is the same on both sides.
    """
    return made(quick, sparse=True)
