"""A backup that is put back is charged with what was released since, however often and whenever it is interrupted."""

import json
import os
import shutil
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledgers import NOISE, ONE, POLICY, TWO, aside, begin, copied, every_kill, locked, opened, pay, put_back
from privadmm.errors import ConfigError, LedgerError, LockedError, RefusedError
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.anchor import RECORD, AnchorFile
from privadmm.privacy.backups import Decision, Restored, backup, restore
from privadmm.privacy.events import Gaussian, Lost, RandomizedResponse, merge
from privadmm.privacy.key_file import KeyFile
from privadmm.privacy.ledger import Tick
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.policy import Budget
from privadmm.privacy.verification import verify

WHY = Decision("the disk broke")
THREE = "3" * 32


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger in a folder of its own. Job one: two of its five rounds are done."""
    (tmp_path / "party").mkdir()
    begin(tmp_path / "party" / "ledger")
    pay(tmp_path / "party" / "ledger", 0, 1)
    return tmp_path / "party" / "ledger"


@pytest.fixture
def saved(path: Path, tmp_path: Path) -> Path:
    """A backup from then."""
    backup(path, tmp_path / "backup")
    return tmp_path / "backup"


def gone_on(path: Path) -> None:
    """Job one ends, job two is closed after three of ten rounds, job three has done one of four."""
    pay(path, 2, 3, 4)
    begin(path, TWO, 10)
    pay(path, 0, 1, 2, job=TWO)
    with closing(opened(path)) as ledger:
        ledger.close_job(TWO)
    begin(path, THREE, 4)
    pay(path, 0, job=THREE)


IN_ALL = 5 + 3 + 4  # releases that are spent or set aside then


def loses(path: Path) -> None:
    """The ledger's own file breaks; its anchor stays."""
    path.write_bytes(b"broken" * 1000)
    for beside in ("-wal", "-shm"):
        path.with_name(f"{path.name}{beside}").unlink(missing_ok=True)


def test_a_backup_is_a_whole_copy_for_its_owner_without_keys(path: Path, tmp_path: Path) -> None:
    with closing(opened(path)) as ledger:
        key = os.urandom(32)
        ledger.secret(ONE, lambda: key)
    found = backup(path, tmp_path / "copy")
    assert found.rows == 3
    assert found.head == verify(path).head
    assert stat.S_IMODE(os.stat(tmp_path / "copy").st_mode) == 0o600
    assert key not in (tmp_path / "copy").read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["copy", "party"]
    assert verify(tmp_path / "copy").unanchored
    before = (tmp_path / "copy").read_bytes()
    with pytest.raises(LedgerError, match="exists already"):
        backup(path, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == before
    assert locked(path) is None


def test_a_backup_is_made_while_others_write(path: Path, tmp_path: Path) -> None:
    with closing(opened(path)) as ledger, ledger.transaction():
        ledger.commit(Tick(ONE, 2, 0), "in", {0: (NOISE,)}, b"out", b"state")
        with pytest.raises(LedgerError, match="locked"):  # it waits for the writer, here in vain
            short(lambda: backup(path, tmp_path / "copy"))
    backup(path, tmp_path / "copy")
    assert verify(tmp_path / "copy").rows == 4


def short(act: Callable[[], Any]) -> None:
    """Wait for locks a moment only."""
    import sqlite3

    from privadmm.privacy import ledger_file

    plain = sqlite3.connect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_file.sqlite3, "connect", lambda *args, **how: plain(*args, **{**how, "timeout": 0.05}))
        act()


def test_a_backup_is_no_ledger_to_work_with(path: Path, saved: Path) -> None:
    assert "anchor" in str(locked(saved))


def test_what_the_anchor_knows_is_charged_exactly(path: Path, saved: Path) -> None:
    gone_on(path)
    assert aside(path) == IN_ALL
    with closing(opened(path)) as ledger:
        before = ledger.aside()
    loses(path)
    done = restore(saved, path, WHY)
    assert done.known
    assert done.ended == (ONE,)
    assert done.charged == {0: ((NOISE, IN_ALL - 2),)}
    assert done.replaced is not None
    assert done.replaced.exists()
    assert aside(path) == IN_ALL
    with closing(opened(path)) as ledger:
        assert ledger.aside() == before
        assert ledger.spent(0) == before[0]  # nothing is open any more
        with pytest.raises(RefusedError):
            ledger.permit(ONE, {0: (NOISE,)})
    found = verify(path)
    assert found.problems == ()
    assert found.behind is None
    with pytest.raises(RefusedError, match="was closed"):
        pay(path, 2)


