"""Weights of rounds and parties: the least noise within the budget, from public facts."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from cases import CASES, OFF, shards
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.moments import Centred
from privadmm.algorithms.noise_weights import by_noise, profile
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.phases import features
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import HalfLogistic
from privadmm.optim.regularizers import L2
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Simulation

NOISE, RECORDS = FirstOrderConsensus(weights="noise"), FirstOrderConsensus()


def facts(sizes: Any = (100, 400, 1600, 6400), **changes: Any) -> Public:
    own: dict[str, Any] = {
        "sizes": np.array(sizes),
        "dim": 20,
        "rounds": 20,
        "graph": graphs.star(len(sizes)),
        "loss": HalfLogistic(),
        "regularizer": L2(0.0),
        "privacy": Target(1.0, 1e-6),
    }
    return Public(**{**own, **changes})


def pulls(rounds: int, beta: float, average: int) -> np.ndarray:
    """How much each gradient adds to the model, by running heavy ball on one gradient at a time."""
    found = []
    for t in range(rounds):
        W, V, iterates = 0.0, 0.0, []
        for now in range(rounds):
            V = beta * V + (1 - beta) * (now == t)
            W += V
            iterates.append(W * math.exp(-(now - t) / rounds))
        found.append(np.mean(iterates[-average:]))
    return np.array(found)


@settings(max_examples=25)
@given(st.integers(2, 60), st.floats(0, 0.95), st.floats(0.05, 1.0))
def test_no_other_spread_of_the_noise_is_better(rounds: int, beta: float, share: float) -> None:
    """sum(a) is the least noise that sum a_t g_t can have; rounding levels to steps loses less than a percent."""
    average = max(1, round(share * rounds))
    a, s = pulls(rounds, beta, average), np.array(profile(rounds, beta, average))
    assert (1 - 1e-11) * rounds < (s**-2).sum() <= rounds
    least = a.sum() / math.sqrt(rounds)
    assert least * (1 - 1e-9) < math.sqrt(((a * s) ** 2).sum()) < 1.01 * least
    other = np.random.default_rng(0).uniform(0.5, 2, rounds)
    other *= math.sqrt((other**-2).mean())
    for worse in (np.ones(rounds), other):
        assert math.sqrt(((a * worse) ** 2).sum()) >= least * (1 - 1e-12)


def test_a_schedule_costs_what_was_asked_and_the_target_overrules_it() -> None:
    for kind in ("weight", "even"):
        job = Job(Centred(FirstOrderConsensus(schedule=kind)), facts())
        assert [epsilon(one, 1e-6) for one in totals(job.plan, 4)] == pytest.approx([1.0] * 4, rel=1e-6)
    decaying = facts(privacy=Target(1.0, 1e-6, decay=0.9))
    assert FirstOrderConsensus(schedule="weight").plan(decaying) == FirstOrderConsensus(schedule="even").plan(decaying)
    assert RECORDS.plan(facts()) != FirstOrderConsensus(schedule="even").plan(facts())


def test_weights_have_the_least_variance() -> None:
    """The sum of sampling error and noise, compared with a search by scipy."""
    m, even = np.array([50, 300, 2000, 20_000])[:, None], np.array([3000.0, 200.0, 10_000.0, 3000.0])[:, None]

    def variance(logs: Any) -> float:
        w = np.exp(logs - logs.max())[:, None]
        w /= w.sum()
        return float(np.log((w**2 * (1 / m + even / m**2)).sum()))

    best = minimize(variance, np.zeros(4), method="BFGS", options={"gtol": 1e-12}).x
    w = np.exp(best - best.max())
    assert by_noise(m, even)[:, 0] == pytest.approx(w / w.sum(), rel=2e-3)
    assert by_noise(m, 0 * even)[:, 0] == pytest.approx(m[:, 0] / m.sum())


def test_unequal_parties_bring_less_noise_when_weighed() -> None:
    public = facts(privacy=Target(None, 1e-6, party_epsilon=(2.0, 0.1, 1.0, 0.5)))
    noises = []
    for method in (RECORDS, NOISE):
        share = method.shares(public, public.ids, method.even(public))[:, 0]
        assert share.sum() == pytest.approx(1.0)
        noises.append(math.sqrt(float(np.sum((share / public.sizes) ** 2 / method.spent(public)))))
    assert noises[1] < 0.7 * noises[0]
    assert NOISE.eta(public) > RECORDS.eta(public)
    alike = facts(sizes=(500,) * 4)
    assert NOISE.factors(alike, alike.ids) == pytest.approx(np.ones((4, 1)))
    assert NOISE.eta(alike) == pytest.approx(RECORDS.eta(alike))


def test_messages_do_not_depend_on_how_parties_count() -> None:
    """Weights change how messages are averaged; sensitivities and the plan stay those of records."""
    public = facts()
    assert NOISE.plan(public) == RECORDS.plan(public)
    first = [Centred(method).plan(public) for method in (NOISE, RECORDS)]
    assert first[0] == first[1]


@pytest.mark.parametrize("leave", [{}, {3: 1, 2: 2}], ids=["all stay", "some leave"])
def test_without_noise_weighed_parties_solve_the_pooled_problem(leave: Any) -> None:
    found = []
    for method in (NOISE, RECORDS):
        case = replace(CASES["foc-off"], algorithm=Centred(replace(method, step=1.0)), privacy=OFF)
        job = replace(case.job(rounds=40), leave=leave)
        progress = train(job, cluster(job, shards(), Simulation(0)))
        map = features(progress.memory)
        assert map is not None
        found.append(np.concatenate([weights(job, progress), map.M, map.A]))
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_the_consensus_is_the_mean_by_these_shares() -> None:
    """Weights of those present: if all mean gradients are equal, the result is that gradient, times C' as planned."""
    from privadmm.engine.mail import Mail

    public = facts(privacy=Target(None, 1e-6, party_epsilon=(2.0, 0.1, 1.0, 0.5)), C=3.0)
    here = np.array([0, 2, 3])
    means = np.random.default_rng(1).normal(size=(3, 20))
    seen = NOISE.consensus(public, Mail(here, public.scale(here) * means))
    share = NOISE.shares(public, here, NOISE.even(public)[here])
    assert seen[0] == pytest.approx(public.weight_among(here) * (share * means).sum(axis=0))
