"""Events to (epsilon, delta): the published figures, an independent accountant, and laws."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privadmm.errors import ConfigError, LedgerError, RefusedError
from privadmm.privacy import accounting, curves
from privadmm.privacy.accounting import (
    classical_ratio,
    delta_curve,
    epsilon,
    moments_accountant,
    printed,
    rdp,
    rounded_down,
    shared,
    totals,
)
from privadmm.privacy.calibration import Target, calibrate, fit
from privadmm.privacy.curves import gdp_delta, gdp_epsilon, rdp_epsilon
from privadmm.privacy.events import (
    DiscreteGaussian,
    EarlyDiscreteGaussian,
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    Lost,
    NotPrivate,
    RandomizedResponse,
    add,
    dump,
    load,
    merge,
)

GOLDEN = [  # per-round epsilon, delta, the DP-ADMM paper's total, exact total; 100 rounds
    (0.05, 1e-3, 0.5009, 0.2772),
    (0.10, 1e-3, 1.0193, 0.6339),
    (0.05, 1e-6, 0.5005, 0.3730),
    (0.10, 1e-6, 1.0098, 0.7837),
    (0.20, 1e-6, 2.0553, 1.6574),
]
mus = st.floats(0.01, 5.0)
deltas = st.sampled_from([1e-2, 1e-3, 1e-5, 1e-6, 1e-9])


@pytest.mark.parametrize(("round_epsilon", "delta", "published", "exact"), GOLDEN)
def test_golden_values(round_epsilon: float, delta: float, published: float, exact: float) -> None:
    z = classical_ratio(round_epsilon, delta)
    assert moments_accountant(round_epsilon, delta, 100) == pytest.approx(published, abs=5e-5)
    assert epsilon(((Gaussian(z), 100),), delta) == pytest.approx(exact, abs=5e-5)


@pytest.mark.parametrize(("ratio", "count", "delta"), [(20.0, 100, 1e-5), (3.0, 1, 1e-6), (50.0, 400, 1e-3)])
def test_agrees_with_an_independent_accountant(ratio: float, count: int, delta: float) -> None:
    """dp-accounting's PLD. Its add/remove relation takes our ratios as they are; replace-one would double them."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    pld = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    pld.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(ratio), count))
    assert epsilon(((Gaussian(ratio), count),), delta) == pytest.approx(pld.get_epsilon(delta), rel=1e-3)


@pytest.mark.parametrize(("ratio", "count", "delta"), [(20.0, 100, 1e-5), (3.0, 1, 1e-6)])
def test_the_renyi_form_agrees_with_an_independent_rdp_accountant(ratio: float, count: int, delta: float) -> None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    orders = [1 + x / 50 for x in range(1, 20000)]
    rdp = RdpAccountant(orders, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    rdp.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(ratio), count))
    ours = epsilon(((EarlyDiscreteGaussian(ratio), count),), delta)
    assert ours == pytest.approx(rdp.get_epsilon(delta), rel=1e-4)
    assert ours > epsilon(((DiscreteGaussian(ratio), count),), delta) > epsilon(((Gaussian(ratio), count),), delta)


@given(mus, deltas)
def test_epsilon_is_rounded_up_and_no_further(mu: float, delta: float) -> None:
    found = gdp_epsilon(mu, delta)
    assert gdp_delta(mu, found) <= delta
    if found > 0:
        assert gdp_delta(mu, found * (1 - 1e-9)) > delta * (1 - 1e-6)


@given(mus, mus, deltas)
def test_more_releases_cost_more_and_less_than_the_sum(a: float, b: float, delta: float) -> None:
    both = gdp_epsilon(math.hypot(a, b), delta)
    assert both >= max(gdp_epsilon(a, delta), gdp_epsilon(b, delta))


FAMILIES = {
    "gaussian": lambda x, n: ((Gaussian(x), n),),
    "discrete gaussian": lambda x, n: ((DiscreteGaussian(x), n),),
    "discrete gaussian on an old ledger": lambda x, n: (
        (DiscreteGaussian(x), n),
        (EarlyDiscreteGaussian(1e3), 1),
    ),
    "objective, inexact": lambda x, n: ((GaussianObjective(x, 1e-4), n), (Gaussian(1e4), n)),
    "objective, deployed": lambda x, n: ((GaussianObjective(x, 1e-4), n), (DiscreteGaussian(1e4), n)),
    "gamma objective": lambda x, n: ((GammaObjective(1 / x, 1e-6), n),),
    "randomised labels beside it": lambda x, n: ((Gaussian(x), n), (RandomizedResponse(1e-3), 1)),
    "decaying variance": lambda x, n: tuple((Gaussian(x * 0.99 ** (t / 2)), 1) for t in range(n)),
}


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
@settings(max_examples=15, deadline=None)
@given(target=st.floats(0.1, 10.0), delta=deltas, n=st.sampled_from([1, 10, 100]))
def test_calibration_reaches_its_target_from_below(family, target: float, delta: float, n: int) -> None:  # type: ignore[no-untyped-def]
    x = calibrate(target, delta, lambda x: family(x, n))
    assert target * (1 - 1e-4) <= epsilon(family(x, n), delta) <= target


