"""The sections of the config file: each field is a key, with its type, limits, meaning and default."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le, Lt

from privadmm.params import MOST_FEATURES, SOME, Doc, Rule, When, show

EMBEDDED = ("embedded:adult", "embedded:a9a")
LEAVES = "(0|[1-9][0-9]{0,8})@[1-9][0-9]{0,8}"  # party and round
PARTY = "{party}"  # in a path, the number of a party
BYTES = r"([0-9]+(?:\.[0-9]+)?) ?([kMGT]?B|[KMGT]iB)"
UNITS = {f"{prefix}B": 1000**power for power, prefix in enumerate(("", "k", "M", "G", "T"))}
UNITS |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", start=1)}


def _text_problem(value: str) -> str | None:
    if "\0" in value:
        return "has a NUL character, which no file or column name can have"
    return None if value.strip() else "is blank"


def _source_problem(value: str) -> str | None:
    unknown = value.startswith("embedded:") and value not in EMBEDDED
    return f"is {show(value)}" if unknown else _text_problem(value)


def _classes_problem(value: tuple[Any, Any]) -> str | None:
    return "names one class twice" if value[0] == value[1] else None


def _column_problem(value: tuple[float | str, ...]) -> str | None:
    words = [item.strip() for item in value if isinstance(item, str)]
    numbers = [item for item in value if not isinstance(item, str)]
    if words and numbers:
        return "mixes strings and numbers"
    if words:
        # Readers strip what they read, so these would never be met, or be met twice.
        return "has a blank category" if "" in words else _repeated(words)
    if len(numbers) != 2:
        return f"is {show(value)}"
    return None if numbers[0] < numbers[1] else f"is [{numbers[0]:g}, {numbers[1]:g}]"


def _repeated(words: list[str]) -> str | None:
    twice = [word for word, count in Counter(words).items() if count > 1]
    return f"names {show(twice[0])} twice" if twice else None


def _split_problem(value: str) -> str | None:
    name, _, rest = value.partition(":")
    if name == "dirichlet":
        try:
            alpha = float(rest)
        except ValueError:
            alpha = math.nan
        return None if 0 < alpha < math.inf else f"is {show(value)}"
    good = value in ("even", "features") or (name == "column" and rest.strip())
    return None if good else f"is {show(value)}"


def _groups_problem(value: tuple[int | tuple[str, ...], ...]) -> str | None:
    if not value:
        return "is an empty list"
    counts = [item for item in value if isinstance(item, int)]
    if counts and len(counts) < len(value):
        return "mixes numbers and lists of names"
    if any(count < 1 for count in counts):
        return "has a party without columns"
    groups = [item for item in value if not isinstance(item, int)]
    if not all(groups):
        return "has a party without columns"
    return _repeated([name for group in groups for name in group])


def _files_problem(value: tuple[str, ...]) -> str | None:
    return _repeated(list(value)) if value else "is an empty list"


def _scheduler_problem(value: str) -> str | None:
    try:
        found = urlsplit(value)
        plain = found.scheme == "tcp" and found.hostname in ("127.0.0.1", "localhost", "::1")
        bare = value == f"{found.scheme}://{found.netloc}"
        good = (plain or found.scheme == "tls") and bare and bool(found.hostname and found.port)
    except ValueError:  # no port
        good = False
    return None if good else f"is {show(value)}"


def _leave_problem(value: tuple[str, ...]) -> str | None:
    if not value:
        return "is an empty list"
    if odd := [item for item in value if not re.fullmatch(LEAVES, item)]:
        return f"has {show(odd[0])}"
    return _repeated([f"party {item.partition('@')[0]}" for item in value])


def bytes_of(value: int | str) -> int | None:
    """A number of bytes, or what a text such as "2GB" stands for; None if it stands for nothing."""
    if isinstance(value, int):
        return value
    found = re.fullmatch(BYTES, value)
    return None if found is None else int(float(found[1]) * UNITS[found[2]])


def _memory_problem(value: int | str) -> str | None:
    found = bytes_of(value)
    return None if found is not None and 1 <= found < 2**63 else f"is {show(value)}"


NAME = Rule(_text_problem, "a string that is not blank", {"pattern": r"\S"})
SCHEDULER = Rule(
    _scheduler_problem,
    '"tls://HOST:PORT"; on this machine also "tcp://127.0.0.1:PORT"',
    {"pattern": r"^(tls://.+|tcp://(127\.0\.0\.1|localhost|\[::1\])):[0-9]+$"},
)
COLUMN = Rule(
    _column_problem,
    "[low, high] with low < high, or a list of distinct strings",
    {
        "minItems": 1,
        "uniqueItems": True,
        "anyOf": [{"items": {"type": "string"}}, {"items": {"type": "number"}, "minItems": 2, "maxItems": 2}],
    },
)
Column = Annotated[tuple[str | float, ...], COLUMN]


@dataclass(frozen=True)
class DataTable:
    """What is trained on, and what is declared about it."""

    source: Annotated[
        str,
        Rule(
            _source_problem,
            f"{', '.join(map(show, EMBEDDED))} or the path of a file",
            {"pattern": rf"^({'|'.join(EMBEDDED)}|(?!embedded:).*\S.*)$"},
            near=EMBEDDED,
        ),
        Doc(
            "the records; with {party} in it a file for each party, {party} being its number from 0: a worker opens "
            "those of its own parties only"
        ),
    ]
    format: Annotated[
        Literal["csv", "parquet", "npz", "libsvm"] | None, Doc("of the file; by its extension if left out")
    ] = None
    label: Annotated[str | None, NAME, Doc("the label's column; csv and parquet need it")] = None
    classes: Annotated[
        tuple[bool | int | float | str, bool | int | float | str] | None,
        Rule(
            _classes_problem,
            "a list of exactly two distinct values, [negative, positive]",
            {"uniqueItems": True},
        ),
        Doc("the label's two values, negative first; needed for a file unless the loss is squared"),
    ] = None
    schema: Annotated[
        Mapping[str, Column] | None,
        Rule(
            lambda value: None if value else "declares no columns",
            f"a table, each column = {COLUMN.allowed}; or the path of a TOML file that holds one",
            {"type": ["object", "string"], "minProperties": 1},
        ),
        Doc("declared ranges (beyond them: clipped) and categories (unknown: all zeros) of the columns that are used"),
    ] = None
    encoding: Annotated[
        Literal["minmax", "binned", "coarse"],
        Doc("numbers by their declared range: scaled to [0, 1], or one-hot in ten or five fixed bins of it"),
    ] = "minmax"
    rows: Annotated[Literal["clip", "unit"], Doc("rows are clipped to row_bound, or every row is scaled to norm 1")] = (
        "clip"
    )
    row_bound: Annotated[
        float | None,
        Gt(0),
        Doc('rows are clipped to this 2-norm; needed unless the source is embedded or rows = "unit"'),
    ] = None
    intercept: Annotated[float, Ge(0), Lt(1), Doc("share of a row's norm that a constant feature takes; 0 is none")] = (
        0.0
    )
    dim: Annotated[
        int | None,
        Ge(1),
        Rule(
            lambda value: f"is {value:,}" if value > MOST_FEATURES else None,
            f"an integer from 1 to {MOST_FEATURES:,} (hash more features to fewer)",
            {"maximum": MOST_FEATURES},
        ),
        Doc("number of features; libsvm needs it"),
    ] = None
    id: Annotated[
        str | None,
        NAME,
        Doc("a column that names the people, by which [parties] files are aligned; no feature"),
    ] = None
    test_fraction: Annotated[float, Ge(0), Lt(1), Doc("share held out; none in a deployment")] = 0.2
    split_seed: Annotated[int, Ge(0), Doc("seed of the held-out split")] = 0
    on_bad: Annotated[
        Literal["refuse", "default"],
        Doc("a cell that is not a number: stop, or take the low end of its range"),
    ] = "refuse"

    @property
    def embedded(self) -> bool:
        return self.source in EMBEDDED

    @property
    def by_party(self) -> bool:
        """Every party has a file of its own."""
        return PARTY in self.source

    def of_party(self, party: int) -> str:
        return self.source.replace(PARTY, str(party))


@dataclass(frozen=True)
class PartiesTable:
    """Who holds the records."""

    count: Annotated[
        int | None,
        Ge(1),
        Doc('number of parties; needed unless split is "column:NAME" or sizes is given'),
    ] = None
    split: Annotated[
        str,
        Rule(
            _split_problem,
            '"even", "column:NAME", "dirichlet:ALPHA" with a number ALPHA > 0, or "features"',
            {"pattern": r"^(even|features|column:.*\S.*|dirichlet:.+)$"},
            near=("even", "features", "column:NAME", "dirichlet:ALPHA"),
        ),
        Doc("how records (or, for features, columns) go to parties"),
    ] = "even"
    sizes: Annotated[
        tuple[Annotated[int, Ge(1)], ...] | None,
        Rule(
            lambda value: None if value else "is an empty list",
            "a list of integers, each >= 1",
            {"minItems": 1},
        ),
        Doc("records of each party, to account for a run without its data"),
    ] = None
    seed: Annotated[int, Ge(0), Doc("seed of the split")] = 0
    columns: Annotated[
        tuple[int | tuple[str, ...], ...] | None,
        Rule(
            _groups_problem,
            "a list, for each party the number of its columns, >= 1, or for each the names of its columns",
            {
                "minItems": 1,
                "anyOf": [
                    {"items": {"type": "integer", "minimum": 1}},
                    {"items": {"type": "array", "minItems": 1}, "uniqueItems": True},
                ],
            },
        ),
        When("split", "features"),
        Doc("who holds which columns: [66, 57] from left to right, or names; as even as can be if left out"),
    ] = None
    files: Annotated[
        tuple[Annotated[str, NAME], ...] | None,
        Rule(_files_problem, "a list of distinct paths", {"minItems": 1, "uniqueItems": True}),
        When("split", "features"),
        Doc("a csv or parquet file for each party, aligned by [data] id; [data] source then has the labels only"),
    ] = None
    row_bounds: Annotated[
        tuple[Annotated[float, Gt(0)], ...] | None,
        SOME,
        When("split", "features"),
        Doc("to which norm each party clips its part of a row; [data] row_bound for all if left out"),
    ] = None
    use: Annotated[
        Literal["all", "first"],
        When("split", "features"),
        Doc("train on every party's columns, or on the first party's alone to see what the others add"),
    ] = "all"
    leave: Annotated[
        tuple[str, ...] | None,
        Rule(
            _leave_problem,
            'a list of "PARTY@ROUND", each party once, parties counted from 0 and rounds from 1',
            {
                "minItems": 1,
                "uniqueItems": True,
                "items": {"type": "string", "pattern": f"^{LEAVES}$"},
            },
        ),
        Doc('of a simulation: "3@10" is party 3 giving no answer from round 10 on; the others go on'),
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
        return self.split.removeprefix("column:") if self.split.startswith("column:") else None

    @property
    def alpha(self) -> float | None:
        return float(self.split.removeprefix("dirichlet:")) if self.split.startswith("dirichlet:") else None


@dataclass(frozen=True)
class GraphTable:
    """Who hears whom."""

    kind: Annotated[Literal["star", "ring", "complete", "random"], Doc("the coordinator's star, or a graph")] = "star"
    edges: Annotated[
        int | None,
        Ge(0),
        When("kind", "random", required=True),
        Doc("number of edges of a random graph"),
    ] = None
    seed: Annotated[int, Ge(0), Doc("seed of a random graph")] = 0


@dataclass(frozen=True)
class FeaturesTable:
    """A private release of the features' moments in front of the algorithm, to centre and scale by."""

    moments: Annotated[bool, Doc("spend the first round on it")] = False
    share: Annotated[float, Gt(0), Lt(1), Doc("of the budget that it takes")] = 0.1
    constant: Annotated[float, Ge(0), Lt(1), Doc("the constant feature that the map adds, an intercept")] = 0.2
    nonnegative: Annotated[
        bool, Doc("encoded features are declared non-negative, as a schema's are: less noise on the moments")
    ] = False


