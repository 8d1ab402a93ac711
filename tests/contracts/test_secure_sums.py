"""Secure sums between blocks: what is lost, refused, told, kept and captured."""

import ast
import math
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privadmm
from cases import ALGORITHMS, CASES, PRIVATE, SIZES, Case, Transcript, named, shards, transcript
from contract_tools import BLOCKS_OF_ONE, Rebuilt, exchange_keys
from privadmm.algorithms.dp_fedsgd import DPFedSGD
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.moments import Centred
from privadmm.algorithms.shared_budget import SharedBudget
from privadmm.cli.views import steward
from privadmm.data import arrays
from privadmm.engine.block import beside, cluster, open_block, reopen_block
from privadmm.engine.job import Job, train, weights
from privadmm.engine.loop import Checkpoint, Progress
from privadmm.engine.mail import Mail
from privadmm.engine.sums import ROSTER, accept_roster, introduced
from privadmm.errors import AbsentError, ConfigError, LedgerError, LockedError, MessageError, RefusedError
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import DiscreteGaussian
from privadmm.privacy.key_file import KeyFile
from privadmm.privacy.ledger import MemoryLedger, Tick
from privadmm.privacy.limits import Limits
from privadmm.privacy.masks import Masker, Roster
from privadmm.privacy.mechanisms import Deployment, Simulation
from privadmm.privacy.release import Door
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.sums import SecureSum, Summing

N = len(SIZES)
SUMS = [case for case in ALGORITHMS if isinstance(case.privacy, Target) and case.privacy.sum is not None]
PLAIN = [case for case in PRIVATE if case not in SUMS]
FOC, SGD = CASES["foc-sum"], CASES["dp_fedsgd-sum"]


def blocks(job: Job) -> Any:
    return cluster(job, shards(), Simulation(0), parts=BLOCKS_OF_ONE)


