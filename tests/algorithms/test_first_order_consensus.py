"""The recommended method: its optimum without noise, its step from public facts, its budget, and planted leaks."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from cases import CASES, shards
from contract_tools import SMALL, move, replayed
from privadmm.algorithms.dvp import DVP
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus, Memory
from privadmm.algorithms.moments import Centred
from privadmm.data.frame import Frame
from privadmm.data.moments_map import map_of, moments
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import features
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim import graphs
from privadmm.optim.losses import HalfLogistic, Logistic
from privadmm.optim.regularizers import L1, L2
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.calibration import Target
from privadmm.privacy.curves import gdp_epsilon
from privadmm.privacy.events import Gaussian
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released
from privadmm.runs.model import Model


def facts(**changes: Any) -> Public:
    """The facts of Adult, as in the method's published figures: 40,000 records at ten parties."""
    own: dict[str, Any] = {
        "sizes": np.full(10, 4000),
        "dim": 105,
        "rounds": 41,
        "graph": graphs.random(10, 13, 0),
        "loss": HalfLogistic(),
        "regularizer": L2(0.0),
        "privacy": Target(1.0, 1e-6),
    }
    return Public(**{**own, **changes})


@pytest.mark.parametrize("name", ["foc-off", "foc-gossip"])
def test_without_noise_it_reaches_the_optimum_of_the_mapped_problem(name: str) -> None:
    """With gossip every party has a slightly different map; after many steps, without noise, they nearly agree."""
    steps = 60 if name == "foc-gossip" else 0
    case = replace(
        CASES["foc-off"],
        graph=CASES[name].graph,
        algorithm=Centred(FirstOrderConsensus(step=2.0, gossip=steps, average=0.01)),
    )
    job, data = case.job(rounds=3000), shards()
    progress = train(job, cluster(job, data, Simulation(0)))
    seen = data.mapped([features(progress.memory)] * len(data.ids), data.dim + 1)  # type: ignore[list-item]

    def value(w: np.ndarray) -> float:
        scores = seen.margins(np.broadcast_to(w, (len(seen.ids), seen.dim)))
        return float(Logistic().value(scores, seen.y).mean() + case.regularizer.value(w))

    best = minimize(value, np.zeros(seen.dim), method="BFGS", options={"gtol": 1e-10}).fun
    assert value(weights(job, progress)) == pytest.approx(best, rel=1e-6)


def test_the_map_is_that_of_all_records_whatever_the_parties_sizes() -> None:
    job, data = CASES["foc-off"].job(rounds=2), shards()
    found = features(train(job, cluster(job, data, Simulation(0))).memory)
    each = moments(data, nonnegative=False)
    pooled = map_of((data.sizes[:, None] * each).sum(axis=0) / data.sizes.sum(), 0.0, 0.2)
    assert found is not None
    assert pytest.approx(pooled.M) == found.M
    assert pytest.approx(pooled.A) == found.A


def test_the_step_follows_from_public_facts() -> None:
    """By hand: mu from (epsilon, delta), unit = sqrt(N)/(n mu), then the rule."""
    public, algorithm = facts(rounds=40), FirstOrderConsensus()
    mu = math.sqrt(sum(algorithm.ratios(public, t)[0] ** -2 for t in range(40)))
    assert gdp_epsilon(mu, 1e-6) == pytest.approx(1.0, rel=1e-6)
    unit = math.sqrt(10) / (40_000 * mu)
    rule = 2.5 / (1 + 20 * unit * math.sqrt(105)) / unit / 40
    assert algorithm.eta(public) == pytest.approx(rule, rel=1e-9)
    assert algorithm.eta(facts(privacy=Target(100.0, 1e-6))) == 300.0
    assert FirstOrderConsensus(step=7.0).eta(public) == 7.0


def test_the_moments_cost_their_share() -> None:
    plan = Job(Centred(FirstOrderConsensus(), share=0.25), facts()).plan
    mu2 = [1 / plan[(t, 0)][0][0].ratio ** 2 for t in range(41)]  # type: ignore[union-attr]
    assert mu2[0] / sum(mu2) == pytest.approx(0.25)
    even = Job(Centred(FirstOrderConsensus(schedule="even"), share=0.25), facts()).plan
    assert len({even[(t, 0)][0][0].ratio for t in range(1, 41)}) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["dvp-centred", "mr_admm-centred", "foc", "dp_admm-centred"])
def test_moments_in_front_of_any_method_stay_within_the_budget(name: str) -> None:
    job = CASES[name].job()
    assert 0.95 < (job.epsilon or 0) <= 1.0


def test_budgets_by_party_and_by_round_are_kept() -> None:
    job = CASES["foc-uneven"].job()
    spent = totals(job.plan, 5)
    assert [epsilon(one, 1e-5) for one in spent] == pytest.approx([1.0, 2.0, 1.0, 0.5, 3.0], rel=1e-4)


def test_a_sparse_graph_is_as_good_as_a_complete_one() -> None:
    sparse, complete = (replace(CASES["foc"], graph=graph).job() for graph in (graphs.ring, graphs.complete))
    first, second = (weights(job, train(job, cluster(job, shards(), Simulation(3)))) for job in (sparse, complete))
    assert (first == second).all()


