"""`privadmm reproduce` and `papers`: the papers' experiments run again, and the papers themselves."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import click
from typer import Argument, Option, echo

from privadmm.cli.output import AsJson, bar, emit, new_folder
from privadmm.cli.views.screen import duration
from privadmm.papers import PAPERS

if TYPE_CHECKING:
    from privadmm.papers.framework.bench import Moment

EVERY = 30.0  # seconds between two lines of progress where there is no terminal


def reproduce(
    name: Annotated[str, Argument(metavar="PAPER", help=f"{', '.join(PAPERS)}, or all")],
    quick: Annotated[bool, Option("--quick", help="fewer seeds, rounds and settings")] = False,
    data_dir: Annotated[
        Path | None, Option(envvar="PRIVADMM_DATA", help="data that the package does not carry; see docs/papers")
    ] = None,
    workers: Annotated[int | None, Option(min=1, help="processes; default one for each core")] = None,
    out: Annotated[Path | None, Option(help="a new or empty folder for the results; default runs/PAPER-TIME")] = None,
    resume: Annotated[bool, Option("--resume", help="go on with the run that was interrupted in --out")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a paper's experiments again: its figures and tables beside the published numbers, and certified.

    It ends with one page, index.html. A run that was killed goes on with --resume: tasks that are done stay done.
    """
    from privadmm.cli.views import study as view
    from privadmm.papers.framework.bench import Setting
    from privadmm.papers.framework.reproduction import PAGE, Reproduction
    from privadmm.papers.framework.store import ABOUT

    if name not in (*PAPERS, "all"):
        raise click.UsageError(f"there is no paper {name!r}: say {', '.join(PAPERS)}, or all")
    if resume and out is None:
        raise click.UsageError("--resume goes on with a run in its folder: say --out FOLDER")
    if not resume and out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        begun = " (to go on with the run in it: --resume)" if (out / ABOUT).is_file() else ""
        raise click.UsageError(
            f"--out {out}: is there already and is not an empty folder; results of two runs are not mixed. Name "
            f"another one, or move it away{begun}"
        )
    place = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    papers = PAPERS if name == "all" else (name,)
    asked = Reproduction(papers, Setting(quick, data_dir), place)
    tasks = asked.tasks  # a missing data set is found here
    if not resume:
        new_folder(place)
    began = monotonic()
    try:
        with progress() as tell:
            studies = asked.run(tasks, resume, workers, tell)
    except KeyboardInterrupt:
        flags = " --quick" if quick else ""
        echo(f"go on with: privadmm reproduce {name}{flags} --resume --out {place}", err=True)
        raise
    records, texts = [], []
    for study in studies:
        where = asked.folder(study.paper)
        brief = {word: value for word, value in study.record.items() if word not in ("figures", "parameters")}
        records.append(brief | {"quick": quick, "out": str(where)})
        texts.append(view.reproduce(study, where, quick))
    seconds = round(monotonic() - began, 1)
    timed = [record | {"seconds_all": seconds} for record in records]
    machine = json.dumps(timed if name == "all" else timed[0])
    told = f"All of it on one page: {place / PAGE}"
    emit(machine if as_json else "\n".join([*texts, told]), f"the results are in {place}")


@contextmanager
def progress() -> "Iterator[Callable[[Moment], None]]":
    """Show how far a run is and how long is left: a bar on a terminal, elsewhere a line now and then.

    Tasks that are done before the first update come from the run that is resumed.
    """
    last, begun = monotonic(), False

    def before(moment: "Moment") -> None:
        nonlocal begun
        if moment.done and not begun:
            echo(f"{moment.done} of {moment.of} tasks were done before", err=True)
        begun = True

    def lines(moment: "Moment") -> None:
        nonlocal last
        before(moment)
        if monotonic() - last >= EVERY:
            last = monotonic()
            echo(f"{moment.done} of {moment.of} tasks; {left(moment.left)}", err=True)

    if not (sys.stderr and sys.stderr.isatty()):
        yield lines
        return
    with bar(clock=False) as update:

        def draw(moment: "Moment") -> None:
            before(moment)
            update(moment.done, moment.of, "; ".join([left(moment.left), *moment.now]))

        yield draw


def left(seconds: float | None) -> str:
    """How long is left, in words."""
    return "time left unknown yet" if seconds is None else f"about {duration(max(seconds, 1.0))} left"


def papers(
    bibtex: Annotated[bool, Option("--bibtex", help="print entries for a bibliography")] = False,
    as_json: AsJson = False,
) -> None:
    """List the papers: where they appeared, and how many of their claims held in the last full run."""
    from privadmm.cli.views import study as view
    from privadmm.papers import references

    if bibtex:
        emit(references.bibliography())
        return
    emit(json.dumps(references.listed()) if as_json else view.papers(references.listed()))
