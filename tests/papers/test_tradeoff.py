"""DVP's trade between privacy and accuracy: known curves are found again, and small runs go through."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privadmm.config import build
from privadmm.config.file import read
from privadmm.errors import ConfigError
from privadmm.papers.dvp.tradeoff import (
    ALPHAS,
    WEIGHTS,
    Fit,
    FitError,
    Point,
    Weights,
    best,
    certified,
    checked,
    fit,
    measured,
    one_round,
    paper,
    read_off,
    tradeoff,
)
from privadmm.papers.framework import theory_figures
from privadmm.runs.style import canvas
from small_runs import PNG, PRIVATE, Place, with_changes

DUAL = with_changes(
    PRIVATE,
    {
        "graph": {"kind": "ring"},
        "algorithm": {"name": "dvp", "rounds": 3, "D_w": None, "rho": None, "eta": 0.1},
        "regularizer": {"weight": 0.01},
    },
)
PAPERS = Weights(*WEIGHTS)


@pytest.mark.parametrize(
    "constants",
    [(0.2, 25.0, 0.45), (20.0, 20.0, 0.4), (0.3, 1.5, 0.0), (1e-3, 5.0, 2.0)],
    ids=["paper", "paper-later", "slow", "faint"],
)
def test_known_constants_are_found_again(constants: tuple[float, float, float]) -> None:
    x = np.array(ALPHAS)
    curve = fit(ALPHAS, (constants[0] * np.exp(-constants[1] * x) + constants[2]).tolist())
    assert (curve.c4, curve.c5, curve.c6) == pytest.approx(constants, rel=1e-3, abs=1e-6)
    assert curve.r2 == pytest.approx(1, abs=1e-6)
    assert curve.off < 1e-3


def test_r2_is_honest_about_noise() -> None:
    rng, x = np.random.default_rng(0), np.array(ALPHAS)
    clean = 0.2 * np.exp(-5 * x) + 0.4
    spoiled = fit(ALPHAS, (clean + 0.05 * rng.normal(size=len(x))).tolist())
    left = np.sum((spoiled(x) - clean) ** 2)
    assert 0.3 < spoiled.r2 < 0.999
    assert left > 0


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        ([1.0] * 8, "do not change"),
        ((0.1 * np.arange(1, 9)).tolist(), "do not fall"),
        ([math.inf, *[1.0] * 7], "not finite"),
    ],
    ids=["flat", "rising", "infinite"],
)
def test_a_fit_that_fails_has_a_name(losses: list[float], message: str) -> None:
    with pytest.raises(FitError, match=message):
        fit(ALPHAS, losses)


def test_three_alphas_are_too_few() -> None:
    with pytest.raises(ConfigError, match="four alphas"):
        fit([0.1, 0.2, 0.3], [3.0, 2.0, 1.0])


def test_the_utility_of_privacy_by_hand() -> None:
    """0.02 ln(6/(9 0.5 + 0.25))"""
    assert PAPERS.privacy(np.array(0.5)) == pytest.approx(0.02 * math.log(6 / 4.75))
    with pytest.raises(ConfigError, match="omega1"):
        Weights(0.0, 6.0, 9.0, 1.0)


def test_the_best_alpha_is_where_the_slopes_agree() -> None:
    curve = Fit(0.2, 25.0, 0.45, 1.0, 0.0)
    found = best(curve, PAPERS, 0.01, 1.0)
    a, (w1, _, w3, w4) = found["alpha"], WEIGHTS
    assert found["where"] == "inside"
    assert 0.2 * 25 * math.exp(-25 * a) == pytest.approx(w1 * (w3 + 2 * w4 * a) / (w3 * a + w4 * a**2), rel=1e-4)
    assert found["utility"] == pytest.approx(found["privacy_utility"] - found["loss"])
    # More weight on privacy asks for a smaller alpha, and in the end for the smallest there is.
    assert best(curve, replace(PAPERS, omega1=0.1), 0.01, 1.0)["alpha"] < a
    assert best(curve, replace(PAPERS, omega1=10.0), 0.01, 1.0) | {"where": ""} == best(
        curve, replace(PAPERS, omega1=10.0), 0.01, 0.5
    ) | {"where": ""}
    assert best(curve, replace(PAPERS, omega1=10.0), 0.01, 1.0)["where"] == "smallest"
    assert best(curve, replace(PAPERS, omega1=1e-9), 0.01, 0.1)["where"] == "largest"


def test_a_rejected_fit_has_no_best_alpha() -> None:
    """Losses that an exponential misses by half: its optimum is inside, the measured one is the largest alpha."""
    alphas = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0)
    losses = (9.996, 2.212, 1.143, 0.7787, 0.5233, 0.4001, 0.3525)
    points = [Point(a, 1.0, np.array([[loss, loss]])) for a, loss in zip(alphas, losses, strict=True)]
    (line,) = read_off("proof", points, (1,), PAPERS)
    curve = Fit(**line["fit"])
    assert best(curve, PAPERS, 0.05, 1.0)["alpha"] == pytest.approx(0.304, abs=1e-3)
    assert not curve.good
    assert line["best_fitted"] is None
    assert (line["best_measured"]["alpha"], line["best_measured"]["where"]) == (1.0, "largest")
    good = [Point(a, 1.0, np.array([[2 * math.exp(-5 * a) + 0.3] * 2])) for a in alphas]
    (line,) = read_off("proof", good, (1,), PAPERS)
    assert line["best_fitted"] is not None


def test_certified_noise_costs_alpha_a_round(place: Place) -> None:
    config = read(place.config(DUAL))
    config, prepared = replace(config, privacy=checked(config, ALPHAS, (3,))), build.prepare(config)
    for law in ("gaussian", "gamma"):
        own = replace(
            config,
            algorithm=replace(config.algorithm, parameters=replace(config.algorithm.parameters, law=law)),
        )
        job = certified(own, prepared, 0.5)
        assert 0.499 <= one_round(job) <= 0.5
        assert job.epsilon is not None
        assert 0.5 < job.epsilon <= 3 * 0.5 + 1e-9
    assert one_round(paper(config, prepared, 0.5)) <= 0.5  # the proof is sound for one round
    losses = measured(job, prepared, 0, 4, (1, 3))
    assert losses.shape == (2, 4)
    assert len(np.unique(losses[1])) == 4


def test_tradeoff_from_end_to_end(place: Place) -> None:
    words = ("--alphas", "0.3,1,3,8,20", "--seeds", 20, "--rounds", "2,3", "--out", place.out, "--json")
    said = place.call("tradeoff", place.config(DUAL), *words)
    assert (said.code, said.err) == (0, "")
    found = said.object
    assert [(line["calibration"], line["round"]) for line in found["lines"]] == [
        ("proof", 2),
        ("proof", 3),
        ("certified", 2),
        ("certified", 3),
    ]
    for line in found["lines"]:
        assert [one["alpha"] for one in line["points"]] == [0.3, 1, 3, 8, 20]
        assert line["points"][0]["loss"] > line["points"][-1]["loss"]
        worth = [PAPERS.privacy(np.array(one["alpha"])) - one["loss"] for one in line["points"]]
        assert line["best_measured"]["alpha"] == line["points"][int(np.argmax(worth))]["alpha"]
        assert line["best_measured"]["utility"] == pytest.approx(max(worth))
        assert (line["best_fitted"] is None) == (line["fit"]["r2"] < 0.9 or line["fit"]["off"] > 0.1)
        assert line["fit"]["r2"] > 0.5
        spent = [one["epsilon_certified"] for one in line["points"]]
        assert spent == sorted(spent)
    assert {item.name for item in place.out.iterdir()} == {"tradeoff.json", "tradeoff.png", "tradeoff.svg"}
    assert (place.out / "tradeoff.png").read_bytes().startswith(PNG)


def test_tradeoff_for_people(place: Place) -> None:
    said = place.call("tradeoff", place.config(DUAL), "--alphas", "0.3,1,3,20", "--seeds", 5)
    assert said.code == 0, said.err
    assert "best alpha" in said.out
    assert "simulation: noise from a seed" in said.out


@pytest.mark.parametrize(
    ("changes", "words", "error", "message"),
    [
        ({}, ("--alphas", "0.1,x"), "UsageError", "--alphas takes numbers"),
        ({}, ("--weights", "1,2"), "UsageError", "four numbers"),
        ({}, ("--alphas", "0.1,0.2"), "ConfigError", "four alphas"),
        ({}, ("--alphas=-1,0.1,0.2,0.3",), "ConfigError", "alphas[0] must be"),
        ({}, ("--rounds", "0"), "ConfigError", "rounds[0] must be"),
        ({"privacy": {"decay": 0.9}}, (), "ConfigError", "decay and profile"),
    ],
    ids=["numbers", "weights", "few", "negative", "round", "decay"],
)
def test_tradeoff_names_what_is_wrong(
    changes: dict[str, Any], words: tuple[str, ...], error: str, message: str, place: Place
) -> None:
    said = place.call("tradeoff", place.config(DUAL, **changes), *words, "--json")
    assert said.code == 2
    assert said.object["error"] == error
    assert message in said.object["message"]


def test_tradeoff_is_for_dvp_alone(place: Place) -> None:
    said = place.call("tradeoff", place.config(), "--json")
    assert said.code == 2
    assert "dvp paper's" in said.object["message"]


def test_a_fit_that_fails_ends_the_command_with_its_name(place: Place) -> None:
    """Where the proof's Phi outweighs everything, less privacy means less Phi and a larger loss."""
    words = ("--alphas", "0.00001,0.0001,0.001,0.01", "--seeds", 5, "--out", place.out, "--json")
    said = place.call("tradeoff", place.config(DUAL), *words)
    assert said.code == 1
    assert said.object["error"] == "FitError"
    assert not list(place.out.iterdir())


