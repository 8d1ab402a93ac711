"""The command line. Exit codes: 0 done, 1 a named failure, 2 wrong usage or config, 3 refused by a budget or policy."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privadmm.errors import PrivadmmError

if TYPE_CHECKING:
    from rich.console import Console

    from privadmm.config import Config
    from privadmm.drive import Callback
    from privadmm.job import Job

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Differentially private linear models by ADMM, over data that may not move.",
)
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="see `privadmm config --schema`")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object, for machines")]


@app.command()
def train(
    config: ConfigFile,
    engine: Annotated[str | None, typer.Option(help="what runs the parties")] = None,
    seed: Annotated[int | None, typer.Option(help="seed of a simulation, in place of the file's")] = None,
    out: Annotated[Path | None, typer.Option(help="the run directory; default runs/CONFIG-TIME")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on with the run in --out")] = False,
    as_json: AsJson = False,
) -> None:
    """Train as CONFIG.toml says; leave config, metrics, model, ledger and plots in a run directory."""
    from privadmm.run import default_out, run

    chosen = configured(config, seed, engine, out)
    place = Path(chosen.resolve(chosen.run.out)) if chosen.run.out else default_out(chosen)
    try:
        done = run(chosen, place, resume, bar=progress_bar)
    except KeyboardInterrupt:
        again = f"privadmm train {config} --out {place} --resume"
        raise PrivadmmError(f"interrupted; what was released is in the ledger. Go on with: {again}") from None
    if as_json:
        print(json.dumps(done.result))
    else:
        from privadmm.report import screen

        screen.show_run(done)


@app.command()
def account(config: ConfigFile, as_json: AsJson = False) -> None:
    """Say what CONFIG.toml costs each party, certified and as published. Touches no data."""
    from privadmm.run import account as cost

    result = cost(configured(config))
    if as_json:
        print(json.dumps(result))
    else:
        from privadmm.report import screen

        screen.show_account(result)


@app.command()
def demo(
    out: Annotated[Path | None, typer.Option(help="where to put both runs; default runs/demo-TIME")] = None,
    as_json: AsJson = False,
) -> None:
    """Train privately on the embedded Adult data, beside a non-private model, and show both."""
    from privadmm.demo import demonstrate

    pair = demonstrate(out, bar=progress_bar)
    if as_json:
        print(json.dumps({"private": pair.private.result, "reference": pair.reference.result}))
    else:
        from privadmm.report import screen

        screen.show_demo(pair)


@app.command("config")
def config_command(
    schema: Annotated[
        bool, typer.Option("--schema", help="every section and key that a config may have")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the schema of the config file (with --json, as JSON Schema)."""
    from privadmm.config import schema_json, schema_text

    if not schema:
        raise typer.BadParameter("say what to print: --schema")
    print(json.dumps(schema_json()) if as_json else schema_text())


def configured(
    path: Path, seed: int | None = None, engine: str | None = None, out: Path | None = None
) -> "Config":
    from privadmm.config import check_seed, override, read

    config = override(read(path), seed=seed, engine=engine, out=out)
    if config.run.mode == "deployment" or seed is not None:
        check_seed(config)
    return config


def progress_bar(job: "Job", done: int) -> "Callback":
    """A bar on standard error, if that is a terminal; otherwise nothing."""
    console = stderr()
    if not console.is_terminal:
        return lambda view: None
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(f"{job.algorithm.name}, round", total=job.public.rounds, completed=done)
    bar.start()

    def advance(view: Any) -> None:
        bar.update(task, completed=view.progress.round)
        if view.progress.round == view.public.rounds:
            bar.stop()

    return advance


def stderr() -> "Console":
    from rich.console import Console

    return Console(stderr=True)


def main() -> None:
    """Run a command; turn every named failure into one message and its exit code."""
    as_json = "--json" in sys.argv[1:]
    try:
        app()
    except PrivadmmError as error:
        fail(type(error).__name__, str(error), error.exit_code, as_json)
    except KeyboardInterrupt:
        fail("Interrupted", "interrupted", 1, as_json)
    except OSError as error:
        fail(type(error).__name__, f"{error.filename or 'a file'}: {error.strerror or error}", 1, as_json)
    except MemoryError:
        fail("MemoryError", "there is not enough memory for these data on this machine", 1, as_json)


def fail(kind: str, message: str, code: int, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": kind, "message": message, "exit_code": code}))
    stderr().print(f"[bold red]privadmm:[/] {escape(message)}", soft_wrap=True, highlight=False)
    raise SystemExit(code)


def escape(text: str) -> str:
    from rich.markup import escape as rich_escape

    return rich_escape(text)
