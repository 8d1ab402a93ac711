"""Points of accuracy that noise costs on Adult, by noise-to-signal: the axis of `privadmm frontier`.

    python benchmarks/accuracy_lost.py                        # says what src/privadmm/runs/accuracy_lost.json holds
    python benchmarks/accuracy_lost.py --run [--keep DIR]     # measures it again (a quarter of an hour on one core)

The recommended method at budgets that are chosen so that `recommend` estimates one and the same noise-to-signal for all
WAYS to have it: more or fewer parties and records, noise of their own or secure sums. What is lost is the distance to
ADMM without privacy on the same records in ten bins, in points of test accuracy; those who are not trained on are the
test. For each way the mean is over splits with one noise seed each. The ways do not agree exactly, since the estimate
leaves out the noise on the moments, the coarser bins and the sampling error: the file has the mean of all ways, and the
least and the most of them. Where a way would need an epsilon beyond EPSILONS it is left out.

Other methods lose other amounts at equal noise. Those of README's picture (docs/pictures/accuracy.json, ten parties,
the same features) stand beside, each by the noise-to-signal of its own plan.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from accuracy import EXAMPLES, bar, configs, secure
from accuracy_picture import DELTA, PLACE, lines
from privadmm.config.file import Config, read
from privadmm.data.adult import load
from privadmm.privacy.sums import SecureSum
from privadmm.runs import accuracy_lost, metrics
from privadmm.runs.compare import accuracy, job_of, prepare, with_parties
from privadmm.runs.recommend import SIGNAL, Facts, expected, needed, recommend

RATIOS = (0.005, 0.01, 0.02, 0.035, 0.05, 0.07, 0.1, 0.15, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)
EPSILONS = (0.002, 20.0)
PEOPLE = len(load())


@dataclass(frozen=True)
class Way:
    """One way to have a noise-to-signal: so many parties with so many records, and who adds the noise."""

    parties: int
    records: int
    sum: SecureSum | None

    @property
    def name(self) -> str:
        how = "own noise" if self.sum is None else "secure sum"
        return f"{self.parties} parties, {self.records} records, {how}"

    def epsilon(self, ratio: float) -> float:
        """The epsilon at which `recommend` estimates this noise-to-signal."""
        start = recommend(Facts(self.records, (1.0,) * self.parties, DELTA, sum=self.sum)).expected.noise_to_signal
        return needed(1.0, DELTA, start / ratio)

    def config(self, epsilon: float, split: int) -> Config:
        """The recommended config at this budget, on so many records of Adult."""
        advice = recommend(Facts(self.records, (epsilon,) * self.parties, DELTA, sum=self.sum))
        config = read(EXAMPLES / "first_order_consensus.toml")
        held_out = {"test_fraction": 1 - self.records / PEOPLE, "split_seed": split, "encoding": advice.encoding}
        config = with_parties(replace(config, data=replace(config.data, **held_out)), self.parties)
        config = config if self.sum is None else secure(config)
        assert config.privacy is not None
        return replace(config, privacy=replace(config.privacy, epsilon=epsilon, delta=DELTA))


WAYS = (
    Way(10, 40_000, None),
    Way(10, 40_000, SecureSum()),
    Way(100, 40_000, None),
    Way(3, 10_000, SecureSum()),
    Way(10, 4_000, None),
    Way(10, 4_000, SecureSum()),
)


def clear(way: Way, split: int) -> tuple[float, float]:
    """Accuracies without privacy, and of always the majority, on the same records."""
    (config,) = (config for config in configs(way.parties, split) if config.path.stem == "non-private, binned")
    config = replace(config, data=replace(config.data, test_fraction=1 - way.records / PEOPLE))
    (prepared,) = prepare([config])
    assert prepared.test is not None
    reached = accuracy(job_of(config, prepared, config.algorithm.parameters), prepared, 0)
    return reached, metrics.majority(prepared.test)


def lost(way: Way, split: int) -> Iterator[float | None]:
    """Points that always the majority loses, then those lost at each of RATIOS; None beyond EPSILONS."""
    reference, majority = clear(way, split)
    yield 100 * (reference - majority)
    held: dict[str, Any] = {}
    for ratio in RATIOS:
        epsilon = way.epsilon(ratio)
        if not EPSILONS[0] <= epsilon <= EPSILONS[1]:
            yield None
            continue
        config = way.config(epsilon, split)
        if config.data.encoding not in held:
            (held[config.data.encoding],) = prepare([config])
        prepared = held[config.data.encoding]
        # At one noise and with one seed a secure sum draws what parties with noise of their own draw together.
        seed = split if way.sum is None else split + 1_000
        yield 100 * (reference - accuracy(job_of(config, prepared, config.algorithm.parameters), prepared, seed))


def kept(way: Way, split: int, folder: Path | None) -> list[float | None]:
    """The same, from the folder if it was measured before."""
    path = None if folder is None else folder / f"{way.name.replace(', ', '-').replace(' ', '_')}-{split}.json"
    if path is not None and path.exists():
        return list(json.loads(path.read_text()))
    found = list(lost(way, split))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return found


def measured(splits: int, folder: Path | None) -> dict[str, Any]:
    """Measure all ways; what FILE holds."""
    ways: dict[str, list[float | None]] = {}
    for way in WAYS:
        with bar(way.name) as done:
            by_split = []
            for split in range(splits):
                by_split.append(kept(way, split, folder))
                done(split + 1, splits)
        columns = zip(*by_split, strict=True)
        ways[way.name] = [None if None in column else float(np.mean(column)) for column in columns]
    lines = []
    for number, ratio in enumerate(RATIOS, 1):
        found = {name: means[number] for name, means in ways.items() if means[number] is not None}
        values = list(found.values())
        lines.append(
            {
                "noise_to_signal": ratio,
                "mean": round(float(np.mean(values)), 3),
                "low": round(min(values), 3),
                "high": round(max(values), 3),
                "ways": {name: round(value, 3) for name, value in found.items()},
            }
        )
    return {
        "what": "points of test accuracy that noise cost on Adult, whose figures these are and nobody else's data",
        "command": accuracy_lost.COMMAND,
        "method": "first_order_consensus with moments, as recommended",
        "delta": DELTA,
        "signal": SIGNAL,
        "splits": splits,
        "majority_loses": round(float(np.mean([means[0] for means in ways.values()])), 3),
        "lines": lines,
        "other_methods": list(others()),
    }


def others() -> Iterator[dict[str, Any]]:
    """What other methods lost in README's picture, by the noise-to-signal of their own plans."""
    found = json.loads((PLACE / "accuracy.json").read_text())
    reference = [cell["mean"] for cell in found["lines"]["non-private, binned"]]
    for config in lines(0):
        name = config.path.stem
        if not name.endswith(" + moments, binned"):
            continue
        (prepared,) = prepare([config])
        for epsilon, cell, plain in zip(found["epsilon"], found["lines"][name], reference, strict=True):
            if cell is None or config.privacy is None:
                continue
            asked = replace(config, privacy=replace(config.privacy, epsilon=epsilon, delta=DELTA))
            estimate = expected(job_of(asked, prepared, asked.algorithm.parameters))
            if estimate is not None:
                yield {
                    "method": name.removesuffix(" + moments, binned"),
                    "epsilon": epsilon,
                    "noise_to_signal": float(f"{estimate.noise_to_signal:.3g}"),
                    "lost": round(100 * (plain - cell["mean"]), 2),
                }


