"""The loop over rounds and phases. It knows an algorithm, public facts and a `Cluster`, and never a record.

Everything the loop holds is released, so a checkpoint of it is safe at the coordinator: the round, the mail
under way, the coordinator's memory, and the running digest of the transcript. What a party holds is kept by
its own ledger. If the ledger is ahead of the checkpoint, it answers the repeated request with the same bytes.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from privadmm.data import arrays
from privadmm.data.arrays import Array, Floats, Ints
from privadmm.data.files import write_bytes
from privadmm.data.moments_map import Map
from privadmm.engine.mail import Mail, check_inbox, check_sent
from privadmm.engine.phases import Algorithm, AtLabels, AtParties, check_departure, features, flattened, restored
from privadmm.engine.public import Public
from privadmm.engine.sums import opened, present, spread
from privadmm.errors import AbsentError, CheckpointError, ConfigError


class Cluster(Protocol):
    """All that an engine provides: carry an inbox to every block, run the phase there, bring the outboxes back.

    A party whose message does not come back has left: the others go on, and it is not asked again.
    """

    def step(self, round: int, phase: int, inbox: Mail) -> Mail: ...


class Parties(Cluster, Protocol):
    """A cluster that also has the ledgers' receipts and, in a simulation, the parties' own iterates."""

    def receipts(self, round: int) -> Sequence[tuple[str | int, ...]]:
        """(job, round, phase, hash, first party) of the rows in which the blocks' ledgers recorded this round.

        In a federation the party's signature follows.
        """
        ...

    def iterates(self, rounds: int) -> Floats | None:
        """Every party's own iterate after this many rounds, (..., N, d); None where the round was replayed."""
        ...


@runtime_checkable
class LabelHolder(Protocol):
    """A cluster whose driver is the coordinator, and holds the labels of all people."""

    @property
    def labels(self) -> Floats | None: ...


def labels_of(cluster: Cluster) -> Floats:
    labels = cluster.labels if isinstance(cluster, LabelHolder) else None
    if labels is None:
        raise ConfigError("this algorithm needs a coordinator that holds the labels; the parties given hold their own")
    return labels


