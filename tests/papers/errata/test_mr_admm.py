"""Where the paper on recycled ADMM is wrong: one test for each, which would fail if the paper were right."""

import math

import numpy as np
import pytest

from cases import DIM, SIZES, shards
from privadmm.algorithms import convergence
from privadmm.algorithms.mr_admm import MRADMM
from privadmm.data import adult
from privadmm.data.arrays import Floats
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Logistic
from privadmm.optim.regularizers import L2
from privadmm.papers.mr_admm.runs import STILL
from privadmm.privacy.accounting import pure
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import GammaObjective
from privadmm.privacy.mechanisms import Simulation


def public(graph: Graph, rounds: int, privacy: Target | NoPrivacy, sizes: tuple[int, ...] = SIZES) -> Public:
    return Public(
        sizes=np.array(sizes),
        dim=DIM,
        rounds=rounds,
        graph=graph,
        loss=Logistic(),
        regularizer=L2(0.01),
        privacy=privacy,
    )


def test_with_unequal_penalties_the_limit_is_another() -> None:
    """Theorem IV.1 says that the limit minimises sum O_i; with penalties of the nodes' own it is sum O_i/eta_i."""
    from scipy.optimize import minimize

    own, data = (0.05, 0.2, 0.1, 0.4, 0.1), shards()
    facts = public(graphs.random(5, 5, seed=3), 400, NoPrivacy())
    job = Job(MRADMM(party_eta=own, gamma=0.2, tolerance=1e-7), facts)
    found = weights(job, train(job, cluster(job, data, Simulation(0))))

    def best(share: Floats) -> Floats:
        def total(w: Floats) -> float:
            losses = facts.loss.value(data.margins(np.broadcast_to(w, (len(SIZES), DIM))), data.y)
            each = facts.scale(facts.ids)[:, 0] / data.sizes * data.sums(losses) + facts.regularizer.value(w)
            return float(share @ each / share.sum())

        return np.asarray(minimize(total, np.zeros(DIM), method="BFGS", options={"gtol": 1e-9}).x)

    assert np.linalg.norm(found - best(1 / np.array(own))) < 1e-2
    assert np.linalg.norm(found - best(np.ones(5))) > 0.05


@pytest.mark.parametrize("graph", [graphs.ring(4), graphs.complete(2)], ids=["ring of four", "two nodes"])
def test_no_gamma_meets_the_conditions_on_a_bipartite_graph(graph: Graph) -> None:
    """A large gamma is said always to meet (i) and (ii); where D + A is singular none does."""
    facts = public(graph, 2, NoPrivacy(), (8,) * graph.n)
    ones = np.ones(graph.n)
    assert convergence.smallest_gamma(facts, [(ones, ones)]) is None
    assert not any(convergence.met(facts, [(ones, ones)], 10.0**power) for power in range(9))
    odd = public(graphs.ring(5), 2, NoPrivacy(), (8,) * 5)
    assert convergence.smallest_gamma(odd, [(np.ones(5), np.ones(5))]) is not None


def test_what_algorithm_3_stores_is_the_argmin_before_its_noise() -> None:
    """The stored eps + O' is said to be an existing result; with public values it is the argmin itself, un-noised."""
    rng = np.random.default_rng(0)
    eta, V, dual, heard = 0.5, 2, rng.normal(size=3), rng.normal(size=3)  # sum_j (f_i + f_j)(2k-2)
    argmin = rng.normal(size=3)
    stored = -2 * dual - eta * (2 * V * argmin - heard)  # by (18)'s optimality
    told = (heard - (stored + 2 * dual) / eta) / (2 * V)
    released = argmin + 1e-3 * rng.normal(size=3)  # the noise that makes an inexact argmin private
    assert np.allclose(told, argmin, atol=1e-12)
    assert np.linalg.norm(released - argmin) > 1e-4


def test_the_optimality_condition_has_a_parenthesis_too_early() -> None:
    """Below (18), the sum over neighbours closes after 2 f_i(2k-1); the gradient then does not vanish."""
    rng = np.random.default_rng(0)
    eta, dual = 0.5, rng.normal(size=3)
    before, others = rng.normal(size=3), rng.normal(size=(2, 3))
    centre = ((before + others) / 2).sum(axis=0)
    f = (2 * eta * centre - 2 * dual - before) / (1 + 2 * eta * 2)  # O = |f|^2/2 + before.f, no noise
    gradient = f + before
    meant = -2 * dual - eta * (2 * f - before - others).sum(axis=0)
    printed = -2 * dual - eta * 2 * (2 * f) - before - others[0]  # for either neighbour
    assert np.allclose(gradient, meant, atol=1e-12)
    assert np.linalg.norm(gradient - printed) > 0.1


def test_the_step_of_an_even_round_has_the_neighbours_in_it() -> None:
    """Section III-A calls 1/(2 eta + gamma) the step size; (10) divides by 2 eta V_i + gamma."""
    eta, V, gamma = 0.5, 3.0, 0.5
    rng = np.random.default_rng(0)
    f, odd, before, heard = rng.normal(size=(4, 3))
    moved = MRADMM(eta=eta, gamma=gamma).recycled(np.array(eta), np.array(V), f, odd, before, heard) - f
    pull = eta * (2 * odd - V * before - heard)
    assert np.allclose(moved, pull / (2 * eta * V + gamma))
    assert not np.allclose(moved, pull / (2 * eta + gamma))


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_the_total_counts_curvature_nearly_three_times(alpha: float) -> None:
    """(32) has 2.8 w for a round's curvature; ln(1 + w), less than w, is enough."""
    C_over_B, c, k = 1750 / 8000, 1 / 4, 0.22 / 5 + 2 * 2
    w = C_over_B * c / k
    claimed = 2 * C_over_B * (1.4 * c / k + alpha)
    certified = pure(GammaObjective(2 * alpha * C_over_B, w))
    assert certified is not None
    assert certified == pytest.approx(2 * alpha * C_over_B + math.log1p(w))
    assert claimed - certified > 1.7 * w


def test_half_the_rounds_of_admm_cost_what_recycled_rounds_do() -> None:
    """R-ADMM is compared with ADMM of twice the releases; ADMM stopped half way has its releases, noise and cost."""
    privacy, graph = Target(None, 1e-6, Simulation.kind), graphs.ring(5)

    def job(gamma: float, rounds: int, alpha: float = 20.0) -> Job:
        method = MRADMM(eta=3.0, gamma=gamma, calibration="published", alpha=alpha)
        return Job(method, public(graph, rounds, privacy))

    recycled, stopped, twice = job(0.5, 4), job(STILL, 4), job(STILL, 8)
    assert recycled.plan == stopped.plan
    assert recycled.epsilon == stopped.epsilon
    assert recycled.epsilon is not None
    assert twice.epsilon is not None
    assert twice.epsilon > 1.3 * recycled.epsilon


def test_adult_has_45222_complete_records() -> None:
    """Section VIII counts 45,223 individuals after pre-processing."""
    assert len(adult.load("onehot")) == 45_222
