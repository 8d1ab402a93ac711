"""A declared schema: what it accepts, and that its encoding is a total map into the cube."""

import math
import pickle
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.data.raw import labels
from privadmm.data.schema import Category, Number, Schema
from privadmm.errors import ConfigError, DataError

COLUMNS = {"age": [17, 90], "sex": ["Female", "Male"], "hours": [1.0, 99.0]}


def schema(columns=COLUMNS, label="income", classes=("<=50K", ">50K"), row_bound=2.0):
    return Schema.from_table(columns, label=label, classes=classes, row_bound=row_bound)


def table(age=(17, 90), sex=("Male", "Female"), hours=(50, 50)):
    return {"age": np.array(age), "sex": np.array(sex), "hours": np.array(hours)}


def test_the_toml_form_is_the_same_schema_as_the_typed_one():
    typed = Schema(
        {"age": Number(17, 90), "sex": Category(("Female", "Male")), "hours": Number(1, 99)},
        label="income",
        classes=("<=50K", ">50K"),
        row_bound=2.0,
    )
    assert schema() == typed
    assert typed.names == ("age", "sex=Female", "sex=Male", "hours")
    assert typed.dim == 4
    assert pickle.loads(pickle.dumps(typed)) == typed


def test_columns_are_encoded_in_declared_order():
    expected = [[0, 0, 1, 0.5], [1, 1, 0, 0.5]]
    np.testing.assert_array_equal(schema().encode(table()), expected)


def test_a_record_is_encoded_the_same_whatever_stands_beside_it():
    together = schema().encode(table(age=(20, 33), hours=(1, 80)))
    alone = schema().encode({name: column[1:] for name, column in table(age=(20, 33), hours=(1, 80)).items()})
    np.testing.assert_array_equal(together[1:], alone)


@pytest.mark.parametrize("sex", ["male", "", "?", "Male ish", None, math.nan])
def test_an_unknown_category_is_a_block_of_zeros(sex):
    encoded = schema().encode(table(sex=np.array([sex, "Female"], dtype=object)))
    np.testing.assert_array_equal(encoded[:, 1:3], [[0, 0], [1, 0]])


@pytest.mark.parametrize("cells", [np.array([" Male", "Female\t"]), np.array([b"Male", b"Female "])])
def test_blanks_around_a_word_do_not_count(cells):
    np.testing.assert_array_equal(schema().encode(table(sex=cells))[:, 1:3], [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    "cells",
    [np.array([2, 1]), np.array([2.0, 1.0], dtype=np.float32), np.array([np.int64(2), "1"], dtype=object)],
)
def test_categories_that_are_whole_numbers_match_numeric_columns(cells):
    numbered = schema({"ward": ["1", "2"]})
    np.testing.assert_array_equal(numbered.encode({"ward": cells}), [[0, 1], [1, 0]])


def test_out_of_range_is_clipped():
    encoded = schema().encode(table(age=(-5, 1e300)))
    np.testing.assert_array_equal(encoded[:, 0], [0, 1])


BAD_NUMBERS = [math.nan, math.inf, -math.inf, None, "", "?", "forty", b"x", 10**400, Decimal("NaN"), [1, 2]]


def with_bad(cell):
    column = np.empty(3, dtype=object)
    column[:] = [50, None, 60]
    column[1] = cell
    return {"age": column, "sex": np.array(["Male"] * 3), "hours": np.array([1, 2, 3])}


@pytest.mark.parametrize("cell", BAD_NUMBERS, ids=repr)
def test_a_bad_number_is_refused_by_column_and_count_and_never_printed(cell):
    with pytest.raises(DataError, match=r"'age': 1 of 3 rows .*record 2.*on_bad") as caught:
        schema().encode(with_bad(cell))
    if isinstance(cell, str) and len(cell) > 1:
        assert cell not in str(caught.value)


@pytest.mark.parametrize("cell", BAD_NUMBERS, ids=repr)
def test_a_bad_number_becomes_the_low_end_when_that_is_asked_for(cell):
    encoded = schema().encode(with_bad(cell), on_bad="default")
    assert encoded[1, 0] == 0
    assert (encoded[[0, 2], 0] > 0).all()


def test_dates_are_not_numbers():
    dates = np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[ns]")
    with pytest.raises(DataError, match="'age': 2 of 2"):
        schema().encode(table(age=dates))


def test_a_missing_column_is_named():
    with pytest.raises(DataError, match=r"'hours' is missing; the table has 3 others"):
        schema().encode({"age": np.array([1]), "Sex": np.array(["Male"]), "sex": np.array(["Male"])})


@pytest.mark.parametrize("hours", [np.arange(3), np.ones((2, 1))])
def test_columns_of_different_shape_are_refused(hours):
    with pytest.raises(DataError, match="'hours' has shape"):
        schema().encode(table(hours=hours))


def test_on_bad_is_one_of_two_words():
    with pytest.raises(ConfigError, match="on_bad"):
        schema().encode(table(), on_bad="ignore")


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ([], "range"),
        ([1], "range"),
        ([1, 2, 3], "range"),
        ([2, 2], "low < high"),
        ([3, 2], "low < high"),
        ([0, math.inf], "finite"),
        ([math.nan, 1], "finite"),
        ([-1.7e308, 1.7e308], "finite"),
        ([False, True], "two numbers"),
        ([None, 1], "two numbers"),
        (["a", 1], "range"),
        ([1, "a"], "range"),
        (["a", "a"], "twice"),
        (["a", " a "], "twice"),
        (["a", " "], "blank"),
        ("a", "range"),
        (3, "range"),
        ({"low": 1}, "range"),
    ],
)
def test_a_malformed_column_is_named(entry, why):
    with pytest.raises(ConfigError, match=rf"schema column 'dose': .*{why}"):
        schema({"age": [1, 2], "dose": entry})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"columns": {}}, "no columns"),
        ({"columns": {"income": [0, 1]}}, "'income' is the label"),
        ({"columns": {" age": [0, 1]}}, "' age'"),
        ({"columns": {"": [0, 1]}}, "''"),
        ({"columns": {"a": ["b"], "a=b": [0, 1]}}, "'a=b' would be encoded twice"),
        ({"row_bound": 0.0}, "row_bound"),
        ({"row_bound": math.inf}, "row_bound"),
        ({"classes": ["a"]}, "two values"),
        ({"classes": ["a", "b", "c"]}, "two values"),
        ({"classes": "ab"}, "two values"),
        ({"classes": ["1", 1.0]}, "different"),
        ({"classes": ["", "a"]}, "blank"),
        ({"classes": [None, "a"]}, "strings or numbers"),
    ],
)
def test_a_malformed_schema_is_refused_when_it_is_made(arguments, why):
    with pytest.raises(ConfigError, match=why):
        schema(**arguments)


