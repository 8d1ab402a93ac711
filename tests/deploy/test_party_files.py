"""A file for each party: only its own are opened, and a run is the same as from one file of all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.config import build, data_source
from privadmm.config.file import read
from privadmm.data.shards import Shards
from privadmm.data.storage import Dense, Sparse
from privadmm.deploy.federation.setup.init import split as rehearsed
from privadmm.errors import ConfigError, DataError
from small_runs import PRIVATE, Place, Tables, rows, with_changes, write_csv, write_npz

pytestmark = pytest.mark.usefixtures("skipped_plots")

SIZES = [14, 20, 20, 9]
ENDS = np.cumsum(SIZES)[:-1]
FORMATS = ("npz", "csv", "parquet", "libsvm")
SCHEMA = "".join(f"f{j} = [-2.0, 2.0]\n" for j in range(3))


@pytest.fixture(autouse=True)
def schema_file(place: Place) -> None:
    (place.path / "schema.toml").write_text(SCHEMA)


def everybody() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    X, y = rows(sum(SIZES))
    return zip(np.split(X, ENDS), np.split(y, ENDS), strict=True)


def write(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    kind = path.suffix[1:]
    if kind == "npz":
        write_npz(path, X, y)
    elif kind == "csv":
        write_csv(path, X, y)
    elif kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        table = {**{f"f{j}": X[:, j] for j in range(X.shape[1])}, "y": y}
        pytest.importorskip("pyarrow.parquet").write_table(pa.table(table), path)
    else:
        entries = [" ".join(f"{j + 1}:{cell!r}" for j, cell in enumerate(row.tolist())) for row in X]
        path.write_text("".join(f"{label} {row}\n" for label, row in zip(y, entries, strict=True)))


def by_party(place: Place, kind: str = "npz", **changes: Any) -> Tables:
    for party, (X, y) in enumerate(everybody()):
        folder = place.path / f"site-{party}"
        folder.mkdir(exist_ok=True)
        write(folder / f"records.{kind}", X, y)
    data: dict[str, Any] = {"source": f"site-{{party}}/records.{kind}", "test_fraction": 0.0}
    if kind in ("csv", "parquet"):
        data["label"] = "y"
    if kind == "libsvm":
        data["dim"] = 3
    tables = with_changes(PRIVATE, {"data": data, "parties": {"count": len(SIZES)}})
    return with_changes(tables, changes)


def prepared(place: Place, tables: Tables, only: Any = None) -> build.Prepared:
    return build.prepare(read(place.config(tables)), only)


def bits(shards: Any) -> list[bytes]:
    """For each party, the bytes that training reads of its records."""
    probe = np.random.default_rng(1).normal(size=(int(shards.ids.max()) + 1, shards.dim))[shards.ids]
    pulled = shards.pull(shards.y * shards.margins(probe))
    return [one.tobytes() + y.tobytes() for one, y in zip(pulled, shards.labels(), strict=True)]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format(kind: str, place: Place) -> None:
    found = prepared(place, by_party(place, kind)).shards
    assert found.sizes.tolist() == SIZES
    assert [y.tolist() for y in found.labels()] == [(2 * y - 1).tolist() for _, y in everybody()]
    parties = [(X, 2 * y - 1) for X, y in everybody()]
    if kind == "libsvm":
        sparse = pytest.importorskip("scipy.sparse")
        parties = [(sparse.csr_array(X), y) for X, y in parties]
    assert bits(found) == bits(Shards.from_parties(parties, row_bound=2.0))


@pytest.mark.parametrize("encoding", ["minmax", "binned"])
@pytest.mark.parametrize("limit", [None, "1 MB"])
def test_storage_follows_from_the_declaration_alone(encoding: str, limit: Any, place: Place) -> None:
    """Binned columns are stored sparse and ranges dense, whatever the records hold."""
    data = {"schema": "schema.toml", "encoding": encoding}
    tables = by_party(place, "csv", data=data, run={"memory": limit})
    parties = prepared(place, tables).shards
    write(place.path / "site-1" / "records.csv", np.full((SIZES[1], 3), -2.0), np.zeros(SIZES[1]))
    zeros = prepared(place, tables, [1]).shards
    kind = Sparse if encoding == "binned" else Dense
    assert all(isinstance(slot.piece, kind) for shards in (parties, zeros) for slot in shards.slots)


@pytest.mark.parametrize(
    ("schema", "encoding"),
    [(None, None), ("schema.toml", None), ("schema.toml", "binned")],
    ids=["numbers", "schema", "bins"],
)
def test_the_transcript_of_one_file_of_all(schema: Any, encoding: Any, place: Place) -> None:
    declared = {"schema": schema, "encoding": encoding}
    apart = place.run(by_party(place, "csv", data=declared), out=place.path / "apart")
    X, y = rows(sum(SIZES))
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    header = (place.path / "site-0" / "records.csv").read_text().splitlines()[0]
    lines = [f"{header},site"]
    lines += [
        ",".join([*map(repr, row), str(label), str(site)])
        for row, label, site in zip(X.tolist(), y, owner, strict=True)
    ]
    (place.path / "all.csv").write_text("\n".join(lines))
    data = {"source": "all.csv", "label": "y", **declared, "test_fraction": 0.0}
    together = place.run(with_changes(PRIVATE, {"data": data, "parties": {"count": None, "split": "column:site"}}))
    assert apart.result["transcript"] == together.result["transcript"]
    assert apart.rows == together.rows
    assert apart.model.columns == together.model.columns


def test_what_is_held_out_is_each_party_s_own(place: Place) -> None:
    """The held-out records do not depend on who reads which files; another seed holds out others."""
    tables = by_party(place, data={"test_fraction": 0.25})
    whole = prepared(place, tables)
    assert whole.shards.sizes.tolist() == [10, 15, 15, 7]
    assert isinstance(whole.test, Shards)
    assert whole.test.sizes.tolist() == [4, 5, 5, 2]
    for only in ([0, 1], [2, 3], [3]):
        some = prepared(place, tables, only)
        assert bits(some.shards) == [bits(whole.shards)[party] for party in only]
        assert some.test is None
    other = prepared(place, with_changes(tables, {"data": {"split_seed": 1}}))
    assert bits(other.shards)[1] != bits(whole.shards)[1]
    held = {row.tobytes() for slot in whole.test.slots for A in slot.piece.parties() for row in A}
    kept = {row.tobytes() for slot in whole.shards.slots for A in slot.piece.parties() for row in A}
    assert len(held) == 16
    assert not held & kept


def test_a_run_measures_what_is_held_out(place: Place) -> None:
    done = place.run(by_party(place, data={"test_fraction": 0.25}))
    assert done.rows[-1].accuracy_test is not None
    assert round(done.rows[-1].accuracy_test * 16, 9) == round(done.rows[-1].accuracy_test * 16)


def test_too_little_to_hold_out(place: Place) -> None:
    with pytest.raises(DataError, match=r"test_fraction = 0\.01 leaves nothing"):
        prepared(place, by_party(place, data={"test_fraction": 0.01}))


def test_other_parties_files_are_not_opened(place: Place) -> None:
    tables = by_party(place)
    for party in (0, 3):
        (place.path / f"site-{party}" / "records.npz").unlink()
    assert prepared(place, tables, [1, 2]).shards.ids.tolist() == [1, 2]
    with pytest.raises(ConfigError, match=r"party 3 is missing .*site-3/records\.npz"):
        prepared(place, tables, [2, 3])
    with pytest.raises(ConfigError, match="the file of party 0 is missing"):
        prepared(place, tables)


def test_declared_sizes_are_checked_by_who_reads(place: Place) -> None:
    tables = by_party(place, parties={"sizes": [14, 20, 21, 9]})
    prepared(place, tables, [0, 1])
    with pytest.raises(ConfigError, match=r"site-2/records\.npz: \[parties\] sizes .*21 .*party 2"):
        prepared(place, tables, [2, 3])


def test_files_must_be_alike(place: Place) -> None:
    tables = by_party(place, "csv")
    file = place.path / "site-2" / "records.csv"
    header, _, rest = file.read_text().partition("\n")
    file.write_text(header.replace("f0,f1", "f1,f0") + "\n" + rest)
    with pytest.raises(DataError, match=r"site-2/records\.csv: party 2.* other columns .*party 0"):
        prepared(place, tables)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parties": {"split": "column:site"}}, '[parties] split: is "column:site" beside [data] source'),
        ({"parties": {"split": "dirichlet:1"}}, '[parties] split: is "dirichlet:1" beside [data] source'),
        ({"parties": {"split": "features"}}, "have their files in [parties] files"),
        ({"parties": {"seed": 3}}, "[parties] seed: does not go with [data] source"),
        ({"parties": {"count": None}}, "[parties] count: missing"),
        (
            {"run": {"engine": "dask", "mode": "deployment", "seed": None, "ledger": "l"}},
            "[parties] sizes: missing",
        ),
        (
            {"run": {"engine": "dask", "mode": "deployment", "seed": None, "ledger": "l"}},
            "[data] dim: missing",
        ),
    ],
)
def test_what_does_not_go_with_it(changes: dict[str, Any], said: str, place: Place) -> None:
    with pytest.raises(ConfigError) as refused:
        read(place.config(by_party(place, **changes)))
    assert said in str(refused.value)


DEPLOYED = {"mode": "deployment", "seed": None, "ledger": "ledgers", "engine": "dask"}


def test_who_starts_a_deployment_elsewhere_reads_nothing(place: Place) -> None:
    tables = with_changes(
        PRIVATE,
        {
            "data": {
                "source": "nowhere-{party}.csv",
                "label": "y",
                "schema": "schema.toml",
                "intercept": 0.1,
            },
            "parties": {"count": None, "sizes": SIZES},
            "run": DEPLOYED,
        },
    )
    found = prepared(place, tables)
    assert (found.held.ids.tolist(), found.held.sizes.tolist(), found.held.dim) == ([0, 1, 2, 3], SIZES, 4)
    assert found.frame.columns == ("f0", "f1", "f2", "(intercept)")
    with pytest.raises(ConfigError, match="read by workers alone"):
        _ = found.train
    with pytest.raises(ConfigError, match=r"the file of party 2 is missing .*nowhere-2\.csv"):
        prepared(place, tables, [2])


def test_the_engine_of_the_command_line_asks_for_the_same(place: Place) -> None:
    tables = by_party(place, run={**DEPLOYED, "engine": None})
    asked = place.train(place.config(tables), "--engine", "dask")
    assert asked.code == 2
    assert "[parties] sizes: missing beside [data] source" in asked.err
    assert "which only workers read" in asked.err


def test_what_is_for_one_file_says_so(place: Place) -> None:
    config = read(place.config(by_party(place)))
    with pytest.raises(ConfigError, match="is a file for each party, and this is for one file of all"):
        data_source.records(config)
    assert rehearsed(config).sizes == build.prepare(config).train.sizes.tolist()
