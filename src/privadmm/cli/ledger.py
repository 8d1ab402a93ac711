"""`privadmm ledger`: what a data steward does with a party's ledger file."""

import json
import tomllib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer
from typer import Argument, Option

from privadmm.cli.output import AsJson, emit, warn
from privadmm.errors import ConfigError, LedgerError

# What `amend --drop` may remove, by the name of its option.
DROPPED = {
    "per-job": "per_job",
    "algorithm": "algorithms",
    "row-bound": "row_bound",
    "colluding": "colluding",
    "fewest": "fewest",
}
app = typer.Typer(
    no_args_is_help=True,
    help="Make a ledger, look at it, check it, export it, copy it and put a copy back, amend its policy, close a job, "
    "unlock it. docs/ledger.md has it all.",
)
File = Annotated[Path, Argument(metavar="FILE", help="a ledger")]
Because = Annotated[str, Option("--because", help="why; kept in the ledger")]
PerJob = Annotated[float | None, Option(help="the most that one job may cost")]
Algorithm = Annotated[list[str] | None, Option(help="allow this one (may be repeated)")]
RowBound = Annotated[float | None, Option(help="the only bound that records may be clipped to")]
Colluding = Annotated[
    int | None, Option(min=1, help="how many who collude secure sums must tolerate; a third if left out")
]
Fewest = Annotated[
    int | None, Option(min=2, help="over how few parties a secure sum may be made; nine tenths if left out")
]
Limit = Annotated[
    list[str] | None,
    Option(
        metavar="NAME=VALUE",
        help="what a job may ask for: rounds, parties, edges, releases, dim, smallest, largest, tolerance, "
        "condition (may be repeated)",
    ),
]
SilentDays = Annotated[float | None, Option(help="list jobs that hold budget and were silent for longer; 7 by default")]


@app.command()
def create(
    file: File,
    parties: Annotated[int, Option(min=1, help="how many parties it is for, numbered from --first")],
    epsilon: Annotated[float, Option(help="what each party may spend, over all jobs")],
    delta: Annotated[float, Option(help="at this delta")],
    per_job: PerJob = None,
    algorithm: Algorithm = None,
    row_bound: RowBound = None,
    adjacency: Annotated[str, Option(help="between which neighbours it counts, fixed for ever")] = "replace-one",
    label_epsilon: Annotated[float | None, Option(help="randomise labels with this epsilon, once for all jobs")] = None,
    colluding: Colluding = None,
    fewest: Fewest = None,
    silent_days: SilentDays = None,
    first: Annotated[int, Option(min=0, help="the number of the first; 0 unless it is a block's")] = 0,
    limit: Limit = None,
    mode: Annotated[str, Option(help="deployment or simulation")] = "deployment",
    records: Annotated[
        Path | None, Option(help="the file of records that it counts: a note beside it names this ledger")
    ] = None,
    anew: Annotated[bool, Option("--anew", help="make it though the records or the place have had one")] = False,
    why: Because = "",
    as_json: AsJson = False,
) -> None:
    """Make a ledger with the party's own policy, which every later job has to keep."""
    from privadmm.params import check_positive
    from privadmm.privacy.calibration import Adjacency
    from privadmm.privacy.limits import Limits
    from privadmm.privacy.new_ledger import new_ledger
    from privadmm.privacy.policy import SILENT_DAYS, Budget, Policy

    if mode not in ("deployment", "simulation"):
        raise ConfigError(f"--mode must be deployment or simulation, not {mode!r}")
    if anew and not why.strip():
        raise ConfigError("--anew needs --because: why these records, or this place, get another ledger")
    if records is not None and not records.exists():
        raise ConfigError(f"--records {records}: there is no such file")
    check_algorithms(algorithm)
    check_positive(epsilon=epsilon)
    if adjacency not in get_args(Adjacency):
        raise ConfigError(f"--adjacency must be one of {', '.join(get_args(Adjacency))}, not {adjacency!r}")
    allowed = tuple(algorithm) if algorithm else None
    limits = Limits(**limits_of(limit)) if limit else None
    neighbours, days = cast(Adjacency, adjacency), SILENT_DAYS if silent_days is None else silent_days
    budget, sums = Budget(epsilon, delta), (colluding, fewest)
    policy = Policy(budget, per_job, allowed, row_bound, neighbours, label_epsilon, limits, *sums, days)
    new_ledger(file, range(first, first + parties), policy, mode, records, why if anew else None)
    show(file, as_json)
    warn(*policy.warnings())


