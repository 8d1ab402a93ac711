"""`privadmm compare`, `theory`, `tradeoff` and `reproduce`: methods side by side, and papers' claims put to test."""

import json
from datetime import datetime
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated

import click
from typer import Argument, Option

from privadmm.cli.output import AsJson, ConfigFile, bar, emit, finish, new_folder, numbers
from privadmm.config.file import read
from privadmm.papers import PAPERS, paper


def compare(
    configs: Annotated[list[Path], Argument(metavar="CONFIG.toml...", help="methods on the same \\[data]")],
    epsilon: Annotated[
        list[float] | None, Option(help="what each party may lose in all, in place of the files'; a table for each")
    ] = None,
    delta: Annotated[float, Option(help="with what probability it may be more")] = 1e-6,
    parties: Annotated[
        int | None, Option(min=2, help="how many, in place of the files'; random graphs keep their density")
    ] = None,
    seeds: Annotated[int, Option(min=1, help="noise seeds to average over")] = 10,
    published: Annotated[
        bool, Option("--published/--certified-only", help="each paper's own noise for this claim, too")
    ] = True,
    out: Annotated[Path | None, Option(help="where to put comparison.json and comparison.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Run several configs at one budget, certified and as published, and rank them by test accuracy."""
    from privadmm.cli.views import study as view
    from privadmm.runs.compare import compare as tables
    from privadmm.runs.compare import with_parties

    new_folder(out)
    with bar("runs") as update:
        chosen = [with_parties(read(path), parties) for path in configs]
        result = tables(chosen, epsilon or [1.0], delta, seeds, published, update)
    finish(result, out, as_json, view.save_comparison, view.compare)


def theory(
    config: ConfigFile,
    seeds: Annotated[int, Option(min=1, help="runs, each with noise of its own, to average over")] = 20,
    beta: Annotated[float, Option(help="dp_admm: weight of the distance from consensus")] = 1.0,
    radius: Annotated[
        float | None, Option(help="pdml: ball in which classifiers lie; that of every optimum if left out")
    ] = None,
    confidence: Annotated[float, Option(help="pdml: with what probability its bound may fail")] = 0.05,
    out: Annotated[Path | None, Option(help="where to put theory.json and theory.png")] = None,
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
    out: Annotated[Path | None, Option(help="where to put tradeoff.json and tradeoff.png")] = None,
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


def reproduce(
    name: Annotated[str, Argument(metavar="PAPER", help=f"{', '.join(PAPERS)}, or all")],
    quick: Annotated[bool, Option("--quick", help="fewer seeds, rounds and settings")] = False,
    data_dir: Annotated[
        Path | None, Option(envvar="PRIVADMM_DATA", help="data that the package does not carry; see docs/papers")
    ] = None,
    workers: Annotated[int | None, Option(min=1, help="processes; default one for each core")] = None,
    out: Annotated[Path | None, Option(help="a new or empty folder for the results; default runs/PAPER-TIME")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a paper's experiments again: its figures and tables beside the published numbers, and certified."""
    from privadmm.cli.views import study as view
    from privadmm.papers.framework import bench, pages
    from privadmm.papers.framework.bench import Setting, Task

    if name not in (*PAPERS, "all"):
        raise click.UsageError(f"there is no paper {name!r}: say {', '.join(PAPERS)}, or all")
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise click.UsageError(
            f"--out {out}: is there already and is not an empty folder; results of two runs are not mixed. Name "
            "another one, or move it away"
        )
    setting, modules = Setting(quick, data_dir), {key: paper(key) for key in (PAPERS if name == "all" else (name,))}
    tasks = [  # a missing data set is found here
        Task((key, task.key), task.run, task.arguments, f"{key}: {task.label}", task.cost, task.may_fail)
        for key, module in modules.items()
        for task in module.tasks(setting)
    ]
    place = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    new_folder(place)
    began = monotonic()
    with bar() as update:
        results = bench.run(tasks, workers, lambda done, of, now: update(done, of, "; ".join(now)))
    records, texts = [], []
    for key, module in modules.items():
        study = module.study(setting, {task: value for (of, task), value in results.items() if of == key})
        where = place / key if name == "all" else place
        pages.save(study, where, quick)
        brief = {word: value for word, value in study.record.items() if word not in ("figures", "parameters")}
        records.append(brief | {"quick": quick, "out": str(where)})
        texts.append(view.reproduce(study, where, quick))
    seconds = round(monotonic() - began, 1)
    timed = [record | {"seconds_all": seconds} for record in records]
    machine = json.dumps(timed if name == "all" else timed[0])
    emit(machine if as_json else "\n".join(texts), f"the results are in {place}")
