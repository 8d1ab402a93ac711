"""A private evaluation: what leaves is bounded and charged, held-out records train nothing, and figures are right."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import BUDGET, CASES, DIM, OFF, Case, records, shards, transcript
from contract_tools import summing
from privadmm.algorithms import counting
from privadmm.algorithms.counting import LESS, MOVES, HeldOut
from privadmm.algorithms.evaluated import Evaluated
from privadmm.algorithms.moments import Centred
from privadmm.data.holding_out import held_sizes, parted
from privadmm.data.shards import Shards
from privadmm.data.splits import of_party
from privadmm.engine.audit import judge
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtParties, features, tick
from privadmm.errors import ConfigError
from privadmm.optim.class_curves import Curves, fitted, influence
from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, HuberHinge, Logistic, Squared
from privadmm.privacy import curves
from privadmm.privacy.accounting import epsilon, totals
from privadmm.privacy.calibration import Target, gdp_parameter
from privadmm.privacy.events import Gaussian
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door
from privadmm.runs import private_evaluation
from privadmm.runs.measures import Scored

FOC, SUM, STAR = (CASES[name] for name in ("foc-evaluated", "foc-sum-evaluated", "dp_admm-evaluated"))
SIZES = (30, 41, 30)


def with_record(party: int, place: int, x: Any, y: float) -> Shards:
    """`shards(0, SIZES)` with one record of one party replaced."""
    rows = records(0, SIZES)
    rows[party][0][place], rows[party][1][place] = x, y
    return Shards.from_parties(rows, row_bound=1.0)


# Which records are held out


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_split_is_of_all_records_and_of_public_facts_alone(sparse: bool) -> None:
    first, other = (parted(shards(seed, SIZES, sparse), 0.25, 3) for seed in (0, 1))
    for (kept, held), block in ((first, shards(0, SIZES, sparse)), (other, shards(1, SIZES, sparse))):
        assert held is not None
        assert held.sizes.tolist() == held_sizes(block.sizes, 0.25).tolist()
        assert (kept.sizes + held.sizes).tolist() == block.sizes.tolist()
        x = np.random.default_rng(0).normal(size=(len(block.ids), DIM))
        together = np.concatenate([kept.margins(x), held.margins(x)])
        assert np.sort(together) == pytest.approx(np.sort(block.margins(x)), abs=1e-15)
    # The same places of other records: whoever is replaced there, nobody else changes sides.
    one = shards(0, SIZES)
    assert first[1] is not None
    swapped = parted(with_record(1, 7, np.zeros(DIM), 1.0), 0.25, 3)
    assert swapped[1] is not None
    changed = int((swapped[0].y != parted(one, 0.25, 3)[0].y).sum() + (swapped[1].y != parted(one, 0.25, 3)[1].y).sum())  # type: ignore[union-attr]
    assert changed <= 1


def held_place(method: Evaluated, party: int, held: bool) -> int:
    places = of_party(SIZES[party], method.held_out, method.seed, party)
    return int(places[1 if held else 0][2])


def outputs(case: Case, block: Shards) -> list[bytes]:
    return transcript(case.job(sizes=SIZES, rounds=6), block)


@pytest.mark.parametrize("case", [FOC, STAR, CASES["dvp-evaluated"]], ids=lambda case: case.name)
def test_a_held_out_record_moves_no_message_of_training(case: Case) -> None:
    method: Any = case.algorithm
    block = shards(0, SIZES)
    for held in (True, False):
        other = with_record(1, held_place(method, 1, held), np.full(DIM, 0.4), 1.0)
        pairs = list(zip(outputs(case, block), outputs(case, other), strict=True))
        assert all(a == b for a, b in pairs[:4]) is held  # the method's rounds
        assert any(a != b for a, b in pairs[4:])  # a held-out record moves the counts; another one moves the model


@dataclass(frozen=True)
class Greedy(Evaluated):
    """The planted bug: held-out records are trained on."""

    def split(self, local: Local) -> Any:
        train, held = super().split(local)
        everything = replace(train.public, sizes=local.public.sizes)
        return replace(train, shards=local.shards, public=everything), held


def test_training_on_held_out_records_is_caught() -> None:
    bug: Any = replace(FOC, algorithm=Greedy(FOC.algorithm.method))  # type: ignore[attr-defined]
    block = shards(0, SIZES)
    other = with_record(1, held_place(bug.algorithm, 1, True), np.full(DIM, 0.4), 1.0)
    assert outputs(bug, block)[:4] != outputs(bug, other)[:4]


@pytest.mark.parametrize("case", [FOC, SUM, STAR, CASES["pdml-evaluated"]], ids=lambda case: case.name)
def test_the_model_is_that_of_the_same_training_without_an_evaluation(case: Case) -> None:
    job, block = case.job(sizes=SIZES, rounds=6), shards(0, SIZES)
    method: Any = job.algorithm
    found = train(job, cluster(job, block, Simulation(3)))
    alone = Job(method.method, method.inside(job.public), id="case")
    kept, _ = parted(block, method.held_out, method.seed)
    without = train(alone, cluster(alone, kept, Simulation(3)))
    assert np.array_equal(weights(job, found), weights(alone, without)) or case is SUM
    assert weights(job, found) == pytest.approx(weights(alone, without), rel=1e-9)  # another grid has other last bits
    map, other = features(found.memory), features(without.memory)
    assert (map is None) == (other is None)


# What it costs


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_the_share_is_of_the_squared_mu_and_the_total_is_kept(share: float) -> None:
    case = replace(FOC, algorithm=Evaluated(Centred(FOC.algorithm.method.method), share))  # type: ignore[attr-defined]
    job = case.job(sizes=SIZES, rounds=6)
    mu = gdp_parameter(1.0, 1e-5)
    last = [event for t in (4, 5) for event in (job.plan[t, 0][0][0],)]
    assert all(isinstance(event, Gaussian) for event in last)
    assert sum(1 / event.ratio**2 for event in last) == pytest.approx(share * mu**2, rel=1e-9)  # type: ignore[union-attr]
    assert epsilon(totals(job.plan, 3)[0], 1e-5) <= 1.0
    assert job.epsilon == pytest.approx(1.0, abs=1e-6)


REFUSED = [
    ({"privacy": Target(2.0, 0.0)}, "delta = 0"),
    ({"privacy": replace(BUDGET, copies=3)}, "two classes"),
    ({"privacy": replace(BUDGET, adjacency="label")}, "no proof"),
    ({"loss": Debiased(Logistic(), 1.0)}, "randomised labels"),
    ({"loss": Squared(1.0, radius=1.0)}, "two classes"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_not_proved_is_refused(changes: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(STAR, **changes).job()


def test_too_few_rounds_and_odd_bins_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 rounds of its own"):
        STAR.job(rounds=2)
    for bins in (3, 5, 1000):
        with pytest.raises(ConfigError, match="even number"):
            Evaluated(STAR.algorithm.method, bins=bins)  # type: ignore[attr-defined]


# Any records, any inbox: bounded, and a release

entries = st.one_of(st.floats(-3, 3), st.sampled_from([0.0, 1e100, -1e100, 1e-300, 5e-324]))
LOSSES = (Logistic(), HalfLogistic(), Hinge(), HuberHinge(0.5))


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.lists(entries, min_size=6, max_size=6),
    st.lists(entries, min_size=24, max_size=24),
    st.lists(st.floats(-1, 1), min_size=4, max_size=4),
    st.sampled_from([-1.0, 1.0]),
    st.sampled_from(LOSSES),
    st.sampled_from([1e-3, 3.0]),
)
def test_no_neighbour_moves_a_query_further_than_declared(
    w: Any, table: Any, x: Any, y: float, loss: Any, clip: float
) -> None:
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(9, 2)), np.where(rng.random(9) < 0.5, 1.0, -1.0)
    other, flipped = X.copy(), labels.copy()
    other[4], flipped[4] = x[:2], y
    model, rows = np.array(w[:2]), np.array(table).reshape(3, 8)
    seen = [
        HeldOut.under(model, Shards.from_parties([(A, b)], row_bound=1.0)) for A, b in ((X, labels), (other, flipped))
    ]
    counts, sums = [one.counts(rows[0]) for one in seen], [one.totals(rows, loss, clip) for one in seen]
    assert all(np.isfinite(found).all() for found in (*counts, *sums))
    assert np.linalg.norm(counts[0] - counts[1]) <= MOVES[0]
    assert np.linalg.norm(sums[0] - sums[1]) <= MOVES[1]
    assert [float(found.sum()) for found in counts] == [9.0, 9.0]


def test_the_bounds_are_attained() -> None:
    blocks = [Shards.from_parties([(np.array([[x]]), np.array([1.0]))], row_bound=1.0) for x in (1.0, -1.0)]
    seen = [HeldOut.under(np.array([50.0]), block) for block in blocks]
    table = np.array([[-1.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    assert np.linalg.norm(np.subtract(*[one.counts(np.zeros(1)) for one in seen])) == pytest.approx(MOVES[0])
    # The wrong one has all of the loss and no hit, the right one the other way round.
    moved = np.subtract(*[one.totals(table, Logistic(), 3.0) for one in seen])
    assert np.abs(moved).ravel() == pytest.approx([1.0, LESS, LESS], abs=1e-5)
    assert np.linalg.norm(moved) == pytest.approx(MOVES[1], abs=1e-5)


class WithoutMinimum:
    """numpy, but for the smaller of two numbers, which is the first."""

    def __getattr__(self, name: str) -> Any:
        return (lambda a, b: a) if name == "minimum" else getattr(np, name)


def test_a_loss_that_is_not_clipped_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "np", WithoutMinimum())  # the planted bug: `bounded` alone cuts at 1
    blocks = [Shards.from_parties([(np.array([[x]]), np.array([1.0]))], row_bound=1.0) for x in (1.0, -1.0)]
    table = np.array([[-1.0, 1.0], [0.0, 0.0], [0.0, 1.0]])
    seen = [HeldOut.under(np.array([50.0]), block).totals(table, Logistic(), 3.0) for block in blocks]
    assert np.linalg.norm(seen[0] - seen[1]) > 1.2 * MOVES[1]


@dataclass(frozen=True)
class Peeping(Evaluated):
    """The planted bug: the edges are quantiles of the party's own scores."""

    def query(self, k: int, local: Local, held: Shards, inbox: Mail) -> Any:
        _, w, _ = self.layout.read(inbox.values[..., 0, :], local.public)
        seen = HeldOut.under(w, held)
        return seen.counts(np.quantile(seen.scores, np.linspace(0, 1, self.bins + 1)[1:-1]))


