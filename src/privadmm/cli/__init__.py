"""The command line. Exit codes: 0 done, 1 a named failure, 2 wrong usage or config, 3 refused by a budget or policy.

With --json a command prints exactly one JSON object on standard output, for failures too:
{"error", "message", "exit_code"}. What is meant for people goes to standard error then.
"""

import json
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import click
import typer

from privadmm import __version__
from privadmm.cli import advice, data
from privadmm.cli.federation import federation
from privadmm.cli.ledger import ledger
from privadmm.cli.output import AsJson, ConfigFile, emit, numbers, silence
from privadmm.cli.reproduce import reproduce
from privadmm.cli.scale import scale
from privadmm.errors import InterruptedRunError, OutputError, PrivadmmError

if TYPE_CHECKING:
    from privadmm.config.file import Config
    from privadmm.engine.job import Job
    from privadmm.engine.loop import Callback

Records = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="how many to train on, dealt out evenly over all parties, where \\[parties] sizes is not declared",
    ),
]
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click does
    help="Differentially private linear models by ADMM, over data that may not move.",
)
app.add_typer(ledger, name="ledger")
app.add_typer(federation, name="federation")
for command in (data.init, data.schema, data.predict, advice.recommend, advice.frontier):
    app.command()(command)
app.command()(reproduce)
app.command()(scale)


@app.command()
def train(
    config: ConfigFile,
    engine: Annotated[str | None, typer.Option(help="what runs the parties: inprocess or dask")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="of Dask; tls://HOST:PORT in place of the file's")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="seed of a simulation, in place of the file's")] = None,
    out: Annotated[Path | None, typer.Option(help="the run directory; default runs/CONFIG-TIME")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    as_json: AsJson = False,
) -> None:
    """Train as CONFIG.toml says; leave config, metrics, model, ledger and plots in a run directory."""
    from privadmm.runs.run import default_out, run

    chosen = configured(config, seed, engine, out, scheduler)
    if scheduler is not None and chosen.run.engine != "dask":
        raise click.UsageError("--scheduler goes with --engine dask")
    if resume and chosen.run.out is None:
        raise click.UsageError("--resume needs --out, the directory of the run to go on with")
    place = Path(chosen.resolve(chosen.run.out)) if chosen.run.out else default_out(chosen)
    try:
        done = run(chosen, place, resume, bar=progress_bar)
    except InterruptedRunError as error:
        if error.kept:
            options = [("--engine", engine), ("--scheduler", scheduler), ("--seed", seed), ("--out", place)]
            given = [str(word) for pair in options if pair[1] is not None for word in pair]
            again = shlex.join(["privadmm", "train", str(config), *given, "--resume"])
            raise InterruptedRunError(f"{error}. Go on with: {again}", kept=True) from None
        raise
    where = f"the run is complete, see {done.directory.result}"
    if as_json:
        emit(json.dumps(done.printed), where)
    else:
        from privadmm.cli.views import screen

        emit(screen.run(done), where)


@app.command()
def account(config: ConfigFile, records: Records = None, as_json: AsJson = False) -> None:
    """Say what CONFIG.toml costs each party, certified and as published: what train will charge. Reads no file of
    records."""
    from privadmm.runs.preview import account as cost

    chosen = configured(config)
    result = cost(chosen, records)
    if as_json:
        emit(json.dumps(result))
    else:
        from privadmm.cli.views import screen
        from privadmm.config.build import allowance

        emit(screen.account(result, allowance(chosen)))


@app.command()
def plan(
    config: ConfigFile,
    epsilon: Annotated[float, typer.Option(help="what each party may lose in all")],
    delta: Annotated[float, typer.Option(help="with what probability it may be more")],
    records: Records = None,
    as_json: AsJson = False,
) -> None:
    """Say what noise CONFIG.toml needs for this budget, what each party spends by round, and whether data of this
    size can stand it. Reads no file of records."""
    from privadmm.runs.preview import planned

    result = planned(configured(config), epsilon, delta, records)
    if as_json:
        emit(json.dumps(result))
    else:
        from privadmm.cli.views import screen

        emit(screen.plan(result))


