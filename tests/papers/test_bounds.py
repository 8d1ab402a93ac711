"""The proofs of objective perturbation and of vertical sharing, attacked; each attack also breaks planted mistakes."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError
from privadmm.optim.losses import HalfLogistic, Logistic, Loss
from privadmm.papers.counterexamples import columns as vertical
from privadmm.papers.counterexamples import rows as bounds
from privadmm.papers.counterexamples.rows import DVP_NOISE, DVP_PAPER, DVP_RECORDS, Pairs, Space
from privadmm.privacy import curves
from privadmm.privacy.accounting import pure
from privadmm.privacy.events import GammaObjective
from privadmm.privacy.ridge_sensitivity import lemma_1

LOSSES = [Logistic(), HalfLogistic()]
# What arithmetic may add to a ratio of 1: of two logarithms, and of an integral to a small bound.
ROUNDING, QUADRATURE = 1e-9, 1e-6


def named(value: Any) -> str:
    return str(value) if isinstance(value, int) else type(value).__name__


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def some(loss: Loss, d: int, n: int) -> Pairs:
    """Pairs of moderate size, with f the output of zero noise on D."""
    space = Space(loss, d, common=2, reach=(-1, 1), w=(-2, 0), scale=(-0.5, 1))
    pairs, _ = space.draw(rng().normal(size=(n, space.genes)))
    return bounds.steer(pairs, np.zeros((n, d)))


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("side", [0, 1])
def test_the_noise_is_what_makes_the_output_optimal(loss: Loss, side: int) -> None:
    """The map to noise against a minimiser that only sees values of the objective."""
    pairs = some(loss, 2, 8)
    for i, b in enumerate(rng(1).normal(size=(8, 2))):
        one = pairs.take(np.array([i]))
        X, y = np.delete(one.X[0], 1 - side, axis=0), np.delete(one.y[0], 1 - side)
        C, m, k = one.C[0], one.m[0], one.k[0]

        def objective(f: Floats, terms: Any = (X, y, C, m, k, b, one.public[0])) -> float:
            X, y, C, m, k, b, public = terms
            return float(loss.value(X @ f, y).sum() + (b + m / C * public) @ f + m * k / C / 2 * f @ f)

        f = minimize(objective, one.f[0], method="Powell", options={"xtol": 1e-10, "ftol": 1e-14}).x
        assert one.noise(f[None, None, :])[side, 0, 0] == pytest.approx(b, abs=1e-4 * one.curvature[0] + 1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_the_determinant_is_of_the_jacobian(loss: Loss, d: int) -> None:
    pairs, step = some(loss, d, 50), 1e-6
    f = pairs.f[:, None, :]
    columns = [(pairs.noise(f - step * e) - pairs.noise(f + step * e)) / (2 * step) for e in np.eye(d)]
    expected = np.linalg.slogdet(np.stack(columns, axis=-1))[1]
    assert pairs.log_det(f) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("d", [1, 2])
def test_outputs_have_mass_one_on_either_data_set(loss: Loss, d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The density is that of the noise times a determinant: without the determinant the mass is not one."""
    pairs = some(loss, d, 20)
    for alpha in (0.0, 1.0):
        mass = bounds.log_integral(pairs, np.full(20, alpha), bounds.LEVELS[4])
        assert mass == pytest.approx(np.zeros(20), abs=1e-6)
    monkeypatch.setattr(Pairs, "log_det", lambda pairs, f: np.log(pairs.curvature)[:, None] * d)
    assert np.abs(bounds.log_integral(pairs, np.ones(20), bounds.LEVELS[4])).max() > 0.05


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_the_integral_agrees_with_an_adaptive_one(loss: Loss) -> None:
    pairs, alpha = some(loss, 1, 10), np.full(10, 1.8)
    ours = bounds.log_integral(pairs, alpha, bounds.LEVELS[4])
    for i in range(10):
        one, spread = pairs.take(np.array([i])), 15 * pairs.scale[i] / pairs.curvature[i]

        def density(f: float, one: Pairs = one) -> float:
            return float(np.exp(bounds.log_power(one, alpha[:1], np.full((1, 1, 1), f)))[0, 0])

        ends = sorted([0.0, pairs.f[i, 0] - spread, pairs.f[i, 0], pairs.f[i, 0] + spread])
        theirs = sum(quad(density, *part, limit=200)[0] for part in pairwise(ends))
        assert ours[i] == pytest.approx(np.log(theirs), abs=1e-7)


