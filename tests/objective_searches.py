"""Attack the bounds of objective perturbation, for losses and dimensions of all kinds (papers/dvp/counterexamples.py).

There are (1) to (4), the density p_D of the output f and the bound for noise of density exp(-zeta |b|). For
b ~ N(0, s^2 I) it is certified that

    D_a <= a Delta^2/(2 s^2) - ln(1 - a(a-1) w^2/(1+w))/(a-1), (a-1) w < 1                             (5)

D_a = ln(integral of p_D^a p_D'^(1-a))/(a-1) is integrated over f itself, in polar coordinates: the change of variables
in the proof of (5) is not used, only its monotone map v = a G_D - (a-1) G_D', to see where the mass lies.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.optim.losses import Loss
from privadmm.papers.dvp.counterexamples import Pairs, Rng, Space, Worst, attack, ball, divergence, steer, within
from privadmm.params import check_positive
from privadmm.privacy import curves

WIDTH = 9.0  # in noise scales: beyond it lies e^-40 of the mass
# Nodes of the quadrature, per angle panel and per ray. An instance goes up a level until it is resolved.
LEVELS = ((6, 24), (10, 40), (16, 64), (26, 104), (42, 168), (68, 272), (110, 440))
CHUNK = 400_000  # nodes evaluated at a time


def pure_bound(pairs: Pairs) -> Floats:
    """(4)"""
    return np.asarray(pairs.delta * pairs.scale + np.log1p(pairs.w))


def search_pure(
    loss: Loss, d: int, rng: Rng, budget: int, bound: Callable[[Pairs], Floats] = pure_bound
) -> Worst[Pairs]:
    """Search for the worst of (4), or of another bound to be refuted."""
    space = Space(loss, d, common=3, reach=(-5, 4), w=(-4, 4), scale=(-3, 1))

    def decode(z: Floats) -> Pairs:
        pairs, rest = space.draw(z)
        b = ball(rest[:, :d]) * within(rest[:, d:], -2, 3)  # a longer b loses digits in (4)
        return steer(pairs, b)

    return attack(lambda pairs: divergence(pairs) / bound(pairs), decode, space.genes + d + 1, rng, budget)


def log_power(pairs: Pairs, alpha: Floats, f: Floats) -> Floats:
    """ln of p_D^alpha p_D'^(1-alpha) at f (n, q, d), by (3)."""
    squares = np.sum(pairs.noise(f) ** 2, axis=-1) / (2 * pairs.scale[:, None] ** 2)
    logs = pairs.log_det(f) - squares - f.shape[-1] / 2 * np.log(2 * np.pi * pairs.scale[:, None] ** 2)
    return np.asarray(alpha[:, None] * logs[0] + (1 - alpha[:, None]) * logs[1])


def directions(pairs: Pairs, radius: Floats, count: int) -> tuple[Floats, Floats]:
    """Unit vectors (n, q, d) and weights (n, q) that see the ball of `radius` around f from the origin.

    Where a record's margin changes sign, the curvature of some losses jumps. Those are lines through the origin, so
    between them every ray, and every panel of angles, is smooth.
    """
    n, _, d = pairs.X.shape
    if d == 1:
        return np.broadcast_to([[1.0], [-1.0]], (n, 2, 1)), np.ones((n, 2))
    middle = np.arctan2(pairs.f[:, 1], pairs.f[:, 0])[:, None]
    size = np.linalg.norm(pairs.f, axis=1)
    half = np.where(radius < size, np.arcsin(np.minimum(1.0, radius / size)), np.pi)[:, None]
    across = np.arctan2(pairs.X[..., 1], pairs.X[..., 0]) + np.pi / 2 - middle
    jumps = (np.concatenate([across, across + np.pi], axis=1) + np.pi) % (2 * np.pi) - np.pi
    # A jump out of sight gives its panel up to an even division.
    even = half * np.linspace(-1, 1, jumps.shape[1] + 2)[1:-1]
    jumps = np.where(np.abs(jumps) < half, jumps, even)
    edges = np.sort(np.concatenate([-half, jumps, half], axis=1), axis=1)
    nodes, weights = np.polynomial.legendre.leggauss(count)
    wide = np.diff(edges, axis=1)[..., None] / 2
    angles = (middle[..., None] + (edges[:, :-1, None] + wide) + wide * nodes).reshape(n, -1)
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1), (wide * weights).reshape(n, -1)


