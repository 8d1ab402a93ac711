"""One job followed over many noise seeds at once: replicas are an axis in front of the parties'."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.columns import People
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job, train
from privadmm.engine.loop import View
from privadmm.errors import PrivadmmError
from privadmm.privacy.mechanisms import Simulation

Look = Callable[[View, InProcess], Floats]  # what is measured after a round: (..., seeds)


def follow(job: Job, records: Shards | People, seeds: int, look: Look, seed: int = 0, failing: bool = False) -> Floats:
    """What `look` sees after each round, (rounds, ..., seeds). A run that ran away is infinite from there on.

    With `failing`, so is a run that ends with a named error after its first round or later.
    """
    many = Job(job.algorithm, replace(job.public, replicas=seeds), job.allowance)
    parties, seen = cluster(many, records, Simulation(seed)), list[Floats]()
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            train(many, parties, [lambda view: seen.append(np.asarray(look(view, parties), dtype=float))])
    except PrivadmmError:
        if not (failing and seen):
            raise
        seen += [np.full_like(seen[0], np.inf)] * (job.public.rounds - len(seen))
    found = np.array(seen)
    return np.where(np.isfinite(found), found, np.inf)


def own_losses(job: Job, shards: Shards, w: Floats) -> Floats:
    """C omega_i/m_i sum loss of every party at its own weights w (..., P, d), without the penalty: (..., P)."""
    weight = job.public.scale(shards.ids)[:, 0] / shards.sizes
    return np.asarray(weight * shards.sums(job.public.loss.value(shards.margins(w), shards.y)))


def accuracies(pooled: Shards, w: Floats) -> Floats:
    """Of weights w (..., d) on records in one hand, (...,)."""
    margins = pooled.margins(w[..., None, :])
    return np.asarray((margins * pooled.y > 0).mean(axis=-1))