def test_the_integral_agrees_with_a_plain_grid_in_the_plane() -> None:
    pairs, alpha = some(Logistic(), 2, 6), np.full(6, 1.5)
    steps = np.linspace(-12, 12, 601)
    for i in range(6):
        one, unit = pairs.take(np.array([i])), pairs.scale[i] / pairs.curvature[i]
        grid = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(1, -1, 2) * unit + one.f[:, None, :]
        logs = bounds.log_power(one, alpha[:1], grid)[0]
        plain = np.log(np.exp(logs).sum() * (unit * (steps[1] - steps[0])) ** 2)
        assert bounds.log_integral(one, alpha[:1], bounds.LEVELS[4])[0] == pytest.approx(plain, abs=1e-6)


def test_the_search_climbs_and_counts() -> None:
    def ratio(z: Floats) -> Floats:
        return np.where(z[:, 1] > 3, np.nan, 1 - np.sum((z - [2, 1, -2, 0.5, -1]) ** 2, axis=1))

    found = bounds.attack(ratio, lambda z: z, 5, rng(), 6000)
    assert found.ratio == pytest.approx(1.0, abs=1e-4)
    assert found.ratio == ratio(found.instance)[0]
    assert 6000 <= found.tried < 6600
    assert found.unresolved > 0


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_pure_noise_keeps_its_bound_and_needs_it(loss: Loss, d: int) -> None:
    found = bounds.search_pure(loss, d, rng(d), 40_000)
    assert 0.99 < found.ratio <= 1 + ROUNDING
    assert found.tried >= 40_000


PURE_MISTAKES = {
    "curvature forgotten": lambda pairs: pairs.delta * pairs.scale,
    "one gradient instead of two": lambda pairs: pairs.delta / 2 * pairs.scale + np.log1p(pairs.w),
    "half of the curvature": lambda pairs: bounds.pure_bound(pairs) - np.log1p(pairs.w) / 2,
}


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("bound", PURE_MISTAKES.values(), ids=PURE_MISTAKES.keys())
def test_less_than_the_pure_bound_is_refuted(loss: Loss, bound: Any) -> None:
    assert bounds.search_pure(loss, 2, rng(), 4000, bound).ratio > 1.2


