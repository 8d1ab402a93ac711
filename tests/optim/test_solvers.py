"""argmin: the gradient it promises, the same bits with or without a cache and in any partition, and no endless loop."""

import re
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array

from privadmm.data.shards import Shards
from privadmm.data.storage import CHUNK
from privadmm.engine import party
from privadmm.engine.party import Local
from privadmm.engine.public import Public
from privadmm.errors import ConfigError, ToleranceError
from privadmm.optim import graphs, solvers
from privadmm.optim.losses import HalfLogistic, Hinge, HuberHinge, Logistic, Loss, Squared
from privadmm.optim.regularizers import L2
from privadmm.optim.solvers import Anchored, Cache, Ended, Problem, argmin, reanchor
from privadmm.privacy.calibration import NoPrivacy

LOSSES = [Logistic(), HalfLogistic(), HuberHinge(0.5), Squared()]
SIZES = (9, 30, 9, 3, 30)  # ragged, with ties, on both sides of d = 6
DIM = 6


def block(sizes=SIZES, dim=DIM, sparse=False, seed=0, row_bound=2.0):
    rng = np.random.default_rng(seed)
    parties = []
    for m in sizes:
        X = rng.normal(size=(m, dim)) * (rng.random((m, dim)) < 0.7)
        y = np.where(X[:, 0] + rng.normal(size=m) > 0, 1.0, -1.0)
        parties.append((csr_array(X) if sparse else X, y))
    return Shards.from_parties(parties, row_bound=row_bound)


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape)


def gradient(shards, loss, scale, linear, quadratic, x):
    """The gradient of the whole objective, written out."""
    weight, k = (
        np.broadcast_to(scale, len(x))[:, None] / shards.sizes[:, None],
        np.broadcast_to(quadratic, len(x)),
    )
    return weight * shards.pull(loss.deriv(shards.margins(x), shards.y)) + linear + k[:, None] * x


@dataclass
class Counting:
    """A loss that counts the records it looks at: gradients and Hessians in units of one pass."""

    loss: Loss
    records: int
    gradients: float = 0
    hessians: float = 0

    @property
    def smoothness(self):
        return self.loss.smoothness

    def deriv(self, m, y):
        self.gradients += m.size / self.records
        return self.loss.deriv(m, y)

    def curv(self, m, y):
        self.hessians += m.size / self.records
        return self.loss.curv(m, y)


# The answer


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_agrees_with_scipy(loss, sparse):
    shards, linear, zero = block(sparse=sparse), normal(5, DIM), np.zeros((5, DIM))
    scale, quadratic = np.array([1.0, 2.0, 30.0, 4.0, 5.0]), np.array([0.1, 0.2, 1.0, 0.4, 0.5])
    found = argmin(shards, loss, scale, linear, quadratic, zero, zero, 1e-10)
    for i in range(5):
        party = shards.take([i])

        def objective(x, i=i, party=party):
            total = np.sum(loss.value(party.margins(x[None]), party.y))
            return scale[i] / party.size * total + linear[i] @ x + quadratic[i] / 2 * x @ x

        def slope(x, i=i, party=party):
            return gradient(party, loss, scale[i], linear[i], quadratic[i], x[None])[0]

        expected = minimize(objective, zero[0], jac=slope, method="BFGS", options={"gtol": 1e-7})
        np.testing.assert_allclose(found[i], expected.x, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    loss=st.sampled_from([*LOSSES, HuberHinge(0.05), Squared(1.0, radius=1.0)]),
    m=st.sampled_from([1, 2, 5, 6, 7, 40]),
    dim=st.sampled_from([1, 2, 6]),
    kind=st.sampled_from(["mixed", "separable", "same label", "zero rows", "one row", "one-hot"]),
    C=st.sampled_from([1.0, 1750.0, 1e4]),
    quadratic=st.sampled_from([1e-3, 0.1, 6.0]),
    far=st.sampled_from([0.0, 1.0, 10.0]),
    sparse=st.booleans(),
)
def test_the_gradient_is_as_small_as_promised(loss, m, dim, kind, C, quadratic, far, sparse):
    """From any start and anchor, near or far."""
    X, y = normal(m, dim), np.where(normal(m, seed=2) > 0, 1.0, -1.0)
    if kind == "separable":
        y = np.where(X[:, 0] > 0, 1.0, -1.0)
    if kind == "same label":
        y = np.ones(m)
    if kind == "zero rows":
        X = np.zeros((m, dim))
    if kind == "one row":
        X = np.repeat(X[:1], m, axis=0)
    if kind == "one-hot":
        X = np.eye(dim)[np.arange(m) % dim]
    shards = Shards.from_parties([(csr_array(X) if sparse else X, y)], row_bound=1.0)
    linear, start, anchor = (
        quadratic * normal(1, dim, seed=3),
        far * normal(1, dim, seed=4),
        far * normal(1, dim, seed=5),
    )
    tolerance = 1e-9 * max(1, C * loss.smoothness / 1e3)
    x = argmin(shards, loss, C, linear, quadratic, start, anchor, tolerance)
    norm = np.linalg.norm(gradient(shards, loss, C, linear, quadratic, x))
    assert norm <= tolerance * (1 + 1e-9)


