"""PDML, phase 2 (Wang, Ishii, Du, Cheng, Chen): consensus ADMM between neighbours, with decaying noise on every argmin.

Party i holds J_i(w) = C omega_i/m_i sum_n loss(x_n.w; y_n) + a N(w), a N = R smooth, and hears its N_i neighbours l;
n is the number of parties. Round t:

    Jt_i(w) = J_i(w) + eta_i.w/n,   |eta_i|_inf <= R                                                       (14)
    w_i(t+1) = argmin Jt_i(w) + gamma_i(t).w + beta sum_l |w - (wt_i(t) + wt_l(t))/2|^2                    (15)
    wt_i(t+1) = w_i(t+1) + theta_i(t+1),   theta_i(t) ~ N(0, decay^(t-1) V_i^2 I)                          (16)
    gamma_i(t+1) = gamma_i(t) + beta sum_l [wt_i(t+1) - wt_l(t+1)]                                         (17)

eta_i is drawn once for a job, kept in the party's ledger and used in every round. The model is the mean over the rounds
of the parties' mean wt. Phase 1, labels randomised before they reach the party, goes with any algorithm.

Privacy (docs/privacy.md#minimiser). The curvature that is not data's is k = that of a N + 2 beta N_i. Solved to a
gradient norm `left`, one replaced record moves w_i by at most

    Delta = 2 C omega_i L/(m_i k) + 2 left/k,      mu^2 = (Delta/V_i)^2 sum_t decay^-(t-1)

and V_i is calibrated to that, with [privacy] decay. eta_i earns nothing: the same in all rounds, it cancels from their
differences. State and messages are functions of the released wt.

Published. V is the user's. The paper gives no figure: over all rounds, it says, there is none.

Deviation. The paper averages the w_i of (15), before their noise, which would be a release of its own: here the wt_i.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from privadmm.algorithms.graph import OnGraph, State, carried_dual, degrees, neighbours
from privadmm.algorithms.method import NOISY_ARGMIN, Need, Tolerance, need_simulation, noisy_argmin, output_plan
from privadmm.algorithms.star import Memory
from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim.solvers import reanchor
from privadmm.params import Doc, When
from privadmm.privacy.accounting import Claim, Plan
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import Door, Released


@dataclass(frozen=True)
class PDML(OnGraph):
    beta: Annotated[float, Gt(0), Doc("penalty on the difference of neighbours")] = 0.01
    R: Annotated[
        float,
        Ge(0),
        Doc("bound on the noise in the objective, drawn once; it earns no certified privacy"),
    ] = 0.0
    tolerance: Tolerance = 1e-9
    calibration: Annotated[
        Literal["certified", "published"], Doc("noise from [privacy] epsilon, or V as in the paper")
    ] = "certified"
    V: Annotated[
        float | None,
        Gt(0),
        When("calibration", "published", required=True),
        Doc("the paper's standard deviation of the first round's noise"),
    ] = None

    name: ClassVar[str] = "pdml"
    needs: ClassVar[tuple[Need, ...]] = NOISY_ARGMIN

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.update, draws=self.draw_eta), AtCoordinator(self.remember)

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        V, heard = neighbours(local, inbox, s.f)
        beta, n = self.beta, local.public.parties
        gamma = carried_dual(s, inbox, t) + beta * (V * s.f - heard)  # (17), of the round before
        eta = local.kept["eta"] if self.R else 0.0
        linear = eta / n + gamma - beta * (V * s.f + heard)  # (14)
        anchor = reanchor(s.anchor, (s.f + heard) / (1 + V), t)
        k = self.curvature(local.public)[local.ids]
        w = noisy_argmin(local, release, linear, k, anchor, self.tolerance)  # (15), (16)
        return State(w.value, gamma, anchor), w

    def remember(self, t: int, public: Public, memory: Memory, inbox: Mail) -> tuple[Memory, Mail]:
        """Keep the mean over the rounds so far; the mail goes on to the neighbours unchanged."""
        mean = inbox.values.sum(axis=-2) / len(inbox.senders)
        return Memory(memory.w + (mean - memory.w) / (t + 1)), inbox

    def curvature(self, public: Public) -> Floats:
        """k of every party, as a column."""
        return public.regularizer.strong_convexity + 2 * self.beta * degrees(public)

    def condition(self, public: Public) -> float:
        return public.condition(self.curvature(public))

    def draw_eta(self, local: Local, noise: Noise) -> dict[str, Floats]:
        return {"eta": noise.uniform(self.R, local.zeros().shape, local.ids)} if self.R else {}

    def planned(self, public: Public) -> Plan:
        return output_plan(public, self.ratios(public))

    def ratios(self, public: Public) -> Floats | None:
        """V/Delta of every party; None where noise is calibrated."""
        if self.V is None:
            return None
        moves = public.sensitivity * public.scale(public.ids)[:, 0] / public.sizes
        ratios: Floats = self.V / (moves / self.curvature(public)[:, 0])
        return ratios

    def published(self, public: Public, delta: float) -> Claim | None:
        return Claim(None, "the paper gives no figure for its noise")

    def check(self, public: Public) -> None:
        super().check(public)
        if self.V is not None:
            need_simulation(public, 'calibration = "published"')
        if not np.all(self.curvature(public) > 0):
            raise ConfigError(
                f"{self.name} with one party has no penalty but the regulariser's, and an argmin needs some: use l2 "
                "with a weight above 0"
            )

    def start(self, public: Public) -> tuple[Any, Mail]:
        return Memory(public.origin(1)[..., 0, :]), super().start(public)[1]

    def model(self, public: Public, memory: Any, mail: Mail) -> Floats:
        mean: Floats = memory.w
        return mean
