"""No neighbour moves a query further than the sensitivity it declares: hypothesis looks for one."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import ALGORITHMS, DIM, Case, named
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.shards import Shards
from privadmm.phases import AtParties, Floats, Local, Mail
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released

SIZES = (1, 3)
VICTIM = 1


class Measuring(Door):
    """A door that keeps the query and its declared sensitivity."""

    def output(self, x: Floats, sensitivity: Any) -> Released:
        self.query, self.declared = x, self._column(sensitivity)
        return super().output(x, sensitivity)


def move(
    case: Case, first: list[Any], second: list[Any], state: Any, inbox: Mail, t: int
) -> tuple[float, float]:
    """How far the victim's query moves between two data sets from one state and inbox, and how far it may."""
    job = case.job(sizes=SIZES, rounds=t + 1)
    queries, allowed = [], 0.0
    for parties in (first, second):
        local = Local(job.public, Shards.from_parties(parties, row_bound=1.0))
        door = Measuring(local.ids, job.plan[(t, 0)], Simulation(0), t, 0, lambda charges: None)
        phase = case.algorithm.phases[0]
        assert isinstance(phase, AtParties)
        phase.run(t, local, state, inbox, door)
        queries.append(door.query[VICTIM])
        allowed = float(door.declared[VICTIM])
        # An argmin is known to its tolerance only: each of the two may be off by tolerance / k.
        tolerance = getattr(case.algorithm, "tolerance", 0.0)
        allowed += tolerance * allowed / float(local.replace_one[VICTIM, 0])
    return float(np.linalg.norm(queries[0] - queries[1])), allowed


numbers = st.floats(-3, 3, allow_nan=False)
vectors = st.lists(numbers, min_size=DIM, max_size=DIM).map(np.array)
rows = st.tuples(vectors, st.sampled_from([-1.0, 1.0]))


@st.composite
def situations(draw: st.DrawFn, case: Case) -> tuple[Any, ...]:
    """Two neighbouring data sets and any state and inbox: round t must be private whatever was released before."""
    data = [[draw(rows) for _ in range(m)] for m in SIZES]
    other = [list(party) for party in data]
    other[VICTIM][draw(st.integers(0, SIZES[VICTIM] - 1))] = draw(rows)
    public = case.public(sizes=SIZES)
    blank = case.algorithm.init(public, public.ids)
    size = draw(st.sampled_from([0.0, 0.1, 1.0, 10.0]))
    shaken = {name: size * np.stack([draw(vectors) for _ in SIZES]) for name in vars(blank)}
    _, mail = case.algorithm.start(public)
    heard = size * np.stack([draw(vectors) for _ in mail.senders])
    pack = [[(np.stack([x for x, _ in p]), np.array([y for _, y in p])) for p in d] for d in (data, other)]
    return (*pack, type(blank)(**shaken), Mail(mail.senders, heard), draw(st.integers(0, 3)))


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_search(case: Case) -> None:
    @settings(max_examples=150, deadline=None, derandomize=True, database=None)
    @given(situations(case))
    def search(situation: tuple[Any, ...]) -> None:
        moved, allowed = move(case, *situation)
        assert moved <= allowed * (1 + 1e-9) + 1e-12

    search()


def opposite_records(case: Case) -> tuple[float, float]:
    """u against -u at margin 0: under the half-logistic loss both slopes are 1/2, which attains Lemma 1."""
    u = np.eye(DIM)[0]
    data = [
        [(np.zeros((1, DIM)), np.ones(1)), (np.stack([sign * u, 0 * u, 0 * u]), np.ones(3))]
        for sign in (1.0, -1.0)
    ]
    public = case.public(sizes=SIZES)
    return move(case, *data, case.algorithm.init(public, public.ids), case.algorithm.start(public)[1], 0)


HALF = next(case for case in ALGORITHMS if case.name == "dp_admm-half")


def test_the_bound_is_attained() -> None:
    moved, allowed = opposite_records(HALF)
    assert moved == pytest.approx(allowed, rel=1e-12)


@dataclass(frozen=True)
class Forgetful(DPADMM):
    """A sensitivity that is too small by `factor`."""

    factor: float = 0.5

    def update(self, t: int, local: Local, s: Any, inbox: Mail, release: Door) -> tuple[Any, Released]:
        factor = self.factor

        class Understating:
            def output(self, x: Floats, sensitivity: Floats) -> Released:
                return release.output(x, factor * sensitivity)

        return super().update(t, local, s, inbox, Understating())  # type: ignore[arg-type]


BUGS = {
    "one record added, not replaced": Forgetful(D_w=3.0, rho=0.1, factor=0.5),
    "divided by all records": Forgetful(D_w=3.0, rho=0.1, factor=SIZES[VICTIM] / sum(SIZES)),
    "the last percent": Forgetful(D_w=3.0, rho=0.1, factor=0.99),
}


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS.keys())
def test_planted_understatements_are_caught(bug: Forgetful) -> None:
    moved, allowed = opposite_records(replace(HALF, algorithm=bug))
    assert moved > allowed * (1 + 1e-9)
