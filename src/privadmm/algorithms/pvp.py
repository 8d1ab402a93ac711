"""Primal variable perturbation: consensus ADMM on a star with noise on every argmin, Algorithm 2 of the DP-ADMM paper.

Party i holds f_i(w) = C omega_i/m_i sum_n loss(a_n.w; y_n) + the smooth part of R. Round k:

    w_i^{k+1} = argmin f_i(v) - <gamma_i^k, v> + rho/2 |v - w^k|^2                              (line 4)
    wt_i^{k+1} = w_i^{k+1} + N(0, sigma_i^2 I)                                                  (line 5)
    w^{k+1} = prox of the rest of R, step 1/rho, at mean_i (wt_i^{k+1} - gamma_i^k/rho)         (line 7)
    gamma_i^{k+1} = gamma_i^k - rho (wt_i^{k+1} - w^{k+1})                                      (line 9)

Privacy (docs/privacy.md#minimiser). With lambda the strong convexity of R, the argmin has k = lambda + rho that does
not come from data; solved to a gradient norm `left`, one replaced record moves it by at most

    Delta = 2 C omega_i L/(m_i k) + 2 left/k,      sigma_i = z Delta

z is fixed before the run: mu^2 = rounds/z^2. State and message are functions of the released wt_i.

Published. sigma_i = 2 C omega_i L/(m_i lambda) sqrt(2 ln(1.25/delta))/epsilon (the paper's lambda/N is lambda here): it
forgets the penalty, and is k/lambda times what it needs to be. The event carries the true ratio, sigma_i/Delta.

Deviation. The paper needs R smooth. A part without a gradient (l1) is left to the coordinator's prox, as in admm_star;
the certified noise needs no lambda > 0.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privadmm.algorithms.admm_star import State
from privadmm.algorithms.method import (
    Calibration,
    Need,
    Rho,
    RoundEpsilon,
    Tolerance,
    bounded_loss,
    need_simulation,
    noisy_argmin,
    output_plan,
    solvable_loss,
)
from privadmm.algorithms.star import Memory, OnStar, average
from privadmm.data.arrays import Ints
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim.solvers import reanchor
from privadmm.privacy.accounting import Claim, Plan, classical_ratio, moments_accountant
from privadmm.privacy.calibration import NoPrivacy
from privadmm.privacy.release import Door, Released


@dataclass(frozen=True)
class PVP(OnStar):
    rho: Rho = 0.01
    tolerance: Tolerance = 1e-9
    calibration: Calibration = "certified"
    round_epsilon: RoundEpsilon = None

    name: ClassVar[str] = "pvp"
    needs: ClassVar[tuple[Need, ...]] = (solvable_loss, bounded_loss)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.update), AtCoordinator(self.combine)

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        w, rho = inbox.broadcast, self.rho
        gamma = s.gamma - rho * (s.w - w)  # line 9, of the round before
        anchor = reanchor(s.anchor, np.broadcast_to(w, s.w.shape), t)
        k = np.asarray(rho + local.public.regularizer.strong_convexity)
        wt = noisy_argmin(local, release, -gamma - rho * w, k, anchor, self.tolerance)  # lines 4, 5
        return State(wt.value, gamma, anchor), wt.map(lambda w: w - gamma / rho)

    def combine(self, t: int, public: Public, memory: Memory, inbox: Mail) -> tuple[Memory, Mail]:
        return average(inbox, public.regularizer.rest, 1 / self.rho)  # line 7

    def planned(self, public: Public) -> Plan:
        if self.round_epsilon is None or isinstance(public.privacy, NoPrivacy):
            return output_plan(public)
        return output_plan(public, classical_ratio(self.round_epsilon, public.privacy.delta) * self.excess(public))

    def condition(self, public: Public) -> float:
        return public.condition(self.rho + public.regularizer.strong_convexity)

    def excess(self, public: Public) -> float:
        """The paper's sensitivity over Delta, the same for every party: k/lambda between replaced records."""
        lam = public.regularizer.strong_convexity
        return 2 * public.loss.lipschitz / public.sensitivity * (self.rho + lam) / lam

    def published(self, public: Public, delta: float) -> Claim | None:
        target = public.privacy
        if isinstance(target, NoPrivacy) or not public.regularizer.strong_convexity:
            return None
        forgets = f"forgets the penalty rho and asks for about {self.excess(public):.3g} times too much noise"
        if self.round_epsilon is None or len(set(target.levels(public.rounds))) > 1:
            return Claim(None, f"the paper has no figure for this noise; its own sensitivity {forgets}")
        total = moments_accountant(self.round_epsilon, delta, public.rounds)
        return Claim(total, f"the paper's moments accountant, of a sensitivity that {forgets}")

    def check(self, public: Public) -> None:
        super().check(public)
        if self.round_epsilon is None:
            return
        need_simulation(public, 'calibration = "published"')
        if not public.regularizer.strong_convexity:
            raise ConfigError(
                "the paper's sensitivity 2 N/(m lambda) needs a strongly convex regulariser: use l2 or elastic_net "
                'with a weight above 0, or calibration = "certified"'
            )

    def init(self, public: Public, ids: Ints) -> State:
        return State(public.origin(len(ids)), public.zeros(len(ids)), public.zeros(len(ids)))
