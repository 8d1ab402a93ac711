"""A method with one more release in front of its rounds, which has a share of the budget (shared_budget.py).

Round 0 is the release's own; round t >= 1 is round t - 1 of the method.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from privadmm.algorithms.shared_budget import SharedBudget
from privadmm.data.arrays import Ints
from privadmm.engine.public import Public
from privadmm.privacy.accounting import Plan
from privadmm.privacy.calibration import Target


@dataclass(frozen=True)
class Preceded(SharedBudget):
    """`method`, one round later, on one feature more. Its first release has the share f of the budget."""

    key: ClassVar[str] = "[features] share"

    def shifted(self, public: Public) -> Public:
        """One feature more, one round less."""
        target = public.privacy
        if isinstance(target, Target):
            target = replace(target, profile=target.profile[1:])
        return replace(public, dim=public.dim + 1, rounds=public.rounds - 1, privacy=target)

    def parts(self, target: Target) -> tuple[float, ...]:
        """f, or f/sqrt(K) where K transcripts alike share one release of moments."""
        return (self.share / math.sqrt(target.copies),)

    def planned(self, public: Public) -> Plan:
        inner = self.method.plan(self.inside(public))
        (ahead,) = self.beside(public)
        return {(0, 0): (ahead,), **{(t + 1, phase): rows for (t, phase), rows in inner.items()}}

    def init(self, public: Public, ids: Ints) -> Any:
        return self.method.init(self.shifted(public), ids)
