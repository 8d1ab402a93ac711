"""No neighbour moves a query further than the sensitivity it declares: hypothesis looks for one."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cases import ALGORITHMS, CASES, DIM, Case, named
from contract_tools import SMALL, VICTIM, move, small
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.privacy.release import Door, Released

numbers = st.floats(-3, 3, allow_nan=False)
vectors = st.lists(numbers, min_size=DIM, max_size=DIM).map(np.array)
rows = st.tuples(vectors, st.sampled_from([-1.0, 1.0]))


@st.composite
def situations(draw: st.DrawFn, case: Case) -> tuple[Any, ...]:
    """Two neighbouring data sets and any state and inbox: round t must be private whatever was released before."""
    data = [[draw(rows) for _ in range(m)] for m in SMALL]
    other = [list(party) for party in data]
    public, at = small(case).public, draw(st.integers(0, SMALL[VICTIM] - 1))
    x, y = data[VICTIM][at]
    other[VICTIM][at] = (x, -y) if public.label_only else draw(rows)
    blank = case.algorithm.init(public, public.ids)
    size = draw(st.sampled_from([0.0, 0.1, 1.0, 10.0]))

    def anything(shape: tuple[int, ...]) -> Floats:
        return np.resize(size * np.concatenate([draw(vectors) for _ in SMALL]), shape)

    shaken = {name: anything(value.shape) for name, value in vars(blank).items()}
    _, mail = case.algorithm.start(public)
    heard = anything(mail.values.shape)
    pack = [[(np.stack([x for x, _ in p]), np.array([y for _, y in p])) for p in d] for d in (data, other)]
    return (*pack, type(blank)(**shaken), Mail(mail.senders, heard), draw(st.integers(0, 3)))


def search(case: Case) -> None:
    @settings(max_examples=150, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(situations(case))
    def holds(situation: tuple[Any, ...]) -> None:
        moved, allowed = move(case, *situation)
        assert moved <= allowed * (1 + 1e-9) + 1e-12

    holds()


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_search(case: Case) -> None:
    search(case)


def opposite_records(case: Case) -> tuple[float, float]:
    """u against -u at margin 0: under the half-logistic loss both slopes are 1/2, which attains Lemma 1."""
    u = np.eye(DIM)[0]
    data = [
        [(np.zeros((1, DIM)), np.ones(1)), (np.stack([sign * u, 0 * u, 0 * u]), np.ones(3))] for sign in (1.0, -1.0)
    ]
    public = case.public(sizes=SMALL)
    return move(case, *data, case.algorithm.init(public, public.ids), case.algorithm.start(public)[1], 0)


HALF = CASES["dp_admm-half"]


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
    "divided by all records": Forgetful(D_w=3.0, rho=0.1, factor=SMALL[VICTIM] / sum(SMALL)),
    "the last percent": Forgetful(D_w=3.0, rho=0.1, factor=0.99),
}


@pytest.mark.parametrize("name", ["one record added, not replaced", "divided by all records"])
def test_the_search_itself_finds_planted_understatements(name: str) -> None:
    with pytest.raises(AssertionError, match="<="):
        search(replace(HALF, algorithm=BUGS[name]))


@pytest.mark.parametrize("bug", BUGS.values(), ids=BUGS.keys())
def test_planted_understatements_are_caught(bug: Forgetful) -> None:
    moved, allowed = opposite_records(replace(HALF, algorithm=bug))
    assert moved > allowed * (1 + 1e-9)
