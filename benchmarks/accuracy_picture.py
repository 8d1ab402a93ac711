"""README's picture: test accuracy on Adult by epsilon, for who adds how much noise, and for other methods.

    python benchmarks/accuracy_picture.py            # draw it again from docs/pictures/accuracy.json (a second)
    python benchmarks/accuracy_picture.py --run      # run it again first (about fifteen minutes on one core)

Ten parties, 40,000 records to train on and 5,222 to test, delta = 1e-6, five splits with four noise seeds each. All
lines have the same features: numbers in ten bins, unit rows, and the private moments in front, which are part of every
budget. Parameters are those of the examples: the recommended method's were fixed on other data, the others' chosen on
Adult with scaled numbers. The file also holds every other method as its example has it, with scaled numbers and
without moments, and DP-FedSGD without moments.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import OTHERS, bar, configs, kept, pooled, renamed

from privadmm.config.file import Config
from privadmm.runs.palette import THEMES, Theme
from privadmm.runs.style import finish, picture

PLACE = Path(__file__).parents[1] / "docs" / "pictures"
EPSILONS = [0.1, 0.25, 0.5, 1.0, 2.0]
PARTIES, DELTA = 10, 1e-6
OURS = ("curator, binned", "secure sum, binned", "recommended, binned", "non-private, binned")
PAPERS = tuple(name for name in OTHERS if name != "dp_fedsgd")


def lines(split: int) -> list[Config]:
    """Every method on the features of the recommended one, and as its example has it."""
    by_name = {config.path.stem: config for config in configs(PARTIES, split)}
    found = [by_name[name] for name in OURS]
    for name in OTHERS:
        found += [by_name[name], binned(by_name[f"{name} + moments"], f"{name} + moments, binned")]
    return [*found, binned(by_name["dp_fedsgd"], "dp_fedsgd, binned")]


def binned(config: Config, name: str) -> Config:
    return renamed(replace(config, data=replace(config.data, encoding="binned", rows="unit", row_bound=None)), name)


def run(splits: int, seeds: int, keep: Path | None) -> dict[str, Any]:
    """Train everything; the mean of every line by epsilon, and the standard error over splits."""
    results = []
    for split in range(splits):
        with bar(f"split {split + 1} of {splits}") as done:
            results.append(kept(keep, PARTIES, split, lines(split), EPSILONS, seeds, done))
    both = pooled(results)
    names = [line["config"] for line in both["tables"][0]["lines"]]
    facts = {"data": "Adult, 40,000 records to train on and 5,222 to test", "parties": PARTIES, "delta": DELTA}
    return {
        **facts,
        "epsilon": EPSILONS,
        "splits": splits,
        "seeds_per_split": seeds,
        "majority": both["majority"],
        "lines": {name: [summary(table, name, splits) for table in both["tables"]] for name in sorted(names)},
    }


def summary(table: dict[str, Any], name: str, splits: int) -> dict[str, Any] | None:
    """Mean accuracy of a line at one budget, and the range of its means by split; None where no noise reaches it."""
    (line,) = (line for line in table["lines"] if line["config"] == name)
    if line["accuracy"] is None:
        return None
    by_split = np.reshape(line["accuracies"], (splits, -1)).mean(axis=1)
    spread = float(by_split.std(ddof=1) / np.sqrt(splits)) if splits > 1 else None
    return {"mean": float(line["accuracy"]), "standard_error": spread, "by_split": by_split.tolist()}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--run", action="store_true", help="train again, and write the numbers")
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--seeds", type=int, default=4, help="on each split")
    options.add_argument("--keep", type=Path, help="a directory: splits that are in it are not run again")
    options.add_argument("--out", type=Path, default=PLACE, help="where the pictures and their numbers are")
    chosen = options.parse_args()
    numbers = chosen.out / "accuracy.json"
    if chosen.run:
        chosen.out.mkdir(parents=True, exist_ok=True)
        numbers.write_text(json.dumps(run(chosen.splits, chosen.seeds, chosen.keep), indent=1) + "\n")


if __name__ == "__main__":
    main()
