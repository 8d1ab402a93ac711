"""The SQLite ledger: what it fixes, what it refuses, and that tampering is found."""

import os
import resource
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cases import POLICY, PRIVATE, shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.loop import Checkpoint, Progress
from privadmm.errors import LedgerError, LockedError, RefusedError
from privadmm.privacy import sqlite_ledger
from privadmm.privacy.accounting import totals
from privadmm.privacy.anchor import AnchorFile
from privadmm.privacy.events import DiscreteGaussian, Gaussian
from privadmm.privacy.ledger import Tick
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.mechanisms import Deployment, Noise, Simulation
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify

CASE = PRIVATE[0]
ROUND = Gaussian(30.0)


def filled(path: Path, rounds: int = 5) -> list[tuple[str, int, int, str]]:
    """A ledger with some rounds of two jobs; the heads as a coordinator would have kept them."""
    ledger, heads = SqliteLedger(path, [0, 1], POLICY, "simulation"), []
    for job in ("one", "two"):
        for t in range(rounds):
            with ledger.transaction():
                ledger.commit(Tick(job, t, 0), f"in {t}", {0: (ROUND,), 1: (ROUND, ROUND)}, b"out", b"state %d" % t)
            heads.append((job, t, 0, ledger.head))
    ledger.close()
    return heads


def test_an_untouched_ledger_verifies(tmp_path: Path) -> None:
    heads = filled(tmp_path / "ledger")
    found = verify(tmp_path / "ledger", heads)
    assert found.problems == ()
    assert found.rows == 10
    assert found.head == heads[-1][-1]
    assert found.epsilon[1] > found.epsilon[0] > 0


