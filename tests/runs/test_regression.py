"""A regression with too much noise to beat a constant warns: before it, by public facts, and after a simulation."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small_runs import PRIVATE, Place, no_plots, with_changes

N, BOUND = 600, 4.0
CHANGES: dict[str, Any] = {
    "data": {"classes": None, "dim": 3, "row_bound": 3.0},
    "parties": {"records": N},
    "algorithm": {"name": "dp_fedsgd", "step": 1.0, "rounds": 20, "D_w": None, "rho": None},
    "loss": {"name": "squared", "label_bound": BOUND, "radius": BOUND},
}
GOOD = with_changes(PRIVATE, {**CHANGES, "privacy": {"epsilon": 20.0}})
BAD = with_changes(PRIVATE, {**CHANGES, "privacy": {"epsilon": 0.05}})


@pytest.fixture
def place(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    no_plots(monkeypatch)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3))
    np.savez(place.path / "data.npz", X=X, y=X @ np.array([1.0, -0.5, 0.3]))
    return place


def test_the_warning_of_public_facts_and_that_of_measured_records_agree(place: Place) -> None:
    for tables, bad in ((GOOD, False), (BAD, True)):
        config = place.config(tables)
        done = place.train(config, out=place.path / f"out-{bad}")
        assert (done.code, "worse than a constant" in " ".join(done.out.split())) == (0, bad), done.out
        (place.path / "data.npz").rename(place.path / "away.npz")  # no record is read
        told = place.call("account", config, "--json").object["regression"]
        assert (told["warning"] is not None, told["prediction_noise"] > BOUND / 4) == (bad, bad)
        for words in (("account", config), ("plan", config)):
            text = " ".join(place.call(*words).out.split())
            assert ("by noise alone" in text, "worse than a constant" in text) == (True, bad)
        (place.path / "away.npz").rename(place.path / "data.npz")


def test_a_deployment_is_warned_before_it_spends(place: Place) -> None:
    """Nothing is measured there, so public facts are all that can warn."""
    changes = {"run": {"mode": "deployment", "seed": None, "ledger": "l.sqlite"}, "data": {"test_fraction": 0.0}}
    for tables, bad, budget in ((GOOD, False, 20), (BAD, True, 0.05)):
        ledger: Path = place.path / "l.sqlite"
        made = place.call("ledger", "create", ledger, "--parties", 3, "--epsilon", budget, "--delta", 1e-5)
        assert made.code == 0, made.err
        done = place.train(place.config(with_changes(tables, changes)), out=place.path / f"out-{bad}")
        assert (done.code, "worse than a constant" in done.err) == (0, bad), done.err
        assert "worse than a constant" not in done.out
        for file in place.path.glob("l.sqlite*"):
            file.unlink()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"features": {"moments": True}}, "centres"),
        ({"parties": {"records": 3_000_000}}, "too large"),
        ({"parties": {"records": None}}, "[parties] sizes"),
        ({"data": {"dim": None}}, "[data] dim"),
    ],
    ids=["moments", "large", "sizes", "dim"],
)
def test_what_cannot_be_estimated_says_why(place: Place, changes: Any, why: str) -> None:
    if "features" in changes:
        changes = {**changes, "algorithm": {"name": "first_order_consensus", "step": None}}
    said = place.call("account", place.config(with_changes(BAD, changes)), "--json").object
    assert ("regression" in said, why in said["not_expected"]) == (False, True), said
