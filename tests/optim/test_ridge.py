"""Ridge fits within a ball: optimal, the same for dense and sparse columns, and as exact as they claim to be."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.sparse import csr_array

from privadmm.data.columns import Columns, Features
from privadmm.errors import ToleranceError
from privadmm.optim import ridge
from privadmm.optim.ridge import Leeway, fit, lasso

Long = np.longdouble


def problem(seed: int, N: int, d: int, collinear: float = 1.0) -> tuple[Features, Any]:
    """Columns in the unit ball, the later ones the first plus `collinear` times something else; and a target."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d))
    X[:, 1:] = X[:, :1] + collinear * X[:, 1:]
    columns = Columns.build([X], row_bounds=[1.0])
    return columns.features[0], 3 * rng.normal(size=(1, N))


def by_scipy(D: Any, t: Any, mu: float, b: float) -> Any:
    found = minimize(
        lambda x: (mu * x @ x + (D @ x - t) @ (D @ x - t)) / 2,
        np.zeros(D.shape[1]),
        jac=lambda x: mu * x + D.T @ (D @ x - t),
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda x: b**2 - x @ x, "jac": lambda x: -2 * x},
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return found.x


@pytest.mark.parametrize(("N", "d"), [(30, 4), (4, 9), (5, 5), (1, 3), (40, 1)])
@pytest.mark.parametrize("b", [0.01, 0.5, 5.0])
def test_the_constrained_argmin_agrees_with_scipy(N: int, d: int, b: float) -> None:
    D, t = problem(N, N, d)
    for mu in (1e-3, 1.0, 1e3):
        x = fit(D, t, mu, b, math.sqrt(N))[0][0]
        assert np.linalg.norm(x) <= b
        assert x == pytest.approx(by_scipy(D.A, t[0], mu, b), abs=2e-6 * max(1.0, b))


@pytest.mark.parametrize(("N", "d"), [(30, 4), (4, 9)])
def test_without_a_ball_it_is_the_ridge(N: int, d: int) -> None:
    D, t = problem(0, N, d)
    x = fit(D, t, 0.1, None, math.sqrt(N))[0][0]
    assert x == pytest.approx(np.linalg.solve(D.A.T @ D.A + 0.1 * np.eye(d), D.A.T @ t[0]), rel=1e-9)
    assert fit(D, t, 0.1, 1e9, math.sqrt(N))[0][0] == pytest.approx(x, rel=1e-12)


@pytest.mark.parametrize(("N", "d"), [(30, 4), (4, 9)])
def test_sparse_columns_are_fitted_alike(N: int, d: int) -> None:
    D, t = problem(1, N, d)
    D = Features(np.where(np.abs(D.A) > 0.2, D.A, 0.0))
    for b in (None, 0.3):
        one, two = (fit(part, t, 0.1, b, math.sqrt(N))[0] for part in (D, Features(csr_array(D.A))))
        assert one == pytest.approx(two, rel=1e-11)


def test_many_targets_at_once() -> None:
    D, _ = problem(2, 30, 4)
    t = np.random.default_rng(0).normal(size=(7, 30))
    for b in (None, 0.2):
        whole, _ = fit(D, t, 0.1, b, math.sqrt(30))
        for one, x in zip(t, whole, strict=True):
            assert fit(D, one[None], 0.1, b, math.sqrt(30))[0][0] == pytest.approx(x, rel=1e-10, abs=1e-12)


def cholesky_solve(A: Any, c: Any) -> Any:
    """Solve in extended precision, which numpy's solvers do not have."""
    d = len(c)
    L = np.zeros((d, d), dtype=Long)
    for i in range(d):
        for j in range(i + 1):
            rest = A[i, j] - L[i, :j] @ L[j, :j]
            L[i, j] = np.sqrt(rest) if i == j else rest / L[j, j]
    y = np.zeros(d, dtype=Long)
    for i in range(d):
        y[i] = (c[i] - L[i, :i] @ y[:i]) / L[i, i]
    x = np.zeros(d, dtype=Long)
    for i in reversed(range(d)):
        x[i] = (y[i] - L[i + 1 :, i] @ x[i + 1 :]) / L[i, i]
    return x


