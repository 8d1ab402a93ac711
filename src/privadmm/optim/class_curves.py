"""Two smooth curves through noisy counts of scores, one for each class, and what they say of the area under the ROC.

Of n records a share pi is of class 1, and the scores of class c follow a normal law of mean m_c and deviation v_c, with
the distribution function F_c. Between two edges of a histogram lie about

    n pi_c (F_c(e_b) - F_c(e_b-1))   records of class c                                                              (1)

pi, m and v are fitted by least squares: five numbers of many noisy cells, so most of the noise is averaged out. With
P = pi n, N = n - P, and A the area under the curves' ROC, the area of the true scores is, but for products of errors,

    A + T - T',   T = sum over records of g_c(s),   g_1 = (F_0(s) - A)/P,   g_0 = (1 - F_1(s) - A)/N                 (2)

where T' is what the curves say T is. g is cut from below at -L/min(P, N): the few records beyond cost most of the noise
of T, and what is cut off is nearly as large by the curves as in truth, so that T - T' hardly changes.
"""

from dataclasses import dataclass, replace

import numpy as np

from privadmm.data.arrays import Floats

STEPS = 60  # of the fit at most
GRID = 2001  # points at which the curves are integrated
FLOOR = 0.3  # L


def normal(t: Floats) -> Floats:
    """The normal distribution function to 1.4e-4, increasing. To load a library for it would take longer than this."""
    return np.asarray(1 / (1 + np.exp(-(1.5976 * t + 0.07056 * t**3))))


@dataclass(frozen=True)
class Curves:
    """The laws (1) of the two classes, the negative one first."""

    share: float  # pi
    centre: Floats  # (2,)
    width: Floats  # (2,)

    def below(self, at: Floats) -> Floats:
        """F_c at these scores, (2, n)."""
        t = (at[None, :] - self.centre[:, None]) / self.width[:, None]
        return normal(np.clip(t, -8, 8))

    def cells(self, edges: Floats) -> Floats:
        """The share of all records in each cell, (2, edges + 1)."""
        steps = np.pad(self.below(edges), ((0, 0), (1, 1)), constant_values=((0, 0), (0, 1)))
        return np.asarray(np.diff(steps, axis=1) * np.array([[1 - self.share], [self.share]]))

    @property
    def grid(self) -> Floats:
        """Scores from end to end of both laws."""
        reach = 8 * self.width
        return np.linspace(float(np.min(self.centre - reach)), float(np.max(self.centre + reach)), GRID)

    @property
    def area(self) -> float:
        """A of (2)."""
        F, mass = self.below(self.grid), np.diff(self.below(self.grid)[1])
        return float(np.clip(np.sum(mass * (F[0, 1:] + F[0, :-1]) / 2), 0.0, 1.0))


@dataclass(frozen=True)
class Influence:
    """g of (2) as a table, linear between its knots, for n records."""

    n: int
    knots: Floats  # (K,)
    g: Floats  # (2, K)
    area: float  # A
    expected: float = 0.0  # T'

    @property
    def low(self) -> float:
        return float(self.g.min())

    @property
    def reach(self) -> float:
        """How far g moves at most."""
        return float(self.g.max()) - self.low

    @property
    def table(self) -> Floats:
        """g scaled to [0, 1]: the form in which parties sum it."""
        return (self.g - self.low) / max(self.reach, 1e-300)

    def total(self, curves: Curves) -> float:
        """T, as these curves give it."""
        middles, mass = (curves.grid[1:] + curves.grid[:-1]) / 2, np.diff(curves.below(curves.grid), axis=1)
        sizes = (self.n * (1 - curves.share), self.n * curves.share)
        parts = [np.interp(middles, self.knots, row) @ own for row, own in zip(self.g, mass, strict=True)]
        return float(np.dot(sizes, parts))

    def corrected(self, total: float) -> float:
        """A + T - T', from the sum of the table's values over all records."""
        return self.area + self.low * self.n + self.reach * total - self.expected


def fitted(counts: Floats, edges: Floats, n: int) -> Curves:
    """Fit (1) to the counts (2, edges + 1) of n records. Any counts are fitted, also absurd ones: they are noisy."""
    shares = np.nan_to_num(counts) / n
    span = max(float(edges[-1] - edges[0]), 1e-12)
    pi = float(np.clip(shares[1].sum() / max(shares.sum(), 1e-12), 0.02, 0.98))
    middles = np.concatenate([edges[:1], (edges[1:] + edges[:-1]) / 2, edges[-1:]])
    mass = np.maximum(shares, 1e-9)
    m = (mass * middles).sum(axis=1) / mass.sum(axis=1)
    v = np.sqrt((mass * (middles - m[:, None]) ** 2).sum(axis=1) / mass.sum(axis=1)) + 1e-3 * span
    x = np.array([np.log(pi / (1 - pi)), *(m / span), *np.log(v / span)])

    def curves(x: Floats) -> Curves:
        pi = 1 / (1 + np.exp(-np.clip(x[0], -7, 7)))
        return Curves(float(pi), np.clip(x[1:3], -3, 3) * span, np.exp(np.clip(x[3:], -8, 2)) * span)

    def misses(x: Floats) -> Floats:
        return np.asarray((curves(x).cells(edges) - shares).ravel())

    now, damping = misses(x), 1e-3
    for _ in range(STEPS):
        J = np.stack([(misses(x + step) - now) / 1e-6 for step in 1e-6 * np.eye(5)], axis=1)
        H, slope = J.T @ J, J.T @ now
        move = np.linalg.solve(H + damping * np.diag(np.diag(H)) + 1e-12 * np.eye(5), -slope)
        after = misses(x + move)
        if after @ after < now @ now:
            gained = now @ now - after @ after
            x, now, damping = x + move, after, max(damping / 5, 1e-9)
            if gained < 1e-12 * (now @ now):
                break
        else:
            damping *= 5
            if damping > 1e9:
                break
    return curves(x)


def influence(curves: Curves, n: int, knots: int) -> Influence:
    """Tabulate g of (2) for n records at this many knots."""
    P, N, area = curves.share * n, (1 - curves.share) * n, curves.area
    ends = [float(f(curves.centre + side * 4 * curves.width)) for f, side in ((np.min, -1), (np.max, 1))]
    at = np.linspace(ends[0], ends[1], knots)
    F = curves.below(at)
    g = np.maximum(np.stack([(1 - F[1] - area) / N, (F[0] - area) / P]), -FLOOR / min(P, N))
    made = Influence(n, at, g, area)
    return replace(made, expected=made.total(curves))
