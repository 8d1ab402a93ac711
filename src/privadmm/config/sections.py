"""The sections of the config file: each field is a key, with its type, limits, meaning and default."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from privadmm.config import rules
from privadmm.config.rules import NAME
from privadmm.data.threads import cores
from privadmm.params import SOME, Doc, When

VERTICAL = When("split", "features")
EVALUATED = When("kind", "private")
PARTY = "{party}"  # in a path, the number of a party
Category = bool | int | float | str
Counts = tuple[Annotated[int, Ge(1)], ...]
Positives = tuple[Annotated[float, Gt(0)], ...]
ColumnList = tuple[str | float, ...]


@dataclass(frozen=True)
class DataTable:
    """What is trained on, and what is declared about it."""

    source: Annotated[
        str,
        rules.SOURCE,
        Doc("the records; {party} in the path is a party's number from 0: a worker opens only its own parties' files"),
    ]
    format: Annotated[
        Literal["csv", "parquet", "npz", "libsvm"] | None, Doc("the file's format; by its extension if left out")
    ] = None
    label: Annotated[str | None, NAME, Doc("the label's column; csv and parquet need it")] = None
    classes: Annotated[
        tuple[Category, Category] | None,
        rules.CLASSES,
        Doc("the label's two values, negative first; needed for a file unless the loss is squared"),
    ] = None
    schema: Annotated[
        Mapping[str, Annotated[ColumnList | Mapping[str, bool | float | str | ColumnList], rules.COLUMN]] | None,
        rules.SCHEMA,
        Doc(
            "declared ranges (beyond them: clipped), categories (unknown: all zeros, or a level of their own) and "
            "dates of the columns that are used, and what a missing cell becomes"
        ),
    ] = None
    encoding: Annotated[
        Literal["minmax", "binned", "coarse"],
        Doc("numbers by their declared range: scaled to [0, 1], or one-hot in ten or five bins, finer at its low end"),
    ] = "minmax"
    rows: Annotated[Literal["clip", "unit"], Doc("clip rows to row_bound, or scale every row to norm 1")] = "clip"
    row_bound: Annotated[
        float | None, Gt(0), Doc('rows are clipped to this 2-norm; a file needs it unless rows = "unit"')
    ] = None
    intercept: Annotated[float, Ge(0), Lt(1), Doc("share of a row's norm for a constant feature; 0 is none")] = 0.0
    dim: Annotated[int | None, Ge(1), rules.DIM, Doc("number of features; libsvm needs it")] = None
    id: Annotated[
        str | None, NAME, Doc("a column that names the people, by which [parties] files are aligned; no feature")
    ] = None
    test_fraction: Annotated[float, Ge(0), Lt(1), Doc("share held out; none in a deployment")] = 0.2
    split_seed: Annotated[int, Ge(0), Doc("seed of the held-out split")] = 0
    on_bad: Annotated[
        Literal["refuse", "default"],
        Doc(
            "a cell that is no number or date, where its column does not say what it becomes: stop, or take the low end"
        ),
    ] = "refuse"

    @property
    def embedded(self) -> bool:
        """The records come with the package."""
        return self.source in rules.EMBEDDED

    @property
    def by_party(self) -> bool:
        """Every party has a file of its own."""
        return PARTY in self.source

    def of_party(self, party: int) -> str:
        """The path of this party's file."""
        return self.source.replace(PARTY, str(party))


@dataclass(frozen=True)
class PartiesTable:
    """Who holds the records."""

    count: Annotated[
        int | None, Ge(1), Doc('number of parties; needed unless split is "column:NAME" or sizes is given')
    ] = None
    split: Annotated[str, rules.SPLIT, Doc("how records (or, for features, columns) go to parties")] = "even"
    sizes: Annotated[
        Counts | None, rules.SIZES, Doc("records of each party, to account for a run without its data")
    ] = None
    records: Annotated[
        int | None,
        Ge(1),
        Doc(
            "how many all parties hold together, held-out ones too: declared, for account, plan and recommend, which "
            "read none; training counts its own"
        ),
    ] = None
    seed: Annotated[int, Ge(0), Doc("seed of the split")] = 0
    columns: Annotated[
        tuple[int | tuple[str, ...], ...] | None,
        rules.COLUMNS,
        VERTICAL,
        Doc("who holds which columns: [66, 57] from left to right, or names; as evenly as possible if left out"),
    ] = None
    files: Annotated[
        tuple[Annotated[str, NAME], ...] | None,
        rules.FILES,
        VERTICAL,
        Doc("a csv or parquet file for each party, aligned by [data] id; [data] source then has the labels only"),
    ] = None
    row_bounds: Annotated[
        Positives | None, SOME, VERTICAL, Doc("each party's bound on its part of a row; [data] row_bound if left out")
    ] = None
    use: Annotated[
        Literal["all", "first"], VERTICAL, Doc("all columns, or the first party's alone to see what others add")
    ] = "all"
    leave: Annotated[
        tuple[str, ...] | None, rules.LEAVE, Doc('simulates parties that leave: "3@10" is party 3 from round 10 on')
    ] = None

    @property
    def given(self) -> str:
        """The key that says how many parties there are."""
        return next((key for key in ("sizes", "columns", "files") if getattr(self, key) is not None), "count")

    @property
    def known(self) -> int | None:
        """The number of parties, where the file alone tells it."""
        if self.use == "first":
            return 1
        return self.count if self.given == "count" else len(getattr(self, self.given))

    @property
    def departures(self) -> dict[int, int]:
        """Who leaves, and from which round on, both counted from 0."""
        pairs = (item.split("@") for item in self.leave or ())
        return {int(party): int(first) - 1 for party, first in pairs}

    @property
    def column(self) -> str | None:
        """The column that says whose a record is."""
        return self.split.removeprefix("column:") if self.split.startswith("column:") else None

    @property
    def alpha(self) -> float | None:
        """The parameter of the Dirichlet split."""
        return float(self.split.removeprefix("dirichlet:")) if self.split.startswith("dirichlet:") else None


