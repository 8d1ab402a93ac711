"""ADMM sharing and its baselines: their optimum, where the printed form fails, and what they cost."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.algorithms.admm_sharing import ADMMSharing
from privadmm.algorithms.fdml_sgd import FDMLSGD
from privadmm.algorithms.sharing import Sharing
from privadmm.data.columns import Columns, People
from privadmm.data.frame import Frame
from privadmm.engine.block import cluster
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job, train, weights
from privadmm.errors import ConfigError, DataError, RefusedError
from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, HuberHinge, Logistic, Squared
from privadmm.optim.regularizers import L1, L2, ElasticNet
from privadmm.privacy.accounting import epsilon, together, totals
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import DiscreteGaussian, Gaussian, Unproved, dump, load
from privadmm.privacy.ledger import MemoryLedger
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door
from privadmm.privacy.ridge_sensitivity import lemma_1
from privadmm.runs.model import Model
from vertical_cases import BALL, COLUMN, FREE, OFF, PERSON, WIDTHS, Case, optimum, people

SPLITS = {2: (3, 4), 3: (3, 2, 4), 10: (1, 2) * 5}


def fitted(case: Case, data: People, rounds: int) -> Any:
    job = case.job(widths=data.widths, n=data.dim, rounds=rounds)
    return weights(job, train(job, cluster(job, data, Simulation(0))))


def objective(case: Case, data: People, w: Any) -> float:
    return float(case.loss.value(data.scores(w), data.y).mean() + case.regularizer.value(w))


def overlapping(parties: int, n: int = 40, seed: int = 0) -> People:
    """Parties whose columns are nearly dependent, like the one-hot columns of a census."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 2))
    parts = [common + 0.2 * rng.normal(size=(n, 2)) for _ in range(parties)]
    y = np.where(common.sum(axis=1) + rng.normal(size=n) > 0, 1.0, -1.0)
    return People.build(Columns.build(parts, row_bounds=[1.0] * parties), y)


@pytest.mark.parametrize("rho", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("parties", SPLITS)
def test_without_noise_it_reaches_the_optimum(parties: int, rho: float) -> None:
    data, case = people(0, SPLITS[parties], n=40), Case("", ADMMSharing(rho=rho), OFF)
    best = optimum(data, case.public(data.widths, data.dim))
    rounds = 900 if parties == 10 and rho < 0.1 else 200
    assert fitted(case, data, rounds) == pytest.approx(best, abs=5e-6)


OTHERS = {
    "half_logistic": Case("", ADMMSharing(rho=0.3), OFF, loss=HalfLogistic()),
    "huber_hinge": Case("", ADMMSharing(rho=0.3), OFF, loss=HuberHinge(0.5)),
    "squared": Case("", ADMMSharing(rho=0.3), OFF, loss=Squared(1.0)),
    "C": Case("", ADMMSharing(rho=0.3), OFF, regularizer=L2(0.01)),
}


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS.keys())
def test_other_losses_too(case: Case) -> None:
    data = people(1, (3, 4), n=40)
    assert fitted(case, data, 400) == pytest.approx(optimum(data, case.public(data.widths, data.dim)), abs=1e-5)


def test_the_weight_of_the_loss_counts() -> None:
    """lam = N weight/C: twice the C is half the weight."""
    data, case = people(1, (3, 4), n=40), Case("", ADMMSharing(rho=0.3), OFF)
    job = Job(case.algorithm, case.public(data.widths, data.dim, rounds=200, C=2.0))
    w = weights(job, train(job, cluster(job, data, Simulation(0))))
    assert w == pytest.approx(optimum(data, job.public), abs=1e-5)
    assert w == pytest.approx(fitted(replace(case, regularizer=L2(0.025)), data, 200), abs=1e-5)


