"""Text for a terminal: labelled facts and tables, with colours if the terminal has them, and nothing hidden.

Rich draws it. It is imported when something is drawn, so a command with --json does not load it.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privadmm.errors import visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

# A label and its value: prose in rich's markup, a path, which is never wrapped, or None, which gives no line.
Facts = list[tuple[str, str | Path | None]]
COLOURS = {"good": "green", "thin": "yellow", "too small": "bold red"}


def shown(*parts: "Table | list[Text]") -> str:
    """Draw tables and lines as text for standard output; plain unless that is a terminal."""
    screen = console()
    with screen.capture() as captured:
        for part in parts:
            if isinstance(part, list):
                for line in part:
                    screen.print(line, soft_wrap=True)
            else:
                screen.print(part)
    return captured.get()


def console() -> "Console":
    from rich.console import Console

    return Console(highlight=False, emoji=False)


def rows(facts: Facts) -> "list[Text]":
    """A line for each fact that has a value; prose is wrapped under itself."""
    from rich.text import Text

    told = [
        (visible(label), Path(visible(value)) if isinstance(value, Path) else visible(value, "\n"))
        for label, value in facts
        if value is not None
    ]
    width = 2 + max(len(label) for label, _ in told)
    room, lines = max(20, min(console().width, 100) - width), list[Text]()
    for label, value in told:
        prose = [Text(str(value))] if isinstance(value, Path) else wrapped(Text.from_markup(value, emoji=False), room)
        labels = [label] + [""] * (len(prose) - 1)
        lines += [Text.assemble((f"{name:<{width}}", "dim"), part) for name, part in zip(labels, prose, strict=True)]
    return lines


def wrapped(text: "Text", width: int) -> "list[Text]":
    lines = list(text.wrap(console(), width))
    for line in lines:
        line.rstrip()
    return lines


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], left: Collection[str] = (), no_wrap: bool = False
) -> "Table":
    """A table whose columns are aligned to the right, except for those named in `left`."""
    from rich.table import Table

    made = Table(title=visible(title, "\n"), title_justify="left")
    for name in columns:
        made.add_column(visible(name), justify="left" if name in left else "right", no_wrap=no_wrap, overflow="fold")
    for row in rows:
        made.add_row(*(visible(cell, "\n") for cell in row))
    return made


def escape(text: object) -> str:
    """Text in which brackets are no markup."""
    from rich.markup import escape

    return escape(str(text))


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Seconds in a unit that suits them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def verdict(word: str) -> str:
    return f"[{COLOURS[word]}]{word}[/]"


def given(words: str, value: Any) -> str | None:
    """Put the value into the words; None if there is no value."""
    return None if value is None else words.format(value)


def alarm(text: object) -> str | None:
    """A warning in red; None if there is none."""
    return None if text is None else f"[bold red]{escape(text)}[/]"


def alike(parties: list[dict[str, Any]], first: str, second: str) -> Iterator[tuple[str, Any, Any]]:
    """Group neighbouring parties that have the same two figures: their label, and the figures."""
    for figures, group in groupby(parties, key=lambda party: (party[first], party[second])):
        ids = [party["party"] for party in group]
        yield (f"party {ids[0]}" if len(ids) == 1 else f"parties {ids[0]} to {ids[-1]}"), *figures


def federation_command(name: str, *words: object) -> str:
    """A command of `privadmm federation` with its arguments, to be typed in a shell."""
    return shlex.join(["privadmm", "federation", name, *map(str, words)])
