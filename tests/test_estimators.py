"""The scikit-learn classifier: it takes nothing from the data undeclared, and otherwise behaves like any other."""

import math
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from privadmm import (
    DPADMM,
    L2,
    MADMM,
    MRADMM,
    ADMMClassifier,
    ADMMGraph,
    ADMMRegressor,
    ADMMStar,
    Centred,
    DPFedSGD,
    FirstOrderConsensus,
    HuberHinge,
    Logistic,
    Model,
    load,
)
from privadmm.errors import BudgetWarning, ConfigError, PrivadmmError
from privadmm.optim.graphs import complete, ring
from privadmm.privacy.meaning import large_epsilon
from small_runs import rows

X, Y = rows(n=120)
DECLARED = {"classes": (0, 1), "row_bound": 2.0, "random_state": 0, "parties": 3}


def private(**changes: Any) -> ADMMClassifier:
    kind = {"algorithm": DPADMM(D_w=30.0, rho=0.01), "rounds": 5}
    return ADMMClassifier(**{**DECLARED, **kind, **changes})


def exact(**changes: Any) -> ADMMClassifier:
    kind = {"algorithm": ADMMStar(rho=0.1), "epsilon": None, "rounds": 5}
    return ADMMClassifier(**{**DECLARED, **kind, **changes})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": None}, "classes=.negative, positive.*release"),
        ({"classes": (0,)}, "declare the labels"),
        ({"classes": (0, 2, 3)}, "not among the declared"),
        ({"party_epsilon": (1.0, 2.0)}, "one for each"),
        ({"adjacency": "column"}, "no proof"),
        ({"classes": (1, 1)}, "two different values"),
        ({"row_bound": None}, "declare row_bound.*release"),
        ({"row_bound": 0.0}, "row_bound must be"),
        ({"random_state": None}, "random_state=0"),
        ({"random_state": -1}, "seed"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must"),
        ({"delta": None}, "epsilon.*delta"),
        ({"epsilon": None}, "epsilon"),
        ({"rounds": 0}, "rounds"),
        ({"parties": 0}, "parties"),
        ({"parties": 121}, "121 parties cannot share 120"),
        ({"intercept": 1.0}, "intercept"),
        ({"algorithm": ADMMStar()}, "admm_star is not private"),
        ({"algorithm": ADMMGraph(eta=0.1), "epsilon": None}, "needs edges"),
        ({"graph": ring(3)}, "needs a coordinator"),
        ({"graph": ring(4), "algorithm": ADMMGraph(eta=0.1), "epsilon": None}, "4 parties and the data 3"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_is_not_declared_or_does_not_fit_is_refused(changes: dict[str, Any], words: str) -> None:
    model = private(**changes)
    with pytest.raises(PrivadmmError, match=words):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def with_cell(value: float) -> np.ndarray:
    changed = X.copy()
    changed[3, 1] = value
    return changed


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ((with_cell(np.nan), Y), "NaN"),
        ((with_cell(np.inf), Y), "infinity"),
        ((csr_array(with_cell(np.nan)), Y), "NaN"),
        ((X, np.where(np.arange(120) == 5, 2, Y)), "1 of 120 rows hold 1 value.s. that are neither"),
        ((X, np.where(np.arange(120) == 5, 2, Y)), r"more than two.*classes=\(a, b, c\)"),
        ((X, np.where(np.arange(120) == 5, None, Y)), "1 of 120 rows have an empty label"),
        ((X, np.where(np.arange(120) < 2, np.array([None, 2] * 60), Y)), "2 of 120 rows.*some of them are empty"),
        ((X, Y[:-1]), "120 rows and y has 119"),
        ((X, None), "y"),
        ((X[:, 0], Y), "rows and columns"),
        ((X[:0], Y[:0]), "0 sample"),
        ((X, Y, np.zeros(3)), "groups"),
        ((X, Y, np.array([""] + ["a"] * 119)), "1 of 120 rows are blank"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_data_are_refused_before_anything_is_fitted(data: tuple[Any, ...], words: str) -> None:
    model = private()
    with pytest.raises(ValueError, match=words):
        model.fit(*data)
    assert not hasattr(model, "model_")


def test_the_guarantee_is_the_one_asked_for() -> None:
    model = private(epsilon=0.7, delta=1e-5).fit(X, Y)
    assert model.private_
    assert 0.7 * (1 - 1e-6) < model.epsilon_ <= 0.7
    assert model.delta_ == 1e-5
    assert [party["epsilon"] for party in model.ledger_["parties"]] == [model.epsilon_] * 3
    assert [sum(event["count"] for event in party["events"]) for party in model.ledger_["parties"]] == [5] * 3


@pytest.mark.parametrize("algorithm", [ADMMStar(), None], ids=["admm", "dp_admm-without-noise"])
def test_without_an_epsilon_nothing_is_private(algorithm: Any) -> None:
    model = private(algorithm=algorithm, epsilon=None, delta=None).fit(X, Y)
    assert (model.private_, model.epsilon_, model.delta_) == (False, math.inf, None)
    assert model.model_.epsilon is None


def test_the_papers_noise_needs_no_total() -> None:
    published = DPADMM(D_w=5.0, rho=0.1, calibration="published", round_epsilon=0.1)
    model = private(algorithm=published, epsilon=None, delta=1e-3).fit(X, Y)
    assert model.private_
    assert 0 < model.epsilon_ < 0.1 * 5


def test_one_seed_is_one_model() -> None:
    first, again, other = (private(random_state=seed).fit(X, Y).coef_ for seed in (0, 0, 1))
    assert (first == again).all()
    assert not (first == other).any()


def test_without_noise_it_is_logistic_regression() -> None:
    """Compared with the pooled optimum of the same objective on the same clipped rows."""
    model = exact(rounds=400, row_bound=100.0, regularizer=L2(1e-5), algorithm=ADMMStar(rho=1e-4)).fit(X, Y)
    # mean(loss) + 1e-5/2 |w|^2 with rows divided by 100, so that w = 100 coef.
    pooled = LogisticRegression(C=1 / (120 * 1e-5 * 100**2), fit_intercept=False, tol=1e-10, max_iter=10_000)
    np.testing.assert_allclose(model.coef_, pooled.fit(X, Y).coef_, rtol=1e-5)


@pytest.mark.parametrize("intercept", [0.0, 0.4])
def test_coefficients_are_of_the_rows_as_given(intercept: float) -> None:
    model = exact(row_bound=50.0, intercept=intercept).fit(X, Y)
    np.testing.assert_allclose(model.decision_function(X), (X @ model.coef_.T + model.intercept_).ravel(), atol=1e-12)
    assert (model.intercept_ != 0).all() == (intercept > 0)


def test_rows_beyond_the_bound_are_clipped_at_prediction_too() -> None:
    model = exact().fit(X, Y)
    far = 1e3 * X
    np.testing.assert_allclose(model.decision_function(far), model.decision_function(10 * far), rtol=1e-9)


def test_probabilities_are_the_logistic_ones() -> None:
    model = exact(loss=Logistic()).fit(X, Y)
    likely = model.predict_proba(X)
    np.testing.assert_allclose(likely.sum(axis=1), 1)
    np.testing.assert_allclose(np.log(likely[:, 1] / likely[:, 0]), model.decision_function(X), atol=1e-9)
    assert (model.classes_[likely.argmax(axis=1)] == model.predict(X)).all()


def test_a_score_of_the_huber_hinge_is_no_probability() -> None:
    model = exact(loss=HuberHinge()).fit(X, Y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError) as caught:
        _ = model.predict_proba
    assert "says which class, not how likely" in str(caught.value.__cause__)
    assert model.score(X, Y) > 0.8


def test_groups_are_the_parties() -> None:
    sites = np.array(["north", "south", "east", "west"])[np.arange(120) % 4]
    model = exact().fit(X, Y, groups=sites)
    assert model.parties_ == ("east", "north", "south", "west")
    assert len(model.ledger_["parties"]) == 4
    # The parties' names and order are theirs; that they differ from an even deal shows in the model.
    assert not np.allclose(model.coef_, exact(parties=4).fit(X, Y).coef_, atol=1e-12)


def test_sparse_rows_give_the_dense_model() -> None:
    dense, sparse = exact().fit(X, Y), exact().fit(csr_array(X), Y)
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-9)
    np.testing.assert_allclose(sparse.decision_function(csr_array(X)), dense.decision_function(X), rtol=1e-9)


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        (("no", "yes"), lambda y: np.array(["no", "yes"])[y]),
        ((False, True), lambda y: y.astype(bool)),
        ((1.5, 2.5), lambda y: y + 1.5),
        ((np.int64(-1), np.int64(1)), lambda y: 2 * y - 1),
        (("no", 1), lambda y: np.array(["no", 1], dtype=object)[y]),
    ],
    ids=["words", "truth", "numbers", "numpy", "mixed"],
)
def test_labels_come_back_as_they_were(classes: Any, name: Callable[[Any], Any], tmp_path: Any) -> None:
    model = exact(classes=classes).fit(X, name(Y))
    plain = exact().fit(X, Y)
    assert (model.predict(X) == name(plain.predict(X))).all()
    model.model_.save(tmp_path / "model.json")
    assert (Model.load(tmp_path / "model.json").predict(X) == model.predict(X)).all()