@dataclass(frozen=True)
class GraphTable:
    """Who hears whom."""

    kind: Annotated[Literal["star", "ring", "complete", "random"], Doc("the coordinator's star, or a graph")] = "star"
    edges: Annotated[
        int | None, Ge(0), When("kind", "random", required=True), Doc("number of edges of a random graph")
    ] = None
    seed: Annotated[int, Ge(0), Doc("seed of a random graph")] = 0


@dataclass(frozen=True)
class FeaturesTable:
    """A private release of the features' moments in front of the algorithm, to centre and scale by."""

    moments: Annotated[bool, Doc("spend the first round on this release")] = False
    share: Annotated[float, Gt(0), Lt(1), Doc("share of the budget that it takes")] = 0.1
    constant: Annotated[float, Ge(0), Lt(1), Doc("the constant feature that the map adds, an intercept")] = 0.2
    nonnegative: Annotated[
        bool, Doc("encoded features are declared non-negative, as a schema's are: less noise on the moments")
    ] = False


@dataclass(frozen=True)
class EvaluationTable:
    """A private evaluation of the model on held-out records, in two rounds behind the algorithm's."""

    kind: Annotated[
        Literal["none", "private"],
        Doc("private: ROC, calibration, accuracy and loss, released with noise and charged; a deployment has no other"),
    ] = "none"
    held_out: Annotated[
        float,
        Gt(0),
        Lt(1),
        EVALUATED,
        Doc("share of each party's records that is held out of training; takes the place of [data] test_fraction"),
    ] = 0.2
    share: Annotated[float, Gt(0), Lt(1), EVALUATED, Doc("share of the budget that it takes")] = 0.1
    bins: Annotated[int, Ge(4), Le(256), EVALUATED, Doc("bins of the scores, an even number")] = 12
    range: Annotated[
        float | None,
        Gt(0),
        EVALUATED,
        Doc("scores beyond it are in the last bins; 0.4 of the model's norm, which is public, if left out"),
    ] = None
    clip: Annotated[float, Gt(0), EVALUATED, Doc("the most that one record's loss counts")] = 3.0
    seed: Annotated[int, Ge(0), EVALUATED, Doc("seed of the split, the same at all parties")] = 0


@dataclass(frozen=True)
class AlgorithmTable:
    """The method, and its own parameters under their paper's names."""

    name: Annotated[str, Doc("the algorithm")]
    rounds: Annotated[int, Ge(1), Doc("number of rounds")]
    weighting: Annotated[Literal["records", "parties"], Doc("weigh parties by their records, or all alike")] = "records"
    parameters: Any = None


@dataclass(frozen=True)
class LossTable:
    """The loss of one record, as a function of its margin."""

    name: Annotated[Literal["logistic", "half_logistic", "huber_hinge", "squared", "hinge"], Doc("the loss")] = (
        "logistic"
    )
    C: Annotated[float, Gt(0), Doc("weight of the mean loss against the regularizer")] = 1.0
    width: Annotated[float, Gt(0), When("name", "huber_hinge"), Doc("width of the rounded corner")] = 0.5
    label_bound: Annotated[
        float | None, Gt(0), When("name", "squared", required=True), Doc("labels are clipped to this size")
    ] = None
    radius: Annotated[
        float | None,
        Gt(0),
        When("name", "squared"),
        Doc("how large a prediction may be, at least label_bound; private methods need it"),
    ] = None


@dataclass(frozen=True)
class RegularizerTable:
    """The penalty on the weights."""

    name: Annotated[Literal["l2", "l1", "elastic_net"], Doc("the penalty")] = "l2"
    weight: Annotated[float, Ge(0), Doc("weight of the penalty")] = 1e-3
    l1_ratio: Annotated[float, Ge(0), Le(1), When("name", "elastic_net"), Doc("share of l1, the rest is l2")] = 0.5


