"""Warm starts: the cost of earlier fits is carried along, whatever is done with the estimator in between."""

import copy
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import privadmm
from privadmm import (
    DPADMM,
    DVP,
    ADMMClassifier,
    ADMMRegressor,
    ADMMStar,
    Centred,
    ConfigError,
    DPFedSGD,
    FirstOrderConsensus,
    Job,
    Model,
    Shards,
    Simulation,
    Target,
    cluster,
    train,
    weights,
)
from privadmm.data.frame import Frame
from privadmm.errors import DivergedError
from privadmm.optim.graphs import complete, from_networkx
from privadmm.optim.losses import Debiased, Logistic
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.calibration import NoPrivacy
from privadmm.privacy.events import DiscreteGaussian, Event, Spent, merge
from privadmm.runs.ending import about
from privadmm.runs.model import NOT_PRIVATE
from privadmm.runs.plots import spending
from small_runs import Place, events, rows

X, Y = rows(n=120)
DELTA = 1e-6
DECLARED = {"classes": (0, 1), "row_bound": 2.0, "random_state": 0, "parties": 3, "delta": DELTA}
PRIVATE = {"algorithm": DPADMM(D_w=30.0, rho=0.01), "epsilon": 1.0, "rounds": 5}
# One round whose penalty holds the weights where they are: it releases the start, and almost no noise.
FROZEN = {"algorithm": DPADMM(D_w=30.0, rho=1e9), "epsilon": 0.01, "rounds": 1}
# Its weights run away, until the parties refuse to go on.
FAILING = {"algorithm": DPFedSGD(step=1e90), "regularizer": privadmm.L2(1.0), "rounds": 5}


def private(**changes: Any) -> ADMMClassifier:
    return ADMMClassifier(**{**DECLARED, **PRIVATE, "warm_start": True, **changes})


def exact(**changes: Any) -> ADMMClassifier:
    return private(**{"algorithm": ADMMStar(rho=0.1), "epsilon": None, "rounds": 50, **changes})


def alone(**changes: Any) -> Spent:
    """What party 0 releases in one such fit: one that starts from nothing has the same plan."""
    return events(private(**{**changes, "warm_start": False}).fit(X, Y))


def together(*spends: Spent, delta: float = DELTA) -> float:
    total: Spent = ()
    for spent in spends:
        total = merge(total, spent)
    return epsilon(total, delta)


def assert_not_private(estimator: Any, folder: Path) -> None:
    """Nothing that an estimator hands out, shows or saves speaks of an epsilon."""
    assert (estimator.private_, estimator.epsilon_, estimator.delta_) == (False, math.inf, None)
    for number, model in enumerate(estimator.models_):
        assert (model.epsilon, model.delta) == (None, None)
        path = folder / f"model-{number}.json"
        model.save(path)
        saved = json.loads(path.read_text())
        assert (saved["private"], saved["epsilon"], saved["delta"]) == (False, None, None)
        assert NOT_PRIVATE in saved["notices"]
        assert Model.load(path).epsilon is None
    for ledger in estimator.ledgers_:
        assert ledger["budget"] is None
        assert ledger["policy"]["budget"] is None
        assert all(party["epsilon"] is None for party in ledger["parties"])
        assert all(any(event["kind"] == "not_private" for event in party["events"]) for party in ledger["parties"])


def test_noise_after_the_fact_does_not_make_weights_private(tmp_path: Path) -> None:
    model = exact().fit(X, Y)
    clear = model.coef_.copy()
    model.set_params(**FROZEN).fit(X, Y)
    assert np.abs(model.coef_ - clear).max() < 1e-5  # they are the weights of the fit without noise
    assert_not_private(model, tmp_path)
    assert any("not private" in caveat for caveat in model.model_.caveats)


def test_predictions_of_such_a_model_say_so_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exact().fit(X, Y).set_params(**FROZEN).fit(X, Y).model_.save(tmp_path / "model.json")
    table = "x1,x2,x3\n" + "\n".join(",".join(map(str, row)) for row in X[:4].tolist())
    (tmp_path / "new.csv").write_text(table + "\n")
    asked = ("predict", tmp_path / "model.json", tmp_path / "new.csv")
    assert NOT_PRIVATE in Place(tmp_path, capsys).call(*asked, "--json").object["notices"]
    assert NOT_PRIVATE in Place(tmp_path, capsys).call(*asked).err


