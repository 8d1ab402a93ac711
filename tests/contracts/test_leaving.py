"""Parties that leave: contracts hold, nobody pays after leaving, and only mail that absence explains is accepted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import ALGORITHMS, CASES, PRIVATE, SIZES, Case, Transcript, named, shards, transcript
from contract_tools import Player, Recorder, Stop, attempt, charged, exchange_keys
from privadmm.engine import worker as beside
from privadmm.engine.block import cluster, open_block
from privadmm.engine.job import Job, train
from privadmm.engine.loop import drive
from privadmm.engine.mail import COORDINATOR, Mail, nobody
from privadmm.engine.party import Local
from privadmm.engine.phases import pack_state
from privadmm.engine.worker import Worker
from privadmm.errors import RefusedError
from privadmm.privacy.accounting import totals
from privadmm.privacy.events import Spent
from privadmm.privacy.ledger import MemoryLedger
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.sqlite_ledger import SqliteLedger

N, ROUNDS = len(SIZES), 4
LEAVE = {3: 1, 2: 2}  # the others still reach one another on every graph of the cases
BLOCKS = [[i] for i in range(N)]
PARTITIONS = {"blocks of one": BLOCKS, "mixed": [[0, 3], [1, 2, 4]], "one leaves whole": [[2, 3], [0, 1, 4]]}
# One case for each way to continue: mean, prox, echo, recycling, gossip, one-time draws, reported labels, moments.
WAYS = [
    case
    for case in ALGORITHMS
    if case.name
    in {
        *("dp_admm", "admm_star-elastic", "dvp", "mr_admm", "foc-gossip", "pdml-bounded", "dp_admm-reported"),
        *("dvp-centred", "dp_fedsgd", "foc-weighed", "foc-sum", "dp_fedsgd-sum"),
    }
]


def leaving(case: Case) -> Job:
    return replace(case.job(rounds=ROUNDS), leave=LEAVE)


def until_it_left(job: Job) -> list[Spent]:
    """What the plan charges each party for the rounds before it left."""
    found = totals(job.plan, N)
    for party, first in LEAVE.items():
        before = {(t, phase): rows for (t, phase), rows in job.plan.items() if t < first}
        found[party] = totals(before, N)[party]
    return found


@pytest.mark.parametrize("parts", PARTITIONS.values(), ids=PARTITIONS.keys())
@pytest.mark.parametrize("case", WAYS, ids=named)
def test_the_partition_does_not_show(case: Case, parts: list[list[int]]) -> None:
    job = leaving(case)
    assert transcript(job, shards(), parts=parts) == transcript(job, shards())


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_who_left_is_charged_for_nothing_after(case: Case) -> None:
    job = leaving(case)
    blocks, tape = cluster(job, shards(), Simulation(0), parts=PARTITIONS["mixed"]), Transcript()
    progress = train(job, blocks, [tape])
    assert tape.bytes() == transcript(job, shards())
    spent = until_it_left(job)
    for worker in blocks.workers:
        assert [worker.ledger.spent(party) for party in worker.ledger.ids] == [
            spent[party] for party in worker.ledger.ids
        ]
        # What was reserved for it stays reserved until the steward closes the job.
        assert [worker.ledger.reserved(party, job.id) for party in worker.ledger.ids] == [
            totals(job.plan, N)[party] for party in worker.ledger.ids
        ]
    lost = job.sums is not None  # a sum that lacks a message is lost
    assert [mail.senders.tolist() for mail in tape.mail] == [
        [0, 1, 2, 3, 4],
        [] if lost else [0, 1, 2, 4],
        [] if lost else [0, 1, 4],
        [0, 1, 4],
    ]
    assert progress.mail.absent.tolist() == [[2, 2], [3, 1]]


def test_a_charge_after_leaving_is_caught() -> None:
    """The planted fault: a worker that goes on computing for a party whose answer is thrown away."""
    job = PRIVATE[0].job(rounds=ROUNDS)
    blocks = cluster(job, shards(), Simulation(0), parts=BLOCKS)
    train(job, Losing(blocks, wasteful=True))  # type: ignore[arg-type]
    assert blocks.workers[3].ledger.spent(3) != until_it_left(job)[3]


class Losing:
    """An engine that loses parties: nothing is declared, their messages do not arrive."""

    def __init__(self, inner: Any, wasteful: bool = False) -> None:
        self.inner, self.wasteful = inner, wasteful

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        mail = []
        for worker in self.inner.workers:
            here = LEAVE.get(int(worker.ids[0]), ROUNDS) > round
            told = Mail(inbox.senders, inbox.values, nobody()) if self.wasteful and not here else inbox
            said = worker.step(round, phase, told.only(worker.senders)) if here or self.wasteful else None
            mail += [said] if said is not None and here else []
        return Mail.join(mail)


@pytest.mark.parametrize("case", WAYS, ids=named)
def test_an_engine_that_loses_parties_is_told_apart_by_nothing(case: Case) -> None:
    """Declared leaving and lost messages give the same transcript, bit for bit."""
    job, tape = case.job(rounds=ROUNDS), Transcript()
    train(job, Losing(cluster(job, shards(), Simulation(0), parts=BLOCKS)), [tape])  # type: ignore[arg-type]
    assert tape.bytes() == transcript(leaving(case), shards())


@pytest.mark.parametrize("after", [False, True], ids=["before the answer", "after the commit"])
@pytest.mark.parametrize("case", WAYS, ids=named)
def test_resume_over_it(case: Case, after: bool, tmp_path: Path) -> None:
    job = leaving(case)
    whole = train(job, cluster(job, shards(), Simulation(0)))
    for every in (1, 3):
        for round in range(ROUNDS):
            folder = tmp_path / f"{every}-{round}"
            folder.mkdir()
            with pytest.raises(Stop):
                attempt(job, shards(), folder, (round, after), every=every)
            done = attempt(job, shards(), folder, every=every)
            assert done.transcript == whole.transcript
            assert done.mail.pack() == whole.mail.pack()
            assert charged(job, folder) == until_it_left(job)


@pytest.mark.parametrize("case", WAYS, ids=named)
def test_a_ledger_replays_it_without_a_checkpoint(case: Case, tmp_path: Path) -> None:
    job = leaving(case)
    whole = train(job, cluster(job, shards(), Simulation(0)))
    with pytest.raises(Stop):
        attempt(job, shards(), tmp_path, (3, True))
    (tmp_path / "checkpoint").unlink()
    assert attempt(job, shards(), tmp_path).transcript == whole.transcript
    assert charged(job, tmp_path) == until_it_left(job)


class Rebuilt:
    """A cluster whose blocks keep nothing but their ledgers from one message to the next."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job, self.folder = job, folder
        if job.sums is not None:
            exchange_keys(job, folder, PARTITIONS["mixed"])

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        return Mail.join([self.answer(part, round, phase, inbox) for part in PARTITIONS["mixed"]])

    def answer(self, part: list[int], round: int, phase: int, inbox: Mail) -> Mail:
        job, data = self.job, shards().take(np.array(part))
        ledger = SqliteLedger(self.folder / f"{part[0]}.sqlite", part, job.policy, "simulation")
        worker = open_block(job, data, Simulation(0), ledger)
        said = worker.step(round, phase, Mail.unpack(inbox.only(worker.senders).pack()))
        ledger.close()
        return said


