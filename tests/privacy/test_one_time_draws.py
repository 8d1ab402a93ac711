"""One-time draws: the first is kept for ever and recorded, changes no transcript, and stays secret."""

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from cases import POLICY, PRIVATE, SIZES, both_ledgers, shards
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.arrays import Floats
from privadmm.engine.block import cluster, open_block
from privadmm.engine.party import Local
from privadmm.engine.phases import AtCoordinator, AtParties, Phase
from privadmm.errors import LedgerError, RefusedError
from privadmm.privacy.events import Gaussian, RandomizedResponse
from privadmm.privacy.ledger import Keepsake, Ledger, MemoryLedger, Statement, Tick, export
from privadmm.privacy.mechanisms import ONCE, Deployment, Noise, Simulation
from privadmm.privacy.policy import Budget
from privadmm.privacy.sqlite_ledger import SALT, SqliteLedger
from privadmm.privacy.verification import verify

EVENT = RandomizedResponse(1.0)


@both_ledgers
def test_the_first_draw_is_kept_whatever_is_drawn_later(make: Callable[[Path], Ledger], tmp_path: Path) -> None:
    ledger = make(tmp_path)
    assert ledger.kept("", "labels") is None
    assert ledger.keep("", "labels", lambda: b"first", EVENT) == b"first"
    assert ledger.keep("", "labels", lambda: pytest.fail("drawn again"), EVENT) == b"first"
    assert ledger.keep("job", "labels", lambda: b"another job's", None) == b"another job's"
    assert ledger.keep("job", "more", lambda: b"", None) == b""
    assert ledger.keep("job", "more", lambda: b"not empty", None) == b""
    assert ledger.kept("", "labels") == b"first"
    names = [("", "labels", EVENT), ("job", "labels", None), ("job", "more", None)]
    assert ledger.keepsakes() == tuple(Keepsake(*name) for name in names)


@both_ledgers
def test_it_is_on_record_and_costs_the_transcript_nothing(make: Callable[[Path], Ledger], tmp_path: Path) -> None:
    ledger = make(tmp_path)
    ledger.keep("", "labels", lambda: b"x", RandomizedResponse(50.0))  # far beyond the budget
    assert ledger.spent(0) == ledger.others(0, "job") == ()
    ledger.reserve("job", {0: ((Gaussian(30.0), 1),), 1: ()})
    found = export(Statement.of(ledger))
    assert found["kept"] == [{"job": None, "name": "labels", "event": {"kind": "randomized_response", "epsilon": 50.0}}]
    assert [party["epsilon"] for party in found["parties"]] == [0.0, 0.0]


