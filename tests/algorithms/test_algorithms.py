"""Without noise every method solves its problem: compared with scikit-learn on Adult and scipy on small instances."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.optimize import minimize

from cases import ALGORITHMS, CASES, SIZES, Case, least_objective, named, objective, shards
from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.admm_star import ADMMStar
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data import adult, splits
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.optim import graphs
from privadmm.optim.losses import Hinge, Logistic, Squared
from privadmm.optim.regularizers import L1, L2
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import DiscreteGaussian
from privadmm.privacy.mechanisms import Simulation

WEIGHT = 1e-3


@cache
def adult_shards() -> Shards:
    found = adult.load()
    rows = splits.gather(found.X, splits.even(len(found), 10, seed=0), 10)
    return Shards.build(found.X, found.y, rows, row_bound=adult.SCHEMA.row_bound)


@cache
def pooled_optimum() -> float:
    """The optimum by scikit-learn of the same objective on the same clipped rows, without a separate intercept."""
    from sklearn.linear_model import LogisticRegression

    found = adult.load()
    norms = np.linalg.norm(found.X, axis=1, keepdims=True)
    A = found.X / np.maximum(norms, adult.SCHEMA.row_bound)
    pooled = LogisticRegression(C=1 / (WEIGHT * len(A)), fit_intercept=False, tol=1e-10, max_iter=5000).fit(A, found.y)
    w = pooled.coef_[0]
    return float(np.logaddexp(0, -found.y * (A @ w)).mean() + WEIGHT / 2 * w @ w)


@pytest.mark.parametrize(
    ("algorithm", "graph", "rounds"),
    [
        pytest.param(ADMMStar(rho=0.01, tolerance=1e-11), graphs.star(10), 200, id="star"),
        pytest.param(ADMMGraph(eta=0.003, tolerance=1e-11), graphs.random(10, 13, seed=0), 600, id="graph"),
    ],
)
def test_both_forms_reach_the_pooled_optimum_on_adult(algorithm: Algorithm, graph: graphs.Graph, rounds: int) -> None:
    data = adult_shards()
    public = Public(data.sizes, data.dim, rounds, graph, Logistic(), L2(WEIGHT), NoPrivacy())
    job = Job(algorithm, public)
    blocks = cluster(job, data, Simulation(0))
    w = weights(job, train(job, blocks))
    best = pooled_optimum()
    assert abs(objective(public, data, w) - best) <= 1e-6 * best
    assert np.linalg.norm(blocks.local_models() - w, axis=-1).max() < 1e-8


EXACT = [
    case
    for case in ALGORITHMS
    if case.name in ("admm_star", "admm_star-relaxed", "admm_graph", "admm_graph-ring-huber")
]


@pytest.mark.parametrize("case", EXACT, ids=named)
def test_exact_methods_agree_with_scipy_with_unequal_parties(case: Case) -> None:
    job, data = case.job(rounds=800), shards()
    w = weights(job, train(job, cluster(job, data, Simulation(0))))
    assert objective(job.public, data, w) == pytest.approx(least_objective(job.public, data), rel=1e-9)


def test_over_relaxed_it_is_as_near_after_two_thirds_of_the_rounds() -> None:
    data = shards()

    def off(relaxation: float, rounds: int) -> float:
        job = replace(EXACT[0], algorithm=ADMMStar(0.5, relaxation=relaxation)).job(rounds=rounds)
        w = weights(job, train(job, cluster(job, data, Simulation(0))))
        return objective(job.public, data, w) - least_objective(job.public, data)

    plain = off(1.0, 60)
    assert 0 < off(1.5, 40) <= 1.01 * plain
    assert off(0.5, 60) > 2 * plain  # under-relaxed it takes longer


def test_the_papers_weighting_counts_every_party_alike() -> None:
    case = replace(EXACT[0], weighting="parties")
    job, data = case.job(rounds=800), shards()
    w = weights(job, train(job, cluster(job, data, Simulation(0))))

    def mean_of_means(w: np.ndarray) -> float:
        losses = Logistic().value(data.margins(np.broadcast_to(w, (len(SIZES), 4))), data.y)
        return float((data.sums(losses) / data.sizes).mean() + case.regularizer.value(w))

    best = minimize(mean_of_means, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).fun
    assert mean_of_means(w) == pytest.approx(best, rel=1e-9)
    assert objective(job.public, data, w) > least_objective(job.public, data) * (1 + 1e-6)


def test_dp_admm_without_noise_reaches_the_optimum() -> None:
    case = CASES["dp_admm-off"]
    job, data = case.job(rounds=3000), shards()
    w = weights(job, train(job, cluster(job, data, Simulation(0))))
    assert objective(job.public, data, w) == pytest.approx(least_objective(job.public, data), rel=1e-8)


def test_l1_on_a_star_zeroes_what_scipy_zeroes() -> None:
    """At the optimum |gradient_j| <= weight where w_j = 0, and = weight elsewhere."""
    case = replace(EXACT[0], regularizer=L1(0.02))
    job, data = case.job(rounds=2000), shards()
    w = weights(job, train(job, cluster(job, data, Simulation(0))))
    scores = data.margins(np.broadcast_to(w, (len(SIZES), 4)))
    gradient = data.pull(Logistic().deriv(scores, data.y)).sum(axis=0) / sum(SIZES)
    zero = w == 0
    assert zero.any()
    assert not zero.all()
    assert (np.abs(gradient[zero]) <= 0.02 + 1e-8).all()
    assert np.allclose(gradient[~zero], -0.02 * np.sign(w[~zero]), atol=1e-7)


@pytest.mark.parametrize("step_size", ["smooth", "nonsmooth"])
@pytest.mark.parametrize("regularizer", [L2(1e-3), L1(1e-3)], ids=["l2", "l1"])
def test_dp_admm_learns_under_its_budget(step_size: str, regularizer: L1 | L2) -> None:
    """A generous budget on an easy problem: far better than the blank model, with either schedule."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4))
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    data = Shards.build(X, y, np.array_split(np.arange(4000), 4), row_bound=2.0)
    algorithm = DPADMM(D_w=5.0, rho=0.1, step_size=step_size)  # type: ignore[arg-type]
    public = Public(data.sizes, 4, 60, graphs.star(4), Logistic(), regularizer, Target(5.0, 1e-5))
    if step_size == "smooth" and isinstance(regularizer, L1):
        with pytest.raises(ConfigError, match='step_size = "nonsmooth"'):
            Job(algorithm, public)
        return
    job = Job(algorithm, public)
    w = weights(job, train(job, cluster(job, data, Simulation(0))))
    assert np.mean(np.sign(X @ w) == y) > 0.95