@app.command()
def audit(
    config: ConfigFile,
    trials: Annotated[int, typer.Option(min=1000, help="games on each of the two data sets")] = 400_000,
    records: Records = None,
    as_json: AsJson = False,
) -> None:
    """Attack the algorithm of CONFIG.toml, and planted bugs beside it; say what epsilon the attack proves."""
    from privadmm.runs.preview import audited

    with games_bar() as done:
        result = audited(configured(config), trials, done, records)
    if as_json:
        emit(json.dumps(result))
    else:
        from privadmm.cli.views import screen

        emit(screen.audit(result))


@app.command()
def compare(
    configs: Annotated[list[Path], typer.Argument(metavar="CONFIG.toml...", help="methods on the same \\[data]")],
    epsilon: Annotated[
        list[float] | None,
        typer.Option(help="what each party may lose in all, in place of the files'; several give several tables"),
    ] = None,
    delta: Annotated[float, typer.Option(help="with what probability it may be more")] = 1e-6,
    parties: Annotated[
        int | None,
        typer.Option(min=2, help="how many, in place of the files'; random graphs keep their density"),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="noise seeds to average over")] = 10,
    published: Annotated[
        bool, typer.Option("--published/--certified-only", help="each paper's own noise for this claim, too")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="where to put comparison.json and comparison.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Run several configs at one budget, certified and as published, and rank them by test accuracy."""
    from privadmm.cli.views import comparison
    from privadmm.runs.compare import compare as tables
    from privadmm.runs.compare import with_parties

    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with bar("runs", None) as update:
        chosen = [with_parties(configured(path), parties) for path in configs]
        result = tables(chosen, epsilon or [1.0], delta, seeds, published, update)
    if out is not None:
        comparison.save(result, out)
    if as_json:
        emit(json.dumps(result))
    else:
        emit(comparison.shown(result, out))


@app.command()
def theory(
    config: ConfigFile,
    seeds: Annotated[int, typer.Option(min=1, help="runs, each with noise of its own, to average over")] = 20,
    beta: Annotated[float, typer.Option(help="dp_admm: weight of the distance from consensus")] = 1.0,
    radius: Annotated[
        float | None,
        typer.Option(help="pdml: ball in which classifiers lie; that of every optimum if left out"),
    ] = None,
    confidence: Annotated[float, typer.Option(help="pdml: with what probability its bound may fail")] = 0.05,
    out: Annotated[Path | None, typer.Option(help="where to put theory.json and theory.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the utility theorem of CONFIG.toml's paper (dp_admm, pdml) and measure beside it what it bounds."""
    from privadmm.cli.views import theory as view
    from privadmm.papers.framework import theory_figures
    from privadmm.papers.framework.theorems import study

    chosen = configured(config)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with bar("rounds", None) as update:
        result = study(chosen, seeds, beta, radius, confidence, update)
    if out is not None:
        theory_figures.save(result, out, "theory")
    emit(json.dumps(result) if as_json else view.theory_shown(result, out))


@app.command()
def tradeoff(
    config: ConfigFile,
    alphas: Annotated[
        str | None, typer.Option(help="privacy of one round, four or more; default 0.01,0.02,...,1")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="runs, each with noise of its own, to average over")] = 5,
    rounds: Annotated[str | None, typer.Option(help="after which rounds to measure, as 5,10; default the last")] = None,
    weights: Annotated[
        str | None, typer.Option(help="omega_p1 to omega_p4 of the utility of privacy; default the paper's")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="where to put tradeoff.json and tradeoff.png")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a dvp CONFIG.toml over alphas, fit the paper's curve of loss, and find the alpha of best utility."""
    from privadmm.cli.views import theory as view
    from privadmm.papers.dvp.tradeoff import ALPHAS, WEIGHTS, Weights
    from privadmm.papers.dvp.tradeoff import tradeoff as trade
    from privadmm.papers.framework import theory_figures

    omegas = numbers("--weights", weights, float) or WEIGHTS
    if len(omegas) != 4:
        raise click.UsageError(f"--weights takes four numbers, as 0.02,6,9,1, not {len(omegas)}")
    grid, marks = numbers("--alphas", alphas, float) or ALPHAS, numbers("--rounds", rounds, int)
    chosen = configured(config)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    with bar("runs", None) as update:
        result = trade(chosen, grid, seeds, marks, Weights(*omegas), update)
    if out is not None:
        theory_figures.save(result, out, "tradeoff")
    emit(json.dumps(result) if as_json else view.tradeoff_shown(result, out))


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="where to put both runs; default runs/demo-TIME")] = None,
    as_json: AsJson = False,
) -> None:
    """Train privately on the embedded Adult data, beside a non-private model, and show both."""
    from privadmm.runs.demo import demonstrate

    pair = demonstrate(out, bar=progress_bar)
    if as_json:
        emit(json.dumps({"private": pair.private.printed, "reference": pair.reference.printed}))
    else:
        from privadmm.cli.views import screen

        emit(screen.demo(pair))


@app.command("config")
def config_command(
    schema: Annotated[bool, typer.Option("--schema", help="every section and key that a config may have")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the schema of the config file (with --json, as JSON Schema)."""
    from privadmm.config.file import schema_json, schema_text

    if not schema:
        raise click.UsageError("say what to print: --schema")
    emit(json.dumps(schema_json()) if as_json else schema_text())


def show_version(wanted: bool) -> None:
    if wanted:
        emit(__version__)
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option("--version", help="print the version", is_eager=True, callback=show_version),
    ] = False,
) -> None: ...


def configured(
    path: Path,
    seed: int | None = None,
    engine: str | None = None,
    out: Path | None = None,
    scheduler: str | None = None,
) -> "Config":
    from privadmm.config.file import override, read

    return override(read(path), seed=seed, engine=engine, scheduler=scheduler, out=out)


@contextmanager
def bar(what: str, total: int | None, done: int = 0) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on standard error, if that is a terminal; otherwise nothing. Yields update(done, total)."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(what, total=total, completed=done)
        yield lambda done, total: display.update(task, completed=done, total=total)


@contextmanager
def progress_bar(job: "Job", done: int) -> "Iterator[Callback]":
    """The bar of a run, and before it what there is to advise."""
    from privadmm.runs.recommend import warning

    if (advice := job.algorithm.advice(job.public)) is not None:
        typer.echo(f"{job.algorithm.name}: {advice}", err=True)
    if done == 0 and (problem := warning(job)) is not None:
        typer.echo(f"warning: {problem}", err=True)
    rounds = job.public.rounds
    with bar(f"{job.algorithm.name}, round", rounds, done) as update:
        yield lambda view: update(view.progress.round, rounds)


@contextmanager
def games_bar() -> Iterator[Callable[[int, int], None]]:
    with bar("games", None) as update:
        yield lambda done, total: update(done, total)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; turn every failure into one message and its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    # A path that is no valid text has to be shown somehow.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        # Whoever ends a service or closes a terminal is the party's own people, as with Ctrl-C.
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.default_int_handler)
    try:
        code = app(words, prog_name="privadmm", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError:  # which has shown the help
        raise SystemExit(2) from None
    except click.UsageError as error:
        usage = error.ctx.get_usage() if error.ctx else "privadmm --help"
        fail("UsageError", f"{error.format_message()}\n{usage}", 2, as_json)
    except PrivadmmError as error:
        fail(type(error).__name__, str(error), error.exit_code, as_json)
    except (KeyboardInterrupt, click.Abort):
        fail("Interrupted", "interrupted", 1, as_json)
    except OSError as error:
        fail(type(error).__name__, f"{error.filename or 'a file'}: {error.strerror or error}", 1, as_json)
    except MemoryError:
        fail("MemoryError", "there is not enough memory for these data on this machine", 1, as_json)
    except Exception as error:
        # The traceback stays off standard output, and a foreign message, which may quote data, off the JSON.
        sys.excepthook(type(error), error, error.__traceback__)
        fail(type(error).__name__, "unexpected; this is a bug in privadmm", 1, as_json)
    if code == 130:  # what typer makes of a KeyboardInterrupt
        fail("Interrupted", "interrupted", 1, as_json)
    raise SystemExit(code or 0)


def fail(kind: str, message: str, code: int, as_json: bool) -> NoReturn:
    if as_json:
        with suppress(OutputError):
            emit(json.dumps({"error": kind, "message": message, "exit_code": code}))
    try:
        typer.secho("privadmm: ", fg="red", bold=True, nl=False, err=True)
        typer.echo(message, err=True)
    except OSError:
        silence(sys.stderr)
    raise SystemExit(code)
