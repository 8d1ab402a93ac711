"""Readers: the four formats give the same records, and a bad file is refused by place and never by value."""

import gzip
import io
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, issparse

from privadmm.data import npz, readers
from privadmm.data.readers import Records, read
from privadmm.data.schema import Schema
from privadmm.data.storage import Store
from privadmm.errors import ConfigError, DataError

SCHEMA = Schema.from_table({"age": [0, 100], "sex": ["F", "M"]}, label="died", classes=("no", "yes"), row_bound=2.0)
TABLE = "age,sex,died,ward\n50,F,no,a\n25, M ,yes,b\n"
NUMBERS = "a,b,y\n1,0,1\n0,2.5,0\n"
X = np.array([[1.0, 0.0], [0.0, 2.5]])
Y = np.array([1.0, -1.0])


@pytest.fixture
def put(tmp_path):
    def write(name, text):
        data = text.encode() if isinstance(text, str) else text
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return tmp_path / name

    return write


def put_parquet(path, columns):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table(columns), path)
    return path


def put_npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def dense(records):
    return records.X.toarray() if issparse(records.X) else records.X


def numbers_in(put, tmp_path, kind):
    """The records of NUMBERS, in each format."""
    if kind == "parquet":
        columns = {"a": [1, 0], "b": [0.0, 2.5], "y": [True, False]}
        return read(put_parquet(tmp_path / "n.parquet", columns), label="y", classes=(0, 1))
    if kind == "npz":
        return read(put_npz(tmp_path / "n.npz", X=X.astype(np.float32), y=[1, 0]), classes=(0, 1))
    text = NUMBERS if "csv" in kind else "1 1:1\n# a comment\n\n0 2:2.5 # another\n"
    return read(put(f"n.{kind}", text), label="y", classes=(0, 1), dim=2)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet", "npz", "libsvm", "svm", "txt", "t.gz"])
def test_every_format_gives_the_same_records(put, tmp_path, kind):
    records = numbers_in(put, tmp_path, kind)
    np.testing.assert_array_equal(dense(records), X)
    np.testing.assert_array_equal(records.y, Y)
    assert records.X.dtype == records.y.dtype == np.float64
    assert len(records.names) == 2
    assert len(records) == 2


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_schema_encodes_and_columns_are_kept_for_splitting(put, tmp_path, kind):
    columns = {"age": [50, 25], "sex": ["F", " M "], "died": ["no", "yes"], "ward": ["a", "b"]}
    path = put("t.csv", TABLE) if kind == "csv" else put_parquet(tmp_path / "t.parquet", columns)
    records = read(path, schema=SCHEMA, keep=("ward",))
    np.testing.assert_array_equal(records.X, [[0.5, 1, 0], [0.25, 0, 1]])
    np.testing.assert_array_equal(records.y, [-1, 1])
    assert records.names == SCHEMA.names
    assert records.columns["ward"].tolist() == ["a", "b"]


