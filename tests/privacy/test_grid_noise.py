"""A deployment's noise lies on a grid: its count against exact laws, and what its proof needs of the mechanism.

The truth of small cases is computed with integers of 60 digits: the law of the summed privacy loss of discrete
Gaussians between two queries that differ by whole steps, and from it delta at every epsilon.
"""

import math
from collections import defaultdict
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import opendp.measurements
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.engine.guarantees import counted_again
from privadmm.errors import ConfigError, RefusedError
from privadmm.privacy import curves, mechanisms
from privadmm.privacy.accounting import classical_ratio, delta_curve, epsilon, least_delta, renyi
from privadmm.privacy.calibration import Fixed, Target, calibrate, fit
from privadmm.privacy.events import (
    STEPS,
    DiscreteGaussian,
    EarlyDiscreteGaussian,
    Gaussian,
    GaussianObjective,
    RandomizedResponse,
    Spent,
    dump,
    load,
)
from privadmm.privacy.mechanisms import Deployment, Simulation
from privadmm.privacy.release import Door

DIGITS = 60
Shifts = tuple[tuple[int, int], ...]  # of each coordinate released: by how many steps, and sigma in steps

CASES: dict[str, Shifts] = {
    "one": ((1, 2),),
    "far": ((5, 2),),
    "coarse": ((1, 1), (1, 1)),
    "twice": ((1, 2), (1, 2)),
    "eight": ((1, 4),) * 8,
    "uneven": ((3, 4), (1, 4), (2, 4)),
    "two grids": ((1, 2), (3, 4)),
    "unmoved beside": ((2, 4), (0, 4), (0, 4)),
    "fine": ((3, 8), (3, 8)),
}


def weights(sigma: int) -> dict[int, int]:
    """The discrete Gaussian as whole numbers; what is cut off and rounded weighs less than 1e-40 of them."""
    with localcontext(prec=DIGITS + 10):
        reach = range(-14 * sigma, 14 * sigma + 1)
        return {k: int((Decimal(-k * k) / (2 * sigma**2)).exp() * 10**DIGITS) for k in reach}


