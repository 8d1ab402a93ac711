"""One whole private training on Adult against one scikit-learn fit of the pooled records, in one run.

    python benchmarks/training.py [--json] [--quick]

Ten parties, the recommended method (examples/first_order_consensus.toml): calibration, ledgers, moments, 40 rounds of
noisy gradients. Beside it lbfgs on the same encoded features, pooled, with scikit-learn's defaults but for enough
iterations. Times alternate and the ratio is that of the medians, since machines are noisy. The goal is a ratio below 3.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from privadmm.config import build
from privadmm.config.file import read
from privadmm.engine.block import cluster
from privadmm.engine.job import features, train, weights
from privadmm.engine.loop import one_blas_thread
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs import metrics

EXAMPLE = Path(__file__).parents[1] / "examples" / "first_order_consensus.toml"
GOAL = 3.0


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = run()
    return time.perf_counter() - start, found


def measure(encoding: str, repeats: int) -> dict[str, Any]:
    config = read(EXAMPLE)
    config = replace(config, data=replace(config.data, encoding=encoding))
    prepared = build.prepare(config)
    shards, test = prepared.shards, prepared.test
    pooled = np.concatenate([A for slot in shards.slots for A in slot.piece.parties()])
    unseen = np.concatenate([A for slot in test.slots for A in slot.piece.parties()])

    def private() -> float:
        job = build.job(config, shards.sizes, shards.dim)
        progress = train(job, cluster(job, shards, Simulation(0)))
        seen = metrics.through(test, features(job, progress))
        return metrics.accuracy(seen, metrics.scores(seen, weights(job, progress)))

    def lbfgs() -> float:
        return float(LogisticRegression(max_iter=1000).fit(pooled, shards.y).score(unseen, test.y))

    times: dict[str, list[float]] = {"private": [], "lbfgs": []}
    accuracies = {}
    for _ in range(repeats):
        for name, run in (("private", private), ("lbfgs", lbfgs)):
            spent, accuracies[name] = timed(run)
            times[name].append(spent)
    private_s, lbfgs_s = (statistics.median(times[name]) for name in ("private", "lbfgs"))
    return {
        "encoding": encoding,
        "features": shards.dim,
        "records": shards.size,
        "private_s": private_s,
        "lbfgs_s": lbfgs_s,
        "ratio": private_s / lbfgs_s,
        "accuracy": accuracies,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true")
    options.add_argument("--quick", action="store_true", help="one repeat")
    chosen = options.parse_args()
    with one_blas_thread():
        lines = [measure(encoding, 1 if chosen.quick else 5) for encoding in ("binned", "minmax")]
    if chosen.json:
        print(json.dumps({"goal": GOAL, "lines": lines}))
        return
    for line in lines:
        print(
            f"{line['encoding']:7} {line['records']} records, {line['features']} features: private training "
            f"{line['private_s']:.2f} s, scikit-learn lbfgs {line['lbfgs_s']:.2f} s, ratio {line['ratio']:.2f} "
            f"(goal: below {GOAL:g})"
        )


if __name__ == "__main__":
    main()