def test_parquet_dictionaries_and_nulls(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    columns = {"age": [50, None], "sex": arrow.array(["F", None]).dictionary_encode(), "died": ["no", "yes"]}
    path = put_parquet(tmp_path / "t.parquet", columns)
    with pytest.raises(DataError, match=r"t\.parquet: column 'age': 1 of 2 rows .*record 2"):
        read(path, schema=SCHEMA)
    records = read(path, schema=SCHEMA, on_bad="default")
    np.testing.assert_array_equal(records.X, [[0.5, 1, 0], [0, 0, 0]])


def test_without_classes_the_label_is_a_number(put):
    np.testing.assert_array_equal(read(put("n.csv", "a,y\n1,0.5\n2,-3\n"), label="y").y, [0.5, -3])


def test_a_kept_column_is_not_a_feature(put):
    path = put("n.csv", "age,ward,y\n50,a,1\n25,b,0\n")
    records = read(path, label="y", classes=(0, 1), keep=("ward",))
    assert records.names == ("age",)


def test_csv_quoting_byte_order_mark_and_blank_lines(put):
    text = '\ufeffage, sex,died\r\n\r\n50,"F","no"\r\n   \r\n"25",M,"yes"\r\n'
    np.testing.assert_array_equal(read(put("q.csv", text), schema=SCHEMA).X, [[0.5, 1, 0], [0.25, 0, 1]])


def test_csv_line_numbers_count_every_line(put):
    text = 'age,sex,died\n\n50,"F\n",no\nunwell,M,yes\nunwell,M,yes\n'
    with pytest.raises(DataError, match=r"q\.csv: column 'age': 2 of 3 rows .*on line 5") as caught:
        read(put("q.csv", text), schema=SCHEMA)
    assert "unwell" not in str(caught.value)


def test_the_declared_default_is_used_when_it_is_asked_for(put):
    path = put("t.csv", TABLE.replace("50", ""))
    assert read(path, schema=SCHEMA, on_bad="default").X[0, 0] == 0


@pytest.mark.parametrize("rows", [1, 2, 3, 1000])
def test_the_size_of_a_piece_does_not_matter(put, monkeypatch, rows):
    monkeypatch.setattr(readers, "ROWS_AT_ONCE", rows)
    monkeypatch.setattr("privadmm.data.libsvm.BYTES_AT_ONCE", rows)
    rng = np.random.default_rng(0)
    data = rng.integers(0, 5, size=(7, 4)).astype(float)
    text = "a,b,c,y\n" + "".join(",".join(map(str, row)) + "\n" for row in data)
    np.testing.assert_array_equal(read(put("p.csv", text), label="y").X, data[:, :3])
    lines = [f"{row[3]} " + " ".join(f"{j + 1}:{row[j]}" for j in range(3)) for row in data]
    for ending in ("\n", "\r\n"):
        records = read(put("p.libsvm", ending.join(lines)), dim=3)
        np.testing.assert_array_equal(records.X.toarray(), data[:, :3])
        np.testing.assert_array_equal(records.y, data[:, 3])
    lines[4] = "1 2:x"
    with pytest.raises(DataError, match="line 5 "):
        read(put("p.libsvm", "\n".join(lines)), dim=3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3), min_size=1))
def test_numbers_survive_the_trip_through_text(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("trip")
    data = np.array(rows)
    (folder / "t.csv").write_text("a,b,y\n" + "".join(",".join(map(repr, row)) + "\n" for row in data.tolist()))
    (folder / "t.svm").write_text("".join(f"{y!r} 1:{a!r} 2:{b!r}\n" for a, b, y in data.tolist()))
    for records in (read(folder / "t.csv", label="y"), read(folder / "t.svm", dim=2)):
        np.testing.assert_array_equal(dense(records), data[:, :2])
        np.testing.assert_array_equal(records.y, data[:, 2])


def test_a_large_dim_costs_what_its_features_cost_and_an_absurd_one_nothing(put):
    path = put("t.libsvm", "+1 2:1 999999:2\n-1\n")
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="dim must be"):
            read(path, classes=("-1", "+1"), dim=50_000_000)
        refused = tracemalloc.get_traced_memory()[1]
        records = read(path, classes=("-1", "+1"), dim=1_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused < 1e6
    assert peak < 150 * 1_000_000  # bytes: a name for each feature, and no column of zeros
    assert (records.X.shape, records.X.nnz) == ((2, 1_000_000), 2)


def test_a_libsvm_file_may_end_before_its_last_feature(put):
    records = read(put("t.libsvm", "+1 2:1\n-1\n"), classes=("-1", "+1"), dim=5)
    assert records.X.shape == (2, 5)
    assert records.names == ("x1", "x2", "x3", "x4", "x5")
    assert records.X.indices.dtype == np.int32
    np.testing.assert_array_equal(records.y, [1, -1])


LINES = "+1 1:1\n-1 2:3\n"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("1 0:4242", "from 1"),
        ("1 1.5:4242", "from 1"),
        ("1 nan:4242", "from 1"),
        ("1 -1:4242", "from 1"),
        ("1 4:4242", "declared dim = 3"),
        ("1 inf:4242", "declared dim = 3"),
        ("1 2:1 2:4242", "do not increase"),
        ("1 3:1 2:4242", "do not increase"),
        ("1 2:", "label index:value"),
        ("1 2", "label index:value"),
        ("1 2:4242 3", "label index:value"),
        ("1,2 2:4242", "label index:value"),
        ("yes 2:4242", "label index:value"),
        ("1 qid:4242 2:1", "label index:value"),
        ("1 2:4242x", "label index:value"),
    ],
)
def test_a_bad_libsvm_line_is_refused_by_number(put, line, why):
    with pytest.raises(DataError, match=rf"t\.libsvm: line 3 .*{why}") as caught:
        read(put("t.libsvm", LINES + line + "\n+1 1:1\n"), classes=(-1, 1), dim=3)
    assert "4242" not in str(caught.value)


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_a_feature_that_is_not_finite_is_refused_in_every_format(put, tmp_path, value):
    with pytest.raises(DataError, match=r"t\.csv: column 'b': 2 of 3 rows .*on line 3.*drop"):
        read(put("t.csv", f"a,b,y\n1,1,1\n1,{value},1\n1,{value},0\n"), label="y", classes=(0, 1))
    with pytest.raises(DataError, match=r"t\.svm: column 'x2': 2 of 3 rows .*record 2.*drop"):
        read(put("t.svm", f"1 1:1\n1 2:{value} 3:{value}\n0 1:2 2:{value}\n"), classes=(0, 1), dim=3)
    features = np.ones((3, 2))
    features[1:, 1] = float(value)
    with pytest.raises(DataError, match=r"t\.npz: column 'x2': 2 of 3 rows .*record 2.*drop"):
        read(put_npz(tmp_path / "t.npz", X=features, y=[0, 1, 1]), classes=(0, 1))