@pytest.mark.parametrize("pure", [(), ((1e-9, 1),)], ids=["Gaussian", "beside a pure release"])
@pytest.mark.parametrize(("mu", "delta"), [(12.095, 1e-300), (3.705, 1e-300), (7.505, 1e-280), (18.0, 1e-200)])
def test_the_smallest_deltas_lose_no_digits(mu: float, delta: float, pure: tuple[tuple[float, int], ...]) -> None:
    """A tail that is a subnormal number has hardly a digit, and e^epsilon would blow that up."""
    from scipy.special import erfcx

    around = [mu * (1 + step * 1e-4) for step in range(-60, 61)]
    for near in around:
        found = curves.mixed_epsilon(near, pure, delta) - sum(e * n for e, n in pure)
        x, y = ((found / near + sign * near / 2) / math.sqrt(2) for sign in (-1, 1))
        true = -x * x + math.log((erfcx(x) - erfcx(y)) / 2)  # ln of the smallest delta of a Gaussian at this epsilon
        assert true <= math.log(delta) + 1e-6


def test_a_sum_of_pure_releases_is_not_rounded_down() -> None:
    """Ten tenths, as floating point has them, are more than one."""
    assert curves.mixed_epsilon(0.0, ((0.5, 2),), 0.0) == 1.0
    assert curves.mixed_epsilon(0.0, ((0.1, 10),), 0.0) == math.nextafter(1.0, 2.0)
    assert curves.mixed_epsilon(0.0, ((0.1, 10),), 1e-300) == math.nextafter(1.0, 2.0)


@given(st.floats(0, 1e50))
@example(123.45678)
@example(0.99999)
def test_what_is_left_is_never_shown_as_more(left: float) -> None:
    shown = float(rounded_down(left))
    assert left - 1e-4 - 2e-5 * left <= shown <= left


@given(st.floats(0.01, 20.0), deltas, st.integers(1, 1000), st.sampled_from([Gaussian, DiscreteGaussian]))
@settings(max_examples=40, deadline=None)
def test_an_equal_split_keeps_its_target(target: float, delta: float, n: int, kind) -> None:  # type: ignore[no-untyped-def]
    ((event, *_), *_) = fit(Target(target, delta, kind), {(t, 0): ((kind(1.0),),) for t in range(n)})[(0, 0)]
    assert isinstance(event, kind)
    assert target * (1 - 1e-4) <= epsilon(((event, n),), delta) <= target
    assert epsilon(((kind(0.9999 * event.ratio), n),), delta) > target  # less noise would not do


def test_the_impossible_is_refused_with_what_is_possible() -> None:
    def spend(x: float):  # type: ignore[no-untyped-def]
        return ((GaussianObjective(x, 0.3), 100),)

    with pytest.raises(RefusedError, match=r"smallest feasible is (\d+\.\d+)") as caught:
        calibrate(0.01, 1e-6, spend)
    least = float(str(caught.value).rsplit(" ", 1)[1])
    assert epsilon(spend(calibrate(least * 1.001, 1e-6, spend)), 1e-6) <= least * 1.001


PURE_GOLDEN = [(0.05, 2.2075, 5.0), (0.1, 4.7746, 10.0), (0.3, 17.3751, 30.0)]


@pytest.mark.parametrize(("alpha", "exact", "plain"), PURE_GOLDEN)
def test_pure_golden_values(alpha: float, exact: float, plain: float) -> None:
    spent = ((GammaObjective(alpha, 0.0), 100),)
    assert epsilon(spent, 1e-6) == pytest.approx(exact, abs=5e-5)
    assert epsilon(spent, 0.0) == pytest.approx(plain)


def discretised(mu: float, pure: tuple[tuple[float, int], ...], grid: float = 1e-4) -> Any:
    """(2) as dp-accounting's privacy loss distribution, which rounds losses up to a grid."""
    from dp_accounting.pld import common, privacy_loss_distribution

    parts = []
    for eps, count in pure:
        one = common.DifferentialPrivacyParameters(eps, 0)
        whole = privacy_loss_distribution.from_privacy_parameters(one, value_discretization_interval=grid)
        parts.append(whole.self_compose(count))
    if mu > 0:
        # Our ratios are replace-one already; the library's own replace-one relation would double them.
        parts.append(privacy_loss_distribution.from_gaussian_mechanism(1 / mu, value_discretization_interval=grid))
    result = parts[0]
    for part in parts[1:]:
        result = result.compose(part)
    return result