@pytest.mark.parametrize("count", ["records", "noise"])
def test_gossip_comes_as_close_as_one_likes(count: Any) -> None:
    plain = FirstOrderConsensus(weights=count)
    case = replace(CASES["foc-uneven"], graph=graphs.ring, algorithm=Centred(plain))
    exact = case.job()
    w = weights(exact, train(exact, cluster(exact, shards(), Simulation(3))))
    gaps = []
    for steps in (2, 6, 40):
        job = replace(case, algorithm=Centred(replace(plain, gossip=steps))).job()
        gaps.append(np.abs(weights(job, train(job, cluster(job, shards(), Simulation(3)))) - w).max())
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-6
    assert "disagreement" in (FirstOrderConsensus(gossip=2).advice(case.public()) or "")
    assert FirstOrderConsensus(gossip=60).advice(case.public()) is None


@pytest.mark.parametrize(
    ("algorithm", "changes", "says"),
    [
        (Centred(FirstOrderConsensus()), {"rounds": 1}, "two rounds"),
        (FirstOrderConsensus(), {"regularizer": L1(0.1)}, "smooth regulariser"),
        (FirstOrderConsensus(gossip=3), {"graph": graphs.star(10)}, "gossip needs a graph"),
        (Centred(FirstOrderConsensus()), {"privacy": Target(1.0, 1e-6, adjacency="label")}, "no proof"),
        (
            Centred(DVP(calibration="proof", alpha=1.0)),
            {"privacy": Target(None, 1e-6)},
            "certified noise only",
        ),
        (FirstOrderConsensus(), {"privacy": Target(None, 1e-6)}, "needs the total epsilon"),
        (FirstOrderConsensus(weights="noise"), {"weighting": "parties"}, "give one"),
    ],
)
def test_what_does_not_fit_is_refused(algorithm: Any, changes: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        _ = Job(algorithm, facts(**changes)).plan


def test_a_model_carries_its_map(tmp_path: Any) -> None:
    job, data = CASES["foc"].job(), shards()
    progress = train(job, cluster(job, data, Simulation(0)))
    frame = Frame(1.0, 0.0, ("a", "b", "c", "d"), (0, 1))
    model = Model(weights(job, progress), frame, "foc", "simulation", 1.0, 1e-5, features(progress.memory))
    model.save(tmp_path / "model.json")
    again = Model.load(tmp_path / "model.json")
    X = np.random.default_rng(0).normal(size=(20, 4))
    assert (again.scores(X) == model.scores(X)).all()
    assert not np.allclose(model.scores(X), X @ model.weights[:4])
    assert (model.scores(1e-3 * X) != 1e-3 * model.scores(X)).any()


@dataclass(frozen=True)
class RawMoments(Centred):
    """The planted leak: the state keeps the party's own moments instead of the released ones."""

    def at_parties(self, *given: Any) -> tuple[Any, Released]:
        _, _, local, *_ = given
        state, out = super().at_parties(*given)
        return replace(state, W=state.W + 1e-9 * moments(local.shards, False)[..., :5]), out


@dataclass(frozen=True)
class RawConsensus(FirstOrderConsensus):
    """The planted leak: the message carries something of the labels without noise."""

    def slope(self, t: int, local: Local, s: Any, inbox: Mail, release: Door) -> tuple[Any, Released]:
        state, out = super().slope(t, local, s, inbox, release)
        return state, out.map(lambda g: g + 1e-12 * local.shards.y.sum())


BUGS = [RawMoments(FirstOrderConsensus()), Centred(RawConsensus())]


@pytest.mark.parametrize("bug", BUGS, ids=["raw moments", "raw message"])
def test_planted_leaks_are_caught(bug: Any) -> None:
    first, again = replayed(replace(CASES["foc"], algorithm=bug))
    assert first != again


def test_understated_moments_are_caught() -> None:
    """Opposite unit records move the mean by 2/m: half of the declared sensitivity would not cover it."""
    case = CASES["foc"]
    u = np.eye(4)[0]
    data = [[(np.zeros((1, 4)), np.ones(1)), (np.stack([sign * u, 0 * u, 0 * u]), np.ones(3))] for sign in (1.0, -1.0)]
    facts = case.public(sizes=SMALL)
    state, mail = case.algorithm.init(facts, facts.ids), case.algorithm.start(facts)[1]
    moved, allowed = move(case, *data, state, mail, 0)
    assert 0.9 * allowed < moved <= allowed


def test_its_events_are_gaussian_only() -> None:
    plan = Job(Centred(FirstOrderConsensus()), facts()).plan
    assert {type(event) for rows in plan.values() for row in rows for event in row} == {Gaussian}


def test_memory_is_everybodys_own() -> None:
    memory, mail = FirstOrderConsensus().start(facts())
    assert isinstance(memory, Memory)
    assert mail.values.shape == (10, 105)
    assert Centred(FirstOrderConsensus()).start(facts())[1].values.shape == (10, 3 * 105 + 1)
