"""How time grows: DP-ADMM with three sizes of one thing at a time, and the exponent that fits on a log-log scale.

An exponent of 1 means time in proportion to size. Below 1, a constant part of the time still counts at these sizes.
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import Logistic
from privadmm.optim.regularizers import L2
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Simulation


@dataclass(frozen=True)
class Sizes:
    rounds: int = 20
    parties: int = 100
    records: int = 200
    features: int = 50
    replicas: int = 1


ABOUT = "How time grows with rounds, parties, records, features and replicas"
STEPS = {"rounds": (20, 80, 320), "parties": (100, 400, 1600), "records": (200, 800, 3200)}
STEPS |= {"features": (50, 200, 800), "replicas": (1, 8, 64)}


def seconds(sizes: Sizes, repeats: int) -> float:
    """CPU seconds of a training, the fastest of `repeats`; making data and job does not count."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(sizes.parties * sizes.records, sizes.features), scale=sizes.features**-0.5)
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    shards = Shards.build(X, y, np.split(np.arange(len(y)), sizes.parties), row_bound=2.0)
    facts = (shards.sizes, shards.dim, sizes.rounds, graphs.star(sizes.parties), Logistic(), L2(1e-3))
    times = []
    for _ in range(repeats):
        job = Job(DPADMM(D_w=30.0, rho=0.1), Public(*facts, Target(1.0, 1e-6), replicas=sizes.replicas))
        parties = cluster(job, shards, Simulation(0))
        begin = time.process_time()
        train(job, parties)
        times.append(time.process_time() - begin)
    return min(times)


def exponent(sizes: list[int], times: list[float]) -> float:
    """The slope of log time over log size, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


def growth(quick: bool) -> list[dict[str, Any]]:
    curves = []
    for name, steps in STEPS.items():
        sizes = [max(1, step // 4) for step in steps] if quick else list(steps)
        base = replace(Sizes(), records=50) if quick else Sizes()
        times = [seconds(replace(base, **{name: size}), 1 if quick else 3) for size in sizes]
        curves.append({"of": name, "sizes": sizes, "cpu": times, "exponent": exponent(sizes, times)})
    return curves
