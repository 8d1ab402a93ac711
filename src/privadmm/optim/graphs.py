"""Who hears whom: the coordinator's star, or a connected undirected graph between parties; and consensus on it.

A `Graph` is public knowledge. Its neighbour lists are sorted, and every sum over neighbours runs in that order, so that
a party's sum has the same bits whichever other parties share its block.

Consensus on released values is post-processing and costs no privacy, however long it takes (docs/privacy.md#consensus).
Whoever holds all released messages of a round runs it. `flood` gives everybody the exact mean. `chebyshev` averages
with the neighbours only, k times; Chebyshev's polynomials make its error about 2 rho^k, rho = (1 - sqrt(1 - s^2))/s, s
the second largest absolute eigenvalue of one step.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import heapify, heappop, heappush
from math import isqrt
from random import Random
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from privadmm.data.arrays import Floats, Ints
from privadmm.errors import AbsentError, ConfigError

Kind = Literal["star", "ring", "complete", "random", "custom"]
Edge = tuple[int, int]


@dataclass(frozen=True)
class Graph:
    """`n` parties and, for each, the sorted ids of its neighbours.

    In a star no party hears another: every message goes through the coordinator. Any other kind is connected.
    """

    kind: Kind
    neighbours: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(f"kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        _check_count(self.n)
        owner, heard = np.repeat(np.arange(self.n), self.degrees), self._flat
        if ((heard < 0) | (heard >= self.n)).any():
            raise ConfigError(f"a neighbour must be one of the parties 0..{self.n - 1}")
        if (owner == heard).any():
            raise ConfigError(f"party {owner[owner == heard][0]} is its own neighbour; remove the self-loop")
        arcs = owner * self.n + heard
        if (np.diff(arcs) <= 0).any():
            raise ConfigError("the neighbours of a party must be in ascending order, each once")
        if not np.array_equal(arcs, np.sort(heard * self.n + owner)):
            raise ConfigError("a party must be a neighbour of each of its own neighbours")
        if self.kind == "star" and heard.size:
            raise ConfigError("in a star parties talk to the coordinator only; edges need another kind")
        if self.kind != "star":
            _check_connected(self.neighbours, range(self.n))

    @property
    def n(self) -> int:
        return len(self.neighbours)

    @cached_property
    def degrees(self) -> Ints:
        return _frozen(np.array([len(row) for row in self.neighbours], dtype=np.int64))

    @cached_property
    def edges(self) -> Ints:
        """(m, 2): each edge once, smaller id first, in ascending order."""
        pairs = [(i, j) for i, row in enumerate(self.neighbours) for j in row if i < j]
        return _frozen(np.array(pairs, dtype=np.int64).reshape(-1, 2))

    @cached_property
    def _flat(self) -> Ints:
        return np.array([j for row in self.neighbours for j in row], dtype=np.int64)

    def need_star(self, who: str) -> None:
        """Refuse anything but the coordinator's star; the message begins with `who`."""
        if self.kind != "star":
            raise ConfigError(f'{who} needs a coordinator: the graph must be "star", not "{self.kind}"')

    def need_edges(self, who: str) -> None:
        """Refuse the star, in which no party hears another."""
        if self.kind == "star":
            raise ConfigError(f'{who} needs edges between parties: "ring", "complete" or "random", not "star"')

    def neighbourhood(self, ids: ArrayLike) -> Ints:
        """The sorted ids of all senders that the parties `ids` hear."""
        self.need_edges("a neighbourhood")
        return np.array(sorted({j for i in self._ids(ids) for j in self.neighbours[i]}), dtype=np.int64)

    def neighbour_sum(self, values: Floats, senders: ArrayLike, ids: ArrayLike, echo: Floats | None = None) -> Floats:
        """Row p is the sum over neighbours j of ids[p], in ascending j, of the row of `values` that j sent.

        values (..., k, d), senders (k,), ids (P,) -> (..., P, d). Step r of the loop adds the r-th neighbour of all
        parties that have one: a matrix product would round differently for different blocks. Where a neighbour sent
        nothing, row p of `echo` (..., P, d) takes its place; without an echo that is an error.
        """
        self.need_edges("a sum over neighbours")
        ids, senders = self._ids(ids), self._ids(senders)
        if values.ndim < 2 or values.shape[-2] != len(senders):
            raise ValueError(f"values must be (..., {len(senders)}, d) for {len(senders)} senders, not {values.shape}")
        if len(set(senders.tolist())) != len(senders):
            raise ValueError("a sender appears twice; each must have one row")
        row = np.full(self.n, -1, dtype=np.int64)
        row[senders] = np.arange(len(senders))
        degrees, starts = self.degrees[ids], (np.cumsum(self.degrees) - self.degrees)[ids]
        total = np.zeros((*values.shape[:-2], len(ids), values.shape[-1]), dtype=values.dtype)
        for rank in range(int(degrees.max(initial=0))):
            has = np.flatnonzero(degrees > rank)
            heard = self._flat[starts[has] + rank]
            lost = row[heard] < 0
            if lost.any():
                if echo is None:
                    missing = int(np.argmax(lost))
                    raise ValueError(
                        f"party {ids[has[missing]]} hears party {heard[missing]}, which is not among the senders"
                    )
                total[..., has[lost], :] += echo[..., has[lost], :]
                has, heard = has[~lost], heard[~lost]
            total[..., has, :] += values[..., row[heard], :]
        return total

    def among(self, ids: ArrayLike) -> "Graph":
        """The part of the graph between these parties (ascending), renumbered 0, 1, ..."""
        return Graph("star" if self.kind == "star" else "custom", self._between(ids))

    def need_reach(self, here: ArrayLike) -> None:
        """Refuse to go on with these parties (ascending) alone if some cannot reach the others."""
        parts = _components(self._between(here))
        if self.kind != "star" and len(parts) > 1:
            raise AbsentError(
                f"those who are left do not reach one another: {_named(parts, self._ids(here).tolist())}. "
                "Nothing more was released; start a new job without those who left, on a graph that joins the others"
            )

    def _between(self, ids: ArrayLike) -> tuple[tuple[int, ...], ...]:
        kept = self._ids(ids).tolist()
        index = {party: position for position, party in enumerate(kept)}
        return tuple(tuple(index[j] for j in self.neighbours[i] if j in index) for i in kept)

    def laplacian(self) -> Floats:
        """The Laplacian matrix: degrees on the diagonal, -1 for every edge."""
        self.need_edges("a Laplacian")
        L = np.diag(self.degrees.astype(np.float64))
        i, j = self.edges.T
        L[i, j] = L[j, i] = -1.0
        return L

    def _ids(self, ids: ArrayLike) -> Ints:
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(f"party ids must be a list of integers, not {array.dtype} of shape {array.shape}")
        if array.size and (array.min() < 0 or array.max() >= self.n):
            raise ValueError(f"party ids must lie in 0..{self.n - 1}; got {array.min()}..{array.max()}")
        return array.astype(np.int64)


