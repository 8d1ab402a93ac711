"""The embedded Adult data: counts known from its publication, and LIBSVM's a9a rebuilt from it."""

import gzip
import hashlib
import math
import subprocess
import sys

import numpy as np
import pytest
from scipy.sparse import csr_array

from privadmm.data import adult
from privadmm.data.readers import read
from privadmm.data.schema import Category, Number
from privadmm.errors import ConfigError, DataError
from small_runs import ORIGINALS


def originals(*names):
    missing = [name for name in names if not (ORIGINALS / name).exists()]
    return pytest.mark.skipif(
        bool(missing),
        reason=f"needs {', '.join(names)}: name their folder in PRIVADMM_DATA",
    )


@pytest.fixture(scope="module")
def onehot():
    return adult.load()


@pytest.fixture(scope="module")
def a9a():
    return adult.load("a9a")


@pytest.fixture(scope="module")
def raw():
    return adult.load("raw", rows="all")


def test_the_schema_declares_99_categories_and_6_ranges():
    sizes = {name: len(c.values) for name, c in adult.SCHEMA.columns.items() if isinstance(c, Category)}
    assert list(sizes.values()) == [8, 16, 7, 14, 6, 5, 2, 41]
    assert sum(isinstance(column, Number) for column in adult.SCHEMA.columns.values()) == 6
    assert adult.SCHEMA.dim == 105


@pytest.mark.parametrize(
    ("rows", "train", "test"), [("complete", 30_162, 15_060), ("all", 32_561, 16_281), (None, 30_162, 15_060)]
)
def test_the_published_numbers_of_rows(rows, train, test):
    part = adult.load("raw", rows).columns["part"]
    assert np.count_nonzero(part == "train") == train
    assert np.count_nonzero(part == "test") == test
    assert len(part) == train + test


def test_the_published_share_of_the_positive_class(onehot, raw):
    assert np.count_nonzero(raw.y[: adult.TRAIN_ROWS] > 0) == 7_841
    assert np.count_nonzero(onehot.y > 0) == 7_508 + 3_700
    np.testing.assert_array_equal(onehot.y > 0, onehot.columns["income"] == ">50K")


def test_complete_rows_have_one_category_in_each_of_eight_blocks(onehot):
    assert onehot.X.shape == (45_222, 105)
    assert onehot.names == adult.SCHEMA.names
    words = [j for j, name in enumerate(onehot.names) if "=" in name]
    assert len(words) == 99
    assert (onehot.X[:, words].sum(axis=1) == 8).all()


def test_rows_lie_in_the_cube_and_most_within_the_bound(onehot):
    assert onehot.X.min() >= 0
    assert onehot.X.max() <= 1
    norms = np.linalg.norm(onehot.X, axis=1)
    assert norms.min() > math.sqrt(8)
    assert 0.8 < np.mean(norms <= adult.SCHEMA.row_bound) < 0.9


def test_no_number_is_outside_its_declared_range(raw):
    for name, column in adult.SCHEMA.columns.items():
        if isinstance(column, Number):
            assert column.low <= raw.columns[name].min()
            assert raw.columns[name].max() <= column.high


def test_a_schema_read_off_the_complete_rows_would_lose_a_column(onehot):
    seen = {name for j, name in enumerate(onehot.names) if onehot.X[:, j].any()}
    assert len(seen) == 104
    assert set(onehot.names) - seen == {"workclass=Never-worked"}


def test_missing_cells_are_marked_and_become_zero_blocks(raw):
    everyone = adult.load("onehot", rows="all")
    occupation = [j for j, name in enumerate(everyone.names) if name.startswith("occupation=")]
    missing = raw.columns["occupation"] == adult.MISSING
    assert np.count_nonzero(missing) == 2_809
    np.testing.assert_array_equal(everyone.X[:, occupation].sum(axis=1), ~missing)


def test_raw_codes_name_the_categories(raw):
    sex = raw.X[:, raw.names.index("sex")].astype(int)
    np.testing.assert_array_equal(np.array(["Female", "Male"])[sex], raw.columns["sex"])
    np.testing.assert_array_equal(raw.X[:, raw.names.index("age")], raw.columns["age"])
    assert raw.X[raw.columns["workclass"] == adult.MISSING, raw.names.index("workclass")].max() == -1


@pytest.mark.parametrize("form", ["onehot", "a9a", "raw"])
def test_without_raw_columns_the_rest_is_the_same(form):
    whole, lean = (adult.load(form, sparse=True, raw=raw) for raw in (True, False))
    assert not lean.columns
    assert (lean.names, len(lean)) == (whole.names, len(whole))
    np.testing.assert_array_equal(lean.y, whole.y)
    difference = lean.X != whole.X
    assert not (difference.nnz if hasattr(difference, "nnz") else difference.any())


