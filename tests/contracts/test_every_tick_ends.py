"""Accepted parameters, any records: a tick ends in a release. No exception may depend on what the records say."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.dp_fedsgd import DPFedSGD
from privadmm.algorithms.dvp import DVP
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.m_admm import MADMM
from privadmm.algorithms.mr_admm import MRADMM
from privadmm.algorithms.pdml import PDML
from privadmm.algorithms.pvp import PVP
from privadmm.algorithms.sharing import Sharing
from privadmm.data.columns import Columns, Features
from privadmm.data.shards import Shards
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local, Vertical
from privadmm.engine.phases import AtParties, inbox_width, tick
from privadmm.engine.public import Public
from privadmm.errors import RefusedError, ToleranceError
from privadmm.optim import graphs, ridge, solvers
from privadmm.optim.losses import Debiased, HalfLogistic, HuberHinge, Logistic, Squared
from privadmm.optim.regularizers import L2
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import Event, Gaussian, GaussianObjective
from privadmm.privacy.limits import Limits
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door

Rng = np.random.Generator
LIMITS = Limits()


def any_size(rng: Rng, low: float = LIMITS.smallest, high: float = LIMITS.largest) -> float:
    return float(np.clip(np.exp(rng.uniform(math.log(low), math.log(high))), low, high))


def any_table(rng: Rng, m: int, d: int) -> Any:
    """Difficult rows: duplicates, constants, collinear columns, zeros, one far larger than the others."""
    kind = rng.integers(6)
    X = rng.normal(size=(m, d))
    if kind == 0:
        X[:] = X[0]
    elif kind == 1:
        X[:, :] = X[:, :1]
    elif kind == 2:
        X[:] = 0.0
    elif kind == 3:
        X *= 10.0 ** rng.integers(-300, 300, size=(m, 1))
    elif kind == 4:
        X = np.sign(X)
    return X


def any_inbox(rng: Rng, *shape: int) -> Any:
    return rng.normal(size=shape) * 10.0 ** rng.integers(-20, 100)


def any_loss(rng: Rng) -> Any:
    bound, radius = sorted([any_size(rng, 1e-3, 1e3), any_size(rng, 1e-3, 1e3)])
    return [
        Logistic(),
        HalfLogistic(),
        HuberHinge(any_size(rng, 1e-6, 1e3)),
        Squared(bound, radius),
        Debiased(Logistic(), any_size(rng, 1e-6, 50)),
    ][rng.integers(5)]


def any_method(rng: Rng) -> Any:
    penalty, tolerance = any_size(rng), any_size(rng, 1e-20, LIMITS.tolerance)
    return [
        lambda: PVP(rho=penalty, tolerance=tolerance),
        lambda: PDML(beta=penalty, tolerance=tolerance),
        lambda: DVP(eta=penalty, tolerance=tolerance),
        lambda: MADMM(eta=penalty, growth=any_size(rng, 1, 2), tolerance=tolerance),
        lambda: MRADMM(eta=penalty, gamma=any_size(rng), tolerance=tolerance),
        lambda: DPADMM(D_w=any_size(rng), rho=penalty),
        lambda: DPFedSGD(step=penalty),
        lambda: FirstOrderConsensus(),
        lambda: Sharing(rho=penalty, ball=any_size(rng)),
    ][rng.integers(9)]()


def releases(method: Any, public: Public, rng: Rng) -> tuple[tuple[Event, ...], ...]:
    """The events of a plan, with any level of noise: the search for one is left out."""
    ratio = any_size(rng, 1e-3, 1e6)
    if not isinstance(method, DVP | MADMM | MRADMM):
        return (public.everyone(Gaussian(ratio)),)
    k = method.noise(public, 1)[1] if isinstance(method, DVP) else method.curvature(public, 1)
    weight = public.scale(public.ids)[:, 0] / public.sizes
    inside = tuple(GaussianObjective(ratio, float(w)) for w in weight * public.curvature / k * (1 + 1e-12))
    return inside, public.everyone(Gaussian(1e4))


def public_of(rng: Rng, method: Any, sizes: Any, dim: int, columns: tuple[int, ...]) -> Public:
    return Public(
        sizes=np.array(sizes),
        dim=dim,
        rounds=3,
        graph=graphs.star(2) if method.topology != "graph" else graphs.complete(2),
        loss=Logistic() if columns else any_loss(rng),
        regularizer=L2(any_size(rng)),
        privacy=Target(1.0, 1e-5, adjacency="person" if columns else ("replace-one", "label")[rng.integers(2)]),
        C=any_size(rng),
        columns=columns,
    )


def carried_out(rng: Rng) -> str | None:
    """Run one tick of round 2 of an accepted job on any records; None if the job was refused."""
    method, m, d = any_method(rng), int(rng.integers(1, 9)), int(rng.integers(1, 6))
    vertical = isinstance(method, Sharing)
    public = public_of(rng, method, [m, m], m, (d, d)) if vertical else public_of(rng, method, [m, 3], d, ())
    try:
        LIMITS.admit(method, public)
    except RefusedError:
        return None
    if vertical:
        block = Columns.build([any_table(rng, m, d)], row_bounds=[any_size(rng)], ids=[0])
        local: Any = Vertical(public, block, certain=True)
    else:
        y = np.where(rng.random(m) < rng.random(), 1.0, -1.0)
        parties = Shards.from_parties([(any_table(rng, m, d), y)], row_bound=any_size(rng), ids=[0])
        local = Local(public, parties, certain=True)
    state = method.init(public, local.ids)
    state = replace(state, **{name: any_inbox(rng, *value.shape) for name, value in vars(state).items()})
    number, phase = next((n, p) for n, p in enumerate(method.phases) if isinstance(p, AtParties))
    senders = {"star": [-1], "graph": [1], "relay": [0]}[method.topology]
    inbox = Mail(np.array(senders), any_inbox(rng, 1, inbox_width(method, public)))
    door = Door(local.ids, releases(method, public, rng), Simulation(0), 1, number, lambda charges: None)
    _, outbox = tick(phase, 1, local, state, inbox, door)
    sent = outbox.values[..., : public.dim]
    assert np.isfinite(sent).all()
    return str(method.name)


@pytest.mark.parametrize(
    "cases", [pytest.param(1500, id="1500"), pytest.param(100_000, id="100000", marks=pytest.mark.slow)]
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_accepted_tick_ends_in_a_release(cases: int) -> None:
    rng, done = np.random.default_rng(0), dict[str, int]()
    while sum(done.values()) < cases:
        state = rng.bit_generator.state
        try:
            name = carried_out(rng)
        except Exception as error:
            raise AssertionError(f"a tick failed, with the generator at {state}") from error
        if name is not None:
            done[name] = done.get(name, 0) + 1
    assert len(done) == 9
    assert min(done.values()) > cases / 50


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_solver_without_a_worst_case_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted bug: a fast solver alone, which may give up."""
    honest = solvers.argmin

    def alone(*given: Any) -> Any:
        return honest(*given[:-1])

    monkeypatch.setattr("privadmm.engine.party.argmin", alone)
    monkeypatch.setattr(solvers, "CAP", 3)
    with pytest.raises(AssertionError, match="a tick failed") as caught:
        test_an_accepted_tick_ends_in_a_release(1500)
    assert isinstance(caught.value.__cause__, ToleranceError)