@pytest.mark.parametrize(
    "launder",
    [
        lambda model: model,
        lambda model: pickle.loads(pickle.dumps(model)),
        copy.deepcopy,
        lambda model: model.set_params(random_state=7),
        lambda model: model.set_params(delta=1e-3),
        lambda model: model.set_params(adjacency="label"),
        lambda model: model.set_params(parties=4),
        lambda model: model.set_params(row_bound=3.0),
        lambda model: model.fit(X[:60], Y[:60]),
        lambda model: handed_on(model, private()),
    ],
    ids=[
        "plain",
        "pickle",
        "deepcopy",
        "seed",
        "delta",
        "adjacency",
        "parties",
        "bound",
        "data",
        "attributes",
    ],
)
def test_not_private_once_is_not_private_for_ever(launder: Callable[[Any], Any], tmp_path: Path) -> None:
    model = launder(exact().fit(X, Y).set_params(**FROZEN).fit(X, Y))
    for _ in range(2):
        model.set_params(**PRIVATE).fit(X, Y)
        assert_not_private(model, tmp_path)


def handed_on(model: Any, other: Any) -> Any:
    """Another estimator with all fitted attributes of this one."""
    for name, value in vars(model).items():
        if name.endswith("_"):
            setattr(other, name, value)
    return other


def test_a_private_fit_in_between_does_not_help(tmp_path: Path) -> None:
    model = private().fit(X, Y)
    assert model.private_
    model.set_params(algorithm=ADMMStar(rho=0.1), epsilon=None).fit(X, Y)
    model.set_params(**PRIVATE).fit(X, Y)
    assert_not_private(model, tmp_path)


def test_several_classes_that_start_from_the_clear(tmp_path: Path) -> None:
    kinds = np.arange(120) % 3
    model = exact(classes=(0, 1, 2)).fit(X, kinds)
    clear = model.coef_.copy()
    model.set_params(**FROZEN).fit(X, kinds)
    assert np.abs(model.coef_ - clear).max() < 1e-5
    assert_not_private(model, tmp_path)


def test_a_regression_that_starts_from_the_clear(tmp_path: Path) -> None:
    declared = {"label_bound": 1.0, "radius": 1.0, "row_bound": 2.0, "random_state": 0, "parties": 3}
    model = ADMMRegressor(**declared, algorithm=ADMMStar(), epsilon=None, warm_start=True).fit(X, Y)
    assert_not_private(model.set_params(**FROZEN).fit(X, Y), tmp_path)


def test_eight_private_fits_cost_what_they_cost_together(tmp_path: Path) -> None:
    one = alone()
    model = private()
    shown = [float(model.fit(X, Y).epsilon_) for _ in range(8)]
    assert shown == pytest.approx([together(*[one] * k) for k in range(1, 9)], rel=1e-12)
    assert shown[-1] == pytest.approx(3.11, abs=0.005)
    assert model.private_
    assert events(model) == tuple((event, 8 * count) for event, count in one)
    assert {party["epsilon"] for party in model.ledger_["parties"]} == {shown[-1]}
    assert model.ledger_["budget"] == {"epsilon": shown[-1], "delta": DELTA}
    model.model_.save(tmp_path / "model.json")
    saved = json.loads((tmp_path / "model.json").read_text())
    assert (saved["private"], saved["epsilon"], saved["delta"]) == (True, shown[-1], DELTA)
    assert NOT_PRIVATE not in saved["notices"]


def test_unlike_fits_compose_by_their_events() -> None:
    """A Renyi curve, a Gaussian and a paper's own noise: never a sum of epsilons."""
    published = DPADMM(D_w=5.0, rho=0.1, calibration="published", round_epsilon=0.1)
    kinds = [
        {"algorithm": published, "epsilon": None},
        {"epsilon": 0.5, "rounds": 3},
        {"algorithm": DVP(eta=1.0), "rounds": 2, "graph": complete(3)},
    ]
    model, spends = private(), list[Spent]()
    for kind in kinds:
        spends.append(alone(**kind))
        model.set_params(**{**PRIVATE, "graph": None, **kind}).fit(X, Y)
        assert model.private_
        assert model.epsilon_ == together(*spends)
    assert len(set(spends)) == 3
    assert model.epsilon_ < sum(together(spent) for spent in spends)


