"""Shards: the products are right, stay inside the unit ball, and do not depend on who shares the block."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix

from privadmm.data.shards import Shards
from privadmm.data.storage import CHUNK
from privadmm.errors import ConfigError, DataError
from privadmm.optim.losses import Logistic

RAGGED = (7, 12, 7, 1, 12, 7)
STORAGES = ["dense", "csr", "mixed"]


def make(sizes=RAGGED, dim=5, storage="dense", seed=0, **options):
    rng = np.random.default_rng(seed)
    parties = []
    for i, m in enumerate(sizes):
        X = rng.normal(size=(m, dim)) * (rng.random((m, dim)) < 0.6)
        y = np.where(rng.random(m) < 0.5, -1.0, 1.0)
        parties.append((csr_array(X) if storage == "csr" or (storage == "mixed" and i % 2) else X, y))
    return Shards.from_parties(parties, **{"row_bound": 1.5, **options})


def matrices(shards):
    """Each party's A_i and its places in flat arrays, by the public methods."""
    owner = shards.spread(np.arange(len(shards.ids), dtype=float)).astype(int)
    columns = shards.margins(np.broadcast_to(np.eye(shards.dim)[:, None], (shards.dim, len(shards.ids), shards.dim)))
    return [(columns[:, owner == i].T, np.flatnonzero(owner == i)) for i in range(len(shards.ids))]


