"""The model of a round (privadmm.runs.scale) against the engines at 2 to 10 nodes, on this machine.

    python benchmarks/scale_model.py [--json] [--quick] [--only dask|flower]

One or two constants of an engine are fitted on as many of its measurements, and what the model then says of the others
is set beside what was measured. Nodes are processes that share this machine's cores, which the model is told.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dask_overhead
import flower_overhead
from privadmm.deploy.dask import DaskCluster
from privadmm.deploy.engines import orders
from privadmm.engine.loop import drive
from privadmm.engine.mail import Mail
from privadmm.runs.scale import Engine, Network, Traffic, simulate, traffic

CORES = float(len(os.sched_getaffinity(0)))
LOOPBACK = Network(latency=5e-5, bandwidth=1e9, hub=1e9)


class Timed:
    """Carries requests and looks at the clock."""

    def __init__(self, cluster: DaskCluster) -> None:
        self.cluster, self.seconds = cluster, list[float]()

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        start = time.perf_counter()
        mail = self.cluster.step(round, phase, inbox)
        self.seconds.append(time.perf_counter() - start)
        return mail


def dask(workers: int, rounds: int) -> float:
    """The median round, in seconds, of ten parties on so many workers."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        whole = dask_overhead.order(Path(place), rounds)
        config = replace(whole.config, run=replace(whole.config.run, workers=workers))
        engine = DaskCluster(orders(replace(whole, config=config)))
        try:
            watched = Timed(engine.begin())
            drive(watched, whole.job.algorithm, whole.job.public)
        finally:
            engine.close()
    return statistics.median(watched.seconds[rounds // 10 :])


def flower(nodes: int, rounds: int) -> float:
    with tempfile.TemporaryDirectory() as place:
        return statistics.median(flower_overhead.measured(Path(place), rounds, rounds, nodes)["round"])


def fitted(make: Any, loads: dict[int, Traffic], seen: dict[int, float], on: tuple[int, ...]) -> Engine:
    """The engine whose constants give what was measured with these numbers of nodes, as nearly as can be."""
    from scipy.optimize import least_squares

    def off(logs: Any) -> Any:
        engine = make(*np.exp(logs))
        return [np.log(told(loads[n], engine) / seen[n]) for n in on]

    # Looks at a clock make steps of the model: a finite difference has to be wider than they are.
    guess = np.log([statistics.median(seen[n] for n in on), 1e-3][: len(on)])
    found = least_squares(off, guess, bounds=(np.log(1e-6), np.log(20.0)), diff_step=0.1)
    return make(*np.exp(found.x).tolist())


def told(load: Traffic, engine: Engine) -> float:
    return float(simulate(load, LOOPBACK, engine, 0.0, rounds=200)["seconds"])


def compared(name: str, make: Any, block: int, seen: dict[int, float], on: tuple[int, ...]) -> dict[str, Any]:
    width = dask_overhead.DIM
    loads = {n: traffic("star", n, width, width, block=max(1, block // n)) for n in seen}
    engine = fitted(make, loads, seen, on)
    lines = [
        {"nodes": n, "measured": one, "model": told(loads[n], engine), "fitted": n in on} for n, one in seen.items()
    ]
    constants = {"handling": engine.handling, "start": engine.start, "poll": engine.poll, "look": engine.look}
    return {"engine": name, "cores": CORES, "constants": constants, "lines": lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", choices=["dask", "flower"])
    given = parser.parse_args()
    found = []
    if given.only != "flower":
        rounds = 100 if given.quick else 300
        seen = {n: dask(n, rounds) for n in (2, 3, 5, 10)}
        found.append(
            compared("dask", lambda start, handling: Engine(handling, start=start, cores=CORES), 10, seen, (2, 10))
        )
    if given.only != "dask":
        rounds = 5 if given.quick else 10
        seen = {n: flower(n, rounds) for n in (3, 4, 6)}
        # Nodes look every 3 seconds and the driver every 0.2; what a message costs the hub is small beside a process.
        found.append(
            compared(
                "flower",
                lambda start: Engine(0.05, 3.0, 0.2, start, cores=CORES),
                1,
                seen,
                (3,),
            )
        )
    if given.json:
        print(json.dumps(found))
        return
    for one in found:
        constants = ", ".join(f"{key} {value:.3g} s" for key, value in one["constants"].items())
        print(f"{one['engine']}, {one['cores']:g} cores: {constants}")
        for line in one["lines"]:
            kind = "fitted on" if line["fitted"] else "foretold"
            ratio = line["model"] / line["measured"]
            print(
                f"  {line['nodes']:2d} nodes: {line['measured']:.4g} s measured, {line['model']:.4g} s by the model "
                f"({ratio:.2f}, {kind})"
            )


if __name__ == "__main__":
    main()
