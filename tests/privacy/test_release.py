"""The door's two ways: noise on an output, and noise in an objective whose argmin is then released."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from cases import CASES, SIZES, shards, transcript
from privadmm.algorithms.admm_star import ADMMStar, State
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.errors import RefusedError
from privadmm.privacy.accounting import Plan, epsilon, totals
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import (
    DiscreteGaussian,
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    NotPrivate,
)
from privadmm.privacy.mechanisms import Deployment, Noise, Simulation
from privadmm.privacy.release import Door, Released

RHO = 0.5
OFF = NotPrivate("off")
STAR = CASES["admm_star"]


@dataclass(frozen=True)
class Perturbed(ADMMStar):
    """Consensus ADMM with noise in every local objective: the smallest user of `release.objective`."""

    rho: float = RHO
    inside: Event = OFF
    after: Event = OFF
    understate: float = 1.0
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one",)

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        w, loss = inbox.broadcast, local.public.loss
        gamma = s.gamma - self.rho * (s.w - w)
        k = np.full((len(local.ids), 1), self.rho + local.public.regularizer.strong_convexity)

        def solve(b: Any, reach: Any) -> Any:
            linear = -gamma - self.rho * w + local.weight * b
            return local.argmin(linear, k, start=s.w, anchor=s.anchor, tolerance=self.tolerance)

        ws = self.understate * local.weight * loss.smoothness / k
        wi = release.objective(solve, s.w, 2 * loss.lipschitz, ws, local.weight, k, lambda reach: self.tolerance)
        return State(wi.value, gamma, s.anchor), wi.map(lambda w: w - gamma / self.rho)

    def plan(self, public: Public) -> Plan:
        releases = (public.everyone(self.inside), public.everyone(self.after))
        return {(t, 0): releases for t in range(public.rounds)}


def job(inside: Event, after: Event, target: Target | NoPrivacy = NoPrivacy(), **more: Any) -> Job:  # noqa: B008
    case = replace(STAR, algorithm=Perturbed(inside=inside, after=after, **more), privacy=target)
    return case.job()


# Weight of a record is C N/n; over k = rho + 0.01, times the smoothness 1/4.
W = len(SIZES) / sum(SIZES) / 4 / (RHO + 0.01) * (1 + 1e-12)
GAUSS = (GaussianObjective(20.0, W), Gaussian(1e4))
GAMMA = (GammaObjective(0.1, W), GammaOutput(1e4))


def test_without_noise_it_is_the_plain_method() -> None:
    plain = replace(STAR, algorithm=ADMMStar(rho=RHO)).job()
    noisy = job(OFF, OFF)
    first, second = (train(one, cluster(one, shards(), Simulation(0))).memory.w for one in (plain, noisy))
    assert np.allclose(first, second, atol=1e-7)


@pytest.mark.parametrize(("inside", "after"), [GAUSS, GAMMA, (OFF, OFF)], ids=["gaussian", "gamma", "off"])
def test_transcripts_do_not_depend_on_the_partition(inside: Event, after: Event) -> None:
    one = job(inside, after)
    assert transcript(one, shards(), parts=[[3], [1, 4], [0, 2]]) == transcript(one, shards())


@pytest.mark.parametrize(("inside", "after"), [GAUSS, GAMMA], ids=["gaussian", "gamma"])
def test_the_ledger_holds_both_events_of_every_round(inside: Event, after: Event) -> None:
    one = job(inside, after, Target(100.0, 1e-5))
    parties = cluster(one, shards(), Simulation(0))
    train(one, parties)
    spent = parties.workers[0].ledger.spent(0)
    assert spent == totals(one.plan, len(SIZES))[0]
    assert dict(spent) == {inside: 4, after: 4}
    assert 0 < epsilon(spent, 1e-5) < 100


def door(noise: Noise, inside: Event, after: Event, rows: tuple[int, ...]) -> Door:
    return Door(np.arange(1), ((inside,), (after,)), noise, 0, 0, lambda charges: None, rows)


def drawn(noise: Noise, inside: Event, after: Event, d: int, games: int = 1) -> np.ndarray:
    """The b that `solve` is given, for a sensitivity of 2."""
    seen = []

    def solve(b: Any, reach: Any) -> Any:
        seen.append(b)
        return b

    like = np.zeros((games, 1, d)) if games > 1 else np.zeros((1, d))
    one = np.ones(1)
    door(noise, inside, after, like.shape[:-1]).objective(
        solve, like, 2.0, 0.1 * one, one, one, lambda reach: 1e-9 * one
    )
    return seen[0]


def test_gaussian_noise_in_the_objective_has_the_planned_scale() -> None:
    b = drawn(Simulation(0), GaussianObjective(3.0, 0.1), Gaussian(1e4), 20_000) / 6.0
    assert abs(np.mean(b**2) - 1) < 6 * np.sqrt(2 / b.size)


def test_gamma_noise_has_its_norm_and_no_direction() -> None:
    """|b| ~ Gamma(d, Delta/slope): mean d Delta/slope, variance d (Delta/slope)^2; the mean of b is 0."""
    d, games, slope = 5, 4000, 0.5
    b = drawn(Simulation(0), GammaObjective(slope, 0.1), GammaOutput(1e4), d, games)[:, 0]
    norms, width = np.linalg.norm(b, axis=-1), 2.0 / slope
    assert abs(norms.mean() - d * width) < 6 * width * np.sqrt(d / games)
    assert abs(norms.var() / (d * width**2) - 1) < 0.2
    assert (np.abs(b.mean(axis=0)) < 6 * b.std(axis=0) / np.sqrt(games)).all()


def test_the_output_noise_covers_an_inexact_argmin() -> None:
    """Sensitivity 2 tau/k; on a grid gamma also weight gamma sqrt(d)/k."""
    seen: list[Any] = []

    class Spy(Door):
        def output(self, x: Any, sensitivity: Any) -> Released:
            seen.append(np.array(sensitivity))
            return super().output(x, sensitivity)

    one, k, tau, d = np.ones(1), np.full(1, 0.25), 1e-6, 9
    for noise, after in ((Simulation(0), Gaussian(1e4)), (Deployment(), DiscreteGaussian(1e4))):
        plan = ((GaussianObjective(3.0, 0.1),), (after,))
        Spy(np.arange(1), plan, noise, 0, 0, lambda charges: None).objective(
            lambda b, reach: b, np.zeros((1, d)), 2.0, 0.1 * one, 7 * one, k, lambda reach: np.full(1, tau)
        )
    grid = float(Deployment().grid(np.array(6.0)))
    assert seen[0] == pytest.approx(2 * tau / 0.25)
    assert seen[1] == pytest.approx(2 * tau / 0.25 + 7 * grid * 3 / 0.25, rel=1e-12)
    assert seen[1] > seen[0]


@pytest.mark.parametrize(
    ("inside", "after", "says"),
    [
        (GaussianObjective(20.0, W / 2), Gaussian(1e4), "covers"),
        (Gaussian(20.0), Gaussian(1e4), "covers"),
        (GaussianObjective(20.0, W), DiscreteGaussian(1e4), "cannot release"),
    ],
    ids=["less curvature than there is", "an output event", "a deployment's law in a simulation"],
)
def test_a_plan_that_does_not_cover_the_argmin_is_refused(inside: Event, after: Event, says: str) -> None:
    one = job(inside, after)
    with pytest.raises(RefusedError, match=says):
        train(one, cluster(one, shards(), Simulation(0)))


def test_gamma_noise_is_refused_in_a_deployment() -> None:
    with pytest.raises(RefusedError, match="simulations only"):
        drawn(Deployment(), GammaObjective(0.1, 0.1), GammaOutput(1e4), 3)


def test_a_block_does_not_mix_laws() -> None:
    plan = ((Gaussian(3.0), NotPrivate("one of them")),)
    mixed = Door(np.arange(2), plan, Simulation(0), 0, 0, lambda charges: None)
    with pytest.raises(RefusedError, match="mixes"):
        mixed.output(np.zeros((2, 3)), 1.0)
