"""Runs the tasks of a paper in as many processes as there are cores. A result depends on its task's arguments alone."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from privadmm.data.threads import cores
from privadmm.errors import PrivadmmError

if TYPE_CHECKING:
    from privadmm.papers.framework.store import Store


class Moment(NamedTuple):
    """The progress of a run."""

    done: int
    of: int
    now: Sequence[str] = ()  # labels of running tasks
    left: float | None = None  # seconds, roughly; None: not known yet


Done = Callable[[Moment], None]


@dataclass(frozen=True)
class Setting:
    """How thorough to be, and the folder of data that the package does not carry."""

    quick: bool = False
    data: Path | None = None

    @property
    def seeds(self) -> int:
        """How many runs there are, each with its own noise."""
        return 3 if self.quick else 10


@dataclass(frozen=True)
class Task:
    """A call `run(*arguments)` and the key of its result; `run` is a module's function, so other processes find it.

    With `may_fail`, a named error becomes the task's result: a printed algorithm may fail when it is run.
    """

    key: Any
    run: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    label: str = ""  # for the progress bar
    cost: float = 1.0  # in seconds, roughly: long ones go first
    may_fail: bool = False


@dataclass(frozen=True)
class Failed:
    """The result of a task that may fail and did: its error."""

    message: str


class Clock:
    """Estimates the time left: the time of the tasks that are done, scaled by the cost of those that are not."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.began, self.left, self.done = time.monotonic(), sum(task.cost for task in tasks), 0.0

    def finish(self, task: Task) -> None:
        self.left, self.done = self.left - task.cost, self.done + task.cost

    @property
    def seconds(self) -> float | None:
        return None if self.done <= 0 else (time.monotonic() - self.began) * max(self.left, 0.0) / self.done


def perform(task: Task) -> Any:
    """Run one task, with one thread."""
    from privadmm.engine.loop import one_blas_thread

    try:
        with one_blas_thread():
            return task.run(*task.arguments)
    except PrivadmmError as error:
        if not task.may_fail:
            raise
        return Failed(str(error))


def run(
    tasks: Sequence[Task], workers: int | None = None, done: Done = lambda moment: None, kept: "Store | None" = None
) -> dict[Any, Any]:
    """Return the results by key; their order does not depend on the number of workers (1: in this process).

    With `kept`, results are taken from there, and every new one is put there as soon as it is known.
    """
    if len({task.key for task in tasks}) != len(tasks):
        raise ValueError("two tasks have the same key")
    ordered = sorted(tasks, key=lambda task: -task.cost)
    known = {} if kept is None else {task.key: kept.get(task) for task in ordered}
    results = {key: entry[0] for key, entry in known.items() if entry is not None}
    missing = [task for task in ordered if task.key not in results]
    clock = Clock(missing)

    def tell(now: Sequence[str] = ()) -> None:
        done(Moment(len(results), len(tasks), now, clock.seconds))

    def finish(task: Task, result: Any) -> None:
        if kept is not None:
            kept.put(task, result)
        results[task.key] = result
        clock.finish(task)

    count = min(workers or cores(), len(missing))
    if count <= 1:
        for task in missing:
            tell((task.label,))
            finish(task, perform(task))
    else:
        together(missing, count, tell, finish)
    tell()
    return {task.key: results[task.key] for task in ordered}


def end_with_parent() -> None:
    """End this process as soon as its parent has ended: a parent that was killed leaves no worker behind."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, daemon=True).start()


def together(
    tasks: Sequence[Task], count: int, tell: Callable[[Sequence[str]], None], finish: Callable[[Task, Any], None]
) -> None:
    """Run tasks in this many processes; `finish` gets each result at once."""
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=end_with_parent)
    try:
        pending: dict[Future[Any], Task] = {pool.submit(perform, task): task for task in tasks}
        while pending:
            tell([task.label for future, task in pending.items() if future.running()][:count])
            ready, _ = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in ready:
                finish(pending.pop(future), future.result())
    except BaseException:
        # Do not wait for running tasks: their results are not needed any more.
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