def test_a_copy_that_was_put_back_by_hand_is_mended_in_its_place(path: Path) -> None:
    old = copied(path, "old")
    gone_on(path)
    put_back(old, path)
    assert locked(path) is not None
    done = restore(path, path, WHY)
    assert done.known
    assert aside(path) == IN_ALL
    assert locked(path) is None


def test_the_budget_covers_what_was_lost_and_no_more(path: Path, saved: Path) -> None:
    """What is left after it is what was left before it, so that no job gets a second budget."""
    gone_on(path)
    left = room(path)
    loses(path)
    restore(saved, path, WHY)
    assert room(path) == left
    loses(path)
    restore(saved, path, WHY)  # once more, from the same backup
    assert aside(path) == IN_ALL
    assert room(path) == left


def room(path: Path) -> int:
    """How many releases a job could still set aside."""
    low, high = 0, 10_000
    with closing(opened(path)) as ledger:
        before = ledger.others(0, "")
    while high - low > 1:
        middle = (low + high) // 2
        fits = epsilon(merge(before, ((NOISE, middle),)), 1e-5) <= 2.0
        low, high = (middle, high) if fits else (low, middle)
    return low


def test_a_backup_as_new_as_the_anchor_goes_on(path: Path, saved: Path) -> None:
    loses(path)
    done = restore(saved, path, WHY)
    assert (done.missing, done.ended, done.charged) == (None, (), {})
    pay(path, 2, 3, 4)
    assert aside(path) == 5


def test_a_step_that_was_under_way_is_charged(path: Path, saved: Path) -> None:
    with pytest.raises(SystemExit):
        pay(path, 2, read=lambda: (_ for _ in ()).throw(SystemExit))
    loses(path)
    done = restore(saved, path, WHY)
    assert "under way" in str(done.missing)
    assert aside(path) == 5  # the job may have failed at any of its rounds: all that it set aside
    assert locked(path) is None


def test_a_step_under_way_of_a_job_that_set_nothing_aside_is_charged(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    pay(path, 0)
    backup(path, tmp_path / "backup")
    with pytest.raises(SystemExit):
        pay(path, 1, read=lambda: (_ for _ in ()).throw(SystemExit))
    loses(path)
    done = restore(tmp_path / "backup", path, WHY)
    assert done.charged == {0: ((NOISE, 1),)}
    with pytest.raises(RefusedError, match="was closed"):
        pay(path, 1)


def test_a_whole_ledger_is_not_replaced(path: Path, saved: Path) -> None:
    pay(path, 2)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="lacks nothing"):
        restore(saved, path, WHY)
    with pytest.raises(LedgerError, match="lacks nothing"):
        restore(path, path, WHY)
    assert path.read_bytes() == before


def test_another_ledgers_backup_is_refused(path: Path, tmp_path: Path) -> None:
    begin(tmp_path / "other", mode="simulation")
    backup(tmp_path / "other", tmp_path / "copy")
    loses(path)
    with pytest.raises(LedgerError, match="another ledger"):
        restore(tmp_path / "copy", path, WHY)


def test_a_damaged_backup_is_refused(path: Path, saved: Path) -> None:
    import sqlite3

    with closing(sqlite3.connect(saved)) as db, db:
        db.execute("UPDATE ticks SET charges = '[]' WHERE seq = 2")
    loses(path)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="altered or removed"):
        restore(saved, path, WHY)
    assert path.read_bytes() == before


# What is not known here ------------------------------------------------------------------------------------------


