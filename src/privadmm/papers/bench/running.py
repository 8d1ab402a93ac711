"""Runs workloads one after another, each in its own process, which shares no memory or caches with others."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from privadmm.errors import ConfigError, PrivadmmError
from privadmm.papers.bench.measuring import described
from privadmm.papers.bench.workloads import everything

GROWTH = "growth"
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class BenchError(PrivadmmError):
    """A workload failed, or its two sides did not reach the same."""


def names() -> list[str]:
    return [*everything(), GROWTH]


def chosen(given: Sequence[str]) -> list[str]:
    """The workloads of these names, in the table's order; all of them if none is given."""
    known = names()
    if wrong := [name for name in given if name not in known]:
        raise ConfigError(f"there is no workload {', '.join(map(repr, wrong))}: say {', '.join(known)}")
    return [name for name in known if not given or name in given]


def run(given: Sequence[str], quick: bool, update: Callable[[int, int | None, str | None], None]) -> dict[str, Any]:
    """Measure and collect: facts about the machine, a record for each line, and growth."""
    todo, lines, growth = chosen(given), list[dict[str, Any]](), list[dict[str, Any]]()
    for number, name in enumerate(todo):
        update(number, len(todo), name)
        measured = in_a_process(name, quick)
        if name == GROWTH:
            growth = measured
        else:
            lines += measured
    update(len(todo), len(todo), None)
    return {"machine": machine(lines), "quick": quick, "lines": lines, "growth": growth}


def machine(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Facts about the machine, with the median of the rates that the processes measured."""
    from privadmm.papers.bench.machine import facts

    rates = [line["rates"] for line in lines if line.get("rates")]
    return facts() | {key: statistics.median(rate[key] for rate in rates) for key in (rates[0] if rates else ())}


def in_a_process(name: str, quick: bool) -> list[dict[str, Any]]:
    """Measure a workload in a process of its own. If that fails, its lines say so, and the others go on."""
    command = [sys.executable, "-m", "privadmm.papers.bench.measuring", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | dict.fromkeys(THREADS, "1"))
    if done.returncode == 0:
        records: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return records
    why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if name == GROWTH:
        raise BenchError(f"growth could not be measured: {why}")
    workload = everything()[name]
    return [described(workload, line) | {"failed": why, "met": False} for line in workload.lines]


def failures(result: dict[str, Any]) -> list[str]:
    """Faults of the measurement itself: workloads that failed, and sides that did not reach the same."""
    return [f"{line['name']}: {line['failed']}" for line in result["lines"] if line.get("failed")] + [
        f"{line['name']}: the two sides did not reach the same (apart by {line['apart']:.3g}, allowed "
        f"{line['allowed']:.3g}), so their times mean nothing"
        for line in result["lines"]
        if line.get("agree") is False
    ]


def missed(result: dict[str, Any]) -> list[str]:
    """The lines whose goal is not met."""
    return [line["name"] for line in result["lines"] if line["met"] is False]
