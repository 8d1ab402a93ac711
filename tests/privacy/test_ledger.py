"""A party's budget: refused before noise, charged once, durable, and in a file of its own."""

import gc
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import POLICY, PRIVATE, both_ledgers, shards
from privadmm.engine.block import beside, cluster, open_block, reopen_block
from privadmm.engine.mail import Mail
from privadmm.errors import ConfigError, LedgerError, RefusedError
from privadmm.privacy import chain
from privadmm.privacy.accounting import epsilon, printed
from privadmm.privacy.calibration import gdp_parameter
from privadmm.privacy.events import Gaussian, NotPrivate
from privadmm.privacy.ledger import Ledger, MemoryLedger, Statement, Tick, export
from privadmm.privacy.ledger_file import connect
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger

HALF = Gaussian(9.0)  # affordable once, not four times


def pay(ledger: Ledger, round: int, job: str = "job", event: Gaussian | NotPrivate = HALF) -> None:
    charges = {0: (event,), 1: ()}
    with ledger.transaction():
        ledger.permit(job, charges)
        ledger.commit(Tick(job, round, 0), f"inbox {round}", charges, b"out", b"state")


@both_ledgers
def test_a_budget_is_spent_to_the_last_release_that_fits(make: Callable[[Path], Ledger], tmp_path: Path) -> None:
    ledger = make(tmp_path)
    paid = next(n for n in range(1, 50) if epsilon(((HALF, n + 1),), 1e-5) > 1.0)
    for round in range(paid):
        pay(ledger, round)
    with pytest.raises(RefusedError, match="party 0 may spend epsilon = 1"):
        pay(ledger, paid)
    assert ledger.spent(0) == ((HALF, paid),)
    assert ledger.spent(1) == ()


@both_ledgers
def test_a_refusal_names_what_is_spent_and_asked_and_what_to_do(make: Callable[[Path], Ledger], tmp_path: Path) -> None:
    one = Gaussian(1 / gdp_parameter(1.0, 1e-5))  # which costs the whole budget
    ledger = make(tmp_path)
    with pytest.raises(
        RefusedError, match=r"0 is spent.*asks for 1\.\d+.*ask for a smaller epsilon, or ask the party's"
    ):
        pay(ledger, 0, event=Gaussian(0.9 * one.ratio))
    pay(ledger, 0, event=one)
    with pytest.raises(RefusedError, match=r"may spend epsilon = 1 in all") as refused:
        pay(ledger, 1)
    for part in (
        "; 1 is spent",
        f"asks for {printed(epsilon(((HALF, 1),), 1e-5), '.6g')},",
        "the budget is spent; ask",
    ):
        assert part in str(refused.value)
    assert "ledger amend" in str(refused.value)


@both_ledgers
def test_what_has_no_epsilon_is_refused(make: Callable[[Path], Ledger], tmp_path: Path) -> None:
    with pytest.raises(RefusedError):
        pay(make(tmp_path), 0, event=NotPrivate("in the clear"))


@both_ledgers
def test_same_request_same_bytes_other_inbox_refused(make: Callable[[Path], Ledger], tmp_path: Path) -> None:
    ledger = make(tmp_path)
    pay(ledger, 0)
    with ledger.transaction():
        assert ledger.recall(Tick("job", 0, 0), "inbox 0") == b"out"
        assert ledger.recall(Tick("job", 1, 0), "inbox 1") is None
    with pytest.raises(RefusedError, match="another inbox"), ledger.transaction():
        ledger.recall(Tick("job", 0, 0), "forged")
    assert ledger.spent(0) == ((HALF, 1),)


class Counting(Simulation):
    drawn = 0

    def words(self, *call: Any) -> np.ndarray:
        self.drawn += 1
        return super().words(*call)


