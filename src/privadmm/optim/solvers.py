"""Solve the local problems of a block of parties together, each to a checked gradient norm.

    F_p(x) = (scale_p / m_p) sum_n loss(a_n.x; y_n) + <linear_p, x> + (quadratic_p / 2) |x|^2

Newton's method with the Hessian of a past point, the anchor a, corrected by BFGS from there through the start x_0:

    x_{k+1} = x_k - B_k grad F(x_k),   B_k = (Hessian of F at a)^-1, updated by the pairs                  (1)
                                       (x_0 - a, grad_0 - grad F(a)), (x_{j+1} - x_j, grad_{j+1} - grad_j)

The first step reads no records if the loss gradients at a and x_0 and the Hessian at a are cached, as they are when the
last solve ended at x_0. Each further step costs one gradient, and the last gradient is the check. A unit step is taken
if it shrinks the slope along it; otherwise the step length is a root of the slope, found from the scores of x_k and of
the direction alone. A Hessian costs about min(m, d)/10 gradients. A party that has spent that many, or whose step was
far from 1, takes the Hessian at its current point and forgets its pairs.

If (1) misses the tolerance, and the caller gives G, a method follows that cannot fail. F is k-strongly convex and
M-smooth, k = quadratic and M = smoothness scale + k, so each gradient step shrinks F - min F by a known factor. This
bounds the number of steps to a tolerance above the rounding of a gradient (docs/privacy.md#worst-case):

    x_{j+1} = x_j - grad F(x_j)/M,   at most (4/3) M/k ln(M/k (G/(3/4 tolerance))^2) times, G >= |grad F(0)|      (2)

A solve is a pure function of the records and its arguments: what the cache holds could be computed again from them, so
a worker without a cache returns the same bits. A solve in which a party starts at its anchor does not cache where it
ended. Every decision is a party's own, so the bits do not depend on who else is in the block either. Replicas of a
party share products with its records: how these are rounded depends on which of its replicas are not solved yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.data.shards import Shards
from privadmm.data.threads import spread
from privadmm.errors import ConfigError, ToleranceError
from privadmm.optim.losses import Loss

Pair = tuple[Floats, Floats, Floats]  # s and y (k, d), and 1/<s, y> (k, 1), or 0 where the pair does not count
Hessian = tuple[Floats, Floats | None]  # see Problem.hessian

CAP = 500  # gradients in one solve
FEW = 1 << 18  # stored numbers of solved parties: fewer are read again in vain, since leaving them out costs more
LEAST = 1 << 16  # the same of replicas that share their records, which costs less to leave out
PASSES = 8  # over the records in a solve, or more: what it is worth to use several threads
CELLS = 1 << 20  # stored numbers of the parties solved together: few enough for the processor's cache


def reanchor(anchor: Floats, x: Floats, round: int) -> Floats:
    """The anchor of this round: x in rounds 0, 1, 4, 16, 64, ..., and otherwise the old anchor.

    x is a party's last released iterate or, better where releases are noisy, an average of several parties'. The rule
    depends on the round alone. Without noise the iterates settle, so Hessians may become rare. With fresh noise no past
    iterate is closer than another, and a rule by distance would refresh for nothing.
    """
    return x if round == 0 or round == 4 ** (round.bit_length() // 2) else anchor


@dataclass(frozen=True, eq=False)
class Anchored:
    """Cached at parties' anchors: gradient and Hessian of the losses, and the inverse of F's Hessian."""

    key: tuple[Loss, bool, bytes, bytes, bytes]  # loss, form, anchors, weights, precision
    gradient: Floats
    hessian: Hessian | None  # from which `core` follows for another ridge; kept if small beside the records
    ridge: bytes
    core: Floats


@dataclass(frozen=True, eq=False)
class Ended:
    """Cached where parties ended: the gradient of the losses, for a solve that starts there."""

    key: tuple[Loss, bytes, bytes]  # loss, points, weights
    gradient: Floats


Kept = tuple[Anchored, Ended | None]


@dataclass(frozen=True, eq=False)
class Cache:
    """What a block's parties keep from one solve to the next. It never leaves the block."""

    batches: dict[bytes, Kept] = field(default_factory=dict)  # by the ids of a batch's parties
    replicas: dict[int, Cache] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)  # the records through the last public map

    def branch(self, replica: int) -> Cache:
        """The cache of one replica: each has its own anchors, and would evict the others'."""
        return self.replicas.setdefault(replica, Cache())