def star(n: int) -> Graph:
    """Parties that talk to the coordinator only."""
    return Graph("star", ((),) * n)


def ring(n: int) -> Graph:
    """An edge between party i and party i + 1 mod n, for every i; two parties share one edge, a single one has none."""
    return Graph("ring", _neighbours(n, {_edge(i, (i + 1) % n) for i in range(n) if n > 1}))


def complete(n: int) -> Graph:
    """An edge between any two parties."""
    return Graph("complete", tuple(tuple(j for j in range(n) if j != i) for i in range(n)))


def random(n: int, edges: int, seed: int = 0) -> Graph:
    """A uniform random spanning tree, and further edges drawn without replacement, `edges` in all.

    Every party can build the graph from the seed by itself. So only `Random.random` is used: its stream is the one that
    Python promises to keep across versions.
    """
    _check_count(n)
    most = n * (n - 1) // 2
    if not n - 1 <= edges <= most:
        raise ConfigError(f"edges must lie in {n - 1}..{most} for a connected graph of {n} parties, not {edges}")
    if seed < 0:
        raise ConfigError(f"seed must be 0 or above, not {seed}")
    uniform = Random(seed).random

    def below(bound: int) -> int:
        return int(uniform() * bound)

    chosen = _tree(n, [below(n) for _ in range(n - 2)])
    # Fisher-Yates over the pairs, storing only what was swapped: memory grows with the edges, not with n^2.
    moved, drawn = dict[int, int](), 0
    while len(chosen) < edges:
        pick = drawn + below(most - drawn)
        chosen.add(_pair(moved.get(pick, pick)))
        moved[pick] = moved.get(drawn, drawn)
        drawn += 1
    return Graph("random", _neighbours(n, chosen))


def from_networkx(g: Any) -> Graph:
    """Take over a connected, undirected, simple networkx graph; weights and other attributes are ignored.

    Nodes become 0, 1, ... in sorted order, or in the order of insertion if they do not sort. networkx itself is not
    imported: whoever has such a graph has it installed.
    """
    if not all(hasattr(g, name) for name in ("nodes", "edges", "is_directed")):
        raise ConfigError(f"expected a networkx graph, not {type(g).__name__}")
    if g.is_directed():
        raise ConfigError("the graph is directed; parties hear one another, so use an undirected one")
    labels: list[Any] = list(g.nodes)
    with suppress(TypeError):
        labels = sorted(labels)
    index = {label: i for i, label in enumerate(labels)}
    edges: set[Edge] = set()
    for a, b in g.edges():
        if a == b:
            raise ConfigError(f"node {a!r} has a self-loop; remove it")
        edge = _edge(index[a], index[b])
        if edge in edges:
            raise ConfigError(f"nodes {a!r} and {b!r} are joined by more than one edge; keep one")
        edges.add(edge)
    neighbours = _neighbours(len(labels), edges)
    _check_connected(neighbours, labels)  # names the caller's nodes, as Graph could not
    return Graph("custom", neighbours)