def test_refusal_comes_before_any_noise() -> None:
    job, noise = PRIVATE[0].job(), Counting(0)
    ledger = MemoryLedger(range(5), Policy(Budget(0.01, 1e-5)))
    with pytest.raises(RefusedError):
        open_block(job, shards(), noise, ledger)
    # Nor does a block that reserved nothing get further.
    worker = reopen_block(job, range(5), partial(beside, job.public, shards()), noise, ledger)
    with pytest.raises(RefusedError):
        worker.step(0, 0, job.algorithm.start(job.public)[1])
    assert noise.drawn == 0
    assert worker.last is None
    assert ledger.spent(0) == ()


def test_a_retry_costs_nothing_and_a_changed_inbox_is_refused(tmp_path: Path) -> None:
    job = PRIVATE[0].job()
    ledger = SqliteLedger(tmp_path / "ledger", range(5), job.policy, "simulation")
    worker, inbox = open_block(job, shards(), Simulation(0), ledger), job.algorithm.start(job.public)[1]
    first = worker.step(0, 0, inbox)
    charged = ledger.spent(0)
    assert worker.step(0, 0, inbox).pack() == first.pack()
    rebuilt = open_block(job, shards(), Simulation(99), ledger)  # other noise would show if anything were drawn again
    assert rebuilt.step(0, 0, inbox).pack() == first.pack()
    with pytest.raises(RefusedError, match="another inbox"):
        worker.step(0, 0, Mail(inbox.senders, inbox.values + 1))
    with pytest.raises(RefusedError, match="ready for round 2"):
        worker.step(2, 0, inbox)
    assert ledger.spent(0) == charged


def test_a_failing_tick_charges_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    job = PRIVATE[0].job()
    ledger = SqliteLedger(tmp_path / "ledger", range(5), job.policy, "simulation")

    class Dies(Simulation):
        def normal(self, *call: object) -> None:
            raise KeyboardInterrupt

    inbox = job.algorithm.start(job.public)[1]
    with pytest.raises(KeyboardInterrupt):
        open_block(job, shards(), Dies(0), ledger).step(0, 0, inbox)
    assert ledger.spent(0) == ()
    assert ledger.latest(job.id) is None
    expected = open_block(job, shards(), Simulation(0), MemoryLedger(range(5), job.policy)).step(0, 0, inbox)
    assert open_block(job, shards(), Simulation(0), ledger).step(0, 0, inbox).pack() == expected.pack()


def test_it_outlives_the_process_and_counts_every_job(tmp_path: Path) -> None:
    first = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
    pay(first, 0, "one")
    first.close()
    second = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
    pay(second, 0, "two")
    assert second.spent(0) == ((HALF, 2),)
    assert export(Statement.of(second))["parties"][0]["epsilon"] == epsilon(((HALF, 2),), 1e-5)


def test_a_transaction_that_an_interrupt_left_is_rolled_back_when_the_file_closes(tmp_path: Path) -> None:
    """An interrupt may come after a transaction has begun and before `with` knows of it: nobody ends it then."""
    first = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
    left = first.transaction()
    left.__enter__()
    first.commit(Tick("job", 0, 0), "inbox", {0: (HALF,), 1: ()}, b"out", b"state")
    first.close()
    del left  # which ends it: an error raised there fails this test
    gc.collect()
    second = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
    assert second.spent(0) == ()
    pay(second, 0)
    second.close()


def test_of_two_racers_for_the_last_bit_one_wins(tmp_path: Path) -> None:
    once = Policy(Budget(1.01 * epsilon(((HALF, 1),), 1e-5), 1e-5))
    outcomes: list[str] = []
    start = threading.Barrier(2)

    def race(job: str) -> None:
        ledger = SqliteLedger(tmp_path / "ledger", [0, 1], once, "simulation")
        start.wait()
        try:
            pay(ledger, 0, job)
            outcomes.append("paid")
        except RefusedError:
            outcomes.append("refused")
        ledger.close()

    SqliteLedger(tmp_path / "ledger", [0, 1], once, "simulation").close()
    racers = [threading.Thread(target=race, args=(name,)) for name in "ab"]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(outcomes) == ["paid", "refused"]


