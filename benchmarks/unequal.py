"""Unequal parties: the recommended method with weights by records and by noise, on the same noise.

    python benchmarks/unequal.py [--data DIR] [--json] [--splits N] [--seeds N] [--parties N] [--only SET ...]

Sizes grow evenly on a log scale, by 400 from the first party to the last (50 to 20,000, say), and are dealt out at
random; epsilon is 0.5 everywhere, or 0.1, 0.5 and 2 in turn. Records are dealt out at random ("alike") or sorted by
a noisy label first ("skewed"), so that parties differ. Weights by noise are for parties that are alike: the skewed
lines of a set say what they do where that is wrong. +- is the standard error of the difference, over splits and seeds.
"""

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from other_sets import DELTA, Table, load
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.moments import Centred
from privadmm.config.build import UNIT
from privadmm.data import adult, splits
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.phases import features
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import HalfLogistic
from privadmm.optim.regularizers import L2
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs import metrics

SETS = ("twonorm", "waveform", "ringnorm", "a9a", "adult")
BUDGETS = {"0.5": (0.5,), "0.1/0.5/2": (0.1, 0.5, 2.0)}
LEAST = 10  # records of the smallest party


def sizes(records: int, parties: int, rng: Any) -> Any:
    shares = np.geomspace(1, 400, parties)
    found = LEAST + np.floor(shares / shares.sum() * (records - LEAST * parties)).astype(np.int64)
    found[-1] += records - found.sum()
    return rng.permutation(found)


def held(table: Table, split: int, parties: int, skewed: bool) -> tuple[Shards, Shards]:
    rng = np.random.default_rng(split)
    X = table.encoded(table.encodings[-1], fine=False)
    rows, unseen = splits.train_test(len(table.y), table.held_out, split)
    score = (table.y[rows] if skewed else 0.0) + rng.normal(size=len(rows))
    parts = np.split(rows[np.argsort(score)], np.cumsum(sizes(len(rows), parties, rng))[:-1])
    return (
        Shards.build(X, table.y, parts, row_bound=UNIT),
        Shards.build(X, table.y, [unseen], row_bound=UNIT),
    )


def accuracy(
    shards: Shards, test: Shards, epsilons: tuple[float, ...], count: Any, nonnegative: bool, seed: int
) -> float:
    target = Target(None, DELTA, party_epsilon=tuple(np.resize(epsilons, len(shards.ids)).tolist()))
    star = graphs.star(len(shards.ids))
    public = Public(shards.sizes, shards.dim, 41, star, HalfLogistic(), L2(0.0), target)
    job = Job(Centred(FirstOrderConsensus(weights=count), nonnegative=nonnegative), public)
    progress = train(job, cluster(job, shards, Simulation(seed)))
    seen = metrics.through(test, features(progress.memory))
    return metrics.accuracy(seen, metrics.scores(seen, weights(job, progress)))


def table_of(name: str, folder: Path | None) -> Table | None:
    if name != "adult":
        return load(name, folder)
    records = adult.load("onehot", encoding="binned")
    return Table(name, records.y, given=records.X, held_out=5_222 / 45_222)


def measured(table: Table, skewed: bool, budget: str, chosen: argparse.Namespace) -> dict[str, Any]:
    found = []
    for split in range(chosen.splits):
        shards, test = held(table, split, chosen.parties, skewed)
        for seed in range(100 * split, 100 * split + chosen.seeds):
            found.append(
                [
                    accuracy(shards, test, BUDGETS[budget], count, table.numbers is None, seed)
                    for count in ("records", "noise")
                ]
            )
    runs = np.array(found)
    gain = runs[:, 1] - runs[:, 0]
    error = float(gain.std(ddof=1) / math.sqrt(len(gain))) if len(gain) > 1 else math.nan
    return {
        "set": table.name,
        "parties": "skewed" if skewed else "alike",
        "epsilon": budget,
        "records": float(runs[:, 0].mean()),
        "noise": float(runs[:, 1].mean()),
        "gain": float(gain.mean()),
        "standard_error": error,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("PRIVADMM_DATA")
    options.add_argument("--data", type=Path, default=default and Path(default), metavar="DIR")
    options.add_argument("--json", action="store_true")
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--seeds", type=int, default=2, help="on each split")
    options.add_argument("--parties", type=int, default=10)
    options.add_argument("--only", nargs="+", choices=SETS, default=SETS, metavar="SET")
    chosen = options.parse_args()
    found = []
    if not chosen.json:
        print(f"{chosen.parties} parties\nset       parties  epsilon      records    noise     gain      +-")
    for name in chosen.only:
        if (table := table_of(name, chosen.data)) is None:
            continue
        for skewed in (False, True):
            for budget in BUDGETS:
                found.append(line := measured(table, skewed, budget, chosen))
                if not chosen.json:
                    figures = [100 * line[key] for key in ("records", "noise", "gain", "standard_error")]
                    print(
                        f"{name:9} {line['parties']:8} {budget:10}{figures[0]:9.1f}{figures[1]:9.1f}"
                        f"{figures[2]:+9.2f}{figures[3]:8.2f}",
                        flush=True,
                    )
    if chosen.json:
        print(json.dumps({"parties": chosen.parties, "lines": found}))


if __name__ == "__main__":
    main()
