"""The in-process engine: every block in this process, one after another. The default is a single block."""

from collections.abc import Sequence

import numpy as np

from privadmm.engines.worker import Worker
from privadmm.phases import COORDINATOR, AtParties, Floats, Mail
from privadmm.privacy.ledger import Tick


class InProcess:
    """A cluster of workers that are plain objects."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self.workers = workers

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        return Mail.join([worker.step(round, phase, addressed(worker, inbox)) for worker in self.workers])

    def receipts(self, round: int) -> list[tuple[str, int, int, str]]:
        """(job, round, phase, hash) of the rows in which the blocks' ledgers recorded this round."""
        found = []
        for worker in self.workers:
            for number, phase in enumerate(worker.algorithm.phases):
                seen = worker.ledger.receipt(Tick(worker.job, round, number))
                if isinstance(phase, AtParties) and seen is not None:
                    found.append((worker.job, round, number, seen))
        return found

    def local_models(self) -> Floats:
        """Every party's own iterate (..., N, d), in party order: the god's-eye view that plots want."""
        ids = np.concatenate([worker.local.ids for worker in self.workers])
        rows = np.concatenate([worker.state.model for worker in self.workers], axis=-2)
        return rows[..., np.argsort(ids), :]


def addressed(worker: Worker, mail: Mail) -> Mail:
    """What of this mail the block receives: the coordinator's broadcast, or its neighbours' messages."""
    if worker.algorithm.topology == "star":
        return mail.only(np.array([COORDINATOR], dtype=np.int64))
    return mail.only(worker.local.public.graph.neighbourhood(worker.local.ids))
