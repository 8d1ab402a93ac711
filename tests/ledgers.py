"""Small ledgers, copies that are put back, and processes that are killed while they work on one."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from privadmm.errors import LockedError
from privadmm.privacy.calibration import Adjacency
from privadmm.privacy.events import DiscreteGaussian, Gaussian, Spent
from privadmm.privacy.ledger import Tick
from privadmm.privacy.ledger_file import connect
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger

ONE, TWO = "1" * 32, "2" * 32
NOISE = DiscreteGaussian(30.0)
POLICY = Policy(Budget(2.0, 1e-5))
# What a process calls to touch a database or a file.
TOUCHES = {"execute", "executemany", "fsync", "fdatasync", "replace", "rename", "open", "write", "truncate", "unlink"}
TOUCHES |= {"close", "backup", "link"}


def opened(path: Path, policy: Policy = POLICY, mode: str = "deployment") -> SqliteLedger:
    return SqliteLedger(path, [0], policy, mode)


def begin(path: Path, job: str = ONE, rounds: int = 5, **how: Any) -> Spent:
    """Set aside what a job of so many rounds costs."""
    whole: Spent = ((NOISE, rounds),)
    with closing(opened(path, **how)) as ledger:
        ledger.reserve(job, {0: whole})
    return whole


def pay(path: Path, *rounds: int, job: str = ONE, read: Callable[[], None] = lambda: None, **how: Any) -> None:
    """Release some rounds as a party does, each in a process's turn of its own. `read`: here records are read."""
    for t in rounds:
        tick, charges = Tick(job, t, 0), {0: (NOISE,)}
        with closing(opened(path, **how)) as ledger, ledger.turn():
            with ledger.transaction():
                if ledger.recall(tick, f"in {t}") is not None:
                    continue
                ledger.permit(job, charges)
                ledger.intend(tick, f"in {t}", charges)
            read()
            with ledger.transaction():
                ledger.commit(tick, f"in {t}", charges, b"out", b"state %d" % t)


def released(
    path: Path, parties: Sequence[int], rounds: int, ratio: float = 3.0, adjacency: Adjacency = "person"
) -> None:
    """Make a ledger of parties that each released so many times; by default they hold columns."""
    noise, policy = Gaussian(ratio), Policy(Budget(50.0, 1e-5), adjacency=adjacency)
    with closing(SqliteLedger(path, parties, policy, "deployment")) as ledger:
        ledger.reserve(ONE, dict.fromkeys(parties, ((noise, rounds),)))
        for t in range(rounds):
            with ledger.turn(), ledger.transaction():
                ledger.commit(Tick(ONE, t, 0), "in", dict.fromkeys(parties, (noise,)), b"out", b"state")


def copied(path: Path, to: str) -> Path:
    """A copy of the database alone, made by hand while nobody uses it."""
    return Path(shutil.copy(path, path.with_name(to)))


def put_back(copy: Path, path: Path) -> None:
    """Put a copy in the ledger's place by hand."""
    for beside in ("-wal", "-shm"):
        path.with_name(f"{path.name}{beside}").unlink(missing_ok=True)
    shutil.copy(copy, path)


def without_refusals(path: Path) -> list[tuple[Any, ...]]:
    """The rows of a ledger but for those that record refusals; without their places in the chain."""
    with closing(connect(path, read_only=True)) as db:
        columns = "kind, job, round, phase, inbox, charges, outbox, state"
        return db.execute(f"SELECT {columns} FROM ticks WHERE kind != 'refuse' ORDER BY seq").fetchall()


def aside(path: Path, **how: Any) -> int:
    """How many releases are spent or set aside."""
    with closing(opened(path, **how)) as ledger:
        return sum(count for _, count in ledger.others(0, ""))


def locked(path: Path, **how: Any) -> str | None:
    """Why a ledger cannot be used; None if it can."""
    try:
        with closing(opened(path, **how)) as ledger, ledger.turn():
            return None
    except LockedError as error:
        return str(error)


class Mortal:
    """A profile function that counts how often a process touches a file, and kills it the nth time."""

    def __init__(self, moment: int, touches: Collection[str] = TOUCHES) -> None:
        self.moment, self.touches, self.count = moment, touches, 0

    def __call__(self, frame: Any, event: str, touched: Any) -> None:
        if event in ("c_call", "c_return") and getattr(touched, "__name__", "") in self.touches:
            self.count += 1
            if self.count == self.moment:
                os.kill(os.getpid(), signal.SIGKILL)


def killed_at(work: Callable[[], None], moment: int) -> bool:
    """Do this in a process of its own, which is killed just before or after it touches a file for the nth time.

    False: it ended before that.
    """
    pid = os.fork()
    if pid == 0:
        try:
            sys.setprofile(Mortal(moment))
            work()
            sys.setprofile(None)
            os._exit(0)
        except BaseException:
            sys.setprofile(None)
            sys.excepthook(*sys.exc_info())
            os._exit(9)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), f"the process ended with {status} when it was to be killed at {moment}"
    return status != 0


def every_kill(folder: Path, step: int = 1) -> Iterator[tuple[Path, Callable[[Callable[[], None]], bool]]]:
    """A new folder and a way to kill work in it, for every moment (or each `step`th) until the work ends before it."""
    moment, died = 1, True
    while died:
        place = folder / str(moment)
        place.mkdir()
        outcome: list[bool] = []

        def kill(work: Callable[[], None], moment: int = moment, outcome: list[bool] = outcome) -> bool:
            outcome.append(killed_at(work, moment))
            return outcome[-1]

        yield place, kill
        died, moment = outcome[0], moment + step
