"""Wrong inputs as people type them, at the command line and in Python: each gets a sentence that names what and where.

`tests/cli/test_bad_input.py` has those of `train` that need data of their own, and shows that nothing is left behind.
"""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privadmm
from privadmm import (
    DPADMM,
    Account,
    ADMMClassifier,
    ADMMRegressor,
    ConfigError,
    DataError,
    FitWarning,
    PrivadmmError,
    RefusedError,
    SchemaEncoder,
)
from small_runs import PRIVATE, Place, rows, with_changes, write_config

JUNK = bytes(range(256)) * 8
X, Y = rows(n=60)
SCHEMA = {"age": [0, 100], "ward": ["a", "b"]}
DATA = {"source": "p.csv", "label": "again", "classes": ["no", "yes"], "schema": SCHEMA}


@pytest.fixture
def desk(place: Place) -> Place:
    """A folder with a good table, a good config for it, and a good ledger beside bad files of every kind."""
    lines = [f"{20 + n},{'ab'[n % 2]},{'no' if n % 3 else 'yes'}" for n in range(60)]
    files = {
        "p.csv": "\n".join(["age,ward,again", *lines]),
        "empty.csv": "",
        "header.csv": "age,ward,again",
        "twice.csv": "age,age,again\n1,2,no\n",
        "unlabelled.csv": "age,ward\n1,a\n",
        "semicolons.csv": "age;ward;again\n1;a;no\n",
    }
    for name, text in files.items():
        (place.path / name).write_text(text)
    for name in ("junk.csv", "junk.toml", "junk.parquet"):
        (place.path / name).write_bytes(JUNK)
    (place.path / "folder").mkdir()
    return place


def config(desk: Place, **changes: Any) -> Path:
    return write_config(desk.path / "c.toml", with_changes(with_changes(PRIVATE, {"data": DATA}), changes))


# What is changed in the config, the exit code, and what the message names.
CONFIGS: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "an empty file": ({"data": {"source": "empty.csv"}}, 1, ("empty.csv", "is empty", "header line")),
    "a header alone": ({"data": {"source": "header.csv"}}, 1, ("header.csv", "no records", "at least one")),
    "binary junk": ({"data": {"source": "junk.csv"}}, 1, ("junk.csv", "UTF-8", "format")),
    "junk as parquet": ({"data": {"source": "junk.parquet"}}, 1, ("junk.parquet", "parquet")),
    "a folder": ({"data": {"source": "folder"}}, 2, ("c.toml", "[data] source", "folder", "name a file")),
    "a folder with a format": ({"data": {"source": "folder", "format": "csv"}}, 2, ("folder", "not a file")),
    "a missing file": ({"data": {"source": "gone.csv"}}, 2, ("gone.csv", "no such file", "check the path")),
    "one name twice": ({"data": {"source": "twice.csv"}}, 1, ("twice.csv", "columns 1 and 2", "rename")),
    "no label": ({"data": {"source": "unlabelled.csv"}}, 1, ("unlabelled.csv", "'again' is missing", "Rename")),
    "another separator": ({"data": {"source": "semicolons.csv"}}, 1, ("semicolons.csv", "separator")),
    "a column misspelt": ({"data": {"schema": {"agee": [0, 9]}}}, 1, ("p.csv", "'agee'", "Column 1 has nearly")),
    "one class declared": ({"data": {"classes": ["no"]}}, 2, ("c.toml:", "[data] classes", "exactly two")),
    "a class twice": ({"data": {"classes": ["no", "no"]}}, 2, ("c.toml:", "[data] classes", "twice")),
    "a huge row bound": ({"data": {"row_bound": 1e300}}, 2, ("c.toml:", "[data] row_bound", "1e+50")),
    "all held out": ({"data": {"test_fraction": 1.0}}, 2, ("c.toml:", "[data] test_fraction", "< 1")),
    "a typo": ({"data": {"row_boud": 2.0}}, 2, ("c.toml:", "row_boud", "did you mean row_bound?")),
    "a negative epsilon": ({"privacy": {"epsilon": -1.0}}, 2, ("c.toml:", "[privacy] epsilon", "> 0")),
    "an epsilon in words": ({"privacy": {"epsilon": "one"}}, 2, ("c.toml:", "[privacy] epsilon", "a number")),
    "a delta of 2": ({"privacy": {"delta": 2}}, 2, ("c.toml:", "[privacy] delta", "< 1")),
    "no delta at all": ({"privacy": {"delta": 0}}, 2, ("c.toml", "delta = 0", "or give a delta")),
    "an unknown algorithm": ({"algorithm": {"name": "dp_adm"}}, 2, ("c.toml:", "[algorithm] name", '"dp_admm"?')),
    "no rounds": ({"algorithm": {"rounds": 0}}, 2, ("c.toml:", "[algorithm] rounds", ">= 1")),
    "an unknown loss": ({"loss": {"name": "squard"}}, 2, ("c.toml:", "[loss] name", '"squared"?')),
    "parties > records": ({"parties": {"count": 500}}, 1, ("c.toml", "[parties]", "500 parties", "48 records")),
    "records < sizes": (
        {"parties": {"sizes": [16, 16, 16], "records": 40}},
        2,
        ("c.toml:", "[parties] records", "sizes", ">= 48"),
    ),
    "records < parties": ({"parties": {"records": 2}}, 2, ("c.toml:", "[parties] records", "count = 3", ">= 3")),
    "an unknown engine": ({"run": {"engine": "ray"}}, 2, ("c.toml:", "[run] engine", '"inprocess"')),
    "half a seed": ({"run": {"seed": 1.5}}, 2, ("c.toml:", "[run] seed", "integer")),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_wrong_config_is_told(name: str, desk: Place) -> None:
    changes, code, words = CONFIGS[name]
    check(desk, ["train", config(desk, **changes), "--out", desk.out], code, words)
    assert not desk.out.exists()


