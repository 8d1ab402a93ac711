"""ADMM sharing over split columns: the label step, and the parties' ridge fits."""

from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import brentq
from scipy.special import expit

from privadmm.algorithms.admm_sharing import ADMMSharing
from privadmm.data.arrays import Floats, digest
from privadmm.data.columns import Columns, Features, People
from privadmm.data.storage import gram
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.optim.losses import Loss
from privadmm.papers.bench.workload import Floor, Goal, Line, Part, Ready, Reference, alike, workload
from privadmm.papers.sharing import runs
from privadmm.privacy.calibration import NoPrivacy
from privadmm.privacy.mechanisms import Simulation


def trained(job: Job, people: People) -> Floats:
    """Train on columns whose factorisations are forgotten, as they are when a run begins."""
    features = tuple(Features(one.A) for one in people.columns.features)
    fresh = replace(people, columns=replace(people.columns, features=features))
    return weights(job, train(job, cluster(job, fresh, Simulation(0))))


class Written:
    """ADMM sharing in numpy and scipy, equations (6) to (9) of its module; how each step is done is chosen."""

    def __init__(self, people: People, rho: float, lam: float, rounds: int) -> None:
        self.parts = [one.A for one in people.columns.features]
        self.y, self.rho, self.mu, self.rounds = people.y, rho, lam / rho, rounds

    def run(self, root: Any, ridge: Any, rounds: int | None = None) -> Floats:
        M, N = len(self.parts), len(self.y)
        k, dual, u = self.rho / M, np.zeros(N), np.zeros((M, N))
        fits = [ridge(D, self.mu) for D in self.parts]
        for _ in range(rounds or self.rounds):
            total = u.sum(axis=0)
            z = root(total + dual / k, self.y, k)  # (8)
            new = dual + k * (total - z)  # (9)
            targets = u + (dual - 2 * new) / self.rho  # (6a)
            x = [fit(t) for fit, t in zip(fits, targets, strict=True)]  # (6b)
            u, dual = np.stack([D @ w for D, w in zip(self.parts, x, strict=True)]), new
        return np.concatenate(x)


def person_by_person(v: Floats, y: Floats, k: float) -> Floats:
    """Root of the label step, a person at a time."""

    def slope(z: float, c: float, sign: float) -> float:
        return -sign * float(expit(-sign * z)) + k * (z - c)

    pairs = zip(v.tolist(), y.tolist(), strict=True)
    return np.array([brentq(slope, c - 1 / k, c + 1 / k, args=(c, sign), xtol=1e-14) for c, sign in pairs])


def newton(v: Floats, y: Floats, k: float) -> Floats:
    """Root of the label step for all people at once, by Newton's method.

    Signs are turned so that the root t is above 0, where the slope k (t - s) - expit(-t) is concave: from where its
    tangent at 0 leads to, no step passes the root.
    """
    s = y * v
    below = s < -1 / (2 * k)
    s = np.where(below, -s - 1 / k, s)
    t = np.maximum(s, (k * s + 0.5) / (k + 0.25))
    for _ in range(200):
        share = expit(-t)
        step = np.maximum((share - k * (t - s)) / (k + share * (1 - share)), 0)
        t = t + step
        if step.max() <= 1e-8:
            break
    return np.asarray(np.where(below, -y, y) * t)


def normal_equations(D: Any, mu: float) -> Any:
    """Ridge fits by normal equations that are factored once."""
    gram = D.T @ D
    factor = cho_factor((gram.toarray() if hasattr(gram, "toarray") else gram) + mu * np.eye(D.shape[1]))
    return lambda t: cho_solve(factor, D.T @ t)


def least_squares(D: Any, mu: float) -> Any:
    """Ridge fits by numpy's least squares on the columns with sqrt(mu) I below, anew each time."""
    below = np.vstack([D, np.sqrt(mu) * np.eye(D.shape[1])])
    return lambda t: np.linalg.lstsq(below, np.concatenate([t, np.zeros(D.shape[1])]), rcond=None)[0]


def needed(people: People, rho: float, mu: float, loss: Loss, rounds: int, units: int) -> tuple[Part, ...]:
    """What the rounds of a run need: a factor once; label steps; D^T t, D x, and D^T of the residual of each fit."""
    N, parts = len(people.y), people.columns.features
    u, v = np.zeros((1, N)), np.random.default_rng(0).normal(size=N)

    def factored() -> None:
        for one in parts:
            cho_factor(gram(one.A) + mu * np.eye(one.width), overwrite_a=True)

    def products() -> None:
        for one in parts:
            one.pull(u)
            one.pull(u)
            one.scores(np.zeros((1, one.width)))

    return (
        Part("factors", factored, 1 / units),
        Part("label steps", lambda: loss.prox(v, people.y, rho / len(parts)), rounds / units),
        Part("fits, their scores, and their check", products, rounds / units),
        Part("the digest of what was sent", lambda: digest(np.zeros((len(parts), N)).data), rounds / units),
    )


