"""A party's packed records: the same bits as from the file, noticed when anything changed, and never in the way."""

import errno
import hashlib
import json
import mmap
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography")
from federations import Desks, Federated, federated
from privadmm.config.file import read
from privadmm.deploy.federation.desk import cache, party_log, records
from privadmm.deploy.federation.desk.cache import Cache, UnfitError, unpacked
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import neutral
from privadmm.deploy.federation.protocol import Letter
from privadmm.errors import ClusterError, DataError
from small_runs import PRIVATE, SHARING, Tables, charged, rows, with_changes, write_csv

pytestmark = pytest.mark.usefixtures("skipped_plots")

STAR = with_changes(PRIVATE, {"data": {"intercept": 0.2}})
BINNED = {"source": "rows.csv", "label": "y", "schema": {"f0": [-2.0, 2.0], "f1": [-2.0, 2.0], "f2": [-1.0, 1.0]}}
KINDS: dict[str, Tables] = {
    "dense": STAR,
    "sparse": with_changes(STAR, {"data": {**BINNED, "encoding": "binned"}}),
    "randomised labels": with_changes(STAR, {"privacy": {"label_epsilon": 1.0}}),
    "columns": with_changes(PRIVATE, SHARING),
    "one column replaced": with_changes(
        with_changes(PRIVATE, SHARING),
        {"privacy": {"adjacency": "column"}, "algorithm": {"ball": None, "column_bound": 1.0}},
    ),
}


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    """A federation whose parties have read nothing since they joined."""
    found = federated(tmp_path, STAR)
    for folder in found.folders:
        shutil.rmtree(folder / "cache")
    return found


def entries(made: Federated, party: int = 0) -> list[Path]:
    return sorted((made.folders[party] / "cache").glob("*.packed"))


def notices(made: Federated, party: int = 0) -> list[str]:
    lines = (made.folders[party] / "requests.log").read_text().splitlines()
    return [line["why"] for line in map(json.loads, lines) if line["kind"] == "notice"]