@pytest.mark.parametrize("loss", [Logistic(), HalfLogistic(), Squared()], ids=repr)
def test_almost_no_strong_convexity(loss):
    """C = 1e4 against a quadratic of 1e-8, and labels that a plane separates: the minimiser is far out."""
    X = normal(40, 7)
    shards = Shards.from_parties([(X, np.sign(X[:, 0])), (X[:3], np.ones(3))], row_bound=1.0)
    zero = np.zeros((2, 7))
    x = argmin(shards, loss, 1e4, zero, 1e-8, zero, zero, 1e-9)
    assert np.linalg.norm(gradient(shards, loss, 1e4, zero, 1e-8, x), axis=1).max() <= 1e-9
    assert isinstance(loss, Squared) or np.linalg.norm(x, axis=1).min() > 10


def test_a_minimiser_far_away_is_reached():
    shards, zero = block(), np.zeros((5, DIM))
    linear = 1e4 * normal(5, DIM)
    x = argmin(shards, Logistic(), 1.0, linear, 0.1, zero, zero, 1e-8)
    assert np.linalg.norm(x, axis=1).min() > 1e4
    assert np.linalg.norm(gradient(shards, Logistic(), 1.0, linear, 0.1, x), axis=1).max() <= 1e-8


def test_the_point_is_within_tolerance_over_strong_convexity():
    """The distance that the privacy proof charges for (docs/privacy.md#inexact)."""
    shards, linear, zero = block(), normal(5, DIM), np.zeros((5, DIM))
    exact = argmin(shards, Logistic(), 10.0, linear, 0.5, zero, zero, 1e-13)
    for tolerance in (1e-1, 1e-3, 1e-6):
        rough = argmin(shards, Logistic(), 10.0, linear, 0.5, zero, zero, tolerance)
        assert np.linalg.norm(rough - exact, axis=1).max() <= tolerance / 0.5
    assert not np.array_equal(rough, exact)


@pytest.mark.parametrize("outweighed", [999.0, 1001.0, 1e5])
@pytest.mark.parametrize("sparse", [False, True])
def test_rounding_leaves_hessians_positive_definite(sparse, outweighed):
    """Rows in a line are the worst: H has rank one, and all the other directions rest on the quadratic alone."""
    X = np.repeat(normal(1, 40), 3 * CHUNK, axis=0)
    shards = Shards.from_parties([(csr_array(X) if sparse else X, np.ones(len(X)))], row_bound=1.0)
    scale, q = np.array([7.0]), np.array([7.0 * Squared().smoothness / outweighed])
    problem = Problem.of(shards, Squared(), scale, np.zeros((1, 40)), q, dual=False)
    H, _ = problem.hessian(np.zeros((1, 40)))
    values = np.linalg.eigvalsh(H[0] + q * np.eye(40))
    assert values[0] >= 0.87 * q[0]
    exact = 7.0 / len(X) * shards.gram(np.ones(len(X)))
    assert np.array_equal(H, exact) == (outweighed > 1000)  # single precision where it is safe, and only there
    assert np.linalg.norm(H - exact, 2, axis=(1, 2)) <= CHUNK * 2.0**-24 * 7.0


