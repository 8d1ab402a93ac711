"""The error that a private evaluation's accuracy will have, from the plan of its job, before a record is read."""

import math
from collections.abc import Mapping
from typing import Any

from privadmm.algorithms.counting import LESS, MOVES
from privadmm.algorithms.evaluated import Evaluated
from privadmm.data.arrays import Ints
from privadmm.data.holding_out import held_sizes
from privadmm.engine.job import Job
from privadmm.engine.mail import nobody
from privadmm.privacy.events import WithRatio

VAGUE = 0.05  # the standard deviation of the accuracy above which there is a warning
GUESS = 1 / math.sqrt(12)  # the standard deviation of a uniform number between 0 and 1: such an error tells nothing


def foreseen(job: Job) -> dict[str, Any] | None:
    """The error of the accuracy in a job's private evaluation, from its plan alone; None if the job has no evaluation.

    `noise` is that of the release. `error` also has the sampling error, taken at an accuracy of one half, where it is
    largest. Both are one standard deviation.
    """
    method = job.algorithm
    if not isinstance(method, Evaluated):
        return None
    n = int(held_sizes(job.public.sizes, method.held_out).sum())
    noise = noise_of(job, method, nobody(), 1) / (LESS * n)
    error = math.hypot(noise, math.sqrt(0.25 / n))
    told = {"records": n, "share": method.share, "accuracy_noise": noise, "accuracy_error": error}
    if error <= VAGUE:
        return {**told, "warning": None}
    # A larger share changes the noise alone.
    more = "[evaluation] share or held_out" if noise > error / 2 else "[evaluation] held_out"
    what = f"be vague: the accuracy that it tells has a standard deviation of {100 * error:.1f} points"
    if error >= GUESS:
        what = "tell nothing: the noise in its accuracy is as large as all that an accuracy can be"
    return {
        **told,
        "warning": f"the private evaluation will {what}. Raise {more}, or remove [evaluation] and keep its share of "
        "the budget for training",
    }


def noise_of(job: Job, method: Evaluated, absent: Ints, k: int) -> float:
    """The standard deviation, in records, of the k-th release summed over all parties that are present."""
    at = (job.public.rounds - method.releases + k, 0)
    gone = [party for party, first in absent.tolist() if first <= at[0]]
    here = [party for party in job.public.ids.tolist() if party not in gone]
    if job.sums is not None:
        return job.sums.noise(at, len(here)) / method.unit(job.public)
    (row,) = job.plan[at]
    ratios = [event.ratio if isinstance(event := row[party], WithRatio) else 0.0 for party in here]
    return MOVES[k] * math.sqrt(sum(ratio**2 for ratio in ratios))


def accuracy_words(told: Mapping[str, Any]) -> str:
    """The figures of `foreseen` in words."""
    if told["accuracy_error"] >= GUESS:
        return "accuracy no better than a blind guess does: its noise is as large as all that it can be"
    noise, error = (f"{100 * told[key]:.1f}" for key in ("accuracy_noise", "accuracy_error"))
    return f"accuracy +- {noise} points by noise, +- {error} in all at most, one standard deviation each"