@pytest.mark.parametrize("kind", ["csv", "npz", "svm"])
def test_a_target_that_is_not_finite_is_refused(put, tmp_path, kind):
    path = {
        "csv": lambda: put("t.csv", "a,y\n1,1\n1,nan\n"),
        "npz": lambda: put_npz(tmp_path / "t.npz", X=np.ones((2, 1)), y=[1, np.nan]),
        "svm": lambda: put("t.svm", "1 1:1\nnan 1:1\n"),
    }[kind]()
    with pytest.raises(DataError, match=r"column 'y': 1 of 2 rows"):
        read(path, label="y", dim=1)


@pytest.mark.parametrize("kind", ["csv", "npz", "svm"])
def test_a_third_class_is_refused(put, tmp_path, kind):
    path = {
        "csv": lambda: put("t.csv", "a,y\n1,1\n1,0\n1,4242\n"),
        "npz": lambda: put_npz(tmp_path / "t.npz", X=np.ones((3, 1)), y=[1, 0, 4242]),
        "svm": lambda: put("t.svm", "1 1:1\n0 1:1\n4242 1:1\n"),
    }[kind]()
    with pytest.raises(DataError, match=rf"t\.{kind}: label column 'y': 1 of 3 rows") as caught:
        read(path, label="y", classes=(0, 1), dim=1)
    assert "4242" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("age,sex,died\n", "no records"),
        ("1,2,3\n4,5,6\n", "header"),
        ("age,age,died\n1,2,no\n", "columns 1 and 2 have the same name"),
        ("age,died\n1,no\n", r"'sex' is missing; the table has 2 others"),
        ("age,sex\n1,F\n", "'died' is missing"),
        ("age,sex,died\n1,F,no\n1,F\n", "line 3 has 2 cells where the header has 3"),
        ("age,sex,died\n1,F,no,4242\n", "line 2 has 4 cells"),
        (b"age,sex,died\n1,\xff,no\n", "not text in UTF-8"),
        ("age,sex,died\n1,F,maybe\n", "label column 'died': 1 of 1"),
    ],
)
def test_a_bad_csv_is_refused(put, text, why):
    for name in ("t.csv", "t.csv.gz"):
        with pytest.raises(DataError, match=rf"{name}: .*{why}"):
            read(put(name, text), schema=SCHEMA)


def test_words_without_a_schema_are_refused_with_the_way_out(put):
    with pytest.raises(DataError, match=r"column 'sex': 2 of 2 rows .*on line 2.*declare a schema"):
        read(put("t.csv", TABLE), label="died", classes=("no", "yes"), keep=("ward",))


