"""What the tests of contracts share: doors that record, replay and measure; clusters that break or forget."""

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import cases
import vertical_cases
from privadmm.data.arrays import Floats
from privadmm.data.columns import Columns, People
from privadmm.data.shards import Shards
from privadmm.engine.block import beside, cluster, open_block
from privadmm.engine.job import Job, train
from privadmm.engine.loop import Checkpoint, Progress
from privadmm.engine.mail import Mail, nobody
from privadmm.engine.party import Local
from privadmm.engine.phases import AtLabels, AtParties, one_time_draws, pack_state, tick
from privadmm.engine.sums import accept_roster, introduced, opened, spread
from privadmm.privacy.events import Spent
from privadmm.privacy.masks import Roster
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released, Sealed
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.sums import Summing

Case = cases.Case | vertical_cases.Case
EVERY: list[Case] = [*cases.ALGORITHMS, *vertical_cases.ALGORITHMS]  # parties that hold records, and columns
PARTIES = 5  # of every case
BLOCKS_OF_ONE = [[party] for party in range(PARTIES)]
PARTITIONS = {
    "blocks of one": BLOCKS_OF_ONE,
    "mixed": [[0, 3], [1, 2, 4]],
    "mixed, not in order": [[3], [1, 4], [0, 2]],
}
Tape = list[Floats]


def held(data: Shards | People) -> Shards | Columns:
    """What the parties hold of the data: everything, or all but the labels."""
    return data.columns if isinstance(data, People) else data


def labels_of(data: Shards | People) -> Floats | None:
    """The coordinator's labels, if it has any."""
    return data.y if isinstance(data, People) else None


# Replay


class Recorder(Door):
    """A door that also writes what it released to a tape."""

    tape: Tape

    def output(self, x: Floats, sensitivity: Any) -> Released:
        released = super().output(x, sensitivity)
        self.tape.append(released.value)
        return released

    def summand(self, x: Floats, sensitivity: Any) -> Released | Sealed:
        sealed = super().summand(x, sensitivity)
        if isinstance(sealed, Sealed):
            self.tape.append(Sealed.words_of(sealed))
        return sealed


class Player(Door):
    """A door that releases what is on the tape, whatever the query."""

    tape: Tape

    def output(self, x: Floats, sensitivity: Any) -> Released:
        return super().output(x, sensitivity).map(lambda _: self.tape.pop(0))

    def summand(self, x: Floats, sensitivity: Any) -> Released | Sealed:
        sealed = super().summand(x, sensitivity)
        if isinstance(sealed, Sealed):
            sealed._Sealed__words = self.tape.pop(0)  # type: ignore[attr-defined]  # the only way to replay a secret
        return sealed


def summing(job: Job, t: int, number: int) -> Summing | None:
    """The part of a block that is everybody in a secure sum; None where the job has none."""
    if job.sums is None:
        return None

    def hide(call: int, shape: tuple[int, ...]) -> Any:
        return np.zeros(shape, dtype=np.uint64)

    return Summing(job.sums, (t, number), job.public.parties, True, hide)


def read(job: Job, t: int, mail: Mail) -> Mail:
    """What the coordinator makes of the parties' mail: a sum is opened."""
    if job.sums is None:
        return mail
    total = opened(job.algorithm, job.public, t, nobody(), mail)
    assert total is not None
    return spread(total)


def states_and_messages(
    job: Job, block: Shards | Columns, labels: Floats | None, kind: type[Recorder] | type[Player], tape: Tape
) -> list[bytes]:
    """Every state and message of a run, and its model, through doors of this kind."""
    local, algorithm, source = beside(job.public, block), job.algorithm, Simulation(0)
    local = replace(local, kept=one_time_draws(algorithm, local, source))
    state = algorithm.init(job.public, local.ids)
    memory, mail = algorithm.start(job.public)
    seen = []
    for t in range(job.public.rounds):
        for number, phase in enumerate(algorithm.phases):
            if isinstance(phase, AtParties):
                part = summing(job, t, number)
                door = kind(local.ids, job.plan[(t, number)], source, t, number, lambda charges: None, summing=part)
                door.tape = tape
                state, mail = tick(phase, t, local, state, mail, door)
                seen += [pack_state(state), mail.pack()]
                mail = read(job, t, mail)
            else:
                known = (labels,) if isinstance(phase, AtLabels) else ()
                memory, mail = phase.run(t, job.public, memory, mail, *known)  # type: ignore[call-arg]
                seen += [pack_state(memory), mail.pack()]
    return [*seen, algorithm.model(job.public, memory, mail).tobytes()]