def losses(shifts: Shifts) -> tuple[int, dict[int, int]]:
    """The summed privacy loss, in units of 1/(2 unit), with its weight."""
    unit = math.lcm(*(sigma**2 for _, sigma in shifts))
    total = {0: 1}
    for shift, sigma in shifts:
        grown: dict[int, int] = defaultdict(int)
        for k, weight in weights(sigma).items():
            step = (shift**2 - 2 * shift * k) * (unit // sigma**2)
            for loss, count in total.items():
                grown[loss + step] += weight * count
        total = grown
    return unit, total


def truth(law: tuple[int, dict[int, int]], eps: float) -> float:
    """The exact delta: the sum of P(loss)(1 - e^(eps - loss)) over losses above eps."""
    unit, weighed = law
    with localcontext(prec=DIGITS):
        at = Decimal(eps)
        parts = (
            weight * (1 - (at - Decimal(loss) / (2 * unit)).exp())
            for loss, weight in weighed.items()
            if Decimal(loss) / (2 * unit) > at
        )
        return float(sum(parts, Decimal(0)) / sum(weighed.values()))


def counted(shifts: Shifts) -> tuple[float, float]:
    """mu and eta by the accountant."""
    mu = math.sqrt(sum((shift / sigma) ** 2 for shift, sigma in shifts))
    return mu, sum(curves.grid_distance(1, sigma) for _, sigma in shifts)


@pytest.mark.parametrize("shifts", CASES.values(), ids=CASES.keys())
def test_the_formula_is_never_below_the_truth(shifts: Shifts) -> None:
    law, (mu, eta) = losses(shifts), counted(shifts)
    for eps in np.linspace(0, curves.tail(mu, 1e-12), 60).tolist():
        assert curves.gdp_delta(mu, eps) + curves.slack(eta, eps) >= truth(law, eps) + 1e-30


@pytest.mark.parametrize("name", ["one", "far", "coarse", "twice"])
def test_without_the_slack_it_is(name: str) -> None:
    law, (mu, _) = losses(CASES[name]), counted(CASES[name])
    grid = np.linspace(0, curves.tail(mu, 1e-6), 200).tolist()
    assert any(curves.gdp_delta(mu, eps) < 0.99 * truth(law, eps) for eps in grid)


@pytest.mark.parametrize("shifts", [((20, 64),), ((40, 64),), ((12, 64), (12, 64))], ids=str)
@pytest.mark.parametrize("delta", [0.05, 0.1])
def test_the_epsilon_of_a_small_case_is_enough_and_little_more(shifts: Shifts, delta: float) -> None:
    law, (mu, eta) = losses(shifts), counted(shifts)
    total = curves.epsilon_with_slack(partial(curves.gdp_epsilon, mu), eta, delta)
    assert 0 < total < math.inf
    assert truth(law, total) <= delta
    assert truth(law, 0.98 * total) > delta
    assert curves.delta_with_slack(partial(curves.gdp_delta, mu), eta)(total) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("sigma", [1, 2, 4, 8, 16])
def test_how_far_a_discrete_gaussian_is_from_a_rounded_one(sigma: int) -> None:
    """Checked with exact sums; in two coordinates the error at most doubles."""
    law = weights(sigma)
    discrete = np.array([weight / sum(law.values()) for weight in law.values()])
    below = np.array([math.erfc(-(k + 0.5) / (sigma * math.sqrt(2))) / 2 for k in (min(law) - 1, *law)])
    rounded = np.diff(below)
    apart = np.abs(discrete - rounded).sum() / 2
    bound = curves.grid_distance(1, sigma)
    assert 0.39 * bound < apart < 0.5 * bound  # sigma^2 times it settles at 0.0202, and the bound is 1/24
    two = np.abs(np.outer(discrete, discrete) - np.outer(rounded, rounded)).sum() / 2
    assert apart < two <= curves.grid_distance(2, sigma)


def old(spent: Spent, delta: float) -> float:
    """The zCDP count, which the discrete Gaussian keeps on any grid."""
    return curves.rdp_epsilon(partial(renyi, spent), delta)


RATIOS = np.geomspace(0.2, 3000, 25).tolist()


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-3, 1e-5, 1e-6, 1e-9, 1e-12, 1e-15, 1e-100])
def test_the_count_is_never_above_the_renyi_one_nor_below_the_continuous_one(delta: float) -> None:
    for ratio in RATIOS:
        for rounds in (1, 10, 100, 10_000):
            spent = ((DiscreteGaussian(ratio), rounds),)
            total = epsilon(spent, delta)
            assert epsilon(((Gaussian(ratio), rounds),), delta) <= total <= old(spent, delta)


@pytest.mark.parametrize("dim", [1, 100, 10**6, 2**28])
def test_nor_is_it_for_any_number_of_coordinates(dim: int) -> None:
    for ratio in RATIOS:
        for rounds in (1, 100):
            eta = rounds * curves.grid_distance(dim, STEPS)
            mu, spent = math.sqrt(rounds) / ratio, ((DiscreteGaussian(ratio), rounds),)
            total = curves.epsilon_with_slack(partial(curves.gdp_epsilon, mu), eta, 1e-6)
            assert total <= old(spent, 1e-6) or curves.slack(eta, old(spent, 1e-6)) > 1e-9


@pytest.mark.parametrize(("ratio", "rounds", "delta"), [(20.0, 50, 1e-5), (50.0, 100, 1e-6), (15.0, 100, 1e-6)])
def test_a_deployment_costs_seven_percent_less_than_by_the_renyi_count(ratio: float, rounds: int, delta: float) -> None:
    spent = ((DiscreteGaussian(ratio), rounds),)
    assert 0.05 < 1 - epsilon(spent, delta) / old(spent, delta) < 0.09
    assert epsilon(spent, delta) == pytest.approx(epsilon(((Gaussian(ratio), rounds),), delta), rel=2e-4)


GOLDEN = [  # per-round epsilon, delta, total of 100 rounds
    (0.05, 1e-3, 0.2772),
    (0.10, 1e-3, 0.6339),
    (0.05, 1e-6, 0.3730),
    (0.10, 1e-6, 0.7837),
    (0.20, 1e-6, 1.6574),
]


