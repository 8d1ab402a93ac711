"""What parties agree on of their released moments, and how much noise is in it: moments.py makes a map of it.

Each party's own release counts by the party's records, or as it counts in the method. In a secure sum party i sends
omega_i times its moments, and the sum over those present is divided by the sum of their omegas.
"""

import math
from dataclasses import dataclass

import numpy as np

from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.preceded import Preceded
from privadmm.data.arrays import Floats, Ints
from privadmm.data.moments_map import moments_sensitivity
from privadmm.engine.mail import Mail
from privadmm.engine.public import Public
from privadmm.engine.sums import uneven
from privadmm.privacy.accounting import Plan
from privadmm.privacy.events import WithRatio
from privadmm.privacy.sums import Summands, evened


@dataclass(frozen=True)
class MomentsConsensus(Preceded):
    """A method behind one release of moments: its plan, and consensus on what was released."""

    constant: float = 0.2
    nonnegative: bool = False

    def planned(self, public: Public) -> Plan:
        plan = dict(super().planned(public))
        if uneven(public, plan[0, 0][0]):
            plan[0, 0] = (evened(plan[0, 0][0], self.weighted(public).moves),)
        return plan

    def averaged(self, public: Public, inbox: Mail) -> tuple[Floats, float]:
        """Weighted consensus on the released moments, and the standard deviation of its noise."""
        ids, z = inbox.senders, self.ratios(public)[inbox.senders, None]
        bound = moments_sensitivity(public.sizes[ids], self.nonnegative)
        # A row's norm is at most 1: a variance of 1/d in each coordinate, if they share it alike.
        even = public.dim * (public.sizes[ids, None] * bound * z) ** 2
        share = self.shares(public, ids, even)
        return (share * inbox.values).sum(axis=-2), math.sqrt(float(np.sum((share * bound * z) ** 2)))

    def weighted(self, public: Public) -> Summands:
        """Of omega_i times the moments, which are at most 1: a mean of entries of rows in the unit ball."""
        weight = omega(public)
        return Summands((weight * moments_sensitivity(public.sizes, self.nonnegative))[:, 0], weight[:, 0])

    def shares(self, public: Public, here: Ints, even: Floats) -> Floats:
        """How much each of these parties counts in the moments: as it does in the method."""
        if isinstance(self.method, FirstOrderConsensus):
            return self.method.shares(self.inside(public), here, even)
        return public.omega(here) / len(here)

    def ratios(self, public: Public) -> Floats:
        """z of every party's release of moments; 0 where there is no noise."""
        (events,) = self.plan(public)[(0, 0)]
        return np.array([event.ratio if isinstance(event, WithRatio) else 0.0 for event in events])


def omega(public: Public) -> Floats:
    """omega_i of every party, a column; who is absent changes nothing in it."""
    return public.scale(public.ids) / public.C
