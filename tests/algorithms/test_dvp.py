"""Dual variable perturbation: the paper's constants, what is certified, and where its printed box fails."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cases import CASES, Case, least_objective, named, objective, shards
from contract_tools import SMALL, VICTIM, move, replayed
from privadmm.algorithms.dvp import DVP
from privadmm.data.arrays import Floats
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, RefusedError
from privadmm.optim import graphs
from privadmm.optim.losses import HuberHinge, Logistic
from privadmm.optim.regularizers import L1, L2
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.events import GammaObjective, GammaOutput, GaussianObjective
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released


def public(**changes: Any) -> Public:
    """The setting in which docs/errata.md reports the box's Phi: C = 1750, B = 8000, three neighbours each."""
    facts: dict[str, Any] = {
        "sizes": np.full(4, 8000),
        "dim": 2,
        "rounds": 3,
        "graph": graphs.complete(4),
        "loss": Logistic(),
        "regularizer": L2(10**-2.5),
        "privacy": Target(None, 1e-5),
        "C": 1750.0,
    }
    return Public(**{**facts, **changes})


def test_without_noise_it_reaches_the_optimum() -> None:
    job, data = CASES["dvp-off"].job(rounds=800), shards()
    w = weights(job, train(job, cluster(job, data, Simulation(0))))
    assert objective(job.public, data, w) == pytest.approx(least_objective(job.public, data), rel=1e-9)


def test_the_printed_box_asks_for_a_negative_phi() -> None:
    box = DVP(eta=1.0, calibration="box", alpha=0.3)
    _, k = box.noise(public(), 0)
    assert k[0] - 10**-2.5 - 6 == pytest.approx(-5.30, abs=0.005)
    with pytest.raises(ConfigError, match=r"Phi = -5\.3"):
        Job(box, public())
    assert Job(replace(box, negative_phi=True), public()).epsilon is not None


def test_the_printed_box_diverges_and_the_proof_does_not() -> None:
    def size(algorithm: DVP) -> float:
        facts = replace(CASES["dvp-box"].public(rounds=5), C=1.0)
        job, data = Job(replace(algorithm, eta=1.0), facts), shards()
        return float(np.linalg.norm(weights(job, train(job, cluster(job, data, Simulation(0))))))

    box = DVP(calibration="box", alpha=0.5, negative_phi=True)
    _, k = replace(box, eta=1.0).noise(replace(CASES["dvp-box"].public(), C=1.0), 0)
    assert k.min() < 2.0
    assert size(box) > 100 * size(DVP(calibration="proof", alpha=0.5))


def test_zeta_and_phi_by_hand() -> None:
    """proof: a = alpha - 2 ln(1 + Cc/(B k)), zeta = a/2; below zero, a = alpha/2 and k = Cc/(B(e^(alpha/4) - 1))."""
    bend, k0 = 1750 / 4 / 8000, 10**-2.5 + 0.06
    for alpha in (3.0, 0.3):
        zeta, k = DVP(eta=0.01, calibration="proof", alpha=alpha).noise(public(), 0)
        a = alpha - 2 * np.log1p(bend / k0)
        assert (a > 0) == (alpha == 3.0)
        if a > 0:
            assert (zeta[0], k[0]) == (pytest.approx(a / 2), pytest.approx(k0))
        else:
            assert (zeta[0], k[0]) == (pytest.approx(alpha / 4), pytest.approx(bend / np.expm1(alpha / 4)))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_the_proofs_noise_is_worth_its_alpha(alpha: float) -> None:
    """The certified cost has one factor 1 + w, the paper its square: at most the claim but for the argmin's cover."""
    job = Job(DVP(eta=0.01, calibration="proof", alpha=alpha), public(rounds=1))
    certified = epsilon(totals(job.plan, 4)[0], 0.0)
    assert job.published is not None
    assert job.published.epsilon == alpha
    assert 0.5 * alpha < certified <= alpha + 1e-4


def test_each_party_and_round_has_its_own_alpha() -> None:
    algorithm = DVP(eta=1.0, calibration="proof", party_alpha=(1.0, 2.0, 3.0, 4.0))
    plan = Job(algorithm, public(privacy=Target(None, 1e-5, profile=(1.0, 2.0, 4.0)))).plan
    slopes = [[e.slope for e in plan[(t, 0)][0] if isinstance(e, GammaObjective)] for t in range(3)]
    assert all(np.diff(row).min() > 0 for row in slopes)
    assert slopes[0][3] > slopes[1][3] > slopes[2][3]
    with pytest.raises(ConfigError, match="one for each"):
        Job(replace(algorithm, party_alpha=(1.0,)), public())


def test_phi_is_added_only_where_curvature_would_eat_the_budget() -> None:
    flat = public(C=1.0, privacy=Target(1.0, 1e-6))
    steep = public(privacy=Target(1.0, 1e-6), rounds=50)
    algorithm = DVP(eta=1e-3)
    own = 10**-2.5 + 6e-3
    assert algorithm.noise(flat, 0)[1][0] == pytest.approx(own)
    assert algorithm.noise(steep, 0)[1][0] > 2 * own
    assert 0.999 < (Job(algorithm, steep).epsilon or 0) <= 1.0


def test_a_label_flip_leaves_the_logistic_curvature_alone() -> None:
    plan = CASES["dvp-label"].job().plan
    (inside, *_) = plan[(0, 0)][0]
    assert isinstance(inside, GaussianObjective)
    assert inside.w == 0


