"""From a config to its parts: the objective, the records in their parties' hands, and the job.

`job` reads no record: it takes their numbers, or an `Undeclared` in place of those that are not known yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.algorithms.moments import Centred
from privadmm.config import build_columns, build_rows
from privadmm.config.build_rows import Elsewhere
from privadmm.config.checks import read_by_workers
from privadmm.config.file import Config, check_elsewhere
from privadmm.config.undeclared import Outline, Undeclared, UndeclaredSizes
from privadmm.data import adult, splits
from privadmm.data.columns import People
from privadmm.data.frame import Frame
from privadmm.data.readers import Records, feature_names, read
from privadmm.data.schema import Schema
from privadmm.data.shards import Shards
from privadmm.data.storage import Store
from privadmm.engine.job import Job, check_holding
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, HuberHinge, Logistic, Loss, Squared
from privadmm.optim.regularizers import L1, L2, ElasticNet, Regularizer
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Deployment, Noise, Simulation

UNIT = 1e-150  # a row bound below any row's norm: every row but 0 is scaled to norm 1


@dataclass(frozen=True)
class Prepared:
    """The records of all parties, clipped to the declared bound, and those held out."""

    held: Shards | People | Elsewhere
    test: Shards | People | None
    frame: Frame

    @property
    def train(self) -> Shards | People:
        """The records themselves, where they are here."""
        if isinstance(self.held, Elsewhere):
            raise ConfigError("these records are read by workers alone, and here nobody may see them")
        return self.held

    @property
    def shards(self) -> Shards:
        """What parties that hold records train on."""
        if isinstance(self.train, People):
            raise ConfigError("this is for parties that hold records, and these hold columns")
        return self.train

    @property
    def columns(self) -> tuple[int, ...]:
        """How many each party holds, where they hold columns."""
        return self.held.widths if isinstance(self.held, People) else ()

    @property
    def classifier(self) -> bool:
        """Two classes are declared, so that there is an accuracy."""
        return self.frame.classes is not None


def loss(config: Config) -> Loss:
    """The loss of one record, debiased where its label is randomised."""
    if config.privacy is None or config.privacy.label_epsilon is None:
        return plain_loss(config)
    return Debiased(plain_loss(config), config.privacy.label_epsilon)


def plain_loss(config: Config) -> Loss:
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


def job(config: Config, sizes: Any, dim: Any, id: str | None = None, columns: Any = ()) -> Job:
    """The job of this config, for parties with so many records of `dim` features (with columns: of `dim` people)."""
    try:
        facts = public(config, sizes, dim, columns)
        found = Job(algorithm(config), facts, allowance(config), leave=config.parties.departures)
        _ = found.plan  # what has no plan is refused here, with the file's name
    except ConfigError as error:
        raise type(error)(f"{config.path}: {str(error).removeprefix(f'{config.path}: ')}") from error
    return found if id is None else replace(found, id=id)


def public(config: Config, sizes: Any, dim: Any, columns: Any = ()) -> Public:
    """What everybody may know of the job. Each of the three numbers may be `Undeclared`."""
    known = not any(isinstance(fact, Undeclared) for fact in (sizes, dim, columns))
    counted = not isinstance(sizes, UndeclaredSizes)
    return (Public if known else Outline)(
        sizes=np.asarray(sizes, dtype=np.int64) if counted else sizes,
        dim=dim,
        rounds=config.algorithm.rounds,
        graph=graph(config, len(sizes) if counted else sizes.parties),
        loss=loss(config),
        regularizer=regularizer(config),
        privacy=privacy(config),
        C=config.loss.C,
        weighting=config.algorithm.weighting,
        columns=columns or (),
    )


def privacy(config: Config) -> Target | NoPrivacy:
    table = config.privacy
    if table is None:
        if config.algorithm.parameters.adjacencies:
            raise ConfigError(f"[privacy] is missing; {config.algorithm.name} is private and needs epsilon and delta")
        return NoPrivacy(f"{config.algorithm.name} is not private")
    kind = Deployment.kind if config.run.mode == "deployment" else Simulation.kind
    shares, profile = table.party_epsilon or (), table.profile or ()
    return Target(table.epsilon, table.delta, kind, table.adjacency, shares, table.decay, profile)


def algorithm(config: Config) -> Algorithm:
    """The config's own, with the moments in front of it where they are asked for."""
    method: Algorithm = config.algorithm.parameters
    table = config.features
    return Centred(method, table.share, table.constant, table.nonnegative) if table.moments else method