class Meddling:
    """An engine that carries letters, and lets `change` see or alter each party's inbox and answer."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.captured = inner, list[tuple[int, int, bytes]]()

    def told(self, round: int, party: int, inbox: Mail) -> Mail:
        return inbox

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        said = []
        for party, worker in enumerate(self.inner.workers):
            if party in inbox.gone:
                continue
            mail = worker.step(round, phase, self.told(round, party, inbox.only(worker.senders)))
            self.captured.append((round, party, mail.pack()))
            said.append(mail)
        return Mail.join(said)


# Who can sum


def instead(case: Case) -> Job:
    assert isinstance(case.privacy, Target)
    return replace(case, privacy=replace(case.privacy, sum=SecureSum(1, 3))).job()


@pytest.mark.parametrize("case", PLAIN, ids=named)
def test_every_other_method_refuses_with_the_reason(case: Case) -> None:
    method = case.algorithm
    while isinstance(method, SharedBudget):
        method = method.method
    if isinstance(method, DPFedSGD) or (
        isinstance(method, FirstOrderConsensus) and not method.gossip and method.weights == "records"
    ):
        assert instead(case).sums is not None
        return
    with pytest.raises(ConfigError, match=r"cannot sum securely|a secure sum is the exact mean"):
        instead(case)


def test_the_reason_teaches() -> None:
    with pytest.raises(ConfigError, match=r"keeps the iterate that it released.*no noise was counted for"):
        instead(CASES["dp_admm"])
    with pytest.raises(ConfigError, match="neighbours need what each of them said"):
        instead(CASES["dvp"])


def test_one_process_in_a_deployment_is_a_curator() -> None:
    pytest.importorskip("opendp")
    job = SGD.job()
    with pytest.raises(ConfigError, match="is a curator"):
        cluster(job, shards(), Deployment())


# What all parties must be told alike


@pytest.mark.parametrize("case", SUMS, ids=named)
def test_masks_change_no_bit_of_the_transcript(case: Case) -> None:
    job = case.job()
    assert transcript(job, shards(), parts=BLOCKS_OF_ONE) == transcript(job, shards())


class OtherWeights(Meddling):
    def told(self, round: int, party: int, inbox: Mail) -> Mail:
        return replace(inbox, values=inbox.values + 1e-9) if (round, party) == (2, 1) else inbox


class OtherAbsentees(Meddling):
    def told(self, round: int, party: int, inbox: Mail) -> Mail:
        gone = np.array([[4, 0]], dtype=np.int64)
        return replace(inbox, absent=gone) if (round, party) == (1, 1) else inbox


@pytest.mark.parametrize("liar", [OtherWeights, OtherAbsentees])
@pytest.mark.parametrize("case", [FOC, SGD], ids=named)
def test_parties_told_different_things_make_noise_and_the_run_says_so(case: Case, liar: type[Meddling]) -> None:
    job, seen = case.job(), Transcript()
    with pytest.raises(MessageError, match="add up to noise"):
        train(job, liar(blocks(job)), [seen])  # type: ignore[arg-type]
    assert len(seen.mail) == (2 if liar is OtherWeights else 1)


@pytest.mark.parametrize(
    "other",
    [SecureSum(2, 3), SecureSum(1, 4), "epsilon"],
    ids=["another t", "another S_min", "another noise"],
)
def test_a_neighbour_that_was_proposed_another_job_makes_noise(other: Any) -> None:
    job = SGD.job()
    assert isinstance(job.public.privacy, Target)
    changed = dict(epsilon=1.1) if other == "epsilon" else dict(sum=other)
    odd = replace(job, public=replace(job.public, privacy=replace(job.public.privacy, **changed)))
    engine, proposed = blocks(job), [job, odd, *[job] * (N - 2)]
    engine.workers = [
        open_block(each, shards().take(np.array([party])), Simulation(0), MemoryLedger([party], each.policy))
        for party, each in enumerate(proposed)
    ]
    # Keys are signed for the terms of a job; here even these are ignored, and the masks alone tell.
    told = zip(proposed, engine.workers, strict=True)
    roster = Roster.of([introduced(each, worker.ids, worker.ledger) for each, worker in told]).pack()
    for worker in engine.workers:
        accept_roster(job, worker.ids, worker.ledger, roster, lambda entry, party: True)
    with pytest.raises(MessageError, match="add up to noise"):
        train(job, engine)


def test_rows_of_one_block_must_be_told_alike() -> None:
    job = FOC.job()
    engine = cluster(job, shards(), Simulation(0), parts=[[0, 1], [2, 3, 4]])
    _, mail = job.algorithm.start(job.public)
    values = mail.values.copy()
    values[1] += 1
    with pytest.raises(RefusedError, match="another shape, sender or size"):
        engine.workers[0].step(0, 0, replace(mail, values=values).only(engine.workers[0].senders))


# Rosters


def test_the_first_roster_wins() -> None:
    job = SGD.job()
    engine = blocks(job)
    ledgers = [worker.ledger for worker in engine.workers]
    packed = ledgers[0].kept(job.id, ROSTER)
    accept_roster(job, np.array([0]), ledgers[0], packed, lambda entry, party: True)  # the same again changes nothing
    other = MemoryLedger([4], job.policy)
    entries = [introduced(job, np.array([party]), ledgers[party]) for party in range(4)]
    entries.append(introduced(job, np.array([4]), other))
    with pytest.raises(RefusedError, match="the first one holds"):
        accept_roster(job, np.array([0]), ledgers[0], Roster.of(entries).pack(), lambda entry, party: True)


def test_a_roster_is_looked_at_before_it_is_kept() -> None:
    job = SGD.job()
    ledgers = [MemoryLedger([party], job.policy) for party in range(N)]
    entries = [introduced(job, np.array([party]), ledger) for party, ledger in enumerate(ledgers)]
    for changed, why in (
        (entries[:4], "every party"),
        ([*entries[:4], replace(entries[4], key=entries[3].key)], "one key for two"),
        ([*entries[:4], replace(entries[4], key=bytes(32))], "party 4 in the roster is no key"),
    ):
        with pytest.raises(RefusedError, match=why):
            accept_roster(job, np.array([0]), ledgers[0], Roster.of(changed).pack(), lambda entry, party: True)
        assert ledgers[0].kept(job.id, ROSTER) is None
    with pytest.raises(RefusedError, match="not signed"):
        accept_roster(job, np.array([0]), ledgers[0], Roster.of(entries).pack(), lambda entry, party: party != 2)
    assert ledgers[0].kept(job.id, ROSTER) is None


def test_in_a_deployment_no_key_is_of_more_parties_than_may_collude() -> None:
    job = SGD.job()
    assert isinstance(job.public.privacy, Target)
    deployed = replace(job, public=replace(job.public, privacy=replace(job.public.privacy, kind=DiscreteGaussian)))
    ledgers = [MemoryLedger([0], deployed.policy), MemoryLedger([1, 2, 3, 4], deployed.policy)]
    for asked, refuses in ((deployed, True), (job, False)):
        entries = [introduced(asked, np.array(ledger.ids), ledger) for ledger in ledgers]
        packed = Roster.of(entries).pack()
        if refuses:
            with pytest.raises(RefusedError, match="4 parties under one key"):
                accept_roster(asked, np.array([0]), ledgers[0], packed, lambda entry, party: True)
        else:
            accept_roster(asked, np.array([0]), ledgers[0], packed, lambda entry, party: True)


def test_machines_that_differ_in_a_last_digit_have_one_job() -> None:
    job = SGD.job()
    odd = SGD.job()
    assert odd.sums is not None
    nudged = {at: math.nextafter(value, math.inf) for at, value in odd.sums.deviation.items()}
    odd.__dict__["sums"] = replace(odd.sums, deviation=nudged)
    assert odd.digest == job.digest


def test_without_a_roster_nothing_is_read_or_released() -> None:
    job, read = SGD.job(), []

    def load() -> Any:
        read.append(1)
        return beside(job.public, shards().take(np.array([2])))

    worker = reopen_block(job, [2], load, Simulation(0), MemoryLedger([2], job.policy))
    _, mail = job.algorithm.start(job.public)
    with pytest.raises(RefusedError, match="no roster here"):
        worker.step(0, 0, mail.only(worker.senders))
    assert not read
    assert worker.ledger.spent(2) == ()


# Lost rounds


class Losing(Meddling):
    """Loses the answers of parties from a round on."""

    def __init__(self, inner: Any, first: dict[int, int]) -> None:
        super().__init__(inner)
        self.first = first

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        said = []
        for party, worker in enumerate(self.inner.workers):
            if party not in inbox.gone:
                mail = worker.step(round, phase, inbox.only(worker.senders))
                said += [mail] if round < self.first.get(party, math.inf) else []
        return Mail.join(said)


class Models:
    def __init__(self) -> None:
        self.found = list[Any]()

    def __call__(self, view: Any) -> None:
        self.found.append((view.progress.memory, view.progress.mail))


@pytest.mark.parametrize("case", [FOC, SGD], ids=named)
def test_a_missing_message_loses_the_round_and_the_model_stays(case: Case) -> None:
    job, seen = case.job(), Models()
    engine = blocks(job)
    train(job, Losing(engine, {3: 2}), [seen])  # type: ignore[arg-type]
    (before, told), (after, told_after) = seen.found[1], seen.found[2]
    assert after is before
    assert np.array_equal(told.values, told_after.values)
    assert told_after.absent.tolist() == [[3, 2]]
    assert seen.found[3][0] is not before  # the next round is among those left
    spent = totals(job.plan, N)
    charged = [worker.ledger.spent(party) for party, worker in enumerate(engine.workers)]
    assert charged[:3] == spent[:3]  # the lost round is charged
    assert charged[4] == spent[4]


def test_a_lost_tick_is_not_answered_again_among_fewer() -> None:
    """Repeating it with the same noise would tell the missing party's value by subtraction."""
    job = SGD.job()
    engine = blocks(job)
    _, mail = job.algorithm.start(job.public)
    said = [worker.step(0, 0, mail.only(worker.senders)).pack() for worker in engine.workers]
    fewer = replace(mail, absent=np.array([[3, 0]], dtype=np.int64))
    for party, worker in enumerate(engine.workers):
        assert worker.step(0, 0, mail.only(worker.senders)).pack() == said[party]
        if party != 3:
            with pytest.raises(RefusedError, match="answered for another inbox"):
                worker.step(0, 0, fewer.only(worker.senders))


