"""The model of a round (privadmm.runs.scale) against the engines at 2 to 10 nodes, on this machine.

    python benchmarks/scale_model.py [--json] [--quick] [--only dask|flower]

One or two constants of an engine are fitted on as many of its measurements, and what the model then says of the others
is set beside what was measured. Nodes are processes that share this machine's cores, which the model is told. Then many
parties on two workers: what `privadmm scale --engine dask --workers 2 --cores C --work W` says with the constants it
has, where W is measured in one process, as an operator can with `privadmm train`. There a tenth of the rounds is faster
than the figure that is taken, since other programs on these cores only make rounds slower.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dask_overhead
import flower_overhead
from privadmm.config import build
from privadmm.deploy.dask import DaskCluster
from privadmm.deploy.engines import orders
from privadmm.deploy.remote_block import open_ledger
from privadmm.engine.block import cluster
from privadmm.engine.loop import Cluster, drive
from privadmm.engine.mail import Mail
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs.scale import Engine, Network, Traffic, of_method, simulate, traffic

CORES = float(len(os.sched_getaffinity(0)))
RECORDS = 20  # of each party, where there are many
LOOPBACK = Network(latency=5e-5, bandwidth=1e9, hub=1e9)


class Timed:
    """Carries requests and looks at the clock."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.seconds = cluster, list[float]()

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        start = time.perf_counter()
        mail = self.cluster.step(round, phase, inbox)
        self.seconds.append(time.perf_counter() - start)
        return mail


def dask(
    workers: int, rounds: int, parties: int = dask_overhead.PARTIES, records: int = dask_overhead.RECORDS
) -> float:
    """The median round, in seconds, of so many parties on so many workers."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        whole = dask_overhead.order(Path(place), rounds, parties, records)
        config = replace(whole.config, run=replace(whole.config.run, workers=workers))
        engine = DaskCluster(orders(replace(whole, config=config)))
        try:
            watched = Timed(engine.begin())
            drive(watched, whole.job.algorithm, whole.job.public)
        finally:
            engine.close()
    return watched.seconds[rounds // 10 :]


def undisturbed(seconds: Sequence[float]) -> float:
    """The time that a tenth of the rounds took less than."""
    return float(np.quantile(seconds, 0.1))


def alone(parties: int, rounds: int) -> float:
    """Seconds of a round of so many parties in one process, for each of them."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        whole = dask_overhead.order(Path(place), rounds, parties, RECORDS)
        order = replace(whole, ledger=Path(place) / "ledger.sqlite")
        ledger = open_ledger(order, "simulation", build.prepare(whole.config).frame.bounds)
        watched = Timed(cluster(whole.job, build.prepare(whole.config).train, Simulation(0), ledger))
        drive(watched, whole.job.algorithm, whole.job.public)
        ledger.close()
    return undisturbed(watched.seconds[rounds // 10 :]) / parties


def many(counts: Sequence[int], workers: int, rounds: int) -> dict[str, Any]:
    """Rounds of many parties of a few records each on some workers, beside what the command says of them."""
    lines, network = [], LOOPBACK
    for parties in counts:
        work, seen = alone(parties, rounds), undisturbed(dask(workers, rounds, parties, RECORDS))
        with tempfile.TemporaryDirectory() as place:
            job = dask_overhead.order(Path(place), rounds, parties, RECORDS).job
        one = of_method(
            job.algorithm, job.public, job.public.dim, [parties], network, "dask", work, workers, int(CORES)
        )
        lines.append({"parties": parties, "work": work, "measured": seen, "model": one["lines"][0]["seconds"]})
    return {"engine": "dask", "workers": workers, "cores": CORES, "lines": lines}


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
    parser.add_argument("--only", choices=["dask", "many", "flower"])
    parser.add_argument("--nodes", default="3,4,6", help="of Flower; the constants are fitted on the first")
    given = parser.parse_args()
    found, crowded = [], None
    if given.only in (None, "dask"):
        rounds = 100 if given.quick else 300
        seen = {n: statistics.median(dask(n, rounds)) for n in (2, 3, 5, 10)}
        found.append(
            compared("dask", lambda start, handling: Engine(handling, start=start, cores=CORES), 10, seen, (2, 10))
        )
    if given.only in (None, "many"):
        crowded = many((10, 100, 1000), 2, 50 if given.quick else 200)
    if given.only in (None, "flower"):
        rounds = 5 if given.quick else 10
        seen = {n: flower(n, rounds) for n in map(int, given.nodes.split(","))}
        # Nodes look every 3 seconds and the driver every 0.2; what a message costs the hub is small beside a process.
        found.append(
            compared(
                "flower",
                lambda start: Engine(0.05, 3.0, 0.2, start, cores=CORES),
                1,
                seen,
                (next(iter(seen)),),
            )
        )
    if given.json:
        print(json.dumps({"fitted": found, "many": crowded}))
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

    if crowded is not None:
        print(f"dask, {crowded['workers']} workers on {crowded['cores']:g} cores, constants of `privadmm scale`")
        for line in crowded["lines"]:
            print(
                f"  {line['parties']:4d} parties: {line['measured']:.4g} s measured, {line['model']:.4g} s by the "
                f"model ({line['model'] / line['measured']:.2f}; work {1e6 * line['work']:.3g} us a party)"
            )


if __name__ == "__main__":
    main()