def test_bins_that_are_read_off_the_records_are_caught() -> None:
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(0.1, 0.9, size=(40, 1)), axis=0)
    far, sides = X.copy(), np.tile([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], 7)[:40]
    far[-1] = 0.01  # the largest becomes the smallest: every quantile moves
    moved = {}
    for kind in (Evaluated, Peeping):
        method = kind(STAR.algorithm.method, held_out=0.5)  # type: ignore[attr-defined]
        public = replace(STAR.public(sizes=(40,)), dim=1)
        inbox = method.start(public)[1]
        inbox.values[..., 96] = 1.0  # the model
        held = [Shards.from_parties([(rows, sides)], row_bound=1.0) for rows in (X, far)]
        local = Local(public, held[0])
        moved[kind] = np.linalg.norm(np.subtract(*[method.query(0, local, one, inbox) for one in held]))
    assert moved[Evaluated] <= MOVES[0] < moved[Peeping]


@pytest.mark.parametrize("case", [FOC, SUM, STAR], ids=lambda case: case.name)
@pytest.mark.parametrize("size", [0.0, 1e-300, 1.0, 1e100])
def test_every_tick_of_the_evaluation_ends_in_a_release(case: Case, size: float) -> None:
    job = case.job(sizes=SIZES, rounds=6)
    for seed, t in ((0, 4), (1, 5), (2, 4), (3, 5)):
        rng = np.random.default_rng(seed)
        start = job.algorithm.start(job.public)[1]
        row = size * rng.normal(size=start.values.shape[-1]).clip(-1, 1)
        inbox = Mail(start.senders, np.broadcast_to(row, start.values.shape))
        local = Local(job.public, shards(seed, SIZES))
        door = Door(local.ids, job.plan[t, 0], Simulation(0), t, 0, lambda charges: None, summing=summing(job, t, 0))
        phase = job.algorithm.phases[0]
        assert isinstance(phase, AtParties)
        _, mail = tick(phase, t, local, job.algorithm.init(job.public, local.ids), inbox, door)
        assert np.isfinite(mail.values.astype(float)).all()
        assert len(door.charges) == len(SIZES)


