"""A run charges exactly what its plan said before any data was read: for every party, event by event."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from cases import ALGORITHMS, PRIVATE, named, shards
from contract_tools import EVERY, Case
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.evaluated import Evaluated
from privadmm.engine.block import cluster
from privadmm.engine.job import train
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.errors import RefusedError
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.events import Event
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released


@pytest.mark.parametrize("parts", [None, [[0], [1, 2, 3, 4]]], ids=["one block", "two blocks"])
@pytest.mark.parametrize("case", EVERY, ids=named)
def test_ledger_equals_plan(case: Case, parts: Any) -> None:
    job = case.job()
    workers = cluster(job, case.data(), Simulation(0), parts=parts)
    train(job, workers)
    planned = totals(job.plan, job.public.parties)
    for worker in workers.workers:
        for party in worker.ledger.ids:
            assert worker.ledger.spent(party) == planned[party]


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_the_plan_costs_what_was_asked(case: Case) -> None:
    job = case.job()
    if not case.private:
        assert job.epsilon is None
        assert not job.private
    elif (asked := case.privacy.epsilon) is not None:  # type: ignore[union-attr]
        apart = 2 if isinstance(case.algorithm, Evaluated) else 1  # each share of a budget leaves 1e-9 of it unspent
        assert asked * (1 - apart * 1e-9) <= job.epsilon <= asked  # type: ignore[operator]
    spent = totals(job.plan, job.public.parties)[0]
    assert math.isinf(epsilon(spent, 1e-5)) == (not case.private)


@dataclass(frozen=True)
class Twice(DPADMM):
    """A second release in a round that planned one."""

    def update(self, t: int, local: Local, s: Any, inbox: Mail, release: Door) -> tuple[Any, Released]:
        super().update(t, local, s, inbox, release)
        return super().update(t, local, s, inbox, release)


@dataclass(frozen=True)
class Never(DPADMM):
    """A round that releases through a door of its own making, so that the tick's door counts nothing."""

    def update(self, t: int, local: Local, s: Any, inbox: Mail, release: Door) -> tuple[Any, Released]:
        own = Door(local.ids, PRIVATE[0].job().plan[(t, 0)], Simulation(0), t, 0, lambda charges: None)
        return super().update(t, local, s, inbox, own)


@pytest.mark.parametrize("bug", [Twice(D_w=3.0), Never(D_w=3.0)], ids=lambda bug: type(bug).__name__)
def test_a_run_that_leaves_its_plan_is_stopped(bug: Any) -> None:
    job = replace(PRIVATE[0], algorithm=bug).job()
    workers = cluster(job, shards(), Simulation(0))
    with pytest.raises(RefusedError, match="plan"):
        train(job, workers)
    assert all(workers.workers[0].ledger.spent(party) == () for party in range(5))


def test_a_forgotten_charge_is_caught() -> None:
    """The planted fault: a door that charges nothing; the ledger then has less than the plan."""

    class Silent(Door):
        def close(self) -> dict[int, tuple[Event, ...]]:
            self.charges = dict.fromkeys(self.charges, ())
            return self.charges

    import privadmm.engine.worker as home

    job = PRIVATE[0].job()
    workers = cluster(job, shards(), Simulation(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "Door", Silent)
        train(job, workers)
    assert workers.workers[0].ledger.spent(0) != totals(job.plan, job.public.parties)[0]