def allowance(config: Config) -> float | None:
    """What each party's ledger allows in all: the budget, or else the target of this run."""
    if config.privacy is None:
        return None
    if config.privacy.budget is None and config.privacy.party_epsilon:
        return max(config.privacy.party_epsilon)
    return config.privacy.epsilon if config.privacy.budget is None else config.privacy.budget


def records(config: Config) -> tuple[Records, float, tuple[Any, Any] | None]:
    """The records, the declared row bound and the declared classes."""
    table = config.data
    if table.by_party:
        raise ConfigError(
            f"{config.path}: [data] source = {table.source!r} is a file for each party, and this is for one file of all"
        )
    if table.embedded:
        check_embedded(config)
        onehot = table.source == "embedded:adult"
        found = adult.load("onehot", encoding=table.encoding) if onehot else adult.load("a9a")
        # Every a9a row has at most fourteen ones.
        bound = table.row_bound or (adult.SCHEMA.row_bound if onehot else 14**0.5)
        found = stored(config, found, adult.SCHEMA.encoded(table.encoding) if onehot else None)
        return found, UNIT if table.rows == "unit" else bound, adult.CLASSES
    return read_file(config, config.resolve(table.source)), row_bound(config), table.classes


def check_embedded(config: Config) -> None:
    if config.data.classes not in (None, tuple(adult.CLASSES)):
        raise ConfigError(f"{config.path}: [data] classes of {config.data.source} are {list(adult.CLASSES)}")


def people_of(config: Config) -> Records:
    """The people of embedded data, as raw columns: `records` has the same ones in the same order, encoded."""
    check_embedded(config)
    return adult.load("raw", "complete" if config.data.source == "embedded:adult" else "all")


def names(config: Config) -> tuple[str, ...] | None:
    """Of the encoded features, where the config alone tells."""
    table, declared = config.data, schema(config)
    if table.embedded:
        return adult.SCHEMA.encoded(table.encoding).names if table.source == "embedded:adult" else adult.A9A_NAMES
    if declared is not None:
        return declared.names
    return None if table.dim is None else feature_names(table.dim)


def read_file(config: Config, path: Path) -> Records:
    """As [data] declares it."""
    table = config.data
    keep = tuple(name for name in (config.parties.column, table.id) if name is not None)
    declared = schema(config)
    found = read(
        path,
        table.format,
        label=table.label,
        classes=table.classes,
        schema=declared,
        keep=keep,
        on_bad=table.on_bad,
        dim=table.dim,
    )
    return stored(config, found, declared)


def stored(config: Config, found: Records, declared: Schema | None) -> Records:
    """Mostly zeros by declaration: without them. What the records hold has no say, for the last bits depend on it."""
    if declared is None or not declared.sparse or config.parties.split == "features":
        return found
    from scipy.sparse import csr_array

    return replace(found, X=csr_array(found.X))


def row_bound(config: Config) -> float:
    """Of a file."""
    return UNIT if config.data.rows == "unit" else config.data.row_bound or 0.0


def schema(config: Config) -> Schema | None:
    """Of a file."""
    table = config.data
    if table.schema is None:
        return None
    return Schema.from_table(
        table.schema, label=table.label or "y", classes=table.classes, row_bound=row_bound(config)
    ).encoded(table.encoding)


def framed(config: Config, names: tuple[str, ...], bound: float, classes: tuple[Any, Any] | None) -> Frame:
    """How records with these features become rows, from their raw columns on: the model keeps it."""
    table, declared, label = config.data, schema(config), config.data.label
    if table.source == "embedded:adult":
        declared, label = adult.SCHEMA.encoded(table.encoding), adult.SCHEMA.label
    raw = {"schema": declared, "on_bad": table.on_bad, "label": label}
    return Frame(bound, table.intercept, names, classes, **raw)  # type: ignore[arg-type]


