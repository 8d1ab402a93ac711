"""A steward's decision about missing rows settles what was before it, once, and nothing that comes after it."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
from federations import Backup, Desks, Federated, federated
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.keys import certificate_fingerprint
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.setup.doctor import check
from privadmm.deploy.federation.setup.joining import amended, need_ledger
from privadmm.errors import ClusterError, LedgerError, LockedError
from privadmm.privacy.backups import Decision, backup, restore
from privadmm.privacy.verification import verify
from small_runs import PRIVATE, with_changes

pytestmark = pytest.mark.usefixtures("skipped_plots")
SHORT = with_changes(PRIVATE, {"algorithm": {"rounds": 3}, "privacy": {"budget": 20.0}})


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    return federated(tmp_path, SHORT)


def spent(made: Federated, party: int) -> float:
    return verify(made.ledgers[party]).epsilon[party]


def lose(ledger: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{ledger}{suffix}").unlink(missing_ok=True)


def test_a_party_that_was_set_back_as_a_whole_is_locked_once(made: Federated, tmp_path: Path) -> None:
    made.run(out="runs/zero")
    folder, snapshot = made.folders[1], tmp_path / "snapshot"
    shutil.copytree(folder, snapshot)
    made.run(out="runs/first")
    shutil.rmtree(folder)
    shutil.copytree(snapshot, folder)
    with pytest.raises(LockedError, match="party 1"):
        made.run(out="runs/second")
    restore(made.ledgers[1], made.ledgers[1], Decision("the machine was set back", charge=1.0, at_delta=0.0))
    made.run(out="runs/third")
    shutil.rmtree(folder / "jobs")  # of jobs that are over, to make room
    made.run(out="runs/fourth")
    with pytest.raises(LedgerError, match="lacks nothing"):
        restore(made.ledgers[1], made.ledgers[1], Decision("again", charge=1.0, at_delta=0.0))


def test_the_same_backup_restored_twice_locks_nothing(made: Federated, tmp_path: Path) -> None:
    ledger, copy = made.ledgers[1], tmp_path / "copy.sqlite"
    backup(ledger, copy)
    for number in range(3):
        made.run(out=f"runs/{number}")
        lose(ledger)
        assert restore(copy, ledger, Decision("the same words")).known
        assert spent(made, 1) == spent(made, 0)
    made.run(out="runs/last")


def test_what_a_job_releases_after_a_restore_is_not_settled_by_it(made: Federated) -> None:
    """Begun before, resumed after it: a copy of the ledger with its anchor is noticed all the same."""

    def stop(party: int, letter: object) -> None:
        if dict(letter)["kind"] == "step":  # type: ignore[call-overload]
            raise ClusterError("the network is gone")

    first = Backup.of(made.ledgers[1])
    with pytest.raises(ClusterError, match="the network is gone"):
        made.run(Desks(made.folders, stop))
    first.put_back()
    with pytest.raises(LockedError, match="party 1"):
        made.run(resume=True)
    restore(made.ledgers[1], made.ledgers[1], Decision("a disk died", charge=1.0, at_delta=0.0))
    again = Backup.of(made.ledgers[1])
    made.run(resume=True)
    again.put_back()
    with pytest.raises(LockedError, match="party 1"):
        made.run(out="runs/second")


def test_a_steward_in_doubt_cannot_say_less_than_the_anchor_knows(made: Federated, tmp_path: Path) -> None:
    ledger, copy = made.ledgers[1], tmp_path / "copy.sqlite"
    backup(ledger, copy)
    made.run()
    before = spent(made, 1)
    (made.folders[1] / "jobs" / f"{'ab' * 16}.admitted").write_text("of a job that the ledger does not know")
    with pytest.raises(LockedError, match="party 1"):
        made.run(out="runs/second")
    assert not restore(copy, ledger, Decision("nothing was lost", charge=0.0)).known
    assert spent(made, 1) == before


def test_an_old_copy_from_before_an_amendment_is_locked_and_not_called_another_policy(made: Federated) -> None:
    before = Backup.of(made.ledgers[1], with_anchor=False)
    made.run()
    made.change(1, "epsilon = 20.0", "epsilon = 30.0")
    amended(made.folders[1], "consent of 3 March")
    made.run(out="runs/second")
    before.put_back()
    with pytest.raises(LockedError, match="party 1"):
        made.run(out="runs/third")
    (found,) = [one for one in check(made.folders[1])[str(made.folders[1])] if one.what == "ledger"]
    assert found.state == "bad"
    assert "anchor" in found.said


def empty(path: Path) -> None:
    path.write_bytes(b"")


def without_tables(path: Path) -> None:
    """As it is left where a process dies while it makes a ledger."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")


@pytest.mark.parametrize("leave", [empty, without_tables])
def test_no_letter_makes_a_ledger_where_none_was_made(leave: Callable[[Path], None], made: Federated) -> None:
    ledger, folder = made.ledgers[1], made.folders[1]
    made.run()
    lose(ledger)
    Path(f"{ledger}-anchor").unlink()
    leave(ledger)
    before = ledger.read_bytes()
    for letter in ({"kind": "end", "job": "ab" * 16}, {"kind": "give_up", "job": "ab" * 16}):
        answer(folder, letter)
        assert ledger.read_bytes() == before
    with pytest.raises(LedgerError, match="is empty, not a ledger"):
        need_ledger(read_party(folder))


def test_a_second_certificate_behind_an_authoritys_is_refused(made: Federated) -> None:
    certificates = made.made.coordinator.certificates
    authority, other = (certificates / "ca.pem").read_bytes(), (certificates / "server.pem").read_bytes()
    assert certificate_fingerprint(authority)
    with pytest.raises(ValueError, match="2 certificates"):
        certificate_fingerprint(authority + other)


def test_a_long_letter_does_not_fill_the_log(made: Federated) -> None:
    log = made.folders[1] / "requests.log"
    said = answer(made.folders[1], {"kind": "hello", "text": "\n".join(f"[section_{i}]" for i in range(20_000))})
    assert said["status"] in ("failed", "refused")
    assert len(str(said["message"])) <= 2000
    assert log.stat().st_size < 50_000
