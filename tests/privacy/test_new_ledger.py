"""Another ledger for records, or in a place, that have one says so and asks."""

import os
import sqlite3
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from ledgers import ONE, POLICY, begin, locked, opened, pay
from privadmm.errors import LedgerError, RefusedError
from privadmm.privacy.anchor import AnchorFile
from privadmm.privacy.key_file import KeyFile
from privadmm.privacy.new_ledger import new_ledger, note_of
from privadmm.privacy.verification import verify


def make(path: Path, records: Path | None = None, anew: str | None = None, ids: Sequence[int] = (0,)) -> None:
    new_ledger(path, ids, POLICY, "deployment", records, anew)


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A ledger that has spent something, and a key beside it."""
    make(tmp_path / "ledger", records(tmp_path))
    begin(tmp_path / "ledger")
    pay(tmp_path / "ledger", 0, 1)
    KeyFile(tmp_path / "ledger").key(ONE, lambda: os.urandom(32))
    return tmp_path / "ledger"


def records(folder: Path) -> Path:
    (folder / "records.csv").touch()
    return folder / "records.csv"


def test_a_note_names_the_ledger_of_records(used: Path, tmp_path: Path) -> None:
    note = note_of(records(tmp_path))
    assert note.name == "records.csv-ledger"
    assert stat.S_IMODE(os.stat(note).st_mode) == 0o600
    with pytest.raises(RefusedError) as told:
        make(tmp_path / "second", records(tmp_path))
    assert str(used) in str(told.value)
    assert "has spent epsilon = 0.1" in str(told.value)
    assert "--anew --because" in str(told.value)
    assert not (tmp_path / "second").exists()
    with pytest.raises(RefusedError):
        make(tmp_path / "second", records(tmp_path), "  ")
    make(tmp_path / "second", records(tmp_path), "the first was of a test")
    assert locked(tmp_path / "second") is None
    assert "second" in note.read_text()
    with closing(sqlite3.connect(tmp_path / "second")) as db:
        ((why, what),) = db.execute("SELECT inbox, outbox FROM ticks WHERE kind = 'anew'").fetchall()
    assert why == "the first was of a test"
    assert str(used) in what.decode()
    assert verify(tmp_path / "second").problems == ()


def test_other_records_are_not_asked_about(used: Path, tmp_path: Path) -> None:
    (tmp_path / "other.csv").touch()
    make(tmp_path / "second", tmp_path / "other.csv")
    assert verify(tmp_path / "second").rows == 0


def test_a_place_that_had_a_ledger_is_known_by_what_stayed(used: Path) -> None:
    used.unlink()
    with pytest.raises(RefusedError, match="the anchor of a ledger with 3 rows; epsilon = 0") as told:
        make(used)
    assert "-keys" in str(told.value)
    with pytest.raises(Exception, match="with 3 rows"):
        opened(used)
    make(used, anew="other people's records")
    assert verify(used).rows == 1
    assert not KeyFile(used).path.exists()
    found = AnchorFile(used).read()
    assert found is not None
    assert found.seq == 1


@pytest.mark.parametrize("stays", ["-anchor", "-keys"])
def test_either_file_is_enough(stays: str, used: Path) -> None:
    for file in used.parent.glob("ledger*"):
        if not file.name.endswith(stays):
            file.unlink()
    with pytest.raises(RefusedError, match=stays):
        make(used)


def test_a_damaged_anchor_or_note_asks_too(used: Path, tmp_path: Path) -> None:
    used.unlink()
    AnchorFile(used).path.write_bytes(b"x")
    note_of(records(tmp_path)).write_text("x")
    with pytest.raises(RefusedError) as told:
        make(used, records(tmp_path))
    assert "damaged" in str(told.value)
    assert "cannot be read" in str(told.value)


def test_a_ledger_that_is_there_is_never_replaced(used: Path) -> None:
    before = used.read_bytes()
    with pytest.raises(LedgerError, match="exists already"):
        make(used, anew="please")
    assert used.read_bytes() == before


def test_what_the_first_one_spent_is_told_from_its_anchor_where_it_is_gone(used: Path, tmp_path: Path) -> None:
    used.unlink()
    with pytest.raises(RefusedError, match="not there now; epsilon = 0"):
        make(tmp_path / "second", records(tmp_path))