def test_a_party_takes_the_precision_of_its_own_problem():
    """A party's result does not depend on the others in its block."""
    shards, linear, zero = block((60, 60, 60)), normal(3, DIM), np.zeros((3, DIM))
    scale, quadratic = np.array([1.0, 1e4, 1e4]), np.array([0.1, 1e-3, 1e3])
    together = argmin(shards, Logistic(), scale, linear, quadratic, zero, zero, 1e-9)
    for i in range(3):
        alone = argmin(shards.take([i]), Logistic(), scale[i], linear[[i]], quadratic[i], zero[:1], zero[:1], 1e-9)
        assert together[[i]].tobytes() == alone.tobytes()


@pytest.mark.parametrize(("quadratic", "most"), [(9e-4, 2.7), (0.5, 3.0)], ids=["double", "single"])
def test_a_quadratic_problem_takes_one_step(quadratic, most):
    """Gradients are taken at the anchor and the answer, and again where a Hessian was in single precision."""
    shards, linear, zero = block(), quadratic * normal(5, DIM), np.zeros((5, DIM))
    loss = Counting(Squared(), shards.size)
    argmin(shards, loss, 1.0, linear, quadratic, zero, zero, 1e-9)
    assert loss.gradients <= most
    assert loss.hessians == 1


# Purity


def rounds(shards, loss, make_cache, count=10, noise=0.3):
    """A star ADMM with noise in the objective; the cache is asked for anew in every round."""
    P, d = len(shards.ids), shards.dim
    x = anchor = dual = np.zeros((P, d))
    center, path = np.zeros(d), []
    for t in range(count):
        anchor = reanchor(anchor, x, t)
        linear = dual - 0.2 * center + noise * normal(P, d, seed=[t])
        x = argmin(shards, loss, 20.0, linear, 0.2 + 0.01 * t, x, anchor, 1e-9, make_cache())
        center = (x + dual / 0.2).mean(axis=0)
        dual = dual + 0.2 * (x - center)
        path.append(x)
    return np.stack(path)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_worker_rebuilt_at_every_message_gives_the_same_bits(loss, sparse):
    shards, kept = block((*SIZES, 60), sparse=sparse), Cache()
    lasting = rounds(shards, loss, lambda: kept)
    assert lasting.tobytes() == rounds(shards, loss, Cache).tobytes()
    assert lasting.tobytes() == rounds(shards, loss, lambda: None).tobytes()
    assert sum(len(entry.gradient) for entry, _ in kept.batches.values()) == len(shards.ids)


@pytest.mark.parametrize("sizes", [SIZES, (60, 60)], ids=["inverse kept", "Hessian kept too"])
def test_what_a_cache_saw_before_does_not_show(sizes):
    shards, P = block(sizes), len(sizes)
    linear, anchor, zero = normal(P, DIM), normal(P, DIM, seed=7), np.zeros((P, DIM))
    fresh = argmin(shards, Logistic(), 3.0, linear, 0.2, zero, anchor, 1e-9)
    cache = Cache()
    for other in (
        {"anchor": zero},
        {"quadratic": 0.3},
        {"scale": 4.0},
        {"loss": HalfLogistic()},
        {"linear": -linear},
    ):
        given = {
            "loss": Logistic(),
            "scale": 3.0,
            "linear": linear,
            "quadratic": 0.2,
            "anchor": anchor,
        } | other
        argmin(shards, start=zero, tolerance=1e-9, cache=cache, **given)
        again = argmin(shards, Logistic(), 3.0, linear, 0.2, zero, anchor, 1e-9, cache)
        assert again.tobytes() == fresh.tobytes()


