"""Where the DP-ADMM paper is wrong: one test for each, which would fail if the paper were right."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from privadmm.algorithms.dp_admm import DPADMM, State
from privadmm.algorithms.pvp import PVP
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import Logistic
from privadmm.optim.regularizers import L2
from privadmm.papers.dp_admm.runs import best
from privadmm.papers.dp_admm.theory import Constants, corrected, dp_admm, published
from privadmm.privacy.accounting import classical_ratio, epsilon, moments_accountant
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import Gaussian
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released

EPS, DELTA, T = 0.05, 1e-3, 100  # a setting whose total the paper prints
PRINTED = 0.5009


def records(seed: int = 0, parties: int = 3, m: int = 20, dim: int = 4) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(seed)
    tables = [rng.normal(size=(m, dim)) for _ in range(parties)]
    return [(X, np.where(X[:, 0] + 0.3 * rng.normal(size=m) > 0, 1.0, -1.0)) for X in tables]


def public(shards: Shards, privacy: Any, rounds: int = 10, weight: float = 0.0017) -> Public:
    graph = graphs.star(len(shards.sizes))
    return Public(shards.sizes, shards.dim, rounds, graph, Logistic(), L2(weight), privacy, weighting="parties")


@dataclass(frozen=True)
class Line6(DPADMM):
    """Algorithm 3 with its line 6 as printed: the noise goes on top of the last noisy iterate."""

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        gamma = s.gamma - self.rho * (s.w - inbox.broadcast)
        wt = release.output(s.w, sensitivity=local.moves / (self.rho + self.inverse_eta(t, local)))
        return State(wt.value, gamma), wt.map(lambda w: w - gamma / self.rho)


def test_line_6_of_algorithm_3_learns_nothing() -> None:
    """Line 6 adds noise to the last noisy iterate; (3b) is meant, since as printed no data ever enter."""
    given = records()
    flipped = [(X, -y) for X, y in given]
    models = {}
    for method in (Line6(D_w=1.0), DPADMM(D_w=1.0)):
        for name, parts in (("given", given), ("flipped", flipped)):
            shards = Shards.from_parties(parts, row_bound=4.0)
            job = Job(method, public(shards, Target(1.0, DELTA, Simulation.kind)), id="same")
            models[type(method), name] = weights(job, train(job, cluster(job, shards, Simulation(0))))
    assert np.array_equal(models[Line6, "given"], models[Line6, "flipped"])
    assert not np.allclose(models[DPADMM, "given"], models[DPADMM, "flipped"])


def test_the_log_moment_has_epsilon_squared() -> None:
    """Appendix A prints a log moment linear in epsilon; only epsilon^2 gives the totals of section VI."""
    assert moments_accountant(EPS, DELTA, T) == pytest.approx(PRINTED, abs=5e-5)
    as_printed = moments_accountant(math.sqrt(EPS), DELTA, T)  # its square is EPS
    assert as_printed > 4 * PRINTED


def test_the_total_has_no_such_lower_bound() -> None:
    """Appendix A derives a total of sqrt(T ln(1/delta)/ln(1.25/delta)) epsilon or more; the exact one is far less."""
    least = math.sqrt(T * math.log(1 / DELTA) / math.log(1.25 / DELTA)) * EPS
    exact = epsilon(((Gaussian(classical_ratio(EPS, DELTA)), T),), DELTA)
    assert exact == pytest.approx(0.2772, abs=1e-4)
    assert exact < 0.6 * least
    assert least < PRINTED


def test_the_sensitivity_of_algorithm_2_forgets_the_penalty() -> None:
    """Algorithm 2's argmin moves by 2 S1/(m (lambda/N + rho)) at most, not by the paper's 2 S1 N/(m lambda)."""
    rho, weight, m = 1.0, 0.0017, 20  # lambda/N = 0.17/100
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(m, 4)), np.ones(m)
    moved = []
    for _ in range(20):
        both = []
        for row, label in ((rng.normal(size=4), 1.0), (rng.normal(size=4), -1.0)):
            X[0], y[0] = row, label
            shards = Shards.from_parties([(X, y)], row_bound=1.0)
            local, zero = Local(public(shards, NoPrivacy(), weight=weight), shards), np.zeros((1, 4))
            both.append(local.argmin(zero, rho + weight, zero, zero, 1e-10))
        moved.append(float(np.linalg.norm(both[0] - both[1])))
    assert 0 < max(moved) <= 2 / (m * (rho + weight)) < 2 / (m * weight) / 500
    shards = Shards.from_parties(records(), row_bound=4.0)
    facts = public(shards, Target(None, DELTA, Simulation.kind))
    assert PVP(rho=1.0, calibration="published", round_epsilon=EPS).excess(facts) == pytest.approx(589.2, abs=0.1)


def noisy_constants(step: Any) -> Constants:
    shards = Shards.from_parties(records(parties=2, m=10), row_bound=4.0)
    return Constants.of(DPADMM(D_w=1.0, step_size=step), public(shards, Target(0.1, DELTA, Simulation.kind)), 1.0)


def test_theorem_3_knows_no_noise() -> None:
    """Theorem 3 is the same for any noise: Appendix C drops d v^2 from E |f' - (rho + 1/eta) xi|^2."""
    c = noisy_constants("nonsmooth")
    louder = replace(c, v=100 * c.v)
    assert published(louder, 10) == published(c, 10)
    assert corrected(louder, 10) > 1000 * corrected(c, 10)
    rng, slope = np.random.default_rng(0), np.array([0.6, 0.0, 0.8, 0.0])
    squares = np.square(slope - 2.0 * rng.normal(size=(100_000, 4))).sum(axis=1)
    assert squares.mean() == pytest.approx(1 + 4 * 2.0**2, rel=0.02)


def test_theorem_4_counts_one_coordinate_of_the_noise() -> None:
    """Appendix E takes one coordinate's square for |xi|^2, which has d of them: with d = 60 the bound is exceeded."""
    shards = Shards.from_parties(records(parties=2, m=10, dim=60), row_bound=8.0)
    facts = public(shards, Target(1.0, 1e-5, Simulation.kind), weight=1.0)
    found = dp_admm(Job(DPADMM(D_w=1.0, rho=0.1), facts), shards, Simulation(0), 20, 1.0, lambda done, of: None)
    assert found["conditions"][0]["holds"]  # |w*| <= D_w, all that the theorem asks
    assert found["rounds_above_published"] >= 8
    assert found["rounds_above_corrected"] == 0


def test_falling_steps_do_not_telescope() -> None:
    """Appendices C and E let a sum with growing 1/eta telescope; that needs |w_i^k - w*| <= D_w in every round."""
    steep = np.sqrt(2 * np.arange(1.0, 4.0))  # 1/eta_k of Theorem 3, D_w = S1 = 1
    distances = np.array([0.0, 9.0, 9.0, 0.0])  # of the iterates from w*: the first is w* itself
    left = float(np.sum(steep * -np.diff(distances)) / 2)
    assert left > steep[-1] * distances[0] / 2
    assert left <= steep[-1] * distances.max() / 2  # what holds instead


def test_the_pretrained_bound_is_a_release() -> None:
    """Section VI takes D_w from 162 private records and counts nothing for it: one other label gives another D_w."""
    ((X, y),) = records(parties=1, m=162)
    found = []
    for label in (1.0, -1.0):
        y[0] = label
        found.append(float(np.linalg.norm(best(Shards.from_parties([(X, y)], row_bound=4.0), "l2").w)))
    assert abs(found[0] - found[1]) > 1e-6
