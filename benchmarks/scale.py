"""DP-ADMM on many small parties in one process: time per round against the number of parties, and memory.

    python benchmarks/scale.py [--json] [--quick]

Ratios within one run, since machines are noisy: 10,000 parties against 1,000, and what the process holds
while it trains against the records themselves.
"""

import argparse
import gc
import json
import statistics
import time
from pathlib import Path

import numpy as np

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.loop import View
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import Logistic
from privadmm.optim.regularizers import L2
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Deployment, Simulation

RECORDS, DIM, ROUNDS = 50, 100, 12


def held() -> int:
    """Bytes of memory that this process owns now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this benchmark reads /proc/self/status and needs Linux")


def problem(parties: int) -> Shards:
    """Records made party by party, so that the input is not held twice."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=DIM)
    X = rng.normal(size=(parties * RECORDS, DIM), scale=0.1)
    y = np.where(X @ truth > 0, 1.0, -1.0)
    return Shards.build(X, y, np.split(np.arange(len(y)), parties), row_bound=1.0)


def measure(parties: int) -> dict[str, float]:
    before = held()
    shards = problem(parties)
    gc.collect()
    data = parties * RECORDS * (DIM + 1) * 8
    public = Public(shards.sizes, DIM, ROUNDS, graphs.star(parties), Logistic(), L2(1e-3), Target(1.0, 1e-6))
    job = Job(DPADMM(D_w=30.0, rho=0.1), public)
    blocks = cluster(job, shards, Simulation(0))
    stamps, peak = [time.perf_counter()], 0

    def watch(view: View) -> None:
        nonlocal peak
        stamps.append(time.perf_counter())
        peak = max(peak, held())

    train(job, blocks, [watch])
    rounds = np.diff(stamps)[2:]
    return {
        "parties": parties,
        "seconds_per_round": statistics.median(rounds),
        "memory_over_data": (peak - before) / data,
        "data_megabytes": data / 1e6,
    }


def deployment_noise(d: int) -> float:
    """Seconds to draw secure noise for one release of d coordinates; needs the extra `deploy`."""
    noise, one, ids = Deployment(), np.ones(1), np.zeros(1, dtype=np.int64)
    stamps = [time.perf_counter()]
    for t in range(5):
        noise.gaussian(np.zeros((1, d)), one, 5 * one, ids, (t, 0, 0))
        stamps.append(time.perf_counter())
    return statistics.median(np.diff(stamps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="4,000 parties instead of 10,000")
    options = parser.parse_args()
    counts = (1000, 4000) if options.quick else (1000, 10_000)
    small, large = (measure(parties) for parties in counts)
    result: dict[str, object] = {
        "small": small,
        "large": large,
        "parties_ratio": counts[1] / counts[0],
        "time_ratio": large["seconds_per_round"] / small["seconds_per_round"],
    }
    speed = {d: 1e3 * deployment_noise(d) for d in (105, 10_000)}
    result["deployment_noise_ms"] = speed
    if options.json:
        print(json.dumps(result))
        return
    print(f"DP-ADMM, parties of {RECORDS} records, {DIM} features, one process")
    for one in (small, large):
        print(
            f"  {one['parties']:>6.0f} parties  {1e3 * one['seconds_per_round']:8.2f} ms a round   "
            f"memory {one['memory_over_data']:.2f} x the data ({one['data_megabytes']:.0f} MB)"
        )
    more, longer = counts[1] / counts[0], large["seconds_per_round"] / small["seconds_per_round"]
    print(f"  {more:.0f} x the parties take {longer:.1f} x the time (goal at 10 x: at most 12)")
    for d, ms in speed.items():
        print(f"  deployment noise for one release of {d} coordinates: {ms:.2f} ms")


if __name__ == "__main__":
    main()