def test_negative_comes_first() -> None:
    one, other = exact(classes=(0, 1)).fit(X, Y), exact(classes=(1, 0)).fit(X, Y)
    np.testing.assert_allclose(one.coef_, -other.coef_, rtol=1e-9)
    assert (one.predict(X) == other.predict(X)).all()


def test_another_number_of_features_is_refused() -> None:
    model = exact().fit(X, Y)
    with pytest.raises(ValueError, match=r"2 features.*expecting 3"):
        model.predict(X[:, :2])


def test_parameters_survive_a_clone() -> None:
    model = private(algorithm=DPADMM(D_w=9.0), loss=HuberHinge(0.2))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(epsilon=3.0).epsilon == 3.0
    assert (clone(model).fit(X, Y).coef_ == model.fit(X, Y).coef_).all()


def test_it_works_inside_pipelines_and_searches() -> None:
    halved = make_pipeline(FunctionTransformer(lambda X: X / 2), exact(row_bound=1.0))
    np.testing.assert_allclose(halved.fit(X, Y).decision_function(X), exact().fit(X, Y).decision_function(X), rtol=1e-9)
    grid = {"admmclassifier__loss": [Logistic(), HuberHinge()], "admmclassifier__parties": [1, 4]}
    search = GridSearchCV(halved, grid, cv=3, error_score="raise").fit(X, Y)
    assert search.best_score_ > 0.8
    for parameters, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
        alone = clone(halved).set_params(**parameters)
        assert cross_val_score(alone, X, Y, cv=3, error_score="raise").mean() == score


