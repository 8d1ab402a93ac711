"""One config, one run directory: load, train, measure, write down. Whatever stops it, it can be resumed."""

import math
import sqlite3
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privadmm.config import build
from privadmm.config.build import Prepared
from privadmm.config.file import Config, check_ledger, check_seed
from privadmm.data import arrays
from privadmm.data.files import write_json
from privadmm.deploy.engines import Engine, opened
from privadmm.deploy.remote_block import Order
from privadmm.engine.job import Job, features, train, weights
from privadmm.engine.loop import Callback, Checkpoint, Parties, Progress, View
from privadmm.errors import (
    ClusterError,
    DivergedError,
    InterruptedRunError,
    LedgerError,
    LockedError,
    StorageError,
    ToleranceError,
)
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.events import DiscreteGaussian, Gaussian, Spent, merge
from privadmm.privacy.ledger import Budget, MemoryLedger, Statement, export
from privadmm.privacy.mechanisms import Noise
from privadmm.runs import absence, metrics, plots, receipts
from privadmm.runs.metrics import Observer, Row
from privadmm.runs.model import Model, about
from privadmm.runs.receipts import Receipts
from privadmm.runs.recommend import expected, warning
from privadmm.runs.rundir import RunDir

# A progress display: given the job and the rounds that are done, it is shown while the block is entered.
Bar = Callable[[Job, int], AbstractContextManager[Callback]]

# What `train --json` prints of what there is, in this order; result.json has more.
PRINTED = (
    "algorithm",
    "private",
    "rounds",
    "epsilon",
    "delta",
    "per_party",
    "per_person",
    "label_holder",
    "mode",
    "accuracy_train",
    "accuracy_test",
    "objective",
    "seconds",
    "out",
)


@dataclass(frozen=True)
class Finished:
    """What a run left behind. `result` is what result.json holds."""

    result: dict[str, Any]
    rows: list[Row]
    ledger: dict[str, Any]
    directory: RunDir
    model: Model

    @property
    def printed(self) -> dict[str, Any]:
        return {key: self.result[key] for key in PRINTED if key in self.result}


def default_out(config: Config) -> Path:
    return free(Path("runs") / f"{config.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}")


def free(path: Path) -> Path:
    """This path, or the first of path-2, path-3, ... that does not exist yet."""
    names = (path.with_name(f"{path.name}-{number}") for number in range(2, 1_000_000))
    return path if not path.exists() else next(name for name in names if not name.exists())


def run(
    config: Config,
    out: Path,
    resume: bool = False,
    bar: Bar | None = None,
    reference: Mapping[str, Any] | None = None,
) -> Finished:
    """Train as the config says and fill the directory.

    `reference` is the result of a non-private run on the same problem, for the plots. A run that ends before
    its first release leaves no directory; any other can be resumed.
    """
    began = time.perf_counter()
    check_seed(config)
    check_ledger(config)
    directory = RunDir(out)
    directory.check(resume)
    noise = build.noise(config)
    prepared = build.prepare(config)
    job = build.job(config, prepared.held.sizes, prepared.held.dim, columns=prepared.columns)
    # What exceeds an empty ledger exceeds any other: refused before there is a file.
    job.reserve(MemoryLedger(prepared.held.ids.tolist(), job.policy))
    attempt = Attempt(config, directory, prepared, noise, resume)
    try:
        with directory.opened(attempt.facts(job), config.text, job.id, resume) as known:
            progress, rows, spent = attempt.carry_out(replace(job, id=known), bar)
            model = Model(
                prepared.frame.arranged(weights(job, progress)),
                prepared.frame,
                job.algorithm.name,
                noise.mode,
                job.epsilon,
                job.delta,
                features(job, progress),
                tuple(job.caveats),
            )
            result = {
                **summary(job, noise.mode, rows, progress, prepared),
                **absence.told(job, progress, known),
                "ledger": str(attempt.ledger_path),
                "seconds": round(time.perf_counter() - began, 3),
                "out": str(out),
            }
            write(directory, job, result, rows, spent, model, reference)
    except KeyboardInterrupt:
        kept = directory.job.exists()
        fate = "what was released is in the ledger" if kept else "nothing was released, nothing is kept"
        raise InterruptedRunError(f"interrupted; {fate}", kept) from None
    except ClusterError as error:
        fate = "then go on with --resume" if directory.job.exists() else "nothing was released"
        raise ClusterError(f"{error}; {fate}") from error
    except sqlite3.Error as error:
        raise LedgerError(f"{attempt.ledger_path}: the ledger could not be used ({error})") from error
    except OSError as error:
        fate = "mend that and go on with --resume" if directory.job.exists() else "nothing was released"
        raise StorageError(f"{error.filename or out}: {error.strerror or error}; {fate}") from error
    return Finished(result, rows, spent, directory, model)


