"""A ledger's summaries: a letter costs the same whatever the ledger's age, and nothing that was altered is counted."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from federations import Desks, Federated, federated
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.errors import ClusterError, LedgerError
from privadmm.privacy.events import Gaussian
from privadmm.privacy.ledger import Tick
from privadmm.privacy.ledger_file import ADDED
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify
from small_runs import PRIVATE, with_changes

POLICY = Policy(Budget(9.0, 1e-5))
CHARGE = {0: (Gaussian(30.0),), 1: (Gaussian(30.0), Gaussian(20.0))}


def opened(path: Path) -> SqliteLedger:
    return SqliteLedger(path, [0, 1], POLICY, "simulation")


def pay(path: Path, job: str, *rounds: int) -> None:
    """Each tick in a process of its own, as a party answers letters."""
    for t in rounds:
        with closing(opened(path)) as ledger, ledger.transaction():
            ledger.permit(job, CHARGE)
            ledger.commit(Tick(job, t, 0), f"in {t}", CHARGE, b"out", b"state %d" % t)


def alter(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Rows 1 to 4 are of job one, 5 to 8 of job two; only row 8 came after the newest summary."""
    pay(tmp_path / "ledger", "one", *range(4))
    pay(tmp_path / "ledger", "two", *range(4))
    with closing(sqlite3.connect(tmp_path / "ledger")) as db:
        assert db.execute("SELECT seq, job FROM summaries ORDER BY seq").fetchall() == [(4, "one"), (7, "two")]
    return tmp_path / "ledger"


def counted(path: Path) -> list[Any]:
    with closing(opened(path)) as ledger:
        jobs = {name: (ledger.spent(1, name), ledger.latest(name)) for name in ledger.jobs()}
        return [ledger.spent(0), ledger.spent(1), ledger.others(1, "two"), ledger.head, jobs]


def test_what_is_counted_is_the_same_with_summaries_and_without(path: Path) -> None:
    with_summaries = counted(path)
    assert with_summaries[0] == ((Gaussian(30.0), 8),)
    assert verify(path).problems == ()
    alter(path, "DELETE FROM summaries")
    assert counted(path) == with_summaries


def test_a_ledger_of_an_earlier_version_is_verified_once_and_gets_them(path: Path) -> None:
    before = counted(path)
    for made in ADDED:
        _, kind, _, _, _, name, *_ = made.split()
        alter(path, f"DROP {kind} {name}")
    assert verify(path).problems == ()
    copy = shutil.copy(path, path.with_name("copy"))
    assert counted(path) == before
    pay(path, "two", 4)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM summaries").fetchone() == (2,)
    alter(copy, "UPDATE ticks SET charges = '[]' WHERE seq = 2")
    with pytest.raises(LedgerError, match="row 2: its hash does not fit"):
        opened(copy)


def test_an_earlier_version_may_have_written_meanwhile(path: Path) -> None:
    """It adds rows and leaves the summaries as they are: its rows chain on from the newest."""
    with closing(sqlite3.connect(path)) as db:
        kept = db.execute("SELECT * FROM summaries").fetchall()
    pay(path, "one", 4, 5)
    pay(path, "three", 0)
    whole = counted(path)
    alter(path, "DELETE FROM summaries")
    for row in kept:
        alter(path, "INSERT INTO summaries VALUES (?, ?, ?, ?)", *row)
    assert counted(path) == whole
    assert verify(path).problems == ()


# What is done to the file, and whether the next letter notices. The next full verification always does.
ALTERED: dict[str, tuple[str, bool]] = {
    "an old row": ("UPDATE ticks SET charges = '[]' WHERE seq = 2", False),
    "an old row removed": ("DELETE FROM ticks WHERE seq = 2", False),
    "an old row of the same job": ("UPDATE ticks SET outbox = x'00' WHERE seq = 6", False),
    "a row after the summaries": ("UPDATE ticks SET charges = '[]' WHERE seq = 8", True),
    "its released bytes": ("UPDATE ticks SET outbox = x'00' WHERE seq = 8", True),
    "its hash": ("UPDATE ticks SET hash = 'x' WHERE seq = 8", True),
    "its number": ("UPDATE ticks SET seq = 9 WHERE seq = 8", True),
    "the hash of the newest summary's row": ("UPDATE ticks SET hash = 'x' WHERE seq = 7", True),
    "the newest summary's row removed": ("DELETE FROM ticks WHERE seq = 7", True),
    "a tail cut off": ("DELETE FROM ticks WHERE seq >= 7", True),
    "a summary's account": ("UPDATE summaries SET account = replace(account, '3', '1') WHERE seq = 7", True),
    "a summary's seal": ("UPDATE summaries SET seal = 'x' WHERE seq = 7", True),
    "a summary's job": ("UPDATE summaries SET job = 'three' WHERE seq = 7", True),
    "a summary of another row": ("UPDATE summaries SET seq = 6 WHERE seq = 7", True),
    "a summary beyond the end": ("UPDATE summaries SET seq = 99 WHERE seq = 7", True),
    "another job's summary removed": ("DELETE FROM summaries WHERE seq = 4", True),
    "the state": ("UPDATE states SET state = x'00' WHERE job = 'two'", True),
    "the state's row removed": ("DELETE FROM states WHERE job = 'two'", True),
}


@pytest.mark.parametrize(("statement", "at_once"), ALTERED.values(), ids=ALTERED)
def test_what_was_altered_is_noticed(statement: str, at_once: bool, path: Path) -> None:
    alter(path, statement)
    assert verify(path).problems

    def letter() -> None:
        with closing(opened(path)) as ledger:
            ledger.permit("two", CHARGE)
            ledger.latest("two")

    if at_once:
        with pytest.raises(LedgerError, match="ledger: "):
            letter()
    else:
        letter()


