"""`privadmm federation run`, `status`, `stop`, `logs`: a run at the coordinator; `rehearse`: all of it on one machine.

The exit code is the run's: 0 it finished, 1 a named failure, also a run that was stopped, 2 its config, 3 refused by a
budget or policy.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from privadmm.cli.output import AsJson, ConfigFile, emit, say

Place = Annotated[Path, Argument(metavar="DIRECTORY", help="the coordinator's, or its federation's")]
Absent = Literal["wait", "continue", "abort"]
QUIET = 10.0  # seconds after which a line repeats which parties are waited for
Show = Callable[[dict[str, Any]], None]


def run(
    directory: Place,
    out: Annotated[str, Option(metavar="runs/NAME", help="the run directory, inside the coordinator's")] = "runs/first",
    resume: Annotated[bool, Option("--resume", help="go on with the run in --out")] = False,
    absent: Annotated[
        Absent | None, Option(help="what to do about a party that does not answer in time; abort if left out")
    ] = None,
    timeout: Annotated[float | None, Option(min=1.0, help="seconds that a party may take to answer")] = None,
    detach: Annotated[bool, Option("--detach", help="do not wait for its end")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run of the coordinator's job, and show how it goes. Ctrl-C only stops watching: the run goes on."""
    from privadmm.cli.views import runs_of_federation as view
    from privadmm.deploy.federation.layout import coordinator_in
    from privadmm.runs import asking

    place = coordinator_in(directory)
    fresh = asking.start(place, out, resume, absent, timeout)
    if fresh:
        say(f"registered: {', '.join(fresh)}")
    if detach:
        said = {"state": "starting", "out": str(place.folder / out), "exit_code": 0}
        emit(json.dumps(said) if as_json else f"submitted; `privadmm federation status {directory}` shows it")
        return
    status: dict[str, Any] = {}
    try:
        with showing() as show:
            for status in asking.follow(place):
                show(status)
    except KeyboardInterrupt:
        said = {"state": "detached", "out": str(place.folder / out), "exit_code": 1}
        if as_json:
            emit(json.dumps(said))
        say(
            f"privadmm: not watched any more; the run goes on. `privadmm federation status {directory}` shows it, and "
            "`stop` ends it"
        )
        raise typer.Exit(1) from None
    finish(status, as_json, view)


def finish(status: dict[str, Any], as_json: bool, view: Any) -> None:
    """Print how a run ended; the exit code says so too."""
    code = int(status.get("exit_code") or 0)
    if status.get("state") == "finished":
        result = json.loads((Path(status["out"]) / "result.json").read_text(encoding="utf-8"))
        emit(json.dumps({**status, "transcript": result["transcript"]}) if as_json else view.finished(status, result))
        return
    if as_json:
        emit(json.dumps(status))
    typer.secho("privadmm: ", fg="red", bold=True, nl=False, err=True)
    say(status.get("message") or f"the run ended with {status.get('error')}; see its log")
    raise typer.Exit(code or 1)


@contextmanager
def showing() -> Iterator[Show]:
    """Show where a run stands, on standard error: a live table on a terminal, else a line for each change.

    Lines about rounds come after every tenth of the run, and after the last round.
    """
    from privadmm.cli.views import runs_of_federation as view

    if not sys.stderr.isatty():
        last, done, moved = "", 0, 0.0

        def tell(status: dict[str, Any]) -> None:
            nonlocal last, done, moved
            line, waited = view.milestone(status), status.get("waiting_for")
            if (status.get("round") or 0) != done:
                done, moved = status.get("round") or 0, time.monotonic()
            # The list of awaited parties changes with every answer: print it only if a round takes long.
            if line != last or (waited and time.monotonic() - moved > QUIET):
                last, moved = line, time.monotonic()
                say(view.headline(status))

        yield tell
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=4) as display:
        yield lambda status: display.update(view.live(status))


def status(directory: Place, as_json: AsJson = False) -> None:
    """Show where the latest run stands. A run whose process is gone is shown as interrupted."""
    from privadmm.cli.views import runs_of_federation as view
    from privadmm.deploy.federation.hub.state import standing
    from privadmm.deploy.federation.layout import coordinator_in

    current = standing(coordinator_in(directory))
    emit(json.dumps(current) if as_json else view.shown(current))
    if code := int(current.get("exit_code") or 0):
        raise typer.Exit(code)


def stop(
    directory: Place,
    for_good: Annotated[
        bool, Option("--for-good", help="end its job at the parties too: what it did not spend is free again")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stop the run at the next moment. It can be resumed, unless it is stopped for good."""
    from privadmm.deploy.federation.layout import coordinator_in
    from privadmm.runs import asking

    ended = asking.stop(coordinator_in(directory), for_good)
    emit(json.dumps(ended) if as_json else str(ended.get("message") or f"the run had {ended['state']} before"))


def logs(
    directory: Place,
    follow: Annotated[bool, Option("--follow", "-f", help="go on with what is added")] = False,
    last: Annotated[int | None, Option("--last", "-n", min=1, help="only so many lines")] = None,
    as_json: Annotated[bool, Option("--json", help="a JSON object for each line")] = False,
) -> None:
    """Show the coordinator's log: a line for each event of its runs."""
    from privadmm.cli.views import runs_of_federation as view
    from privadmm.deploy.federation.layout import coordinator_in
    from privadmm.runs import asking

    try:
        for event in asking.log_lines(coordinator_in(directory), follow, last):
            emit(json.dumps(event) if as_json else view.line(event))
    except KeyboardInterrupt:
        if not follow:
            raise


def rehearse(
    config: ConfigFile,
    out: Annotated[
        Path | None, Option(help="a new directory for all of it; default runs/rehearsal-CONFIG-TIME")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try the whole federation on this machine: all its processes, the run, and the same job in one process."""
    from privadmm.cli.views import runs_of_federation as view
    from privadmm.config.file import read
    from privadmm.runs.rehearsal import rehearse as act

    with showing() as show:
        done = act(read(config), out, show)
    emit(json.dumps(done) if as_json else view.rehearsal(done))
    if not done["good"]:
        raise typer.Exit(1)


COMMANDS = (run, status, stop, logs, rehearse)
