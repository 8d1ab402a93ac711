"""Events to (epsilon, delta): the published figures, an independent accountant, and laws."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.errors import ConfigError, LedgerError
from privadmm.privacy import accounting, events
from privadmm.privacy.accounting import (
    Target,
    calibrate,
    classical_ratio,
    epsilon,
    gdp_delta,
    gdp_epsilon,
    moments_accountant,
    zcdp_epsilon,
)
from privadmm.privacy.events import DiscreteGaussian, Gaussian, NotPrivate, add, dump, load, merge

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
def test_the_deployed_law_agrees_with_an_independent_rdp_accountant(
    ratio: float, count: int, delta: float
) -> None:
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    orders = [1 + x / 50 for x in range(1, 20000)]
    rdp = RdpAccountant(orders, dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    rdp.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(ratio), count))
    ours = epsilon(((DiscreteGaussian(ratio), count),), delta)
    assert ours == pytest.approx(rdp.get_epsilon(delta), rel=1e-4)
    assert ours > epsilon(((Gaussian(ratio), count),), delta)


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
    assert gdp_epsilon(a, delta) <= zcdp_epsilon(a, delta)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 20.0), deltas, st.integers(1, 1000), st.booleans())
def test_calibration_reaches_its_target_from_below(
    target: float, delta: float, n: int, discrete: bool
) -> None:
    event = calibrate(target, delta, n, discrete)
    spent = epsilon(((event, n),), delta)
    assert target * (1 - 1e-4) <= spent <= target


@given(st.lists(st.floats(0.5, 100), min_size=1, max_size=6), deltas)
def test_composition_does_not_depend_on_order(ratios: list[float], delta: float) -> None:
    history = [Gaussian(ratio) for ratio in ratios]
    assert epsilon(add((), history), delta) == epsilon(add((), history[::-1]), delta)
    assert merge(add((), history[:2]), add((), history[2:])) == add((), history)


def test_anything_in_the_clear_is_infinite() -> None:
    assert math.isinf(epsilon(((Gaussian(100.0), 1), (NotPrivate("labels"), 1)), 1e-6))


@pytest.mark.parametrize("event", [Gaussian(3.5), DiscreteGaussian(0.1 + 0.2), NotPrivate("why")])
def test_events_survive_the_ledger(event: events.Event) -> None:
    assert load(dump(event)) == event


@pytest.mark.parametrize("text", ["{}", '{"kind": "laplace", "ratio": 1}', "[]", '{"kind": "gaussian"}', "x"])
def test_an_unknown_event_fails_closed(text: str) -> None:
    with pytest.raises(LedgerError, match="cannot count"):
        load(text)


@pytest.mark.parametrize("ratio", [0.0, -1.0, math.nan, math.inf])
def test_an_event_without_noise_is_no_event(ratio: float) -> None:
    with pytest.raises(ConfigError, match="ratio"):
        Gaussian(ratio)


@pytest.mark.parametrize(
    ("epsilon_", "delta"), [(0.0, 1e-5), (-1.0, 1e-5), (1.0, 0.0), (1.0, 1.0), (math.nan, 1e-5)]
)
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
