"""One config, one run directory: load, train, measure, write down. Whatever stops it, it can be resumed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privadmm import assembly
from privadmm.config import Config
from privadmm.drive import Callback, Checkpoint, Progress, View
from privadmm.job import Job, cluster, train, weights
from privadmm.model import Model
from privadmm.privacy.accounting import Target
from privadmm.privacy.ledger import MemoryLedger, SqliteLedger, export
from privadmm.report import metrics, plots
from privadmm.report.metrics import Observer, Row
from privadmm.report.rundir import RunDir, write_json


@dataclass(frozen=True)
class Finished:
    """What a run left behind. `result` is what `train --json` prints."""

    result: dict[str, Any]
    rows: list[Row]
    ledger: dict[str, Any]
    directory: RunDir
    model: Model


def default_out(config: Config) -> Path:
    return Path("runs") / f"{config.path.stem}-{time.strftime('%Y%m%d-%H%M%S')}"


def run(
    config: Config,
    out: Path,
    resume: bool = False,
    bar: Callable[[Job, int], Callback] | None = None,
    reference: float | None = None,
) -> Finished:
    """Train as the config says and fill the directory. `bar(job, first_round)` makes the progress display."""
    began = time.perf_counter()
    prepared = assembly.prepare(config)
    job = assembly.job(config, prepared.train.sizes, prepared.train.dim)
    noise, directory = assembly.noise(config), RunDir(out)
    parties = prepared.train.ids.tolist()
    if config.run.ledger is None:
        # Nothing is spent yet in a ledger that is about to be made: refuse before there is a directory.
        job.reserve(MemoryLedger(parties, job.budget))
    job = replace(job, id=directory.open(config.text, config.digest, job.id, resume))
    path = directory.ledger if config.run.ledger is None else config.resolve(config.run.ledger)
    ledger = SqliteLedger(path, parties, job.budget, noise.mode)
    try:
        blocks = cluster(job, prepared.train, noise, ledger)
        progress = None
        if directory.checkpoint.exists():
            progress = Progress.load(directory.checkpoint, job.id, job.algorithm.start(job.public)[0])
        callbacks: list[Callback] = []
        observer = None
        if noise.mode == "simulation":
            observer = Observer(
                prepared.train,
                prepared.test,
                blocks,
                job.epsilon_by_round,
                config.run.metrics_every,
                directory.metrics,
            )
            if progress is not None and directory.metrics.exists():
                observer.rows = [
                    row for row in metrics.read(directory.metrics) if row.round <= progress.round
                ]
                metrics.write(directory.metrics, observer.rows)
            callbacks.append(observer)
        callbacks.append(Checkpoint(directory.checkpoint, job.id, config.run.checkpoint_every))
        if bar is not None:
            callbacks.append(bar(job, 0 if progress is None else progress.round))
        progress = train(job, blocks, callbacks, progress)
        w = weights(job, progress)
        rows = [] if observer is None else observer.rows
        if observer is not None and (not rows or rows[-1].round < job.public.rounds):
            rows.append(observer.measure(View(job.public, progress, progress.mail, w)))
        book = export(ledger)
    finally:
        ledger.close()
    model = Model(w, prepared.frame, job.algorithm.name, noise.mode, job.epsilon, job.delta)
    result = summary(job, noise.mode, rows, progress, time.perf_counter() - began, out)
    if noise.mode == "simulation":
        result["majority_test"] = metrics.majority(job.public, prepared.test)
    write(directory, job, result, rows, book, model, reference)
    return Finished(result, rows, book, directory, model)


def summary(
    job: Job, mode: str, rows: list[Row], progress: Progress, seconds: float, out: Path
) -> dict[str, Any]:
    """Figures of the final model on the pooled records in a simulation; null in a deployment."""
    last = rows[-1] if rows else None
    return {
        "algorithm": job.algorithm.name,
        "private": job.private,
        "parties": job.public.parties,
        "rounds": job.public.rounds,
        "epsilon": job.epsilon,
        "delta": job.delta,
        "mode": mode,
        "accuracy_train": last and last.accuracy_train,
        "accuracy_test": last and last.accuracy_test,
        "objective": last and last.objective,
        "gap": last and last.gap,
        "seconds": round(seconds, 3),
        "transcript": progress.transcript,
        "out": str(out),
    }


def write(
    directory: RunDir,
    job: Job,
    result: dict[str, Any],
    rows: list[Row],
    book: dict[str, Any],
    model: Model,
    reference: float | None,
) -> None:
    """result.json last: a directory that has it is complete."""
    guarantee = f"epsilon = {job.epsilon:.4g}, delta = {job.delta:g}" if job.private else "NOT PRIVATE"
    title = f"{job.algorithm.name}, {job.public.parties} parties, {guarantee} ({result['mode']})"
    model.save(directory.model)
    write_json(directory.ledger_export, book)
    if rows:
        plots.convergence(rows, title, directory.convergence, reference)
    plots.spending(job.epsilon_by_round, job.delta, published_epsilon(job), title, directory.spending)
    write_json(directory.result, result)


def published_epsilon(job: Job) -> float | None:
    claim = job.algorithm.published(job.public, job.delta) if job.delta is not None else None
    return None if claim is None else claim.epsilon


def account(config: Config) -> dict[str, Any]:
    """What the config will cost each party, certified and as published. No record is read."""
    job = assembly.job(config)
    claim = job.algorithm.published(job.public, job.delta) if isinstance(job.public.privacy, Target) else None
    return {
        "algorithm": job.algorithm.name,
        "private": job.private,
        "rounds": job.public.rounds,
        "delta": job.delta,
        "certified": {"epsilon": job.epsilon},
        "published": {
            "epsilon": None if claim is None else claim.epsilon,
            "caveat": "the paper claims no privacy" if claim is None else claim.caveat,
        },
    }
