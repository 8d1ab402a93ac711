"""Consensus ADMM on a graph (Zhang & Zhu, the conventional method of the DVP paper). Not private.

Party p holds Z_p(f) = C omega_p/B_p sum_n loss(x_n.f; y_n) + R(f), R smooth, and hears its V_p neighbours j. Round t:

    lambda_p(t) = lambda_p(t-1) + eta/2 sum_j [f_p(t) - f_j(t)]                                 (11)
    f_p(t+1) = argmin Z_p(f) + 2 lambda_p(t).f + eta sum_j |f - (f_p(t) + f_j(t))/2|^2          (10)

The quadratic of (10) is eta V_p |f|^2, so the curvature that does not come from data is k = 2 eta V_p + that of R.
The model handed out is the mean of what the parties sent last.
"""

from dataclasses import dataclass
from typing import ClassVar

from privadmm.algorithms.admm_star import EXACT_ITERATES
from privadmm.algorithms.graph import OnGraph, State, carried_dual, degrees, neighbours
from privadmm.algorithms.method import Eta, Need, Open, Tolerance, smooth_regularizer, solvable_loss
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtParties, Phase
from privadmm.engine.public import Public
from privadmm.optim.solvers import reanchor
from privadmm.privacy.events import NotPrivate
from privadmm.privacy.release import Door, Released


@dataclass(frozen=True)
class ADMMGraph(OnGraph, Open):
    eta: Eta = 0.01
    tolerance: Tolerance = 1e-9

    name: ClassVar[str] = "admm_graph"
    in_the_clear: ClassVar[NotPrivate] = EXACT_ITERATES
    needs: ClassVar[tuple[Need, ...]] = (solvable_loss, smooth_regularizer)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (AtParties(self.update),)

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        V, heard = neighbours(local, inbox, s.f)
        eta = self.eta
        dual = carried_dual(s, inbox, t) + eta / 2 * (V * s.f - heard)  # (11)
        k = 2 * eta * V + local.public.regularizer.strong_convexity
        anchor = reanchor(s.anchor, (s.f + heard) / (1 + V), t)
        x = local.argmin(
            2 * dual - eta * (V * s.f + heard), k, start=s.f, anchor=anchor, tolerance=self.tolerance
        )  # (10)
        f = release.output(x, sensitivity=local.moves / k)
        return State(f.value, dual, anchor), f

    def condition(self, public: Public) -> float:
        return public.condition(public.regularizer.strong_convexity + 2 * self.eta * degrees(public))