def alien(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE recipes (name TEXT)")
    db.close()


STRANGERS = {
    "text": lambda path: path.write_text("not a database, but long enough to look at " * 50),
    "another program's database": alien,
    "a directory": lambda path: path.mkdir(),
}


@pytest.mark.parametrize("make", STRANGERS.values(), ids=STRANGERS.keys())
def test_a_file_that_is_not_ours_is_refused_and_left_alone(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "stranger"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(LedgerError, match="stranger"):
        SqliteLedger(path, [0], POLICY, "simulation")
    assert before == (path.read_bytes() if path.is_file() else None)


@pytest.mark.parametrize(
    ("ids", "budget", "mode", "fact"),
    [
        ([0, 1], POLICY.budget, "deployment", "mode"),
        ([0, 1], Budget(2.0, 1e-5), "simulation", "budget"),
        ([0, 1], Budget(1.0, 1e-6), "simulation", "budget"),
        ([0, 2], POLICY.budget, "simulation", "parties"),
        ([0, 1], None, "simulation", "budget"),
    ],
)
def test_a_ledger_keeps_what_it_fixed(ids: list[int], budget: Budget, mode: str, fact: str, tmp_path: Path) -> None:
    SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation").close()
    with pytest.raises(LedgerError, match=f"fixed {fact}"):
        SqliteLedger(tmp_path / "ledger", ids, Policy(budget), mode)


def test_adjacencies_do_not_add_up(tmp_path: Path) -> None:
    label = Policy(POLICY.budget, adjacency="label")
    SqliteLedger(tmp_path / "ledger", [0, 1], label, "simulation").close()
    with pytest.raises(LedgerError, match="fixed adjacency"):
        SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
    job = PRIVATE[0].job()
    other = replace(job.policy, adjacency="label")
    for ledger in (
        MemoryLedger(range(5), other),
        SqliteLedger(tmp_path / "other", range(5), other, "simulation"),
    ):
        with pytest.raises(RefusedError, match="do not add up"):
            job.admit(ledger.policy)
        with pytest.raises(RefusedError, match="do not add up"):
            open_block(job, shards(), Simulation(0), ledger)
        with pytest.raises(RefusedError, match="do not add up"):  # also where a block was opened before
            reopen_block(job, range(5), lambda: pytest.fail("records were read"), Simulation(0), ledger)
        assert export(Statement.of(ledger))["adjacency"] == "label"
        assert ledger.reserved(0, job.id) is None


def test_parts_do_not_leave_a_ledger_aside() -> None:
    job = PRIVATE[0].job()
    with pytest.raises(ConfigError, match="parts"):
        cluster(job, shards(), Simulation(0), MemoryLedger(range(5), job.policy), parts=[[0, 1], [2, 3, 4]])


def test_a_full_disk_stops_before_the_release_that_it_cannot_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[sqlite3.Connection] = []
    monkeypatch.setattr(chain, "connect", lambda path, **_: opened.append(connect(path)) or opened[-1])
    job = PRIVATE[0].job(rounds=200)
    ledger = SqliteLedger(tmp_path / "ledger", range(5), job.policy, "simulation")
    pages = opened[0].execute("PRAGMA page_count").fetchone()[0]
    opened[0].execute(f"PRAGMA max_page_count = {pages + 2}")
    worker, inbox, sent = open_block(job, shards(), Simulation(0), ledger), job.algorithm.start(job.public)[1], 0

    def until_full() -> None:
        nonlocal sent
        for t in range(200):
            worker.step(t, 0, inbox)
            sent += 1

    with pytest.raises(LedgerError, match="full"):
        until_full()
    assert 0 < sent < 200
    assert sum(count for _, count in ledger.spent(0)) == sent
    assert worker.last == Tick(job.id, sent - 1, 0)
