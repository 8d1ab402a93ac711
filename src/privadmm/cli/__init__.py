"""The command line: its commands, and how failures are reported.

Exit codes: 0 done, 1 a named failure, 2 wrong usage or config, 3 refused by a budget or policy. With --json a command
prints exactly one JSON object on standard output, for failures too: {"error", "message", "exit_code"}. Text for people
then goes to standard error.
"""

import json
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Annotated, NoReturn

import click
import typer
from typer import Option

from privadmm import __version__
from privadmm.cli import process
from privadmm.cli.near_misses import explained
from privadmm.cli.output import emit, say, silence
from privadmm.errors import OutputError, PrivadmmError

# The module of each command, in the order of the help, and the groups of commands, which are modules themselves.
COMMANDS = {
    "demo": "jobs",
    "examples": "data",
    "schema": "data",
    "init": "data",
    "train": "jobs",
    "predict": "data",
    "export": "data",
    "account": "jobs",
    "plan": "jobs",
    "audit": "jobs",
    "recommend": "advice",
    "frontier": "advice",
    "scale": "advice",
    "report": "report",
    "steward": "steward",
    "compare": "study",
    "theory": "study",
    "tradeoff": "study",
    "reproduce": "papers",
    "papers": "papers",
    "bench": "bench",
    "config": "data",
}
GROUPS = ("ledger", "federation")


def program(words: Sequence[str] = ()) -> typer.Typer:
    """Make the program with the command that these words name, or with all commands if they name none.

    Other commands are not loaded: to import them and make their options takes longer than to read a config.
    """
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        suggest_commands=False,  # click does
        help="Differentially private linear models by ADMM, over data that may not move.",
    )
    app.callback()(options)
    known = (*COMMANDS, *GROUPS)
    for name in (words[0],) if words and words[0] in known else known:
        module = import_module(f"privadmm.cli.{COMMANDS.get(name, name)}")
        if name in GROUPS:
            app.add_typer(module.app, name=name)
        else:
            app.command()(getattr(module, name))
    return app


def show_version(wanted: bool) -> None:
    if wanted:
        emit(__version__)
        raise typer.Exit


def options(
    version: Annotated[
        bool, Option("--version", help="print the version", is_eager=True, callback=show_version)
    ] = False,
) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; turn every failure into one message and its exit code."""
    if arguments is None:
        process.prepare()
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    # Show a path that is not valid text with escapes, instead of failing on it.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        # A service that is stopped gets SIGTERM, a terminal that is closed SIGHUP: both end a run as Ctrl-C does.
        for name in ("SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.default_int_handler)
    try:
        code = program(words)(words, prog_name="privadmm", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError:  # which has shown the help
        raise SystemExit(2) from None
    except click.UsageError as error:
        usage = error.ctx.get_usage() if error.ctx else "privadmm --help"
        fail("UsageError", f"{explained(error)}\n{usage}", 2, as_json)
    except PrivadmmError as error:
        fail(type(error).__name__, str(error), error.exit_code, as_json)
    except (KeyboardInterrupt, click.Abort):
        fail("Interrupted", "interrupted", 1, as_json)
    except OSError as error:
        fail(type(error).__name__, f"{error.filename or 'a file'}: {error.strerror or error}", 1, as_json)
    except MemoryError:
        fail("MemoryError", "there is not enough memory for these data on this machine", 1, as_json)
    except Exception as error:
        # The traceback goes to standard error. The JSON leaves out the message, which may quote data.
        sys.excepthook(type(error), error, error.__traceback__)
        fail(type(error).__name__, "unexpected; this is a bug in privadmm", 1, as_json)
    if code == 130:  # what typer makes of a KeyboardInterrupt
        fail("Interrupted", "interrupted", 1, as_json)
    raise SystemExit(code or 0)


def fail(kind: str, message: str, code: int, as_json: bool) -> NoReturn:
    """Print the message, and end with this exit code."""
    if as_json:
        with suppress(OutputError):
            emit(json.dumps({"error": kind, "message": message, "exit_code": code}))
    try:
        typer.secho("privadmm: ", fg="red", bold=True, nl=False, err=True)
        say(message)
    except OSError:
        silence(sys.stderr)
    raise SystemExit(code)
