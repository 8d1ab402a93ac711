"""A regression with too much noise to beat a constant warns: before it, by public facts, and after a simulation."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm import ADMMRegressor, Centred, ConfigError, DPFedSGD, FirstOrderConsensus, FitWarning
from privadmm.runs.measures import FOR_NUMBERS
from small_runs import PRIVATE, Place, no_plots, result, with_changes

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


def test_secure_sums_are_advised_only_where_there_are_none(place: Place) -> None:
    for sum, advised in (("local", True), ("secure", False)):
        config = place.config(with_changes(BAD, {"privacy": {"sum": sum, "epsilon": 0.01}}))
        told = place.call("account", config, "--json").object["regression"]["warning"]
        done = " ".join(place.train(config, out=place.path / sum).out.split())
        assert "worse than a constant" in done
        assert ('sum = "secure"' in told, "larger epsilon, secure sums" in done) == (advised, advised)


GONE = {"D_w": None, "rho": None}
CONSENSUS = {"name": "first_order_consensus", "step": None, "rounds": 40}


@pytest.mark.parametrize("epsilon", [0.0005, 0.005])
def test_so_small_an_epsilon_that_nothing_is_learned_warns_though_there_is_no_noise(
    place: Place, epsilon: float
) -> None:
    """The method then hardly takes a step, and what it has not learned looks like predictions without noise."""
    config = place.config(with_changes(BAD, {"algorithm": CONSENSUS, "privacy": {"epsilon": epsilon}}))
    told = place.call("account", config, "--json").object["regression"]
    assert told["prediction_noise"] < BOUND / 4
    assert told["learned"] < 0.2
    assert "hardly better than a constant" in told["warning"]
    done = place.train(config)
    found = result(place.out)["evaluation"]["r2"]
    assert found < 0.2, done.out
    assert ("hardly better than a constant" in " ".join(done.out.split())) is (0 <= found < 0.1)


@pytest.mark.parametrize("epsilon", [1e-5, 0.0005, 0.001])
def test_a_fit_with_so_small_an_epsilon_warns_too(epsilon: float) -> None:
    X = np.random.default_rng(0).normal(size=(N, 3))
    model = ADMMRegressor(
        **{"label_bound": BOUND, "radius": BOUND, "row_bound": 3.0, "epsilon": epsilon, "parties": 3},
        **{"algorithm": "first_order_consensus", "rounds": 40, "random_state": 0},
    )
    with pytest.warns(FitWarning, match=r"are (worse|hardly better) than a constant.*Try algorithm first_order"):
        model.fit(X, X @ np.array([1.0, -0.5, 0.3]))


def test_a_method_that_runs_away_where_rows_share_a_direction_warns(place: Place) -> None:
    """With hardly any noise; on three columns in bins, one of them frequent."""
    d, n = 30, 3000
    rng = np.random.default_rng(0)
    often = np.array([0.73, *[0.03] * 9])
    X = np.concatenate([np.eye(10)[rng.choice(10, n, p=often)] for _ in range(3)], axis=1)
    np.savez(place.path / "data.npz", X=X, y=X[:, 0] + X[:, 12] - X[:, 25])
    changes = {"data": {"dim": d, "row_bound": 1.75}, "parties": {"records": n}, "privacy": {"epsilon": 200.0}}
    for algorithm, bad in ((CONSENSUS, True), ({}, False)):
        config = place.config(with_changes(BAD, {**changes, "algorithm": algorithm}))
        told = place.call("account", config, "--json").object["regression"]
        assert told["prediction_noise"] < BOUND / 4
        assert ("may run away" in (told["warning"] or ""), told["learned"] > 0.9) == (bad, not bad), told
        assert place.train(config, out=place.path / f"out-{bad}").code == 0
        assert (result(place.path / f"out-{bad}")["evaluation"]["r2"] < 0) is bad


def test_a_method_that_runs_away_is_not_advised_again(place: Place) -> None:
    methods: list[tuple[dict[str, Any], str]] = [
        ({"name": "dp_fedsgd", "step": 6.0}, f"a smaller step or {FOR_NUMBERS}"),
        (CONSENSUS, FOR_NUMBERS),
    ]
    for algorithm, instead in methods:
        changes = {"data": {"dim": 30}, "privacy": {"epsilon": 200.0}, "algorithm": algorithm}
        told = place.call("account", place.config(with_changes(BAD, changes)), "--json").object["regression"]
        assert "may run away" in told["warning"], told
        assert told["warning"].endswith(f"Use {instead}"), told


def test_who_uses_dp_fedsgd_is_not_told_to_try_it(place: Place) -> None:
    said = " ".join(place.train(place.config(BAD)).out.split())
    assert ("worse than a constant" in said, "Use more rows" in said, "Try algorithm" in said) == (True, True, False)


CLASSES: dict[str, Any] = {"algorithm": Centred(FirstOrderConsensus()), "rounds": 41}  # the method for two classes


def r2(n: int, unit: float = 50.0, shift: float = 0.0, **changes: Any) -> float:
    """The R^2 of a fit on rows that explain three quarters of the labels' variance."""
    rng = np.random.default_rng(1)
    X, noise = rng.normal(size=(n + 2000, 8)), rng.normal(size=n + 2000)
    y = unit * (X @ np.full(8, 8**-0.5) + 0.6 * noise)
    made = ADMMRegressor(**{"label_bound": 3 * unit, "row_bound": 3.0 + 3 * shift, "random_state": 0, **changes})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(made.fit(X[:n] + shift, y[:n]).evaluate(X[n:] + shift, y[n:])["r2"])


