"""`privadmm theory`: the utility theorem of a config's algorithm, beside what a simulation of it measures."""

from typing import Any

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.pdml import PDML
from privadmm.config import build
from privadmm.config.file import Config
from privadmm.errors import ConfigError
from privadmm.papers.dp_admm.theory import Done, dp_admm
from privadmm.papers.pdml.curves import pdml
from privadmm.params import check_whole
from privadmm.privacy.mechanisms import Simulation


def study(
    config: Config, seeds: int, beta: float, radius: float | None, delta: float, done: Done = lambda rounds, of: None
) -> dict[str, Any]:
    """Record bounds and measured curves by round.

    beta     weight of the distance from consensus in Theorems 3 and 4; the paper draws 1
    radius   W, the ball in which PDML's classifiers are declared to lie; the one of every optimum if None
    delta    the probability with which PDML's Theorem 1 may fail
    """
    algorithm = config.algorithm.parameters
    if not isinstance(algorithm, DPADMM | PDML):
        raise ConfigError(
            f"{config.path}: no utility theorem of {config.algorithm.name} is implemented; there are those of dp_admm "
            "(Theorems 3 and 4) and pdml (Theorem 1)"
        )
    if config.run.mode != "simulation":
        raise ConfigError(f'{config.path}: a bound is measured on records: set [run] mode = "simulation"')
    check_whole(seeds=seeds)
    shards = build.prepare(config).shards
    job = build.job(config, shards.sizes, shards.dim)
    seed = config.run.seed or 0
    if isinstance(algorithm, DPADMM):
        theorem = dp_admm(job, shards, Simulation(seed), seeds, beta, done)
    else:
        theorem = pdml(job, shards, seed, seeds, radius, delta, done)
    return {
        "algorithm": algorithm.name,
        "parties": job.public.parties,
        "seeds": seeds,
        "epsilon": job.epsilon,
        "privacy_delta": job.delta,
        **theorem,
    }