def test_all_classes_of_all_fits_compose() -> None:
    kinds = np.arange(120) % 3
    once = events(private(classes=(0, 1, 2), warm_start=False).fit(X, kinds))
    model = private(classes=(0, 1, 2))
    for fits in (1, 2, 3):
        model.fit(X, kinds)
        assert model.epsilon_ == together(*[once] * fits)
        assert [part.epsilon for part in model.models_] == [model.epsilon_] * 3


def test_other_records_are_other_people_only_if_they_are() -> None:
    """Data sets may share people, so the cost is carried to any other data set."""
    model = private().fit(X, Y)
    other, labels = rows(n=90, seed=5)
    assert model.fit(other, labels).epsilon_ == pytest.approx(together(alone(), alone()), rel=1e-12)


def test_each_named_party_carries_its_own_cost() -> None:
    sites = np.array(["east", "north", "west"])[np.arange(120) % 3]
    budgets = [(0.5, 1.0, 2.0), (2.0, 0.25, 0.5)]
    model, spends = private(epsilon=None), list[list[Spent]]()
    for budget in budgets:
        cold = private(epsilon=None, party_epsilon=budget, warm_start=False).fit(X, Y, groups=sites)
        spends.append([events(cold, party) for party in range(3)])
        model.set_params(party_epsilon=budget).fit(X, Y, groups=sites)
    totals = [together(first, second) for first, second in zip(*spends, strict=True)]
    assert [party["epsilon"] for party in model.ledger_["parties"]] == totals
    assert model.epsilon_ == max(totals)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ({}, {"delta": 1e-3}, "delta = 1e-06.*delta = 0.001.*Set delta = 1e-06.*warm_start=False"),
        ({}, {"adjacency": "label"}, "adjacency = 'replace-one'.*'label'"),
        ({}, {"label_epsilon": 1.0}, "label_epsilon = None, then 1.0.*warm_start=False"),
        ({"label_epsilon": 1.0}, {"label_epsilon": None}, "label_epsilon = 1.0, then None.*warm_start=False"),
        ({}, {"parties": 4}, "3 parties .0, 1, 2. and the job has 4"),
        ({"party_epsilon": (1.0, 2.0, 3.0)}, {}, "costs differ.*groups"),
        ({}, {"party_epsilon": (1.0, 2.0, 3.0)}, "costs differ.*groups"),
        ({}, {"algorithm": None}, "without moments.*warm_start=False"),
        ({"algorithm": None, "warm_start": False}, {}, "moments of its own.*warm_start=False"),
        (
            {"algorithm": None, "warm_start": False},
            {"algorithm": Centred(FirstOrderConsensus())},
            "moments of its own",
        ),
        ({}, {"intercept": 0.3}, "3 weights.*4 features"),
    ],
    ids=lambda value: "-".join(map(str, value)) or "plain" if isinstance(value, dict) else "",
)
def test_what_does_not_add_up_is_refused(first: dict[str, Any], second: dict[str, Any], words: str) -> None:
    model = private(**first).fit(X, Y)
    before = {name: copy.deepcopy(value) for name, value in vars(model).items() if name.endswith("_")}
    model.set_params(**{name: private().get_params()[name] for name in first})
    with pytest.raises(ConfigError, match=words):
        model.set_params(**second).fit(X, Y)
    # Refused before anything was released.
    assert (model.epsilon_, model.history_) == (before["epsilon_"], before["history_"])
    assert np.array_equal(model.models_[0].weights, before["models_"][0].weights)
    model.set_params(warm_start=False).fit(X, Y)  # which is what the message says
    assert len(model.history_) == 1


@pytest.mark.parametrize("algorithm", [None, Centred(FirstOrderConsensus())], ids=["default", "moments"])
def test_moments_are_refused_at_the_first_fit_before_it_is_charged(algorithm: Any) -> None:
    account = privadmm.Account(epsilon=3.0, delta=DELTA)
    model = private(algorithm=algorithm, rounds=None, ledger=account)
    with pytest.raises(ConfigError, match=r"without moments.*DPFedSGD.*warm_start=False"):
        model.fit(X, Y)
    assert (dict(privadmm.account(account))["fits"], hasattr(model, "history_")) == (0, False)
    model.set_params(algorithm=DPFedSGD(step=1.0), rounds=5).fit(X, Y).fit(X, Y)  # which is what the message says
    assert dict(privadmm.account(account))["fits"] == 2


