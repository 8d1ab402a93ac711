"""Attack the bounds for vertical sharing: look for a row or a column that moves the scores further than certified.

A party fits its features D, a row for each person, to a public target t and releases the scores u = D x:

    x = argmin over |x| <= b of (lam/2) |x|^2 + (rho/2) |D x - t|^2                                    (1)

Certified, one person's row replaced, rows in the unit ball:

    g = rho (b + max|t|),  r = min(2b, g/lam),  |u - u'|^2 <= (2b)^2 + (2 g r - lam r^2)/rho           (2)
    |x - x'| <= min(2b, 2 g/lam)                                                                       (3)

Certified, one column of norm at most q replaced, without the ball (within it, only |u - u'| <= |t|):

    |u - u'| <= |t| s/(1 + s),  s = q^2 rho/lam                                                        (4)

    |x - x'| <= |t| sqrt(rho/lam) min(1, sqrt(s^2 + 4 s)/(1 + s))                                      (6)

(2) to (6) are defined in ridge_sensitivity.py and proved in docs/privacy.md#sharing.

Published for one column (ADMM sharing, Lemma 1), with rows of norm 1, R'' <= c1 and every norm at most b1:

    |u - u'| <= 3/(d rho) (lam c1 + (1 + M rho) b1)                                                    (5)

which is no bound: `lemma1_counterexample` keeps all of its assumptions and moves far beyond it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.optim.ridge import secular
from privadmm.papers.counterexamples.rows import Rng, Worst, attack, ball, within
from privadmm.privacy import ridge_sensitivity

# From (A, c, b), one problem per leading index, to x.
Fit = Callable[[Floats, Floats, Floats], Floats]


def ball_argmin(A: Floats, c: Floats, b: Floats) -> Floats:
    """Minimise x.A x/2 - c.x over |x| <= b, for positive definite A (n, d, d).

    Either the minimiser is inside, or x = (A + nu I)^-1 c with the nu > 0 at which |x| = b.
    """
    values, vectors = np.linalg.eigh(A)
    x, _ = secular(values, np.einsum("nij,ni->nj", vectors, c), b)
    return np.asarray(np.einsum("nij,nj->ni", vectors, x))


def ridge_then_clip(A: Floats, c: Floats, b: Floats) -> Floats:
    """Fit, then clip: what must not be done. Scaling down an outlier's pull in one direction moves all other scores."""
    x = np.linalg.solve(A, c[..., None])[..., 0]
    return np.asarray(x * np.minimum(1.0, b / np.maximum(np.linalg.norm(x, axis=1), 1e-300))[:, None])


@dataclass(frozen=True)
class People:
    """n pairs of neighbours in one person's row: row 0 in D, row 1 in its place in D', the rest in both."""

    rows: Floats  # (n, 2 + common, d)
    t: Floats  # (n, 1 + common): targets of the person and of the common rows
    counts: Floats  # (n, common): how many people share each common row
    lam: Floats  # (n,)
    rho: Floats
    b: Floats

    def fits(self, fit: Fit) -> tuple[Floats, Floats]:
        """(1) on D and on D'."""
        common, d = self.rows[:, 2:], self.rows.shape[-1]
        A = np.einsum("nr,nri,nrj->nij", self.counts, common, common)
        c = np.einsum("nr,nri->ni", self.counts * self.t[:, 1:], common)
        ridge = (self.lam / self.rho)[:, None, None] * np.eye(d)
        first, second = (
            fit(A + row[:, :, None] * row[:, None, :] + ridge, c + self.t[:, :1] * row, self.b)
            for row in (self.rows[:, 0], self.rows[:, 1])
        )
        return first, second

    def moved(self, fit: Fit) -> Floats:
        """|u - u'|"""
        x, x2 = self.fits(fit)
        own = np.sum(self.rows[:, 0] * x, axis=1) - np.sum(self.rows[:, 1] * x2, axis=1)
        others = np.einsum("nri,ni->nr", self.rows[:, 2:], x - x2)
        return np.asarray(np.sqrt(own**2 + np.sum(self.counts * others**2, axis=1)))


def person_bound(people: People) -> Floats:
    """(2)"""
    return ridge_sensitivity.person_scores(people.lam / people.rho, people.b, np.max(np.abs(people.t), axis=1))


def scores_ratio(people: People, fit: Fit = ball_argmin) -> Floats:
    """How far the scores move, over (2)."""
    return people.moved(fit) / person_bound(people)


def fit_ratio(people: People) -> Floats:
    """`scores_ratio` where the replaced row's own score is little of (2), else 0: a climb ends on it too easily."""
    little = 40 * (2 * people.b) ** 2 < person_bound(people) ** 2
    return np.where(little, scores_ratio(people), 0.0)


def weights_ratio(people: People, fit: Fit = ball_argmin) -> Floats:
    """How far the weights move, over (3)."""
    first, second = people.fits(fit)
    largest = np.max(np.abs(people.t), axis=1)
    bound = ridge_sensitivity.person_weights(people.lam / people.rho, people.b, largest)
    return np.asarray(np.linalg.norm(first - second, axis=1) / bound)


