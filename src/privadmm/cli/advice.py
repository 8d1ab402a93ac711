"""`privadmm recommend`, `frontier` and `scale`: what to expect of a method, from public facts. None touches data."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from typer import Argument, Option

from privadmm.cli.output import AsJson, ConfigFile, Records, emit, finish, numbers
from privadmm.config.file import read

if TYPE_CHECKING:
    from privadmm.runs.recommend import Facts

MaybeConfig = Annotated[Path | None, Argument(metavar="[CONFIG.toml]", help="has the facts; or give them below")]
Parties = Annotated[int | None, Option(min=1, help="how many, if there is no config")]
Delta = Annotated[float | None, Option(help="with what probability it may be more; 1e-6 without a config")]
Signal = Annotated[float | None, Option(help="how much labels say about features, between 0 and 1; 1/6 if left out")]


def recommend(
    config: MaybeConfig = None,
    records: Records = None,
    parties: Parties = None,
    epsilon: Annotated[float | None, Option(help="what each party may lose; the config's if left out")] = None,
    delta: Delta = None,
    signal: Signal = None,
    as_json: AsJson = False,
) -> None:
    """Recommend method, rounds and encoding for two classes, and say whether data of this size can stand the noise.

    Without a config the verdict is that of secure sums, from three parties on; each party's own noise stands beside it.
    """
    from privadmm.cli.views import advice
    from privadmm.runs.recommend import SIGNAL
    from privadmm.runs.recommend import recommend as advise

    facts = known(config, records, parties, epsilon, delta)
    if config is None:  # judge the config that `init` would write
        facts = replace(facts, sum=facts.instead)
    result = advise(facts, SIGNAL if signal is None else signal).table
    emit(json.dumps(result) if as_json else advice.recommendation(result))


def frontier(
    config: MaybeConfig = None,
    records: Records = None,
    parties: Parties = None,
    delta: Delta = None,
    signal: Signal = None,
    epsilons: Annotated[str | None, Option(help="which to look at, as 0.1,0.5,1; 0.05 to 10 if left out")] = None,
    out: Annotated[Path | None, Option(help="where to put frontier.json and frontier.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how noise falls as epsilon grows, and the accuracy that Adult lost at the same noise.

    An estimate for two classes from public facts: Adult's points of accuracy are not those of your data.
    """
    from privadmm.cli.views import advice
    from privadmm.runs.recommend import GRID, SIGNAL
    from privadmm.runs.recommend import frontier as trace

    grid = numbers("--epsilons", epsilons, float) or GRID
    facts = known(config, records, parties, 1.0, delta)  # 1.0 is replaced by the epsilon of each point
    result = trace(facts, grid, SIGNAL if signal is None else signal)
    finish(result, out, as_json, advice.save_frontier, advice.frontier)


def known(
    config: Path | None, records: int | None, parties: int | None, epsilon: float | None, delta: float | None
) -> "Facts":
    """Read the facts from a config, or from the options; these hold out as many records as `init` would."""
    from privadmm.runs.preview import facts, with_records
    from privadmm.runs.recommend import HELD_OUT, Facts

    if config is not None:
        if parties is not None:
            raise click.UsageError("--parties goes without a config, which says how many there are")
        return facts(with_records(read(config), records), epsilon, delta)
    if records is None or parties is None or epsilon is None:
        given = {"--records": records, "--parties": parties, "--epsilon": epsilon}
        missing = " and ".join(option for option, value in given.items() if value is None)
        raise click.UsageError(f"give a CONFIG.toml, or what is missing without one: {missing}")
    limit = 1e-6 if delta is None else delta
    return Facts(records, (epsilon,) * parties, limit, held_out=round(records * HELD_OUT))


def scale(
    config: ConfigFile,
    parties: Annotated[str, Option(help="how many, several with commas")] = "3,10,100,1000,10000,100000",
    engine: Annotated[str, Option(help="whose constants: ideal, dask or flower")] = "flower",
    workers: Annotated[
        int | None, Option(min=1, help="of Dask, which share the parties; without it a party is a node")
    ] = None,
    cores: Annotated[
        int | None, Option(min=1, help="that all nodes share, on one machine; without it each has its own")
    ] = None,
    latency: Annotated[float, Option(help="seconds one way")] = 0.02,
    bandwidth: Annotated[float, Option(help="bytes a second of a party's wire")] = 12.5e6,
    hub: Annotated[float, Option(help="bytes a second of the coordinator's")] = 125e6,
    spread: Annotated[float, Option(help="how unequal parties are: sigma of log latency and work")] = 0.0,
    work: Annotated[float, Option(help="seconds that a party computes in a round")] = 0.01,
    dim: Annotated[int | None, Option(min=1, help="features, where the config does not tell")] = None,
    people: Annotated[int | None, Option(min=1, help="people of vertical parties, if the config does not tell")] = None,
    out: Annotated[Path | None, Option(help="where to put scale.json and scale.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how long a round of CONFIG.toml would take, and what it carries, with ever more parties."""
    from privadmm.cli.views import advice
    from privadmm.config import build, data_source
    from privadmm.config.undeclared import Undeclared
    from privadmm.engine.job import check_holding
    from privadmm.errors import ConfigError
    from privadmm.runs.preview import shape
    from privadmm.runs.scale import ENGINES, Network, of_method

    if engine not in ENGINES:
        raise click.UsageError(f"--engine is one of {', '.join(ENGINES)}, not {engine!r}")
    if workers is not None and engine == "flower":
        raise click.UsageError("--workers goes with --engine dask or ideal: on flower every party is a node")
    counts, chosen = numbers("--parties", parties, int), read(config)
    columns = chosen.parties.split == "features"
    check_holding(chosen.algorithm.parameters, columns)
    declared, names = shape(chosen), data_source.names(chosen)
    d = dim or (None if names is None else len(names))
    n = people or (None if isinstance(declared.dim, Undeclared) else declared.dim)
    if d is None or (columns and n is None):
        raise ConfigError(f"{config}: only the data tell how wide messages are; give --dim{' and --people' * columns}")
    held = declared.parties
    if columns:
        public = build.public(chosen, (n,) * held, n, (-(-d // held),) * held)
    else:
        public = build.public(chosen, declared.sizes, d + (chosen.data.intercept > 0))
    network = Network(latency, bandwidth, hub, spread)
    result = of_method(build.algorithm(chosen), public, d, counts, network, engine, work, workers, cores)
    finish(result, out, as_json, advice.save_scale, advice.scale)