def test_hessians_taken_on_the_way_do_not_reach_the_cache():
    """At score 0 the Huberised hinge has no curvature, so the anchor's Hessian is of no use and is replaced."""
    shards, zero = block((30, 30, 30)), np.zeros((3, DIM))
    loss, cache = Counting(HuberHinge(0.1), shards.size), Cache()
    found = [argmin(shards, loss, 1750.0, normal(3, DIM), 0.1, zero, zero, 1e-9, cache) for _ in range(2)]
    assert found[0].tobytes() == found[1].tobytes()
    assert loss.hessians > 2


def test_a_stale_entry_would_show():
    """Control: an entry that survives under the wrong key changes the bits, so the test above can fail."""
    shards, linear, anchor, zero = block(), normal(5, DIM), normal(5, DIM, seed=7), np.zeros((5, DIM))
    cache, wrong = Cache(), Cache()
    fresh = argmin(shards, Logistic(), 3.0, linear, 0.2, zero, anchor, 1e-9, cache)
    argmin(shards, Logistic(), 3.0, linear, 0.2, zero, zero, 1e-9, wrong)
    for name, (entry, ended) in wrong.batches.items():
        wrong.batches[name] = replace(entry, key=cache.batches[name][0].key), ended
    assert argmin(shards, Logistic(), 3.0, linear, 0.2, zero, anchor, 1e-9, wrong).tobytes() != fresh.tobytes()
    for name, (entry, ended) in cache.batches.items():
        cache.batches[name] = (
            entry,
            replace(ended, key=(Logistic(), zero[: len(ended.gradient)].tobytes(), ended.key[2])),
        )
    assert argmin(shards, Logistic(), 3.0, linear, 0.2, zero, anchor, 1e-9, cache).tobytes() != fresh.tobytes()


def test_the_cache_holds_nothing_of_the_minimiser_of_a_solve_from_its_anchor():
    """Two solves that differ only in the linear term, so in their minimisers, leave the same bytes behind."""
    shards, anchor, zero = block(), normal(5, DIM, seed=7), np.zeros((5, DIM))

    def left(linear, start, anchor):
        cache = Cache()
        argmin(shards, Logistic(), 3.0, linear, 0.2, start, anchor, 1e-9, cache)
        return {name: [array.tobytes() for array in arrays(*kept)] for name, kept in cache.batches.items()}

    def arrays(entry, ended):
        found = (entry.gradient, *(entry.hessian or ()), entry.core, ended and ended.gradient)
        return [array for array in found if array is not None]

    assert left(normal(5, DIM), anchor, anchor) == left(normal(5, DIM, seed=2), anchor, anchor)
    assert left(normal(5, DIM), anchor, anchor) != left(normal(5, DIM), zero, zero)
    assert left(normal(5, DIM), zero, anchor) != left(normal(5, DIM, seed=2), zero, anchor)
    assert set(Anchored.__dataclass_fields__) == {"key", "gradient", "hessian", "ridge", "core"}
    assert set(Ended.__dataclass_fields__) == {"key", "gradient"}


def test_nor_where_one_party_of_several_starts_at_its_anchor():
    shards, cache, anchor = block(), Cache(), normal(5, DIM, seed=7)
    start = anchor.copy()
    start[1:] += 1.0
    argmin(shards, Logistic(), 3.0, normal(5, DIM), 0.2, start, anchor, 1e-9, cache)
    assert [ended for _, ended in cache.batches.values()] == [None] * len(cache.batches)


def test_a_missed_tolerance_leaves_no_gradient_behind():
    """If a party gave up, nothing was written: uninitialised memory must not be taken for its gradient."""
    shards, cache, zero = block(), Cache(), np.zeros((5, DIM))
    with pytest.raises(ToleranceError):
        argmin(shards, Logistic(), 3.0, normal(5, DIM), 0.2, zero + 1, zero, 1e-25, cache)
    assert cache.batches
    assert not [ended for _, ended in cache.batches.values() if ended is not None]


