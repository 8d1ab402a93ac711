"""A ledger's register: who asked, what for and when, what was refused. Nobody can alter, flood, or learn from it."""

import json
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledgers import NOISE, ONE, POLICY, TWO, begin, copied, every_kill, locked, opened, pay, put_back
from privadmm.errors import LockedError, RefusedError
from privadmm.privacy import refusals
from privadmm.privacy.anchor import AnchorFile
from privadmm.privacy.backups import Decision, backup, restore
from privadmm.privacy.ledger import Asked, Tick
from privadmm.privacy.ledger_file import FORMAT, ROWS, connect
from privadmm.privacy.policy import Budget
from privadmm.privacy.refusals import LONGEST, MOST, SALT, bounded, recording
from privadmm.privacy.register import register
from privadmm.privacy.verification import verify

ASKED = Asked("readmissions", "Dr. A", "dp_admm", "c" * 64, "St. Mary's")
DAY = 86400
NEXT = "9" * 32
OLD = Path(__file__).parent / "format_1"
COSTLY = {0: ((NOISE, 10**6),)}


class Clock:
    """A clock that stands still unless somebody moves it."""

    def __init__(self) -> None:
        self.now, self.step = 1_790_000_000.0, 0.0

    def __call__(self) -> time.struct_time:
        self.now += self.step
        return time.gmtime(self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("privadmm.privacy.ledger_file.gmtime", made)
    return made


def start(path: Path, job: str = ONE, rounds: int = 5, asked: Asked = ASKED, **how: Any) -> None:
    with closing(opened(path, **how)) as ledger, recording(ledger, asked, job):
        ledger.reserve(job, {0: ((NOISE, rounds),)}, asked)


def refuse(path: Path, asked: Asked = ASKED, why: str | None = None, **how: Any) -> None:
    """Ask for more than the budget; or be refused for this reason."""
    with closing(opened(path, **how)) as ledger:
        try:
            with recording(ledger, asked, NEXT):
                if why is not None:
                    raise RefusedError(why, "policy")
                ledger.reserve(NEXT, COSTLY, asked)
        except RefusedError:
            return
    pytest.fail("it was not refused")


def fail(path: Path, job: str, at: int, **how: Any) -> None:
    tick = Tick(job, at, 0)
    with closing(opened(path, **how)) as ledger, ledger.turn():
        with ledger.transaction():
            ledger.intend(tick, "in", {0: (NOISE,)})
        with pytest.raises(LockedError):
            ledger.fail(tick, "why")


def rows(path: Path) -> list[Any]:
    with closing(connect(path, read_only=True)) as db:
        return db.execute(f"{ROWS} ORDER BY seq").fetchall()


# What is on record


def test_a_job_says_who_asked_what_for_and_when(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "party.sqlite"
    start(path, rounds=2)
    clock.now += 60
    pay(path, 0)
    clock.now += 60
    pay(path, 1)
    (entry,) = register(path).entries
    assert entry.asked == ASKED
    assert (entry.admitted, entry.began, entry.last) == (
        "2026-09-21T14:13:20Z",
        "2026-09-21T14:14:20Z",
        "2026-09-21T14:15:20Z",
    )
    assert register(path).name == "St. Mary's"
    assert register(path).refusals == ()
    assert not register(path).partial


def test_a_steward_s_decisions_have_their_time(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "party.sqlite"
    start(path)
    fail(path, ONE, 0)
    with closing(opened(path)) as ledger:
        ledger.unlock("looked at")
    clock.now += DAY
    more = replace(POLICY, budget=Budget(3.0, 1e-5))
    with closing(opened(path)) as ledger:
        ledger.amend(more, "consent")
        ledger.note_decision(TWO, False, "not for this")
    found = [(one.what, one.at and one.at[:10], one.why) for one in register(path).decisions]
    assert found == [
        ("unlocked", "2026-09-21", "looked at"),
        ("policy amended", "2026-09-22", "consent"),
        ("proposal refused", "2026-09-22", "not for this"),
    ]
    assert register(path).decisions[-1].job == TWO


def test_a_refusal_is_on_record_with_its_reason_and_changes_nothing_else(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "party.sqlite"
    start(path)
    spent = verify(path).epsilon
    for _ in range(3):
        refuse(path)
    (one,) = register(path).refusals or ()
    assert (one.kind, one.count, one.job, one.asked) == ("budget", 3, NEXT, ASKED)
    assert "may spend epsilon = 2 in all" in one.why
    checked = verify(path)
    assert (checked.problems, checked.behind, checked.epsilon) == ((), None, spent)
    pay(path, 0)
    with closing(opened(path)) as ledger:
        assert ledger.jobs() == [ONE]


def test_a_locked_ledger_records_who_is_refused_but_not_the_failure_as_one(tmp_path: Path) -> None:
    path = tmp_path / "party.sqlite"
    start(path)
    fail(path, ONE, 0)
    assert register(path).refusals == ()
    with closing(opened(path)) as ledger, pytest.raises(LockedError), recording(ledger, ASKED):
        ledger.reserve(TWO, COSTLY)
    (one,) = register(path).refusals or ()
    assert (one.kind, one.why) == ("locked", refusals.LOCKED)
    assert verify(path).problems == ()


# Nobody can alter it


def altered(path: Path, seq: int, column: str, value: Any) -> list[str]:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE ticks SET {column} = ? WHERE seq = ?", (value, seq))
    return list(verify(path).problems)


def facts_on_record(path: Path) -> Iterator[tuple[int, str, Any]]:
    """Every row with one fact of the register changed: number, column, and its other value."""
    for seq, kind, *_, outbox, state, _ in rows(path):
        data = bytes(outbox)
        salt, said = (SALT if kind in ("refuse", "decide") else 0), {}
        with suppress(ValueError):
            said = json.loads(data[salt:]) if kind in ("reserve", "refuse", "decide", "format") and data else {}
        for name, value in said.items():
            other = {**said, name: value + 1 if isinstance(value, int) else f"{value}x"}
            yield seq, "outbox", data[:salt] + json.dumps(other).encode()
        yield seq, "state", state.replace("2026", "2025")
        yield seq, "state", state.partition(" ")[0]


def test_every_new_field_is_covered_by_the_chain(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "party.sqlite"
    start(path, rounds=1)
    pay(path, 0)
    refuse(path)
    refuse(path)
    clock.now += DAY
    refuse(path, why="another")
    with closing(opened(path)) as ledger:
        ledger.note_decision(TWO, True, "fine")
    assert verify(path).problems == ()
    changes = list(facts_on_record(path))
    assert {column for _, column, _ in changes} == {"outbox", "state"}
    assert len(changes) >= 5 + 2 * len(rows(path))
    for number, (seq, column, value) in enumerate(changes):
        copy = Path(shutil.copy(path, tmp_path / f"{number}.sqlite"))
        assert altered(copy, seq, column, value), (seq, column, value)


@pytest.mark.parametrize("change", ["count = count + 5", "last = '2025-01-01T00:00:00Z'", "seq = 1", "key = 'x'"])
def test_a_count_that_was_altered_shows(tmp_path: Path, change: str) -> None:
    path = tmp_path / "party.sqlite"
    start(path)
    refuse(path)
    refuse(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE refused SET {change}")
    assert any("count of refusals" in problem for problem in verify(path).problems)


# Nobody can flood it, or learn from it


def test_repeated_and_many_different_refusals_are_counted_and_not_listed(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "party.sqlite"
    monkeypatch.setattr(refusals, "COUNTED", 50)
    start(path)
    before, many = len(rows(path)), 120
    with closing(opened(path)) as ledger, closing(sqlite3.connect(path)) as file:
        for number in range(many):
            ledger.note_refusal(RefusedError(f"reason {number}", "policy"), ASKED)
            ledger.note_refusal(RefusedError("the same", "policy"), ASKED)
        full = file.execute("PRAGMA page_count").fetchone()
        for number in range(many):
            ledger.note_refusal(RefusedError(f"more {number}", "policy"), ASKED)
        assert file.execute("PRAGMA page_count").fetchone() == full
    assert len(rows(path)) - before == MOST + 1
    found = {one.why: one.count for one in register(path).refusals or ()}
    assert found["the same"] == 50
    assert found[refusals.MORE] == 50
    clock.now += DAY
    refuse(path, why="next day")
    assert len(rows(path)) - before == MOST + 1 + 2 + 1  # what was counted, and the new one
    again = {one.why: one.count for one in register(path).refusals or ()}
    assert again == {**found, "next day": 1}
    assert verify(path).problems == ()


def test_beyond_the_most_that_is_counted_nothing_is_written(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "party.sqlite"
    monkeypatch.setattr(refusals, "COUNTED", 1)
    start(path)
    refuse(path)
    with closing(opened(path)) as ledger, closing(sqlite3.connect(path)) as file:
        version = file.execute("PRAGMA data_version").fetchone()
        ledger.note_refusal(RefusedError(*said(register(path).refusals)), ASKED, TWO)
        assert file.execute("PRAGMA data_version").fetchone() == version
    assert [one.count for one in register(path).refusals or ()] == [1]


def said(found: Any) -> tuple[str, Any]:
    return found[0].why, found[0].kind


def test_texts_are_bounded_and_on_one_line() -> None:
    assert bounded("a\x1b[31mb\u202ec\nd") == "a\\u001b[31mb\\u202ec\\u000ad"
    assert len(bounded("x" * 10**6)) == LONGEST
    assert len(bounded("\x00" * 10**6)) == LONGEST


def test_the_head_tells_nothing_of_what_was_refused(tmp_path: Path, clock: Clock) -> None:
    """The same refusals at the same time, twice: heads must differ, else guesses could be tried on them."""
    heads = set()
    for name in ("a", "b"):
        start(tmp_path / name)
        before = verify(tmp_path / name).head
        refuse(tmp_path / name)
        heads |= {verify(tmp_path / name).head, before}
    assert len(heads) == 3


def test_a_simulation_s_hashes_do_not_depend_on_the_clock(tmp_path: Path, clock: Clock) -> None:
    heads = []
    for name in ("a", "b"):
        path = tmp_path / name
        start(path, rounds=2, mode="simulation")
        pay(path, 0, 1, mode="simulation")
        clock.now += 3 * DAY
        refuse(path, mode="simulation")
        refuse(path, mode="simulation")
        heads.append(verify(path).head)
        (entry,) = register(path).entries
        assert (entry.admitted, entry.began, entry.last) == (None, None, None)
        assert [one.count for one in register(path).refusals or ()] == [2]
    assert heads[0] == heads[1]


# It never stands in the way of a refusal


def test_a_full_disk_loses_the_record_and_not_the_refusal(tmp_path: Path) -> None:
    path = tmp_path / "party.sqlite"
    start(path)
    with closing(opened(path)) as ledger:
        ledger._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
        ledger._db.execute(f"PRAGMA max_page_count = {pages}")
        reason = "x" * LONGEST
        for number in range(40):  # until no page is left
            error = RefusedError(f"{number} {reason}", "policy")
            with pytest.raises(RefusedError) as seen, recording(ledger, replace(ASKED, purpose="y" * 3000)):
                raise error
            assert seen.value is error
        assert not error.recorded
    assert verify(path).problems == ()
    pay(path, 0)


def test_a_ledger_that_another_process_writes_to_does_not_hold_a_refusal_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "party.sqlite"
    start(path)
    monkeypatch.setattr(refusals, "PATIENCE", 0.05)
    with closing(opened(path)) as ledger, closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        error = RefusedError("no", "policy")
        ledger.note_refusal(error, ASKED)
        assert time.monotonic() - began < 2
        assert not error.recorded
        other.execute("ROLLBACK")
        ledger.note_refusal(error, ASKED)
        assert error.recorded


def test_a_copy_that_was_put_back_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "party.sqlite"
    start(path)
    old = copied(path, "old")
    pay(path, 0)
    put_back(old, path)
    assert "its anchor knows" in (locked(path) or "")
    before = path.read_bytes()
    with suppress(LockedError), closing(opened(path)) as ledger:
        ledger.note_refusal(RefusedError("no"), ASKED)
    assert path.read_bytes() == before


def test_what_was_refused_after_a_backup_charges_nothing_when_it_is_put_back(tmp_path: Path) -> None:
    path, saved = tmp_path / "party.sqlite", tmp_path / "saved"
    start(path)
    pay(path, 0)
    backup(path, saved)
    refuse(path)
    spent = verify(path).epsilon
    path.unlink()
    done = restore(saved, path, Decision("the disk broke"))
    assert done.known
    assert verify(path).epsilon.keys() == spent.keys()
    with closing(opened(path)) as ledger:
        assert sum(count for _, count in ledger.spent(0)) == 5  # what was set aside may have been released
    assert register(path).refusals == ()


def test_killed_while_it_is_recorded_a_refusal_leaves_a_sound_ledger(tmp_path: Path) -> None:
    for place, kill in every_kill(tmp_path, step=17):
        path = place / "party.sqlite"
        start(path)
        kill(lambda path=path: refuse(path))  # type: ignore[misc]
        assert locked(path) is None
        assert verify(path).problems == ()
        refuse(path)
        assert len(register(path).refusals or ()) == 1
        pay(path, 0)


# Ledgers of an earlier version


def old_ledger(folder: Path) -> Path:
    """The ledger that the version before wrote, with its anchor. Jobs: one finished, open, closed, failed each."""
    path = folder / "party.sqlite"
    with closing(sqlite3.connect(path)) as db:
        db.executescript((OLD / "ledger.sql").read_text())
    AnchorFile(path).path.write_bytes(bytes.fromhex((OLD / "anchor.hex").read_text()))
    return path


NEW = replace(POLICY, budget=Budget(3.0, 1e-5))


def test_before_it_is_opened_a_ledger_of_format_1_is_read_as_it_is(tmp_path: Path) -> None:
    path = old_ledger(tmp_path)
    before = path.read_bytes()
    found, checked = register(path), verify(path)
    assert (checked.problems, checked.behind) == ((), None)
    assert found.refusals is None
    assert found.partial
    assert len(found.entries) == 4
    assert {entry.asked for entry in found.entries} == {Asked()}
    assert path.read_bytes() == before


def test_a_ledger_of_format_1_goes_on_with_its_history_unchanged(tmp_path: Path, clock: Clock) -> None:
    path = old_ledger(tmp_path)
    before, checked = rows(path), verify(path)
    with closing(opened(path, NEW)) as ledger:
        assert ledger.spent(0)
    after = rows(path)
    assert after[: len(before)] == before
    assert [row[1] for row in after[len(before) :]] == ["format"]
    assert verify(path).epsilon == checked.epsilon
    pay(path, 1, 2, 3, job=TWO, policy=NEW)
    start(path, "5" * 32, policy=NEW)
    refuse(path, policy=NEW)
    assert (verify(path).problems, verify(path).behind) == ((), None)
    found = register(path)
    assert found.partial
    assert [entry.asked for entry in found.entries] == [Asked()] * 4 + [ASKED]
    assert [entry.admitted is None for entry in found.entries] == [True] * 4 + [False]
    assert [one.kind for one in found.refusals or ()] == ["budget"]
    assert [row[1] for row in rows(path)].count("format") == 1
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (FORMAT,)


def test_killed_in_the_middle_of_migration_nothing_is_lost(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    first = old_ledger(source)
    before, spent = rows(first), verify(first).epsilon
    died = 0
    for place, kill in every_kill(tmp_path, step=7):
        path = old_ledger(place)
        died += kill(lambda path=path: opened(path, NEW).close())  # type: ignore[misc]
        found = verify(path)
        assert (found.problems, found.behind, found.epsilon) == ((), None, spent)
        pay(path, 1, job=TWO, policy=NEW)
        after = rows(path)
        assert after[: len(before)] == before
        assert [row[1] for row in after[len(before) :]] == ["format", "tick"]
    assert died > 3


def test_an_old_copy_is_not_migrated_in_the_place_of_a_newer_one(tmp_path: Path) -> None:
    path = old_ledger(tmp_path)
    old = copied(path, "old")
    pay(path, 1, job=TWO, policy=NEW)
    put_back(old, path)
    before = rows(path)
    assert "its anchor knows" in (locked(path, policy=NEW) or "")
    assert rows(path) == before
    assert register(path).refusals is None
    restore(path, path, Decision("put back by mistake"))
    assert locked(path, policy=NEW) is None
    assert verify(path).problems == ()


def test_an_amended_file_of_an_unknown_format_is_not_opened(tmp_path: Path) -> None:
    path = tmp_path / "party.sqlite"
    begin(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    with pytest.raises(Exception, match=f"format {FORMAT + 1}"):
        opened(path)