def test_a_job_without_its_summary_fails_closed(path: Path) -> None:
    alter(path, "DELETE FROM summaries WHERE job = 'one'")
    with closing(opened(path)) as ledger, pytest.raises(LedgerError, match="has rows and no summary"):
        ledger.permit("one", CHARGE)
    with closing(opened(path)) as ledger:
        assert ledger.spent(0, "two") == ((Gaussian(30.0), 4),)


def test_the_newest_summary_may_be_lost(path: Path) -> None:
    """Rows since the summary before it are read again."""
    whole = counted(path)
    alter(path, "DELETE FROM summaries WHERE seq = 7")
    assert counted(path) == whole
    assert verify(path).problems == ()


def test_a_backup_that_was_put_back_shows_to_who_kept_the_heads(tmp_path: Path) -> None:
    """By itself it is a ledger like any other, its summaries included."""
    path, heads = tmp_path / "ledger", []
    for t in range(6):
        pay(path, "one", t)
        with closing(opened(path)) as ledger:
            heads.append(("one", t, 0, ledger.head))
        if t == 3:
            shutil.copy(path, tmp_path / "backup")
    assert verify(path, heads).problems == ()
    (tmp_path / "backup").replace(path)
    assert verify(path).problems == ()
    assert ["round 5 of job one" in problem for problem in verify(path, heads).problems] == [True, False]


class Work:
    """Counts instructions of SQLite's virtual machine, in all connections: each row read is some of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = self.connections = 0
        connect = sqlite3.connect

        def counting(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            db = connect(*args, **kwargs)
            db.set_progress_handler(self.one_more, 1)
            self.connections += 1
            return db

        monkeypatch.setattr(sqlite3, "connect", counting)

    def one_more(self) -> int:
        self.steps += 1
        return 0


def job_of(folder: Path, rounds: int) -> Federated:
    changes = {"algorithm": {"rounds": rounds}, "privacy": {"epsilon": 0.1, "budget": 50.0}}
    return federated(folder, with_changes(PRIVATE, changes))


def test_a_letter_reads_as_much_in_an_old_ledger_as_in_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, work, seen = job_of(tmp_path, 12), Work(monkeypatch), list[tuple[int, int]]()

    class Counted(Desks):
        def ask(self, party: int, letter: Any) -> Any:
            work.steps = work.connections = 0
            said = super().ask(party, letter)
            if party == 0 and letter["kind"] == "step":
                seen.append((work.steps, work.connections))
            return said

    for number in range(4):
        made.run(Counted(made.folders), out=f"runs/{number}")
    first = seen[1:12]  # the first letter of a job finds more new rows: what was set aside for it
    assert len(seen) == 48
    assert {connections for _, connections in seen} == {1}  # a deployment has one more, to the lock beside the ledger
    for number in range(4):
        assert seen[12 * number + 1 : 12 * (number + 1)] == first
    assert len({steps for steps, _ in first[1:]}) == 1


def test_a_federation_verifies_in_full_when_a_job_begins(tmp_path: Path) -> None:
    """An old row that was altered stops the next job, and not the steps of one that has begun."""
    made, statuses = job_of(tmp_path, 4), []

    class Altering(Desks):
        def ask(self, party: int, letter: Any) -> Any:
            if party == 0 and letter["kind"] == "step" and letter["round"] == 3:
                alter(made.ledgers[0], "UPDATE ticks SET outbox = x'00' WHERE seq = 2")
            said = super().ask(party, letter)
            statuses.append(said["status"])
            return said

    made.run(Altering(made.folders))
    assert set(statuses) == {"ok"}
    with pytest.raises(ClusterError, match="altered or removed"):
        made.run(out="runs/second")


def test_a_federation_verifies_the_last_row_at_every_letter(tmp_path: Path) -> None:
    made, said = job_of(tmp_path, 4), list[Any]()

    class Altering(Desks):
        def ask(self, party: int, letter: Any) -> Any:
            if party == 0 and letter["kind"] == "step" and letter["round"] == 3:
                alter(made.ledgers[0], "UPDATE ticks SET charges = '[]' WHERE seq = 4")
                said.append(answer(self.folders[0], letter))
            return super().ask(party, letter)

    with pytest.raises(ClusterError, match="altered or removed"):
        made.run(Altering(made.folders))
    assert said[0]["status"] == "failed"


def test_a_row_that_is_read_again_is_verified(path: Path) -> None:
    """A summary covers it, so that no letter verifies it by itself."""
    alter(path, "UPDATE ticks SET outbox = ? WHERE seq = 2", b"other")
    with closing(opened(path)) as ledger, pytest.raises(LedgerError, match="row 2"):
        ledger.recall(Tick("one", 1, 0), "in 1")


def test_what_was_drawn_once_is_not_drawn_again_where_its_row_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with closing(opened(path)) as ledger:
        assert ledger.keep("", "labels", lambda: b"first", None) == b"first"
        assert ledger.keep("", "more", lambda: b"more", None) == b"more"
    pay(path, "one", 0, 1)
    alter(path, "DELETE FROM ticks WHERE inbox = 'labels'")
    with closing(opened(path)) as ledger, pytest.raises(LedgerError, match="removed"):
        ledger.keep("", "labels", lambda: b"second", None)


def test_a_lost_summary_of_another_job_is_noticed_where_a_budget_is_asked_for(path: Path) -> None:
    alter(path, "DELETE FROM summaries WHERE job = 'one'")
    with closing(opened(path)) as ledger, pytest.raises(LedgerError, match="no summary"):
        ledger.reserve("three", {0: ((Gaussian(30.0), 1),)})
