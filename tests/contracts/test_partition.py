"""The same job gives the same transcript, bit for bit, however the parties are grouped and wherever they run."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cases import CASES, Transcript, named, shards, transcript
from contract_tools import EVERY, PARTITIONS, Case, Rebuilt
from privadmm.engine.loop import drive
from privadmm.privacy.mechanisms import Simulation


@cache
def whole(case: Case, sparse: bool) -> list[bytes]:
    """The transcript of one block, with which every partition is compared."""
    return transcript(case.job(), case.data(sparse=sparse))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("parts", PARTITIONS.values(), ids=PARTITIONS.keys())
@pytest.mark.parametrize("case", EVERY, ids=named)
def test_blocks(case: Case, parts: list[list[int]], sparse: bool) -> None:
    job, data = case.job(), case.data(sparse=sparse)
    assert transcript(job, data, parts=parts) == whole(case, sparse)


class Sequential(Simulation):
    """The planted fault: one noise stream for all, drawn in the order of the parties."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.shared = np.random.default_rng(seed)

    def normal(self, shape: tuple[int, ...], ids: np.ndarray, call: object) -> np.ndarray:
        return self.shared.standard_normal(shape)


def test_a_shared_stream_is_caught() -> None:
    case = CASES["dp_admm"]
    job, data = case.job(), shards()
    at_once = transcript(job, data, noise=Sequential(0))
    assert transcript(job, data, noise=Sequential(0), parts=PARTITIONS["mixed, not in order"]) != at_once


@pytest.mark.parametrize("case", EVERY, ids=named)
def test_workers_rebuilt_from_stored_bytes_in_another_process(case: Case, tmp_path: Path, pool) -> None:  # type: ignore[no-untyped-def]
    job, tape = case.job(), Transcript()
    drive(Rebuilt(case, tmp_path, pool), job.algorithm, job.public, [tape])
    assert tape.bytes() == whole(case, False)


@pytest.fixture(scope="module")
def pool():  # type: ignore[no-untyped-def]
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


def test_a_fresh_process_for_every_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES["dp_admm"]
    job, tape = case.job(rounds=4), Transcript()
    # Each child is forked from a server that has imported modules and never seen a party.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["contract_tools"])
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        drive(Rebuilt(case, tmp_path, pool), job.algorithm, job.public, [tape])
    assert tape.bytes() == whole(case, False)
