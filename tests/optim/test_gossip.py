"""Consensus on released values: flooding is exact, gossip is as close as it says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.optim import graphs
from privadmm.optim.graphs import Graph

GRAPHS = {
    "ring": graphs.ring(12),
    "path": graphs.random(9, 8, seed=1),
    "sparse": graphs.random(10, 13, seed=0),
    "complete": graphs.complete(7),
    "two": graphs.complete(2),
    "star": graphs.star(6),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_gossip_is_as_close_as_it_says(graph: Graph) -> None:
    values = np.random.default_rng(0).normal(size=(2, graph.n, 3))
    mean = graphs.flood(values)
    apart = np.linalg.norm(values - mean, axis=(-1, -2)).max()
    for k in (1, 2, 5, 20, 60):
        left = np.linalg.norm(graphs.chebyshev(graph, values, k) - mean, axis=(-1, -2)).max()
        assert left <= graphs.gossip_residual(graph, k) * apart * (1 + 1e-9) + 1e-13


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
def test_gossip_keeps_the_mean(graph: Graph) -> None:
    values = np.random.default_rng(0).normal(size=(graph.n, 3))
    found = graphs.chebyshev(graph, values, 7)
    assert found.mean(axis=0) == pytest.approx(values.mean(axis=0), abs=1e-13)


def test_the_residual_is_attained() -> None:
    """Disagreement along the slowest eigenvector decays as the bound says, up to the sign of the polynomial."""
    graph = graphs.ring(12)
    vector = np.linalg.eigh(graph.laplacian())[1][:, 1:2]
    for k in (3, 10):
        left = np.linalg.norm(graphs.chebyshev(graph, vector, k))
        assert left == pytest.approx(graphs.gossip_residual(graph, k), rel=1e-6)


def test_acceleration_is_what_it_is_for() -> None:
    graph = graphs.ring(40)
    P, s = graphs.gossip_matrix(graph)
    values = np.random.default_rng(0).normal(size=(40, 1))
    plain = np.linalg.matrix_power(P, 40) @ values
    mean = values.mean()
    assert np.abs(graphs.chebyshev(graph, values, 40) - mean).max() < np.abs(plain - mean).max() / 4
    assert 0.9 < s < 1


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10), st.integers(1, 500))
def test_nothing_overflows_however_long_it_goes_on(n: int, more: int, k: int) -> None:
    graph = graphs.random(n, min(n - 1 + more, n * (n - 1) // 2), seed=0)
    values = np.arange(n, dtype=float)[:, None]
    found = graphs.chebyshev(graph, values, k)
    assert np.isfinite(found).all()
    assert np.abs(found - values.mean()).max() <= graphs.gossip_residual(graph, k) * n * np.sqrt(n) + 1e-9


def test_views_of_a_flood_are_one() -> None:
    values = np.random.default_rng(0).normal(size=(5, 4))
    views = graphs.flood(values)
    assert (views == views[0]).all()
    assert views[0] == pytest.approx(values.mean(axis=0))