def test_a_failed_fit_is_a_value_error() -> None:
    """scikit-learn's tools use this error to tell a bad candidate from a bug."""
    with pytest.raises(ValueError, match="row_bound") as caught:
        private(row_bound=None).fit(X, Y)
    assert isinstance(caught.value, ConfigError)


class ReadsClasses(ADMMClassifier):
    """Declares what scikit-learn's checks do not say, by doing what the library refuses to do. For the checks only."""

    def fit(self, X: Any, y: Any, groups: Any = None) -> "ReadsClasses":
        found = [] if y is None else np.unique(np.asarray(y)).tolist()
        declared, self.classes = self.classes, tuple(found) if 2 <= len(found) <= 10 else self.classes
        try:
            return super().fit(X, y, groups)  # type: ignore[return-value]
        finally:
            self.classes = declared


# A label that is not declared is counted, and y's type is not looked into, so these two messages differ.
OTHER_WORDS = {
    "check_classifiers_regression_target": "a continuous target is refused, as labels that are not declared",
}


@pytest.mark.filterwarnings("ignore::privadmm.errors.FitWarning")
def test_scikit_learn_finds_nothing_else_unusual() -> None:
    model = ReadsClasses(classes=(0, 1), row_bound=10.0, epsilon=None, delta=None, parties=1, rounds=30, random_state=0)
    found = check_estimator(model, on_fail=None, on_skip=None, expected_failed_checks=OTHER_WORDS)
    failed = {check["check_name"]: check["exception"] for check in found if check["status"] == "failed"}
    assert not failed
    assert {check["check_name"] for check in found if check["status"] == "xfail"} == set(OTHER_WORDS)
    assert sum(check["status"] == "passed" for check in found) > 45


@pytest.mark.parametrize(
    "wrong", [{"rounds": 5.0}, {"rounds": 0}, {"parties": "3"}, {"parties": 3.0}, {"epsilon": "1"}]
)
def test_a_parameter_of_the_wrong_kind_is_named(wrong):
    (name,) = wrong
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.tile([0, 1], 20)
    estimator = ADMMClassifier(classes=(0, 1), row_bound=1.0, random_state=0, rounds=2).set_params(**wrong)
    with pytest.raises(ConfigError, match=name):
        estimator.fit(X, y)