@pytest.mark.parametrize("each", [1e-12, 2e-8, 1e-3, 0.3, 40.0, 900.0])
@pytest.mark.parametrize("alpha", [1 + 1e-6, 1.5, 40.0, 3e5])
def test_the_renyi_curve_of_a_small_pure_release_loses_no_digits(each: float, alpha: float) -> None:
    """A million of them are summed, so what cancels in one would show in an epsilon."""
    from mpmath import cosh, log, mp, mpf

    with mp.workdps(60):
        exact = (log(cosh((mpf(alpha) - 0.5) * mpf(each))) - log(cosh(mpf(each) / 2))) / (mpf(alpha) - 1)
        assert abs(float(curves.pure_rdp(np.array([alpha]), each)[0] / exact - 1)) < 1e-12


@pytest.mark.parametrize(("each", "count"), [(3e-7, 7), (7e-8, 3), (1.1e-6, 5)])
def test_deltas_of_lost_rows_are_added_up_upwards(each: float, count: int) -> None:
    """A ledger's delta may be above them by less than their last digit, and then nothing is left of it."""
    spent, whole = ((Lost(1.0, each), count),), count * Fraction(each)
    assert float(whole) < whole <= Fraction(accounting.sort(spent).lost)
    assert epsilon(spent, math.nextafter(float(whole), 1.0)) == math.inf


@pytest.mark.parametrize("mu", [0.0, 0.5])
def test_pure_and_gaussian_together_agree_with_a_discretised_distribution(mu: float) -> None:
    pure = ((0.1, 20), (0.3, 5))
    exact = curves.mixed_epsilon(mu, pure, 1e-6)
    rounded_up = discretised(mu, pure).get_epsilon_for_delta(1e-6)
    assert exact <= rounded_up <= exact + 5e-3


def test_too_many_kinds_of_pure_releases_still_count() -> None:
    spent = tuple((RandomizedResponse(0.01 + t / 1000), 1) for t in range(30))
    assert epsilon(spent, 1e-6) < sum(event.epsilon for event, _ in spent)


EVENTS = [
    Gaussian(3.0),
    DiscreteGaussian(3.0),
    EarlyDiscreteGaussian(3.0),
    GaussianObjective(3.0, 0.05),
    GammaObjective(0.2, 0.05),
    GammaOutput(4.0),
    RandomizedResponse(0.5),
]


@given(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=5), st.floats(1.01, 15))
def test_renyi_curves_add(history: list[Event], alpha: float) -> None:
    """Composition in any grouping is the sum: one call over the tally equals the sum over single events."""
    grid = accounting.np.array([alpha])
    whole = sum(count * rdp(event, grid)[0] for event, count in add((), history))
    assert whole == pytest.approx(sum(rdp(event, grid)[0] for event in history), rel=1e-12)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
def test_the_exact_form_is_never_above_the_renyi_form(event: Event, delta: float) -> None:
    exact, renyi = epsilon(((event, 10),), delta), rdp_epsilon(lambda a: 10 * rdp(event, a), delta)
    assert exact <= renyi * (1 + 1e-9)


def test_objective_perturbation_without_curvature_is_gaussian() -> None:
    flat, plain = GaussianObjective(5.0, 0.0), Gaussian(5.0)
    assert epsilon(((flat, 10),), 1e-6) == pytest.approx(epsilon(((plain, 10),), 1e-6))
    assert epsilon(((GaussianObjective(5.0, 0.1), 10),), 1e-6) > epsilon(((flat, 10),), 1e-6)


def test_joint_label_guarantee() -> None:
    """Labels randomised at 1, a transcript of mu = 0.2 for the reported label."""
    assert gdp_epsilon(0.2, 1e-5) == pytest.approx(0.726, abs=5e-4)
    best = curves.joint_label(1.0, lambda e: gdp_delta(0.2, e), 1e-5)
    assert best == pytest.approx(0.302, abs=5e-4)
    one_point = math.log((math.exp(1.726) + 1) / (math.exp(1.0) + math.exp(0.726)))
    assert one_point == pytest.approx(0.324, abs=5e-4)
    assert best < one_point < 0.726


@given(st.floats(0.1, 5.0), st.floats(0.01, 3.0), deltas)
def test_the_joint_label_guarantee_is_below_both(label: float, mu: float, delta: float) -> None:
    joint = curves.joint_label(label, lambda e: gdp_delta(mu, e), delta)
    assert joint <= min(label, gdp_epsilon(mu, delta)) * (1 + 1e-9)


