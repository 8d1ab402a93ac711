"""Regularisers: value, subgradient and prox belong together, and the constants hold."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from privadmm.errors import ConfigError
from privadmm.optim.regularizers import L1, L2, ElasticNet

ALL = [L2(0.7), L1(0.7), ElasticNet(0.7, 0.3), ElasticNet(0.7, 0.0), ElasticNet(0.7, 1.0), L2(0.0), L1(0.0)]

vectors = arrays(float, 4, elements=st.floats(-100, 100, allow_subnormal=False))
steps = st.floats(1e-3, 1e3)


@pytest.mark.parametrize("r", ALL, ids=repr)
@given(x=vectors, z=vectors)
def test_subgradients_and_strong_convexity(r, x, z):
    """R(z) >= R(x) + <subgradient(x), z - x> + (strong_convexity / 2) |z - x|^2"""
    gap = r.value(z) - r.value(x) - r.subgradient(x) @ (z - x)
    bound = r.strong_convexity / 2 * np.sum((z - x) ** 2)
    assert gap >= bound - 1e-9 * (1 + abs(r.value(z)) + abs(r.value(x)))
    if r.strong_convexity > 0 and r.rest is None:
        assert gap < 1.01 * bound + 1e-6 * (1 + abs(r.value(z)) + abs(r.value(x)))  # it could not be larger


@pytest.mark.parametrize("r", ALL, ids=repr)
@given(x=vectors, z=vectors, step=steps)
def test_prox_minimises(r, x, z, step):
    def objective(v):
        return step * r.value(v) + np.sum((v - x) ** 2) / 2

    best = r.prox(x, step)
    assert objective(best) <= objective(z) + 1e-9 * (1 + objective(z))
    for nudge in (1e-3, -1e-3):
        assert objective(best) <= objective(best + nudge * np.sign(x + 0.5)) + 1e-9 * (1 + objective(best))


@pytest.mark.parametrize("r", ALL, ids=repr)
@given(x=vectors, z=vectors, step=steps)
def test_prox_brings_points_together(r, x, z, step):
    moved = np.linalg.norm(r.prox(x, step) - r.prox(z, step))
    assert moved <= np.linalg.norm(x - z) / (1 + step * r.strong_convexity) * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("r", ALL, ids=repr)
@given(x=vectors)
def test_smooth_and_rest_add_up(r, x):
    rest = 0.0 if r.rest is None else r.rest.value(x)
    np.testing.assert_allclose(r.smooth.value(x) + rest, r.value(x), rtol=1e-12)
    assert r.smooth.strong_convexity == r.strong_convexity
    assert math.isfinite(r.smooth.smoothness)
    assert (r.rest is None) == math.isfinite(r.smoothness)


@pytest.mark.parametrize("r", ALL, ids=repr)
@given(x=vectors, z=vectors)
def test_the_gradient_moves_no_faster_than_the_smoothness(r, x, z):
    if math.isfinite(r.smoothness):
        moved = np.linalg.norm(r.subgradient(x) - r.subgradient(z))
        assert moved <= r.smoothness * np.linalg.norm(x - z) * (1 + 1e-9) + 1e-150  # below, squares vanish


def test_a_kink_has_no_smoothness():
    """Control for the law above: no finite number would do for L1."""
    for r in (L1(0.7), ElasticNet(0.7, 0.3)):
        x = np.full(4, 1e-12)
        moved = np.linalg.norm(r.subgradient(x) - r.subgradient(-x))
        assert moved > 1e9 * np.linalg.norm(2 * x)
        assert r.smoothness == math.inf


@given(x=vectors)
def test_subgradients_of_l1_are_bounded_and_attain_the_bound(x):
    r = L1(0.7)
    assert np.linalg.norm(r.subgradient(x)) <= r.subgradient_bound(4) * (1 + 1e-12)
    assert np.linalg.norm(r.subgradient(np.ones(4))) == pytest.approx(r.subgradient_bound(4))
    assert L2(0.7).subgradient_bound(4) == ElasticNet(0.7, 0.3).subgradient_bound(4) == math.inf
    assert ElasticNet(0.7, 1.0).subgradient_bound(4) == r.subgradient_bound(4)


@pytest.mark.parametrize("r", ALL, ids=repr)
def test_the_last_axis_is_the_vector(r):
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    assert r.value(x).shape == (2, 3)
    assert r.value(x)[1, 2] == pytest.approx(r.value(x[1, 2]), rel=1e-14)
    np.testing.assert_array_equal(r.prox(x, 0.5)[1, 2], r.prox(x[1, 2], 0.5))


def test_elastic_net_is_scikit_learns():
    x = np.array([1.0, -2.0, 0.0])
    assert ElasticNet(0.5, 0.2).value(x) == pytest.approx(0.5 * (0.2 * 3 + 0.8 / 2 * 5))


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: L2(-1.0), "weight"),
        (lambda: L1(math.nan), "weight"),
        (lambda: ElasticNet(1.0, 1.5), "l1_ratio"),
        (lambda: ElasticNet(1.0, math.nan), "l1_ratio"),
    ],
)
def test_senseless_parameters_are_refused(make, word):
    with pytest.raises(ConfigError, match=word):
        make()
