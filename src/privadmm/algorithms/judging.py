"""The public side of a private evaluation: its plan, and what the coordinator sends and makes of the answers.

The share f of mu^2 is split between the two releases of evaluated.py: a quarter is for the first. The coordinator keeps
the model after each of the method's rounds, and sends it along. After the first release it makes the table by which
parties count for the second. It reads released values only.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from privadmm.algorithms.counting import MOVES
from privadmm.algorithms.moments import Centred
from privadmm.algorithms.score_table import Judged, Layout, judge, widened
from privadmm.algorithms.shared_budget import SharedBudget
from privadmm.data.arrays import Floats
from privadmm.data.holding_out import held_sizes
from privadmm.engine.mail import Mail
from privadmm.engine.phases import AtCoordinator, vertical
from privadmm.engine.public import Public
from privadmm.engine.sums import uneven
from privadmm.errors import ConfigError
from privadmm.params import check_positive, check_probability, check_whole
from privadmm.privacy.accounting import Plan
from privadmm.privacy.calibration import Target
from privadmm.privacy.sums import evened

FIRST = 0.25  # of the share, for the first release
MOST = 2**32  # held-out records of a party: sums of fewer are exact


@dataclass(frozen=True)
class Judging(SharedBudget):
    """A method whose model is evaluated after its rounds: plan, checks, and what the coordinator does."""

    held_out: float = 0.2
    bins: int = 12
    clip: float = 3.0
    range: float | None = None
    seed: int = 0

    key: ClassVar[str] = "[evaluation] share"
    releases: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_probability(held_out=self.held_out)
        check_positive(clip=self.clip, **({} if self.range is None else {"range": self.range}))
        check_whole(bins=self.bins)
        if not 4 <= self.bins <= 256 or self.bins % 2:
            raise ConfigError("bins of an evaluation are an even number from 4 to 256")
        if vertical(self.method):
            raise ConfigError(
                "a private evaluation is for parties that hold records: where they hold columns, nobody has a score to "
                "count. Remove [evaluation]"
            )

    @property
    def layout(self) -> Layout:
        return Layout(self.bins, isinstance(self.method, Centred))

    def unit(self, public: Public) -> float:
        """The weight of one record: a power of 2 near N/n, so that sums of counts are as large as sums of means."""
        return 2.0 ** -math.ceil(math.log2(max(1.0, float(public.sizes.sum()) / public.parties)))

    def shifted(self, public: Public) -> Public:
        """The public facts of the method: without the held-out records and the last two rounds."""
        target, sizes = public.privacy, public.sizes
        if isinstance(target, Target):
            target = replace(target, profile=target.profile[: -self.releases])
        if isinstance(sizes, np.ndarray):  # else sizes are not declared
            sizes = sizes - held_sizes(sizes, self.held_out)
        return replace(public, sizes=sizes, rounds=public.rounds - self.releases, privacy=target)

    def parts(self, target: Target) -> tuple[float, ...]:
        return FIRST * self.share, (1 - FIRST) * self.share

    def planned(self, public: Public) -> Plan:
        plan, T = dict(self.method.plan(self.inside(public))), public.rounds - self.releases
        for k, row in enumerate(self.beside(public)):
            moves = np.full(public.parties, MOVES[k])
            plan[T + k, 0] = (evened(row, moves) if uneven(public, row) else row,)
        return plan

    def at_coordinator(
        self, phase: AtCoordinator, t: int, public: Public, memory: Judged, inbox: Mail
    ) -> tuple[Judged, Mail]:
        if t >= public.rounds - self.releases:
            return memory, inbox
        inner, mail = phase.run(t, self.inside(public), memory.inner, inbox)
        return replace(memory, inner=inner), mail

    def place(self, t: int, public: Public, memory: Judged, inbox: Mail) -> tuple[Judged, Mail]:
        """Add the model and the table to the method's message; after the method's rounds, keep what was counted."""
        T = public.rounds - self.releases
        if t < T:
            model = self.method.model(self.inside(public), memory.inner, inbox)
            memory = replace(
                memory, model=model, row=inbox.values[..., 0, :], table=self.layout.edges(model, self.range)
            )
        else:
            held = held_sizes(public.sizes[inbox.senders], self.held_out)
            memory = judge(memory, t - T, inbox.values.sum(axis=-2) / self.unit(public), int(held.sum()), self.bins)
            inbox = self.layout.same_to_all(self.topology, inbox, memory)
        return memory, widened(memory, inbox)

    def check(self, public: Public) -> None:
        if public.rounds <= self.releases:
            raise ConfigError(f"an evaluation has {self.releases} rounds of its own, behind one of training at least")
        if not public.loss.classification or public.label_epsilon is not None:
            what = "randomised labels" if public.label_epsilon is not None else "numbers"
            raise ConfigError(
                f"a private evaluation counts true labels of two classes, not {what}; remove [evaluation]"
            )
        if isinstance(public.privacy, Target) and (public.privacy.delta == 0 or public.privacy.copies > 1):
            what = "delta = 0" if public.privacy.delta == 0 else "more than two classes"
            raise ConfigError(f"a private evaluation has no proof for {what}: remove [evaluation]")
        if getattr(self.method, "calibration", "certified") != "certified":
            raise ConfigError("an evaluation goes with certified noise only: a paper's own formula does not count it")
        if isinstance(public.sizes, np.ndarray):
            held = held_sizes(public.sizes, self.held_out)
            if not 0 < held.max() < MOST:
                fix = "raise [evaluation] held_out" if not held.max() else f"there may be less than {MOST} at a party"
                raise ConfigError(f"{held.max()} records are held out at most: {fix}")
        if self.topology == "graph" and public.parties < 2:
            raise ConfigError("the model comes with the neighbours' messages, and one party has none")
        self.method.check(self.shifted(public))
        self.method.check(self.inside(public))

    def start(self, public: Public) -> tuple[Judged, Mail]:
        inner, mail = self.method.start(self.shifted(public))
        model = public.zeros(1, self.layout.width(public))[..., 0, :]
        counts, sums = (public.zeros(1, width)[..., 0, :] for width in (2 * self.bins, 3))
        table = self.layout.edges(model, self.range)
        memory = Judged(inner, model, mail.values[..., 0, :], table, counts, sums, np.zeros(2))
        return memory, widened(memory, mail)

    def model(self, public: Public, memory: Judged, mail: Mail) -> Floats:
        return memory.model