@pytest.mark.parametrize("w", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("zeta", [0.01, 1.0, 10.0])
def test_the_half_logistic_attains_both_terms_at_once(w: float, zeta: float) -> None:
    """At a margin just above 0 against one just below: full slopes that oppose, full curvature against none."""
    one = np.ones(1)
    X, f = np.array([[[1.0], [-1.0]]]), np.array([[1e-9]])
    pairs = Pairs(HalfLogistic(), X, np.ones((1, 2)), f, 0 * f, 0.25 * one / w, one, one, zeta * one)
    worst = bounds.divergence(bounds.steer(pairs, np.array([[-5.0]])))
    assert worst / bounds.pure_bound(pairs) == pytest.approx(1.0, abs=1e-6)
    assert bounds.pure_bound(pairs)[0] == pytest.approx(pure(GammaObjective(pairs.delta * zeta, w)))


@pytest.mark.parametrize(
    ("loss", "d", "budget", "least"),
    [
        # In one dimension slopes that oppose cannot both be steep: the logistic moves little more than half of Delta.
        (Logistic(), 1, 4000, 0.25),
        (HalfLogistic(), 1, 4000, 0.99),
        (Logistic(), 2, 2000, 0.99),
        (HalfLogistic(), 2, 1000, 0.99),
    ],
    ids=named,
)
def test_gaussian_noise_keeps_its_bound_and_needs_it(loss: Loss, d: int, budget: int, least: float) -> None:
    found = bounds.search_renyi(loss, d, rng(d), budget)
    assert least < found.ratio <= 1 + QUADRATURE
    assert found.unresolved <= 0.01 * found.tried


RENYI_MISTAKES = {
    "curvature forgotten": lambda pairs, alpha: curves.gaussian_rdp(alpha, pairs.delta / pairs.scale),
    "one gradient instead of two": lambda pairs, alpha: curves.objective_rdp(
        alpha, 2 * pairs.scale / pairs.delta, pairs.w
    ),
}


@pytest.mark.parametrize("bound", RENYI_MISTAKES.values(), ids=RENYI_MISTAKES.keys())
def test_less_than_the_gaussian_bound_is_refuted(bound: Any) -> None:
    assert bounds.search_renyi(HalfLogistic(), 1, rng(), 250, bound).ratio > 2


def test_where_the_proof_is_silent_nothing_is_integrated() -> None:
    pairs = some(Logistic(), 1, 1)
    with pytest.raises(ConfigError, match="curvature"):
        bounds.log_integral(pairs, 1 + 1 / pairs.w)


def test_a_coarse_grid_is_not_believed() -> None:
    """Without refinement, the same instances seem to break the bound."""
    space = Space(HalfLogistic(), 2, common=1, reach=(-1, 2), w=(-3, -1), scale=(0, 2))
    pairs, _ = space.draw(rng().normal(size=(100, space.genes)))
    pairs, alpha = bounds.steer(pairs, np.zeros((100, 2))), np.full(100, 1.5)
    bound = bounds.renyi_bound(pairs, alpha)
    assert (bounds.log_integral(pairs, alpha, bounds.LEVELS[0]) / (0.5 * bound)).max() > 1.1
    refined = bounds.renyi(pairs, alpha, bound)
    assert np.nanmax(refined) <= 1 + QUADRATURE


def flipped(loss: Loss, d: int, n: int) -> Pairs:
    pairs = some(loss, d, n)
    X, y = pairs.X.copy(), pairs.y.copy()
    X[:, 1], y[:, 1] = X[:, 0], -y[:, 0]
    return bounds.steer(replace(pairs, X=X, y=y), np.zeros((n, d)))


@pytest.mark.parametrize("d", [1, 2])
def test_a_flipped_label_shifts_the_logistic_noise_and_nothing_else(d: int) -> None:
    """By y x, whatever the output, and so the release is exactly 1/s-GDP for a record of norm 1."""
    pairs = flipped(Logistic(), d, 30)
    f = 3 * rng(1).normal(size=(30, 40, d))
    first, second = pairs.noise(f)
    assert first - second == pytest.approx(np.broadcast_to((pairs.y[:, :1] * pairs.X[:, 0])[:, None], f.shape))
    assert np.array_equal(*pairs.log_det(f))
    alpha = 1 + np.minimum(np.linspace(0.2, 3, 30), 0.8 / pairs.w)
    exact = curves.gaussian_rdp(alpha, np.linalg.norm(pairs.X[:, 0], axis=1) / pairs.scale)
    assert bounds.log_integral(pairs, alpha, bounds.LEVELS[4]) == pytest.approx((alpha - 1) * exact, abs=1e-6)


def label_bound(pairs: Pairs, alpha: Floats) -> Floats:
    return curves.objective_rdp(alpha, pairs.scale, pairs.w)  # type: ignore[arg-type]


def test_a_flipped_label_of_the_half_logistic_needs_the_curvature_term() -> None:
    def without(pairs: Pairs, alpha: Floats) -> Floats:
        return curves.gaussian_rdp(alpha, 1 / pairs.scale)

    assert 0.99 < bounds.search_renyi(HalfLogistic(), 1, rng(), 3000, label_bound, flip=True).ratio <= 1 + QUADRATURE
    assert bounds.search_renyi(HalfLogistic(), 1, rng(), 250, without, flip=True).ratio > 2


def test_the_box_of_dvp_asks_for_a_negative_penalty() -> None:
    assert DVP_PAPER.box(Logistic()).k - DVP_PAPER.given == pytest.approx(-5.3, abs=0.01)
    assert DVP_PAPER.certified(Logistic()).k == DVP_PAPER.given


@pytest.mark.parametrize(("records", "exceeds"), [(8000, 1.05), (1750, 1.35), (100, 3.1)])
def test_the_box_of_dvp_is_not_private_as_claimed(records: int, exceeds: float) -> None:
    party = replace(DVP_PAPER, B=records)
    assert np.linalg.norm(DVP_RECORDS.X, axis=-1).max() <= 1
    box, certified = (
        bounds.divergence(party.exposed(noise, DVP_RECORDS, DVP_NOISE))[0] / party.alpha
        for noise in (party.box(Logistic()), party.certified(Logistic()))
    )
    assert certified <= 1
    assert box > exceeds
    assert bounds.search_dvp(party, party.box(Logistic()), Logistic(), rng(), 10_000).ratio >= box


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("records", [8000, 1750, 100])
def test_the_certified_noise_of_dvp_keeps_the_claim(loss: Loss, records: int) -> None:
    party = replace(DVP_PAPER, B=records)
    noise = party.certified(loss)
    spent = pure(GammaObjective(2 * loss.lipschitz * noise.zeta, party.C * loss.smoothness / (records * noise.k)))
    assert spent == pytest.approx(party.alpha)
    assert 0.85 < bounds.search_dvp(party, noise, loss, rng(), 10_000).ratio <= 1 + ROUNDING


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_constrained_fit_is_optimal(d: int) -> None:
    """The fit is stationary on the ball with a multiplier >= 0, and inside the ball with multiplier 0."""
    n = 500
    B, c = rng(d).normal(size=(n, d, d)), rng(1).normal(size=(n, d))
    A = B @ B.transpose(0, 2, 1) + 10.0 ** rng(2).uniform(-8, 2, size=(n, 1, 1)) * np.eye(d)
    b = 10.0 ** rng(3).uniform(-3, 3, size=n)
    x = vertical.ball_argmin(A, c, b)
    size = np.linalg.norm(x, axis=1)
    assert (size <= b * (1 + 1e-12)).all()
    pull = c - np.einsum("nij,nj->ni", A, x)
    nu = np.sum(pull * x, axis=1) / size**2
    scale = np.linalg.norm(c, axis=1) + np.linalg.norm(A, axis=(1, 2)) * size
    assert (np.linalg.norm(pull - nu[:, None] * x, axis=1) <= 1e-12 * scale).all()
    assert (nu * size >= -1e-12 * scale).all()
    inside = size < b * (1 - 1e-9)
    assert (np.abs(nu * size)[inside] <= 1e-12 * scale[inside]).all()
    assert 50 < inside.sum() < 450
    free = vertical.ball_argmin(A, c, np.full(n, np.inf))
    assert free == pytest.approx(np.linalg.solve(A, c[..., None])[..., 0], rel=1e-6)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize(
    "ratio",
    [vertical.scores_ratio, vertical.fit_ratio, vertical.weights_ratio],
    ids=lambda ratio: ratio.__name__,
)
def test_a_replaced_person_keeps_its_bounds(d: int, ratio: Any) -> None:
    found = vertical.search_person(d, rng(d), 20_000, ratio)
    assert 0.95 < found.ratio <= 1 + ROUNDING


PERSON_MISTAKES = {
    "own score forgotten": lambda people: vertical.person_bound(people) ** 2 - (2 * people.b) ** 2,
    "others' scores forgotten": lambda people: (2 * people.b) ** 2,
    "one row's pull instead of two": lambda people: (
        (2 * people.b) ** 2 + (vertical.person_bound(people) ** 2 - (2 * people.b) ** 2) / 4
    ),
}


@pytest.mark.parametrize("squared", PERSON_MISTAKES.values(), ids=PERSON_MISTAKES.keys())
def test_less_than_the_person_bound_is_refuted(squared: Any) -> None:
    def ratio(people: vertical.People) -> Floats:
        return np.asarray(people.moved(vertical.ball_argmin) / np.sqrt(squared(people)))

    def gated(people: vertical.People) -> Floats:
        return np.where(vertical.fit_ratio(people) > 0, ratio(people), 0.0)

    # The ratio has two peaks, the row's own score and the movement of the fit: a climb may end on either.
    assert max(vertical.search_person(2, rng(), 10_000, part).ratio for part in (ratio, gated)) > 1.2


def test_ridge_then_clip_breaks_the_person_bound_by_the_root_of_the_people() -> None:
    """A small row in a direction of its own pulls the ridge fit out of the ball, and clipping then moves everybody."""
    crowd = np.array([99.0, 399.0, 1599.0])
    one = np.ones(3)
    rows = np.tile([[0.0, 0.0], [0.0, 0.01], [1.0, 0.0]], (3, 1, 1))
    people = vertical.People(rows, np.ones((3, 2)), crowd[:, None], 1e-6 * one, one)
    broken = vertical.scores_ratio(people, vertical.ridge_then_clip)
    assert broken[0] > 2
    assert broken[1:] / broken[:-1] == pytest.approx([2.0, 2.0], rel=0.02)
    assert vertical.scores_ratio(people).max() <= 1
    assert vertical.search_person(
        2, rng(), 4000, lambda people: vertical.scores_ratio(people, vertical.ridge_then_clip)
    ).ratio > max(broken)


@pytest.mark.parametrize(("N", "d"), [(2, 1), (4, 2), (5, 3)])
def test_a_replaced_column_keeps_its_bound_and_attains_it(N: int, d: int) -> None:
    found = vertical.search_column(N, d, rng(d), 30_000)
    assert 0.999 < found.ratio <= 1 + ROUNDING


def test_within_the_ball_a_column_can_move_the_scores_by_the_whole_target_but_no_more() -> None:
    assert vertical.search_column(4, 2, rng(), 10_000, inside_ball=True).ratio > 2
    found = vertical.search_column(4, 2, rng(), 20_000, vertical.target_bound, inside_ball=True)
    assert 0.99 < found.ratio <= 1 + ROUNDING


@pytest.mark.parametrize("inside_ball", [False, True], ids=["free", "in the ball"])
@pytest.mark.parametrize(("N", "d"), [(2, 1), (4, 2)])
def test_a_replaced_column_keeps_the_bound_on_the_weights_and_attains_it(N: int, d: int, inside_ball: bool) -> None:
    found = vertical.search_column(
        N,
        d,
        rng(d),
        20_000,
        vertical.column_weights_bound,
        inside_ball,
        moved=vertical.Columns.weights_moved,
    )
    assert 0.99 < found.ratio <= 1 + ROUNDING


def test_less_than_the_bound_on_the_weights_is_refuted() -> None:
    """The column's own weight alone, without its pull on the others, is no bound where s is small."""

    def own(columns: vertical.Columns) -> Floats:
        s = columns.q**2 / columns.mu
        size = columns.size / np.sqrt(columns.mu)
        return np.where(s < 0.2, size * np.sqrt(s) / (1 + s), np.inf)

    found = vertical.search_column(4, 2, rng(), 20_000, own, moved=vertical.Columns.weights_moved)
    assert found.ratio > 1.5


def test_lemma_1_of_the_sharing_paper_is_not_a_bound() -> None:
    case = vertical.lemma1_counterexample()
    D, other = case.D[0], case.neighbour[0]
    for part in (D, other):
        assert np.linalg.norm(part, axis=1) == pytest.approx(np.ones(400))
        assert np.linalg.norm(case.fit(part[None])) <= 1
    assert (other != D).any(axis=0).tolist() == [True] + [False] * 99
    assert np.linalg.norm(D - other) <= 1 + 1e-12
    # t = z - y/rho with |z| = |y| = 1 and rho = 1; the other of the two parties is silent.
    assert np.linalg.norm(case.t) <= 2 + 1e-12
    claimed = float(lemma_1(100, rho=1.0, lam=0.01, parties=2, b1=1.0))
    assert case.moved()[0] / claimed > 9
    assert case.moved() <= vertical.column_bound(case)


def test_noise_on_the_weights_alone_tells_column_spaces_apart() -> None:
    """However large the noise, the scores lie in the columns of the true features; noise on the scores hides them."""
    D = rng().normal(size=(30, 3))
    other = D.copy()
    other[0] = rng(1).normal(size=3)
    draws = rng(2)
    for truth, lie in ((D, other), (other, D)):
        for sigma in (1.0, 1e6):
            u = truth @ (draws.normal(size=3) + sigma * draws.normal(size=3))
            own, foreign = (vertical.distance_to_columns(u, columns) for columns in (truth, lie))
            assert own < 1e-12 * np.linalg.norm(u)
            assert foreign > 1e-3 * np.linalg.norm(u)
        noisy = truth @ draws.normal(size=3) + draws.normal(size=30)
        assert vertical.distance_to_columns(noisy, truth) > 1


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_longer_searches_find_nothing_above_the_bounds(loss: Loss) -> None:
    for d in (1, 2, 3):
        assert bounds.search_pure(loss, d, rng(100 + d), 400_000).ratio <= 1 + ROUNDING
        assert vertical.search_person(d, rng(100 + d), 400_000).ratio <= 1 + ROUNDING
        assert vertical.search_column(4, d, rng(100 + d), 400_000).ratio <= 1 + ROUNDING
    for d, budget in ((1, 20_000), (2, 6000)):
        found = bounds.search_renyi(loss, d, rng(100 + d), budget)
        assert found.ratio <= 1 + QUADRATURE
        assert found.unresolved <= 0.01 * found.tried
