"""A limit on memory changes where records are kept and nothing else."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.data import storage
from privadmm.data.moments_map import Map, moments
from privadmm.data.shards import Collector, Shards
from privadmm.data.storage import CHUNK, LEAST, Clip, Store
from privadmm.errors import StorageError
from small_runs import CLEAR, DVP, ENVIRONMENT, PRIVATE, Place, no_plots, rows, with_changes, write_npz

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder on a disk: files in memory would count as memory."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    return made


def test_beyond_the_limit_arrays_are_in_files(folder: Path) -> None:
    store = Store(100)
    small, large = store.empty((10,)), store.empty((3, 4))
    assert (store.held, store.filed) == (80, LEAST)
    large[...] = np.arange(12.0).reshape(3, 4)
    whole = np.arange(5, dtype=np.int32)
    assert store.keep(whole[:2]).base is whole
    assert store.held == 88
    kept = store.keep(whole)
    assert (kept.dtype, kept.tolist()) == (np.int32, [0, 1, 2, 3, 4])
    assert large.sum() == 66
    assert not np.shares_memory(large, kept)
    assert not np.shares_memory(small, large)
    assert os.listdir(folder) == []  # a process that is killed leaves nothing


def test_without_a_limit_nothing_is_copied(folder: Path) -> None:
    store, array = Store(), np.ones(5)
    assert store.keep(array) is array
    assert store.filed == 0


def open_files(folder: Path) -> list[int]:
    """Modes of the open files that were made in this folder."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith(str(folder)):
                found.append(os.fstat(int(number)).st_mode & 0o777)
        except OSError:
            continue
    return found


@linux
def test_files_are_few_and_private_and_go_with_their_arrays(folder: Path) -> None:
    store = Store(1)
    kept = [store.empty((300, 1000)) for _ in range(20)]
    assert 1 < len(open_files(folder)) <= 7  # several arrays share a file; 48 MB need more than one
    assert set(open_files(folder)) == {0o600}
    del kept, store
    assert open_files(folder) == []


def test_a_full_disk_is_told_before_a_page_is_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(StorageError, match=r"bytes of records.*No space left on device"):
        Store(1).empty((10,))
    monkeypatch.delattr(os, "posix_fallocate")
    assert Store(1).empty((10,)).shape == (10,)  # where the system has no such call, zeros are written


def blocks(sparse: bool, d: int) -> tuple[Shards, Shards, Shards]:
    """The same records: in memory, in files, and handed over party by party into files."""
    sizes = [CHUNK + 3, 40, 40, CHUNK + 3, 1, 40]
    rng = np.random.default_rng(d)
    X, y = rng.normal(size=(sum(sizes), d)), np.where(rng.random(sum(sizes)) < 0.5, 1.0, -1.0)
    if sparse:
        X = pytest.importorskip("scipy.sparse").csr_array(X * (rng.random(X.shape) < 0.4))
    held = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    facts = {"row_bound": 1.0, "intercept": 0.2}
    # A store of one byte: every table is written at once.
    one_by_one = Collector(Clip(1.0, 0.2), True, Store(1))
    for name, part in enumerate(held):
        one_by_one.add(name, X[part], y[part], np.arange(len(part)))
    last = one_by_one.block()
    assert last is not None
    return Shards.build(X, y, held, **facts), Shards.build(X, y, held, **facts, store=Store(1)), last  # type: ignore[arg-type]