@dataclass(frozen=True)
class Attempt:
    """From the first file of a run to its last round."""

    config: Config
    directory: RunDir
    prepared: Prepared
    noise: Noise
    resume: bool

    @property
    def ledger_path(self) -> Path:
        named, alone = self.config.run.ledger, self.config.run.engine == "inprocess"
        own = self.directory.ledger if alone else self.directory.ledgers
        return own if named is None else self.config.resolve(named)

    def facts(self, job: Job) -> dict[str, str]:
        """What has to be the same for a job to be resumed. Sizes and dimension are public."""
        columns = {"columns": job.public.columns} if job.public.columns else {}
        shape = arrays.pack({"sizes": job.public.sizes}, dim=job.public.dim, **columns)
        named = self.config.run.ledger
        ledger = "its own" if named is None else str(self.ledger_path.resolve())
        return {"config": self.config.digest, "shape": arrays.digest(shape), "ledger": ledger}

    def carry_out(self, job: Job, bar: Bar | None) -> tuple[Progress, list[Row], dict[str, Any]]:
        """Every round that is left. Without a release, what was made in the directory is taken back."""
        kept = self.resume
        try:
            with closing(self.engine(job)) as engine, ExitStack() as stack:
                kept = True  # unless the ledgers say otherwise
                try:
                    return self.rounds(job, engine, bar, stack)
                finally:
                    with suppress(LedgerError, LockedError, ClusterError):
                        kept = self.resume or any(paid is not None for paid in engine.paid())
                        # An abort that records may have caused tells something: what was set aside stays so.
                        if not kept and not isinstance(sys.exception(), ToleranceError | DivergedError):
                            engine.give_up()
        except BaseException:
            if not kept:
                self.directory.discard()
            raise

    def engine(self, job: Job) -> Engine:
        path, ids = self.directory.path, tuple(self.prepared.held.ids.tolist())
        heads = receipts.read(path) if (path / receipts.NAME).exists() else []
        order = Order(self.config, job, ids, self.ledger_path, begun=self.directory.checkpoint.exists())
        return opened(order, self.prepared, self.noise, heads)

    def rounds(
        self, job: Job, engine: Engine, bar: Bar | None, stack: ExitStack
    ) -> tuple[Progress, list[Row], dict[str, Any]]:
        blocks = engine.begin()
        progress = self.progress(job, engine)
        callbacks: list[Callback] = []
        observer = self.observer(job, blocks) if self.noise.mode == "simulation" else None
        if observer is not None:
            observer.recover()
            if progress is not None:
                observer(view(job, progress))
            callbacks.append(observer)
        callbacks.append(Receipts(self.directory.path / receipts.NAME, blocks))
        callbacks.append(Checkpoint(self.directory.checkpoint, job.id, self.config.run.checkpoint_every))
        if bar is not None:
            callbacks.append(stack.enter_context(bar(job, 0 if progress is None else progress.round)))
        progress = train(job, blocks, callbacks, progress)
        return progress, [] if observer is None else observer.rows, book(engine.statement(), self.noise)

    def progress(self, job: Job, engine: Engine) -> Progress | None:
        """Where the checkpoint says the rounds stand; without one the ledger replays them, at no charge."""
        path = self.directory.checkpoint
        if not path.exists():
            return None
        progress = Progress.load(path, job.id, job.algorithm.start(job.public)[0])
        paid = min(rounds or 0 for rounds in engine.paid())
        if progress.round > paid:
            raise LedgerError(
                f"{self.ledger_path}: has {paid} rounds of this run, and {path} has {progress.round}: the ledger "
                "was replaced by an older one. Put the right file back; nothing more was released"
            )
        return progress

    def observer(self, job: Job, blocks: Parties) -> Observer:
        return Observer(
            train=self.prepared.train,
            test=self.prepared.test,
            classifier=self.prepared.classifier,
            cluster=blocks,
            epsilon_by_round=job.epsilon_by_round,
            every=self.config.run.metrics_every,
            path=self.directory.metrics,
        )


