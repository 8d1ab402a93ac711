"""Every fit on an estimator's ledger is counted, by composition, and refused before it begins once that is spent."""

import copy
import os
import pickle
import warnings
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import privadmm
from privadmm import (
    DPADMM,
    DVP,
    MADMM,
    Account,
    ADMMClassifier,
    ADMMRegressor,
    ADMMStar,
    BudgetWarning,
    ConfigError,
    DPFedSGD,
    LedgerError,
    PrivadmmError,
    RefusedError,
    Sharing,
)
from privadmm.estimators.account import for_a_person, least_noise
from privadmm.optim.graphs import ring
from privadmm.privacy.accounting import epsilon, printed, together
from privadmm.privacy.events import GammaObjective, GammaOutput, Gaussian, GaussianObjective, SharedGaussian, merge
from privadmm.privacy.ledger import Tick
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.new_ledger import new_ledger
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.register import register
from privadmm.privacy.sqlite_ledger import SqliteLedger
from small_runs import events, rows

X, Y = rows(n=120)
DECLARED = {"classes": (0, 1), "row_bound": 2.0, "random_state": 0, "parties": 3, "epsilon": 0.5}


def estimator(**changes: Any) -> ADMMClassifier:
    return ADMMClassifier(**{**DECLARED, "algorithm": DPFedSGD(step=1.0), "rounds": 3, **changes})


def account(place: Path | None = None, total: float = 2.0) -> Account:
    return Account(epsilon=total, delta=1e-6, path=None if place is None else place / "fits.ledger")