def test_parties_of_unequal_cost_among_which_rows_are_dealt_out_are_refused() -> None:
    """The middle of a path hears two neighbours: its plan is another than theirs."""
    import networkx

    line = from_networkx(networkx.path_graph(3))
    model = private(algorithm=DVP(eta=1.0), graph=line, rounds=2).fit(X, Y)
    assert events(model, 0) != events(model, 1)
    with pytest.raises(ConfigError, match=r"costs differ.*groups"):
        model.fit(X, Y)
    sites = np.arange(120) % 3
    model = private(algorithm=DVP(eta=1.0), graph=line, rounds=2).fit(X, Y, groups=sites)
    once = [events(model, party) for party in range(3)]
    assert model.fit(X, Y, groups=sites).epsilon_ == max(together(spent, spent) for spent in once)


def test_other_names_are_other_parties() -> None:
    model = private().fit(X, Y, groups=np.array(["a", "b", "c"])[np.arange(120) % 3])
    # Refused at once: a fit that is let in fails otherwise, half way.
    with pytest.raises(ConfigError, match=r"a, b, c.*a, b, d"):
        model.set_params(**FAILING).fit(X, Y, groups=np.array(["a", "b", "d"])[np.arange(120) % 3])


def test_labels_are_not_reported_again_by_a_loss_that_debiases_itself() -> None:
    model = private(loss=Debiased(Logistic(), 1.0)).fit(X, Y)
    with pytest.raises(ConfigError, match="once more"):
        model.fit(X, Y)


def test_parties_that_hold_columns_have_no_start() -> None:
    from privadmm import Sharing

    declared = {**DECLARED, "adjacency": "person", "columns": (2, 1), "warm_start": True}
    sharing = ADMMClassifier(**declared, algorithm=Sharing(ball=1.0), epsilon=5.0, rounds=3).fit(X, Y)
    with pytest.raises(ConfigError, match="warm_start=False"):
        sharing.fit(X, Y)


def replaced_model(model: Any) -> None:
    model.models_[0] = replace(model.models_[0], weights=np.ones(3))


def overwritten_in_place(model: Any) -> None:
    model.models_[0].weights[:] = 1.0


def exact_models(model: Any) -> None:
    model.models_ = exact().fit(X, Y).models_


def exact_but_for_its_history(model: Any) -> None:
    for name, value in vars(exact().fit(X, Y)).items():
        if name in ("models_", "model_", "coef_", "intercept_"):
            setattr(model, name, value)


def without_history(model: Any) -> None:
    for name in ("history_", "fits_"):
        if hasattr(model, name):
            delattr(model, name)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda model: setattr(model, "coef_", np.ones((1, 3))),
        lambda model: setattr(model, "intercept_", np.ones(1)),
        replaced_model,
        overwritten_in_place,
        exact_models,
        exact_but_for_its_history,
        without_history,
    ],
    ids=["coef", "intercept", "model", "in-place", "models", "attributes", "history"],
)
def test_weights_that_no_fit_released_are_no_start(tamper: Callable[[Any], None]) -> None:
    model = private().fit(X, Y)
    tamper(model)
    with pytest.raises(ConfigError, match=r"that the last fit released.*warm_start=False"):
        model.set_params(**FROZEN).fit(X, Y)


def test_the_models_of_another_estimator_are_no_start() -> None:
    for other in (exact().fit(X, Y), private().fit(X, Y)):
        model = private()
        model.models_ = other.models_
        with pytest.raises(ConfigError, match="history_"):
            model.fit(X, Y)


def test_models_in_another_order_are_no_start() -> None:
    kinds = np.arange(120) % 3
    model = private(classes=(0, 1, 2)).fit(X, kinds)
    model.models_ = model.models_[::-1]
    with pytest.raises(ConfigError, match="history_"):
        model.fit(X, kinds)
    model.models_ = model.models_[::-1]
    with pytest.raises(ConfigError, match=r"3 model.*need 1"):
        model.set_params(classes=(0, 1)).fit(X, Y)


def test_a_model_from_a_file_is_no_start_without_its_history(tmp_path: Path) -> None:
    first = private().fit(X, Y)
    first.model_.save(tmp_path / "model.json")
    model = private()
    model.models_ = [Model.load(tmp_path / "model.json")]
    with pytest.raises(ConfigError, match="history_"):
        model.fit(X, Y)
    model.history_ = first.history_
    assert model.fit(X, Y).epsilon_ == together(alone(), alone())


