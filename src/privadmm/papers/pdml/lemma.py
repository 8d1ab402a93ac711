"""PDML's Lemma 5: linear convergence of the perturbed iterates, if the graph and the problem allow it.

L+ and L- are the graph's signless and ordinary Laplacian, Q = (L-/2)^(1/2), Lbar = (L+ + L-)/2 its degrees; s+ and S+
are the smallest nonzero and the largest eigenvalue of L+, q^2 the smallest nonzero one of Q^2. For b in (0, 1) and
lambda1, lambda2 > 1, kappa the strong convexity and steep the smoothness of all parties' objectives,

    phi = (lambda1 - 1)/lambda1 phi_max,    phi_max = 2 kappa q^2 s+^2 / (steep^2 s+^2 + 2 kappa S+^2)
    (1 - b)(1 + phi) s+^2 - S+^2 > 0                                                                        (25)

As phi < phi_max whatever b and lambda1 are, (25) can be satisfied if and only if 1 + phi_max > (S+/s+)^2. Hence

    lambda3 = 1 + 2 kappa S+^2/(steep^2 s+^2),    lambda4 = 1 + alpha^-1/2    (of the printed root alpha alone is left)
    beta^2 = lambda1 lambda3 (lambda4 - 1) steep^2 / (lambda4 (lambda1 - 1) S+^2 q^2)

so that beta and alpha determine lambda1. Over the remaining parameters (alpha, b, lambda2), `best` takes the grid point
at which the lemma's share of (27) is least. A formula that is ambiguous in the scan of the paper is read as

    H2 = b (lambda2 - 1)/(1 - b) + [ 4 phi lambda1 max degree^2/q^2
         + S+^2 (sqrt(phi) + sqrt(2 (lambda1 - 1) q^2/(alpha lambda1 lambda3 steep^2)))^2 ]
         / ((1 - b)(1 + phi)(1 + phi - 4 alpha) s+^2)
"""

import math
from collections import namedtuple
from dataclasses import dataclass

import numpy as np

from privadmm.optim.graphs import Graph

GRID = 50


@dataclass(frozen=True)
class Spectrum:
    """The largest and the smallest nonzero eigenvalues of L+ and L-."""

    plus_max: float
    plus_min: float
    minus_max: float
    minus_min: float
    degree_max: float

    @staticmethod
    def of(graph: Graph) -> "Spectrum":
        minus = graph.laplacian()
        values = [np.linalg.eigvalsh(L) for L in (2 * np.diag(graph.degrees.astype(float)) - minus, minus)]
        (most, least), (largest, smallest) = ((float(v[-1]), float(v[v > 1e-9 * v[-1]][0])) for v in values)
        return Spectrum(most, least, largest, smallest, float(graph.degrees.max()))

    @property
    def q2(self) -> float:
        """The smallest nonzero eigenvalue of Q^2 = L-/2."""
        return self.minus_min / 2

    @property
    def ratio(self) -> float:
        """(S+/s+)^2, which 1 + phi has to exceed."""
        return (self.plus_max / self.plus_min) ** 2


# Parameters that satisfy all conditions of the lemma, and the constants that follow from them.
Chosen = namedtuple("Chosen", "b alpha lambda1 lambda2 lambda3 lambda4 phi M1 M2 C H1 H2")


@dataclass(frozen=True)
class Lemma5:
    """Lemma 5 for one graph and one pair of constants; `far` and `dual` bound |w(0) - w*|^2 and |r(0) - r_opt|^2."""

    spectrum: Spectrum
    kappa: float
    steep: float
    far: float
    dual: float

    @property
    def phi_max(self) -> float:
        s, two = self.spectrum, 2 * self.kappa
        return two * s.q2 * s.plus_min**2 / (self.steep**2 * s.plus_min**2 + two * s.plus_max**2)

    @property
    def feasible(self) -> bool:
        """(25) holds for some b and lambda1."""
        return 1 + self.phi_max > self.spectrum.ratio

    @property
    def lambda3(self) -> float:
        return 1 + 2 * self.kappa * self.spectrum.ratio / self.steep**2

    @property
    def betas(self) -> tuple[float, float]:
        """The range of beta in which the lemma has parameters, for small alpha."""
        needed = self.spectrum.ratio - 1
        most = self.phi_max / needed if needed > 1e-12 else math.inf
        return math.sqrt(self.unit), math.sqrt(self.unit * most)

    @property
    def unit(self) -> float:
        """beta^2 (1 + sqrt(alpha)) (lambda1 - 1)/lambda1"""
        return self.lambda3 * self.steep**2 / (self.spectrum.plus_max**2 * self.spectrum.q2)

    def best(self, beta: float, decay: float, noise: float) -> Chosen | None:
        """Choose parameters, with this beta and C above `decay`, that make the lemma's share of (27) least."""
        s = self.spectrum
        alpha = np.geomspace(1e-9, 1.0, 2 * GRID)[:, None, None]
        b = np.geomspace(1e-6, 0.999, GRID)[:, None]
        lambda2 = 1 + np.geomspace(1e-3, 1e4, GRID)
        g = beta**2 * (1 + np.sqrt(alpha)) / self.unit  # lambda1/(lambda1 - 1)
        phi = self.phi_max / g
        part = b * s.plus_min**2 * (1 - 1 / lambda2)
        M1 = part * (1 + phi) / (4 * part + 16 * s.degree_max**2)
        gain = (1 - b) * (1 + phi) * s.plus_min**2 - s.plus_max**2  # (25)
        M2 = gain / (4 * s.plus_max**2 + 4 * (1 - b) * s.plus_min**2)
        good = (g > 1) & (gain > 0) & (alpha < M1) & (alpha < M2)
        with np.errstate(divide="ignore", invalid="ignore"):
            lambda1 = g / (g - 1)
            C = (1 + 4 * alpha) * s.plus_max**2 / ((1 - b) * (1 + phi - 4 * alpha) * s.plus_min**2)
            H1 = self.far + 4 / ((1 + 4 * alpha) * s.plus_max**2) * self.dual
            root = np.sqrt(2 * s.q2 / (g * alpha * self.lambda3 * self.steep**2))
            late = 4 * phi * lambda1 * s.degree_max**2 / s.q2 + s.plus_max**2 * (np.sqrt(phi) + root) ** 2
            below = (1 - b) * (1 + phi) * (1 + phi - 4 * alpha) * s.plus_min**2
            H2 = b * (lambda2 - 1) / (1 - b) + late / below
            good = good & (decay < C)
            cost = np.where(good, C / (1 - C) * (H1 + decay * H2 / (C - decay) * noise), np.inf)
        if not good.any():
            return None
        at = np.unravel_index(int(np.argmin(cost)), cost.shape)
        # lambda4 = 1 + alpha^-1/2 is filled in last, from the chosen alpha.
        values = (b, alpha, lambda1, lambda2, self.lambda3, np.nan, phi, M1, M2, C, H1, H2)
        chosen = Chosen(*(float(np.broadcast_to(value, cost.shape)[at]) for value in values))
        return chosen._replace(lambda4=1 + chosen.alpha**-0.5)
