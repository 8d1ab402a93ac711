"""Measure one workload in this process: our side and its references by turns, then what the machine can do.

    python -m privadmm.papers.bench.measuring NAME [--quick]      # one JSON object, for `privadmm bench`

Ratios are of median CPU times. Sides alternate, so that other work on the machine disturbs them alike.
"""

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from privadmm.papers.bench import machine
from privadmm.papers.bench.shares import of_call
from privadmm.papers.bench.workload import Line, Part, Ready, Run, Workload

SHORT = 0.02  # seconds: a shorter call is repeated within one measurement, until it takes about this long
WARM = 0.5  # seconds: a shorter first call does not count, since caches were cold
PATIENCE = {True: 0.3, False: 6.0}  # seconds after which no further turn begins, by whether the run is quick
LEAST = {True: 1, False: 3}  # turns that count, at least: a median of two would be a mean, of a first call too
TURNS = 15  # at most
PARTS = 4  # turns of a part that is timed alone


def timed(run: Callable[[], Any], times: int = 1) -> tuple[Any, float, float]:
    """Call `run` several times; returns the last answer, and CPU and wall seconds of one call."""
    cpu, wall = machine.cpu(), time.perf_counter()
    for _ in range(times):
        answer = run()
    return answer, (machine.cpu() - cpu) / times, (time.perf_counter() - wall) / times


class Side:
    """One side of a workload: its first answer, its memory, and its times."""

    def __init__(self, run: Run, peak: Callable[[], int] | None = None) -> None:
        self.run, self.cpu, self.wall = run, list[float](), list[float]()
        machine.forget_peak()
        self.answer, cpu, wall = timed(run)
        self.peak = (peak or machine.peak)()
        self.times, self.first = max(1, math.ceil(SHORT / max(wall, 1e-6))), wall
        if wall >= WARM:
            self.cpu.append(cpu)
            self.wall.append(wall)

    def turn(self) -> None:
        _, cpu, wall = timed(self.run, self.times)
        self.cpu.append(cpu)
        self.wall.append(wall)

    def told(self, units: float) -> dict[str, float]:
        """Median seconds for one unit, the spread between turns, and memory."""
        spread = (max(self.cpu) - min(self.cpu)) / statistics.median(self.cpu)
        seconds = {"cpu": statistics.median(self.cpu) / units, "wall": statistics.median(self.wall) / units}
        return {**seconds, "spread": spread, "turns": len(self.cpu), "peak": self.peak}


def by_itself(part: Part) -> dict[str, Any]:
    """Time a part alone, a few times; returns the shortest time, for one unit of the workload (a round, say)."""
    first = timed(part.run)[2]
    turns = [timed(part.run, max(1, math.ceil(SHORT / max(first, 1e-6))))[1:] for _ in range(PARTS)]
    cpu, wall = (part.times * min(seconds) for seconds in zip(*turns, strict=True))
    return {"what": part.what, "times": part.times, "cpu": cpu, "wall": wall}


def measure(chosen: Workload, quick: bool) -> list[dict[str, Any]]:
    """Measure a workload; returns a record for each of its lines."""
    if (why := chosen.missing()) is not None:
        return [skipped(chosen, line, why) for line in chosen.lines]
    before = machine.held()
    ready = chosen.make(quick)
    ours = Side(ready.ours, ready.peak)
    others = {name: Side(reference.run) for name, reference in ready.references.items() if reference.run is not None}
    agreed = {
        name: reference.check(ours.answer, others[name].answer if name in others else ours.answer)
        for name, reference in ready.references.items()
    }
    begin = time.perf_counter() - sum(side.first for side in (ours, *others.values()))
    while len(ours.cpu) < TURNS and (len(ours.cpu) < LEAST[quick] or time.perf_counter() - begin < PATIENCE[quick]):
        for side in (ours, *others.values()):
            side.turn()
    for side in others.values():
        if not side.cpu:
            side.turn()
    rates = machine.rates()
    shares = ready.shares() if ready.shares else of_call(ready.ours)
    needed = [by_itself(part) for part in ready.needed]
    records = []
    for line in chosen.lines:
        record = described(chosen, line) | judged(line, ready, ours, others.get(line.name), before, rates)
        record |= bounded(line, record, needed)
        agreement = agreed[line.name]
        record |= {"apart": float(agreement.apart), "allowed": agreement.allowed, "agree": agreement.reached}
        records.append(record | {"rates": rates, "quick": quick, "shares": shares})
    return records


def described(chosen: Workload, line: Line) -> dict[str, Any]:
    goal = None if line.goal is None else asdict(line.goal) | {"words": line.goal.words}
    facts = {"name": chosen.label(line), "workload": chosen.name, "title": chosen.title, "unit": chosen.unit}
    return {**facts, "against": line.against, "goal": goal, "skipped": None}


def skipped(chosen: Workload, line: Line, why: str) -> dict[str, Any]:
    return described(chosen, line) | {"skipped": why, "met": None}


def judged(
    line: Line, ready: Ready, ours: Side, other: Side | None, before: int, rates: dict[str, float]
) -> dict[str, Any]:
    """Times, ratio, memory, distance from the floor, and whether the goal is met."""
    own = ours.told(ready.units)
    theirs = None if other is None else other.told(ready.units * ready.references[line.name].share)
    time_of = clock_of(line)  # as it is printed
    ratio = None if theirs is None else theirs[time_of] / own[time_of]
    floor = ready.floor.seconds(rates)
    over = (own["peak"] - before) / ready.data if ready.data else None
    figures = {
        "faster": ratio,
        "slower": None if ratio is None else 1 / ratio,
        "cpu": own["cpu"],
        "wall": own["wall"],
        "over_data": over,
        "peak": own["peak"],
    }
    figure = None if line.goal is None else figures[line.goal.kind]
    margin = None if line.goal is None or figure is None else line.goal.margin(figure)
    met = None if margin is None or not ready.full else margin >= 1
    return {
        "ours": own,
        "reference": theirs,
        "share": ready.references[line.name].share,
        "ratio": ratio,
        "wall_ratio": None if theirs is None else theirs["wall"] / own["wall"],
        "memory_over_data": over,
        "floor": None if floor is None else floor / ready.units,
        "distance": None if floor is None else own["cpu"] * ready.units / floor,
        "margin": margin,
        "met": met,
        "full": ready.full,
    }


def bounded(line: Line, record: dict[str, Any], needed: list[dict[str, Any]]) -> dict[str, Any]:
    """The parts of our side that were timed alone, and our figure if it did nothing else; None if not known."""
    clock = clock_of(line)
    least, theirs = math.fsum(part[clock] for part in needed), record["reference"]
    kind = "" if line.goal is None else line.goal.kind
    at_best = {"cpu": least, "wall": least}.get(kind) if needed else None
    if needed and theirs is not None and kind in ("faster", "slower"):
        at_best = theirs[clock] / least if kind == "faster" else least / theirs[clock]
    return {"needed": needed, "at_best": at_best}


def clock_of(line: Line) -> str:
    """Which time a line compares: CPU, unless its goal is about the clock."""
    return "wall" if line.goal is not None and line.goal.kind == "wall" else "cpu"


def main() -> None:
    from privadmm.engine.loop import one_blas_thread
    from privadmm.papers.bench.growth import growth
    from privadmm.papers.bench.workloads import everything

    name, quick = sys.argv[1], "--quick" in sys.argv[2:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core for either side: no threads of ours
    with one_blas_thread():
        result: Any = growth(quick) if name == "growth" else measure(everything()[name], quick)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
