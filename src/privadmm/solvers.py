"""Local problems of a block of parties, solved together, each to a checked gradient norm.

    F_p(x) = (scale_p / m_p) sum_n loss(a_n.x; y_n) + <linear_p, x> + (quadratic_p / 2) ||x||^2

Newton's method with the Hessian of a past point, the anchor, corrected by BFGS pairs gathered within the solve:

    x_1     = anchor - B grad F(anchor),   B = (Hessian at the anchor)^-1        no pass over the data: both are cached
    x_k+1   = x_k - B_k grad F(x_k)        B_k = BFGS update of B by the pairs (x_j+1 - x_j, grad_j+1 - grad_j)

A unit step is kept if the slope along it has shrunk; otherwise the step length is a root of the slope, which needs the
records only to find the scores of x_k and of the direction. Where the anchor's Hessian is of no use (steps far from 1, or
slow progress), the party takes the Hessian at its current point and forgets its pairs.

A solve is a pure function of the records and its arguments. The cache holds functions of a party's records and its
anchor, so a worker without one returns the same bits; nothing found in a solve survives it. Every decision is a party's own, so
neither do the bits depend on who else is in the block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.data.shards import Shards
from privadmm.errors import ConfigError, ToleranceError
from privadmm.losses import Loss

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

CAP = 200  # gradients in one solve
CELLS = 1 << 19  # entries of records solved together: few enough to stay in the processor's cache from pass to pass
STATS = {"passes": 0.0, "grams": 0, "searches": 0, "refresh": 0}


@dataclass(frozen=True)
class Entry:
    key: tuple[bytes, float, float]
    gradient: Array
    inverse: Array


@dataclass
class Cache:
    entries: dict[int, Entry] = field(default_factory=dict)


def reanchor(anchor: Array, x: Array, round: int) -> Array:
    return x if round & (round - 1) == 0 or round < 2 else anchor


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
    P = len(shards.ids)
    if not math.isfinite(loss.smoothness):
        raise ConfigError("this loss has no bounded curvature: use a first-order method or a smoothed loss")
    scale_, quadratic_, tolerance_ = (np.broadcast_to(np.asarray(v, float), (P,)) for v in (scale, quadratic, tolerance))
    for name, value in (("scale", scale_), ("linear", linear), ("quadratic", quadratic_), ("start", start)):
        if not np.isfinite(value).all():
            raise ConfigError(f"{name} must be finite")
    if not (quadratic_ > 0).all():
        raise ConfigError("quadratic must be above 0")
    out = np.array(start)
    missed: list[int] = []
    for at, batch in shards.batches(CELLS):
        problem = Problem(batch, loss, scale_[at] / batch.sizes, linear[at], quadratic_[at])
        g, B = problem.at(anchor[at], cache)
        x, done = descend(problem, anchor[at], g, B, tolerance_[at])
        out[at] = x
        missed += [int(i) for i in batch.ids[~done]]
    if missed:
        names = ", ".join(map(str, sorted(missed)))
        raise ToleranceError(f"party {names}: not solved to its tolerance in {CAP} steps")
    return out


def dot(a: Array, b: Array) -> Array:
    return np.asarray(np.vecdot(a, b))


def apply(B: Array, v: Array) -> Array:
    return np.asarray(np.matmul(B, v[..., None])[..., 0])


@dataclass(frozen=True)
class Problem:
    shards: Shards
    loss: Loss
    weight: Array
    linear: Array
    quadratic: Array

    def take(self, parties: Array) -> Problem:
        return Problem(self.shards.take(parties), self.loss, self.weight[parties], self.linear[parties], self.quadratic[parties])

    def data_gradient(self, x: Array) -> Array:
        STATS["passes"] += len(x)
        return self.weight[:, None] * self.shards.pull(self.loss.deriv(self.shards.margins(x), self.shards.y))

    def gradient(self, x: Array) -> Array:
        return self.data_gradient(x) + self.linear + self.quadratic[:, None] * x

    def inverse(self, x: Array) -> Array:
        STATS["grams"] += len(x)
        H = self.weight[:, None, None] * self.shards.gram(self.loss.curv(self.shards.margins(x), self.shards.y))
        H += self.quadratic[:, None, None] * np.eye(self.shards.dim)
        L = np.linalg.inv(np.linalg.cholesky(H))
        return np.matmul(L.swapaxes(1, 2), L)

    def at(self, anchor: Array, cache: Cache | None) -> tuple[Array, Array]:
        entries = {} if cache is None else cache.entries
        keys = [(a.tobytes(), float(w), float(q)) for a, w, q in zip(anchor, self.weight, self.quadratic)]
        ids = [int(i) for i in self.shards.ids]
        fresh = {}
        stale = np.array([i for i, (n, k) in enumerate(zip(ids, keys)) if n not in entries or entries[n].key != k], dtype=int)
        if len(stale):
            part = self.take(stale)
            for i, g, B in zip(stale, part.data_gradient(anchor[stale]), part.inverse(anchor[stale])):
                fresh[ids[i]] = Entry(keys[i], g, B)
        found = [fresh.get(n) or entries[n] for n in ids]
        if cache is not None:
            cache.entries.update(fresh)
        g = np.stack([e.gradient for e in found]) + self.linear + self.quadratic[:, None] * anchor
        return g, np.stack([e.inverse for e in found])


def search(problem: Problem, x: Array, p: Array, low: Array, first: Array) -> Array:
    """Step lengths with |slope| <= |slope(0)| / 10."""
    STATS["searches"] += len(x)
    STATS["passes"] += len(x)
    s, y = problem.shards, problem.shards.y
    m, dm = s.margins(x), s.margins(p)
    b = dot(problem.linear + problem.quadratic[:, None] * x, p)
    c = problem.quadratic * dot(p, p)
    lo, hi = np.zeros(len(x)), np.full(len(x), np.inf)
    flo, fhi = first.copy(), np.zeros(len(x))
    step = np.ones(len(x))
    for i in range(60):
        f = problem.weight * s.sums(problem.loss.deriv(m + s.spread(step) * dm, y) * dm) + b + step * c
        left = np.abs(f) > 0.1 * np.abs(first)
        if not left.any():
            break
        below = left & (f < 0)
        above = left & ~below
        lo, flo = np.where(below, step, lo), np.where(below, f, flo)
        hi, fhi = np.where(above, step, hi), np.where(above, f, fhi)
        with np.errstate(invalid="ignore"):
            inner = lo + (hi - lo) * (np.clip(flo / (flo - fhi), 0.1, 0.9) if i % 2 else 0.5)
        step = np.where(left, np.where(np.isfinite(hi), inner, 4 * lo), step)
    return step


def descend(problem: Problem, x: Array, g: Array, B: Array, tolerance: Array) -> tuple[Array, Mask]:
    k, d = x.shape
    out, done = x.copy(), np.zeros(k, dtype=bool)
    who = np.arange(k)
    pairs: list[tuple[Array, Array, Array]] = []
    norm = np.sqrt(dot(g, g))
    best = norm
    age = np.zeros(k)
    for it in range(CAP):
        # direction
        r, back = g, []
        for s, y, rho in reversed(pairs):
            c = rho * dot(s, r)
            r = r - c[:, None] * y
            back.append(c)
        r = apply(B, r)
        for (s, y, rho), c in zip(pairs, reversed(back), strict=True):
            r = r + (c - rho * dot(y, r))[:, None] * s
        p = -r
        first = dot(p, g)
        x1 = x + p
        g1 = problem.gradient(x1)
        last = dot(p, g1)
        bad = np.flatnonzero(~(np.abs(last) <= 0.9 * np.abs(first)))
        step = np.ones(len(x))
        if len(bad):
            part = problem.take(bad)
            step[bad] = search(part, x[bad], p[bad], last[bad], first[bad])
            x1[bad] = x[bad] + step[bad, None] * p[bad]
            g1[bad] = part.gradient(x1[bad])
        s, y = x1 - x, g1 - g
        sy = dot(s, y)
        pairs.append((s, y, np.where(sy > 0, 1 / np.where(sy > 0, sy, 1), 0.0)))
        x, g = x1, g1
        norm1 = np.sqrt(dot(g, g))
        met = norm1 <= tolerance
        if met.any():
            out[who[met]], done[who[met]] = x[met], True
            left = np.flatnonzero(~met)
            if not len(left):
                return out, done
            problem, who, x, g, B = problem.take(left), who[left], x[left], g[left], B[left]
            tolerance, norm1, norm, step, age = tolerance[left], norm1[left], norm[left], step[left], age[left]
            pairs = [(s[left], y[left], rho[left]) for s, y, rho in pairs]
        age = age + 1
        rate = norm1 / norm
        slow = np.log(norm1 / tolerance) > (4 + d / 10) * np.maximum(-np.log(np.maximum(rate, 1e-300)), 1e-3)
        renew = np.flatnonzero((slow & (age >= 4)) | (step < 0.1) | (step > 10))
        if len(renew):
            STATS["refresh"] += len(renew)
            part = problem.take(renew)
            B = B.copy()
            B[renew] = part.inverse(x[renew])
            for _, _, rho in pairs:
                rho[renew] = 0
            age[renew] = 0
        norm = norm1
    out[who] = x
    return out, done
