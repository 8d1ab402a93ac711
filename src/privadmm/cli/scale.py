"""`privadmm scale`: what a round would take with ever more parties, by a model of the network. Touches no data."""

import json
from pathlib import Path
from typing import Annotated

import click
import typer

from privadmm.cli.output import AsJson, ConfigFile, emit, numbers


def scale(
    config: ConfigFile,
    parties: Annotated[str, typer.Option(help="how many, several with commas")] = "3,10,100,1000,10000,100000",
    engine: Annotated[str, typer.Option(help="whose constants: ideal, dask or flower")] = "flower",
    latency: Annotated[float, typer.Option(help="seconds one way")] = 0.02,
    bandwidth: Annotated[float, typer.Option(help="bytes a second of a party's wire")] = 12.5e6,
    hub: Annotated[float, typer.Option(help="bytes a second of the coordinator's")] = 125e6,
    spread: Annotated[float, typer.Option(help="how unequal parties are: sigma of log latency and work")] = 0.0,
    work: Annotated[float, typer.Option(help="seconds that a party computes in a round")] = 0.01,
    dim: Annotated[int | None, typer.Option(min=1, help="features, where the config does not tell")] = None,
    people: Annotated[
        int | None,
        typer.Option(min=1, help="how many, where parties hold columns and the config does not tell"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="where to put scale.json and scale.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Say how long a round of CONFIG.toml would take, and what it carries, with ever more parties."""
    from privadmm.cli.views import scaling
    from privadmm.config import build
    from privadmm.config.file import read
    from privadmm.config.undeclared import Undeclared
    from privadmm.engine.job import check_holding
    from privadmm.errors import ConfigError
    from privadmm.runs.preview import shape
    from privadmm.runs.scale import ENGINES, Network, of_method

    if engine not in ENGINES:
        raise click.UsageError(f"--engine is one of {', '.join(ENGINES)}, not {engine!r}")
    counts = numbers("--parties", parties, int)
    chosen = read(config)
    columns = chosen.parties.split == "features"
    check_holding(chosen.algorithm.parameters, columns)
    known, names = shape(chosen), build.names(chosen)
    d = dim or (None if names is None else len(names))
    n = people or (None if isinstance(known.dim, Undeclared) else known.dim)
    if d is None or (columns and n is None):
        raise ConfigError(f"{config}: only the data tell how wide messages are; give --dim{' and --people' * columns}")
    network, held = Network(latency, bandwidth, hub, spread), known.parties
    public = (
        build.public(chosen, (n,) * held, n, (-(-d // held),) * held)
        if columns
        else build.public(chosen, known.sizes, d + (chosen.data.intercept > 0))
    )
    result = of_method(build.algorithm(chosen), public, d, counts, network, engine, work)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        scaling.save(result, out)
    emit(json.dumps(result) if as_json else scaling.shown(result, out))