def flood(values: Floats) -> Floats:
    """Everybody's view (..., N, d) of the mean over parties, summed in party order: the same for all."""
    mean = values.sum(axis=-2, keepdims=True) / values.shape[-2]
    return np.broadcast_to(mean, values.shape)


@lru_cache(maxsize=64)
def gossip_matrix(graph: Graph) -> tuple[Floats, float]:
    """The matrix of one step of gossip, I - L/c with c half the sum of the Laplacian's extreme eigenvalues; and its s.

    In a star the coordinator is everybody's neighbour: one step is the exact mean.
    """
    n = graph.n
    if not len(graph.edges):
        return np.full((n, n), 1 / n), 0.0
    L = graph.laplacian()
    eigenvalues = np.linalg.eigvalsh(L)
    low, high = float(eigenvalues[1]), float(eigenvalues[-1])
    return np.eye(n) - 2 / (low + high) * L, (high - low) / (high + low)


def chebyshev(graph: Graph, values: Floats, k: int) -> Floats:
    """Everybody's view (..., N, d) of the mean after k accelerated steps; its error is at most `gossip_residual`."""
    P, s = gossip_matrix(graph)
    if s == 0:
        return np.asarray(P @ values)
    # T_j(P/s)/T_j(1/s). Both recurrences of T are divided by T_j(1/s), so that nothing overflows.
    before, now, ratio = values, np.asarray(P @ values), 1 / s
    for _ in range(k - 1):
        following = 2 / s - 1 / ratio  # T_{j+1}(1/s) / T_j(1/s)
        before, now = now, (2 / s * (P @ now) - before / ratio) / following
        ratio = following
    return now


def gossip_residual(graph: Graph, k: int) -> float:
    """The share of the parties' disagreement that is left after k steps, 1/T_k(1/s)."""
    s = gossip_matrix(graph)[1]
    if s == 0 or k == 0:
        return 0.0 if k else 1.0
    return float(1 / np.cosh(min(700.0, k * np.arccosh(1 / s))))


def _check_count(n: int) -> None:
    if n < 1:
        raise ConfigError(f"a graph needs at least 1 party, not {n}")


def _edge(i: int, j: int) -> Edge:
    return (i, j) if i < j else (j, i)


def _pair(index: int) -> Edge:
    """The index-th of (0,1), (0,2), (1,2), (0,3), ...: all pairs with a smaller maximum come first."""
    # isqrt, not sqrt: exact for any number of parties.
    j = (1 + isqrt(8 * index + 1)) // 2
    return index - j * (j - 1) // 2, j


def _tree(n: int, sequence: Sequence[int]) -> set[Edge]:
    """The tree with this Pruefer sequence. Trees and sequences are in bijection: a uniform sequence, a uniform tree."""
    if n == 1:
        return set()
    left = [1] * n
    for node in sequence:
        left[node] += 1
    leaves = [node for node in range(n) if left[node] == 1]
    heapify(leaves)
    edges = set()
    for node in sequence:
        edges.add(_edge(heappop(leaves), node))
        left[node] -= 1
        if left[node] == 1:
            heappush(leaves, node)
    edges.add(_edge(heappop(leaves), heappop(leaves)))
    return edges


def _neighbours(n: int, edges: Iterable[Edge]) -> tuple[tuple[int, ...], ...]:
    rows: list[list[int]] = [[] for _ in range(n)]
    for i, j in edges:
        rows[i].append(j)
        rows[j].append(i)
    return tuple(tuple(sorted(row)) for row in rows)


def _components(neighbours: Sequence[Sequence[int]]) -> list[list[int]]:
    """The connected components, each sorted, ordered by their smallest node."""
    parts, seen = list[list[int]](), set[int]()
    for root in range(len(neighbours)):
        if root not in seen:
            seen.add(root)
            part = [root]
            for node in part:  # the list grows while it is read
                new = [j for j in neighbours[node] if j not in seen]
                seen.update(new)
                part.extend(new)
            parts.append(sorted(part))
    return parts


def _check_connected(neighbours: Sequence[Sequence[int]], labels: Sequence[object]) -> None:
    parts = _components(neighbours)
    if len(parts) > 1:
        raise ConfigError(
            f"the graph is not connected: {_named(parts, labels)}; add edges until every party reaches every other"
        )


def _named(parts: Sequence[Sequence[int]], labels: Sequence[object]) -> str:
    """Describe components: long enough to recognise each, short enough to read."""
    names = [
        "{" + ", ".join(str(labels[i]) for i in part[:6]) + (f", ... {len(part)} in all" if part[6:] else "") + "}"
        for part in parts[:4]
    ]
    if parts[4:]:
        names.append(f"{len(parts) - 4} more")
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _frozen(array: Ints) -> Ints:
    array.flags.writeable = False
    return array