def test_uneven_budgets_are_each_kept() -> None:
    job = CASES["dvp-uneven"].job()
    spent = totals(job.plan, job.public.parties)
    assert [epsilon(one, 1e-5) for one in spent] == pytest.approx([1.0, 2.0, 1.0, 0.5, 3.0], rel=1e-4)
    ratios = [job.plan[(t, 0)][0][0].ratio for t in range(4)]  # type: ignore[union-attr]
    assert np.array(ratios[1:]) ** 2 / np.array(ratios[:-1]) ** 2 == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("algorithm", "changes", "says"),
    [
        (DVP(), {"regularizer": L1(0.1)}, "smooth regulariser"),
        (DVP(law="gamma"), {"privacy": Target(1.0, 1e-5, kind=pytest.importorskip)}, "deployment refuses"),
        (DVP(), {"privacy": Target(1.0, 0.0)}, "pure noise"),
        (DVP(), {"privacy": Target(None, 1e-5)}, "needs the total epsilon"),
        (DVP(), {"privacy": Target(1.0, 1e-5, adjacency="person")}, "no proof"),
        (DVP(), {"privacy": Target(1.0, 1e-5, party_epsilon=(1.0,))}, "one for each"),
        (DVP(), {"privacy": Target(1.0, 1e-5, profile=(1.0,))}, "one for each"),
    ],
)
def test_what_has_no_proof_is_refused(algorithm: DVP, changes: Any, says: str) -> None:
    from privadmm.privacy.events import DiscreteGaussian

    privacy = changes.get("privacy")
    if privacy is not None and privacy.kind is pytest.importorskip:
        changes = {"privacy": replace(privacy, kind=DiscreteGaussian)}
    with pytest.raises(ConfigError, match=says):
        _ = Job(algorithm, public(C=1.0, **changes)).plan


def test_calibration_and_alpha_go_together() -> None:
    for wrong in (
        {"alpha": 1.0},
        {"calibration": "box"},
        {"calibration": "proof", "alpha": 1.0, "party_alpha": (1.0,)},
    ):
        with pytest.raises(ConfigError, match="alpha"):
            DVP(**wrong)  # type: ignore[arg-type]


@dataclass(frozen=True)
class RawDual(DVP):
    """The planted leak: the argmin before its noise goes into the state and the next dual."""

    def update(self, t: int, local: Local, s: Any, inbox: Mail, release: Door) -> tuple[Any, Released]:
        kept: list[Floats] = []

        class Peeping:
            def objective(self, solve: Any, like: Floats, **declared: Any) -> Released:
                def solved(b: Floats, reach: Floats) -> Floats:
                    kept.append(solve(b, reach))
                    return kept[0]

                return release.objective(solved, like, **declared)

        state, message = super().update(t, local, s, inbox, Peeping())  # type: ignore[arg-type]
        return replace(state, f=kept[0]), message


@dataclass(frozen=True)
class Understated(DVP):
    """Declares only `factor` times what one record can move."""

    what: str = "sensitivity"
    factor: float = 0.5

    def update(self, t: int, local: Local, s: Any, inbox: Mail, release: Door) -> tuple[Any, Released]:
        what, factor = self.what, self.factor

        class Lying:
            def __setattr__(self, name: str, value: Any) -> None:
                setattr(release, name, value)

            def objective(self, solve: Any, like: Floats, **declared: Any) -> Released:
                return release.objective(solve, like, **{**declared, what: factor * declared[what]})

        return super().update(t, local, s, inbox, Lying())  # type: ignore[arg-type]


def test_a_raw_argmin_in_the_dual_is_caught() -> None:
    sound = CASES["dvp"]
    first, again = replayed(sound)
    assert first == again
    first, again = replayed(replace(sound, algorithm=RawDual(eta=0.1)))
    assert first != again


def opposite(case: Case) -> tuple[float, float]:
    """A record and its mirror image, deep on the wrong side: the gradients differ by 2 L."""
    u = np.array([1.0, 0.0, 0.0, 0.0])
    data = [[(np.zeros((1, 4)), np.ones(1)), (np.stack([sign * u, 0 * u, 0 * u]), np.ones(3))] for sign in (1.0, -1.0)]
    facts = case.public(sizes=SMALL)
    state = case.algorithm.init(facts, facts.ids)
    return move(case, *data, state, case.algorithm.start(facts)[1], 0)


def test_understatements_are_caught() -> None:
    hinge = replace(CASES["dvp"], loss=HuberHinge(0.5))
    moved, allowed = opposite(hinge)
    assert VICTIM == 1
    assert 0.99 * allowed < moved <= allowed * (1 + 1e-9)
    moved, allowed = opposite(replace(hinge, algorithm=Understated(eta=0.1, factor=0.5)))
    assert moved > allowed
    with pytest.raises(AssertionError):  # k: the argmin moves further than declared
        opposite(replace(hinge, algorithm=Understated(eta=0.1, what="k", factor=1e3)))


def test_a_plan_with_less_curvature_than_there_is_is_refused() -> None:
    case = replace(CASES["dvp"], algorithm=Understated(eta=0.1, what="w", factor=1.01))
    job = case.job()
    with pytest.raises(RefusedError, match="covers"):
        train(job, cluster(job, shards(), Simulation(0)))


def test_pure_noise_costs_what_it_says_at_delta_zero() -> None:
    job = CASES["dvp-pure"].job()
    assert job.epsilon == pytest.approx(2.0, rel=1e-9)
    assert {type(event) for rows in job.plan.values() for row in rows for event in row} == {
        GammaObjective,
        GammaOutput,
    }


def test_not_private_is_said() -> None:
    assert Job(DVP(), public(privacy=NoPrivacy())).epsilon is None


@pytest.mark.parametrize("case", [case for name, case in CASES.items() if name.startswith("dvp")], ids=named)
def test_published_figures_carry_their_caveat(case: Case) -> None:
    claim = case.job().published
    if "proof" in case.name or "box" in case.name:
        assert claim is not None
        assert claim.epsilon
        assert "no total" in claim.caveat
    else:
        assert claim is None
