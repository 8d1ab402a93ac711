"""The trade between privacy and accuracy in the dual variable perturbation paper (its section 5).

alpha is the privacy of one round; the loss after some rounds, averaged over noise, is fitted by

    L_acc(alpha) = c4 exp(-c5 alpha) + c6,    c4, c5, c6 >= 0                                              (1)

and set against the paper's utility of privacy, with its weights omega_p1..omega_p4 (0.02, 6, 9, 1 below its Figure 3):

    U_priv(alpha) = omega1 ln( omega2 / (omega3 alpha + omega4 alpha^2) )                                  (2)

The paper fits (1), plots (2) beside it, and leaves the choice to the reader. Here the best alpha is the one with the
largest U_priv(alpha) - loss: of the alphas that were run by their measured losses (`measured_best`), and between them
by the fitted curve (`best`), which says something only if the fit is good. As (2) has no upper bound at 0, it may be
the smallest or largest of them, and `where` says so: such an optimum is one of the grid, not of the method.

Its Assumption 6 has both monotonicities the wrong way round, and its constants of (1) are printed twice, differently;
neither is used.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.params import check_nonnegative, check_positive

WEIGHTS = (0.02, 6.0, 9.0, 1.0)  # omega_p1 to omega_p4 below the paper's Figure 3
TIGHT = {"ftol": 1e-13, "xtol": 1e-13, "gtol": 1e-13}
GOOD_R2, GOOD_OFF = 0.9, 0.1  # the least R^2 and the largest relative error of a good fit
ALPHAS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # the paper names 0.3 alone


class FitError(PrivadmmError):
    """The losses do not follow the paper's curve: there is no trade-off to read off it."""


@dataclass(frozen=True)
class Fit:
    """(1), the share r2 of the losses' variance that it explains, and its largest relative error."""

    c4: float
    c5: float
    c6: float
    r2: float
    off: float

    def __call__(self, alpha: Floats) -> Floats:
        return model(alpha, self.c4, self.c5, self.c6)

    @property
    def good(self) -> bool:
        """Whether the losses follow the curve; if not, neither its constants nor its best alpha say anything."""
        return self.r2 >= GOOD_R2 and self.off <= GOOD_OFF

    @property
    def record(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class Weights:
    """omega_p1 to omega_p4 of (2)."""

    omega1: float
    omega2: float
    omega3: float
    omega4: float

    def __post_init__(self) -> None:
        check_positive(omega1=self.omega1, omega2=self.omega2, omega3=self.omega3)
        check_nonnegative(omega4=self.omega4)

    def privacy(self, alpha: Floats) -> Floats:
        """(2)"""
        return self.omega1 * np.log(self.omega2 / (self.omega3 * alpha + self.omega4 * alpha**2))


def fit(alphas: Sequence[float], losses: Sequence[float], what: str = "the losses") -> Fit:
    """(1) by least squares, from several first guesses; `what` opens the message of a FitError."""
    from scipy.optimize import OptimizeWarning, curve_fit

    x, y = np.array(alphas, dtype=float), np.array(losses, dtype=float)
    if len(set(alphas)) < 4:
        raise ConfigError(f"a curve of three constants needs four alphas or more, not {len(set(alphas))}")
    if not np.isfinite(y).all():
        raise FitError(f"{what} are not finite: the iterates ran away; leave out the smallest alphas")
    spread = float(np.sum((y - y.mean()) ** 2))
    if spread <= 1e-24 * float(np.sum(y**2)):
        raise FitError(f"{what} do not change with alpha, so nothing is traded: try alphas further apart")
    found: list[tuple[float, Floats]] = []
    for c5 in 1 / np.unique(x):
        guess = (max(float(np.ptp(y)), 1e-12), float(c5), max(float(y.min()), 0.0))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptimizeWarning)  # of covariances, which are not used
            try:
                c, _ = curve_fit(model, x, y, p0=guess, bounds=(0, np.inf), maxfev=20_000, **TIGHT)
            except (RuntimeError, ValueError):
                continue
        found.append((float(np.sum((model(x, *c) - y) ** 2)), c))
    if not found:
        raise FitError(f"{what} could not be fitted by c4 exp(-c5 alpha) + c6: try other alphas, or more seeds")
    left, (c4, c5, c6) = min(found, key=lambda one: one[0])
    r2 = 1 - left / spread
    if not r2 > 1e-6:
        raise FitError(
            f"{what} do not fall as alpha grows: c4 exp(-c5 alpha) + c6 explains nothing of them. Try alphas further "
            "apart, or more seeds"
        )
    off = float(np.max(np.abs(model(x, c4, c5, c6) - y) / np.maximum(np.abs(y), 1e-12)))
    return Fit(float(c4), float(c5), float(c6), r2, off)


def model(alpha: Floats, c4: float, c5: float, c6: float) -> Floats:
    return np.asarray(c4 * np.exp(-c5 * alpha) + c6)


def measured_best(alphas: Sequence[float], losses: Sequence[float], weights: Weights) -> dict[str, Any]:
    """Of the alphas that were run, in rising order, the one with the largest U_priv - measured loss."""
    privacy = weights.privacy(np.array(alphas, dtype=float))
    at = int(np.argmax(privacy - np.array(losses, dtype=float)))
    return {
        "alpha": float(alphas[at]),
        "where": "smallest" if at == 0 else "largest" if at == len(alphas) - 1 else "inside",
        "loss": float(losses[at]),
        "privacy_utility": float(privacy[at]),
        "utility": float(privacy[at] - losses[at]),
    }


def best(curve: Fit, weights: Weights, low: float, high: float) -> dict[str, Any]:
    """The alpha in [low, high] with the largest U_priv - L_acc: the best of a fine grid, then of its neighbourhood."""
    from scipy.optimize import minimize_scalar

    def cost(log: float) -> float:
        alpha = np.array(math.exp(log))
        return float(curve(alpha) - weights.privacy(alpha))

    grid = np.linspace(math.log(low), math.log(high), 2001)
    at = int(np.argmin([cost(log) for log in grid]))
    around = (grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)])
    inside = float(minimize_scalar(cost, bounds=around, method="bounded", options={"xatol": 1e-12}).x)
    log = min((inside, *around), key=cost)
    alpha = min(max(math.exp(log), low), high)
    value = np.array(alpha)
    return {
        "alpha": alpha,
        "where": "smallest" if log <= grid[0] else "largest" if log >= grid[-1] else "inside",
        "loss": float(curve(value)),
        "privacy_utility": float(weights.privacy(value)),
        "utility": float(weights.privacy(value) - curve(value)),
    }
