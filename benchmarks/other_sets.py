"""What a certified budget buys on other data than Adult, with the recommended method and its settings as they are.

    python benchmarks/other_sets.py [--data DIR] [--json] [--splits N] [--seeds N] [--epsilon E ...] [--only SET ...]

A fifth of the records is held out (a third of a9a, as in its own files), delta = 1e-6, and the mean is over splits and
over noise seeds on each; +- is the standard error of the recommended method at ten parties. "Curator" is the same
method with all records at one party, "secure" with a secure sum of ten or a hundred parties' messages, "non-private" a
logistic regression on the same features, and DP-FedSGD has the settings of its example (chosen on Adult).

a9a is embedded. The others are Raetsch's benchmark sets as npz files with X and y, in DIR or $PRIVADMM_DATA, directly
or in a folder `raetsch`; a set that is not there is skipped. Their makers scaled every column to mean 0 and variance
1, so the declared range is -4 to 4 for all. Numbers are encoded in two ways:

    binned  one-hot in fixed fractions of the range: ten, or five where noise is large (as `privadmm recommend` has it)
    signed  as they are, clipped to the range, beside a constant column sqrt(d), the length of a standardised row, so
            that a row scaled to norm 1 still tells how long it was. Chosen by accuracy on these sets, among some
            twenty-five ways to encode them: a constant of 1 to sqrt(d) makes little difference but on ringnorm
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.linear_model import LogisticRegression

from privadmm.algorithms.dp_fedsgd import DPFedSGD
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.moments import Centred
from privadmm.config.build import UNIT
from privadmm.data import adult, splits
from privadmm.data.kinds import EDGES, Number
from privadmm.data.moments_map import map_of, moments
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
from privadmm.privacy.sums import SecureSum
from privadmm.runs import metrics
from privadmm.runs.recommend import FINE, Facts

DELTA, RANGE, HELD_OUT = 1e-6, 4.0, 0.2
PARTIES = {"10 parties": 10, "100 parties": 100, "curator": 1}
SECURE = {10: "secure 10", 100: "secure 100"}  # the same parties with a secure sum
SETS = ("a9a", "twonorm", "ringnorm", "waveform", "splice", "image", "banana", "german")
NUCLEOTIDES = (1, 2, 3, 4)  # of splice: A, G, C, T
HEADINGS = (*PARTIES, "+-", *SECURE.values(), "fedsgd 10", "fedsgd 100", "non-private", "majority")


@dataclass(frozen=True)
class Table:
    """A data set as its owner has it. `given` are columns that are one-hot already, `numbers` those that are not."""

    name: str
    y: Any
    given: Any = None
    numbers: Any = None
    held_out: float = HELD_OUT

    @property
    def encodings(self) -> tuple[str, ...]:
        return ("one-hot",) if self.numbers is None else ("binned", "signed")

    def encoded(self, encoding: str, fine: bool) -> Any:
        if encoding == "one-hot":
            return self.given
        if encoding == "binned":
            column = Number(-RANGE, RANGE, EDGES["binned" if fine else "coarse"])
            return np.concatenate([column.encode(values) for values in self.numbers.T], axis=1)
        n, d = self.numbers.shape
        return np.hstack([np.clip(self.numbers, -RANGE, RANGE), np.full((n, 1), math.sqrt(d))])


def load(name: str, folder: Path | None) -> Table | None:
    if name == "a9a":
        records = adult.load("a9a")
        return Table(name, records.y, given=records.X, held_out=16_281 / 48_842)
    places = [] if folder is None else [folder / f"{name}.npz", folder / "raetsch" / f"{name}.npz"]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        where = "no folder was given" if folder is None else f"{folder} does not have {name}.npz"
        print(f"{name}: skipped, {where}; use --data DIR or $PRIVADMM_DATA", file=sys.stderr)
        return None
    with np.load(path) as file:
        X, y = file["X"].astype(np.float64), file["y"].astype(np.float64)
        if "unique_idx" in file:
            X, y = X[file["unique_idx"]], y[file["unique_idx"]]
    if name == "splice":
        return Table(name, y, given=np.hstack([np.equal(X, letter) for letter in NUCLEOTIDES]).astype(np.float64))
    return Table(name, y, numbers=X)


def held(X: Any, y: Any, rows: Any, parties: int) -> Shards:
    owner = splits.even(len(rows), parties, seed=0)
    return Shards.build(X, y, [rows[part] for part in splits.gather(rows, owner, parties)], row_bound=UNIT)


def recommended(
    shards: Shards, test: Shards, epsilon: float, nonnegative: bool, seeds: range, secure: bool = False
) -> list[float]:
    """Moments of their own mean a map of their own, so seeds run one by one."""
    found, method = [], Centred(FirstOrderConsensus(), nonnegative=nonnegative)
    public = facts(shards, 41, L2(0.0), epsilon, secure=secure)
    for seed in seeds:
        job = Job(method, public)
        progress = train(job, cluster(job, shards, Simulation(seed)))
        seen = metrics.through(test, features(progress.memory))
        found.append(metrics.accuracy(seen, metrics.scores(seen, weights(job, progress))))
    return found


def fedsgd(shards: Shards, test: Shards, epsilon: float, seeds: range) -> list[float]:
    """All seeds in one run, as replicas."""
    job = Job(DPFedSGD(step=50.0), facts(shards, 100, L2(1e-4), epsilon, len(seeds)))
    models = weights(job, train(job, cluster(job, shards, Simulation(seeds.start))))
    return [metrics.accuracy(test, metrics.scores(test, w)) for w in models]


def facts(
    shards: Shards, rounds: int, penalty: L2, epsilon: float, replicas: int | None = None, secure: bool = False
) -> Public:
    graph = graphs.star(len(shards.ids))
    target = Target(epsilon, DELTA, sum=SecureSum() if secure else None)
    return Public(shards.sizes, shards.dim, rounds, graph, HalfLogistic(), penalty, target, replicas=replicas)


def non_private(shards: Shards, test: Shards) -> float:
    """On the features that exact moments give."""
    map = map_of(moments(shards, nonnegative=False)[0], 0.0, 0.2)
    (rows,), (unseen,) = (
        [A.toarray() if issparse(A) else A for slot in part.slots for A in slot.piece.parties()]
        for part in (shards, test)
    )
    model = LogisticRegression(C=10.0, max_iter=1000, fit_intercept=False).fit(map(rows), shards.y)
    return float(model.score(map(unseen), test.y))


def measured(table: Table, encoding: str, epsilon: float, split: int, seeds: range) -> dict[str, list[float]]:
    """Accuracies on one split, by heading."""
    found: dict[str, list[float]] = {}
    rows, unseen = splits.train_test(len(table.y), table.held_out, split)
    for heading, parties in PARTIES.items():
        unit = Facts(len(rows), (epsilon,) * parties, DELTA).unit
        X = table.encoded(encoding, fine=unit < FINE)
        shards, test = held(X, table.y, rows, parties), held(X, table.y, unseen, 1)
        found[heading] = recommended(shards, test, epsilon, encoding != "signed", seeds)
        if parties > 1:
            found[f"fedsgd {parties}"] = fedsgd(shards, test, epsilon, seeds)
            # Noise of a curator, but for those who may collude.
            shared = Facts(len(rows), (epsilon,), DELTA).unit * math.sqrt(parties / (parties - parties // 3))
            X = table.encoded(encoding, fine=shared < FINE)
            shards, test = held(X, table.y, rows, parties), held(X, table.y, unseen, 1)
            found[SECURE[parties]] = recommended(shards, test, epsilon, encoding != "signed", seeds, secure=True)
        else:
            found["non-private"] = [non_private(shards, test)]
            found["majority"] = [metrics.majority(test)]
    return found


def lines(chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for name in chosen.only or SETS:
        table = load(name, chosen.data)
        for encoding in () if table is None else table.encodings:
            for epsilon in chosen.epsilon:
                parts = [
                    measured(table, encoding, epsilon, split, range(100 * split, 100 * split + chosen.seeds))
                    for split in range(chosen.splits)
                ]
                runs = {heading: np.concatenate([part[heading] for part in parts]) for heading in parts[0]}
                yield {
                    "set": name,
                    "records": round(len(table.y) * (1 - table.held_out)),
                    "encoding": encoding,
                    "epsilon": epsilon,
                    "accuracy": {heading: float(values.mean()) for heading, values in runs.items()},
                    "standard_error": {
                        heading: float(values.std(ddof=1) / math.sqrt(len(values)))
                        for heading, values in runs.items()
                        if len(values) > 1
                    },
                }


def shown(line: dict[str, Any]) -> str:
    error = line["standard_error"].get("10 parties", math.nan)
    cells = {**line["accuracy"], "+-": error}
    figures = "".join(f"{100 * cells[heading]:>13.{2 if heading == '+-' else 1}f}" for heading in HEADINGS)
    return f"{line['set']:9}{line['records']:7}  {line['encoding']:8}{line['epsilon']:5g}{figures}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = os.environ.get("PRIVADMM_DATA")
    options.add_argument("--data", type=Path, default=default and Path(default), metavar="DIR")
    options.add_argument("--json", action="store_true")
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--seeds", type=int, default=4, help="on each split")
    options.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    options.add_argument("--only", nargs="+", choices=SETS, default=[], metavar="SET")
    chosen = options.parse_args()
    if not chosen.json:
        print(f"{'set':9}{'records':>7}  {'encoding':8}{'eps':>5}" + "".join(f"{h:>13}" for h in HEADINGS))
    found = []
    for line in lines(chosen):
        found.append(line)
        if not chosen.json:
            print(shown(line), flush=True)
    if chosen.json:
        print(json.dumps({"delta": DELTA, "splits": chosen.splits, "seeds": chosen.seeds, "lines": found}))


if __name__ == "__main__":
    main()
