"""M-ADMM (Zhang, Khalili, Liu): consensus ADMM with penalties of each party's own, perturbed inside the penalty.

Party i holds O_i and penalties eta_i(t) as in penalties.py, and hears its V_i neighbours j. Round t, noise e:

    f_i(t+1) = argmin O_i(f) + 2 lambda_i(t).f + eta_i(t+1) sum_j |f + e - (f_i(t) + f_j(t))/2|^2           (1)
    lambda_i(t+1) = lambda_i(t) + theta_i(t+1)/2 sum_j [f_i(t+1) - f_j(t+1)]                                (2)

The noise of (1) is the linear term 2 eta_i V_i e.f: a growing penalty damps the step and the noise alike. State and
message are functions of the released f_i.

The step of (2). theta_i = eta_i, as the paper on recycled ADMM has it in its (15), keeps sum_i lambda_i/eta_i at 0; so
with unequal penalties the limit minimises sum_i O_i/eta_i. A common constant theta <= eta_i keeps sum_i lambda_i at 0
and leads to the minimiser of sum_i O_i whatever the penalties; M-ADMM is meant to choose the two apart.

Published. With e of density exp(-alpha |e|), over all rounds,

    beta = max_i sum_t C omega_i (1.4 c + alpha)/(eta_i(t) V_i B_i).                                        (3)
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt

from privadmm.algorithms.graph import State, carried_dual, degrees, neighbours
from privadmm.algorithms.penalties import Penalised
from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtParties, Phase
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim.solvers import reanchor
from privadmm.params import Doc
from privadmm.privacy.release import Door, Released


@dataclass(frozen=True)
class MADMM(Penalised):
    theta: Annotated[
        float | None,
        Gt(0),
        Doc("step of the dual, up to the smallest penalty; each party's own penalty if left out"),
    ] = None

    name: ClassVar[str] = "m_admm"
    caveat: ClassVar[str] = "the paper's total over all rounds: correct but loose"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.theta is not None and self.theta > (least := min(self.party_eta or (self.eta,))):
            raise ConfigError(f"theta must not exceed the smallest penalty, {least:g}; it is {self.theta:g}")

    @property
    def phases(self) -> tuple[Phase, ...]:
        return (AtParties(self.update),)

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        public, ids = local.public, local.ids
        V, heard = neighbours(local, inbox, s.f)
        theta, eta, k = (
            a[ids, None] for a in (self.step(public, t - 1), self.penalties(public, t), self.curvature(public, t))
        )
        dual = carried_dual(s, inbox, t) + theta / 2 * (V * s.f - heard)  # (2), of the round before
        anchor = reanchor(s.anchor, (s.f + heard) / (1 + V), t)
        linear = 2 * dual - eta * (V * s.f + heard)
        f = local.perturbed(release, linear, k, start=s.f, anchor=anchor, tolerance=self.tolerance)  # (1)
        return State(f.value, dual, anchor), f

    def step(self, public: Public, t: int) -> Floats:
        """theta_i(t) of every party."""
        return self.penalties(public, t) if self.theta is None else np.full(public.parties, self.theta)

    def lever(self, public: Public, t: int) -> Floats:
        return 2 * self.penalties(public, t) * degrees(public)[:, 0]

    def claimed(self, public: Public, t: int, alpha: float) -> Floats:
        C, V, eta = public.scale(public.ids)[:, 0], degrees(public)[:, 0], self.penalties(public, t)
        return C * (1.4 * public.loss.smoothness + alpha) / (eta * V * public.sizes)  # (3)

    def advice(self, public: Public) -> str | None:
        if self.theta is not None or self.party_eta is None or (apart := self.apart()) is None:
            return None
        return f"{apart}; theta = {min(self.party_eta):g}, a step for all, would weight them alike"