def test_the_hinge_and_l1_are_solved_too() -> None:
    """scipy cannot minimise a function with kinks, so check that no point nearby is better."""
    data, rng = people(2, (3, 4), n=30), np.random.default_rng(0)
    for case in (
        Case("", ADMMSharing(rho=0.3), OFF, loss=Hinge()),
        Case("", ADMMSharing(rho=0.3), OFF, regularizer=ElasticNet(0.1)),
    ):
        w = fitted(case, data, 500)
        around = [w + size * rng.normal(size=w.shape) for size in (1e-3, 1e-2) for _ in range(300)]
        assert objective(case, data, w) <= min(objective(case, data, other) for other in around)
        if isinstance(case.regularizer, ElasticNet):
            assert (w == 0).any()


def test_a_ball_that_binds() -> None:
    data, case = people(0, (3, 4), n=40), Case("", ADMMSharing(rho=0.3, ball=0.4), OFF)
    w = fitted(case, data, 300)
    assert max(np.linalg.norm(w[:3]), np.linalg.norm(w[3:])) == pytest.approx(0.4, rel=1e-9)
    assert w == pytest.approx(optimum(data, case.public(data.widths, data.dim), ball=0.4), abs=1e-4)


@pytest.mark.parametrize(("parties", "rho"), [(2, 0.05), (10, 0.3)])
def test_the_printed_form_fails_where_the_sharing_form_does_not(parties: int, rho: float) -> None:
    data, case = overlapping(parties), Case("", ADMMSharing(rho=rho), OFF, regularizer=L2(1e-3))

    def gap(w: Any) -> float:
        return objective(case, data, w) - objective(case, data, best)

    best = optimum(data, case.public(data.widths, data.dim))
    assert gap(fitted(case, data, 200)) < 1e-3
    printed = replace(case, algorithm=ADMMSharing(rho=rho, form="printed"))
    assert gap(fitted(printed, data, 200)) > 1


def test_the_printed_form_is_the_papers() -> None:
    """(6) to (9) as printed, written out a second time; in both the label holder sends first."""
    data, rho = people(3, (3, 4), n=12), 2.0
    case = Case("", ADMMSharing(rho=rho, form="printed"), OFF)
    lam, D = 0.05 * 12, [features.A for features in data.columns.features]
    u, y, x = [np.zeros(12), np.zeros(12)], np.zeros(12), [np.zeros(3), np.zeros(4)]
    for _ in range(5):
        z = Logistic().prox(sum(u) + y / rho, data.y, rho)  # (8)
        y = y + rho * (sum(u) - z)  # (9)
        others = [z - sum(u[j] for j in range(2) if j != m) - y / rho for m in range(2)]
        x = [
            np.linalg.solve(lam * np.eye(A.shape[1]) + rho * A.T @ A, rho * A.T @ t)
            for A, t in zip(D, others, strict=True)
        ]
        u = [A @ w for A, w in zip(D, x, strict=True)]  # (6)
    assert fitted(case, data, 5) == pytest.approx(np.concatenate(x), rel=1e-9)


@pytest.mark.parametrize("batches", [1, 3])
def test_gradient_steps_reach_the_optimum(batches: int) -> None:
    data = people(0, (3, 4), n=40)
    case = Case("", FDMLSGD(step=3.0 if batches == 1 else 0.1, batches=batches), OFF)
    best = optimum(data, case.public(data.widths, data.dim))
    assert fitted(case, data, 1500) == pytest.approx(best, abs=1e-4 if batches == 1 else 0.05)


def test_little_noise_is_nearly_none() -> None:
    """With a huge epsilon the private run equals the one without noise."""
    data = people(0, (3, 4), n=40)
    found = {}
    for privacy in (OFF, replace(PERSON, epsilon=1e12)):
        found[privacy] = fitted(Case("", Sharing(rho=0.3, ball=3.0), privacy), data, 8)
    assert found[OFF] == pytest.approx(list(found.values())[1], abs=1e-2)


def test_before_the_last_round_there_are_no_weights() -> None:
    seen = []
    job = Case("", BALL, PERSON).job(rounds=3)
    train(job, cluster(job, people(), Simulation(0)), [lambda view: seen.append(np.isnan(view.model).all())])
    assert seen == [True, True, False]