def test_a_receipt_is_of_a_row_that_is_there(tmp_path: Path) -> None:
    """This holds for the tick committed last too, which is cached, but not if it was rolled back."""
    *before, (_, _, _, last) = filled(tmp_path / "ledger")
    with closing(SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")) as ledger:
        fresh = Tick("three", 0, 0)

        def taken_back() -> None:
            with ledger.transaction():
                ledger.commit(fresh, "in", {0: (ROUND,)}, b"out", b"state")
                assert ledger.receipt(fresh) == ledger.head != last
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            taken_back()
        assert ledger.receipt(fresh) is None
        assert ledger.head == last
        with ledger.transaction():
            ledger.commit(fresh, "in", {0: (ROUND,)}, b"out", b"state")
        assert ledger.receipt(fresh) == ledger.head
        for job, t, phase, seen in before:
            assert ledger.receipt(Tick(job, t, phase)) == seen


def sql(statement: str, *values: object) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(statement, values)

    return apply


CHEAPER = sqlite_ledger.pack_charges({0: (), 1: ()})
TAMPERING = {
    "a charge made smaller": sql("UPDATE ticks SET charges = ? WHERE seq = 4", CHEAPER),
    "a release rewritten": sql("UPDATE ticks SET outbox = ? WHERE seq = 4", b"other"),
    "an inbox rewritten": sql("UPDATE ticks SET inbox = 'x' WHERE seq = 4"),
    "a row taken out": sql("DELETE FROM ticks WHERE seq = 4"),
    "the first row taken out": sql("DELETE FROM ticks WHERE seq = 1"),
    "rows renumbered after one was taken out": lambda path: (
        sql("DELETE FROM ticks WHERE seq = 4")(path),
        sql("UPDATE ticks SET seq = seq - 1 WHERE seq > 4")(path),
    ),
    "a job renamed": sql("UPDATE ticks SET job = 'three' WHERE job = 'two'"),
    "the budget raised": sql(
        "UPDATE identity SET value = '{\"epsilon\": 9.0, \"delta\": 1e-05}' WHERE fact = 'budget'"
    ),
    "the state exchanged": sql("UPDATE states SET state = ? WHERE job = 'two'", b"raw"),
    "the state's row removed": sql("DELETE FROM states WHERE job = 'one'"),
}


@pytest.mark.parametrize("harm", TAMPERING.values(), ids=TAMPERING.keys())
def test_tampering_shows(harm: Callable[[Path], None], tmp_path: Path) -> None:
    filled(tmp_path / "ledger")
    harm(tmp_path / "ledger")
    assert verify(tmp_path / "ledger").problems


def test_a_cut_tail_and_a_restored_backup_show_to_who_kept_the_heads(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    heads = filled(path)
    sql("DELETE FROM ticks WHERE seq > 8")(path)
    sql("UPDATE states SET round = 2, state = ? WHERE job = 'two'", b"state 2")(path)
    assert verify(path).problems == ()  # by itself the shorter chain is a chain
    problems = verify(path, heads).problems
    assert len(problems) == 2
    assert "round 4 of job two" in problems[0]


def test_a_tail_rewritten_after_a_restored_backup_shows(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    heads = filled(path)
    sql("DELETE FROM ticks WHERE seq = 10")(path)
    sql("DELETE FROM anchored")(path)  # and so its anchor, which is not missed then
    AnchorFile(path).path.unlink()
    ledger = SqliteLedger(path, [0, 1], POLICY, "simulation")
    with ledger.transaction():
        ledger.commit(Tick("two", 4, 0), "another inbox", {0: (ROUND,), 1: ()}, b"other", b"state 4")
    ledger.close()
    assert verify(path).problems == ()
    assert any("is another now" in problem for problem in verify(path, heads).problems)


def test_an_overspent_ledger_shows(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "ledger", [0], POLICY, "simulation")
    with ledger.transaction():  # without a permit
        ledger.commit(Tick("job", 0, 0), "in", {0: (Gaussian(0.5),)}, b"", b"")
    ledger.close()
    assert "has spent" in verify(tmp_path / "ledger").problems[0]


def test_the_policy_is_the_authority(tmp_path: Path) -> None:
    policy = Policy(Budget(1.0, 1e-5), per_job=0.4, algorithms=("dp_admm",), row_bound=2.0)
    SqliteLedger(tmp_path / "ledger", [0, 1], policy, "simulation").close()
    known = identity_of(tmp_path / "ledger")
    assert known is not None
    assert known.policy == policy
    assert identity_of(tmp_path / "nothing") is None
    with pytest.raises(RefusedError, match="allows dp_admm and not admm_star"):
        policy.admit("admm_star")
    with pytest.raises(RefusedError, match="row_bound = 2"):
        policy.admit("dp_admm", 3.0)
    policy.admit("dp_admm", 2.0)


def test_one_job_may_not_take_it_all(tmp_path: Path) -> None:
    policy = Policy(Budget(10.0, 1e-5), per_job=0.4)
    ledger = SqliteLedger(tmp_path / "ledger", [0], policy, "simulation")

    def pay(job: str, t: int) -> None:
        with ledger.transaction():
            ledger.permit(job, {0: (Gaussian(12.0),)})
            ledger.commit(Tick(job, t, 0), "in", {0: (Gaussian(12.0),)}, b"", b"")

    pay("one", 0)
    with pytest.raises(RefusedError, match="for one job"):
        pay("one", 1)
    pay("two", 0)


def test_a_worker_of_a_forbidden_algorithm_does_not_start() -> None:
    job = CASE.job()
    forbidden = Policy(job.budget, algorithms=("pvp",))
    from privadmm.privacy.ledger import MemoryLedger

    with pytest.raises(RefusedError, match="not dp_admm"):
        cluster(job, shards(), Simulation(0), MemoryLedger(range(5), forbidden))


def newer(path: Path) -> None:
    filled(path)
    sql("PRAGMA user_version = 99")(path)


def truncated(path: Path) -> None:
    filled(path, rounds=40)
    for name in (path.name + "-wal", path.name + "-shm"):
        path.with_name(name).unlink(missing_ok=True)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


UNUSABLE = {
    "a newer format": (newer, "format 99"),
    "truncated": (truncated, "ledger"),
}


@pytest.mark.parametrize(("make", "says"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_what_cannot_be_trusted_is_refused(make: Callable[[Path], None], says: str, tmp_path: Path) -> None:
    make(tmp_path / "ledger")

    def use() -> None:
        ledger = SqliteLedger(tmp_path / "ledger", [0, 1], POLICY, "simulation")
        ledger.spent(0)

    with pytest.raises(LedgerError, match=says):
        use()


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a forked process that does this; negative for a signal."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except LedgerError as error:
            os._exit(7 if "nothing was released" in str(error) or "cannot be used" in str(error) else 8)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    """Root may write anything, so the check is made as nobody, in a place that nobody can reach."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "ledger"
        filled(path)
        path.chmod(0o444)
        Path(place).chmod(0o555)

        def use() -> None:
            if os.getuid() == 0:
                os.setuid(65534)
            SqliteLedger(path, [0, 1], POLICY, "simulation")

        assert in_child(use) == 7
        Path(place).chmod(0o755)


def test_a_full_disk_releases_nothing_that_is_not_recorded(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands for the disk: the write fails, the transaction is rolled back, the ledger still verifies."""
    path = tmp_path / "ledger"
    job = CASE.job(rounds=200)

    def use() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
        run_to_the_end(job, tmp_path, Simulation(0))

    assert in_child(use) == 7
    assert verify(path).problems == ()
    ledger = SqliteLedger(path, range(5), job.policy, "simulation")
    latest = ledger.latest(job.id)
    assert latest is not None
    assert sum(count for _, count in ledger.spent(0)) == latest[0].round + 1 < 200


def run_to_the_end(job: Job, folder: Path, noise: Noise, pause: float = 0.0) -> Progress:
    """Run a job as a process does: open the ledger, resume from the checkpoint, run the remaining rounds."""
    ledger = SqliteLedger(folder / "ledger", range(5), job.policy, noise.mode)
    path, progress = folder / "checkpoint", None
    if path.exists():
        progress = Progress.load(path, job.id, job.algorithm.start(job.public)[0])
    done = train(job, cluster(job, shards(), noise, ledger), [Checkpoint(path, job.id, pause=pause)], progress)
    ledger.close()
    return done


LOCKED = 3  # how a process ends that finds its ledger locked


def start(job: Job, folder: Path, fresh: Callable[[], Noise], pause: float) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            run_to_the_end(job, folder, fresh(), pause)
            os._exit(0)
        except LockedError:
            os._exit(LOCKED)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(9)
    return pid


def kill_often(job: Job, folder: Path, kills: int, fresh: Callable[[], Noise]) -> list[Path]:
    """Start a run, kill it at a random moment, resume; repeat until there were this many kills."""
    rng, landed, runs = np.random.default_rng(0), 0, []
    fresh()  # its imports, here and not in every child
    while landed < kills:
        runs.append(folder / str(len(runs)))
        runs[-1].mkdir()
        status = -1
        while status not in (0, LOCKED):
            pid = start(job, runs[-1], fresh, pause=(0.0, 0.02, 3600.0)[len(runs) % 3])
            time.sleep(float(rng.uniform(0.0, 0.06)))
            os.kill(pid, signal.SIGKILL)  # to a process that has ended it does nothing
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert status in (0, -signal.SIGKILL, *([LOCKED] if fresh is Deployment else []))
            landed += status == -signal.SIGKILL
    return runs


KILLS = [pytest.param(20, id="20 kills"), pytest.param(200, id="200 kills", marks=pytest.mark.slow)]


@pytest.mark.parametrize("kills", KILLS)
def test_killed_at_random_moments_a_simulation_ends_the_same(kills: int, tmp_path: Path) -> None:
    job = CASE.job(rounds=12)
    whole = train(job, cluster(job, shards(), Simulation(0)))
    for run in kill_often(job, tmp_path, kills, lambda: Simulation(0)):
        done = Progress.load(run / "checkpoint", job.id, job.algorithm.start(job.public)[0])
        assert done.transcript == whole.transcript
        assert verify(run / "ledger").problems == ()
        with closing(SqliteLedger(run / "ledger", range(5), job.policy, "simulation")) as ledger:
            assert [ledger.spent(party) for party in range(5)] == totals(job.plan, 5)


@pytest.mark.parametrize("kills", KILLS)
def test_killed_at_random_moments_a_deployment_sends_what_it_committed(kills: int, tmp_path: Path) -> None:
    """Noise is fresh in every process: had a committed release been drawn again, the transcript would not replay.

    Killed between two rounds, the run continues. Killed within one, that round is charged and the ledger is locked.
    """
    target = replace(CASE.privacy, kind=DiscreteGaussian)  # type: ignore[type-var]
    job = replace(CASE, privacy=target).job(rounds=12)
    for run in kill_often(job, tmp_path, kills, Deployment):
        with closing(SqliteLedger(run / "ledger", range(5), job.policy, "deployment")) as ledger:
            charged = job.plan
            if (failed := ledger.failed) is not None:
                charged = {(t, phase): rows for (t, phase), rows in job.plan.items() if t <= failed.round}
            assert [ledger.spent(party) for party in range(5)] == totals(charged, 5)
            assert verify(run / "ledger").problems == ()
            if failed is not None:
                ledger.unlock("the test killed it")
                with pytest.raises(RefusedError, match="was closed"):
                    job.reserve(ledger)
                continue
            done = Progress.load(run / "checkpoint", job.id, job.algorithm.start(job.public)[0])
            again = train(job, cluster(job, shards(), Deployment(), ledger))
        assert again.transcript == done.transcript
        assert verify(run / "ledger").problems == ()


def test_the_kill_test_notices_a_ledger_that_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: answers are not stored, so a repeated request draws again and is charged again."""
    target = replace(CASE.privacy, kind=DiscreteGaussian)  # type: ignore[type-var]
    job = replace(CASE, privacy=target).job(rounds=3)
    done = run_to_the_end(job, tmp_path, Deployment())
    monkeypatch.setattr(SqliteLedger, "recall", lambda self, tick, inbox: None)
    with closing(SqliteLedger(tmp_path / "ledger", range(5), job.policy, "deployment")) as ledger:
        parties = cluster(job, shards(), Deployment(), ledger)
        with pytest.raises((RefusedError, LedgerError)):
            train(job, parties)
    assert done.round == 3
