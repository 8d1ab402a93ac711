"""The file of keys: the first key stays, an erased one is gone from the disk, and a tick is never forgotten."""

import multiprocessing
import os
import stat
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from privadmm.errors import LedgerError
from privadmm.privacy.key_file import RECORD, KeyFile
from privadmm.privacy.policy import Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger

ONE, TWO, THREE = (bytes([number]) * 32 for number in (1, 2, 3))


@pytest.fixture
def keys(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "ledger.sqlite")


def test_the_first_key_of_a_job_stays(keys: KeyFile) -> None:
    assert keys.key("a") is None
    assert not keys.path.exists()
    assert keys.key("a", lambda: ONE) == ONE
    assert keys.key("b", lambda: TWO) == TWO
    assert [keys.key("a", lambda: THREE), keys.key("b", lambda: THREE), keys.key("c")] == [ONE, TWO, None]
    assert stat.S_IMODE(os.stat(keys.path).st_mode) == 0o600


def test_an_erased_key_is_gone_and_no_other_is_drawn(keys: KeyFile) -> None:
    for job, key in (("a", ONE), ("b", TWO)):
        keys.key(job, lambda key=key: key)  # type: ignore[misc]
    keys.sent("a", (3, 0), over=False)
    keys.erase("a")
    keys.erase("never heard of")
    assert keys.key("a", lambda: THREE) is None
    assert keys.last("a") == (3, 0)
    assert keys.key("b") == TWO
    assert ONE[:8] not in keys.path.read_bytes()
    assert [path.name for path in keys.path.parent.iterdir()] == [keys.path.name]  # nor in a file beside


def test_the_last_tick_is_remembered_and_an_earlier_one_changes_nothing(keys: KeyFile) -> None:
    keys.sent("a", (0, 0), over=False)
    assert keys.last("a") is None
    keys.key("a", lambda: ONE)
    assert keys.last("a") is None
    for at, last in (((0, 0), (0, 0)), ((2, 1), (2, 1)), ((1, 5), (2, 1)), ((2, 0), (2, 1))):
        keys.sent("a", at, over=False)
        assert keys.last("a") == last
    assert keys.key("a") == ONE
    keys.sent("a", (9, 0), over=True)
    assert (keys.key("a"), keys.last("a")) == (None, (9, 0))


def test_a_tick_that_is_noted_brings_no_erased_key_back(keys: KeyFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process erases it after this one has read the record."""
    from privadmm.privacy import key_file

    keys.key("a", lambda: ONE)
    write = key_file.write

    def late(file: object, place: int, data: bytes) -> None:
        monkeypatch.setattr(key_file, "write", write)
        keys.erase("a")
        write(file, place, data)

    monkeypatch.setattr(key_file, "write", late)
    keys.sent("a", (1, 0), over=False)
    assert (keys.key("a"), keys.last("a")) == (None, (1, 0))


@pytest.mark.parametrize("torn", [1, 40, RECORD - 1])
def test_a_record_that_a_crash_tore_is_written_anew(torn: int, keys: KeyFile) -> None:
    keys.key("a", lambda: ONE)
    keys.key("b", lambda: TWO)
    with keys.path.open("r+b") as file:
        file.truncate(2 * RECORD + torn)
    assert (keys.key("a"), keys.key("b")) == (ONE, None)
    assert keys.key("b", lambda: THREE) == THREE
    assert (keys.key("a"), keys.key("b")) == (ONE, THREE)
    assert keys.path.stat().st_size == 3 * RECORD


@pytest.mark.parametrize("content", [b"", b"x" * 500])
def test_another_file_is_not_written_to(content: bytes, keys: KeyFile) -> None:
    keys.path.write_bytes(content)
    for use in (lambda: keys.key("a", lambda: ONE), lambda: keys.last("a"), lambda: keys.sent("a", (0, 0), False)):
        with pytest.raises(LedgerError, match="is no file of keys"):
            use()
    assert keys.path.read_bytes() == content


def draw(path: Path) -> bytes | None:
    ledger = SqliteLedger(path, [0], Policy(None), "simulation")
    try:
        return ledger.secret("job", lambda: os.urandom(32))
    finally:
        ledger.close()


def test_processes_that_race_draw_one_key(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        found = set(pool.map(draw, [tmp_path / "ledger.sqlite"] * 30))
    assert len(found) == 1
    assert (tmp_path / "ledger.sqlite-keys").stat().st_size == 2 * RECORD