@pytest.mark.parametrize(
    "passed_on",
    [
        lambda model: pickle.loads(pickle.dumps(model)),
        copy.deepcopy,
        lambda model: handed_on(model, private()),
        lambda model: model.set_params(random_state=3),
    ],
    ids=["pickle", "deepcopy", "attributes", "seed"],
)
def test_the_cost_goes_where_the_model_goes(passed_on: Callable[[Any], Any]) -> None:
    model = passed_on(private().fit(X, Y))
    assert model.fit(X, Y).epsilon_ == together(alone(), alone())
    assert clone(model).fit(X, Y).epsilon_ == together(alone())  # a clone has no model to start from


def test_a_start_from_nothing_has_nothing_to_carry() -> None:
    model = private().fit(X, Y)
    assert model.fit(X, Y).epsilon_ == together(alone(), alone())
    assert model.set_params(warm_start=False).fit(X, Y).epsilon_ == together(alone())
    assert model.set_params(warm_start=True).fit(X, Y).epsilon_ == together(alone(), alone())


def test_what_a_fit_released_before_it_failed_stays_spent() -> None:
    model = private().fit(X, Y)
    kept = model.epsilon_, model.coef_.copy()
    with pytest.raises(DivergedError):
        model.set_params(**FAILING).fit(X, Y)
    assert (model.epsilon_, model.coef_.tolist()) == (kept[0], kept[1].tolist())
    model.set_params(**PRIVATE, regularizer=None).fit(X, Y)
    assert model.epsilon_ > together(alone(), alone())
    lost = model.history_[1]
    ((event, count),) = lost.spent[0]
    assert 2 <= count < 5
    assert lost.models == ()
    assert model.epsilon_ == together(alone(), ((event, count),), alone())
    assert len(model.history_) == 3


def test_the_tick_that_failed_counts_as_well() -> None:
    """A failed fit may have released values although its charges were not committed."""
    from privadmm.runs.refits import begun

    job, data = job_of(), shards()
    blocks = cluster(job, data, Simulation(0))
    ledger = blocks.workers[0].ledger
    assert [count for ((_, count),) in begun(job, ledger)] == [1, 1, 1]

    def stop(view: Any) -> None:
        if view.progress.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job, blocks, [stop])
    assert [count for ((_, count),) in begun(job, ledger)] == [3, 3, 3]
    blocks = cluster(job, data, Simulation(0))
    train(job, blocks)
    done = blocks.workers[0].ledger
    assert begun(job, done) == [done.spent(party) for party in range(3)]


def test_a_first_fit_that_failed_counts_too_and_its_noise_is_not_used_again() -> None:
    model = private(**FAILING)
    for _ in range(2):
        with pytest.raises(DivergedError):
            model.fit(X, Y)
    model.set_params(**PRIVATE, regularizer=None).fit(X, Y)
    assert np.abs(model.coef_ - private(warm_start=False).fit(X, Y).coef_).max() > 1e-3
    spends = [past.spent[0] for past in model.history_]
    assert len(spends) == 3
    assert model.epsilon_ == together(*spends) > together(alone())


def test_a_fit_in_the_clear_that_failed_is_in_the_clear(tmp_path: Path) -> None:
    model = private().fit(X, Y)
    with pytest.raises(privadmm.PrivadmmError):
        model.set_params(**{**FAILING, "epsilon": None, "delta": None}).fit(X, Y)
    assert_not_private(model.set_params(**PRIVATE, delta=DELTA, regularizer=None).fit(X, Y), tmp_path)


def test_nothing_of_an_earlier_fit_stands_beside_a_later_one() -> None:
    """coef_ of a fit without noise must not stay beside private_ of a later fit that has no coef_."""
    model = exact(warm_start=False).fit(X, Y)
    model.set_params(algorithm=None, epsilon=1.0, rounds=41).fit(X, Y)
    assert model.private_
    assert not hasattr(model, "coef_")
    assert not hasattr(model, "intercept_")
    model.set_params(classes=(0, 1, 2)).fit(X, np.arange(120) % 3)
    assert not hasattr(model, "model_")
    assert not hasattr(model, "ledger_")


# Jobs that are put together by hand.


def job_of(start: Any = None, privacy: Any = None, **changes: Any) -> Job:
    (job,) = private(warm_start=False, **changes).fit(X, Y).jobs_
    public = replace(job.public, start=start, privacy=privacy or job.public.privacy)
    return Job(job.algorithm, public, job.allowance)


