"""Guarantees by adversary: a label's from a plan made for records, and the joint one of randomised labels."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.stats import norm

from cases import CASES, DIM, PRIVATE, Case, named, shards
from contract_tools import Measuring
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.cli.views.jobs import shown_epsilon
from privadmm.data.shards import Shards
from privadmm.engine.guarantees import (
    BARE,
    CLEAR,
    at_two_parties,
    collusion,
    counted_again,
    label_epsilon,
    label_plan,
    less_than_asked,
    of_both,
    views,
)
from privadmm.engine.job import Job
from privadmm.engine.party import Local
from privadmm.engine.phases import AtParties
from privadmm.engine.public import Public
from privadmm.engine.sums import if_colluding
from privadmm.optim import graphs
from privadmm.optim.losses import Debiased, HalfLogistic, Logistic
from privadmm.optim.regularizers import L2
from privadmm.privacy.accounting import delta_curve, epsilon, least_delta, most_epsilon, printed, sort, totals
from privadmm.privacy.calibration import COVER, Target, gdp_parameter, scaled
from privadmm.privacy.curves import gdp_epsilon
from privadmm.privacy.events import (
    STEPS,
    WIDEST,
    DiscreteGaussian,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    Lost,
    NotPrivate,
    RandomizedResponse,
    SharedGaussian,
    Spent,
    alone,
    merge,
)
from privadmm.privacy.history import Start
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.sums import SecureSum
from small_runs import PRIVATE as CONFIG
from small_runs import RECORDS, Place, with_changes


def test_golden_values() -> None:
    """docs/privacy.md#joint-label: label epsilon 1 and a Gaussian release of mu = 0.2 at 1e-5."""
    once = ((Gaussian(5.0), 1),)
    e2 = epsilon(once, 1e-5)
    assert e2 == pytest.approx(0.726, abs=5e-4)
    assert math.log((math.exp(1 + e2) + 1) / (math.e + math.exp(e2))) == pytest.approx(0.324, abs=5e-4)
    assert label_epsilon(once, 1e-5, 1.0) == pytest.approx(0.302, abs=5e-4)
    assert label_epsilon(once, 1e-5, None) == e2


@pytest.mark.parametrize(("label", "mu", "at"), [(1.0, 0.2, 1e-5), (0.5, 1.0, 1e-3), (3.0, 2.0, 1e-6)])
def test_the_joint_guarantee_is_the_exact_one_of_a_gaussian_release(label: float, mu: float, at: float) -> None:
    """By integration: one reported label, released once with noise; true labels +1 and -1 are the neighbours."""
    x, keep = np.linspace(-12, 12 + mu, 2_000_001), 1 / (1 + math.exp(-label))
    first, second = norm.pdf(x, mu), norm.pdf(x)
    p, q = keep * first + (1 - keep) * second, keep * second + (1 - keep) * first

    def delta(eps: float) -> float:
        return float(np.trapezoid(np.maximum(p - math.exp(eps) * q, 0), x))

    found = label_epsilon(((Gaussian(1 / mu), 1),), at, label)
    assert delta(found) <= at * (1 + 1e-4)
    assert delta(found * (1 - 1e-3)) > at  # and no smaller one would do
    assert found < min(label, gdp_epsilon(mu, at))


SPENT: dict[str, Spent] = {
    "gaussian": ((Gaussian(9.0), 30),),
    "pure": ((GammaObjective(0.05, 0.01), 40),),
    "mixed": ((Gaussian(9.0), 10), (RandomizedResponse(0.3), 4)),
    "too many to sum": ((RandomizedResponse(0.01), 1100), (GammaOutput(90.0), 1100)),
    "renyi": ((GaussianObjective(12.0, 0.02), 25), (Gaussian(1e4), 25)),
    "deployed": ((DiscreteGaussian(12.0), 25),),
    "deployed beside pure": ((DiscreteGaussian(12.0), 25), (RandomizedResponse(0.3), 4)),
    "deployed argmins": ((GaussianObjective(20.0, 0.02), 25), (DiscreteGaussian(1e4), 25)),
    "deployed argmins between labels": ((GaussianObjective(12.0, 0.0), 25), (DiscreteGaussian(1e4), 25)),
}


