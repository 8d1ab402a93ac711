"""`privadmm train` and `demo` run a job; `account`, `plan` and `audit` say what it costs, and read no records."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
from typer import Option

from privadmm.cli.output import AsJson, ConfigFile, Records, bar, emit, say, warn
from privadmm.config.file import override, read
from privadmm.errors import InterruptedRunError

if TYPE_CHECKING:
    from privadmm.engine.job import Job
    from privadmm.engine.loop import Callback


def train(
    config: ConfigFile,
    engine: Annotated[str | None, Option(help="what runs the parties: inprocess or dask")] = None,
    scheduler: Annotated[
        str | None, Option(metavar="ADDRESS", help="of Dask; tls://HOST:PORT in place of the file's")
    ] = None,
    seed: Annotated[int | None, Option(help="seed of a simulation, in place of the file's")] = None,
    out: Annotated[Path | None, Option(help="the run directory; default runs/CONFIG-TIME")] = None,
    resume: Annotated[bool, Option("--resume", help="go on with the run in --out")] = False,
    purpose: Annotated[str | None, Option(help="what the run is for, in place of the file's")] = None,
    requester: Annotated[str | None, Option(help="who asks for it, in place of the file's")] = None,
    as_json: AsJson = False,
) -> None:
    """Train as CONFIG.toml says; leave config, metrics, model, ledger and plots in a run directory."""
    from privadmm.cli.views import runs
    from privadmm.runs.run import default_out, run

    said = {"purpose": purpose, "requester": requester}
    chosen = override(read(config), seed=seed, engine=engine, scheduler=scheduler, out=out, **said)
    if scheduler is not None and chosen.run.engine != "dask":
        raise click.UsageError("--scheduler goes with --engine dask")
    if resume and chosen.run.out is None:
        raise click.UsageError("--resume needs --out, the directory of the run to go on with")
    place = Path(chosen.resolve(chosen.run.out)) if chosen.run.out else default_out(chosen)
    try:
        done = run(chosen, place, resume, bar=progress_bar)
    except InterruptedRunError as error:
        if not error.kept:
            raise
        options = {"--engine": engine, "--scheduler": scheduler, "--seed": seed, "--out": place}
        options |= {"--purpose": purpose, "--requester": requester}
        given = [str(word) for pair in options.items() if pair[1] is not None for word in pair]
        again = shlex.join(["privadmm", "train", str(config), *given, "--resume"])
        raise InterruptedRunError(f"{error}. Go on with: {again}", kept=True) from None
    warn(done.weak_promise)
    where = f"the run is complete, see {done.directory.result}"
    emit(json.dumps(done.printed) if as_json else runs.run(done), where)


def demo(
    out: Annotated[Path | None, Option(help="where to put the runs; default runs/demo-TIME")] = None,
    as_json: AsJson = False,
) -> None:
    """Train privately on the embedded Adult data, with secure sums and without, beside a non-private model."""
    from privadmm.cli.views import runs
    from privadmm.runs.demo import demonstrate

    made = demonstrate(out, bar=progress_bar)
    printed = {name: done.printed for name, done in made.runs.items()}
    emit(json.dumps(printed) if as_json else runs.demo(made))


def account(config: ConfigFile, records: Records = None, as_json: AsJson = False) -> None:
    """Say what CONFIG.toml costs each party, certified and as published: what train will charge. Reads no file of
    records."""
    from privadmm.cli.views import jobs
    from privadmm.config.build import allowance
    from privadmm.runs.preview import account as cost
    from privadmm.runs.preview import with_records

    chosen = read(config)
    result = cost(with_records(chosen, records))
    emit(json.dumps(result) if as_json else jobs.account(result, allowance(chosen)))


def plan(
    config: ConfigFile,
    epsilon: Annotated[
        float | None, Option(help="what each party may lose in all; \\[privacy] epsilon if left out")
    ] = None,
    delta: Annotated[
        float | None, Option(help="with what probability it may be more; \\[privacy] delta if left out")
    ] = None,
    records: Records = None,
    as_json: AsJson = False,
) -> None:
    """Say what noise CONFIG.toml needs for this budget, what each party spends by round, and whether data of this
    size can stand it. Reads no file of records."""
    from privadmm.cli.views import jobs
    from privadmm.runs.preview import planned, with_records

    result = planned(with_records(read(config), records), epsilon, delta)
    emit(json.dumps(result) if as_json else jobs.plan(result))


def audit(
    config: ConfigFile,
    trials: Annotated[int, Option(min=1000, help="games on each of the two data sets")] = 400_000,
    records: Records = None,
    as_json: AsJson = False,
) -> None:
    """Attack the algorithm of CONFIG.toml, and planted bugs beside it; say what epsilon the attack proves."""
    from privadmm.cli.views import jobs
    from privadmm.runs.preview import audited, with_records

    chosen = with_records(read(config), records)
    with bar("games") as update:
        result = audited(chosen, trials, update)
    emit(json.dumps(result) if as_json else jobs.audit(result))


@contextmanager
def progress_bar(job: "Job", done: int) -> "Iterator[Callback]":
    """Print advice and warnings about the job, then show the progress of its run."""
    from privadmm.algorithms.evaluation_noise import foreseen
    from privadmm.runs.recommend import warnings_of

    if (advice := job.algorithm.advice(job.public)) is not None:
        say(f"{job.algorithm.name}: {advice}")
    if done == 0:
        problems = [*warnings_of(job), (foreseen(job) or {}).get("warning"), hopeless_regression(job)]
        for problem in problems:
            warn(problem)
    rounds = job.public.rounds
    with bar(f"{job.algorithm.name}, round", rounds, done) as update:
        yield lambda view: update(view.progress.round, rounds)


def hopeless_regression(job: "Job") -> str | None:
    """Warn before a deployment spends budget on a regression that noise drowns. A simulation measures that instead."""
    from privadmm.privacy.calibration import Target
    from privadmm.privacy.mechanisms import Simulation
    from privadmm.runs.regression import Noise, of_noise_alone

    target = job.public.privacy
    if job.public.loss.classification or not isinstance(target, Target) or target.kind is Simulation.kind:
        return None
    noise = of_noise_alone(job)
    return noise.warning if isinstance(noise, Noise) else None
