"""A fitted model on raw rows: features as in training, declared behaviour for odd cells, errors with a place."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privadmm
from privadmm import ADMMClassifier, Model
from privadmm.config import build, data_source
from privadmm.config import file as configs
from privadmm.data import adult
from privadmm.data.encoder import Encoder, encode_rows
from privadmm.data.schema import Category, Number, Schema
from privadmm.errors import ConfigError, DataError
from privadmm.runs.metrics import scores, through
from small_runs import CLEAR, PRIVATE, Place, no_plots, with_changes, write_config, write_csv
from small_runs import rows as small_rows

RECOMMENDED = {
    "data": {
        "source": "patients.csv",
        "label": "readmitted",
        "classes": ["no", "yes"],
        "schema": {"age": [0, 100], "ward": ["a", "b", "c"], "pressure": [-1.0, 3.5]},
        "encoding": "coarse",
        "rows": "unit",
        "row_bound": None,
        "test_fraction": 0.25,
    },
    "parties": {"split": "column:hospital", "count": None},
    "features": {"moments": True, "nonnegative": True},
    "algorithm": {"name": "first_order_consensus", "D_w": None, "rho": None},
    "loss": {"name": "half_logistic"},
    "regularizer": {"weight": 0.0},
}
RAW = [
    {
        "age": 20 + 7 * row % 60,
        "ward": "abcd"[row % 4],
        "pressure": row % 9 / 2 - 1,
        "hospital": f"h{row % 3}",
    }
    for row in range(48)
]


def write_patients(path: Path, raw: list[dict[str, Any]] = RAW) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*raw[0], "readmitted"])
        writer.writeheader()
        writer.writerows({**row, "readmitted": "yes" if row["age"] > 45 else "no"} for row in raw)
    return path


@pytest.fixture
def trained(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    no_plots(monkeypatch)
    write_patients(place.path / "patients.csv")
    write_config(place.path / "config.toml", with_changes(PRIVATE, RECOMMENDED))
    assert place.train(place.path / "config.toml", "--json").code == 0
    return place


def plain(raw: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "hospital"} for row in raw]


def test_raw_rows_are_scored_as_training_scored_them(trained: Place) -> None:
    """The held-out records of the training path, and the same rows from the file: one score."""
    config = configs.read(trained.path / "config.toml")
    found, *_ = data_source.records(config)
    model = privadmm.load(trained.out)
    by_training = model.scores(found.X)
    by_rows = model.score_rows(plain(RAW))
    by_file = model.scores(model.read(trained.path / "patients.csv", extra="ignore").X)
    assert np.array_equal(by_training, by_rows)
    assert np.array_equal(by_training, by_file)
    # The same through the shards that the run measured itself on.
    prepared = build.prepare(config)
    assert prepared.test is not None
    assert model.features is not None
    held_out = scores(through(prepared.test, model.features), model.weights)
    assert all(np.abs(by_rows - score).min() < 1e-12 for score in held_out)
    accuracy = json.loads((trained.out / "result.json").read_text())["accuracy_test"]
    assert accuracy == np.mean((held_out > 0) == (prepared.test.y > 0))


def test_unknown_categories_and_far_numbers_are_what_was_declared(trained: Place) -> None:
    model, row = privadmm.load(trained.out), plain(RAW)[0]
    far = model.score_rows([{**row, "age": 1e9}, {**row, "age": 100}, {**row, "age": -5}, {**row, "age": 0}])
    assert far[0] == far[1]
    assert far[2] == far[3]
    odd = model.score_rows([{**row, "ward": ward} for ward in ("z", None, "", math.nan, "a ", "a")])
    assert len(set(odd[:4])) == 1
    assert odd[4] == odd[5] != odd[0]
    X = encode_rows(model.frame.encoder, [{**row, "ward": "z"}])
    assert (X[0, [model.frame.names.index(f"ward={ward}") for ward in "abc"]] == 0).all()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"age": 1, "ward": "a"}], "row 1 has no column 'pressure'"),
        ([plain(RAW)[0], {**plain(RAW)[0], "wrad": "a"}], "row 2: column 'wrad'"),
        ([plain(RAW)[0], {**plain(RAW)[0], "age": "elderly"}], "column 'age': 1 of 2 rows .* row 2"),
        ([plain(RAW)[0], {**plain(RAW)[0], "age": None}], "column 'age': 1 of 2 rows .* row 2"),
        ([plain(RAW)[0], [1, 2, 3]], "row 2 is a list"),
    ],
)
def test_rows_that_do_not_fit_are_named(rows: Any, words: str, trained: Place) -> None:
    with pytest.raises(DataError, match=words) as refused:
        privadmm.load(trained.out).predict_rows(rows)
    assert "elderly" not in str(refused.value)


def test_extra_columns_can_be_ignored_and_the_label_may_stand_there(trained: Place) -> None:
    model = privadmm.load(trained.out)
    expected = model.predict_rows(plain(RAW))
    assert set(expected) <= {"no", "yes"}
    assert (model.predict_rows([{**row, "readmitted": "?"} for row in plain(RAW)]) == expected).all()
    assert (model.predict_rows(RAW, extra="ignore") == expected).all()
    assert (model.predict_file(trained.path / "patients.csv", extra="ignore") == expected).all()
    with pytest.raises(ConfigError, match="extra must be"):
        model.predict_rows(RAW, extra="drop")  # type: ignore[arg-type]
    assert len(model.predict_rows([])) == 0


def test_a_table_is_as_good_as_its_rows(trained: Place) -> None:
    model = privadmm.load(trained.out)
    expected = model.score_rows(plain(RAW))
    table = {name: [row[name] for row in RAW] for name in ("pressure", "ward", "age")}
    assert np.array_equal(model.score_rows(table), expected)
    kinds = [("age", "f8"), ("ward", "U3"), ("pressure", "f8")]
    cells = [tuple(row[name] for name, _ in kinds) for row in RAW]
    assert np.array_equal(model.score_rows(np.array(cells, dtype=kinds)), expected)
    for wrong, words in (
        ({**table, "wrad": table["ward"]}, "column 'wrad' is none that the model knows"),
        ({**table, "a": table["ward"], "b": table["ward"]}, "column 'a' is none that the model knows, nor is 'b';"),
        ({"age": table["age"], "ward": table["ward"]}, "column 'pressure' is missing"),
        ({**table, "age": table["age"][:3]}, "one length"),
        ({**table, "age": [*table["age"][:-1], "x"]}, "column 'age': 1 of 48 rows .* row 48"),
    ):
        with pytest.raises(DataError, match=words):
            model.score_rows(wrong)


def test_the_command_writes_predictions(trained: Place) -> None:
    file, out = trained.path / "patients.csv", trained.path / "new" / "predictions.csv"
    said = trained.call("predict", trained.out, file, "--keep", "hospital", "--out", out)
    assert said.code == 0
    assert "simulation" in said.err
    with out.open() as written:
        lines = list(csv.DictReader(written))
    model = privadmm.load(trained.out)
    assert [line["hospital"] for line in lines] == [row["hospital"] for row in RAW]
    assert [float(line["score"]) for line in lines] == model.score_rows(plain(RAW)).tolist()
    assert [line["prediction"] for line in lines] == model.predict_rows(plain(RAW)).tolist()
    printed = trained.call("predict", trained.out / "model.json", file)
    assert printed.out.splitlines()[0] == "score,prediction"
    facts = trained.call("predict", trained.out, file, "--json").object
    assert facts["predictions"] == [line["prediction"] for line in lines]
    assert facts["notices"]
    assert trained.call("predict", trained.out, file, "--out", out).code == 2


def test_the_training_file_is_predicted_with_columns_that_the_schema_left_out(place: Place) -> None:
    """An id and a constant: `schema` and `init` leave them out, `train` reads past them, and so does `predict`."""
    lines = [f"P{row:04d},{'abc'[row % 3]},{20 + row % 41},ours,{'yes' if row % 3 else 'no'}" for row in range(60)]
    source, config = place.path / "p.csv", place.path / "config.toml"
    source.write_text("\n".join(["patient_id,ward,age,owner,ill", *lines]) + "\n")
    given = ("--source", source, "--label", "ill", "--public", "--parties", 2, "--epsilon", 2)
    started = place.call("init", config, *given, "--json").object
    assert {note["column"] for note in started["notes"]} >= {"patient_id", "owner"}
    assert place.train(config).code == 0
    facts = place.call("predict", place.out, source, "--json").object
    assert (facts["rows"], facts["ignored"]) == (60, ["patient_id", "owner"])
    said = place.call("predict", place.out, source, "--keep", "patient_id")
    assert said.out.splitlines()[:2][0] == "patient_id,score,prediction"
    assert said.out.splitlines()[1].startswith("P0000,")
    assert "no such column: owner (" in said.err
    strict = place.call("predict", place.out, source, "--extra", "refuse", "--json")
    assert strict.code == 1
    assert all(word in strict.object["message"] for word in ("'patient_id'", "--extra ignore", "--keep"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age,ward\n40,a\n", "column 'pressure' is missing"),
        ("age,ward,Presure_\n40,a,1\n", "column 'pressure' is missing.* Column 3 has nearly this name"),
        ("age;ward;pressure\n40;a;1\n", "column 'age' is missing.* another separator"),
        ("40,secret,1\n41,b,2\n", "column 'age' is missing.* no header line"),
        ("age,ward,pressure,wrad\n40,a,1,b\n", "column 'wrad' is none that the model knows"),
        ("age,ward,pressure\n40,a,1\n\nsecret,a,1\n", "column 'age': 1 of 2 rows .* on line 4"),
        ("age,ward,pressure\n40,a,1\n40,a\n", "line 3 has 2 cells"),
        ("age,ward,pressure\n", "no rows"),
        ("age,age,ward,pressure\n1,2,a,1\n", "columns 1 and 2 have the same name"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_its_place(text: str, words: str, trained: Place) -> None:
    path = trained.path / "new.csv"
    path.write_text(text)
    said = trained.call("predict", trained.out, path, "--extra", "refuse", "--json")
    assert said.code == 1
    with pytest.raises(DataError, match=rf"new\.csv: .*{words}"):
        privadmm.load(trained.out).predict_file(path)
    assert "secret" not in said.object["message"]


def test_a_path_without_a_model_is_named(place: Place) -> None:
    file = write_patients(place.path / "patients.csv")
    for path, words in ((place.path / "nope", "no such directory"), (place.path, "no finished run")):
        said = place.call("predict", path, file, "--json")
        assert said.code == 1
        assert words in said.object["message"]


def test_cells_that_were_not_read_as_they_stand_are_counted(trained: Place) -> None:
    path = trained.path / "new.csv"
    path.write_text("age,ward,pressure\n40,secret,1\n140,,1\n-3,?,1\n50,other,3.5\n")
    facts = trained.call("predict", trained.out, path, "--json").object
    assert facts["unread"] == {"age": {"clipped": 2}, "ward": {"unknown": 2, "missing": 2}}
    shown = trained.call("predict", trained.out, path)
    assert "ward: 2 of 4 cells in no declared category, read as zeros" in shown.err
    assert "age: 2 of 4 cells beyond the declared range" in shown.err
    assert "secret" not in shown.err + shown.out
    path.write_text("age,ward,pressure\n40,a,1\n")
    assert trained.call("predict", trained.out, path, "--json").object["unread"] == {}


def test_missing_numbers_are_the_low_end_where_that_was_declared(place: Place) -> None:
    write_patients(place.path / "patients.csv")
    tables = with_changes(with_changes(PRIVATE, RECOMMENDED), {"data": {"on_bad": "default"}})
    write_config(place.path / "config.toml", tables)
    assert place.train(place.path / "config.toml", "--json").code == 0
    model, row = privadmm.load(place.out), plain(RAW)[0]
    found = model.score_rows([{**row, "age": cell} for cell in (None, "?", math.inf, 0)])
    assert len(set(found)) == 1
    path = place.path / "new.csv"
    path.write_text("age,ward,pressure\n,a,1\nold,a,1\n40,a,1\n")
    facts = place.call("predict", place.out, path, "--json").object
    assert facts["unread"] == {"age": {"no_number": 2}}


def test_columns_without_a_schema_are_numbers(place: Place) -> None:
    X, y = small_rows()
    write_csv(place.path / "data.csv", X, y)
    done = place.run(with_changes(CLEAR, {"data": {"source": "data.csv", "label": "y"}}))
    model = privadmm.load(place.out)
    raw = [{f"f{j}": cell for j, cell in enumerate(row)} for row in X]
    assert np.array_equal(model.score_rows(raw), done.model.scores(X))
    assert np.array_equal(model.predict_file(place.path / "data.csv"), done.model.predict(X))


def test_a_regression_predicts_scores(place: Place) -> None:
    X, y = small_rows()
    write_csv(place.path / "data.csv", X, y)
    squared = {"loss": {"name": "squared", "label_bound": 1.0}}
    data = {"source": "data.csv", "label": "y", "classes": None}
    place.run(with_changes(CLEAR, {**squared, "data": data}))
    said = place.call("predict", place.out, place.path / "data.csv")
    assert said.out.splitlines()[0] == "predicted_y"


def test_the_embedded_data_bring_their_schema(place: Place) -> None:
    """A record of Adult as a person would type it."""
    data = {"source": "embedded:adult", "encoding": "binned", "rows": "unit", "test_fraction": 0.99}
    data |= {"row_bound": None, "classes": None}
    done = place.run(with_changes(CLEAR, {"data": data, "algorithm": {"rounds": 2}}))
    model, records = privadmm.load(place.out), adult.load(encoding="binned")
    raw = [{name: records.columns[name][row] for name in adult.SCHEMA.columns} for row in range(5)]
    assert np.array_equal(model.score_rows(raw), done.model.scores(records.X[:5]))
    assert set(model.predict_rows([{**raw[0], "income": ">50K", "age": "39"}])) <= set(adult.CLASSES)


def test_vertical_models_read_whole_rows(place: Place) -> None:
    write_patients(place.path / "patients.csv")
    tables = with_changes(
        CLEAR,
        {
            "data": {**RECOMMENDED["data"], "encoding": "minmax", "rows": None, "row_bound": 2.0},
            "parties": {"split": "features", "count": 2},
            "algorithm": {"name": "admm_sharing"},
        },
    )
    write_config(place.path / "config.toml", tables)
    done = place.train(place.path / "config.toml", "--json")
    assert done.code == 0, done.err
    config = configs.read(place.path / "config.toml")
    model = privadmm.load(place.out)
    found, *_ = data_source.records(config)
    assert np.array_equal(model.score_rows(plain(RAW)), model.scores(found.X))


def test_the_estimators_model_takes_rows_by_name(tmp_path: Path) -> None:
    X, y = small_rows()
    fitted = ADMMClassifier(classes=(0, 1), row_bound=2.0, parties=3, random_state=0).fit(X, y)
    fitted.model_.save(tmp_path / "model.json")
    rows = [{f"x{j + 1}": cell for j, cell in enumerate(row)} for row in X]
    assert np.array_equal(Model.load(tmp_path / "model.json").predict_rows(rows), fitted.predict(X))


def test_the_encoder_on_disk_holds_declared_constants_only(trained: Place) -> None:
    kept = json.loads((trained.out / "model.json").read_text())["frame"]["schema"]
    assert kept["columns"]["age"] == {
        **{"low": 0.0, "high": 100.0, "edges": [0.0, 0.02, 0.1, 0.25, 0.5], "cuts": []},
        **{"default": None, "missing": False, "whole": False},
    }
    assert kept["columns"]["ward"] == {"values": ["a", "b", "c"], "other": False, "default": None, "missing": False}
    assert (kept["label"], kept["classes"]) == ("readmitted", ["no", "yes"])


def test_a_model_from_before_columns_could_say_more_scores_the_same(trained: Place) -> None:
    path = trained.out / "model.json"
    before = privadmm.load(path).score_rows(plain(RAW))
    facts = json.loads(path.read_text())
    for column in facts["frame"]["schema"]["columns"].values():
        for key in ("cuts", "default", "missing", "other", "whole"):
            column.pop(key, None)
    del facts["frame"]["unused"]
    path.write_text(json.dumps(facts))
    assert np.array_equal(privadmm.load(path).score_rows(plain(RAW)), before)


def test_a_model_of_an_earlier_version_or_a_damaged_one(trained: Place) -> None:
    path = trained.out / "model.json"
    facts = json.loads(path.read_text())
    bad = {**facts, "frame": {**facts["frame"], "schema": {**facts["frame"]["schema"], "columns": {}}}}
    path.write_text(json.dumps(bad))
    with pytest.raises(DataError, match=r"model\.json: "):
        privadmm.load(trained.out)
    for key in ("schema", "on_bad", "label"):
        del facts["frame"][key]
    path.write_text(json.dumps(facts))
    old = privadmm.load(trained.out)
    assert old.frame.schema is None
    with pytest.raises(DataError, match="has no column"):
        old.predict_rows(plain(RAW))


def test_the_training_file_needs_no_flag_for_the_column_of_the_parties(trained: Place) -> None:
    file = trained.path / "patients.csv"
    said = trained.call("predict", trained.out, file, "--json")
    assert (said.code, said.object["rows"]) == (0, len(RAW))
    assert said.object["scores"] == privadmm.load(trained.out).score_rows(plain(RAW)).tolist()
    # Control: any other column that the model does not know may be refused.
    file.write_text(file.read_text().replace("hospital", "clinic", 1))
    assert trained.call("predict", trained.out, file, "--extra", "refuse", "--json").code == 1


EVERY_KIND = {
    "age": {"range": [0, 100], "missing": True, "default": 50},
    "ward": {"categories": ["a", "b"], "other": True},
    "pressure": {"range": [-1.0, 3.5], "edges": [0, 1.5]},
    "seen": {"date": "%d.%m.%Y", "range": ["01.01.2020", "31.12.2029"], "parts": ["month"], "missing": True},
}


def test_a_schema_of_every_kind_trains_and_predicts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells that are missing, unlisted or no date are read as declared, with on_bad = "refuse", and counted."""
    no_plots(monkeypatch)
    dates = ["", "soon", "31.02.2024", *(f"0{day}.05.2024" for day in range(1, 6))]
    every = [{**row, "age": "" if row["age"] > 70 else row["age"], "seen": dates[i % 8]} for i, row in enumerate(RAW)]
    with (place.path / "patients.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*every[0], "readmitted"])
        writer.writeheader()
        writer.writerows({**row, "readmitted": "no" if i % 3 else "yes"} for i, row in enumerate(every))
    changes = with_changes(RECOMMENDED, {"data": {"schema": EVERY_KIND, "on_bad": "refuse"}})
    write_config(place.path / "config.toml", with_changes(PRIVATE, changes))
    assert place.train(place.path / "config.toml", "--json").code == 0
    model = privadmm.load(place.out)
    found, *_ = data_source.records(configs.read(place.path / "config.toml"))
    assert {"age=(missing)", "ward=(other)", "pressure=[1.5, 3.5]", "seen=month:5", "seen=(missing)"} <= set(
        found.names
    )
    assert np.array_equal(model.scores(found.X), model.score_rows(every))
    older = place.out / "model.json"
    older.write_text(older.read_text().replace('"pressure=[1.5, 3.5]"', '"pressure>=1.5"'))  # as bins were named once
    assert privadmm.load(place.out).columns == model.columns
    unread = place.call("predict", place.out, place.path / "patients.csv", "--json").object["unread"]
    assert unread["age"] == {"indicated": sum(row["age"] == "" for row in every)}
    assert unread["ward"] == {"other": sum(row["ward"] not in "ab" for row in every)}
    assert unread["seen"] == {"indicated": 18}


def test_an_encoder_reorders_and_leaves_out() -> None:
    schema = Schema({"a": Number(0, 2), "b": Category(("x", "y"))}, "label", None, 1.0)
    X = encode_rows(Encoder(("b=y", "a"), schema), [{"a": 1, "b": "y"}, {"a": 3, "b": "x"}])
    assert X.tolist() == [[1.0, 0.5], [0.0, 1.0]]
    assert list(Encoder(("a",), schema).columns) == ["a"]
    with pytest.raises(ConfigError, match="makes no feature"):
        Encoder(("c",), schema)