def argmin(
    shards: Shards,
    loss: Loss,
    scale: ArrayLike,
    linear: Floats,
    quadratic: ArrayLike,
    start: Floats,
    anchor: Floats,
    tolerance: ArrayLike,
    cache: Cache | None = None,
    reach: ArrayLike | None = None,
) -> Floats:
    """The minimisers x (P, d) of F, each with |grad F_p(x_p)| <= tolerance_p as computed, or a ToleranceError.

    scale, quadratic > 0 and tolerance are (P,) or one number; linear, start and anchor are (P, d). `reach` bounds
    |grad F_p(0)|: with it, and a tolerance of four times the rounding of a gradient, there is no ToleranceError.
    """
    P, d = len(shards.ids), shards.dim
    if not math.isfinite(loss.smoothness):
        raise ConfigError("an exact local solve needs bounded curvature, which the hinge lacks; try huber_hinge")
    C, q, tau = (np.broadcast_to(np.asarray(v, float), P) for v in (scale, quadratic, tolerance))
    for name, value in {"scale": C, "quadratic": q, "tolerance": tau}.items():
        if not (np.isfinite(value).all() and (value > 0).all()):
            raise ConfigError(f"{name} must be finite and above 0 for every party")
    for name, value in {"linear": linear, "start": start, "anchor": anchor}.items():
        if value.shape != (P, d) or not np.isfinite(value).all():
            raise ConfigError(f"{name} must be finite, with one row of {d} numbers for each of {P} parties")
    apart = bool((start != anchor).any(axis=1).all())
    kept, most = {} if cache is None else cache.batches, CELLS
    x, missed, seen, threads = np.empty((P, d)), list[tuple[int, float]](), dict[bytes, Kept](), shards.hands(PASSES)
    # Who is left out of a product decides how it is rounded for a party's other replicas. A party that leaves some of
    # them out (`descend`) has LEAST numbers at least, and is alone.
    if shards.replicated:
        most = LEAST
    elif threads > 1:
        most = min(CELLS, -(-shards.cells // threads))
    # Where the loss can outweigh the quadratic a million times, the dual form would lose all its digits.
    dual = (shards.sizes < d) & (loss.smoothness * C <= 1e6 * q)

    def solve(batch: tuple[Ints, Shards, bool]) -> None:
        i, own, form = batch
        problem, who = Problem.of(own, loss, C[i], linear[i], q[i], form), own.ids.tobytes()
        old = kept.pop(who, (None, None))
        known = problem.anchored(anchor[i], old[0])
        first = problem.slope(start[i], anchor[i], known, old[1])
        x[i], end, solved = descend(problem, start[i], first, anchor[i], tau[i], known)
        if reach is not None and not solved.all():
            j, bound = np.flatnonzero(~solved), np.broadcast_to(np.asarray(reach, float), P)
            x[i[j]], end[j] = slowly(problem.take(j), x[i[j]], tau[i[j]], bound[i[j]])
            solved[:] = True
        missed.extend(zip(own.ids[~solved].tolist(), tau[i[~solved]].tolist(), strict=True))
        if cache is not None:
            seen[who] = known, Ended(problem.key(x[i]), end) if apart and solved.all() else None

    for form in (True, False):
        part = np.flatnonzero(dual == form)
        if len(part):
            cut = shards.take(part).batches(most, alike=form)
            spread(solve, ((part[at], batch, form) for at, batch in cut), min(threads, len(part)))
    if cache is not None:
        cache.batches.clear()
        cache.batches.update(seen)
    if missed:
        names = ", ".join(f"party {name} ({tolerance:g})" for name, tolerance in sorted(missed)[:5])
        raise ToleranceError(
            f"{names}{', ...' if len(missed) > 5 else ''}: gradient norm above the tolerance after {CAP} steps; "
            f"{len(missed)} of {P} parties; allow a larger tolerance, or add strong convexity"
        )
    return x


@dataclass(frozen=True, eq=False)
class Problem:
    """F for k parties. In Hessians `ridge` replaces the quadratic, so that they are invertible."""

    shards: Shards
    loss: Loss
    weight: Floats  # (k, 1), of one record: scale / m
    linear: Floats  # (k, d)
    quadratic: Floats  # (k, 1)
    ridge: Floats  # (k, 1)
    dual: bool  # all k parties have m < d records, and the Hessian is inverted in the space of records

    @classmethod
    def of(cls, shards: Shards, loss: Loss, scale: Floats, linear: Floats, quadratic: Floats, dual: bool) -> Problem:
        scale, quadratic = scale[:, None], quadratic[:, None]
        ridge = np.maximum(quadratic, 1e-13 * loss.smoothness * scale)
        return cls(shards, loss, scale / shards.sizes[:, None], linear, quadratic, ridge, dual)

    def take(self, parties: Ints) -> Problem:
        if len(parties) == len(self.weight):
            return self
        weight, linear, quadratic, ridge = (a[parties] for a in (self.weight, self.linear, self.quadratic, self.ridge))
        return Problem(self.shards.take(parties), self.loss, weight, linear, quadratic, ridge, self.dual)

    def loss_gradient(self, x: Floats) -> Floats:
        return self.weight * self.shards.slope(x, self.loss.deriv)

    def key(self, x: Floats) -> tuple[Loss, bytes, bytes]:
        return self.loss, x.tobytes(), self.weight.tobytes()

    def slope(self, start: Floats, anchor: Floats, known: Anchored, ended: Ended | None) -> Floats:
        """The gradient of the losses at `start`."""
        if ended is not None and ended.key == self.key(start):
            return ended.gradient
        return known.gradient if np.array_equal(start, anchor) else self.loss_gradient(start)

    def whole(self, x: Floats, gradient: Floats) -> Floats:
        """The gradient of F at x, given that of the losses."""
        return gradient + (self.linear + self.quadratic * x)

    def hessian(self, x: Floats) -> Hessian:
        """A^T w A (d x d) with w = weight * curvature at x; if dual, r A A^T r (m x m) and r = sqrt(w)."""
        curv = self.loss.curv(self.shards.margins(x), self.shards.y)
        if self.dual:
            r = np.sqrt(self.weight * curv.reshape(len(x), -1))
            return r[:, :, None] * self.shards.kernel() * r[:, None, :], r
        return self.weight[:, :, None] * self.shards.gram(curv, self.coarse), None

    @property
    def coarse(self) -> NDArray[np.bool_]:
        """Whose Hessian may be summed in single precision: its error, at most 1.2e-4 smoothness scale (`gram`), is then
        an eighth of the ridge."""
        scale = self.weight[:, 0] * self.shards.sizes
        return np.asarray(self.loss.smoothness * scale <= 1e3 * self.ridge[:, 0])

    def core(self, H: Floats, r: Floats | None) -> Floats:
        """The matrix C of `precondition`: (A^T w A + ridge)^-1 = C, or (I - A^T C A) / ridge if dual."""
        C = inverses(H + self.ridge[:, :, None] * np.eye(H.shape[-1]))
        return np.asarray(C if r is None else r[:, :, None] * C * r[:, None, :])

    def precondition(self, core: Floats, v: Floats) -> Floats:
        if self.dual:
            inner = np.matmul(core, self.shards.margins(v).reshape(len(v), -1, 1))
            return (v - self.shards.pull(inner.ravel())) / self.ridge
        return np.asarray(np.matmul(core, v[:, :, None])[:, :, 0])

    def newton(self, core: Floats, pairs: list[Pair], g: Floats) -> Floats:
        """B_k g, by the two-loop recursion over the pairs."""
        back = []
        for s, y, rho in reversed(pairs):
            c = rho * np.vecdot(s, g)[:, None]
            g = g - c * y
            back.append(c)
        v = self.precondition(core, g)
        for (s, y, rho), c in zip(pairs, reversed(back), strict=True):
            v = v + (c - rho * np.vecdot(y, v)[:, None]) * s
        return v

    def anchored(self, anchor: Floats, known: Anchored | None) -> Anchored:
        """What is cached for this anchor, completed by what is not."""
        seen, ridge = (anchor.tobytes(), self.weight.tobytes(), self.coarse.tobytes()), self.ridge.tobytes()
        key = (self.loss, self.dual, *seen)
        if known is None or known.key != key or (known.ridge != ridge and known.hessian is None):
            known = Anchored(key, self.loss_gradient(anchor), self.hessian(anchor), b"", np.empty(0))
        if known.hessian is not None and known.ridge != ridge:
            small = 8 * known.hessian[0].size <= self.shards.size * self.shards.dim
            core = self.core(*known.hessian)
            known = Anchored(key, known.gradient, known.hessian if small else None, ridge, core)
        return known

    def search(self, x: Floats, p: Floats, first: Floats) -> Floats:
        """Steps t > 0 where the slope <p, grad F(x + t p)> has at most a tenth of the size of `first`, its value at 0.

        The slope increases in t: t grows by 4 until the slope is positive, then the bracket is halved.
        """
        m, mp = self.shards.margins(x), self.shards.margins(p)
        level = np.vecdot(p, self.linear + self.quadratic * x)
        bend = self.quadratic[:, 0] * np.vecdot(p, p)
        low, high, step = np.zeros(len(x)), np.full(len(x), np.inf), np.ones(len(x))
        for _ in range(60):
            along = self.loss.deriv(m + self.shards.spread(step) * mp, self.shards.y) * mp
            slope = self.weight[:, 0] * self.shards.sums(along) + level + step * bend
            left = np.abs(slope) > -0.1 * first
            if not left.any():
                break
            low, high = np.where(left & (slope < 0), step, low), np.where(left & ~(slope < 0), step, high)
            step = np.where(left, np.where(np.isfinite(high), (low + high) / 2, 4 * step), step)
        return step

    def advance(self, x: Floats, g: Floats, p: Floats) -> tuple[Floats, Floats, Floats, Ints]:
        """Go from x, where F has gradient g, along p. Returns the new point, the gradients of the losses and of F, and
        the parties whose step was far from 1."""
        new = x + p
        f = self.loss_gradient(new)
        h, first = self.whole(new, f), np.vecdot(p, g)
        i = np.flatnonzero(~(np.abs(np.vecdot(p, h)) <= -0.9 * first))  # also where a number is not finite
        if not len(i):
            return new, f, h, i
        part, step = self.take(i), np.ones(len(x))
        step[i] = np.where(first[i] < 0, part.search(x[i], p[i], first[i]), 0.0)
        new[i] = x[i] + step[i, None] * p[i]
        f[i] = part.loss_gradient(new[i])
        return new, f, self.whole(new, f), np.flatnonzero((step < 0.1) | (step > 10))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def descend(
    problem: Problem, start: Floats, first: Floats, anchor: Floats, tolerance: Floats, known: Anchored
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Run (1) until every party has met its tolerance or made CAP steps. `first` is the loss gradient at the start.

    Returns the points, the loss gradients there, and who met the tolerance; for the others, the last point.
    """
    x, f, core, g = start, first, known.core, problem.whole(start, first)
    out, end, solved = np.empty_like(x), np.empty_like(x), np.zeros(len(x), dtype=bool)
    who: Ints = np.arange(len(x))
    pairs = [pair(start - anchor, g - problem.whole(anchor, known.gradient))]
    period, few = 4 + core.shape[-1] // 10, LEAST if problem.shards.replicated else FEW
    for k in range(CAP + 1):
        met = np.sqrt(np.vecdot(g, g)) <= tolerance
        if met.any():
            fresh = met & ~solved[who]
            out[who[fresh]], end[who[fresh]], solved[who[fresh]] = x[fresh], f[fresh], True
            left = np.flatnonzero(~met)
            if not len(left):
                break
            if problem.shards.cells * (len(met) - len(left)) >= few * len(met):
                problem, who, tolerance = problem.take(left), who[left], tolerance[left]
                x, g, core = x[left], g[left], core[left]
                pairs = [(s[left], y[left], rho[left]) for s, y, rho in pairs]
            else:
                g = np.where(met[:, None], 0.0, g)  # a solved party takes no step
        new, f, h, far = problem.advance(x, g, problem.newton(core, pairs, -g))
        pairs.append(pair(new - x, h - g))
        x, g = new, h
        if (k + 1) % period == 0:
            core, pairs = problem.core(*problem.hessian(x)), []
        elif len(far):
            part, core = problem.take(far), core.copy()
            core[far] = part.core(*part.hessian(x[far]))
            for _, _, rho in pairs:
                rho[far] = 0.0
    else:
        last = ~solved[who]
        out[who[last]] = x[last]
    return out, end, solved


@np.errstate(over="ignore", invalid="ignore")
def slowly(problem: Problem, start: Floats, tolerance: Floats, reach: Floats) -> tuple[Floats, Floats]:
    """Run (2) party by party: the points and the loss gradients there.

    A party begins at `start` if the gradient there is at most `reach`, and at 0 otherwise. After the last step it
    returns the point unchecked: the proof says that its gradient is short enough.
    """
    points, slopes = np.empty_like(start), np.empty_like(start)
    smooth = problem.loss.smoothness * problem.weight[:, 0] * problem.shards.sizes + problem.quadratic[:, 0]
    for i, (tau, G, M) in enumerate(zip(tolerance, reach, smooth, strict=True)):
        own, x = problem.take(np.array([i])), start[i : i + 1]
        f = own.loss_gradient(x)
        if not np.linalg.norm(own.whole(x, f)) <= G:  # also where it is not a number
            x = np.zeros_like(x)
            f = own.loss_gradient(x)
        for _ in range(worst_case(float(M / own.quadratic[0, 0]), float(G / tau))):
            g = own.whole(x, f)
            if np.linalg.norm(g) <= tau:
                break
            x = x - g / M
            f = own.loss_gradient(x)
        points[i], slopes[i] = x[0], f[0]
    return points, slopes


def worst_case(condition: float, far: float) -> int:
    """The most steps that (2) takes where M/k is `condition` and G/tolerance is `far`."""
    return math.ceil(4 / 3 * condition * max(1.0, math.log(condition) + 2 * math.log(max(1.0, far / 0.75))))


def inverses(A: Floats) -> Floats:
    """Invert a stack of matrices; a singular one becomes 0, so that its steps lead nowhere and (2) takes over."""
    new = np.append(True, (A[1:] != A[:-1]).any(axis=(1, 2)))
    if not new.all():  # replicas begin at the same point
        return np.asarray(inverses(A[new])[np.cumsum(new) - 1])
    try:
        return np.asarray(np.linalg.inv(A))
    except np.linalg.LinAlgError:
        if len(A) == 1:
            return np.zeros_like(A)
        return np.concatenate([inverses(matrix[None]) for matrix in A])


def pair(s: Floats, y: Floats) -> Pair:
    """A pair of (1), which counts only if <s, y> is positive."""
    sy = np.vecdot(s, y)[:, None]
    return s, y, np.where(sy > 0, 1 / sy, 0.0)
