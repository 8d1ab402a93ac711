"""Splits: every record at exactly one party, no party empty, the same again for the same seed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.data import splits
from privadmm.errors import ConfigError, DataError

Y = np.where(np.arange(400) % 4 == 0, 1.0, -1.0)

SEEDED = {
    "even": lambda seed: splits.even(400, 7, seed),
    "dirichlet": lambda seed: splits.dirichlet(Y, 7, 0.5, seed),
    "train_test": lambda seed: np.concatenate(splits.train_test(400, 0.25, seed)),
}


@pytest.mark.parametrize("split", SEEDED.values(), ids=SEEDED)
def test_the_seed_decides(split):
    np.testing.assert_array_equal(split(3), split(3))
    assert (split(3) != split(4)).any()


@pytest.mark.parametrize("split", SEEDED.values(), ids=SEEDED)
@pytest.mark.parametrize("seed", [-1, None, 1.5, True, "1"])
def test_a_seed_is_a_whole_number(split, seed):
    with pytest.raises(ConfigError, match="seed"):
        split(seed)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(0, 5))
def test_even_sizes_differ_by_at_most_one(n, parties, seed):
    if parties > n:
        with pytest.raises(DataError, match=f"{parties} parties cannot share {n} records"):
            splits.even(n, parties, seed)
        return
    sizes = np.bincount(splits.even(n, parties, seed), minlength=parties)
    assert len(sizes) == parties
    assert sizes.sum() == n
    assert sizes.max() - sizes.min() <= 1


def test_even_mixes_the_records():
    """A cut without the permutation would leave the first half at party 0."""
    owner = splits.even(1000, 2, seed=0)
    assert 150 < np.count_nonzero(owner[:500] == 0) < 350


@pytest.mark.parametrize("parties", [0, -1])
def test_there_is_at_least_one_party(parties):
    for split in (lambda: splits.even(5, parties, 0), lambda: splits.by_columns(5, parties)):
        with pytest.raises(ConfigError, match="parties"):
            split()


@pytest.mark.parametrize(
    ("values", "owner", "names"),
    [
        (np.array(["b", "a", " b"]), [1, 0, 1], ("a", "b")),
        (np.array([10, 2, 10]), [1, 0, 1], ("2", "10")),
        (np.array(["y", "x", "y"], dtype=object), [1, 0, 1], ("x", "y")),
    ],
)
def test_by_column_gives_each_value_a_party_in_sorted_order(values, owner, names):
    found, parties = splits.by_column(values)
    np.testing.assert_array_equal(found, owner)
    assert parties == names


@pytest.mark.parametrize("blank", ["", None, np.nan])
def test_by_column_refuses_blanks(blank):
    with pytest.raises(DataError, match="1 of 2 rows are blank"):
        splits.by_column(np.array(["a", blank], dtype=object))


def test_by_column_refuses_an_empty_column():
    with pytest.raises(DataError, match="no records"):
        splits.by_column(np.array([], dtype=str))


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_dirichlet_gives_every_record_away_and_every_party_one(alpha, seed):
    y = np.repeat([-1.0, 1.0], 2000)
    owner = splits.dirichlet(y, 4, alpha, seed)
    sizes = np.bincount(owner, minlength=4)
    assert len(sizes) == 4
    assert sizes.min() >= 1
    assert sizes.sum() == len(y)


def test_a_smaller_alpha_skews_the_labels_more():
    y = np.repeat([-1.0, 1.0], 2000)

    def skew(alpha):
        shares = []
        for seed in range(5):
            owner = splits.dirichlet(y, 4, alpha, seed)
            shares += [abs(y[owner == party].mean()) for party in range(4)]
        return np.mean(shares)

    assert skew(100.0) < 0.2 < 0.5 < skew(0.1)


@pytest.mark.parametrize("alpha", [1e-3, 1e-300])
def test_dirichlet_gives_up_with_what_to_change(alpha):
    with pytest.raises(DataError, match=rf"alpha = {alpha} .*10 parties .*larger alpha"):
        splits.dirichlet(Y[:20], 10, alpha, seed=0)


@pytest.mark.parametrize("alpha", [0, -1, np.inf, np.nan])
def test_dirichlet_needs_a_positive_alpha(alpha):
    with pytest.raises(ConfigError, match="alpha"):
        splits.dirichlet(Y, 2, alpha, seed=0)


def test_dirichlet_needs_a_record_for_each_party():
    with pytest.raises(DataError, match="3 parties cannot share 2 records"):
        splits.dirichlet(Y[:2], 3, 1.0, seed=0)


@pytest.mark.parametrize(("parties", "sizes"), [(2, [62, 61]), (1, [123]), ([66, 57], [66, 57]), (123, [1] * 123)])
def test_by_columns_cuts_from_left_to_right(parties, sizes):
    held = splits.by_columns(123, parties)
    assert [len(columns) for columns in held] == sizes
    np.testing.assert_array_equal(np.concatenate(held), np.arange(123))


@pytest.mark.parametrize("sizes", [[66, 58], [123, 0], [-1, 124], []])
def test_by_columns_refuses_sizes_that_do_not_fit(sizes):
    with pytest.raises(ConfigError, match="sum to 123"):
        splits.by_columns(123, sizes)


def test_by_columns_refuses_more_parties_than_columns():
    with pytest.raises(DataError, match="4 parties cannot share 3 columns"):
        splits.by_columns(3, 4)


def test_by_lists_keeps_the_lists():
    held = splits.by_lists(4, [[3, 0], [1, 2]])
    assert [columns.tolist() for columns in held] == [[3, 0], [1, 2]]


@pytest.mark.parametrize(
    ("lists", "why"),
    [
        ([[0, 1], [1, 2, 3]], "column 1 is held by 2 parties"),
        ([[0, 1], [3]], "column 2 is held by 0 parties"),
        ([[0, 1, 2, 3], []], "party 1 holds no columns"),
        ([[0, 1], [2, 4]], "0 to 3"),
        ([[0, 1], [2, -1]], "0 to 3"),
        ([], "column 0 is held by 0 parties"),
    ],
)
def test_by_lists_refuses_what_is_no_partition(lists, why):
    with pytest.raises(ConfigError, match=why):
        splits.by_lists(4, lists)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 60), st.floats(0.01, 0.99), st.integers(0, 3))
def test_train_and_test_are_a_partition(n, fraction, seed):
    if not 0 < round(n * fraction) < n:
        with pytest.raises(DataError, match=f"of {n} records"):
            splits.train_test(n, fraction, seed)
        return
    train, test = splits.train_test(n, fraction, seed)
    assert len(test) == round(n * fraction)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(n))
    for rows in (train, test):
        assert (np.diff(rows) > 0).all()


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, np.nan])
def test_the_test_fraction_lies_between_0_and_1(fraction):
    with pytest.raises(ConfigError, match="test_fraction"):
        splits.train_test(10, fraction, 0)


def test_gather_lists_each_partys_rows_in_order():
    rows = splits.gather(np.zeros((5, 2)), np.array([1, 0, 2, 1, 0]))
    assert [party.tolist() for party in rows] == [[1, 4], [0, 3], [2]]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 50), st.integers(1, 10), st.integers(0, 3))
def test_gather_inverts_owner(n, parties, seed):
    parties = min(n, parties)
    owner = splits.even(n, parties, seed)
    for party, rows in enumerate(splits.gather(np.zeros((n, 1)), owner, parties)):
        np.testing.assert_array_equal(rows, np.flatnonzero(owner == party))


@pytest.mark.parametrize(
    ("owner", "parties", "why"),
    [
        ([0, 2, 0], None, "party 1 has no records"),
        ([0, 1, 0], 3, "party 2 has no records"),
        ([0, 1, 2], 2, "names party 2, but there are 2"),
        ([0, -1, 0], None, "whole numbers from 0"),
        ([0.0, 1.0, 0.0], None, "whole numbers from 0"),
        ([0, 1], None, "3 records"),
    ],
)
def test_gather_refuses_a_party_without_records(owner, parties, why):
    with pytest.raises(DataError, match=why):
        splits.gather(np.zeros((3, 1)), np.array(owner), parties)
