"""From a config to its parts: the objective, the job, and the records of each party.

`job` reads no record: it takes the numbers of records and features, or an `Undeclared` in place of an unknown one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privadmm.algorithms.evaluated import Evaluated
from privadmm.algorithms.moments import Centred
from privadmm.config import build_columns, build_rows, data_source
from privadmm.config.build_rows import Elsewhere
from privadmm.config.checks import read_by_workers
from privadmm.config.file import Config, check_elsewhere
from privadmm.config.sections import PrivacyTable
from privadmm.config.undeclared import Outline, Undeclared, UndeclaredSizes
from privadmm.data import splits
from privadmm.data.columns import People
from privadmm.data.frame import Frame
from privadmm.data.misread import Misread, longer
from privadmm.data.readers import Records
from privadmm.data.shards import Shards
from privadmm.data.storage import Store
from privadmm.engine.job import Job, check_holding
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, DataError
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import LOSSES, Debiased, HuberHinge, Loss, Squared
from privadmm.optim.regularizers import REGULARIZERS, ElasticNet, Regularizer
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.ledger import Asked
from privadmm.privacy.mechanisms import Deployment, Noise, Simulation
from privadmm.privacy.sums import SecureSum


@dataclass(frozen=True)
class Prepared:
    """The records of all parties, clipped to the declared bound, and those held out."""

    held: Shards | People | Elsewhere  # to train on
    test: Shards | People | None
    frame: Frame
    misread: Misread = field(default_factory=Misread)  # counted in simulations only
    parties: tuple[str, ...] = ()  # their names, where a column has them; in simulations only

    @property
    def train(self) -> Shards | People:
        """The records to train on, if they are in this process."""
        if isinstance(self.held, Elsewhere):
            raise ConfigError("these records are read by workers alone, and here nobody may see them")
        return self.held

    @property
    def shards(self) -> Shards:
        """The records to train on, where parties hold records."""
        if isinstance(self.train, People):
            raise ConfigError("this is for parties that hold records, and these hold columns")
        return self.train

    @property
    def columns(self) -> tuple[int, ...]:
        """How many columns each party holds; empty where parties hold records."""
        return self.held.widths if isinstance(self.held, People) else ()

    @property
    def classifier(self) -> bool:
        """Whether two classes are declared, so that there is an accuracy."""
        return self.frame.classes is not None


def loss(config: Config) -> Loss:
    """The loss of one record, debiased where its label is randomised."""
    if config.privacy is None or config.privacy.label_epsilon is None:
        return plain_loss(config)
    return Debiased(plain_loss(config), config.privacy.label_epsilon)


def plain_loss(config: Config) -> Loss:
    table = config.loss
    match table.name:
        case "huber_hinge":
            return HuberHinge(table.width)
        case "squared":
            assert table.label_bound is not None, "sections.py requires it for this loss"
            return Squared(table.label_bound, table.radius)
        case name:
            return LOSSES[name]()


def regularizer(config: Config) -> Regularizer:
    table = config.regularizer
    if table.name == "elastic_net":
        return ElasticNet(table.weight, table.l1_ratio)
    return REGULARIZERS[table.name](table.weight)


def graph(config: Config, parties: int) -> Graph:
    if config.graph.kind == "random":
        return graphs.random(parties, config.graph.edges or 0, config.graph.seed)
    return {"star": graphs.star, "ring": graphs.ring, "complete": graphs.complete}[config.graph.kind](parties)


def noise(config: Config) -> Noise:
    if config.run.mode == "deployment":
        return Deployment()
    if config.run.seed is None:
        raise ConfigError("a simulation needs a seed: set [run] seed or give --seed")
    return Simulation(config.run.seed, config.run.hands)


def job(config: Config, sizes: Any, dim: Any, id: str | None = None, columns: Any = ()) -> Job:
    """The job of this config, for parties with this many records of `dim` features (with columns: of `dim` people)."""
    try:
        facts = public(config, sizes, dim, columns)
        method = algorithm(config)
        made = Job(method, facts, allowance(config), leave=config.parties.departures, asked=asked(config))
        _ = made.plan  # so that a plan that is impossible is refused here, with the file's name
    except ConfigError as error:
        raise type(error)(f"{config.path}: {str(error).removeprefix(f'{config.path}: ')}") from error
    return made if id is None else replace(made, id=id)


def asked(config: Config) -> Asked:
    """What a ledger's register keeps of this config's job."""
    return Asked(config.run.purpose, config.run.requester, config.algorithm.name, config.digest)


def public(config: Config, sizes: Any, dim: Any, columns: Any = ()) -> Public:
    """The public facts of the job. Each of the three numbers may be `Undeclared`."""
    known = not any(isinstance(fact, Undeclared) for fact in (sizes, dim, columns))
    counted = not isinstance(sizes, UndeclaredSizes)
    return (Public if known else Outline)(
        sizes=np.asarray(sizes, dtype=np.int64) if counted else sizes,
        dim=dim,
        rounds=config.algorithm.rounds + (Evaluated.releases if config.evaluates else 0),
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
    return Target(table.epsilon, table.delta, kind, table.adjacency, shares, table.decay, profile, sum=summed(table))


def summed(table: PrivacyTable) -> SecureSum | None:
    """The config's secure sum; None: each message has noise of its own."""
    return SecureSum(table.colluding, table.fewest) if table.sum == "secure" else None