@app.command()
def amend(
    file: File,
    why: Because,
    epsilon: Annotated[float | None, Option(help="what each party may spend, over all jobs")] = None,
    delta: Annotated[float | None, Option(help="at this delta, at which all that was spent is counted anew")] = None,
    per_job: PerJob = None,
    algorithm: Algorithm = None,
    row_bound: RowBound = None,
    colluding: Colluding = None,
    fewest: Fewest = None,
    silent_days: SilentDays = None,
    limit: Limit = None,
    drop: Annotated[list[str] | None, Option(help=f"remove this rule: {', '.join(DROPPED)} (may be repeated)")] = None,
    as_json: AsJson = False,
) -> None:
    """Change the policy by a row of the ledger. Spending stays, and open jobs keep what was set aside for them."""
    from privadmm.cli.views import steward
    from privadmm.deploy.federation.desk.agreement import to_follow
    from privadmm.privacy.limits import Limits
    from privadmm.privacy.policy import Budget

    need_reason(file, why)
    check_algorithms(algorithm)
    if unknown := set(drop or ()) - set(DROPPED):
        raise ConfigError(f"--drop: {sorted(unknown)[0]!r} is none of {', '.join(DROPPED)}")
    with closing(steward.opened(file)) as opened:
        old = opened.policy
        if old.budget is None and (epsilon is not None or delta is not None):
            if epsilon is None or delta is None:
                raise ConfigError(f"{file}: has no budget; give it one with --epsilon and --delta")
            budget: Budget | None = Budget(epsilon, delta)
        elif old.budget is None:
            budget = None
        else:
            changes = {"epsilon": epsilon, "delta": delta}
            budget = replace(old.budget, **{name: value for name, value in changes.items() if value is not None})
        given: dict[str, Any] = {
            "per_job": per_job,
            "algorithms": tuple(algorithm) if algorithm else None,
            "row_bound": row_bound,
            "colluding": colluding,
            "fewest": fewest,
            "silent_days": silent_days,
            "limits": replace(old.limits or Limits(), **limits_of(limit)) if limit else None,
        }
        changed: dict[str, Any] = dict.fromkeys(DROPPED[name] for name in drop or ())
        changed |= {name: value for name, value in given.items() if value is not None}
        opened.settle()
        opened.amend(new := replace(old, budget=budget, **changed), why)
    show(file, as_json)
    warn(new.weak_promise if epsilon is not None else None, new.weak_delta() if delta is not None else None)
    warn(to_follow(file))


@app.command()
def backup(
    file: File,
    to: Annotated[Path, Argument(metavar="DEST", help="where the copy goes; nothing is overwritten")],
    as_json: AsJson = False,
) -> None:
    """Copy a ledger as of one moment, without keys, and verify the copy. It is put back with `ledger restore`."""
    from privadmm.cli.views import steward
    from privadmm.privacy.backups import backup as copy

    report = {**steward.verification(to, copy(file, to), None), "file": str(file), "backup": str(to)}
    emit(json.dumps(report) if as_json else steward.backed_up(report))


@app.command()
def restore(
    source: Annotated[Path, Argument(metavar="BACKUP", help="a copy of the ledger; FILE itself, if it is one")],
    file: File,
    why: Because,
    charge: Annotated[
        float | None, Option(min=0, help="what was released since cost this epsilon at most, if it is not known here")
    ] = None,
    at_delta: Annotated[
        float | None, Option(min=0, help="the delta of --charge, smaller than the ledger's; 0 if it holds without one")
    ] = None,
    spend_all: Annotated[bool, Option("--spend-all", help="charge all that is left: nothing more is released")] = False,
    as_json: AsJson = False,
) -> None:
    """Put a backup in a ledger's place. What was released since it was made is charged, and its open jobs are over."""
    from privadmm.cli.views import steward
    from privadmm.privacy.backups import Decision
    from privadmm.privacy.backups import restore as put_back

    need_reason(file, why)
    report = steward.restored(source, file, put_back(source, file, Decision(why, charge, spend_all, at_delta)))
    emit(json.dumps(report) if as_json else steward.restored_text(report))


@app.command()
def show(
    file: Annotated[Path, Argument(metavar="FILE", help="a ledger, or a folder of ledgers")], as_json: AsJson = False
) -> None:
    """Budget, spent, set aside and left; jobs with who asked for them, what for and when; what was refused."""
    from privadmm.cli.views import ledger_text, steward

    if file.is_dir():
        views = [steward.overview(path) for path in ledgers_in(file)]
        emit(json.dumps({"folder": str(file), "ledgers": views}) if as_json else ledger_text.several(file, views))
        return
    overview = steward.overview(file)
    emit(json.dumps(overview) if as_json else ledger_text.as_text(overview))