@pytest.mark.parametrize(("scale", "before", "after"), [(1.0, 1.0, 1e-5), (30.0, 0.1, 1e-3)])
def test_a_hessian_in_single_precision_is_not_taken_for_a_smaller_ridge(scale, before, after):
    shards, cache, linear, zero = block((200,), 3), Cache(), 0.01 * normal(1, 3), np.zeros((1, 3))
    argmin(shards, Logistic(), scale, linear, before, zero, zero, 1e-9, cache)
    kept = argmin(shards, Logistic(), scale, linear, after, zero, zero, 1e-9, cache)
    assert kept.tobytes() == argmin(shards, Logistic(), scale, linear, after, zero, zero, 1e-9).tobytes()


def test_nor_is_an_inverse_taken_for_another_floor_of_the_ridge():
    """Neighbouring scales may have the same weight of one record, and below the floor another ridge."""
    shards = Shards.from_parties([(np.zeros((49, 3)), np.ones(49))], row_bound=1.0)
    linear, zero, tried = 1e-14 * normal(1, 3), np.zeros((1, 3)), 0
    for scale in np.linspace(1.0, 1.9, 200):
        other = np.nextafter(scale, 2.0)
        if scale / 49 == other / 49:
            cache, terms = Cache(), (linear, 3e-14, zero, zero, 1e-25)
            argmin(shards, Logistic(), scale, *terms, cache)
            kept = argmin(shards, Logistic(), other, *terms, cache)
            assert kept.tobytes() == argmin(shards, Logistic(), other, *terms).tobytes()
            tried += 1
    assert tried > 10


def test_who_is_done_stays_where_it_is_to_the_sign_of_a_zero():
    """A party without a record that counts starts at its minimiser, -0, beside one that has steps to take."""
    rng = np.random.default_rng(0)
    parties = [
        (np.zeros((20, 3)), np.ones(20)),
        (rng.normal(size=(20, 3)), np.where(rng.random(20) > 0.5, 1.0, -1.0)),
    ]
    shards = Shards.from_parties(parties, row_bound=1.0)
    start, anchor, zero = np.full((2, 3), -0.0), np.ones((2, 3)), np.zeros((2, 3))
    together = argmin(shards, Logistic(), 1.0, zero, 0.1, start, anchor, 1e-9)
    alone = argmin(shards.take([0]), Logistic(), 1.0, zero[:1], 0.1, start[:1], anchor[:1], 1e-9)
    assert together[:1].tobytes() == alone.tobytes() == start[:1].tobytes()


def test_the_cache_forgets_parties_that_left():
    shards, zero, cache = block(), np.zeros((5, DIM)), Cache()
    argmin(shards, Logistic(), 3.0, zero, 0.2, zero, zero, 1e-9, cache)
    argmin(shards.take([1]), Logistic(), 3.0, zero[:1], 0.2, zero[:1], zero[:1], 1e-9, cache)
    assert [len(entry.gradient) for entry, _ in cache.batches.values()] == [1]