@pytest.mark.parametrize("case", WAYS, ids=named)
def test_workers_rebuilt_from_stored_bytes(case: Case, tmp_path: Path) -> None:
    job, tape = leaving(case), Transcript()
    drive(Rebuilt(job, tmp_path), job.algorithm, job.public, [tape])
    assert tape.bytes() == transcript(job, shards())


def replayed(case: Case, kind: type[Any], seed: int, tape: list[Any]) -> list[bytes]:
    """Every message and the last states of a run in which parties leave, through doors of this kind."""
    job, sent = leaving(case), Transcript()

    class Taped(kind):  # type: ignore[misc]
        pass

    Taped.tape = tape
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "Door", Taped)
        blocks = cluster(job, shards(seed), Simulation(0))
        train(job, blocks, [sent])
    return [*sent.bytes(), *(pack_state(worker.state) for worker in blocks.workers)]


@pytest.mark.parametrize("case", [case for case in WAYS if "reported" not in case.name], ids=named)
def test_replay(case: Case) -> None:
    """Other data under the same releases: the same messages and states, also where duals are reset."""
    tape: list[Any] = []
    first = replayed(case, Recorder, 0, tape)
    assert replayed(case, Player, 1, list(tape)) == first


class PeepsAtLeavers(type(PRIVATE[0].algorithm)):  # type: ignore[misc]
    """The planted leak: the state after somebody left depends on the records."""

    def update(self, t: int, local: Local, s: Any, inbox: Mail, release: Any) -> Any:
        gone = local.public.parties - len(local.ids)
        return super().update(t, local, replace(s, gamma=s.gamma + gone * local.gradient(s.w)), inbox, release)


