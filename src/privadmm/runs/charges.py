"""What a job charges each party: for all its rounds, or for those before it left."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from privadmm.algorithms.evaluated import Evaluated
from privadmm.config.undeclared import Undeclared
from privadmm.data.holding_out import held_sizes
from privadmm.engine.job import Job
from privadmm.engine.loop import Progress
from privadmm.privacy.accounting import certified, totals
from privadmm.privacy.events import Spent, tables
from privadmm.privacy.ledger_file import Receipt


def charges(job: Job, leave: Mapping[int, int], heard: Mapping[int, int] | None = None) -> list[dict[str, Any]]:
    """Events and epsilon of each party; `leave` tells from which round on, counted from 0, a party is absent.

    Of its `records` it trains on those that are not `held_out` for a private evaluation. `heard` as for
    `spent_until_it_left`.
    """
    sizes, parties, held_out = job.public.sizes, [], held_out_by(job)
    for party, spent in enumerate(job.costs):
        if party in leave:
            spent = spent_until_it_left(job, party, leave, heard)
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


def spent_until_it_left(job: Job, party: int, gone: Mapping[int, int], heard: Mapping[int, int] | None = None) -> Spent:
    """Events of a party that is gone, from which no answer came from that round on: at most what it has paid.

    The answer of that round may have been made, paid for, and lost, or may have come too late: unless a simulation
    declares that there was none, it counts. A run that was interrupted may have asked for more rounds than its
    checkpoint has: `heard` tells the last round, by the first party of a block, of which a receipt is kept.
    """
    if party in job.leave:
        return spent_before(job, party, gone[party])
    block = max((first for first in heard or () if first <= party and gone.get(first) == gone[party]), default=party)
    return spent_before(job, party, max(gone[party] + 1, rounds_paid(block, heard)))


def rounds_paid(block: int, heard: Mapping[int, int] | None) -> int:
    """The most rounds that a block can have paid for, by its receipts: these, and one more.

    A round is asked for once the receipts of the round before are kept.
    """
    return heard[block] + 2 if heard and block in heard else 0


def last_rounds(heads: Sequence[tuple[Receipt, int]]) -> dict[int, int]:
    """The last round, counted from 0, of which there is a receipt: by the first party of each block."""
    heard: dict[int, int] = {}
    for (_, round, _, _), first in heads:
        heard[first] = max(round, heard.get(first, round))
    return heard


def absences(
    job: Job, progress: Progress, reasons: Mapping[int, str] | None, heard: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """Fields of a result on parties that left: when, what they had paid at most, what was set aside for them.

    Empty where everybody stayed. `reasons` are those that a coordinator has for each of them. The round in which
    somebody left a secure sum is lost. `heard` as for `spent_until_it_left`.
    """
    absent = progress.mail.absent
    if not len(absent):
        return {}
    whole, rows, gone = job.costs, [], dict(absent.tolist())
    for party, first in gone.items():
        spent = spent_until_it_left(job, party, gone, heard)
        paid, aside = certified(spent, job.delta), certified(whole[party], job.delta)
        row = {"party": party, "from_round": first + 1, "epsilon": paid, "set_aside": aside, "job": job.id}
        if reasons is not None:
            row["why"] = reasons.get(party, "it had left before this process took over")
        rows.append(row)
    rounds, summed = sorted({first + 1 for _, first in absent.tolist()}), job.public.privacy.sum is not None
    lost = {"lost_rounds": rounds} if summed else {}
    return {"absent": rows, **lost, "C_present": job.public.weight_among(np.setdiff1d(job.public.ids, absent[:, 0]))}