def unknown(path: Path, how: str) -> None:
    """The anchor is lost, damaged, does not know what was set aside, or others hold proof of more."""
    file = AnchorFile(path).path
    match how:
        case "removed":
            file.unlink()
        case "damaged":
            file.write_bytes(b"x" * RECORD)
        case "torn":
            file.write_bytes(file.read_bytes()[: RECORD + 3])
        case "proof":
            with closing(opened(path)) as ledger, pytest.raises(LockedError):
                ledger.lock_behind("a signed receipt")


UNKNOWN = ("removed", "damaged", "torn", "proof")


@pytest.mark.parametrize("how", UNKNOWN)
def test_what_is_not_known_is_for_the_steward_to_decide(how: str, path: Path, saved: Path) -> None:
    gone_on(path)
    unknown(path, how)
    loses(path)
    with pytest.raises(ConfigError, match="--charge EPSILON"):
        restore(saved, path, WHY)
    assert path.read_bytes().startswith(b"broken")
    done = restore(saved, path, replace(WHY, charge=0.5, at_delta=0.0))
    assert not done.known
    # What the anchor knows or, where it does not, what job one set aside; and what the steward says.
    lost = 10 if how == "proof" else 3
    assert done.charged == {0: merge(((NOISE, lost),), ((Lost(0.5), 1),))}
    with closing(opened(path)) as ledger:
        total = epsilon(ledger.spent(0), 1e-5)
    whole = epsilon(((NOISE, 2 + lost),), 1e-5)
    assert whole < total <= whole + 0.5
    assert locked(path) is None
    assert verify(path).problems == ()


@pytest.mark.parametrize("how", UNKNOWN)
def test_all_that_is_left_may_be_spent(how: str, path: Path, saved: Path) -> None:
    gone_on(path)
    unknown(path, how)
    loses(path)
    restore(saved, path, replace(WHY, spend_all=True))
    assert verify(path).problems == ()
    assert 2.0 * (1 - 1e-6) < verify(path).epsilon[0] <= 2.0
    with closing(opened(path)) as ledger, pytest.raises(RefusedError, match="in all"):
        ledger.reserve(TWO, {0: ((Gaussian(1e5), 1),)})


def test_a_charge_beyond_the_budget_is_refused(path: Path, saved: Path) -> None:
    unknown(path, "removed")
    loses(path)
    with pytest.raises(RefusedError, match="--spend-all"):
        restore(saved, path, replace(WHY, charge=5.0, at_delta=0.0))
    with pytest.raises(LedgerError, match="why"):
        Decision("  ")
    with pytest.raises(ConfigError, match="exclude"):
        Decision("why", 1.0, True)
    with pytest.raises(ConfigError):
        Decision("why", -1.0)


def test_a_charge_says_at_which_delta_it_holds(path: Path, saved: Path) -> None:
    """An epsilon read off a report holds at the report's delta, which is then taken off the ledger's."""
    unknown(path, "removed")
    loses(path)
    with pytest.raises(ConfigError, match="--at-delta"):
        replace(WHY, charge=0.1)
    with pytest.raises(ConfigError, match="leaves nothing of the ledger's delta"):
        restore(saved, path, replace(WHY, charge=0.1, at_delta=1e-5))
    done = restore(saved, path, replace(WHY, charge=0.1, at_delta=4e-6))
    assert (Lost(0.1, 4e-6), 1) in done.charged[0]
    with closing(opened(path)) as ledger:
        spent = ledger.spent(0)
        pure = merge(tuple(one for one in spent if not isinstance(one[0], Lost)), ((Lost(0.1), 1),))
        assert epsilon(spent, 1e-5) == epsilon(pure, 1e-5 - 4e-6) > epsilon(pure, 1e-5)
        with pytest.raises(RefusedError):  # at a smaller delta nothing is proved any more
            ledger.amend(replace(POLICY, budget=Budget(2.0, 4e-6)), "a smaller delta")


def test_a_charge_may_come_on_top_of_what_is_known(path: Path, saved: Path) -> None:
    gone_on(path)
    loses(path)
    done = restore(saved, path, replace(WHY, charge=0.25, at_delta=0.0))
    assert done.known
    assert done.charged == {0: merge(((NOISE, IN_ALL - 2),), ((Lost(0.25), 1),))}