def test_a_table_needs_a_feature(put):
    with pytest.raises(DataError, match="no feature columns"):
        read(put("t.csv", "y,ward\n1,a\n"), label="y", keep=("ward",))


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        ({"X": X}, "'y' is missing; the table has 1 others"),
        ({"y": Y}, "'X' is missing"),
        ({"X": X[0], "y": Y}, r"shape \(n, d\)"),
        ({"X": X.astype(str), "y": Y}, "must be numbers"),
        ({"X": X, "y": Y[:1]}, r"shape \(2,\)"),
        ({"X": X, "y": Y[:, None]}, r"shape \(2,\)"),
        ({"X": X[:0], "y": Y[:0]}, "no records"),
        ({"X": X[:, :0], "y": Y}, r"shape \(n, d\)"),
        ({"X": X.astype(object), "y": Y}, "cannot be read as npz"),
        ({"X": X, "y": Y, "ward": Y[:1]}, "'ward'"),
    ],
)
def test_a_bad_npz_is_refused(tmp_path, arrays, why):
    keep = tuple(name for name in arrays if name == "ward")
    with pytest.raises(DataError, match=rf"t\.npz: .*{why}"):
        read(put_npz(tmp_path / "t.npz", **arrays), classes=(-1, 1), keep=keep)


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float16, np.float32, ">f8", ">i4"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("limit", [None, 1])
def test_every_kind_of_number_is_read_as_it_stands(tmp_path, monkeypatch, kind, order, save, limit):
    """Piece by piece, into memory or a file; as numpy reads the whole."""
    monkeypatch.setattr(npz, "NUMBERS_AT_ONCE", 7)
    whole = np.random.default_rng(0).integers(0, 100, (9, 5)).astype(kind)
    save(tmp_path / "t.npz", X=whole.copy(order), y=np.ones(9), ward=np.arange(9))
    store = Store(limit)
    found = read(tmp_path / "t.npz", keep=("ward",), store=store)
    assert found.X.dtype == np.float64
    np.testing.assert_array_equal(found.X, whole.astype(np.float64))
    assert found.columns["ward"].tolist() == list(range(9))
    assert (store.filed > 0) is (limit is not None)


def with_member(path, name, content):
    with zipfile.ZipFile(path, "w") as archive:
        for member, array in (("X", X), ("y", Y)):
            if member == name:
                archive.writestr(f"{name}.npy", content)
            else:
                with archive.open(f"{member}.npy", "w") as file:
                    np.save(file, array)
    return path


def as_npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("name", ["X", "y"])
@pytest.mark.parametrize("damage", ["short", "huge", "no array", "version"])
def test_an_array_that_is_not_what_it_says_is_refused(tmp_path, name, damage):
    good = as_npy({"X": X, "y": Y}[name])
    content = {
        "short": good[:-1],
        "huge": good.replace(b"(2,", b"(%d," % 10**15).replace(b" " * 14 + b"\n", b"\n"),
        "no array": b"1 2 3",
        "version": good[:6] + b"\x09" + good[7:],
    }[damage]
    assert content != good
    with pytest.raises((DataError, MemoryError), match=r"t\.npz|allocate"):
        read(with_member(tmp_path / "t.npz", name, content))


def test_a_bit_that_flipped_in_a_stored_array_is_noticed(tmp_path):
    path = put_npz(tmp_path / "t.npz", X=X, y=Y)
    content = path.read_bytes()
    at = content.index(X.tobytes()) + 3
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    with pytest.raises(DataError, match=r"t\.npz: cannot be read as npz \(BadZipFile\)"):
        read(path)


def test_a_single_array_is_not_a_data_set(tmp_path):
    np.save(tmp_path / "t.npy", X)
    with pytest.raises(DataError, match="holds one array"):
        read(tmp_path / "t.npy", "npz")