@pytest.fixture(params=["memory", "file"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Account:
    return account(tmp_path if request.param == "file" else None, 1.75)


def test_ten_folds_are_composed_and_the_eleventh_fit_is_refused(ledger: Account) -> None:
    one = estimator(ledger=ledger)
    cross_val_score(one, X, Y, cv=10, error_score="raise")
    found = privadmm.account(ledger)
    alone = estimator().fit(X, Y)
    (event,) = alone.ledger_["parties"][0]["events"]
    assert found.fits == 10
    assert found.epsilon == epsilon(((Gaussian(event["ratio"]), 10 * event["count"]),), 1e-6)
    assert 3 * 0.5 < found.epsilon < 10 * 0.5 / 2  # composed: adding epsilons would say 5
    with pytest.raises(RefusedError, match=r"allows epsilon = 1.75.*spent in 10.*Nothing was fitted"):
        one.fit(X, Y)
    with pytest.raises(NotFittedError):
        one.predict(X)
    assert privadmm.account(ledger) == found
    assert dict(found) == found.as_dict()
    assert "10 fits" in repr(found)


def test_what_is_left_can_be_spent_and_no_more(ledger: Account) -> None:
    estimator(ledger=ledger).fit(X, Y)
    left = privadmm.account(ledger).largest_next
    with pytest.raises(RefusedError):
        estimator(ledger=ledger, epsilon=1.001 * left).fit(X, Y)
    estimator(ledger=ledger, epsilon=0.999 * left).fit(X, Y)
    assert 1.74 < privadmm.account(ledger).epsilon <= 1.75


def test_a_search_in_a_pipeline_is_counted_with_its_refit(ledger: Account) -> None:
    pipe = make_pipeline(FunctionTransformer(), estimator(ledger=ledger, epsilon=0.3))
    GridSearchCV(pipe, {"admmclassifier__rounds": [2, 3]}, cv=2, error_score="raise").fit(X, Y)
    assert privadmm.account(ledger).fits == 5


def test_processes_share_a_file_and_cannot_share_memory(tmp_path: Path) -> None:
    shared = account(tmp_path)
    cross_val_score(estimator(ledger=str(shared.path)), X, Y, cv=4, n_jobs=2, error_score="raise")
    assert privadmm.account(shared.path).fits == 4
    assert pickle.loads(pickle.dumps(shared)).total() == shared.total()
    inside = account()
    with pytest.raises(ConfigError, match=r"path=.*n_jobs=1"):
        pickle.dumps(estimator(ledger=inside))
    with pytest.raises(pickle.PicklingError):
        cross_val_score(estimator(ledger=inside), X, Y, cv=2, n_jobs=2, error_score="raise")
    assert privadmm.account(inside).fits == 0


def test_clones_and_copies_share_the_account() -> None:
    shared = account()
    for same in (clone(estimator(ledger=shared)), copy.deepcopy(estimator(ledger=shared)), copy.copy(shared)):
        assert getattr(same, "ledger", same) is shared


def test_no_two_fits_on_a_ledger_draw_the_same_noise() -> None:
    """With one noise in all fits their differences would be free of it, and composition would not cover them."""
    shared = account(total=10.0)
    first, second = (estimator(ledger=shared).fit(X, Y).coef_ for _ in range(2))
    assert (first == estimator().fit(X, Y).coef_).all()  # a fresh ledger changes nothing
    assert not (first == second).any()
    again = account(total=10.0)
    assert all((estimator(ledger=again).fit(X, Y).coef_ == before).all() for before in (first, second))


def test_classes_are_counted_as_they_are_released() -> None:
    shared, y3 = account(), np.arange(120) % 3
    model = estimator(classes=(0, 1, 2), ledger=shared, algorithm=None, rounds=None).fit(X, y3)
    assert privadmm.account(shared).epsilon == pytest.approx(model.epsilon_, rel=1e-9)
    assert privadmm.account(shared).fits == 1


@pytest.mark.parametrize("method", [DPFedSGD(step=1.0), DPADMM(D_w=3.0)], ids=lambda method: method.name)
def test_warm_starts_are_counted_once_each(method: Any) -> None:
    shared = account()
    model = estimator(ledger=shared, warm_start=True, algorithm=method)
    for number in (1, 2, 3):
        model.fit(X, Y)
        assert privadmm.account(shared).fits == number
        assert privadmm.account(shared).epsilon == pytest.approx(model.epsilon_, rel=1e-9)


def test_a_fit_that_its_file_refuses_is_in_the_register(tmp_path: Path) -> None:
    counted = account(tmp_path, 0.6)
    model = estimator(ledger=counted).fit(X, Y)
    with pytest.raises(RefusedError):
        model.fit(X, Y)
    assert counted.path is not None
    found = register(counted.path)
    assert [one.kind for one in found.refusals or ()] == ["budget"]
    assert {entry.asked.algorithm for entry in found.entries} == {"dp_fedsgd"}


def test_a_warm_start_from_fits_that_were_not_counted_is_refused() -> None:
    model = estimator(warm_start=True).fit(X, Y)
    with pytest.raises(RefusedError, match="has not counted"):
        model.set_params(ledger=account()).fit(X, Y)
    model = estimator(warm_start=True, ledger=account()).fit(X, Y)
    with pytest.raises(RefusedError, match="has not counted"):
        model.set_params(ledger=account()).fit(X, Y)


def test_a_fit_that_fails_half_way_stays_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: Any) -> None:
        raise KeyboardInterrupt

    shared = account()
    monkeypatch.setattr("privadmm.estimators.fitting.train", broken)
    with pytest.raises(KeyboardInterrupt):
        estimator(ledger=shared).fit(X, Y)
    assert privadmm.account(shared).fits == 1
    assert privadmm.account(shared).epsilon == pytest.approx(0.5, rel=1e-4)


def test_bad_data_and_bad_parameters_cost_nothing() -> None:
    shared = account()
    for changes, y in (({"rounds": 0}, Y), ({"intercept": 2.0}, Y), ({}, Y + 5)):
        with pytest.raises(ValueError, match=r"rounds|intercept|neither"):
            estimator(ledger=shared, **changes).fit(X, y)
    assert privadmm.account(shared).fits == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": None, "algorithm": ADMMStar()}, "not private"),
        ({"epsilon": None, "algorithm": DPADMM(D_w=3.0), "delta": None}, "not private|epsilon"),
        ({"adjacency": "label"}, "adjacency = 'replace-one'"),
        ({"label_epsilon": 1.0}, "every label once more"),
    ],
)
def test_what_an_account_cannot_count_is_refused(changes: dict[str, Any], words: str) -> None:
    shared = account()
    with pytest.raises((RefusedError, ConfigError), match=words):
        estimator(ledger=shared, **changes).fit(X, Y)
    assert privadmm.account(shared).fits == 0