def replayed(case: Case) -> tuple[list[bytes], list[bytes]]:
    """A run, and its releases again over other records: two lists that are equal unless something leaks."""
    tape: Tape = []
    first, other = case.data(0), case.data(1)
    recorded = states_and_messages(case.job(), held(first), labels_of(first), Recorder, tape)
    return recorded, states_and_messages(case.job(), held(other), labels_of(first), Player, list(tape))


# Sensitivity

SMALL = (1, 3)  # records at the two parties
VICTIM = 1  # the party in which one record differs


class Watched(Local):
    """A party that tells the door through which records it sees its objective."""

    def perturbed(self, release: Door, *args: Any, **more: Any) -> Released:
        release.party = self  # type: ignore[attr-defined]
        return super().perturbed(release, *args, **more)


class Measuring(Door):
    """A door that keeps what a release declared, and its query; an argmin is solved for `noise` instead of its own."""

    noise: Floats | None = None
    solved: Any = None
    party: Local

    def output(self, x: Floats, sensitivity: Any) -> Released:
        self.query, self.declared = x, np.broadcast_to(np.ravel(sensitivity), len(self.ids))
        return super().output(x, sensitivity)

    def summand(self, x: Floats, sensitivity: Any) -> Released | Sealed:
        self.query, self.declared = x, np.broadcast_to(np.ravel(sensitivity), len(self.ids))
        return super().summand(x, sensitivity)

    def objective(self, solve: Any, like: Floats, **declared: Any) -> Released:
        noise = np.zeros_like(like) if self.noise is None else self.noise
        self.solved = declared
        return super().objective(lambda b, reach: solve(noise, reach), like, **declared)


@cache
def small(case: cases.Case) -> Job:
    """The case's job at two small parties: a search asks for it a thousand times."""
    return case.job(sizes=SMALL)


def measured(case: cases.Case, parties: list[Any], state: Any, inbox: Mail, t: int, noise: Any = None) -> Measuring:
    """The door after round t of these parties, from this state and inbox."""
    job = small(case)
    local = Watched(job.public, Shards.from_parties(parties, row_bound=1.0))
    local = replace(local, kept=one_time_draws(case.algorithm, local, Simulation(0)))
    part = summing(job, t, 0)
    door = Measuring(local.ids, job.plan[(t, 0)], Simulation(0), t, 0, lambda charges: None, summing=part)
    door.noise = noise
    phase = case.algorithm.phases[0]
    assert isinstance(phase, AtParties)
    phase.run(t, local, state, inbox, door)
    return door


def move(case: cases.Case, first: list[Any], second: list[Any], state: Any, inbox: Mail, t: int) -> tuple[float, float]:
    """How far the victim's query moves between two data sets from one state and inbox, and how far it may.

    Where noise is in the objective, the query is the noise that brings out one and the same argmin.
    """
    doors = [measured(case, parties, state, inbox, t) for parties in (first, second)]
    if doors[0].solved is not None:
        return objective_move(case, first, second, state, inbox, t, doors)
    allowed = float(doors[0].declared[VICTIM])
    # An argmin is known to its tolerance only: each of the two may be off by tolerance / k.
    local = Local(small(case).public, Shards.from_parties(first, row_bound=1.0))
    allowed += getattr(case.algorithm, "tolerance", 0.0) * allowed / float(local.moves[VICTIM, 0])
    return float(np.linalg.norm(doors[0].query[VICTIM] - doors[1].query[VICTIM])), allowed


def objective_move(
    case: cases.Case, first: list[Any], second: list[Any], state: Any, inbox: Mail, t: int, doors: list[Measuring]
) -> tuple[float, float]:
    """The noise b' that gives the second data set the argmin of the first is b plus what the gradients differ by.

    Checked by solving with it: the argmins agree within what the cover of an inexact argmin allows. So the map from
    argmin to noise is the declared one, and its displacement is what must not pass the declared sensitivity.
    """
    f, declared = doors[0].query, doors[0].solved
    gradients = [door.party.gradient(f) for door in doors]
    b = (gradients[0] - gradients[1]) / declared["weight"]
    other = measured(case, second, state, inbox, t, noise=b)
    apart = np.linalg.norm(f - other.query, axis=-1)
    assert np.all(apart <= other.declared * (1 + 1e-9))
    # k is strong convexity: the argmin never moves further than the linear term over k.
    far = measured(case, first, state, inbox, t, noise=np.ones_like(f))
    pushed = np.linalg.norm(declared["weight"] * np.ones_like(f), axis=-1) / np.ravel(declared["k"])
    assert np.all(np.linalg.norm(f - far.query, axis=-1) <= pushed + far.declared)
    return float(np.linalg.norm(b[VICTIM])), float(declared["sensitivity"])