def test_proof_of_others_is_not_undone_by_an_older_backup(path: Path, saved: Path) -> None:
    unknown(path, "proof")
    put_back(saved, path)
    with pytest.raises(ConfigError, match="--charge"):
        restore(saved, path, WHY)
    restore(saved, path, replace(WHY, charge=0.1, at_delta=0.0))
    assert locked(path) is None


def test_proof_of_others_is_decided_in_the_ledgers_place(path: Path) -> None:
    unknown(path, "proof")
    with pytest.raises(ConfigError, match="--charge"):
        restore(path, path, WHY)
    done = restore(path, path, replace(WHY, charge=0.1, at_delta=0.0))
    assert done.ended == (ONE,)
    assert locked(path) is None
    unknown(path, "proof")  # and again, if there is proof of more
    assert locked(path) is not None


def test_on_a_new_machine_without_an_anchor(path: Path, saved: Path, tmp_path: Path) -> None:
    """Nothing was released since: the steward says so, and that is on record."""
    there = tmp_path / "new" / "ledger"
    with pytest.raises(ConfigError, match="not known here"):
        restore(saved, there, WHY)
    done = restore(saved, there, replace(WHY, why="moved, and the old machine is off", charge=0.0))
    assert done.ended == (ONE,)
    assert aside(there) == 5
    assert locked(there) is None


def test_files_that_move_together_need_nothing(path: Path, tmp_path: Path) -> None:
    there = tmp_path / "new"
    there.mkdir()
    for suffix in ("", "-anchor"):
        shutil.move(f"{path}{suffix}", there)
    pay(there / "ledger", 2)
    assert aside(there / "ledger") == 5


# What else must not go back --------------------------------------------------------------------------------------


def test_a_policy_that_was_amended_since_holds(path: Path, saved: Path) -> None:
    strict = replace(POLICY, budget=Budget(0.9, 1e-5))
    with closing(opened(path)) as ledger:
        ledger.amend(strict, "too much")
    loses(path)
    restore(saved, path, WHY)
    known = identity_of(path)
    assert known is not None
    assert known.policy.budget == strict.budget
    assert locked(path, policy=strict) is None
    with pytest.raises(LedgerError, match="budget"):
        opened(path)
    assert verify(path).problems == ()


def test_labels_are_not_drawn_again(tmp_path: Path) -> None:
    path, policy = tmp_path / "ledger", replace(POLICY, label_epsilon=1.0)
    opened(path, policy=policy).close()
    backup(path, tmp_path / "before")
    with closing(opened(path, policy=policy)) as ledger:
        ledger.keep("", "labels", lambda: b"first", RandomizedResponse(1.0))
    backup(path, tmp_path / "after")
    begin(path, policy=policy)
    for anchor in (True, False):
        loses(path)
        if not anchor:
            AnchorFile(path).path.unlink()
        with pytest.raises(RefusedError, match="older than what was drawn once"):
            restore(tmp_path / "before", path, replace(WHY, charge=0.1, at_delta=0.0))
    restore(tmp_path / "after", path, replace(WHY, charge=0.1, at_delta=0.0))
    with closing(opened(path, policy=policy)) as ledger:
        assert ledger.keep("", "labels", lambda: b"second", None) == b"first"


def test_keys_are_erased(path: Path, saved: Path) -> None:
    keys = KeyFile(path)
    for job in (ONE, TWO):
        keys.key(job, lambda: os.urandom(32))
    pay(path, 2)
    loses(path)
    restore(saved, path, WHY)
    assert keys.key(ONE) is None
    assert keys.key(TWO, lambda: os.urandom(32)) is None