@pytest.mark.parametrize("d", [1, 3, 60])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_pass_has_the_same_bits(sparse: bool, d: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privadmm.data.shards.PIECE", 0)
    whole, *filed = blocks(sparse, d)
    x = np.random.default_rng(0).normal(size=(2, 6, whole.dim))
    map = Map(np.full(whole.dim, 0.1), np.full(whole.dim, 2.0), 0.2)

    def deriv(margins: np.ndarray, y: np.ndarray) -> np.ndarray:
        return -y / (1 + np.exp(y * margins))

    def passes(shards: Shards) -> list[bytes]:
        seen = shards.mapped([map] * 6, shards.dim + 1)
        z = np.random.default_rng(1).normal(size=(6, seen.dim))
        return [
            one.tobytes()
            for one in (
                shards.slope(x, deriv),
                shards.gram(np.abs(shards.margins(x[0]))),
                shards.sums(shards.margins(x)),
                moments(shards, nonnegative=True),
                seen.slope(z, deriv),
                np.concatenate(shards.labels()),
            )
        ]

    expected = passes(whole)
    for shards in filed:
        assert shards.store.filed > 0
        assert shards.sizes.tolist() == whole.sizes.tolist()
        assert passes(shards) == expected


KINDS = {
    "gradients": PRIVATE,
    "solves": with_changes(CLEAR, {"algorithm": {"rounds": 3}}),
    "a graph": with_changes(PRIVATE, DVP),
    "moments": with_changes(PRIVATE, {"features": {"moments": True}}),
    "randomised labels": with_changes(PRIVATE, {"privacy": {"label_epsilon": 1.0}}),
    "a party leaves": with_changes(PRIVATE, {"parties": {"leave": ["1@3"]}}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_transcript_with_little_memory(
    kind: str, place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_plots(monkeypatch)
    made: list[int] = []
    monkeypatch.setattr(storage, "mapped", lambda size, make=storage.mapped: made.append(size) or make(size))
    whole = place.run(KINDS[kind], out=place.path / "whole")
    assert not made
    done = place.run(with_changes(KINDS[kind], {"run": {"memory": 400}}))
    assert made
    assert done.result["transcript"] == whole.result["transcript"]
    assert done.rows == whole.rows
    assert os.listdir(folder) == []


@pytest.mark.parametrize(("memory", "limit"), [(5, 5), ("2GB", 2 * 10**9), ("1.5 MiB", 3 << 19), ("7B", 7)])
def test_units(memory: Any, limit: int) -> None:
    from privadmm.config.sections import RunTable

    assert RunTable(memory=memory).limit == limit


CODE = """
import json, resource, sys, threading, time
from pathlib import Path
import numpy as np
from privadmm.config.file import read
from privadmm.runs.run import run

folder, allowed = Path(sys.argv[1]), int(sys.argv[2])

def status(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024

peak, done = [0], threading.Event()
def look():
    while not done.wait(0.01):
        peak[0] = max(peak[0], status("RssAnon"))
threading.Thread(target=look, daemon=True).start()

run(read(folder / "small.toml"), folder / f"small-{sys.argv[3]}")  # what is loaded and set up once
np.ones((300, 300)) @ np.ones((300, 300)) @ np.ones(300)  # with large products BLAS takes its buffers
before = status("RssAnon")
peak[0] = before
limit = status("VmData") + allowed
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    transcript = run(read(folder / "large.toml"), folder / sys.argv[3]).result["transcript"]
except MemoryError:
    transcript = None
done.set()
print(json.dumps({"transcript": transcript, "grown": peak[0] - before}))
"""


PARTIES, COLUMNS = 8, 50


def write_files(place: Place, megabytes: int) -> None:
    """A file for each party, and a small one."""
    for party in range(PARTIES):
        m = megabytes * 10**6 // (PARTIES * COLUMNS * 8)
        write_npz(place.path / f"large-{party}.npz", *rows(m, COLUMNS, party))
        write_npz(place.path / f"small-{party}.npz", *rows(20, COLUMNS, party))


def trained(place: Place, memory: int | None, allowed: int, source: str = "{size}-{party}.npz") -> dict[str, Any]:
    """Train in a process that may use `allowed` bytes more than with almost no data."""
    changes: dict[str, Any] = {
        "data": {"test_fraction": 0.0},
        "parties": {"count": PARTIES},
        "algorithm": {"rounds": 2},
        "run": {"memory": memory},
    }
    for name in ("small", "large"):
        changes["data"]["source"] = source.replace("{size}", name)
        place.config(with_changes(PRIVATE, changes), f"{name}.toml")
    out = f"out-{memory}-{allowed}"
    done = subprocess.run(
        [sys.executable, "-c", CODE, place.path, str(allowed), out],
        capture_output=True,
        text=True,
        check=False,
        env={**ENVIRONMENT, "MALLOC_ARENA_MAX": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


@linux
@pytest.mark.parametrize("megabytes", [64, pytest.param(200, marks=pytest.mark.slow)])
def test_records_larger_than_memory(megabytes: int, place: Place) -> None:
    """Room for a quarter of the records and two copies of a party's file, and a little more."""
    limit = megabytes * 10**6 // 4
    allowed = limit + 2 * megabytes * 10**6 // 8 + 20 * 10**6
    assert allowed < 0.9 * megabytes * 10**6
    write_files(place, megabytes)
    found = trained(place, limit, allowed)
    assert found["transcript"] is not None
    assert found["grown"] < allowed
    control = trained(place, None, allowed)
    assert control["transcript"] is None  # without the limit it does not fit
    whole = trained(place, None, 100 * allowed)
    assert whole["transcript"] == found["transcript"]


@linux
@pytest.mark.parametrize("kind", ["stored", "compressed", "by column"])
def test_one_file_larger_than_memory(kind: str, place: Place) -> None:
    """Room for a quarter of the records, and a little more: the file is never in memory as a whole."""
    megabytes = 64
    save = np.savez_compressed if kind == "compressed" else np.savez
    for name, m in (("small", 160), ("large", megabytes * 10**6 // (COLUMNS * 8))):
        X, y = rows(m, COLUMNS, 0)
        # Few digits, so that compressing is quick.
        save(place.path / f"{name}.npz", X=np.round(X, 1).copy("F" if kind == "by column" else "C"), y=y)
    limit = megabytes * 10**6 // 4
    allowed = limit + 20 * 10**6
    assert allowed < 0.6 * megabytes * 10**6
    found = trained(place, limit, allowed, "{size}.npz")
    assert found["transcript"] is not None
    assert found["grown"] < allowed
    assert trained(place, None, allowed, "{size}.npz")["transcript"] is None  # without the limit it does not fit
    assert trained(place, None, 100 * allowed, "{size}.npz")["transcript"] == found["transcript"]