def algorithm(config: Config) -> Algorithm:
    """Make the config's algorithm, with moments before it and an evaluation after it if the config asks for them."""
    method: Algorithm = config.algorithm.parameters
    table = config.features
    if table.moments:
        method = Centred(method, table.share, table.constant, table.nonnegative)
    if not config.evaluates:
        return method
    of = config.evaluation
    return Evaluated(method, of.share, of.held_out, of.bins, of.clip, of.range, of.seed)


def allowance(config: Config) -> float | None:
    """What each party's ledger allows in all: the declared budget, or else the target of this run."""
    table = config.privacy
    if table is None:
        return None
    target = max(table.party_epsilon) if table.party_epsilon else table.epsilon
    return target if table.budget is None else table.budget


def owners(config: Config, loaded: Records, rows: Any) -> tuple[Any, int]:
    """Who holds each of these rows, and how many parties there are."""
    table = config.parties
    if table.column is None:
        parties = table.known or 1
        if table.alpha is None:
            return splits.even(len(rows), parties, table.seed), parties
        return splits.dirichlet(loaded.y[rows], parties, table.alpha, table.seed), parties
    if table.column not in loaded.columns:
        raise ConfigError(
            f"{config.path}: [parties] split: {config.data.source} has no column {table.column!r}; "
            f"it has {', '.join(loaded.columns) or 'none to split by'}"
        )
    # Owners are looked up for held-out rows, too: a party whose records are all held out is an error, not left out.
    owner, names = splits.by_column(loaded.columns[table.column])
    if table.known not in (None, len(names)):
        raise ConfigError(
            f"{config.path}: [parties] names {table.known} parties, and the column {table.column!r} has "
            f"{len(names)} values; correct one of them"
        )
    return owner[rows], len(names)


def prepare(config: Config, only: Sequence[int] | None = None) -> Prepared:
    """Load, hold out, split and clip records. Everything that can be wrong with the data is found here.

    A deployment measures nothing, so it holds nothing out. With `only`, only these parties' records are kept. Where
    parties hold columns, all are kept.
    """
    check_holding(config.algorithm.parameters, config.parties.split == "features")
    if config.parties.split == "features":
        return prepare_columns(config)
    if config.data.by_party:
        return prepare_parties(config, only)
    store = Store(config.run.limit, config.run.hands)
    counted = only is None and config.run.mode == "simulation"
    loaded, bound, classes = data_source.records(config, counted)
    frame = data_source.framed(config, loaded.names, bound, classes)
    rows, test = measured(config, len(loaded))
    held, held_out = dealt(config, loaded, rows), None
    if only is not None:
        held = [held[party] for party in only]
    elif test is not None:
        held_out = frame.shards(loaded.X, loaded.y, *by_owner(config, loaded, test), store, randomised=False)
    train = frame.shards(loaded.X, loaded.y, held, only, store, config.randomises)
    clipped = longer(loaded.X, bound) if counted and config.data.rows == "clip" else None
    column = config.parties.column if counted else None
    parties = () if column is None else splits.by_column(loaded.columns[column])[1]
    return Prepared(train, held_out, frame, Misread(len(loaded), loaded.unread, clipped), parties)


