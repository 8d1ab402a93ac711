"""Records and plain arrays that several workloads share."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from privadmm.data import adult
from privadmm.data.arrays import Floats, digest
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.mail import Mail
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Logistic, Loss
from privadmm.optim.regularizers import L2
from privadmm.optim.solvers import inverses
from privadmm.papers.bench.workload import Agreement, Check, Part
from privadmm.papers.framework.runs import Counting
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

RECORDS, DIM = 50, 100  # of each of many parties


@cache
def census(sparse: bool, parties: int = 10, records: int | None = None) -> Shards:
    """One-hot Adult with an intercept, 106 features, dealt out evenly; sparse as its schema declares it, or dense."""
    from scipy.sparse import csr_array

    found = adult.load()
    rows = np.random.default_rng(0).permutation(len(found.y))[:records]
    X = csr_array(found.X) if sparse else found.X
    dealt = np.array_split(rows, parties)
    return Shards.build(X, found.y, dealt, row_bound=adult.SCHEMA.row_bound, intercept=0.3)


def crowd(parties: int) -> Shards:
    """Many parties of a few made-up records each."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(parties * RECORDS, DIM), scale=0.1)
    y = np.where(X @ rng.normal(size=DIM) > 0, 1.0, -1.0)
    return Shards.build(X, y, np.split(np.arange(len(y)), parties), row_bound=1.0)


def apiece(shards: Shards) -> list[tuple[Floats, Floats]]:
    """Each party's records as a dense array, and its labels: what a user's own program would hold."""
    found: list[Any] = [None] * len(shards.ids)
    for slot in shards.slots:
        labels = shards.y[slot.cells].reshape(slot.shape)
        for at, A, y in zip(slot.positions, slot.piece.parties(), labels, strict=True):
            dense = A.toarray() if hasattr(A, "toarray") else A
            found[at] = (np.ascontiguousarray(dense), y.copy())
    return found


def public(
    shards: Shards,
    rounds: int,
    graph: Graph | None = None,
    weight: float = 1e-3,
    privacy: Target | NoPrivacy | None = None,
    loss: Loss | None = None,
    **more: Any,
) -> Public:
    graph, loss, privacy = graph or graphs.star(len(shards.ids)), loss or Logistic(), privacy or NoPrivacy()
    return Public(shards.sizes, shards.dim, rounds, graph, loss, L2(weight), privacy, **more)


def first_order(
    shards: Shards, loss: Loss, times: float, lead: tuple[int, ...] = (), noise: Simulation | None = None
) -> tuple[Part, ...]:
    """What a private first-order round needs: gradients, noise, and the digest of what is sent, (*lead, P, d)."""
    noise, ids, shape = noise or Simulation(0), shards.ids, (*lead, len(shards.ids), shards.dim)
    x = cache(lambda: np.zeros(shape))  # made when a part first runs: ours does not pay for its memory
    return (
        Part("gradients", lambda: shards.slope(x(), loss.deriv), times),
        Part("noise", lambda: noise.normal(shape, ids, (0, 0, 0)), times),
        Part("the digest of what was sent", lambda: digest(*Mail(ids, x()).pieces()), times),
    )


def solves(job: Job, shards: Shards, units: float, replicas: int = 1) -> tuple[Part, ...]:
    """What the solvers of a whole run need, for one of so many units: its gradients, and its Hessians in floats.

    Gradients of replicas are made together. Their Hessians at the beginning, where all are at one point, count once.
    """
    counting: Any = Counting(job.public.loss)
    same = Job(job.algorithm, replace(job.public, loss=counting))
    train(same, cluster(same, shards, Simulation(0)))
    x, curved = np.zeros((replicas, len(shards.ids), shards.dim)), np.full(shards.size, 0.1)
    single = np.ones(len(shards.ids), dtype=bool)
    squares = cache(lambda: np.eye(shards.dim) + shards.gram(curved, single))
    gradients, hessians = (counting.asked[name] / shards.size for name in ("deriv", "curv"))
    gradients, hessians = gradients / units, (hessians - replicas + 1) / units
    return (
        Part(f"{gradients:.3g} gradients", lambda: shards.slope(x, job.public.loss.deriv), gradients / replicas),
        Part(f"{hessians:.2g} Hessians", lambda: shards.gram(curved, single), hessians),
        Part("their inverses", lambda: inverses(squares()), hessians),
    )


def size(shards: Shards) -> float:
    """Bytes of the records as they are stored, with their labels."""
    stored = (getattr(slot.piece, "A", None) for slot in shards.slots)
    tables = [A for A in stored if A is not None]
    return float(sum(A.size * (12 if hasattr(A, "indices") else 8) for A in tables) + shards.y.nbytes)


def spread(ours: Floats, theirs: Floats, centre: Floats) -> float:
    """How much wider one side's noisy answers lie about the centre than the other's, as |log| of the ratio."""
    wide = [float(np.sqrt(np.mean((np.atleast_2d(side) - centre) ** 2))) for side in (ours, theirs)]
    return abs(float(np.log(wide[0] / wide[1])))


def same_noise(centre: Callable[[], Floats], exact: Callable[[], float], most: float) -> Check:
    """Compare noisy sides: without noise they give the same to 1e-9, and with it both lie as far from the centre.

    Noise comes from different streams, so single answers differ. `exact` tells how far both sides are apart without it.
    """

    def check(ours: Floats, theirs: Floats) -> Agreement:
        return Agreement(max(spread(ours, theirs, centre()) / np.log(most), exact() / 1e-9), 1.0)

    return check


def relative(a: Floats, b: Floats) -> float:
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b)))