def test_lost_moments_end_the_job_and_say_what_they_cost() -> None:
    job = FOC.job()
    with pytest.raises(AbsentError, match=r"party 3 gave no answer in round 1.*every later round.*epsilon = 0\.\d+"):
        train(job, Losing(blocks(job), {3: 0}))  # type: ignore[arg-type]


def test_too_few_end_the_job() -> None:
    job = SGD.job()
    with pytest.raises(AbsentError, match="2 parties are left, and the job sums over 3 at least"):
        train(job, Losing(blocks(job), {0: 1, 1: 1, 2: 1}))  # type: ignore[arg-type]


def test_a_party_refuses_to_sum_among_too_few_before_records_are_read() -> None:
    job, read = SGD.job(), []

    def load() -> Any:
        read.append(1)
        raise AssertionError

    worker = reopen_block(job, [2], load, Simulation(0), MemoryLedger([2], job.policy))
    _, mail = job.algorithm.start(job.public)
    gone = np.array([[party, 0] for party in (0, 1, 4)], dtype=np.int64)
    with pytest.raises(RefusedError, match="sums over 3 parties at least, and 2 are present"):
        worker.step(0, 0, replace(mail.only(worker.senders), absent=gone))
    assert not read


# What is kept, and what is captured


@dataclass(frozen=True)
class Keeping(DPFedSGD):
    """A party that keeps what it sealed."""

    def slope(self, t: int, local: Any, s: Any, inbox: Mail, release: Door) -> Any:
        state, sealed = super().slope(t, local, s, inbox, release)
        return replace(state, w=sealed), sealed


