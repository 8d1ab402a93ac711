"""A method beside other releases, which have a share of its budget.

A release with the share f has Gaussian noise of 1/z^2 = f mu^2, mu being the GDP parameter of the party's (epsilon,
delta). The method gets the epsilon that is left: its events, counted together with these releases, stay within the
party's total.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from privadmm.engine.phases import Algorithm, Topology
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.params import check_positive
from privadmm.privacy.accounting import Claim, Plan, shared, totals
from privadmm.privacy.calibration import NoPrivacy, Target, first, left_over
from privadmm.privacy.events import Event


@dataclass(frozen=True)
class SharedBudget(ABC):
    """`method`, and the share of the budget that other releases beside it have."""

    method: Algorithm
    share: float = 0.1
    name: str = field(init=False)
    topology: Topology = field(init=False)
    adjacencies: tuple[str, ...] = field(init=False)
    key: ClassVar[str]  # the key of a config that sets the share
    releases: ClassVar[int] = 1  # how many there are beside the method

    def __post_init__(self) -> None:
        check_positive(share=self.share)
        if self.share >= 1:
            raise ConfigError(f"{self.key} must lie below 1: the rest is for training")
        for name in ("name", "topology"):
            object.__setattr__(self, name, getattr(self.method, name))
        object.__setattr__(self, "adjacencies", ("replace-one",) if self.method.adjacencies else ())

    @abstractmethod
    def shifted(self, public: Public) -> Public:
        """The method's public facts without its budget: enough for shapes of messages and numbers of rounds."""

    @abstractmethod
    def parts(self, target: Target) -> tuple[float, ...]:
        """The share of each of the releases beside the method."""

    def inside(self, public: Public) -> Public:
        """The method's public facts: `shifted`, with the budget that is left."""
        return public.once((self, "inside"), lambda: self.left(public))

    def left(self, public: Public) -> Public:
        inner, target = self.shifted(public), public.privacy
        if isinstance(target, NoPrivacy) or (target.epsilon is None and not target.party_epsilon):
            return inner
        kept = inner.privacy
        assert isinstance(kept, Target)
        asked = [target.of(party, public.parties) for party in range(public.parties)]

        def given(left: tuple[float, ...]) -> Public:
            return replace(inner, privacy=replace(kept, epsilon=None, party_epsilon=left))

        def spent(left: tuple[float, ...]) -> Any:
            return totals(self.method.plan(given(left)), public.parties)

        return given(left_over(target, asked, self.parts(target), spent, self.key))

    def beside(self, public: Public) -> list[tuple[Event, ...]]:
        """The events of the releases beside the method, one for each party."""
        target = public.privacy
        if isinstance(target, NoPrivacy):
            return [public.everyone(target.event)] * self.releases
        asked = [target.of(party, public.parties) for party in range(public.parties)]
        return [tuple(first(target, total, part, public.parties) for total in asked) for part in self.parts(target)]

    def plan(self, public: Public) -> Plan:
        return public.once(self, lambda: shared(self.planned(public)))

    @abstractmethod
    def planned(self, public: Public) -> Plan:
        """The events of the method and of the releases beside it."""

    def condition(self, public: Public) -> float:
        return self.method.condition(self.inside(public))

    def advice(self, public: Public) -> str | None:
        return self.method.advice(self.inside(public))

    def published(self, public: Public, delta: float) -> Claim | None:
        return None
