"""What a certified budget buys on Adult: every private method of examples/, and the recommended one, side by side.

    python benchmarks/accuracy.py [--json] [--seeds N] [--parties N ...] [--epsilon E ...]

40,000 records to train on and 5,222 to test, delta = 1e-6. The recommended method with its numbers binned (ten bins, or
five where noise is large) and scaled; every other method with the half-logistic loss where its proof allows it, with
and without the private moments in front. Parameters are those of the examples, chosen on Adult itself for all but the
recommended method, whose own were fixed on other data.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path

from privadmm.compare import compare, with_parties
from privadmm.config import Config, read
from privadmm.report import comparison

EXAMPLES = Path(__file__).parents[1] / "examples"
OTHERS = ("dp_admm", "pvp", "dp_fedsgd", "dvp", "m_admm", "r_admm", "mr_admm", "pdml")
TEST = 5_222 / 45_222


def renamed(config: Config, name: str) -> Config:
    """Its lines in the tables are called by the file's name."""
    return replace(config, path=config.path.with_name(f"{name}.toml"))


def configs(parties: int) -> list[Config]:
    def prepared(name: str) -> Config:
        config = read(EXAMPLES / f"{name}.toml")
        held_out = replace(config.data, test_fraction=TEST)
        return with_parties(replace(config, data=held_out), parties)

    recommended = prepared("first_order_consensus")
    found = [
        renamed(
            replace(recommended, data=replace(recommended.data, encoding=encoding)),
            f"recommended, {encoding}",
        )
        for encoding in ("binned", "coarse", "minmax")
    ]
    found.append(renamed(prepared("admm_star"), "non-private"))
    for name in OTHERS:
        config = prepared(name)
        if config.loss.name == "logistic" and name != "pdml":
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


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--json", action="store_true")
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--parties", type=int, nargs="+", default=[10, 100])
    options.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    chosen = options.parse_args()
    results = {}
    for parties in chosen.parties:
        result = compare(configs(parties), chosen.epsilon, 1e-6, chosen.seeds, published=False)
        results[parties] = result
        if not chosen.json:
            print(f"{parties} parties")
            print(comparison.shown(result, None))
    if chosen.json:
        print(json.dumps({"parties": results}))


if __name__ == "__main__":
    main()
