"""Local problems of a block of parties, solved together, each to a checked gradient norm.

    F_p(x) = (scale_p / m_p) sum_n loss(a_n.x; y_n) + <linear_p, x> + (quadratic_p / 2) |x|^2

Newton's method with the Hessian of a past point, the anchor a, corrected by BFGS within the solve:

    x_1 = a - B grad F(a),   B = (Hessian of F at a)^-1                                        (1)
    x_{k+1} = x_k - B_k grad F(x_k),   B_k = B updated by the pairs (x_{j+1} - x_j, grad_{j+1} - grad_j)   (2)

(1) reads no records once the anchor's gradient and Hessian are cached. Each step of (2) is one gradient, and the last one
is the check. A unit step stays if it shrinks the slope along it; otherwise the step is a root of the slope, found from the
scores of x_k and of the direction alone. A Hessian costs as much as about min(m, d)/10 gradients: a party that has spent that
many, or whose step was far from 1, takes the Hessian at its current point and forgets its pairs.

A solve is a pure function of the records and its arguments. The cache holds functions of a party's records and its anchor, so
a worker without one returns the same bits, and nothing found in a solve outlives it. Every decision is a party's own, so
neither do the bits depend on who else is in the block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.data.shards import Index, Shards
from privadmm.errors import ConfigError, ToleranceError
from privadmm.losses import Loss

Array = NDArray[np.float64]
Pair = tuple[Array, Array, Array]  # s, y (k, d) and 1/<s, y> (k, 1), which is 0 for a pair that does not count

CAP = 200  # gradients in one solve
CELLS = 1 << 19  # entries of records solved at a time: few enough to stay in the processor's cache from pass to pass
STATS = {"passes": 0.0, "grams": 0, "searches": 0, "refresh": 0}


def reanchor(anchor: Array, x: Array, round: int) -> Array:
    """The anchor of this round: the current iterate in rounds 0, 1, 2, 4, 8, ..., otherwise the anchor as it was.

    It must depend on the transcript only. Without noise the iterates settle, and ever rarer Hessians are ever better; with
    fresh noise every round no past iterate is closer than another, so a rule by distance would refresh for nothing.
    """
    return x if round & (round - 1) == 0 else anchor


@dataclass(frozen=True, eq=False)
class Anchored:
    """A party's records seen from its anchor: the gradient of its loss and the core of its inverse Hessian."""

    key: tuple[bytes, float, float]  # anchor, weight, quadratic
    gradient: Array
    core: Array


@dataclass(frozen=True, eq=False)
class Cache:
    """What a party keeps between solves, by party id. It never leaves, and without it the results are the same."""

    parties: dict[int, Anchored] = field(default_factory=dict)
    replicas: dict[int, Cache] = field(default_factory=dict)

    def branch(self, replica: int) -> Cache:
        """Replicas have anchors of their own; sharing one cache they would push each other out."""
        return self.replicas.setdefault(replica, Cache())


def argmin(
    shards: Shards,
    loss: Loss,
    scale: ArrayLike,
    linear: Array,
    quadratic: ArrayLike,
    start: Array,
    anchor: Array,
    tolerance: ArrayLike,
    cache: Cache | None = None,
) -> Array:
    """The minimisers x (P, d) of F, each with |grad F_p(x_p)| <= tolerance_p, or a ToleranceError.

    scale, quadratic > 0 and tolerance are (P,) or one number; linear, start and anchor are (P, d).
    """
    P = len(shards.ids)
    if not math.isfinite(loss.smoothness):
        raise ConfigError("an exact local solve needs a loss of bounded curvature: not the hinge; huber_hinge is one")
    scale, quadratic, tolerance = (np.broadcast_to(np.asarray(v, float), (P,)) for v in (scale, quadratic, tolerance))
    for name, value in {"scale": scale, "quadratic": quadratic, "tolerance": tolerance}.items():
        if not (np.isfinite(value).all() and (value > 0).all()):
            raise ConfigError(f"{name} must be finite and above 0 for every party")
    for name, value in {"linear": linear, "start": start, "anchor": anchor}.items():
        if value.shape != (P, shards.dim) or not np.isfinite(value).all():
            raise ConfigError(f"{name} must be finite, one row of {shards.dim} numbers for each of {P} parties")
    x, missed = np.empty((P, shards.dim)), []
    for at, batch in shards.batches(CELLS):
        ridge = np.maximum(quadratic[at], 1e-13 * loss.smoothness * scale[at])
        problem = Problem(batch, loss, scale[at] / batch.sizes, linear[at], quadratic[at], ridge)
        with np.errstate(over="ignore", invalid="ignore"):
            x[at], solved = problem.solve(start[at], anchor[at], tolerance[at], cache)
        missed += batch.ids[~solved].tolist()
    if missed:
        raise ToleranceError(
            f"parties {sorted(missed)}: gradient norm still above the tolerance after {CAP} gradients; "
            "allow a larger tolerance, or more strong convexity"
        )
    return x