def search_person(
    d: int, rng: Rng, budget: int, ratio: Callable[[People], Floats] = scores_ratio, common: int = 3
) -> Worst[People]:
    """Search for the worst of (2) or (3), or of them with another fit."""

    def decode(z: Floats) -> People:
        rows, t, counts, rest = np.split(z, np.cumsum([(2 + common) * d, 1 + common, common]), axis=1)
        lam, rho, b = rest.T
        return People(
            rows=ball(rows.reshape(len(z), 2 + common, d)),
            t=t,
            counts=np.ceil(within(counts, -1, 4)),
            lam=within(lam, -4, 2),
            rho=within(rho, -2, 2),
            b=within(b, -3, 1),
        )

    return attack(ratio, decode, (2 + common) * d + 1 + 2 * common + 3, rng, budget)


@dataclass(frozen=True)
class Columns:
    """n pairs of neighbours in one feature: column 0 of D, and `other` in its place in D'."""

    D: Floats  # (n, N, d)
    other: Floats  # (n, N)
    t: Floats  # (n, N)
    lam: Floats  # (n,)
    rho: Floats
    q: Floats
    b: Floats  # infinite: no ball

    @property
    def neighbour(self) -> Floats:
        return np.concatenate([self.other[..., None], self.D[..., 1:]], axis=2)

    def fit(self, D: Floats) -> Floats:
        """(1)"""
        A = D.transpose(0, 2, 1) @ D + (self.lam / self.rho)[:, None, None] * np.eye(D.shape[2])
        return ball_argmin(A, np.einsum("nij,ni->nj", D, self.t), self.b)

    def moved(self) -> Floats:
        first, second = (np.einsum("nij,nj->ni", D, self.fit(D)) for D in (self.D, self.neighbour))
        return np.asarray(np.linalg.norm(first - second, axis=1))

    def weights_moved(self) -> Floats:
        return np.asarray(np.linalg.norm(self.fit(self.D) - self.fit(self.neighbour), axis=1))


def column_bound(columns: Columns) -> Floats:
    """(4)"""
    return ridge_sensitivity.column_scores(columns.lam / columns.rho, columns.q, np.linalg.norm(columns.t, axis=1))


def column_weights_bound(columns: Columns) -> Floats:
    """(6)"""
    size = np.linalg.norm(columns.t, axis=1)
    return ridge_sensitivity.column_weights(columns.lam / columns.rho, columns.q, size, columns.b)


def target_bound(columns: Columns) -> Floats:
    """|t|: all that is proved of a column when x is kept in a ball."""
    return np.asarray(np.linalg.norm(columns.t, axis=1))


def search_column(
    N: int,
    d: int,
    rng: Rng,
    budget: int,
    bound: Callable[[Columns], Floats] = column_bound,
    inside_ball: bool = False,
    moved: Callable[[Columns], Floats] = Columns.moved,
) -> Worst[Columns]:
    """Search for the worst of (4) or, with `moved`, of (6), or of another bound to be refuted."""

    def decode(z: Floats) -> Columns:
        D, other, t, rest = np.split(z, np.cumsum([N * d, N, N]), axis=1)
        q, lam, rho, size, b = (within(gene, -1.5, 1) for gene in rest.T)
        b = b if inside_ball else np.full(len(z), np.inf)
        D = size[:, None, None] * D.reshape(len(z), N, d)
        D[..., 0] = q[:, None] * ball(D[..., 0])
        return Columns(D, q[:, None] * ball(other), t, lam, rho, q, b)

    return attack(lambda columns: moved(columns) / bound(columns), decode, N * (d + 2) + 5, rng, budget)


def published_sensitivity(d: int, rho: float, lam: float, parties: int, b1: float, c1: float = 1.0) -> float:
    """(5)"""
    return float(ridge_sensitivity.lemma_1(d, rho, lam, parties, b1, c1))


def lemma1_counterexample(N: int = 400, d: int = 100, lam: float = 0.01, rho: float = 1.0) -> Columns:
    """Neighbours within every assumption of (5), b1 = 1, that move several times further.

    D is copies of an orthogonal matrix, so rows have norm 1, and column 0 is constant. Since rows keep their norm and
    their other entries, only signs in that column may change; enough do for |D - D'| = 1. The target z - y/rho, with
    z = -y/rho and |y| = |z| = 1, is the direction in which the two fits differ most. All other parties are silent.
    """
    wave = np.cos(np.pi * (np.arange(d)[:, None] + 0.5) * np.arange(d) / d) * np.sqrt(2 / d)
    wave[:, 0] = 1 / np.sqrt(d)
    D = np.tile(wave, (N // d, 1))
    other = D[:, 0].copy()
    other[: d // 4] *= -1
    changed = np.column_stack([other, D[:, 1:]])
    hats = [B @ np.linalg.solve(B.T @ B + lam / rho * np.eye(d), B.T) for B in (D, changed)]
    t = 2 * np.linalg.eigh(hats[0] - hats[1])[1][:, -1]
    one = np.ones(1)
    q = np.linalg.norm(other) * one
    # The minimiser is inside the ball that the lemma assumes, so leaving the ball out changes nothing.
    return Columns(D[None], other[None], t[None], lam * one, rho * one, q, np.inf * one)


def distance_to_columns(u: Floats, D: Floats) -> float:
    """How far scores u (N,) are from what any weights on D (N, d) could give.

    Noise on the weights leaves this at zero for the true D, whatever its size: it hides nothing.
    """
    return float(np.linalg.norm(u - D @ np.linalg.lstsq(D, u, rcond=None)[0]))
