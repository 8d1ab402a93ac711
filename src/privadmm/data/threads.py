"""Work on several threads: numpy, BLAS and scipy's sparse products let others run meanwhile.

Tasks are cut by public sizes and never share a result, so that the bits do not depend on the number of threads. Threads
end with the call: none is alive when a process forks, and an interrupt leaves none behind.
"""

import contextvars
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from threading import Event, Lock
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

WORTH = 1 << 25  # numbers that a call reads, from which on it was faster on two threads than on one

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside", default=False)


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def hands(threads: int | None, numbers: int) -> int:
    """How many threads take part in a call that reads this many numbers; None: as many as there are cores."""
    if numbers < WORTH or _inside.get():
        return 1
    return cores() if threads is None else threads


def spread(function: Callable[[T], R], tasks: Iterable[T], threads: int) -> list[R]:
    """The results of all tasks, in order; a task is made when a thread is free for it.

    After an error or an interrupt no task begins any more, and it is raised when those that run have ended. Where the
    system cannot start another thread, the existing ones do the work.
    """
    if threads == 1:
        return [function(task) for task in tasks]
    from concurrent.futures import Future, ThreadPoolExecutor

    waiting, turn, found, over = enumerate(tasks), Lock(), dict[int, R](), Event()

    def work() -> None:
        _inside.set(True)  # what a task calls in turn stays on its thread
        try:
            while not over.is_set():
                with turn:
                    following = next(waiting, None)
                if following is None:
                    return
                found[following[0]] = function(following[1])
        except BaseException:
            over.set()
            raise

    pool, crew = ThreadPoolExecutor(threads - 1), list[Future[None]]()
    try:
        # Each in a copy of this context: numpy keeps there what to do about overflow.
        with suppress(RuntimeError):
            crew.extend(pool.submit(contextvars.copy_context().run, work) for _ in range(threads - 1))
        contextvars.copy_context().run(work)
        for other in crew:
            other.result()
    finally:
        over.set()
        pool.shutdown()
    return [found[number] for number in range(len(found))]