def test_what_was_sealed_cannot_be_kept() -> None:
    job = replace(SGD.job(), algorithm=Keeping(step=1.0))
    with pytest.raises((TypeError, ValueError, AttributeError)):
        train(job, blocks(job))


def unmasked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The words of every message before its masks, as bytes, as they are made from now on."""
    seen: list[bytes] = []
    whole = Summing.sealed

    def sealed(self: Summing, x: Any, ids: Any, noise: Any, call: int) -> Any:
        bare = replace(self, hide=lambda call, shape: np.zeros(shape, dtype=np.uint64))
        seen.append(whole(bare, x, ids, noise, call).tobytes())
        seen.append(np.ascontiguousarray(x).tobytes())
        seen.extend(row.tobytes() for row in np.rint(x / self.sums.step).astype(np.int64))
        return whole(self, x, ids, noise, call)

    monkeypatch.setattr(Summing, "sealed", sealed)
    return seen


def opened_ledgers(job: Job, folder: Path) -> list[SqliteLedger]:
    """A ledger for each party, with the cost set aside and the roster accepted."""
    ledgers = [SqliteLedger(folder / f"{party}.sqlite", [party], job.policy, "simulation") for party in range(N)]
    for party, ledger in enumerate(ledgers):
        open_block(job, shards().take(np.array([party])), Simulation(0), ledger)
    exchange_keys(job, folder)
    return ledgers


def captured(case: Case, folder: Path) -> bytes:
    """All that leaves or is written in a run of blocks with a ledger each: messages, ledgers, checkpoints."""
    job = case.job()
    ledgers = opened_ledgers(job, folder)
    workers = [
        reopen_block(job, [i], lambda i=i: beside(job.public, shards().take(np.array([i]))), Simulation(0), ledger)  # type: ignore[misc]
        for i, ledger in enumerate(ledgers)
    ]
    engine = Meddling(type("Blocks", (), {"workers": workers}))
    train(job, engine, [Checkpoint(folder / "checkpoint", job.id)])  # type: ignore[arg-type]
    for ledger in ledgers:
        ledger.close()
    written = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return written + b"".join(mail for _, _, mail in engine.captured)


@pytest.mark.parametrize("case", [FOC, SGD], ids=named)
def test_no_unmasked_row_leaves_or_is_written(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = unmasked(monkeypatch)
    everything = captured(case, tmp_path)
    assert len(bare) >= 3 * N * 4
    assert not [row for row in bare if row[: 8 * 3] in everything]


def test_an_unmasked_row_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: masks of zero."""
    monkeypatch.setattr(Masker, "hide", lambda self, told, call, shape: np.zeros(shape, dtype=np.uint64))
    bare = unmasked(monkeypatch)
    everything = captured(SGD, tmp_path)
    assert [row for row in bare if row[: 8 * 3] in everything]