def flipped(job: Job, inbox: Mail) -> tuple[float, float]:
    """How far the first query moves when one label of 101 equal records is flipped, and how far it may."""
    X, y, doors, phase = np.eye(1, job.public.dim).repeat(101, axis=0), np.ones(101), [], job.algorithm.phases[0]
    assert isinstance(phase, AtParties)
    for label in (1.0, -1.0):
        y[0] = label
        local = Local(job.public, Shards.from_parties([(X, y)], row_bound=1.0))
        door = Measuring(local.ids, job.plan[(0, 0)], Simulation(0), 0, 0, lambda charges: None)
        phase.run(0, local, job.algorithm.init(job.public, local.ids), inbox, door)
        doors.append(door)
    return float(np.linalg.norm(doors[0].query - doors[1].query)), float(doors[1].declared[0])


# Runs that stop, and parties that keep nothing but their ledger


class Stop(BaseException):
    """Like KeyboardInterrupt, but raised by these tests only."""


class Fragile:
    """A cluster that breaks at one moment: before, or after, the parties answered in `round`."""

    def __init__(self, inner: Any, round: int, after: bool) -> None:
        self.inner, self.round, self.after, self.labels = inner, round, after, inner.labels

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        if round == self.round and not self.after:
            raise Stop
        mail: Mail = self.inner.step(round, phase, inbox)
        if round == self.round:
            raise Stop
        return mail


def attempt(
    job: Job,
    data: Shards | People,
    folder: Path,
    breaks: tuple[int, bool] | None = None,
    resume: bool = True,
    every: int = 1,
    pause: float = 0.0,
) -> Progress:
    """Train as one process does: open the ledger, resume from a checkpoint if there is one, and perhaps die."""
    ledger = SqliteLedger(folder / "ledger", range(PARTIES), job.policy, "simulation")
    try:
        parties = cluster(job, data, Simulation(0), ledger)
        path, progress = folder / "checkpoint", None
        if resume and path.exists():
            progress = Progress.load(path, job.id, job.algorithm.start(job.public)[0])
        carrier: Any = parties if breaks is None else Fragile(parties, *breaks)
        return train(job, carrier, [Checkpoint(path, job.id, every, pause)], progress)
    finally:
        ledger.close()


def charged(job: Job, folder: Path) -> list[Spent]:
    """What every party has spent by the ledger of `attempt`."""
    ledger = SqliteLedger(folder / "ledger", range(PARTIES), job.policy, "simulation")
    spent = [ledger.spent(party) for party in range(PARTIES)]
    ledger.close()
    return spent


def answer(case: Case, party: int, folder: Path, round: int, phase: int, inbox: bytes) -> bytes:
    """What a federated client does at every message: rebuild everything from stored bytes, answer, forget."""
    job, block = case.job(), held(case.data()).take(np.array([party]))
    ledger = SqliteLedger(folder / f"{party}.sqlite", [party], job.policy, "simulation")
    worker = open_block(job, block, Simulation(0), ledger)
    reply = worker.step(round, phase, Mail.unpack(inbox).only(worker.senders)).pack()
    ledger.close()
    return reply


def exchange_keys(job: Job, folder: Path, parts: list[list[int]] = BLOCKS_OF_ONE) -> None:
    """Give the ledgers of these blocks, each named for its first party, the roster of a secure sum."""
    ledgers = [SqliteLedger(folder / f"{part[0]}.sqlite", part, job.policy, "simulation") for part in parts]
    entries = [introduced(job, np.array(ledger.ids), ledger) for ledger in ledgers]
    for ledger in ledgers:
        accept_roster(job, np.array(ledger.ids), ledger, Roster.of(entries).pack(), lambda entry, party: True)
        ledger.close()


class Rebuilt:
    """A cluster whose parties live in another process and keep nothing but their ledger."""

    def __init__(self, case: Case, folder: Path, pool: ProcessPoolExecutor) -> None:
        self.case, self.folder, self.pool = case, folder, pool
        self.labels = cluster(case.job(), case.data(), Simulation(0)).labels
        if case.job().sums is not None:
            exchange_keys(case.job(), folder)

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        mail = inbox.pack()
        asked = [self.pool.submit(answer, self.case, i, self.folder, round, phase, mail) for i in range(PARTIES)]
        return Mail.join([Mail.unpack(reply.result()) for reply in asked])
