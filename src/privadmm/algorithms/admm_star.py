"""Consensus ADMM on a star (Algorithm 1 of the DP-ADMM paper). Not private: iterates leave in the clear.

Party i holds f_i(w) = C omega_i/m_i sum_n loss(a_n.w; y_n) + the smooth part of R. Round k:

    w_i^{k+1} = argmin f_i(v) - <gamma_i^k, v> + rho/2 |v - w^k|^2                              (line 4)
    gamma_i^k = gamma_i^k - (alpha - 1) rho (w_i^{k+1} - w^k)                                   (4a)
    w^{k+1} = prox of the rest of R, step 1/rho, at mean_i (w_i^{k+1} - gamma_i^k/rho)          (line 6)
    gamma_i^{k+1} = gamma_i^k - rho (w_i^{k+1} - w^{k+1})                                       (line 8)

Deviations. The paper keeps all of R at the parties. A part without a gradient (l1) is handled once, exactly, by the
coordinator's prox; for l2 nothing is left for it and line 6 is the paper's. The paper has alpha = 1, without (4a). With
another alpha between 0 and 2, lines 6 and 8 see alpha w_i^{k+1} + (1 - alpha) w^k in the place of w_i^{k+1}; that
converges too (Eckstein and Bertsekas, 1992), above 1 usually in fewer rounds.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt, Lt

from privadmm.algorithms.method import Need, Open, Rho, Tolerance, solvable_loss
from privadmm.algorithms.star import Memory, OnStar, average
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.optim.solvers import reanchor
from privadmm.params import Doc
from privadmm.privacy.events import NotPrivate
from privadmm.privacy.release import Door, Released

EXACT_ITERATES = NotPrivate("exact ADMM iterates leave the parties in the clear")


@dataclass(frozen=True)
class State:
    w: Floats  # w_i
    gamma: Floats
    anchor: Floats  # where the solver's frozen Hessian was taken

    @property
    def model(self) -> Floats:
        return self.w


@dataclass(frozen=True)
class ADMMStar(OnStar, Open):
    rho: Rho = 0.01
    tolerance: Tolerance = 1e-9
    relaxation: Annotated[float, Gt(0), Lt(2), Doc("alpha; above 1 takes fewer rounds, 1 is the paper's")] = 1.0

    name: ClassVar[str] = "admm_star"
    in_the_clear: ClassVar[NotPrivate] = EXACT_ITERATES
    needs: ClassVar[tuple[Need, ...]] = (solvable_loss,)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.update), AtCoordinator(self.combine)

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        w, rho = inbox.broadcast, self.rho
        gamma = s.gamma - rho * (s.w - w)  # line 8, of the round before
        k = rho + local.public.regularizer.strong_convexity
        anchor = reanchor(s.anchor, np.broadcast_to(w, s.w.shape), t)
        x = local.argmin(-gamma - rho * w, k, start=s.w, anchor=anchor, tolerance=self.tolerance)  # line 4
        wi = release.output(x, sensitivity=local.moves / k)
        gamma = gamma - (self.relaxation - 1) * rho * (wi.value - w)  # (4a)
        return State(wi.value, gamma, anchor), wi.map(lambda w: w - gamma / rho)

    def combine(self, t: int, public: Public, memory: Memory, inbox: Mail) -> tuple[Memory, Mail]:
        return average(inbox, public.regularizer.rest, 1 / self.rho)  # line 6

    def condition(self, public: Public) -> float:
        return public.condition(self.rho + public.regularizer.strong_convexity)

    def init(self, public: Public, ids: Ints) -> State:
        return State(public.origin(len(ids)), public.zeros(len(ids)), public.zeros(len(ids)))