def test_unequal_parties_are_charged_for_the_least_noise_of_them() -> None:
    shared = account(total=3.0)
    estimator(ledger=shared, epsilon=None, party_epsilon=(0.5, 2.0, 1.0)).fit(X, Y)
    assert privadmm.account(shared).epsilon == pytest.approx(2.0, rel=1e-4)


@pytest.mark.parametrize("method", [MADMM(eta=1.0), DVP(eta=1.0)], ids=lambda method: method.name)
def test_parties_with_other_sizes_are_bounded_together(method: Any) -> None:
    """120 rows less one on three parties: two of 40 and one of 39, with other noise in every argmin."""
    shared = account(total=3.0)
    model = estimator(ledger=shared, algorithm=method, graph=ring(3)).fit(X[:-1], Y[:-1])
    total = privadmm.account(shared).epsilon
    assert model.epsilon_ <= total < 1.3 * model.epsilon_


def test_a_person_at_several_parties_is_charged_for_all() -> None:
    shared = account(total=3.0)
    method = Sharing(ball=1.0)
    changes = {"algorithm": method, "columns": (2, 1), "adjacency": "person"}
    with pytest.raises(RefusedError, match="adjacency"):
        estimator(ledger=shared, **changes).fit(X, Y)
    shared = Account(epsilon=3.0, delta=1e-6, adjacency="person")
    model = estimator(ledger=shared, **changes).fit(X, Y)
    found = privadmm.account(shared)
    assert found.epsilon == pytest.approx(model.epsilon_person_, rel=1e-9)
    assert found.epsilon > 1.2 * model.epsilon_
    assert any("labels are not protected" in words for words in found.caveats)
    assert "labels are not protected" in repr(found)


ratios = st.floats(0.3, 50.0)
widths = st.floats(0.0, 0.5)
KINDS = {
    "gaussian": st.builds(Gaussian, ratios),
    "shared": st.builds(SharedGaussian, ratios, st.just(1), st.just(4)),
    "gamma": st.builds(GammaOutput, ratios),
    "objective": st.builds(GaussianObjective, ratios, widths),
    "gamma objective": st.builds(GammaObjective, ratios.map(lambda ratio: 1 / ratio), widths),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data(), count=st.integers(1, 30))
def test_the_least_noise_costs_at_least_what_every_party_does(kind: str, data: st.DataObject, count: int) -> None:
    events = data.draw(st.lists(KINDS[kind], min_size=1, max_size=4))
    before = ((Gaussian(2.0), 3),)
    bound = epsilon(merge(before, ((least_noise(events), count),)), 1e-6)
    assert all(epsilon(merge(before, ((event, count),)), 1e-6) <= bound * (1 + 1e-9) for event in events)


def test_parties_that_release_in_other_ways_are_refused() -> None:
    with pytest.raises(RefusedError, match="different ways"):
        least_noise([Gaussian(2.0), GammaOutput(2.0)])
    with pytest.raises(RefusedError, match="different ways"):
        least_noise([SharedGaussian(2.0, 1, 4), SharedGaussian(2.0, 2, 4)])


def test_the_charge_is_what_the_fit_releases() -> None:
    """The plan's cost, charged before, against the ledgers of the jobs after."""
    for changes in ({}, {"algorithm": None, "rounds": None}, {"secure_sum": True, "colluding": 1}):
        shared = account(total=10.0)
        model = estimator(ledger=shared, classes=(0, 1, 2), **changes).fit(X, np.arange(120) % 3)
        assert privadmm.account(shared).epsilon == together([events(model)], 1e-6)


