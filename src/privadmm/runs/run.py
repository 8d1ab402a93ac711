"""One config, one run directory: load, train, measure, write down. Whatever stops it, it can be resumed."""

import logging
import math
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from privadmm.config import build
from privadmm.config.build import Prepared
from privadmm.config.file import Config, check_alone, check_seed
from privadmm.data import arrays
from privadmm.data.files import finite
from privadmm.deploy.engines import Engine, opened
from privadmm.deploy.remote_block import Order
from privadmm.engine.job import Job, train, weights
from privadmm.engine.loop import Callback, Progress, View
from privadmm.engine.phases import features
from privadmm.errors import ClusterError, InterruptedRunError, LedgerError, LockedError, RefusedError, StorageError
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import Event, Spent, merge
from privadmm.privacy.ledger import Statement, export
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.policy import Budget
from privadmm.runs import metrics
from privadmm.runs.ending import Finished, finish, resumable
from privadmm.runs.evaluations import exact, measurable
from privadmm.runs.metrics import Observer, Row
from privadmm.runs.recommend import expected_fields
from privadmm.runs.rundir import PAUSE, RunDir, noted

logger = logging.getLogger(__name__)
# A progress display: given the job and the rounds that are done, it is shown while the block is entered.
Bar = Callable[[Job, int], AbstractContextManager[Callback]]


def default_out(config: Config) -> Path:
    return free(Path("runs") / f"{config.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}")


def free(path: Path) -> Path:
    """This path, or the first of path-2, path-3, ... that does not exist yet."""
    names = (path.with_name(f"{path.name}-{number}") for number in range(2, 1_000_000))
    return path if not path.exists() else next(name for name in names if not name.exists())


def run(
    config: Config, out: Path, resume: bool = False, bar: Bar | None = None, reference: Mapping[str, Any] | None = None
) -> Finished:
    """Train as the config says and fill the directory.

    `reference` is the result of a non-private run on the same problem, for the plots. A run that ends before
    its first release leaves no directory; any other can be resumed.
    """
    started = time.perf_counter()
    check_seed(config)
    check_alone(config)
    directory = RunDir(out)
    directory.check(resume)
    noise = build.noise(config)
    prepared = build.prepare(config)
    job = build.job(config, prepared.held.sizes, prepared.held.dim, columns=prepared.columns)
    known = measurable(config, prepared)
    job.check_allowance()  # before there is a file
    ledger = directory.ledger if config.run.engine == "inprocess" else directory.ledgers
    if config.run.ledger is not None:
        ledger = config.resolve(config.run.ledger)
    known_facts = {**facts(config, job, ledger), **directory.origin(config)}
    try:
        with directory.opened(known_facts, config.text, job.id, resume) as id:
            job = job if id == job.id else replace(job, id=id)

            def write_down(progress: Progress, rows: list[Row], spent: dict[str, Any]) -> Finished:
                seen = {"evaluation": exact(config, job, progress, known)} if rows else {}
                return finish(
                    directory,
                    job,
                    progress,
                    prepared.frame,
                    noise.mode,
                    began=started,
                    ledger=str(ledger),
                    spent=spent,
                    measured={**measured(rows, known), **seen},
                    expected=expected_fields(job),
                    rows=rows,
                    reference=reference,
                    # Workers believe whoever starts the run about one another's keys: it must be honest, if curious.
                    peers=None if job.sums is None or config.run.engine == "inprocess" else "not pinned",
                )

            return carry_out(config, directory, prepared, known, noise, ledger, job, resume, bar, write_down)
    except KeyboardInterrupt:
        kept = directory.job.exists()
        fate = "what was released is in the ledger" if kept else "nothing was released, nothing is kept"
        raise InterruptedRunError(f"interrupted; {fate}", kept) from None
    except RefusedError as error:
        if config.run.ledger is not None and str(ledger) not in str(error):
            error.args = (f"{ledger}: {error}", *error.args[1:])  # which of several ledgers it was
        raise
    except sqlite3.Error as error:
        raise LedgerError(f"{ledger}: the ledger could not be used ({error})") from error
    except OSError as error:
        fate = "mend that and go on with --resume" if directory.job.exists() else "nothing was released"
        raise StorageError(f"{error.filename or out}: {error.strerror or error}; {fate}") from error


def facts(config: Config, job: Job, ledger: Path) -> dict[str, str]:
    """Facts that have to be the same for a job to be resumed, and when it began. Sizes and dimension are public."""
    columns = {"columns": job.public.columns} if job.public.columns else {}
    shape = arrays.pack({"sizes": job.public.sizes}, dim=job.public.dim, **columns)
    place = "its own" if config.run.ledger is None else str(ledger.resolve())
    return {"config": config.digest, "shape": arrays.digest(shape), "ledger": place, **noted(config)}


