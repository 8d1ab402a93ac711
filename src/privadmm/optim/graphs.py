"""Who hears whom: the coordinator's star, or a connected undirected graph between parties.

A `Graph` is public knowledge. Its neighbour lists are sorted, and every sum over neighbours runs in that
order, so that a party's sum has the same bits whichever other parties share its block.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import isqrt
from random import Random
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.errors import AbsentError, ConfigError

if TYPE_CHECKING:
    import networkx as nx

Kind = Literal["star", "ring", "complete", "random", "custom"]
Edge = tuple[int, int]


@dataclass(frozen=True)
class Graph:
    """`n` parties and, for each, the sorted ids of its neighbours.

    A star has no edge between parties: every message goes through the coordinator.
    Any other kind is connected.
    """

    kind: Kind
    neighbours: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(f"kind must be one of {', '.join(get_args(Kind))}, not {self.kind!r}")
        if self.n < 1:
            raise ConfigError("a graph needs at least 1 party, not 0")
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
    def degrees(self) -> NDArray[np.int64]:
        return _frozen(np.array([len(row) for row in self.neighbours], dtype=np.int64))

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """(m, 2): each edge once, smaller id first, in ascending order."""
        below = [(i, j) for i, row in enumerate(self.neighbours) for j in row if i < j]
        return _frozen(np.array(below, dtype=np.int64).reshape(-1, 2))

    @cached_property
    def _flat(self) -> NDArray[np.int64]:
        return np.array([j for row in self.neighbours for j in row], dtype=np.int64)

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        return np.concatenate([[0], np.cumsum(self.degrees)[:-1]]).astype(np.int64)

    def need_star(self, who: str) -> None:
        """Refuse anything but the coordinator's star; `who` opens the message."""
        if self.kind != "star":
            raise ConfigError(f'{who} needs a coordinator: the graph must be "star", not "{self.kind}"')

    def need_edges(self, who: str) -> None:
        """Refuse the star, in which no party hears another."""
        if self.kind == "star":
            raise ConfigError(f'{who} needs edges between parties: "ring", "complete" or "random", not "star"')

    def neighbourhood(self, ids: ArrayLike) -> NDArray[np.int64]:
        """The sorted ids of every sender that a block of parties `ids` must hear."""
        self.need_edges("a neighbourhood")
        heard = [self._flat[self._starts[i] : self._starts[i] + self.degrees[i]] for i in self._ids(ids)]
        return np.unique(np.concatenate([*heard, np.empty(0, dtype=np.int64)]))

    def neighbour_sum(
        self,
        values: NDArray[np.float64],
        senders: ArrayLike,
        ids: ArrayLike,
        echo: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Row p is the sum over neighbours j of ids[p], in ascending j, of the row of `values` that j sent.

        values (..., k, d), senders (k,), ids (P,) -> (..., P, d). The loop runs over the rank of the
        neighbour, the addition over all parties that have one: a matrix product would round differently for
        different blocks. In place of a neighbour that sent nothing, p hears row p of `echo`, (..., P, d), if given.
        """
        self.need_edges("a sum over neighbours")
        ids, senders = self._ids(ids), self._ids(senders)
        if values.ndim < 2 or values.shape[-2] != len(senders):
            raise ValueError(f"values must be (..., {len(senders)}, d) for {len(senders)} senders, not {values.shape}")
        if len(np.unique(senders)) != len(senders):
            raise ValueError("a sender appears twice; each must have one row")
        row = np.full(self.n, -1, dtype=np.int64)
        row[senders] = np.arange(len(senders))
        degrees, starts = self.degrees[ids], self._starts[ids]
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
        """Between these parties (ascending) alone, who become 0, 1, ..."""
        return Graph("star" if self.kind == "star" else "custom", self._between(ids))

    def need_reach(self, here: ArrayLike) -> None:
        """Refuse to go on with these parties (ascending) alone where some do not reach the others."""
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

    def laplacian(self) -> NDArray[np.float64]:
        """Degrees on the diagonal, -1 for every edge."""
        self.need_edges("a Laplacian")
        L = np.diag(self.degrees.astype(np.float64))
        i, j = self.edges.T
        L[i, j] = L[j, i] = -1.0
        return L

    def _ids(self, ids: ArrayLike) -> NDArray[np.int64]:
        array = np.asarray(ids)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise ValueError(f"party ids must be a list of integers, not {array.dtype} of shape {array.shape}")
        if array.size and (array.min() < 0 or array.max() >= self.n):
            raise ValueError(f"party ids must lie in 0..{self.n - 1}; got {array.min()}..{array.max()}")
        return array.astype(np.int64)


def star(n: int) -> Graph:
    """Parties talk to the coordinator only."""
    _check_count(n)
    return Graph("star", ((),) * n)


def ring(n: int) -> Graph:
    """Party i and party i + 1 mod n; two parties share one edge, a single one has none."""
    _check_count(n)
    return _from_edges("ring", n, {_edge(i, (i + 1) % n) for i in range(n) if n > 1})


def complete(n: int) -> Graph:
    _check_count(n)
    return Graph("complete", tuple(tuple(j for j in range(n) if j != i) for i in range(n)))


def random(n: int, edges: int, seed: int = 0) -> Graph:
    """A uniform random spanning tree, and further edges drawn without replacement up to `edges` in all.

    Every party may build the graph from the seed by itself, so only `Random.random` is used: its stream is
    the one that Python promises to keep across versions.
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
    moved: dict[int, int] = {}
    drawn = 0
    while len(chosen) < edges:
        pick = drawn + below(most - drawn)
        chosen.add(_pair(moved.get(pick, pick)))
        moved[pick] = moved.get(drawn, drawn)
        drawn += 1
    return _from_edges("random", n, chosen)


def from_networkx(g: "nx.Graph") -> Graph:
    """Any connected, undirected, simple networkx graph; weights and other attributes are ignored.

    Nodes become 0, 1, ... in sorted order, or in the order of insertion if they do not sort.
    """
    import networkx as nx

    if not isinstance(g, nx.Graph):
        raise ConfigError(f"expected a networkx graph, not {type(g).__name__}")
    if g.is_directed():
        raise ConfigError("the graph is directed; parties hear one another, so use an undirected one")
    labels: list[Any] = list(g.nodes)
    _check_count(len(labels))
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
    _check_connected(_neighbours(len(labels), edges), labels)
    return _from_edges("custom", len(labels), edges)


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
    """The tree with this Pruefer sequence: a bijection, so a uniform sequence gives a uniform tree."""
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


def _from_edges(kind: Kind, n: int, edges: Iterable[Edge]) -> Graph:
    return Graph(kind, _neighbours(n, edges))


def _components(neighbours: Sequence[Sequence[int]]) -> list[list[int]]:
    parts: list[list[int]] = []
    seen: set[int] = set()
    for root in range(len(neighbours)):
        if root in seen:
            continue
        part, frontier = [], [root]
        seen.add(root)
        while frontier:
            node = frontier.pop()
            part.append(node)
            new = [j for j in neighbours[node] if j not in seen]
            seen.update(new)
            frontier.extend(new)
        parts.append(sorted(part))
    return parts


def _check_connected(neighbours: Sequence[Sequence[int]], labels: Sequence[object]) -> None:
    parts = _components(neighbours)
    if len(parts) > 1:
        raise ConfigError(
            f"the graph is not connected: {_named(parts, labels)}; add edges until every party reaches every other"
        )


def _named(parts: Sequence[Sequence[int]], labels: Sequence[object]) -> str:
    """Long enough to recognise a part, short enough to read."""
    names = [
        "{" + ", ".join(str(labels[i]) for i in part[:6]) + (f", ... {len(part)} in all" if part[6:] else "") + "}"
        for part in parts[:4]
    ]
    if parts[4:]:
        names.append(f"{len(parts) - 4} more")
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _frozen(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array.flags.writeable = False
    return array