def shards() -> Shards:
    parts = [np.arange(40) + 40 * party for party in range(3)]
    return Frame(2.0, 0.0, ("x1", "x2", "x3"), (0, 1)).shards(X, 2.0 * Y - 1, parts)


def one_event(job: Job) -> tuple[Event, int]:
    ((event, count),) = job.past[-1].spent[0]
    return event, count


def test_weights_alone_are_no_start() -> None:
    with pytest.raises(ConfigError, match=r"Start.public\(weights\)"):
        job_of(np.ones(3))


def test_a_public_start_costs_nothing() -> None:
    job, cold = job_of(privadmm.Start.public(np.ones(3))), job_of()
    assert (job.epsilon, job.private, job.caveats) == (cold.epsilon, True, [])
    assert job.public.origin(2).tolist() == [[1.0] * 3] * 2


def test_a_start_is_finite_one_row_and_of_the_jobs_features() -> None:
    for wrong in (np.ones((1, 3)), np.array([1.0, np.nan, 0.0])):
        with pytest.raises(ConfigError, match="finite"):
            privadmm.Start.public(wrong)
    with pytest.raises(ConfigError, match=r"4 weights.*3 features"):
        job_of(privadmm.Start.public(np.ones(4)))
    with pytest.raises(ConfigError, match="past"):
        privadmm.Start(np.ones(3), (1.0,))
    with pytest.raises(ConfigError, match="moments map"):
        job_of(privadmm.Start.public(np.ones(3)), algorithm=None)


def test_a_start_is_not_changed_by_who_made_it() -> None:
    given = np.ones(3)
    start = privadmm.Start.public(given)
    given[:] = 7.0
    assert start.weights.tolist() == [1.0] * 3
    with pytest.raises(ValueError, match="read-only"):
        start.weights[0] = 7.0


def test_a_jobs_start_is_part_of_all_that_it_shows(tmp_path: Path) -> None:
    first, data = job_of(), shards()
    w = weights(first, train(first, cluster(first, data, Simulation(0))))
    job = job_of(privadmm.Start(w, first.past), epsilon=0.5)
    event, count = one_event(job)
    total = together(((event, count), one_event(first)))
    assert job.epsilon == total == about(job, "simulation")["epsilon"]
    assert job.epsilon_by_round == [together(((event, k), one_event(first))) for k in range(1, 6)]
    assert job.adversaries["others"]["record"]["epsilon"] == total
    assert first.adversaries["others"]["label"]["epsilon"] < job.adversaries["others"]["label"]["epsilon"] < total
    assert job.policy.budget is not None
    assert job.policy.budget.epsilon == 0.5  # of the job's own ledger, which begins empty
    train(job, cluster(job, data, Simulation(1)))
    third = job_of(privadmm.Start(w, job.past), epsilon=0.5)
    assert third.epsilon == together(((event, 2 * count), one_event(first)))
    spending(job.epsilon_by_round, about(job, "simulation"), job.published, tmp_path / "cost.svg")


def test_a_jobs_start_from_the_clear_is_part_of_all_that_it_shows() -> None:
    clear = job_of(privacy=NoPrivacy())
    job = job_of(privadmm.Start(np.ones(3), clear.past))
    said = about(job, "simulation")
    assert (job.private, job.epsilon, job.epsilon_by_round) == (False, None, [])
    assert (said["private"], said["epsilon"]) == (False, None)
    assert NOT_PRIVATE in said["notices"]
    assert any("started from" in notice for notice in said["notices"])
    assert job.adversaries["others"] == {"record": "not protected", "label": "not protected"}
    assert job.budget is not None  # its own ledger still refuses more than it was planned for


def test_a_paper_counts_no_start() -> None:
    published = {"algorithm": DPADMM(D_w=5.0, calibration="published", round_epsilon=0.1), "epsilon": None}
    assert job_of(**published).published is not None
    assert job_of(privadmm.Start.public(np.ones(3)), **published).published is not None
    assert job_of(privadmm.Start(np.ones(3), job_of().past), **published).published is None


def test_a_simulation_is_no_start_of_a_deployment() -> None:
    start = privadmm.Start(np.ones(3), job_of().past)
    with pytest.raises(ConfigError, match=r"mode = 'simulation'.*mode = 'deployment'"):
        job_of(start, Target(1.0, DELTA, DiscreteGaussian))
