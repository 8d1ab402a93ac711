"""The worker that lives beside the data: a block's state, its ledger, and one transaction per tick.

For every value of the records a tick ends in a charged release, or was refused by public facts before a record was read
(docs/privacy.md#no-outcome-is-free). So records are read by a function, `load`, which is called last: after the inbox,
the order, the plan, the state and the budget were checked and, in a deployment, the cost was put on record.
"""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, SupportsBytes

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Ints, Later
from privadmm.engine.job import Job
from privadmm.engine.mail import LARGEST, Mail, nobody
from privadmm.engine.party import Local, Vertical
from privadmm.engine.phases import (
    AtParties,
    at_parties,
    heard,
    inbox_width,
    one_time_draws,
    pack_state,
    rows,
    tick,
    unpack_state,
)
from privadmm.engine.sums import masker_of, present, summing
from privadmm.errors import DivergedError, RefusedError
from privadmm.privacy.alike import Alike, same_array, together
from privadmm.privacy.events import Charges, Event
from privadmm.privacy.labels import reported
from privadmm.privacy.ledger import Ledger, Tick
from privadmm.privacy.masks import Masker
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import DIVERGED, Door, events_of
from privadmm.privacy.sums import Summing

# The result of a tick before its commit: the block's records and state, the mail that it sends, and its bytes.
Ticked = tuple[Local | Vertical, Any, Mail, SupportsBytes]
DRAWS = "draws"  # the name under which a ledger keeps what a block drew once for a job


