"""Graphs: shapes, connectivity, and sums whose bits do not depend on the block."""

from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privadmm.errors import ConfigError
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph


@st.composite
def random_graphs(draw):
    n = draw(st.integers(1, 12))
    edges = draw(st.integers(n - 1, n * (n - 1) // 2))
    return graphs.random(n, edges, draw(st.integers(0, 2**64)))


@st.composite
def blocks(draw):
    """A graph, released values with a replica axis, and a block of parties in any order."""
    g = draw(random_graphs())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.standard_normal((2, g.n, 3)) * 10.0 ** rng.integers(-8, 9, (2, g.n, 3))
    ids = draw(st.lists(st.integers(0, g.n - 1), max_size=g.n, unique=True))
    return g, values, np.array(ids, dtype=np.int64)


def test_ring_complete_and_star_have_their_edges():
    assert graphs.ring(4).edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]
    assert graphs.ring(4).neighbours == ((1, 3), (0, 2), (1, 3), (0, 2))
    assert graphs.complete(4).edges.tolist() == [list(pair) for pair in combinations(range(4), 2)]
    assert graphs.complete(4).degrees.tolist() == [3, 3, 3, 3]
    assert graphs.star(4).edges.shape == (0, 2)
    assert graphs.star(4).n == 4


def test_one_and_two_parties():
    for make in (graphs.ring, graphs.complete):
        assert make(1).edges.shape == (0, 2)
        assert make(2).edges.tolist() == [[0, 1]]
    assert graphs.random(1, 0, seed=0).edges.shape == (0, 2)
    assert graphs.random(2, 1, seed=0).edges.tolist() == [[0, 1]]
    alone = graphs.complete(1)
    assert alone.neighbourhood([0]).tolist() == []
    assert alone.neighbour_sum(np.empty((0, 3)), [], [0]).tolist() == [[0, 0, 0]]
    assert alone.laplacian().tolist() == [[0]]


@given(random_graphs(), st.data())
def test_a_random_graph_is_connected_and_has_exactly_its_edges(g, data):
    assert nx.is_connected(nx.Graph([*map(tuple, g.edges), *((i, i) for i in range(g.n))]))
    assert sorted(map(tuple, g.edges)) == sorted({tuple(sorted(edge)) for edge in g.edges.tolist()})
    m, seed = len(g.edges), data.draw(st.integers(0, 99))
    assert len(graphs.random(g.n, m, seed).edges) == m
    assert graphs.random(g.n, m, seed) == graphs.random(g.n, m, seed)


def test_the_graph_of_a_seed_does_not_change():
    # Parties may build it each by themselves, so this is a wire format.
    assert graphs.random(6, 8, seed=1).edges.tolist() == [
        [0, 1], [0, 2], [0, 5], [1, 4], [1, 5], [2, 3], [2, 5], [3, 4],
    ]  # fmt: skip
    assert graphs.random(6, 8, seed=2) != graphs.random(6, 8, seed=1)


def test_spanning_trees_are_uniform():
    trees = [graphs.random(4, 3, seed).neighbours for seed in range(3200)]
    counts = np.array([trees.count(tree) for tree in set(trees)])
    assert len(counts) == 16  # Cayley: 4^2 trees on 4 nodes
    assert ((counts - 200) ** 2 / 200).sum() < 37.7  # chi-square, 15 degrees of freedom, 0.1 %


@pytest.mark.parametrize(("n", "edges"), [(5, 3), (5, 11), (1, 1), (2, 0)])
def test_too_few_or_too_many_edges_say_what_is_allowed(n, edges):
    with pytest.raises(ConfigError, match=rf"edges must lie in {n - 1}\.\.{n * (n - 1) // 2} .* not {edges}"):
        graphs.random(n, edges, seed=0)


@pytest.mark.parametrize("make", [graphs.star, graphs.ring, graphs.complete, lambda n: graphs.random(n, 0, 0)])
@pytest.mark.parametrize("n", [0, -1])
def test_no_parties_are_refused(make, n):
    with pytest.raises(ConfigError, match="at least 1 party"):
        make(n)


@given(random_graphs())
def test_networkx_round_trip(g):
    other = nx.Graph()
    other.add_nodes_from(f"party {i:02d}" for i in reversed(range(g.n)))
    other.add_edges_from((f"party {i:02d}", f"party {j:02d}") for i, j in g.edges)
    assert graphs.from_networkx(other).neighbours == g.neighbours
    A = nx.to_numpy_array(other, sorted(other.nodes))
    assert np.array_equal(g.laplacian(), np.diag(A.sum(axis=0)) - A)


def test_networkx_nodes_that_do_not_sort_keep_their_order():
    g = nx.Graph()
    g.add_nodes_from(["b", 1, (2, 3)])
    g.add_edges_from([("b", 1), (1, (2, 3))])
    assert graphs.from_networkx(g).neighbours == ((1,), (0, 2), (1,))


@pytest.mark.parametrize(
    ("g", "reason"),
    [
        (nx.DiGraph([(0, 1)]), "directed"),
        (nx.Graph([(0, 1), (1, 1)]), "node 1 has a self-loop"),
        (nx.MultiGraph([(0, 1), (0, 1)]), "more than one edge"),
        (nx.Graph(), "at least 1 party"),
        ([(0, 1)], "expected a networkx graph, not list"),
    ],
)
def test_networkx_graphs_that_are_refused(g, reason):
    with pytest.raises(ConfigError, match=reason):
        graphs.from_networkx(g)


def test_a_disconnected_graph_is_named_by_its_parts():
    parts = nx.Graph([(0, 1), (1, 4), (2, 3)])
    with pytest.raises(ConfigError, match=r"not connected: \{0, 1, 4\} and \{2, 3\};"):
        graphs.from_networkx(parts)
    parts.add_edge(4, 2)  # the control: one edge mends it
    assert graphs.from_networkx(parts).n == 5


def test_a_disconnected_graph_is_named_by_its_own_labels():
    with pytest.raises(ConfigError, match=r"\{Aarhus, Basel\} and \{Cork, Delft\}"):
        graphs.from_networkx(nx.Graph([("Basel", "Aarhus"), ("Delft", "Cork")]))


def test_long_parts_are_abbreviated():
    many = nx.disjoint_union_all([nx.path_graph(100)] * 7)
    with pytest.raises(ConfigError) as caught:
        graphs.from_networkx(many)
    assert "{0, 1, 2, 3, 4, 5, ... 100 in all}, " in str(caught.value)
    assert "and 3 more" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("kind", "neighbours", "reason"),
    [
        ("custom", ((1,), (0,), (3,), (2,)), r"\{0, 1\} and \{2, 3\}"),
        ("custom", ((1,), ()), "neighbour of each of its own"),
        ("custom", ((1, 0), (0,)), "its own neighbour"),
        ("custom", ((2, 1), (0,), (0,)), "ascending"),
        ("custom", ((1, 1), (0, 0)), "ascending"),
        ("custom", ((1,), (0, 2)), r"0\.\.1"),
        ("star", ((1,), (0,)), "coordinator only"),
        ("tree", ((),), "kind must be one of"),
        ("custom", (), "at least 1 party"),
    ],
)
def test_a_graph_checks_itself(kind, neighbours, reason):
    with pytest.raises(ConfigError, match=reason):
        Graph(kind, neighbours)


