"""DP-ADMM's two utility theorems, as printed and as their proofs carry them.

Both bound, after t rounds, the expected distance from the optimum plus the weighted distance from consensus

    E sum_i ( f_i(wbar_i^t) - f_i(w*) + beta |wbar_i^t - wbar^t| )

of averaged iterates: wbar^t of w^1..w^t, wbar_i^t of wt_i^1..wt_i^t (Theorem 4) or of wt_i^0..wt_i^{t-1} (Theorem 3).
Party i has its own constants, S1 = C omega_i L and S3 = C omega_i c; with omega_i = 1 they are the paper's. Per
coordinate (rho + 1/eta) xi_i has the standard deviation v_i = z 2 S1/m_i in every round (Lemma 1). Printed:

    Theorem 3   sum_i sqrt(2) D_w G_i/sqrt(t)  + N (rho D_w^2 + beta^2/rho)/(2t),   G_i = S1 + S2
    Theorem 4   sum_i sqrt(2) D_w v_i/sqrt(t)  + N (rho D_w^2 + beta^2/rho)/(2t) + sum_i D_w^2 (S3 + S4)/(2t)

(the paper's 4 sqrt(ln(1.25/delta)) S1/(m_i epsilon) is sqrt(2) v_i). Three steps of the proofs do not hold as printed.

1. E |f' - (rho + 1/eta) xi|^2 is |f'|^2 + d v^2. Appendix C takes |f'|^2, so that Theorem 3 knows no noise, and
   Appendix E takes v^2 for d v^2, the square of one coordinate. With all d, and the sum over rounds as it is,
   h(t) = sum_{k=1}^t k^-1/2 <= 2 sqrt(t):

    Theorem 3   sum_i [ D_w (G_i + d v_i^2/G_i) h(t)/(2 sqrt(2) t) + D_w G_i/sqrt(2t) ]  + the terms in 1/t        (C3)
    Theorem 4   sum_i v_i D_w [ d h(t)/(2 sqrt(2) t) + 1/sqrt(2t) ]                      + the terms in 1/t        (C4)

2. sum_k (|w* - wt_i^k|^2 - |w* - wt_i^{k+1}|^2)/(2 eta^{k+1}) does not telescope while 1/eta grows. It is at most
   D_w^2/(2 eta^t) if E |w* - wt_i^k|^2 <= D_w^2 in every round, not only in the first: a condition on the run.
3. Theorem 3's averages are one round apart: its proof bounds beta |.| for the averages of rounds 1 to t.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.arrays import Floats
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import check_positive
from privadmm.privacy.calibration import Target


@dataclass(frozen=True)
class Constants:
    """What both theorems are functions of, one number a party where they may differ."""

    theorem: Literal[3, 4]
    S1: Floats
    rest: Floats  # S2, or S3 + S4
    v: Floats
    D_w: float
    rho: float
    beta: float
    dim: int

    @staticmethod
    def of(algorithm: DPADMM, public: Public, beta: float) -> "Constants":
        """From public facts and declared constants alone."""
        check_positive(beta=beta)
        target = public.privacy
        if isinstance(target, Target) and len(set(target.levels(public.rounds))) > 1:
            raise ConfigError(
                "Theorems 3 and 4 are about noise that is alike in all rounds: leave out [privacy] decay and profile"
            )
        scale, ids = public.scale(public.ids)[:, 0], public.ids
        S1, R = scale * public.loss.lipschitz, public.regularizer
        v = algorithm.ratio(public, 0)[ids, 0] * public.sensitivity * scale / public.sizes
        if algorithm.step_size == "smooth":
            rest = scale * public.loss.smoothness + R.smoothness
            return Constants(4, S1, rest, v, algorithm.D_w, algorithm.rho, beta, public.dim)
        kinks = 0.0 if R.rest is None else R.rest.subgradient_bound(public.dim)
        S2 = np.full_like(S1, R.smooth.weight * algorithm.D_w + kinks)
        return Constants(3, S1, S2, v, algorithm.D_w, algorithm.rho, beta, public.dim)

    @property
    def start(self) -> float:
        """t times the terms in 1/t that both theorems share."""
        return len(self.S1) * (self.rho * self.D_w**2 + self.beta**2 / self.rho) / 2

    @property
    def record(self) -> dict[str, object]:
        rest = {"S2": self.rest.tolist()} if self.theorem == 3 else {"S3_plus_S4": self.rest.tolist()}
        facts = {"D_w": self.D_w, "rho": self.rho, "beta": self.beta, "dim": self.dim}
        return {**facts, "S1": self.S1.tolist(), **rest, "v": self.v.tolist()}


def published(c: Constants, t: int) -> float:
    """The right-hand side as the paper prints it."""
    if c.theorem == 3:
        slopes = math.sqrt(2) * c.D_w * float(np.sum(c.S1 + c.rest))
        return slopes / math.sqrt(t) + c.start / t
    noise = math.sqrt(2) * c.D_w * float(np.sum(c.v))
    return noise / math.sqrt(t) + (c.start + c.D_w**2 * float(np.sum(c.rest)) / 2) / t


def corrected(c: Constants, t: int) -> float:
    """(C3) or (C4): with the noise of all d coordinates."""
    h = float(np.sum(np.arange(1, t + 1) ** -0.5))
    if c.theorem == 3:
        G = c.S1 + c.rest
        steps = c.D_w * float(np.sum(G + c.dim * c.v**2 / G)) * h / (2 * math.sqrt(2) * t)
        return steps + c.D_w * float(np.sum(G)) / math.sqrt(2 * t) + c.start / t
    each = c.dim * h / (2 * math.sqrt(2) * t) + 1 / math.sqrt(2 * t)
    return c.D_w * float(np.sum(c.v)) * each + (c.start + c.D_w**2 * float(np.sum(c.rest)) / 2) / t