@app.command()
def register(
    subject: Annotated[Path, Argument(metavar="FILE", help="a ledger, or a folder of ledgers")],
    out: Annotated[Path, Option(metavar="NAME.json", help="where it goes; NAME.csv beside it is for people")],
    sign: Annotated[Path | None, Option(metavar="PARTY", help="sign it: a party's directory, or its node key")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the register: jobs, who asked for them, what was refused and decided. `ledger verify` checks it."""
    from privadmm.cli.views import ledger_text, steward
    from privadmm.runs import register as document

    if out.suffix != ".json":
        raise ConfigError(f"--out {out}: the register is JSON, and its table stands beside it; name a file NAME.json")
    if not out.resolve().parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}; make it, or name another file")
    files = {str(path.relative_to(subject)): path for path in ledgers_in(subject)} if subject.is_dir() else {}
    key = None if sign is None else document.key_of(sign)
    names = {name: steward.overview(path) for name, path in (files or {subject.name: subject}).items()}
    document.write(out, document.content_of(names), key)
    report = document.check(out, None)
    emit(json.dumps(report) if as_json else ledger_text.registered(report))


@app.command()
def export(file: File, as_json: AsJson = False) -> None:
    """Every row without the released values: job, round, digest of the inbox, events by party, hash. JSON."""
    from privadmm.cli.views import steward

    emit(json.dumps(steward.rows(file), indent=None if as_json else 1))


@app.command()
def verify(
    file: Annotated[Path, Argument(metavar="FILE", help="a ledger, or a register that `ledger register` wrote")],
    against: Annotated[
        Path | None,
        Option(metavar="RUNDIR", help="compare the receipts that this run kept; of a register, name its ledger"),
    ] = None,
    key: Annotated[
        Path | None, Option(metavar="KEY.pub", help="of a register: the public key that must have signed it")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute every hash and every total; of a register, check its signature. Exit code 1 if anything does not
    fit."""
    from privadmm.cli.views import ledger_text, steward
    from privadmm.privacy.verification import verify as look
    from privadmm.runs import register as document
    from privadmm.runs.rundir import receipts_of

    if document.is_register(file):
        report = document.check(file, key, [against] if against else ())
        emit(json.dumps(report) if as_json else ledger_text.registered(report))
        if not report["ok"]:
            raise typer.Exit(1)
        return
    if key is not None:
        if not file.exists():
            raise ConfigError(f"{file}: there is no such file")
        raise ConfigError(f"--key is for a register, and {file} is none: leave it out")
    checked = look(file, receipts_of(against, file) if against else ())
    report = steward.verification(file, checked, against)
    emit(json.dumps(report) if as_json else steward.verified(report))
    if not report["ok"]:
        raise typer.Exit(1)


@app.command()
def unlock(
    file: File,
    why: Annotated[str, Option("--because", help="what the failure was and why it is safe to go on; kept")],
    as_json: AsJson = False,
) -> None:
    """Let a ledger go on after a step failed. What that step cost stays charged, and its job stays over."""
    from privadmm.cli.views import steward

    need_reason(file, why)
    with closing(steward.opened(file)) as opened:
        opened.settle()  # first put a step that was killed on record
        opened.unlock(why)
    show(file, as_json)


@app.command()
def close(
    file: File,
    job: Annotated[str, Argument(metavar="JOB")],
    dry_run: Annotated[bool, Option("--dry-run", help="only say what it would free")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up a job: what it set aside and did not spend is free again, and it can release no more."""
    from privadmm.cli.views import steward

    with closing(steward.opened(file)) as opened:
        opened.settle()
        if job not in opened.jobs():
            raise LedgerError(f"{file}: has no job {job}; `privadmm ledger show {file}` lists them")
        report = steward.freed(opened, job, dry_run)
        if not dry_run:
            opened.close_job(job)
    emit(json.dumps(report) if as_json else steward.freed_text(report))


def need_reason(file: Path, why: str) -> None:
    """Refuse to change a ledger without a reason."""
    if not why.strip():
        raise LedgerError(f'{file}: say why with --because "..."; it is kept in the ledger')


def ledgers_in(folder: Path) -> list[Path]:
    """The ledgers of a folder; an error if it has none."""
    from privadmm.runs.report.ledgers import ledger_files

    if files := ledger_files(folder):
        return files
    raise LedgerError(f"{folder}: holds no ledgers; name a ledger, or a folder with *.sqlite in it")


def check_algorithms(names: Sequence[str] | None) -> None:
    from privadmm.algorithms import ALGORITHMS

    if unknown := set(names or ()) - set(ALGORITHMS):
        raise ConfigError(f"--algorithm: {sorted(unknown)[0]!r} is none of {', '.join(ALGORITHMS)}")


def limits_of(pairs: Sequence[str]) -> dict[str, Any]:
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
    return {name: value for name, value in (values or {}).items() if name in raw["limits"]}