def test_the_key_is_erased_with_the_last_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privadmm.engine import sums as home

    keys: list[bytes] = []
    make = home.new_key
    monkeypatch.setattr(home, "new_key", lambda: keys.append(make()) or keys[-1])  # type: ignore[func-returns-value]
    (tmp_path / "first").mkdir()
    everything = captured(SGD, tmp_path / "first")
    assert len(keys) == N
    assert not [key for key in keys if key in everything]
    monkeypatch.setattr(KeyFile, "erase", lambda self, job: None)  # planted: a key that stays
    (tmp_path / "second").mkdir()
    everything = captured(SGD, tmp_path / "second")
    assert len([key for key in keys if key in everything]) == N


def test_no_process_keeps_the_key_of_a_job_that_is_over() -> None:
    job = SGD.job()
    engine = blocks(job)

    def held() -> list[Any]:
        return [value for worker in engine.workers for value in vars(worker).values() if isinstance(value, Masker)]

    _, mail = job.algorithm.start(job.public)
    engine.step(0, 0, mail)
    assert len(held()) == N
    train(job, engine)
    assert held() == []
    assert [worker.ledger.secret(job.id) for worker in engine.workers] == [None] * N


def test_a_ledger_that_was_put_back_releases_nothing_more(tmp_path: Path) -> None:
    job = SGD.job()
    ledgers = opened_ledgers(job, tmp_path)
    worker = open_block(job, shards().take(np.array([0])), Simulation(0), ledgers[0])
    copy = tmp_path / "copy.sqlite"
    with closing(sqlite3.connect(tmp_path / "0.sqlite")) as file:
        file.execute(f"VACUUM INTO '{copy}'")
    anchor = (tmp_path / "0.sqlite-anchor").read_bytes()
    _, mail = job.algorithm.start(job.public)
    first = worker.step(0, 0, mail.only(worker.senders)).pack()
    for ledger in ledgers:
        ledger.close()
    for beside_it in ("-wal", "-shm"):
        (tmp_path / f"0.sqlite{beside_it}").unlink(missing_ok=True)
    copy.replace(tmp_path / "0.sqlite")
    with pytest.raises(LockedError, match="anchor knows of row"):
        SqliteLedger(tmp_path / "0.sqlite", [0], job.policy, "simulation")
    (tmp_path / "0.sqlite-anchor").write_bytes(anchor)  # it was put back too
    again = SqliteLedger(tmp_path / "0.sqlite", [0], job.policy, "simulation")
    worker = open_block(job, shards().take(np.array([0])), Simulation(1), again)
    with pytest.raises(LedgerError, match="older than what job case has sent"):
        worker.step(0, 0, mail.only(worker.senders))
    assert again.secret(job.id) is None
    assert again.spent(0) == ()
    assert first
    again.close()


def test_a_tick_that_died_before_it_was_remembered_is_so_when_it_is_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SGD.job()
    ledgers = opened_ledgers(job, tmp_path)
    worker = open_block(job, shards().take(np.array([0])), Simulation(0), ledgers[0])
    _, mail = job.algorithm.start(job.public)

    def full(*given: Any) -> None:
        raise LedgerError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr(KeyFile, "sent", full)
        with pytest.raises(LedgerError, match="no space left"):
            worker.step(0, 0, mail.only(worker.senders))
    keys = KeyFile(tmp_path / "0.sqlite")
    assert keys.last(job.id) is None
    answered = worker.step(0, 0, mail.only(worker.senders))
    assert keys.last(job.id) == (0, 0)
    assert worker.step(0, 0, mail.only(worker.senders)).pack() == answered.pack()
    assert worker.last == Tick(job.id, 0, 0)  # and the worker goes on from it
    for ledger in ledgers:
        ledger.close()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_job_that_failed_or_was_closed_has_no_key(tmp_path: Path, damaged: bool) -> None:
    job = replace(SGD.job(), allowance=10.0)
    ledger = SqliteLedger(tmp_path / "0.sqlite", [0], replace(job.policy, limits=Limits()), "deployment")
    job.reserve(ledger)
    assert introduced(job, np.array([0]), ledger)
    if damaged:  # a file of keys that cannot be read stops neither the record of a failure nor other jobs
        (tmp_path / "0.sqlite-keys").write_bytes(b"damaged")
    tick = Tick(job.id, 0, 0)
    with ledger.transaction():
        ledger.intend(tick, "inbox", {0: tuple(row[0] for row in job.plan[0, 0])})
    with pytest.raises(LockedError):
        ledger.fail(tick, "a bug")
    assert ledger.failed == tick
    ledger.unlock("seen")
    (shown,) = steward.overview(tmp_path / "0.sqlite")["jobs"]  # its steward sees the ledger all the same
    assert shown["key"] is damaged  # where nothing can be read, a key may be there
    if not damaged:
        assert ledger.secret(job.id) is None
        other = replace(job, id="other")
        other.reserve(ledger)
        assert introduced(other, np.array([0]), ledger)
        ledger.close_job("other")
        assert ledger.secret("other") is None
        with pytest.raises(RefusedError, match="it is over here"):
            introduced(other, np.array([0]), ledger)
    ledger.close()


