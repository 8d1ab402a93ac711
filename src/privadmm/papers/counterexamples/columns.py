"""Attack the bounds for vertical sharing: look for a row or a column that moves the scores further than certified.

A party's fit (1), and the certified bounds (2) to (5) on its change if one person's row or one column is replaced, are
those of privacy/ridge_sensitivity.py, proved in docs/privacy.md#sharing; mu there is lam/rho.

Published for one column (ADMM sharing, Lemma 1), with rows of norm 1, R'' <= c1 and every norm at most b1:

    |u - u'| <= 3/(d rho) (lam c1 + (1 + M rho) b1)                             `ridge_sensitivity.lemma_1`

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
    """Fit, then clip: a wrong way, since scaling down an outlier's pull in one direction moves all other scores."""
    x = np.linalg.solve(A, c[..., None])[..., 0]
    return np.asarray(x * np.minimum(1.0, b / np.maximum(np.linalg.norm(x, axis=1), 1e-300))[:, None])


@dataclass(frozen=True)
class People:
    """n pairs of neighbours in one person's row: row 0 in D, row 1 in its place in D', the rest in both."""

    rows: Floats  # (n, 2 + common, d)
    t: Floats  # (n, 1 + common): targets of the person and of the common rows
    counts: Floats  # (n, common): how many people share each common row
    mu: Floats  # (n,)
    b: Floats

    @property
    def largest(self) -> Floats:
        return np.asarray(np.max(np.abs(self.t), axis=1))

    def fits(self, fit: Fit) -> tuple[Floats, Floats]:
        """(1) on D and on D'."""
        common, d = self.rows[:, 2:], self.rows.shape[-1]
        A = np.einsum("nr,nri,nrj->nij", self.counts, common, common)
        c = np.einsum("nr,nri->ni", self.counts * self.t[:, 1:], common)
        ridge = self.mu[:, None, None] * np.eye(d)
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
    """(3)"""
    return ridge_sensitivity.person_scores(people.mu, people.b, people.largest)


def scores_ratio(people: People, fit: Fit = ball_argmin) -> Floats:
    """How far the scores move, over (3)."""
    return people.moved(fit) / person_bound(people)


def fit_ratio(people: People) -> Floats:
    """`scores_ratio` if the replaced row's own score is a small part of (3), else 0: a search gets stuck on it."""
    little = 40 * (2 * people.b) ** 2 < person_bound(people) ** 2
    return np.where(little, scores_ratio(people), 0.0)


def weights_ratio(people: People, fit: Fit = ball_argmin) -> Floats:
    """How far the weights move, over (2)."""
    first, second = people.fits(fit)
    bound = ridge_sensitivity.person_weights(people.mu, people.b, people.largest)
    return np.asarray(np.linalg.norm(first - second, axis=1) / bound)


def search_person(
    d: int, rng: Rng, budget: int, ratio: Callable[[People], Floats] = scores_ratio, common: int = 3
) -> Worst[People]:
    """Search for the worst of (3) or (2), or of them with another fit."""

    def decode(z: Floats) -> People:
        rows, t, counts, rest = np.split(z, np.cumsum([(2 + common) * d, 1 + common, common]), axis=1)
        lam, rho, b = rest.T
        return People(
            rows=ball(rows.reshape(len(z), 2 + common, d)),
            t=t,
            counts=np.ceil(within(counts, -1, 4)),
            mu=within(lam, -4, 2) / within(rho, -2, 2),
            b=within(b, -3, 1),
        )

    return attack(ratio, decode, (2 + common) * d + 1 + 2 * common + 3, rng, budget)


@dataclass(frozen=True)
class Columns:
    """n pairs of neighbours in one feature: column 0 of D, and `other` in its place in D'."""

    D: Floats  # (n, N, d)
    other: Floats  # (n, N)
    t: Floats  # (n, N)
    mu: Floats  # (n,)
    q: Floats
    b: Floats  # infinite: no ball

    @property
    def size(self) -> Floats:
        return np.asarray(np.linalg.norm(self.t, axis=1))

    @property
    def neighbour(self) -> Floats:
        return np.concatenate([self.other[..., None], self.D[..., 1:]], axis=2)

    def fit(self, D: Floats) -> Floats:
        """(1)"""
        A = D.transpose(0, 2, 1) @ D + self.mu[:, None, None] * np.eye(D.shape[2])
        return ball_argmin(A, np.einsum("nij,ni->nj", D, self.t), self.b)

    def moved(self) -> Floats:
        first, second = (np.einsum("nij,nj->ni", D, self.fit(D)) for D in (self.D, self.neighbour))
        return np.asarray(np.linalg.norm(first - second, axis=1))

    def weights_moved(self) -> Floats:
        return np.asarray(np.linalg.norm(self.fit(self.D) - self.fit(self.neighbour), axis=1))


def column_bound(columns: Columns) -> Floats:
    """(5), of the scores, without the ball."""
    return ridge_sensitivity.column_scores(columns.mu, columns.q, columns.size)


def target_bound(columns: Columns) -> Floats:
    """(4), of the scores: |t| is the only proved bound for a column if x is kept in a ball."""
    return columns.size


def column_weights_bound(columns: Columns) -> Floats:
    """(5), of the weights, or (4) in a ball."""
    return ridge_sensitivity.column_weights(columns.mu, columns.q, columns.size, columns.b)


def search_column(
    N: int,
    d: int,
    rng: Rng,
    budget: int,
    bound: Callable[[Columns], Floats] = column_bound,
    inside_ball: bool = False,
    moved: Callable[[Columns], Floats] = Columns.moved,
) -> Worst[Columns]:
    """Search for the worst of (5), of the scores or of what `moved` says, or of another bound to be refuted."""

    def decode(z: Floats) -> Columns:
        D, other, t, rest = np.split(z, np.cumsum([N * d, N, N]), axis=1)
        q, lam, rho, size, b = (within(gene, -1.5, 1) for gene in rest.T)
        b = b if inside_ball else np.full(len(z), np.inf)
        D = size[:, None, None] * D.reshape(len(z), N, d)
        D[..., 0] = q[:, None] * ball(D[..., 0])
        return Columns(D, q[:, None] * ball(other), t, lam / rho, q, b)

    return attack(lambda columns: moved(columns) / bound(columns), decode, N * (d + 2) + 5, rng, budget)


def lemma1_counterexample(N: int = 400, d: int = 100, lam: float = 0.01, rho: float = 1.0) -> Columns:
    """Neighbours within every assumption of Lemma 1, b1 = 1, that move several times further.

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
    mu, q = np.full(1, lam / rho), np.full(1, np.linalg.norm(other))
    # The minimiser is inside the ball that the lemma assumes, so leaving the ball out changes nothing.
    return Columns(D[None], other[None], t[None], mu, q, np.full(1, np.inf))


def distance_to_columns(u: Floats, D: Floats) -> float:
    """Distance of scores u (N,) from the scores that any weights on D (N, d) could give.

    Noise on the weights keeps this at zero for the true D, whatever its size: such noise hides nothing.
    """
    return float(np.linalg.norm(u - D @ np.linalg.lstsq(D, u, rcond=None)[0]))
