"""Calibration: the least noise within a budget, from above, with few evaluations of the accountant."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from privadmm.errors import RefusedError
from privadmm.privacy import calibration
from privadmm.privacy.accounting import epsilon, rdp, renyi
from privadmm.privacy.calibration import calibrate
from privadmm.privacy.curves import least_over_alpha
from privadmm.privacy.events import (
    DiscreteGaussian,
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    Spent,
)

SHAPES: dict[str, Callable[[float, float], Event]] = {
    "output": lambda level, w: Gaussian(level),
    "output on a grid": lambda level, w: DiscreteGaussian(level),
    "argmin": lambda level, w: GaussianObjective(level, w),
    "pure output": lambda level, w: GammaOutput(level),
    "pure argmin": lambda level, w: GammaObjective(1 / level, w),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_least_level_is_found_from_above(shape: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(12):
        target, delta, w = (float(value) for value in np.exp(rng.uniform((-4, -18, -14), (3, -6, -7))))
        rounds = int(rng.integers(1, 50))

        def spend(level: float, w: float = w, rounds: int = rounds) -> Spent:
            return ((SHAPES[shape](level, w), rounds),)

        try:
            level = calibrate(target, delta, spend)
        except RefusedError:
            assert "argmin" in shape, "noise of an output is never too small for a budget"
            continue
        assert epsilon(spend(level), delta) <= target
        assert epsilon(spend(level * (1 - 4e-12)), delta) > target * (1 - 1e-11)


def test_a_calibration_takes_few_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []

    def counted(spent: Spent, delta: float) -> float:
        counts.append(spent)
        return epsilon(spent, delta)

    monkeypatch.setattr(calibration, "epsilon", counted)
    for target in (0.1, 1.0, 10.0):
        counts.clear()
        calibrate(target, 1e-6, lambda level: ((GaussianObjective(level, 1e-4), 50), (Gaussian(1e4), 50)))
        assert len(counts) <= 25, "halving alone would take sixty"


def test_infinite_costs_on_the_way_do_not_stop_it() -> None:
    level = calibrate(5.0, 1e-5, lambda level: ((GaussianObjective(level, 0.05), 3),))
    assert math.isfinite(level)
    with pytest.raises(RefusedError, match="smallest feasible"):
        calibrate(1e-3, 1e-6, lambda level: ((GaussianObjective(level, 0.5), 3),))


def test_argmins_at_once_have_the_curve_of_argmins_one_by_one() -> None:
    spent: Spent = (*((GaussianObjective(5.0 + i, 1e-3 * (i + 1)), i + 1) for i in range(7)), (Gaussian(9.0), 3))
    alpha = 1 + np.exp(np.linspace(-5, 8, 50))
    one_by_one = sum(count * rdp(event, alpha) for event, count in spent)
    np.testing.assert_allclose(renyi(spent, alpha), one_by_one, rtol=1e-13)


@pytest.mark.parametrize("w", [0.0, 1e-4, 0.03, 0.9])
def test_the_best_order_is_found(w: float) -> None:
    """Against a dense grid of orders around the least bound, also where the curve ends at (alpha - 1) w = 1."""
    for ratio in (1.0, 30.0, 1e3):
        for delta in (1e-9, 1e-2):
            spent: Spent = ((GaussianObjective(ratio, w), 20),)

            def bound(alpha: np.ndarray, spent: Spent = spent, delta: float = delta) -> np.ndarray:
                return renyi(spent, alpha) + np.log1p(-1 / alpha) - np.log(alpha * delta) / (alpha - 1)

            dense = float(np.min(bound(1 + np.exp(np.linspace(-14, 14, 400_001)))))
            assert least_over_alpha(bound) <= dense + 1e-9 * abs(dense)