def test_the_step_knows_the_noise_of_a_secure_sum() -> None:
    """unit = sqrt(N/(N - t))/(n mu): with t = 1 of 5 a step of (2) is larger than with t = 4, by what noise differs."""
    steps = {}
    for t in (1, 4):
        job = replace(FOC, privacy=replace(FOC.privacy, epsilon=0.05, sum=SecureSum(t, 5))).job()  # type: ignore[type-var]
        assert isinstance(job.algorithm, Centred)
        inner = job.algorithm.method
        assert isinstance(inner, FirstOrderConsensus)
        steps[t] = inner.eta(job.algorithm.inside(job.public))
        facts = job.algorithm.inside(job.public)
        unit = math.sqrt(5 / (5 - t)) / (sum(SIZES) * math.sqrt(inner.spent(facts)[0]))
        rule = 2.5 / (1 + 20 * unit * math.sqrt(facts.dim)) / (unit * facts.rounds)
        assert steps[t] == pytest.approx(rule, rel=1e-6)
    assert steps[1] > 2 * steps[4]


@pytest.mark.parametrize("weighting", ["records", "parties"])
def test_nobody_pays_for_noise_that_is_not_there(weighting: Any) -> None:
    """The strictest party decides the one noise of a sum, and the others' events say what that gives them."""
    strict, mixed = (
        replace(FOC, weighting=weighting, privacy=Target(None, 1e-5, party_epsilon=own, sum=SecureSum(1, 4))).job()
        for own in ((0.5,) * N, (1.0, 1.0, 2.0, 0.5, 1.0))
    )
    assert strict.sums is not None
    assert mixed.sums is not None
    costs = [epsilon(spent, 1e-5) for spent in mixed.spends]
    if weighting == "records":
        assert max(costs) < 0.51  # the budget that is left after the moments is divided party by party
        for at, sigma in strict.sums.deviation.items():
            assert mixed.sums.deviation[at] == pytest.approx(sigma, rel=0.02)
    for spent, own in zip(costs, (1.0, 1.0, 2.0, 0.5, 1.0), strict=True):
        assert spent <= own
    # What is charged is what the noise is worth, and no less.
    for at, rows in mixed.plan.items():
        phase = mixed.algorithm.phases[at[1]]
        moves = phase.sums(mixed.public, at[0]).moves  # type: ignore[union-attr, misc]
        ratio = np.array([event.ratio for event in rows[0]])  # type: ignore[attr-defined]
        assert np.all(ratio * moves <= mixed.sums.deviation[at])
        assert np.all(ratio * moves >= mixed.sums.deviation[at] * (1 - 1e-6))


def test_a_key_that_its_process_left_behind_goes_with_the_next_job(tmp_path: Path) -> None:
    job = replace(SGD.job(), allowance=10.0)
    ledger = SqliteLedger(tmp_path / "0.sqlite", [0], job.policy, "simulation")
    job.reserve(ledger)
    assert introduced(job, np.array([0]), ledger)
    for t in range(job.public.rounds):
        with ledger.transaction():
            ledger.commit(Tick(job.id, t, 0), "inbox", {0: (job.plan[t, 0][0][0],)}, b"", b"state")
    assert ledger.secret(job.id) is not None  # it died before it could erase it
    replace(job, id="next").reserve(ledger)
    assert ledger.secret(job.id) is None
    ledger.close()


