"""What methods that release one noisy query a round share: their plan, and the release of an argmin."""

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.engine.sums import gradients, uneven
from privadmm.privacy.accounting import Plan
from privadmm.privacy.calibration import NoPrivacy, fit
from privadmm.privacy.release import Door, Released
from privadmm.privacy.sums import evened


def output_plan(public: Public, ratios: Floats | float | None = None) -> Plan:
    """One Gaussian release a round: from the target, or with these ratios (one a party, or one for all) at level 1."""
    target = public.privacy
    if isinstance(target, NoPrivacy):
        return {(t, 0): (public.everyone(target.event),) for t in range(public.rounds)}
    own = np.broadcast_to(1.0 if ratios is None else ratios, public.parties).tolist()
    levels = target.levels(public.rounds)
    # Rounds alike share one object, and are calibrated once.
    shapes = {level: (tuple(target.event(level * ratio, public.parties) for ratio in own),) for level in set(levels)}
    plan = {(t, 0): shapes[level] for t, level in enumerate(levels)}
    fitted = fit(target, plan) if ratios is None else plan
    if not uneven(public, fitted[0, 0][0]):
        return fitted
    moves = gradients(public, 0).moves
    shared = {id(rows): tuple(evened(row, moves) for row in rows) for rows in fitted.values()}
    return {tick: shared[id(rows)] for tick, rows in fitted.items()}


def noisy_argmin(local: Local, release: Door, linear: Floats, k: Floats, anchor: Floats, tolerance: float) -> Released:
    """The argmin of the losses + <linear, x> + k/2 |x|^2, k > 0 being public, with noise: docs/privacy.md#minimiser.

    The solver starts at the anchor: the last argmin is kept nowhere but with its noise.
    The gradient at any point moves by at most `local.moves` between neighbours, hence the argmin by that over k; and
    what the solver returns is within left/k of it: Delta = 2 C omega_i L/(m_i k) + 2 left/k when a record is replaced.
    """
    x = local.argmin(linear, k, anchor, anchor, tolerance)
    left = local.exactness(linear, k, tolerance).left
    return release.output(x, sensitivity=local.moved(left) / k)
