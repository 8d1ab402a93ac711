"""Digests of records: equal for equal rows in one order, however they are stored, and carried along by blocks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array

from cases import SIZES, shards
from privadmm.data import label_source
from privadmm.data.label_source import LabelSource, digest_of
from privadmm.data.shards import Shards

numbers = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e-300, 3.0])


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=9), st.randoms())
def test_a_digest_does_not_depend_on_storage(table: list[list[float]], random: Any) -> None:
    dense, everybody = np.array(table), np.arange(len(table))
    seen = digest_of(dense, everybody)
    explicit = csr_array(
        (dense.ravel(), np.tile(np.arange(3), len(table)), 3 * np.arange(len(table) + 1)), shape=dense.shape
    )
    entries = [(i, j) for i in everybody for j in range(3)] * 2
    random.shuffle(entries)
    rows_, columns = np.array(entries).T
    halves = coo_array((dense[rows_, columns] / 2, (rows_, columns)), shape=dense.shape).tocsr()
    for other in (csr_array(dense), explicit, halves, np.asfortranarray(dense), explicit[::-1][::-1]):
        assert digest_of(other, everybody) == seen
    order = random.sample(range(len(table)), len(table))
    moved = digest_of(dense[order], everybody)
    assert (moved == seen) == np.array_equal(dense[order], dense)
    assert digest_of(dense, np.array(order)) == moved


def test_a_digest_does_not_depend_on_where_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    table, everybody = np.random.default_rng(0).normal(size=(50, 4)), np.arange(50)
    seen = digest_of(table, everybody)
    monkeypatch.setattr(label_source, "CELLS", 9)
    monkeypatch.setattr(label_source, "CHUNK", 7)
    assert digest_of(table, everybody) == seen == digest_of(csr_array(table), everybody)


@pytest.mark.parametrize(
    "pair",
    [
        ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]),
        ([[1.0, 2.0], [0.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]]),
        ([[1.0], [0.0]], [[1.0]]),
        ([[1.0, 0.0]], [[1.0, 0.0, 0.0]]),
    ],
    ids=["order", "the same numbers in other rows", "a row of zeros", "a column of zeros"],
)
def test_digests_that_differ(pair: tuple[list[list[float]], list[list[float]]]) -> None:
    first, other = (digest_of(np.array(table), np.arange(len(table))) for table in pair)
    assert first != other


def test_blocks_carry_the_digests_of_their_parties() -> None:
    whole = shards()
    assert whole.source is not None
    assert len(set(whole.source.rows)) == len(SIZES)
    part = whole.take([1, 3])
    assert part.source == LabelSource(rows=(whole.source.rows[1], whole.source.rows[3]))
    joined = Shards.join([whole.take([0, 2]), part])
    assert joined.source == LabelSource(rows=tuple(whole.source.rows[i] for i in (0, 2, 1, 3)))