# An attack on the two releases


def ratios(factor: float, games: int, truth: int) -> Any:
    """Log-likelihood ratios of the evaluation's releases between two neighbours that differ in a held-out record."""
    job = replace(STAR, privacy=Target(2.0, 0.02), loss=Logistic()).job(sizes=(6, 5, 5), rounds=6)
    method: Any = job.algorithm
    rng, total = np.random.default_rng(truth), np.zeros(games)
    X = np.zeros((6, DIM))
    place = int(of_party(6, method.held_out, method.seed, 0)[1][0])
    blocks = []
    for side in (1.0, -1.0):
        rows = X.copy()
        rows[place, 0] = side
        blocks.append(parted(Shards.from_parties([(rows, np.ones(6))], row_bound=1.0), 0.2, 0)[1])
    table = np.array([np.linspace(-1, 1, 32), np.zeros(32), np.linspace(0, 1, 32)])
    seen = [HeldOut.under(50 * np.eye(DIM)[0], block) for block in blocks if block is not None]
    for k in range(2):
        query = [one.totals(table, Logistic(), 3.0) if k else one.counts(np.zeros(1)) for one in seen]
        sigma = MOVES[k] * job.plan[4 + k, 0][0][0].ratio  # type: ignore[union-attr]
        said = query[truth] + factor * sigma * rng.standard_normal((games, *query[0].shape))
        logs = [-((said - q) ** 2).sum(axis=(-1, -2)) / (2 * (factor * sigma) ** 2) for q in query]
        total += logs[0] - logs[1]
    return total, sum(1 / job.plan[4 + k, 0][0][0].ratio ** 2 for k in range(2)) ** 0.5  # type: ignore[union-attr]


