"""Run the tasks of a paper in as many processes as there are cores. A task's result depends on its arguments alone."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from privadmm.errors import PrivadmmError

Done = Callable[[int, int, Sequence[str]], None]  # tasks done, of how many, and which are running


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

    With `may_fail`, a named error is the task's result: what a paper prints may fail when it is run.
    """

    key: Any
    run: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    label: str = ""  # for the progress bar
    cost: float = 1.0  # in seconds, roughly: long ones go first
    may_fail: bool = False


@dataclass(frozen=True)
class Failed:
    """The result of a task that may fail, and did: its error."""

    message: str


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


def run(tasks: Sequence[Task], workers: int | None = None, done: Done = lambda n, of, now: None) -> dict[Any, Any]:
    """Return the results by key, in one order, whatever the number of workers (1: in this process) and who is first."""
    if len({task.key for task in tasks}) != len(tasks):
        raise ValueError("two tasks have the same key")
    results: dict[Any, Any] = {}
    ordered = sorted(tasks, key=lambda task: -task.cost)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(workers or cores, len(tasks))
    if count <= 1:
        for task in ordered:
            done(len(results), len(tasks), (task.label,))
            results[task.key] = perform(task)
        done(len(results), len(tasks), ())
        return results
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        pending: dict[Future[Any], Task] = {pool.submit(perform, task): task for task in ordered}
        while pending:
            now = [task.label for future, task in pending.items() if future.running()]
            done(len(results), len(tasks), now[:count])
            ready, _ = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in ready:
                results[pending.pop(future).key] = future.result()
        done(len(results), len(tasks), ())
    except BaseException:
        # Do not wait for running tasks: nobody needs their results any more.
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return {task.key: results[task.key] for task in ordered}