@pytest.mark.parametrize(("round_epsilon", "delta", "exact"), GOLDEN)
def test_golden_values_hold_in_deployments(round_epsilon: float, delta: float, exact: float) -> None:
    """The same up to the effect of a thousandth of delta."""
    spent = ((DiscreteGaussian(classical_ratio(round_epsilon, delta)), 100),)
    assert epsilon(spent, delta) == pytest.approx(exact, rel=3e-4)


ETA = Fraction(1, 24 * 2**80)  # of one release, whatever its dimension


@given(
    st.lists(st.floats(0.3, 300), min_size=1, max_size=4),
    st.integers(1, 2000),
    st.sampled_from([1e-3, 1e-6, 1e-9, 1e-12]),
    st.integers(0, 3),
)
@settings(deadline=None)
def test_the_slack_of_every_release_is_in_the_count(
    ratios: list[float], rounds: int, delta: float, labels: int
) -> None:
    spent: Spent = tuple((DiscreteGaussian(ratio), rounds) for ratio in dict.fromkeys(ratios))
    pure = ((0.2, labels),) if labels else ()
    total = epsilon((*spent, *(((RandomizedResponse(0.2), labels),) if labels else ())), delta)
    mu = math.sqrt(sum(count / event.ratio**2 for event, count in spent))  # type: ignore[union-attr]
    slack = (1 + math.exp(min(total, 700))) * float(ETA * rounds * len(spent))
    gaussian = curves.mixed_delta(mu, pure)(total) + slack <= delta * (1 + 1e-9)
    assert gaussian or total == old((*spent, *(((RandomizedResponse(0.2), labels),) if labels else ())), delta)


def test_where_the_slack_is_too_large_outputs_are_counted_in_renyi_form() -> None:
    for spent, delta in (
        (((DiscreteGaussian(0.5), 100),), 1e-6),
        (((DiscreteGaussian(50.0), 100),), 1e-21),
    ):
        total = epsilon(spent, delta)
        assert total == old(spent, delta) < math.inf
        curve = delta_curve(spent)
        assert curve(total) == pytest.approx(delta, rel=1e-6, abs=0)
        assert curve(1.1 * total) < delta


def test_the_curve_goes_on_falling_where_the_slack_is_too_large() -> None:
    curve = delta_curve(((DiscreteGaussian(3.0), 100),))
    values = [curve(eps) for eps in np.linspace(0, 60, 121).tolist()]
    assert all(after <= before for before, after in pairwise(values))
    assert values[-1] < 1e-50
    bounded = curves.delta_with_slack(partial(curves.gdp_delta, 1.0), 1e-9)
    assert bounded(500.0) == bounded(50.0) > 1e-9
    assert curves.delta_with_slack(lambda eps: 1e-9, 1e-3)(1.0) == 1.0


def test_at_delta_0_nothing_on_a_grid_is_private() -> None:
    assert math.isinf(epsilon(((DiscreteGaussian(100.0), 1),), 0.0))
    with pytest.raises(ConfigError, match="delta = 0"):
        fit(Target(1.0, 0.0, DiscreteGaussian), {(0, 0): ((DiscreteGaussian(1.0),),)})


def argmins(ratio: float, w: float, cover: type[Gaussian] | type[DiscreteGaussian], count: int = 50) -> Spent:
    return ((GaussianObjective(ratio, w), count), (cover(1e4), count))


@pytest.mark.parametrize("w", [0.0, 1e-3])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_noise_inside_of_an_argmin_pays_for_its_grid(w: float, delta: float) -> None:
    simulated, deployed = argmins(40.0, w, Gaussian), argmins(40.0, w, DiscreteGaussian)
    total = epsilon(deployed, delta)
    assert epsilon(simulated, delta) < total < epsilon(simulated, delta) * (1 + 3e-4)
    releases = 50 if w else 100  # the covers have a Renyi curve that needs no slack
    assert delta_curve(simulated)(total) + (1 + math.exp(total)) * float(releases * ETA) <= delta


