"""How far the noise of a job alone moves a coefficient: public, since no record is read.

The job is trained some times on as many records as it has, all of them zero: what comes out is noise, with the scale of
every release as planned. Such records treat all coordinates alike, so one standard deviation holds for every
coefficient, and is taken over all of them. Records that say something pull the model back towards them, so that less of
the noise remains as a rule: this is an estimate, and no bound.
"""

import math
from dataclasses import replace

import numpy as np

from privadmm.config import build
from privadmm.config.file import Config
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.errors import PrivadmmError
from privadmm.privacy.mechanisms import Simulation

VALUES = 200  # coefficients to take the deviation over, which is then known to 5 %
FEWEST, MOST = 2, 40  # trainings
LARGEST = 50_000_000  # coefficients computed in all of them, by party and round


def noise_alone(config: Config, job: Job) -> tuple[float | None, str]:
    """The standard deviation of a weight by noise alone, or None; and how it was found, or why there is none."""
    public = job.public
    if not job.private:
        return None, "nothing is private here, so there is no noise"
    if public.columns:
        return None, "it is not estimated for parties that hold columns"
    if config.features.moments:
        return None, "it is not estimated where features are centred and scaled by a private release"
    if not public.declared:
        return None, "it needs the number of records of each party"
    times = min(MOST, max(FEWEST, math.ceil(VALUES / public.dim)))
    if public.rounds * public.parties * public.dim * times > LARGEST:
        return None, "the job is too large to train it again for this"
    simulated = replace(config, run=replace(config.run, mode="simulation", seed=0))
    try:
        found = [one(simulated, job, seed) for seed in range(times)]
    except PrivadmmError:
        return None, "trained on empty records, the job comes to no end"
    return float(np.sqrt(np.mean(np.square(found)))), (
        f"what noise as planned makes of a weight in {times} trainings on records that are all zero, an estimate from "
        "public facts for which no record was read"
    )


def one(config: Config, job: Job, seed: int) -> Floats:
    """The weights of a training on empty records, with this seed of the noise."""
    from scipy.sparse import csr_matrix

    sizes, dim = job.public.sizes, job.public.dim
    again = build.job(config, sizes, dim)
    empty = [(csr_matrix((int(size), dim)), np.where(np.arange(int(size)) % 2, 1.0, -1.0)) for size in sizes]
    shards = Shards.from_parties(empty, row_bound=1.0)
    return weights(again, train(again, cluster(again, shards, Simulation(seed))))
