"""A config with every key, two small algorithms, and a writer that knows its lines."""

import copy
import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from annotated_types import Gt

from privadmm.config import file as config
from privadmm.config.file import SECTIONS
from privadmm.engine.phases import AtParties, Phase
from privadmm.errors import ConfigError
from privadmm.params import Checked, Choice, Doc, Field, When, check_positive, fields_of
from small_runs import spelled


@dataclass(frozen=True)
class ToyStar:
    """A method that needs a coordinator."""

    D_w: Annotated[float, Gt(0), Doc("a bound")]
    rho: Annotated[float, Gt(0), Doc("a penalty")] = 1.0
    calibration: Annotated[Literal["certified", "published"], Doc("of the noise")] = "certified"
    round_epsilon: Annotated[float | None, Gt(0), When("calibration", "published"), Doc("of a round")] = None
    topology: ClassVar[str] = "star"
    phases: ClassVar[tuple[Phase, ...]] = (AtParties(lambda *given: None, sums=lambda public, t: None),)  # type: ignore[arg-type, return-value]

    def __post_init__(self) -> None:
        check_positive(rho=self.rho)
        if self.rho >= self.D_w:
            raise ConfigError(f"rho must be below D_w, not {self.rho}")


@dataclass(frozen=True)
class ToyGraph:
    eta: Annotated[float, Gt(0), Doc("a penalty")] = 1.0
    topology: ClassVar[str] = "graph"
    phases: ClassVar[tuple[Phase, ...]] = ()


TOYS = {"toy_star": ToyStar, "toy_graph": ToyGraph}

# Every key that goes without a condition, with a good value.
FULL: dict[str, dict[str, Any]] = {
    "data": {
        "source": "records.csv",
        "format": "csv",
        "label": "income",
        "classes": ["<=50K", ">50K"],
        "encoding": "binned",
        "rows": "clip",
        "row_bound": 1.5,
        "intercept": 0.1,
        "dim": 7,
        "id": "person",
        "test_fraction": 0.25,
        "split_seed": 1,
        "on_bad": "default",
        "schema": {"age": [17, 90], "sex": ["Female", "Male"]},
    },
    "parties": {"count": 3, "split": "dirichlet:0.3", "sizes": [5, 6, 7], "records": 30, "seed": 2, "leave": ["1@1"]},
    "graph": {"kind": "star", "seed": 3},
    "features": {"moments": True, "share": 0.2, "constant": 0.1, "nonnegative": True},
    "algorithm": {
        "name": "toy_star",
        "rounds": 10,
        "weighting": "parties",
        "D_w": 5,
        "rho": 0.5,
        "calibration": "certified",
    },
    "loss": {"name": "logistic", "C": 2},
    "regularizer": {"name": "l2", "weight": 0.01},
    "privacy": {
        "epsilon": 1.0,
        "delta": 1e-5,
        "budget": 2.0,
        "adjacency": "replace-one",
        "sum": "local",
        "party_epsilon": [1.0, 2.0, 0.5],
        "decay": 0.9,
        "profile": [1.0, 2.0],
        "label_epsilon": 1.5,
    },
    "evaluation": {"kind": "none"},
    "run": {
        "mode": "simulation",
        "seed": 4,
        "engine": "inprocess",
        "out": "runs/a",
        "ledger": "ledger.db",
        "checkpoint_every": 2,
        "metrics_every": 0,
        "memory": "500 MiB",
        "threads": 3,
        "workers": 3,
        "scheduler": "tls://head.example:8786",
        "timeout": 60,
        "tls_ca": "ca.pem",
        "purpose": "a study",
        "requester": "Dr. A",
        "tls_cert": "driver.pem",
        "tls_key": "driver-key.pem",
    },
}
CONDITIONAL = {
    ("graph", "edges"): 3,
    ("evaluation", "held_out"): 0.3,
    ("evaluation", "share"): 0.2,
    ("evaluation", "bins"): 8,
    ("evaluation", "range"): 4.0,
    ("evaluation", "clip"): 2.0,
    ("evaluation", "seed"): 3,
    ("algorithm", "round_epsilon"): 0.1,
    ("loss", "width"): 0.2,
    ("loss", "label_bound"): 1.0,
    ("loss", "radius"): 2.0,
    ("regularizer", "l1_ratio"): 0.5,
    ("privacy", "colluding"): 2,
    ("privacy", "fewest"): 3,
    ("parties", "columns"): [2, 4, 1],
    ("parties", "files"): ["a.csv", "b.csv", "c.csv"],
    ("parties", "row_bounds"): [1.0, 2.0, 1.0],
    ("parties", "use"): "first",
}
FIELDS: dict[tuple[str, str], Field] = {
    (section, field.name): field
    for section, table in SECTIONS.items()
    for field in [
        *fields_of(table).values(),
        *(fields_of(ToyStar).values() if section == "algorithm" else ()),
    ]
}
FIELDS["algorithm", "name"] = dataclasses.replace(FIELDS["algorithm", "name"], kind=Choice(tuple(TOYS)))
MINIMAL: dict[str, dict[str, Any]] = {
    "data": {"source": "embedded:adult"},
    "parties": {"count": 3},
    "algorithm": {"name": "toy_star", "rounds": 1, "D_w": 2},
}