@pytest.mark.parametrize("spent", SPENT.values(), ids=SPENT.keys())
@pytest.mark.parametrize("at", [1e-3, 1e-6])
def test_delta_and_epsilon_are_one_curve(spent: Spent, at: float) -> None:
    curve = delta_curve(spent)
    total = epsilon(spent, at)
    assert curve(total) == pytest.approx(at, rel=2e-3)
    assert curve(total) <= at * (1 + 1e-6)
    assert curve(2 * total) < at < curve(total / 2)


def test_without_noise_only_the_randomised_label_is_left() -> None:
    clear: Spent = ((NotPrivate("in the clear"), 3),)
    assert delta_curve(clear)(5.0) == 1.0
    assert label_epsilon(clear, 1e-9, 1.0) == pytest.approx(1.0, rel=1e-6)
    assert label_epsilon(clear, 1e-9, None) == math.inf
    assert label_epsilon(((GammaOutput(2.0), 1),), 0.0, 1.0) < 0.5  # pure noise at delta = 0


@pytest.mark.parametrize("case", PRIVATE, ids=named)
def test_of_a_label_the_transcript_never_tells_more_than_of_a_record(case: Case) -> None:
    job = case.job()
    found = job.adversaries
    record, label = found["others"]["record"], found["others"]["label"]
    assert found["adjacency"] == case.privacy.adjacency  # type: ignore[union-attr]
    assert label["delta"] == job.delta
    if case.privacy.adjacency == "label":  # type: ignore[union-attr]
        assert record == BARE
        transcript = job.epsilon
        assert label["epsilon"] <= transcript
        assert (label["epsilon"] == transcript) == (job.public.label_epsilon is None)
    else:
        assert record == {"epsilon": job.epsilon, "delta": job.delta}
        assert 0 <= label["epsilon"] <= record["epsilon"] * (1 + 1e-9)
    own = job.public.label_epsilon
    assert found["own_server"]["features"] == CLEAR
    assert found["own_server"]["label"] == (CLEAR if own is None else {"epsilon": own, "delta": 0.0})
    if own is not None:
        assert label["epsilon"] < own
    json.dumps(found)


def test_what_is_not_private_is_said_so() -> None:
    assert CASES["admm_star"].job().adversaries == {
        "adjacency": None,
        "own_server": {"features": CLEAR, "label": CLEAR},
        "others": {"record": BARE, "label": BARE},
    }
    reported = CASES["admm_star-reported"].job().adversaries
    assert reported["others"] == {"record": BARE, "label": {"epsilon": 1.0, "delta": 0.0}}


@pytest.mark.parametrize(
    ("loss", "closer"),
    [
        (Logistic(), 2.0),
        (HalfLogistic(), 1.0),
        (Debiased(Logistic(), 1.0), 2 * math.e / (math.e + 1)),
        (Debiased(HalfLogistic(), 1.0), 1.0),
    ],
    ids=repr,
)
def test_first_order_noise_hides_a_label_by_the_ratio_of_the_sensitivities(loss: Any, closer: float) -> None:
    job = replace(CASES["dp_admm"], loss=loss).job()
    again = label_plan(job.algorithm, job.public, job.plan)
    for tick, ((*events,),) in job.plan.items():
        for event, own in zip(events, again[tick][0], strict=True):
            assert own.ratio / event.ratio == pytest.approx(closer, rel=1e-9)  # type: ignore[union-attr]
            assert own.ratio <= closer * event.ratio  # type: ignore[union-attr]


