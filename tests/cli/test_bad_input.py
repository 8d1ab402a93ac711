"""Bad input: a message of one line says where and what to do, the exit code is right, and no file is left behind."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.data import splits
from privadmm.data.shards import Shards
from privadmm.errors import ConfigError, DataError
from privadmm.optim.graphs import from_networkx
from small_runs import CLEAR, PRIVATE, Place, Tables, charged, rows, write_csv, write_npz

Prepare = Callable[[Path], object]
X, Y = rows()
CSV = {"source": "data.csv", "label": "y"}
GRAPH = {
    "algorithm": {"name": "admm_graph", "rounds": 3, "rho": None, "eta": 0.1},
    "parties": {"count": 5},
}


def with_cell(value: float) -> np.ndarray:
    changed = X.copy()
    changed[7, 1] = value
    return changed


def foreign_database(folder: Path) -> None:
    with sqlite3.connect(folder / "party.sqlite") as db:
        db.execute("CREATE TABLE patients (name TEXT)")
    db.close()


@dataclass(frozen=True)
class Bad:
    """`changes` to a config that works, `prepare` to the folder; then `code` and `words` of the message."""

    name: str
    code: int
    words: tuple[str, ...]
    changes: dict[str, Any] = field(default_factory=dict)
    prepare: Prepare = lambda folder: None
    tables: Tables = field(default_factory=lambda: PRIVATE)
    options: tuple[str, ...] = ()
    out: str = "out"


def bad_cells(value: float, name: str) -> list[Bad]:
    as_npz: Prepare = lambda folder: write_npz(folder / "data.npz", with_cell(value), Y)  # noqa: E731
    as_csv: Prepare = lambda folder: write_csv(folder / "data.csv", with_cell(value), Y)  # noqa: E731
    return [
        Bad(f"{name} npz", 1, ("data.npz", "'x2'", "1 of 60 rows", "record 8"), {}, as_npz),
        Bad(f"{name} csv", 1, ("data.csv", "'f1'", "1 of 60 rows", "line 9"), {"data": CSV}, as_csv),
    ]


BAD = [
    *bad_cells(np.nan, "NaN"),
    *bad_cells(np.inf, "infinity"),
    Bad(
        "a third class",
        1,
        ("data.npz", "1 of 60 rows", "neither 0 (negative) nor 1 (positive)", "declare"),
        prepare=lambda folder: write_npz(folder / "data.npz", X, np.where(np.arange(60) == 5, 2, Y)),
    ),
    Bad("more parties than records", 1, ("61 parties", "48 records"), {"parties": {"count": 61}}),
    Bad(
        "a Dirichlet split that leaves a party empty",
        1,
        ("dirichlet", "40 parties stayed empty", "larger alpha"),
        {"parties": {"count": 40, "split": "dirichlet:0.01"}},
    ),
    Bad(
        "a party of a column whose only record is held out",
        1,
        ("party 1 has no records",),
        {"parties": {"count": None, "split": "column:site"}, "data": {"test_fraction": 0.9}},
        lambda folder: write_npz(folder / "data.npz", X, Y, site=np.where(np.arange(60) == 5, "b", "a")),
    ),
    Bad(
        "a blank party name",
        1,
        ("1 of 60 rows are blank",),
        {"parties": {"count": None, "split": "column:site"}},
        lambda folder: write_npz(folder / "data.npz", X, Y, site=np.where(np.arange(60) == 5, "", "a")),
    ),
    Bad(
        "a count that the column does not have",
        2,
        ("[parties]", "3 parties", "2 values"),
        {"parties": {"split": "column:site"}},
        lambda folder: write_npz(folder / "data.npz", X, Y, site=np.where(np.arange(60) < 30, "b", "a")),
    ),
    Bad("no such column", 1, ("'site'", "missing"), {"parties": {"count": None, "split": "column:site"}}),
    Bad(
        "no such column of embedded data",
        2,
        ("embedded:adult", "'site'", "race"),
        {
            "parties": {"count": None, "split": "column:site"},
            "data": {"source": "embedded:adult", "classes": None, "row_bound": None},
        },
    ),
    Bad(
        "declared sizes that are not the parties'",
        2,
        ("[parties] sizes", "10 records for party 0", "has 16"),
        {"parties": {"count": None, "sizes": [10, 19, 19]}},
    ),
    Bad("a row bound of zero", 2, ("[data] row_bound", "is 0", "> 0"), {"data": {"row_bound": 0}}),
    Bad("an unknown key", 2, ("[algorithm] roudns", "rounds"), {"algorithm": {"roudns": 3}}),
    Bad("an unknown section", 2, ("[algoritm]", "[algorithm]"), {"algoritm": {"name": "dp_admm"}}),
    Bad(
        "too few edges to connect the parties",
        2,
        ("[graph] edges", "is 3", "4 to 10"),
        GRAPH | {"graph": {"kind": "random", "edges": 3}},
        tables=CLEAR,
    ),
    Bad("no edges for a graph method", 2, ("[graph] kind", "ring"), GRAPH, tables=CLEAR),
    Bad(
        "a budget below one round",
        3,
        ("party 0", "0.01", "Nothing more was released"),
        {"privacy": {"budget": 0.01}},
    ),
    Bad(
        "a budget below one round, in a ledger that is still to be made",
        3,
        ("party 0", "Nothing more was released"),
        {"privacy": {"budget": 0.01}, "run": {"ledger": "party.sqlite"}},
    ),
    Bad("a budget below the run", 3, ("party 0", "0.9", "to 1."), {"privacy": {"budget": 0.9}}),
    Bad(
        "a deployment that keeps no account",
        2,
        ("[run] ledger", "deployment"),
        {"run": {"mode": "deployment", "seed": None}},
    ),
    Bad("a simulation without a seed", 2, ("[run] seed",), {"run": {"seed": None}}),
    Bad(
        "a deployment with a seed",
        2,
        ("[run] seed", "deployment"),
        {"run": {"mode": "deployment", "ledger": "party.sqlite"}},
    ),
    Bad(
        "a deployment with a seed on the command line",
        2,
        ("seed", "deployment"),
        {"run": {"mode": "deployment", "seed": None, "ledger": "party.sqlite"}},
        options=("--seed", "1"),
    ),
    Bad(
        "an epsilon for a method that keeps none",
        2,
        ("admm_star", "not private"),
        {"privacy": {"epsilon": 1.0, "delta": 1e-5}},
        tables=CLEAR,
    ),
    Bad("a private method without a target", 2, ("[privacy]",), {"privacy": None}),
    Bad("no such data", 2, ("nothing.npz", "no such file"), {"data": {"source": "nothing.npz"}}),
    Bad(
        "data that are not what they are called",
        1,
        ("data.npz", "cannot be read as npz"),
        prepare=lambda folder: (folder / "data.npz").write_text("not a zip file"),
    ),
    Bad("an unknown engine", 2, ("--engine", "inprocess"), options=("--engine", "warp")),
    Bad("a negative seed", 2, ("--seed", ">= 0"), options=("--seed", "-1")),
    Bad(
        "a ledger that is a text file",
        1,
        ("party.sqlite", "not a database", "another file"),
        {"run": {"ledger": "party.sqlite"}},
        lambda folder: (folder / "party.sqlite").write_text("Dear diary, " * 50),
    ),
    Bad(
        "somebody else's database as a ledger",
        1,
        ("party.sqlite", "not a privadmm ledger", "another file"),
        {"run": {"ledger": "party.sqlite"}},
        foreign_database,
    ),
    Bad("a ledger in a folder that is not there", 1, ("none/l.sqlite",), {"run": {"ledger": "none/l.sqlite"}}),
    Bad(
        "a run directory that is a file",
        2,
        ("out", "is a file"),
        prepare=lambda folder: (folder / "out").write_text(""),
    ),
    Bad(
        "a run directory below a file",
        1,
        ("out/deeper", "Not a directory", "nothing was released"),
        prepare=lambda folder: (folder / "out").write_text(""),
        out="out/deeper",
    ),
    Bad(
        "a run directory with other things in it",
        2,
        ("out", "not empty", "--out"),
        prepare=lambda folder: (folder / "out" / "thesis").mkdir(parents=True),
    ),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name.replace(" ", "-"))
def test_bad_input_is_named_and_leaves_nothing(case: Bad, place: Place) -> None:
    case.prepare(place.path)
    config = place.config(case.tables, **case.changes)
    before = {name: contents(place.path / name) for name in place.names()}
    said = place.train(config, "--json", *case.options, out=place.path / case.out)
    assert said.code == case.code, said.err
    assert said.object.keys() == {"error", "message", "exit_code"}
    assert said.object["exit_code"] == case.code
    assert said.object["message"] in said.err
    for words in case.words:
        assert words in said.err
    assert "Traceback" not in said.err
    assert {name: contents(place.path / name) for name in place.names()} == before


def contents(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def test_the_config_behind_the_bad_ones_works(place: Place) -> None:
    """Control: without this the table above would prove nothing."""
    assert place.train(place.config(), out=place.path / "private").code == 0
    assert place.train(place.config(CLEAR), out=place.path / "clear").code == 0


@pytest.mark.parametrize(
    ("fact", "changes"),
    [
        ("budget", {"privacy": {"budget": 2.0}}),
        ("budget", {"privacy": {"delta": 1e-6}}),
        ("parties", {"parties": {"count": 2}}),
        ("mode", {"run": {"mode": "deployment", "seed": None}}),
    ],
    ids=["other-budget", "other-delta", "other-parties", "other-mode"],
)
def test_a_ledger_of_something_else_is_refused(fact: str, changes: dict[str, Any], place: Place) -> None:
    shared = {"privacy": {"budget": 9.0}, "run": {"ledger": "party.sqlite"}}
    assert place.train(place.config(**shared), out=place.path / "first").code == 0
    before = charged(place.path / "party.sqlite")
    merged = {name: shared.get(name, {}) | changes.get(name, {}) for name in {*shared, *changes}}
    said = place.train(place.config(**merged))
    assert (said.code, fact in said.err, "party.sqlite" in said.err) == (1, True, True)
    assert charged(place.path / "party.sqlite") == before
    assert not place.out.exists()


@pytest.mark.parametrize(
    "build",
    [
        lambda: Shards.build(X, 2.0 * Y - 1, [np.arange(60), []], row_bound=1.0),
        lambda: Shards.from_parties([(X, 2.0 * Y - 1), (X[:0], Y[:0])], row_bound=1.0),
        lambda: splits.gather(X, np.zeros(60, dtype=int), 2),
    ],
    ids=["rows", "parties", "owners"],
)
def test_an_empty_party_is_named(build: Callable[[], object]) -> None:
    with pytest.raises(DataError, match="party 1 has no records"):
        build()


@pytest.mark.parametrize("bound", [0.0, -1.0, np.nan, np.inf])
def test_a_row_bound_is_a_positive_number(bound: float) -> None:
    with pytest.raises(ConfigError, match="row_bound"):
        Shards.build(X, 2.0 * Y - 1, [np.arange(60)], row_bound=bound)


def test_a_graph_in_pieces_names_them() -> None:
    networkx = pytest.importorskip("networkx")
    with pytest.raises(ConfigError, match=r"not connected: \{0, 1, 2\} and \{3, 4\}"):
        from_networkx(networkx.Graph([(0, 1), (1, 2), (3, 4)]))