@pytest.mark.parametrize(("factor", "sound"), [(1.0, True), (0.5, False)])
def test_an_attack_on_a_held_out_record_learns_what_is_charged_and_no_more(factor: float, sound: bool) -> None:
    (first, mu), (second, _) = (ratios(factor, 60_000, truth) for truth in (0, 1))
    certified = curves.gdp_epsilon(mu, 0.02)
    found = judge(first, second, 0.02, 0.999)
    if sound:
        assert found.epsilon_lower <= certified
        assert found.epsilon_fitted == pytest.approx(certified, rel=0.1)
    else:
        assert found.epsilon_lower > certified


# What is made of it


def scored(n: int, rng: Any) -> Scored:
    y = np.where(rng.random(n) < 0.25, 1.0, -1.0)
    return Scored(np.where(y > 0, rng.normal(0.5, 2.0, n), -rng.gamma(2.0, 1.8, n) + 0.5), y)


def counted(exact: Scored, sigma: tuple[float, float], rng: Any) -> private_evaluation.Counted:
    n = len(exact.labels)
    block = Shards.from_parties([(exact.scores[:, None] / 20, exact.labels)], row_bound=1.0)
    held = HeldOut.under(np.array([20.0]), block)
    method = Evaluated(STAR.algorithm.method)  # type: ignore[attr-defined]
    table = method.layout.edges(np.array([20.0]), None)
    counts = held.counts(table[:11]).reshape(2, 12) + sigma[0] * rng.standard_normal((2, 12))
    own = influence(fitted(counts, table[:11], n), n, 32)
    sums = held.totals(np.stack([own.knots, *own.table]), Logistic(), 3.0).ravel() + sigma[1] * rng.standard_normal(3)
    return private_evaluation.Counted(n, n, table, counts, sums, sigma, 3.0, Logistic())


