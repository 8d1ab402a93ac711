"""Tasks of papers, run in as many processes as there are cores. What a task returns depends on its arguments alone."""

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
    """How thorough to be, and where data are that the package does not carry."""

    quick: bool = False
    data: Path | None = None

    @property
    def seeds(self) -> int:
        """Runs with noise of their own."""
        return 3 if self.quick else 10


@dataclass(frozen=True)
class Task:
    """`run(*arguments)` under a key of its own; `run` is a function of a module, so that another process finds it.

    What a paper prints may fail when it is run: with `may_fail`, a named error is the task's result.
    """

    key: Any
    run: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    label: str = ""  # for the progress bar
    cost: float = 1.0  # in seconds, roughly: long ones go first
    may_fail: bool = False


@dataclass(frozen=True)
class Failed:
    """What the error of a task said that may fail."""

    message: str


def perform(task: Task) -> Any:
    from privadmm.engine.loop import one_blas_thread

    try:
        with one_blas_thread():
            return task.run(*task.arguments)
    except PrivadmmError as error:
        if not task.may_fail:
            raise
        return Failed(str(error))


def run(tasks: Sequence[Task], workers: int | None = None, done: Done = lambda n, of, now: None) -> dict[Any, Any]:
    """The results by key, whatever the number of workers (1: in this process)."""
    if len({task.key for task in tasks}) != len(tasks):
        raise ValueError("two tasks have the same key")
    ordered = sorted(tasks, key=lambda task: -task.cost)
    count = min(workers or cores(), len(tasks))
    if count <= 1:
        return in_turn(ordered, done)
    found: dict[Any, Any] = {}
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        pending: dict[Future[Any], Task] = {pool.submit(perform, task): task for task in ordered}
        while pending:
            now = [task.label for future, task in pending.items() if future.running()]
            done(len(found), len(tasks), now[:count])
            ready, _ = wait(pending, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in ready:
                found[pending.pop(future).key] = future.result()
        done(len(found), len(tasks), ())
    except BaseException:
        # Nobody waits for what is running: it is of no use any more.
        for process in list(pool._processes.values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return found


def in_turn(tasks: Sequence[Task], done: Done) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for task in tasks:
        done(len(found), len(tasks), (task.label,))
        found[task.key] = perform(task)
    done(len(found), len(tasks), ())
    return found


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