@pytest.mark.parametrize("secure", [False, True])
def test_the_default_is_set_for_numbers(secure: bool) -> None:
    """As docs/choosing.md has it: what was the default, and another method, beside it."""
    old, new = r2(4000, secure_sum=secure, **CLASSES), r2(4000, secure_sum=secure)
    assert old < new - 0.15
    assert new > 0.5
    shifted = {"shift": 1.0, "secure_sum": secure}
    assert r2(4000, **shifted, algorithm=DPFedSGD(step=1.0), rounds=30) < r2(4000, **shifted) - 0.1


def test_the_default_does_not_change_with_the_unit_of_labels() -> None:
    found = [r2(4000, unit) for unit in (1e-3, 1.0, 1e6)]
    assert np.ptp(found) < 1e-6


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.05])
def test_where_there_is_little_to_learn_the_default_stays_near_a_constant(epsilon: float) -> None:
    assert -0.1 < r2(1000, epsilon=epsilon) < 0.2
    assert r2(1000, epsilon=epsilon) > r2(1000, epsilon=epsilon, algorithm=DPFedSGD(step=1.0), rounds=30)


NUMBERS: dict[str, Any] = {"features": {"moments": True}, "algorithm": {**CONSENSUS, "step": "numbers", "rounds": 41}}


@pytest.mark.parametrize(("epsilon", "bad"), [(20.0, False), (0.02, True)])
def test_an_estimate_is_made_behind_moments_too(place: Place, epsilon: float, bad: bool) -> None:
    config = place.config(with_changes(BAD, {**NUMBERS, "privacy": {"epsilon": epsilon}}))
    told = place.call("account", config, "--json").object["regression"]
    assert (told["warning"] is not None, told["prediction_noise"] < BOUND / 4) == (bad, True), told
    done = place.train(config)
    assert ("than a constant" in " ".join(done.out.split()), "Try algorithm" in done.out) == (bad, False), done.out


def test_steps_for_numbers_are_for_numbers(place: Place) -> None:
    config = place.config(with_changes(PRIVATE, {"algorithm": {**CONSENSUS, "step": "numbers", **GONE}}))
    done = place.call("account", config)
    assert (done.code, "squared" in done.err) == (2, True), done.err
    with pytest.raises(ConfigError, match="step must be"):
        FirstOrderConsensus(step="classes")  # type: ignore[arg-type]


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
        ({"parties": {"records": 3_000_000}}, "too large"),
        ({"parties": {"records": None}}, "[parties] sizes"),
        ({"data": {"dim": None}}, "[data] dim"),
    ],
    ids=["large", "sizes", "dim"],
)
def test_what_cannot_be_estimated_says_why(place: Place, changes: Any, why: str) -> None:
    said = place.call("account", place.config(with_changes(BAD, changes)), "--json").object
    assert ("regression" in said, why in said["not_expected"]) == (False, True), said
