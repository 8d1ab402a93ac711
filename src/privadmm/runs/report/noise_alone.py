"""How far the noise of a job alone moves each coefficient: public, since no record is read.

The job is trained some times on as many records as it has, all of them zero: what comes out is noise, with the scale of
every release as planned. Records that say something pull the model back towards them, so that of noise less remains as
a rule; this is an estimate from public facts, and no bound.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from privadmm.config import build
from privadmm.config.file import Config
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.errors import PrivadmmError
from privadmm.privacy.mechanisms import Simulation

COPIES = 24
MOST = 2e9  # rounds times parties times columns times copies, above which it would take too long


def noise_alone(config: Config, job: Job) -> tuple[Floats | None, str]:
    """The standard deviation of every weight by noise alone, or None; and why there is none, or how it was found."""
    public = job.public
    if not job.private:
        return None, "nothing is private here, so there is no noise"
    if public.columns:
        return None, "it is not estimated for parties that hold columns"
    if config.features.moments:
        return None, "it is not estimated where features are centred and scaled by a private release"
    if not public.declared:
        return None, "it needs the number of records of each party"
    if public.rounds * public.parties * public.dim * COPIES > MOST:
        return None, "the job is too large to train it again for this"
    simulated: Any = replace(config, run=replace(config.run, mode="simulation", seed=0))
    try:
        found = [one(simulated, job, seed) for seed in range(COPIES)]
    except PrivadmmError:
        return None, "trained on empty records, the job comes to no end"
    return np.std(found, axis=0, ddof=1), (
        f"the standard deviation over {COPIES} trainings on records that are all zero, with noise as planned: an "
        "estimate from public facts, for which no record was read"
    )


def one(config: Config, job: Job, seed: int) -> Floats:
    """The weights of a training on empty records, with this seed of the noise."""
    from scipy.sparse import csr_matrix

    sizes, dim = job.public.sizes, job.public.dim
    again = build.job(config, sizes, dim)
    empty = [(csr_matrix((int(size), dim)), np.where(np.arange(int(size)) % 2, 1.0, -1.0)) for size in sizes]
    shards = Shards.from_parties(empty, row_bound=1.0)
    return weights(again, train(again, cluster(again, shards, Simulation(seed))))