@given(st.lists(st.floats(0.5, 100), min_size=1, max_size=6), deltas)
def test_composition_does_not_depend_on_order(ratios: list[float], delta: float) -> None:
    history = [Gaussian(ratio) for ratio in ratios]
    assert epsilon(add((), history), delta) == epsilon(add((), history[::-1]), delta)
    assert merge(add((), history[:2]), add((), history[2:])) == add((), history)


def test_anything_in_the_clear_is_infinite() -> None:
    assert math.isinf(epsilon(((Gaussian(100.0), 1), (NotPrivate("labels"), 1)), 1e-6))


@pytest.mark.parametrize("event", [*EVENTS, DiscreteGaussian(0.1 + 0.2), NotPrivate("why")])
def test_events_survive_the_ledger(event: Event) -> None:
    assert load(dump(event)) == event


@pytest.mark.parametrize("text", ["{}", '{"kind": "laplace", "ratio": 1}', "[]", '{"kind": "gaussian"}', "x"])
def test_an_unknown_event_fails_closed(text: str) -> None:
    with pytest.raises(LedgerError, match="cannot count"):
        load(text)


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan, math.inf])
def test_an_event_without_noise_is_no_event(ratio: float) -> None:
    with pytest.raises(ConfigError, match="ratio"):
        Gaussian(ratio)


@pytest.mark.parametrize(("epsilon_", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (1.0, -0.1), (1.0, 1.0), (math.nan, 1e-5)])
def test_a_target_must_make_sense(epsilon_: float, delta: float) -> None:
    with pytest.raises(ConfigError):
        Target(epsilon_, delta)


def test_the_curve_by_round_ends_at_the_total() -> None:
    event = Gaussian(10.0)
    plan = {(t, 0): ((event, event),) for t in range(5)}
    curve = accounting.by_round(plan, 2, 1e-5)
    assert len(curve) == 5
    assert curve == sorted(curve)
    assert curve[-1] == accounting.worst(accounting.totals(plan, 2), 1e-5)


@pytest.mark.parametrize("spec", [".4g", ".6g", ".4f"])
@pytest.mark.parametrize("value", [4e-5, 1.00049, 10004.9, 0.27715, 1.0, 0.0, 123456.7, 9.99999, math.inf])
def test_a_printed_figure_is_never_below_what_it_stands_for(value: float, spec: str) -> None:
    text = printed(value, spec)
    assert float(text) >= value
    assert float(text) <= value * 1.001 + 1e-4 or math.isinf(value)


@pytest.mark.parametrize(("count", "delta"), [(1_000_001, 1e-14), (1_000_001, 1e-6), (2_000_000, 1e-9)])
def test_very_many_pure_releases_are_counted_above_the_truth(count: int, delta: float) -> None:
    """Many small pure events together are nearly a Gaussian of mu^2 = count eps^2."""
    eps = 1e-4
    near = curves.gdp_epsilon(eps * math.sqrt(count), delta)
    assert 0.999 * near < curves.mixed_epsilon(0.0, ((eps, count),), delta) < 1.2 * near


@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_lost_releases_cost_their_delta_too(mu: float) -> None:
    """Worst of all (E, D) mechanisms: with probability D it tells everything, else it is a randomised response.

    Beside a Gaussian its exact delta is D + (1 - D) times that of the pure release, which the count covers.
    """
    E, D, delta = 0.5, 3e-6, 1e-5
    spent = merge(((Lost(E, D), 1),), ((Gaussian(1 / mu), 1),))
    total = epsilon(spent, delta)
    exact = D + (1 - D) * curves.mixed_delta(mu, ((E, 1),))(total)
    assert delta * (1 - 1e-3) <= exact <= delta
    assert delta_curve(spent)(total) <= delta * (1 + 1e-9)
    # The planted fault: counted as if it had no delta, the same mechanism exceeds what is promised.
    short = epsilon(merge(((Lost(E), 1),), ((Gaussian(1 / mu), 1),)), delta)
    assert D + (1 - D) * curves.mixed_delta(mu, ((E, 1),))(short) > delta * 1.2
    assert epsilon(spent, D) == math.inf


def test_a_shared_plan_is_the_same_plan_with_fewer_objects() -> None:
    ratios = (1.0, 2.0, 1.0)
    plan = {
        (t, 0): (tuple(Gaussian(ratio * (1 + t // 2)) for ratio in ratios), (NotPrivate("x"),) * 3) for t in range(4)
    }
    found = shared(plan)
    assert found == plan
    assert list(found) == list(plan)
    assert totals(found, 3) == totals(plan, 3)
    row = found[0, 0][0]
    assert row[0] is row[2]
    assert row[0] is not row[1]
    assert row[1] is found[2, 0][0][0]  # 2.0 in both
    assert found[0, 0] is found[1, 0]
    assert found[0, 0] is not found[2, 0]
    assert found[0, 0][1] is found[2, 0][1]
