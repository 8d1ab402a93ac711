"""What a party phase may read besides its state and inbox: the block's records, or its columns, and the public facts.

`Local` is a block of parties that hold records, `Vertical` one of parties that hold columns about the same people. The
public facts of the latter are those of the messages: dim is the number N of people, and so is every party's size.
Their labels are at the coordinator.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from privadmm.data.arrays import Floats, Ints
from privadmm.data.columns import Columns
from privadmm.data.moments_map import Map, through
from privadmm.data.shards import Shards
from privadmm.engine.public import Public
from privadmm.errors import RefusedError
from privadmm.optim import ridge
from privadmm.optim.solvers import CELLS, Cache, argmin
from privadmm.privacy import ridge_sensitivity
from privadmm.privacy.calibration import Target
from privadmm.privacy.release import Door, Released

WIDTH = 128  # the most replicas that are solved together: with more, a matrix product is hardly faster
ROOM = 32 * CELLS  # numbers in the scores or in the Hessians of replicas that are solved together
PATIENCE = 1e4  # up to this condition a simulation without limits, too, uses the solver that cannot fail


@dataclass(frozen=True)
class Local:
    """What a party phase may read besides its state and inbox: the block's records and the public facts.

    `kept` has what the block drew once for this job (`draws` of a phase). Like the records, it never leaves.
    """

    public: Public
    shards: Shards
    cache: Cache = field(default_factory=Cache, compare=False)
    kept: Mapping[str, Floats] = field(default_factory=dict)
    certain: bool = False  # the job's parameters are within limits: no solve may fail, however long it takes

    @property
    def ids(self) -> Ints:
        return self.shards.ids

    @cached_property
    def weight(self) -> Floats:
        """C omega_i / m_i, the weight of one record, as a column."""
        return self.public.scale(self.ids) / self.shards.sizes[:, None]

    @cached_property
    def moves(self) -> Floats:
        """How far `gradient` can move between neighbours, as a column."""
        return self.public.moves(self.ids)

    @cached_property
    def summation(self) -> Floats:
        """A bound on the rounding error of `gradient`'s sum over records."""
        return self.public.summation(self.ids)

    def zeros(self) -> Floats:
        return self.public.zeros(len(self.ids))

    def gradient(self, x: Floats) -> Floats:
        """The gradient of the weighted losses, C omega_i/m_i sum_n loss'(a_n.x_i) a_n, without the regulariser."""
        total = self.shards.slope(x, self.public.loss.deriv)
        total *= self.weight
        return total

    def argmin(
        self,
        linear: Floats,
        quadratic: Floats | float,
        start: Floats,
        anchor: Floats,
        tolerance: float,
        planned: "Exactness | None" = None,
    ) -> Floats:
        """The argmin of C omega_i/m_i sum_n loss(a_n.x) + <linear_i, x> + quadratic_i/2 |x|^2 for every party.

        `exactness` says how exactly it is solved. If linear_i has noise in it, the caller passes the one `planned` for
        any noise up to a public bound, so that the exactness does not depend on the noise that was drawn.
        """
        shards, loss, P = self.shards, self.public.loss, len(self.ids)
        scale, k = self.public.scale(self.ids)[:, 0], np.broadcast_to(np.ravel(quadratic), P)
        tau, reach = np.full(P, tolerance), None
        if isinstance(self.public.privacy, Target):
            planned = planned or self.exactness(linear, k[:, None], tolerance)
            tau = planned.tau[:, 0]
            if self.certain or planned.condition <= PATIENCE:
                reach = planned.reach[:, 0]
        flat = [np.broadcast_to(a, start.shape).reshape(-1, *start.shape[-2:]) for a in (linear, start, anchor)]
        # Replicas are right-hand sides of one pass over the records, as many as there is room for.
        room = max(shards.size, self.hessians)
        most, solved = max(1, CELLS // max(1, shards.cells), min(WIDTH, ROOM // room)), []
        for first in range(0, len(flat[0]), most):
            group = [part[first : first + most] for part in flat]
            n, cache = len(group[0]), self.cache.branch(first) if self.roomy else None
            b, x, a = (part.swapaxes(0, 1).reshape(-1, shards.dim) for part in group)
            far = None if reach is None else np.repeat(reach, n)
            many = (np.repeat(scale, n), b, np.repeat(k, n), x, a, np.repeat(tau, n), cache, far)
            solved.append(argmin(shards.repeat(n), loss, *many).reshape(P, n, -1).swapaxes(0, 1))
        return np.concatenate(solved).reshape(start.shape)

    @property
    def roomy(self) -> bool:
        """Whether there is memory for the matrices that solves keep, which may be as large as a party's records."""
        store = self.shards.store
        return store.limit is None or store.held + 16 * self.hessians <= store.limit

    @cached_property
    def hessians(self) -> int:
        """How many numbers are in one Hessian of each party, in the smaller of its two forms."""
        order = np.minimum(self.shards.sizes, self.shards.dim)
        return int((order * order).sum())

    def take(self, at: Ints) -> "Local":
        """The parties at these positions as a block of their own, with an empty cache."""
        kept = {name: drawn[..., at, :] for name, drawn in self.kept.items()}
        return Local(self.public, self.shards.take(at), kept=kept, certain=self.certain)

    def through(self, map: Map) -> "Local":
        """The block with its records seen through a public map. The result of the last map is cached."""
        if self.cache.seen.get("map") != map.key:
            public, shards = replace(self.public, dim=self.public.dim + 1, replicas=None), through(self.shards, map)
            self.cache.seen.update(map=map.key, local=replace(self, public=public, shards=shards, cache=Cache()))
        mapped: Local = self.cache.seen["local"]
        return mapped

    def exactness(self, linear: Floats, k: Floats, tolerance: float, noise: Floats | float = 0.0) -> "Exactness":
        """How exactly `argmin` solves, from public facts, for linear terms of norms up to that of linear + noise.

        A gradient is rounded in its sum over records, in its scores (by |x| times the curvature), in its public terms.
        Started at 0, no iterate is longer than 2/k times the bound on the gradient at 0 (docs/privacy.md#worst-case).
        """
        scale, loss = self.public.scale(self.ids), self.public.loss
        reach = scale * (loss.lipschitz if math.isfinite(loss.lipschitz) else loss.smoothness)
        reach = reach + largest(linear) + np.reshape(noise, (-1, 1)) + tolerance
        bend = scale * loss.smoothness / k
        error = self.summation + 2.0**-49 * (bend * self.public.dim + 4) * reach
        tau = np.maximum(tolerance, 4 * error)
        return Exactness(tau, tau + error, reach, 1 + float(np.max(bend)))

    def moved(self, error: Floats) -> Floats:
        """How far a gradient that is off by up to `error` can move between neighbours, as a column."""
        return self.public.moved(self.ids, error)

    def perturbed(
        self,
        release: Door,
        linear: Floats,
        k: Floats,
        start: Floats,
        anchor: Floats,
        tolerance: float,
    ) -> Released:
        """The argmin of the losses + <linear + C omega_i/m_i b, x> + k/2 |x|^2, noise b: docs/privacy.md#objective."""
        weight = self.weight

        def planned(reach: Floats) -> Exactness:
            return self.exactness(linear, k, tolerance, weight[:, 0] * reach)

        return release.objective(
            lambda b, reach: self.argmin(linear + weight * b, k, start, anchor, tolerance, planned(reach)),
            start,
            sensitivity=self.public.sensitivity,
            w=weight * self.public.curvature / k,
            weight=weight,
            k=k,
            error=lambda reach: planned(reach).left,
        )


@dataclass(frozen=True)
class Exactness:
    """How exactly the parties of a block solve their local problems: one number a party, as columns (P, 1)."""

    tau: Floats  # the gradient norm, as computed, at which a solve ends
    left: Floats  # a bound on the true gradient norm there
    reach: Floats  # a bound on the gradient norm at 0
    condition: float  # of the worst problem: all curvature over the curvature that is not data's


def largest(*terms: Floats) -> Floats:
    """The sum of the l2 norms of these public terms, a column (P, 1); the largest of all replicas."""
    size: Floats = sum((np.linalg.norm(term, axis=-1, keepdims=True) for term in terms), np.zeros((1, 1)))
    return np.asarray(size.reshape(-1, *size.shape[-2:]).max(axis=0))


def rounding(*terms: Floats) -> Floats:
    """A bound on the l2 rounding error of a sum of these public terms, a column (P, 1)."""
    return 2.0**-50 * largest(*terms)


@dataclass(frozen=True)
class Vertical:
    """The view of a block whose parties hold columns. Targets are (..., P, N), weights a list of (R, d_m)."""

    public: Public
    columns: Columns
    kept: Mapping[str, Floats] = field(default_factory=dict)
    certain: bool = False

    @property
    def ids(self) -> Ints:
        return self.columns.ids

    def take(self, at: Ints) -> "Vertical":
        """The parties at these positions as a block of their own."""
        kept = {name: drawn[..., at, :] for name, drawn in self.kept.items()}
        return Vertical(self.public, self.columns.take(at), kept, self.certain)

    def fits(self, target: Floats, mu: float, ball: float | None, l1: float = 0.0) -> tuple[list[Floats], Floats]:
        """Every party's argmin of mu/2 |x|^2 + l1 |x|_1 + 1/2 |D_m x - t_m|^2, within the ball if there is one.

        Returns the weights x, and the scores D_m x, of the shape of the target.
        """
        fits, scores = list[Floats](), np.empty(target.shape)
        for party, (D, t, into) in enumerate(zip(self.columns.features, stacks(target), stacks(scores), strict=True)):
            if l1:
                x = ridge.lasso(D, t, mu, l1)
                into[:] = D.scores(x)
            else:
                x, into[:] = ridge.fit(D, t, mu, ball, self.columns.frobenius(party), self.certain)
            fits.append(x)
        return fits, scores

    def moves(self, target: Floats, mu: float, ball: float | None, q: float | None) -> tuple[Floats, Floats]:
        """How far the job's neighbours move the scores and the weights of each party's fit, two columns (P, 1)."""
        bound, adjacency = self.columns.column_bound, self.public.privacy.adjacency
        if adjacency is None:
            return np.ones((len(self.ids), 1)), np.ones((len(self.ids), 1))  # without noise they are not used
        prepared = bound is None if adjacency == "person" else bound is not None and q is not None and bound <= q
        if not prepared:
            raise RefusedError(
                f'the data were not prepared for adjacency = "{adjacency}": rows are to be clipped to the unit ball '
                "for a person, and columns scaled down to column_bound for a column. Nothing was released"
            )
        moved = [
            ridge_sensitivity.moves(adjacency, t, D.width, mu, ball, q, self.columns.frobenius(party))
            for party, (D, t) in enumerate(zip(self.columns.features, stacks(target), strict=True))
        ]
        scores, weights = np.array(moved).T[..., None]
        return scores, weights

    def scores(self, x: Sequence[Floats], rows: tuple[int, ...]) -> Floats:
        """D_m x_m, (*rows, N)."""
        scores = [D.scores(weights) for D, weights in zip(self.columns.features, x, strict=True)]
        return np.stack(scores, axis=1).reshape(*rows, -1)

    def possible(self, u: Floats, ball: float | None) -> Floats:
        """Cut released scores to what scores can be, which costs nothing: rows in the unit ball give |u| <= b."""
        if ball is None or self.columns.column_bound is not None:
            return u
        return np.clip(u, -ball, ball)

    def padded(self, x: Sequence[Floats], rows: tuple[int, ...]) -> Floats:
        """The weights, filled up with zeros to the width of the widest party, (*rows, widest)."""
        widest = max(self.public.columns)
        filled = [np.pad(weights, ((0, 0), (0, widest - weights.shape[1]))) for weights in x]
        return np.stack(filled, axis=1).reshape(*rows, -1)

    def cut(self, w: Floats) -> list[Floats]:
        """Each party's own weights out of `padded` ones."""
        return [part[:, : D.width] for part, D in zip(stacks(w), self.columns.features, strict=True)]

    def pull(self, g: Floats) -> list[Floats]:
        """D_m^T g of every party, for one g (..., 1, N) that all of them hear."""
        return [D.pull(g.reshape(-1, g.shape[-1])) for D in self.columns.features]


def stacks(target: Floats) -> Floats:
    """The stack of every party: (..., P, N) -> (P, R, N)"""
    return np.moveaxis(target.reshape(-1, *target.shape[-2:]), 1, 0)