@pytest.mark.parametrize("dies_in", ["erase_keys", "AnchorFile.make"])
def test_a_restore_that_dies_leaves_no_key_to_a_ledger_that_opens(
    dies_in: str, path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is locked until the keys are erased, and the restore can be done again."""
    KeyFile(path).key(ONE, lambda: os.urandom(32))
    pay(path, 2)
    loses(path)

    def dies(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(f"privadmm.privacy.backups.{dies_in}", dies)
        with pytest.raises(SystemExit):
            restore(saved, path, WHY)
    assert not usable(path)
    restore(saved, path, WHY)
    assert usable(path)
    assert KeyFile(path).key(ONE) is None


# Crashes ---------------------------------------------------------------------------------------------------------


def folder_of(path: Path, to: Path) -> Path:
    shutil.copytree(path.parent, to)
    return to / path.name


def forgotten(path: Path, saved: Path, folder: Path) -> list[str]:
    """Kill a restore at every moment: the ledger is then locked or has all; and the restore can be done again."""
    wrong = []
    for place, kill in every_kill(folder, step=3):
        at = folder_of(path, place / "party")
        kill(lambda at=at: ignore(restore(saved, at, WHY)))  # type: ignore[misc]
        if usable(at) and aside(at) < IN_ALL:
            wrong.append(f"{place.name}: usable, and {IN_ALL - aside(at)} releases are forgotten")
        if usable(at) and KeyFile(at).holds(THREE):
            wrong.append(f"{place.name}: usable, with the key of a job that is over")
        if not usable(at):
            restore(saved, at, WHY)
        if KeyFile(at).holds(THREE):
            wrong.append(f"{place.name}: a key in the end")
        if aside(at) != IN_ALL:
            wrong.append(f"{place.name}: {aside(at)} in the end")
    return wrong


def ignore(_: Restored) -> None:
    return


def usable(path: Path) -> bool:
    try:
        return path.exists() and locked(path) is None
    except LedgerError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("state", ["broken", "put back", "missing"])
def test_killed_at_any_moment_a_restore_forgets_nothing(state: str, path: Path, saved: Path, tmp_path: Path) -> None:
    gone_on(path)
    KeyFile(path).key(THREE, lambda: os.urandom(32))
    match state:
        case "broken":
            loses(path)
        case "put back":
            put_back(saved, path)
        case _:
            path.unlink()
    (tmp_path / "kills").mkdir()
    assert forgotten(path, saved, tmp_path / "kills") == []


@pytest.mark.slow
def test_that_law_notices_a_restore_that_charges_nothing(
    path: Path, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: a restore that puts the copy there and adapts the anchor to it."""
    gone_on(path)
    loses(path)
    monkeypatch.setattr("privadmm.privacy.backups._charge", lambda *_: ((), {}))
    (tmp_path / "kills").mkdir()
    assert forgotten(path, saved, tmp_path / "kills")


@pytest.mark.slow
def test_killed_at_any_moment_a_backup_is_whole_or_not_there(path: Path, tmp_path: Path) -> None:
    (tmp_path / "kills").mkdir()
    for place, kill in every_kill(tmp_path / "kills", step=3):
        kill(lambda place=place: ignore(backup(path, place / "copy")))  # type: ignore[misc,arg-type]
        if (place / "copy").exists():
            assert verify(place / "copy").problems == ()
        assert locked(path) is None


def test_what_a_restore_decided_is_on_record(path: Path, saved: Path) -> None:
    import sqlite3

    gone_on(path)
    unknown(path, "removed")
    loses(path)
    restore(saved, path, Decision("the disk broke on Monday", charge=0.3, at_delta=0.0))
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute("SELECT job, inbox, outbox FROM ticks WHERE kind = 'restore' ORDER BY seq").fetchall()
    assert [(job, why) for job, why, _ in rows] == [(ONE, "the disk broke on Monday"), ("put back", rows[0][1])]
    said = json.loads(rows[1][2])
    assert {key: said[key] for key in ("known", "charge", "spend_all")} == {
        "known": False,
        "charge": 0.3,
        "spend_all": False,
    }


def test_receipts_of_lost_rows_still_show_with_the_decision_about_them(path: Path, saved: Path) -> None:
    gone_on(path)
    with closing(opened(path)) as ledger:
        held = [(ONE, 4, 0, ledger.receipt(Tick(ONE, 4, 0)) or ""), (THREE, 0, 0, "0" * 64)]
    loses(path)
    restore(saved, path, WHY)
    lost, stranger = sorted(verify(path, held).problems, reverse=True)
    assert "round 5 of job" in lost
    for problem in (lost, stranger):
        assert "is its steward's decision of what earlier rows that are missing have cost" in problem