# The methods behind the fast ones, alone


@pytest.mark.parametrize("seed", range(20))
def test_plain_gradient_steps_reach_the_tolerance_in_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fast solver off: the gradient is below its promised bound, and so is the number of steps."""
    rng = np.random.default_rng(seed)
    m, d, C, k = 20, 4, 10.0 ** rng.uniform(-2, 2), 10.0 ** rng.uniform(-1, 1)
    X, y = any_table(rng, m, d), np.where(rng.random(m) < 0.5, 1.0, -1.0)
    block, loss = Shards.from_parties([(X, y)], row_bound=1.0), any_loss(rng)
    linear = 10.0 ** rng.uniform(-3, 3) * rng.normal(size=(1, d))
    reach, tau, steps = C * loss.lipschitz + float(np.linalg.norm(linear)), 1e-8, list[int]()
    condition = C * loss.smoothness / k + 1
    if condition > 3000:
        k, condition = C * loss.smoothness / 1000, 1001.0
    tau = max(tau, 1e-12 * condition * reach)
    monkeypatch.setattr(solvers, "CAP", -1)
    honest = solvers.Problem.loss_gradient
    monkeypatch.setattr(solvers.Problem, "loss_gradient", lambda self, x: steps.append(1) or honest(self, x))
    zero = np.zeros((1, d))
    x = solvers.argmin(block, loss, C, linear, k, zero, zero, tau, None, reach)
    g = C / m * block.pull(loss.deriv(block.margins(x), block.y)) + linear + k * x
    assert np.linalg.norm(g) <= tau * (1 + 1e-6)
    assert len(steps) <= solvers.worst_case(condition, reach / tau) + 3


@pytest.mark.parametrize("ball", [None, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("seed", range(5))
def test_projected_steps_fit_a_ridge_in_time(seed: int, ball: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a factorisation: within the tolerance, and at most twice that from the direct fit."""
    rng = np.random.default_rng(seed)
    N, d, mu = 30, 4, 10.0 ** rng.uniform(-1, 2)
    (D,) = Columns.build([any_table(rng, N, d)], row_bounds=[1.0]).features
    t, F = 10.0 ** rng.uniform(-3, 3) * rng.normal(size=(1, N)), math.sqrt(N)
    direct, scores = ridge.fit(D, t, mu, ball, F)

    def no_factors(self: Features, *_: Any) -> Any:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(Features, "spectrum", property(no_factors))
    monkeypatch.setattr(Features, "ridge", no_factors)
    slow, others = ridge.fit(D, t, mu, ball, F, certain=True)
    allowed = ridge.Leeway.of(t, d, mu, ball, F)
    assert np.linalg.norm(slow - direct) <= 2 * allowed.weights[0]
    assert np.linalg.norm(others - scores) <= 2 * allowed.scores[0]
    with pytest.raises(ToleranceError):
        ridge.fit(D, t, mu, ball, F)
