"""Threads change no bit, and what goes wrong on one of them ends the call."""

import os
import signal
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_array

from cases import ALGORITHMS, Case, named, shards
from privadmm.data import storage, threads
from privadmm.data.shards import Shards
from privadmm.data.storage import Store
from privadmm.data.threads import hands, spread
from privadmm.engine.block import cluster
from privadmm.engine.job import train
from privadmm.optim import solvers
from privadmm.optim.losses import Logistic
from privadmm.optim.solvers import Cache, argmin
from privadmm.privacy import mechanisms
from privadmm.privacy.mechanisms import Simulation

COUNTS = [1, 2, 3, 7]


def held(count: int, sparse: bool = False, sizes: tuple[int, ...] = (30, 7, 30, 55, 4, 30, 90)) -> Shards:
    rng = np.random.default_rng(0)
    X, n = rng.normal(size=(sum(sizes), 9)), np.cumsum((0, *sizes))
    y = np.where(rng.random(len(X)) > 0.5, 1.0, -1.0)
    rows = [np.arange(start, stop) for start, stop in pairwise(n)]
    return Shards.build(csr_array(X) if sparse else X, y, rows, row_bound=3.0, store=Store(threads=count))


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take several threads for the smallest work, cut as finely as it may be."""
    monkeypatch.setattr(threads, "WORTH", 0)
    monkeypatch.setattr(storage, "BLOCK", 100)
    monkeypatch.setattr(solvers, "CELLS", 300)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_gradients_have_the_same_bits(sparse: bool, lead: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(size=(*lead, 7, 9))
    found = [held(count, sparse).slope(x, Logistic().deriv).tobytes() for count in COUNTS]
    assert len(set(found)) == 1


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("lead", [(), (5,)])
def test_noise_has_the_same_bits(lead: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many draw at a time, and wherever parties and replicas are cut; also where party numbers have gaps."""
    ids, found = np.array([0, 1, 2, 5, 6, 40]), set[bytes]()
    for at_once in (1, 10, 40, 1 << 15):
        monkeypatch.setattr(mechanisms, "AT_ONCE", at_once)
        found |= {Simulation(7, count).normal((*lead, 6, 9), ids, (3, 1, 0)).tobytes() for count in COUNTS}
    assert len(found) == 1


@pytest.mark.usefixtures("eager")
def test_the_rows_of_a_party_alone_have_the_same_bits() -> None:
    x = np.random.default_rng(1).normal(size=(1, 9))
    found = [held(count, sizes=(200,)).slope(x, Logistic().deriv).tobytes() for count in COUNTS]
    assert len(set(found)) == 1


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("times", [1, 4])
def test_solves_have_the_same_bits(sparse: bool, times: int) -> None:
    linear, start, anchor = np.random.default_rng(1).normal(size=(3, 7 * times, 9))

    def solved(count: int) -> bytes:
        block, cache = held(count, sparse).repeat(times), Cache()
        x = argmin(block, Logistic(), 40.0, linear, 0.3, start, anchor, 1e-9, cache)
        return argmin(block, Logistic(), 40.0, linear + 0.1, 0.3, x, anchor, 1e-9, cache).tobytes()

    assert len({solved(count) for count in COUNTS}) == 1


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_transcripts_have_the_same_bits(case: Case) -> None:
    """Over every algorithm: what the parties released, the model, and their own states."""
    seen = set()
    for count in COUNTS:
        records, job = shards(), case.job()
        records.store.threads = count
        parties = cluster(job, records, Simulation(0))
        seen.add((train(job, parties).transcript, parties.local_models().tobytes()))
    assert len(seen) == 1


def test_threads_are_used_where_it_pays() -> None:
    assert hands(3, threads.WORTH - 1) == 1
    assert hands(3, threads.WORTH) == 3
    assert hands(None, threads.WORTH) == threads.cores()


def test_results_come_in_order_from_several_threads() -> None:
    both = threading.Barrier(2, timeout=20)

    def task(number: int) -> tuple[int, int]:
        if number < 2:
            both.wait()  # hangs unless two threads are here
        return number, hands(5, threads.WORTH)

    assert spread(task, iter(range(9)), 2) == [(number, 1) for number in range(9)]  # and none begins further threads


def test_threads_know_what_numpy_should_do_about_overflow() -> None:
    def task(number: int) -> float:
        return float(np.exp(np.array([1e4]))[0])

    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        spread(task, range(4), 2)
    with np.errstate(over="ignore"):
        assert spread(task, range(4), 2) == [np.inf] * 4


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_ends_all(error: type[BaseException]) -> None:
    begun, before = list[int](), threading.active_count()

    def task(number: int) -> None:
        begun.append(number)
        if number == 3:
            raise error
        time.sleep(0.01)

    with pytest.raises(error):
        spread(task, range(1000), 3)
    assert len(begun) < 20
    assert threading.active_count() == before


def test_where_no_thread_can_be_started_the_caller_does_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    assert spread(lambda number: number * number, range(9), 3) == [number * number for number in range(9)]


def test_an_interrupt_of_whoever_waits_ends_all() -> None:
    begun, before = list[int](), threading.active_count()

    def task(number: int) -> None:
        begun.append(number)
        if number == 5:
            os.kill(os.getpid(), signal.SIGINT)  # as a terminal does: the main thread, which waits, hears it
        time.sleep(0.01)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run in the background it may be ignored
    with pytest.raises(KeyboardInterrupt):
        spread(task, range(1000), 3)
    assert len(begun) < 500
    assert threading.active_count() == before
