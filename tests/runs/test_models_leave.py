"""Models that leave, as ONNX files and plain scikit-learn objects, give what they give here."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import Pipeline, make_pipeline

from privadmm import ADMMClassifier, ADMMRegressor, ADMMStar, ConfigError, DPFedSGD, SchemaEncoder, Sharing
from privadmm.errors import DataError
from privadmm.optim.losses import Logistic, link
from privadmm.runs.model import Model
from small_runs import Place, no_plots, rows

X, Y = rows(n=90)
FAR = np.concatenate([X, 50 * X, np.zeros((1, 3)), 1e200 * X[:1]])  # within the bound, beyond it, and extremes
DECLARED = {"row_bound": 2.0, "random_state": 0, "parties": 3, "epsilon": 1.0, "rounds": 3}


def run(path: Path, columns: Any) -> dict[str, np.ndarray]:
    """What the file computes, by onnx's own evaluator."""
    evaluator = pytest.importorskip("onnx.reference").ReferenceEvaluator(str(path))
    return dict(zip(evaluator.output_names, evaluator.run(None, {"columns": columns}), strict=True))


def exported(model: Any, path: Path, columns: Any = FAR) -> dict[str, np.ndarray]:
    pytest.importorskip("onnx")
    model.to_onnx(path / "model.onnx")
    return run(path / "model.onnx", columns)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"algorithm": DPFedSGD(step=1.0), "intercept": 0.3, "loss": "logistic"},
        {"intercept": 0.2},
        {"algorithm": Sharing(ball=5.0, rho=0.3), "adjacency": "person", "columns": (2, 1), "intercept": 0.2},
    ],
    ids=["moments", "intercept", "both", "columns"],
)
def test_a_classifier_is_the_same_there(changes: dict[str, Any], tmp_path: Path) -> None:
    model = ADMMClassifier(classes=("no", "yes"), **{**DECLARED, **changes}).fit(X, np.where(Y == 1, "yes", "no"))
    there = exported(model, tmp_path)
    assert there["scores"][:, 0] == pytest.approx(model.decision_function(FAR), rel=1e-12, abs=1e-12)
    assert there["label"].tolist() == model.predict(FAR).tolist()
    assert there["probabilities"] == pytest.approx(model.predict_proba(FAR), rel=1e-9, abs=1e-12)


def test_many_classes_and_a_regression(tmp_path: Path) -> None:
    kinds = np.digitize(X[:, 0], [-0.5, 0.5]) * 10
    clear = {**DECLARED, "algorithm": ADMMStar(rho=0.1), "epsilon": None, "delta": None}
    many = ADMMClassifier(classes=(20, 0, 10), **clear).fit(X, kinds)
    there = exported(many, tmp_path)
    assert there["scores"] == pytest.approx(many.decision_function(FAR), rel=1e-12, abs=1e-12)
    assert there["label"].tolist() == many.predict(FAR).tolist()
    assert there["probabilities"] == pytest.approx(many.predict_proba(FAR), rel=1e-9, abs=1e-12)
    line = ADMMRegressor(label_bound=1.0, **clear).fit(X, X[:, 0] / 3)
    there = exported(line, tmp_path)
    assert list(there) == ["scores"]
    assert there["scores"][:, 0] == pytest.approx(line.predict(FAR), rel=1e-12, abs=1e-12)


def test_a_score_that_is_no_probability_is_not_made_one(tmp_path: Path) -> None:
    hinge = ADMMClassifier(classes=(0, 1), **{**DECLARED, "algorithm": DPFedSGD(step=1.0), "loss": "huber_hinge"})
    assert set(exported(hinge.fit(X, Y), tmp_path)) == {"scores", "label"}


def test_what_was_promised_stands_in_the_file(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    sums = ADMMClassifier(classes=(0, 1), secure_sum=True, colluding=1, **DECLARED).fit(X, Y)
    sums.to_onnx(tmp_path / "model.onnx")
    file = onnx.load(tmp_path / "model.onnx")
    facts = {entry.key: json.loads(entry.value) for entry in file.metadata_props}
    assert facts["columns"] == ["x1", "x2", "x3"]
    assert (facts["epsilon"], facts["delta"], facts["colluding"]) == (sums.epsilon_, 1e-6, 1)
    for words in ("simulation", "if at most 1 of the parties collude", "computational"):
        assert words in file.doc_string


def test_a_run_leaves_as_onnx_by_the_command_line(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnx")
    no_plots(monkeypatch)
    place.train(place.config())
    said = place.call("export", place.out, place.path / "m.onnx", "--json")
    assert (said.code, said.object["columns"]) == (0, ["x1", "x2", "x3"])
    model = Model.load(place.out)
    there = run(place.path / "m.onnx", FAR)
    assert there["label"].tolist() == model.predict(FAR).tolist()
    likely = link(Logistic(), np.clip(model.scores(FAR), -700, 700))
    assert there["probabilities"] == pytest.approx(np.stack([1 - likely, likely], axis=1), rel=1e-9, abs=1e-12)
    assert place.call("export", place.out, place.path / "m.onnx").code == 2  # it is there already
    assert "ends in .onnx" in place.call("export", place.out, place.path / "m.txt").err
    assert not (place.path / "m.txt").exists()


def test_a_model_of_an_earlier_version_is_still_read(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    no_plots(monkeypatch)
    place.train(place.config())
    file = place.out / "model.json"
    facts = json.loads(file.read_text())
    assert facts.pop("link") == "logistic"
    file.write_text(json.dumps(facts))
    assert Model.load(file).link is None
    file.write_text(json.dumps({**facts, "link": "hinge"}))
    with pytest.raises(DataError, match="link"):
        Model.load(file)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = ADMMClassifier(classes=(0, 1), **DECLARED).fit(X, Y)
    with pytest.raises(ConfigError, match=r"privadmm\[onnx\]"):
        model.to_onnx(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


LINEAR = {"algorithm": DPFedSGD(step=1.0), "loss": "logistic"}


def with_raw_rows(**changes: Any) -> tuple[Pipeline, dict[str, Any]]:
    encoder = SchemaEncoder(ranges={"age": (0, 100)}, categories={"ward": {"categories": ["a", "b"], "other": True}})
    rng = np.random.default_rng(0)
    raw = {"age": rng.integers(-5, 120, 200), "ward": rng.choice(["a", "b", "z", ""], 200)}
    declared = {**DECLARED, "row_bound": encoder.fit().row_bound_, "parties": 2, **changes}
    return make_pipeline(encoder, ADMMClassifier(classes=(0, 1), **declared)).fit(raw, raw["age"] > 50), raw


@pytest.mark.parametrize("changes", [{}, LINEAR], ids=["moments", "linear"])
def test_raw_rows_through_the_encoder_and_the_plain_twin_decide_alike(changes: dict[str, Any]) -> None:
    pipeline, raw = with_raw_rows(**changes)
    with nullcontext() if changes else pytest.warns(UserWarning, match="logistic loss"):
        twin = make_pipeline(pipeline[0], pipeline[1].to_sklearn())
    assert (twin.predict(raw) == pipeline.predict(raw)).all()
    assert twin.decision_function(raw) == pytest.approx(pipeline.decision_function(raw), rel=1e-9, abs=1e-12)


def test_raw_rows_are_encoded_before_onnx_sees_them(tmp_path: Path) -> None:
    pipeline, raw = with_raw_rows()
    there = exported(pipeline[1], tmp_path, pipeline[0].transform(raw))
    assert there["label"].tolist() == pipeline.predict(raw).tolist()
