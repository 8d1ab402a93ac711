"""M-ADMM, R-ADMM and MR-ADMM: limits without noise, the papers' claims, and what an even round may read."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from cases import CASES, SIZES, Case, least_objective, named, objective, shards
from contract_tools import replayed
from privadmm.algorithms import convergence
from privadmm.algorithms.m_admm import MADMM
from privadmm.algorithms.mr_admm import MRADMM, Memory, State
from privadmm.algorithms.penalties import Penalised
from privadmm.algorithms.r_admm import RADMM
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.loop import View
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtParties, Phase, inbox_width, pack_state
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, RefusedError
from privadmm.optim import graphs
from privadmm.optim.losses import HalfLogistic, HuberHinge, Logistic, Squared
from privadmm.optim.regularizers import L1, L2
from privadmm.params import fields_of
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import DiscreteGaussian, GammaObjective, GaussianObjective
from privadmm.privacy.history import Start
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released
from small_runs import PRIVATE as SMALL
from small_runs import Place

OFF = CASES["r_admm-off"]
APART = (0.05, 0.1, 0.2, 0.1, 0.3)


def trained(job: Job, data: Shards) -> Floats:
    return weights(job, train(job, cluster(job, data, Simulation(0))))


# Limits without noise.


EXACT = [
    CASES["m_admm-off"],
    replace(CASES["m_admm-off"], name="grows", algorithm=MADMM(eta=0.1, growth=1.003)),
    replace(CASES["m_admm-off"], name="apart", algorithm=MADMM(party_eta=APART, theta=0.05)),
    OFF,
    replace(OFF, name="no gamma", algorithm=RADMM(eta=0.1, gamma=0.0)),
    CASES["mr_admm-off"],
]


@pytest.mark.parametrize("case", EXACT, ids=named)
def test_without_noise_they_reach_the_optimum(case: Case) -> None:
    job, data = case.job(rounds=800), shards()
    value = objective(job.public, data, trained(job, data))
    assert value == pytest.approx(least_objective(job.public, data), rel=1e-9)


@pytest.mark.parametrize("kind", [MADMM, MRADMM], ids=lambda kind: kind.name)
def test_unequal_penalties_weight_the_parties(kind: type[Penalised]) -> None:
    """(15) keeps sum_i lambda_i/eta_i at 0, so the limit minimises sum_i O_i/eta_i: not what the paper says."""
    job, data = replace(OFF, algorithm=kind(party_eta=APART)).job(rounds=1500), shards()
    public, w = job.public, trained(job, data)

    def total(w: Floats, weight: Floats) -> float:
        losses = public.loss.value(data.margins(np.broadcast_to(w, (len(SIZES), 4))), data.y)
        own = public.scale(public.ids)[:, 0] / data.sizes * data.sums(losses) + public.regularizer.value(w)
        return float(weight @ own / weight.sum())

    def best(weight: Floats) -> Floats:
        found = minimize(total, np.zeros(4), args=(weight,), method="BFGS", options={"gtol": 1e-9})
        return np.asarray(found.x)

    assert np.allclose(w, best(1 / np.array(APART)), atol=1e-5)
    assert np.linalg.norm(w - best(np.ones(5))) > 0.1
    assert "weighted by 1/party_eta" in (job.algorithm.advice(public) or "")
    assert job.algorithm.advice(public) != replace(job.algorithm, party_eta=None).advice(public)  # type: ignore[type-var]


def test_a_step_for_all_is_advised_only_where_it_is_missing() -> None:
    public = OFF.public()
    assert "theta = 0.05" in (MADMM(party_eta=APART).advice(public) or "")
    for plain in (MADMM(), MADMM(party_eta=(0.1,) * 5), MADMM(party_eta=APART, theta=0.05)):
        assert plain.advice(public) is None


def test_without_growth_they_are_the_methods_that_they_generalise() -> None:
    """Without noise M-ADMM is DVP; with a huge gamma R-ADMM is its odd rounds only: consensus ADMM."""
    data = shards()
    dvp = trained(replace(CASES["dvp-off"]).job(), data)
    assert np.array_equal(trained(CASES["m_admm-off"].job(), data), dvp)
    still = replace(OFF, algorithm=RADMM(eta=0.1, gamma=1e12))
    assert np.allclose(trained(still.job(), data), dvp, atol=1e-8)
    assert not np.allclose(trained(OFF.job(), data), dvp, atol=1e-3)


# What an even round reads.


class Watch:
    """Keeps the coordinator's memory and the parties' states after each round."""

    def __init__(self, workers: Any, public: Public) -> None:
        self.workers, self.memory, self.before = workers, [public.origin(public.parties)], []

    def __call__(self, view: View) -> None:
        self.memory.append(view.progress.memory.f)
        rows = np.concatenate([worker.state.before for worker in self.workers])
        self.before.append(rows[np.argsort(np.concatenate([worker.local.ids for worker in self.workers]))])


@pytest.mark.parametrize("name", ["r_admm", "mr_admm", "mr_admm-pure", "mr_admm-off"])
def test_parties_and_coordinator_follow_the_same_bits(name: str) -> None:
    job = Job(CASES[name].algorithm, replace(CASES[name].public(rounds=6), start=Start.public(np.arange(4) / 7)))
    blocks = cluster(job, shards(), Simulation(0), parts=[[3], [0, 4], [1, 2]])
    watch = Watch(blocks.workers, job.public)
    train(job, blocks, [watch])
    assert all(np.array_equal(ours, own) for ours, own in zip(watch.memory, watch.before, strict=False))
    assert np.any(watch.memory[-1] != watch.memory[-2])


def test_the_even_round_is_the_papers_gradient_step() -> None:
    """Without noise, (19) from released values equals (16), which needs the gradient."""
    job, data = (
        replace(OFF, algorithm=MRADMM(eta=0.1, growth=1.2, gamma=0.5, tolerance=1e-12)).job(),
        shards(),
    )
    local, public, algorithm = Local(job.public, data), job.public, job.algorithm
    assert isinstance(algorithm, MRADMM)
    state, (memory, mail) = algorithm.init(public, local.ids), algorithm.start(public)
    for t in range(public.rounds):
        door = Door(local.ids, job.plan[(t, 0)], Simulation(0), t, 0, lambda charges: None)
        state, released = algorithm.odd(t, local, state, mail, door)
        memory, mail = algorithm.even(t, public, memory, Mail(public.ids, released.value))
        f, eta = released.value, algorithm.penalties(public, t)[:, None]
        V = public.graph.degrees[:, None]
        apart = V * f - public.graph.neighbour_sum(f, public.ids, public.ids)
        dual = state.dual + eta / 2 * apart  # (15)
        slope = local.gradient(f) + public.regularizer.subgradient(f)
        step = slope + 2 * dual + eta * apart
        assert np.allclose(memory.f, f - step / (2 * eta * V + 0.5), atol=1e-10)  # (16)
        assert np.array_equal(mail.values, np.concatenate([f, memory.f], axis=1))
        assert np.allclose(algorithm.model(public, memory, mail), f.mean(axis=0))


@dataclass(frozen=True)
class FreshGradient(MRADMM):
    """The planted leak: the even round computes (16)'s gradient from the records."""

    name = "fresh gradient"

    def odd(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        if t == 0:  # before the first pair there is no even round
            return super().odd(t, local, s, inbox, release)
        known = local.public.regularizer.subgradient(s.f) + local.gradient(s.f)

        class Asking(MRADMM):
            def recycled(self, eta, V, f, odd, before, heard):  # type: ignore[no-untyped-def]
                dual = s.dual + eta / 2 * (V * f - odd)
                return f - (known + 2 * dual + eta * (V * f - odd)) / (2 * eta * V + self.gamma)

        return Asking(eta=self.eta, gamma=self.gamma).odd(t, local, s, inbox, release)


@dataclass(frozen=True)
class StoredNoise(MRADMM):
    """Algorithm 3 as printed: the even round starts from the argmin before its output noise."""

    name = "stored noise"

    def odd(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        kept: list[Floats] = []

        class Peeping:
            def objective(self, solve: Any, like: Floats, **declared: Any) -> Released:
                def seen(b: Floats, reach: Floats) -> Floats:
                    kept.append(solve(b, reach))
                    return kept[0]

                return release.objective(seen, like, **declared)

        state, message = super().odd(t, local, s, inbox, Peeping())  # type: ignore[arg-type]
        return replace(state, f=kept[0]), message


@dataclass(frozen=True)
class RawMessage(MRADMM):
    """The planted leak: the message of the odd round also carries the even iterate."""

    name = "raw message"

    def odd(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        state, message = super().odd(t, local, s, inbox, release)
        return state, message.map(lambda f: f - 1e-9 * local.gradient(f))


@dataclass(frozen=True)
class OwnRelease(MRADMM):
    """The even round releases through the door although the plan has no release there."""

    name = "own release"

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (*super().phases, AtParties(self.ask))

    def ask(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        return s, release.output(s.f - 0.1 * local.gradient(s.f), sensitivity=local.moves)


SOUND = replace(CASES["mr_admm"], algorithm=MRADMM(eta=2.0, gamma=0.1))


@pytest.mark.parametrize("kind", [FreshGradient, StoredNoise, RawMessage], ids=lambda kind: kind.name)
def test_an_even_round_that_reads_more_than_releases_is_caught(kind: type[MRADMM]) -> None:
    first, again = replayed(SOUND)
    assert again == first
    first, again = replayed(replace(SOUND, algorithm=kind(eta=2.0, gamma=0.1)))
    assert again != first


def test_the_planted_even_rounds_do_what_they_say() -> None:
    """Without noise the planted bugs give the same run, up to the solver's tolerance."""
    quiet = replace(SOUND, privacy=NoPrivacy())
    sound, *planted = (
        trained(replace(quiet, algorithm=kind(eta=2.0, gamma=0.1, tolerance=1e-12)).job(), shards())
        for kind in (MRADMM, FreshGradient, StoredNoise)
    )
    assert np.linalg.norm(sound) > 0.01
    for found in planted:
        assert np.allclose(found, sound, atol=1e-10)


def test_an_even_round_that_asks_the_door_is_stopped() -> None:
    job = replace(SOUND, algorithm=OwnRelease(eta=2.0, gamma=0.1)).job()
    with pytest.raises(RefusedError, match="nothing to release there"):
        train(job, cluster(job, shards(), Simulation(0)))


def test_recycled_rounds_cost_what_the_odd_ones_do() -> None:
    recycled, plain = CASES["r_admm"].job(), replace(CASES["r_admm"], algorithm=MADMM(eta=3.0)).job()
    assert totals(recycled.plan, 5) == totals(plain.plan, 5)
    assert set(recycled.plan) == {(t, 0) for t in range(recycled.public.rounds)}


def test_a_party_is_sent_both_iterates_of_a_neighbour() -> None:
    job = CASES["r_admm"].job()
    assert inbox_width(job.algorithm, job.public) == 8
    worker = cluster(job, shards(), Simulation(0)).workers[0]
    with pytest.raises(RefusedError, match="another shape"):
        worker.step(0, 0, Mail(job.public.ids, np.zeros((5, 4))))
    assert worker.step(0, 0, Mail(job.public.ids, np.zeros((5, 8)))).values.shape == (5, 4)


def test_replicas_are_runs_of_their_own() -> None:
    for name in ("mr_admm", "m_admm-grows"):
        plain, many = CASES[name].job(), CASES[name].job(replicas=3)
        one, three = trained(plain, shards()), trained(many, shards())
        assert three.shape == (3, 4)
        assert np.allclose(three[0], one, rtol=1e-8, atol=1e-10)
        assert not np.allclose(three[0], three[1])


@pytest.mark.parametrize("case", [CASES["m_admm-off"], CASES["mr_admm-off"]], ids=named)
def test_a_warm_start_goes_on_from_the_model_before(case: Case) -> None:
    """Started at the optimum with duals of 0, the iterates stay near it; started at 0, the first are far away."""
    data, cold = shards(), case.job(rounds=3)
    best = trained(case.job(rounds=800), data)
    warm = Job(case.algorithm, replace(cold.public, start=Start.public(best)))
    assert np.array_equal(weights(warm, train(warm, cluster(warm, data, Simulation(0)))), trained(warm, data))
    near, far = (np.linalg.norm(trained(job, data) - best) for job in (warm, cold))
    assert near < far / 3
    memory, mail = case.algorithm.start(warm.public)
    assert np.allclose(case.algorithm.model(warm.public, memory, mail), best)


def test_the_memory_is_a_frozen_dataclass_of_arrays() -> None:
    memory, _ = MRADMM().start(OFF.public())
    assert isinstance(memory, Memory)
    assert pack_state(memory)


# What the papers claim.


def two_parties(**changes: Any) -> Public:
    """B = 10 and 20, one neighbour each, rho/N = 0.01, c = 1/4, two rounds."""
    facts: dict[str, Any] = {
        "sizes": np.array([10, 20]),
        "dim": 3,
        "rounds": 2,
        "graph": graphs.complete(2),
        "loss": Logistic(),
        "regularizer": L2(0.01),
        "privacy": Target(None, 1e-5),
        "weighting": "parties",
    }
    return Public(**{**facts, **changes})


def claim(algorithm: Penalised, public: Public) -> tuple[float | None, str]:
    found = Job(algorithm, public).published
    assert found is not None
    return found.epsilon, found.caveat


def test_mr_admms_total_by_hand() -> None:
    """0.2 (0.35/1.01 + 3) + 0.2 (0.35/2.01 + 3), since eta is 1/2 and then 1."""
    found, caveat = claim(MRADMM(eta=0.5, growth=2.0, calibration="published", alpha=3.0), two_parties())
    assert found == pytest.approx(1.3041328, abs=1e-7)
    assert "loose" in caveat
    # Louder noise in the second round: alpha is 3 and then 1.
    spread = two_parties(privacy=Target(None, 1e-5, profile=(1.0, 3.0)))
    found, _ = claim(MRADMM(eta=0.5, growth=2.0, calibration="published", alpha=3.0), spread)
    assert found == pytest.approx(1.3041328 - 0.2 * 2, abs=1e-7)


def test_m_admms_total_by_hand() -> None:
    """3.35/(0.5 10) + 3.35/(1 10)"""
    found, caveat = claim(MADMM(eta=0.5, growth=2.0, calibration="published", alpha=3.0), two_parties())
    assert found == pytest.approx(1.005, abs=1e-12)
    assert "loose" in caveat


def test_records_weigh_what_the_objective_says() -> None:
    """omega = 2/3 and 4/3, so that C omega/B = 1/15 for both, and C = 3 makes it 1/5 again."""
    public = two_parties(weighting="records", C=3.0)
    algorithm = MRADMM(eta=0.5, growth=2.0, calibration="published", alpha=3.0)
    assert claim(algorithm, public)[0] == pytest.approx(2 * 1.3041328, abs=1e-6)


def test_the_papers_noise_in_units_of_summed_gradients() -> None:
    """zeta = alpha C/B, or alpha C/(2 eta V B) inside the penalty; the event holds Delta zeta and w."""
    for algorithm, slope in (
        (MRADMM(eta=0.5, calibration="published", alpha=3.0), 2 * 3.0 / 10),
        (MADMM(eta=0.5, calibration="published", alpha=3.0), 2 * 3.0 / (2 * 0.5 * 10)),
        (RADMM(eta=2.0, calibration="published", alpha=3.0), 2 * 3.0 / 10),
        (MADMM(eta=2.0, calibration="published", alpha=3.0), 2 * 3.0 / (2 * 2.0 * 10)),
    ):
        event = Job(algorithm, two_parties()).plan[(0, 0)][0][0]
        assert isinstance(event, GammaObjective)
        assert event.slope == pytest.approx(slope)
        assert event.w == pytest.approx(0.25 / (10 * (0.01 + 2 * algorithm.eta)))


@pytest.mark.parametrize("kind", [MADMM, MRADMM, RADMM], ids=lambda kind: kind.name)
@pytest.mark.parametrize("alpha", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("eta", [0.1, 1.0])
def test_the_papers_totals_are_sound_and_loose(kind: type[Penalised], alpha: float, eta: float) -> None:
    job = Job(kind(eta=eta, calibration="published", alpha=alpha), two_parties())
    certified = max(epsilon(spent, 0.0) for spent in totals(job.plan, 2))
    assert job.published is not None
    assert job.published.epsilon is not None
    cover = 2 * 1e-4
    assert certified - cover <= job.published.epsilon
    assert job.published.epsilon > 1.02 * (certified - cover) or alpha == 20.0


def test_where_the_papers_conditions_fail_nothing_is_claimed() -> None:
    """2 c = 1/2 must stay below B/C (rho/N + 2 eta V) = 10 (0.01 + 2 eta), that is, eta above 0.02."""
    for kind in (MADMM, MRADMM):
        assert claim(kind(eta=0.0201, calibration="published", alpha=1.0), two_parties())[0] is not None
        found, caveat = claim(kind(eta=0.0199, calibration="published", alpha=1.0), two_parties())
        assert found is None
        assert "raise eta" in caveat
        steep = two_parties(loss=Squared(1.0, radius=1.0))
        found, caveat = claim(kind(eta=1.0, calibration="published", alpha=1.0), steep)
        assert found is None
        assert "|loss'| <= 1" in caveat


def test_certified_noise_has_no_published_figure() -> None:
    assert Job(MRADMM(eta=3.0), two_parties(privacy=Target(1.0, 1e-5))).published is None


def test_a_growing_penalty_spends_less_on_curvature() -> None:
    plan = CASES["mr_admm"].job().plan
    ws = [event.w for t in range(4) for event in plan[(t, 0)][0][:1] if isinstance(event, GaussianObjective)]
    assert ws == sorted(ws, reverse=True)
    assert ws[0] > 2 * ws[-1]


# When recycling converges.


def test_the_smallest_gamma_is_the_smallest_and_converges() -> None:
    for graph in (graphs.random(5, 6, seed=1), graphs.ring(5), graphs.complete(5)):
        for eta in (0.01, 0.1):
            public = replace(OFF.public(rounds=600), graph=graph)
            least = RADMM(eta=eta).smallest_gamma(public)
            assert least
            pairs = RADMM(eta=eta).pairs(public)
            assert convergence.met(public, pairs, least)
            assert not convergence.met(public, pairs, least * (1 - 1e-5))
            assert convergence.met(public, pairs, 10 * least)
            job, data = Job(MRADMM(eta=eta, gamma=least), public), shards()
            value = objective(public, data, trained(job, data))
            assert value == pytest.approx(least_objective(public, data), rel=1e-7)


def test_the_constants_of_the_conditions_are_the_best() -> None:
    """Against a search over L and mu of (i) and (ii) as printed, matrices written out."""
    public, eta = OFF.public(), 0.1
    least = RADMM(eta=eta).smallest_gamma(public)
    assert least is not None
    D, minus = np.diag(public.graph.degrees).astype(float), public.graph.laplacian()
    plus, W = 2 * D - minus, eta * np.eye(5)
    M2 = np.diag(convergence.lipschitz(public) ** 2)

    def positive(X: Floats) -> bool:
        return bool(np.linalg.eigvalsh(X + X.T)[0] > 0)

    def hold(gamma: float, L: float, mu: float) -> bool:
        Dt = 2 * W @ D + gamma * np.eye(5)
        P, a = W @ plus @ np.linalg.inv(Dt), L * mu / (2 * np.diag(Dt).min())
        first = np.eye(5) + P - a * np.linalg.pinv(W @ minus) @ M2
        second = W @ plus - P @ (W @ minus + 2 / L * W @ plus) - a / (mu - 1) * M2
        return positive(first) and positive(second)

    grid = [(L, 1 + m) for L in np.geomspace(1e-4, 1e2, 120) for m in np.geomspace(1e-2, 1e2, 80)]
    assert any(hold(1.02 * least, L, mu) for L, mu in grid)
    assert not any(hold(0.99 * least, L, mu) for L, mu in grid)


def test_growing_penalties_are_checked_at_both_ends() -> None:
    public = OFF.public(rounds=60)
    algorithm = MRADMM(eta=0.1, growth=1.05)
    least = algorithm.smallest_gamma(public)
    assert least is not None
    every = [(algorithm.penalties(public, t), algorithm.penalties(public, t + 1)) for t in range(59)]
    assert convergence.met(public, every, least)
    assert not convergence.met(public, algorithm.pairs(public), least * (1 - 1e-5))


def test_on_a_bipartite_graph_no_gamma_will_do_by_the_paper() -> None:
    """It converges although the conditions fail: they are sufficient, not necessary."""
    for graph in (graphs.ring(4), graphs.random(4, 3, seed=0)):
        public = replace(OFF.public(sizes=(7, 12, 7, 5), rounds=600), graph=graph)
        assert RADMM(eta=0.1).smallest_gamma(public) is None
        assert not convergence.met(public, RADMM(eta=0.1).pairs(public), 1e9)
        assert "no gamma" in (RADMM(eta=0.1).advice(public) or "")
        job, data = Job(RADMM(eta=0.1), public), shards(sizes=(7, 12, 7, 5))
        value = objective(public, data, trained(job, data))
        assert value == pytest.approx(least_objective(public, data), rel=1e-7)


def test_advice_names_the_smallest_gamma_until_it_is_taken() -> None:
    public = OFF.public()
    advice = RADMM(eta=0.1, gamma=0.1).advice(public)
    least = RADMM(eta=0.1).smallest_gamma(public)
    assert least is not None
    assert advice is not None
    assert f"{least:.4g}" in advice
    assert RADMM(eta=0.1, gamma=1.001 * least).advice(public) is None
    crowd = replace(OFF.public(sizes=(3,) * 300), graph=graphs.ring(300))
    assert "beyond 200 parties" in (RADMM().advice(crowd) or "")


RECYCLED = {
    "graph": {"kind": "ring"},
    "algorithm": {"name": "r_admm", "eta": 0.1, "gamma": 0.01, "D_w": None, "rho": None},
    "privacy": {"epsilon": 10.0, "delta": 1e-5},
}


@pytest.mark.usefixtures("skipped_plots")
def test_advice_is_shown_before_a_run(place: Place) -> None:
    config = place.config(SMALL, "config.toml", parties={"sizes": [16, 16, 16]}, **RECYCLED)
    said = place.call("account", config, "--json")
    assert (said.code, said.err) == (0, "")
    assert "gamma = 0.01 is below" in said.object["advice"]
    shown = " ".join(place.call("account", config).out.split())
    assert said.object["advice"] in shown
    done = place.train(config, "--json")
    assert done.code == 0, done.err
    assert said.object["advice"] in done.err
    assert done.object["algorithm"] == "r_admm"
    enough = place.config(SMALL, "enough.toml", parties={"sizes": [16, 16, 16]}, **RECYCLED, loss={"C": 1e-3})
    assert place.call("account", enough, "--json").object["advice"] is None


# What is refused.


def test_r_admm_has_one_constant_penalty() -> None:
    assert {"growth", "party_eta"} <= set(fields_of(MRADMM))
    assert not {"growth", "party_eta"} & set(fields_of(RADMM))
    with pytest.raises(TypeError, match="growth"):
        RADMM(growth=2.0)  # type: ignore[call-arg]


WRONG = {
    "a falling penalty": (MADMM, {"growth": 0.9}, "growth must be a number >= 1"),
    "no penalty": (MRADMM, {"eta": 0.0}, "eta must be"),
    "a party without penalty": (MRADMM, {"party_eta": (1.0, -1.0)}, "party_eta must be"),
    "alpha without published": (MRADMM, {"alpha": 1.0}, "go together"),
    "published without alpha": (MADMM, {"calibration": "published"}, "go together"),
    "a negative gamma": (RADMM, {"gamma": -1.0}, "gamma must be"),
    "a step beyond the penalty": (MADMM, {"eta": 0.1, "theta": 0.2}, "smallest penalty, 0.1"),
    "a step beyond one penalty": (MADMM, {"party_eta": (1.0, 0.1), "theta": 0.2}, "smallest penalty, 0.1"),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_parameters_must_make_sense(wrong: tuple[Any, dict[str, Any], str]) -> None:
    kind, parameters, message = wrong
    with pytest.raises(ConfigError, match=message):
        kind(**parameters)


PUBLISHED = {"calibration": "published", "alpha": 1.0}
TARGET = Target(1.0, 1e-5)
REFUSED = {
    "a party alone": (MADMM(), {"sizes": np.array([9]), "graph": graphs.ring(1)}, "two parties or more"),
    "too few penalties": (MRADMM(party_eta=(1.0,)), {}, "one for each"),
    "a penalty that stops all": (MRADMM(growth=10.0), {"rounds": 100}, "nearer to 1"),
    "l1": (MADMM(), {"regularizer": L1(0.1)}, "smooth regulariser"),
    "squared without a radius": (MADMM(), {"loss": Squared(1.0)}, "radius"),
    "gamma noise deployed": (
        MRADMM(law="gamma"),
        {"privacy": Target(1.0, 1e-5, DiscreteGaussian)},
        "deployment refuses",
    ),
    "published noise deployed": (
        MADMM(**PUBLISHED),  # type: ignore[arg-type]
        {"privacy": Target(None, 1e-5, DiscreteGaussian)},
        "deployment refuses",
    ),
    "Gaussian noise without delta": (MADMM(eta=3.0), {"privacy": Target(1.0, 0.0)}, "pure noise"),
}


@pytest.mark.parametrize("parts", REFUSED.values(), ids=REFUSED.keys())
def test_what_has_no_proof_is_refused(parts: tuple[Penalised, dict[str, Any], str]) -> None:
    algorithm, facts, message = parts
    with pytest.raises(ConfigError, match=message):
        Job(algorithm, two_parties(**{"privacy": TARGET, **facts})).plan  # noqa: B018


def test_a_penalty_too_small_for_the_target_is_refused_with_one_that_is_not() -> None:
    public = two_parties(privacy=TARGET, loss=HalfLogistic())
    with pytest.raises(RefusedError, match="set eta to") as refused:
        Job(MADMM(eta=0.1), public).plan  # noqa: B018
    named = float(str(refused.value).split("set eta to ")[1].split()[0])
    job = Job(MADMM(eta=1.01 * named), public)
    assert job.epsilon == pytest.approx(1.0, rel=1e-9)


def test_what_more_curvature_does_not_mend_is_refused_without_advice() -> None:
    """A target epsilon that is below the cost of covering inexact argmins."""
    public = two_parties(privacy=Target(1e-6, 1e-12), loss=HuberHinge(0.5))
    with pytest.raises(RefusedError, match="smallest feasible") as refused:
        Job(MADMM(eta=1e9), public).plan  # noqa: B018
    assert "set eta" not in str(refused.value)