def results(shards, x):
    """Per party, everything that a block computes for it."""
    m = shards.margins(x)
    slopes = Logistic().deriv(7 * m, shards.y)
    curvature = Logistic().curv(m, shards.y)
    parts = (
        shards.pull(slopes),
        shards.gram(curvature),
        shards.sums(slopes),
        shards.sums(shards.spread(x[:, 0]) * m),
    )
    return {int(name): [part[i].tobytes() for part in parts] for i, name in enumerate(shards.ids)}


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("lead", [(), (1,), (3,), (2, 3)])
def test_products_match_their_definition(storage, lead):
    shards, rng = make(storage=storage, intercept=0.3), np.random.default_rng(1)
    x, g, h = rng.normal(size=(*lead, 6, 6)), rng.normal(size=(*lead, shards.size)), rng.random(shards.size)
    for i, (A, at) in enumerate(matrices(shards)):
        assert len(at) == RAGGED[i] == shards.sizes[i]
        np.testing.assert_allclose(shards.margins(x)[..., at], x[..., i, :] @ A.T, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(shards.pull(g)[..., i, :], g[..., at] @ A, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(shards.sums(g)[..., i], g[..., at].sum(axis=-1), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(shards.gram(h)[i], A.T @ np.diag(h[at]) @ A, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(shards.take([i]).kernel()[0], A @ A.T, rtol=1e-12, atol=1e-12)
    for r in np.ndindex(*lead):
        np.testing.assert_allclose(shards.margins(x)[r], shards.margins(x[r]), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(shards.pull(g)[r], shards.pull(g[r]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("storage", STORAGES)
def test_replicas_of_a_party_share_its_records(storage):
    """Products of three replicas of each party, also of some of them alone, are those of the party."""
    shards = make(storage=storage, intercept=0.3)
    many = shards.repeat(3)
    assert many.ids.tolist() == np.repeat(shards.ids, 3).tolist()
    assert (many.size, many.cells) == (3 * shards.size, shards.cells)
    own, rng = matrices(shards), np.random.default_rng(5)
    for rows in (np.arange(18), np.array([0, 1, 5, 7, 8, 13, 17]), np.array([4])):
        some = many.take(rows)
        assert some.cells == sum(shards.take([i]).cells for i in np.unique(rows // 3))
        x, h = rng.normal(size=(len(rows), 6)), rng.random(some.size)
        slopes, grams, scores = some.slope(x, lambda m, y: m * y), some.gram(h), some.margins(x)
        for row, (A, at) in enumerate(matrices(some)):
            again, where = own[rows[row] // 3]
            assert A.tobytes() == again.tobytes()
            assert some.y[at].tolist() == shards.y[where].tolist()
            np.testing.assert_allclose(scores[at], A @ x[row], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(slopes[row], A.T @ (A @ x[row] * some.y[at]), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(some.pull(h)[row], A.T @ h[at], rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(grams[row], A.T @ (h[at, None] * A), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(some.take([row]).kernel()[0], A @ A.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("storage", STORAGES)
def test_replicas_of_a_party_stay_together(storage):
    many = make(storage=storage).repeat(4)
    for cells in (1, 50, 10**6):
        found = [at for at, _ in many.batches(cells, alike=False)]
        assert np.sort(np.concatenate(found)).tolist() == list(range(24))
        assert all(np.bincount(at // 4)[np.unique(at // 4)].tolist() == [4] * len(np.unique(at // 4)) for at in found)


def test_storage_is_a_detail():
    dense, sparse = make(intercept=0.2), make(storage="csr", intercept=0.2)
    rng = np.random.default_rng(2)
    x, g, h = rng.normal(size=(6, 6)), rng.normal(size=dense.size), rng.random(dense.size)
    np.testing.assert_allclose(dense.margins(x), sparse.margins(x), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(dense.pull(g), sparse.pull(g), rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(dense.gram(h), sparse.gram(h), rtol=1e-13, atol=1e-14)


def test_pooled_and_separate_records_are_the_same_block():
    parties = [(np.eye(3)[[0, 1]], np.array([1.0, -1.0])), (np.eye(3)[[2]], np.array([1.0]))]
    X, y = np.concatenate([X for X, _ in parties]), np.concatenate([y for _, y in parties])
    pooled = Shards.build(X, y, [[0, 1], [2]], row_bound=2.0, ids=[5, 3])
    apart = Shards.from_parties(parties, row_bound=2.0, ids=[5, 3])
    assert pooled.ids.tolist() == [5, 3]
    assert pooled.sizes.tolist() == [2, 1]
    x = np.arange(6.0).reshape(2, 3)
    assert pooled.margins(x).tolist() == apart.margins(x).tolist() == [2.5, 0.0, 0.5]  # the smaller party comes first
    assert pooled.y.tolist() == apart.y.tolist() == [1.0, 1.0, -1.0]


def test_csr_input_may_be_untidy_and_is_left_alone():
    X = coo_array(([1.0, 2.0, 0.0], ([0, 0, 1], [2, 2, 0])), shape=(2, 3))  # a duplicate, and a stored zero
    tidy = Shards.build(X.toarray(), [1, -1], [[0, 1]], row_bound=4.0)
    for untidy in (X, X.tocsr(), csr_matrix(X.toarray().astype(np.float32))):
        before = untidy.toarray()
        shards = Shards.build(untidy, [1, -1], [[0, 1]], row_bound=4.0)
        assert shards.margins(np.ones((1, 3))).tolist() == tidy.margins(np.ones((1, 3))).tolist() == [0.75, 0.0]
        assert untidy.toarray().tolist() == before.tolist()


# Partition


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 2, 7, 8, 33, 64, 65, 200]), min_size=2, max_size=7),
    dim=st.sampled_from([1, 2, 5, 16, 37]),
    storage=st.sampled_from(STORAGES),
    data=st.data(),
)
def test_bits_do_not_depend_on_the_partition(sizes, dim, storage, data):
    shards = make(sizes, dim, storage)
    x = np.random.default_rng(3).normal(size=(len(sizes), dim))
    whole = results(shards, x)
    block = np.array([data.draw(st.integers(0, 2)) for _ in sizes])
    for parts in ([np.flatnonzero(block == b) for b in range(3)], np.arange(len(sizes))[:, None]):
        split = {}
        for part in parts:
            if len(part):
                split |= results(shards.take(part), x[part])
        assert split == whole
    nested = shards.take(np.arange(1, len(sizes)))
    if len(sizes) > 2:
        assert results(nested.take([0, len(sizes) - 2]), x[[1, -1]]).items() <= whole.items()


def test_bits_at_full_size():
    """More rows than one chunk, more columns than one SIMD register: there kernels take other paths."""
    shards = make((CHUNK + 5, CHUNK + 5, 3000), 105)
    x = np.random.default_rng(4).normal(size=(3, 105))
    whole = results(shards, x)
    assert results(shards.take([1]), x[[1]]).items() <= whole.items()
    assert results(shards.take([1, 2]), x[1:]).items() <= whole.items()


def test_the_comparison_of_bits_sees_a_last_bit():
    shards = make()
    x = np.random.default_rng(3).normal(size=(6, 5))
    moved = x.copy()
    moved[2, 0] += 8 * np.spacing(x[2, 0])
    before, after = results(shards, x), results(shards, moved)
    assert {name for name in before if before[name] != after[name]} == {2}


@pytest.mark.parametrize("function", [np.exp, np.log1p, np.sqrt, Logistic().deriv, Logistic().curv])
def test_elementwise_functions_do_not_see_where_an_array_is_cut(function):
    """Vectorised loops treat the last few elements separately; their bits must not change."""
    v = np.random.default_rng(5).uniform(0, 9, size=77)
    call = function if isinstance(function, np.ufunc) else lambda a: function(a, np.ones_like(a))
    whole = call(v)
    for start in range(20):
        for stop in range(start + 1, 77, 3):
            assert call(v[start:stop].copy()).tobytes() == whole[start:stop].tobytes()


@pytest.mark.parametrize("storage", STORAGES)
def test_batches_cover_everyone_once_with_equal_sizes(storage):
    shards = make(storage=storage)
    x = np.random.default_rng(6).normal(size=(6, 5))
    whole, seen = results(shards, x), {}
    for at, batch in shards.batches(5 * 14):
        assert len(set(batch.sizes)) == 1
        assert storage != "dense" or len(at) == 1 or batch.size * 5 <= 70
        assert batch.ids.tolist() == shards.ids[at].tolist()
        seen |= results(batch, x[at])
    assert seen == whole
    assert 1 < max(len(at) for at, _ in shards.batches(5 * 14)) < 3 or storage != "dense"


# Memory


def test_taking_apart_copies_no_records():
    shards = make((50, 50, 50, 50))
    whole = shards.slots[0].piece.A
    for part in (shards.take([0, 1, 3]), next(shards.batches(1))[1]):
        assert all(np.shares_memory(slot.piece.A, whole) for slot in part.slots)
    sparse = make((50, 50, 50, 50), storage="csr")
    whole = sparse.slots[0].piece.A.data
    assert all(np.shares_memory(slot.piece.A.data, whole) for slot in sparse.take([0, 1, 3]).slots)


def test_building_needs_one_copy():
    X = np.random.default_rng(0).normal(size=(40_000, 50))
    X.flags.writeable = False
    tracemalloc.start()
    try:
        shards = Shards.build(X, np.ones(40_000), np.arange(40_000).reshape(4, -1), row_bound=1.0)
        peak = tracemalloc.get_traced_memory()[1]
        np.array(shards.slots[0].piece.A)
        control = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.25 * X.nbytes
    assert control > 1.9 * X.nbytes  # a second copy would have been seen


def test_a_block_can_be_sent():
    shards = make(storage="mixed")
    x = np.ones((6, 5))
    before, size = results(shards, x), len(pickle.dumps(make(storage="mixed")))
    sent = pickle.dumps(shards)
    assert results(pickle.loads(sent), x) == before
    assert len(sent) == size  # nothing was added by use


# The unit ball


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.lists(st.sampled_from([0.0, 1.0, -3.0, 1e-300, 1e200, -1e308, 0.3]), min_size=3, max_size=3),
        min_size=1,
    ),
    row_bound=st.sampled_from([1e-3, 1.0, 3.0, 1e6]),
    intercept=st.sampled_from([0.0, 0.3, 0.999]),
    sparse=st.booleans(),
)
def test_rows_lie_in_the_unit_ball_and_short_rows_keep_their_length(rows, row_bound, intercept, sparse):
    X = np.array(rows)
    shards = Shards.build(
        csr_array(X) if sparse else X,
        np.ones(len(X)),
        [range(len(X))],
        row_bound=row_bound,
        intercept=intercept,
    )
    ((A, _),) = matrices(shards)
    shrink = np.sqrt(1 - intercept**2)
    norms = np.linalg.norm(A, axis=1)
    assert (norms <= 1 + 1e-15).all()
    features = A[:, :3]
    if intercept:
        assert (A[:, 3] == intercept).all()
    large = np.abs(X).max(axis=1) > row_bound
    np.testing.assert_allclose(np.linalg.norm(features[large], axis=1), shrink, rtol=1e-14)
    short = np.abs(X).max(axis=1) < row_bound / 2
    np.testing.assert_allclose(features[short], shrink * X[short] / row_bound, rtol=1e-14)
    # Control: the rows as given do leave the ball.
    assert not large.any() or np.abs(X[large]).max() > row_bound


def test_a_clipped_row_keeps_its_direction():
    shards = Shards.build([[3e200, 4e200]], [1.0], [[0]], row_bound=2.0)
    np.testing.assert_allclose(shards.margins(np.eye(2)[:, None]).ravel(), [0.6, 0.8], rtol=1e-14)


# Refusals


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_counted_and_the_party_named(sparse, bad):
    X = np.ones((9, 3))
    X[4, 0] = X[4, 1] = X[5, 2] = bad
    with pytest.raises(DataError, match=r"party 7: 2 of 5 rows"):
        Shards.build(csr_array(X) if sparse else X, np.ones(9), [range(4), range(4, 9)], row_bound=1.0, ids=[2, 7])


@pytest.mark.parametrize("row_bound", [0, -1.0, np.nan, np.inf])
def test_a_bound_that_is_none_is_refused(row_bound):
    with pytest.raises(ConfigError, match="row_bound"):
        make(row_bound=row_bound)


@pytest.mark.parametrize("intercept", [-0.1, 1.0, np.nan])
def test_an_intercept_outside_the_ball_is_refused(intercept):
    with pytest.raises(ConfigError, match="intercept"):
        make(intercept=intercept)


def test_labels_are_checked():
    X = np.ones((3, 2))
    with pytest.raises(DataError, match="party 1: 1 of 2 labels are not finite"):
        Shards.build(X, [1, 1, np.nan], [[0], [1, 2]], row_bound=1.0)
    with pytest.raises(DataError, match="party 0: 2 of 3 labels are not -1 or"):
        Shards.build(X, [1, 0, 0.5], [[0, 1, 2]], row_bound=1.0)
    real = Shards.build(X, [1, 0, 0.5], [[0, 1, 2]], row_bound=1.0, classification=False)
    assert real.y.tolist() == [1, 0, 0.5]


def test_a_party_without_records_is_named():
    with pytest.raises(DataError, match="party 8 has no records"):
        Shards.build(np.ones((2, 2)), [1, 1], [[0, 1], []], row_bound=1.0, ids=[4, 8])


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(DataError, match=r"\(n, d\)"):
        Shards.build(np.ones(3), np.ones(3), [[0]], row_bound=1.0)
    with pytest.raises(DataError, match="same columns"):
        Shards.from_parties([(np.ones((1, 2)), [1.0]), (np.ones((1, 3)), [1.0])], row_bound=1.0)
    for ids in ([1, 1], [1], []):
        with pytest.raises(ConfigError, match="ids"):
            Shards.build(np.ones((2, 2)), [1, 1], [[0], [1]], row_bound=1.0, ids=ids)
    with pytest.raises(ConfigError, match="party"):
        Shards.build(np.ones((2, 2)), [1, 1], [], row_bound=1.0)


@pytest.mark.parametrize("parties", [[], [1, 0], [0, 0], [-1, 0], [5, 6]])
def test_take_wants_increasing_positions(parties):
    with pytest.raises(ConfigError, match="take"):
        make().take(parties)


def test_many_small_squares_do_not_make_a_row_too_long() -> None:
    """Added one by one to a first 1, squares of 1e-9 are lost, and the row would be longer than 1."""
    from fractions import Fraction

    d = 4000
    row = np.full(d, 1e-8)
    row[0] = 1.0
    for X in (row[None], csr_array(row[None])):
        data = Shards.from_parties([(X, np.ones(1))], row_bound=1.0)
        (A,) = data.slots[0].piece.parties()
        row = A.toarray()[0] if hasattr(A, "toarray") else A[0]
        assert sum(Fraction(float(value)) ** 2 for value in row) <= 1
