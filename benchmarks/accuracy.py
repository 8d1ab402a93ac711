"""What a certified budget buys on Adult: every private method of examples/, and the recommended one, side by side.

    python benchmarks/accuracy.py [--json] [--splits N] [--seeds N] [--parties N ...] [--epsilon E ...] [--only LINE]
                                  [--keep DIR] [--markdown] [--masks]

The whole table takes hours. With --keep, what a split gave is written to a file, and an interrupted run goes on there.

40,000 records to train on and 5,222 to test, delta = 1e-6; one split is worth half a point either way, so the mean is
over several, and over noise seeds on each. The recommended method with its numbers binned (ten bins, or five where
noise is large) and scaled, with a secure sum, and at a curator who holds all records; every other method with the
half-logistic loss, with and without the private moments in front. Parameters are those of the examples, chosen on Adult
itself for all but the recommended method, whose own were fixed on other data. They are for ten parties: where noise is
in the penalty, eta grows with their number, since it has to outweigh the curvature of a smaller party's records. A
budget that a method cannot reach even so is listed below the table.

Secure sums are simulated without their masks, which cancel. --masks trains once for each number of parties and budget
with every party a block of its own, real keys and real masks, and says whether the transcript is the same.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import Progress

from privadmm.cli.views import study as view
from privadmm.config.file import Config, read
from privadmm.engine.block import cluster
from privadmm.engine.job import train
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs.compare import compare, job_of, prepare, with_parties

EXAMPLES = Path(__file__).parents[1] / "examples"
OTHERS = ("dp_admm", "pvp", "dp_fedsgd", "dvp", "m_admm", "r_admm", "mr_admm", "pdml")
OUTWEIGHED = ("m_admm", "r_admm", "mr_admm")
TEST = 5_222 / 45_222


def renamed(config: Config, name: str) -> Config:
    """Its lines in the tables are called by the file's name."""
    return replace(config, path=config.path.with_name(f"{name}.toml"))


def secure(config: Config) -> Config:
    """The config with a secure sum of all parties' messages, a third of whom may collude."""
    assert config.privacy is not None
    return replace(config, privacy=replace(config.privacy, sum="secure"))


def configs(parties: int, split: int) -> list[Config]:
    def prepared(name: str) -> Config:
        config = read(EXAMPLES / f"{name}.toml")
        held_out = replace(config.data, test_fraction=TEST, split_seed=split)
        return with_parties(replace(config, data=held_out), parties)

    recommended = prepared("first_order_consensus")
    found = [
        renamed(
            replace(recommended, data=replace(recommended.data, encoding=encoding)),
            f"recommended, {encoding}",
        )
        for encoding in ("binned", "coarse", "minmax")
    ]
    found += [renamed(secure(config), config.path.stem.replace("recommended", "secure sum")) for config in found]
    found.append(renamed(with_parties(found[0], 1), "curator, binned"))
    plain = prepared("admm_star")
    binned = replace(plain.data, encoding="binned", rows="unit")
    found += [renamed(plain, "non-private"), renamed(replace(plain, data=binned), "non-private, binned")]
    for name in OTHERS:
        config = prepared(name)
        if name in OUTWEIGHED and parties > 10:
            method = config.algorithm.parameters
            larger = replace(method, eta=method.eta * parties / 10)
            config = replace(config, algorithm=replace(config.algorithm, parameters=larger))
        config = replace(config, loss=replace(config.loss, name="half_logistic"))
        found.append(config)
        moments = replace(
            config,
            features=replace(config.features, moments=True, nonnegative=True),
            algorithm=replace(config.algorithm, rounds=config.algorithm.rounds + 1),
            data=replace(config.data, rows="unit", row_bound=None),
        )
        found.append(renamed(moments, f"{name} + moments"))
    return found


def meant(line: dict[str, Any]) -> bool:
    """Whether the line has the noise that its name says: `compare` runs what can be summed securely both ways."""
    return bool((line["calibration"] == "secure sum") == line["config"].startswith("secure sum"))


def pooled(results: list[dict[str, Any]]) -> dict[str, Any]:
    """One result of all splits: every line with its accuracies on all of them."""
    first = results[0]
    tables = []
    for number, table in enumerate(first["tables"]):
        lines = []
        for line in filter(meant, table["lines"]):
            same = [
                other
                for result in results
                for other in filter(meant, result["tables"][number]["lines"])
                if other["config"] == line["config"]
            ]
            found = np.array([value for other in same for value in other["accuracies"]])
            if len(found):
                error = float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else None
                pool = {"accuracy": float(found.mean()), "standard_error": error}
                line = {**line, **pool, "accuracies": found.tolist()}
            lines.append(line)
        lines.sort(key=lambda line: -(line["accuracy"] or 0.0))
        tables.append({**table, "lines": lines})
    majority = float(np.mean([result["majority"] for result in results]))
    return {
        **first,
        "seeds": sum(result["seeds"] for result in results),
        "majority": majority,
        "tables": tables,
    }