@dataclass(frozen=True, eq=False)
class Problem:
    """F for k parties with m records each. Hessians carry `ridge` for the quadratic, which keeps them invertible."""

    shards: Shards
    loss: Loss
    weight: Array  # (k,), of one record: scale / m
    linear: Array
    quadratic: Array
    ridge: Array

    def take(self, parties: Index) -> Problem:
        arrays = (a[parties] for a in (self.weight, self.linear, self.quadratic, self.ridge))
        return Problem(self.shards.take(parties), self.loss, *arrays)

    @property
    def dual(self) -> bool:
        return int(self.shards.sizes[0]) < self.shards.dim

    def data_gradient(self, x: Array) -> Array:
        STATS["passes"] += len(x)
        m = self.shards.margins(x)
        return self.weight[:, None] * self.shards.pull(self.loss.deriv(m, self.shards.y))

    def gradient(self, x: Array) -> Array:
        return self.data_gradient(x) + (self.linear + self.quadratic[:, None] * x)

    def core(self, x: Array) -> Array:
        """The matrix C of `precondition`: with w = weight * curv at x,

        (A^T w A + ridge)^-1 = C                     if m >= d, of order d
                             = (I - A^T C A) / ridge   if m < d, C = s (I + s A A^T s)^-1 s, s = sqrt(w / ridge), of order m
        """
        STATS["grams"] += len(x)
        curv = self.loss.curv(self.shards.margins(x), self.shards.y).reshape(len(x), -1) * self.weight[:, None]
        if self.dual:
            s = np.sqrt(curv / self.ridge[:, None])
            H = s[:, :, None] * self.shards.kernel() * s[:, None, :]
            H += np.eye(H.shape[-1])
        else:
            s = np.ones(())
            H = self.shards.gram(curv.ravel())
            H += self.ridge[:, None, None] * np.eye(H.shape[-1])
        L = np.linalg.inv(np.linalg.cholesky(H))
        if self.dual:
            L = L * s[:, None, :]
        return np.matmul(L.swapaxes(1, 2), L)

    def precondition(self, core: Array, v: Array) -> Array:
        if self.dual:
            inner = self.shards.margins(v).reshape(len(v), -1, 1)
            return (v - self.shards.pull(np.matmul(core, inner).ravel())) / self.ridge[:, None]
        return np.asarray(np.matmul(core, v[:, :, None])[:, :, 0])

    def anchored(self, anchor: Array, cache: Cache) -> tuple[Array, Array]:
        """The gradient of F and the core at the anchor, from the cache where it knows them."""
        ids, known = self.shards.ids.tolist(), cache.parties
        keys = [(a.tobytes(), float(w), float(q)) for a, w, q in zip(anchor, self.weight, self.quadratic, strict=True)]
        new = [i for i, (name, key) in enumerate(zip(ids, keys, strict=True)) if name not in known or known[name].key != key]
        if new:
            part = self.take(np.array(new))
            found = zip(new, part.data_gradient(anchor[new]), part.core(anchor[new]), strict=True)
            known.update({ids[i]: Anchored(keys[i], gradient, core) for i, gradient, core in found})
        gradient = np.stack([known[name].gradient for name in ids])
        return gradient + (self.linear + self.quadratic[:, None] * anchor), np.stack([known[name].core for name in ids])

    def search(self, x: Array, p: Array, first: Array) -> Array:
        """Steps t at which the slope <p, grad F(x + t p)> is at most a tenth of its size at 0, `first` < 0."""
        STATS["searches"] += len(x)
        STATS["passes"] += len(x)
        m, mp, y = self.shards.margins(x), self.shards.margins(p), self.shards.y
        level, bend = np.vecdot(p, self.linear + self.quadratic[:, None] * x), self.quadratic * np.vecdot(p, p)
        low, high, step = np.zeros(len(x)), np.full(len(x), np.inf), np.ones(len(x))
        for _ in range(60):
            pulled = self.shards.sums(self.loss.deriv(m + self.shards.spread(step) * mp, y) * mp)
            slope = self.weight * pulled + level + step * bend
            left = np.abs(slope) > -0.1 * first
            if not left.any():
                break
            low, high = np.where(left & (slope < 0), step, low), np.where(left & ~(slope < 0), step, high)
            step = np.where(left, np.where(np.isfinite(high), (low + high) / 2, 4 * step), step)
        return step

    def solve(self, start: Array, anchor: Array, tolerance: Array, cache: Cache | None) -> tuple[Array, NDArray[np.bool_]]:
        g, core = self.anchored(anchor, Cache() if cache is None else cache)
        x = anchor
        out, solved = x.copy(), np.zeros(len(x), dtype=bool)
        who = np.arange(len(x))
        period = 4 + core.shape[-1] // 10
        pairs: list[Pair] = []
        for k in range(CAP):
            new = x - self.newton(core, pairs, g)
            if k == 0:
                near = np.vecdot(new - start, new - start) < 1e-4 * np.vecdot(new - x, new - x)
                new = np.where(near[:, None], start, new)
            p = new - x
            first = np.vecdot(p, g)
            h = self.gradient(new)
            step = np.ones(len(x))
            bad = ~(np.abs(np.vecdot(p, h)) <= 0.9 * np.abs(first))
            if bad.any():
                i = np.flatnonzero(bad)
                part = self.take(i)
                step[i] = np.where(first[i] < 0, part.search(x[i], p[i], first[i]), 0.0)
                new[i] = x[i] + step[i, None] * p[i]
                h[i] = part.gradient(new[i])
            s, y = new - x, h - g
            sy = np.vecdot(s, y)[:, None]
            pairs.append((s, y, np.divide(1.0, sy, out=np.zeros_like(sy), where=sy > 0)))
            x, g = new, h
            met = np.sqrt(np.vecdot(g, g)) <= tolerance
            if met.any():
                out[who[met]], solved[who[met]] = x[met], True
                left = np.flatnonzero(~met)
                if not len(left):
                    return out, solved
                self, who, x, g, core = self.take(left), who[left], x[left], g[left], core[left]
                tolerance, step = tolerance[left], step[left]
                pairs = [(s[left], y[left], rho[left]) for s, y, rho in pairs]
            if (k + 1) % period == 0:
                STATS["refresh"] += len(x)
                core, pairs = self.core(x), []
            elif ((step < 0.1) | (step > 10)).any():
                i = np.flatnonzero((step < 0.1) | (step > 10))
                STATS["refresh"] += len(i)
                core[i] = self.take(i).core(x[i])
                for _, _, rho in pairs:
                    rho[i] = 0
        return out, solved

    def newton(self, core: Array, pairs: list[Pair], g: Array) -> Array:
        """B_k g by the two-loop recursion."""
        coefficients = []
        for s, y, rho in reversed(pairs):
            c = rho * np.vecdot(s, g)[:, None]
            g = g - c * y
            coefficients.append(c)
        v = self.precondition(core, g)
        for (s, y, rho), c in zip(pairs, reversed(coefficients), strict=True):
            v = v + (c - rho * np.vecdot(y, v)[:, None]) * s
        return v