def three_kinds() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    centres = np.array([[1.0, 0.0, 0.2], [-1.0, 0.5, 0.2], [0.0, -1.0, 0.2]])
    kinds = rng.integers(3, size=300)
    return centres[kinds] + 0.3 * rng.normal(size=(300, 3)), np.array(["a", "b", "c"])[kinds]


def test_several_classes_share_one_budget() -> None:
    X3, y3 = three_kinds()
    model = private(classes=("a", "b", "c"), epsilon=3.0, rounds=20).fit(X3, y3)
    assert model.coef_.shape == (3, 3)
    assert len(model.models_) == len(model.ledgers_) == 3
    assert model.epsilon_ == pytest.approx(3.0, rel=1e-4)
    assert model.epsilon_ <= 3.0
    one = private(classes=("a", "b"), epsilon=3.0, rounds=20).fit(X3[y3 != "c"], y3[y3 != "c"])
    alone = one.ledger_["parties"][0]["events"][0]["ratio"]
    assert model.ledgers_[0]["parties"][0]["events"][0]["ratio"] == pytest.approx(alone * math.sqrt(3), rel=1e-6)


def test_several_classes_without_noise_are_told_apart() -> None:
    X3, y3 = three_kinds()
    model = exact(classes=("a", "b", "c"), rounds=60, intercept=0.3).fit(X3, y3)
    assert model.score(X3, y3) > 0.95
    assert np.allclose(model.predict_proba(X3).sum(axis=1), 1)
    assert (model.classes_[model.decision_function(X3).argmax(axis=1)] == model.predict(X3)).all()


def test_no_noise_serves_two_classes() -> None:
    """Two classes with equal targets and one noise vector would give equal models."""
    rng = np.random.default_rng(0)
    y3 = rng.integers(2, size=len(X))
    model = private(classes=(0, 1, 2), rounds=3).fit(X, y3)
    assert np.abs(model.coef_[0] + model.coef_[1]).max() > 1e-3


def test_budgets_by_party() -> None:
    model = private(party_epsilon=(0.5, 1.0, 2.0), epsilon=None).fit(X, Y)
    assert [party["epsilon"] for party in model.ledger_["parties"]] == pytest.approx([0.5, 1.0, 2.0], rel=1e-4)
    assert model.epsilon_ == pytest.approx(2.0, rel=1e-4)


def test_a_label_guarantee_needs_half_the_noise() -> None:
    whole, label = (private(adjacency=kind).fit(X, Y) for kind in ("replace-one", "label"))
    assert whole.epsilon_ == pytest.approx(label.epsilon_, rel=1e-6)
    assert np.abs(whole.coef_ - label.coef_).max() > 0


def test_a_warm_start_goes_on_from_the_last_model() -> None:
    whole = exact(rounds=400).fit(X, Y)
    again = exact(rounds=1, warm_start=True)
    gaps = [float(np.abs(again.fit(X, Y).coef_ - whole.coef_).max()) for _ in range(30)]
    assert gaps[-1] < gaps[0] / 2
    cold = exact(rounds=1)
    assert float(np.abs(cold.fit(X, Y).coef_ - cold.fit(X, Y).coef_).max()) == 0


@pytest.mark.parametrize("algorithm", [ADMMStar(rho=0.1), None], ids=["exact", "private"])
def test_regression_over_parties(algorithm: Any) -> None:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(900, 3)) / 3
    target = A @ np.array([0.5, -0.3, 0.2]) + 0.01 * rng.normal(size=900)
    kind = {"epsilon": None} if algorithm else {"epsilon": 20.0, "algorithm": DPADMM(D_w=2.0, rho=0.1)}
    model = ADMMRegressor(
        label_bound=1.0,
        row_bound=2.0,
        random_state=0,
        parties=3,
        rounds=100,
        **{"algorithm": algorithm, **kind},
    ).fit(A, target)
    assert model.score(A, target) > (0.95 if algorithm else 0.3)
    assert model.private_ == (algorithm is None)


def test_a_regression_declares_its_bounds() -> None:
    with pytest.raises(ConfigError, match="label_bound"):
        ADMMRegressor(row_bound=1.0, random_state=0).fit(X, Y)
    with pytest.raises(ConfigError, match="row_bound"):
        ADMMRegressor(label_bound=1.0, random_state=0).fit(X, Y)