def test_replicas_have_branches_of_their_own():
    cache = Cache()
    assert cache.branch(0) is cache.branch(0)
    assert cache.branch(0) is not cache.branch(1)
    shards, zero = block(), np.zeros((5, DIM))
    argmin(shards, Logistic(), 3.0, zero, 0.2, zero, zero, 1e-9, cache.branch(1))
    assert not cache.batches
    assert not cache.branch(0).batches
    assert cache.branch(1).batches


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("together", [1, 2, 7], ids=["looped", "in pairs", "together"])
def test_replicas_solved_together_are_solved_as_each_alone(sparse, together, monkeypatch):
    """Seven replicas of a ragged block, as seven solves and as one; with a cache, twice over.

    Both end where the gradient of a k-strongly convex problem is at most the tolerance, so they are that close. Where a
    replica is solved by itself, it has the bits of a plain solve.
    """
    shards = block(sparse=sparse)
    monkeypatch.setattr(party, "CELLS", together * shards.cells)
    monkeypatch.setattr(party, "WIDTH", together)
    public = Public(shards.sizes, DIM, 1, graphs.star(5), Logistic(), L2(0.1), NoPrivacy(), C=40.0, replicas=7)
    k, local = np.linspace(0.01, 1, 5)[:, None], Local(public, shards)
    linear, start, anchor = (normal(7, 5, DIM, seed=seed) for seed in (1, 2, 3))
    for _ in range(2):
        found = local.argmin(linear, k, start, anchor[0], tolerance=1e-9)
        for r in range(7):
            alone = argmin(
                shards,
                Logistic(),
                public.scale(public.ids)[:, 0],
                linear[r],
                k[:, 0],
                start[r],
                anchor[0],
                1e-9,
            )
            assert (np.linalg.norm(found[r] - alone, axis=-1) <= 2e-9 / k[:, 0]).all()
            if together == 1:
                assert found[r].tobytes() == alone.tobytes()


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("least", [1, 100, 1 << 16])
def test_bits_of_replicas_do_not_depend_on_the_partition(sparse, least, monkeypatch):
    """Also where solved replicas are left out of products, which changes how those of the others are rounded."""
    monkeypatch.setattr(solvers, "LEAST", least)
    sizes, dim, R = (9, 60, 9, 3, 60, 9, 200), 12, 6
    shards, P = block(sizes, dim, sparse), 7
    scale, quadratic = np.linspace(1, 1750, P), np.geomspace(1e-3, 6, P)
    linear, start, anchor = 0.3 * normal(R, P, dim), normal(R, P, dim, seed=2), 3 * normal(R, P, dim, seed=3)
    start[1] = start[0]  # some are solved before others
    anchor[2:4] = 0.0

    def solve(at):
        rows = [part[:, at].swapaxes(0, 1).reshape(-1, dim) for part in (linear, start, anchor)]
        weights = (np.repeat(part[at], R) for part in (scale, quadratic))
        C, q = weights
        return argmin(shards.take(at).repeat(R), Logistic(), C, rows[0], q, *rows[1:], 1e-9).reshape(len(at), R, dim)

    whole = solve(np.arange(P))
    for part in ([0, 3, 6], [1, 2, 4, 5], *([i] for i in range(P))):
        assert solve(np.array(part)).tobytes() == whole[part].tobytes()


# Partition


def test_bits_do_not_depend_on_the_partition(monkeypatch):
    sizes, dim = (9, 30, 9, 3, 30, 9, 200, 200), 12
    for loss in (Logistic(), HuberHinge(0.1)):
        for sparse in (False, True):
            shards, P = block(sizes, dim, sparse), len(sizes)
            linear, start, anchor = 0.3 * normal(P, dim), normal(P, dim, seed=2), 3 * normal(P, dim, seed=3)
            scale, quadratic = np.linspace(1, 1750, P), np.geomspace(1e-3, 6, P)

            def solve(at, shards=shards, loss=loss, terms=(scale, linear, quadratic, start, anchor)):
                return argmin(shards.take(at), loss, *(term[at] for term in terms), 1e-9)

            whole = solve(np.arange(P))
            for parts in (
                [[0, 3, 6], [1, 2, 4, 5, 7]],
                [[i] for i in range(P)],
                [[0, 1, 2, 3, 4, 5], [6], [7]],
            ):
                for part in parts:
                    assert solve(np.array(part)).tobytes() == whole[part].tobytes()
            for cells, few in product((1, 1 << 9, 1 << 14), (0, 1 << 7, 1 << 20)):
                monkeypatch.setattr(solvers, "CELLS", cells)
                monkeypatch.setattr(solvers, "FEW", few)
                assert solve(np.arange(P)).tobytes() == whole.tobytes()