@dataclass(frozen=True)
class Progress:
    """State of a run after `round` rounds: a function of the transcript."""

    round: int
    memory: Any
    mail: Mail
    transcript: str

    def save(self, path: Path, job: str) -> None:
        """Write a checkpoint atomically: a crash leaves the old one or the new one."""
        kept = flattened(self.memory, "memory.")
        kept |= {"senders": self.mail.senders, "values": self.mail.values, "absent": self.mail.absent}
        data = arrays.pack(kept, job=job, round=self.round, transcript=self.transcript)
        write_bytes(path, arrays.digest(data).encode() + data, private=True)

    @staticmethod
    def load(path: Path, job: str, memory: Any) -> "Progress":
        """Read the checkpoint of this job; `memory` is any memory of its algorithm, as a template."""
        raw = path.read_bytes()
        if len(raw) < 64 or raw[:64] != arrays.digest(raw[64:]).encode():
            raise CheckpointError(
                f"{path}: the checkpoint is damaged and was not used. Remove it and resume: the ledger then replays "
                "the rounds that were paid for, at no charge"
            )
        try:
            kept, facts = arrays.unpack(raw[64:])
            if facts["job"] != job:
                raise CheckpointError(f"{path}: the checkpoint is of job {facts['job']}, the directory of {job}")
            mail = Mail(kept["senders"], kept["values"], kept["absent"])
            return Progress(facts["round"], restored(memory, kept, "memory."), mail, facts["transcript"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path}: is no checkpoint of this run ({type(error).__name__})") from error


@dataclass(frozen=True)
class View:
    """What a callback sees after a round: public facts and released values."""

    public: Public
    progress: Progress
    released: Mail  # what the parties sent in this round
    model: Floats
    features: Map | None = None  # the map through which the model sees rows; None: as they are


Callback = Callable[[View], None]


@dataclass
class Checkpoint:
    """A callback that saves the progress to a file, every so many rounds and at the end.

    `pause` is the least number of seconds between two checkpoints, for a driver whose process also holds the ledgers. A
    ledger's COMMIT is on disk before its round is in a checkpoint, so a checkpoint is never ahead of the ledgers,
    whenever it was written. From an older checkpoint a run repeats the rounds since: the ledgers have their inboxes and
    answers, and give the same bytes, at no charge. To wait in every round until a second file is on disk would only
    save the time of that repetition, which is less than a pause.
    """

    path: Path
    job: str
    every: int = 1
    pause: float = 0.0
    written: float = field(default=-math.inf, init=False)

    def __call__(self, view: View) -> None:
        last, now = view.progress.round == view.public.rounds, time.monotonic()
        if last or (view.progress.round % self.every == 0 and now >= self.written + self.pause):
            view.progress.save(self.path, self.job)
            self.written = now


def drive(
    cluster: Cluster,
    algorithm: Algorithm,
    public: Public,
    callbacks: Sequence[Callback] = (),
    progress: Progress | None = None,
    asked: int = 0,
) -> Progress:
    """Run the rounds that are left. After an interrupt at any point, a later call goes on from the last checkpoint.

    `asked`: how many rounds earlier calls may have asked for.
    """
    if progress is None:
        memory, mail = algorithm.start(public)
        progress = Progress(0, memory, mail, arrays.digest(b""))
    last: Mail | None = None  # what the parties sent; None if only their sum is known
    with one_blas_thread():
        for t in range(progress.round, public.rounds):
            memory, mail, transcript = progress.memory, progress.mail, progress.transcript
            released = mail
            for number, phase in enumerate(algorithm.phases):
                absent = mail.absent
                if isinstance(phase, AtParties):
                    check_inbox(mail, t, last)
                    sent = cluster.step(t, number, mail)
                    mail = roll_call(t, phase.message(public, t), algorithm, public, absent, sent)
                    if public.privacy.sum is not None:
                        together = opened(algorithm, public, t, absent, mail, asked)
                        if together is None:  # the round is lost: only who is present changes
                            released = replace(Mail.empty(), absent=mail.absent)
                            transcript = arrays.digest(transcript.encode(), *released.pieces())
                            mail = replace(progress.mail, absent=mail.absent)
                            break
                        mail = together
                    transcript = arrays.digest(transcript.encode(), *mail.pieces())
                    # Of a secure sum, `last` stays None: nobody knows whose part is the largest.
                    mail, last = (mail, mail) if public.privacy.sum is None else (spread(mail), None)
                    released = mail
                elif isinstance(phase, AtLabels):
                    memory, mail = phase.run(t, public, memory, mail, labels_of(cluster))
                    mail = replace(mail, absent=absent)
                else:
                    memory, mail = phase.run(t, public, memory, mail)
                    mail = replace(mail, absent=absent)
            progress = replace(progress, round=t + 1, memory=memory, mail=mail, transcript=transcript)
            model = algorithm.model(public, memory, mail)
            view = View(public, progress, released, model, features(memory))
            for callback in callbacks:
                callback(view)
    return progress


def roll_call(t: int, like: Array, algorithm: Algorithm, public: Public, absent: Ints, mail: Mail) -> Mail:
    """Check the parties' mail of round t and add who is absent now.

    Refused if it is not what the parties send, or if the parties that are left cannot go on by themselves.
    """
    check_sent(mail, present(public, absent), like, f"in round {t + 1} parties")
    mail = mail.after(t, absent, public.ids)
    if len(mail.absent) > len(absent):
        if not len(mail.senders):
            raise AbsentError(f"no party gave an answer in round {t + 1}; resume when they are back")
        check_departure(algorithm, public, mail.senders)
    return mail


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: numpy and scipy each bring a pool, and more threads are slower and change bits."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