def test_what_cannot_be_run_is_not_fitted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from privadmm.errors import DivergedError
    from privadmm.papers.dvp import tradeoff as module

    def fails(job: Any, *others: Any) -> Any:
        if job.algorithm.alpha == 0.3:
            raise DivergedError("away")
        return measured(job, *others)

    monkeypatch.setattr(module, "measured", fails)
    config = read(place.config(DUAL))
    found = tradeoff(config, (0.3, 1.0, 3.0, 8.0, 20.0), 5, (), PAPERS)
    first = found["lines"][0]["points"][0]
    assert (first["loss"], first["problem"]) == (None, "away")
    with pytest.raises(FitError, match=r"alpha = 0\.3: away"):
        tradeoff(config, (0.3, 1.0, 3.0, 8.0), 5, (), PAPERS)


@pytest.mark.parametrize("good", [True, False])
def test_a_fit_that_was_rejected_is_not_drawn(good: bool) -> None:
    curve = Fit(1.0, 2.0, 0.5, r2=0.99 if good else 0.2, off=0.01 if good else 30.0)
    assert curve.good is good
    alphas, losses = np.array([0.1, 0.2, 0.5, 1.0]), np.array([9e4, 900.0, 3.0, 1.0])
    axes = canvas().subplots()
    theory_figures.draw_losses(axes, [{"standard_error": None}] * 4, alphas, losses, curve, "red")
    # A fit is a fine curve; without one there are the points alone.
    assert max(len(line.get_xdata()) for line in axes.lines) == (400 if good else 4)
    assert any("does not fit" in label for label in axes.get_legend_handles_labels()[1]) is not good