def carry_out(
    config: Config,
    directory: RunDir,
    prepared: Prepared,
    known: Prepared,
    noise: Noise,
    ledger: Path,
    job: Job,
    resume: bool,
    bar: Bar | None,
    write_down: Callable[[Progress, list[Row], dict[str, Any]], Finished],
) -> Finished:
    """Do every round that is left, and write down where that leads, the metrics by round, and the ledger's account.

    `known` are the records that a simulation measures by.

    Then the job is over for good: what a party that left did not spend is free again.
    """

    def engine() -> AbstractContextManager[Engine]:
        ids, begun = tuple(prepared.held.ids.tolist()), directory.checkpoint.exists()
        return closing(opened(Order(config, job, ids, ledger, begun=begun), prepared, noise, directory.heads()))

    def released(engine: Engine) -> bool:
        return any(rounds is not None for rounds in engine.paid())

    with resumable(directory, resume, engine, released) as parties:
        blocks = parties.begin()
        progress = directory.progress(job)
        if progress is not None and progress.round > (paid := min(rounds or 0 for rounds in parties.paid())):
            raise LedgerError(
                f"{ledger}: has {paid} rounds of this run, and {directory.checkpoint} has {progress.round}: the ledger "
                "was replaced by an older one. Put the right file back; nothing more was released"
            )
        pause = PAUSE if config.run.engine == "inprocess" else 0.0
        callbacks = directory.callbacks(job, blocks, config.run.checkpoint_every, pause)
        rows: list[Row] = []
        if noise.mode == "simulation":
            every = config.run.metrics_every
            observer = Observer(known, blocks, job.epsilon_by_round, every, directory.metrics, rows)
            if resume:
                observer.recover()
            if progress is not None:
                # What callbacks saw after the last round, except for what the parties sent.
                model, map = weights(job, progress), features(progress.memory)
                observer(View(job.public, progress, progress.mail, model, map))
            callbacks.insert(0, observer)
        done = 0 if progress is None else progress.round
        with nullcontext() if bar is None else bar(job, done) as shown:
            progress = train(job, blocks, callbacks if shown is None else [*callbacks, shown], progress)
        finished = write_down(progress, rows, account(parties.statement(), job))
        try:
            parties.give_up()
        except (ClusterError, LedgerError, LockedError) as error:
            logger.warning(
                "the run is complete, but its job could not be closed in every ledger (%s): `privadmm ledger close` "
                "frees what parties that left have not spent",
                error,
            )
        return finished


def account(ledger: Statement, job: Job) -> dict[str, Any]:
    """The ledger's export, and what each party has left: the largest epsilon that one more such job may ask for."""
    exported, budget, target = export(ledger), ledger.policy.budget, job.public.privacy
    cap = math.inf if ledger.policy.per_job is None else ledger.policy.per_job

    def room_of(spent: Spent) -> float | None:
        if budget is None or not isinstance(target, Target):
            return None
        return min(cap, left(spent, budget, lambda ratio: target.event(ratio, job.public.parties)))

    room = {spent: room_of(spent) for spent in set(ledger.aside.values())}
    for party in exported["parties"]:
        party["left"] = room[ledger.aside[party["party"]]]
    return exported


def left(spent: Spent, budget: Budget, release: Callable[[float], Event]) -> float:
    """The epsilon of one more release(ratio) with the least noise that still fits.

    Releases compose to less than their sum, so this is more than the budget minus what was spent."""

    def cost(ratio: float, before: Spent = ()) -> float:
        return epsilon(merge(before, ((release(ratio), 1),)), budget.delta)

    # The least noise that still fits, from above; past the first bound nothing would be left to speak of.
    low, high = 0.0, 1e6
    if cost(high, spent) > budget.epsilon:
        return 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cost(middle, spent) <= budget.epsilon else (middle, high)
    return cost(high)


def measured(rows: list[Row], prepared: Prepared) -> dict[str, Any]:
    """Figures of the final model on the pooled records in a simulation; all None in a deployment."""
    last = rows[-1] if rows else None
    classes, test = last is not None and prepared.classifier, prepared.test
    return {
        "accuracy_train": last and last.accuracy_train,
        "accuracy_test": last and last.accuracy_test,
        "majority_train": metrics.majority(prepared.train) if classes else None,
        "majority_test": metrics.majority(test) if classes and test is not None else None,
        "objective": last and finite(last.objective),
        "gap": last and finite(last.gap),
        "misread": last and prepared.misread.table,  # cells and rows that were not read as they stood
        **({"party_names": list(prepared.parties)} if last and prepared.parties else {}),
    }