@dataclass(frozen=True)
class AlgorithmTable:
    """The method, and its own parameters under their paper's names."""

    name: Annotated[str, Doc("which algorithm")]
    rounds: Annotated[int, Ge(1), Doc("number of rounds")]
    weighting: Annotated[Literal["records", "parties"], Doc("a party counts by its records, or every party alike")] = (
        "records"
    )
    parameters: Any = None


@dataclass(frozen=True)
class LossTable:
    """The loss of one record, as a function of its margin."""

    name: Annotated[Literal["logistic", "half_logistic", "huber_hinge", "squared", "hinge"], Doc("which loss")] = (
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
        Doc("declared bound on the margin; private methods need it"),
    ] = None


@dataclass(frozen=True)
class RegularizerTable:
    """The penalty on the weights."""

    name: Annotated[Literal["l2", "l1", "elastic_net"], Doc("which penalty")] = "l2"
    weight: Annotated[float, Ge(0), Doc("its weight")] = 1e-3
    l1_ratio: Annotated[float, Ge(0), Le(1), When("name", "elastic_net"), Doc("share of l1, the rest is l2")] = 0.5


@dataclass(frozen=True, kw_only=True)
class PrivacyTable:
    """What each party may lose. Without this section nothing is private."""

    epsilon: Annotated[float | None, Gt(0), Doc("of the whole run; needed unless [algorithm] round_epsilon is set")] = (
        None
    )
    delta: Annotated[float, Ge(0), Lt(1), Doc("of the whole run; 0 needs pure noise")]
    party_epsilon: Annotated[
        tuple[Annotated[float, Gt(0)], ...] | None,
        SOME,
        Doc("one for each party, where they differ; epsilon is then not used"),
    ] = None
    decay: Annotated[
        float, Gt(0), Doc("variance of a round's noise over that of the round before; 1 is constant noise")
    ] = 1.0
    profile: Annotated[
        tuple[Annotated[float, Gt(0)], ...] | None,
        SOME,
        Doc("instead of decay, the noise of every round relative to the others"),
    ] = None
    budget: Annotated[float | None, Gt(0), Doc("what each party's ledger allows in all; epsilon if left out")] = None
    adjacency: Annotated[
        Literal["replace-one", "label", "person", "column"],
        Doc("which two data sets must look alike: one record replaced, one label, or (vertical) one row, one column"),
    ] = "replace-one"
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

    mode: Annotated[Literal["simulation", "deployment"], Doc("reproducible noise from a seed, or secure noise")] = (
        "simulation"
    )
    seed: Annotated[
        int | None,
        Ge(0),
        Doc("of a simulation, which needs it here or as --seed; a deployment refuses it"),
    ] = None
    engine: Annotated[
        Literal["inprocess", "dask"], Doc("what runs the parties: this process, or Dask workers (extra dask)")
    ] = "inprocess"
    workers: Annotated[
        int,
        Ge(1),
        Doc("of the engine dask: how many blocks the parties form, one at each worker, with a ledger each"),
    ] = 2
    scheduler: Annotated[
        str | None,
        SCHEDULER,
        Doc("of the engine dask; workers are started on this machine if left out"),
    ] = None
    timeout: Annotated[
        float,
        Gt(0),
        Doc("of the engine dask: seconds that a worker may take to answer, or to come back"),
    ] = 600.0
    tls_ca: Annotated[
        str | None, NAME, Doc("certificate (PEM) of the authority that signed those of scheduler and workers")
    ] = None
    tls_cert: Annotated[str | None, NAME, Doc("certificate (PEM) that this run shows to them")] = None
    tls_key: Annotated[str | None, NAME, Doc("its key (PEM)")] = None
    memory: Annotated[
        int | str | None,
        Rule(
            _memory_problem,
            'a number of bytes >= 1, or one with a unit such as "2GB" or "500 MiB"',
            {"minimum": 1, "pattern": f"^{BYTES}$"},
        ),
        Doc(
            "how much of its records a process keeps in memory; the rest is in files without a name, in the folder for "
            "temporary files. It changes no result"
        ),
    ] = None
    out: Annotated[str | None, NAME, Doc("the run directory")] = None
    ledger: Annotated[
        str | None,
        NAME,
        Doc("the parties' ledger, which outlives runs (with dask a directory, at the workers); a deployment needs it"),
    ] = None
    checkpoint_every: Annotated[int, Ge(1), Doc("rounds between checkpoints")] = 1
    metrics_every: Annotated[int, Ge(0), Doc("rounds between metrics; 0 is only at the end")] = 1

    @property
    def limit(self) -> int | None:
        """`memory` in bytes."""
        return None if self.memory is None else bytes_of(self.memory)