REFUSED = {
    "graph method on a star": (ADMMGraph(), graphs.star(5), Logistic(), L2(0.1), NoPrivacy(), "needs edges"),
    "star method on a ring": (
        ADMMStar(),
        graphs.ring(5),
        Logistic(),
        L2(0.1),
        NoPrivacy(),
        "needs a coordinator",
    ),
    "l1 on a graph": (ADMMGraph(), graphs.ring(5), Logistic(), L1(0.1), NoPrivacy(), "smooth regulariser"),
    "hinge in an argmin": (ADMMStar(), graphs.star(5), Hinge(), L2(0.1), NoPrivacy(), "smooth loss"),
    "hinge with the smooth step": (
        DPADMM(D_w=1.0),
        graphs.star(5),
        Hinge(),
        L2(0.1),
        Target(1.0, 1e-5),
        "nonsmooth",
    ),
    "squared without a radius": (
        DPADMM(D_w=1.0),
        graphs.star(5),
        Squared(1.0),
        L2(0.1),
        Target(1.0, 1e-5),
        "radius",
    ),
    "a budget for what has none": (
        ADMMStar(),
        graphs.star(5),
        Logistic(),
        L2(0.1),
        Target(1.0, 1e-5),
        "not private",
    ),
    "no total for certified noise": (
        DPADMM(D_w=1.0),
        graphs.star(5),
        Logistic(),
        L2(0.1),
        Target(None, 1e-5),
        "epsilon",
    ),
    "published noise in a deployment": (
        DPADMM(D_w=1.0, calibration="published", round_epsilon=0.1),
        graphs.star(5),
        Logistic(),
        L2(0.1),
        Target(None, 1e-3, DiscreteGaussian),
        "deployment refuses",
    ),
}


@pytest.mark.parametrize("parts", REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_proof_is_refused_at_once(parts: tuple) -> None:  # type: ignore[type-arg]
    algorithm, graph, loss, regularizer, privacy, message = parts
    with pytest.raises(ConfigError, match=message):
        Job(algorithm, Public(np.full(5, 10), 3, 2, graph, loss, regularizer, privacy)).plan  # noqa: B018


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sizes": np.array([3, 0, 2])}, "party 1 has no records"),
        ({"sizes": np.array([], dtype=int)}, "at least one party"),
        ({"rounds": 0}, "rounds"),
        ({"C": -1.0}, "C must be"),
    ],
)
def test_public_facts_must_make_sense(wrong: dict, message: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(PrivadmmError, match=message):
        replace(CASES["admm_star"].public(), **wrong)


def test_replicas_are_runs_of_their_own() -> None:
    """A replica axis gives the same model as a plain run up to rounding: one matrix product replaces several."""
    case = CASES["dp_admm"]
    plain, many = case.job(), case.job(replicas=3)
    one = weights(plain, train(plain, cluster(plain, shards(), Simulation(0))))
    three = weights(many, train(many, cluster(many, shards(), Simulation(0))))
    assert three.shape == (3, 4)
    assert np.allclose(three[0], one, rtol=1e-10, atol=1e-12)
    assert not np.allclose(three[0], three[1])
