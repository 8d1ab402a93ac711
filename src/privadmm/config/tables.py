"""The sections of the config file: each field is a key, with its type, limits, meaning and default."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from privadmm.toml.fields import SOME, Above, AtLeast, AtMost, Below, Doc, Rule, When, show

EMBEDDED = ("embedded:adult", "embedded:a9a")


def _text_problem(value: str) -> str | None:
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


NAME = Rule(_text_problem, "a string that is not blank", {"pattern": r"\S"})
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
        Doc("the records"),
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
        Doc(
            "declared ranges (beyond them: clipped) and categories (unknown: all zeros) of the columns that are used"
        ),
    ] = None
    row_bound: Annotated[
        float | None, Above(0), Doc("rows are clipped to this 2-norm; needed unless the source is embedded")
    ] = None
    intercept: Annotated[
        float, AtLeast(0), Below(1), Doc("share of a row's norm that a constant feature takes; 0 is none")
    ] = 0.0
    dim: Annotated[int | None, AtLeast(1), Doc("number of features; libsvm needs it")] = None
    test_fraction: Annotated[float, AtLeast(0), Below(1), Doc("share held out; none in a deployment")] = 0.2
    split_seed: Annotated[int, AtLeast(0), Doc("seed of the held-out split")] = 0
    on_bad: Annotated[
        Literal["refuse", "default"],
        Doc("a cell that is not a number: stop, or take the low end of its range"),
    ] = "refuse"

    @property
    def embedded(self) -> bool:
        return self.source in EMBEDDED


@dataclass(frozen=True)
class PartiesTable:
    """Who holds the records."""

    count: Annotated[
        int | None,
        AtLeast(1),
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
        tuple[Annotated[int, AtLeast(1)], ...] | None,
        Rule(
            lambda value: None if value else "is an empty list",
            "a list of integers, each >= 1",
            {"minItems": 1},
        ),
        Doc("records of each party, to account for a run without its data"),
    ] = None
    seed: Annotated[int, AtLeast(0), Doc("seed of the split")] = 0

    @property
    def known(self) -> int | None:
        """The number of parties, where the file alone tells it."""
        return self.count if self.sizes is None else len(self.sizes)

    @property
    def column(self) -> str | None:
        return self.split.removeprefix("column:") if self.split.startswith("column:") else None

    @property
    def alpha(self) -> float | None:
        return float(self.split.removeprefix("dirichlet:")) if self.split.startswith("dirichlet:") else None


@dataclass(frozen=True)
class GraphTable:
    """Who hears whom."""

    kind: Annotated[
        Literal["star", "ring", "complete", "random"], Doc("the coordinator's star, or a graph")
    ] = "star"
    edges: Annotated[
        int | None,
        AtLeast(0),
        When("kind", "random", required=True),
        Doc("number of edges of a random graph"),
    ] = None
    seed: Annotated[int, AtLeast(0), Doc("seed of a random graph")] = 0


@dataclass(frozen=True)
class AlgorithmTable:
    """The method, and its own parameters under their paper's names."""

    name: Annotated[str, Doc("which algorithm")]
    rounds: Annotated[int, AtLeast(1), Doc("number of rounds")]
    weighting: Annotated[
        Literal["records", "parties"], Doc("a party counts by its records, or every party alike")
    ] = "records"
    parameters: Any = None


@dataclass(frozen=True)
class LossTable:
    """The loss of one record, as a function of its margin."""

    name: Annotated[
        Literal["logistic", "half_logistic", "huber_hinge", "squared", "hinge"], Doc("which loss")
    ] = "logistic"
    C: Annotated[float, Above(0), Doc("weight of the mean loss against the regularizer")] = 1.0
    width: Annotated[float, Above(0), When("name", "huber_hinge"), Doc("width of the rounded corner")] = 0.5
    label_bound: Annotated[
        float | None, Above(0), When("name", "squared", required=True), Doc("labels are clipped to this size")
    ] = None
    radius: Annotated[
        float | None,
        Above(0),
        When("name", "squared"),
        Doc("declared bound on the margin; private methods need it"),
    ] = None


@dataclass(frozen=True)
class RegularizerTable:
    """The penalty on the weights."""

    name: Annotated[Literal["l2", "l1", "elastic_net"], Doc("which penalty")] = "l2"
    weight: Annotated[float, AtLeast(0), Doc("its weight")] = 1e-3
    l1_ratio: Annotated[
        float, AtLeast(0), AtMost(1), When("name", "elastic_net"), Doc("share of l1, the rest is l2")
    ] = 0.5


@dataclass(frozen=True, kw_only=True)
class PrivacyTable:
    """What each party may lose. Without this section nothing is private."""

    epsilon: Annotated[
        float | None, Above(0), Doc("of the whole run; needed unless [algorithm] round_epsilon is set")
    ] = None
    delta: Annotated[float, AtLeast(0), Below(1), Doc("of the whole run; 0 needs pure noise")]
    party_epsilon: Annotated[
        tuple[Annotated[float, Above(0)], ...] | None,
        SOME,
        Doc("one for each party, where they differ; epsilon is then not used"),
    ] = None
    decay: Annotated[
        float, Above(0), Doc("variance of a round's noise over that of the round before; 1 is constant noise")
    ] = 1.0
    profile: Annotated[
        tuple[Annotated[float, Above(0)], ...] | None,
        SOME,
        Doc("instead of decay, the noise of every round relative to the others"),
    ] = None
    budget: Annotated[
        float | None, Above(0), Doc("what each party's ledger allows in all; epsilon if left out")
    ] = None
    adjacency: Annotated[
        Literal["replace-one", "label", "person", "column"],
        Doc(
            "which two data sets must look alike: one record replaced, one label, or (vertical) one row, one column"
        ),
    ] = "replace-one"


@dataclass(frozen=True)
class RunTable:
    """How the run is carried out."""

    mode: Annotated[
        Literal["simulation", "deployment"], Doc("reproducible noise from a seed, or secure noise")
    ] = "simulation"
    seed: Annotated[
        int | None,
        AtLeast(0),
        Doc("of a simulation, which needs it here or as --seed; a deployment refuses it"),
    ] = None
    engine: Annotated[Literal["inprocess"], Doc("what runs the parties")] = "inprocess"
    out: Annotated[str | None, NAME, Doc("the run directory")] = None
    ledger: Annotated[
        str | None, NAME, Doc("the parties' ledger, which outlives runs; a deployment needs it")
    ] = None
    checkpoint_every: Annotated[int, AtLeast(1), Doc("rounds between checkpoints")] = 1
    metrics_every: Annotated[int, AtLeast(0), Doc("rounds between metrics; 0 is only at the end")] = 1
