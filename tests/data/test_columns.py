"""Vertical parties' tables: clipped by row or by column, split and aligned, and never naming anybody."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from privadmm.data.columns import Columns, People, align, by_names, read_aligned
from privadmm.data.schema import Schema
from privadmm.errors import ConfigError, DataError
from vertical_cases import dense, people, tables


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_rows_are_clipped_to_the_bound_and_divided_by_it(sparse: bool) -> None:
    X = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [1e200, 0.0]])
    bounds = [2.0, 10.0]
    columns = Columns.build([csr_array(X) if sparse else X] * 2, row_bounds=bounds)
    first, second = (f.A.toarray() if sparse else f.A for f in columns.features)
    assert first == pytest.approx(np.array([[0.6, 0.8], [0.15, 0.2], [0, 0], [1, 0]]))
    assert second[:2] == pytest.approx(X[:2] / 10)


def test_the_last_party_holds_the_intercept() -> None:
    columns = Columns.build([np.ones((3, 2)), np.ones((3, 1))], row_bounds=[1.0, 1.0], intercept=0.6)
    assert columns.widths == (2, 2)
    np.testing.assert_allclose(columns.features[1].A, [[0.8, 0.6]] * 3)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_columns_are_scaled_down_each_for_itself(sparse: bool) -> None:
    """Replacing one column changes no other: a row is not clipped there."""
    X = np.random.default_rng(0).normal(size=(20, 3)) * np.array([1.0, 100.0, 1e-3])
    other = X.copy()
    other[:, 1] = 1e6
    wrap: Any = csr_array if sparse else np.asarray
    one, two = (
        dense(People(Columns.build([wrap(part)], row_bounds=[4.0], column_bound=0.5), np.ones(20)))
        for part in (X, other)
    )
    norms = np.linalg.norm(one, axis=0)
    assert (norms <= 0.5 * (1 + 1e-15)).all()
    assert norms[0] == pytest.approx(min(0.5, np.linalg.norm(X[:, 0]) / 4))
    assert one[:, 2] == pytest.approx(X[:, 2] / 4)
    assert (one[:, [0, 2]] == two[:, [0, 2]]).all()
    clipped = [dense(People(Columns.build([p], row_bounds=[4.0]), np.ones(20))) for p in (X, other)]
    assert (clipped[0][:, [0, 2]] != clipped[1][:, [0, 2]]).any()


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_products(sparse: bool) -> None:
    data = people(sparse=sparse)
    rng = np.random.default_rng(0)
    for features in data.columns.features:
        A = features.A.toarray() if sparse else features.A
        x, g = rng.normal(size=(3, features.width)), rng.normal(size=(3, features.people))
        assert features.scores(x) == pytest.approx(x @ A.T)
        assert features.pull(g) == pytest.approx(g @ A)
        values, vectors = features.spectrum
        assert vectors * values @ vectors.T == pytest.approx(A.T @ A, abs=1e-12)
    w = rng.normal(size=sum(data.widths))
    assert data.scores(w) == pytest.approx(dense(data) @ w)


def test_a_block_can_be_taken_and_sent() -> None:
    columns = people().columns
    part = columns.take([1, 3])
    assert part.ids.tolist() == [1, 3]
    assert part.features[0] is columns.features[1]  # its factorisation is not made twice
    assert part.features[0].spectrum is columns.features[1].spectrum
    again = pickle.loads(pickle.dumps(part))
    assert "spectrum" not in vars(again.features[0])
    assert (again.features[0].A == part.features[0].A).all()
    with pytest.raises(ConfigError, match="increasing"):
        columns.take([3, 1])


WRONG = {
    "no parties": ({"tables": [], "row_bounds": []}, "one party at least"),
    "bounds": ({"row_bounds": [1.0]}, "give one for each"),
    "lengths": ({"tables": [np.ones((3, 1)), np.ones((4, 1))]}, "same people"),
    "nobody": ({"tables": [np.ones((0, 1)), np.ones((0, 1))]}, "no people"),
    "no columns": ({"tables": [np.ones((3, 0)), np.ones((3, 1))]}, "one column at least"),
    "not finite": ({"tables": [np.full((3, 1), np.nan), np.ones((3, 1))]}, "3 of 3 rows are not finite"),
    "a bound": ({"row_bounds": [1.0, 0.0]}, "row_bound must"),
    "names": ({"ids": [1, 1]}, "each of 2 parties once"),
    "column and intercept": ({"column_bound": 1.0, "intercept": 0.5}, "do not go together"),
    "column of nan": (
        {"tables": [np.full((3, 1), np.inf), np.ones((3, 1))], "column_bound": 1.0},
        "3 entries are not finite",
    ),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_cannot_be_used_is_refused(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"tables": [np.ones((3, 2)), np.ones((3, 1))], "row_bounds": [1.0, 1.0]} | change
    with pytest.raises((ConfigError, DataError), match=message):
        Columns.build(given.pop("tables"), **given)


def test_labels_are_checked() -> None:
    columns = Columns.build(tables(0), row_bounds=[1.0] * 5)
    with pytest.raises(DataError, match="9 people"):
        People.build(columns, np.ones(3))
    with pytest.raises(DataError, match="9 of 9 labels are not -1 or"):
        People.build(columns, np.zeros(9))
    with pytest.raises(DataError, match="1 of 9 labels are not finite"):
        People.build(columns, [np.nan] + [0.0] * 8, classification=False)


def test_alignment_brings_everybody_into_one_order() -> None:
    ids = [np.array(["b", "a", "c"]), np.array(["c", "b", "a"], dtype=object), np.array([" a", "c ", "b"])]
    orders = align([(f"file {i}", column) for i, column in enumerate(ids)])
    for column, order in zip(ids, orders, strict=True):
        assert [word.strip() for word in column[order]] == ["a", "b", "c"]


SECRET = "Ms Secret"
MISMATCHES = {
    "missing": (["a", "b", SECRET], ["b", "a"], r"lacks 1 of the 3 people of labels and has 0"),
    "foreign": (["a", "b"], ["b", "a", SECRET], r"lacks 0 of the 2 people of labels and has 1"),
    "twice": (["a", SECRET, SECRET], ["a", SECRET], r"labels: 1 of 3 rows repeat an id"),
    "blank": (["a", "b"], ["a", ""], r"1 of 2 rows have no id"),
}


@pytest.mark.parametrize(("first", "second", "message"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_a_mismatch_is_counted_and_nobody_named(first: list[str], second: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        align([("labels", np.array(first)), ("other", np.array(second))])
    assert "Secret" not in str(caught.value)


def test_groups_of_names() -> None:
    names = ("age", "sex=Female", "sex=Male", "26<=hours<40", "hours>=40", "hours<26", "hours-per-week")
    assert by_names(names, [["sex", "age"], ["hours"]]) == [[1, 2, 0], [3, 4, 5]]
    with pytest.raises(ConfigError, match="'hour' is no column"):
        by_names(names, [["hour"]])


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "labels": write(tmp_path / "labels.csv", "who,y,extra\n3,no,x\n1,yes,x\n2,no,x\n"),
        "bank": write(tmp_path / "bank.csv", "who,income\n2,20\n1,10\n3,30\n"),
        "shop": write(tmp_path / "shop.csv", "sex,who,age\nF,1,31\nM,3,33\nF,2,32\n"),
    }


def aligned(files: dict[str, Path], **change: Any) -> Any:
    schema = Schema.from_table(
        {"income": [0, 100], "age": [0, 100], "sex": ["F", "M"]},
        label="y",
        classes=("no", "yes"),
        row_bound=1.0,
    )
    given: dict[str, Any] = {
        "id": "who",
        "label": "y",
        "classes": ("no", "yes"),
        "schema": schema,
        "on_bad": "refuse",
    }
    return read_aligned(files["labels"], [files["bank"], files["shop"]], None, **(given | change))


def test_files_are_aligned(files: dict[str, Path]) -> None:
    records, groups = aligned(files)
    assert records.names == ("income", "age", "sex=F", "sex=M")
    assert groups == [[0], [1, 2, 3]]
    assert records.y.tolist() == [1, -1, -1]
    np.testing.assert_allclose(records.X, [[0.1, 0.31, 1, 0], [0.2, 0.32, 1, 0], [0.3, 0.33, 0, 1]])


def test_without_a_schema_there_is_no_default_for_a_number(files: dict[str, Path]) -> None:
    write(files["shop"], "who,age\n1,31\n3,\n2,32\n")
    with pytest.raises(DataError, match=r"column 'age': 1 of 3 rows .* on line 3"):
        aligned(files, schema=None, on_bad="default")


def test_without_a_schema_every_column_but_the_ids_is_a_number(files: dict[str, Path]) -> None:
    write(files["shop"], "who,age\n1,31\n3,33\n2,32\n")
    records, groups = aligned(files, schema=None)
    assert records.X.tolist() == [[10, 31], [20, 32], [30, 33]]
    assert groups == [[0], [1]]


FILES = {
    "label at a party": ("bank", "who,y,income\n1,no,1\n2,no,2\n3,yes,3\n", "holds the label"),
    "no ids": ("bank", "income\n1\n", "'who' is missing"),
    "nothing else": ("bank", "who\n1\n2\n3\n", "no feature columns"),
    "somebody missing": ("bank", "who,income\n2,20\n1,10\n", "lacks 1 of the 3 people"),
    "a column twice": (
        "bank",
        "who,age,income\n1,1,1\n2,2,2\n3,3,3\n",
        "two files have a column of the same name",
    ),
    "a word": ("bank", "who,income\n2,20\n1,much\n3,30\n", "1 of 3 rows hold no finite number"),
    "a declared column": ("bank", "who,assets\n2,20\n1,10\n3,30\n", "no feature columns"),
    "one name twice": ("bank", "who,income,income\n2,20,1\n1,10,1\n3,30,1\n", "columns 2 and 3 have the same name"),
    "a label beyond": ("labels", "who,y\n1,no\n2,maybe\n3,yes\n", "neither"),
}


@pytest.mark.parametrize(("name", "text", "message"), FILES.values(), ids=FILES.keys())
def test_files_that_do_not_fit_are_refused(files: dict[str, Path], name: str, text: str, message: str) -> None:
    write(files[name], text)
    with pytest.raises(DataError, match=message) as caught:
        aligned(files)
    assert str(files[name]) in str(caught.value) or name == "bank"


def test_columns_by_name_need_a_file_that_has_names(files: dict[str, Path], tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", X=np.ones((3, 1)), y=np.ones(3))
    with pytest.raises(ConfigError, match="use csv or parquet"):
        aligned(files | {"bank": tmp_path / "x.npz"})
