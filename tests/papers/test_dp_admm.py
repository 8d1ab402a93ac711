"""DP-ADMM: the records of a simulation, one tiny run of each kind, and a study that says what does not hold."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privadmm.algorithms.pvp import PVP
from privadmm.engine.block import cluster
from privadmm.engine.job import train, weights
from privadmm.papers.dp_admm import paper as dp_admm
from privadmm.papers.dp_admm.abreast import abreast
from privadmm.papers.dp_admm.checks import TOTALS, accuracy
from privadmm.papers.dp_admm.runs import (
    RHO,
    Case,
    Found,
    Ran,
    attributes,
    draw,
    job,
    looked,
    passes,
    reach,
    several,
)
from privadmm.papers.dp_admm.tables import METHODS, TABLE_III
from privadmm.papers.framework.bench import Setting
from privadmm.papers.framework.study import Check, Study
from privadmm.privacy.accounting import classical_ratio, moments_accountant, totals
from privadmm.privacy.mechanisms import Simulation

QUICK = Setting(quick=True)
CLASSICAL = classical_ratio(0.1, 1e-3)
SHAPE = len(looked(20)), 3


def test_a_simulation_has_the_papers_records() -> None:
    X = attributes()[0]
    assert X.shape == (30162, 14)
    assert X.min() == 0
    assert X.max() == 1
    records = draw(0)
    assert records.train.sizes.tolist() == [210] * 100
    assert (records.pretraining.size, records.test.size) == (162, 9000)
    assert 0.7 < np.mean(records.test.y < 0) < 0.8
    assert not np.array_equal(draw(1).test.y, records.test.y)
    assert 1 < reach(0, "l2") < reach(0, "l1")


def test_printed_figures() -> None:
    for epsilon, total in TOTALS.items():
        assert moments_accountant(epsilon, 1e-3, 100) == pytest.approx(total, abs=5e-5)
    assert set(dp_admm.EPSILONS) >= set(TABLE_III) | set(TOTALS)
    for seconds in TABLE_III.values():
        assert seconds[2] < seconds[0] < seconds[1]


def simulate(case: Case, rounds: int, simulations: int) -> Found:
    return several([case], rounds, simulations)[case]


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("noise", ["published", "certified"])
def test_dp_admm_with_the_papers_noise_costs_less_than_it_says(penalty: Any, noise: Any) -> None:
    total = moments_accountant(0.1, 1e-3, 3)
    found = simulate(Case(penalty, "DP-ADMM", noise, 0.1, 1e-3), 3, 2)
    assert found.objective.shape == found.loss.shape == (3, 2)
    assert found.accuracy.shape == (2,)
    assert found.certified is not None
    if noise == "certified":
        assert found.certified == pytest.approx(total, rel=1e-9)
    else:
        assert found.certified < total


def test_the_objective_is_of_averages_and_the_loss_of_the_last_iterate() -> None:
    found = simulate(Case("l2", "Algorithm 1", "off", 0.1, 1e-3), 6, 1)
    assert looked(12) == [1, 2, 3, 4, 5, 10, 12]
    assert found.certified is None
    start = 100 * np.log(2)  # a sum over 100 providers at w = 0
    assert found.loss[-1, 0] < found.objective[-1, 0] < start


def test_algorithm_2_has_far_too_much_noise() -> None:
    both = [simulate(Case("l2", "Algorithm 2", noise, 0.1, 1e-3), 3, 1) for noise in ("published", "certified")]  # type: ignore[arg-type]
    assert both[0].loss[-1, 0] > 2 * both[1].loss[-1, 0]
    # Two neighbours' transcripts differ in total variation by less than delta: (0, delta) holds.
    mu = np.sqrt(3) / (PVP(RHO).excess(job(Case("l2", "Algorithm 2", "published", 0.1, 1e-3), 3, 0).public) * CLASSICAL)
    assert both[0].certified == 0
    assert both[0].alone == pytest.approx(math.erf(mu / math.sqrt(8)), rel=1e-6)
    assert both[0].alone < 1e-3
    assert both[1].certified > 0


@pytest.mark.parametrize("noise", ["published", "certified"])
def test_runs_abreast_are_the_runs_one_by_one(noise: Any) -> None:
    shards = draw(1).train
    jobs = [job(Case("l2", "DP-ADMM", noise, epsilon, 1e-3), 4, 1) for epsilon in (0.05, 0.1, 0.2)]
    many = abreast(jobs, shards, 1)
    parties = cluster(many.job, many.shards, many.noise)
    found = weights(many.job, train(many.job, parties))
    alone = np.array([weights(this, train(this, cluster(this, shards, Simulation(1)))) for this in jobs])
    np.testing.assert_allclose(found, alone, rtol=1e-12, atol=0)
    assert np.abs(found - alone[::-1]).max() > 1e-3 * np.abs(alone).max()  # runs are not alike
    # Every copy of a provider is charged what its own run costs.
    charged = [parties.workers[0].ledger.spent(party) for party in range(300)]
    assert charged == [totals(this.plan, 100)[0] for this in jobs] * 100
    assert len(set(charged)) == 3


def test_runs_that_differ_in_more_than_noise_are_not_put_abreast() -> None:
    case = Case("l2", "DP-ADMM", "certified", 0.1, 1e-3)
    first, other = job(case, 4, 0), job(case, 4, 1)  # the other simulation has a D_w of its own
    with pytest.raises(ValueError, match="D_w"):
        abreast([first, other], draw(0).train, 0)
    target = replace(first.public.privacy, decay=0.9)  # type: ignore[type-var]
    fading = replace(first, public=replace(first.public, privacy=target))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rounds"):
        abreast([first, fading], draw(0).train, 0)
    for other in (replace(first.public, rounds=first.public.rounds + 1), replace(first.public, C=2.0)):
        with pytest.raises(ValueError, match="one problem"):
            abreast([first, replace(first, public=other)], draw(0).train, 0)


def test_passes_count_what_a_run_reads() -> None:
    assert passes(Case("l2", "DP-ADMM", "published", 0.1, 1e-3), 4) == 4
    assert passes(Case("l2", "Algorithm 1", "off", 0.1, 1e-3), 4) > 4


def test_certified_runs_are_calibrated_to_the_rounds_that_are_run() -> None:
    this = job(Case("l2", "Algorithm 2", "certified", 0.05, 1e-6), 20, 0)
    assert this.epsilon == pytest.approx(moments_accountant(0.05, 1e-6, 20), rel=1e-9)


def results(end: Any) -> dict[Any, Any]:
    """Results of a quick run: curves from 70 down to `end(case)`."""
    found: dict[Any, Any] = {}
    for task in dp_admm.tasks(QUICK):
        if task.key[0] == "passes":
            found[task.key] = {"DP-ADMM": 20.0, "Algorithm 1": 50.0, "Algorithm 2": 60.0 - 100 * task.key[1]}[
                task.key[2]
            ]
        elif task.key[0] == "references":
            names = ("majority", "loss", "accuracy", "D_w l1", "D_w l2")
            found[task.key] = {name: [0.75] * 3 for name in names}
        else:
            found[task.key] = {case: made(case, end(case)) for case in task.arguments[0]}
    return found


def made(case: Case, end: float) -> Found:
    curve = np.linspace(70, end, SHAPE[0])[:, None] + np.zeros(SHAPE)
    total = None if case.noise == "off" else 0.5
    return Found(curve, curve, np.full(3, 0.76 - end / 1000), total, None if total is None else 0.2)


def as_the_paper_says(case: Case) -> float:
    if case.noise == "off":
        return 40.0
    return 50 - 20 * case.epsilon - 10 * case.delta + (200 if case.method == "Algorithm 2" else 0)


def named(study: Study, words: str) -> Check:
    (found,) = [check for check in study.checks if words in check.name]
    return found


def test_a_study_of_what_the_paper_says_holds_but_for_the_trials() -> None:
    study = dp_admm.study(QUICK, results(as_the_paper_says))
    failed = [check.name for check in study.checks if not check.ok]
    assert all("total of 0.5" in name or "first trial" in name for name in failed), failed
    assert [figure.name for figure in study.figures] == [f"figure-{n}" for n in range(1, 7)]
    assert [grid.name for grid in study.grids] == ["totals", "finals", "table-iii"]
    assert any("certified (0.5, 0.001)" in line.label for line in study.figures[3].panels[0].lines)


def test_what_does_not_hold_is_reported_with_the_reason() -> None:
    def otherwise(case: Case) -> float:
        better = case.method == "Algorithm 2" and case.noise == "certified"
        return 35.0 if better else 50 + 20 * case.epsilon

    study = dp_admm.study(QUICK, results(otherwise))
    for words in (
        "a larger epsilon ends lower (l2)",
        "better than Algorithm 2 at the same total",
        "Figure 4",
    ):
        assert not named(study, words).ok
    assert "589 times" in named(study, "better than Algorithm 2 at the same total").why
    assert named(study, "overtakes").ok
    assert all(check.why for check in study.checks if not check.ok and "l2" not in check.name)


def test_a_total_of_zero_is_explained() -> None:
    def total(study: Study) -> Any:
        finals = next(grid for grid in study.grids if grid.name == "finals")
        return next(row[3] for row in finals.rows if row[:2] == ("Algorithm 2, l2", "published"))

    found = results(as_the_paper_says)
    assert total(dp_admm.study(QUICK, found)) == 0.5
    assert not any("total of 0" in note for note in dp_admm.study(QUICK, found).notes)
    key = ("l2", "Algorithm 2", "published", 1e-3)
    found[key] = {case: replace(one, certified=0.0, alone=3.6e-4) for case, one in found[key].items()}
    study = dp_admm.study(QUICK, found)
    assert total(study) == "0 at delta = 0.00036 already"
    assert any("total of 0" in note and "total variation" in note for note in study.notes)
    labels = [line.label for line in study.figures[3].panels[0].lines]
    assert "Algorithm 2, published epsilon 0.05 a round: certified (0, 0.00036)" in labels


def test_what_no_run_costs_is_not_judged() -> None:
    few = dp_admm.study(QUICK, results(as_the_paper_says))
    assert named(few, "from a total of 0.5 on as accurate as Algorithm 1 (l1)").ok is not None
    ran = Ran({}, {}, {}, (0.01,), (1e-3,), 20)
    plain = made(Case("l1", "Algorithm 1", "off", 0.1, 1e-3), 40.0)
    ran.curves[Case("l1", "Algorithm 1", "off", 0.1, 1e-3)] = plain
    check = accuracy(ran, 2, "l1")
    assert (check.ok, check.why) == (None, "20 rounds never cost more than 0.5")


def test_every_family_of_a_full_run_is_a_task() -> None:
    keys = [task.key for task in dp_admm.tasks(Setting())]
    assert len(keys) == len(set(keys))
    cases = [case for task in dp_admm.tasks(Setting()) if task.run is dp_admm.several for case in task.arguments[0]]
    assert len(cases) == 2 * 24 + 2 * 6 + 2 * 6 + 2
    assert sum(key[0] == "passes" for key in keys) == len(TABLE_III) * len(METHODS)


def test_trials_and_certified_variants_are_ours() -> None:
    for check in dp_admm.study(QUICK, results(as_the_paper_says)).checks:
        assert (check.of == "ours") == ("first trial" in check.name or "certified" in check.name), check.name
