"""PDML: its optimum without noise and with (14), the cost of its noise, and eta, which is drawn once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import CASES, DIM, SIZES, optimum, shards
from privadmm.algorithms.pdml import PDML
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim import graphs
from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, Logistic, Loss, Squared
from privadmm.optim.regularizers import L1, L2, Regularizer
from privadmm.privacy import curves
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import DiscreteGaussian, Gaussian
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.sqlite_ledger import SqliteLedger


def test_without_noise_the_iterates_reach_the_optimum_and_their_mean_follows() -> None:
    job = CASES["pdml-off"].job(rounds=2000)
    blocks = cluster(job, shards(), Simulation(0))
    w = weights(job, train(job, blocks))
    best = optimum(job.public, shards())
    np.testing.assert_allclose(blocks.local_models(), np.tile(best, (len(SIZES), 1)), atol=1e-6)
    # The first rounds stay in the mean with weight 1/t.
    assert np.linalg.norm(w - best) < 0.02 * np.linalg.norm(best)


def test_the_model_is_the_mean_of_everything_that_was_released() -> None:
    job, tape = CASES["pdml-uneven"].job(), []
    progress = train(job, cluster(job, shards(), Simulation(0)), [lambda v: tape.append(v.released.values)])
    np.testing.assert_allclose(weights(job, progress), np.mean(tape, axis=(0, 1)), rtol=1e-12)
    # The neighbours receive the messages themselves, not the mean.
    assert progress.mail.values.tobytes() == tape[-1].tobytes()


def test_the_noise_in_the_objective_is_bounded_and_shifts_the_optimum_as_printed() -> None:
    """(14): sum_i eta_i.w/n over the parties, that is mean(eta)/n beside the mean of the J_i."""
    case = replace(CASES["pdml-off"], algorithm=PDML(beta=0.1, R=0.5))
    job = case.job(rounds=2000)
    blocks = cluster(job, shards(), Simulation(0))
    train(job, blocks)
    eta = blocks.workers[0].local.kept["eta"]
    assert eta.shape == (len(SIZES), DIM)
    assert 0.3 < np.abs(eta).max() <= 0.5
    assert len(np.unique(eta)) == eta.size
    best = optimum(job.public, shards(), eta.mean(axis=0) / len(SIZES))
    np.testing.assert_allclose(blocks.local_models(), np.tile(best, (len(SIZES), 1)), atol=1e-6)
    assert np.linalg.norm(best - optimum(job.public, shards())) > 1e-3


def test_it_is_drawn_once_and_a_resumed_job_has_it_again(tmp_path: Path) -> None:
    job, kept = CASES["pdml-bounded"].job(), []
    for seed in (0, 1):  # another process and noise stream: the stored draw is used
        ledger = SqliteLedger(tmp_path / "ledger", range(len(SIZES)), job.policy, "simulation")
        kept.append(cluster(job, shards(), Simulation(seed), ledger).workers[0].local.kept["eta"])
        ledger.close()
    assert kept[0].tobytes() == kept[1].tobytes()
    fresh = cluster(job, shards(), Simulation(1)).workers[0].local.kept["eta"]
    assert fresh.tobytes() != kept[0].tobytes()


def test_it_earns_no_privacy() -> None:
    plain, bounded = (replace(CASES["pdml-bounded"], algorithm=PDML(beta=0.1, R=R)).job().plan for R in (0.0, 2.0))
    assert plain == bounded


def test_decaying_noise_costs_what_the_formula_says() -> None:
    """docs/privacy.md#minimiser: mu^2 = (Delta/V)^2 sum_t rho^-(t-1), with V given; k = that of R + 2 beta N_i."""
    case, delta, decay, rounds = CASES["pdml-published"], 1e-5, 0.9, 4
    job = case.job(rounds=rounds)
    Delta = 2 / np.array(SIZES) / (0.01 + 2 * 0.1 * 2)  # a ring: two neighbours
    mu = Delta.max() / 0.5 * np.sqrt(sum(decay**-t for t in range(rounds)))
    assert job.epsilon == pytest.approx(curves.gdp_epsilon(mu, delta), rel=1e-6)
    claim = job.published
    assert claim is not None
    assert claim.epsilon is None
    assert "no figure" in claim.caveat


def test_the_published_noise_is_v_in_the_first_round_and_decays() -> None:
    job, seen = CASES["pdml-published"].job(), []

    class Looking(Simulation):
        def gaussian(self, x: Any, sensitivity: Any, ratio: Any, *rest: Any) -> Any:
            seen.append(sensitivity * ratio)
            return super().gaussian(x, sensitivity, ratio, *rest)

    train(job, cluster(job, shards(), Looking(0)))
    expected = 0.5 * 0.9 ** (np.arange(4) / 2)[:, None] * np.ones(len(SIZES))
    np.testing.assert_allclose(seen, expected, rtol=1e-6)
    assert (np.array(seen) >= expected * (1 - 1e-15)).all()


def test_certified_noise_decays_likewise() -> None:
    plan = CASES["pdml"].job().plan
    events = [plan[(t, 0)][0][0] for t in range(4)]
    assert all(isinstance(event, Gaussian) for event in events)
    ratios = np.array([event.ratio for event in events if isinstance(event, Gaussian)])
    np.testing.assert_allclose(ratios[1:] / ratios[:-1], np.sqrt(0.9))


REFUSED: dict[str, tuple[PDML, Loss, Regularizer, Target, str]] = {
    "the hinge": (PDML(), Hinge(), L2(0.1), Target(1.0, 1e-5), "smooth loss"),
    "l1": (PDML(), Logistic(), L1(0.1), Target(1.0, 1e-5), "smooth regulariser"),
    "squared without a radius": (PDML(), Squared(1.0), L2(0.1), Target(1.0, 1e-5), "radius"),
    "randomised labels with the half-logistic": (
        PDML(),
        Debiased(HalfLogistic(), 1.0),
        L2(0.1),
        Target(1.0, 1e-5),
        "not convex",
    ),
    "published noise in a deployment": (
        PDML(calibration="published", V=1.0),
        Logistic(),
        L2(0.1),
        Target(None, 1e-5, DiscreteGaussian),
        "deployment refuses",
    ),
    "no total": (PDML(), Logistic(), L2(0.1), Target(None, 1e-5), "epsilon"),
}


@pytest.mark.parametrize("parts", REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_proof_is_refused_at_once(parts: tuple[PDML, Loss, Regularizer, Target, str]) -> None:
    algorithm, loss, regularizer, privacy, message = parts
    with pytest.raises(ConfigError, match=message):
        Job(algorithm, Public(np.full(5, 10), 3, 2, graphs.ring(5), loss, regularizer, privacy)).plan  # noqa: B018


def test_one_party_without_a_regulariser_has_no_curvature_to_solve_by() -> None:
    with pytest.raises(ConfigError, match="weight above 0"):
        Job(PDML(), Public(np.array([10]), 3, 2, graphs.ring(1), Logistic(), L2(0.0), Target(1.0, 1e-5)))


def test_randomised_labels_with_the_logistic_loss_are_allowed() -> None:
    loss = Debiased(Logistic(), 1.0)
    Job(PDML(), Public(np.full(5, 10), 3, 2, graphs.ring(5), loss, L2(0.1), Target(1.0, 1e-5)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PDML(beta=0.0), "beta must be"),
        (lambda: PDML(R=-1.0), "R must be"),
        (lambda: PDML(V=1.0), "go together"),
        (lambda: PDML(calibration="published"), "go together"),
    ],
)
def test_parameters_must_make_sense(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