@pytest.mark.parametrize("encoding", ["minmax", "binned", "coarse"])
def test_the_columns_encode_to_the_same_features(encoding):
    """Also as CSR, where last bits depend on what is stored: every number but zero, in order."""
    dense, csr = (adult.load(rows="all", encoding=encoding, sparse=sparse) for sparse in (False, True))
    np.testing.assert_array_equal(adult.SCHEMA.encoded(encoding).encode(dense.columns), dense.X)
    expected = csr_array(dense.X)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(csr.X, name), getattr(expected, name), strict=True)


def test_a_csv_of_the_same_people_reads_the_same(onehot, tmp_path):
    names = [*adult.SCHEMA.columns, "income", "part"]
    some = onehot.take(np.arange(0, len(onehot), 100))
    lines = [",".join(cells) for cells in zip(*(some.columns[name].astype(str) for name in names), strict=True)]
    (tmp_path / "adult.csv").write_text("\n".join([",".join(names), *lines]))
    again = read(tmp_path / "adult.csv", schema=adult.SCHEMA, keep=("part",))
    np.testing.assert_array_equal(again.X, some.X)
    np.testing.assert_array_equal(again.y, some.y)
    np.testing.assert_array_equal(again.columns["part"], some.columns["part"])


def test_a9a_has_its_published_shape(a9a):
    assert a9a.X.shape == (48_842, 123)
    assert len(set(a9a.names)) == 123
    assert (a9a.X.data == 1).all()
    counts = np.bincount(a9a.X.sum(axis=1).astype(int))
    # 14 entries in a complete row; workclass, occupation and native-country can be missing.
    assert counts.tolist() == [0] * 11 + [46, 2_753, 821, 45_222]
    assert a9a.X[: adult.TRAIN_ROWS].nnz == 451_592
    assert a9a.X[: adult.TRAIN_ROWS].indices.max() == 122
    assert a9a.X[adult.TRAIN_ROWS :].indices.max() == 121


def libsvm(records, part):
    X, y = records.X, records.y
    for row in np.flatnonzero(records.columns["part"] == part):
        entries = X.indices[X.indptr[row] : X.indptr[row + 1]]
        yield f"{y[row]:+.0f} " + "".join(f"{j + 1}:1 " for j in entries)


@pytest.mark.parametrize(
    ("part", "digest"),
    [
        ("train", "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
        ("test", "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
    ],
)
def test_a9a_written_out_has_the_checksum_of_libsvms_file(a9a, part, digest):
    text = "".join(f"{line}\n" for line in libsvm(a9a, part))
    assert hashlib.sha256(text.encode()).hexdigest() == digest


@originals("a9a.gz", "a9a.t.gz")
@pytest.mark.parametrize(("part", "name"), [("train", "a9a.gz"), ("test", "a9a.t.gz")])
def test_a9a_is_libsvms_token_for_token(a9a, part, name):
    theirs = gzip.decompress((ORIGINALS / name).read_bytes()).decode().splitlines()
    assert [line.split() for line in libsvm(a9a, part)] == [line.split() for line in theirs]


@originals("a9a.gz", "a9a.t.gz")
@pytest.mark.parametrize(("part", "name"), [("train", "a9a.gz"), ("test", "a9a.t.gz")])
def test_reading_libsvms_file_gives_the_same_records(a9a, part, name):
    theirs = read(ORIGINALS / name, classes=(-1, 1), dim=123)
    ours = a9a.take(np.flatnonzero(a9a.columns["part"] == part))
    assert abs(theirs.X - ours.X).nnz == 0
    np.testing.assert_array_equal(theirs.y, ours.y)


@originals("adult.data.gz", "adult.test.gz")
def test_the_embedded_rows_are_ucis(raw):
    texts = [gzip.decompress((ORIGINALS / name).read_bytes()).decode() for name in ("adult.data.gz", "adult.test.gz")]
    lines = [line for text in texts for line in text.splitlines() if line.strip() and line[0] != "|"]
    columns = [raw.columns[name].astype(str) for name in (*adult.SCHEMA.columns, "income")]
    ours = [", ".join(cells) for cells in zip(*columns, strict=True)]
    assert ours == [line.strip().rstrip(".") for line in lines]


@pytest.mark.parametrize(("arguments", "why"), [({"form": "a8a"}, "form must be"), ({"rows": "some"}, "rows must be")])
def test_other_forms_are_refused(arguments, why):
    with pytest.raises(ConfigError, match=why):
        adult.load(**arguments)


def test_a_damaged_installation_says_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "adult.npz").write_bytes(b"not a zip file")
    monkeypatch.setattr(adult.resources, "files", lambda _: tmp_path)
    with pytest.raises(DataError, match=r"adult\.npz.*install privadmm again"):
        adult.load()


def test_importing_the_data_package_is_light():
    code = (
        "import sys, privadmm.data; "
        "sys.exit(' '.join(m for m in ('scipy', 'sklearn', 'pyarrow') if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
