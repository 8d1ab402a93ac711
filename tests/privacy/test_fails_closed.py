"""Guards that no usual way reaches: what no proof covers ends in an error, and never in a value."""

import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import CASES, shards
from ledgers import POLICY, begin, opened
from privadmm.data import arrays
from privadmm.engine.job import Job
from privadmm.errors import ConfigError, DivergedError, LedgerError, RefusedError
from privadmm.privacy import sqlite_ledger
from privadmm.privacy.calibration import Target, calibrate, scaled
from privadmm.privacy.events import WIDEST, Gaussian, RandomizedResponse, SharedGaussian, Unproved
from privadmm.privacy.labels import LABELS, check_kept
from privadmm.privacy.ledger import MemoryLedger
from privadmm.privacy.limits import Limits
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door
from privadmm.privacy.ridge_sensitivity import moves
from privadmm.privacy.sums import SecureSum, Summands, Sums
from privadmm.privacy.verification import verify


def door() -> Door:
    return Door(np.arange(2), ((Gaussian(3.0),) * 2,), Simulation(0), 0, 0, lambda charges: None)


@pytest.mark.parametrize("sensitivity", [math.nan, math.inf, 0.0, -1.0, [1.0, math.inf], [0.0, 1.0]])
def test_a_sensitivity_that_is_no_bound_is_refused(sensitivity: Any) -> None:
    with pytest.raises(RefusedError, match="finite sensitivity above 0"):
        door().output(np.zeros((2, 3)), np.asarray(sensitivity))
    assert np.isfinite(door().output(np.zeros((2, 3)), 1.0).value).all()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_ran_away_is_not_released(value: float) -> None:
    with pytest.raises(DivergedError):
        door().output(np.full((2, 3), value), 1.0)


@pytest.mark.parametrize(("adjacency", "b", "q"), [("person", None, 1.0), ("column", 1.0, None), ("record", 1.0, 1.0)])
def test_a_fit_without_its_bound_has_no_sensitivity(adjacency: str, b: float | None, q: float | None) -> None:
    with pytest.raises(RefusedError, match=adjacency):
        moves(adjacency, np.ones((1, 4)), 3, 1.0, b, q, 1.0)


@pytest.mark.parametrize(("moved", "width", "says"), [(1e-280, 3, "grid"), (1e280, 3, "grid"), (1.0, WIDEST, "less")])
def test_a_secure_sum_that_its_grid_does_not_carry_is_refused(moved: float, width: int, says: str) -> None:
    own = Summands(np.full(4, moved), np.full(4, moved))
    with pytest.raises(ConfigError, match=says):
        Sums.planned(SecureSum(1), {(0, 0): ([SharedGaussian(5.0, 1, 4)] * 4, own, width)})


@pytest.mark.parametrize(("call", "width"), [((0, 0, 2**32), 4), ((0, 0, 0), 2**32)])
def test_two_releases_never_share_the_numbers_of_their_noise(call: tuple[int, int, int], width: int) -> None:
    """A release whose number or width would run into another one's has none."""
    with pytest.raises(OverflowError):
        Simulation(0).words(np.arange(1), call, 0, width)


def reports(**changes: Any) -> bytes:
    held = {"labels": np.ones(sum(shards().sizes), dtype=np.int8), "sizes": shards().sizes} | changes
    return arrays.pack(held, epsilon=1.0)


DAMAGED = {
    "no arrays": b"nothing of the kind",
    "too few": reports(labels=np.ones(3, dtype=np.int8)),
    "no label": reports(labels=np.zeros(sum(shards().sizes), dtype=np.int8)),
    "a table": reports(labels=np.ones((2, 3), dtype=np.int8)),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_kept_labels_that_are_damaged_are_not_drawn_again(what: str) -> None:
    """A second report of a label would tell more of it."""
    case = CASES["dp_admm-reported"]
    job = Job(case.algorithm, case.public(), 3.0)
    asked = job.policy.label_epsilon
    assert asked is not None
    ledger = MemoryLedger(range(5), job.policy)
    ledger.keep("", LABELS, lambda: DAMAGED[what], RandomizedResponse(asked))
    with pytest.raises(LedgerError, match="damaged"):
        check_kept(shards(), ledger, asked)


def test_a_forged_amendment_of_what_is_fixed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a ledger that does not check what may be amended. Its rows hang together, and yet do not pass."""
    path, other = tmp_path / "ledger", replace(POLICY, adjacency="label")
    begin(path)
    monkeypatch.setattr(
        sqlite_ledger, "check_amended", lambda ledger, policy, why: replace(ledger.identity, policy=policy)
    )
    with closing(opened(path)) as ledger:
        ledger.amend(other, "quietly")
    assert any("amends what is fixed" in problem for problem in verify(path).problems)


@pytest.mark.parametrize("wrong", [{"smallest": 1e-21}, {"largest": 0.5}, {"condition": 1e10}])
def test_limits_beyond_what_is_proved_are_none(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="limits are proved"):
        Limits(**wrong)  # type: ignore[arg-type]


def test_a_party_refuses_messages_that_are_too_wide() -> None:
    case = CASES["dp_admm"]
    with pytest.raises(RefusedError, match="up to 2 numbers"):
        Limits(dim=2).admit(case.algorithm, case.public())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"adjacency": "galaxy"}, "galaxy"),
        ({"decay": 0.5, "profile": (1.0, 2.0)}, "decay and profile"),
    ],
)
def test_a_target_that_means_nothing_is_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Target(1.0, 1e-6, **wrong)


def test_noise_that_leaves_nothing_over_rounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves no noise"):
        Target(1.0, 1e-6, decay=0.5).levels(1_000)


def test_noise_without_a_rule_is_not_scaled() -> None:
    with pytest.raises(TypeError, match="no noise"):
        scaled(RandomizedResponse(1.0), 2.0)


def test_what_no_noise_reaches_is_refused() -> None:
    """A release that costs infinitely much, beside one whose noise may grow."""
    with pytest.raises(RefusedError, match="no Gaussian noise reaches"):
        calibrate(1.0, 1e-6, lambda level: ((Gaussian(level), 1), (Unproved(1.0), 1)))