def test_without_noise_the_figures_are_the_exact_ones() -> None:
    rng = np.random.default_rng(0)
    exact = scored(8000, rng)
    seen = counted(exact, (0.0, 0.0), rng)
    figures = exact.figures
    assert exact.auc is not None
    assert seen.auc()["value"] == pytest.approx(exact.auc, abs=0.003)
    assert seen.accuracy()["value"] == pytest.approx(figures["accuracy"], abs=1e-5)
    assert seen.majority()["value"] == pytest.approx(figures["majority"], abs=1e-9)
    clipped = np.minimum(np.logaddexp(0, -exact.labels * exact.scores), 3.0).mean()
    assert seen.loss()["value"] == pytest.approx(clipped, abs=1e-5)
    assert seen.confusion() == pytest.approx({**exact.confusion, "noise": 0.0})
    for point, edge in zip(seen.roc(), seen.edges[::-1], strict=True):
        rates = [float((exact.scores[mine] >= edge).mean()) for mine in (exact.labels < 0, exact.labels > 0)]
        assert [point["false"], point["true"]] == pytest.approx(rates, abs=1e-3)


def test_errors_are_as_large_as_they_say() -> None:
    rng, misses = np.random.default_rng(1), []
    for _ in range(12):
        exact = scored(4000, rng)
        seen, figures = counted(exact, (25.0, 12.0), rng), exact.figures
        pairs = {"auc": (seen.auc(), exact.auc), "accuracy": (seen.accuracy(), figures["accuracy"])}
        pairs["majority"] = (seen.majority(), figures["majority"])
        misses.append([(found["value"] - true) / found["noise"] for found, true in pairs.values()])
    spread = np.sqrt(np.mean(np.square(misses), axis=0))
    assert np.all((spread > 0.5) & (spread < 1.7)), spread


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.lists(st.floats(-1e9, 1e9), min_size=8, max_size=8), st.floats(1e-90, 1e90), st.integers(1, 10**9))
def test_any_counts_have_curves_and_a_table_between_0_and_1(counts: Any, far: float, n: int) -> None:
    edges = far * np.array([-1.0, 0.0, 1.0])
    own = influence(fitted(np.array(counts).reshape(2, 4), edges, n), n, 16)
    assert np.isfinite(own.knots).all()
    assert np.all((own.table >= 0) & (own.table <= 1))
    assert 0 <= own.area <= 1


def test_curves_find_the_laws_that_made_the_counts() -> None:
    truth = Curves(0.3, np.array([-2.0, 1.0]), np.array([1.5, 1.0]))
    edges = np.linspace(-5, 5, 11)
    found = fitted(1e5 * truth.cells(edges), edges, 100_000)
    assert found.share == pytest.approx(0.3, abs=1e-4)
    assert found.centre == pytest.approx(truth.centre, abs=1e-3)
    assert found.area == pytest.approx(truth.area, abs=1e-4)


