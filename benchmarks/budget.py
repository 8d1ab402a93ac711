"""Noise against signal, as `privadmm recommend` estimates it, beside the accuracy that was reached.

    python benchmarks/budget.py [--data DIR] [--json] [--seeds N] [--parties N ...] [--epsilon E ...] [--only SET ...]

For every set: c = |cov(y, phi)|, what the labels say about the features (recommend.py), on centred and scaled features
and on plain ones. Then, for every number of parties and epsilon (delta = 1e-6), the estimate and its verdict, the test
accuracy of the recommended method over seeds (each with a split of its own, a fifth held out), and its share of what
the best of all budgets reached above always the majority. A share near 0 is a model that is no better than a constant.
At the end the table of docs/recommend.md: points above the majority, by noise-to-signal.

Adult and a9a are embedded. The others are Raetsch's benchmark sets as npz files with X and y, in DIR or $PRIVADMM_DATA,
directly or in a folder `raetsch`; a set that is not there is skipped. Their declared ranges are rounded outward.
"""

import argparse
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import normalize

from privadmm import ADMMClassifier, BudgetWarning
from privadmm.data import adult
from privadmm.data.moments_map import map_of
from privadmm.data.schema import Encoding, Number, Schema
from privadmm.runs.new_schema import outward
from privadmm.runs.recommend import Facts, recommend

DELTA, HELD_OUT = 1e-6, 0.2
BINS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, math.inf)  # of noise-to-signal
SETS = ("adult", "a9a", "twonorm", "ringnorm", "waveform", "splice", "image", "banana", "german")


def load(name: str, encoding: Encoding, folder: Path | None) -> tuple[Any, Any] | None:
    """Encoded features and labels."""
    if name in ("adult", "a9a"):
        records = adult.load("onehot", encoding=encoding) if name == "adult" else adult.load("a9a")
        return records.X, records.y
    places = [] if folder is None else [folder / f"{name}.npz", folder / "raetsch" / f"{name}.npz"]
    path = next((place for place in places if place.exists()), None)
    if path is None:
        print(f"{name}: skipped; use --data DIR or $PRIVADMM_DATA", file=sys.stderr)
        return None
    with np.load(path) as file:
        rows = file["unique_idx"]
        X, y = file["X"][rows].astype(np.float64), file["y"][rows].astype(np.float64)
    ends = [outward(float(column.min()), float(column.max())) for column in X.T]
    columns = {f"x{j}": Number(float(low), float(high)) for j, (low, high) in enumerate(ends)}
    schema = Schema(columns, "y", (-1, 1), 1.0).encoded(encoding)
    return schema.encode(dict(zip(columns, X.T, strict=True))), y


def signal(X: Any, y: Any) -> tuple[float, float]:
    """c on mapped features, and on plain rows of norm 1."""
    X = X if isinstance(X, np.ndarray) else X.toarray()
    X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)
    mapped = map_of(np.concatenate([X.mean(axis=0), (X * X).mean(axis=0)]), 0.0, 0.2)(X)
    centred = (y - y.mean()) / len(y)
    return float(np.linalg.norm(centred @ mapped)), float(np.linalg.norm(centred @ X))


def accuracy(X: Any, y: Any, parties: int, epsilon: float, seeds: int) -> tuple[float, float]:
    """Of the recommended method and of the majority, means over seeds."""
    reached, most = [], []
    X = normalize(X)  # a row at a time: to norm 1
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(y))
        cut = len(y) - round(HELD_OUT * len(y))
        fit, test = order[:cut], order[cut:]
        model = ADMMClassifier(
            classes=(-1, 1), row_bound=1.0, epsilon=epsilon, delta=DELTA, parties=parties, random_state=seed
        )
        reached.append(model.fit(X[fit], y[fit]).score(X[test], y[test]))
        most.append(max((y[test] == 1).mean(), (y[test] == -1).mean()))
    return float(np.mean(reached)), float(np.mean(most))


def study(name: str, folder: Path | None, parties: list[int], epsilons: list[float], seeds: int) -> Any:
    coarse = load(name, "coarse", folder)
    if coarse is None:
        return None
    y, lines = coarse[1], []
    train = len(y) - round(HELD_OUT * len(y))
    for count in parties:
        for epsilon in epsilons:
            advice = recommend(Facts(train, (epsilon,) * count, DELTA))
            X = coarse[0]
            if advice.encoding != "coarse":
                fine = load(name, advice.encoding, folder)
                assert fine is not None
                X = fine[0]
            reached, most = accuracy(X, y, count, epsilon, seeds)
            lines.append(
                {
                    "parties": count,
                    "epsilon": epsilon,
                    "unit": advice.facts.unit,
                    **advice.expected.table,
                    "accuracy": reached,
                    "majority": most,
                }
            )
    best = max(line["accuracy"] - line["majority"] for line in lines)
    for line in lines:
        line["share"] = (line["accuracy"] - line["majority"]) / best if best > 0 else math.nan
    mapped, plain = signal(*coarse)
    return {"set": name, "train": train, "signal": mapped, "signal_plain": plain, "lines": lines}


def binned(found: list[dict[str, Any]]) -> Iterator[str]:
    """Points of accuracy above always the majority, lowest to highest in each bin, as rows of a Markdown table."""
    for one in found:
        cells = []
        for low, high in pairwise(BINS):
            inside = [line for line in one["lines"] if low <= line["noise_to_signal"] < high]
            gains = [f"{100 * (line['accuracy'] - line['majority']):.1f}" for line in inside]
            ends = dict.fromkeys((min(gains, key=float), max(gains, key=float)) if gains else ())
            cells.append(" to ".join(ends))
        majority = 100 * np.mean([line["majority"] for line in one["lines"]])
        facts = [one["set"], f"{one['signal']:.3f}", f"{one['signal_plain']:.3f}", f"{majority:.1f}"]
        yield f"| {' | '.join([*facts, *cells])} |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, default=os.environ.get("PRIVADMM_DATA"))
    options.add_argument("--json", action="store_true")
    options.add_argument("--seeds", type=int, default=4)
    options.add_argument("--parties", type=int, nargs="+", default=[10, 100])
    options.add_argument("--epsilon", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
    options.add_argument("--only", nargs="+", default=SETS)
    chosen = options.parse_args()
    warnings.simplefilter("ignore", BudgetWarning)
    folder = None if chosen.data is None else Path(chosen.data)
    found = []
    for name in chosen.only:
        one = study(name, folder, chosen.parties, chosen.epsilon, chosen.seeds)
        if one is None:
            continue
        found.append(one)
        if chosen.json:
            continue
        print(f"\n{name}: {one['train']} to train on, c = {one['signal']:.3f}, plain {one['signal_plain']:.3f}")
        for line in one["lines"]:
            print(
                f"{line['parties']:>5} parties  epsilon {line['epsilon']:<5g} noise/signal "
                f"{line['noise_to_signal']:<6.2g} {line['verdict']:<10} accuracy {100 * line['accuracy']:.1f} "
                f"majority {100 * line['majority']:.1f}  share {line['share']:.2f}",
                flush=True,
            )
    if chosen.json:
        print(json.dumps({"delta": DELTA, "seeds": chosen.seeds, "sets": found}))
    else:
        print("", *binned(found), sep="\n")


if __name__ == "__main__":
    main()