@pytest.mark.parametrize("early", [False, True])
def test_an_argmin_has_no_count_without_its_slack(early: bool) -> None:
    cover = EarlyDiscreteGaussian if early else DiscreteGaussian
    spent = ((GaussianObjective(40.0, 1e-3), 50), (cover(1e4), 50))
    least = least_delta(spent)
    assert least == pytest.approx(2000 * 50 * float(ETA) * (2**28 if early else 1), rel=1e-9, abs=0)
    assert math.isinf(epsilon(spent, 0.9 * least))
    assert math.isinf(epsilon(spent, 1.1 * least))  # delta would do for a smaller epsilon
    assert math.isfinite(epsilon(spent, 1e-9))
    assert math.isinf(epsilon(((GaussianObjective(1.0, 1e-3), 50), (cover(1e4), 50)), 1e-6))
    assert delta_curve(spent)(100.0) > least / 2
    assert least_delta(argmins(40.0, 1e-3, Gaussian)) == 0


def test_a_delta_that_no_noise_reaches_is_refused_with_one_that_does() -> None:
    def spend(level: float) -> Spent:
        return argmins(level, 1e-6, DiscreteGaussian)

    with pytest.raises(RefusedError, match="give a delta of at least") as caught:
        calibrate(1.0, 1e-22, spend)
    needed = float(str(caught.value).split("at least ")[1].split(",")[0])
    with pytest.raises(RefusedError, match="smallest feasible"):
        calibrate(1e-9, 1e-6, spend)
    assert needed == pytest.approx(least_delta(spend(1.0)), rel=1e-2, abs=0)
    assert epsilon(spend(calibrate(1.0, 4 * needed, spend)), 4 * needed) <= 1.0


def test_a_door_of_a_deployment_releases_no_argmin_with_a_continuous_cover() -> None:
    """The accountant reads from the cover whether noise inside of argmins lay on a grid."""
    for noise, cover in ((Deployment(), Gaussian(1e4)), (Simulation(0), DiscreteGaussian(1e4))):
        planned = ((GaussianObjective(20.0, 0.1),), (cover,))
        door = Door(np.array([0]), planned, noise, 0, 0, lambda charges: None)
        with pytest.raises(RefusedError, match="cannot release"):
            door.objective(lambda b, r: b, np.zeros((1, 3)), 2.0, np.array([0.1]), np.ones(1), np.ones(1), lambda r: r)


ROW = '{"kind": "discrete_gaussian", "ratio": 20.0}'


def test_a_row_written_before_keeps_its_count() -> None:
    early = load(ROW)
    assert early == EarlyDiscreteGaussian(20.0)
    assert dump(early) == ROW
    assert load(dump(DiscreteGaussian(20.0))) == DiscreteGaussian(20.0)
    alone: Spent = ((early, 100),)
    zcdp = curves.rdp_epsilon(lambda alpha: alpha * (100 / 20.0**2) / 2, 1e-6)
    assert epsilon(alone, 1e-6) == pytest.approx(zcdp, rel=1e-12)
    both: Spent = ((early, 60), (DiscreteGaussian(20.0), 40))
    assert epsilon(both, 1e-6) == pytest.approx(epsilon(alone, 1e-6), rel=1e-12)
    assert epsilon(((DiscreteGaussian(20.0), 100),), 1e-6) < epsilon(both, 1e-6)


