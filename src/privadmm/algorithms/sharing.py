"""ADMM sharing with noise (Hu, Liu, Ge, Kong, Jiang, Niu): the updates of admm_sharing.py on noisy scores.

    u_m = D_m x_m + noise, cut to [-b, b], in every round but the last                                    (7)
    w_m = x_m + noise, in the last: the weights that are handed over

Rows in the unit ball have scores within [-b, b], so the cut takes away nothing but noise: most of it where noise is
large, and with it what that noise would add to the next target and to its sensitivity.

Privacy (docs/privacy.md#sharing). The target t_m of (6b) is a function of released values, so the noise has to cover
how far one person's row, or one column, moves a fit to a public target; ridge.py bounds what floating point adds. The
fitted x_m stays inside. It leaves once, in the last round, with noise of its own; last scores would be of no use to
anybody.

A party's ledger counts that party's releases, and protects what that party holds about a person. A person has a row at
every party: all of them together cost what `accounting.together` says. The coordinator's mail depends on the labels,
which nothing protects unless they are randomised; that is the coordinator's affair and costs the parties nothing.

Published. The paper adds noise to the weights, as if D_m (x + noise) were noise on the scores. That stays in the span
of D_m's columns and tells another D_m with certainty, so the scores get it here. Its size is Theorem 1's for the
sensitivity 3/(d_m rho) (lam c1 + (1 + M rho) b1) of Lemma 1, which is no bound: the certified cost is infinite.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Gt

from privadmm.algorithms.admm_sharing import ADMMSharing
from privadmm.algorithms.method import Calibration, RoundEpsilon, need_simulation
from privadmm.data.arrays import Floats
from privadmm.engine.party import Vertical
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import Doc
from privadmm.privacy import ridge_sensitivity
from privadmm.privacy.accounting import Claim, Plan, classical_ratio
from privadmm.privacy.calibration import NoPrivacy, fit
from privadmm.privacy.events import NotPrivate, Unproved

BARE = NotPrivate("the paper has no noise for handing over the weights")
CAVEAT = (
    "the paper's Corollary 1, for one column. Nothing certifies it: its sensitivity, Lemma 1, can be passed ninefold; "
    "its noise on the weights stays in the span of the columns; and the weights are handed over bare"
)


@dataclass(frozen=True)
class Sharing(ADMMSharing):
    ball: Annotated[
        float | None, Gt(0), Doc("bound on the norm of each party's weights; adjacency person needs it")
    ] = None
    column_bound: Annotated[
        float | None, Gt(0), Doc("columns are scaled down to this norm; adjacency column needs it")
    ] = None
    calibration: Calibration = "certified"
    round_epsilon: RoundEpsilon = None
    b1: Annotated[float, Gt(0), Doc("the paper's bound on the norms of x, y and z, if published")] = 1.0

    name: ClassVar[str] = "sharing"
    adjacencies: ClassVar[tuple[str, ...]] = ("person", "column")

    def moves(self, local: Vertical, target: Floats, mu: float) -> tuple[Floats, Floats]:
        if self.round_epsilon is None:
            return local.moves(target, mu, self.ball, self.column_bound)
        lemma = ridge_sensitivity.lemma_1(local.columns.widths, self.rho, mu * self.rho, local.public.parties, self.b1)
        return lemma[:, None], lemma[:, None]

    def condition(self, public: Public) -> float:
        if self.column_bound is None or public.privacy.adjacency != "column":
            return super().condition(public)
        return 1 + self.column_bound**2 * max(public.columns) / self.weights(public)[0]

    def planned(self, public: Public) -> Plan:
        target, T = public.privacy, public.rounds
        if isinstance(target, NoPrivacy):
            return {(t, 1): (public.everyone(target.event),) * 2 for t in range(T)}
        levels = target.levels(T)
        if self.round_epsilon is not None:
            z = classical_ratio(self.round_epsilon, target.delta / (2 * T))
            noisy = {(t, 1): (public.everyone(Unproved(levels[t] * z)),) for t in range(T - 1)}
            return noisy | {(T - 1, 1): (public.everyone(BARE),)}
        shapes = {level: (public.everyone(target.kind(level)),) for level in set(levels)}
        return fit(target, {(t, 1): shapes[level] for t, level in enumerate(levels)})

    def published(self, public: Public, delta: float) -> Claim | None:
        eps, T, target = self.round_epsilon, public.rounds, public.privacy
        if eps is None or isinstance(target, NoPrivacy) or len(set(target.levels(T))) > 1:
            return None
        # (10) with T delta_round = delta' = delta/2
        return Claim(math.sqrt(2 * T * math.log(2 / delta)) * eps + T * eps * math.expm1(eps), CAVEAT)

    def check(self, public: Public) -> None:
        super().check(public)
        target = public.privacy
        if isinstance(target, NoPrivacy):
            return
        if public.regularizer.rest is not None:
            raise ConfigError(f"{self.name} has no proof for l1: use l2, or admm_sharing without privacy")
        if self.round_epsilon is not None:
            need_simulation(public, 'calibration = "published"')
            if target.adjacency != "column":
                raise ConfigError('the paper is about a replaced column: set adjacency = "column" to reproduce it')
        elif target.adjacency == "person" and self.ball is None:
            raise ConfigError('adjacency = "person" needs ball, a declared bound on the norm of each party\'s weights')
        elif target.adjacency == "column" and self.column_bound is None:
            raise ConfigError('adjacency = "column" needs column_bound, a declared bound on the norm of each column')
