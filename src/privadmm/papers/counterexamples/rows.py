"""Attack the proofs of objective perturbation: look for neighbours whose outputs differ more than is certified.

One round at a party of m records minimises

    (C/m) sum_n loss(y_n f.x_n) + <(C/m) b + public, f> + (k/2) |f|^2

so that the noise b is a function of the output f, with data D,

    G_D(f) = -( sum_n loss'(y_n f.x_n) x_n + (m/C) (k f + public) )                                    (1)
    H_D(f) = sum_n loss''(y_n f.x_n) x_n x_n^T + (m k/C) I             (minus its Jacobian)            (2)
    p_D(f) = density of b at G_D(f), times det H_D(f).                                                 (3)

Since f -> b is a bijection, p_D has the normaliser of the noise, the same for all data. Certified, for one replaced
record, with w = C c/(m k), Delta = 2 L and the loss's constants L and c (docs/privacy.md#objective):

    density exp(-zeta |b|):  |ln p_D(f) - ln p_D'(f)| <= Delta zeta + ln(1 + w)                        (4)
    b ~ N(0, s^2 I):         D_a <= a Delta^2/(2 s^2) - ln(1 - a(a-1) w^2/(1+w))/(a-1), (a-1) w < 1    (5)

D_a = ln(integral of p_D^a p_D'^(1-a))/(a-1) is integrated over f itself, in polar coordinates: the change of variables
in the proof of (5) is not used, only its monotone map v = a G_D - (a-1) G_D', to see where the mass lies.

Every search draws random instances, evolves the worst of them, and returns the largest ratio of truth to bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.optim.losses import Logistic, Loss
from privadmm.params import check_positive
from privadmm.privacy import curves

Rng = np.random.Generator
Range = tuple[float, float]  # powers of ten
T = TypeVar("T")

WIDTH = 9.0  # in noise scales: beyond it lies e^-40 of the mass
# Nodes of the quadrature, per angle panel and per ray. An instance goes up a level until it is resolved.
LEVELS = ((6, 24), (10, 40), (16, 64), (26, 104), (42, 168), (68, 272), (110, 440))
CHUNK = 400_000  # nodes evaluated at a time


@dataclass(frozen=True)
class Worst(Generic[T]):
    """The largest ratio of truth to bound among `tried` instances, and the instance that has it."""

    ratio: float
    instance: T
    tried: int
    unresolved: int  # instances whose integral did not settle


def attack(ratio: Callable[[T], Floats], decode: Callable[[Floats], T], genes: int, rng: Rng, budget: int) -> Worst[T]:
    """Spend a quarter of the budget on random instances, the rest on differential evolution from the worst of these.

    Instances are decoded from standard normal genes, a row each. A ratio of nan is an instance that was not resolved.
    """
    check_positive(budget=budget)
    kept, values, size = np.empty((0, genes)), np.empty(0), max(24, budget // 500)
    tried = unresolved = 0

    def score(z: Floats) -> Floats:
        nonlocal tried, unresolved
        ratios = ratio(decode(z))
        tried, unresolved = tried + len(z), unresolved + int(np.isnan(ratios).sum())
        return np.nan_to_num(ratios, nan=-np.inf)

    while tried < budget / 4:
        z = rng.normal(size=(512, genes))
        kept, values = np.concatenate([kept, z]), np.concatenate([values, score(z)])
        best = np.argsort(-values)[:size]
        kept, values = kept[best], values[best]
    while tried < budget:
        one, two, three = kept[rng.integers(size, size=(3, size))]
        leader, one = kept[rng.integers(1 + size // 8, size=size)], kept if rng.random() < 0.5 else one
        pull = rng.uniform(0.3, 0.9, size=(size, 1))
        jitter = 0.3 * 10 ** rng.uniform(-2, 0, size=(size, 1)) * rng.normal(size=kept.shape)
        z = one + pull * (leader - one) + pull * (two - three) + jitter
        z = np.where(rng.random(kept.shape) < 0.9, z, kept)
        new = score(z)
        kept, values = np.where((new > values)[:, None], z, kept), np.maximum(new, values)
        best = np.argsort(-values)
        kept, values = kept[best], values[best]
    return Worst(float(values[0]), decode(kept[:1]), tried, unresolved)


def within(z: Floats, low: float, high: float) -> Floats:
    """Decode a gene as a positive quantity between two powers of ten; three standard deviations span the range."""
    return np.asarray(10.0 ** (low + (high - low) * (1 + np.tanh(0.75 * z)) / 2))


def ball(z: Floats) -> Floats:
    """Decode genes as points of the unit ball, mostly on its surface, where the worst instances are."""
    return np.asarray(z / np.maximum(1.0, np.linalg.norm(z, axis=-1, keepdims=True)))


@dataclass(frozen=True)
class Pairs:
    """n pairs of neighbours, one round each. Row 0 is D's own record, row 1 its replacement in D'; the rest are common.

    Records beyond the listed ones, up to the public m, are zero. `f` is where the adversary looks: the output in (4),
    a point near the mass in (5). `scale` is zeta or s.
    """

    loss: Loss
    X: Floats  # (n, 2 + common, d)
    y: Floats  # (n, 2 + common)
    f: Floats  # (n, d)
    public: Floats  # (n, d)
    k: Floats  # (n,), and so on
    C: Floats
    m: Floats
    scale: Floats

    @property
    def curvature(self) -> Floats:
        """m k/C: the part of the curvature (2) that does not come from data."""
        return self.m * self.k / self.C

    @property
    def w(self) -> Floats:
        return self.loss.smoothness / self.curvature

    @property
    def delta(self) -> float:
        return 2 * self.loss.lipschitz

    def take(self, index: NDArray[np.intp]) -> "Pairs":
        arrays = {item.name: getattr(self, item.name)[index] for item in fields(self) if item.name != "loss"}
        return replace(self, **arrays)

    def noise(self, f: Floats) -> Floats:
        """(1) at f (n, q, d), for D and D': (2, n, q, d)."""
        slopes = self.loss.deriv(f @ self.X.transpose(0, 2, 1), self.y[:, None, :])
        # Common records are summed first: their rounding error then acts like a change of the public vector in both.
        pulled = self.public[:, None, :] + self.k[:, None, None] * f
        common = slopes[..., 2:] @ self.X[:, 2:] + (self.m / self.C)[:, None, None] * pulled
        return -np.stack([common + slopes[..., i, None] * self.X[:, None, i] for i in (0, 1)])

    def log_det(self, f: Floats) -> Floats:
        """ln det of (2) at f (n, q, d), for D and D': (2, n, q)."""
        bends = self.loss.curv(f @ self.X.transpose(0, 2, 1), self.y[:, None, :])
        squares = self.X[..., :, None] * self.X[..., None, :]
        common = np.einsum("nqr,nrij->nqij", bends[..., 2:], squares[:, 2:])
        common += self.curvature[:, None, None, None] * np.eye(f.shape[-1])
        return np.stack([log_det(common + bends[..., i, None, None] * squares[:, None, i]) for i in (0, 1)])