def test_an_objective_is_counted_without_its_curvature_and_its_cover_as_it_is() -> None:
    for loss, bend in ((Logistic(), 0.0), (HalfLogistic(), 1.0), (Debiased(Logistic(), 1.0), 0.0)):
        job = replace(CASES["dvp"], loss=loss).job()
        s, again = job.public.sensitivity, label_plan(job.algorithm, job.public, job.plan)
        for tick, (inside, cover) in job.plan.items():
            for event, own in zip(inside, again[tick][0], strict=True):
                assert isinstance(event, GaussianObjective)
                assert isinstance(own, GaussianObjective)
                assert own.ratio == pytest.approx(event.ratio * s / loss.flip, rel=1e-12)
                assert own.w == bend * event.w
            assert again[tick][1] == cover == (Gaussian(1 / COVER),) * 5
    pure = CASES["dvp-pure"].job()
    (inside, cover), (own, kept) = (
        pure.plan[(0, 0)],
        label_plan(pure.algorithm, pure.public, pure.plan)[(0, 0)],
    )
    assert own[0].slope == pytest.approx(inside[0].slope / 2, rel=1e-12)  # type: ignore[union-attr]
    assert kept == cover


def test_for_a_label_flip_of_the_logistic_an_argmin_is_gaussian() -> None:
    """docs/privacy.md#objective-label: exactly 1/s-GDP, so epsilon comes in closed form from the planned noise."""
    job = CASES["dvp"].job()
    spent = totals(label_plan(job.algorithm, job.public, job.plan), 5)[0]
    events = {event: count for event, count in totals(job.plan, 5)[0]}
    s = next(event.ratio for event in events if isinstance(event, GaussianObjective)) * job.public.sensitivity
    mu = math.sqrt(4 * (1 / s**2 + COVER**2))
    assert epsilon(spent, 1e-5) == pytest.approx(gdp_epsilon(mu, 1e-5), rel=1e-9)


@pytest.mark.parametrize("size", [1.0, 1e12, 1e60])
@pytest.mark.parametrize("tolerance", [1e-9, 1e-2, 10.0])
def test_a_label_gains_as_much_from_an_inexact_query(tolerance: float, size: float) -> None:
    """PVP's query has an error of up to left/k between any neighbours, growing with the inbox. The noise grows with it:
    it is `gain` times as loud as what one label needs, error included, for whatever a coordinator sends."""
    case = CASES["pvp-label"]
    public = replace(case, privacy=Target(1.0, 1e-5), loss=Logistic()).public()
    event = Gaussian(5.0)
    counted = label_plan(case.algorithm, public, {(0, 0): (public.everyone(event),)})
    gain = counted[(0, 0)][0][0].ratio / event.ratio  # type: ignore[union-attr]
    assert gain == pytest.approx(2.0, rel=1e-6)
    local = Local(public, shards())
    left = local.exactness(np.full((5, DIM), size), np.full((5, 1), 0.5), tolerance).left
    alone = Local(replace(public, privacy=replace(public.privacy, adjacency="label")), shards())  # type: ignore[type-var]
    assert (local.moved(left) >= gain * (alone.moves + 2 * left) * (1 - 1e-12)).all()


FIRST_ORDER = ["dp_admm", "dp_admm-half", "dp_admm-reported", "dp_admm-reported-half", "dp_fedsgd", "pvp"]


