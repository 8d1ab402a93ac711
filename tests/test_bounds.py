"""The proofs of objective perturbation and of vertical sharing, attacked; each attack also breaks a planted mistake."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

from privadmm.losses import HalfLogistic, Logistic, Loss
from privadmm.privacy import bounds, curves
from privadmm.privacy import bounds_vertical as vertical
from privadmm.privacy.bounds import DVP_NOISE, DVP_PAPER, DVP_RECORDS, Floats, Pairs, Space

LOSSES = [Logistic(), HalfLogistic()]
ROUNDING, QUADRATURE = 1e-9, 1e-6


def named(value: object) -> str:
    return getattr(value, "__name__", None) or type(value).__name__ if not isinstance(value, int) else f"d{value}"


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def some(loss: Loss, d: int, n: int, seed: int = 0) -> Pairs:
    """Pairs of moderate size, with f the output of zero noise on D."""
    space = Space(loss, d, common=2, reach=(-1, 1), w=(-2, 0), scale=(-0.5, 1))
    pairs, _ = space.draw(rng(seed).normal(size=(n, space.genes)))
    return bounds.steer(pairs, np.zeros((n, d)))


def each(loss: Loss, d: int, *values: Floats) -> Pairs:
    """One pair and one output, at every combination of curvature ratio and scale given."""
    raise NotImplementedError


# The maps themselves.


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("side", [0, 1])
def test_the_noise_is_what_makes_the_output_optimal(loss: Loss, side: int) -> None:
    pairs = some(loss, 2, 10)
    b = rng(1).normal(size=(10, 2))
    for i in range(10):
        keep = [side, *range(2, pairs.X.shape[1])]
        X, y, k, weight = pairs.X[i, keep], pairs.y[i, keep], pairs.k[i], pairs.C[i] / pairs.m[i]

        def objective(f: Floats, i: int = i, X: Floats = X, y: Floats = y) -> float:
            linear = (weight * b[i] + pairs.public[i]) @ f  # noqa: B023
            return float(weight * loss.value(X @ f, y).sum() + linear + k / 2 * f @ f) / weight  # noqa: B023

        f = minimize(objective, pairs.f[i], tol=1e-10, options={"gtol": 1e-9}, method="BFGS").x
        found = pairs.take(np.array([i])).noise(f[None, None, :])[side, 0, 0]
        assert found == pytest.approx(b[i], abs=1e-4)
