"""What makes estimators pleasant: names for parts, sentences for mistakes, figures, and models that leave."""

import html
import pickle
import warnings
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import cross_val_predict

from privadmm import (
    DPADMM,
    MADMM,
    Account,
    ADMMClassifier,
    ADMMRegressor,
    ADMMStar,
    ConfigError,
    DataError,
    DPFedSGD,
    FitWarning,
    HuberHinge,
    Logistic,
    PrivadmmError,
    Sharing,
)
from privadmm.algorithms import ALGORITHMS
from privadmm.config.sections import LossTable, RegularizerTable
from privadmm.estimators.named import algorithm_of, loss_of, regularizer_of
from privadmm.optim.graphs import ring
from privadmm.optim.losses import LOSSES, HalfLogistic, link
from privadmm.optim.regularizers import REGULARIZERS
from small_runs import rows

X, Y = rows(n=120)
WORDS = np.where(Y == 1, "yes", "no")
DECLARED = {"classes": (0, 1), "row_bound": 2.0, "random_state": 0, "parties": 3, "epsilon": 1.0}


def estimator(**changes: Any) -> ADMMClassifier:
    return ADMMClassifier(**{**DECLARED, "algorithm": DPFedSGD(step=1.0), "rounds": 3, **changes})


def test_parts_have_the_names_of_a_config_file() -> None:
    assert algorithm_of({"name": "dp_admm", "D_w": 3.0}) == DPADMM(D_w=3.0)
    for name, kind in ALGORITHMS.items():
        try:
            assert algorithm_of(name) == kind()
        except ConfigError as error:
            assert "to be declared" in str(error)  # noqa: PT017 - some have a default, some do not
    by_name = estimator(algorithm={"name": "m_admm", "eta": 1.0}, loss="huber_hinge", graph="ring").fit(X, Y)
    as_objects = estimator(algorithm=MADMM(eta=1.0), loss=HuberHinge(), graph=ring(3)).fit(X, Y)
    assert (by_name.coef_ == as_objects.coef_).all()
    assert loss_of("logistic") == Logistic()
    assert regularizer_of({"name": "l2", "weight": 0.5}).l2 == 0.5


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"algorithm": "dp_adm"}, 'did you mean "dp_admm"'),
        ({"algorithm": "dp_admm"}, "needs D_w"),
        ({"algorithm": {"name": "dp_admm", "Dw": 3}}, "did you mean D_w"),
        ({"algorithm": {"D_w": 3}}, "algorithm is None"),
        ({"algorithm": DPADMM}, "is the class DPADMM: make one"),
        ({"algorithm": 7}, "must be one of admm_star"),
        ({"loss": "logistik"}, 'did you mean "logistic"'),
        ({"loss": Logistic}, "make one of it"),
        ({"loss": "squared"}, "use ADMMRegressor"),
        ({"loss": 0.5}, "loss must be one of"),
        ({"regularizer": 0.1}, "regularizer must be one of l2"),
        ({"regularizer": "l2"}, "needs weight"),
        ({"graph": "rng"}, 'did you mean "ring"'),
        ({"graph": 3}, "graph must be"),
        ({"classes": "01"}, "list of labels"),
        ({"classes": 5}, "list of labels"),
        ({"classes": [[0], [1]]}, "words or numbers"),
        ({"row_bound": "3"}, "row_bound must be a number"),
        ({"row_bound": [3]}, "row_bound must be a number"),
        ({"intercept": "yes"}, "intercept must be a number"),
        ({"random_state": "seed"}, "random_state is the seed"),
        ({"random_state": np.random.RandomState(0)}, "random_state is the seed"),
        ({"random_state": 1.5}, "random_state is the seed"),
        ({"warm_start": "no"}, "warm_start must be True or False"),
        ({"columns": "ab"}, "columns is how many"),
        ({"columns": 2.5}, "columns is how many"),
        ({"label_epsilon": "1"}, "label_epsilon must be a number"),
        ({"party_epsilon": (1, "a", 2)}, "list of numbers"),
        ({"adjacency": None}, "adjacency must be one of"),
        ({"delta": "1e-6"}, "delta must be a number"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_wrong_kind_gets_a_sentence(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        estimator(**wrong).fit(X, Y)


@pytest.mark.parametrize("bad", [np.full((120, 3), "a"), [["x", 1, 2]] * 120], ids=["words", "mixed"])
def test_words_in_the_rows_are_told_what_to_do(bad: Any) -> None:
    with pytest.raises(DataError, match="SchemaEncoder"):
        estimator().fit(bad, Y)


def test_words_as_a_regressions_target_are_told_what_to_do() -> None:
    with pytest.raises(DataError, match="SchemaEncoder"):
        ADMMRegressor(label_bound=1.0, row_bound=2.0, random_state=0).fit(X, WORDS)


METAS = {
    "voting": lambda one: VotingClassifier([("a", one), ("b", one)]),
    "stacking": lambda one: StackingClassifier([("a", one)], cv=2),
    "bagging": lambda one: BaggingClassifier(one, n_estimators=2, random_state=0),
}


@pytest.mark.parametrize("name", METAS)
def test_meta_estimators_encode_labels_and_are_told_so(name: str) -> None:
    clear = {"epsilon": None, "delta": None, "algorithm": ADMMStar(rho=0.1), "rounds": 20}
    with pytest.raises(DataError, match=r"hand on labels as their places.*declare classes=\(0, 1\)"):
        METAS[name](estimator(classes=("no", "yes"), **clear)).fit(X, WORDS)
    meta = METAS[name](estimator(**clear)).fit(X, WORDS)
    assert set(meta.predict(X)) == {"no", "yes"}
    assert meta.score(X, WORDS) > 0.8


def test_cross_val_predict_takes_names_and_its_methods_places() -> None:
    clear = {"epsilon": None, "delta": None, "algorithm": ADMMStar(rho=0.1), "rounds": 20}
    found = cross_val_predict(estimator(classes=("no", "yes"), **clear), X, WORDS, cv=3)
    assert np.mean(found == WORDS) > 0.8
    likely = cross_val_predict(estimator(**clear), X, WORDS, cv=3, method="predict_proba")
    assert np.mean((likely[:, 1] > 0.5) == (WORDS == "yes")) > 0.8


@pytest.mark.parametrize("classes", [(-1, 1), (1, 2), (1.0, 2.0)])
def test_places_are_told_from_numbers_that_were_declared(classes: Any) -> None:
    with pytest.raises(DataError, match="hand on labels as their places"):
        VotingClassifier([("a", estimator(classes=classes))]).fit(X, np.where(Y == 1, *classes[::-1]))
    assert estimator(classes=(0.0, 1.0)).fit(X, Y).classes_.tolist() == [0.0, 1.0]


def test_numbers_that_were_declared_as_words_are_still_labels() -> None:
    assert estimator(classes=("0", "1")).fit(X, Y).classes_.tolist() == ["0", "1"]


@pytest.mark.parametrize("loss", [Logistic(), HalfLogistic()], ids=["logistic", "half_logistic"])
def test_the_link_is_where_the_expected_loss_is_least(loss: Any) -> None:
    grid = np.linspace(-12, 12, 24001)
    for p in (0.05, 0.3, 0.5, 0.8, 0.95):
        best = grid[np.argmin(p * loss.value(grid, np.ones(1)) + (1 - p) * loss.value(grid, -np.ones(1)))]
        assert link(loss, np.array([best]))[0] == pytest.approx(p, abs=1e-3)
    wide = link(loss, np.array([-1e4, -800.0, 0.0, 800.0, 1e4]))
    assert np.isfinite(wide).all()
    assert (np.diff(wide) >= 0).all()


def named_rows(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, 4)) * [1, 2, 3, 1] + [0, 1, 2, 0]
    return A, (A[:, 0] - 0.5 * A[:, 1] + 0.3 * rng.normal(size=n) > 0).astype(int)


def fitted(**changes: Any) -> ADMMClassifier:
    A, target = named_rows()
    declared = {"classes": (0, 1), "row_bound": 10.0, "random_state": 0, "parties": 3, "epsilon": 2.0}
    return ADMMClassifier(**{**declared, **changes}).fit(A, target)


@pytest.mark.parametrize("kind", ["moments", "linear"])
def test_coefficients_are_of_the_columns_as_given(kind: str) -> None:
    """With moments: the score times the row's length after centring and scaling is linear in the columns."""
    A, _ = named_rows()
    model = fitted(**({} if kind == "moments" else {"algorithm": DPFedSGD(step=2.0), "rounds": 30, "intercept": 0.3}))
    found = model.coefficients(names=["a", "b", "c", "d"])
    assert found.linear == (kind == "linear")
    inside = A[np.linalg.norm(A, axis=1) < 10.0]
    scores = model.decision_function(inside)
    if kind == "linear":
        np.testing.assert_allclose(inside @ found.values[0] + found.intercept[0], scores, atol=1e-9)
    else:
        map = model.model_.features
        lengths = np.linalg.norm((inside / 10.0 - map.M) * map.A, axis=1)
        straight = (scores - found.intercept[0]) * lengths
        steps = np.linalg.lstsq(np.c_[inside, np.ones(len(inside))], straight, rcond=None)[0]
        np.testing.assert_allclose(steps[:4], found.values[0], rtol=1e-6, atol=1e-9)
    assert repr(found).startswith("a ") or repr(found).startswith("b ")
    assert found.as_dict()["names"] == ["a", "b", "c", "d"]
    with pytest.raises(ConfigError, match="2 names"):
        model.coefficients(names=["a", "b"])


@pytest.mark.parametrize("kind", ["moments", "linear"])
def test_the_noises_own_uncertainty_is_that_of_other_noise(kind: str) -> None:
    """Estimated on invented rows, against the spread over fits to the true ones: within a factor of three."""
    changes: dict[str, Any] = {} if kind == "moments" else {"algorithm": DPFedSGD(step=2.0), "rounds": 30}
    model = fitted(**changes)
    noise = model.coefficients(draws=8).noise
    assert noise is not None
    true = np.std([fitted(**changes, random_state=seed).coefficients().values for seed in range(8)], axis=0, ddof=1)
    ratio = np.median(noise / true)
    assert 1 / 3 < ratio < 3
    less = fitted(**changes, epsilon=20.0).coefficients(draws=8).noise
    assert less is not None
    assert np.median(less) < np.median(noise) / 2


def test_uncertainty_reads_no_record_and_costs_nothing() -> None:
    """An estimator keeps no record: a copy that never saw any has the same whiskers."""
    account = Account(epsilon=3.0, delta=1e-6)
    model = fitted(ledger=account)
    spent = account.total()
    first = model.coefficients(draws=3).noise
    again = pickle.loads(pickle.dumps(model.set_params(ledger=None))).coefficients(draws=3).noise
    assert (first == again).all()
    assert account.total() == spent
    with pytest.raises(ConfigError, match="draws must be 2"):
        model.coefficients(draws=1)


@pytest.mark.parametrize("loss", ["logistic", "half_logistic"])
@pytest.mark.parametrize("kind", ["moments", "linear"])
def test_a_plain_twin_decides_alike(kind: str, loss: str) -> None:
    A, _ = named_rows()
    model = fitted(loss=loss, **({} if kind == "moments" else {"algorithm": DPFedSGD(step=2.0), "intercept": 0.2}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plain = pickle.loads(pickle.dumps(model.to_sklearn()))
    assert [str(one.message) for one in caught if "0.086" in str(one.message)] == [str(one.message) for one in caught]
    assert bool(caught) == (loss == "half_logistic")
    last = plain if kind == "linear" else plain[-1]
    assert type(last) is LogisticRegression
    inside = A[np.linalg.norm(A, axis=1) < 10.0]
    np.testing.assert_allclose(plain.decision_function(inside), model.decision_function(inside), atol=1e-9)
    assert (plain.predict(inside) == model.predict(inside)).all()
    gap = np.abs(plain.predict_proba(inside) - model.predict_proba(inside)).max()
    assert gap < (1e-9 if loss == "logistic" else 0.086)


@pytest.mark.parametrize(
    ("kinds", "table", "of", "keys"),
    [(LOSSES, LossTable, loss_of, {}), (REGULARIZERS, RegularizerTable, regularizer_of, {"weight": 0.1})],
    ids=["losses", "regularizers"],
)
def test_configs_and_estimators_know_the_same_names(kinds: Any, table: Any, of: Any, keys: dict[str, float]) -> None:
    names = get_args(get_args(get_type_hints(table, include_extras=True)["name"])[0])
    assert set(kinds) == set(names)
    for name in set(names) - {"squared"}:  # which is a regressor's
        assert type(of({"name": name, **keys})) is kinds[name]


def test_a_plain_twin_of_a_loss_without_probabilities_says_that_it_has_none() -> None:
    model = fitted(loss="huber_hinge", algorithm=DPFedSGD(step=2.0))
    with pytest.warns(UserWarning, match=r"predict_proba tells nothing.*HuberHinge"):
        model.to_sklearn()
    assert not hasattr(model, "predict_proba")


def test_a_plain_twin_of_many_classes_and_of_a_regression() -> None:
    A, _ = named_rows()
    kinds = np.array(["lo", "mid", "hi"])[np.digitize(A[:, 0], [-0.5, 0.5])]
    model = ADMMClassifier(
        classes=("mid", "lo", "hi"), row_bound=10.0, random_state=0, parties=3, epsilon=5.0, loss="logistic"
    ).fit(A, kinds)
    plain = model.to_sklearn()
    inside = A[np.linalg.norm(A, axis=1) < 10.0]
    assert (plain.predict(inside) == model.predict(inside)).all()
    order = np.argsort(model.classes_)
    np.testing.assert_allclose(plain.predict_proba(inside), model.predict_proba(inside)[:, order], atol=1e-9)
    line = ADMMRegressor(label_bound=3.0, row_bound=10.0, random_state=0, epsilon=None, delta=None, rounds=20)
    line = line.set_params(algorithm="admm_star").fit(A, A[:, 0])
    assert type(line.to_sklearn()) is LinearRegression
    np.testing.assert_allclose(line.to_sklearn().predict(inside), line.predict(inside), atol=1e-9)
    with pytest.raises(ConfigError, match="intercept=0"):
        fitted(intercept=0.3, loss="logistic").to_sklearn()


def test_figures_are_drawn() -> None:
    A, target = named_rows()
    account = Account(epsilon=3.0, delta=1e-6)
    model = fitted(ledger=account)
    curve = model.plot_convergence()
    assert curve.lines[0].get_xdata().tolist() == list(range(1, 42))
    assert curve.lines[0].get_ydata()[-1] == 0
    assert model.plot_convergence(A, target).lines[0].get_ydata()[-1] == pytest.approx(model.score(A, target))
    spent = model.plot_privacy()
    assert spent.lines[0].get_ydata()[-1] == pytest.approx(model.epsilon_, rel=1e-9)
    assert [line.get_ydata()[0] for line in spent.lines[1:]] == [account.total().epsilon, 3.0]
    bars = model.plot_coefficients(names=["a", "b", "c", "d"], draws=2)
    assert {text.get_text() for text in bars.get_yticklabels()} == {"a", "b", "c", "d"}
    assert sorted(bar.get_width() for bar in bars.patches) == sorted(model.coefficients().values[0])
    assert model.plot_privacy(ax=bars) is bars


def test_what_cannot_be_drawn_says_why() -> None:
    clear = estimator(epsilon=None, delta=None, algorithm="admm_star").fit(X, Y)
    with pytest.raises(ConfigError, match="not private"):
        clear.plot_privacy()
    with pytest.raises(ConfigError, match="X and y"):
        clear.plot_convergence(X)
    with pytest.raises(ConfigError, match="Axes"):
        clear.plot_convergence(ax=3)
    split = estimator(algorithm=Sharing(ball=1.0), columns=(2, 1), adjacency="person").fit(X, Y)
    with pytest.raises(ConfigError, match="last round only"):
        split.plot_convergence()


def test_privacy_of_classes_and_warm_starts_is_drawn_to_the_end() -> None:
    model = estimator(classes=(0, 1, 2), warm_start=True)
    for _ in range(2):
        model.fit(X, np.arange(120) % 3)
        heights = model.plot_privacy().lines[0].get_ydata()
        assert heights[-1] == pytest.approx(model.epsilon_, rel=1e-9)
        assert len(heights) == 1 + 3 * 3


def test_a_notebook_shows_the_promise() -> None:
    model = estimator(ledger=Account(epsilon=3.0, delta=1e-6)).fit(X, Y, groups=np.array(["<a>", "b", "c"] * 40))
    page = model._repr_html_()
    for words in ("epsilon = 1 at delta = 1e-06", "3: <a>, b, c", "simulation", "epsilon = 1 of 3 in 1 fit"):
        assert html.escape(words) in page
    assert "<a>" not in page.split("</table>")[0]
    assert "NOT PRIVATE" in estimator(epsilon=None, delta=None, algorithm="admm_star").fit(X, Y)._repr_html_()
    assert "epsilon" in estimator()._repr_html_()
    assert repr(model.model_) == "<Model of dp_fedsgd: 3 weights, epsilon = 1 at delta = 1e-06, simulation>"


@pytest.mark.parametrize("kind", [np.asarray, csr_array], ids=["dense", "sparse"])
def test_rows_that_nearly_all_get_clipped_warn(kind: Any) -> None:
    with pytest.warns(FitWarning, match=r"100 % of the rows are longer than row_bound = 0.001"):
        estimator(row_bound=1e-3).fit(kind(X), Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        estimator().fit(kind(X), Y)


def test_a_regression_that_is_worse_than_a_constant_warns() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 3)) / 3
    target = A @ np.array([0.5, -0.3, 0.2])
    declared = {"label_bound": 1.0, "row_bound": 2.0, "random_state": 0, "parties": 3}
    with pytest.warns(FitWarning, match="worse than a constant"):
        ADMMRegressor(**declared, epsilon=0.01, algorithm=DPFedSGD(step=1.0), rounds=20).fit(A, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FitWarning)
        ADMMRegressor(**declared, epsilon=None, delta=None, algorithm="admm_star", rounds=50).fit(A, target)


def test_a_label_bound_that_cuts_many_labels_warns_and_is_not_to_be_made_smaller() -> None:
    def told(bound: float) -> str:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            model = ADMMRegressor(label_bound=bound, row_bound=2.0, random_state=0, parties=3)
            model.fit(X, np.linspace(-1.0, 1.0, len(X)))
        return " ".join(str(one.message) for one in found)

    assert "95 % of the labels lie beyond label_bound" in told(0.05)
    assert "a larger label_bound (" in told(0.05)
    assert "smaller label_bound" not in told(0.05)
    assert "of the labels lie" not in told(1.0)


def test_no_message_is_an_attribute_error() -> None:
    """Whatever is typed for a parameter, the error is one of the library's."""
    for name in estimator().get_params():
        for wrong in ("?", -1, 2.5, [], {}, object()):
            try:
                estimator(**{name: wrong}).fit(X, Y)
            except PrivadmmError:
                continue
            except Exception as error:
                pytest.fail(f"{name} = {wrong!r}: {type(error).__name__}: {error}")
