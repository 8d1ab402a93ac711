"""A budget in two: one Gaussian release first, with a share f of it, and what that leaves for the rest.

With mu the GDP parameter that a party's (epsilon, delta) buys, the first release has 1/z^2 = f mu^2. What is Gaussian,
continuous or on a grid, then has (1 - f) mu^2 left, exactly. What is counted in Renyi form costs more together with it
than apart, so less is left: the most with which both, counted together, stay within the party's epsilon.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from privadmm.errors import RefusedError
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.calibration import Target, calibrate, scaled
from privadmm.privacy.events import DiscreteGaussian, Gaussian, Spent, merge

UNIT = Gaussian(1.0)


@lru_cache(maxsize=1024)
def worth(total: float, delta: float, unit: Gaussian | DiscreteGaussian = UNIT) -> float:
    """mu of the transcript of noise like `unit` that costs exactly this epsilon."""
    return 1 / calibrate(total, delta, lambda level: ((scaled(unit, level), 1),))


@lru_cache(maxsize=1024)
def remainder(total: float, delta: float, share: float, unit: Gaussian | DiscreteGaussian = UNIT) -> float:
    """The epsilon of such a transcript with 1 - share of that mu squared."""
    rest = worth(total, delta, unit) * math.sqrt(1 - share)
    return epsilon(((scaled(unit, 1 / rest), 1),), delta) * (1 - 1e-9)


def first(target: Target, total: float, share: float) -> Gaussian | DiscreteGaussian:
    """The first release of a party with this epsilon: one, for as many transcripts alike as share the rest."""
    return target.kind(1 / (worth(total, target.delta, target.kind(1.0)) * math.sqrt(share)))


def left_over(
    target: Target,
    totals: Sequence[float],
    share: float,
    spend: Callable[[tuple[float, ...]], list[Spent]],
) -> tuple[float, ...]:
    """What each party's rest may cost: spend(left) is what it costs if calibrated to these."""

    def within(cut: float) -> tuple[float, ...] | None:
        left = tuple(cut * remainder(total, target.delta, share, target.kind(1.0)) for total in totals)
        for spent, total in zip(spend(left), totals, strict=True):
            rest = tuple((event, target.copies * count) for event, count in spent)
            both = merge(rest, ((first(target, total, share), 1),))
            if epsilon(both, target.delta) > total:
                return None
        return left

    if (whole := within(1.0)) is not None:
        return whole
    low, high, best = 0.0, 1.0, None
    for _ in range(24):
        middle = (low + high) / 2 if best else 0.98 * high
        if (found := within(middle)) is not None:
            low, best = middle, found
        else:
            high = middle
    if best is None:
        raise RefusedError("moments leave too little of the budget for the method: lower [features] share")
    return best
