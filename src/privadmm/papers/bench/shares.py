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
LEAST = 0.03  # the share from which on one is

Shares = list[tuple[str, float]]
Times = Mapping[str, float]


def of_call(run: Callable[[], Any]) -> Times:
    """Seconds by function of one call in this process."""
    profile = cProfile.Profile()
    profile.runcall(run)
    return by_function(pstats.Stats(profile))


def of_command(words: Sequence[str], environment: Mapping[str, str]) -> Times:
    """Seconds by function of a Python program in a process of its own; what imports run is one of them."""
    with TemporaryDirectory() as place:
        command = [sys.executable, "-m", "cProfile", "-o", f"{place}/times", *words]
        subprocess.run(command, check=True, capture_output=True, env=environment)
        stats = pstats.Stats(f"{place}/times")
    return by_function(stats) | imported(stats)


def by_function(stats: pstats.Stats) -> dict[str, float]:
    found = dict[str, float]()
    for (file, _, name), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        label = named(file, name)
        found[label] = found.get(label, 0.0) + own
    return found


def imported(stats: pstats.Stats) -> dict[str, float]:
    """All time below the import system, in place of the functions of modules that are being imported."""
    key = ("<frozen importlib._bootstrap>", "_find_and_load")
    whole = [times[3] for (file, _, name), times in stats.stats.items() if (file, name) == key]  # type: ignore[attr-defined]
    return {"imports": sum(whole)}


def named(file: str, name: str) -> str:
    """A function as a reader finds it: its file inside its package, never a path of this machine."""
    if file.startswith(("~", "<")):
        return name.strip("<>").removeprefix("built-in method ").removeprefix("method ")
    parts = PurePath(file).parts
    for root in ("privadmm", "site-packages"):
        if root in parts[:-1]:
            place = len(parts) - 1 - parts[::-1].index(root)
            return f"{'/'.join(parts[place + 1 :])} {name}"
    return f"{parts[-1]} {name}"


def largest(times: Times) -> Shares:
    """The functions that take most of the time, and their shares of it."""
    whole = sum(seconds for name, seconds in times.items() if name != "imports") or 1.0
    found = sorted(((name, seconds / whole) for name, seconds in times.items()), key=lambda pair: -pair[1])
    return [(name, share) for name, share in found[:MOST] if share >= LEAST]


def words(shares: Shares) -> str:
    return ", ".join(f"{share:.0%} {name}" for name, share in shares)
