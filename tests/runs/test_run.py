"""Whole runs: of any kind of file, charged to a ledger that outlives them, simulated and deployed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from privadmm.config import file as configs
from privadmm.errors import DataError
from privadmm.runs import metrics
from privadmm.runs.model import Model
from privadmm.runs.run import run
from small_runs import (
    CLEAR,
    ENVIRONMENT,
    PARTIES,
    PRIVATE,
    ROUNDS,
    Place,
    charged,
    result,
    rows,
    with_changes,
    write_csv,
)

pytestmark = pytest.mark.usefixtures("skipped_plots")


def test_two_jobs_share_a_ledger_until_it_is_spent(place: Place) -> None:
    config = place.config(privacy={"budget": 1.2}, run={"ledger": "party.sqlite"})
    first = place.train(config)
    assert first.code == 0
    assert "epsilon 1 of 1.2 spent" in first.out
    ledger = place.path / "party.sqlite"
    assert charged(ledger) == ROUNDS * PARTIES
    second = place.train(config, "--json", out=place.path / "second")
    assert (second.code, second.object["error"]) == (3, "RefusedError")
    assert "1 is spent or set aside" in second.err
    assert charged(ledger) == ROUNDS * PARTIES
    assert not (place.path / "second").exists()


def test_what_is_left_is_what_the_next_job_may_ask_for(place: Place) -> None:
    """Just below it is granted; just above, refused."""
    shared = {"ledger": "party.sqlite"}
    config = place.config(privacy={"budget": 1.5}, run=shared)
    assert place.train(config).code == 0
    (left,) = {party["left"] for party in json.loads((place.out / "ledger.json").read_text())["parties"]}
    assert left > 1.5 - 1.0
    for ask, code in ((1.001 * left, 3), (0.999 * left, 0)):
        config = place.config(privacy={"budget": 1.5, "epsilon": ask}, run=shared)
        assert place.train(config, out=place.path / str(code)).code == code


def deploy(place: Place, out: Path, **changes: Any) -> dict[str, Any]:
    pytest.importorskip("opendp")
    config = place.config(run={"mode": "deployment", "seed": None, "ledger": f"{out.name}.sqlite"}, **changes)
    policy = ("--parties", PARTIES, "--epsilon", 1.0, "--delta", 1e-5)
    assert place.call("ledger", "create", place.path / f"{out.name}.sqlite", *policy).code == 0
    said = place.train(config, "--json", out=out)
    assert said.code == 0, said.err
    return said.object


def test_a_deployment_measures_nothing_and_never_repeats_itself(place: Place, skipped_plots: list[str]) -> None:
    printed = deploy(place, place.out)
    assert skipped_plots == ["spending"]
    assert printed["private"] is True
    assert (printed["accuracy_train"], printed["accuracy_test"], printed["objective"]) == (None, None, None)
    assert not (place.out / "metrics.csv").exists()
    for name in ("result.json", "model.json", "ledger.json"):
        text = (place.out / name).read_text()
        assert "simulation" not in text
        assert not any(
            value is not None
            for key, value in json.loads(text).items()
            if key.startswith(("accuracy", "majority", "objective", "gap"))
        )
    deploy(place, place.path / "again")
    models = [Model.load(out / "model.json") for out in (place.out, place.path / "again")]
    assert not (models[0].weights == models[1].weights).any()


def test_a_deployment_without_opendp_names_the_extra(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opendp", None)
    said = place.train(place.config(run={"mode": "deployment", "seed": None, "ledger": "party.sqlite"}), "--json")
    assert said.code == 2
    assert "privadmm[deploy]" in said.object["message"]
    assert not place.out.exists()


@pytest.mark.parametrize("closed", ["pipe", "full"])
def test_a_result_that_cannot_be_printed_is_still_kept(closed: str, place: Place) -> None:
    config = place.config()
    if closed == "pipe":
        reader, stdout = os.pipe()
        os.close(reader)
    else:
        stdout = os.open("/dev/full", os.O_WRONLY)
    command = [sys.executable, "-c", "from privadmm.cli import main; main()", "train", str(config)]
    process = subprocess.run(
        [*command, "--out", str(place.out), "--json"],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
        check=False,
    )
    os.close(stdout)
    assert process.returncode == 1
    assert "could not be printed" in process.stderr
    assert str(place.out / "result.json") in process.stderr
    assert "Traceback" not in process.stderr
    assert "Exception ignored" not in process.stderr
    assert result(place.out)["rounds"] == ROUNDS


def test_a_model_that_runs_away_has_no_objective(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON knows no infinity: the summary says null, and the run does not fail for it."""
    monkeypatch.setattr(metrics, "objective", lambda *arguments: float("inf"))
    said = place.train(place.config(CLEAR), "--json")
    assert (said.code, said.object["objective"]) == (0, None)
    assert result(place.out)["objective"] is None


