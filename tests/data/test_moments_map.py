"""The public feature map is total and stays in the unit ball; the moments' sensitivity is a bound, and attained."""

import gc
import math
from fractions import Fraction
from weakref import ref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import shards
from privadmm.data.moments_map import Map, map_of, moments, moments_sensitivity, through
from privadmm.data.shards import Shards
from privadmm.errors import DataError

wild = st.floats(-1e300, 1e300, allow_nan=False)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(wild, min_size=3, max_size=3),
    st.lists(wild, min_size=3, max_size=3),
    st.lists(wild, min_size=3, max_size=3),
)
def test_every_row_goes_into_the_unit_ball(x: list[float], M: list[float], A: list[float]) -> None:
    """Rows stay in the ball whatever centre and scale a hostile relay sends."""
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            image = Map(np.clip(M, -1e100, 1e100), np.clip(A, -1e100, 1e100), 0.2)(np.clip(x, -1, 1)[None])
        except DataError:
            return
    assert np.isfinite(image).all()
    assert np.linalg.norm(image) <= 1 + 1e-12
    assert image[0, -1] == 0.2


@pytest.mark.parametrize("d", [1, 3, 40, 300])
def test_no_row_is_a_hair_outside(d: int) -> None:
    """Counted without rounding: sensitivities rest on |phi| <= 1 itself."""
    rng = np.random.default_rng(d)
    for _ in range(50):
        map = Map(rng.normal(size=d), 10 ** rng.uniform(-2, 2, size=d), float(rng.uniform(0, 0.9)))
        (image,) = map(rng.uniform(-1, 1, size=(1, d)))
        assert sum(Fraction(entry) ** 2 for entry in image.tolist()) <= 1


def test_a_row_at_the_centre_is_zero_but_for_the_constant() -> None:
    x = np.array([[0.3, 0.1]])
    assert Map(x[0], np.ones(2), 0.5)(x).tolist() == [[0.0, 0.0, 0.5]]


def test_the_map_centres_scales_and_normalises() -> None:
    found = Map(np.array([0.5, 0.0]), np.array([2.0, 1.0]), 0.0)(np.array([[1.0, 1.0]]))
    assert found == pytest.approx(np.array([[1 / math.sqrt(2), 1 / math.sqrt(2), 0.0]]))


@pytest.mark.parametrize(("M", "b"), [(np.array([np.nan]), 0.2), (np.zeros(1), 1.0), (np.zeros(1), -0.1)])
def test_a_map_must_be_finite(M: np.ndarray, b: float) -> None:
    with pytest.raises(DataError):
        Map(M, np.ones(1), b)


@pytest.mark.parametrize("sparse", [False, True])
def test_moments_are_means(sparse: bool) -> None:
    data = shards(sparse=sparse)
    found = moments(data, nonnegative=False)
    for party, A in enumerate(party_rows(data)):
        assert found[party] == pytest.approx(np.concatenate([A.mean(axis=0), (A * A).mean(axis=0)]))


def party_rows(data: Shards) -> list[np.ndarray]:
    rows = [np.empty(0)] * len(data.ids)
    for slot in data.slots:
        for i, A in zip(slot.positions, slot.piece.parties(), strict=True):
            rows[i] = A.toarray() if hasattr(A, "toarray") else A
    return rows


def apart(x: np.ndarray, other: np.ndarray, nonnegative: bool, m: int = 3) -> tuple[float, float]:
    """How far the moments of a party move when x becomes other, and how far they may."""
    rest = np.zeros((m - 1, len(x)))
    found = [
        moments(Shards.from_parties([(np.vstack([row[None], rest]), np.ones(m))], row_bound=1.0), nonnegative)[0]
        for row in (x, other)
    ]
    return float(np.linalg.norm(found[0] - found[1])), float(moments_sensitivity(np.array([m]), nonnegative)[0, 0])


@pytest.mark.parametrize("nonnegative", [False, True])
def test_no_record_moves_the_moments_further(nonnegative: bool) -> None:
    @settings(max_examples=500, deadline=None)
    @given(*[st.lists(st.floats(-1, 1), min_size=3, max_size=3).map(np.array)] * 2)
    def search(x: np.ndarray, other: np.ndarray) -> None:
        moved, allowed = apart(x, other, nonnegative)
        assert moved <= allowed

    search()


def test_both_bounds_are_attained() -> None:
    """a + a(4-a)/2 is largest at a = 3; non-negative rows e1 and e2 differ by 2 in either moment."""
    x = np.array([1.0, 0.0])
    other = np.array([-0.5, 0.0, math.sqrt(3) / 2])
    best = 0.0
    for turn in np.linspace(0, math.pi, 721):
        second = np.array([math.cos(turn), math.sin(turn)])
        best = max(best, apart(x, second, False)[0])
    assert best <= apart(x, x, False)[1]
    assert best > 0.9 * apart(x, x, False)[1]
    moved, allowed = apart(np.array([1.0, 0.0, 0.0]), other * 0 + np.array([0.0, 1.0, 0.0]), True)
    assert moved == pytest.approx(allowed, rel=1e-9)


def test_noise_shrinks_the_centre_and_floors_the_scale() -> None:
    exact = np.concatenate([[0.5, 0.0], [0.25 + 0.01, 0.04]])
    clean, noisy = map_of(exact, 0.0, 0.2), map_of(exact, 0.1, 0.2)
    assert pytest.approx([0.5, 0.0]) == clean.M
    assert pytest.approx(1 / np.sqrt([0.01 + 3e-4, 0.04 + 3e-4])) == clean.A
    assert noisy.M[0] == pytest.approx(0.5 * (1 - 2 * 0.01 / 0.25))
    assert (noisy.A < clean.A).all()
    assert map_of(np.zeros(4), 0.1, 0.2).M.tolist() == [0.0, 0.0]


def test_whoever_sees_the_same_records_through_the_same_map_shares_them() -> None:
    """And nobody keeps them: once the last one lets go, they are gone."""
    data, other = shards(), shards()
    d = data.dim
    map = Map(np.full(d, 0.1), np.full(d, 2.0), 0.5)
    seen = through(data, map)
    assert through(data, Map(map.M.copy(), map.A.copy(), 0.5)) is seen
    for different in (through(data, Map(map.M, map.A, 0.25)), through(data, Map(map.M, 2 * map.A, 0.5))):
        assert different is not seen
    assert through(other, map) is not seen
    for i, (rows, mapped) in enumerate(zip(party_rows(data), party_rows(seen), strict=True)):
        assert np.array_equal(map(rows), mapped), i
    gone = ref(seen)
    del seen
    gc.collect()
    assert gone() is None