@both_ledgers
def test_a_draw_that_fails_leaves_nothing(make: Callable[[Path], Ledger], tmp_path: Path) -> None:
    def fails() -> bytes:
        raise KeyboardInterrupt

    ledger = make(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        ledger.keep("", "labels", fails, EVENT)
    assert ledger.keepsakes() == ()
    assert ledger.keep("", "labels", lambda: b"mended", EVENT) == b"mended"


def test_it_outlives_the_process_and_verifies(tmp_path: Path) -> None:
    for draw in (b"one", b"two"):
        ledger = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
        assert ledger.keep("", "labels", lambda draw=draw: draw, EVENT) == b"one"  # type: ignore[misc]
        assert ledger.jobs() == []
        ledger.close()
    found = verify(tmp_path / "ledger")
    assert (found.problems, found.rows, found.epsilon) == ((), 1, {0: 0.0, 1: 0.0})


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE ticks SET outbox = substr(outbox, 2) WHERE kind = 'keep'",
        "UPDATE ticks SET inbox = 'other' WHERE kind = 'keep'",
        "UPDATE ticks SET charges = '[]' WHERE kind = 'keep'",
    ],
)
def test_tampering_with_it_shows(harm: str, tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
    ledger.keep("", "labels", lambda: b"labels", EVENT)
    ledger.close()
    with closing(sqlite3.connect(tmp_path / "ledger")) as db, db:
        db.execute(harm)
    (problem,) = verify(tmp_path / "ledger").problems
    assert "row 1 (keep of the data set)" in problem


def test_a_row_of_an_unknown_kind_is_not_counted_as_nothing(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
    ledger.keep("", "labels", lambda: b"labels", EVENT)
    ledger.close()
    with closing(sqlite3.connect(tmp_path / "ledger")) as db, db:
        db.execute("UPDATE ticks SET kind = 'gift'")
    with pytest.raises(LedgerError, match="cannot count: 'gift'"):
        SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation").spent(0)
    with pytest.raises(LedgerError, match="cannot count: 'gift'"):
        verify(tmp_path / "ledger")


def test_heads_which_travel_do_not_tell_what_is_kept(tmp_path: Path) -> None:
    """A guess at the bytes cannot be tried on the hash: the same bytes have another hash in every ledger."""
    heads, salts = set(), set()
    for name in "abc":
        ledger = SqliteLedger(tmp_path / name, [0, 1], POLICY, "simulation")
        ledger.keep("", "labels", lambda: b"+-+", EVENT)
        heads.add(ledger.head)
        with closing(sqlite3.connect(tmp_path / name)) as db:
            salts.add(db.execute("SELECT outbox FROM ticks").fetchone()[0][:SALT])
    assert len(heads) == len(salts) == 3
    assert all(len(salt) == SALT >= 32 for salt in salts)


def test_nobody_is_answered_with_it(tmp_path: Path) -> None:
    """It is stored under round -1, phase 0; a coordinator cannot ask for it as a tick."""
    job = PRIVATE[0].job()
    ledger = SqliteLedger(tmp_path / "ledger", range(5), job.policy, "simulation")
    worker = cluster(job, shards(), Simulation(0), ledger).workers[0]
    ledger.keep(job.id, "secret", lambda: b"secret", None)
    inbox = job.algorithm.start(job.public)[1]
    with ledger.transaction():
        assert ledger.recall(Tick(job.id, -1, 0), "secret") is None
    with pytest.raises(RefusedError, match="ready for round 1"):
        worker.step(-1, 0, inbox)
    assert ledger.latest(job.id) is None


def test_of_two_threads_one_draws(tmp_path: Path) -> None:
    SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation").close()
    start, found = threading.Barrier(4), []

    def race(number: int) -> None:
        ledger = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
        start.wait()
        found.append(ledger.keep("", "labels", lambda: b"%d" % number, EVENT))
        ledger.close()

    racers = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(set(found)) == 1
    assert len(found) == 4


@dataclass(frozen=True)
class Shifting(DPADMM):
    """Draws a vector once for every party of a job."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        return AtParties(self.update, draws=self.shift), AtCoordinator(self.combine)

    def shift(self, local: Local, noise: Noise) -> dict[str, Floats]:
        return {"shift": noise.uniform(2.0, local.zeros().shape, local.ids)}


class Counting(Simulation):
    drawn = 0

    def words(self, ids: np.ndarray, *call: Any) -> np.ndarray:
        self.drawn += len(ids)
        return super().words(ids, *call)


JOB = replace(PRIVATE[0], algorithm=Shifting(D_w=3.0)).job()


def test_an_algorithm_finds_what_it_drew_when_it_is_resumed(tmp_path: Path) -> None:
    twice = replace(JOB.policy, budget=Budget(2.0, 1e-5))
    ledger = SqliteLedger(tmp_path / "ledger", range(5), twice, "simulation")
    noise, later = Counting(0), Counting(1)
    first = open_block(JOB, shards(), noise, ledger).local.kept["shift"]
    assert noise.drawn == len(SIZES)
    again = open_block(JOB, shards(), later, ledger).local.kept["shift"]
    assert later.drawn == 0
    assert np.array_equal(first, again)
    other = open_block(replace(JOB, id="another"), shards(), later, ledger).local.kept["shift"]
    assert not np.array_equal(first, other)  # of this job alone
    plain = PRIVATE[0].job()
    assert open_block(plain, shards(), noise, MemoryLedger(range(5), plain.policy)).local.kept == {}
    assert verify(tmp_path / "ledger").problems == ()


def test_draws_do_not_depend_on_the_block() -> None:
    whole = open_block(JOB, shards(), Simulation(0), MemoryLedger(range(5), JOB.policy)).local.kept["shift"]
    parts = cluster(JOB, shards(), Simulation(0), parts=[[3], [0, 4], [1, 2]]).workers
    for worker in parts:
        assert np.array_equal(worker.local.kept["shift"], whole[worker.local.ids])


IDS = np.arange(3)


@pytest.mark.parametrize("source", [lambda: Simulation(7), Deployment], ids=["simulation", "deployment"])
def test_uniform_draws_have_their_law_and_another_bound_is_rejected(source: Callable[[], Noise]) -> None:
    noise = source()
    drawn = noise.uniform(2.0, (3, 4000), IDS)
    assert np.abs(drawn).max() < 2
    assert kstest(drawn.ravel(), "uniform", (-2, 4)).pvalue > 1e-6
    assert kstest(drawn.ravel(), "uniform", (-2.2, 4.4)).pvalue < 1e-6
    others = [*drawn, *noise.uniform(2.0, (3, 4000), IDS, number=1)]
    assert np.abs(np.corrcoef(others) - np.eye(6)).max() < 5 / np.sqrt(4000)


def test_what_is_drawn_once_shares_no_stream_with_a_round() -> None:
    """Were the counter of a round used, the first words would be those of its noise."""
    noise, here = Simulation(7), np.arange(1)
    drawn = noise.words(here, (ONCE, 1, 0), 0, 4)
    for round in (0, 2**63):
        assert not set(noise.words(here, (round, 1, 0), 0, 4).ravel().tolist()) & set(drawn.ravel().tolist())
    assert np.array_equal(drawn, noise.words(here, (ONCE, 1, 0), 0, 4))
    assert not np.array_equal(drawn, noise.words(here, (ONCE, 0, 0), 0, 4))
    assert not np.array_equal(drawn, noise.words(here + 1, (ONCE, 1, 0), 0, 4))


def test_the_export_of_rows_names_it_and_holds_no_bytes(tmp_path: Path) -> None:
    from privadmm.cli.views import ledger_text, steward

    ledger = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
    ledger.keep("", "labels", lambda: b"secret labels", EVENT)
    ledger.close()
    found = steward.rows(tmp_path / "ledger")
    (row,) = found["rows"]
    assert (row["kind"], row["name"], row["round"], row["inbox"]) == ("keep", "labels", -1, "")
    assert row["charges"][0]["events"][0]["kind"] == "randomized_response"
    assert "secret" not in json.dumps(found) + json.dumps(steward.overview(tmp_path / "ledger"))
    assert "drawn once" in ledger_text.as_text(steward.overview(tmp_path / "ledger"))