def test_the_config_behind_the_wrong_ones_works(desk: Place) -> None:
    assert desk.call("account", config(desk), "--records", 48).code == 0


def check(desk: Place, typed: list[Any], code: int, words: tuple[str, ...]) -> None:
    said = desk.call(*typed)
    assert (said.code, said.out) == (code, ""), said.err
    for part in words:
        assert part in said.err, said.err
    assert "Traceback" not in said.err


# What is typed, the exit code, and what the message names.
TYPED: dict[str, tuple[list[str], int, tuple[str, ...]]] = {
    "no such config": (["train", "gone.toml"], 2, ("gone.toml", "no such file", "check the path")),
    "a folder as a config": (["train", "folder"], 2, ("folder", "is a directory", "TOML")),
    "junk as a config": (["train", "junk.toml"], 2, ("junk.toml:2", "UTF-8")),
    "a table as a config": (["train", "p.csv"], 2, ("p.csv:1", "not valid TOML")),
    "no config": (["train"], 2, ("CONFIG.toml",)),
    "an unknown command": (["trian", "c.toml"], 2, ("'trian'", "'train'")),
    "an unknown option": (["train", "c.toml", "--ot", "x"], 2, ("--ot", "--out")),
    "a key of the config as an option": (
        ["train", "c.toml", "--epsilon", "8"],
        2,
        ("--epsilon", "[privacy] epsilon", "`privadmm init`", "`privadmm plan`"),
    ),
    "a method's parameter as an option": (["account", "c.toml", "--rho", "1"], 2, ("[algorithm] rho",)),
    "one epsilon for several": (["frontier", "c.toml", "--epsilon", "1"], 2, ("Did you mean --epsilons?\n",)),
    "another command's option": (["demo", "--epsilon", "3"], 2, ("is an option of `privadmm init`",)),
    "an option of no command": (["train", "c.toml", "--gpu"], 2, ("No such option '--gpu'.\n",)),
    "an argument as an option": (["train", "--config", "c.toml"], 2, ("CONFIG.toml is given by itself",)),
    "a folder without its option": (["train", "c.toml", "runs/x"], 2, ("runs/x", "with --out runs/x")),
    "a seed in words": (["train", "c.toml", "--seed", "x"], 2, ("--seed", "'x'")),
    "no records": (["account", "c.toml", "--records", "0"], 2, ("--records", ">=1")),
    "fewer records than parties": (["account", "c.toml", "--records", "2"], 2, ("3 parties", "--records is 2")),
    "a plan below 0": (["plan", "c.toml", "--epsilon", "-1", "--delta", "1e-6"], 2, ("epsilon", "above 0")),
    "a plan of delta 2": (["plan", "c.toml", "--epsilon", "1", "--delta", "2"], 2, ("delta", "between")),
    "too few games": (["audit", "c.toml", "--trials", "5"], 2, ("--trials", ">=1000")),
    "no such run": (["predict", "gone", "p.csv"], 1, ("gone", "run directory")),
    "a run that is none": (["predict", "folder", "p.csv"], 1, ("folder", "no finished run")),
    "a model that is none": (["predict", "p.csv", "p.csv"], 1, ("p.csv", "not a model", "run directory")),
    "no such ledger": (["ledger", "show", "gone.sqlite"], 1, ("gone.sqlite", "no ledger")),
    "a table as a ledger": (["ledger", "show", "p.csv"], 1, ("p.csv", "not a database", "another file")),
    "no run to report": (["report", "gone"], 2, ("gone", "run's directory")),
    "a private file's schema": (["schema", "p.csv", "--label", "again"], 2, ("p.csv", "--public")),
    "a label that is none": (
        ["schema", "p.csv", "--label", "agian", "--public"],
        1,
        ("p.csv", "did you mean 'again'?"),
    ),
    "a file that is there": (
        ["init", "p.csv", "--source", "p.csv", "--label", "again"],
        2,
        ("p.csv", "exists already"),
    ),
    "no such federation": (["federation", "check", "folder"], 2, ("folder", "party.toml")),
    "no such paper": (["reproduce", "nothing"], 2, ("'nothing'", "dvp")),
}


