"""Where the PDML paper is wrong: one test for each, which would fail if the paper were right."""

import math

import numpy as np
import pytest

from privadmm.algorithms.pdml import PDML
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import Debiased, Logistic
from privadmm.optim.regularizers import L2
from privadmm.papers.pdml.bound import Facts
from privadmm.papers.pdml.lemma import Spectrum
from privadmm.papers.pdml.paper import lemma
from privadmm.papers.pdml.runs import SERVERS, Setup, against
from privadmm.papers.pdml.table import CONFIGURATIONS, COUNTS, PRINTED, allowed_sizes
from privadmm.papers.pdml.table_checks import better
from privadmm.privacy import curves
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation


def pair(**changes: float) -> Facts:
    """Two servers with d = 3, a = 1 (lambda = a/n = 1/2) and R = 0.5."""
    facts = {"R": 0.5, "weight": 0.5, "delta": 0.05} | changes
    return Facts(
        spectrum=Spectrum.of(graphs.complete(2)),
        degrees=np.ones(2),
        sizes=np.full(2, 100.0),
        dim=3,
        beta=4.0,
        c1=np.ones(2),
        c2=np.ones(2),
        c3=0.25,
        slope=np.ones(2),
        spread=1.0,
        radius=1.0,
        V2=np.full((1, 2), 0.01),
        decay=0.5,
        **facts,
    )


def test_strong_convexity_as_printed_fails_for_the_square() -> None:
    """(2) has the gradient at w1 and the step from it reversed: |w|^2/2 violates it, and satisfies the usual form."""
    w1, w2, N = np.zeros(1), np.ones(1), L2(1.0)
    less = float(N.value(w1) - N.value(w2))
    square = 0.5 * float(np.sum((w2 - w1) ** 2))
    assert less < float(N.subgradient(w1) @ (w2 - w1)) + square
    assert less >= float(N.subgradient(w2) @ (w1 - w2)) + square


def test_the_sum_over_servers_is_a_over_n_strongly_convex() -> None:
    """Lemma 1 says a kappa in the servers' n variables; without data the curvature along one of them is a kappa/n."""
    a, n = 1.0, 4

    def objective(w: np.ndarray) -> float:
        return float(L2(a / n).value(w).sum()) + n * math.log(2)  # rows of 0: every loss is ln 2

    along = np.zeros((n, 3))
    along[0, 0] = 1.0
    bend = objective(along) + objective(-along) - 2 * objective(0 * along)
    assert bend == pytest.approx(a / n)
    assert bend < a


def run_on_nothing(R: float, dim: int) -> tuple[float, float, float]:
    """Two servers whose rows are 0: what eta adds to the objective's minimum, in all and (35) for each, and |eta|^2."""
    n, a = 2, 1.0
    shards = Shards.build(np.zeros((8, dim)), np.tile([1.0, -1.0], 4), np.split(np.arange(8), n), row_bound=1.0)
    public = Public(shards.sizes, dim, 100, graphs.complete(n), Logistic(), L2(a / n), NoPrivacy())
    job = Job(PDML(beta=0.2, R=R), public)
    parties = cluster(job, shards, Simulation(1))
    train(job, parties)
    w = parties.local_models().mean(axis=0)
    eta = parties.workers[0].local.kept["eta"]
    return a / 2 * float(w @ w), a / 2 * float(w @ w) / n, float(np.square(eta).sum())


def test_noise_in_the_objective_moves_the_optimum_by_more_than_printed() -> None:
    """(32), (35): |eta|^2 <= n R^2 forgets the dimension; a run without data exceeds R^2/(n kappa) many times."""
    R, dim = 0.5, 40
    total, each, square = run_on_nothing(R, dim)
    printed = R**2 / (2 * 1.0)
    assert square > 2 * R**2
    assert square <= 2 * dim * R**2
    assert total > printed
    assert each > printed
    facts = pair()
    assert facts.published(1)["optimum"] == pytest.approx(printed)


def test_the_geometric_series_is_larger_than_printed() -> None:
    """(34): the sum over k of C^-k rho^(k-1) tends to 1/(C - rho), not to rho/(C - rho)."""
    C, rho = 0.9, 0.5
    total = sum(C**-k * rho ** (k - 1) for k in range(1, 200))
    assert total == pytest.approx(1 / (C - rho))
    assert total > 1.9 * rho / (C - rho)


def test_the_decomposition_needs_eta_over_n() -> None:
    """(24) ends with eta.(w_opt - w); by (14) it balances only with eta/n."""
    rng, n = np.random.default_rng(0), 10
    w, opt, hat, star, eta = rng.normal(size=(5, 3))

    def hatted(x: np.ndarray) -> float:
        return float(np.logaddexp(0, -x).sum() + x @ x)

    def tilted(x: np.ndarray) -> float:
        return hatted(x) + float(eta @ x) / n

    def population(x: np.ndarray) -> float:
        return float(np.cosh(x).sum())

    left = population(w) - population(star)
    terms = tilted(w) - tilted(opt) + hatted(opt) - hatted(hat) + hatted(hat) - hatted(star)
    terms += population(w) - hatted(w) + hatted(star) - population(star)
    assert left == pytest.approx(terms + eta @ (opt - w) / n)
    assert left != pytest.approx(terms + eta @ (opt - w))


def test_the_sample_terms_hold_for_one_server_only() -> None:
    """(28) has probability 1 - delta at one server and one sign; (27) uses it at all n, which costs ln(8n/delta)."""
    printed, needed = pair().published(1)["confidence"], pair().corrected(1)["confidence"]
    assert printed is not None
    assert needed == pytest.approx(printed * math.sqrt(math.log(16 / 0.05) / math.log(4 / 0.05)))
    assert (1 - 0.05) ** SERVERS < 0.6  # n independent events of probability 1 - delta