def by_owner(config: Config, loaded: Records, test: Any) -> tuple[list[Any], list[int] | None]:
    """Held-out rows and their parties, where a column says whose they are; else all held-out rows, and None."""
    if config.parties.column is None:
        return [test], None
    owner, _ = owners(config, loaded, test)
    ids = np.unique(owner).tolist()
    return [test[owner == party] for party in ids], ids


def measured(config: Config, n: int) -> tuple[Any, Any]:
    """Split n rows into those to train on and those held out to measure by (None: no rows are held out)."""
    if config.holds_out:
        return splits.train_test(n, config.data.test_fraction, config.data.split_seed)
    return np.arange(n), None


def dealt(config: Config, loaded: Records, rows: Any) -> list[Any]:
    """Deal these rows out: those that each party trains on."""
    try:
        owner, parties = owners(config, loaded, rows)
    except DataError as error:
        raise DataError(f"{config.path}: [parties] {error}") from None
    held = [rows[part] for part in splits.gather(rows, owner, parties)]
    check_sizes(config, [len(part) for part in held])
    return held


def prepare_parties(config: Config, only: Sequence[int] | None) -> Prepared:
    """`prepare` for parties that have a file each. Where workers alone read them, no file is read here."""
    bound, classes = data_source.row_bound(config), config.data.classes
    if only is None and read_by_workers(config.data, config.run):
        check_elsewhere(config)
        names = data_source.names(config) or ()
        held = build_rows.elsewhere(config, names)
        return Prepared(held, None, data_source.framed(config, names, bound, classes))
    chosen = range(config.parties.known or 1) if only is None else only
    train, test, names, misread = build_rows.collect(config, chosen, measured=only is None)
    return Prepared(train, test, data_source.framed(config, names, bound, classes), misread)


def prepare_columns(config: Config) -> Prepared:
    """`prepare` for parties that hold columns about the same people."""
    counted = config.run.mode == "simulation"
    if config.parties.files is not None:
        loaded, held = build_columns.aligned(config, counted)
        bound, classes = data_source.row_bound(config), config.data.classes
    else:
        loaded, bound, classes = data_source.records(config, counted)
        held = build_columns.groups(config, loaded.names)
    frame = data_source.framed(config, loaded.names, bound, classes)
    loaded, frame = build_columns.split_columns(config, loaded, frame, held)
    rows, test = measured(config, len(loaded))
    held_out = None if test is None else frame.people(loaded.X, loaded.y, test, None, False)
    people = frame.people(loaded.X, loaded.y, rows, build_columns.scaling(config), config.randomises)
    check_sizes(config, people.sizes.tolist())
    return Prepared(people, held_out, frame, Misread(len(loaded), loaded.unread))


def check_sizes(config: Config, sizes: list[int]) -> None:
    """Refuse sizes that differ from the declared ones, on which `account` and the other parties rely."""
    declared = config.parties.sizes or sizes
    declared = declared[:1] if config.parties.use == "first" else declared
    for party, (expected, size) in enumerate(zip(declared, sizes, strict=True)):
        if expected != size:
            raise ConfigError(
                f"{config.path}: [parties] sizes declares {expected} records for party {party}, which has {size} "
                "to train on; correct or remove sizes"
            )
