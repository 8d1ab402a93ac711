"""A public map that centres, scales and normalises records, made from privately released moments.

    phi(x) = ( sqrt(1 - b^2) unit(A * (x - M)), b ),    unit(v) = v/|v|, unit(0) = 0                          (1)

For any public M, A and b, |phi| <= 1: every bound on a record's gradient holds for phi as for x. M and A come from
noisy first and second moments m1, m2, whose noise has standard deviation s in every coordinate:

    M = m1 max(0, 1 - d s^2/|m1|^2),   v = max(0, m2 - max(0, M^2 - s^2)),   A = (v + max(3e-4, 1.5 s))^(-1/2)  (2)

The moments (mean x, mean x*x) of m records in the unit ball move together by at most sqrt(4.5)/m when one record is
replaced, and by at most 2/m where entries are declared non-negative (docs/privacy.md#moments).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from privadmm.data.arrays import Floats, Ints
from privadmm.data.storage import chunks
from privadmm.errors import DataError

if TYPE_CHECKING:
    from privadmm.data.shards import Shards

FLOOR = 3e-4  # the least variance that a feature is scaled by, so that a constant feature is not blown up


@dataclass(frozen=True, eq=False)
class Map:
    """The map (1); M and A are (d,)."""

    M: Floats
    A: Floats
    b: float

    def __post_init__(self) -> None:
        if not (np.isfinite(self.M).all() and np.isfinite(self.A).all() and 0 <= self.b < 1):
            raise DataError("a feature map needs finite centres and scales, and an intercept in [0, 1)")

    @property
    def key(self) -> bytes:
        return self.M.tobytes() + self.A.tobytes()

    def __call__(self, x: Any, out: Floats | None = None) -> Floats:
        """Map records (..., d) to (..., d + 1), into `out` if it is given."""
        out = np.empty((*x.shape[:-1], x.shape[-1] + 1)) if out is None else out
        v = out[..., :-1]
        np.subtract(x, self.M, out=v)
        v *= self.A
        # Divide by the largest entry first: squares of large entries would overflow, and of small ones vanish.
        largest = np.abs(v).max(axis=-1, keepdims=True, initial=0.0)
        v /= np.where(largest > 0, largest, 1.0)
        # Round up by what the sum of squares may have lost, so that no row ends a hair outside the unit ball.
        length = np.sqrt((v * v).sum(axis=-1, keepdims=True)) * (1 + (x.shape[-1] + 8) * 2.0**-52)
        v *= math.sqrt(1 - self.b**2) / np.where(length > 0, length, 1.0)
        out[..., -1] = self.b
        return out


# Records seen through a map, by their block and by the map. An entry goes when nobody uses its records any more.
_SEEN: "WeakKeyDictionary[Shards, WeakValueDictionary[tuple[bytes, float], Shards]]" = WeakKeyDictionary()


def through(shards: "Shards", map: Map) -> "Shards":
    """The records as `map` shows them. All who use one map on the same records share one copy."""
    held = _SEEN.setdefault(shards, WeakValueDictionary())
    mapped = held.get((map.key, map.b))
    if mapped is None:
        mapped = held[map.key, map.b] = shards.mapped([map] * len(shards.ids), shards.dim + 1)
    return mapped


def moments(shards: "Shards", nonnegative: bool) -> Floats:
    """(P, 2 d): each party's mean of x and of x*x. If entries are declared non-negative, others count as 0."""
    sums = np.zeros((len(shards.ids), 2, shards.dim))
    for slot in shards.slots:
        for i, party in zip(slot.positions, slot.piece.parties(), strict=True):
            for _, rows in chunks(party):  # cut at fixed places: the sum has the same bits however records are stored
                x = np.maximum(rows, 0.0) if nonnegative else rows
                sums[i] += x.sum(axis=0), (x * x).sum(axis=0)
    return (sums / shards.sizes[:, None, None]).reshape(len(shards.ids), -1)


def moments_sensitivity(sizes: Ints, nonnegative: bool) -> Floats:
    """(P, 1): sqrt(4.5)/m, or 2/m if non-negative, plus twice the rounding of the two sums."""
    bound = 2.0 if nonnegative else math.sqrt(4.5)
    return (bound / sizes + 2.0**-49 * math.sqrt(2) * sizes)[:, None]


def map_of(moments: Floats, s: Floats | float, b: float) -> Map:
    """Apply (2) to noisy moments (2 d,), whose noise has standard deviation s."""
    d = moments.shape[-1] // 2
    m1, m2 = moments[:d], moments[d:]
    size = float(m1 @ m1)
    M = m1 * max(0.0, 1 - d * float(s) ** 2 / size) if size > 0 else np.zeros(d)
    v = np.maximum(0.0, m2 - np.maximum(0.0, M**2 - float(s) ** 2))
    return Map(M, 1 / np.sqrt(v + max(FLOOR, 1.5 * float(s))), b)