def log_det(H: Floats) -> Floats:
    """ln det of positive definite matrices, by elimination: in few dimensions this is faster than a call per matrix."""
    total = np.zeros(H.shape[:-2])
    while H.shape[-1]:
        pivot = H[..., 0, 0]
        total += np.log(pivot)
        H = H[..., 1:, 1:] - H[..., 1:, :1] * H[..., :1, 1:] / pivot[..., None, None]
    return total


def steer(pairs: Pairs, noise: Floats) -> Pairs:
    """Choose the public vector that makes `noise` the b of output f on D: the adversary may send any."""
    here = pairs.noise(pairs.f[:, None, :])[0, :, 0, :]
    return replace(pairs, public=pairs.public + (here - noise) * (pairs.C / pairs.m)[:, None])


@dataclass(frozen=True)
class Space:
    """The space of a search: dimension, common records, and the ranges of |f|, w and the noise scale."""

    loss: Loss
    d: int
    common: int
    reach: Range
    w: Range
    scale: Range

    @property
    def genes(self) -> int:
        return (2 + self.common) * (self.d + 1) + self.d + 5

    def draw(self, z: Floats) -> tuple[Pairs, Floats]:
        """Pairs from genes, with a zero public vector, and the genes left over."""
        n, d, rows = len(z), self.d, 2 + self.common
        X, y, along, sizes, rest = np.split(z, np.cumsum([rows * d, rows, d, 5]), axis=1)
        length, weight, C, m, noise = sizes.T
        f = along / np.linalg.norm(along, axis=1, keepdims=True) * within(length, *self.reach)[:, None]
        X, y = ball(X.reshape(n, rows, d)), np.where(y >= 0, 1.0, -1.0)
        C, m = within(C, -1, 3), rows - 1 + np.floor(within(m, -1, 3))
        k = self.loss.smoothness * C / (m * within(weight, *self.w))
        return Pairs(self.loss, X, y, f, np.zeros((n, d)), k, C, m, within(noise, *self.scale)), rest