@given(blocks())
def test_a_neighbour_sum_has_the_same_bits_in_every_block(case):
    g, values, ids = case
    senders = np.arange(g.n)
    everyone = g.neighbour_sum(values, senders, senders)
    for i in range(g.n):  # one by one, in plain Python, in ascending order
        expected = np.zeros((2, 3))
        for j in g.neighbours[i]:
            expected = expected + values[:, j]
        assert np.array_equal(everyone[:, i], expected)
    needed = g.neighbourhood(ids)
    shuffled = np.random.default_rng(0).permutation(needed)
    part = g.neighbour_sum(values[:, shuffled], shuffled, ids)
    assert part.shape == (2, len(ids), 3)
    assert np.array_equal(part, everyone[:, ids])
    alone = [g.neighbour_sum(values[r, needed], needed, ids) for r in range(2)]
    assert np.array_equal(np.stack(alone), part)


def test_the_order_of_addition_shows_in_the_bits():
    # The control of the law above: on these values another order is told apart.
    g = graphs.complete(40)
    values = np.random.default_rng(0).standard_normal((40, 5)) * 1e8 ** np.linspace(-1, 1, 40)[:, None]
    ascending = g.neighbour_sum(values, range(40), [0])[0]
    descending = np.zeros(5)
    for j in reversed(g.neighbours[0]):
        descending = descending + values[j]
    assert np.allclose(ascending, descending)
    assert not np.array_equal(ascending, descending)


@given(blocks())
def test_the_neighbourhood_is_what_the_sum_needs(case):
    g, values, ids = case
    needed = g.neighbourhood(ids)
    assert needed.tolist() == sorted({j for i in ids for j in g.neighbours[i]})
    for missing in needed:
        rest = needed[needed != missing]
        with pytest.raises(ValueError, match=f"hears party {missing}, which is not among the senders"):
            g.neighbour_sum(values[:, rest], rest, ids)


@given(blocks())
def test_the_laplacian_is_the_sum_of_differences(case):
    g, values, _ = case
    L = g.laplacian()
    assert np.array_equal(L, L.T)
    assert not L.sum(axis=1).any()
    i, j = g.edges.T
    energy = ((values[0, i] - values[0, j]) ** 2).sum()
    assert np.isclose(np.trace(values[0].T @ L @ values[0]), energy, rtol=1e-6, atol=1e-6 * (values**2).sum())


@pytest.mark.parametrize(
    ("values", "senders", "ids", "reason"),
    [
        (np.ones((2, 3)), [0, 1, 2], [0], r"\(\.\.\., 3, d\) for 3 senders"),
        (np.ones(3), [0, 1, 2], [0], "3 senders"),
        (np.ones((3, 1)), [0, 1, 1], [0], "appears twice"),
        (np.ones((3, 1)), [0, 1, 2], [3], r"0\.\.2; got 3\.\.3"),
        (np.ones((3, 1)), [0, 1, 2], [-1], r"0\.\.2; got -1"),
        (np.ones((3, 1)), [0, 1, 2], [0.0], "integers"),
        (np.ones((3, 1)), [0, 1, 2], 0, "integers"),
    ],
)
def test_a_neighbour_sum_refuses_what_does_not_fit(values, senders, ids, reason):
    with pytest.raises(ValueError, match=reason):
        graphs.ring(3).neighbour_sum(values, senders, ids)


def test_a_star_has_no_neighbours_to_ask():
    g = graphs.star(3)
    for ask in (
        lambda: g.neighbour_sum(np.ones((3, 1)), [0, 1, 2], [0]),
        lambda: g.neighbourhood([0]),
        g.laplacian,
    ):
        with pytest.raises(ConfigError, match="needs edges between parties"):
            ask()
    g.need_star("dp_admm")
    graphs.ring(3).need_edges("admm_graph")
    with pytest.raises(ConfigError, match=r'^dp_admm .*coordinator.* "star", not "ring"'):
        graphs.ring(3).need_star("dp_admm")


def test_a_graph_is_a_value():
    assert hash(graphs.ring(5)) == hash(graphs.ring(5))
    with pytest.raises(ValueError, match="read-only"):
        graphs.ring(5).degrees[0] = 7
