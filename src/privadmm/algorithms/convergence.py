"""When recycled rounds converge, noise aside: the sufficient conditions of Theorem IV.1 (Zhang, Khalili, Liu).

D are the degrees, A the adjacency, W(t) the penalties of pair t, Dt = 2 W D + gamma, s its least entry, and D_M has the
squared Lipschitz constants of the parties' gradients. For some L > 0 and mu > 1, and every t, with W' = W(t+1),

    I + W'(D+A) Dt^-1 > L mu/(2 s) (W'(D-A))^+ D_M                                                          (i)
    W'(D+A) > W'(D+A) Dt^-1 (W(D-A) + 2/L W'(D+A)) + L mu/(2 s (mu-1)) D_M                                  (ii)

where X > Y says that the symmetric part of X - Y is positive definite. Put u = L mu/(2 s) and v = u/(mu-1), so that
2/L = (1/u + 1/v)/s. Then (i) bounds u alone, and (ii) gains from a large u: u is the largest that (i) allows. Of v
there is one best, since the least eigenvalue of (ii) is concave in it.

With penalties eta growing in common, (i) gains from eta, and (ii), divided by eta, is concave in 1/eta: what holds for
the first penalties and for the last holds between. On a bipartite graph (a tree, an even ring, two parties) D+A is
singular and no gamma meets (ii), though the paper says that a large one always does.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.engine.public import Public
from privadmm.optim.graphs import Graph

Pair = tuple[Floats, Floats]  # W(t) and W(t+1), of every party
MOST = 200  # parties for which conditions are checked: larger N x N matrices take too long for a piece of advice


def advice(public: Public, pairs: Sequence[Pair], gamma: float) -> str | None:
    """A sentence with the smallest gamma that suffices; None if the given one does."""
    if public.parties > MOST:
        return f"beyond {MOST} parties it is not checked whether gamma = {gamma:g} meets the paper's conditions"
    if met(public, pairs, gamma):
        return None
    least = smallest_gamma(public, pairs)
    if least is None:
        return (
            "no gamma meets the paper's sufficient conditions for convergence on this graph; if it is bipartite, add "
            "an edge that closes an odd ring"
        )
    return (
        f"gamma = {gamma:g} is below {least:.4g}, the smallest that meets the paper's sufficient conditions for "
        "convergence; less may do"
    )


def met(public: Public, pairs: Sequence[Pair], gamma: float) -> bool:
    """Whether (i) and (ii) hold for all of these pairs of penalties."""
    return all(_met(public.graph, now, then, lipschitz(public), gamma) for now, then in pairs)


def smallest_gamma(public: Public, pairs: Sequence[Pair]) -> float | None:
    """The smallest sufficient gamma, rounded up by a relative 1e-6 at most; None if no gamma suffices."""
    unit = float(lipschitz(public).max())
    if np.linalg.eigvalsh(_signless(public.graph))[0] < 1e-9 * public.parties:
        return None
    low, high = 0.0, 0.0
    while not met(public, pairs, high):
        low, high = high, max(4 * high, 1e-3 * unit)
        if high > 1e12 * unit:
            return None
    while high - low > 1e-6 * high and high > 1e-9 * unit:
        middle = math.sqrt(low * high) if low > 0 else high / 4
        low, high = (low, middle) if met(public, pairs, middle) else (middle, high)
    return high


def lipschitz(public: Public) -> Floats:
    """M_i, the Lipschitz constant of the gradient of O_i, with rows in the unit ball."""
    return public.scale(public.ids)[:, 0] * public.loss.smoothness + public.regularizer.smoothness


def _signless(graph: Graph) -> Floats:
    """D+A"""
    minus = graph.laplacian()
    return np.asarray(2 * np.diag(np.diag(minus)) - minus)


def _met(graph: Graph, now: Floats, then: Floats, M: Floats, gamma: float) -> bool:
    minus, plus = graph.laplacian(), _signless(graph)
    Dt = 2 * now * graph.degrees + gamma
    bent = then[:, None] * plus  # W'(D+A)
    P = bent / Dt  # W'(D+A) Dt^-1
    try:
        root = np.linalg.inv(np.linalg.cholesky(_symmetric(np.eye(graph.n) + P)))
    except np.linalg.LinAlgError:
        return False
    pull = _symmetric(np.linalg.pinv(then[:, None] * minus) * M**2)
    # u is strictly below the largest one of (i).
    u = (1 - 1e-9) / float(np.linalg.eigvalsh(root @ pull @ root.T)[-1])
    base = _symmetric(bent - P @ (now[:, None] * minus))
    tight = _symmetric(P @ bent) / Dt.min()

    def least(log_v: float) -> float:
        v = math.exp(log_v)
        spectrum = np.linalg.eigvalsh(base - (1 / u + 1 / v) * tight - v * np.diag(M**2))  # (ii)
        return float(spectrum[0]) - 1e-12 * float(np.abs(base).max())  # beyond rounding

    return _rises_above_zero(least, centre=math.log(np.abs(tight).max() / M.max() ** 2) / 2)


def _symmetric(X: Floats) -> Floats:
    return (X + X.T) / 2


def _rises_above_zero(f: Callable[[float], float], centre: float) -> bool:
    """Whether f, which rises and then falls, is anywhere positive: golden section around the centre."""
    golden = (math.sqrt(5) - 1) / 2
    a, b = centre - 30, centre + 30
    x, y = b - golden * (b - a), a + golden * (b - a)
    fx, fy = f(x), f(y)
    while b - a > 1e-4:
        if max(fx, fy) > 0:
            return True
        if fx > fy:
            b, y, fy = y, x, fx
            x = b - golden * (b - a)
            fx = f(x)
        else:
            a, x, fx = x, y, fy
            y = a + golden * (b - a)
            fy = f(y)
    return False
