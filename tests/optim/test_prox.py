"""Proximal maps against root finding, for every loss, over eight orders of magnitude of rho/M."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, HuberHinge, Logistic, Loss, Squared, falling_root

LOSSES = [
    Logistic(),
    HalfLogistic(),
    HuberHinge(0.5),
    HuberHinge(1e-3),
    Hinge(),
    Squared(1.0),
    Squared(1.0, radius=1.0),
    Debiased(Logistic(), 0.5),
]
numbers = st.one_of(st.floats(-5, 5), st.floats(-1e5, 1e5), st.sampled_from([0.0, 1.0, -1.0, 1.5]))


def root(loss: Loss, v: float, y: float, k: float) -> float:
    """The root of the increasing h(z) = loss'(z) + k (z - v) by scipy, from a bracket widened until it holds one."""

    def h(z: float) -> float:
        return float(loss.deriv(np.array([z]), np.array([y]))[0]) + k * (z - v)

    wide = 1.0
    while h(v - wide) > 0 or h(v + wide) < 0:
        wide *= 4
    return float(brentq(h, v - wide, v + wide, xtol=1e-300, rtol=1e-15, maxiter=1000))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{type(loss).__name__}{getattr(loss, 'h', '')}")
def test_it_is_the_minimiser(loss: Loss) -> None:
    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(numbers, st.sampled_from([-1.0, 1.0]), st.floats(-4, 4))
    def search(v: float, y: float, power: float) -> None:
        k = 10.0**power
        z = loss.prox(np.array([v]), np.array([y]), k)[0]
        assert z == pytest.approx(root(loss, v, y, k), rel=1e-11, abs=1e-11 * (1 + abs(v)))

    search()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_many_at_once_are_what_each_is_alone(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    v, y = (
        rng.normal(size=(3, 50)) * 10.0 ** rng.uniform(-3, 4, size=(3, 50)),
        rng.choice([-1.0, 1.0], size=50),
    )
    z = loss.prox(v, y, 1e-3)
    assert z.shape == v.shape
    for (i, j), value in np.ndenumerate(z):
        assert value == loss.prox(v[i : i + 1, j], y[j : j + 1], 1e-3)[0]


def test_digits_are_kept_where_the_weight_is_tiny() -> None:
    """v is of the size of 1/k there, and z of the size of 1: a difference of the two would lose z's digits."""
    for k in 10.0 ** -np.arange(1.0, 51.0):
        for loss, slope in ((Logistic(), 1 / (1 + np.exp(0.3))), (HuberHinge(0.5), 0.6), (Squared(1.0), 0.7)):
            v = np.array([-slope / k])  # h(z) = loss'(z) + k z + slope: v does not matter beyond its product with k
            z = loss.prox(v, np.ones(1), k)
            off = loss.deriv(z, np.ones(1)) + k * z + slope
            assert abs(off[0]) <= 1e-15, (loss, k)


def test_undamped_newton_does_not_do() -> None:
    """The control: from another start, v, Newton's method runs away where k is small."""
    loss, k, v, y = Logistic(), 1e-4, np.array([-50.0]), np.ones(1)
    z = v.copy()
    for _ in range(30):
        with np.errstate(over="ignore"):
            z = z - (loss.deriv(z, y) + k * (z - v)) / (loss.curv(z, y) + k)
    good = loss.prox(v, y, k)
    assert abs(loss.deriv(good, y) + k * (good - v))[0] < 1e-12
    assert not abs(z - good)[0] < 1


def test_steps_from_below_never_pass_the_root() -> None:
    """Why Newton's method needs no bracket there: computed roots lie at most a few bits above the true ones."""
    s = np.concatenate([np.linspace(-0.5, 40, 4001), np.geomspace(1e-3, 1e6, 500)])
    for k in 10.0 ** np.arange(-8, 5):
        inside = s[s >= -1 / (2 * k)]
        t = falling_root(inside, k)
        slack = 4 * np.spacing(np.maximum(np.abs(t), np.abs(inside)))
        assert np.all(k * (t - inside - slack) <= 1 / (1 + np.exp(np.minimum(t - slack, 700))) * (1 + 1e-12))
