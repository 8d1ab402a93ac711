"""`privadmm ledger`: what a data steward does with a party's own file."""

import json
import tomllib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer
from typer import Argument, Option

from privadmm.cli.output import AsJson, emit
from privadmm.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from privadmm.privacy.limits import Limits

app = typer.Typer(
    no_args_is_help=True, help="Make a ledger, look at it, check it, export it, close a job in it, unlock it."
)
File = Annotated[Path, Argument(metavar="FILE", help="a ledger")]


@app.command()
def create(
    file: File,
    parties: Annotated[int, Option(min=1, help="how many parties it is for, numbered from --first")],
    epsilon: Annotated[float, Option(help="what each party may spend, over all jobs")],
    delta: Annotated[float, Option(help="at this delta, fixed for ever")],
    per_job: Annotated[float | None, Option(help="the most that one job may cost")] = None,
    algorithm: Annotated[list[str] | None, Option(help="allow this one (may be repeated)")] = None,
    row_bound: Annotated[float | None, Option(help="the only bound that records may be clipped to")] = None,
    adjacency: Annotated[str, Option(help="between which neighbours it counts, fixed for ever")] = "replace-one",
    label_epsilon: Annotated[float | None, Option(help="randomise labels with this epsilon, once for all jobs")] = None,
    colluding: Annotated[
        int | None, Option(min=1, help="how many who collude secure sums must tolerate; a third if left out")
    ] = None,
    fewest: Annotated[
        int | None, Option(min=2, help="over how few parties a secure sum may be made; nine tenths if left out")
    ] = None,
    first: Annotated[int, Option(min=0, help="the number of the first; 0 unless it is a block's")] = 0,
    limit: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=VALUE",
            help="what a job may ask for: rounds, parties, edges, releases, dim, smallest, largest, tolerance, "
            "condition (may be repeated)",
        ),
    ] = None,
    mode: Annotated[str, Option(help="deployment or simulation")] = "deployment",
    as_json: AsJson = False,
) -> None:
    """Make a ledger with the party's own policy, which every later job has to keep."""
    from privadmm.algorithms import ALGORITHMS
    from privadmm.params import check_positive
    from privadmm.privacy.calibration import Adjacency
    from privadmm.privacy.policy import Budget, Policy
    from privadmm.privacy.sqlite_ledger import SqliteLedger

    if file.exists():
        raise LedgerError(f"{file}: exists already, and a ledger is made once; name another file")
    if mode not in ("deployment", "simulation"):
        raise ConfigError(f"--mode must be deployment or simulation, not {mode!r}")
    if unknown := set(algorithm or ()) - set(ALGORITHMS):
        raise ConfigError(f"--algorithm: {sorted(unknown)[0]!r} is none of {', '.join(ALGORITHMS)}")
    check_positive(epsilon=epsilon)
    if adjacency not in get_args(Adjacency):
        raise ConfigError(f"--adjacency must be one of {', '.join(get_args(Adjacency))}, not {adjacency!r}")
    file.parent.mkdir(parents=True, exist_ok=True)
    allowed, limits = tuple(algorithm) if algorithm else None, limits_of(limit) if limit else None
    neighbours = cast(Adjacency, adjacency)
    budget, sums = Budget(epsilon, delta), (colluding, fewest)
    policy = Policy(budget, per_job, allowed, row_bound, neighbours, label_epsilon, limits, *sums)
    SqliteLedger(file, range(first, first + parties), policy, mode).close()
    show(file, as_json)


@app.command()
def show(file: File, as_json: AsJson = False) -> None:
    """Policy, jobs, and what each party has spent."""
    from privadmm.cli.views import steward

    overview = steward.overview(file)
    emit(json.dumps(overview) if as_json else steward.as_text(overview))


@app.command()
def export(file: File, as_json: AsJson = False) -> None:
    """Every row without the released values: job, round, digest of the inbox, events by party, hash. JSON."""
    from privadmm.cli.views import steward

    emit(json.dumps(steward.rows(file), indent=None if as_json else 1))


@app.command()
def verify(
    file: File,
    against: Annotated[Path | None, Option(metavar="RUNDIR", help="compare the receipts that this run kept")] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute every hash and every total. Exit code 1 if anything does not fit."""
    from privadmm.cli.views import steward
    from privadmm.privacy.verification import verify as look
    from privadmm.runs.rundir import receipts_of

    checked = look(file, receipts_of(against, file) if against else ())
    report = steward.verification(file, checked, against)
    emit(json.dumps(report) if as_json else steward.verified(report))
    if checked.problems:
        raise typer.Exit(1)


@app.command()
def unlock(
    file: File,
    why: Annotated[str, Option("--because", help="what the failure was and why it is safe to go on; kept")],
    as_json: AsJson = False,
) -> None:
    """Let a ledger go on after a step failed. What that step cost stays charged, and its job stays over."""
    from privadmm.cli.views import steward

    if not why.strip():
        raise LedgerError(f"{file}: say with --because what the failure was; it is kept in the ledger")
    with closing(steward.opened(file)) as opened:
        opened.settle()  # a step that was killed is put on record first
        opened.unlock(why)
    show(file, as_json)


@app.command()
def close(file: File, job: Annotated[str, Argument(metavar="JOB")], as_json: AsJson = False) -> None:
    """Give up a job: what it set aside and did not spend is free again, and it can release no more."""
    from privadmm.cli.views import steward

    with closing(steward.opened(file)) as opened:
        opened.settle()
        if job not in opened.jobs():
            raise LedgerError(f"{file}: has no job {job}; `privadmm ledger show {file}` lists them")
        opened.close_job(job)
    show(file, as_json)


def limits_of(pairs: Sequence[str]) -> "Limits":
    """Read NAME=VALUE pairs, each a line of TOML."""
    from privadmm.config.reader import Lines, Report, read_table
    from privadmm.params import fields_of
    from privadmm.privacy.limits import Limits

    text = "\n".join(["[limits]", *pairs])
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--limit takes NAME=VALUE, once for each: {error}") from None
    report = Report("--limit", Lines(text))
    values = read_table(fields_of(Limits), raw["limits"], ("limits",), report)
    report.check()
    return Limits(**(values or {}))