def test_one_person_pays_at_every_party() -> None:
    job = Case("", BALL, PERSON).job()
    spent = totals(job.plan, 5)
    ((event, count),) = spent[0]
    assert isinstance(event, Gaussian)
    assert count == 4
    # mu_person^2 is the sum over parties and rounds.
    assert together(spent, 1e-5) == epsilon(((event, 20),), 1e-5)
    assert job.of_people["per_party"] == job.epsilon == pytest.approx(1.0)
    assert job.of_people["per_person"] == together(spent, 1e-5) > 2 * job.epsilon
    column = Case("", FREE, COLUMN).job()
    assert column.of_people["per_person"] is None  # a column sits at one party


def test_labels_may_be_randomised_once() -> None:
    data = people(0, (3, 4), n=500)
    case = Case("", BALL, PERSON, loss=Debiased(Logistic(), 1.0))
    job = case.job(widths=data.widths, n=data.dim)
    ledger = MemoryLedger([0, 1], job.policy)
    first = cluster(job, data, Simulation(0), ledger).labels
    assert first is not None
    flipped = np.mean(first != data.y)
    assert flipped == pytest.approx(1 / (1 + math.e), abs=0.06)
    again = cluster(replace(job, id="another"), data, Simulation(5), ledger).labels
    assert np.array_equal(first, again)  # not drawn a second time, whatever the noise
    assert job.of_people["label_holder"] == {
        "events": [{"kind": "randomized_response", "epsilon": 1.0, "count": 1}],
        "epsilon": 1.0,
    }
    assert job.caveats == []
    other = case.job(widths=data.widths, n=100)
    with pytest.raises(RefusedError, match="a second report"):
        cluster(other, people(0, (3, 4), n=100), Simulation(0), ledger)


def test_randomised_labels_still_teach() -> None:
    data = people(0, (3, 4), n=2000)
    case = Case("", ADMMSharing(rho=0.3), OFF, loss=Debiased(Logistic(), 1.0))
    w, best = (
        fitted(case, data, 200),
        optimum(data, Case("", ADMMSharing(), OFF).public(data.widths, data.dim)),
    )
    assert w @ best / np.linalg.norm(w) / np.linalg.norm(best) > 0.8


def test_the_published_noise_is_the_papers_and_certified_nowhere() -> None:
    paper = replace(FREE, calibration="published", round_epsilon=0.1, b1=2.0)
    case = Case("", paper, Target(None, 1e-3, adjacency="column"), regularizer=L2(0.01))
    job = case.job(rounds=20)
    assert job.epsilon is None
    assert not job.private
    claim = job.published
    assert claim is not None
    # Corollary 1 with delta' = 20 delta_round = 5e-4.
    expected = math.sqrt(40 * math.log(2000)) * 0.1 + 2 * math.expm1(0.1)
    assert claim.epsilon == pytest.approx(expected)
    assert "no" in claim.caveat.lower()
    assert "span" in claim.caveat
    event = job.plan[(0, 1)][0][0]
    assert isinstance(event, Unproved)
    assert event.ratio == pytest.approx(math.sqrt(2 * math.log(1.25 / (1e-3 / 40))) / 0.1)
    lam = 9 * 0.01
    assert lemma_1(WIDTHS, 0.5, lam, 5, 2.0) == pytest.approx(
        [3 / (d * 0.5) * (lam + (1 + 5 * 0.5) * 2.0) for d in WIDTHS]
    )
    w = weights(job, train(job, cluster(job, case.data(), Simulation(0))))
    assert np.isfinite(w).all()


def test_noise_that_no_proof_covers_counts_as_none() -> None:
    class Discrete(Simulation):
        kind = DiscreteGaussian

    x, planned = np.zeros((1, 3)), ((Unproved(2.0),),)
    doors = [Door(np.arange(1), planned, noise, 0, 0, lambda _: None) for noise in (Simulation(0), Discrete(0))]
    assert doors[0].output(x, 1.0).value.any()
    assert math.isinf(epsilon(((Unproved(2.0), 1), (Gaussian(9.0), 1)), 1e-5))
    assert load(dump(Unproved(2.0))) == Unproved(2.0)
    with pytest.raises(RefusedError, match="no proof covers"):
        doors[1].output(x, 1.0)


