"""What a job charges each party: for all its rounds, or for those before it left."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from privadmm.algorithms.evaluated import Evaluated
from privadmm.config.undeclared import Undeclared
from privadmm.data.holding_out import held_sizes
from privadmm.engine.job import Job
from privadmm.engine.loop import Progress
from privadmm.privacy.accounting import certified, totals
from privadmm.privacy.events import Spent, tables


def charges(job: Job, leave: Mapping[int, int]) -> list[dict[str, Any]]:
    """Events and epsilon of each party; `leave` tells from which round on, counted from 0, a party is absent.

    Of its `records` it trains on those that are not `held_out` for a private evaluation.
    """
    sizes, parties, held_out = job.public.sizes, [], held_out_by(job)
    for party, spent in enumerate(job.costs):
        if party in leave:
            spent = spent_until_it_left(job, party, leave[party])
        parties.append(
            {
                "party": party,
                "records": None if isinstance(sizes, Undeclared) else int(sizes[party]),
                **({} if held_out is None else {"held_out": held_out[party]}),
                "epsilon": certified(spent, job.delta),
                "events": tables(spent),
            }
        )
    return parties


def held_out_by(job: Job) -> list[int] | None:
    """How many records each party holds out for a private evaluation; None if there is none, or sizes are unknown."""
    sizes, method = job.public.sizes, job.algorithm
    if isinstance(sizes, Undeclared) or not isinstance(method, Evaluated):
        return None
    held: list[int] = held_sizes(sizes, method.held_out).tolist()
    return held


def spent_before(job: Job, party: int, round: int) -> Spent:
    """Events of the party's releases before this round of the plan."""
    before = {tick: releases for tick, releases in job.plan.items() if tick[0] < round}
    return totals(before, job.public.parties)[party]


def spent_until_it_left(job: Job, party: int, first: int) -> Spent:
    """Events of a party from which no answer came from this round on: at most what it has paid.

    The answer of that round may have been made, paid for, and lost, or may have come too late: unless a simulation
    declares that there was none, it counts.
    """
    return spent_before(job, party, first + (party not in job.leave))


def absences(job: Job, progress: Progress, reasons: Mapping[int, str] | None) -> dict[str, Any]:
    """Fields of a result on parties that left: when, what they had paid at most, what was set aside for them.

    Empty where everybody stayed. `reasons` are those that a coordinator has for each of them. The round in which
    somebody left a secure sum is lost.
    """
    absent = progress.mail.absent
    if not len(absent):
        return {}
    whole, rows = job.costs, []
    for party, first in absent.tolist():
        spent = spent_until_it_left(job, party, first)
        paid, aside = certified(spent, job.delta), certified(whole[party], job.delta)
        row = {"party": party, "from_round": first + 1, "epsilon": paid, "set_aside": aside, "job": job.id}
        if reasons is not None:
            row["why"] = reasons.get(party, "it had left before this process took over")
        rows.append(row)
    rounds, summed = sorted({first + 1 for _, first in absent.tolist()}), job.public.privacy.sum is not None
    lost = {"lost_rounds": rounds} if summed else {}
    return {"absent": rows, **lost, "C_present": job.public.weight_among(np.setdiff1d(job.public.ids, absent[:, 0]))}
