"""Any horizontal method for two classes, and behind its rounds a private evaluation of the model on held-out records.

Every party holds out a declared fraction of its records (data/holding_out.py). The method's T rounds run as if these
did not exist; whoever speaks to a party sends along the model so far and a public table:

Round T, at the parties:   release how many held-out records of each class have a score between two edges   (1)
         coordinator:      fit a curve to each class, and from it a public function of score and class (class_curves.py)
Round T+1, at the parties: release the sum of that function, of the clipped losses, and of the right answers (2)

Privacy (docs/privacy.md#evaluation). Neighbours move (1) and (2) by at most MOVES (counting.py), whatever model and
table a hostile coordinator sends. Both have Gaussian noise, and together the share f of mu^2; everything else is made
of released values. Which records are held out follows from public facts. No privacy is gained from the fact that a
record is either trained on or held out: in another job it may be the other way round.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.algorithms.counting import MOVES, HeldOut
from privadmm.algorithms.judging import Judging
from privadmm.data.arrays import Floats, Ints
from privadmm.data.holding_out import held_sizes, parted
from privadmm.data.moments_map import Map
from privadmm.data.shards import Shards
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.engine.public import Public
from privadmm.optim.solvers import Cache
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import Door, Released, Sealed
from privadmm.privacy.sums import Summands


@dataclass(frozen=True)
class Evaluated(Judging):
    """`method`, and two more rounds in which its model is evaluated."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return *(self.wrapped(phase) for phase in self.method.phases), AtCoordinator(self.place)

    def wrapped(self, phase: Phase) -> Phase:
        """The method's phase in the method's rounds; after them, at the parties, the two releases."""
        if isinstance(phase, AtCoordinator):
            return AtCoordinator(lambda *given: self.at_coordinator(phase, *given))
        assert isinstance(phase, AtParties)

        def sends(public: Public, t: int) -> Floats:
            k = t - public.rounds + self.releases
            return phase.sends(self.shifted(public), t) if k < 0 else public.zeros(1, (2 * self.bins, 3)[k])

        def draws(local: Local, noise: Noise) -> Any:
            assert phase.draws is not None
            return phase.draws(self.split(local)[0], noise)

        def sums(public: Public, t: int) -> Summands:
            assert phase.sums is not None
            k = t - public.rounds + self.releases
            if k < 0:
                return phase.sums(self.shifted(public), t)
            held = held_sizes(public.sizes, self.held_out)
            return Summands(
                np.full(public.parties, MOVES[k]) * self.unit(public), self.unit(public) * held.astype(np.float64)
            )

        def run(t: int, local: Local, s: Any, inbox: Mail, release: Door) -> tuple[Any, Released | Sealed]:
            k, (train, held) = t - local.public.rounds + self.releases, self.split(local)
            if k < 0:
                own = Mail(inbox.senders, inbox.values[..., self.layout.front(local.public) :], inbox.absent)
                return phase.run(t, train, s, own, release)
            query = local.public.zeros(len(local.ids), (2 * self.bins, 3)[k])
            if held is not None:
                query[..., np.isin(local.ids, held.ids), :] = self.query(k, local, held, inbox)
            unit = self.unit(local.public)
            return s, release.summand(unit * query, sensitivity=unit * MOVES[k])  # (1), (2)

        return AtParties(
            run, sends, None if phase.draws is None else draws, None if phase.sums is None else sums, phase.vital
        )

    def split(self, local: Local) -> tuple[Local, Shards | None]:
        """The block as the method sees it, and the held-out records; cached."""
        if "parted" not in local.cache.seen:
            local.cache.seen["parted"] = *parted(local.shards, self.held_out, self.seed), Cache()
        kept, held, cache = local.cache.seen["parted"]
        return replace(local, public=self.inside(local.public), shards=kept, cache=cache), held

    def query(self, k: int, local: Local, held: Shards, inbox: Mail) -> Floats:
        """(1) or (2) of the held-out records, under the model that was sent."""
        table, w, map = self.layout.read(inbox.values[..., 0, :], local.public)
        if map is not None:
            held = held.mapped([Map(*map, self.method.constant)] * len(held.ids), held.dim + 1)  # type: ignore[attr-defined]
        seen = HeldOut.under(w, held)
        return seen.totals(table, local.public.loss, self.clip) if k else seen.counts(table[0, : self.bins - 1])

    def init(self, public: Public, ids: Ints) -> Any:
        return self.method.init(self.shifted(public), ids)