@pytest.mark.parametrize("what", ["linear", "tolerance", "quadratic", "start", "anchor"])
def test_parties_do_not_feel_each_other(what):
    """A party's own term changes only its own bits, although all are solved together."""
    shards = block((30, 30, 30), 8)
    terms = {
        "scale": np.full(3, 50.0),
        "linear": normal(3, 8),
        "quadratic": np.full(3, 0.1),
        "start": normal(3, 8, seed=4),
        "anchor": normal(3, 8, seed=3),
        "tolerance": np.full(3, 1e-9),
    }
    before = argmin(shards, Logistic(), **terms)
    changed = dict(terms)
    changed[what] = terms[what].copy()
    changed[what][1] *= 1e3 if what == "tolerance" else 1 + 1e-6
    after = argmin(shards, Logistic(), **changed)
    same = [before[i].tobytes() == after[i].tobytes() for i in range(3)]
    assert same == [True, False, True]


# Cost


@pytest.mark.parametrize(("noise", "most"), [(0.0, 4.5), (0.3, 7.0)])
def test_rounds_cost_a_few_gradients_and_few_hessians(noise, most):
    shards, cache = block((900, 900, 900), 60), Cache()
    loss = Counting(Logistic(), shards.size)
    rounds(shards, loss, lambda: cache, count=33, noise=noise)
    assert loss.gradients / 33 < most
    assert loss.hessians == 4  # rounds 0, 1, 4 and 16, although the quadratic changes in every round
    forgetful = Counting(Logistic(), shards.size)
    rounds(shards, forgetful, Cache, count=33, noise=noise)
    # Control: the anchor's gradient in the other rounds, and the start's, but after solves that began at their anchor.
    assert forgetful.gradients == pytest.approx(loss.gradients + 29 + 26)
    assert forgetful.hessians == 33


def test_a_start_that_meets_the_tolerance_is_the_answer():
    shards, linear, zero = block((400,)), 0.1 * normal(1, DIM), np.zeros((1, DIM))
    best = argmin(shards, Logistic(), 20.0, linear, 0.2, zero, zero, 1e-9)
    costs = []
    for start in (best, zero):
        loss = Counting(Logistic(), shards.size)
        found = argmin(shards, loss, 20.0, linear, 0.2, start, best + 0.05, 1e-9)
        assert (found.tobytes() == best.tobytes()) == (start is best)
        costs.append(loss.gradients)
    assert costs[0] == 2  # the anchor's, and the start's
    assert costs[1] > 2


def test_reanchor_ever_more_rarely():
    old, new = np.zeros((2, 3)), np.ones((2, 3))
    moved = [t for t in range(1030) if reanchor(old, new, t) is new]
    assert moved == [0, 1, 4, 16, 64, 256, 1024]
    assert all(reanchor(old, new, t) is old for t in (2, 3, 5, 8, 15, 17, 32))


# Refusals


def test_a_missed_tolerance_names_the_party_and_tells_nothing_else(monkeypatch):
    monkeypatch.setattr(solvers, "CAP", 7)
    messages = []
    for seed in (0, 1):
        shards, zero = block(seed=seed), np.zeros((5, DIM))
        shards = Shards(shards.ids + 40, shards.sizes, shards.dim, shards.y, shards.slots)
        tolerance = np.array([1e-9, 1e-300, 1e-9, 1e-9, 1e-300])
        with pytest.raises(ToleranceError) as caught:
            argmin(shards, Logistic(), 1.0, normal(5, DIM, seed=seed), 0.5, zero, zero, tolerance)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]  # other data, same words
    assert messages[0].startswith("party 41 (1e-300), party 44 (1e-300): ")
    assert "7 steps" in messages[0]
    assert not re.search(r"\d\.\d", messages[0])


def test_a_tolerance_below_rounding_ends(monkeypatch):
    monkeypatch.setattr(solvers, "CAP", 40)
    shards, zero = block(), np.zeros((5, DIM))
    with pytest.raises(ToleranceError):
        argmin(shards, HuberHinge(0.1), 1e4, 30 * normal(5, DIM), 1e-3, zero, zero, 1e-12)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("what", ["scale", "linear", "quadratic", "start", "anchor", "tolerance"])