def test_lemma_5_says_nothing_of_the_experiments() -> None:
    """Theorem 1 is said to guide the experiments; (25) holds on none of 200 graphs of 10 servers and 13 links."""
    assert not lemma().ok


def test_bounded_noise_is_told_apart_with_a_probability_that_no_epsilon_lowers() -> None:
    """Remark 1: (14) is (epsilon_p, delta_p)-DP; whatever epsilon_p, delta_p is at least n/(m R), 14 % on german."""
    n, m, R = 10, 70, 1.0
    shift = 2 * Logistic.lipschitz / m  # of the gradient, when one record is replaced
    eta = np.random.default_rng(0).uniform(-R / n, R / n, 200_000)
    outside = float(np.mean(eta + shift > R / n))  # where the other data set never puts it
    assert outside == pytest.approx(n / (m * R), rel=0.02)
    assert outside > 0.13


def test_the_bounded_noise_cancels_between_rounds() -> None:
    """Section IV-C lets eta protect what all rounds tell; the difference of two rounds' gradients does not hold it."""
    plans = [Setup(1.0, R, "printed").job(small()).plan for R in (0.0, 9.0)]
    assert plans[0] == plans[1]
    eta, w = np.random.default_rng(0).normal(size=3), np.random.default_rng(1).normal(size=(2, 3))
    plain = np.tanh(w)
    np.testing.assert_allclose(np.diff(plain + eta / 10, axis=0), np.diff(plain, axis=0))


def small() -> Shards:
    rows = np.random.default_rng(0).normal(size=(700, 4))
    return Shards.build(rows, np.where(rows[:, 0] > 0, 1.0, -1.0), np.split(np.arange(700), 10), row_bound=1.0)


def test_the_iterates_have_a_finite_guarantee_for_finitely_many_rounds() -> None:
    """Section IV-C: over all iterations the guarantee is infinite; over T rounds it is the mu of a sum, and finite."""
    totals = [Setup(1.0, 0.0, "printed", rounds=rounds, V=5.0).job(small()).epsilon for rounds in (1, 10, 40)]
    assert all(total is not None and math.isfinite(total) for total in totals)
    job = Setup(1.0, 0.0, "printed", rounds=10, V=5.0).job(small())
    assert isinstance(job.algorithm, PDML)
    Delta = 2 * Debiased(Logistic(), 1.0).lipschitz / 70 / job.algorithm.curvature(job.public).min()
    mu = Delta / 5.0 * math.sqrt(sum(0.8**-t for t in range(10)))
    assert totals[1] == pytest.approx(curves.gdp_epsilon(mu, 1e-5), rel=1e-4)


def test_decaying_noise_may_hardly_strengthen_the_labels() -> None:
    """Section IV-C: phase 2 strengthens labels, by no figure; by next to nothing if V = 0.1, rho = 0.8 (40 rounds)."""
    printed, certified = (against(Setup(1.0, noise=noise).job(small()))[1] for noise in ("printed", "certified"))
    assert printed is not None
    assert printed > 0.9999
    assert certified is not None
    assert certified < 0.5


def test_equal_norms_are_not_consensus() -> None:
    """Figure 3(a) draws the difference of two classifiers' norms, which is 0 for classifiers that disagree."""
    w = np.eye(2)
    assert np.ptp(np.linalg.norm(w, axis=1)) == 0
    assert np.linalg.norm(w[0] - w[1]) > 1


def test_two_sets_are_not_split_70_to_30() -> None:
    """Section VI-A1: about 70 : 30 throughout; the decimals of Table I say 47 : 53 for ringnorm and twonorm."""
    shares = {name: 1 - allowed_sizes(name)[0] / COUNTS[name] for name in PRINTED}
    assert [name for name, share in shares.items() if abs(share - 0.7) > 0.1] == ["ringnorm", "twonorm"]


def test_less_noise_is_printed_with_less_accuracy() -> None:
    """Section VI-C: larger epsilon and smaller R do better; four printed pairs say the opposite, one by 8 points."""
    worse = [
        row[j] - row[i]
        for row in PRINTED.values()
        for i in range(1, len(CONFIGURATIONS))
        for j in range(1, len(CONFIGURATIONS))
        if better(i, j) and row[i] < row[j]
    ]
    assert len(worse) == 4
    assert max(worse) == pytest.approx(8.1)


def test_the_strongest_setting_is_not_comparable() -> None:
    """Section VI-C: comparable accuracy at epsilon = 0.4, R = 9; the printed rows lose 5.6 to 15.1 points."""
    lost = [row[0] - row[4] for row in PRINTED.values()]
    assert min(lost) == pytest.approx(5.62)
    assert max(lost) == pytest.approx(15.11)


def test_eta_as_printed_is_longer_than_any_gradient() -> None:
    """Table I with R = 9 in (14): uniform noise is 0.75 long for d = 21; the mean gradient at 0 is at most 1/2."""
    rng, n, d = np.random.default_rng(0), 10, 21
    eta = rng.uniform(-9, 9, size=(500, n, d)).mean(axis=1) / n
    assert np.sqrt(np.square(eta).sum(axis=1).mean()) == pytest.approx(0.753, rel=0.03)
    slope = abs(float(Logistic().deriv(np.zeros(1), np.ones(1))[0]))
    assert slope == 0.5


def test_phase_2_has_no_published_epsilon() -> None:
    """Left out: the paper gives phase 2 no epsilon, so that nothing published can be held against its noise."""
    job = Setup(1.0, 1.0, "printed").job(small())
    assert isinstance(job.public.privacy, Target)
    assert job.published is not None
    assert job.published.epsilon is None