def test_a_resumed_run_has_the_same_transcript(tmp_path: Path) -> None:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    job, tape = FOC.job(), Transcript()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        engine = Rebuilt(FOC, tmp_path, pool)
        path = tmp_path / "checkpoint"
        with pytest.raises(KeyboardInterrupt):
            train(job, engine, [Checkpoint(path, job.id), interrupt_at(2)])  # type: ignore[arg-type]
        progress = Progress.load(path, job.id, job.algorithm.start(job.public)[0])
        done = train(job, engine, [tape], progress)  # type: ignore[arg-type]
    whole = train(job, cluster(job, shards(), Simulation(0)))
    assert done.transcript == whole.transcript
    assert np.array_equal(weights(job, done), weights(job, whole))


def interrupt_at(round: int) -> Any:
    def callback(view: Any) -> None:
        if view.progress.round == round:
            raise KeyboardInterrupt

    return callback


def test_the_digest_of_the_transcript_is_over_opened_sums() -> None:
    job, seen = SGD.job(), []
    engine = blocks(job)
    step = engine.step
    engine.step = lambda *given: seen.append(step(*given)) or seen[-1]
    progress = train(job, engine)
    assert job.sums is not None
    digest = arrays.digest(b"")
    for mail in seen:
        total = mail.values[..., :-1].view(np.int64).astype(float) * job.sums.step
        digest = arrays.digest(digest.encode() + Mail(mail.senders, total).pack())
    assert progress.transcript == digest
    assert all(isinstance(mail.values, np.ndarray) and mail.sealed for mail in seen)


# Nobody may hand out masks

MATERIAL = {"Masker", "KeyFile", "masker_of", "pair_key", "key_stream", "hide"}
KEEPERS = {
    "privacy/masks.py",  # makes them
    "privacy/sums.py",  # adds them to a message
    "privacy/key_file.py",  # keeps and erases keys
    "privacy/ledger.py",
    "privacy/sqlite_ledger.py",
    "engine/sums.py",  # joins key and roster
    "engine/worker.py",  # hands a message's masks to its door
    "deploy/federation/desk/peers.py",  # asks whether a job's key is still there
}


def users_of_masks(package: Path) -> set[str]:
    """The modules that name a key, a mask, or what makes them."""
    found = set()
    for path in package.rglob("*.py"):
        names = {
            getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", None)
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Name | ast.Attribute | ast.alias)
        }
        if names & MATERIAL or "ledger.secret" in path.read_text():
            found.add(path.relative_to(package).as_posix())
    return found


def test_what_makes_masks_is_named_where_messages_are_sealed_and_nowhere_else(tmp_path: Path) -> None:
    """A path that hands out a missing party's masks lets a coordinator who lies about it read that party's value."""
    package = Path(privadmm.__file__).parent
    assert users_of_masks(package) <= KEEPERS
    planted = tmp_path / "deploy"
    planted.mkdir()
    (planted / "recovery.py").write_text("def recover(masker, told):\n    return masker.hide(told, 0, (1, 8))\n")
    assert users_of_masks(tmp_path) == {"deploy/recovery.py"}


def test_masks_of_a_missing_party_would_tell_its_value() -> None:
    """Why there is no recovery: with them, what a party sent opens with one share of noise."""
    job = SGD.job()
    engine = blocks(job)
    _, mail = job.algorithm.start(job.public)
    worker = engine.workers[2]
    told: list[Any] = []
    hide = Masker.hide
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Masker, "hide", lambda self, *given: told.append(hide(self, *given)) or told[-1])
        words = worker.step(0, 0, mail.only(worker.senders)).values
    assert job.sums is not None
    bare = (words - told[0])[..., :-1].view(np.int64) * job.sums.step
    share = job.sums.share((0, 0), N) * job.sums.step
    assert np.abs(bare).max() < np.abs(job.sums.reach[0, 0][2]) + 6 * share
    masked = words[..., :-1].view(np.int64) * job.sums.step
    assert np.abs(masked).max() > 1e3 * np.abs(bare).max()
