"""The same job gives the same transcript, bit for bit, however the parties are grouped and wherever they run."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cases import ALGORITHMS, SIZES, Case, Transcript, named, shards, transcript
from privadmm.engine.block import open_block
from privadmm.engine.inprocess import addressed
from privadmm.engine.loop import drive
from privadmm.engine.mail import Mail
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.sqlite_ledger import SqliteLedger

N = len(SIZES)
PARTITIONS = {
    "blocks of one": [[i] for i in range(N)],
    "mixed": [[0, 3], [1, 2, 4]],
    "mixed, not in order": [[3], [1, 4], [0, 2]],
}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("parts", PARTITIONS.values(), ids=PARTITIONS.keys())
@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_blocks(case: Case, parts: list[list[int]], sparse: bool) -> None:
    job, data = case.job(), shards(sparse=sparse)
    assert transcript(job, data, parts=parts) == transcript(job, data)


class Sequential(Simulation):
    """The fault: one stream for everybody, drawn in the order in which parties come."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.shared = np.random.default_rng(seed)

    def normal(self, party: int, call: object, replica: int, out: np.ndarray) -> None:
        self.shared.standard_normal(out=out)


def test_a_shared_stream_is_caught() -> None:
    case = next(case for case in ALGORITHMS if case.name == "dp_admm")
    job, data = case.job(), shards()
    whole = transcript(job, data, noise=Sequential(0))
    assert transcript(job, data, noise=Sequential(0), parts=PARTITIONS["mixed, not in order"]) != whole


def answer(case: Case, party: int, folder: Path, round: int, phase: int, inbox: bytes) -> bytes:
    """What a federated client does at every message: rebuild everything from stored bytes, answer, forget."""
    job = case.job()
    block = shards().take(np.array([party]))
    ledger = SqliteLedger(folder / f"{party}.sqlite", [party], job.policy, "simulation")
    worker = open_block(job, block, Simulation(0), ledger)
    reply = worker.step(round, phase, addressed(worker, Mail.unpack(inbox))).pack()
    ledger.close()
    return reply


class Rebuilt:
    """A cluster whose parties live in another process and keep nothing but their ledger."""

    def __init__(self, case: Case, folder: Path, pool: ProcessPoolExecutor) -> None:
        self.case, self.folder, self.pool = case, folder, pool

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        mail = inbox.pack()
        asked = [self.pool.submit(answer, self.case, i, self.folder, round, phase, mail) for i in range(N)]
        return Mail.join([Mail.unpack(reply.result()) for reply in asked])


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_workers_rebuilt_from_stored_bytes_in_another_process(case: Case, tmp_path: Path, pool) -> None:  # type: ignore[no-untyped-def]
    job, tape = case.job(), Transcript()
    drive(Rebuilt(case, tmp_path, pool), job.algorithm, job.public, [tape])
    assert tape.bytes() == transcript(job, shards())


@pytest.fixture(scope="module")
def pool():  # type: ignore[no-untyped-def]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def test_a_fresh_process_for_every_message(tmp_path: Path) -> None:
    case = next(case for case in ALGORITHMS if case.name == "dp_admm")
    job, tape = case.job(rounds=4), Transcript()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        drive(Rebuilt(case, tmp_path, pool), job.algorithm, job.public, [tape])
    assert tape.bytes() == transcript(job, shards())