def view(job: Job, progress: Progress) -> View:
    """What callbacks saw after the last of these rounds, but for what the parties sent."""
    return View(job.public, progress, progress.mail, weights(job, progress), features(job, progress))


def book(ledger: Statement, noise: Noise) -> dict[str, Any]:
    """The ledger's export, and what each party has left: the largest epsilon that one more run may ask for."""
    found, budget = export(ledger), ledger.policy.budget
    cap = math.inf if ledger.policy.per_job is None else ledger.policy.per_job
    room = {
        one: None if budget is None else min(cap, left(one, budget, noise.kind)) for one in set(ledger.aside.values())
    }
    for party in found["parties"]:
        party["left"] = room[ledger.aside[party["party"]]]
    return found


def left(spent: Spent, budget: Budget, kind: type[Gaussian] | type[DiscreteGaussian]) -> float:
    """Releases compose to less than their sum, so this is more than the budget minus what was spent."""

    def cost(ratio: float, before: Spent = ()) -> float:
        return epsilon(merge(before, ((kind(ratio), 1),)), budget.delta)

    # The least noise that still fits, from above; past the first bound nothing would be left to speak of.
    low, high = 0.0, 1e6
    if cost(high, spent) > budget.epsilon:
        return 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if cost(middle, spent) <= budget.epsilon else (middle, high)
    return cost(high)


def summary(job: Job, mode: str, rows: list[Row], progress: Progress, prepared: Prepared) -> dict[str, Any]:
    """Figures of the final model on the pooled records in a simulation; null in a deployment."""
    last = rows[-1] if rows else None
    measured = prepared.test if last and prepared.classifier else None
    return {
        **about(job, mode),
        "accuracy_train": last and last.accuracy_train,
        "accuracy_test": last and last.accuracy_test,
        "majority_train": metrics.majority(prepared.train) if last and prepared.classifier else None,
        "majority_test": metrics.majority(measured) if measured is not None else None,
        "objective": last and finite(last.objective),
        "gap": last and finite(last.gap),
        "transcript": progress.transcript,
        "adversaries": job.adversaries,
        **job.of_people,
        **({} if (found := expected(job)) is None else {"expected": {**found.table, "warning": warning(job)}}),
    }


def finite(value: float | None) -> float | None:
    """JSON has no infinity: what ran away is null."""
    return value if value is not None and math.isfinite(value) else None


def write(
    directory: RunDir,
    job: Job,
    result: dict[str, Any],
    rows: list[Row],
    spent: dict[str, Any],
    model: Model,
    reference: Mapping[str, Any] | None,
) -> None:
    """result.json last: a directory that has it is complete."""
    model.save(directory.model)
    write_json(directory.ledger_export, spent)
    if rows:
        plots.convergence(rows, result, directory.convergence, reference)
    plots.spending(job.epsilon_by_round, result, job.published, directory.spending)
    write_json(directory.result, result)