@given(st.floats(0.05, 10.0), st.sampled_from([1e-3, 1e-6]), st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_a_deployment_needs_hardly_more_noise_than_a_simulation(target: float, delta: float, rounds: int) -> None:
    ratios = []
    for kind in (Gaussian, DiscreteGaussian):
        row = ((kind(1.0),),)
        ((event,),) = fit(Target(target, delta, kind), dict.fromkeys([(t, 0) for t in range(rounds)], row))[(0, 0)]
        assert epsilon(((event, rounds),), delta) <= target
        ratios.append(event.ratio)  # type: ignore[union-attr]
    assert 1 < ratios[1] / ratios[0] < 1.002


def test_argmins_are_calibrated_with_their_slack() -> None:
    shape = ((GaussianObjective(1.0, 1e-3),), (Fixed(DiscreteGaussian(1e4)),))
    (inside,), (cover,) = fit(Target(2.0, 1e-6, DiscreteGaussian), dict.fromkeys([(t, 0) for t in range(20)], shape))[
        (0, 0)
    ]
    assert 2.0 * (1 - 1e-4) <= epsilon(((inside, 20), (cover, 20)), 1e-6) <= 2.0


NOISE = Deployment()


def measurement(size: int, sensitivity: float, ratio: float) -> tuple[Any, float, int]:
    """The measurement that a deployment makes with OpenDP, and the scale and k that it asks for."""
    seen, make_gaussian = [], opendp.measurements.make_gaussian

    def noted(domain: Any, metric: Any, scale: float, k: int) -> Any:
        seen.append((scale, k))
        return make_gaussian(domain, metric, scale, k=k)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opendp.measurements, "make_gaussian", noted)
        made = NOISE.measurement(size, sensitivity, ratio)
    ((scale, k),) = seen
    return made, scale, k


edges = st.one_of(
    st.floats(1e-308, 1e180),
    st.integers(-1020, 600).map(lambda k: 2.0**k),
    st.integers(-1020, 600).map(lambda k: math.nextafter(2.0**k, 0)),
)


@given(sensitivity=edges, ratio=st.floats(1e-50, 1e50), root=st.integers(1, 2**14))
@settings(max_examples=300, deadline=None)
def test_every_release_keeps_what_the_accountant_relies_on(sensitivity: float, ratio: float, root: int) -> None:
    made, scale, k = measurement(root**2, sensitivity, ratio)
    step = Fraction(2) ** k
    assert Fraction(scale) >= Fraction(ratio) * (Fraction(sensitivity) + step * root)
    assert Fraction(scale) >= 2**40 * step * root
    assert step * root <= float(NOISE.grid(np.array(ratio * sensitivity))) < 4 * step * root
    if ratio * sensitivity > 1e-100 and ratio < 1e5:  # and no more noise than that, where the grid is not its limit
        assert Fraction(scale) <= Fraction(ratio) * (Fraction(sensitivity) + step * root) * (1 + Fraction(2) ** -48)
    own = made.map(sensitivity)  # OpenDP's own zCDP, rounded up
    assert own <= 0.5 / ratio**2 * (1 + 1e-14) or own < 1e-290


def test_noise_below_the_finest_grid_is_larger_than_asked_for() -> None:
    draws = NOISE.gaussian(np.zeros((1, 500)), np.array([1e-305]), np.array([3.0]), np.array([0]), (0, 0, 0))
    assert np.std(draws / mechanisms.LEAST) == pytest.approx(1, rel=0.3)
    assert np.array_equal(NOISE.grid(np.zeros(2)), np.full(2, mechanisms.LEAST / STEPS))


def test_a_scale_beyond_doubles_is_refused() -> None:
    with pytest.raises(ConfigError, match="ratio times sensitivity"):
        NOISE.measurement(3, 1e300, 1e50)


@given(st.floats(1e-20, 1e3), st.floats(0.5, 1e5), st.floats(1.01, 5.0), st.integers(0, 14))
@settings(max_examples=50, deadline=None)
def test_a_label_gains_no_more_than_the_grid_leaves_it(
    sensitivity: float, ratio: float, gain: float, bits: int
) -> None:
    """Between labels the query moves less, and is rounded by as much as before."""
    _, scale, k = measurement(4**bits, sensitivity, ratio)
    moved = Fraction(sensitivity) / Fraction(gain) + Fraction(2) ** (k + bits)
    event = counted_again(DiscreteGaussian(ratio), gain, 1.0)
    assert event.ratio <= Fraction(scale) / moved * (1 + Fraction(1, 10**12))  # type: ignore[union-attr]
    assert gain * ratio * (1 + 2.0**-49) > Fraction(scale) / moved  # what it would be without the grid
    assert counted_again(DiscreteGaussian(ratio), 1.0, 1.0) == DiscreteGaussian(ratio)