@pytest.mark.filterwarnings("ignore::privadmm.errors.FitWarning")
def test_scikit_learn_finds_nothing_unusual_in_the_regressor() -> None:
    model = ADMMRegressor(
        label_bound=300.0,
        row_bound=30.0,
        epsilon=None,
        delta=None,
        parties=1,
        rounds=60,
        random_state=0,
        algorithm=ADMMStar(rho=0.1),
    )
    found = check_estimator(model, on_fail=None, on_skip=None)
    assert {check["check_name"]: check["exception"] for check in found if check["status"] == "failed"} == {}


def test_the_recommended_method_is_the_default() -> None:
    rng = np.random.default_rng(0)
    A = np.abs(rng.normal(size=(6000, 3)))
    target = (A[:, 0] > A[:, 1]).astype(int)
    model = ADMMClassifier(classes=(0, 1), row_bound=5.0, parties=3, epsilon=3.0, random_state=0).fit(A, target)
    assert model.model_.algorithm == "first_order_consensus"
    assert model.n_iter_ == 41
    assert model.epsilon_ == pytest.approx(3.0, rel=1e-4)
    assert model.score(A, target) > 0.9
    assert not hasattr(model, "coef_")
    assert np.allclose(model.predict_proba(A)[:, 1] > 0.5, model.predict(A))


