"""The speed of this machine at reads, matrix products and normals, and the memory that this process has held."""

import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np

from privadmm.data.threads import cores

WIDE, ORDER, NORMALS = 1 << 24, 768, 300_000  # numbers that are read (128 MB, beyond caches), of a matrix, drawn
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def best(run: Callable[[], Any], times: int = 4) -> float:
    seconds = []
    for _ in range(times):
        begin = time.process_time()
        run()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def rates() -> dict[str, float]:
    """Bytes a second that one thread reads, flops a second of a matrix product, normals a second.

    Which of numpy's loops reads fastest differs by processor: a sum takes 1 to 2 times as long as a dot product.
    """
    wide, square, rng = np.ones(WIDE), np.ones((ORDER, ORDER)), np.random.default_rng(0)
    return {
        "bandwidth": wide.nbytes / min(best(wide.sum), best(lambda: wide @ wide)),
        "gemm": 2.0 * ORDER**3 / best(lambda: square @ square),
        "normals": NORMALS / best(lambda: rng.standard_normal(NORMALS)),
    }


def facts() -> dict[str, Any]:
    """Facts about the machine for readers of a result; neither its name nor a path."""
    return {
        "processor": processor(),
        "cores": cores(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "scipy", "scikit-learn")},
    }


def processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def status(key: str) -> int | None:
    """A line of this process's status, in bytes; None where there is none."""
    with suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None


def held() -> int:
    """Bytes of memory that this process holds now, or, where the system does not tell, the most it has held."""
    return status("VmRSS") or peak()


def own() -> int | None:
    """Bytes of this process's own memory, without pages of files; None where the system does not tell."""
    kinds = [status(key) for key in ("RssAnon", "RssShmem")]
    return None if kinds[0] is None else sum(kind or 0 for kind in kinds)


@contextmanager
def watched(peaks: list[int]) -> Iterator[None]:
    """Append the most that `own` says during the block, asked every few milliseconds: the system keeps no such peak."""
    most, over = own() or 0, Event()

    def look() -> None:
        nonlocal most
        while not over.wait(0.003):
            most = max(most, own() or 0)

    watch = Thread(target=look)
    watch.start()
    try:
        yield
    finally:
        over.set()
        watch.join()
        peaks.append(max(most, own() or 0))


def forget_peak() -> None:
    """Make `peak` count from now on, where the system can."""
    with suppress(OSError):
        CLEAR.write_text("5")


def peak() -> int:
    """The most bytes that this process has held.

    The status is asked first: Linux's getrusage also counts what the parent held as it started this process.
    """
    unit = 1 if sys.platform == "darwin" else 1024
    return status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def cpu() -> float:
    """CPU seconds of this process, all its threads and the children that it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
