"""Printing a result, and seeing that it has gone out."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import click
import typer

from privadmm.errors import OutputError

Number = TypeVar("Number", int, float)
ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="see `privadmm config --schema`")]
AsJson = Annotated[bool, typer.Option("--json", help="print one JSON object, for machines")]


def emit(text: str, otherwise: str = "") -> None:
    """Print the result and see that it has gone out; `otherwise` says where it can still be found."""
    try:
        sys.stdout.write(text.rstrip("\n") + "\n")
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        found = f"; {otherwise}" if otherwise else ""
        raise OutputError(f"the result could not be printed ({error.strerror}){found}") from None


def silence(stream: Any) -> None:
    """What is left in the stream's buffer goes nowhere: Python would fail on it again as it ends."""
    with suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def numbers(option: str, text: str | None, kind: Callable[[str], Number]) -> list[Number]:
    """What an option lists, as 0.1,0.2; nothing if it was left out."""
    try:
        return [] if text is None else [kind(word) for word in text.split(",")]
    except ValueError:
        raise click.UsageError(f"{option} takes numbers with commas between them, not {text!r}") from None
