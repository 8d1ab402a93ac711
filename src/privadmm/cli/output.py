"""What commands share: common options, printing of results and warnings, a progress bar."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

import click
import typer
from typer import Argument, Option

from privadmm.errors import OutputError, visible

COLOUR = re.compile("(\x1b\\[[0-9;]*m)")  # what rich draws with; in texts from outside it is spelt out before that
Number = TypeVar("Number", int, float)
ConfigFile = Annotated[Path, Argument(metavar="CONFIG.toml", help="see `privadmm config --schema`")]
Records = Annotated[
    int | None,
    Option(
        min=1,
        help="how many all parties hold together, held-out ones too, in place of \\[parties] records; where parties "
        "hold columns, how many people",
    ),
]
PartyFolder = Annotated[Path, Argument(metavar="DIRECTORY", help="a party's, with party.toml in it")]
AsJson = Annotated[bool, Option("--json", help="print one JSON object, for machines")]


def emit(text: str, otherwise: str = "") -> None:
    """Print the result, or raise an OutputError; `otherwise` says where the result can still be found."""
    try:
        if sys.stdout.isatty():  # a file gets predictions and their labels as they are
            text = "".join(part if COLOUR.fullmatch(part) else visible(part, "\n") for part in COLOUR.split(text))
        sys.stdout.write(text.rstrip("\n") + "\n")
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        hint = f"; {otherwise}" if otherwise else ""
        raise OutputError(f"the result could not be printed ({error.strerror}){hint}") from None


def say(text: object) -> None:
    """Print a line for people, where it does not mix with the result; hidden characters are spelt out."""
    typer.echo(visible(text, "\n"), err=True)


def warn(*problems: str | None) -> None:
    """Print warnings, if there are any, where they do not mix with the result."""
    for problem in problems:
        if problem is not None:
            say(f"warning: {problem}")


def silence(stream: Any) -> None:
    """Discard what is left in the stream's buffer: Python would fail on it again as it ends."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def numbers(option: str, text: str | None, kind: Callable[[str], Number]) -> list[Number]:
    """The numbers that an option lists, as 0.1,0.2; none if it was left out."""
    try:
        return [] if text is None else [kind(word) for word in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option} takes numbers with commas between them, not {text!r}") from None


def new_folder(out: Path | None) -> None:
    """Make the folder of --out before the work begins: an error then costs nothing."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)


def finish(result: Any, out: Path | None, as_json: bool, save: Callable[..., None], text: Callable[..., str]) -> None:
    """Save a result to --out if there is one, and print it."""
    if out is not None:
        new_folder(out)
        save(result, out)
    emit(json.dumps(result) if as_json else text(result, out))


class Update(Protocol):
    """Moves a progress bar."""

    def __call__(self, done: int, total: int | None, now: str | None = None, /) -> None: ...


@contextmanager
def bar(what: str = "", total: int | None = None, done: int = 0, clock: bool = True) -> Iterator[Update]:
    """A progress bar on standard error, if that is a terminal; otherwise nothing.

    `what` is shown before the bar; without it, the `now` of an update is shown after the bar. `clock` adds an estimate
    of the time left, made from the number of things done; switch it off if the caller has a better one.
    """
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda done, total, now=None: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text, ends = TextColumn("{task.description}"), (TimeRemainingColumn(),) if clock else ()
    columns = (BarColumn(), MofNCompleteColumn(), *ends)
    shown = (text, *columns) if what else (*columns, text)
    with Progress(*shown, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(what, total=total, completed=done)
        yield lambda done, total, now=None: display.update(task, completed=done, total=total, description=now)
