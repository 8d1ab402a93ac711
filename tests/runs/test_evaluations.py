"""Figures of a model: exact ones beside scikit-learn's, overall and by party; in a run, its page and an estimator."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import (
    brier_score_loss,
    confusion_matrix,
    log_loss,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from privadmm import ADMMClassifier, ADMMRegressor
from privadmm.config import build
from privadmm.config.file import read
from privadmm.engine.block import cluster
from privadmm.engine.job import train
from privadmm.errors import ConfigError, DataError
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs import private_evaluation
from privadmm.runs.evaluations import exact, measurable
from privadmm.runs.measures import Scored, evaluated, evaluated_numbers
from small_runs import CLEAR, PRIVATE, SECURE, SHARING, Place, with_changes, write_npz

PAID = with_changes(PRIVATE, {"evaluation": {"kind": "private", "held_out": 0.25}})
LOUD = with_changes(PAID, {"privacy": {"epsilon": 200.0}})  # so few records can tell something


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    write_npz(tmp_path / "data.npz")
    monkeypatch.setenv("COLUMNS", "120")
    return Place(tmp_path, capsys)


def drawn(n: int = 400) -> Scored:
    rng = np.random.default_rng(0)
    scores = np.round(2 * rng.normal(size=n), 1)  # with ties
    chances = 1 / (1 + np.exp(-scores))
    return Scored(scores, np.where(rng.random(n) < chances, 1.0, -1.0), chances)


def test_figures_are_those_of_scikit_learn() -> None:
    one = drawn()
    found, positive = evaluated(one, "these"), one.positive
    assert found["auc"] == pytest.approx(roc_auc_score(positive, one.scores))
    assert found["log_loss"] == pytest.approx(log_loss(positive, one.chances))
    assert found["brier"] == pytest.approx(brier_score_loss(positive, one.chances))
    assert list(found["confusion"].values()) == confusion_matrix(positive, one.scores > 0).ravel().tolist()
    assert found["accuracy"] == np.mean((one.scores > 0) == positive)
    assert found["majority"] == max(positive.mean(), 1 - positive.mean())
    assert sum(row["records"] for row in found["calibration"]) == 400


def test_parties_have_figures_of_their_own_records() -> None:
    one = drawn()
    at = {"a": np.arange(0, 150), "b": np.arange(150, 400)}
    found = evaluated(one, "these", at)
    assert [row["party"] for row in found["parties"]] == ["a", "b"]
    assert found["parties"][1]["auc"] == pytest.approx(roc_auc_score(one.positive[150:], one.scores[150:]))


def test_what_has_no_meaning_is_none() -> None:
    alone = Scored(np.array([1.0, 2.0]), np.ones(2))
    assert (alone.auc, alone.log_loss, alone.brier, alone.calibration) == (None, None, None, [])
    found = evaluated_numbers(np.zeros(2), np.ones(2), "these")
    assert found["r2"] is None
    assert found["rmse_constant"] == 0.0


def test_numbers_beside_the_constant() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=50)
    said = y + 0.3 * rng.normal(size=50)
    found = evaluated_numbers(said, y, "these")
    assert found["r2"] == pytest.approx(r2_score(y, said))
    assert found["rmse"] == pytest.approx(root_mean_squared_error(y, said))
    assert found["rmse_constant"] == pytest.approx(y.std())


# In a run


def test_a_simulation_tells_exact_figures(place: Place) -> None:
    said = place.train(place.config(PRIVATE), "--json").object
    assert said["evaluation"]["on"] == "held-out records"
    assert said["evaluation"]["records"] == 12
    assert said["evaluation"]["accuracy"] == said["accuracy_test"]
    assert "private_evaluation" not in said


def test_a_simulation_with_a_private_evaluation_measures_by_the_same_records(place: Place) -> None:
    config = place.config(LOUD)
    said = place.train(config, "--json").object
    exact, paid = said["evaluation"], said["private_evaluation"]
    assert exact["records"] == paid["records"] == 15
    assert [row["records"] for row in exact["parties"]] == [5, 5, 5]
    assert paid["auc"].keys() == {"value", "noise", "error"}
    assert 0 <= paid["auc"]["value"] <= 1
    assert said["rounds"] == 8  # six, and two of the evaluation
    assert said["epsilon"] == pytest.approx(200.0, abs=1e-3)
    ledger = read(config)
    assert ledger.evaluates
    people = place.call("train", config, "--out", place.path / "again")
    text = " ".join(people.out.split())
    assert "private, charged: 15 held-out records, 10% of the budget" in text
    assert "by noise" in text
    assert "Confusion" in people.out


@pytest.mark.parametrize(
    ("changes", "will", "words"),
    [({}, "be vague", "one standard deviation"), (SECURE, "tell nothing", "blind guess")],
    ids=["own noise", "secure sums"],
)
def test_how_vague_it_will_be_is_told_before_it_is_paid_for(place: Place, changes: Any, will: str, words: str) -> None:
    config = place.config(with_changes(LOUD, {"data": {"dim": 3}, **changes}))
    account = place.call("account", config, "--records", "60", "--json").object["evaluation"]
    done = place.train(config, "--json")
    paid = done.object["private_evaluation"]
    assert (account["records"], account["accuracy_noise"]) == (paid["records"], paid["accuracy"]["noise"])
    assert account["accuracy_error"] ** 2 == pytest.approx(paid["accuracy"]["noise"] ** 2 + 0.25 / 15)
    assert account["accuracy_error"] >= paid["accuracy"]["error"]
    assert f"will {will}" in account["warning"]
    assert f"will {will}" in done.err
    assert words in " ".join(place.call("account", config, "--records", "60").out.split())


def test_figures_that_are_no_better_than_a_guess_are_said_to_tell_nothing(place: Place) -> None:
    """Beforehand, by the summary and on the page: never an accuracy of 300 % +- 450."""
    config = place.config(with_changes(PAID, {"data": {"dim": 3}, "parties": {"records": 60}}))
    told = place.call("account", config, "--json").object["evaluation"]
    assert told["accuracy_error"] > 0.3
    assert "will tell nothing" in told["warning"]
    text = " ".join(place.call("account", config).out.split())
    assert "accuracy no better than a blind guess" in text
    assert "points" not in text
    done = place.train(config)
    assert "accuracy it tells nothing" in " ".join(done.out.split())
    assert "will tell nothing" in done.err
    card = place.call("report", place.out, "--out", place.path / "page.html", "--json").object
    assert "it tells nothing" in dict(card["results"])["accuracy, by the private evaluation"]
    assert "paid-roc" not in {chart["key"] for chart in card["charts"]}
    assert "tells nothing" in dict(card["not_drawn"])["ROC and calibration"]


def test_held_out_records_are_not_counted_as_trained_on(place: Place) -> None:
    """60 at three parties, a quarter of them held out: 45 teach the model."""
    config = place.config(with_changes(PAID, {"data": {"dim": 3}, "parties": {"records": 60}}))
    for words in (("account",), ("plan", "--epsilon", 1, "--delta", 1e-5)):
        said = place.call(*words, config, "--json").object
        assert [(party["records"], party["held_out"]) for party in said["parties"]] == [(20, 5)] * 3
        text = " ".join(place.call(*words, config).out.split())
        assert "3 parties with 15 records to train on, and 5 held out to evaluate by each" in text
    assert place.call("recommend", config, "--json").object["trained_on"] == 45
    plain = place.call("account", place.config(parties={"records": 60}), "--json").object["parties"]
    assert [(party["records"], "held_out" in party) for party in plain] == [(16, False)] * 3


def test_without_sizes_it_is_not_told_and_without_an_evaluation_nothing_is(place: Place) -> None:
    undeclared = place.call("account", place.config(PAID), "--json").object["evaluation"]
    assert "sizes" in undeclared["unknown"]
    assert "evaluation" not in place.call("account", place.config(PRIVATE), "--json").object


def test_few_points_of_error_are_no_warning(place: Place) -> None:
    found = place.call("account", place.config(ADULT), "--json").object["evaluation"]
    assert found["accuracy_error"] < 0.05
    assert found["warning"] is None


def test_a_page_has_one_convention_and_draws_no_calibration_of_noise(place: Place) -> None:
    said = place.train(place.config(LOUD), "--json").object
    paid = said["private_evaluation"]
    assert len(paid["calibration"]) < 3  # of 15 records
    page = place.path / "page.html"
    card = place.call("report", said["out"], "--out", page, "--json").object
    told = dict(card["results"])["accuracy, by the private evaluation"]
    value, noise, error = (f"{100 * paid['accuracy'][part]:.1f}" for part in ("value", "noise", "error"))
    assert told == f"{value} % ± {noise} by noise, ± {error} in all"
    titles = {chart["key"]: chart["title"] for chart in card["charts"]}
    assert titles["paid-roc"].endswith(f"± {paid['auc']['error']:.3f}")
    assert "paid-calibration" not in titles
    assert "too noisy to draw" in dict(card["not_drawn"])["Calibration by the private evaluation"]
    text = page.read_text(encoding="utf-8")
    assert "± is one standard deviation</caption>" in text
    # Beside its deviations a number is too long for a column of a narrow screen.
    assert '<table class="stack" role="table"><caption>The model on' in text


def test_vertical_parties_and_clear_methods_have_figures_too(place: Place) -> None:
    for number, tables in enumerate((CLEAR, with_changes(PRIVATE, SHARING))):
        said = place.call("train", place.config(tables), "--out", place.path / str(number), "--json")
        assert said.code == 0, said.err
        found = said.object["evaluation"]
        assert 0 <= found["auc"] <= 1
        assert found["parties"] == []


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"evaluation": {"bins": 5}}, "even"),
    ({"privacy": {"label_epsilon": 1.0}}, "no proof"),
    ({"privacy": {"adjacency": "label"}}, "no proof"),
    (SHARING, "no proof"),
    ({"evaluation": {"kind": None}}, 'only for kind = "private"'),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=range(len(WRONG)))
def test_configs_without_a_proof_are_refused_by_line(place: Place, changes: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        read(place.config(with_changes(PAID, changes)))
    assert "evaluation" in str(caught.value)


def test_too_small_a_fraction_is_refused(place: Place) -> None:
    said = place.call("train", place.config(with_changes(PAID, {"evaluation": {"held_out": 0.001}})))
    assert said.code == 2
    assert "held_out" in said.err


# Of an estimator


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.where(X[:, 0] + rng.normal(size=300) > 0, "yes", "no")
    model = ADMMClassifier(classes=("no", "yes"), row_bound=3.0, epsilon=10.0, parties=3, random_state=0)
    return model.fit(X, y), X, y


def test_a_classifier_evaluates_itself(fitted: Any) -> None:
    model, X, y = fitted
    found = model.evaluate(X, y, groups=np.arange(300) % 2)
    chances = model.predict_proba(X)[:, 1]
    assert found["auc"] == pytest.approx(roc_auc_score(y == "yes", model.decision_function(X)))
    assert found["log_loss"] == pytest.approx(log_loss(y == "yes", chances))
    assert found["accuracy"] == np.mean(model.predict(X) == y)
    assert [row["party"] for row in found["parties"]] == [0, 1]
    lines = repr(found).splitlines()
    assert [line[:29] for line in lines[:1]] == ["Evaluation(records 300, AUC 0"]
    assert [line[:18] for line in lines[1:]] == ["  0: records 150, ", "  1: records 150, "]
    assert repr(model.evaluate(X, y, groups=np.arange(300) % 30)).endswith("and 10 more in figures['parties'])")
    assert found._repr_html_().count("<tr>") == 4


def test_more_classes_and_numbers_are_evaluated_too() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    kinds = np.where(X[:, 1] > 0.7, 2, (X[:, 0] > 0) * 1)
    model = ADMMClassifier(classes=(0, 1, 2), row_bound=3.0, epsilon=50.0, parties=2, random_state=0).fit(X, kinds)
    found = model.evaluate(X, kinds)
    assert found["confusion"] == confusion_matrix(kinds, model.predict(X)).tolist()
    assert found["accuracy"] == np.mean(model.predict(X) == kinds)
    assert found["log_loss"] == pytest.approx(log_loss(kinds, model.predict_proba(X)))
    y = np.clip(X[:, 0], -1, 1)
    line = ADMMRegressor(label_bound=1.0, row_bound=3.0, epsilon=50.0, parties=2, random_state=0).fit(X, y)
    assert line.evaluate(X, y)["r2"] == pytest.approx(r2_score(y, line.predict(X)))


def test_wrong_answers_are_refused_in_words(fitted: Any) -> None:
    model, X, y = fitted
    with pytest.raises(DataError, match="declared classes"):
        model.evaluate(X, np.where(y == "yes", "maybe", y))
    with pytest.raises(DataError, match="it has 10, and X has 300 rows"):
        model.evaluate(X, y[:10])
    with pytest.raises(DataError, match="groups names the party of each row"):
        model.evaluate(X, y, groups=[1, 2])


def test_a_score_without_a_link_has_no_probability() -> None:
    one = replace(drawn(), chances=None)
    assert one.figures["log_loss"] is None
    assert one.figures["auc"] is not None


# The figure that is promised: Adult, ten parties, secure sums, epsilon 1, a tenth of it for the evaluation.

ADULT: dict[str, dict[str, Any]] = {
    "data": {"source": "embedded:adult", "encoding": "binned", "rows": "unit"},
    "parties": {"count": 10},
    "features": {"moments": True, "nonnegative": True},
    "algorithm": {"name": "first_order_consensus", "rounds": 41},
    "loss": {"name": "half_logistic"},
    "regularizer": {"weight": 0.0},
    "privacy": {"epsilon": 1.0, "delta": 1e-6, "sum": "secure"},
    "evaluation": {"kind": "private"},
    "run": {"seed": 0},
}


@pytest.mark.slow
def test_the_area_on_adult_is_within_a_hundredth(place: Place) -> None:
    config = read(place.config(ADULT))
    prepared = build.prepare(config)
    made = build.job(config, prepared.held.sizes, prepared.held.dim)
    known, misses = measurable(config, prepared), []
    for seed in range(5):
        job = replace(made, id=f"seed {seed}")
        done = train(job, cluster(job, prepared.shards, Simulation(seed)))
        paid, true = private_evaluation.found(job, done), exact(config, job, done, known)
        assert paid is not None
        assert true is not None
        misses.append(abs(paid["auc"]["value"] - true["auc"]))
    assert np.mean(misses) < 0.008
    assert np.median(misses) < 0.01
