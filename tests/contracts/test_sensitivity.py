"""No neighbour moves a query further than the sensitivity it declares: a search looks for one."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cases import ALGORITHMS, CASES, DIM, Case, named
from contract_tools import SMALL, VICTIM, move, small
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.privacy.release import Door, Released

TRIED = 200


def some(rng: np.random.Generator, *shape: int) -> Floats:
    """Vectors whose numbers are arbitrary, whole, all but one 0, all equal, or all 0: bounds are attained at such."""
    size, full = rng.choice([-3.0, -1.0, 1.0, 3.0], size=(*shape, 1)), (*shape, DIM)
    single, equal = size * np.eye(DIM)[rng.integers(DIM, size=shape)], size * np.ones(DIM)
    kinds = [rng.uniform(-3, 3, full), rng.integers(-3, 4, full), single, equal, np.zeros(full)]
    which = rng.choice(5, p=[0.2, 0.1, 0.4, 0.2, 0.1], size=(*shape, 1))
    return np.select([which == kind for kind in range(5)], kinds)


def situation(case: Case, rng: np.random.Generator) -> tuple[Any, ...]:
    """Two neighbouring data sets and any state and inbox: round t must be private whatever was released before."""
    data = [(some(rng, m), rng.choice([-1.0, 1.0], size=m)) for m in SMALL]
    public, at = small(case).public, rng.integers(SMALL[VICTIM])
    X, y = (values.copy() for values in data[VICTIM])
    if public.label_only:
        y[at] = -y[at]
    else:
        X[at], y[at] = some(rng), rng.choice([-1.0, 1.0])
    other = [(X, y) if party == VICTIM else held for party, held in enumerate(data)]
    size = rng.choice([0.0, 0.1, 1.0, 10.0])

    def anything(shape: tuple[int, ...]) -> Floats:
        return np.resize(size * some(rng, len(SMALL)), shape)

    blank, (_, mail) = case.algorithm.init(public, public.ids), case.algorithm.start(public)
    shaken = {name: anything(value.shape) for name, value in vars(blank).items()}
    heard = Mail(mail.senders, anything(mail.values.shape))
    return data, other, type(blank)(**shaken), heard, int(rng.integers(4))


def search(case: Case) -> None:
    rng = np.random.default_rng(0)
    for _ in range(TRIED):
        moved, allowed = move(case, *situation(case, rng))
        assert moved <= allowed * (1 + 1e-9) + 1e-12


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