class Worker:
    """Answers ticks for one block. A worker that is made again from its ledger gives the same bytes.

    The block shrinks when parties of it leave: `local` and `state` are of the parties that answered last.
    """

    def __init__(
        self,
        job: Job,
        ids: Sequence[int] | Ints,
        load: Callable[[], Local | Vertical],
        noise: Noise,
        ledger: Ledger,
        attended: bool = True,
    ) -> None:
        """`load` reads the records of these parties, when a tick first needs them.

        `attended`: the party's own people run this process, so an interrupt is theirs. Interrupts of a server may be
        caused by others.
        """
        self.job, self.algorithm, self.public = job, job.algorithm, job.public
        self.noise, self.ledger, self.attended = noise, ledger, attended
        self.ids, self.load = np.array(ids, dtype=np.int64), load
        self._masker: Masker | None = None
        # By phase: the releases of its last round, the parties, and the events of each release. Most rounds share them.
        self._rows: dict[int, tuple[object, Ints, tuple[Alike[Event], ...]]] = {}
        self._local: Local | Vertical | None = None
        self.last: Tick | None = None
        self.told = nobody()  # who was absent according to the last inbox
        self.state = self.algorithm.init(self.public, self.ids)
        if (stored := ledger.latest(job.id)) is not None:
            self.last = stored[0]
            self.state, self.told = unpack_state(self.state, stored[1])

    @property
    def local(self) -> Local | Vertical:
        """The block's records, read when they are first asked for, with the labels and draws that the ledger keeps."""
        if self._local is None:
            local, epsilon = self.load(), self.public.label_epsilon
            if epsilon is not None and isinstance(local, Local):
                local = replace(local, shards=reported(local.shards, self.ledger, self.noise, epsilon))
            local = replace(self._with_draws(local), certain=self.ledger.policy.limits is not None)
            here = self.ids if self.last is None else self._here(self.last.round, self.told)
            self._local = among(local, here)[0]
        return self._local

    def _with_draws(self, local: Local | Vertical) -> Local | Vertical:
        stored = self.ledger.kept(self.job.id, DRAWS)
        if stored is None:
            drawn = one_time_draws(self.algorithm, local, self.noise)
            if not drawn:
                return local
            # If two processes draw, the ledger keeps what the first one drew, and both use that.
            stored = self.ledger.keep(self.job.id, DRAWS, lambda: arrays.pack(drawn), None)
        return replace(local, kept=arrays.unpack(stored)[0])

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        """The block's answer; the same request again gets the same bytes, at no charge."""
        return self.answer(round, phase, inbox)[0]

    def answer(self, round: int, phase: int, inbox: Mail) -> tuple[Mail, SupportsBytes]:
        """Like `step`, and also returns the committed bytes."""
        now = Tick(self.job.id, round, phase)
        self._well_formed(inbox)
        here = self._here(round, inbox.absent)
        if not len(here):
            return Mail.empty(), Mail.empty().pack()
        if (sums := self.job.sums) is not None:
            sums.check_present(len(present(self.public, inbox.absent)))
        digest = arrays.digest(*inbox.pieces())
        with self.ledger.turn():
            intended = False
            try:
                with self.ledger.transaction():
                    if (stored := self.ledger.recall(now, digest)) is not None:
                        self._remember(now)  # the process may have died between its commit and this call
                        return Mail.unpack(stored), stored
                    self._in_order(now)
                    self._departures(inbox)
                    if len(inbox.absent) and not len(inbox.senders):
                        raise RefusedError(
                            f"parties {self.ids.tolist()[:5]} have nobody left to hear; nothing was released"
                        )
                    self._bounded(round)
                    sum_of_all = self._summing(now, inbox, here)
                    charges = self._charges(now, here)
                    self.ledger.permit(self.job.id, charges)
                    self.ledger.intend(now, digest, charges)
                    # Without guards there is no intent on record: one transaction is enough for records in memory.
                    at_once = not self.ledger.guards and self._local is not None
                    ticked = self._release(now, inbox, digest, here, sum_of_all) if at_once else None
                intended = True
                if ticked is None:
                    _ = self.local  # read before the transaction: to keep labels, the ledger writes to its file
                    with self.ledger.transaction():
                        # In a simulation, which has no turns, another process may have answered meanwhile.
                        if (stored := self.ledger.recall(now, digest)) is not None:
                            return Mail.unpack(stored), stored
                        ticked = self._release(now, inbox, digest, here, sum_of_all)
                # Only after its commit does a tick change the worker.
                self._local, self.state, outbox, packed = ticked
                self.last, self.told = now, inbox.absent
                intended = False  # the tick is committed, whatever happens now
                self._remember(now)
                return outbox, packed
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt) and self.attended:
                    self.ledger.withdraw(now)
                    raise
                if not (intended and self.ledger.guards):
                    raise
                failure = traceback.format_exc()
            # Outside of the handler, so that this error has no reference to the failure, which could tell of records.
            self.ledger.fail(now, failure)
            raise AssertionError("a ledger that guards raises where a tick fails")

    def _release(self, now: Tick, inbox: Mail, digest: str, here: Ints, summing: Summing | None) -> Ticked:
        """Compute on records and release, in a transaction: from here on a tick ends in a release, or has failed."""
        local, at = among(self.local, here)
        state = self.state if at is None else rows(self.state, at)
        step = at_parties(self.algorithm, now.phase)
        door = Door(
            local.ids,
            self._planned(now, here),
            self.noise,
            now.round,
            now.phase,
            lambda charges: self.ledger.permit(self.job.id, charges),
            local.public.zeros(len(local.ids)).shape[:-1],
            summing,
        )
        state, outbox = tick(step, now.round, local, state, inbox, door)
        packed = Later(outbox.pack)
        self.ledger.commit(now, digest, door.charges, packed, Later(partial(pack_state, state, inbox.absent)))
        return local, state, outbox, packed

    def _summing(self, now: Tick, inbox: Mail, here: Ints) -> Summing | None:
        """The part of this block in a secure sum, from its ledger alone; None where the job has none."""
        if self.job.sums is None or (now.round, now.phase) not in self.job.plan:
            return None
        if self._masker is None:  # the first sum of this worker; later it knows itself what it has sent
            self.ledger.check_sent(self.job.id)
            self._masker = masker_of(self.job, self.ids, self.ledger)
        whole, at = len(here) == int(np.isin(self.ids, inbox.gone, invert=True).sum()), (now.round, now.phase)
        return summing(self.job, self.job.sums, at, inbox, self._masker, whole)

    def _remember(self, now: Tick) -> None:
        """Note, beside the ledger, that this part of a secure sum is sent; after the last part, erase the key."""
        if self.public.privacy.sum is not None:
            over = now.round + 1 == self.public.rounds
            self.ledger.sent(now, over)
            self._masker = None if over else self._masker

    def _charges(self, now: Tick, here: Ints) -> Charges:
        """The events that the whole tick will charge to these parties."""
        return together(Alike.same(here, ()), *self._planned(now, here)).map(lambda events: events[1:])

    def _planned(self, now: Tick, here: Ints) -> tuple[Alike[Event], ...]:
        """The events of each release of the tick, by party; refused where the plan has no such tick."""
        releases = self.job.plan.get((now.round, now.phase))
        if releases is None:
            raise RefusedError(
                f"job {now.job} has no round {now.round + 1}, or nothing to release there; nothing was released"
            )
        known = self._rows.get(now.phase)
        if known is None or known[0] is not releases or not same_array(known[1], here):
            known = self._rows[now.phase] = releases, here, tuple(events_of(row, here) for row in releases)
        return known[2]

    def _bounded(self, round: int) -> None:
        """Refuse to go on from iterates that ran away. They are released values, so the refusal tells nothing new."""
        for item in fields(self.state):
            value = getattr(self.state, item.name)
            if not (value.min(initial=0.0) >= -LARGEST and value.max(initial=0.0) <= LARGEST):  # also if it is nan
                raise DivergedError(DIVERGED.format(round + 1))

    def _here(self, round: int, absent: Ints) -> Ints:
        """The parties of the block that answer in this round, in block order."""
        gone = [party for party, first in self.job.leave.items() if first <= round]
        if not len(absent) and not gone:
            return self.ids
        return self.ids[~np.isin(self.ids, [*absent[:, 0], *gone])]

    def _departures(self, inbox: Mail) -> None:
        """Refuse an inbox in which a party left at another time than since the last tick, or came back."""
        if not len(inbox.absent) and not len(self.told):
            return
        known = np.isin(inbox.gone, self.told[:, 0])
        since = -1 if self.last is None else self.last.round
        if not np.array_equal(inbox.absent[known], self.told) or (inbox.absent[~known, 1] != since).any():
            raise RefusedError(
                f"parties {self.ids.tolist()[:5]} were told of others who left at another time than between round "
                f"{since + 1} and this one, or who came back; nothing was released"
            )

    @property
    def senders(self) -> Ints:
        """The senders that the block hears, unless they left."""
        return heard(self.algorithm, self.public, self.ids)

    def _well_formed(self, inbox: Mail) -> None:
        """Refuse, by public facts alone, what no honest coordinator of this algorithm sends.

        An inbox has one row for each sender, not a stack of them: every row of a stack would get noise of its own, and
        their mean would undo it. Its numbers are finite and not absurdly large: sums that overflow would tell records
        apart. A sender may be missing only if the mail says that it left. In a secure sum all rows are the same.
        """
        public = self.public
        sound, senders = inbox.sound(public.parties), self.senders
        if sound and len(inbox.absent):
            senders = np.setdiff1d(senders, inbox.gone)
        good = (
            sound
            and inbox.senders.dtype == np.int64
            and np.array_equal(inbox.senders, senders)
            and inbox.values.dtype == np.float64
            and inbox.values.shape == public.zeros(len(senders), inbox_width(self.algorithm, public)).shape
            and bool(np.all(np.abs(inbox.values) <= LARGEST))
            and (public.privacy.sum is None or bool(np.all(inbox.values == inbox.values[..., :1, :])))
        )
        if not good:
            raise RefusedError(
                f"parties {self.ids.tolist()[:5]} were sent an inbox of another shape, sender or size than "
                f"{self.algorithm.name} has; nothing was released"
            )

    def _in_order(self, now: Tick) -> None:
        mine = [number for number, phase in enumerate(self.algorithm.phases) if isinstance(phase, AtParties)]
        if self.last is None:
            expected = (0, mine[0])
        elif self.last.phase != mine[-1]:
            expected = (self.last.round, mine[mine.index(self.last.phase) + 1])
        else:
            expected = (self.last.round + 1, mine[0])
        if (now.round, now.phase) != expected:
            raise RefusedError(
                f"parties {self.ids.tolist()[:5]} are ready for round {expected[0] + 1} of job {now.job} and "
                f"were asked for round {now.round + 1}: the ledger and the checkpoint are of different moments"
            )


def among(local: Local | Vertical, here: Ints) -> tuple[Local | Vertical, Ints | None]:
    """The part of a block with these parties, and their positions in it; None if they are the whole block."""
    if len(here) == len(local.ids):
        return local, None
    at = np.flatnonzero(np.isin(local.ids, here))
    return local.take(at), at