@pytest.mark.parametrize("name", ["t.csv.gz", "t.svm.gz", "t.npz", "t.parquet"])
@pytest.mark.parametrize("damage", ["empty", "noise", "truncated"])
def test_a_damaged_file_is_refused_by_name(put, tmp_path, name, damage):
    path = tmp_path / name
    text = TABLE.replace("50", "51") * 50
    if name == "t.parquet":
        put_parquet(path, {"died": list(text)})
    elif name == "t.npz":
        np.savez_compressed(path, X=np.random.default_rng(0).random((50, 3)), y=np.ones(50))
    else:
        put(name, text)
    good = path.read_bytes()
    path.write_bytes({"empty": b"", "noise": b"noise" * 20, "truncated": good[: len(good) // 2]}[damage])
    with pytest.raises(DataError, match=rf"{name}: (is empty|cannot be read)"):
        read(path, label="died", dim=3)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"privadmm\[parquet\]"):
        read(tmp_path / "t.parquet", label="y")


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("none.csv", {}, "no such file"),
        (".", {}, "not a file"),
        ("t.xlsx", {}, r"known: \.csv"),
        ("t.csv", {"format": "excel"}, "format must be one of csv, parquet, npz, libsvm"),
        ("t.csv", {}, "label"),
        ("t.csv", {"label": "died", "on_bad": "default"}, "needs a schema"),
        ("t.csv", {"label": "died", "on_bad": "skip"}, "on_bad"),
        ("t.csv", {"label": "died", "classes": ["no"]}, "two values"),
        ("t.csv", {"schema": SCHEMA, "label": "ward"}, "schema declares 'died'"),
        ("t.csv", {"schema": SCHEMA, "classes": ("yes", "no")}, "schema declares"),
        ("t.csv", {"schema": SCHEMA, "dim": 0}, "dim must be"),
        ("t.svm", {}, "declare dim"),
        ("t.svm", {"dim": 10**9}, "dim must be 1 to 5,000,000, not 1000000000; hash"),
        ("t.svm", {"dim": 3, "schema": SCHEMA}, "a schema names columns"),
        ("t.svm", {"dim": 3, "keep": ("ward",)}, "no further columns"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(put, tmp_path, name, arguments, why):
    if name.startswith("t."):
        put(name, TABLE)
    with pytest.raises(ConfigError, match=why):
        read(tmp_path / name, **arguments)


def test_a_schema_and_the_same_declaration_again_agree(put):
    read(put("t.csv", TABLE), schema=SCHEMA, label="died", classes=["no", "yes"])


def test_dim_is_checked_in_every_format(put):
    with pytest.raises(DataError, match=r"has 3 features, but dim = 4"):
        read(put("t.csv", TABLE), schema=SCHEMA, dim=4)


def test_a_column_may_be_kept_and_be_a_feature(put):
    records = read(put("t.csv", TABLE), schema=SCHEMA, keep=("sex", "age"))
    assert records.X.shape == (2, 3)
    assert records.columns["sex"].tolist() == ["F", "M"]
    assert records.columns["age"].tolist() == [50, 25]


def test_printing_records_shows_no_record():
    text = repr(Records(X + 4242, Y, ("a", "b"), {"ward": np.array(["u4242", "v4242"])}))
    assert "2 records" in text
    assert "4242" not in text


@pytest.mark.parametrize("storage", [np.asarray, csr_array])
def test_taking_rows_takes_them_everywhere(storage):
    records = Records(storage(X), Y, ("a", "b"), {"ward": np.array(["u", "v"])})
    for rows in ([1, 0], np.array([True, False])):
        part = records.take(rows)
        np.testing.assert_array_equal(dense(part), X[rows])
        np.testing.assert_array_equal(part.y, Y[rows])
        np.testing.assert_array_equal(part.columns["ward"], records.columns["ward"][rows])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((X, Y[:1], ("a", "b")), r"y \(n,\)"),
        ((X[0], Y, ("a", "b")), r"X must be \(n, d\)"),
        ((X, Y, ("a",)), "1 names for 2 features"),
        ((X, Y, ("a", "b"), {"ward": Y[:1]}), "'ward'"),
    ],
)
def test_records_fit_together(arguments, why):
    with pytest.raises(DataError, match=why):
        Records(*arguments)


def test_a_table_without_a_header_is_not_read_out(tmp_path):
    """The first line holds records instead of names: a message must not quote it."""
    for text in ("north,35,female\nsouth,41,male\n", '"hospital,age,sex\nnorth,35,female\nsouth,41,male\n'):
        path = tmp_path / "data.csv"
        path.write_text(text)
        with pytest.raises(DataError, match=r"header|quote") as caught:
            read(path, label="readmitted", classes=("no", "yes"))
        assert "north" not in str(caught.value)