def test_a_search_without_a_ledger_says_once_that_the_total_counts() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cross_val_score(estimator(), X, Y, cv=5)
    said = [str(one.message) for one in caught if "clones" in str(one.message)]
    assert len(said) == 1
    assert issubclass(next(one.category for one in caught if "clones" in str(one.message)), BudgetWarning)
    assert "the 2 fits so far cost epsilon = 0.72" in said[0]
    assert 'ledger=Account(epsilon=..., delta=..., path="fits.ledger")' in said[0]  # a bare path has to exist


def test_fits_on_a_ledger_warn_once_their_total_promises_little() -> None:
    shared, said = account(total=10.0), []
    for _ in range(4):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator(ledger=shared, epsilon=1.9).fit(X, Y)
        said.append([str(one.message) for one in caught if "weak promise" in str(one.message)])
    totals = [privadmm.account(shared).epsilon, len(said[2]), len(said[3])]
    assert said[:2] == [[], []]
    assert totals[1:] == [1, 1]
    assert f"the 4 fits of this ledger: epsilon = {printed(totals[0])}" in said[3][0]


def test_one_fit_or_a_ledger_or_no_privacy_says_nothing_of_a_search() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clone(estimator()).fit(X, Y)
        cross_val_score(estimator(ledger=account()), X, Y, cv=3)
        cross_val_score(estimator(epsilon=None, delta=None, algorithm=ADMMStar()), X, Y, cv=3)
    assert not [one for one in caught if "clones" in str(one.message)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ledger": 3}, "ledger is 3: give the path"),
        ({"ledger": ""}, "give the path"),
        ({"ledger": "nowhere/fits.ledger"}, "no such ledger.*needs its budget"),
        ({"ledger": "."}, "is a directory"),
    ],
)
def test_a_ledger_that_is_none_gets_a_sentence(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        estimator(**wrong).fit(X, Y)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "needs its budget"),
        ({"epsilon": 1.0}, "give both"),
        ({"epsilon": -1.0, "delta": 1e-6}, "epsilon must be"),
        ({"epsilon": 1.0, "delta": 2.0}, "delta must"),
        ({"epsilon": "1", "delta": 1e-6}, "epsilon must be a number"),
        ({"epsilon": 1.0, "delta": 1e-6, "adjacency": "row"}, "adjacency must be"),
    ],
)
def test_an_account_declares_its_budget(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Account(**given)


def test_an_account_in_a_file_is_opened_again_as_it_was_made(tmp_path: Path) -> None:
    path = account(tmp_path).path
    assert Account(path=path).total() == Account(2.0, 1e-6, path=path).total()
    with pytest.raises(ConfigError, match="has a budget of epsilon = 2"):
        Account(3.0, 1e-6, path=path)
    known = identity_of(path)
    assert known is not None
    assert known.mode == "simulation"


def test_ledgers_of_deployments_and_without_a_budget_are_refused(tmp_path: Path) -> None:
    new_ledger(tmp_path / "real", [0], Policy(Budget(1.0, 1e-6)), "deployment")
    new_ledger(tmp_path / "open", [0], Policy(None), "simulation")
    with pytest.raises(ConfigError, match="ledger of a deployment"):
        estimator(ledger=tmp_path / "real").fit(X, Y)
    with pytest.raises(ConfigError, match="refuses nothing"):
        estimator(ledger=tmp_path / "open").fit(X, Y)


def test_a_ledger_of_a_run_with_several_parties_counts_for_each(tmp_path: Path) -> None:
    new_ledger(tmp_path / "run", [0, 1, 2], Policy(Budget(1.0, 1e-6)), "simulation")
    estimator(ledger=tmp_path / "run").fit(X, Y)
    found = privadmm.account(tmp_path / "run")
    assert found.fits == 1
    assert found.epsilon == pytest.approx(0.5, rel=1e-4)


def test_runs_on_the_same_ledger_are_spent_and_are_no_fits(tmp_path: Path) -> None:
    shared = account(tmp_path)
    assert shared.path is not None
    with closing(SqliteLedger(shared.path, [0], shared.policy, "simulation")) as ledger:
        ledger.reserve("run", {0: ((Gaussian(9.0), 2),)})
        with ledger.transaction():
            ledger.commit(Tick("run", 0, 0), "digest", {0: (Gaussian(9.0),)}, b"bytes", b"")
    before = privadmm.account(shared)
    assert before.fits == 0
    assert before.epsilon == epsilon(((Gaussian(9.0), 2),), 1e-6)  # also what is only set aside
    first = estimator(ledger=shared, epsilon=0.2).fit(X, Y)
    assert privadmm.account(shared).fits == 1
    assert privadmm.account(shared).epsilon > before.epsilon
    assert not (first.coef_ == estimator(epsilon=0.2).fit(X, Y).coef_).any()  # the run may have drawn that noise


def test_a_file_that_is_no_ledger_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no ledger\n" * 100)
    with pytest.raises(PrivadmmError, match="notes"):
        estimator(ledger=tmp_path / "notes").fit(X, Y)
    shared = account(tmp_path)
    assert shared.path is not None
    shared.path.unlink()
    with pytest.raises(LedgerError, match="is gone"):
        estimator(ledger=shared).fit(X, Y)


@pytest.mark.filterwarnings("ignore::privadmm.errors.FitWarning")
def test_regressors_are_counted_too() -> None:
    shared = account()
    model = ADMMRegressor(
        label_bound=1.0, row_bound=2.0, random_state=0, parties=3, rounds=3, ledger=shared, algorithm=DPFedSGD(step=0.1)
    ).fit(X, Y)
    assert privadmm.account(shared).epsilon == pytest.approx(model.epsilon_, rel=1e-9)


def test_totals_grow_with_every_fit() -> None:
    shared, seen = account(total=5.0), [0.0]
    for _ in range(5):
        estimator(ledger=shared).fit(X, Y)
        seen.append(privadmm.account(shared).epsilon)
    steps = [after - before for before, after in pairwise(seen)]
    assert all(step > 0 for step in steps)
    assert max(steps[1:]) < 0.5  # composition: each further fit costs less than it would alone


def test_the_charge_of_a_job_is_that_of_its_worst_party() -> None:
    (job,) = estimator(epsilon=0.5).fit(X, Y).jobs_
    assert epsilon(for_a_person(job), 1e-6) == job.epsilon


def test_an_account_in_memory_is_not_copied_by_a_fork() -> None:
    """Each child would count on a copy of its own, and draw the same noise as the others."""
    shared = account()
    one = estimator(ledger=shared)
    if (child := os.fork()) == 0:
        try:
            one.fit(X, Y)
        except ConfigError as error:
            os._exit(0 if "another process" in str(error) else 2)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    one.fit(X, Y)
    assert privadmm.account(shared).fits == 1


def test_an_account_stays_with_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        account(tmp_path / name)
    monkeypatch.chdir(tmp_path / "here")
    held = Account(path="fits.ledger")
    monkeypatch.chdir(tmp_path / "there")
    estimator(ledger=held).fit(X, Y)
    counted = [privadmm.account(tmp_path / name / "fits.ledger").fits for name in ("here", "there")]
    assert counted == [1, 0]


def test_an_account_in_use_follows_an_amended_policy(tmp_path: Path) -> None:
    held = account(tmp_path)
    known = identity_of(held.path)  # type: ignore[arg-type]
    assert known is not None
    stricter = replace(known.policy, budget=Budget(0.4, 1e-6), row_bound=1.0)
    with closing(SqliteLedger(held.path, known.parties, known.policy, known.mode)) as ledger:  # type: ignore[arg-type]
        ledger.amend(stricter, "a smaller bound")
    assert held.total().budget == 0.4
    with pytest.raises(RefusedError, match="row_bound"):
        estimator(ledger=held, epsilon=0.1).fit(X, Y)
    with pytest.raises(RefusedError, match=r"allows epsilon = 0\.4"):
        estimator(ledger=held, row_bound=1.0).fit(X, Y)
    estimator(ledger=held, row_bound=1.0, epsilon=0.3).fit(X, Y)
