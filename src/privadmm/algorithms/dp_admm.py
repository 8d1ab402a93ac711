"""DP-ADMM (Huang, Hu, Chan-Tin, Gong): linearised consensus ADMM on a star, Algorithm 3 and its equations.

Party i holds f_i(w) = C omega_i/m_i sum_n loss(a_n.w; y_n) + R(w). Round k:

    w_i^{k+1} = (gamma_i + rho w^k + wt_i^k/eta - f_i'(wt_i^k)) / (rho + 1/eta)                 (3a)
    wt_i^{k+1} = w_i^{k+1} + N(0, sigma^2 I),   sigma = z Delta                                 (3b)
    w^{k+1} = mean_i (wt_i^{k+1} - gamma_i^k/rho)                                               (3c)
    gamma_i^{k+1} = gamma_i^k - rho (wt_i^{k+1} - w^{k+1})                                      (3d)

with eta = eta_i^{k+1} from Theorem 4 (smooth) or Theorem 3 (nonsmooth), D_w a *declared* bound on |w*|:

    1/eta = S3 + S4 + 2 S1 z sqrt(2(k+1)) / (m_i D_w)                                           (T4)
    1/eta = (S1 + S2) sqrt(2(k+1)) / D_w                                                        (T3)

S1 = C omega_i L and S3 = C omega_i c bound the loss's first and second derivative, S2 and S4 those of R.
The paper's lambda/N is R's weight here, and its sqrt(2 ln(1.25/delta))/epsilon is z.

Privacy (docs/privacy.md#first-order). w_i^{k+1} is affine in the averaged gradient: one record moves it by at most

    Delta = 2 S1 / (m_i (rho + 1/eta))                                                          (Lemma 1)

and needs neither smoothness nor strong convexity. State and message are functions of the released wt_i.
z is fixed before the run, so the rounds compose exactly: mu^2 = rounds/z^2. (3a) is evaluated in floating point: Delta
also covers the rounding of its sum over records, and of its public terms, which a hostile coordinator can make large.

Deviations. Line 6 of the printed Algorithm 3 adds the noise to the previous noisy iterate; (3b) is meant.
The paper estimates D_w on private records and does not count it; here it is declared.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Gt

from privadmm.algorithms.method import Calibration, Need, Rho, RoundEpsilon, bounded_loss, need_simulation, output_plan
from privadmm.algorithms.star import OnStar
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local, rounding
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import Doc
from privadmm.privacy.accounting import Claim, Plan, classical_ratio, moments_accountant
from privadmm.privacy.alike import Alike
from privadmm.privacy.calibration import NoPrivacy
from privadmm.privacy.events import DiscreteGaussian, Gaussian
from privadmm.privacy.release import Door, Released


@dataclass(frozen=True)
class State:
    w: Floats  # wt_i, as released
    gamma: Floats

    @property
    def model(self) -> Floats:
        return self.w


@dataclass(frozen=True)
class DPADMM(OnStar):
    D_w: Annotated[float, Gt(0), Doc("declared bound on the norm of the optimal weights; sets the step size")]
    rho: Rho = 1.0
    step_size: Annotated[
        Literal["smooth", "nonsmooth"], Doc("Theorem 4's schedule, or Theorem 3's for l1 or the hinge")
    ] = "smooth"
    calibration: Calibration = "certified"
    round_epsilon: RoundEpsilon = None

    name: ClassVar[str] = "dp_admm"
    needs: ClassVar[tuple[Need, ...]] = (bounded_loss,)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.update), AtCoordinator(self.combine)  # (3c)

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        w, rho, R = inbox.broadcast, self.rho, local.public.regularizer
        gamma = s.gamma - rho * (s.w - w)  # (3d), of the round before
        steep = self.inverse_eta(t, local)
        subgradient = R.subgradient(s.w)
        gradient = local.gradient(s.w) + subgradient
        near = steep * s.w
        x = (gamma + rho * w + near - gradient) / (rho + steep)  # (3a)
        error = local.summation + rounding(gamma, rho * w, near, subgradient)
        del gradient, near, subgradient  # each as large as a state; noise needs their room
        wt = release.output(x, sensitivity=local.moved(error) / (rho + steep))  # (3b), Lemma 1
        return State(wt.value, gamma), wt.map(lambda w: w - gamma / rho)

    def inverse_eta(self, t: int, local: Local) -> Floats:
        public, step = local.public, math.sqrt(2 * (t + 1)) / self.D_w
        S1 = public.scale(local.ids) * public.loss.lipschitz
        if self.step_size == "nonsmooth":
            smooth, rest = public.regularizer.smooth, public.regularizer.rest
            S2 = smooth.weight * self.D_w + (rest.subgradient_bound(public.dim) if rest else 0.0)
            return (S1 + S2) * step  # (T3)
        S3 = public.scale(local.ids) * public.loss.smoothness
        return S3 + public.regularizer.smoothness + local.moves * self.ratio(public, t)[local.ids] * step  # (T4)

    def planned(self, public: Public) -> Plan:
        target = public.privacy
        if self.round_epsilon is None or isinstance(target, NoPrivacy):
            return output_plan(public)
        return output_plan(public, classical_ratio(self.round_epsilon, target.delta))

    def ratio(self, public: Public, t: int) -> Floats:
        """z of every party in round t, a column; 0 where there is no noise."""
        row = self.plan(public)[(t, 0)][0]

        def found() -> Floats:
            events = Alike.listed(public.ids, row)
            z = [event.ratio if isinstance(event, Gaussian | DiscreteGaussian) else 0.0 for event in events.kinds]
            return np.array(z)[events.which, None]

        return public.once((self, "ratio", id(row)), found)  # rounds alike share one row of the plan

    def published(self, public: Public, delta: float) -> Claim | None:
        if isinstance(public.privacy, NoPrivacy) or len(set(public.privacy.levels(public.rounds))) > 1:
            return None  # the paper claims nothing for noise that changes from round to round
        z = float(self.ratio(public, 0).min())
        total = moments_accountant(classical_ratio(1.0, delta) / z, delta, public.rounds)
        return Claim(
            total,
            "the paper's moments accountant: sound but loose, and it does not count the private records "
            "from which the paper takes D_w",
        )

    def check(self, public: Public) -> None:
        super().check(public)
        if self.round_epsilon is not None:
            need_simulation(public, 'calibration = "published"')
        flat = math.isfinite(public.loss.smoothness) and math.isfinite(public.regularizer.smoothness)
        if self.step_size == "smooth" and not flat:
            raise ConfigError(
                "the smooth step size needs a smooth loss and regulariser; with the hinge or l1 set "
                'step_size = "nonsmooth"'
            )

    def init(self, public: Public, ids: Ints) -> State:
        return State(public.origin(len(ids)), public.zeros(len(ids)))