def test_an_evaluation_without_noise_says_what_is_there() -> None:
    case = replace(STAR, algorithm=Evaluated(STAR.algorithm.method), privacy=OFF, loss=Logistic())  # type: ignore[attr-defined]
    sizes, rng = (400, 500, 600), np.random.default_rng(0)
    job = case.job(sizes=sizes, rounds=6)
    rows = [(X, np.where(X[:, 0] + rng.normal(size=len(X)) > 0, 1.0, -1.0)) for X, _ in records(0, sizes)]
    block = Shards.from_parties(rows, row_bound=1.0)
    method: Any = job.algorithm
    done = train(job, cluster(job, block, Simulation(0)))
    found = private_evaluation.found(job, done)
    held = parted(block, method.held_out, method.seed)[1]
    assert found is not None
    assert held is not None
    exact = Scored(HeldOut.under(weights(job, done), held).scores, held.y)
    assert exact.auc is not None
    assert found["records"] == 300
    assert found["auc"]["value"] == pytest.approx(exact.auc, abs=0.02)
    assert found["accuracy"]["value"] == pytest.approx(exact.figures["accuracy"], abs=1e-4)


@pytest.mark.parametrize("first", [4, 5])
def test_a_party_that_leaves_in_the_evaluation_leaves_the_model_as_it_is(first: int) -> None:
    for case in (FOC, SUM):
        whole = case.job(sizes=(30,) * 5, rounds=6)
        block = shards(0, (30,) * 5)
        job = replace(whole, leave={2: first})
        done, before = (train(one, cluster(one, block, Simulation(0))) for one in (job, whole))
        assert np.array_equal(weights(job, done), weights(whole, before))
        found = private_evaluation.found(job, done)
        assert found is not None
        lost = case is SUM
        assert ("missing" in found) is lost
        if not lost:
            full = private_evaluation.found(whole, before)
            assert full is not None
            assert found["noise"]["sums"] < full["noise"]["sums"]  # of one party less


def test_a_party_that_leaves_between_the_two_releases_changes_no_figure_of_the_others() -> None:
    """Without noise the accuracy is that of the records in the second release, and the area that of equal parties."""
    case = replace(STAR, algorithm=Evaluated(STAR.algorithm.method), privacy=OFF, loss=Logistic())  # type: ignore[attr-defined]
    sizes = (600,) * 3
    whole = case.job(sizes=sizes, rounds=6)
    rng = np.random.default_rng(0)
    rows = [(X, np.where(X[:, 0] + rng.normal(size=len(X)) > 0, 1.0, -1.0)) for X, _ in records(0, sizes)]
    block = Shards.from_parties(rows, row_bound=1.0)
    told = []
    for job in (whole, replace(whole, leave={1: 5})):
        told.append(private_evaluation.found(job, train(job, cluster(job, block, Simulation(0)))))
    for name, room in (("accuracy", 0.05), ("auc", 0.05), ("log_loss", 0.05)):
        assert told[1][name]["value"] == pytest.approx(told[0][name]["value"], abs=room)  # type: ignore[index]
    assert told[1]["accuracy"]["error"] > told[0]["accuracy"]["error"]  # type: ignore[index]


@pytest.mark.parametrize("sizes", [(6, 2, 2), (2, 2, 4), (3, 3, 3)])
def test_a_model_is_not_lost_for_the_figures_of_one_record(sizes: tuple[int, ...]) -> None:
    job = STAR.job(sizes=sizes, rounds=6)
    done = train(job, cluster(job, shards(0, sizes), Simulation(0)))
    assert np.isfinite(weights(job, done)).all()
    found = private_evaluation.found(job, done)
    assert found is not None
    assert found["records"] <= 3


def test_figures_that_cannot_be_made_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_evaluation, "figures", lambda *_: 1 / 0)
    job = STAR.job(sizes=(30,) * 3, rounds=6)
    found = private_evaluation.found(job, train(job, cluster(job, shards(0, (30,) * 3), Simulation(0))))
    assert found is not None
    assert "missing" in found
