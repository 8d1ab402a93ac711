"""Gradient steps over split features, as in FDML (Hu, Niu, Yang, Zhou). Not private: a baseline for ADMM sharing.

Party m holds columns D_m and weights x_m, the coordinator the labels. Round t, on the people i = t, t + B, ... (mod B):

    g_i = loss'(sum_m u_mi; y_i),    u_m = D_m x_m, the parties' last scores                              (1)
    x_m <- x_m - step (C mean_i g_i d_mi + R'(x_m))                                                       (2)

Deviations. FDML adds the scores inside a sigmoid and lets parties run ahead of one another; here the sum is the score,
as in every method here, and rounds are in step. The scores of everybody are sent, also where a batch asks for fewer.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from privadmm.algorithms.admm_sharing import SCORES_AND_WEIGHTS
from privadmm.algorithms.columns import OnColumns, broadcast, message, scores_of, silence
from privadmm.algorithms.method import Open
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import Mail
from privadmm.engine.party import Vertical
from privadmm.engine.phases import AtLabels, AtParties, Nothing, Phase
from privadmm.engine.public import Public
from privadmm.params import Doc
from privadmm.privacy.events import NotPrivate
from privadmm.privacy.release import Door, Released


@dataclass(frozen=True)
class State:
    w: Floats  # (..., P, widest), a party's weights, as released


@dataclass(frozen=True)
class FDMLSGD(OnColumns, Open):
    step: Annotated[float, Gt(0), Doc("step size")] = 1.0
    batches: Annotated[int, Ge(1), Doc("into how many batches people are dealt out; one a round")] = 1

    name: ClassVar[str] = "fdml_sgd"
    in_the_clear: ClassVar[NotPrivate] = SCORES_AND_WEIGHTS
    releases: ClassVar[tuple[int, int]] = (1, 2)

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtLabels(self.slopes), AtParties(self.update, self.message)

    def slopes(self, t: int, public: Public, memory: Nothing, inbox: Mail, y: Floats) -> tuple[Nothing, Mail]:
        batch = np.arange(public.dim) % self.batches == t % self.batches
        g = np.where(batch, public.loss.deriv(scores_of(public, inbox), y), 0.0)  # (1)
        return memory, broadcast(public.C / max(1, int(batch.sum())) * g)

    def update(self, t: int, local: Vertical, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        rows = s.w.shape[:-1]
        pulled = local.padded(local.pull(inbox.broadcast), rows)
        w = release.output(s.w - self.step * (pulled + local.public.regularizer.subgradient(s.w)), 1.0)  # (2)
        u = release.output(local.scores(local.cut(w.value), rows), 1.0)
        return State(w.value), u.map(lambda u: message(u, w.value))

    def init(self, public: Public, ids: Ints) -> State:
        return State(public.zeros(len(ids), max(public.columns)))

    def start(self, public: Public) -> tuple[Nothing, Mail]:
        return Nothing(), silence(public)
