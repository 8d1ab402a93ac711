"""From a config to its parts: the objective, the records in their parties' hands, and the job.

`job` needs no record and touches no data unless the sizes are handed in, so `account` can use it as it is.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privadmm import graphs
from privadmm.config import Config
from privadmm.data import adult, splits
from privadmm.data.readers import Records, read
from privadmm.data.schema import Schema
from privadmm.data.shards import Shards
from privadmm.errors import ConfigError
from privadmm.graphs import Graph
from privadmm.job import Job
from privadmm.losses import HalfLogistic, Hinge, HuberHinge, Logistic, Loss, Squared
from privadmm.model import Frame
from privadmm.phases import Public
from privadmm.privacy.accounting import NoPrivacy, Target
from privadmm.privacy.mechanisms import Deployment, Noise, Simulation
from privadmm.regularizers import L1, L2, ElasticNet, Regularizer


@dataclass(frozen=True)
class Prepared:
    """The records of all parties, clipped to the declared bound, and those held out."""

    train: Shards
    test: Shards | None
    frame: Frame


def loss(config: Config) -> Loss:
    table = config.loss
    match table.name:
        case "logistic":
            return Logistic()
        case "half_logistic":
            return HalfLogistic()
        case "huber_hinge":
            return HuberHinge(table.width)
        case "hinge":
            return Hinge()
        case "squared":
            return Squared(table.label_bound or 1.0, table.radius)


def regularizer(config: Config) -> Regularizer:
    table = config.regularizer
    match table.name:
        case "l2":
            return L2(table.weight)
        case "l1":
            return L1(table.weight)
        case "elastic_net":
            return ElasticNet(table.weight, table.l1_ratio)


def graph(config: Config, parties: int) -> Graph:
    table = config.graph
    match table.kind:
        case "star":
            return graphs.star(parties)
        case "ring":
            return graphs.ring(parties)
        case "complete":
            return graphs.complete(parties)
        case "random":
            return graphs.random(parties, table.edges or 0, table.seed)


def noise(config: Config) -> Noise:
    if config.run.mode == "deployment":
        return Deployment()
    if config.run.seed is None:
        raise ConfigError("a simulation needs a seed: set [run] seed or give --seed")
    return Simulation(config.run.seed)


def job(config: Config, sizes: Any = None, dim: int | None = None, id: str | None = None) -> Job:
    """The job of this config. Without sizes, those that the file declares; the guarantee rests on no others."""
    if sizes is None:
        sizes = config.parties.sizes or [1] * (config.parties.count or 1)
    privacy: Target | NoPrivacy = NoPrivacy(f"{config.algorithm.name} is not private")
    if config.privacy is not None:
        kind = Deployment.kind if config.run.mode == "deployment" else Simulation.kind
        privacy = Target(config.privacy.epsilon, config.privacy.delta, kind)
    elif config.algorithm.parameters.private:
        raise ConfigError(
            f"{config.path}: [privacy] is missing; {config.algorithm.name} is private and needs epsilon and delta"
        )
    public = Public(
        sizes=np.asarray(sizes, dtype=np.int64),
        dim=dim or 1,
        rounds=config.algorithm.rounds,
        graph=graph(config, len(sizes)),
        loss=loss(config),
        regularizer=regularizer(config),
        privacy=privacy,
        C=config.loss.C,
        weighting=config.algorithm.weighting,
    )
    allowance = None if config.privacy is None else config.privacy.budget or config.privacy.epsilon
    named = {} if id is None else {"id": id}
    return Job(config.algorithm.parameters, public, allowance, **named)


def records(config: Config) -> tuple[Records, float, tuple[Any, Any] | None]:
    """The records, the declared row bound and the declared classes."""
    table = config.data
    if table.embedded:
        found = adult.load("onehot" if table.source == "embedded:adult" else "a9a")
        classes: tuple[Any, Any] | None = table.classes or adult.CLASSES
        if tuple(classes) != tuple(adult.CLASSES):
            raise ConfigError(f"{config.path}: [data] classes of {table.source} are {list(adult.CLASSES)}")
        # Every a9a row has at most fourteen ones.
        bound = table.row_bound or (adult.SCHEMA.row_bound if table.source == "embedded:adult" else 14**0.5)
        return found, bound, classes
    classes = None if config.loss.name == "squared" else table.classes
    bound = table.row_bound or 0.0
    schema = None
    if table.schema is not None:
        schema = Schema.from_table(table.schema, label=table.label or "y", classes=classes, row_bound=bound)
    keep = () if config.parties.column is None else (config.parties.column,)
    found = read(
        config.resolve(table.source),
        table.format,
        label=table.label,
        classes=classes,
        schema=schema,
        keep=keep,
        on_bad=table.on_bad,
        dim=table.dim,
    )
    return found, bound, classes


def owners(config: Config, found: Records) -> tuple[Any, int]:
    """Who holds which record, and how many parties there are."""
    table = config.parties
    if table.split == "features":
        raise ConfigError(
            f'{config.path}: [parties] split = "features" needs a vertical algorithm, and '
            f"{config.algorithm.name} is horizontal"
        )
    if table.column is not None:
        owner, names = splits.by_column(found.columns[table.column])
        if table.known is not None and table.known != len(names):
            raise ConfigError(
                f"{config.path}: [parties] count is {table.known}, the column has {len(names)} values"
            )
        return owner, len(names)
    parties = table.known or 1
    if table.alpha is not None:
        return splits.dirichlet(found.y, parties, table.alpha, table.seed), parties
    return splits.even(len(found), parties, table.seed), parties


def prepare(config: Config) -> Prepared:
    """Load, hold out, split and clip. Everything that can be wrong with the data is found here."""
    found, bound, classes = records(config)
    frame = Frame(bound, config.data.intercept, found.names, classes)
    held_out = None
    if config.data.test_fraction:
        train, test = splits.train_test(len(found), config.data.test_fraction, config.data.split_seed)
        held_out = frame.shards(found.X, found.y, [test])
        found = found.take(train)
    owner, parties = owners(config, found)
    return Prepared(frame.shards(found.X, found.y, splits.gather(found.X, owner, parties)), held_out, frame)
