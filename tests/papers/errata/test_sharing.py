"""Where the ADMM sharing paper is wrong: one test for each, which would fail if the paper were right."""

import math

import numpy as np
import pytest

from privadmm.algorithms.admm_sharing import ADMMSharing
from privadmm.algorithms.sharing import Sharing
from privadmm.data import adult
from privadmm.data.columns import Columns, People
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.public import Public
from privadmm.errors import RefusedError
from privadmm.optim import graphs
from privadmm.optim.losses import Logistic
from privadmm.optim.regularizers import L2
from privadmm.papers.counterexamples import columns as attacks
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import NotPrivate
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.ridge_sensitivity import lemma_1, moves


def people(parties: int = 2, n: int = 40) -> People:
    """Parties whose columns tell nearly the same, as those of a census do."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=(n, 2))
    parts = [common + 0.2 * rng.normal(size=(n, 2)) for _ in range(parties)]
    y = np.where(common.sum(axis=1) + rng.normal(size=n) > 0, 1.0, -1.0)
    return People.build(Columns.build(parts, row_bounds=[1.0] * parties), y)


def public(data: People, privacy: Target | NoPrivacy, rounds: int = 4) -> Public:
    graph = graphs.star(len(data.widths))
    return Public(data.sizes, data.dim, rounds, graph, Logistic(), L2(1e-3), privacy, columns=data.widths)


def test_lemma_1_is_no_bound() -> None:
    """Lemma 1's 3/(d rho) (lambda c1 + (1 + M rho) b1) is passed ninefold within its own assumptions."""
    case = attacks.lemma1_counterexample()
    claimed = float(lemma_1(100, rho=1.0, lam=0.01, parties=2, b1=1.0))
    assert case.moved()[0] > 9 * claimed
    assert case.moved()[0] <= attacks.column_bound(case)[0]  # what is true instead


def test_rows_of_norm_one_do_not_give_that_inverse() -> None:
    """The proof of Lemma 1 puts |(D^T D)^-1| at 1/d for rows of norm 1; it is d/N for copies of a basis."""
    D = attacks.lemma1_counterexample(N=400, d=100).D[0]
    assert np.linalg.norm(D, axis=1) == pytest.approx(np.ones(400))
    assert np.linalg.norm(np.linalg.inv(D.T @ D), 2) == pytest.approx(100 / 400)


def test_the_inverse_need_not_exist() -> None:
    """The proof of Lemma 1 inverts D^T D; the columns of a9a, on which the paper runs, are dependent."""
    found = adult.load("a9a").X[:5000]
    for part in (found[:, :66], found[:, 66:]):
        dense = part.toarray()
        present = dense[:, dense.any(axis=0)]
        assert np.linalg.matrix_rank(present) < present.shape[1]


def test_noise_on_weights_hides_nothing() -> None:
    """(7) puts noise on the weights; D (x + xi) then stays in the span of D's columns, and tells D from another."""
    rng = np.random.default_rng(0)
    D = rng.normal(size=(50, 5))
    neighbour = D.copy()
    neighbour[:, 0] += 0.01 * rng.normal(size=50)
    for sigma in (1.0, 1e6):
        u = D @ (rng.normal(size=5) + sigma * rng.normal(size=5))
        size = float(np.linalg.norm(u))
        assert attacks.distance_to_columns(u, D) < 1e-10 * size
        assert attacks.distance_to_columns(u, neighbour) > 1e-6 * size
    noisy = D @ rng.normal(size=5) + rng.normal(size=50)  # on the scores instead
    assert attacks.distance_to_columns(noisy, D) > 1


def test_norms_grow_with_people() -> None:
    """Assumption 1 bounds |y| and |z| by a constant; both have an entry a person, and grow as the root of N."""
    sizes = {}
    for n in (100, 10_000):
        labels = np.where(np.arange(n) % 2, 1.0, -1.0)
        z = Logistic().prox(np.zeros(n), labels, 1.0)  # (8)
        sizes[n] = (
            float(np.linalg.norm(z)),
            float(np.linalg.norm(-z)),
        )  # (8) and (9) of the first round, rho = 1
    for few, many in zip(sizes[100], sizes[10_000], strict=True):
        assert many == pytest.approx(10 * few)
    assert min(sizes[10_000]) > 1


def test_a_column_is_not_a_person() -> None:
    """Definition 1 replaces a column; a person is a row, is in every column, and moves scores beyond Lemma 1 too."""
    D = attacks.lemma1_counterexample().D[0]
    other = D.copy()
    other[0] *= -1  # rows keep their norm of 1
    assert (other != D).any(axis=0).mean() > 0.9
    lam, rho, eye = 0.01, 1.0, np.eye(100)
    hats = [B @ np.linalg.solve(B.T @ B + lam / rho * eye, B.T) for B in (D, other)]
    t = 2 * np.linalg.eigh(hats[0] - hats[1])[1][:, -1]  # z - y/rho with |z| = |y| = 1
    moved = float(np.linalg.norm((hats[0] - hats[1]) @ t))
    assert moved > float(lemma_1(100, rho=rho, lam=lam, parties=2, b1=1.0))
    with pytest.raises(RefusedError, match="person"):
        moves("person", t[None], 100, lam / rho, None, 1.0, 20.0)  # nothing is certified without a ball


def test_the_weights_leave_bare() -> None:
    """Corollary 1 counts the scores of training alone; a prediction needs the weights, which get no noise."""
    data = people()
    method = Sharing(rho=1.0, calibration="published", round_epsilon=0.5)
    job = Job(method, public(data, Target(None, 1e-5, Simulation.kind, "column")))
    ((last,),) = (job.plan[(3, 1)],)
    assert all(isinstance(event, NotPrivate) for event in last)
    assert job.epsilon is None
    assert job.published is not None
    assert job.published.epsilon is not None


@pytest.mark.parametrize(("parties", "rho"), [(2, 0.05), (10, 0.3)])
def test_the_parallel_update_diverges(parties: int, rho: float) -> None:
    """(6), with all parties at once, is said to converge; it diverges where rho is small or parties are many."""
    data = people(parties)
    ends = {}
    for form in ("printed", "sharing"):
        job = Job(ADMMSharing(rho=rho, form=form), public(data, NoPrivacy(), rounds=200))  # type: ignore[arg-type]
        w = weights(job, train(job, cluster(job, data, Simulation(0))))
        ends[form] = float(Logistic().value(data.scores(w), data.y).mean())
    assert ends["printed"] > 1 > math.log(2) > ends["sharing"]


def test_twenty_rounds_do_not_confine_the_loss() -> None:
    """Section 4 calls the loss confined below 20 rounds; by its own (10) it is above 50 at epsilon = 1 a round."""
    data = people()
    method = Sharing(rho=1.0, calibration="published", round_epsilon=1.0)
    job = Job(method, public(data, Target(None, 1e-5, Simulation.kind, "column"), rounds=19))
    assert job.published is not None
    assert job.published.epsilon is not None
    assert job.published.epsilon > 50
