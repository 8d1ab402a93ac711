"""The proximal map of a scalar loss, the step at the labels in methods that split features.

    z = argmin loss(z; y) + k/2 (z - v)^2                                                              (1)

is the root of h(z) = loss'(z; y) + k (z - v), which grows. With a = v - loss'(v)/k the root lies between v and a:
loss' grows too, so that h(a) = loss'(a) - loss'(v) has the other sign than h(v) = loss'(v), or is 0. Newton's method
alone diverges where k is small. Here a step that leaves the bracket, or is more than half of the one before, gives way
to halving the bracket. Should CAP steps not be enough, the last point is in the bracket all the same. A loss without a
second derivative is met by the lines on either side of its corner.
"""

import math

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.optim.losses import Loss
from privadmm.params import check_positive

CAP = 400  # steps; they halve, or the bracket does


def prox(loss: Loss, v: Floats, y: Floats, k: float) -> Floats:
    """(1), elementwise, to the last few bits of z. The loss must be convex."""
    check_positive(k=k)
    v, y = np.broadcast_arrays(np.asarray(v, dtype=np.float64), y)
    smooth = math.isfinite(loss.smoothness)
    a = v - loss.deriv(v, y) / k
    low, high = np.minimum(v, a).ravel(), np.maximum(v, a).ravel()
    z, before = low + (high - low) / 2, high - low
    found, left = np.empty(z.size), np.arange(z.size)
    for _ in range(CAP):
        c, sign = v.ravel()[left], y.ravel()[left]
        h = loss.deriv(z, sign) + k * (z - c)
        low, high = np.where(h <= 0, z, low), np.where(h >= 0, z, high)
        newton = -h / (k + loss.curv(z, sign) if smooth else k)
        good = (z + newton > low) & (z + newton < high) & (2 * np.abs(newton) <= np.abs(before))
        before = np.where(good, newton, low + (high - low) / 2 - z)
        z = z + before
        rest = np.abs(before) > 2 * np.spacing(np.maximum(np.abs(z), np.abs(c)))  # z - v is known no better
        found[left] = z
        if not rest.any():
            return found.reshape(v.shape)
        if not rest.all():
            left, z, before, low, high = left[rest], z[rest], before[rest], low[rest], high[rest]
    return found.reshape(v.shape)
