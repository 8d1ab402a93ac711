"""The dual perturbation paper: what is listed to run, one small run of each kind, and checks that can fail."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privadmm.algorithms.dvp import DVP
from privadmm.papers.dvp import paper as dvp
from privadmm.papers.dvp.checks import checks
from privadmm.papers.dvp.results import EARLY, LATE, Results
from privadmm.papers.dvp.tradeoff import Fit
from privadmm.papers.framework import nodes
from privadmm.papers.framework.bench import Failed, Setting, perform
from privadmm.papers.framework.nodes import Seen
from privadmm.papers.framework.study import Check

FULL, QUICK = Setting(), Setting(quick=True)


def seen(level: float, rounds: int = 100, seeds: int = 10, epsilon: float = 1.0) -> Seen:
    """Runs that end near this loss."""
    spread = 1 + 0.001 * np.random.default_rng(0).normal(size=(rounds, seeds))
    falling = 1 + 1 / np.arange(1, rounds + 1)[:, None]
    loss = level * spread * falling
    return Seen(loss, loss / 10, loss, epsilon, 0.01, 0.3)


def printed(alpha: float) -> float:
    return float(LATE[0] * np.exp(-LATE[1] * alpha) + 0.35)


def as_told() -> dict[Any, Any]:
    """Results of a world in which the figures are as the paper tells them."""
    found: dict[Any, Any] = {("proof", a): seen(printed(a), epsilon=100 * a) for a in dvp.ALPHAS}
    found |= {("certified", a): seen(0.9 * printed(a), epsilon=10 * a) for a in dvp.CERTIFIED}
    found |= {("box", a): seen(printed(a), 20, 3) for a in dvp.BOXED}
    found |= {("rho", rho): seen(2.0, 30) for rho in dvp.RHOS}
    return found | {("plain", dvp.CONTROL): seen(0.3, seeds=1), ("refused", dvp.CHOSEN): seen(1.0, 1, 1)}


def judged(found: dict[Any, Any]) -> dict[str, Check]:
    return {check.name: check for check in checks(Results(found, dvp.RHO, dvp.CHOSEN, 20))}


@pytest.mark.parametrize("setting", [FULL, QUICK], ids=["full", "quick"])
def test_every_task_has_a_key_and_a_label(setting: Setting) -> None:
    listed = dvp.tasks(setting)
    assert len({task.key for task in listed}) == len(listed)
    assert all(task.label for task in listed)
    assert sum(task.cost for task in listed) < 400
    assert ("proof", dvp.CHOSEN) in {task.key for task in listed}


def test_the_constants_are_the_papers() -> None:
    assert [nodes.C, dvp.RHO, dvp.ROUNDS] == [1750, 10**-2.5, 100]
    assert [*EARLY, *LATE] == [0.2, 25, 20, 20]


def test_the_records_are_dealt_out_evenly() -> None:
    held = nodes.held(5)
    assert held.nodes.sizes.tolist() == [8000] * 5
    assert held.test.sizes.tolist() == [5222]
    assert held.nodes.dim == held.test.dim == 105


def test_one_round_of_each_kind() -> None:
    """The proof's noise costs at most alpha; certified noise just that, and its loss is smaller; the box is refused."""
    paper, ours = dvp.proof(1.0, dvp.RHO, 1, 2), dvp.certified(1.0, 1, 2)
    assert paper.loss.shape == paper.error.shape == (1, 2)
    for one in (paper, ours):
        assert one.one_round is not None
        assert 0.95 < one.one_round <= 1
    assert ours.last.max() < paper.last.min()
    refused = next(task for task in dvp.tasks(QUICK) if task.key[0] == "refused")
    assert "Phi = -5.3" in perform(refused).message


