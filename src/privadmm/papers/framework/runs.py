"""Follows a job over many noise seeds at once: replicas are an axis in front of the parties' axis."""

from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.columns import People
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job, train
from privadmm.engine.loop import View
from privadmm.engine.public import Public
from privadmm.errors import PrivadmmError
from privadmm.optim.losses import Loss
from privadmm.privacy.mechanisms import Simulation

Records = Shards | People
Marks = Container[int] | None  # rounds; None: all
Look = Callable[[View, InProcess], Floats]  # measures something after a round: (..., seeds)


def follow(
    job: Job,
    records: Records,
    seeds: int,
    look: Look,
    seed: int = 0,
    failing: bool = False,
    at: Marks = None,
    noise: Simulation | None = None,
) -> Floats:
    """Return what `look` measures after each round, or after the rounds `at` alone: (rounds, ..., seeds).

    A run that ran away is infinite from there on; with `failing`, so is one that ends with a named error after its
    first round or later. `noise` replaces that of `seed`.
    """
    many = Job(job.algorithm, replace(job.public, replicas=seeds), job.allowance)
    parties, seen = cluster(many, records, noise or Simulation(seed)), list[Floats]()

    def watch(view: View) -> None:
        if at is None or view.progress.round in at:
            seen.append(np.asarray(look(view, parties), dtype=float))

    try:
        with np.errstate(over="ignore", invalid="ignore"):
            train(many, parties, [watch])
    except PrivadmmError:
        if not (failing and seen):
            raise
        seen += [np.full_like(seen[0], np.inf)] * (job.public.rounds - len(seen))
    measured = np.array(seen)
    return np.where(np.isfinite(measured), measured, np.inf)


def own_losses(public: Public, shards: Shards, w: Floats) -> Floats:
    """C omega_i/m_i sum loss of every party at its own weights w (..., P, d), without the penalty: (..., P)."""
    weight = public.scale(shards.ids)[:, 0] / shards.sizes
    return np.asarray(weight * shards.sums(public.loss.value(shards.margins(w), shards.y)))


def accuracies(pooled: Shards, w: Floats) -> Floats:
    """Accuracies (...,) of weights w (..., d) on pooled records."""
    return np.asarray((pooled.margins(w[..., None, :]) * pooled.y > 0).mean(axis=-1))


class Counting:
    """A loss that counts its work: of how many records it computed first and second derivatives."""

    def __init__(self, loss: Loss) -> None:
        self.loss, self.asked = loss, {"deriv": 0, "curv": 0}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loss, name)

    def deriv(self, m: Floats, y: Floats) -> Floats:
        self.asked["deriv"] += m.size
        return self.loss.deriv(m, y)

    def curv(self, m: Floats, y: Floats) -> Floats:
        self.asked["curv"] += m.size
        return self.loss.curv(m, y)