@workload(
    "sharing-a9a",
    Line("prototype", "the label step person by person (scipy's brentq)", Goal("faster", 160.0)),
    Line("vectorised", "the label step for all at once by Newton's method", Goal("faster", 10.0)),
    unit="round",
)
def a9a(quick: bool) -> Ready:
    """ADMM sharing on a9a, 32,561 people, two parties, a round.

    Fair: both references hold the same sparse columns as ours and factor their normal equations once; they find the
    same roots to 1e-13. The prototype does one of the rounds. Neither reference checks its fits, keeps a transcript or
    asks a ledger, which ours does.
    """
    data, rounds, rho = runs.load(runs.Where("a9a", people=4000 if quick else None)), 4 if quick else 12, 0.3
    this = runs.job(data, ADMMSharing(rho, "sharing"), rounds, data.lam, NoPrivacy())
    written, single = (Written(data.train, rho, data.lam, count) for count in (rounds, 1))
    first = runs.job(data, ADMMSharing(rho, "sharing"), 1, data.lam, NoPrivacy())

    def beginning(ours: Floats, theirs: Floats) -> Any:
        """The first round of ours against the prototype's, and all rounds against the vectorised one's."""
        begun, ended = alike(1e-8)(trained(first, data.train), theirs), alike(1e-7)(ours, vectorised())
        return begun if not begun.reached else ended

    vectorised = cache(partial(written.run, newton, normal_equations))
    cells = sum(part.nnz for part in written.parts)
    return Ready(
        lambda: trained(this, data.train),
        {
            "prototype": Reference(lambda: single.run(person_by_person, normal_equations), beginning, 1 / rounds),
            "vectorised": Reference(lambda: written.run(newton, normal_equations), alike(1e-7)),
        },
        Floor(rounds * 2 * 12.0 * cells, rounds * 4.0 * cells),
        rounds,
        12.0 * cells,
        not quick,
        needed=needed(data.train, rho, data.lam / rho, this.public.loss, rounds, rounds),
    )


@workload(
    "sharing-wide",
    Line("lstsq", "numpy's least squares, anew in every round", Goal("faster", 35.0)),
    Line("factored", "normal equations factored once, labels by Newton's method", None),
)
def wide(quick: bool) -> Ready:
    """ADMM sharing, 2,400 people and 2,000 dense columns at three parties, 4 rounds.

    Fair: all terms grow with the cube of the size, so the ratio is that of 6,000 x 5,000, which takes minutes. The
    first reference does one round of four; the second is what somebody who knows ADMM writes, and has no goal, since
    the work is then the same matrix products on both sides.
    """
    people, widths = (600, (200, 200, 100)) if quick else (2400, (800, 800, 400))
    rng, rho = np.random.default_rng(0), 0.1
    parts = [rng.normal(size=(people, width)) / np.sqrt(width) for width in widths]
    y = np.where(sum(part[:, 0] for part in parts) > 0, 1.0, -1.0)
    held = People.build(Columns.build(parts, row_bounds=[2.0] * len(parts)), y)
    data, lam = runs.Split(held, held, 2.0), 1.0
    this = runs.job(data, ADMMSharing(rho, "sharing"), 4, lam, NoPrivacy())
    first = runs.job(data, ADMMSharing(rho, "sharing"), 1, lam, NoPrivacy())
    written = Written(held, rho, lam, 4)
    factored = cache(partial(written.run, newton, normal_equations))

    def beginning(ours: Floats, theirs: Floats) -> Any:
        begun, ended = alike(1e-7)(trained(first, held), theirs), alike(1e-7)(ours, factored())
        return begun if not begun.reached else ended

    return Ready(
        lambda: trained(this, held),
        {
            "lstsq": Reference(lambda: written.run(newton, least_squares, 1), beginning, 0.25),
            "factored": Reference(lambda: written.run(newton, normal_equations), alike(1e-7)),
        },
        Floor(8.0 * people * sum(widths), sum(people * w**2 + w**3 / 3 for w in widths)),
        data=8.0 * people * sum(widths),
        full=not quick,
        needed=needed(held, rho, lam / rho, this.public.loss, 4, 1),
    )