def easy(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, 8))
    return A, (A[:, 0] + A[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(int)


def in_sums(**changes: Any) -> ADMMClassifier:
    declared = {"classes": (0, 1), "row_bound": 4.0, "parties": 20, "epsilon": 0.2, "secure_sum": True}
    return ADMMClassifier(**{**declared, "random_state": 0, **changes})


def test_secure_sums_are_more_accurate_at_the_same_epsilon() -> None:
    A, target = easy()
    scores = {}
    for secure in (True, False):
        models = [in_sums(secure_sum=secure, random_state=seed).fit(A, target) for seed in range(4)]
        assert all(0.2 * (1 - 1e-4) < model.epsilon_ <= 0.2 for model in models)
        scores[secure] = np.mean([model.score(A, target) for model in models])
        kinds = {event["kind"] for party in models[0].ledger_["parties"] for event in party["events"]}
        assert kinds == {"shared_gaussian" if secure else "gaussian"}
        assert any("computational" in words for words in models[0].model_.caveats) is secure
    assert scores[True] > scores[False] + 0.03, scores


def test_fewer_who_may_collude_need_less_noise() -> None:
    """Noise of a sum is sqrt(N/(N - t)) of a curator's: for 19 of 20 each party adds all that it needs itself."""
    A, target = easy()
    found = [in_sums(colluding=t).fit(A, target) for t in (1, 19)]
    events = [model.ledger_["parties"][0]["events"][0] for model in found]
    assert [event["colluding"] for event in events] == [1, 19]
    assert events[0]["ratio"] == events[1]["ratio"]
    assert found[0].score(A, target) > found[1].score(A, target)
    assert in_sums().fit(A, target).ledger_["parties"][0]["events"][0]["colluding"] == 20 // 3


def test_several_classes_share_one_budget_in_secure_sums() -> None:
    X3, y3 = three_kinds()
    model = in_sums(classes=("a", "b", "c"), parties=5, epsilon=3.0, row_bound=1.0).fit(X3, y3)
    assert 2.999 < model.epsilon_ <= 3.0
    releases = [sum(event["count"] for event in ledger["parties"][0]["events"]) for ledger in model.ledgers_]
    assert releases == [41, 40, 40]  # moments are summed once
    assert model.score(X3, y3) > 0.8
    assert len({one.weights.tobytes() for one in model.models_}) == 3


def test_warm_fits_in_secure_sums_compose() -> None:
    A, target = easy(600)
    model = in_sums(algorithm=DPFedSGD(step=2.0), rounds=3, parties=4, epsilon=1.0, warm_start=True)
    first, both = model.fit(A, target).epsilon_, model.fit(A, target).epsilon_
    assert 1.3 * first < both < 2 * first


def test_regression_in_secure_sums() -> None:
    rng = np.random.default_rng(1)
    A = rng.normal(size=(2000, 3)) / 3
    target = A @ np.array([0.5, -0.3, 0.2]) + 0.01 * rng.normal(size=2000)
    model = ADMMRegressor(
        label_bound=1.0, row_bound=2.0, random_state=0, parties=5, epsilon=5.0, secure_sum=True, colluding=1
    ).fit(A, target)
    assert model.epsilon_ == pytest.approx(5.0, rel=1e-4)
    assert model.score(A, target) > 0.3


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"algorithm": DPADMM(D_w=3.0), "rounds": 3}, "dp_admm cannot sum securely: a party keeps the iterate"),
        ({"algorithm": MADMM(eta=1.0), "graph": ring(20), "rounds": 3}, "m_admm cannot sum securely: neighbours need"),
        ({"algorithm": FirstOrderConsensus(gossip=2), "graph": ring(20)}, "gossip = 0"),
        ({"parties": 1}, "two parties"),
        ({"colluding": 20}, "20 of 20 parties"),
        ({"colluding": 0}, "colluding"),
        ({"fewest": 3, "colluding": 4}, "fewest = 3 must be above colluding = 4"),
        ({"fewest": 0, "secure_sum": False}, "fewest"),
        ({"secure_sum": "local"}, "secure_sum must be True or False"),
        ({"party_epsilon": 1.0}, "party_epsilon is a list of numbers"),
        ({"party_epsilon": ["a"] * 20}, "party_epsilon is a list of numbers"),
        ({"epsilon": None, "delta": None}, "secure_sum=True shares the noise of an epsilon"),
    ],
)
def test_what_cannot_be_summed_is_refused_with_the_reason(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        in_sums(**changes).fit(*easy(200))


def test_secure_sums_survive_a_clone_and_a_search_may_try_both_ways() -> None:
    model = in_sums(colluding=3, fewest=19)
    assert clone(model).get_params() == model.get_params()
    search = GridSearchCV(model.set_params(rounds=3), {"secure_sum": [False, True]}, cv=2).fit(*easy(400))
    assert search.best_estimator_.epsilon_ == pytest.approx(0.2, rel=1e-3)


def test_an_epsilon_of_secure_sums_says_how_many_may_collude(tmp_path: Any) -> None:
    model = in_sums(colluding=3, rounds=3).fit(*easy(400))
    promise = "at delta = 1e-06 if at most 3 of the parties collude"
    assert promise in repr(model.model_)
    assert promise in model._repr_html_()
    model.model_.save(tmp_path / "model.json")
    assert Model.load(tmp_path / "model.json").colluding == 3
    alone = in_sums(secure_sum=False, rounds=3).fit(*easy(400))
    assert "collude" not in repr(alone.model_) + alone._repr_html_()


def test_a_delta_that_promises_nothing_warns() -> None:
    with pytest.warns(BudgetWarning, match=r"delta = 0\.01 is not below 1/400.*about 4 of 400.*Choose delta = 0\.0001"):
        in_sums(delta=0.01, rounds=3).fit(*easy(400))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        in_sums(delta=0.0024, rounds=3).fit(*easy(400))
    assert not [one for one in told if "is not below" in str(one.message)]


def weak_promises(estimator: Any, *data: Any) -> list[str]:
    """The warnings of a large epsilon as the estimator is fitted."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        estimator.fit(*data)
    return [str(one.message) for one in told if "weak promise" in str(one.message)]


@pytest.mark.parametrize("epsilon", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("algorithm", [None, DPADMM(D_w=30.0, rho=0.1)], ids=["moments", "plain"])
def test_a_large_epsilon_is_that_of_all_classes(algorithm: Any, epsilon: float) -> None:
    model = private(classes=("a", "b", "c"), epsilon=epsilon, rounds=3, algorithm=algorithm)
    said = weak_promises(model, *three_kinds())
    assert said == [large_epsilon(model.epsilon_)] * (epsilon >= 3)
    if said:
        assert f"epsilon = {epsilon:g} is" in said[0]


@pytest.mark.parametrize("classes", ["ab", "abc"])
def test_a_large_epsilon_is_that_of_all_warm_fits(classes: str) -> None:
    X3, y3 = three_kinds()
    rows = np.isin(y3, list(classes))
    model = private(classes=tuple(classes), epsilon=2.0, rounds=3, warm_start=True)
    assert weak_promises(model, X3[rows], y3[rows]) == []
    for _ in range(2):
        said = weak_promises(model, X3[rows], y3[rows])
        assert said == ([large_epsilon(model.epsilon_)] if model.epsilon_ >= 3 else [])
    assert said


def test_a_large_epsilon_of_a_person_or_a_label_warns() -> None:
    split = {"columns": (1, 1, 1), "adjacency": "person", "epsilon": 2.0}
    model = private(**split, algorithm={"name": "sharing", "ball": 5.0, "rho": 0.3})
    said = weak_promises(model, X, Y)
    assert model.epsilon_ < 3 <= model.epsilon_person_
    assert said == [large_epsilon(model.epsilon_person_, "people")]
    assert weak_promises(private(label_epsilon=5.0), X, Y) == [large_epsilon(1.0, label_epsilon=5.0)]


def test_randomised_labels() -> None:
    raw, reported = (private(label_epsilon=eps).fit(X, Y) for eps in (None, 1.0))
    assert np.abs(raw.coef_ - reported.coef_).max() > 0
    assert raw.epsilon_ == pytest.approx(reported.epsilon_, rel=1e-9)
    with pytest.raises(PrivadmmError, match="report"):
        private(label_epsilon=1.0, classes=(0, 1, 2)).fit(X, Y)


@pytest.mark.parametrize("method", [MADMM(eta=1.0), MRADMM(eta=1.0), FirstOrderConsensus()], ids=lambda m: m.name)
def test_moments_and_classes_together_stay_within_the_budget(method: Any) -> None:
    """Renyi curves cost more together than apart: all classes have to be counted before training."""
    X3, y3 = three_kinds()
    model = ADMMClassifier(
        classes=("a", "b", "c"),
        row_bound=1.0,
        parties=3,
        algorithm=Centred(method, share=0.5),
        rounds=6,
        graph=complete(3),
        random_state=0,
    ).fit(X3, y3)
    assert 0.99 < model.epsilon_ <= 1.0
    assert [one.epsilon for one in model.models_] == [model.epsilon_] * 3


def test_one_release_of_moments_serves_all_classes() -> None:
    """The first release does not depend on labels. The rest is split in thirds, and nothing is charged twice."""
    X3, y3 = three_kinds()
    model = ADMMClassifier(classes=("a", "b", "c"), row_bound=1.0, parties=3, random_state=0).fit(X3, y3)
    first, *others = model.models_
    assert all(one.features is first.features for one in others)
    releases = [sum(event["count"] for event in ledger["parties"][0]["events"]) for ledger in model.ledgers_]
    assert releases == [41, 40, 40]
    assert 0.9999 < model.epsilon_ <= 1.0
    assert np.abs(first.weights - others[0].weights).max() > 0


def test_a_model_of_several_classes_is_saved_by_class_or_whole(tmp_path: Path) -> None:
    X3, y3 = three_kinds()
    model = ADMMClassifier(classes=("c", "a", "b"), row_bound=1.0, epsilon=5.0, parties=3, random_state=0).fit(X3, y3)
    assert not hasattr(model, "model_")
    for label, one in zip(model.classes_, model.models_, strict=True):
        one.save(tmp_path / f"model-{label}.json")
    parts = [load(tmp_path / f"model-{label}.json") for label in ("c", "a", "b")]
    best = np.argmax([part.scores(X3) for part in parts], axis=0)
    assert (model.classes_[best] == model.predict(X3)).all()
    assert {part.epsilon for part in parts} == {model.epsilon_}
    assert (pickle.loads(pickle.dumps(model)).predict(X3) == model.predict(X3)).all()


def test_every_warm_fit_has_noise_of_its_own() -> None:
    """With one noise vector in both fits w2 - 2 w1 would be free of noise: the same for every seed."""
    left = []
    for seed in (0, 1):
        model = ADMMClassifier(
            classes=(0, 1),
            row_bound=2.0,
            epsilon=0.01,
            parties=1,
            algorithm=DPFedSGD(step=1.0),
            rounds=1,
            warm_start=True,
            random_state=seed,
        )
        first = model.fit(X, Y).model_.weights.copy()
        left.append(model.fit(X, Y).model_.weights - 2 * first)
    assert np.abs(left[0] - left[1]).max() > 0.1
    reported = private(label_epsilon=1.0, warm_start=True).fit(X, Y)
    with pytest.raises(ConfigError, match="once more"):
        reported.fit(X, Y)