def says(complaint: str, place: str, *facts: str) -> None:
    """Check that an error is one line that begins with its place and then tells these facts, in this order."""
    assert "\n" not in complaint
    assert complaint.startswith(place), complaint
    at = len(place)
    for fact in facts:
        assert fact in complaint[at:], f"{fact!r} is not in {complaint[at:]!r}"
        at = complaint.index(fact, at) + len(fact)


class Job:
    """A config file under construction, which knows its lines."""

    def __init__(self, folder: Path, tables: dict[str, Any]) -> None:
        self.path, self.lines, written = folder / "job.toml", {}, []
        for name, table in tables.items():
            written += ["# a comment", f"[{name}]"]
            self.lines[name,] = len(written)
            inner = {key: value for key, value in table.items() if isinstance(value, dict)}
            for key, value in table.items():
                if key not in inner:
                    written.append(f"{key} = {spelled(value)}")
                    self.lines[name, key] = len(written)
            for key, columns in inner.items():
                written.append(f"[{name}.{key}]")
                self.lines[name, key] = len(written)
                written += [f"{column} = {spelled(value)}" for column, value in columns.items()]
        self.path.write_text("\n".join(written) + "\n", encoding="utf-8")

    def read(self) -> config.Config:
        return config.read(self.path, TOYS)

    def complaints(self) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            self.read()
        return str(caught.value).split("\n")

    def complaint(self) -> str:
        (line,) = self.complaints()
        return line


def with_key(section: str, key: str) -> dict[str, Any]:
    """FULL, with the keys that this one needs beside it."""
    tables = copy.deepcopy(FULL)
    if (section, key) in CONDITIONAL:
        when = FIELDS[section, key].when
        tables[section][when.key] = when.value
        tables[section][key] = CONDITIONAL[section, key]
        if when.value == "features":
            del tables[section]["leave"]  # columns are needed
            del tables["run"]["memory"], tables["run"]["threads"]  # for records only
        if when.value == "squared":
            tables[section]["label_bound"] = 1.0
            del tables["privacy"]["label_epsilon"]  # for classes only
    if section == "evaluation":
        del tables["privacy"]["label_epsilon"]  # for true labels only
    if (section, key) == ("graph", "edges"):
        tables["algorithm"] = {"name": "toy_graph", "rounds": 1}
    return tables


def changed(section: str, key: str, value: Any) -> dict[str, Any]:
    tables = with_key(section, key)
    tables[section][key] = value
    return tables


def wrong_types(field: Field) -> list[Any]:
    """Values of every other type, written out here so that the test does not use the reader's idea of a type."""
    kind = field.kind.kind if isinstance(field.kind, Checked) else field.kind
    if field.name == "memory":
        return [True, 0.5, [1], {}]
    json_type = kind.json().get("type", "string")  # an enum here is one of strings
    return {
        "integer": [True, 1.0, "1", [1], {}],
        "number": [False, "1.0", [1.0], {}, math.nan, math.inf],
        "string": [True, 3, 0.5, ["x"], {}],
        "array": [True, 3, "x", {}, [[]], [{}], [True, {}]],
        "object": [True, 3, ["x"]],
        "boolean": [1, 0.0, "true", [True], {}],
    }[json_type]


def out_of_range(field: Field) -> list[Any]:
    if isinstance(field.kind, Choice):
        return [field.kind.values[0] + "x", ""]
    special = {
        "source": ["embedded:adlut", " "],
        "label": [""],
        "out": [" "],
        "ledger": [""],
        "memory": [0, -1, "", "2 GBs", "2gb", "-1GB", "1e9B"],
        "scheduler": [
            "",
            "head:8786",
            "tls://head",
            "tcp://head.example:8786",
            "tls://head:x",
            "tls://head:1/x",
        ],
        "tls_ca": [" "],
        "purpose": [" ", "x" * 301, "two\nlines", "\u202ex"],
        "requester": ["", "x" * 301, "a\x1bb"],
        "tls_cert": [""],
        "tls_key": [""],
        "classes": [[1], [1, 2, 3], ["a", "a"], [0, False]],
        "schema": [{}, {"age": []}, {"age": [1]}, {"age": [2, 1]}, {"sex": ["a", 1]}, {"sex": ["a", "a "]}],
        "split": ["evenly", "column:", "dirichlet:0", "dirichlet:-1", "dirichlet:nan", "dirichlet:x"],
        "sizes": [[], [0], [1, -1]],
        "columns": [[], [0, 1, 1], [1, ["a"], 1], [["a"], ["a"]], [["a"], []]],
        "files": [[], ["a.csv", "a.csv"], ["a.csv", " "]],
        "row_bounds": [[], [0.0], [1.0, -1.0]],
        "id": [""],
        "leave": [[], ["1"], ["1@0"], ["1@x"], ["-1@2"], ["01@1"], ["1@1", "1@1"]],
        "party_epsilon": [[], [0.0], [1.0, -1.0]],
        "profile": [[], [0.0], [1.0, -1.0]],
    }
    beyond = {
        "exclusiveMinimum": lambda limit: [limit, limit - 1],
        "minimum": lambda limit: [limit - 1],
        "exclusiveMaximum": lambda limit: [limit, limit + 1],
        "maximum": lambda limit: [limit + 1],
    }
    limits = field.kind.json().items()
    return special.get(field.name) or [v for word, limit in limits for v in beyond.get(word, lambda _: [])(limit)]