SPELLINGS = ["1", 1, 1.0, "+1", " 1 ", "1.0", True, "true", b"1", np.float32(1)]


@pytest.mark.parametrize("declared", ["1", 1, 1.0, "+1"])
@pytest.mark.parametrize("value", SPELLINGS, ids=repr)
def test_a_class_is_a_number_where_it_spells_one(declared, value):
    y = labels(np.array([value, "0", 0, False], dtype=object), (0, declared))
    np.testing.assert_array_equal(y, [1, -1, -1, -1])


@pytest.mark.parametrize("values", [np.array([-1, 1]), np.array([-1.0, 1.0]), np.array(["-1", "+1"])])
def test_labels_come_in_any_storage(values):
    y = labels(values, ("-1", "+1"))
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, [-1, 1])


@pytest.mark.parametrize("other", ["secret", "", None, math.nan, 2])
def test_a_third_class_is_refused_by_count_and_never_printed(other):
    values = np.array(["no", "yes", other, other], dtype=object)
    with pytest.raises(DataError, match=r"'died': 2 of 4 rows .* neither 'no' .* nor 'yes'") as caught:
        labels(values, ("no", "yes"), "died")
    assert "secret" not in str(caught.value)


cells = st.one_of(
    st.none(),
    st.text(max_size=5),
    st.floats(),
    st.integers(),
    st.booleans(),
    st.binary(max_size=3),
    st.just("Male"),
)


@st.composite
def tables(draw):
    n = draw(st.integers(0, 6))
    out = {}
    for name in COLUMNS:
        out[name] = np.empty(n, dtype=object)
        out[name][:] = draw(st.lists(cells, min_size=n, max_size=n))
    return out


@settings(max_examples=200, deadline=None)
@given(tables())
def test_encoding_is_total_into_the_cube(records):
    encoded = schema().encode(records, on_bad="default")
    assert encoded.shape == (len(records["age"]), 4)
    assert ((encoded >= 0) & (encoded <= 1)).all()
    assert (np.linalg.norm(encoded, axis=1) <= math.sqrt(len(COLUMNS))).all()


finite = st.floats(-1e300, 1e300)


@settings(max_examples=200, deadline=None)
@given(finite, finite, finite, finite)
def test_a_range_keeps_order_and_ends(low, high, a, b):
    if not low < high:
        return
    (x, y, zero, one) = Number(low, high).encode(np.array([min(a, b), max(a, b), low, high]))[:, 0]
    assert 0 <= x <= y <= 1
    assert (zero, one) == (0, 1)


def test_reading_the_range_off_the_data_would_tell_one_record_about_another():
    """The negative control: with observed ranges, changing record 0 moves the encoding of record 1."""

    def observed(age):
        return Number(min(age), max(age)).encode(np.array(age))[1]

    assert observed([20, 30, 40]) != observed([25, 30, 40])
    declared = Number(17, 90)
    assert declared.encode(np.array([20, 30, 40]))[1] == declared.encode(np.array([25, 30, 40]))[1]
