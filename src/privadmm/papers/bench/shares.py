"""Where the time of a call goes, by function, as Python's profiler sees it.

Time inside numpy, BLAS or the database counts for the Python function that called it, or for the built-in where that is
called by itself. The profiler adds to every call, so many short functions look a little longer than they are.
"""

import cProfile
import pstats
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from tempfile import TemporaryDirectory
from typing import Any

MOST = 4  # functions that are named
LEAST = 0.03  # the share from which on a function is named
IMPORTING = ("builtins.exec", "builtins.compile", "builtins.__build_class__", "marshal.", "_imp.", "dataclasses.py")

Shares = list[tuple[str, float]]  # functions and their shares of all time, the largest first


def of_call(run: Callable[[], Any]) -> Shares:
    """Where the time of one call in this process goes."""
    profile = cProfile.Profile()
    profile.runcall(run)
    times = by_function(pstats.Stats(profile))
    return largest(times, sum(times.values()))


def of_command(words: Sequence[str], environment: Mapping[str, str]) -> Shares:
    """Where the time of a Python program goes, run in its own process; imports and what they call count as one."""
    with TemporaryDirectory() as place:
        command = [sys.executable, "-m", "cProfile", "-o", f"{place}/times", *words]
        subprocess.run(command, check=True, capture_output=True, env=environment)
        stats = pstats.Stats(f"{place}/times")
    times = by_function(stats)
    others = {name: own for name, own in times.items() if not name.startswith(IMPORTING)}
    return largest(others | {"imports": below_imports(stats)}, sum(times.values()))


def by_function(stats: pstats.Stats) -> dict[str, float]:
    """Seconds in each function itself."""
    seconds = dict[str, float]()
    for (file, _, name), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        label = named(file, name)
        seconds[label] = seconds.get(label, 0.0) + own
    return seconds


def below_imports(stats: pstats.Stats) -> float:
    """Seconds in imports and in whatever they call."""
    key = ("<frozen importlib._bootstrap>", "_find_and_load")
    return sum(times[3] for (file, _, name), times in stats.stats.items() if (file, name) == key)  # type: ignore[attr-defined]


def named(file: str, name: str) -> str:
    """Name a function by its file inside its package, without any path of this machine."""
    if file.startswith(("~", "<")):
        return name.strip("<>").removeprefix("built-in method ").removeprefix("method ")
    parts = PurePath(file).parts
    for root in ("privadmm", "site-packages"):
        if root in parts[:-1]:
            place = len(parts) - 1 - parts[::-1].index(root)
            return f"{'/'.join(parts[place + 1 :])} {name}"
    return f"{parts[-1]} {name}"


def largest(times: Mapping[str, float], whole: float) -> Shares:
    ranked = sorted(((name, seconds / max(whole, 1e-9)) for name, seconds in times.items()), key=lambda pair: -pair[1])
    return [(name, share) for name, share in ranked[:MOST] if share >= LEAST]


def words(shares: Shares) -> str:
    return ", ".join(f"{share:.0%} {name}" for name, share in shares)
