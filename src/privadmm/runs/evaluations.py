"""Measure a simulation's final model: on held-out records if there are any, overall and by party."""

from dataclasses import replace
from typing import Any

import numpy as np

from privadmm.config.build import Prepared, plain_loss
from privadmm.config.file import Config
from privadmm.data.arrays import Floats
from privadmm.data.columns import People
from privadmm.data.holding_out import parted
from privadmm.data.moments_map import Map
from privadmm.data.shards import Shards
from privadmm.engine.job import Job, weights
from privadmm.engine.loop import Progress
from privadmm.engine.phases import features
from privadmm.optim.losses import LINKED, link
from privadmm.runs.measures import Scored, evaluated, evaluated_numbers
from privadmm.runs.metrics import Data, scores, through

HELD_OUT, TRAINED_ON = "held-out records", "the training records"


def measurable(config: Config, prepared: Prepared) -> Prepared:
    """Choose the records to measure on: if a private evaluation holds records out, a simulation measures on those."""
    if not config.evaluates or config.run.mode != "simulation":
        return prepared
    train, held = parted(prepared.shards, config.evaluation.held_out, config.evaluation.seed)
    return replace(prepared, held=train, test=held)


def exact(config: Config, job: Job, progress: Progress, prepared: Prepared) -> dict[str, Any] | None:
    """Evaluate a simulation's model on the held-out records, or on those it was trained on if there are none."""
    data = prepared.train if prepared.test is None else prepared.test
    which = TRAINED_ON if prepared.test is None else HELD_OUT
    return of_model(config, data, features(progress.memory), weights(job, progress), which)


def of_model(config: Config, data: Data, map: Map | None, w: Any, which: str) -> dict[str, Any] | None:
    """Evaluate a model on these records; None if its weights or scores are not finite."""
    if not np.isfinite(w).all():
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        predicted = np.ravel(scores(through(data, map), w))
    if not np.isfinite(predicted).all():
        return None
    labels, parties = np.ravel(data.y), places(data)
    if config.loss.name == "squared":
        return evaluated_numbers(predicted, labels, which, parties)
    return evaluated(Scored(predicted, labels, chances(config, predicted)), which, parties)


def chances(config: Config, scores: Floats) -> Floats | None:
    """Probability of the second class; None if a score of the config's loss does not tell it."""
    loss = plain_loss(config)
    return link(loss, np.clip(scores, -700, 700)) if isinstance(loss, LINKED) else None


def places(data: Data) -> dict[int, Any]:
    """Positions of each party's records in flat arrays; empty if records are not told apart by party."""
    if isinstance(data, People) or len(data.ids) < 2:
        return {}
    assert isinstance(data, Shards)
    owner = data.spread(np.arange(len(data.ids), dtype=np.float64))
    return {int(party): np.flatnonzero(owner == place) for place, party in enumerate(data.ids)}
