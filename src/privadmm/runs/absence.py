"""What a result says of parties that left: who, from which round on, and what that means for budget and model."""

import math
from typing import Any

import numpy as np

from privadmm.engine.job import Job
from privadmm.engine.loop import Progress
from privadmm.privacy.accounting import epsilon, totals


def told(job: Job, progress: Progress, known: str) -> dict[str, Any]:
    """Nothing where everybody stayed. An epsilon is null where none can be given; ledgers know the job as `known`."""
    absent = progress.mail.absent
    if not len(absent):
        return {}
    here = np.setdiff1d(job.public.ids, absent[:, 0])
    return {
        "absent": [left(job, party, first) | {"job": known} for party, first in absent.tolist()],
        "C_present": job.public.weight_among(here),
    }


def left(job: Job, party: int, first: int) -> dict[str, Any]:
    """One of them, in the words of its plan: what it paid for until then, and what was set aside for it."""
    before = {(t, phase): rows for (t, phase), rows in job.plan.items() if t < first}
    spent, whole = (totals(plan, job.public.parties)[party] for plan in (before, job.plan))
    costs = [math.inf if job.delta is None else epsilon(one, job.delta) for one in (spent, whole)]
    paid, aside = (cost if math.isfinite(cost) else None for cost in costs)
    return {"party": party, "from_round": first + 1, "epsilon": paid, "set_aside": aside}