def exact(D: Any, t: Any, mu: float, b: float | None) -> Any:
    """The solution of (1) in extended precision, its multiplier by bisection."""
    D, t, eye = D.astype(Long), t.astype(Long), np.eye(D.shape[1], dtype=Long)
    A, c = D.T @ D, D.T @ t

    def at(nu: Any) -> Any:
        return cholesky_solve(A + (Long(mu) + nu) * eye, c)

    def size(x: Any) -> Any:
        return np.sqrt(x @ x)

    x = at(Long(0))
    if b is None or size(x) <= b:
        return x
    low, high = Long(0), Long(1)
    while size(at(high)) > b:
        high *= 4
    for _ in range(90):
        middle = (low + high) / 2
        low, high = (middle, high) if size(at(middle)) > b else (low, middle)
    return at(high)


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(30, 4), (12, 2), (3, 3)]),
    st.sampled_from([1.0, 1e-3, 1e-8]),
    st.floats(-5, 4),
    st.sampled_from([None, 1e-3, 0.1, 1.0]),
    st.sampled_from([1.0, 1e8, 1e100]),
)
def test_the_leeway_covers_what_floating_point_does(
    seed: int, shape: tuple[int, int], collinear: float, power: float, b: float | None, huge: float
) -> None:
    """A hostile coordinator may choose the target, and the data may be nearly dependent."""
    (N, d), mu = shape, 10.0**power
    D, t = problem(seed, N, d, collinear)
    t = t * huge
    x, scores = fit(D, t, mu, b, math.sqrt(N))
    allowed = Leeway.of(t, d, mu, b, math.sqrt(N))
    right = exact(D.A, t[0], mu, b)
    assert np.linalg.norm((x[0] - right).astype(float)) <= allowed.weights[0]
    off = scores[0] - D.A.astype(Long) @ right
    assert np.linalg.norm(off.astype(float)) <= allowed.scores[0]
    # It is a price worth paying: next to nothing beside the smallest sensitivity, 2 b or a share of |t|.
    if b == 1.0 and huge == 1.0:
        assert allowed.scores[0] < 1e-4


def test_a_fit_that_misses_is_not_released(monkeypatch: pytest.MonkeyPatch) -> None:
    D, t = problem(0, 30, 4)

    honest, free = ridge.secular, Features.ridge
    monkeypatch.setattr(Features, "ridge", lambda self, t, mu: free(self, t, mu) * (1 + 1e-6))
    with pytest.raises(ToleranceError, match="missed its tolerance"):
        fit(D, t, 0.1, None, math.sqrt(30))
    # Scaled back into the ball, a fit that is wrong in direction is still seen.
    monkeypatch.setattr(
        ridge, "secular", lambda values, c, b: (honest(values, c, b)[0][:, ::-1], honest(values, c, b)[1])
    )
    with pytest.raises(ToleranceError):
        fit(D, t, 0.1, 0.1, math.sqrt(30))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("N", "d"), [(40, 6), (5, 12)])
def test_a_free_fit_is_that_of_a_ball_too_large_to_matter(N: int, d: int, sparse: bool) -> None:
    D, t = problem(4, N, d)
    held = Features(csr_array(D.A)) if sparse else D
    for mu in (1e-3, 1.0, 1e-3):  # a factor is kept for one mu, and made again for another
        np.testing.assert_allclose(held.ridge(t, mu), fit(D, t, mu, 1e6, math.sqrt(N))[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("N", "d"), [(40, 6), (5, 12)])
def test_the_lasso_is_optimal(N: int, d: int) -> None:
    D, t = problem(3, N, d)
    for l1 in (0.1, 3.0, 1e3):
        x = lasso(D, t, 0.01, l1)[0]
        g = D.A.T @ (D.A @ x - t[0]) + 0.01 * x
        assert np.abs(g[x != 0] + l1 * np.sign(x[x != 0])) == pytest.approx(np.zeros((x != 0).sum()), abs=1e-7)
        assert (np.abs(g[x == 0]) <= l1 + 1e-7).all()
    assert not x.any()
