"""Consensus on released values: post-processing, which costs no event however long it takes: docs/privacy.md#consensus.

Whoever holds all released messages of a round runs it. Flooding gives everybody the exact mean. Between neighbours that
only talk to one another, each step of gossip averages with the neighbours; Chebyshev's polynomials make the error of
k steps about 2 rho^k with rho = (1 - sqrt(1 - s))/sqrt(s), s the second largest eigenvalue of the step, squared.
"""

from functools import lru_cache

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.optim.graphs import Graph


def flood(values: Floats) -> Floats:
    """Everybody's view (..., N, d) of the mean over parties, summed in party order: the same for all."""
    mean = values.sum(axis=-2, keepdims=True) / values.shape[-2]
    return np.broadcast_to(mean, values.shape)


@lru_cache(maxsize=64)
def steps(graph: Graph) -> tuple[Floats, float]:
    """The gossip matrix I - L/c, c half of the sum of the Laplacian's extreme eigenvalues, and its |second eigenvalue|.

    On a star without edges between parties the coordinator is everybody's neighbour: one step is the exact mean.
    """
    n = graph.n
    if not len(graph.edges):
        return np.full((n, n), 1 / n), 0.0
    L = graph.laplacian()
    eigenvalues = np.linalg.eigvalsh(L)
    low, high = float(eigenvalues[1]), float(eigenvalues[-1])
    return np.eye(n) - 2 / (low + high) * L, (high - low) / (high + low)


def chebyshev(graph: Graph, values: Floats, k: int) -> Floats:
    """Everybody's view (..., N, d) of the mean after k accelerated gossip steps; its error is at most `residual`."""
    P, s = steps(graph)
    if s == 0:
        return np.asarray(P @ values)
    # T_j(P/s)/T_j(1/s), with both recurrences of T divided through so that nothing overflows.
    before, now, ratio = values, np.asarray(P @ values), 1 / s
    for _ in range(k - 1):
        following = 2 / s - 1 / ratio  # T_{j+1}(1/s) / T_j(1/s)
        before, now = now, (2 / s * (P @ now) - before / ratio) / following
        ratio = following
    return now


def residual(graph: Graph, k: int) -> float:
    """What is left of the parties' disagreement after k steps, as a share: 1/T_k(1/s)."""
    s = steps(graph)[1]
    if s == 0 or k == 0:
        return 0.0 if k else 1.0
    return float(1 / np.cosh(min(700.0, k * np.arccosh(1 / s))))
