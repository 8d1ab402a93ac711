"""What is kept on disk: a ledger in every round, and records that do not fit into memory."""

import atexit
import os
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np

from privadmm.config import build
from privadmm.config.file import read
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.loop import Callback, Checkpoint
from privadmm.papers.bench import machine
from privadmm.papers.bench.workload import Agreement, Floor, Goal, Line, Part, Ready, Reference, alike, workload
from privadmm.papers.bench.workloads import problems
from privadmm.papers.bench.workloads.commands import example, no_example
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.runs.rundir import PAUSE

MEMORY = Line("memory", "the same with a ledger in memory", Goal("wall", 2e-3))


def made(quick: bool, callbacks: Callable[[Path, Job], list[Callback]]) -> Ready:
    config = read(example("dp_admm"))
    prepared = build.prepare(config)
    shards, rounds = prepared.train, 20 if quick else 100
    assert isinstance(shards, Shards)
    config = replace(config, algorithm=replace(config.algorithm, rounds=rounds))
    job = build.job(config, shards.sizes, shards.dim)

    def kept() -> Floats:
        with tempfile.TemporaryDirectory() as place:
            ledger = SqliteLedger(Path(place) / "ledger.sqlite", shards.ids.tolist(), job.policy, "simulation")
            try:
                progress = train(job, cluster(job, shards, Simulation(0), ledger), callbacks(Path(place), job))
            finally:
                ledger.close()
            return weights(job, progress)

    def forgotten() -> Floats:
        return weights(job, train(job, cluster(job, shards, Simulation(0))))

    floor = Floor(
        rounds * problems.size(shards), rounds * 4.0 * shards.cells, float(rounds * len(shards.ids) * shards.dim)
    )
    released = 8 * len(shards.ids) * shards.dim  # bytes; a party keeps twice as many, its iterate and its dual
    needed = (
        Part("the round with a ledger in memory", forgotten, 1 / rounds),
        Part("what is released and kept, written and waited for until it is on disk", synced(bytes(3 * released))),
    )
    side = {"memory": Reference(forgotten, alike(0.0))}
    return Ready(kept, side, floor, rounds, problems.size(shards), not quick, needed=needed)


def synced(data: bytes) -> Callable[[], None]:
    """Write to a file in the folder where the ledgers are, and wait for the disk as SQLite does at a commit."""
    file, path = tempfile.mkstemp()
    os.unlink(path)  # it is gone when this process ends
    os.write(file, data)  # the file does not grow later, as a write-ahead log that is used again does not

    def write() -> None:
        os.pwrite(file, data, 0)
        getattr(os, "fdatasync", os.fsync)(file)

    return write


@workload("ledger", MEMORY, unit="round", missing=no_example("dp_admm"))
def disk(quick: bool) -> Ready:
    """DP-ADMM of examples/dp_admm.toml with its ledger on disk, a round.

    Fair: the clock counts here, since the process waits for the disk; opening and closing the file are part of it. The
    reference does the same training and keeps its ledger in memory; both give the same bits.
    """
    return made(quick, lambda place, job: [])


@workload("ledger-checkpoint", MEMORY, unit="round", missing=no_example("dp_admm"))
def checkpointed(quick: bool) -> Ready:
    """DP-ADMM of examples/dp_admm.toml with ledger and checkpoint on disk, a round.

    Fair: as above, and checkpoints as `privadmm train` keeps them, one a second at most.
    """
    return made(quick, lambda place, job: [Checkpoint(place / "checkpoint", job.id, pause=PAUSE)])


CONFIG = """
[data]
source = "data.npz"
classes = [-1, 1]
row_bound = 1.0
test_fraction = 0.0
[parties]
count = 10
split = "even"
[graph]
kind = "star"
[algorithm]
name = "dp_admm"
rounds = 2
D_w = 30.0
[loss]
name = "logistic"
[regularizer]
name = "l2"
weight = 1e-3
[privacy]
epsilon = 1.0
delta = 1e-6
[run]
mode = "simulation"
seed = 0
"""
COLUMNS, CHUNK = 100, 10_000


def write(path: Path, records: int) -> None:
    """Write made-up records as an npz file, a chunk at a time: this process never holds them all."""
    rng, labels = np.random.default_rng(0), []
    with ZipFile(path, "w") as file:
        with file.open("X.npy", "w", force_zip64=True) as member:
            header = {"descr": "<f8", "fortran_order": False, "shape": (records, COLUMNS)}
            np.lib.format.write_array_header_1_0(member, header)
            for _ in range(records // CHUNK):
                X = rng.normal(size=(CHUNK, COLUMNS), scale=0.1)
                labels.append(np.where(X[:, 0] > 0, 1, -1))
                member.write(X.tobytes())
        with file.open("y.npy", "w") as member:
            np.lib.format.write_array(member, np.concatenate(labels))


@workload("npz-memory", Line("limit", "no reference", Goal("peak", 0.35e9)))
def npz(quick: bool) -> Ready:
    """Training on one npz file of 1 GB with memory = "200MB".

    Fair: the most memory of its own that the process has while it reads, packs and trains, with the interpreter and
    its libraries (about 0.1 GB) and without pages of files that are mapped, which the system may take back; they count
    where the folder for temporary files is itself memory. The result is that of a training without a limit, bit for
    bit.
    """
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    place, records = Path(folder.name), 100_000 if quick else 1_250_000
    write(place / "data.npz", records)
    (place / "limited.toml").write_text(f'{CONFIG}memory = "{20 if quick else 200}MB"\n')
    (place / "free.toml").write_text(CONFIG)

    def trained(name: str) -> Floats:
        config = read(place / f"{name}.toml")
        prepared = build.prepare(config)
        job = build.job(config, prepared.train.sizes, prepared.train.dim)
        return weights(job, train(job, cluster(job, prepared.train, Simulation(0))))

    def check(ours: Floats, theirs: Floats) -> Agreement:
        return alike(0.0)(ours, trained("free"))

    peaks, data = list[int](), 8.0 * records * COLUMNS

    def limited() -> Floats:
        with machine.watched(peaks):
            return trained("limited")

    peak = None if machine.own() is None else lambda: peaks[0]  # of the first call, like others
    return Ready(limited, {"limit": Reference(None, check)}, Floor(data), data=data, full=not quick, peak=peak)
