"""Any horizontal method on centred and scaled features: one private release of their moments goes before its rounds.

Round 0, at the parties:      release (mean x, mean x*x) with the share f of the budget                     (1)
         by whoever holds all: weighted consensus on them, and from it the public map phi (moments_map.py)  (2)
Round t >= 1:                  round t - 1 of the method, on phi(x) instead of x                            (3)

Whoever speaks to a party in (3) sends M and A along, in front of the method's own message.

Privacy. (1) moves by at most sqrt(4.5)/m_i, or 2/m_i where entries are declared non-negative, and is released with
Gaussian noise of 1/z^2 = f mu^2, mu being the GDP parameter of the party's (epsilon, delta). (2) reads released
values. Whatever map a hostile coordinator sends, phi is in the unit ball, so the bounds of (3) hold; it gets the
epsilon that is left, so that its events, counted together with (1), stay within the party's total.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.algorithms.moments_consensus import MomentsConsensus, omega
from privadmm.data.arrays import Floats
from privadmm.data.moments_map import Map, map_of, moments, moments_sensitivity
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Mapped, Phase, vertical
from privadmm.engine.public import Public
from privadmm.engine.sums import planned_sums
from privadmm.errors import ConfigError
from privadmm.params import check_nonnegative
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import Door, Released, Sealed
from privadmm.privacy.sums import Summands


@dataclass(frozen=True)
class Centred(MomentsConsensus):
    """`method` on mapped features; its rounds are one less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nonnegative(constant=self.constant)
        if self.constant >= 1:
            raise ConfigError("the constant feature must lie below 1")
        if vertical(self.method):
            raise ConfigError("moments are for parties that hold records; remove [features] moments")

    @property
    def phases(self) -> tuple[Phase, ...]:
        return *(self.wrapped(phase) for phase in self.method.phases), AtCoordinator(self.mapped)

    def wrapped(self, phase: Phase) -> Phase:
        """The method's phase, one round later and on mapped features."""
        if isinstance(phase, AtCoordinator):
            return AtCoordinator(lambda *given: self.at_coordinator(phase, *given))
        assert isinstance(phase, AtParties)

        def sends(public: Public, t: int) -> Floats:
            return phase.sends(self.shifted(public), t - 1) if t else public.zeros(1, 2 * public.dim)

        def draws(local: Local, noise: Noise) -> Any:
            assert phase.draws is not None
            return phase.draws(replace(local, public=self.inside(local.public)), noise)

        def sums(public: Public, t: int) -> Summands:
            assert phase.sums is not None
            return phase.sums(self.shifted(public), t - 1) if t else self.weighted(public)

        return AtParties(
            lambda *given: self.at_parties(phase, *given),
            sends,
            None if phase.draws is None else draws,
            None if phase.sums is None else sums,
            lambda t: t == 0 or phase.vital(t - 1),
        )

    def at_parties(
        self, phase: AtParties, t: int, local: Local, s: Any, inbox: Mail, release: Door
    ) -> tuple[Any, Released | Sealed]:
        d = local.public.dim
        if t == 0:
            x = local.public.zeros(len(local.ids), 2 * d) + moments(local.shards, self.nonnegative)
            weight = 1.0 if local.public.privacy.sum is None else omega(local.public)[local.ids]
            return s, release.summand(
                weight * x, weight * moments_sensitivity(local.shards.sizes, self.nonnegative)
            )  # (1)
        own = Mail(inbox.senders, inbox.values[..., 2 * d :], inbox.absent - np.array([0, 1]))
        row = inbox.values[..., 0, : 2 * d]
        if row.ndim > 1 and not (row == row[:1]).all():
            raise ConfigError("replicas have maps of their own: run them one by one")
        map = Map(row.reshape(-1, 2 * d)[0, :d], row.reshape(-1, 2 * d)[0, d:], self.constant)
        seen = replace(local.through(map), public=self.inside(local.public))
        return phase.run(t - 1, seen, s, own, release)  # (3)

    def at_coordinator(
        self, phase: AtCoordinator, t: int, public: Public, memory: Mapped, inbox: Mail
    ) -> tuple[Mapped, Mail]:
        if t == 0:
            return memory, inbox
        inner, mail = phase.run(t - 1, self.inside(public), memory.inner, inbox)
        return replace(memory, inner=inner), mail

    def mapped(self, t: int, public: Public, memory: Mapped, inbox: Mail) -> tuple[Mapped, Mail]:
        if t == 0:
            mean, s = self.averaged(public, inbox) if public.privacy.sum is None else self.summed(public, inbox)
            rows = [map_of(row, s, self.constant) for row in mean.reshape(-1, mean.shape[-1])]
            table = np.stack([np.concatenate([row.M, row.A]) for row in rows]).reshape(mean.shape)
            memory, inbox = replace(memory, map=table), self.method.start(self.shifted(public))[1]  # (2)
        return memory, with_front(memory.map, inbox)

    def summed(self, public: Public, inbox: Mail) -> tuple[Floats, float]:
        """Like `averaged`, from a secure sum to which party i sent omega_i times its moments."""
        ids, sums = inbox.senders, planned_sums(self, public)
        assert sums is not None
        weight = float(omega(public)[ids].sum())
        return inbox.values[..., 0, :] * (len(ids) / weight), sums.noise((0, 0), len(ids)) / weight

    def check(self, public: Public) -> None:
        if public.start is not None:
            raise ConfigError(
                "moments map the features anew in every job, and a start is of the features of another: start afresh "
                "(of an estimator: warm_start=False), or choose a method without moments"
            )
        if public.rounds < 2:
            raise ConfigError("with moments two rounds are needed at least: the first one is theirs")
        if getattr(self.method, "calibration", "certified") != "certified":
            raise ConfigError("moments go before certified noise only: a paper's own formula does not count them")
        if self.topology == "graph" and public.parties < 2:
            raise ConfigError(
                "moments come with the neighbours' messages, and one party has none; where a column tells how many "
                "parties there are, declare [parties] sizes"
            )
        self.method.check(self.shifted(public))  # first without calibration, which a refused job does not need
        self.method.check(self.inside(public))

    def start(self, public: Public) -> tuple[Mapped, Mail]:
        inner, mail = self.method.start(self.shifted(public))
        memory = Mapped(public.zeros(1, 2 * public.dim)[..., 0, :], np.array([self.constant]), inner)
        return memory, with_front(memory.map, mail)

    def model(self, public: Public, memory: Mapped, mail: Mail) -> Floats:
        own = Mail(mail.senders, mail.values[..., 2 * public.dim :])
        return self.method.model(self.inside(public), memory.inner, own)


def with_front(front: Floats, mail: Mail) -> Mail:
    """Mail with these numbers (..., n) in front of every row."""
    rows = np.broadcast_to(front[..., None, :], (*mail.values.shape[:-1], front.shape[-1]))
    return Mail(mail.senders, np.concatenate([rows, mail.values], axis=-1))
