"""How far a private evaluation is from the exact one: Adult, ten parties, epsilon 1, a tenth of the budget.

    python benchmarks/evaluation.py [--seeds 20]

Trains the recommended method with a fifth of the records held out, and compares what the private evaluation tells of
the area under the ROC with the exact area on the same held-out records; once in secure sums, once with noise of each
party's own. The exact figure is a simulation's, and nobody would have it in a deployment.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from privadmm.config import build
from privadmm.config.file import read
from privadmm.data.holding_out import parted
from privadmm.engine.block import cluster
from privadmm.engine.job import train, weights
from privadmm.engine.phases import features
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs.measures import Scored
from privadmm.runs.metrics import scores, through
from privadmm.runs.private_evaluation import found

CONFIG = """
data = {source = "embedded:adult", encoding = "binned", rows = "unit"}
parties = {count = 10}
features = {moments = true, nonnegative = true}
algorithm = {name = "first_order_consensus", rounds = 41}
loss = {name = "half_logistic"}
regularizer = {weight = 0.0}
evaluation = {kind = "private"}
run = {seed = 1}
"""
SUMS = {
    "secure sums": 'privacy = {epsilon = 1.0, delta = 1e-6, sum = "secure"}',
    "own noise": "privacy = {epsilon = 1.0, delta = 1e-6}",
}


def errors(text: str, seeds: int) -> tuple[float, list[float], float]:
    """The certified epsilon, the error of the area under the ROC by noise seed, and its stated deviation."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_text(text)
        config = read(path)
    prepared = build.prepare(config)
    job = build.job(config, prepared.held.sizes, prepared.held.dim)
    held, away, stated = parted(prepared.train, config.evaluation.held_out, config.evaluation.seed)[1], [], 0.0
    assert held is not None
    for seed in range(seeds):
        own = replace(job, id=f"seed-{seed}")
        progress = train(own, cluster(own, prepared.train, Simulation(seed)))
        told = found(own, progress)["auc"]
        exact = Scored(scores(through(held, features(progress.memory)), weights(own, progress)), held.y).auc
        away.append(told["value"] - exact)
        stated = told["noise"]
    return job.epsilon, away, stated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    for name, privacy in SUMS.items():
        epsilon, away, stated = errors(CONFIG + privacy, seeds)
        size = np.abs(away)
        print(
            f"{name}: epsilon {epsilon:.4f}, {seeds} seeds, error of the AUC {size.mean():.4f} on average, "
            f"{size.max():.4f} at most, within 0.01 in {(size <= 0.01).sum()} (stated deviation {stated:.4f})"
        )


if __name__ == "__main__":
    main()