def pure_bound(pairs: Pairs) -> Floats:
    """(4)"""
    return np.asarray(pairs.delta * pairs.scale + np.log1p(pairs.w))


def divergence(pairs: Pairs) -> Floats:
    """|ln p_D(f) - ln p_D'(f)| under noise of density exp(-zeta |b|); by (3), without integration."""
    f = pairs.f[:, None, :]
    logs = pairs.log_det(f) - pairs.scale[:, None] * np.linalg.norm(pairs.noise(f), axis=-1)
    return np.asarray(np.abs(logs[0] - logs[1])[:, 0])


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
    """Unit vectors (n, q, d) and weights (n, q) that cover, seen from the origin, the ball of `radius` around f.

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
    # A jump outside of the view is replaced by an even division.
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
        # Keep away from noise so low that the integrand varies by e^8, and so high that rounding hides D_alpha.
        shift = 2 * loss.lipschitz * np.sqrt(alpha * (alpha - 1) / 2)
        pairs = replace(pairs, scale=np.clip(pairs.scale, shift / np.sqrt(8.0), shift / np.sqrt(1e-5)))
        if flip:
            X, y = pairs.X.copy(), pairs.y.copy()
            X[:, 1], y[:, 1] = X[:, 0], -y[:, 0]
            pairs = replace(pairs, X=X, y=y)
        return steer(pairs, np.zeros_like(pairs.f)), alpha

    return attack(lambda pair: renyi(*pair, bound(*pair)), decode, space.genes + 1, rng, budget)


@dataclass(frozen=True)
class Calibration:
    """Strong convexity, Phi included, and noise of one round of DVP."""

    k: float
    zeta: float


@dataclass(frozen=True)
class DvpParty:
    """The inputs of DVP's calibration: the claim for one round, and public facts of a party of B records."""

    alpha: float
    rho: float
    eta: float
    neighbours: int
    C: float
    B: int

    @property
    def given(self) -> float:
        return self.rho + 2 * self.eta * self.neighbours

    def box(self, loss: Loss) -> Calibration:
        """Algorithm 2 as printed: in its first line B/C stands upside down, and its zeta lacks the proof's 1/2."""
        if (hat := self.alpha - 2 * math.log1p(self.B / self.C * loss.smoothness / self.given)) > 0:
            return Calibration(self.given, hat)
        k = loss.smoothness / (self.B / self.C * math.expm1(self.alpha / 4))
        return Calibration(k, self.alpha / 2)

    def certified(self, loss: Loss) -> Calibration:
        """(4) solved for zeta, with penalty enough to leave half of alpha to the noise."""
        most = loss.smoothness * self.C / self.B  # w k
        k = max(self.given, most / math.expm1(self.alpha / 2))
        return Calibration(k, (self.alpha - math.log1p(most / k)) / (2 * loss.lipschitz))

    def exposed(self, noise: Calibration, like: Pairs, b: Floats) -> Pairs:
        """The records and output of `like` at this party, with b the noise of that output on D."""
        k, C, m, zeta = np.outer([noise.k, self.C, self.B, noise.zeta], np.ones(len(like.f)))
        return steer(replace(like, k=k, C=C, m=m, scale=zeta), b)


def search_dvp(party: DvpParty, noise: Calibration, loss: Loss, rng: Rng, budget: int) -> Worst[Pairs]:
    """Search for the worst log density ratio, over alpha, in two dimensions under a calibration of DVP."""
    space = Space(loss, 2, common=1, reach=(-2, 3), w=(0, 0), scale=(0, 0))

    def decode(z: Floats) -> Pairs:
        like, rest = space.draw(z)
        return party.exposed(noise, like, ball(rest[:, :2]) * within(rest[:, 2:], -2, 3))

    return attack(lambda pairs: divergence(pairs) / party.alpha, decode, space.genes + 3, rng, budget)


# The paper's experiment, in which the box asks for a negative penalty, and a counterexample from `search_dvp`, rounded.
# Both records are on the wrong side of f: D's by so little that its curvature counts, the other at full slope.
DVP_PAPER = DvpParty(alpha=0.3, rho=10**-2.5, eta=1.0, neighbours=3, C=1750.0, B=8000)
_records = np.array([[[-0.011, 0.9999], [-0.15, -0.9886]]]), np.ones((1, 2))
DVP_RECORDS = Pairs(Logistic(), *_records, np.array([[100.0, 0.0]]), np.zeros((1, 2)), *np.ones((4, 1)))
DVP_NOISE = np.array([[0.0, -10.0]])