def rows(held: dict[str, Any]) -> Iterator[str]:
    """The table of docs/recommend.md."""
    for line in held["lines"]:
        spread = f"{line['low']:.1f} to {line['high']:.1f}"
        yield f"| {line['noise_to_signal']:g} | {line['mean']:.1f} | {spread} | {len(line['ways'])} |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--run", action="store_true", help="measure again, and write the numbers")
    options.add_argument("--splits", type=int, default=20, help="each with a noise seed of its own")
    options.add_argument("--keep", type=Path, help="a directory: what is in it is not measured again")
    options.add_argument("--only", type=int, nargs="+", help="measure these ways, by number, into --keep, no more")
    options.add_argument("--markdown", action="store_true", help="say it as docs/recommend.md has it")
    options.add_argument("--out", type=Path, default=Path(accuracy_lost.__file__).with_name(accuracy_lost.FILE))
    chosen = options.parse_args()
    for number in chosen.only or ():
        for split in range(chosen.splits):
            kept(WAYS[number], split, chosen.keep)
    if chosen.only:
        return
    if chosen.run:
        chosen.out.write_text(json.dumps(measured(chosen.splits, chosen.keep), indent=1) + "\n")
    held = json.loads(chosen.out.read_text())
    if chosen.markdown:
        print(*rows(held), sep="\n")
        return
    print(f"always the majority loses {held['majority_loses']:.1f} points")
    for line in held["lines"]:
        each = "  ".join(f"{name}: {value:.2f}" for name, value in line["ways"].items())
        print(f"{line['noise_to_signal']:<6g} {line['mean']:6.2f} ({line['low']:.2f} to {line['high']:.2f})  {each}")
    for other in held["other_methods"]:
        print(f"{other['method']:<12} {other['epsilon']:<5g} {other['noise_to_signal']:<7.2g} {other['lost']:.2f}")


if __name__ == "__main__":
    main()
