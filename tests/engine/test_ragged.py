"""Parties of 50 to 20,000 records, labels as skewed as they come, dense or sparse: the same results."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from cases import ALGORITHMS, Case, Transcript, named
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.mail import Mail
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs import metrics

SIZES = (50, 20_000, 700, 50, 3_000)
POSITIVE = (1.0, 0.01, 0.5, 0.02, 0.999)  # party 0 has one label only
DIM, ROUNDS = 12, 3
# Dense and sparse sums round differently (by 3e-15 here), and an argmin is known to its tolerance: no more may differ.
CLOSE = 1e-7


@cache
def records() -> list[tuple[Floats, Floats]]:
    """Rows that are zero in four places of five, a few of them everywhere; many beyond the bound."""
    rng, found = np.random.default_rng(0), []
    for m, share in zip(SIZES, POSITIVE, strict=True):
        X = np.where(rng.random((m, DIM)) < 0.2, rng.normal(size=(m, DIM)), 0.0)
        X[::97] = 0.0
        found.append((X, np.where(rng.random(m) < share, 1.0, -1.0)))
    return found


STORED = {
    "dense": lambda party, X: X,
    "sparse": lambda party, X: csr_array(X),
    "mixed": lambda party, X: csr_array(X) if party % 2 else X,
}


@cache
def shards(stored: str) -> Shards:
    parties = [(STORED[stored](party, X), y) for party, (X, y) in enumerate(records())]
    return Shards.from_parties(parties, row_bound=1.0)


def one_of_each() -> list[Case]:
    """For every algorithm a case with noise, if it has any, and one without; and one case with moments."""
    found: dict[tuple[str, bool, bool], Case] = {}
    for case in ALGORITHMS:
        if getattr(case.algorithm, "calibration", "certified") == "certified":
            found.setdefault((case.algorithm.name, case.private, "centred" in case.name), case)
    return list(found.values())


def job_of(case: Case) -> Job:
    public = case.public(sizes=SIZES, rounds=ROUNDS)
    return Job(case.algorithm, replace(public, dim=DIM), id="ragged")


def ran(case: Case, stored: str, parts: Any = None) -> tuple[list[Mail], Floats]:
    job, tape = job_of(case), Transcript()
    progress = train(job, cluster(job, shards(stored), Simulation(3), parts=parts), [tape])
    return tape.mail, weights(job, progress)


def apart(one: Floats, other: Floats) -> float:
    """The largest relative difference of a party's rows."""
    size = np.maximum(np.linalg.norm(one, axis=-1), 1e-3)
    return float((np.linalg.norm(one - other, axis=-1) / size).max())


@pytest.mark.parametrize("case", one_of_each(), ids=named)
def test_storage_does_not_matter(case: Case) -> None:
    """With the same noise: every message of every party, and the model."""
    dense, model = ran(case, "dense")
    for stored in ("sparse", "mixed"):
        other, weights = ran(case, stored)
        assert apart(model, weights) <= CLOSE
        for one, two in zip(dense, other, strict=True):
            assert apart(one.values, two.values) <= CLOSE
    assert np.abs(model).max() > 1e-6  # else there is nothing to compare


BLOCKS = [[1], [0, 3], [2, 4]]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("name", ["dp_admm", "dvp", "foc"])
def test_nor_does_the_partition_bit_for_bit(name: str, stored: str) -> None:
    case = next(case for case in one_of_each() if case.algorithm.name == name or case.name == name)
    assert [mail.pack() for mail in ran(case, stored)[0]] == [mail.pack() for mail in ran(case, stored, BLOCKS)[0]]


def test_figures_agree() -> None:
    _, w = ran(one_of_each()[0], "dense")
    public, found = job_of(one_of_each()[0]).public, []
    for stored in STORED:
        data = shards(stored)
        scores = metrics.scores(data, w)
        found.append(
            (
                metrics.objective(public, data, w, scores),
                metrics.accuracy(data, scores),
                metrics.majority(data),
            )
        )
    np.testing.assert_allclose(found, [found[0]] * 3, rtol=1e-12)


def test_a_bound_forgotten_for_sparse_rows_is_caught() -> None:
    """The planted fault: rows that are not clipped where they are sparse."""
    case = next(case for case in one_of_each() if case.name == "dp_admm-off")
    dense, _ = ran(case, "dense")
    loose = Shards.from_parties([(csr_array(X) * 1.01, y) for X, y in records()], row_bound=1.01 * 1.01)
    tape, job = Transcript(), job_of(case)
    train(job, cluster(job, loose, Simulation(3)), [tape])
    assert apart(dense[-1].values, tape.mail[-1].values) > 1e3 * CLOSE