@dataclass(frozen=True, kw_only=True)
class PrivacyTable:
    """What each party may lose. Without this section nothing is private."""

    epsilon: Annotated[float | None, Gt(0), Doc("for the whole run; needed without [algorithm] round_epsilon")] = None
    delta: Annotated[float, Ge(0), Lt(1), Doc("for the whole run; 0 needs pure noise")]
    party_epsilon: Annotated[
        Positives | None, SOME, Doc("one for each party, where they differ; epsilon is then not used")
    ] = None
    decay: Annotated[
        float, Gt(0), Doc("variance of a round's noise over that of the round before; 1 is constant noise")
    ] = 1.0
    profile: Annotated[
        Positives | None, SOME, Doc("instead of decay, the noise of every round relative to the others")
    ] = None
    budget: Annotated[float | None, Gt(0), Doc("what each party's ledger allows in all; epsilon if left out")] = None
    adjacency: Annotated[
        Literal["replace-one", "label", "person", "column"],
        Doc("which two data sets must look alike: one record replaced, one label, or (vertical) one row, one column"),
    ] = "replace-one"
    sum: Annotated[
        Literal["local", "secure"],
        Doc("each party's own noise covers its message; or messages are masked, and only their sum is ever read"),
    ] = "local"
    colluding: Annotated[
        int | None,
        Ge(1),
        When("sum", "secure"),
        Doc("parties that may tell all they know to whoever reads the sum; a third of them if left out"),
    ] = None
    fewest: Annotated[
        int | None,
        Ge(2),
        When("sum", "secure"),
        Doc(
            "sums are over so many parties at least, or the job ends; nine tenths if left out: all, if below ten. "
            "minimum_parties, in a party's own policy, holds for every job, also without secure sums"
        ),
    ] = None
    label_epsilon: Annotated[
        float | None,
        Gt(0),
        Doc(
            "randomise labels, once for all jobs on the ledger: nobody, not even the party's own server, ever learns "
            "more of one; the loss is debiased for it"
        ),
    ] = None


@dataclass(frozen=True)
class RunTable:
    """How the run is carried out."""

    mode: Annotated[Literal["simulation", "deployment"], Doc("noise that a seed repeats, or secure noise")] = (
        "simulation"
    )
    seed: Annotated[int | None, Ge(0), Doc("a simulation needs it, here or as --seed; a deployment refuses it")] = None
    engine: Annotated[
        Literal["inprocess", "dask"], Doc("what runs the parties: this process, or Dask workers (extra dask)")
    ] = "inprocess"
    workers: Annotated[
        int, Ge(1), Doc("with dask: how many blocks the parties form, one at each worker, with a ledger each")
    ] = 2
    scheduler: Annotated[
        str | None, rules.SCHEDULER, Doc("with dask: its address; workers are started on this machine if left out")
    ] = None
    timeout: Annotated[float, Gt(0), Doc("with dask: seconds that a worker may take to answer, or to come back")] = (
        600.0
    )
    tls_ca: Annotated[
        str | None, NAME, Doc("certificate (PEM) of the authority that signed those of scheduler and workers")
    ] = None
    tls_cert: Annotated[str | None, NAME, Doc("certificate (PEM) that this run shows to them")] = None
    tls_key: Annotated[str | None, NAME, Doc("key (PEM) of tls_cert")] = None
    memory: Annotated[
        int | str | None,
        rules.MEMORY,
        Doc(
            "bytes of records that a process keeps in memory; the rest is in unnamed temporary files. Changes no result"
        ),
    ] = None
    threads: Annotated[
        int | None,
        Ge(1),
        Doc("threads on which a process works on its records, one a core if left out. Changes no result"),
    ] = None
    out: Annotated[str | None, NAME, Doc("the run directory")] = None
    ledger: Annotated[
        str | None,
        NAME,
        Doc("the parties' ledger, which outlives runs (with dask a directory, at the workers); a deployment needs it"),
    ] = None
    purpose: Annotated[
        str | None, rules.LINE, Doc("what the run is for; every party's steward and register are told")
    ] = None
    requester: Annotated[
        str | None,
        rules.LINE,
        Doc("who asks for it: a person or an office; every party's steward and register are told"),
    ] = None
    checkpoint_every: Annotated[
        int, Ge(1), Doc("rounds between checkpoints; in one process a second is between them, too")
    ] = 1
    metrics_every: Annotated[int, Ge(0), Doc("rounds between metrics; 0 is only at the end")] = 1

    @property
    def limit(self) -> int | None:
        """`memory` in bytes."""
        return None if self.memory is None else rules.bytes_of(self.memory)

    @property
    def hands(self) -> int | None:
        """`threads`, but no more than there are cores: in a federation the coordinator writes this number."""
        return None if self.threads is None else min(self.threads, cores())
