"""The worker that lives beside the data: a block's state, its ledger, and one transaction per tick."""

import numpy as np

from privadmm import wire
from privadmm.errors import RefusedError
from privadmm.phases import COORDINATOR, Algorithm, AtParties, Local, Mail, pack_state, tick, unpack_state
from privadmm.privacy.accounting import Plan
from privadmm.privacy.ledger import Ledger, Tick
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import Door

LARGEST = 1e100  # of an entry of an inbox


class Worker:
    """Answers ticks for one block. Rebuilt from its ledger alone, it answers the same bytes."""

    def __init__(
        self, algorithm: Algorithm, local: Local, plan: Plan, noise: Noise, ledger: Ledger, job: str
    ) -> None:
        self.algorithm, self.local, self.plan = algorithm, local, plan
        self.noise, self.ledger, self.job = noise, ledger, job
        ledger.policy.admit(algorithm.name)
        self.last: Tick | None = None
        self.state = algorithm.init(local.public, local.ids)
        if (stored := ledger.latest(job)) is not None:
            self.last = stored[0]
            self.state = unpack_state(type(self.state), stored[1])

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        """The block's answer; the same request again gets the same bytes, at no charge."""
        now = Tick(self.job, round, phase)
        self._well_formed(inbox)
        digest = wire.digest(inbox.pack())
        with self.ledger.transaction():
            stored = self.ledger.recall(now, digest)
            if stored is not None:
                return Mail.unpack(stored)
            self._in_order(now)
            step = self.algorithm.phases[phase]
            assert isinstance(step, AtParties)
            door = Door(
                self.local.ids,
                self.plan.get((round, phase), ()),
                self.noise,
                round,
                phase,
                lambda charges: self.ledger.permit(self.job, charges),
                self.local.public.zeros(len(self.local.ids)).shape[:-1],
            )
            state, outbox = tick(step, round, self.local, self.state, inbox, door)
            self.ledger.commit(now, digest, door.charges, outbox.pack(), pack_state(state))
        # Only a committed tick becomes the worker's present.
        self.state, self.last = state, now
        return outbox

    def _well_formed(self, inbox: Mail) -> None:
        """Refuse, by public facts alone, what no coordinator of this algorithm sends.

        One row for each sender and not a stack of them: every row of a stack would get noise of its own, and their
        mean would undo it. Finite and not absurdly large: sums that overflow would tell records apart.
        """
        public = self.local.public
        if self.algorithm.topology == "star":
            senders = np.array([COORDINATOR], dtype=np.int64)
        else:
            senders = public.graph.neighbourhood(self.local.ids)
        good = (
            np.array_equal(inbox.senders, senders)
            and inbox.values.dtype == np.float64
            and inbox.values.shape == public.zeros(len(senders), self.algorithm.width(public)).shape
            and bool(np.all(np.abs(inbox.values) <= LARGEST))
        )
        if not good:
            raise RefusedError(
                f"parties {self.local.ids.tolist()[:5]} were sent an inbox of another shape, sender or size than "
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
                f"parties {self.local.ids.tolist()[:5]} are ready for round {expected[0] + 1} of job {now.job} and "
                f"were asked for round {now.round + 1}: the ledger and the checkpoint are of different moments"
            )
