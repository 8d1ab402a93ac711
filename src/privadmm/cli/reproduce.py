"""`privadmm reproduce`: the papers' experiments, with what they printed beside what comes out."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import click
import typer

from privadmm.cli.output import AsJson, emit
from privadmm.papers import PAPERS, paper

if TYPE_CHECKING:
    from privadmm.papers.framework.bench import Done


def reproduce(
    name: Annotated[str, typer.Argument(metavar="PAPER", help=f"{', '.join(PAPERS)}, or all")],
    quick: Annotated[bool, typer.Option("--quick", help="fewer seeds, rounds and settings")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option(envvar="PRIVADMM_DATA", help="data that the package does not carry; see docs/papers"),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="processes; default one for each core")] = None,
    out: Annotated[
        Path | None, typer.Option(help="a new or empty folder for the results; default runs/PAPER-TIME")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a paper's experiments again: its figures and tables beside the published numbers, and certified."""
    from privadmm.cli.views import study as view
    from privadmm.papers.framework import bench, pages
    from privadmm.papers.framework.bench import Setting, Task

    if name not in (*PAPERS, "all"):
        raise click.UsageError(f"there is no paper {name!r}: say {', '.join(PAPERS)}, or all")
    chosen = PAPERS if name == "all" else (name,)
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise click.UsageError(
            f"--out {out}: is there already and is not an empty folder; results of two runs are not mixed. Name "
            "another one, or move it away"
        )
    setting = Setting(quick, data_dir)
    modules = {one: paper(one) for one in chosen}
    listed = {one: module.tasks(setting) for one, module in modules.items()}  # what is missing is found here
    place = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    place.mkdir(parents=True, exist_ok=True)
    tasks = [
        Task((one, task.key), task.run, task.arguments, f"{one}: {task.label}", task.cost, task.may_fail)
        for one, some in listed.items()
        for task in some
    ]
    began = monotonic()
    with tasks_bar() as done:
        results = bench.run(tasks, workers, done)
    records, texts = [], []
    for one, module in modules.items():
        found = module.study(setting, {key: value for (of, key), value in results.items() if of == one})
        where = place / one if name == "all" else place
        pages.save(found, where, quick)
        brief = {key: value for key, value in found.record.items() if key not in ("figures", "parameters")}
        records.append(brief | {"quick": quick, "out": str(where)})
        texts.append(view.shown(found, where, quick))
    seconds = round(monotonic() - began, 1)
    if as_json:
        timed = [record | {"seconds_all": seconds} for record in records]
        emit(json.dumps(timed if name == "all" else timed[0]), f"the results are in {place}")
    else:
        emit("\n".join(texts), f"the results are in {place}")


@contextmanager
def tasks_bar() -> "Iterator[Done]":
    """What is running, how much is done and how long it may take; nothing where nobody looks."""
    if not (sys.stderr and sys.stderr.isatty()):
        yield lambda done, of, now: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)

        def update(done: int, of: int, now: Sequence[str]) -> None:
            display.update(task, completed=done, total=of, description="; ".join(now))

        yield update
