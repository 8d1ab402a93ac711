"""A coordinator that breaks the protocol gets nothing that is not charged."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cases import CASES, PRIVATE, SIZES, records, shards
from contract_tools import flipped
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.shards import Shards
from privadmm.engine.block import beside, cluster, open_block, reopen_block
from privadmm.engine.job import Job
from privadmm.engine.mail import COORDINATOR, Mail
from privadmm.engine.party import Local
from privadmm.engine.worker import Worker
from privadmm.errors import ConfigError, DataError, PrivadmmError, RefusedError
from privadmm.optim.losses import Logistic
from privadmm.privacy.ledger import MemoryLedger
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.release import Door

CASE = PRIVATE[0]
COORDINATORS = np.array([COORDINATOR])


def worker(job: Job) -> Worker:
    ledger = MemoryLedger(range(len(SIZES)), job.policy)
    return open_block(job, shards(), Simulation(0), ledger)


INBOXES = {
    "a stack of broadcasts": Mail(COORDINATORS, np.zeros((1000, 1, 4))),
    "a wider broadcast": Mail(COORDINATORS, np.zeros((1, 400))),
    "two coordinators": Mail(np.array([-1, -1]), np.zeros((2, 4))),
    "another sender": Mail(np.array([3]), np.zeros((1, 4))),
    "not a number": Mail(COORDINATORS, np.full((1, 4), np.nan)),
    "infinite": Mail(COORDINATORS, np.full((1, 4), np.inf)),
    "absurdly large": Mail(COORDINATORS, np.full((1, 4), 8.5e307)),
    "senders that are no whole numbers": Mail(np.array([-1.0]), np.zeros((1, 4))),  # type: ignore[arg-type]
    "whole numbers": Mail(COORDINATORS, np.zeros((1, 4), dtype=np.int64)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("inbox", INBOXES.values(), ids=INBOXES.keys())
def test_an_inbox_that_no_coordinator_sends_is_refused_and_costs_nothing(inbox: Mail) -> None:
    party = worker(CASE.job())
    with pytest.raises(RefusedError, match="another shape, sender or size"):
        party.step(0, 0, inbox)
    assert party.ledger.spent(0) == ()


def unpaid(monkeypatch: pytest.MonkeyPatch) -> Worker:
    """An exact method of a job that set nothing aside, on a ledger that cannot pay a round of it."""
    monkeypatch.setattr(Local, "argmin", lambda *_, **__: pytest.fail("records were read"))
    job = CASES["pvp"].job()
    assert job.delta is not None
    ledger = MemoryLedger(range(len(SIZES)), Policy(Budget(1e-6, job.delta)))
    return reopen_block(job, range(len(SIZES)), partial(beside, job.public, shards()), Simulation(0), ledger)


def test_what_cannot_be_paid_for_is_not_even_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver's failure depends on the records: refusing only after it would tell that for free."""
    with pytest.raises(RefusedError, match="may spend"):
        unpaid(monkeypatch).step(0, 0, Mail(COORDINATORS, np.zeros((1, 4))))


def test_a_worker_that_asks_too_late_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Worker, "_charges", lambda *_: {})
    with pytest.raises(pytest.fail.Exception, match="records were read"):
        unpaid(monkeypatch).step(0, 0, Mail(COORDINATORS, np.zeros((1, 4))))


def test_a_graph_party_hears_its_neighbours_only() -> None:
    job = CASES["admm_graph-ring-huber"].job()
    with pytest.raises(RefusedError, match="another shape"):
        worker(job).step(0, 0, Mail(np.arange(3), np.zeros((3, 4))))


def test_one_charge_covers_one_row_a_party() -> None:
    """The door's own check, in case a phase releases a value of another shape."""
    job = CASE.job()
    door = Door(job.public.ids, job.plan[(0, 0)], Simulation(0), 0, 0, lambda charges: None)
    with pytest.raises(RefusedError, match="one charge covers"):
        door.output(np.zeros((1000, len(SIZES), 4)), 1.0)
    with pytest.raises(PrivadmmError, match="diverged"):
        door.output(np.full((len(SIZES), 4), np.nan), 1.0)
    assert door.charges == {party: () for party in range(len(SIZES))}


@pytest.mark.parametrize("size", [1.0, 1e8, 2.0**52 + 1, 1e60])
def test_rounding_stays_within_the_sensitivity(size: float) -> None:
    """A huge broadcast makes (3a) round coarsely; the declared sensitivity has to follow."""
    case = replace(CASE, algorithm=DPADMM(D_w=3.0, rho=0.5), loss=Logistic())
    moved, allowed = flipped(case.job(sizes=(101,)), Mail(COORDINATORS, np.full((1, 4), size / 2)))
    assert moved <= allowed


def test_a_record_cannot_be_held_twice() -> None:
    X, y = np.ones((3, 2)), np.ones(3)
    with pytest.raises(DataError, match="held twice"):
        Shards.build(X, y, [[0, 0, 1]], row_bound=1.0)
    with pytest.raises(DataError, match="held twice"):
        Shards.build(X, y, [[0, 1], [1, 2]], row_bound=1.0)


def test_a_party_cannot_be_in_two_blocks() -> None:
    with pytest.raises(ConfigError, match="every party once"):
        cluster(CASE.job(), shards(), Simulation(0), parts=[[0, 1, 2, 3, 4], [0]])


def test_labels_beyond_the_classes_do_not_reach_a_loss_of_classes(tmp_path: Path) -> None:
    parties = [(X, 1000 * y) for X, y in records(0)]
    wild = Shards.from_parties(parties, row_bound=1.0, classification=False)
    with pytest.raises(DataError, match="-1 and"):
        cluster(CASE.job(), wild, Simulation(0))