def farthest(case: Case, gain: Callable[[float], float]) -> float:
    """The largest move of a query by a flipped label over what the label's ratio allows, in random situations."""
    job, rng, worst = case.job(sizes=(1, 3)), np.random.default_rng(0), 0.0
    again = label_plan(job.algorithm, job.public, job.plan)
    phase = job.algorithm.phases[0]
    assert isinstance(phase, AtParties)
    for _ in range(60):
        X = [rng.normal(size=(m, DIM)) * 3 for m in (1, 3)]
        y = [np.ones(1), rng.choice([-1.0, 1.0], 3)]
        size = rng.choice([0.0, 0.3, 3.0])
        blank, (_, mail) = job.algorithm.init(job.public, job.public.ids), job.algorithm.start(job.public)
        state = type(blank)(**{name: size * rng.normal(size=value.shape) for name, value in vars(blank).items()})
        doors = []
        for label in (1.0, -1.0):
            y[1][0] = label
            local = Local(job.public, Shards.from_parties(list(zip(X, y, strict=True)), row_bound=1.0))
            door = Measuring(local.ids, job.plan[(0, 0)], Simulation(0), 0, 0, lambda charges: None)
            phase.run(0, local, state, mail, door)
            doors.append(door)
        moved = np.linalg.norm(doors[0].query[1] - doors[1].query[1])
        events = job.plan[(0, 0)][0][1], again[(0, 0)][0][1]
        closer = events[1].ratio / events[0].ratio  # type: ignore[union-attr]
        worst = max(worst, float(moved / (doors[0].declared[1] / gain(closer))))
    return worst


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_no_flipped_label_moves_a_query_further_than_counted(name: str) -> None:
    assert farthest(CASES[name], lambda closer: closer) <= 1 + 1e-9


def test_a_flip_counted_as_less_than_it_is_is_caught() -> None:
    assert farthest(CASES["dp_admm"], lambda closer: closer) > 0.9  # the logistic's bound is nearly attained
    assert farthest(CASES["dp_admm"], lambda closer: 1.2 * closer) > 1


def test_without_a_proof_for_labels_a_label_is_a_part_of_its_record() -> None:
    @dataclass(frozen=True)
    class Unproven(DPADMM):
        adjacencies: ClassVar[tuple[str, ...]] = ("replace-one",)

    found = replace(CASES["dp_admm"], algorithm=Unproven(D_w=3.0)).job().adversaries["others"]
    assert found["label"] == found["record"]


def test_an_event_without_a_rule_keeps_what_it_has() -> None:
    assert counted_again(RandomizedResponse(1.0), 2.0, 0.0) == RandomizedResponse(1.0)


@pytest.mark.parametrize("adjacency", ["person", "column"])
def test_between_other_neighbours_nothing_is_said_of_labels(adjacency: Any) -> None:
    case = replace(CASES["dp_admm"], privacy=Target(1.0, 1e-5, adjacency=adjacency))
    found = views(case.algorithm, case.public(), {(0, 0): (case.public().everyone(Gaussian(9.0)),)})
    assert found["others"]["label"] == BARE
    unit = "column" if adjacency == "column" else "row at one party"
    assert found["others"][unit]["epsilon"] == epsilon(((Gaussian(9.0), 1),), 1e-5)
    assert found["others"].get("record", BARE) == BARE


def summed(parties: int, colluding: int, **changes: Any) -> Public:
    """Public facts of a secure sum at epsilon = 1 and delta = 1e-6 over nine tenths of so many parties at least."""
    target = Target(1.0, 1e-6, sum=SecureSum(colluding))
    facts = CASES["foc-sum-plain"].public(sizes=(40,) * parties)
    return replace(facts, graph=graphs.star(parties), privacy=replace(target, **changes))


