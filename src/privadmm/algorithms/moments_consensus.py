"""A method behind one release of moments: its plan, and the consensus on the released moments.

Round 0 is that release, which has a share of the budget (shared_budget.py); round t >= 1 is round t - 1 of the method.
moments.py makes a map of the consensus.

In the consensus a party counts by its records, or as it counts in the method. In a secure sum party i sends omega_i
times its moments, and the sum over those present is divided by the sum of their omegas.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.shared_budget import SharedBudget
from privadmm.data.arrays import Floats, Ints
from privadmm.data.moments_map import moments_sensitivity
from privadmm.engine.mail import Mail
from privadmm.engine.public import Public
from privadmm.engine.sums import uneven
from privadmm.privacy.accounting import Plan
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import WithRatio
from privadmm.privacy.sums import Summands, evened


@dataclass(frozen=True)
class MomentsConsensus(SharedBudget):
    """`method`, one round later and on one feature more, behind a first release with the share f of the budget."""

    constant: float = 0.2
    nonnegative: bool = False
    key: ClassVar[str] = "[features] share"

    def shifted(self, public: Public) -> Public:
        """The public facts of the method: one feature more, one round less."""
        target = public.privacy
        if isinstance(target, Target):
            target = replace(target, profile=target.profile[1:])
        return replace(public, dim=public.dim + 1, rounds=public.rounds - 1, privacy=target)

    def parts(self, target: Target) -> tuple[float, ...]:
        """f, or f/sqrt(K) if K copies of the transcript share one release of moments."""
        return (self.share / math.sqrt(target.copies),)

    def planned(self, public: Public) -> Plan:
        inner = self.method.plan(self.inside(public))
        (ahead,) = self.beside(public)
        if uneven(public, ahead):
            ahead = evened(ahead, self.weighted(public).moves)
        return {(0, 0): (ahead,), **{(t + 1, phase): rows for (t, phase), rows in inner.items()}}

    def init(self, public: Public, ids: Ints) -> Any:
        return self.method.init(self.shifted(public), ids)

    def averaged(self, public: Public, inbox: Mail) -> tuple[Floats, float]:
        """Weighted consensus on the released moments, and the standard deviation of its noise."""
        ids, z = inbox.senders, self.ratios(public)[inbox.senders, None]
        bound = moments_sensitivity(public.sizes[ids], self.nonnegative)
        # A row's norm is at most 1: each coordinate has a variance of 1/d, if all have the same.
        even = public.dim * (public.sizes[ids, None] * bound * z) ** 2
        share = self.shares(public, ids, even)
        return (share * inbox.values).sum(axis=-2), math.sqrt(float(np.sum((share * bound * z) ** 2)))

    def weighted(self, public: Public) -> Summands:
        """Bounds of omega_i times the moments, which are at most 1: means of entries of rows in the unit ball."""
        weight = omega(public)
        return Summands((weight * moments_sensitivity(public.sizes, self.nonnegative))[:, 0], weight[:, 0])

    def shares(self, public: Public, here: Ints, even: Floats) -> Floats:
        """How much each of these parties counts in the moments: as much as in the method."""
        if isinstance(self.method, FirstOrderConsensus):
            return self.method.shares(self.inside(public), here, even)
        return public.omega(here) / len(here)

    def ratios(self, public: Public) -> Floats:
        """z of every party's release of moments; 0 where there is no noise."""
        (events,) = self.plan(public)[(0, 0)]
        return np.array([event.ratio if isinstance(event, WithRatio) else 0.0 for event in events])


def omega(public: Public) -> Floats:
    """omega_i of every party, as a column; it does not depend on who is absent."""
    return public.scale(public.ids) / public.C
