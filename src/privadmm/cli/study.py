"""`privadmm compare`, `theory` and `tradeoff`: methods side by side, and the papers' theorems beside measurements."""

from functools import partial
from pathlib import Path
from typing import Annotated

import click
from typer import Argument, Option

from privadmm.cli.output import AsJson, ConfigFile, bar, finish, new_folder, numbers, warn
from privadmm.config.file import read


def compare(
    configs: Annotated[list[Path], Argument(metavar="CONFIG.toml...", help="methods on the same \\[data]")],
    epsilon: Annotated[
        list[float] | None, Option(help="what each party may lose in all, in place of the files'; a table for each")
    ] = None,
    delta: Annotated[float | None, Option(help="with what probability it may be more, in place of the files'")] = None,
    parties: Annotated[
        int | None, Option(min=2, help="how many, in place of the files'; random graphs keep their density")
    ] = None,
    seeds: Annotated[int, Option(min=1, help="noise seeds to average over")] = 10,
    published: Annotated[
        bool, Option("--published/--certified-only", help="each paper's own noise for this claim, too")
    ] = True,
    out: Annotated[Path | None, Option(help="where to put comparison.json and its picture")] = None,
    as_json: AsJson = False,
) -> None:
    """Run several configs at one budget, certified and as published, and rank them by test accuracy."""
    from privadmm.cli.views import study as view
    from privadmm.privacy.meaning import large_epsilon
    from privadmm.runs.compare import compare as tables
    from privadmm.runs.compare import with_parties

    new_folder(out)
    with bar("runs") as update:
        chosen = [with_parties(read(path), parties) for path in configs]
        result = tables(chosen, epsilon, delta, seeds, published, update)
    asked = [table["epsilon"] for table in result["tables"] if table["epsilon"] is not None]
    warn(large_epsilon(max(asked, default=None)))
    finish(result, out, as_json, view.save_comparison, view.compare)


def theory(
    config: ConfigFile,
    seeds: Annotated[int, Option(min=1, help="runs, each with noise of its own, to average over")] = 20,
    beta: Annotated[float, Option(help="dp_admm: weight of the distance from consensus")] = 1.0,
    radius: Annotated[
        float | None, Option(help="pdml: ball in which classifiers lie; that of every optimum if left out")
    ] = None,
    confidence: Annotated[float, Option(help="pdml: with what probability its bound may fail")] = 0.05,
    out: Annotated[Path | None, Option(help="where to put theory.json and its picture")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the utility theorem of CONFIG.toml's paper (dp_admm, pdml) and measure beside it what it bounds."""
    from privadmm.cli.views import study as view
    from privadmm.papers.framework import theory_figures
    from privadmm.papers.framework.theorems import study

    chosen = read(config)
    new_folder(out)
    with bar("rounds") as update:
        result = study(chosen, seeds, beta, radius, confidence, update)
    finish(result, out, as_json, partial(theory_figures.save, name="theory"), view.theory)


def tradeoff(
    config: ConfigFile,
    alphas: Annotated[str | None, Option(help="privacy of one round, four or more; default 0.01,0.02,...,1")] = None,
    seeds: Annotated[int, Option(min=1, help="runs, each with noise of its own, to average over")] = 5,
    rounds: Annotated[str | None, Option(help="after which rounds to measure, as 5,10; default the last")] = None,
    weights: Annotated[str | None, Option(help="omega_p1 to omega_p4 of the utility; default the paper's")] = None,
    out: Annotated[Path | None, Option(help="where to put tradeoff.json and its picture")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a dvp CONFIG.toml over alphas, fit the paper's curve of loss, and find the alpha of best utility."""
    from privadmm.cli.views import study as view
    from privadmm.papers.dvp.tradeoff import ALPHAS, WEIGHTS, Weights
    from privadmm.papers.dvp.tradeoff import tradeoff as trade
    from privadmm.papers.framework import theory_figures

    omegas = numbers("--weights", weights, float) or WEIGHTS
    if len(omegas) != 4:
        raise click.UsageError(f"--weights takes four numbers, as 0.02,6,9,1, not {len(omegas)}")
    grid, marks = numbers("--alphas", alphas, float) or ALPHAS, numbers("--rounds", rounds, int)
    chosen = read(config)
    new_folder(out)
    with bar("runs") as update:
        result = trade(chosen, grid, seeds, marks, Weights(*omegas), update)
    finish(result, out, as_json, partial(theory_figures.save, name="tradeoff"), view.tradeoff)