def test_a_run_that_breaks_down_is_infinite_from_there_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing run is reported with `failing`; otherwise it raises."""
    from privadmm.errors import ToleranceError

    update = DVP.update

    def broken(self: DVP, t: int, *rest: Any) -> Any:
        if t == 1:
            raise ToleranceError("no solution")
        return update(self, t, *rest)

    monkeypatch.setattr(DVP, "update", broken)
    found = dvp.box(1.0, 3, 1, negative_phi=True)
    assert np.isfinite(found.loss[:, 0]).tolist() == [True, False, False]
    with pytest.raises(ToleranceError):
        dvp.proof(1.0, dvp.RHO, 2, 1)


def test_a_world_as_told_passes() -> None:
    """All claims hold except those that contradict each other or are false whatever the runs show."""
    lost = {name for name, check in judged(as_told()).items() if not check.ok}
    assert lost == {
        "Figure 3: c4 = 0.2, c5 = 25 hold at all iterations",
        "Theorem 1: a round of Algorithm 2 as printed costs alpha = 1",
        "Section 2.2: privacy does not depend on the number of iterations",
    }


@pytest.mark.parametrize(
    ("key", "value", "name"),
    [
        (("proof", 0.05), seen(0.2), "Figure 2: a larger alpha ends with a smaller loss (proof noise)"),
        (("rho", 10.0), seen(0.01, 30), "rho = 10^-2.5 has the least loss at alpha = 0.3"),
        (("refused", 0.3), Failed("Phi < 0"), "Algorithm 2 as printed can be run at alpha = 0.3"),
        (
            ("box", 0.3),
            replace(seen(1.0, 20, 3), loss=np.full((20, 3), np.inf) ** np.arange(20)[:, None]),
            "Figure 2: Algorithm 2 as printed converges at alpha = 0.3",
        ),
    ],
    ids=["order", "rho", "refused", "away"],
)
def test_what_does_not_hold_is_reported(key: Any, value: Any, name: str) -> None:
    assert judged(as_told())[name].ok
    check = judged(as_told() | {key: value})[name]
    assert not check.ok
    assert check.why


BALANCE = "Figure 3: an alpha between 0.05 and 1 balances privacy and accuracy (proof noise)"
MEASURED = {0.05: 9.996, 0.1: 2.212, 0.15: 1.143, 0.2: 0.7787, 0.3: 0.5233, 0.5: 0.4001, 1.0: 0.3525}


def flat(level: float) -> Seen:
    """Runs that end at this loss exactly."""
    return replace(seen(level), loss=np.full((100, 10), level))


def test_the_best_alpha_is_that_of_the_measured_losses() -> None:
    """Losses as they were once measured: a fit with its optimum at 0.304 misses half of them, and the largest wins."""
    found = judged(as_told() | {("proof", a): flat(loss) for a, loss in MEASURED.items()})
    assert judged(as_told())[BALANCE].ok
    assert found[BALANCE].ok is False
    assert found[BALANCE].ours == "alpha = 1, the largest of those run"
    flipped = judged(
        as_told() | {("proof", a): flat(loss) for a, loss in MEASURED.items()} | {("proof", 1.0): flat(0.5)}
    )
    assert (flipped[BALANCE].ok, flipped[BALANCE].ours) == (True, "alpha = 0.5, inside of those run")


def test_nothing_is_read_off_a_fit_that_is_rejected() -> None:
    found = as_told() | {("proof", a): flat(loss) for a, loss in MEASURED.items()}
    checks = judged(found)
    assert checks["Figure 3: the losses follow c4 exp(-c5 alpha) + c6"].ok is False
    for name, check in checks.items():
        if name.startswith(("Figure 3: c5 of", "Figure 3: c4 of", "Figure 3: c6 is")):
            assert check.ok is None, name
            assert "do not follow the curve" in check.why
            assert "a poor fit" in str(check.ours)
    made = dvp.study(FULL, found)
    assert next(line.label for line in made.figures[1].panels[1].lines if "49.7" in line.label).startswith("a poor fit")
    assert made.figures[1].panels[3].lines[0].label == "proof noise; best alpha 1, the largest that was run"
    fits = next(grid for grid in made.grids if grid.name == "fits")
    assert fits.rows[1][-2:] == ("52 %", 1.0)


def test_three_alphas_leave_the_curve_unjudged() -> None:
    few = {key: value for key, value in as_told().items() if key[0] != "proof" or key[1] in (0.1, 0.3, 1.0)}
    few = {key: value for key, value in few.items() if key[0] != "certified" or key[1] in (0.1, 1.0)}
    found = judged(few)
    for name in (
        "Figure 3: the losses follow c4 exp(-c5 alpha) + c6",
        "Figure 3: c5 of the loss (t > 1; proof noise)",
    ):
        assert found[name].ok is None
        assert "needs four" in found[name].why
    rising = {("proof", a): seen(a) for a in dvp.ALPHAS}
    assert judged(as_told() | rising)["Figure 3: the losses follow c4 exp(-c5 alpha) + c6"].ok is False


def test_a_study_has_both_figures_and_says_what_a_quick_run_left_out() -> None:
    made = dvp.study(QUICK, as_told())
    assert [figure.name for figure in made.figures] == ["figure-2", "figure-3"]
    assert any("Quick" in note for note in made.notes)
    fits = next(grid for grid in made.grids if grid.name == "fits")
    found = Results(as_told(), dvp.RHO, dvp.CHOSEN, 20).fits["proof", 100]
    assert isinstance(found, Fit)
    assert fits.rows[1][2] == pytest.approx(found.c4)
    assert found.c5 == pytest.approx(LATE[1], rel=0.05)


def test_too_few_alphas_leave_a_sentence_in_place_of_a_fit() -> None:
    few = {key: value for key, value in as_told().items() if key[0] != "certified" or key[1] in (0.1, 1.0)}
    assert "needs four" in str(Results(few, dvp.RHO, dvp.CHOSEN, 20).fits["certified", 100])
    dvp.study(QUICK, few)


def test_a_short_run_says_what_it_ran() -> None:
    """Settings, headings and checks are those of the run, not of the paper."""
    few = {("proof", a): seen(printed(a), 6, 3, 100 * a) for a in (0.05, 0.1, 0.3, 1.0)}
    few |= {("certified", a): seen(0.9 * printed(a), 6, 3, 10 * a) for a in (0.1, 1.0)}
    few |= {("box", 0.3): seen(1.0, 8, 3), ("rho", 10.0): seen(2.0, 4, 3)}
    few |= {("plain", dvp.CONTROL): seen(0.3, 6, 1), ("refused", dvp.CHOSEN): seen(1.0, 1, 1)}
    made = dvp.study(QUICK, few)
    settings = {one.symbol: one for one in made.parameters}
    assert (settings["rounds"].value, settings["rounds"].stated) == ("6", False)
    assert settings["rounds"].why == "a quick run; the paper has 100"
    assert settings["alpha"].value == "0.05, 0.1, 0.3, 1"
    assert "6 rounds, the box 8" in made.grids[0].caption
    assert "Figure 3: c6 is the loss averaged over t = 1..6" in {check.name for check in made.checks}
    whole = {one.symbol: one for one in dvp.study(FULL, as_told()).parameters}
    assert (whole["rounds"].value, whole["rounds"].stated) == ("100", True)


def test_a_fit_that_misses_a_loss_does_not_hold() -> None:
    name = "Figure 3: the losses follow c4 exp(-c5 alpha) + c6"
    assert judged(as_told())[name].ok
    check = judged(as_told() | {("proof", 0.5): seen(0.6)})[name]
    assert "R^2 = 0.99" in check.ours
    assert not check.ok


def test_what_rests_on_our_own_runs_is_ours() -> None:
    ours = {name for name, check in judged(as_told()).items() if check.of == "ours"}
    assert {name.split(",")[0] for name in ours} == {
        "Figure 3: c6 is the loss averaged over t = 20..100",
        "Figure 3: the printed curve",
        "Certified noise of the same cost a round has less loss",
    }