def test_numbers_that_are_not_finite_are_refused(what, value):
    terms = {
        "scale": np.ones(5),
        "linear": normal(5, DIM),
        "quadratic": np.ones(5),
        "tolerance": np.full(5, 1e-9),
    }
    terms |= {"start": np.zeros((5, DIM)), "anchor": np.zeros((5, DIM))}
    terms[what].flat[1] = value
    with pytest.raises(ConfigError, match=what):
        argmin(block(), Logistic(), **terms)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"quadratic": 0.0}, "quadratic"),
        ({"quadratic": -1.0}, "quadratic"),
        ({"scale": 0.0}, "scale"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"linear": np.zeros((5, DIM + 1))}, "linear"),
        ({"start": np.zeros(DIM)}, "start"),
        ({"loss": Hinge()}, "huber_hinge"),
    ],
)
def test_what_has_no_answer_is_refused(change, word):
    zero = np.zeros((5, DIM))
    terms = {
        "loss": Logistic(),
        "scale": 1.0,
        "linear": zero,
        "quadratic": 1.0,
        "start": zero,
        "anchor": zero,
    }
    with pytest.raises(ConfigError, match=word):
        argmin(block(), **(terms | {"tolerance": 1e-9} | change))


@pytest.mark.parametrize("C", [1.0, 50.0])
@pytest.mark.parametrize("m", [4, 20])
def test_a_party_beside_one_that_is_stored_in_another_way(m, C):
    """Parties of equal size, which could be taken for one piece; with fewer records than columns, and with more."""
    dim = 16
    rows = [normal(m, dim, seed=seed) for seed in range(3)]
    labels = [np.where(normal(m, seed=10 + seed) > 0, 1.0, -1.0) for seed in range(3)]
    linear, anchor = normal(2, dim, seed=20), normal(2, dim, seed=21)

    def beside(other):
        parties = [(csr_array(rows[0]), labels[0]), (rows[other], labels[other])]
        shards = Shards.from_parties(parties, row_bound=1.0)
        return argmin(shards, Logistic(), C, linear, 1.0, np.zeros((2, dim)), anchor, 1e-8)[0]

    alone = Shards.from_parties([(csr_array(rows[0]), labels[0])], row_bound=1.0)
    found = argmin(alone, Logistic(), C, linear[:1], 1.0, np.zeros((1, dim)), anchor[:1], 1e-8)[0]
    np.testing.assert_array_equal(beside(1), found)
    np.testing.assert_array_equal(beside(2), found)


def test_replicas_of_a_block_from_which_a_party_was_taken():
    """Parties of one size lie in two places."""
    whole = block(sizes=(4, 4, 4, 4), dim=12)
    few = whole.take([0, 1, 3])
    linear, anchor = normal(6, 12, seed=3), normal(6, 12, seed=4)
    found = argmin(few.repeat(2), Logistic(), 50.0, linear, 1.0, np.zeros((6, 12)), anchor, 1e-8)
    for i in range(6):
        alone = whole.take([(0, 1, 3)[i // 2]])
        one = argmin(alone, Logistic(), 50.0, linear[i : i + 1], 1.0, np.zeros((1, 12)), anchor[i : i + 1], 1e-8)
        np.testing.assert_allclose(found[i], one[0], atol=2e-8)


def test_a_sparse_hessian_is_summed_a_few_rows_at_a_time():
    """A party on disk stays there."""
    tracemalloc = pytest.importorskip("tracemalloc")
    m, dim = 60_000, 40
    rng = np.random.default_rng(0)
    X = csr_array((np.ones(10 * m), rng.integers(dim, size=10 * m), np.arange(0, 10 * m + 1, 10)), (m, dim))
    shards = Shards.from_parties([(X, np.where(rng.random(m) > 0.5, 1.0, -1.0))], row_bound=1.0)
    weights = np.ones(m)
    tracemalloc.start()
    try:
        shards.gram(weights)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < shards.cells * 8 / 2