def log_integral(pairs: Pairs, alpha: Floats, level: tuple[int, int] = LEVELS[2]) -> Floats:
    """ln of the integral of p_D^alpha p_D'^(1-alpha) over f, d = 1 or 2; alpha = 1 and 0 give the mass of either."""
    n, _, d = pairs.X.shape
    a = alpha[:, None, None]

    def v(f: Floats) -> Floats:
        first, second = pairs.noise(f)
        return np.asarray(a * first - (a - 1) * second)

    # -v grows at least this fast along any line, so |v| < WIDTH s lies within a ball around any f.
    least = pairs.curvature * (1 - np.maximum(alpha - 1, 0.0) * pairs.w)
    check_positive(curvature=float(least.min()))
    radius = (WIDTH * pairs.scale + np.linalg.norm(v(pairs.f[:, None, :]), axis=-1)[:, 0]) / least
    rays, weights = directions(pairs, radius, level[0])
    foot = np.sum(rays * pairs.f[:, None, :], axis=-1)
    reach = np.sqrt(np.maximum(radius[:, None] ** 2 - np.sum(pairs.f**2, axis=1)[:, None] + foot**2, 0.0))
    low, high = np.maximum(foot - reach, 0.0), np.maximum(foot + reach, 0.0)
    # The part of v along a ray is monotone: bisect for where it leaves the noise, keeping the outer end.
    edge, (inner, outer) = WIDTH * pairs.scale[:, None], (high, low)
    for _ in range(8):
        left, right = (low + inner) / 2, (high + outer) / 2
        before = np.sum(v(left[..., None] * rays) * rays, axis=-1) > edge
        after = np.sum(v(right[..., None] * rays) * rays, axis=-1) < -edge
        low, inner = np.where(before, left, low), np.where(before, inner, left)
        high, outer = np.where(after, right, high), np.where(after, outer, right)
    nodes, radial = np.polynomial.legendre.leggauss(level[1])
    half = np.maximum(high - low, 0.0)[..., None] / 2
    r = low[..., None] + half * (1 + nodes)
    weight = (weights[..., None] * half * radial * r ** (d - 1)).reshape(n, -1)
    logs = log_power(pairs, alpha, (r[..., None] * rays[:, :, None, :]).reshape(n, -1, d))
    top = logs.max(axis=1)
    return np.asarray(top + np.log(np.sum(weight * np.exp(logs - top[:, None]), axis=1)))


def renyi(pairs: Pairs, alpha: Floats, bound: Floats) -> Floats:
    """D_alpha over its bound, on grids refined until the error is small against the distance from 1, or nan.

    A coarse grid can show anything where the bound is tiny: two levels must agree before either is believed.
    """
    (ratio, last), left = np.full((2, len(alpha)), np.nan), np.arange(len(alpha))
    panels = 2 * pairs.X.shape[1] + 1 if pairs.X.shape[2] == 2 else 2
    for angles, radii in LEVELS:
        step = max(1, CHUNK // (panels * angles * radii))
        parts = [left[i : i + step] for i in range(0, len(left), step)]
        logs = [log_integral(pairs.take(part), alpha[part], (angles, radii)) for part in parts]
        now = np.concatenate(logs) / ((alpha[left] - 1) * bound[left])
        done = np.abs(now - last) <= 1e-7 + 0.02 * np.abs(1 - now)
        ratio[left[done]] = now[done]
        left, last = left[~done], now[~done]
        if not len(left):
            break
    return ratio


def renyi_bound(pairs: Pairs, alpha: Floats) -> Floats:
    """(5)"""
    return curves.objective_rdp(alpha, pairs.scale / pairs.delta, pairs.w)


def search_renyi(
    loss: Loss,
    d: int,
    rng: Rng,
    budget: int,
    bound: Callable[[Pairs, Floats], Floats] = renyi_bound,
    flip: bool = False,
) -> Worst[tuple[Pairs, Floats]]:
    """Search for the worst of (5), or of another bound; with `flip`, among neighbours that differ in one label."""
    space = Space(loss, d, common=1, reach=(-3, 2.5), w=(-3, 0.5), scale=(-1, 2.5))

    def decode(z: Floats) -> tuple[Pairs, Floats]:
        pairs, rest = space.draw(z)
        alpha = 1 + np.minimum(within(rest[:, 0], -1.3, 1.3), 0.8 / pairs.w)
        # Noise so low that the factor under the integral moves by e^8, or so high that D_alpha drowns in rounding.
        shift = 2 * loss.lipschitz * np.sqrt(alpha * (alpha - 1) / 2)
        pairs = replace(pairs, scale=np.clip(pairs.scale, shift / np.sqrt(8.0), shift / np.sqrt(1e-5)))
        if flip:
            X, y = pairs.X.copy(), pairs.y.copy()
            X[:, 1], y[:, 1] = X[:, 0], -y[:, 0]
            pairs = replace(pairs, X=X, y=y)
        return steer(pairs, np.zeros_like(pairs.f)), alpha

    return attack(lambda pair: renyi(*pair, bound(*pair)), decode, space.genes + 1, rng, budget)