def arrays_in(held: Any) -> list[Any]:
    """All arrays of what a party holds, with their layout."""
    found, waiting = [], [held]
    while waiting:
        one = waiting.pop()
        if isinstance(one, np.ndarray):
            found.append((one.dtype.str, one.shape, one.strides, one.tobytes()))
        elif isinstance(one, tuple | list):
            waiting += one
        elif hasattr(one, "tocsr"):
            found.append((type(one), one.shape))
            waiting += [one.data, one.indices, one.indptr]
        elif hasattr(one, "__dict__"):
            waiting += [value for _, value in sorted(vars(one).items())]
        else:
            found.append(repr(one))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_kept_is_bit_for_bit_what_is_read(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(tmp_path / "rows.csv", *rows(60))
    made = federated(tmp_path, KINDS[kind])
    seen, plain = [], Cache.fetch

    def both(self: Cache, source: Path, reading: Any, kind: Any, read: Any, anew: bool) -> Any:
        found = plain(self, source, reading, kind, read, anew)
        seen.append((arrays_in(found), arrays_in(read())))
        return found

    monkeypatch.setattr(Cache, "fetch", both)
    made.run()
    assert len(seen) == 3 * (1 + 6)  # begin and six rounds
    assert all(kept == read for kept, read in seen)
    assert all(len(entries(made, party)) == 1 for party in range(3))


def test_a_file_is_parsed_once_and_then_mapped(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    read, held = [], []
    plain, fetch = records.own_rows, Cache.fetch
    monkeypatch.setattr(records, "own_rows", lambda *given: read.append(given) or plain(*given))
    monkeypatch.setattr(Cache, "fetch", lambda *given: held.append(fetch(*given)) or held[-1])
    made.run()
    made.change(0, "minimum_parties = 2", "minimum_parties = 3")  # admitted anew, and no record is read anew
    assert len(read) == 3
    for one in held:
        base = one.block.slots[0].piece.A
        while isinstance(base, np.ndarray):
            base = base.base
        assert isinstance(base.obj, mmap.mmap)  # type: ignore[union-attr]


def test_only_the_owner_may_read_it(made: Federated) -> None:
    made.run()
    folder = made.folders[0] / "cache"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert {path.suffix for path in folder.iterdir()} == {".packed", ".json"}


@pytest.mark.parametrize("settled", [True, False])
def test_a_file_that_changed_is_noticed_whatever_its_times_say(
    made: Federated, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same size and time of change: ctime tells, and within one tick of the clock the content does."""
    source = made.folders[0] / "data.npz"
    folder = made.folders[0] / "cache"

    def read() -> bytes:
        return source.read_bytes()

    def fetch(anew: bool = False) -> bytes:
        return Cache(folder, pytest.fail).fetch(source, ["x"], bytes, read, anew)  # type: ignore[arg-type]

    first, state = fetch(), source.stat()
    if settled:
        monkeypatch.setattr(time, "time", lambda: state.st_ctime + 10)
        fetch()
        with monkeypatch.context() as patched:
            patched.setattr(hashlib, "file_digest", lambda *_: pytest.fail("the whole file was read"))
            assert fetch() == first
    else:
        monkeypatch.setattr(cache, "state_of", lambda state: [0])  # as if it were the same moment
    source.write_bytes(first[:-1] + b"x")
    os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert fetch() == fetch(anew=True) == first[:-1] + b"x"
    assert len(list(folder.glob("*.packed"))) == 1, "that of the old content is removed"


def test_a_job_that_begins_digests_the_file_whatever_its_times_say(
    made: Federated, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = made.folders[0] / "data.npz", made.folders[0] / "cache"
    tables = Cache(folder, pytest.fail)  # type: ignore[arg-type]
    monkeypatch.setattr(cache, "state_of", lambda state: [0])
    monkeypatch.setattr(time, "time", lambda: source.stat().st_ctime + 10)
    first = tables.fetch(source, [], bytes, source.read_bytes, True)
    source.write_bytes(first[:-1] + b"x")
    assert tables.fetch(source, [], bytes, source.read_bytes, False) == first, "the clock was turned back"
    assert tables.fetch(source, [], bytes, source.read_bytes, True) == first[:-1] + b"x"


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "empty": lambda path: path.write_bytes(b""),
    "no header": lambda path: path.write_bytes(b"\0" * len(path.read_bytes())),
    "others may read it": lambda path: path.chmod(0o644),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "somewhere else": lambda path: (path.rename(path.with_suffix(".old")), path.symlink_to(path.with_suffix(".old"))),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed_at_a_letter_and_mended(made: Federated, damage: str, tmp_path: Path) -> None:
    def harm(party: int, letter: Letter) -> None:
        if (party, letter["kind"], letter.get("round")) == (0, "step", 3):
            DAMAGE[damage](*entries(made))

    (tmp_path / "again").mkdir()
    whole = federated(tmp_path / "again", STAR).run()
    assert made.run(Desks(made.folders, before=harm))["transcript"] == whole["transcript"]
    assert any("is damaged, and made anew" in why for why in notices(made))
    if damage != "a folder":
        assert entries(made)[0].stat().st_mode & 0o777 == 0o600
        assert not any("could not be kept" in why for why in notices(made))


def test_a_flipped_bit_is_noticed_when_a_job_begins(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    def harm(party: int, letter: Letter) -> None:
        if (party, letter["kind"]) == (0, "begin"):
            flipped(*entries(made))

    records.announce(read_party(made.folders[0]), neutral(read(made.made.coordinator.job)))
    made.run(Desks(made.folders, before=harm))
    assert sum("is damaged, and made anew" in why for why in notices(made)) == 1
    (path,) = entries(made)
    key = json.loads(path.read_bytes()[64:4096])["key"]
    assert unpacked(path, key, records.Held, thorough=True).records == 16
    flipped(path)
    with pytest.raises(UnfitError, match="not what was written"):
        unpacked(path, key, records.Held, thorough=True)


@pytest.mark.parametrize("where", ["reserve", "write_bytes"])
def test_a_full_disk_leaves_the_answers_as_they_are(
    made: Federated, tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "again").mkdir()
    again = federated(tmp_path / "again", STAR)
    post, plain = Desks(made.folders), Desks(again.folders)
    whole = again.run(plain)
    monkeypatch.setattr(cache, where, full)
    assert made.run(post)["transcript"] == whole["transcript"]
    assert all(os.strerror(errno.ENOSPC) in why for why in notices(made))
    assert notices(made)
    assert not [path for path in (made.folders[0] / "cache").iterdir() if path.suffix not in (".json",)]
    keys = [sorted(said) for _, _, said in post.captured]
    assert keys == [sorted(said) for _, _, said in plain.captured], "whether there is a cache is not told"


def test_a_folder_that_others_may_enter_is_not_used(made: Federated) -> None:
    (made.folders[0] / "cache").mkdir(mode=0o755)
    made.run()
    assert not entries(made)
    assert "chmod" in notices(made)[0]
    assert [charged(ledger) for ledger in made.ledgers] == [6, 6, 6]


@pytest.mark.parametrize("gone", [True, False])
def test_records_that_cannot_be_read_fail_as_without_a_cache(made: Federated, gone: bool) -> None:
    """A file that is gone or was replaced fails, whatever the cache holds of it."""

    def harm(party: int, letter: Letter) -> None:
        if (party, letter["kind"], letter.get("round")) == (0, "step", 3):
            path = made.folders[0] / "data.npz"
            path.unlink() if gone else path.write_bytes(b"nonsense")

    with pytest.raises(ClusterError, match="party 0 failed, DataError: its steward finds the reason"):
        made.run(Desks(made.folders, before=harm))
    assert charged(made.ledgers[0]) == 3


def test_a_file_that_changes_while_it_is_read_is_not_kept(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    source, folder, told = made.folders[0] / "data.npz", made.folders[0] / "cache", list[str]()

    def read() -> bytes:
        content = source.read_bytes()
        source.write_bytes(content + b"more")
        return content

    assert Cache(folder, told.append).fetch(source, [], bytes, read, False) == source.read_bytes()[:-4]
    assert "changed while it was read" in told[0]
    assert not list(folder.glob("*.packed"))


def test_old_entries_are_removed(made: Federated) -> None:
    source, folder = made.folders[0] / "data.npz", made.folders[0] / "cache"
    tables = Cache(folder, pytest.fail)  # type: ignore[arg-type]
    for number in range(cache.KEPT + 3):
        tables.fetch(source, [number], bytes, source.read_bytes, False)
    assert len(list(folder.glob("*.packed"))) == cache.KEPT
    abandoned = folder / "x.packed-1.new"
    abandoned.write_bytes(b"")
    os.utime(abandoned, (0, 0))
    with suppress(FileNotFoundError):
        source.write_bytes(source.read_bytes() + b"x")
    tables.fetch(source, [0], bytes, source.read_bytes, False)
    assert len(list(folder.iterdir())) == 2, "one entry, and the digest of the file"


def test_how_records_are_read_decides_which_entry_is_used(made: Federated) -> None:
    """Another bound, or another name of the label: what was kept for one job is not given to another."""
    made.run()
    (first,) = entries(made)
    for path in (*(folder / "party.toml" for folder in made.folders), made.made.coordinator.job):
        path.write_text(path.read_text().replace("row_bound = 2.0", "row_bound = 1.5"))
    job = made.made.coordinator.job
    records.held(read_party(made.folders[0]), neutral(read(job)), 3)
    assert len(entries(made)) == 2
    assert first in entries(made)


def test_a_view_with_gaps_is_not_laid_out_anew(made: Federated) -> None:
    source, folder, told = made.folders[0] / "data.npz", made.folders[0] / "cache", list[str]()
    table = np.arange(12.0).reshape(3, 4)
    for array in (table, np.asfortranarray(table)):
        kept = Cache(folder, told.append).fetch(source, [array.strides], np.ndarray, lambda array=array: array, False)
        assert (kept.strides, kept.tobytes("A")) == (array.strides, array.tobytes("A"))
    assert not told
    odd = table[:, ::2]
    assert Cache(folder, told.append).fetch(source, ["odd"], np.ndarray, lambda: odd, False) is odd
    assert "not in one piece" in told[0]


def test_the_log_may_be_full_too(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(party_log, "note", full)
    party_log.tell(made.folders[0], "anything")


def test_a_data_error_stays_one(made: Federated) -> None:
    made.change(0, "records = 16", "records = 17")
    with pytest.raises((ClusterError, DataError)):
        made.run()
    assert len(entries(made)) == 1, "it was read, and is kept: what is declared is compared afterwards"
