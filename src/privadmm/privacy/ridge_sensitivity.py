"""How far one person or one feature moves a party's ridge fit: the sensitivities of methods over split features.

The proofs, step by step: docs/privacy.md#sharing-person and docs/privacy.md#sharing-column.

A party with columns D (N, d) fits a public target t, free or within a ball, and releases u = D x or x:

    x = argmin over |x| <= b of (mu/2) |x|^2 + (1/2) |D x - t|^2                                          (1)

One **person**: row a of D, |a| <= 1, is replaced by a'. No row pulls harder than h = b + max|t|, as |a (a.x - t)| <= h.
Adding the variational inequalities of x and x', the rows in common being B,

    mu |x - x'|^2 + |B (x - x')|^2 <= 2 h |x - x'|
    |x - x'| <= min(2b, 2h/mu)                                                                            (2)
    |u - u'|^2 <= (2b)^2 + 2 h r - mu r^2,    r = min(2b, h/mu)                                           (3)

(2b)^2 being the person's own score. Both need the ball: without one, nothing bounds h.

One **column**, of norm at most q, is replaced; s = q^2/mu. Along a singular value c of D, u is c^2/(c^2 + mu) of t and
x is c/(c^2 + mu) of it (with a larger mu where the ball binds). Hence u lies in the ball around t/2 of radius |t|/2,
and |x| <= |t|/(2 sqrt(mu)), so that in any case

    |u - u'| <= |t|,    |x - x'| <= min(2b, |t|/sqrt(mu))                                                 (4)

Without a ball more is true. Let B be the columns in common and K = B B^T + mu I, and write ~ for a product with K^-1/2.
The column's own weight is x_a = ~a.~t/(1 + |~a|^2), the others' are B^T K^-1 (t - x_a a), and the scores
t - mu K^-1 (t - x_a a). So x_a ~a is the share |~a|^2/(1 + |~a|^2) <= s/(1 + s) of the projection of ~t on ~a; all such
vectors lie in one ball of diameter |~t| s/(1 + s), and |~t| <= |t|/sqrt(mu). |x_a ~a - x_a' ~a'| is at most that, and
|B^T K^-1/2| <= 1 and |K^-1/2| <= 1/sqrt(mu) carry it to the others' weights and to the scores. As
|x_a| <= |~t| sqrt(s)/(1 + s) for s <= 1 (for larger s the minimum below is 1 in any case),

    |u - u'| <= |t| s/(1 + s),    |x - x'| <= |t|/sqrt(mu) min(1, sqrt(s^2 + 4 s)/(1 + s))                (5)
"""

import math

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.errors import RefusedError
from privadmm.optim.ridge import Leeway

Number = Floats | float


def person_scores(mu: Number, b: Number, largest: Number) -> Floats:
    """(3), `largest` being max|t|."""
    mu, b = np.asarray(mu, dtype=np.float64), np.asarray(b, dtype=np.float64)
    h = b + largest
    r = np.minimum(2 * b, h / mu)
    return np.asarray(np.sqrt((2 * b) ** 2 + 2 * h * r - mu * r**2))


def person_weights(mu: Number, b: Number, largest: Number) -> Floats:
    """(2)"""
    mu, b = np.asarray(mu, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return np.minimum(2 * b, 2 * (b + largest) / mu)


def column_scores(mu: Number, q: Number, size: Number, b: Number = math.inf) -> Floats:
    """(5), or (4) where b is finite; `size` is |t|."""
    s = np.asarray(q, dtype=np.float64) ** 2 / mu
    return np.asarray(size * np.where(np.isinf(b), s / (1 + s), 1.0))


def column_weights(mu: Number, q: Number, size: Number, b: Number = math.inf) -> Floats:
    """(5), or (4) where b is finite."""
    s = np.asarray(q, dtype=np.float64) ** 2 / mu
    share = np.where(np.isinf(b), np.minimum(1.0, np.sqrt(s**2 + 4 * s) / (1 + s)), 1.0)
    return np.minimum(2 * np.asarray(b, dtype=np.float64), size / np.sqrt(mu) * share)


def lemma_1(columns: int | tuple[int, ...], rho: float, lam: float, parties: int, b1: float, c1: float = 1.0) -> Floats:
    """What the ADMM sharing paper takes for |u - u'|, with R'' <= c1 and norms up to b1. It is no bound."""
    return np.asarray(3 / (np.asarray(columns) * rho) * (lam * c1 + (1 + parties * rho) * b1))


def moves(
    adjacency: str, t: Floats, d: int, mu: float, b: float | None, q: float | None, F: float
) -> tuple[float, float]:
    """How far neighbours move computed scores and weights, for the worst of the targets t (R, N); F as in ridge.py.

    A row that was clipped, or a column, may be longer than its bound by the rounding of its norm. What is added at the
    end covers squares of a tiny target that vanish, and leaves some noise where the target is 0.
    """
    off, grain = Leeway.of(t, d, mu, b, F), 1 + (d + t.shape[1] + 8) * 2.0**-50
    largest, size, ball = np.abs(t).max(axis=1), np.linalg.norm(t, axis=1), math.inf if b is None else b
    if adjacency == "person" and b is not None:
        exact = person_scores(mu, b, largest), person_weights(mu, b, largest)
    elif adjacency == "column" and q is not None:
        exact = column_scores(mu, q, size, ball), column_weights(mu, q, size, ball)
    else:
        raise RefusedError(f"no bound is proved for adjacency = {adjacency!r} without its ball or column bound")
    return (
        float(np.max(grain**2 * exact[0] + 2 * off.scores)) + 1e-100,
        float(np.max(grain**2 * exact[1] + 2 * off.weights)) + 1e-100,
    )