@pytest.mark.parametrize(
    "loss", [{"name": "squared", "label_bound": 1.0}, {"name": "huber_hinge"}], ids=["squared", "huber-hinge"]
)
def test_declared_classes_have_an_accuracy_whatever_the_loss(loss: dict[str, Any], place: Place) -> None:
    done = place.run(with_changes(CLEAR, {"loss": loss}))
    assert done.result["accuracy_test"] > done.result["majority_test"]


def write_as(kind: str, folder: Path) -> dict[str, Any]:
    """The rows of `rows()` in a file of this kind; the keys of [data] that go with it."""
    X, y = rows()
    if kind == "csv":
        write_csv(folder / "data.csv", X, y)
        return {"source": "data.csv", "label": "y"}
    if kind == "parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = {f"f{j}": X[:, j] for j in range(3)} | {"y": y}
        parquet.write_table(pyarrow.table(columns), folder / "data.parquet")
        return {"source": "data.parquet", "label": "y"}
    if kind == "libsvm":
        cells = (" ".join(f"{j + 1}:{float(cell)!r}" for j, cell in enumerate(row)) for row in X)
        text = "".join(f"{label} {row}\n" for label, row in zip(y, cells, strict=True))
        (folder / "data.libsvm").write_text(text)
        return {"source": "data.libsvm", "dim": 3}
    return {}


@pytest.mark.parametrize("kind", ["csv", "parquet", "libsvm"])
def test_the_format_of_a_file_does_not_matter(kind: str, place: Place) -> None:
    npz = place.run(out=place.path / "npz")
    other = place.run(with_changes(PRIVATE, {"data": write_as(kind, place.path)}))
    if kind == "libsvm":  # sparse rows are summed in another order
        assert other.model.weights == pytest.approx(npz.model.weights, rel=1e-9)
    else:
        assert other.result["transcript"] == npz.result["transcript"]


def test_a_declared_schema_and_a_column_of_parties(place: Place) -> None:
    """The declared schema decides the encoding; odd values and missing cells in the file do not change it."""
    lines = ["hospital,age,ward,readmitted"]
    for number in range(60):
        age = ["", "200", "40"][number % 3]
        ward, label = ("a", "yes") if number % 2 else ("z", "no")
        lines.append(f"h{number % 4},{age},{ward},{label}")
    (place.path / "patients.csv").write_text("\n".join(lines))
    config = place.path / "config.toml"
    config.write_text(
        """[data]
source = "patients.csv"
label = "readmitted"
classes = ["no", "yes"]
row_bound = 2.0
on_bad = "default"
[data.schema]
age = [0, 110]
ward = ["a", "b"]
[parties]
split = "column:hospital"
[algorithm]
name = "admm_star"
rounds = 5
[run]
seed = 0
"""
    )
    done = run(configs.read(config), place.out)
    assert done.result["parties"] == 4
    assert done.model.frame.names == ("age", "ward=a", "ward=b")
    assert done.result["accuracy_test"] == 1.0
    assert done.model.weights[2] == 0.0


def test_numbers_to_predict_have_no_accuracy(place: Place) -> None:
    tables = with_changes(CLEAR, {"loss": {"name": "squared", "label_bound": 1.0}, "data": {"classes": None}})
    done = place.run(tables)
    assert done.result["accuracy_train"] is done.result["majority_train"] is None
    X, y = rows()
    fitted = done.model.predict(X)
    assert ((fitted - y) ** 2).mean() < (y**2).mean()


def test_the_model_on_disk_is_the_model(place: Place) -> None:
    done = place.run(with_changes(PRIVATE, {"data": {"intercept": 0.3}}))
    loaded, (X, y) = Model.load(place.out / "model.json"), rows()
    assert (loaded.predict(X) == done.model.predict(X)).all()
    assert set(loaded.predict(X)) <= set(y)
    assert (loaded.epsilon, loaded.delta, loaded.mode) == (done.model.epsilon, 1e-5, "simulation")


@pytest.mark.parametrize("text", ["{}", "not json", '{"frame": null}', "[]"])
def test_a_file_that_is_no_model_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"model\.json: not a model"):
        Model.load(path)
