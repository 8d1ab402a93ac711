"""A deployment's tick that fails after reading records is charged and reported once; then only a steward can unlock."""

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import CASES, SIZES, shards
from privadmm.engine import worker as worker_module
from privadmm.engine.block import beside, open_block, reopen_block
from privadmm.engine.job import Job
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.worker import Worker
from privadmm.errors import LedgerError, LockedError, RefusedError
from privadmm.privacy.accounting import totals
from privadmm.privacy.alike import Alike
from privadmm.privacy.events import DiscreteGaussian
from privadmm.privacy.ledger import Tick
from privadmm.privacy.mechanisms import Deployment, Simulation
from privadmm.privacy.release import Door
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify
from small_runs import Place, no_plots, spawn

SECRET = "the mean of the records is 0.123"
ROUNDS = 3


def deployed(name: str = "pvp", **changes: Any) -> Job:
    case = CASES[name]
    target = replace(case.privacy, kind=DiscreteGaussian)  # type: ignore[type-var]
    return replace(replace(case, privacy=target).job(rounds=ROUNDS), allowance=10.0, **changes)


def opened(job: Job, folder: Path, mode: str = "deployment") -> SqliteLedger:
    return SqliteLedger(folder / "ledger", range(len(SIZES)), job.policy, mode)


def begun(job: Job, ledger: SqliteLedger) -> Worker:
    job.reserve(ledger)
    return open_block(job, shards(), Deployment(), ledger)


def first_inbox(job: Job, worker: Worker) -> Mail:
    return job.algorithm.start(job.public)[1].only(worker.senders)


def breaks(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError(SECRET)


def out_of_memory(*_: Any, **__: Any) -> Any:
    raise MemoryError


def full(self: SqliteLedger, *_: Any) -> Any:
    raise LedgerError("database or disk is full")


# The steps of a tick after reading records, in their order, and how each may fail.
FAULTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "reading records": (Worker, "load", breaks),
    "the solver": (Local, "argmin", breaks),
    "memory": (Local, "argmin", out_of_memory),
    "the bound of the solver": (Local, "exactness", breaks),
    "a phase": (worker_module, "tick", breaks),
    "the door": (Door, "output", breaks),
    "noise": (Deployment, "gaussian", breaks),
    "the end of a tick": (Door, "close", breaks),
    "packing": (worker_module, "pack_state", breaks),
    "the commit": (SqliteLedger, "commit", full),
}


