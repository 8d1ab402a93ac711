"""MR-ADMM, modified recycled ADMM (Zhang, Khalili, Liu): every other round reuses what the round before released.

Party i holds O_i and penalties eta = eta_i(2k-1) as in penalties.py, and hears its V neighbours j. A round is a pair.

Odd, at the parties, with noise e:

    f_i(2k-1) = argmin O_i(f) + (2 lambda_i(2k-2) + e).f + eta sum_j |f - (f_i(2k-2) + f_j(2k-2))/2|^2      (18)
    lambda_i(2k-1) = lambda_i(2k-2) + eta/2 sum_j [f_i(2k-1) - f_j(2k-1)] = lambda_i(2k)                    (15), (17)

Even, a linearised step from f_i(2k-1) in which e + O_i'(f_i(2k-1)) is what (18)'s optimality says it is,
-2 lambda_i(2k-2) - eta sum_j [2 f_i(2k-1) - f_i(2k-2) - f_j(2k-2)]; then the dual cancels:

    f_i(2k) = f_i(2k-1) - {2 lambda_i(2k-1) + e + O_i'(f_i(2k-1)) + eta sum_j [f_i(2k-1) - f_j(2k-1)]}/(2 eta V + gamma)
            = f_i(2k-1) + eta sum_j [2 f_j(2k-1) - f_i(2k-2) - f_j(2k-2)]/(2 eta V + gamma)                 (19)

Only released values are in it. So it is free, whoever holds them evaluates it, and it takes no round of its own: the
coordinator sends [f_j(2k-1), f_j(2k)] to the neighbours of j, and each party follows its own (15) and (19) by the mail.
As gamma grows, f(2k) tends to f(2k-1), and the method to consensus ADMM.

Privacy (docs/privacy.md#recycled). An event is (18) alone. The e + O_i' that Algorithm 3 stores belongs to the argmin
before its output noise, and a fresh gradient is another query: neither enters. State and message are functions of the
releases.

Published. With e of density exp(-alpha |e|), over all rounds,

    beta = max_i sum_k 2 C omega_i/B_i (1.4 c/k_i(2k-1) + alpha).                                           (32)

Convergence without noise: convergence.py. (15) keeps sum_i lambda_i/eta_i at 0, so with unequal penalties the limit
minimises sum_i O_i/eta_i, and not sum_i O_i as the paper says. The model is the mean of the odd iterates.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from privadmm.algorithms import convergence
from privadmm.algorithms.graph import carried_dual, degrees, neighbours
from privadmm.algorithms.penalties import Penalised
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.optim.solvers import reanchor
from privadmm.params import Doc
from privadmm.privacy.release import Door, Released


@dataclass(frozen=True)
class State:
    f: Floats  # f_i(2k-1), as released
    before: Floats  # f_i(2k-2)
    heard: Floats  # sum_j f_j(2k-2)
    dual: Floats  # lambda_i(2k-2)
    anchor: Floats  # where the solver's frozen Hessian was taken

    @property
    def model(self) -> Floats:
        return self.f


@dataclass(frozen=True)
class Memory:
    ids: Ints  # of those present
    f: Floats  # (..., N, d), f_i(2k) of each
    heard: Floats  # sum_j f_j(2k)


@dataclass(frozen=True)
class MRADMM(Penalised):
    gamma: Annotated[float, Ge(0), Doc("curvature of the even step's model: the larger, the shorter that step")] = 1.0

    name: ClassVar[str] = "mr_admm"
    caveat: ClassVar[str] = "the paper's total over all rounds, its Theorem V.1: correct but loose"

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.odd), AtCoordinator(self.even)

    def odd(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        public, ids = local.public, local.ids
        odds, evens = (Mail(inbox.senders, half) for half in np.split(inbox.values, 2, axis=-1))
        V, odd = neighbours(local, odds, s.f)
        dual, before = carried_dual(s, inbox, t), s.before
        if t > 0:
            last = self.penalties(public, t - 1)[ids, None]
            dual = dual + last / 2 * (V * s.f - odd)  # (15), of the pair before
            before = self.recycled(last, V, s.f, odd, s.before, s.heard)  # (19), of the pair before
        _, heard = neighbours(local, evens, before)
        eta, k = (a[ids, None] for a in (self.penalties(public, t), self.curvature(public, t)))
        anchor = reanchor(s.anchor, (before + heard) / (1 + V), t)
        linear = 2 * dual - eta * (V * before + heard)
        f = local.perturbed(release, linear, k, start=s.f, anchor=anchor, tolerance=self.tolerance)  # (18)
        return State(f.value, before, heard, dual, anchor), f

    def even(self, t: int, public: Public, memory: Memory, inbox: Mail) -> tuple[Memory, Mail]:
        ids, at = inbox.senders, np.searchsorted(memory.ids, inbox.senders)
        before, heard = memory.f[..., at, :], memory.heard[..., at, :]
        odd = public.graph.neighbour_sum(inbox.values, ids, ids, inbox.values)
        eta, V = self.penalties(public, t)[ids, None], degrees(public)[ids]
        f = self.recycled(eta, V, inbox.values, odd, before, heard)  # (19)
        heard = public.graph.neighbour_sum(f, ids, ids, f)
        return Memory(ids, f, heard), Mail(ids, np.concatenate([inbox.values, f], axis=-1))

    def recycled(self, eta: Floats, V: Floats, f: Floats, odd: Floats, before: Floats, heard: Floats) -> Floats:
        """f_i(2k) from f_i(2k-1), sum_j f_j(2k-1), f_i(2k-2), sum_j f_j(2k-2); with the same bits wherever it runs."""
        return f + eta / (2 * eta * V + self.gamma) * (2 * odd - V * before - heard)  # (19)

    def lever(self, public: Public, t: int) -> Floats:
        return np.ones(public.parties)

    def claimed(self, public: Public, t: int, alpha: float) -> Floats:
        C, k = public.scale(public.ids)[:, 0], self.curvature(public, t)
        return 2 * C / public.sizes * (1.4 * public.loss.smoothness / k + alpha)  # (32)

    def init(self, public: Public, ids: Ints) -> State:
        f, zero = public.origin(len(ids)), public.zeros(len(ids))
        return State(f, f, zero, zero, zero)

    def start(self, public: Public) -> tuple[Memory, Mail]:
        f = public.origin(public.parties)
        heard = public.graph.neighbour_sum(f, public.ids, public.ids)
        return Memory(public.ids, f, heard), Mail(public.ids, np.concatenate([f, f], axis=-1))

    def model(self, public: Public, memory: Memory, mail: Mail) -> Floats:
        mean: Floats = mail.values[..., : public.dim].sum(axis=-2) / len(mail.senders)
        return mean

    def pairs(self, public: Public) -> list[convergence.Pair]:
        """The penalties of the first pairs and of the last: what holds there holds between (convergence.py)."""
        ends = {0, max(0, public.rounds - 2)} if self.growth > 1 else {0}
        return [(self.penalties(public, t), self.penalties(public, t + 1)) for t in sorted(ends)]

    def smallest_gamma(self, public: Public) -> float | None:
        """The smallest gamma that meets the paper's sufficient conditions for convergence; None if there is none."""
        return convergence.smallest_gamma(public, self.pairs(public))

    def advice(self, public: Public) -> str | None:
        steps = convergence.advice(public, self.pairs(public), self.gamma)
        return ". ".join(sentence for sentence in (self.apart(), steps) if sentence) or None
