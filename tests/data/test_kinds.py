"""Columns that say more than a range or a list: missing cells, other levels, dates, bins; and laws over any schema."""

import json
import math
from dataclasses import asdict
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.data.dates import Date
from privadmm.data.encoder import Encoder
from privadmm.data.frame import Frame, frame_of
from privadmm.data.kinds import Category, Encoding, Number, count_cuts
from privadmm.data.misread import AMISS
from privadmm.data.schema import Column, Schema, column_of
from privadmm.errors import ConfigError, DataError


def encoded(entry: Any, *cells: Any) -> list[list[float]]:
    values = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        values[place] = cell
    column = column_of(entry)
    block: list[list[float]] = column.encode(values).tolist()
    assert len(column.names("x")) == len(block[0])
    return block


DAYS = {"date": "%Y-%m-%d", "range": ["2020-01-01", "2020-12-31"]}


@pytest.mark.parametrize(
    ("entry", "cell", "row"),
    [
        ({"range": [0, 10]}, None, [0]),
        ({"range": [0, 10], "default": 5}, None, [0.5]),
        ({"range": [0, 10], "missing": True}, None, [0, 1]),
        ({"range": [0, 10], "missing": True}, 5, [0.5, 0]),
        ({"range": [0, 10], "missing": True, "default": 5}, "forty", [0.5, 1]),
        ({"range": [0, 10], "edges": [2, 7]}, 7, [0, 0, 1]),
        ({"range": [0, 10], "edges": [2, 7]}, 6.9, [0, 1, 0]),
        ({"range": [0, 10], "edges": [2, 7]}, -3, [1, 0, 0]),
        ({"range": [0, 10], "edges": [2, 7]}, None, [1, 0, 0]),
        ({"range": [0, 10], "edges": [2, 7], "missing": True}, None, [0, 0, 0, 1]),
        ({"range": [0, 10], "edges": [2, 7], "default": 3}, None, [0, 1, 0]),
        ({"range": [0, 10], "edges": "counts"}, 4, [0, 0, 0, 1, 0]),
        ({"categories": ["a", "b"]}, "c", [0, 0]),
        ({"categories": ["a", "b"], "other": True}, "c", [0, 0, 1]),
        ({"categories": ["a", "b"], "other": True}, None, [0, 0, 0]),
        ({"categories": ["a", "b"], "default": "b"}, "?", [0, 1]),
        ({"categories": ["a", "b"], "default": "b"}, "c", [0, 0]),
        ({"categories": ["a", "b"], "other": True, "missing": True}, "NA", [0, 0, 0, 1]),
        ({"categories": ["a", "none"], "missing": True}, "none", [0, 1, 0]),
        (DAYS, "2020-12-31", [1]),
        (DAYS, "2031-05-05", [1]),
        (DAYS, "31.12.2020", [0]),
        (DAYS, date(2020, 12, 31), [1]),
        (DAYS, np.datetime64("2020-12-31"), [1]),
        (DAYS | {"missing": True}, "2020-02-30", [0, 1]),
        (DAYS | {"default": "2020-12-31"}, "", [1]),
        (DAYS | {"parts": ["weekday"]}, "2020-01-01", [0, 0, 0, 1, 0, 0, 0, 0]),
        (DAYS | {"parts": ["weekday"]}, "", [0, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_a_cell_becomes_what_is_declared(entry: Any, cell: Any, row: list[float]) -> None:
    assert encoded(entry, cell) == [row]


def test_a_date_with_a_time_is_read_by_its_own_clock() -> None:
    entry = {"date": "%d.%m.%Y %H:%M", "range": ["01.01.2020 00:00", "03.01.2020 00:00"]}
    halves = ["02.01.2020 12:00", datetime(2020, 1, 2, 12), datetime(2020, 1, 2, 12, tzinfo=UTC)]
    assert encoded(entry, *halves) == [[0.75]] * 3
    column = column_of(entry)
    stored = np.array(["2020-01-02T12", "NaT"], dtype="datetime64[ns]")
    assert column.encode(stored).tolist() == [[0.75], [0]]
    assert column.encode(np.array([2**62, -(2**62)], dtype="datetime64[D]")).tolist() == [[0], [0]]


def test_months_and_weekdays_are_those_of_the_calendar() -> None:
    column = Date("%Y-%m-%d", "1960-01-01", "2040-01-01", ("month", "weekday"))
    days = [date(1960, 1, 1).toordinal() + 97 * step for step in range(250)]
    block = column.encode(np.array([date.fromordinal(day).isoformat() for day in days]))
    assert block[:, 1:13].argmax(axis=1).tolist() == [date.fromordinal(day).month - 1 for day in days]
    assert block[:, 13:].argmax(axis=1).tolist() == [date.fromordinal(day).weekday() for day in days]


def test_bins_are_named_as_intervals() -> None:
    assert Number(0, 10, cuts=(2, 7.25)).names("x") == ("x=[0, 2)", "x=[2, 7.25)", "x=[7.25, 10]")
    assert Number(0, 1e7, cuts=(1234567, 1234568)).names("x")[1] == "x=[1234567.0, 1234568.0)"
    assert len(set(Number(1, 1 + 1e-9).encoded("binned").names("x"))) == 10
    schema = Schema.from_table(
        {"day": DAYS, "x": {"range": [0, 9], "edges": [3]}}, label="y", classes=None, row_bound=1
    )
    coarse = schema.encoded("coarse")
    assert coarse.names[:2] == ("day=[2020-01-01, 2020-03-14)", "day=[2020-03-14, 2020-05-26)")
    assert coarse.names[4].endswith(", 2020-12-31]")
    assert coarse.names[5:] == schema.encoded("minmax").names[1:] == ("x=[0, 3)", "x=[3, 9]")


def test_names_of_bins_in_older_models_are_still_known() -> None:
    coarse = Schema.from_table(
        {"day": DAYS, "x": {"range": [0, 9], "edges": [3]}, "x>=3": [0, 1]}, label="y", classes=None, row_bound=1
    )
    assert coarse.present(["x>=0", "x>=3", "day", "other"]) == ["x=[0, 3)", "x>=3", "day", "other"]
    assert coarse.encoded("coarse").present(["day>=2020-03-14"]) == ["day=[2020-03-14, 2020-05-26)"]


@pytest.mark.parametrize(
    ("low", "high", "cuts"),
    [
        (0, 2, (1,)),
        (0, 40, (1, 2, 3, 5, 10, 20)),
        (4, 40, (5, 10, 20)),
        (0, 5000, (1, 2, 3, 5, 10, 20, 50, 100, 1000)),
        (0, 100, (1, 2, 3, 5, 10, 20, 50)),
    ],
)
def test_bins_of_counts_follow_from_the_range(low: float, high: float, cuts: tuple[float, ...]) -> None:
    assert count_cuts(low, high) == cuts


WRONG = [
    (["18", "90"], r"two numbers in quotes: write \[18, 90\]"),
    ({}, "needs range, categories or date"),
    ({"rnage": [0, 1]}, "did you mean 'range'"),
    ({"range": [0, 1], "mising": True}, "did you mean 'missing'"),
    ({"range": [0, 1], "categories": ["a"]}, "'range' is no key"),
    ({"range": [0, 1], "missing": "yes"}, "true or false"),
    ({"range": [0, 1], "default": 2}, r"within the range \[0, 1\]"),
    ({"range": [0, 1], "default": "a"}, "within the range"),
    ({"range": [1, 0]}, "low < high"),
    ({"range": [0, 1, 2]}, "list of 2"),
    ({"range": 3}, "list of 2"),
    ({"range": [0, 9], "edges": [5, 2]}, "increasing"),
    ({"range": [0, 9], "edges": [0, 5]}, "above 0, where the first bin begins"),
    ({"range": [0, 9], "edges": [5, 9]}, "below 9"),
    ({"range": [0, 9], "edges": []}, "empty"),
    ({"range": [0.5, 9], "whole": True}, "range of whole numbers"),
    ({"range": [0, 9], "whole": 1}, "true or false"),
    ({"range": [0, 9], "edges": "count"}, '"counts"'),
    ({"range": [-1, 9], "edges": "counts"}, "begins at 0 or above"),
    ({"range": [0.5, 0.9], "edges": "counts"}, "ends above 1"),
    ({"categories": ["a"], "default": "b"}, "one of the categories"),
    ({"categories": "a"}, "categories is a list"),
    ({"categories": ["a"], "other": 1}, "true or false"),
    ({"date": "%Y-%m-%d"}, "needs a range"),
    ({"date": "%d.%m", "range": ["01.01", "02.01"]}, "needs a year"),
    ({"date": "%d %B %Y", "range": ["1 May 2020", "2 May 2020"]}, "%B"),
    ({"date": "%Y-%Y", "range": ["2020-2020", "2021-2021"]}, "%Y twice"),
    ({"date": "dd.mm.yyyy", "range": ["01.01.2020", "02.01.2020"]}, "%d for the day"),
    ({"categories": ["a", "(other)"], "other": True}, "adds the level"),
    ({"date": "%Y-%m-%", "range": ["2020-01-", "2021-01-"]}, "has %;"),
    ({"date": "%Y-%m-%d", "range": ["2021-01-01", "2020-01-01"]}, "low < high"),
    ({"date": "%Y-%m-%d", "range": ["1.1.2021", "2020-01-01"]}, "'1.1.2021' is no date in the format"),
    ({"date": "%Y-%m-%d", "range": [2020, 2021]}, "written as strings"),
    (DAYS | {"parts": ["year"]}, "'month' or 'weekday'|\"month\" or \"weekday\""),
    (DAYS | {"parts": "month"}, "parts are a list"),
    (DAYS | {"default": "2021-01-01"}, "within"),
]


@pytest.mark.parametrize(("entry", "why"), WRONG)
def test_a_wrong_column_is_a_sentence(entry: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        column_of(entry)


def test_cells_that_stand_for_something_else_are_counted_by_what_they_become() -> None:
    entries = {
        "a": {"range": [0, 9], "missing": True},
        "b": {"range": [0, 9], "default": 1},
        "c": {"categories": ["x"], "other": True, "default": "x"},
        "d": DAYS,
    }
    schema = Schema.from_table(entries, label="y", classes=None, row_bound=1.0)
    cells = {"a": ["", "99", "1"], "b": ["?", "", "2"], "c": ["z", "", "x"], "d": ["x", "1999-01-01", "2020-05-05"]}
    found = Encoder(schema.names, schema).unread({name: np.array(values) for name, values in cells.items()})
    assert found == {
        "a": {"clipped": 1, "indicated": 1},
        "b": {"default": 2},
        "c": {"other": 1, "default": 1},
        "d": {"clipped": 1, "no_date": 1},
    }
    assert {kind for kinds in found.values() for kind in kinds} <= set(AMISS)


def test_only_a_column_that_says_nothing_refuses_a_missing_cell() -> None:
    table = {"x": np.array(["soon", "2020-01-01"])}

    def schema(entry: Any) -> Schema:
        return Schema.from_table({"x": entry}, label="y", classes=None, row_bound=1.0)

    with pytest.raises(DataError, match=r"'x': 1 of 2 rows hold no date.*record 1") as caught:
        schema(DAYS).encode(table)
    assert "soon" not in str(caught.value)
    for more in ({"missing": True}, {"default": "2020-06-01"}):
        assert schema(DAYS | more).encode(table).shape[0] == 2


# Any schema and any rows.

words = st.text(max_size=4)
flags = st.booleans()


@st.composite
def number_columns(draw: Any) -> Number:
    whole = draw(flags)
    low, length = draw(st.integers(-100, 100) if whole else st.floats(-1e6, 1e6)), draw(st.floats(1e-3, 1e6))
    length = math.ceil(length) if whole else length
    high = low + length
    shares = sorted(draw(st.sets(st.floats(0.01, 0.99), max_size=4)))
    cuts = tuple(sorted({low + share * length for share in shares} - {low, high}))
    default = draw(st.none() | st.floats(0, 1).map(lambda share: min(max(low + share * length, low), high)))
    return Number(low, high, cuts=cuts, default=default, missing=draw(flags), whole=whole)


@st.composite
def category_columns(draw: Any) -> Category:
    names = st.text("abcxyz?-1", min_size=1, max_size=3)
    values = tuple(draw(st.lists(names, min_size=1, max_size=4, unique=True)))
    return Category(values, draw(flags), draw(st.none() | st.sampled_from(values)), draw(flags))


@st.composite
def date_columns(draw: Any) -> Date:
    format = draw(st.sampled_from(["%Y-%m-%d", "%d.%m.%Y", "%d/%m/%y", "%Y-%m-%dT%H:%M:%S", "%Y"]))
    first = date(1971, 1, 1).toordinal()
    low, middle, high = (
        datetime.fromordinal(first + 366 * year).strftime(format)
        for year in sorted(draw(st.sets(st.integers(0, 80 if "%y" not in format else 40), min_size=3, max_size=3)))
    )
    parts = draw(st.sampled_from([(), ("month",), ("weekday",), ("month", "weekday")]))
    return Date(format, low, high, parts, default=draw(st.sampled_from([None, low, middle, high])), missing=draw(flags))


columns = st.one_of(number_columns(), category_columns(), date_columns())
schemas = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), columns, min_size=1, max_size=4)
encodings = st.sampled_from(["minmax", "binned", "coarse"])
hostile = st.one_of(
    st.none(),
    words,
    st.floats(),
    st.integers(),
    st.booleans(),
    st.binary(max_size=3),
    st.dates(),
    st.datetimes(),
    st.datetimes().map(np.datetime64),
    st.sampled_from(
        [*("", "?", "NaN", "inf", "-inf", "1e999", "0x10", "2020-02-30", "99.99.9999", "0000-00-00", "١٢", "\ud800"),
         *("1" * 5000, 10**400, 10**5000, Decimal("NaN"), Decimal("sNaN"), [1, 2], {}, (), 1j, np.float32("inf")),
         *(np.datetime64("NaT", "s"), math.nan, -0.0, 5e-324, 1.8e308, b"\xff", object)],
    ),
)  # fmt: skip


@st.composite
def rows(draw: Any) -> tuple[Schema, dict[str, Any]]:
    declared: dict[str, Column] = draw(schemas)
    schema = Schema(declared, "y", None, 1.0).encoded(draw(encodings))
    n = draw(st.integers(0, 5))
    table = {}
    for name in declared:
        table[name] = np.empty(n, dtype=object)
        for place in range(n):
            table[name][place] = draw(hostile)
    return schema, table


@settings(max_examples=400, deadline=None)
@given(rows())
def test_no_row_raises_an_error_or_leaves_the_declared_ball(drawn: tuple[Schema, dict[str, Any]]) -> None:
    """The three facts that a schema states of its rows (width, norm, entries), and that rows are encoded alone."""
    schema, table = drawn
    X = schema.encode(table, "default")
    assert X.shape[1] == schema.dim == len(set(schema.names))
    assert ((X >= 0) & (X <= 1)).all()
    assert (np.sqrt((X * X).sum(axis=1)) <= schema.norm * (1 + 1e-15)).all()
    assert ((X != 0).sum(axis=1) <= sum(column.entries for column in schema.columns.values())).all()
    for row in range(len(X)):
        alone = schema.encode({name: values[row : row + 1] for name, values in table.items()}, "default")
        assert np.array_equal(alone, X[row : row + 1])
    assert Encoder(schema.names, schema).unread(table) is not None


@settings(max_examples=200, deadline=None)
@given(columns)
def test_the_norm_is_reached(column: Column) -> None:
    """Control: a smaller norm than the declared one would not hold. A record without a value, or at the high end."""
    cells: list[Any] = [None, column.values[0] if isinstance(column, Category) else column.high]
    block = column.encode(np.array(cells, dtype=object))
    assert (block * block).sum(axis=1).max() == pytest.approx(column.square)
    assert (block != 0).sum(axis=1).max() <= column.entries


@settings(max_examples=200, deadline=None)
@given(schemas, encodings)
def test_a_model_keeps_any_schema(declared: dict[str, Column], encoding: Any) -> None:
    schema = Schema(declared, "y", ("no", "yes"), 1.0).encoded(encoding)
    frame = Frame(1.0, 0.0, schema.names, ("no", "yes"), schema=schema, label="y", unused=("hospital",))
    assert frame_of(json.loads(json.dumps(asdict(frame)))) == frame


WHOLE = [(15, 100), (0, 13), (0, 1), (0, 2), (-5, 5), (1900, 2030), (0, 999), (7, 8)]


@pytest.mark.parametrize("encoding", ["binned", "coarse"])
@pytest.mark.parametrize(("low", "high"), WHOLE)
def test_bins_of_whole_numbers_begin_at_whole_numbers(low: int, high: int, encoding: Encoding) -> None:
    """Declared constants alone: every whole number stays in its bin, and no bin is without one."""
    declared = Number(low, high, whole=True).encoded(encoding)
    every = np.arange(low, high + 1)
    block = declared.encode(every)
    assert block.shape[1] == len(declared.names("x"))
    assert block.any(axis=0).all()
    fractional = Number(low, high).encoded(encoding).encode(every)
    assert np.array_equal(block, fractional[:, fractional.any(axis=0)])
    assert all(start.is_integer() and low < start <= high for start in declared.begins)
    assert len(declared.starts) == len(set(declared.starts))


def test_what_is_not_whole_still_has_a_bin() -> None:
    """The map is total: nothing that a record holds is refused, or leaves the unit ball."""
    column = column_of({"range": [0, 13], "whole": True}).encoded("binned")
    cells = np.array([0.5, 12.9, 40.0, -3.0, "x", None], dtype=object)
    block = column.encode(cells)
    assert (block.sum(axis=1) == 1).all()
    assert np.array_equal(block[0], column.encode(np.array([0.0]))[0])
    assert column.square == 1.0


def test_scaled_numbers_and_declared_edges_do_not_change_by_being_whole() -> None:
    cells = np.linspace(-1, 11, 50)
    for entry, encoding in (({"range": [0, 10]}, "minmax"), ({"range": [0, 10], "edges": [2, 7]}, "binned")):
        plain, whole = (column_of(table).encoded(encoding) for table in (entry, {**entry, "whole": True}))
        assert np.array_equal(plain.encode(cells), whole.encode(cells))


def test_a_default_is_stripped_as_categories_are() -> None:
    assert Category((" a ", "b"), default=" a ") == Category(("a", "b"), default="a")