def test_a_leak_upon_leaving_is_caught() -> None:
    tape: list[Any] = []
    case = replace(PRIVATE[0], algorithm=PeepsAtLeavers(D_w=3.0, rho=0.1))
    first = replayed(case, Recorder, 0, tape)
    assert replayed(case, Player, 1, list(tape)) != first


def ring(name: str = "admm_graph-ring-huber") -> Worker:
    """Party 1 of a ring of five, which hears 0 and 2, after its first round."""
    job = CASES[name].job(rounds=ROUNDS)
    block = shards().take(np.array([1]))
    ledger = MemoryLedger([1], job.policy)
    worker = open_block(job, block, Simulation(0), ledger)
    worker.step(0, 0, said(0, 2))
    return worker


def said(*senders: int, absent: Any = ()) -> Mail:
    table = np.array(absent, dtype=np.int64).reshape(-1, 2)
    return Mail(np.array(senders, dtype=np.int64), np.ones((len(senders), 4)), table)


UNEXPLAINED = {
    "a neighbour is missing": said(0),
    "another one left": said(0, absent=[[3, 0]]),
    "who left speaks": said(0, 2, absent=[[2, 0]]),
    "not a party": said(0, 2, absent=[[7, 0]]),
    "the coordinator left": said(0, 2, absent=[[COORDINATOR, 0]]),
    "twice": said(0, absent=[[2, 0], [2, 0]]),
    "not in order": said(0, absent=[[3, 0], [2, 0]]),
    "before the first round": said(0, absent=[[2, -1]]),
    "not a table": replace(said(0), absent=np.array([2])),
    "not whole numbers": replace(said(0), absent=np.array([[2.0, 0.0]])),
}


@pytest.mark.parametrize("inbox", UNEXPLAINED.values(), ids=UNEXPLAINED.keys())
def test_what_absence_does_not_explain_is_refused(inbox: Mail) -> None:
    party = ring()
    spent = party.ledger.spent(1)
    with pytest.raises(RefusedError, match="another shape, sender or size"):
        party.step(1, 0, inbox)
    assert party.ledger.spent(1) == spent


def test_it_is_told_when_it_happens() -> None:
    """An absence must begin between the party's last round and this one, neither earlier nor later."""
    for first in (1, 2, 5):
        with pytest.raises(RefusedError, match="another time"):
            ring().step(1, 0, said(0, absent=[[2, first]]))
    party = ring()
    party.step(1, 0, said(0, absent=[[2, 0]]))
    with pytest.raises(RefusedError, match="another time"):
        party.step(2, 0, said(absent=[[0, 0], [2, 0]]))


def test_nobody_comes_back() -> None:
    party = ring()
    party.step(1, 0, said(0, absent=[[2, 0]]))
    spent = party.ledger.spent(1)
    for inbox in (said(0, 2), said(0, absent=[[2, 1]])):
        with pytest.raises(RefusedError, match="came back"):
            party.step(2, 0, inbox)
    assert party.ledger.spent(1) == spent


def test_a_party_that_is_told_it_left_says_nothing() -> None:
    party = ring()
    spent = party.ledger.spent(1)
    assert not len(party.step(1, 0, said(0, 2, absent=[[1, 0]])).senders)
    assert party.ledger.spent(1) == spent


def test_a_party_that_missed_a_round_is_not_ready_for_the_next() -> None:
    with pytest.raises(RefusedError, match="different moments"):
        ring().step(2, 0, said(0, 2))