@pytest.mark.parametrize("name", TYPED)
def test_a_wrong_command_is_told(name: str, desk: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    config(desk)
    monkeypatch.chdir(desk.path)
    check(desk, list(TYPED[name][0]), *TYPED[name][1:])


def test_a_syntax_error_is_told_by_its_line(desk: Place) -> None:
    path = config(desk)
    path.write_text(path.read_text().replace("[privacy]", "[privacy"))
    line = path.read_text().splitlines().index("[privacy") + 1
    check(desk, ["train", path], 2, (f"c.toml:{line}", "not valid TOML", "']'"))


def test_a_ledger_of_another_adjacency_is_named(desk: Place) -> None:
    made = desk.call("ledger", "create", desk.path / "l.sqlite", "--parties", 3, "--epsilon", 1, "--delta", 1e-5)
    assert made.code == 0
    path = config(desk, privacy={"adjacency": "label"}, run={"ledger": "l.sqlite", "mode": "deployment", "seed": None})
    check(desk, ["train", path, "--out", desk.out], 3, ("l.sqlite", "'replace-one'", "'label'", "set adjacency"))


def model(**changes: Any) -> ADMMClassifier:
    declared = {"classes": (0, 1), "row_bound": 2.0, "random_state": 0, "parties": 3, "epsilon": 1.0, "rounds": 3}
    return ADMMClassifier(**{**declared, **changes})


def fitting(**changes: Any) -> Callable[[Path], Any]:
    return lambda folder: model(**changes).fit(X, Y)


def cell(value: float) -> np.ndarray:
    return np.where(np.arange(X.size).reshape(X.shape) == 5, value, X)


# What is called in a folder with a good table, what is raised, and what it says.
CALLS: dict[str, tuple[Callable[[Path], Any], type[Exception], str]] = {
    "a NaN": (lambda _: model().fit(cell(np.nan), Y), DataError, "NaN.*SchemaEncoder.*imputer"),
    "an infinity": (lambda _: model().fit(cell(np.inf), Y), DataError, "infinity.*SchemaEncoder"),
    "one dimension": (lambda _: model().fit(X[:, 0], Y), DataError, r"\(n, d\).*reshape"),
    "nothing": (lambda _: model().fit(None, Y), DataError, r"\(n, d\)"),
    "words": (lambda _: model().fit(np.full((60, 3), "a"), Y), DataError, "words.*SchemaEncoder"),
    "fewer labels": (lambda _: model().fit(X, Y[:50]), DataError, "60 rows and y has 50"),
    "labels of others": (lambda _: model().fit(X, np.where(Y, "b", "a")), DataError, "neither 0.*nor 1"),
    "no labels": (lambda _: model().fit(X, None), DataError, "target y is None"),
    "labels in two columns": (lambda _: model().fit(X, np.stack([Y, Y], axis=1)), ValueError, "1d array"),
    "no rows": (lambda _: model().fit(X[:0], Y[:0]), ValueError, "0 sample"),
    "short groups": (lambda _: model().fit(X, Y, groups=[1, 2]), DataError, "each of the 60 rows"),
    "epsilon = -1": (fitting(epsilon=-1), ConfigError, "epsilon must be.*above 0"),
    "epsilon in words": (fitting(epsilon="1"), ConfigError, "epsilon must be a number"),
    "delta = 2": (fitting(delta=2), ConfigError, "delta must lie between"),
    "delta = 0": (fitting(delta=0), RefusedError, "delta = 0.*give delta = 1e-6"),
    "a huge row bound": (fitting(row_bound=1e300), ConfigError, r"row_bound must lie between 1e-50 and 1e\+50"),
    "no row bound": (fitting(row_bound=None), ConfigError, "declare row_bound"),
    "one class": (fitting(classes=("a",)), ConfigError, "declare the labels"),
    "an unknown algorithm": (fitting(algorithm="dp_adm"), ConfigError, "did you mean .dp_admm"),
    "an unknown loss": (fitting(loss="l2"), ConfigError, "loss is 'l2'"),
    "an unknown adjacency": (fitting(adjacency="labels"), ConfigError, "adjacency must be one of.*not 'labels'"),
    "parties > records": (fitting(parties=500), DataError, "500 parties.*60 records"),
    "half a party": (fitting(parties=2.5), ConfigError, "parties must be a whole number"),
    "no seed": (fitting(random_state=None), ConfigError, "random_state"),
    "a secure sum of one": (fitting(secure_sum=True, parties=1), ConfigError, "two parties.*secure_sum=True"),
    "a folder as a ledger": (lambda folder: model(ledger=folder).fit(X, Y), ConfigError, "is a directory"),
    "a table as a ledger": (lambda folder: model(ledger=folder / "p.csv").fit(X, Y), PrivadmmError, "not a database"),
    "a ledger of labels": (
        lambda _: model(ledger=Account(epsilon=1, delta=1e-6, adjacency="label")).fit(X, Y),
        RefusedError,
        "'label'.*'replace-one'",
    ),
    "a wrong budget": (lambda _: Account(epsilon=-1, delta=1e-6), ConfigError, "epsilon must be"),
    "no such model": (lambda folder: privadmm.load(folder / "gone"), DataError, "gone.*run directory"),
    "a number as a model": (lambda _: privadmm.load(3), ConfigError, "not from 3"),  # type: ignore[arg-type]
    "a list of another length": (lambda _: model().fit(X, Y).model_.predict([[1, 2]]), DataError, "3 features"),
    "words as rows": (lambda _: model().fit(X, Y).model_.predict([["a"]]), DataError, "rows of numbers"),
    "draws in words": (lambda _: model().fit(X, Y).coefficients(draws="x"), ConfigError, "draws"),  # type: ignore[arg-type]
    "a range backwards": (lambda _: SchemaEncoder(ranges={"age": (9, 1)}).fit(), ConfigError, "'age'.*low < high"),
    "a column misspelt": (
        lambda _: SchemaEncoder(ranges={"age": (0, 9)}).transform({"ag": [1]}),
        DataError,
        "'age'.*did you mean 'ag'",
    ),
    "no bound of labels": (
        lambda _: ADMMRegressor(row_bound=1.0, random_state=0).fit(X, X[:, 0]),
        ConfigError,
        "declare label_bound",
    ),
    "a negative parameter": (lambda _: DPADMM(D_w=-1), ConfigError, "D_w must be a number > 0"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_told(name: str, desk: Place) -> None:
    call, kind, words = CALLS[name]
    with pytest.raises(kind, match=f"(?s){words}"):
        call(desk.path)


def test_labels_that_are_all_alike_warn(desk: Place) -> None:
    with pytest.warns(FitWarning, match="all 60 labels in y are the same"):
        model().fit(X, np.ones(60, dtype=int))
    path = desk.path / "p.csv"
    path.write_text(path.read_text().replace("no", "yes"))
    said = desk.call("train", config(desk), "--out", desk.out)
    assert (said.code, "all records have one class" in " ".join(said.out.split())) == (0, True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        model().fit(X, Y)
