"""`privadmm scale`: what a round would take with ever more parties, by a model of the network. Touches no data."""

import json
from pathlib import Path
from typing import Annotated

import click
import typer

from privadmm.cli.output import AsJson, ConfigFile, emit, numbers


def scale(
    config: ConfigFile,
    parties: Annotated[
        str, typer.Option(help="how many, several with commas")
    ] = "3,10,100,1000,10000,100000",
    engine: Annotated[str, typer.Option(help="whose constants: ideal, dask or flower")] = "flower",
    latency: Annotated[float, typer.Option(help="seconds one way")] = 0.02,
    bandwidth: Annotated[float, typer.Option(help="bytes a second of a party's wire")] = 12.5e6,
    hub: Annotated[float, typer.Option(help="bytes a second of the coordinator's")] = 125e6,
    spread: Annotated[
        float, typer.Option(help="how unequal parties are: sigma of log latency and work")
    ] = 0.0,
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
    from privadmm import forecast
    from privadmm.assembly import job
    from privadmm.config import read
    from privadmm.errors import ConfigError
    from privadmm.report import scaling
    from privadmm.scale import ENGINES, Network, of_job

    if engine not in ENGINES:
        raise click.UsageError(f"--engine is one of {', '.join(ENGINES)}, not {engine!r}")
    counts = numbers("--parties", parties, int)
    chosen = read(config)
    columns = chosen.parties.split == "features"
    d, n = dim or forecast.width(chosen), people or forecast.records(chosen)
    if d is None or (columns and n is None):
        raise ConfigError(
            f"{config}: only the data tell how wide messages are; give --dim{' and --people' * columns}"
        )
    network = Network(latency, bandwidth, hub, spread)
    made = job(chosen, dim=d)
    if columns:
        assert n is not None
        held = made.public.parties
        made = job(chosen, [n] * held, n, columns=(-(-d // held),) * held)
    result = of_job(made, d, counts, network, engine, work)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        scaling.save(result, out)
    emit(json.dumps(result) if as_json else scaling.shown(result, out))