def test_records_and_columns_are_not_mistaken_for_one_another() -> None:
    from cases import shards

    job = Case("", BALL, PERSON).job()
    for data in (shards(), people(widths=(3, 2, 4, 1, 2)), people(n=8)):
        with pytest.raises(DataError, match="job"):
            cluster(job, data, Simulation(0))
    with pytest.raises(ConfigError, match="coordinator that holds the labels"):
        train(job, InProcess(cluster(job, people(), Simulation(0)).workers))
    with pytest.raises(ConfigError, match="same people"):
        replace(job.public, columns=(1, 2))


REFUSED = {
    "no ball": (Sharing(), PERSON, L2(0.1), Logistic(), "needs ball"),
    "no column bound": (Sharing(ball=1.0), COLUMN, L2(0.1), Logistic(), "needs column_bound"),
    "private l1": (FREE, COLUMN, ElasticNet(0.1), Logistic(), "no proof for l1"),
    "l1 alone": (ADMMSharing(), OFF, L1(0.1), Logistic(), "needs some l2"),
    "no regulariser": (ADMMSharing(), OFF, L2(0.0), Logistic(), "needs some l2"),
    "l1 in a ball": (ADMMSharing(ball=1.0), OFF, ElasticNet(0.1), Logistic(), "leave out ball"),
    "a rho of nearly nothing": (ADMMSharing(rho=1e-100), OFF, L2(0.1), Logistic(), "larger rho"),
    "not convex": (ADMMSharing(), OFF, L2(0.1), Debiased(HalfLogistic(), 1.0), "not convex"),
    "horizontal neighbours": (
        BALL,
        replace(PERSON, adjacency="replace-one"),
        L2(0.1),
        Logistic(),
        "person and column",
    ),
    "the paper's neighbours": (
        replace(FREE, calibration="published", round_epsilon=0.1),
        Target(None, 1e-3, adjacency="person"),
        L2(0.1),
        Logistic(),
        "about a replaced column",
    ),
    "without privacy": (ADMMSharing(), PERSON, L2(0.1), Logistic(), "not private and cannot"),
}