def rows(results: dict[int, dict[str, Any]]) -> Iterator[str]:
    """A Markdown table: a row for each line, best first, and a column for each number of parties and budget."""
    columns = [(parties, table) for parties, one in results.items() for table in one["tables"]]
    heads = [f"{parties} parties, {table['epsilon']:g}" for parties, table in columns]
    yield f"| | {' | '.join(heads)} |"
    yield "|---" * (len(columns) + 1) + "|"
    for first in columns[0][1]["lines"]:
        cells = []
        for _, table in columns:
            line = next(line for line in table["lines"] if line["config"] == first["config"])
            error = line["standard_error"] or 0.0
            found = line["accuracy"]
            cells.append("cannot" if found is None else f"{100 * found:.2f} ± {100 * error:.2f}")
        yield f"| {first['config']} | {' | '.join(cells)} |"
    majority = [f"{100 * results[parties]['majority']:.2f}" for parties, _ in columns]
    yield f"| always the majority | {' | '.join(majority)} |"


@contextmanager
def bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task(title)
        yield lambda runs, of: progress.update(task, completed=runs, total=of)


def kept(
    folder: Path | None,
    parties: int,
    split: int,
    lines: list[Config],
    epsilons: list[float],
    seeds: int,
    done: Callable[[int, int], None],
) -> dict[str, Any]:
    """One split, from the folder if it was run before with the same lines, budgets and seeds."""
    asked = {"lines": [config.path.stem for config in lines], "epsilon": epsilons, "seeds": seeds}
    path = None if folder is None else folder / f"{parties}-parties-split-{split}.json"
    if path is not None and path.exists():
        before = json.loads(path.read_text())
        if before["asked"] != asked:
            raise SystemExit(f"{path} is of other lines, budgets or seeds; name another directory for --keep")
        return dict(before["result"])
    result = compare(lines, epsilons, 1e-6, seeds, published=False, done=done)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps({"asked": asked, "result": result}))
        partial.replace(path)
    return result


def masked(parties: int, epsilons: list[float]) -> Iterator[str]:
    """Whether runs with real masks have the transcript of those without, a line for each budget."""
    config = next(config for config in configs(parties, 0) if config.path.stem == "secure sum, binned")
    (prepared,) = prepare([config])
    assert config.privacy is not None
    for epsilon in epsilons:
        asked = replace(config, privacy=replace(config.privacy, epsilon=epsilon, delta=1e-6))
        job = job_of(asked, prepared, asked.algorithm.parameters)
        alone = [[party] for party in range(parties)]
        plain, real = (
            train(job, cluster(job, prepared.train, Simulation(0), parts=parts)).transcript for parts in (None, alone)
        )
        which = "the same" if plain == real else "ANOTHER"
        yield f"{parties} parties, epsilon {epsilon:g}: with real masks {which} transcript"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", action="store_true")
    options.add_argument("--markdown", action="store_true", help="at the end all of it as docs/accuracy.md has it")
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--seeds", type=int, default=4, help="on each split")
    options.add_argument("--parties", type=int, nargs="+", default=[10, 100])
    options.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    options.add_argument("--only", nargs="+", default=[], help="lines whose name begins so")
    options.add_argument("--masks", action="store_true", help="secure sums with real masks, once for each cell")
    options.add_argument("--keep", type=Path, help="a directory: splits that are in it are not run again")
    chosen = options.parse_args()
    for parties in chosen.parties if chosen.masks else ():
        for line in masked(parties, chosen.epsilon):
            print(line, flush=True)
    results = {}
    for parties in chosen.parties:
        found = []
        for split in range(chosen.splits):
            lines = [
                config
                for config in configs(parties, split)
                if not chosen.only or config.path.stem.startswith(tuple(chosen.only))
            ]
            with bar(f"{parties} parties, split {split + 1} of {chosen.splits}") as done:
                found.append(kept(chosen.keep, parties, split, lines, chosen.epsilon, chosen.seeds, done))
        results[parties] = pooled(found)
        if not chosen.json:
            print(f"{parties} parties, {chosen.splits} splits")
            print(view.compare(results[parties], None), flush=True)
    if chosen.json:
        print(json.dumps({"parties": results}))
    if chosen.markdown:
        print("", *rows(results), sep="\n")


if __name__ == "__main__":
    main()