def provoked(job: Job, folder: Path, fault: str, patch: pytest.MonkeyPatch) -> LockedError:
    place, name, act = FAULTS[fault]
    with closing(opened(job, folder)) as ledger:
        party = begun(job, ledger)
        if name == "load":
            party = reopen_block(job, party.ids.tolist(), act, Deployment(), ledger)
        else:
            patch.setattr(place, name, act)
        with pytest.raises(LockedError) as told:
            party.step(0, 0, first_inbox(job, party))
    patch.undo()
    return told.value


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_after_records_were_read_is_charged_and_locks(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = deployed()
    told = provoked(job, tmp_path, fault, monkeypatch)
    assert "locked" in str(told)
    assert SECRET not in str(told)
    assert told.__cause__ is None
    assert told.__context__ is None  # an engine that pickles the error would send the secret
    once = totals({tick: rows for tick, rows in job.plan.items() if tick == (0, 0)}, len(SIZES))
    with closing(opened(job, tmp_path)) as ledger:
        assert [ledger.spent(party) for party in range(len(SIZES))] == once
        assert ledger.latest(job.id) is None
        # Reported once: any later request, of this job or another, gets the same answer.
        for other in (job, deployed(id="b" * 32)):
            with pytest.raises(LockedError, match="locked"):
                other.reserve(ledger)
        with pytest.raises(LockedError, match="locked"):
            open_block(job, shards(), Deployment(), ledger)
        load = partial(beside, job.public, shards())
        party = reopen_block(job, range(len(SIZES)), load, Deployment(), ledger)
        for round in (0, 1):
            with pytest.raises(LockedError, match="locked"):
                party.step(round, 0, first_inbox(job, party))
        assert [ledger.spent(party) for party in range(len(SIZES))] == once
        # The steward unlocks, on record; the job stays closed and the charge stays.
        ledger.unlock("a bug that is mended")
        with pytest.raises(RefusedError, match="closed"):
            job.reserve(ledger)
        with pytest.raises(RefusedError, match="over"):
            party.step(0, 0, first_inbox(job, party))
        assert [ledger.spent(party) for party in range(len(SIZES))] == once
        second = deployed(id="b" * 32)
        party = begun(second, ledger)
        assert len(party.step(0, 0, first_inbox(second, party)).senders) == len(SIZES)
    assert verify(tmp_path / "ledger").problems == ()


def test_what_failed_is_told_to_the_steward_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger holds the reason with a salt, so that its hashes tell nothing of it."""
    job = deployed()
    provoked(job, tmp_path, "the solver", monkeypatch)
    with closing(opened(job, tmp_path)) as ledger:
        assert ledger.why is not None
        assert SECRET in ledger.why
        assert ledger.failed is not None
        assert (ledger.failed.round, ledger.failed.phase) == (0, 0)


def test_what_is_left_after_a_failure_does_not_tell_when_it_failed(tmp_path: Path) -> None:
    """Any later asker sees the same: what a failed job had set aside stays counted, however far it came."""
    whole, said = ((DiscreteGaussian(20.0), 10),), []
    for failing in (0, 2, 7):
        job = deployed()
        folder = tmp_path / str(failing)
        folder.mkdir()
        ledger = opened(job, folder)
        ledger.reserve("a" * 32, dict.fromkeys(ledger.ids, whole))
        charge = dict.fromkeys(ledger.ids, (DiscreteGaussian(20.0),))
        with ledger.turn():
            for t in range(failing + 1):
                tick = Tick("a" * 32, t, 0)
                with ledger.transaction():
                    ledger.permit("a" * 32, Alike.of(charge))
                    ledger.intend(tick, "", Alike.of(charge))
                if t == failing:
                    with pytest.raises(LockedError):
                        ledger.fail(tick, SECRET)
                    continue
                with ledger.transaction():
                    ledger.commit(tick, "", Alike.of(charge), b"", b"")
        ledger.unlock("looked at it")
        with pytest.raises(RefusedError) as refused:
            ledger.reserve("b" * 32, dict.fromkeys(ledger.ids, ((DiscreteGaussian(0.1), 1),)))
        ledger.close_job("a" * 32)  # frees nothing
        ledger.close()
        again = opened(job, folder)
        account = again.accounts.of("a" * 32)
        assert account.counts == Alike.of(dict.fromkeys(again.ids, whole))
        assert account.spent == Alike.of(dict.fromkeys(again.ids, ((DiscreteGaussian(20.0), failing + 1),)))
        again.close()
        assert not verify(folder / "ledger").problems
        said.append(str(refused.value))
    assert said == [said[0]] * 3


def test_heads_of_two_failures_alike_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heads = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        job = deployed(id="a" * 32)
        provoked(job, tmp_path / name, "the solver", monkeypatch)
        with closing(opened(job, tmp_path / name)) as ledger:
            heads.add(ledger.head)
    assert len(heads) == 2


def killed(job: Job, folder: Path) -> None:
    """A deployment whose process was killed in its first step."""
    pid = os.fork()
    if pid == 0:
        Local.argmin = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment, return-value]
        with closing(opened(job, folder)) as ledger:
            party = begun(job, ledger)
            party.step(0, 0, first_inbox(job, party))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_a_process_that_dies_without_a_word_has_failed(tmp_path: Path) -> None:
    job = deployed()
    killed(job, tmp_path)
    with closing(opened(job, tmp_path)) as ledger:
        with pytest.raises(LockedError):
            job.reserve(ledger)
        assert sum(count for _, count in ledger.spent(0)) == 1
        assert "killed" in (ledger.why or "")


def test_an_interrupt_by_the_partys_own_people_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    job = deployed()
    with closing(opened(job, tmp_path)) as ledger:
        party = begun(job, ledger)
        with monkeypatch.context() as patch:
            patch.setattr(Local, "argmin", stop)
            with pytest.raises(KeyboardInterrupt):
                party.step(0, 0, first_inbox(job, party))
        assert ledger.spent(0) == ()
        party.step(0, 0, first_inbox(job, party))
        assert sum(count for _, count in ledger.spent(0)) == 1


@pytest.mark.parametrize("stop", [SystemExit, KeyboardInterrupt])
def test_an_interrupt_that_others_may_cause_is_a_failure(
    stop: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others can interrupt an unattended party, and an exit is not Ctrl-C: both lock the ledger."""

    def end(*_: Any, **__: Any) -> Any:
        raise stop

    job = deployed()
    with closing(opened(job, tmp_path)) as ledger:
        party = begun(job, ledger)
        party.attended = stop is SystemExit
        monkeypatch.setattr(Local, "argmin", end)
        with pytest.raises(LockedError):
            party.step(0, 0, first_inbox(job, party))
        assert sum(count for _, count in ledger.spent(0)) == 1


def test_a_second_look_in_this_process_does_not_let_go_of_its_turn(tmp_path: Path) -> None:
    """A file lock belongs to the process: opening and closing the lock's file a second time would release it."""
    job = deployed()
    with closing(opened(job, tmp_path)) as first, closing(opened(job, tmp_path)) as second, first.turn():
        with pytest.raises(LedgerError, match="at work"), second.turn(patience=0.05):
            pass
        pid = os.fork()
        if pid == 0:
            with closing(opened(job, tmp_path)) as third:
                try:
                    with third.turn(patience=0.05):
                        os._exit(7)
                except LedgerError:
                    os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_simulation_fails_as_it_likes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation protects nobody, and its user wants to see the error."""
    case = CASES["pvp"]
    job = case.job(rounds=ROUNDS)
    with closing(opened(job, tmp_path, "simulation")) as ledger:
        job.reserve(ledger)
        party = open_block(job, shards(), Simulation(0), ledger)
        monkeypatch.setattr(Local, "argmin", breaks)
        with pytest.raises(ZeroDivisionError):
            party.step(0, 0, first_inbox(job, party))
        assert ledger.spent(0) == ()
        assert ledger.failed is None


def test_a_ledger_that_writes_nothing_beforehand_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: without the intent a process that dies leaves no trace, and the tick can be asked for again."""
    monkeypatch.setattr(SqliteLedger, "intend", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_process_that_dies_without_a_word_has_failed(tmp_path)


def test_the_steward_sees_and_unlocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from privadmm.cli import main

    def command(*words: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["ledger", *words])
        return int(ended.value.code or 0), capsys.readouterr().out

    job, path = deployed(), str(tmp_path / "ledger")
    provoked(job, tmp_path, "the solver", monkeypatch)
    _, shown = command("show", path, "--json")
    assert json.loads(shown)["locked"]["round"] == 0
    assert SECRET in json.loads(shown)["locked"]["why"]
    assert "LOCKED" in command("show", path)[1]
    assert command("unlock", path, "--because", " ")[0] == 1
    code, shown = command("unlock", path, "--because", "mended", "--json")
    assert (code, json.loads(shown)["locked"]) == (0, None)
    assert command("unlock", path, "--because", "again")[0] == 1
    rows = json.loads(command("export", path, "--json")[1])["rows"]
    assert [row["kind"] for row in rows] == ["reserve", "fail", "unlock"]


def test_a_run_of_a_deployment_ends_with_one_line_and_its_steward_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line: exit code 3, the file and what to do, and nothing of the failure itself."""
    no_plots(monkeypatch)
    run = {"mode": "deployment", "seed": None, "ledger": "party.sqlite"}
    config, ledger = place.config(run=run), place.path / "party.sqlite"
    policy = ("--parties", 3, "--epsilon", 3.0, "--delta", 1e-5)
    assert place.call("ledger", "create", ledger, *policy).code == 0
    with monkeypatch.context() as patch:
        patch.setattr(Local, "gradient", breaks)
        failed = place.train(config)
    assert failed.code == 3
    assert "ledger unlock" in failed.err
    assert SECRET not in failed.out + failed.err
    assert "Traceback" not in failed.err
    again = place.train(config, out=place.path / "again")
    assert (again.code, "locked" in again.err) == (3, True)
    assert place.call("ledger", "unlock", ledger, "--because", "mended").code == 0
    assert place.train(config, out=place.path / "third").code == 0
    shown = place.call("ledger", "show", ledger, "--json").object
    assert {party["releases"] for party in shown["parties"]} == {1 + 6}


def test_of_two_processes_one_answers_and_neither_locks(tmp_path: Path) -> None:
    """A tick that another process is computing has not failed: wait for it."""
    job = deployed()
    with closing(opened(job, tmp_path)) as ledger:
        begun(job, ledger)
    pids = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            with closing(opened(job, tmp_path)) as ledger:
                party = open_block(job, shards(), Deployment(), ledger)
                party.step(0, 0, first_inbox(job, party))
                os._exit(0)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0, 0, 0]
    with closing(opened(job, tmp_path)) as ledger:
        assert ledger.failed is None
        assert sum(count for _, count in ledger.spent(0)) == 1
        party = open_block(job, shards(), Deployment(), ledger)
        assert np.isfinite(party.step(0, 0, first_inbox(job, party)).values).all()


def test_whoever_looks_at_a_ledger_sees_the_step_that_was_killed(place: Place) -> None:
    """`ledger` shows the lock, the charge and the state of the job, before anything else is asked."""
    job, path = deployed(), place.path / "ledger"
    killed(job, place.path)
    shown = place.call("ledger", "show", path, "--json").object
    assert shown["locked"]["round"] == 0
    assert [one["state"] for one in shown["jobs"]] == ["failed"]
    assert {party["releases"] for party in shown["parties"]} == {1}
    assert "[" not in next(line for line in place.call("ledger", "show", path).out.splitlines() if "LOCKED" in line)


@pytest.mark.parametrize("charges", ["garbage", "[1]", "null", '[[[0], [["{}", 1]]]]'])
def test_an_intent_that_cannot_be_read_is_damage_and_no_bug(charges: str, place: Place) -> None:
    job, path = deployed(), place.path / "ledger"
    killed(job, place.path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE intents SET charges = ?", (charges,))
        db.commit()
    for words in (("show",), ("verify",), ("unlock", "--because", "x"), ("close", job.id)):
        said = place.call("ledger", words[0], path, *words[1:])
        assert said.code == 1
        assert "Traceback" not in said.err
        assert "bug" not in said.err


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_service_that_is_stopped_is_no_crash(sent: signal.Signals, place: Place) -> None:
    """Stopped by its own operator: the unfinished step is not charged, and the run can be resumed."""
    run = {"mode": "deployment", "seed": None, "ledger": "party.sqlite"}
    config = place.config(run=run, algorithm={"rounds": 4000})
    policy = ("--parties", 3, "--epsilon", 3.0, "--delta", 1e-5)
    assert place.call("ledger", "create", place.path / "party.sqlite", *policy).code == 0
    process = spawn("train", config, "--out", place.out)
    deadline = time.monotonic() + 60
    while not (place.out / "checkpoint").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.005)
    told = None
    for _ in range(10):
        process.send_signal(sent)
        # Python drops an interrupt that arrives while an object is being freed, so send it again.
        with suppress(subprocess.TimeoutExpired):
            _, told = process.communicate(timeout=3)
            break
    assert process.returncode == 1, told
    assert "unexpected" not in str(told)
    shown = place.call("ledger", "show", place.path / "party.sqlite", "--json").object
    assert shown["locked"] is None
    assert 0 < shown["jobs"][0]["rounds"] < 4000


def test_an_interrupt_at_the_very_start_of_a_transaction_leaves_no_lock(tmp_path: Path) -> None:
    """Between the first statement of a transaction and its body nobody could roll it back."""
    job = deployed()
    with closing(SqliteLedger(tmp_path / "ledger", range(5), job.policy, "deployment")) as ledger:
        tick = Tick(job.id, 0, 0)
        with ledger.turn():
            with ledger.transaction():
                ledger.intend(tick, "in", {0: ()})
            begun = ledger.transaction()
            begun.__enter__()  # nobody ever leaves it
            ledger.withdraw(tick)
        with ledger.turn():
            assert ledger.failed is None
