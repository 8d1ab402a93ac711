"""The worker that lives beside the data: a block's state, its ledger, and one transaction per tick."""

from privadmm import wire
from privadmm.errors import RefusedError
from privadmm.phases import Algorithm, AtParties, Local, Mail, pack_state, tick, unpack_state
from privadmm.privacy.accounting import Plan
from privadmm.privacy.ledger import Ledger, Tick
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.release import Door


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
            )
            state, outbox = tick(step, round, self.local, self.state, inbox, door)
            self.ledger.commit(now, digest, door.charges, outbox.pack(), pack_state(state))
        # Only a committed tick becomes the worker's present.
        self.state, self.last = state, now
        return outbox

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
