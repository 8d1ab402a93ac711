"""Losses: derivatives belong to their values, and the constants that proofs rely on hold and are attained."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privadmm.errors import ConfigError
from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, HuberHinge, Logistic, Loss, Squared

SMOOTH = [
    Logistic(),
    HalfLogistic(),
    HuberHinge(0.5),
    HuberHinge(0.01),
    HuberHinge(3.0),
    Squared(2.0, radius=5.0),
]
ALL = [*SMOOTH, Hinge()]
CLASSIFIERS = [loss for loss in ALL if loss.classification]

scores = st.floats(-1e4, 1e4)
signs = st.sampled_from([-1.0, 1.0])


def at(function, m, y):
    with np.errstate(all="raise", under="ignore"):
        return float(function(np.array([m]), np.array([y]))[0])


@pytest.mark.parametrize("loss", ALL, ids=repr)
@given(a=scores, b=scores, y=signs)
def test_convex_with_its_derivative_as_subgradient(loss, a, b, y):
    value, slope = at(loss.value, a, y), at(loss.deriv, a, y)
    assert at(loss.value, b, y) >= value + slope * (b - a) - 1e-12 * (1 + abs(a) + abs(b)) ** 2
    assert value >= 0


@pytest.mark.parametrize("loss", SMOOTH, ids=repr)
@given(a=scores, b=scores, y=signs)
def test_the_derivative_is_monotone_and_moves_no_faster_than_the_smoothness(loss, a, b, y):
    """The bound holds across the kinks of `curv` too: the proofs use it there."""
    low, high = sorted((a, b))
    move = at(loss.deriv, high, y) - at(loss.deriv, low, y)
    assert -1e-12 <= move <= loss.smoothness * (high - low) * (1 + 1e-12) + 1e-12


def label_of(loss, part):
    """A label that the loss is for; `part` is between -1 and 1."""
    return math.copysign(1.0, part) if loss.classification else part * loss.label_bound


def check_constants(loss, m, y, z):
    """Raise unless the declared constants hold at score m between the labels y and z."""
    slopes = [at(loss.deriv, m, label) for label in (y, z)]
    assert max(map(abs, slopes)) <= loss.lipschitz * (1 + 1e-12)
    assert abs(slopes[0] - slopes[1]) <= loss.flip * (1 + 1e-12)
    if math.isfinite(loss.flip_smoothness):
        bends = [at(loss.curv, m, label) for label in (y, z)]
        assert abs(bends[0] - bends[1]) <= loss.flip_smoothness * (1 + 1e-12) + 1e-15


@pytest.mark.parametrize("loss", ALL, ids=repr)
@given(m=scores, parts=st.tuples(st.floats(-1, 1), st.floats(-1, 1)))
def test_the_constants_hold_at_every_score_and_between_labels(loss, m, parts):
    check_constants(loss, m, *(label_of(loss, part) for part in parts))


@pytest.mark.parametrize("name", ["lipschitz", "flip", "flip_smoothness"])
def test_a_constant_that_is_too_small_is_found(name):
    """Control for the law above."""
    loss = type("Wrong", (HalfLogistic,), {name: 0.1})()
    with pytest.raises(AssertionError):
        [check_constants(loss, m, 1.0, -1.0) for m in np.linspace(-5, 5, 101)]


def check_attained(loss):
    far = np.geomspace(5, 1e4, 2_001)  # where a loss may come near its slope only
    near = np.linspace(-5, 5, 20_001)
    m = np.concatenate([-far, near, far]) if loss.classification else np.array([-5.0, 5.0])
    y = np.full_like(m, 1.0 if loss.classification else 2.0)
    assert np.abs(loss.deriv(m, y)).max() >= 0.99 * loss.lipschitz
    if math.isfinite(loss.smoothness):
        assert loss.curv(m, y).max() >= 0.99 * loss.smoothness


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_the_constants_are_attained(loss):
    """The constants are tight: none could be halved."""
    check_attained(loss)


class Slow(Loss):
    """sqrt(1 + (1 - t)^2) - 1, whose slope is 0.98 at t = -5 and 1 only in the limit."""

    lipschitz, smoothness = 1.0, 1.0

    def deriv(self, m, y):
        return -y * (1 - y * m) / np.hypot(1, 1 - y * m)

    def curv(self, m, y):
        return np.hypot(1, 1 - y * m) ** -3.0


def test_a_slope_that_is_reached_far_out_is_attained_and_a_constant_of_twice_its_size_is_not():
    check_attained(Slow())
    for name in ("lipschitz", "smoothness"):
        with pytest.raises(AssertionError):
            check_attained(type("Wrong", (Slow,), {name: 2.0})())


@pytest.mark.parametrize("loss", ALL, ids=repr)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_derivatives_by_differences(loss, y):
    """On a grid that avoids the kinks: t = 0, 1 - h, 1, 1 + h, and the radius of the squared loss."""
    m, step = np.arange(-6, 6, 0.013) + 0.0017, 1e-6
    width, radius = getattr(loss, "h", 0.0), getattr(loss, "radius", 0.0)
    kinks = np.array([0.0, 1 - width, 1.0, 1 + width, -radius, radius])
    m = m[np.abs(y * m[:, None] - kinks).min(axis=1) > 1e-4]
    y = np.full_like(m, y)
    slope = (loss.value(m + step, y) - loss.value(m - step, y)) / (2 * step)
    np.testing.assert_allclose(loss.deriv(m, y), slope, atol=1e-8)
    if math.isfinite(loss.smoothness):
        bend = (loss.deriv(m + step, y) - loss.deriv(m - step, y)) / (2 * step)
        np.testing.assert_allclose(loss.curv(m, y), bend, atol=1e-6 * loss.smoothness + 1e-8)


@pytest.mark.parametrize("loss", CLASSIFIERS, ids=repr)
def test_only_the_product_of_label_and_score_counts(loss):
    m = np.linspace(-4, 4, 101)
    one = np.ones_like(m)
    assert (loss.value(m, -one) == loss.value(-m, one)).all()
    assert (loss.deriv(m, -one) == -loss.deriv(-m, one)).all()


@pytest.mark.parametrize("loss", ALL, ids=repr)
def test_arguments_are_left_alone_and_shapes_kept(loss):
    m, y = np.linspace(-2, 2, 12).reshape(3, 4), np.ones((3, 4))
    before = m.copy(), y.copy()
    for function in (loss.value, loss.deriv, *([loss.curv] if math.isfinite(loss.smoothness) else [])):
        assert function(m, y).shape == (3, 4)
        np.testing.assert_array_equal((m, y), before)
    assert loss.deriv(m, y[0]).shape == (3, 4)  # replicas share labels


def test_logistic_keeps_its_digits_in_both_tails():
    m = np.array([40.0, 700.0, 1e4, -40.0, -700.0, -1e4])
    y = np.ones(6)
    np.testing.assert_allclose(Logistic().value(m, y), np.logaddexp(0, -m), rtol=1e-15)
    np.testing.assert_allclose(Logistic().deriv(m, y)[:2], -np.exp(-m[:2]), rtol=1e-15)
    np.testing.assert_allclose(Logistic().deriv(m, y)[3:], -1.0, rtol=1e-15)
    np.testing.assert_allclose(Logistic().curv(m, y)[[0, 3]], np.exp(-40), rtol=1e-15)
    sigma = 1 / (1 + np.exp(-40.0))
    assert sigma * (1 - sigma) == 0  # the textbook form has none left


def test_half_logistic_is_logistic_above_zero_and_straight_below():
    t = np.linspace(0, 9, 50)
    y = np.ones_like(t)
    half, full = HalfLogistic(), Logistic()
    assert (half.deriv(t, y) == full.deriv(t, y)).all()
    assert (half.value(t, y) == full.value(t, y)).all()
    assert (half.deriv(-t, y) == -0.5).all()
    np.testing.assert_allclose(half.value(-t, y), math.log(2) + t / 2, rtol=1e-15)
    assert half.curv(np.zeros(1), np.ones(1)) == 0.25  # the side with a Hessian: every start is at score 0
    assert half.curv(np.array([-1e-9]), np.ones(1)) == 0


def test_huber_hinge_closes_in_on_the_hinge():
    t = np.linspace(-3, 5, 1000)
    y = np.ones_like(t)
    for h in (1.0, 0.1, 0.01):
        gap = HuberHinge(h).value(t, y) - Hinge().value(t, y)
        assert gap.min() >= -1e-15
        assert gap.max() <= h / 4 + 1e-15


def test_hinge_has_no_curvature():
    assert Hinge().smoothness == math.inf
    with pytest.raises(ConfigError, match="huber_hinge"):
        Hinge().curv(np.zeros(1), np.ones(1))


def test_squared_needs_a_declared_radius_before_it_has_a_constant():
    free, bounded = Squared(2.0), Squared(2.0, radius=3.0)
    assert free.lipschitz == math.inf
    assert bounded.lipschitz == 5.0
    m, y = np.linspace(-3, 3, 61), np.full(61, 100.0)  # a label beyond its bound counts as the bound
    for loss in (free, bounded):
        assert (loss.deriv(m, y) == m - 2.0).all()
        np.testing.assert_allclose(loss.value(m, y), (m - 2.0) ** 2 / 2, rtol=1e-15)
    assert np.abs(bounded.deriv(1e3 * m, -y)).max() == bounded.lipschitz
    assert np.abs(free.deriv(1e3 * m, -y)).max() > bounded.lipschitz  # control: the radius is what bounds it


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: HuberHinge(0.0), "h must"),
        (lambda: HuberHinge(math.nan), "h must"),
        (lambda: Squared(label_bound=0.0), "label_bound"),
        (lambda: Squared(1.0, radius=-1.0), "radius"),
        (lambda: Squared(150.0, radius=60.0), "radius = 60 is below label_bound = 150.*at least label_bound"),
    ],
)
def test_senseless_parameters_are_refused(make, word):
    with pytest.raises(ConfigError, match=word):
        make()


REPORTED = [
    Debiased(loss, epsilon)
    for loss in (Logistic(), HalfLogistic(), HuberHinge(0.5), Hinge())
    for epsilon in (0.1, 1.0, 4.0)
]
GRID = np.concatenate([np.linspace(-40, 40, 8001), np.array([-1e-9, 1e-9])])


@pytest.mark.parametrize("loss", REPORTED, ids=repr)
@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_a_debiased_loss_is_the_loss_on_average_over_the_reports(loss, y):
    y = np.full_like(GRID, y)
    keep = 1 / (1 + math.exp(-loss.epsilon))
    functions = ["value", "deriv", *(["curv"] if math.isfinite(loss.smoothness) else [])]
    for name in functions:
        reported, true = getattr(loss, name), getattr(loss.loss, name)
        expected = keep * reported(GRID, y) + (1 - keep) * reported(GRID, -y)
        np.testing.assert_allclose(expected, true(GRID, y), atol=1e-12 * (1 + np.abs(GRID)).max())
        wrong = 1 / (1 + math.exp(-1.1 * loss.epsilon))  # labels kept more often than the loss is told
        biased = wrong * reported(GRID, y) + (1 - wrong) * reported(GRID, -y)
        if not (name == "curv" and loss.convex):  # which does not depend on the label at all
            assert np.abs(biased - true(GRID, y)).max() > 1e-3


@pytest.mark.parametrize("loss", REPORTED, ids=repr)
def test_the_constants_of_a_debiased_loss_hold_and_are_attained(loss):
    m, y = np.sort(GRID), np.ones_like(GRID)
    slopes = {sign: loss.deriv(m, sign * y) for sign in (1, -1)}
    found = {
        "lipschitz": max(np.abs(slope).max() for slope in slopes.values()),
        "flip": np.abs(slopes[1] - slopes[-1]).max(),
    }
    if math.isfinite(loss.smoothness):
        steep = [np.abs(np.diff(slope) / np.diff(m)).max() for slope in slopes.values()]
        bend = {sign: loss.curv(m, sign * y) for sign in (1, -1)}
        found["smoothness"] = max(*steep, *(np.abs(b).max() for b in bend.values()))
        found["flip_smoothness"] = np.abs(bend[1] - bend[-1]).max()
    for name, most in found.items():
        assert most <= getattr(loss, name) * (1 + 1e-6), name  # differences of rounded numbers
        assert most >= 0.999 * getattr(loss, name), name


def test_of_the_debiased_losses_only_the_logistic_is_convex():
    m, y = np.linspace(-10, 10, 4001), np.ones(4001)
    for loss in REPORTED:
        falls = min(np.diff(loss.deriv(m, sign * y)).min() for sign in (1, -1))
        assert loss.convex == (falls >= -1e-12)
    half = Debiased(HalfLogistic(), 1.0)
    assert half.curv(np.array([-0.5]), np.ones(1))[0] < -0.1
    middle = half.value(np.array([-1.0]), np.ones(1)) + half.value(np.array([0.0]), np.ones(1))
    assert middle / 2 < half.value(np.array([-0.5]), np.ones(1)) - 0.01  # above its own chord


def test_a_debiased_loss_of_many_or_of_no_classes():
    with pytest.raises(ConfigError, match="regression"):
        Debiased(Squared(1.0), 1.0)
    with pytest.raises(ConfigError, match="epsilon"):
        Debiased(Logistic(), 0.0)
    certain = Debiased(Logistic(), 1e4)  # labels as they are
    assert (certain.lipschitz, certain.flip) == (1.0, 1.0)
