"""The in-process engine: every block in this process, one after another. The default is a single block."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.phases import AtParties
from privadmm.engine.worker import Worker
from privadmm.privacy.ledger import Tick


@dataclass(eq=False)
class InProcess:
    """A cluster whose workers are plain objects in this process."""

    workers: Sequence[Worker]
    labels: Floats | None = None  # the labels at the coordinator, where parties hold columns

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        return Mail.join([worker.step(round, phase, inbox.only(worker.senders)) for worker in self.workers])

    def receipts(self, round: int) -> list[tuple[str, int, int, str, int]]:
        """(job, round, phase, hash, first party) of the rows in which the blocks' ledgers recorded this round."""
        receipts = []
        for worker in self.workers:
            for number, phase in enumerate(worker.algorithm.phases):
                seen = worker.ledger.receipt(Tick(worker.job.id, round, number))
                if isinstance(phase, AtParties) and seen is not None:
                    receipts.append((worker.job.id, round, number, seen, worker.ledger.ids[0]))
        return receipts

    def iterates(self, rounds: int) -> Floats | None:
        """Every party's own iterate after this many rounds; None if the last round was replayed from the ledger."""
        current = all(worker.last is not None and worker.last.round + 1 == rounds for worker in self._present)
        return self.local_models() if current else None

    def local_models(self) -> Floats:
        """The own iterate of every party present, in party order. It is not released: only simulations show it."""
        ids = np.concatenate([worker.local.ids for worker in self._present])
        models = np.concatenate([worker.state.model for worker in self._present], axis=-2)
        return models[..., np.argsort(ids), :]

    @property
    def _present(self) -> list[Worker]:
        """The workers whose parties have not all left: those that answered in the last round."""
        rounds = [-1 if worker.last is None else worker.last.round for worker in self.workers]
        return [worker for worker, last in zip(self.workers, rounds, strict=True) if last == max(rounds)]
