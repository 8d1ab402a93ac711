"""A run stopped anywhere and resumed has the same transcript and charges; nothing is paid twice."""

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from cases import CASES, Transcript, named, shards
from contract_tools import EVERY, Case, Stop, attempt, charged
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.loop import Checkpoint, Progress, View
from privadmm.errors import CheckpointError, RefusedError
from privadmm.privacy.accounting import totals
from privadmm.privacy.mechanisms import Simulation

ROUNDS = 4


@cache
def uninterrupted(case: Case) -> Progress:
    job = case.job(rounds=ROUNDS)
    return train(job, cluster(job, case.data(), Simulation(0)))


# With a checkpoint every third round, a run that stops in rounds 0 to 2 has none, and one in round 3 an older one.
@pytest.mark.parametrize(
    ("every", "rounds"), [(1, range(ROUNDS)), (3, (2, 3))], ids=["checkpoint every round", "every third"]
)
@pytest.mark.parametrize("after", [False, True], ids=["before the answer", "after the commit"])
@pytest.mark.parametrize("case", EVERY, ids=named)
def test_resume_gives_the_same_transcript(
    case: Case, after: bool, every: int, rounds: Sequence[int], tmp_path: Path
) -> None:
    job, data, whole = case.job(rounds=ROUNDS), case.data(), uninterrupted(case)
    for round in rounds:
        folder = tmp_path / str(round)
        folder.mkdir()
        with pytest.raises(Stop):
            attempt(job, data, folder, (round, after), every=every)
        done = attempt(job, data, folder, every=every)
        assert done.transcript == whole.transcript
        assert done.mail.pack() == whole.mail.pack()
        assert charged(job, folder) == totals(job.plan, 5)


def test_without_a_checkpoint_the_ledger_alone_is_enough(tmp_path: Path) -> None:
    job = CASES["dp_admm"].job(rounds=ROUNDS)
    whole = train(job, cluster(job, shards(), Simulation(0)))
    with pytest.raises(Stop):
        attempt(job, shards(), tmp_path, (2, True))
    (tmp_path / "checkpoint").unlink()
    assert attempt(job, shards(), tmp_path).transcript == whole.transcript
    assert charged(job, tmp_path) == totals(job.plan, 5)


@pytest.mark.parametrize("case", EVERY, ids=named)
def test_rounds_since_a_pause_began_are_in_the_ledger(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process holds ledger and checkpoint: only the first round and the last wait for a second file."""
    synced, sync = list[int](), os.fsync
    monkeypatch.setattr(os, "fsync", lambda file: (synced.append(file), sync(file))[1])
    job, data, whole = case.job(rounds=ROUNDS), case.data(), uninterrupted(case)
    with pytest.raises(Stop):
        attempt(job, data, tmp_path, (3, True), pause=3600)
    before = charged(job, tmp_path)
    assert Progress.load(tmp_path / "checkpoint", job.id, job.algorithm.start(job.public)[0]).round == 1
    synced.clear()
    done = attempt(job, data, tmp_path, pause=3600)
    assert len(synced) == 2
    assert (done.transcript, done.mail.pack()) == (whole.transcript, whole.mail.pack())
    assert charged(job, tmp_path) == before == totals(job.plan, 5)


def test_a_restored_ledger_does_not_match_the_checkpoint(tmp_path: Path) -> None:
    """With an older backup of the ledger, the parties are asked for a round that they are not ready for."""
    job = CASES["dp_admm"].job(rounds=ROUNDS)
    with pytest.raises(Stop):
        attempt(job, shards(), tmp_path, (1, False))
    backup = {path.name: path.read_bytes() for path in tmp_path.glob("ledger*")}
    with pytest.raises(Stop):
        attempt(job, shards(), tmp_path, (3, False))
    for path in tmp_path.glob("ledger*"):
        path.unlink()
    for name, content in backup.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RefusedError, match="different moments"):
        attempt(job, shards(), tmp_path)


DAMAGE = {
    "a bit": lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
    "the first byte": lambda raw: b"\0" + raw[1:],
    "cut": lambda raw: raw[: len(raw) // 2],
    "empty": lambda raw: b"",
    "text": lambda raw: b"hello " * 100,
}


@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_not_used(harm, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    job = CASES["dp_admm"].job(rounds=ROUNDS)
    with pytest.raises(Stop):
        attempt(job, shards(), tmp_path, (2, False))
    before, path = charged(job, tmp_path), tmp_path / "checkpoint"
    path.write_bytes(harm(path.read_bytes()))
    with pytest.raises(CheckpointError, match="damaged"):
        attempt(job, shards(), tmp_path)
    assert charged(job, tmp_path) == before


def test_a_checkpoint_of_another_job_is_not_used(tmp_path: Path) -> None:
    job = CASES["dp_admm"].job(rounds=ROUNDS)
    train(job, cluster(job, shards(), Simulation(0)), [Checkpoint(tmp_path / "checkpoint", "other")])
    with pytest.raises(CheckpointError, match="of job other"):
        Progress.load(tmp_path / "checkpoint", job.id, job.algorithm.start(job.public)[0])


def test_starting_over_instead_of_resuming_is_caught(tmp_path: Path) -> None:
    """The planted fault: a resumed run under a new job id would pay for its rounds again, and the ledger refuses."""
    job = CASES["dp_admm"].job(rounds=ROUNDS)
    with pytest.raises(Stop):
        attempt(job, shards(), tmp_path, (2, False))
    forgetful = Job(job.algorithm, job.public, job.allowance, id="another")
    with pytest.raises(RefusedError):
        attempt(forgetful, shards(), tmp_path, resume=False)


def test_callbacks_see_released_values_only() -> None:
    job, tape, seen = CASES["dp_admm"].job(), Transcript(), []

    def look(view: View) -> None:
        seen.append((view.progress.round, view.released.pack()))

    train(job, cluster(job, shards(), Simulation(0)), [tape, look])
    assert [round for round, _ in seen] == [1, 2, 3, 4]
    assert [mail for _, mail in seen] == tape.bytes()