@pytest.mark.parametrize(
    ("parties", "colluding", "told"),
    [(10, 3, {5: 1.25, 9: 2.89}), (100, 33, {50: 1.21, 99: 10.6})],
)
def test_more_who_collude_learn_more(parties: int, colluding: int, told: dict[int, float]) -> None:
    """docs/privacy.md#secure-sums: the table of what is left if c > t collude."""
    public = summed(parties, colluding)
    found = Job(FirstOrderConsensus(), public).in_sums["secure_sum"]
    assert (found["colluding"], found["fewest"]) == (colluding, 9 * parties // 10)
    shown = {row["colluding"]: row["epsilon"] for row in found["if_colluding"]}
    for c, figure in told.items():
        assert shown[c] == pytest.approx(figure, rel=5e-3)
    assert list(shown.values()) == sorted(shown.values())
    assert found["if_colluding"][-1]["colluding"] == parties - 1


@pytest.mark.parametrize("c", [4, 6, 8, 9])
@pytest.mark.parametrize("fewest", [4, 7, 10])
def test_what_colluders_leave_is_the_noise_of_the_others(c: int, fewest: int) -> None:
    """The coordinator picks the fewest parties it may, with every colluder among them; one share each is left."""
    public = summed(10, 3, sum=SecureSum(3, fewest))
    job = Job(FirstOrderConsensus(), public)
    (spent,) = set(totals(job.plan, 10))
    left = [(present - c) / (present - 3) for present in range(max(fewest, c + 1), 11)]  # of the variance
    mu = math.sqrt(sum(count / event.ratio**2 for event, count in spent))  # type: ignore[attr-defined]
    worst = if_colluding(spent, 1e-6, c, fewest)
    assert worst == pytest.approx(gdp_epsilon(mu / math.sqrt(min(left)), 0.999e-6), rel=1e-9)
    assert if_colluding(spent, 1e-6, 3, fewest) == pytest.approx(job.epsilon, rel=1e-12)
    assert epsilon(alone(spent) or (), 1e-6) == if_colluding(spent, 1e-6, 9, fewest)


def test_two_records_of_a_person_move_a_sum_together() -> None:
    """At two parties of a secure sum a person has 2 mu, not sqrt(2) mu; budgets that differ add their mu."""
    job = Job(FirstOrderConsensus(), summed(10, 3))
    (spent,) = set(totals(job.plan, 10))
    mu = gdp_parameter(1.0, 1e-6, SharedGaussian(1.0, 3, 10))
    found = job.in_sums["secure_sum"]["at_two_parties"]
    assert found == pytest.approx(gdp_epsilon(2 * mu, 0.999e-6), rel=1e-6) == at_two_parties([spent, spent], 1e-6)
    assert found > 1.4 * gdp_epsilon(math.sqrt(2) * mu, 1e-6)
    budgets = (0.5, *(1.0,) * 7, 2.0, 3.0)
    uneven = Job(FirstOrderConsensus(), summed(10, 3, party_epsilon=budgets, epsilon=None))
    two = [gdp_parameter(0.5, 1e-6, SharedGaussian(1.0, 3, 10))] * 2  # the strictest decides the one noise
    told = uneven.in_sums["secure_sum"]["at_two_parties"]
    assert told == pytest.approx(gdp_epsilon(sum(two), 0.999e-6), rel=1e-6)
    assert told >= max(epsilon(of_both(a, b), 1e-6) for a, b in combinations(totals(uneven.plan, 10), 2))


def test_an_epsilon_beyond_the_proof_is_capped_and_said() -> None:
    """What a grid costs grows with e^epsilon: above some epsilon nothing is proved, however little noise there is."""
    plain, loud = (Job(FirstOrderConsensus(), summed(10, 3, epsilon=asked)) for asked in (1.0, 20.0))
    (spent,) = set(totals(loud.plan, 10))
    most = most_epsilon(spent, 1e-6)
    assert loud.epsilon is not None
    assert 0.999 * most < loud.epsilon <= most < 20.0
    # Noise that would cost a hair more costs, as far as is proved, anything.
    assert math.isinf(epsilon(tuple((scaled(event, 0.99), count) for event, count in spent), 1e-6))
    found = loud.in_sums["secure_sum"]
    assert (found["asked_for"], found["most_proved"], found["at_two_parties"]) == (20.0, most, None)
    said = less_than_asked(found)
    assert said is not None
    assert "epsilon = 20 was asked for" in said
    assert printed(most) in said
    assert less_than_asked(plain.in_sums["secure_sum"]) is None
    assert less_than_asked({}) is None
    assert math.isinf(most_epsilon(((Gaussian(9.0), 4),), 1e-6) or 0.0)  # noise of its own in a simulation has no grid


def test_where_nothing_is_proved_no_epsilon_is_the_most() -> None:
    """An epsilon of 0 would be perfect privacy."""
    spent: Spent = ((SharedGaussian(1e6, 1, 5), 100),)
    least = least_delta(spent)
    assert most_epsilon(spent, 1.0001 * least) is not None
    for delta in (0.9999 * least, least / 1e3, 0.0):
        assert math.isinf(epsilon(spent, delta))
        assert most_epsilon(spent, delta) is None
    assert most_epsilon(((NotPrivate("in the clear"), 1),), 1e-6) is None
    lost: Spent = ((Lost(1.0, 1e-6), 1),)
    assert most_epsilon(lost, 1e-6) is None
    assert math.isinf(epsilon(lost, 1e-6))
    facts = {"asked_for": 1.0, "most_proved": None, "sums": 100}
    assert "none is proved" in (less_than_asked(facts) or "")


def test_nothing_is_proved_where_a_start_and_a_job_have_too_many_sums() -> None:
    first = Job(FirstOrderConsensus(), summed(10, 3))
    (spent,) = set(totals(first.plan, 10))
    delta = 1.5 * least_delta(spent)  # enough for one job, and not for two
    one = Job(FirstOrderConsensus(), summed(10, 3, delta=delta))
    two = collusion(one.public, [merge(costs, costs) for costs in one.costs])
    assert one.in_sums["secure_sum"]["most_proved"] > 0
    assert two["most_proved"] is None
    assert "none is proved" in (less_than_asked(two) or "")
    assert "0" not in shown_epsilon(None, two["most_proved"])


def test_noise_of_its_own_composes_at_two_parties() -> None:
    """What a start cost before sums were secure has noise of its own at each party."""
    before: Spent = ((Gaussian(9.0), 4),)
    shared: Spent = ((SharedGaussian(6.0, 1, 5), 4),)
    found = sort(of_both(merge(before, shared), merge(before, shared))).mu
    assert found == pytest.approx(math.sqrt(2 * 4 / 81 + 4 * 4 / 36), rel=1e-12)
    assert at_two_parties([merge(before, shared), shared], 1e-6) == epsilon(
        of_both(merge(before, shared), shared), 1e-6
    )


def test_a_start_in_secure_sums_counts_with_as_few_as_may_have_been_present() -> None:
    first = Job(FirstOrderConsensus(), summed(10, 3))
    again = Job(FirstOrderConsensus(), replace(first.public, start=Start(np.zeros(DIM), first.past)))
    (spent,) = set(again.spends)
    rows = again.in_sums["secure_sum"]["if_colluding"]
    assert rows[0] == {"colluding": 5, "epsilon": if_colluding(spent, 1e-6, 5, 6)}
    assert rows[0]["epsilon"] > if_colluding(spent, 1e-6, 5, 9)
    assert rows[-1]["epsilon"] == epsilon(alone(spent) or (), 1e-6)


@pytest.mark.parametrize(("before", "now"), [(1, 5), (5, 1), (8, 3), (6, 3), (3, None)])
def test_after_a_warm_start_every_sum_counts_by_what_it_tolerates(before: int, now: int | None) -> None:
    first = Job(FirstOrderConsensus(), summed(10, before))
    public = replace(summed(10, now or 1), start=Start(np.zeros(DIM), first.past))
    if now is None:  # noise of its own, on weights of secure sums
        public = replace(public, privacy=replace(public.privacy, sum=None))  # type: ignore[type-var]
    again = Job(FirstOrderConsensus(), public)
    found = again.in_sums["secure_sum"]
    least = before if now is None else min(before, now)
    assert found["colluding"] == least
    assert any(f"up to {least} of the 10" in words for words in again.caveats)
    bounds = [row["epsilon"] for row in found["if_colluding"]]
    assert again.epsilon is not None
    assert bounds == sorted(bounds)
    assert again.epsilon <= bounds[0]
    assert bounds[-1] == max(epsilon(alone(spent) or (), 1e-6) for spent in again.spends)


def test_of_two_parties_all_others_are_tolerated() -> None:
    found = Job(FirstOrderConsensus(), summed(2, 1)).in_sums["secure_sum"]
    assert found["if_colluding"] == []


def test_without_secure_sums_nothing_is_said_of_them() -> None:
    assert CASES["foc-plain"].job().in_sums == {}
    assert CASES["admm_star"].job().in_sums == {}
    assert not any("computational" in words for words in CASES["foc-plain"].job().caveats)
    assert any("computational" in words for words in CASES["foc-sum"].job().caveats)


@pytest.mark.parametrize("gain", [1.0, 1.3, 2.0])
@pytest.mark.parametrize("ratio", [0.5, 40.0, 1e6])
def test_in_a_sum_closer_neighbours_are_rounded_as_far_apart(gain: float, ratio: float) -> None:
    """With the coarsest grid and the widest sum that are allowed, of how far a label moves the rounded message."""
    rounding = math.sqrt(WIDEST) / STEPS  # step sqrt(d) over the sum's deviation, at most
    moves = 1 / ratio - rounding  # of a record, over the deviation: what is left of 1/ratio
    own = counted_again(SharedGaussian(ratio, 3, 10), gain, 0.0)
    assert isinstance(own, SharedGaussian)
    assert (own.colluding, own.parties) == (3, 10)
    assert 1 / own.ratio >= (moves / gain + rounding) * (1 - 1e-12)
    assert own.ratio <= gain * ratio
    assert own.ratio == pytest.approx(gain * ratio, rel=1e-3 if ratio < 1e3 else 1e-1)


def test_a_label_in_a_sum_gains_as_much_as_elsewhere() -> None:
    job = replace(CASES["dp_fedsgd-sum"], loss=Logistic(), regularizer=L2(0.1)).job()
    found = job.adversaries["others"]
    assert found["label"]["epsilon"] < 0.6 * found["record"]["epsilon"]
    for tick, ((*events,),) in label_plan(job.algorithm, job.public, job.plan).items():
        for event, planned in zip(events, job.plan[tick][0], strict=True):
            assert event.ratio == pytest.approx(2 * planned.ratio, rel=1e-6)  # type: ignore[attr-defined]


def test_account_tells_each_adversary(place: Place) -> None:
    reported = with_changes(CONFIG, {"privacy": {"label_epsilon": 1.0}})
    known = ("--records", RECORDS)
    found = place.call("account", place.config(reported), *known, "--json").object["adversaries"]
    assert found["own_server"] == {"features": CLEAR, "label": {"epsilon": 1.0, "delta": 0.0}}
    joint = found["others"]["label"]["epsilon"]
    said = place.call("account", place.config(reported), *known).out
    assert "own server" in said
    assert printed(joint) in said
    plain = place.call("account", place.config(), *known, "--json").object["adversaries"]
    assert plain["own_server"]["label"] == CLEAR
    assert joint < plain["others"]["label"]["epsilon"] < plain["others"]["record"]["epsilon"]


def test_a_plan_keeps_to_the_neighbours_of_its_config(place: Place) -> None:
    """`plan` replaces only the budget: between labels an argmin pays nothing for curvature."""
    words = ("--epsilon", 1, "--delta", 1e-5, "--records", RECORDS, "--json")
    dvp: dict[str, Any] = {
        "algorithm": {"name": "dvp", "eta": 0.1, "D_w": None, "rho": None},
        "graph": {"kind": "ring"},
    }
    record = place.call("plan", place.config(**dvp), *words).object
    label = place.call("plan", place.config(**dvp, privacy={"adjacency": "label"}), *words).object
    w = [next(event["w"] for event in found["parties"][0]["events"] if "w" in event) for found in (record, label)]
    assert w[0] > w[1] == 0
