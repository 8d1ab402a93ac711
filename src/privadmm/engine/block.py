"""One way to open a block of parties, wherever it is: admit the job, set its cost aside, and make its worker."""

from collections.abc import Callable, Sequence

import numpy as np

from privadmm.data.columns import Columns, People
from privadmm.data.shards import Shards
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job
from privadmm.engine.party import Local, Vertical
from privadmm.engine.public import Public
from privadmm.engine.sums import accept_roster, introduced
from privadmm.engine.worker import Worker
from privadmm.errors import ConfigError, DataError
from privadmm.privacy.labels import check_kept, reported_by_holder
from privadmm.privacy.ledger import Asked, Ledger, MemoryLedger
from privadmm.privacy.masks import Roster
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.refusals import recording

CURATOR = (
    "everybody's messages would be added up by the one process that reads all records, which is a curator and no "
    'secure sum: deploy it with engine = "dask" and several workers or as a federation, or remove [privacy] sum = '
    '"secure"'
)


def open_block(
    job: Job,
    held: Shards | Columns | People,
    noise: Noise,
    ledger: Ledger,
    parties: Sequence[int] | None = None,
    asked: Asked | None = None,
) -> Worker:
    """Make the worker of a block whose records are here. The job is admitted and its whole cost set aside, or refused.

    Where parties hold columns, `held` may be everybody's, and `parties` are those of this block. Labels are randomised
    and one-time draws made now. `asked` replaces the job's own facts for the ledger's register, if more is known.
    """
    asked = asked or job.asked
    with recording(ledger, asked, job.id):
        job.admit(ledger.policy)
    holders = len(held.ids if parties is None else parties)
    if job.sums is not None and noise.mode == "deployment" and holders == job.public.parties:
        raise ConfigError(CURATOR)
    check_labels(job, held, ledger)
    with recording(ledger, asked, job.id):
        job.reserve(ledger, asked)
    block = held.columns if isinstance(held, People) else held
    block = block.take(np.asarray(parties)) if isinstance(held, People) and parties is not None else block
    local = beside(job.public, block)
    worker = Worker(job, block.ids, lambda: local, noise, ledger)
    _ = worker.local
    return worker


def reopen_block(
    job: Job,
    ids: Sequence[int],
    load: Callable[[], Local | Vertical],
    noise: Noise,
    ledger: Ledger,
    attended: bool = True,
) -> Worker:
    """Make the worker of a block that was opened before; its records are read when a tick first needs them."""
    job.admit(ledger.policy)
    return Worker(job, ids, load, noise, ledger, attended)


def cluster(
    job: Job,
    shards: Shards | People,
    noise: Noise,
    ledger: Ledger | None = None,
    parts: Sequence[Sequence[int]] | None = None,
) -> InProcess:
    """The job's parties in this process: one block with this ledger, or `parts`, each with a ledger in memory."""
    if parts is not None and ledger is not None:
        raise ConfigError("parts have a ledger in memory each: leave out ledger, or parts")
    everybody = list(range(len(shards.ids)))
    if parts is not None and sorted(party for part in parts for party in part) != everybody:
        raise ConfigError("parts must hold every party once")
    ledgers, workers = list[Ledger](), list[Worker]()
    for part in [everybody] if parts is None else parts:
        held = shards if isinstance(shards, People) or parts is None else shards.take(np.asarray(part))
        ledgers.append(ledger or MemoryLedger(shards.ids[np.asarray(part)].tolist(), job.policy))
        workers.append(open_block(job, held, noise, ledgers[-1], part))
    if job.sums is not None and len(workers) > 1:
        entries = [introduced(job, worker.ids, worker.ledger) for worker in workers]
        for worker in workers:
            accept_roster(job, worker.ids, worker.ledger, Roster.of(entries).pack(), lambda entry, party: True)
    labels, randomised = shards.y if isinstance(shards, People) else None, job.public.label_epsilon
    if labels is not None and randomised is not None:
        labels = reported_by_holder(labels, shards.source, ledgers[0], noise, randomised)
    return InProcess(workers, labels)


def check_labels(job: Job, held: Shards | Columns | People, ledger: Ledger) -> None:
    """Refuse labels that do not fit the loss, or records that are not those of the ledger's randomised labels."""
    if isinstance(held, Columns):
        return
    if job.public.loss.classification and not np.all(np.abs(held.y) == 1):
        raise DataError("a loss of classes needs labels -1 and +1; the sensitivity rests on it")
    if job.public.label_epsilon is not None:
        check_kept(held, ledger, job.public.label_epsilon)


def beside(public: Public, block: Shards | Columns) -> Local | Vertical:
    """What the party phases of this block may read."""
    if isinstance(block, Columns):
        if block.people != public.dim or block.widths != tuple(public.columns[party] for party in block.ids):
            raise DataError("these columns are not those that the job was made for: other people, or other widths")
        return Vertical(public, block)
    if public.columns:
        raise DataError("the job is for parties that hold columns, and these hold records")
    return Local(public, block)
