"""A method with one more release in front of its rounds, which has a share of the budget.

Round 0 is the release's own, with Gaussian noise of 1/z^2 = f mu^2, mu being the GDP parameter of the party's (epsilon,
delta). Round t >= 1 is round t - 1 of the method, which gets the epsilon that is left: its events, counted together
with the first release, stay within the party's total.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

from privadmm.data.arrays import Ints
from privadmm.engine.phases import Algorithm, Topology
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import check_positive
from privadmm.privacy.accounting import Claim, Plan, totals
from privadmm.privacy.calibration import NoPrivacy, Target, first, left_over


@dataclass(frozen=True)
class Preceded:
    """`method`, one round later, on one feature more. Its first release has the share f of the budget."""

    method: Algorithm
    share: float = 0.1
    name: str = field(init=False)
    topology: Topology = field(init=False)
    adjacencies: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        check_positive(share=self.share)
        if self.share >= 1:
            raise ConfigError("the moments' share must lie below 1")
        for name in ("name", "topology"):
            object.__setattr__(self, name, getattr(self.method, name))
        object.__setattr__(self, "adjacencies", ("replace-one",) if self.method.adjacencies else ())

    def inside(self, public: Public) -> Public:
        """The public facts of the method: one feature more, one round less, and the budget that is left."""
        return public.once((self, "inside"), lambda: self.left(public))

    def shifted(self, public: Public) -> Public:
        """Facts of the method that need no plan, such as the shapes of messages: one feature more, one round less."""
        target = public.privacy
        if isinstance(target, Target):
            target = replace(target, profile=target.profile[1:])
        return replace(public, dim=public.dim + 1, rounds=public.rounds - 1, privacy=target)

    def left(self, public: Public) -> Public:
        inner, target = self.shifted(public), public.privacy
        if isinstance(target, NoPrivacy) or (target.epsilon is None and not target.party_epsilon):
            return inner
        asked = [target.of(party, public.parties) for party in range(public.parties)]

        def given(left: tuple[float, ...]) -> Public:
            trimmed = replace(target, epsilon=None, party_epsilon=left, profile=target.profile[1:])
            return replace(inner, privacy=trimmed)

        def spent(left: tuple[float, ...]) -> Any:
            return totals(self.method.plan(given(left)), public.parties)

        return given(left_over(target, asked, self.part(target), spent))

    def part(self, target: Target) -> float:
        """f, or f/sqrt(K) where K transcripts alike share one release of moments."""
        return self.share / math.sqrt(target.copies)

    def plan(self, public: Public) -> Plan:
        return public.once(self, lambda: self.planned(public))

    def planned(self, public: Public) -> Plan:
        inner, target = self.method.plan(self.inside(public)), public.privacy
        if isinstance(target, NoPrivacy):
            ahead: Any = public.everyone(target.event)
        else:
            asked = [target.of(party, public.parties) for party in range(public.parties)]
            ahead = tuple(first(target, total, self.part(target), public.parties) for total in asked)
        return {(0, 0): (ahead,), **{(t + 1, phase): rows for (t, phase), rows in inner.items()}}

    def condition(self, public: Public) -> float:
        return self.method.condition(self.inside(public))

    def advice(self, public: Public) -> str | None:
        return self.method.advice(self.inside(public))

    def published(self, public: Public, delta: float) -> Claim | None:
        return None

    def init(self, public: Public, ids: Ints) -> Any:
        return self.method.init(self.shifted(public), ids)
