"""Kept reports of labels fit one label column, one order of its classes, and the same records in the same order."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import CASES, shards
from ledgers import without_refusals
from privadmm.data import arrays
from privadmm.engine.block import cluster
from privadmm.engine.job import Job
from privadmm.errors import ClusterError, DataError, RefusedError
from privadmm.privacy.events import RandomizedResponse
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.sqlite_ledger import SqliteLedger
from small_runs import PRIVATE, SHARING, Outcome, Place, Tables, no_plots, rows, with_changes, write_npz

X, Y = rows()
OTHER = (X[:, 1] > 0).astype(int)  # a second label of the same records
SCHEMA = "f0 = [-2.0, 2.0]\nf1 = [-2.0, 2.0]\nf2 = [-2.0, 2.0]\n"
FILE = "party.sqlite"
REPORTED: Tables = with_changes(
    PRIVATE,
    {
        "data": {"source": "data.csv", "label": "outcome", "schema": "schema.toml", "test_fraction": None},
        "privacy": {"label_epsilon": 1.0, "epsilon": 0.5, "budget": 3.0},
        "run": {"ledger": FILE},
    },
)
PEOPLE: Tables = with_changes(REPORTED, SHARING)


def write_people(path: Path, X: np.ndarray, outcome: np.ndarray, other: np.ndarray = OTHER) -> None:
    lines = ["f0,f1,f2,outcome,other"]
    for row, *labels in zip(X.tolist(), outcome.tolist(), other.tolist(), strict=True):
        lines.append(",".join([*map(repr, row), *map(str, labels)]))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    write_people(tmp_path / "data.csv", X, Y)
    (tmp_path / "schema.toml").write_text(SCHEMA)
    no_plots(monkeypatch)
    return Place(tmp_path, capsys)


def ledger_rows(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute("SELECT * FROM ticks ORDER BY seq").fetchall()


def second(place: Place, tables: Tables, **changes: Any) -> Outcome:
    """Run a second job on the ledger of the job of `tables`; it must change nothing there."""
    assert place.train(place.config(tables), out=place.path / "first").code == 0
    return again(place, tables, **changes)


def again(place: Place, tables: Tables, **changes: Any) -> Outcome:
    before = ledger_rows(place.path / FILE)
    said = place.train(place.config(with_changes(tables, changes)), out=place.path / "second")
    assert ledger_rows(place.path / FILE)[: len(before)] == before
    if said.code:
        assert len(ledger_rows(place.path / FILE)) == len(before), "something was set aside or charged"
        assert not (place.path / "second").exists()
        assert "Nothing was released" in said.err
    return said


@pytest.mark.parametrize("tables", [REPORTED, PEOPLE], ids=["records", "columns"])
def test_another_label_column_is_refused(tables: Tables, place: Place) -> None:
    said = second(place, tables, data={"label": "other"})
    assert said.code == 3
    assert "column 'outcome'" in said.err
    assert "'other'" in said.err


@pytest.mark.parametrize("tables", [REPORTED, PEOPLE], ids=["records", "columns"])
def test_swapped_classes_are_refused(tables: Tables, place: Place) -> None:
    said = second(place, tables, data={"classes": [1, 0]})
    assert said.code == 3
    assert "['0', '1'], negative first" in said.err


def test_another_label_of_a_file_that_declares_no_schema(place: Place) -> None:
    data = {"source": "data.npz", "label": None, "schema": None}
    write_npz(place.path / "data.npz", X, Y, other=OTHER)
    tables = with_changes(REPORTED, {"data": data})
    assert second(place, tables, data={"label": "other"}).code == 3
    assert again(place, tables, data={"label": "y"}).code == 0  # its default name


@pytest.mark.parametrize("tables", [REPORTED, PEOPLE], ids=["records", "columns"])
def test_reordered_records_are_refused(tables: Tables, place: Place) -> None:
    assert place.train(place.config(tables), out=place.path / "first").code == 0
    order = np.random.default_rng(0).permutation(len(Y))
    write_people(place.path / "data.csv", X[order], Y[order], OTHER[order])
    said = again(place, tables)
    assert said.code == 1
    assert "not in that order" in said.err
    write_people(place.path / "data.csv", X, Y)
    assert again(place, tables).code == 0  # put back as they were


def test_one_replaced_record_is_refused(place: Place) -> None:
    changed = X.copy()
    changed[7, 2] += 1e-9
    assert place.train(place.config(REPORTED), out=place.path / "first").code == 0
    write_people(place.path / "data.csv", changed, Y)
    said = again(place, REPORTED)
    assert said.code == 1
    assert "of 1 of 3 parties" in said.err


def test_changed_sizes_are_refused_before_anything_is_set_aside(place: Place) -> None:
    assert place.train(place.config(REPORTED), out=place.path / "first").code == 0
    write_people(place.path / "data.csv", X[:-3], Y[:-3], OTHER[:-3])
    said = again(place, REPORTED)
    assert said.code == 3
    assert "use the records and label_epsilon of the ledger" in said.err


def test_records_that_are_dealt_out_in_another_way_are_refused(place: Place) -> None:
    said = second(place, REPORTED, parties={"seed": 5})
    assert said.code == 1
    assert "of 3 of 3 parties" in said.err


def test_the_same_records_read_in_another_way_are_accepted(place: Place) -> None:
    """Another bound, intercept, method, seed; without zeros or with; from another format."""
    assert place.train(place.config(REPORTED), out=place.path / "first").code == 0
    assert again(place, REPORTED, data={"row_bound": 1.5, "intercept": 0.3}, run={"seed": 9}).code == 0
    numbers = (np.clip(X, -2, 2) + 2) / 4  # what the schema makes of them
    np.savez(place.path / "data.npz", X=numbers, outcome=Y)
    lines = [
        f"{label} " + " ".join(f"{j}:{value!r}" for j, value in enumerate(row, start=1) if value)
        for row, label in zip(numbers.tolist(), Y, strict=True)
    ]
    (place.path / "data.svm").write_text("\n".join(lines) + "\n")
    for number, source in enumerate(("data.npz", "data.svm")):
        data = {"source": source, "schema": None, "dim": 3}
        config = place.config(with_changes(REPORTED, {"data": data}))
        said = place.train(config, out=place.path / f"format-{number}")
        assert said.code == 0, said.err


def test_a_run_that_was_interrupted_goes_on_only_with_its_own_records(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = place.config(REPORTED)
    with monkeypatch.context() as patch:
        patch.setattr("privadmm.runs.run.finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert place.train(config).code == 1
    order = np.arange(len(Y))[::-1]
    write_people(place.path / "data.csv", X[order], Y[order], OTHER[order])
    before = ledger_rows(place.path / FILE)
    said = place.train(config, "--resume")
    assert (said.code, "not in that order" in said.err) == (1, True)
    assert ledger_rows(place.path / FILE) == before
    write_people(place.path / "data.csv", X, Y)
    assert place.train(config, "--resume").code == 0


CASE = CASES["dp_admm-reported"]


def test_a_ledger_that_does_not_say_whose_labels_it_keeps_is_refused(tmp_path: Path) -> None:
    job = Job(CASE.algorithm, CASE.public(), 3.0, id="one")
    with closing(SqliteLedger(tmp_path / "ledger", range(5), job.policy, "simulation")) as ledger:
        block = shards()
        reports = {"labels": np.concatenate(block.labels()).astype(np.int8), "sizes": block.sizes}
        ledger.keep("", "labels", lambda: arrays.pack(reports, epsilon=1.0), RandomizedResponse(1.0))
        head = ledger.head
        with pytest.raises(RefusedError, match="make a new ledger"):
            cluster(job, block, Simulation(0), ledger)
        assert ledger.head == head


def test_labels_of_records_that_were_not_digested_are_not_drawn(tmp_path: Path) -> None:
    job = Job(CASE.algorithm, CASE.public(), 3.0, id="one")
    with closing(SqliteLedger(tmp_path / "ledger", range(5), job.policy, "simulation")) as ledger:
        with pytest.raises(DataError, match="digested"):
            cluster(job, replace(shards(), source=None), Simulation(0), ledger)
        assert ledger.keepsakes() == ()


def test_the_digest_leaves_the_ledger_nowhere(place: Place) -> None:
    assert place.train(place.config(REPORTED)).code == 0
    file = place.path / FILE
    with closing(sqlite3.connect(file)) as db:
        (kept,) = db.execute("SELECT outbox FROM ticks WHERE kind = 'keep'").fetchone()
    _, facts = arrays.unpack(kept[32:])
    assert len(facts["rows"]) == 3
    told = [place.call("ledger", words, file, "--json").out for words in ("show", "export", "verify")]
    told += [item.read_text(errors="replace") for item in place.out.iterdir() if item.is_file()]
    assert not [text for text in told for digest in facts["rows"] if digest in text]


class TestFederation:
    """A party whose records changed tells its coordinator only the kind of the error."""

    @pytest.fixture
    def made(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        pytest.importorskip("cryptography")
        from federations import federated

        no_plots(monkeypatch)
        privacy = {"label_epsilon": 1.0, "epsilon": 0.5, "budget": 3.0}
        return federated(tmp_path, with_changes(PRIVATE, {"privacy": privacy}))

    def begin(self, made: Any, number: int, **changes: str) -> Any:
        from federations import answer
        from privadmm.config.file import read
        from privadmm.deploy.federation.party import read as read_party
        from privadmm.deploy.federation.proposal import Proposal, neutral, written

        text = written(neutral(read(made.made.coordinator.job)))
        for before, after in changes.items():
            assert before in text
            text = text.replace(before, after)
        sizes = tuple(read_party(folder).party.records for folder in made.folders)
        packed = Proposal(f"{number:032x}", text, sizes, 3).pack()
        return answer(made.folders[1], {"kind": "begin", "proposal": packed, "heads": "[]"})

    def test_what_is_told_of_changed_records(self, made: Any) -> None:
        made.run()
        path = made.folders[1] / "data.npz"
        with np.load(path) as stored:
            held = {name: stored[name] for name in stored.files}
        before, answers = ledger_rows(made.ledgers[1]), []
        for kind, change in (
            ("reordered", lambda array: array[::-1]),
            ("one swap", lambda array: array[[1, 0, *range(2, len(array))]]),
        ):
            np.savez(path, **{name: change(array) for name, array in held.items()})
            for number, asked in enumerate(({}, {"epsilon = 0.5": "epsilon = 0.1"}, {"rounds = 6": "rounds = 1"})):
                said = self.begin(made, len(kind) * 10 + number, **asked)
                answers.append(said)
        assert len({json.dumps(said, sort_keys=True) for said in answers}) == 1, "told apart"
        assert (answers[0]["status"], answers[0]["error"]) == ("failed", "DataError")
        assert "order" not in str(answers[0]["message"])
        assert "not in that order" in (made.folders[1] / "requests.log").read_text()
        assert ledger_rows(made.ledgers[1]) == before, "something was set aside"
        np.savez(path, **held)
        assert self.begin(made, 77)["status"] == "ok"

    def test_a_run_over_changed_records(self, made: Any) -> None:
        made.run()
        path = made.folders[2] / "data.npz"
        with np.load(path) as stored:
            np.savez(path, **{name: stored[name][::-1] for name in stored.files})
        before = ledger_rows(made.ledgers[2])
        with pytest.raises(ClusterError, match=r"its steward finds the reason in its requests\.log"):
            made.run(out="runs/second")
        assert ledger_rows(made.ledgers[2]) == before

    def test_a_party_that_declares_other_classes(self, made: Any) -> None:
        made.run()
        made.change(1, "classes = [0, 1]", "classes = [1, 0]")
        made.announce(1)
        before = without_refusals(made.ledgers[1])
        said = self.begin(made, 9, **{"classes = [0, 1]": "classes = [1, 0]"})
        assert (said["status"], said["error"]) == ("refused", "RefusedError")
        assert "negative first" in said["message"]
        assert without_refusals(made.ledgers[1]) == before


def test_the_labels_of_other_people_at_a_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the coordinator holds the labels, the people's ids tell whose they are."""
    pytest.importorskip("cryptography")
    from federations import federated

    no_plots(monkeypatch)
    write_npz(tmp_path / "data.npz")
    tables = with_changes(PEOPLE, {"data": {"source": "data.npz", "label": None, "schema": None, "test_fraction": 0.2}})
    made = federated(tmp_path, with_changes(tables, {"run": {"ledger": None}}))
    made.run()
    job = made.made.coordinator.job
    assert "classes = [0, 1]" in job.read_text()
    job.write_text(job.read_text().replace("classes = [0, 1]", "classes = [1, 0]"))
    for party in range(3):
        made.change(party, "classes = [0, 1]", "classes = [1, 0]")
        made.announce(party)
    before = [ledger_rows(ledger) for ledger in made.ledgers]
    with pytest.raises(RefusedError, match="negative first"):
        made.run(out="runs/second")
    assert [ledger_rows(ledger) for ledger in made.ledgers] == before
