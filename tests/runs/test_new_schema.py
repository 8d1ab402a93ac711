"""Schemas written from public files: what they declare, what they leave out, and that they train as written."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.data.schema import Category, Date, Number, Schema
from privadmm.errors import ConfigError, DataError
from privadmm.runs.new_schema import Declared, comments, declare, key, outward, schema_file, text
from small_runs import Place

ROWS = 40


def table(rows: int = ROWS, /, **columns: Any) -> str:
    """CSV text; each column is a function of the row's number."""
    lines = [",".join(columns)]
    lines += [",".join(str(make(row)) for make in columns.values()) for row in range(rows)]
    return "\n".join(lines) + "\n"


PATIENTS = table(
    id=lambda row: f"p{row}",
    number=lambda row: 1000 + row,
    age=lambda row: 17 + row % 23 * 2,
    sex=lambda row: ["female", "male"][row % 2],
    ward=lambda row: ["a", "b", "", "?"][row % 4],
    flag=lambda row: row % 2,
    city=lambda row: f"c{row % 30}",
    same=lambda row: "x",
    empty=lambda row: "",
    pressure=lambda row: "" if row == 3 else 0.001 * (row % 7) - 0.002,
    mixed=lambda row: ["1", "low"][row % 2],
    grade=lambda row: 1 + row % 5,
    readmitted=lambda row: ["no", "yes"][row // 3 % 2],
)


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    path.write_text(PATIENTS)
    return path


def test_what_differs_only_in_case_is_said(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(
        table(
            Age=lambda row: row % 7,
            age=lambda row: row % 5,
            ward=lambda row: ["north", "North", "south"][row % 3],
            Ill=lambda row: row % 9,
            ill=lambda row: ["no", "yes"][row % 2],
        )
    )
    one = declare(path, "ill")
    said = {name: [note.text for note in one.notes if note.column == name] for name in ("Age", "age", "ward", "Ill")}
    for name, other in (("Age", "'age'"), ("age", "'Age'"), ("ward", "'North' and 'north'"), ("Ill", "'ill'")):
        (text,) = [text for text in said[name] if "only in case" in text]
        assert other in text
    assert set(one.columns) == {"Age", "age", "ward", "Ill"}  # nothing is decided for whoever owns the file
    path.write_text(table(age=lambda row: row % 5, ill=lambda row: ["no", "yes", "Yes"][row % 3]))
    with pytest.raises(DataError, match=r"3 different values.*'Yes' and 'yes' differ only in case"):
        declare(path, "ill")
    path.write_text(table(age=lambda row: row % 5, ill=lambda row: ["yes", "Yes"][row % 2]))
    assert any("'Yes' and 'yes' differ only in case" in note.text for note in declare(path, "ill").notes)


def found(path: Path, **options: Any) -> Declared:
    return declare(path, "readmitted", most=25, **options)


def test_every_kind_of_column_is_declared_or_left_out_with_a_reason(patients: Path) -> None:
    one = found(patients)
    assert one.columns == {
        "age": Number(15, 65, whole=True),
        "sex": Category(("female", "male")),
        "ward": Category(("a", "b"), missing=True),
        "flag": Category(("0", "1")),
        "pressure": Number(-0.002, 0.004, missing=True),
        "mixed": Category(("1", "low")),
        "grade": Number(1, 5, whole=True),
    }
    assert (one.classes, one.label_bound, one.rows, one.missing) == (("no", "yes"), None, ROWS, True)
    said = {note.column: note.text for note in one.notes}
    left = {note.column for note in one.notes if note.left_out}
    assert left == {"id", "number", "city", "same", "empty"}
    assert "id" in said["id"]
    assert "running number" in said["number"]
    assert "30 categories" in said["city"]
    assert "same in every row" in said["same"]
    assert "empty" in said["empty"]
    assert "20 cells are missing" in said["ward"]
    assert "1 cells are missing" in said["pressure"]
    assert "codes" in said["grade"]
    assert "negative" in said["readmitted"]


def test_dates_counts_and_rare_categories_are_proposed(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    rows = 400
    columns: dict[str, Any] = {
        "seen": lambda row: "" if row % 5 == 0 else f"{1 + row % 28:02d}.{1 + row % 12:02d}.20{15 + row % 6}",
        "visits": lambda row: 60 if row == 7 else row % 4,
        "age": lambda row: 18 + row % 60,
        "job": lambda row: f"rare{row}" if row % 100 == 7 else ["clerk", "cook"][row % 2],
        "either": lambda row: ["01/02/2020", "03/04/2021"][row % 2],
        "code": lambda row: [10, 20][row % 2],
        "y": lambda row: row % 2,
    }
    lines = [",".join(columns), *(",".join(str(make(row)) for make in columns.values()) for row in range(rows))]
    path.write_text("\n".join(lines))
    one = declare(path, "y")
    assert one.columns == {
        "seen": Date("%d.%m.%Y", "01.01.2015", "31.12.2020", missing=True),
        "visits": Number(0, 60, cuts=(1, 2, 3, 5, 10, 20, 50)),
        "age": Number(15, 80, whole=True),
        "job": Category(("clerk", "cook"), other=True),
        "either": Date("%d/%m/%Y", "01/01/2020", "31/12/2021"),
        "code": Category(("10", "20")),
    }
    said = {note.column: note.text for note in one.notes}
    assert "%m/%d/%Y" in " ".join(note.text for note in one.notes if note.column == "either")
    assert "4 of 6 categories are rare" in said["job"]
    written = tomllib.loads(schema_file(one))
    assert written["seen"] == {"date": "%d.%m.%Y", "range": ["01.01.2015", "31.12.2020"], "missing": True}
    assert written["visits"] == {"range": [0, 60], "edges": "counts"}
    assert written["age"] == {"range": [15, 80], "whole": True}
    assert written["code"] == {"categories": ["10", "20"]}
    again = Schema.from_table(written, label="y", classes=None, row_bound=1.0)
    assert again.columns == one.columns


ODD = table(
    4 * ROWS,
    price=lambda row: f'"{row % 17},{row % 10}"' if row != 1 else 3,
    weight=lambda row: {4: "unknown", 9: "n/a", 12: "unknown"}.get(row, 50.5 + row % 31),
    typo=lambda row: '"3,5"' if row == 6 else 1.25 * (row % 30),
    code=lambda row: ["250", "V45", "E9"][row % 3],
    many=lambda row: f"x{row % 30}" if row % 3 else row,
    readmitted=lambda row: ["no", "yes"][row // 3 % 2],
)


def test_cells_that_spoil_a_column_of_numbers_are_named_with_their_line(tmp_path: Path) -> None:
    """Decimal commas, and words among numbers, make no categories of a column of numbers."""
    path = tmp_path / "data.csv"
    path.write_text(ODD.replace("readmitted\n", "readmitted\n\n", 1))  # lines are those of the file, blank ones too
    one = found(path)
    said = {
        name: " ".join(note.text for note in one.notes if note.column == name)
        for name in (*one.columns, "price", "many")
    }
    assert one.columns["weight"] == Number(50, 82, missing=True)
    assert one.columns["typo"] == Number(0, 38, missing=True)
    assert one.columns["code"] == Category(("250", "E9", "V45"))
    assert [note.column for note in one.notes if note.left_out] == ["price", "many"]
    for name, words in {
        "price": ("line 3", "decimal point"),
        "weight": ("2 cells are no numbers", "line 7", "count as missing", "3 cells are missing"),
        "typo": ("line 9", "count as missing"),
        "code": ("numbers beside words", "line 4"),
        "many": ("categories", "numbers beside words", "line 4"),
    }.items():
        assert all(part in said[name] for part in words), (name, said[name])
    written = schema_file(one)
    assert "Everything here is a fact for everybody to see" in written
    assert "line 7" in written
    assert "unknown" not in written  # what stands in a cell is shown to nobody
    schema = Schema.from_table(tomllib.loads(written), label="readmitted", classes=("no", "yes"), row_bound=1.0)
    assert schema.columns == one.columns


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a,readmitted\n1,"3,5"\n2,"4,5"\n3,"5,5"\n', ("'readmitted'", "line 2", "decimal point")),
        ("a,readmitted\n1,3.5\n2,unknown\n3,5.5\n4,6.5\n", ("'readmitted'", "line 3", "1 are no numbers")),
        ("a;readmitted\n1,5;no\n2,5;yes\n", ("'readmitted'", "semicolon", "3.5")),
    ],
    ids=["commas", "a word", "semicolons"],
)
def test_a_label_or_a_file_that_is_spoilt_is_told(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        found(path)
    assert all(part in str(caught.value) for part in ("data.csv", *words)), caught.value


def test_columns_can_be_dropped_and_more_categories_allowed(patients: Path) -> None:
    one = declare(patients, "readmitted", drop=("age",), most=30)
    assert "age" not in one.columns
    assert len(one.columns["city"].names("city")) == 30


@pytest.mark.parametrize(
    ("labels", "classes", "bound"),
    [
        (["1", "-1"], ("-1", "1"), None),
        (["10", "9"], ("9", "10"), None),
        (["True", "False"], ("False", "True"), None),
        (["light", "mild", "severe"], ("light", "mild", "severe"), None),
        (["1.5", "-7", "3"], None, 7.0),
    ],
)
def test_classes_are_in_order_and_numbers_are_bounded(
    labels: list[str], classes: Any, bound: float | None, tmp_path: Path
) -> None:
    path = tmp_path / "data.csv"
    path.write_text(table(x=lambda row: row % 9 / 4, y=lambda row: labels[row % len(labels)]))
    one = declare(path, "y")
    assert (one.classes, one.label_bound) == (classes, bound)


@pytest.mark.parametrize(
    ("columns", "label", "words"),
    [
        ({"x": lambda row: row % 9, "y": lambda row: "a"}, "y", "1 different values"),
        ({"x": lambda row: row % 9, "y": lambda row: row % 2}, "z", "column 'z' is missing"),
        ({"x": lambda row: "same", "y": lambda row: row % 2}, "y", "no column is left"),
    ],
)
def test_what_cannot_be_declared_is_refused(columns: Any, label: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(table(**columns))
    with pytest.raises(DataError, match=rf"data\.csv: .*{words}"):
        declare(path, label)


def test_several_classes_are_for_estimators_and_a_number_has_a_recipe(place: Place) -> None:
    path, schema = place.path / "data.csv", place.path / "schema.toml"
    path.write_text(table(x=lambda row: row % 9, kind=lambda row: ["light", "mild", "severe"][row % 3]))
    with pytest.raises(DataError, match=r"3 different values.*up to 2, --most"):
        declare(path, "kind", most=2)
    (note,) = [note.text for note in declare(path, "kind").notes if note.column == "kind"]
    assert note.startswith("3 classes: the command line trains two")
    said = place.call("schema", path, "--label", "kind", "--public", "--out", schema)
    assert (said.code, "privadmm init" in said.out, "ADMMClassifier" in said.out) == (0, False, True), said.err
    assert '["light", "mild", "severe"]' in schema.read_text()
    refused = place.call("init", place.path / "c.toml", "--source", path, "--label", "kind", "--public", "--json")
    assert (refused.code, "has 3 classes" in refused.object["message"]) == (2, True), refused.out
    number = place.call("schema", path, "--label", "x", "--public", "--out", place.path / "number.toml")
    assert ("privadmm init" in number.out, "data.md#a-number-to-predict" in number.out) == (False, True), number.err
    assert "label_bound = 8, radius = 8;" in (place.path / "number.toml").read_text()


def test_a_missing_column_is_named_with_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(table(age=lambda row: row % 9, Readmited=lambda row: row % 2))
    with pytest.raises(DataError, match=r"did you mean 'Readmited'\? The first line has 'age', 'Readmited'\."):
        declare(path, "Readmitted")
    path.write_text(table(age=lambda row: row % 9, y=lambda row: row % 2).replace(",", ";"))
    with pytest.raises(DataError, match="another separator"):
        declare(path, "y")


def test_parquet_is_read_too(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "age": [float(20 + row % 37) for row in range(ROWS)],
        "sex": ["f" if row % 2 else None for row in range(ROWS - 1)] + ["m"],
        "y": [row % 3 == 0 for row in range(ROWS)],
    }
    parquet.write_table(pyarrow.table(columns), tmp_path / "data.parquet")
    one = declare(tmp_path / "data.parquet", "y")
    assert one.columns == {"age": Number(20, 56, whole=True), "sex": Category(("f", "m"), missing=True)}
    assert one.classes == ("False", "True")


@given(st.floats(-1e12, 1e12), st.floats(1e-9, 1e12))
def test_a_range_is_rounded_outward_and_not_far(low: float, length: float) -> None:
    high = low + length
    if not low < high:
        return
    below, above = map(float, outward(low, high))
    slack = 1e-9 * max(abs(low), abs(high))  # of low and high as they are printed
    assert below <= low + slack
    assert above >= high - slack
    assert above - below <= 1.26 * (high - low) + slack


def test_ranges_are_readable() -> None:
    known = {
        (17, 90): (15, 90),
        (1, 99): (0, 100),
        (12_285, 1_490_400): (0, 1_500_000),
        (0.1, 0.3): (0.1, 0.3),
    }
    for (low, high), expected in known.items():
        assert tuple(map(float, outward(float(low), float(high)))) == expected


names = st.text(min_size=1, max_size=8).filter(lambda name: name == name.strip() != "y" and name[0] < "\ud800")


@settings(max_examples=60)
@given(st.dictionaries(names, st.lists(names, min_size=1, max_size=4, unique=True), min_size=1, max_size=4))
def test_any_words_survive_the_file(columns: dict[str, list[str]]) -> None:
    """Quotes, line breaks, control characters, keys that TOML wants quoted: what is written is what is read."""
    try:
        declared = {name: Category(tuple(values)) for name, values in columns.items()}
        schema = Schema(declared, "y", ("no", "yes"), 1.0)
    except ConfigError:
        return
    one = Declared(Path("a\nb.csv"), 3, "y", dict(schema.columns), ("no", "yes"), None, (), False)
    written = tomllib.loads(schema_file(one))
    again = Schema.from_table(written, label="y", classes=("no", "yes"), row_bound=1.0)
    assert again.columns == schema.columns


@pytest.mark.parametrize("word", ["prod\u202euct", "cl\u200berk", "a\xa0b", "\x1b[31mred", "x\U000e0041", "\x7f"])
def test_what_hides_is_spelt_out_where_people_read_it_through(word: str) -> None:
    assert text(word).isprintable()
    assert key(word).isprintable()
    assert tomllib.loads(f"{key(word)} = {text(word)}") == {word: word}
    assert text("Ärztin, 病棟") == '"Ärztin, 病棟"'


def test_comments_and_keys_are_safe() -> None:
    assert comments(["a\nb = 1"]) == ["# a\\u000ab = 1"]
    assert (key("a-b_1"), key("a b"), key("ä")) == ("a-b_1", '"a b"', '"ä"')
    assert tomllib.loads(f"x = {text(chr(127) + chr(34))}")["x"] == chr(127) + chr(34)


def test_nothing_is_read_before_its_owner_says_that_it_is_public(patients: Path, place: Place) -> None:
    patients.write_text("this is no table")
    said = place.call("schema", patients, "--label", "readmitted", "--json")
    assert said.code == 2
    assert all(words in said.object["message"] for words in ("private", "--public", "by hand"))


def test_the_command_writes_a_schema_that_trains(patients: Path, place: Place) -> None:
    schema = place.path / "declared" / "schema.toml"
    said = place.call("schema", patients, "--label", "readmitted", "--public", "--out", schema)
    assert said.code == 0
    assert "public or made up" in said.out
    assert "id: left out" in said.err
    written = schema.read_text()
    for words in ("patients.csv", "public or made up", "everybody", 'classes = ["no", "yes"]', "on_bad"):
        assert words in written
    config = place.config(
        data={
            "source": "patients.csv",
            "label": "readmitted",
            "classes": ["no", "yes"],
            "schema": "declared/schema.toml",
            "on_bad": "default",
        }
    )
    assert place.train(config).code == 0
    again = place.call("schema", patients, "--label", "readmitted", "--public", "--out", schema, "--json")
    assert (again.code, schema.read_text()) == (2, written)


def test_the_command_prints_one_object_or_the_file(patients: Path, place: Place) -> None:
    words = ("schema", patients, "--label", "readmitted", "--public", "--most", 25)
    facts = place.call(*words, "--json").object
    assert facts["schema"]["age"] == {"range": [15, 65], "whole": True}
    assert facts["classes"] == ["no", "yes"]
    assert set(facts["left_out"]) == {"id", "number", "city", "same", "empty"}
    assert tomllib.loads(place.call(*words).out) == facts["schema"]
