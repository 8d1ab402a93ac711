"""A block of parties in the process where its records are; an engine starts it. Bytes in, bytes out.

A site is made from an `Order` alone: it reads its parties' records itself, from the path that the config names, and
opens its ledger itself. So records never travel, and a site that was lost is made again from the same order: its ledger
knows what it had released, and the same request gets the same bytes.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from privadmm.config import build
from privadmm.config.file import Config
from privadmm.data import arrays
from privadmm.data.columns import People
from privadmm.engine.block import open_block
from privadmm.engine.job import Job
from privadmm.engine.mail import Mail
from privadmm.engine.sums import accept_roster, introduced
from privadmm.engine.worker import Worker
from privadmm.errors import DataError, LedgerError, RefusedError, StorageError
from privadmm.privacy.labels import reported_by_holder
from privadmm.privacy.ledger import Statement, Tick
from privadmm.privacy.ledger_file import Receipt, identity_of
from privadmm.privacy.mechanisms import Noise
from privadmm.privacy.policy import Policy
from privadmm.privacy.refusals import recording
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Order:
    """All that defines a block: its parties, the config that says where records are, the job, and the ledger."""

    config: Config
    job: Job
    parties: tuple[int, ...]
    ledger: Path
    heads: tuple[Receipt, ...] = ()  # receipts that this ledger gave before
    begun: bool = False  # the run has a checkpoint, so the ledger must be there


def open_ledger(order: Order, mode: str, bounds: Sequence[float]) -> SqliteLedger:
    """Open the ledger of an order, verify every row, and refuse a job that its policy does not allow.

    `bounds` are the norms to which the job clips rows.
    """
    job, path = order.job, order.ledger
    if order.begun and not path.exists():
        raise LedgerError(
            f"{path}: the ledger of this run is missing; put it back, or start anew in another "
            "--out with all that was released still to be counted"
        )
    known = identity_of(path)
    if known is None and mode == "deployment":
        wanted = "" if order.parties[0] == 0 else f" --first {order.parties[0]}"
        if job.policy.adjacency != "replace-one":
            wanted += f" --adjacency {job.policy.adjacency}"
        if job.policy.label_epsilon is not None:
            wanted += f" --label-epsilon {job.policy.label_epsilon}"
        raise LedgerError(
            f"{path}: there is no ledger there, and a deployment does not make one: its steward does, with "
            f"`privadmm ledger create FILE --parties {len(order.parties)} --epsilon E --delta D{wanted}`"
        )
    if known is not None:
        check_in_full(order)
    elif order.heads:
        raise LedgerError(f"{path}: the ledger of this run is missing; put it back")
    policy = job.policy if known is None else known.policy
    ledger = SqliteLedger(path, order.parties, policy, mode)
    try:
        with recording(ledger, job.asked, job.id):
            job.admit(policy, bounds)
            check_budget(order, policy)
    except BaseException:
        ledger.close()
        raise
    return ledger


def check_in_full(order: Order) -> None:
    """Verify every row of the ledger, and that it holds the releases of which others have receipts."""
    if problems := verify(order.ledger, order.heads).problems:
        raise LedgerError(f"{order.ledger}: {problems[0]}; nothing more was released")


def check_budget(order: Order, policy: Policy) -> None:
    """Refuse a job that asks for another budget than a ledger with this policy has."""
    job, path = order.job, order.ledger
    asked = order.config.privacy and order.config.privacy.budget
    fixed = policy.budget
    if fixed is None and job.private:
        raise RefusedError(
            f"{path}: this ledger has no budget, since what it counts is not private; a private run needs another",
            "policy",
        )
    if fixed is not None and (fixed.delta != job.delta or asked not in (None, fixed.epsilon)):
        raise LedgerError(
            f"{path}: this ledger fixed budget = {fixed.epsilon:g} at delta = {fixed.delta:g} when it "
            "was made; the party decides, so take these over into [privacy], or name another file"
        )


def named(method: Callable[Concatenate["Site", P], T]) -> Callable[Concatenate["Site", P], T]:
    """Turn errors of files into named ones: the engine would take an OSError for a lost connection."""

    @wraps(method)
    def call(self: "Site", /, *args: P.args, **kwargs: P.kwargs) -> T:
        path = self.order.ledger
        try:
            return method(self, *args, **kwargs)
        except sqlite3.Error as error:
            raise LedgerError(f"{path}: the ledger could not be used ({error})") from error
        except OSError as error:
            raise StorageError(f"{error.filename or path}: {error.strerror or error}") from error

    return call


class Site:
    """Answers for one block. The constructor opens nothing: another thread than its own answers."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self._ledger: SqliteLedger | None = None
        self._worker: Worker | None = None

    @named
    def open(self) -> None:
        """Read the records and open the ledger. Nothing is set aside yet: every block is checked first."""
        _one_blas_thread_for_good()
        order = self.order
        self._noise: Noise = build.noise(order.config)
        prepared = build.prepare(order.config, order.parties)
        self._held: Any = prepared.train
        whole = isinstance(self._held, People)  # the columns of all parties, and the labels
        sizes = self._held.sizes[list(order.parties)] if whole else self._held.sizes
        public = order.job.public
        if self._held.dim != public.dim or not np.array_equal(sizes, public.sizes[list(order.parties)]):
            raise DataError(
                f"parties {order.parties[0]} to {order.parties[-1]} hold other records where they are read than where "
                "the run was started; name the same file with [data] source on every machine"
            )
        make_folder(order.ledger.parent)
        self._ledger = open_ledger(order, self._noise.mode, prepared.frame.bounds)

    @named
    def begin(self) -> None:
        """Set the plan's cost aside, or refuse; then go on from what the ledger holds."""
        self._worker = open_block(self.order.job, self._held, self._noise, self.ledger, self.order.parties)

    @named
    def introduce(self) -> str:
        """The block's entry in the roster of a secure sum, unsigned; its key is drawn once for the job."""
        return introduced(self.order.job, self.worker.ids, self.ledger).pack()

    @named
    def accept(self, roster: bytes) -> None:
        """Take the roster of a secure sum. No keys are pinned: the driver is trusted to send all the same one."""
        accept_roster(self.order.job, self.worker.ids, self.ledger, roster, lambda entry, party: True)

    @property
    def ledger(self) -> SqliteLedger:
        assert self._ledger is not None, "open comes first"
        return self._ledger

    @property
    def worker(self) -> Worker:
        assert self._worker is not None, "begin comes first"
        return self._worker

    @named
    def step(self, round: int, phase: int, inbox: bytes) -> tuple[bytes, str | None]:
        """The block's mail, and the receipt that travels with it."""
        _, sent = self.worker.answer(round, phase, Mail.unpack(inbox))
        now = Tick(self.order.job.id, round, phase)
        if self.worker.last != now and (latest := self.ledger.latest(now.job)) and latest[0] != self.worker.last:
            self.begin()  # another process, believed dead, has gone on with this ledger
        return bytes(sent), self.ledger.receipt(now)

    @named
    def labels(self) -> bytes:
        """The labels that a coordinator may see: randomised here, and kept in this ledger."""
        held, epsilon = self._held, self.order.job.public.label_epsilon
        assert epsilon is not None, "labels that are not randomised stay where they are"
        return arrays.pack({"y": reported_by_holder(held.y, held.source, self.ledger, self._noise, epsilon)})

    @named
    def iterates(self, rounds: int) -> bytes | None:
        """The parties' own iterates, for the figures of a simulation; None unless they are of this round."""
        if self._noise.mode != "simulation":
            raise RefusedError("a deployment tells nothing that was not released")
        last, ids, x = self.worker.last, self.worker.local.ids, self.worker.state.model
        if self._left(rounds):
            ids, x = ids[:0], x[..., :0, :]
        elif last is None or last.round + 1 != rounds:
            return None
        return arrays.pack({"ids": ids, "x": x})

    @named
    def paid(self) -> int | None:
        """How many rounds of the job the ledger holds; None without a release. All, once every party has left."""
        latest = self.ledger.latest(self.order.job.id)
        rounds = 0 if latest is None else latest[0].round + 1
        return self.order.job.public.rounds if self._left(rounds + 1) else rounds or None

    def _left(self, rounds: int) -> bool:
        """Whether every party here left before the last of this many rounds, as a simulation declares."""
        job = self.order.job
        return all(job.leave.get(party, job.public.rounds + 1) < rounds for party in self.order.parties)

    @named
    def statement(self) -> Statement:
        return Statement.of(self.ledger, self.order.job.id)

    @named
    def give_up(self) -> None:
        """Close the job in the ledger: what it set aside and did not spend is free again."""
        self.ledger.close_job(self.order.job.id)

    @named
    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
        self._worker = self._held = None  # closes files of records, too


def make_folder(folder: Path) -> None:
    """Make the folder of the ledgers; its parent must exist."""
    try:
        folder.mkdir(exist_ok=True)
    except FileExistsError:
        raise LedgerError(
            f"{folder}: is a file, and this engine keeps a ledger for each block: name a directory with [run] ledger"
        ) from None
    except FileNotFoundError:
        raise LedgerError(
            f"{folder}: cannot be reached from where the records are; name a directory that can with [run] ledger"
        ) from None


def _one_blas_thread_for_good() -> None:
    """Limit BLAS to one thread: more change bits. scipy is imported first, since its own pool is limited, too."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_limits

    threadpool_limits(1, user_api="blas")
