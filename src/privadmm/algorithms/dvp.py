"""Dual variable perturbation (Zhang & Zhu): consensus ADMM between neighbours, with noise in every local objective.

Party p holds Z_p(f) = C omega_p/B_p sum_n loss(x_n.f; y_n) + R(f) and hears its N_p neighbours j. Round t, noise e:

    mu_p(t+1) = lambda_p(t) + C omega_p/(2 B_p) e                                                          (14)
    f_p(t+1) = argmin Z_p(f) + 2 mu_p.f + Phi/2 |f|^2 + eta sum_j |f - (f_p(t) + f_j(t))/2|^2              (13), (15)
    lambda_p(t+1) = lambda_p(t) + eta/2 sum_j [f_p(t+1) - f_j(t+1)]                                        (16)

Privacy (docs/privacy.md#objective-gaussian). e enters in units of summed gradients, so it must hide a move of Delta = 2
L; the curvature that is not data's is k = that of R + 2 eta N_p + Phi, and w = C omega_p c/(B_p k). A round with noise
exp(-zeta |e|) costs Delta zeta + ln(1 + w); one with N(0, s^2 I) a Renyi curve. Phi > 0 only where the w of all rounds
would cost half of the target or more. State and message are functions of the released f_p.

Published. The algorithm box and the proof disagree on the noise exp(-zeta |e|) that is worth alpha in one round:

    box     zeta = a,    a = alpha - ln(1 + B_p c/(C (rho + 2 eta N_p)))^2
    proof   zeta = a/2,  a = alpha - ln(1 + C c/(B_p (rho + 2 eta N_p)))^2

and, where that a is not positive, a = alpha/2 with Phi = C c/(B_p (e^(alpha/4) - 1)) - rho - 2 eta N_p. The box is not
alpha-DP, and its inverted fraction asks for a negative Phi, with which the iterates diverge: that is refused. A round's
alpha is all the paper claims; it gives no total.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Gt

from privadmm.algorithms.graph import OnGraph, State, carried_dual, degrees, neighbours, objective_plan
from privadmm.algorithms.method import NOISY_ARGMIN, Eta, Need, NoiseLaw, Tolerance, need_simulation, per_party
from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtParties, Phase
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim.solvers import reanchor
from privadmm.params import SOME, Doc
from privadmm.privacy.accounting import Claim, Plan
from privadmm.privacy.calibration import NoPrivacy, widest
from privadmm.privacy.release import Door, Released

CAVEAT = {
    "box": "of one round, by the paper's algorithm box, which is not alpha-DP; the paper gives no total over rounds",
    "proof": "of one round, by the paper's proof; the paper takes rounds for independent and gives no total",
}


@dataclass(frozen=True)
class DVP(OnGraph):
    eta: Eta = 0.01
    tolerance: Tolerance = 1e-9
    law: NoiseLaw = "gaussian"
    calibration: Annotated[
        Literal["certified", "box", "proof"], Doc("noise from [privacy] epsilon, or the paper's from alpha")
    ] = "certified"
    alpha: Annotated[float | None, Gt(0), Doc("the paper's privacy of one round")] = None
    party_alpha: Annotated[
        tuple[Annotated[float, Gt(0)], ...] | None, SOME, Doc("instead of alpha, one for each party")
    ] = None
    negative_phi: Annotated[bool, Doc("run the printed box although its Phi is negative, to see it diverge")] = False

    name: ClassVar[str] = "dvp"
    needs: ClassVar[tuple[Need, ...]] = NOISY_ARGMIN

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [value for value in (self.alpha, self.party_alpha) if value is not None]
        if len(given) != (self.calibration != "certified"):
            raise ConfigError('calibration = "box" or "proof" needs alpha or party_alpha, and "certified" neither')

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (AtParties(self.update),)

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        V, heard = neighbours(local, inbox, s.f)
        dual = carried_dual(s, inbox, t) + self.eta / 2 * (V * s.f - heard)  # (16), of the round before
        k = self.noise(local.public, t)[1][local.ids, None]
        anchor = reanchor(s.anchor, (s.f + heard) / (1 + V), t)
        linear = 2 * dual - self.eta * (V * s.f + heard)
        f = local.perturbed(release, linear, k, start=s.f, anchor=anchor, tolerance=self.tolerance)  # (14), (15)
        return State(f.value, dual, anchor), f

    def noise(self, public: Public, t: int) -> tuple[Floats, Floats]:
        """zeta (1 where it is calibrated) and k = rho + 2 eta N_p + Phi of round t, for every party."""
        level = 1.0 if isinstance(public.privacy, NoPrivacy) else public.privacy.levels(public.rounds)[t]
        return public.once((self, level), lambda: self.noise_at(public, level))

    def condition(self, public: Public) -> float:
        return max(public.condition(self.noise(public, t)[1]) for t in range(public.rounds))

    def noise_at(self, public: Public, level: float) -> tuple[Floats, Floats]:
        k = public.regularizer.strong_convexity + 2 * self.eta * degrees(public)[:, 0]
        bend = public.scale(public.ids)[:, 0] * public.loss.smoothness / public.sizes  # C omega c / B
        target, any_zeta = public.privacy, np.ones(public.parties)
        if isinstance(target, NoPrivacy):
            return any_zeta, k
        if self.calibration == "certified":
            bend = bend * (public.curvature / public.loss.smoothness)
            caps = [
                widest(target.of(party, public.parties), target.delta, self.law, target.copies * public.rounds)
                for party in public.ids
            ]
            return any_zeta, np.maximum(k, bend / np.array(caps))
        alpha = self.alphas(public) / level
        with np.errstate(divide="ignore"):  # where k is 0 the logarithm is infinite, and Phi gives all the curvature
            inside = public.loss.smoothness**2 / (bend * k) if self.calibration == "box" else bend / k
        a = alpha - 2 * np.log1p(inside)
        phi = np.where(a > 0, 0.0, bend / np.expm1(alpha / 4) - k)
        a = np.where(a > 0, a, alpha / 2)
        return a if self.calibration == "box" else a / 2, k + phi

    def alphas(self, public: Public) -> Floats:
        return per_party(public, "party_alpha", self.party_alpha, self.alpha)

    def planned(self, public: Public) -> Plan:
        certified = self.calibration == "certified"
        return objective_plan(
            public,
            k=lambda t: self.noise(public, t)[1],
            law=self.law if certified else "gamma",
            zeta=None if certified else lambda t: self.noise(public, t)[0],
        )

    def published(self, public: Public, delta: float) -> Claim | None:
        if self.calibration == "certified":
            return None
        return Claim(float(self.alphas(public).max()), CAVEAT[self.calibration], of_one_round=True)

    def check(self, public: Public) -> None:
        super().check(public)
        if self.calibration != "certified" or self.law == "gamma":
            need_simulation(public, "gamma noise")
        if self.calibration == "certified" or isinstance(public.privacy, NoPrivacy):
            return
        own = public.regularizer.strong_convexity + 2 * self.eta * degrees(public)[:, 0]
        phi = min(float(np.min(self.noise(public, t)[1] - own)) for t in range(public.rounds))
        if phi < 0 and not self.negative_phi:
            raise ConfigError(
                f'calibration = "{self.calibration}" asks for Phi = {phi:.3g} < 0, and the iterates would diverge: the '
                'printed box inverts a fraction. Use "proof" or "certified", or negative_phi = true to see it'
            )
