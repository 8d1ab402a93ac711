"""Federated gradient descent with noise on every party's gradient: the first-order baseline on a star.

Party i holds f_i(w) = C omega_i/m_i sum_n loss(a_n.w; y_n); R is the coordinator's, split into smooth + rest. Round t:

    g_i = f_i'(w_t) + N(0, sigma_i^2 I),   sigma_i = z Delta                                    (1)
    v_{t+1} = momentum v_t + mean_i g_i + smooth'(w_t)                                          (2)
    w_{t+1} = prox of the rest of R, step s_t, at w_t - s_t v_{t+1}                             (3)
    s_t = step, or step/sqrt(t+1)                                                               (4)

The model is the mean of the last iterates, by default of the second half of the rounds.

Privacy (docs/privacy.md#first-order). Rows are clipped one by one, so a record's share of f_i' is at most C omega_i
L/m_i long: Delta is twice that when one is replaced, and twice the rounding of the sum. z is fixed before the run: mu^2
= rounds/z^2. (2) to (4) and the mean read released values only, and cost nothing.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from privadmm.algorithms import star
from privadmm.algorithms.method import Need, bounded_loss, output_plan
from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.engine.sums import gradients
from privadmm.params import Doc
from privadmm.privacy.accounting import Claim, Plan
from privadmm.privacy.release import Door, Released, Sealed


@dataclass(frozen=True)
class Memory(star.Memory):
    v: Floats  # the velocity
    mean: Floats  # of the last iterates


@dataclass(frozen=True)
class DPFedSGD(star.OnStar):
    step: Annotated[float, Gt(0), Doc("step size of the first round")]
    step_decay: Annotated[
        Literal["constant", "sqrt"], Doc("the same step in every round, or divided by sqrt(t + 1)")
    ] = "constant"
    momentum: Annotated[float, Ge(0), Lt(1), Doc("share of the last step that is kept")] = 0.0
    average: Annotated[float, Gt(0), Le(1), Doc("share of the rounds, the last ones, whose mean is the model")] = 0.5

    name: ClassVar[str] = "dp_fedsgd"
    needs: ClassVar[tuple[Need, ...]] = (bounded_loss,)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.slope, sums=gradients), AtCoordinator(self.descend)

    def slope(
        self, t: int, local: Local, s: star.State, inbox: Mail, release: Door
    ) -> tuple[star.State, Released | Sealed]:
        w = np.broadcast_to(inbox.broadcast, s.w.shape)
        g = release.summand(local.gradient(w), sensitivity=local.moved(local.summation))  # (1)
        return star.State(w), g

    def descend(self, t: int, public: Public, memory: Memory, inbox: Mail) -> tuple[Memory, Mail]:
        R, step = public.regularizer, self.step / math.sqrt(t + 1 if self.step_decay == "sqrt" else 1)  # (4)
        g = star.average(inbox)[0].w
        v = self.momentum * memory.v + g + R.smooth.subgradient(memory.w)  # (2)
        w = memory.w - step * v
        w = w if R.rest is None else R.rest.prox(w, step)  # (3)
        n = t + 1 - self.first(public)
        mean = w if n <= 1 else memory.mean + (w - memory.mean) / n
        return Memory(w, v, mean), star.broadcast(w)[1]

    def first(self, public: Public) -> int:
        """The first round whose iterate counts in the mean."""
        return public.rounds - max(1, round(self.average * public.rounds))

    def planned(self, public: Public) -> Plan:
        return output_plan(public)

    def published(self, public: Public, delta: float) -> Claim | None:
        return Claim(None, "a baseline without a paper")

    def start(self, public: Public) -> tuple[Memory, Mail]:
        w = public.origin(1)[..., 0, :]
        return Memory(w, np.zeros_like(w), w), star.broadcast(w)[1]

    def model(self, public: Public, memory: Any, mail: Mail) -> Floats:
        mean: Floats = memory.mean
        return mean