@pytest.mark.parametrize(("algorithm", "privacy", "R", "loss", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_proof_is_refused(algorithm: Any, privacy: Any, R: Any, loss: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Case("", algorithm, privacy, loss, R).job()


def test_halves_of_a_calibration_are_refused() -> None:
    with pytest.raises(ConfigError, match="go together"):
        Sharing(calibration="published")
    with pytest.raises(ConfigError, match="go together"):
        Sharing(round_epsilon=1.0)


def test_a_model_predicts_from_columns_in_their_own_order(tmp_path: Path) -> None:
    """Parties hold columns 3, 1 and 0, 2; the model's weights stand in the table's order."""
    X = np.random.default_rng(0).normal(size=(6, 4))
    frame = Frame(1.0, 0.6, ("a", "b", "c", "d"), ("no", "yes"), ((3, 1), (0, 2)), (2.0, 0.5))
    held = frame.people(X, np.ones(6), np.arange(6))
    w = np.array([1.0, 2.0, 3.0, 4.0, 5.0])  # d, b | a, c, intercept
    model = Model(frame.arranged(w), frame, "sharing", "simulation", 1.0, 1e-5)
    assert dict(zip(model.columns, model.weights, strict=True)) == {
        "a": 3,
        "b": 2,
        "c": 4,
        "d": 1,
        "(intercept)": 5,
    }
    assert model.scores(X) == pytest.approx(held.scores(w))
    model.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    assert again.frame == frame
    assert (again.predict(X) == model.predict(X)).all()


def test_columns_that_were_scaled_down_predict_as_they_come() -> None:
    frame = Frame(1.0, 0.0, ("a", "b"), None, ((0,), (1,)), (2.0, 4.0), clipped=False)
    X = np.array([[10.0, 4.0]])
    model = Model(np.array([1.0, 10.0]), frame, "sharing", "simulation", 1.0, 1e-5)
    assert model.scores(X) == pytest.approx([15.0])


def classifier(**more: Any) -> Any:
    from privadmm.estimators import ADMMClassifier

    given: dict[str, Any] = {
        "classes": ("no", "yes"),
        "row_bound": 2.0,
        "columns": [3, 2],
        "algorithm": Sharing(rho=0.3, ball=5.0),
        "adjacency": "person",
        "epsilon": 50.0,
        "rounds": 2,
        "regularizer": L2(0.01),
        "random_state": 0,
    }
    return ADMMClassifier(**(given | more))


def table(n: int = 400) -> tuple[Any, Any]:
    X = np.random.default_rng(0).normal(size=(n, 5))
    return X, np.where(X.sum(axis=1) > 0, "yes", "no")


def test_the_estimator_splits_columns() -> None:
    X, y = table()
    fitted = classifier().fit(X, y)
    assert fitted.score(X, y) > 0.8
    assert fitted.epsilon_ == pytest.approx(50.0)
    assert fitted.epsilon_person_ > 50
    assert fitted.parties_ == ("0", "1")
    assert "not protected" in fitted.model_.caveats[0]
    short = X / 10  # no row is clipped
    assert fitted.decision_function(short) == pytest.approx(short @ fitted.coef_[0] + fitted.intercept_[0])


def test_the_estimator_has_an_intercept_and_other_neighbours() -> None:
    X, y = table()
    fitted = classifier(intercept=0.3).fit(X, y)
    short = X / 10
    assert fitted.decision_function(short) == pytest.approx(short @ fitted.coef_[0] + fitted.intercept_[0])
    free = classifier(algorithm=Sharing(rho=0.3, column_bound=12.0), adjacency="column").fit(X, y)
    assert math.isinf(free.epsilon_person_)
    assert free.decision_function(X) == pytest.approx(X @ free.coef_[0])
    plain = classifier(algorithm=ADMMSharing(rho=0.3), epsilon=None, delta=None, rounds=50).fit(X, y)
    assert plain.score(X, y) > 0.95


def test_the_estimator_refuses_what_does_not_go_together() -> None:
    X, y = table(40)
    with pytest.raises(ConfigError, match="every party has all rows"):
        classifier().fit(X, y, groups=np.zeros(40))
    with pytest.raises(ConfigError, match="sum to 5"):
        classifier(columns=[3, 3]).fit(X, y)
    with pytest.raises(ConfigError, match="hold columns"):
        classifier(columns=None, parties=2).fit(X, y)


CONFIG = """
[data]
source = "labels.csv"
label = "y"
classes = ["no", "yes"]
row_bound = 1.0
id = "who"
test_fraction = 0.25

[parties]
split = "features"
files = ["bank.csv", "shop.csv"]

[algorithm]
name = "sharing"
rounds = 2
rho = 0.3
ball = 2.0

[regularizer]
weight = 0.1

[privacy]
epsilon = 3.0
delta = 1e-6
adjacency = "person"

[run]
seed = 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    n = 80
    a, b = rng.normal(size=n), rng.normal(size=(n, 2))
    y = np.where(a + b.sum(axis=1) > 0, "yes", "no")
    for name, header, columns in (
        ("labels", "who,y", [y]),
        ("bank", "who,income", [a]),
        ("shop", "who,age,hours", [b[:, 0], b[:, 1]]),
    ):
        lines = [",".join(map(str, (f"p{i}", *(column[i] for column in columns)))) for i in rng.permutation(n)]
        (tmp_path / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
    (tmp_path / "job.toml").write_text(CONFIG)
    return tmp_path


def edited(folder: Path, *changes: tuple[str, str]) -> Path:
    text = CONFIG
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    (folder / "job.toml").write_text(text)
    return folder / "job.toml"


def called(place: Any, *words: Any) -> Any:
    said = place.call(*words, "--json")
    assert said.code == 0, said.err
    return said.object


def test_files_that_parties_hold_are_trained_on(folder: Path, place: Any) -> None:
    found = called(place, "train", folder / "job.toml", "--out", folder / "run")
    assert found["epsilon"] == found["per_party"] == pytest.approx(3.0)
    assert found["per_person"] > 3.0
    model = Model.load(folder / "run" / "model.json")
    assert model.frame.columns == ("income", "age", "hours")
    assert model.frame.groups == ((0,), (1, 2))
    result = json.loads((folder / "run" / "result.json").read_text())
    assert any("labels are not protected" in notice for notice in result["notices"])
    assert "labels are not protected" in (folder / "run" / "model.json").read_text()
    exported = json.loads((folder / "run" / "ledger.json").read_text())
    assert [len(party["events"]) for party in exported["parties"]] == [1, 1]
    cost = called(place, "account", folder / "job.toml")
    assert cost["certified"]["epsilon"] == found["epsilon"]
    assert cost["per_person"] == found["per_person"]


def test_a_run_says_what_protects_whom(folder: Path, place: Any) -> None:
    said = place.call("train", folder / "job.toml", "--out", folder / "run")
    assert said.code == 0, said.err
    words = " ".join(said.out.split())
    assert "over all parties together" in words
    assert "labels are not protected" in words
    path = edited(folder, ('adjacency = "person"', 'adjacency = "person"\nlabel_epsilon = 1.0'))
    words = " ".join(place.call("account", path).out.split())
    assert "randomised once, epsilon = 1" in words
    assert "labels are not protected" not in words


def test_the_first_party_alone(folder: Path, place: Any) -> None:
    path = edited(folder, ('split = "features"', 'split = "features"\nuse = "first"'))
    called(place, "train", path, "--out", folder / "run")
    assert Model.load(folder / "run" / "model.json").frame.columns == ("income",)


def test_a_column_as_neighbour(folder: Path, place: Any) -> None:
    path = edited(folder, ('adjacency = "person"', 'adjacency = "column"'), ("ball = 2.0", "column_bound = 5.0"))
    found = called(place, "train", path, "--out", folder / "run")
    assert found["epsilon"] == pytest.approx(3.0)
    assert found["per_person"] is None
    assert not Model.load(folder / "run" / "model.json").frame.clipped


WRONG = {
    "horizontal method": (
        ('name = "sharing"', 'name = "dp_admm"\nD_w = 3.0'),
        ("ball = 2.0\n", ""),
        "hold records",
    ),
    "no ids": (('id = "who"\n', ""), ("", ""), "id: missing"),
    "both": (("files = [", 'columns = [["income"], ["age"]]\nfiles = ['), ("", ""), "one of the two"),
    "bounds": (
        ('split = "features"', 'split = "features"\nrow_bounds = [1.0]'),
        ("", ""),
        "as many as parties",
    ),
    "a vertical method": (
        ('split = "features"', 'count = 2\nsplit = "even"'),
        ('files = ["bank.csv", "shop.csv"]\n', ""),
        "hold columns",
    ),
    "files of others": (('split = "features"', 'count = 2\nsplit = "even"'), ("", ""), "only for split"),
    "unit rows": (
        ("row_bound = 1.0", 'rows = "unit"'),
        ('adjacency = "person"', 'adjacency = "column"'),
        "forbids that",
    ),
    "too many columns": (('files = ["bank.csv", "shop.csv"]', "columns = [1, 2]"), ("", ""), "sum to"),
}


@pytest.mark.parametrize(("first", "second", "message"), WRONG.values(), ids=WRONG.keys())
def test_configs_that_do_not_fit_are_refused(
    folder: Path, place: Any, first: tuple[str, str], second: tuple[str, str], message: str
) -> None:
    path = edited(folder, *(change for change in (first, second) if change[0]))
    if message == "sum to":
        text = path.read_text().replace("labels.csv", "shop.csv").replace('label = "y"', 'label = "age"')
        path.write_text(
            text.replace('classes = ["no", "yes"]', "").replace(
                "[regularizer]", '[loss]\nname = "squared"\nlabel_bound = 3.0\n\n[regularizer]'
            )
        )
    said = place.call("train", path, "--out", folder / "run", "--json")
    assert said.code == 2, said.out
    assert message in said.object["message"]
    assert not (folder / "run").exists()