def owners(config: Config, found: Records, rows: Any) -> tuple[Any, int]:
    """Who holds each of these rows, and how many parties there are."""
    table = config.parties
    if table.column is not None:
        # Who the parties are does not depend on who is held out: one that loses all its records is an error.
        owner, names = splits.by_column(column(config, found, table.column))
        if table.known is not None and table.known != len(names):
            raise ConfigError(
                f"{config.path}: [parties] names {table.known} parties, and the column {table.column!r} has "
                f"{len(names)} values; correct one of them"
            )
        return owner[rows], len(names)
    parties = table.known or 1
    if table.alpha is not None:
        return splits.dirichlet(found.y[rows], parties, table.alpha, table.seed), parties
    return splits.even(len(rows), parties, table.seed), parties


def column(config: Config, found: Records, name: str) -> Any:
    if name not in found.columns:
        raise ConfigError(
            f"{config.path}: [parties] split: {config.data.source} has no column {name!r}; "
            f"it has {', '.join(found.columns) or 'none to split by'}"
        )
    return found.columns[name]


def prepare(config: Config, only: Sequence[int] | None = None) -> Prepared:
    """Load, hold out, split and clip. Everything that can be wrong with the data is found here.

    A deployment measures nothing, so it holds nothing out. With `only`, no more than these parties' records are kept,
    but for parties that hold columns: there it is all of them.
    """
    check_holding(config.algorithm.parameters, config.parties.split == "features")
    if config.parties.split == "features":
        return prepare_columns(config)
    if config.data.by_party:
        return prepare_parties(config, only)
    store = Store(config.run.limit)
    found, bound, classes = records(config)
    frame = framed(config, found.names, bound, classes)
    rows, test = measured(config, len(found))
    held = dealt(config, found, rows)
    held_out = None
    if test is not None and only is None:
        held_out = frame.shards(found.X, found.y, [test], store=store, randomised=False)
    if only is not None:
        held = [held[party] for party in only]
    train = frame.shards(found.X, found.y, held, only, store, config.randomises)
    return Prepared(train, held_out, frame)


def measured(config: Config, n: int) -> tuple[Any, Any]:
    """Of n rows, those to train on and those held out to measure by; None are in a deployment, or if so asked."""
    if config.data.test_fraction and config.run.mode == "simulation":
        return splits.train_test(n, config.data.test_fraction, config.data.split_seed)
    return np.arange(n), None


def dealt(config: Config, found: Records, rows: Any) -> list[Any]:
    """Which of these rows each party trains on."""
    owner, parties = owners(config, found, rows)
    held = [rows[part] for part in splits.gather(rows, owner, parties)]
    check_sizes(config, [len(part) for part in held])
    return held


def prepare_parties(config: Config, only: Sequence[int] | None) -> Prepared:
    """The same for parties that have a file each. Of a deployment elsewhere nothing is read here."""
    bound, classes, parties = row_bound(config), config.data.classes, config.parties.known or 1
    if only is None and read_by_workers(config.data, config.run):
        check_elsewhere(config)
        declared = names(config) or ()
        held = build_rows.elsewhere(config, declared)
        return Prepared(held, None, framed(config, declared, bound, classes))
    chosen = range(parties) if only is None else only
    train, test, found = build_rows.collect(config, read_file, bound, chosen, measured=only is None)
    return Prepared(train, test, framed(config, found, bound, classes))


def prepare_columns(config: Config) -> Prepared:
    """The same for parties that hold columns about the same people."""
    if config.parties.files is not None:
        found, held = build_columns.aligned(config, schema(config))
        bound, classes = row_bound(config), config.data.classes
    else:
        found, bound, classes = records(config)
        held = build_columns.groups(config, found)
    frame = framed(config, found.names, bound, classes)
    found, frame = build_columns.framed(config, found, frame, held)
    rows, test = measured(config, len(found))
    held_out = None if test is None else build_columns.people(config, found, frame, test, train=False)
    people = build_columns.people(config, found, frame, rows, train=True)
    check_sizes(config, people.sizes.tolist())
    return Prepared(people, held_out, frame)


def check_sizes(config: Config, found: list[int]) -> None:
    """Declared sizes are what `account` and the other parties rely on."""
    sizes = config.parties.sizes or found
    sizes = sizes[:1] if config.parties.use == "first" else sizes
    for party, (declared, size) in enumerate(zip(sizes, found, strict=True)):
        if declared != size:
            raise ConfigError(
                f"{config.path}: [parties] sizes declares {declared} records for party {party}, which has {size} "
                "to train on; correct or remove sizes"
            )
