"""A gradient of every party, without the rest of a round."""

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.data.storage import BLOCK, Dense, scores
from privadmm.engine.party import Local
from privadmm.optim.losses import Loss
from privadmm.papers.bench.workload import Floor, Goal, Line, Part, Ready, Reference, alike, workload
from privadmm.papers.bench.workloads import problems


def needed(shards: Shards, loss: Loss, x: Floats) -> tuple[Part, ...]:
    """What a pass needs: scores while records come from memory, slopes, and products with records in the cache."""
    stacks = [(piece.A, x[slot.at][:, None]) for slot in shards.slots if isinstance(piece := slot.piece, Dense)]
    A, few = stacks[0][0], max(1, BLOCK // (stacks[0][0].shape[1] * shards.dim))
    block = A[:few, : BLOCK // shards.dim]
    g, m = np.ones((block.shape[0], 1, block.shape[1])), np.zeros(shards.size)
    return (
        Part("scores", lambda: [scores(A, w) for A, w in stacks]),
        Part("slopes", lambda: loss.deriv(m, shards.y)),
        Part("products with records in the cache", lambda: np.matmul(g, block), shards.cells / block.size),
    )


@workload("gradient-adult", Line("blas", "two BLAS products for each party", Goal("faster", 2.5)))
def adult(quick: bool) -> Ready:
    """Gradients of 10 parties, Adult stored dense (45,222 x 106).

    Fair: the reference is a loop over ten contiguous arrays, each a matrix-vector product, numpy's exp and a second
    product, in double; both sides use one thread and the same records, which fit no cache but the last.
    """
    shards = problems.census(sparse=False)
    facts, parties = problems.public(shards, 1), problems.apiece(shards)
    local, x = Local(facts, shards), np.random.default_rng(1).normal(size=(len(parties), shards.dim))

    def loop() -> Floats:
        slopes = [A.T @ (-y / (1 + np.exp(y * (A @ w)))) for (A, y), w in zip(parties, x, strict=True)]
        return np.stack(slopes) * (len(parties) / shards.size)

    floor = Floor(problems.size(shards), 4.0 * shards.cells)
    reference = {"blas": Reference(loop, alike(1e-11))}
    parts = needed(shards, facts.loss, x)
    return Ready(lambda: local.gradient(x), reference, floor, data=problems.size(shards), needed=parts)


@workload("gradient-many", Line("blas", "two batched products over 50 parties at a time", Goal("faster", 2.7)))
def many(quick: bool) -> Ready:
    """Gradients of 10,000 parties of 50 records, 100 features.

    Fair: the reference is numpy's batched matmul on one (parties, 50, 100) array, 50 parties at a time, which stay in
    the processor's cache: that is faster than all of them at once, and than a loop over parties. Both sides have the
    same array in memory and one thread.
    """
    shards = problems.crowd(1000 if quick else 10_000)
    stack = np.stack([A for A, _ in problems.apiece(shards)])
    y, x = shards.y.reshape(stack.shape[:2]), np.random.default_rng(1).normal(size=(len(stack), shards.dim))
    facts = problems.public(shards, 1)
    local = Local(facts, shards)

    def batched() -> Floats:
        slopes = np.empty(x.shape)
        for first in range(0, len(stack), 50):
            part = slice(first, first + 50)
            g = -y[part] / (1 + np.exp(y[part] * np.matmul(stack[part], x[part, :, None])[..., 0]))
            slopes[part] = np.matmul(g[:, None, :], stack[part])[:, 0]
        return slopes * (len(stack) / y.size)

    floor = Floor(problems.size(shards), 4.0 * shards.cells)
    reference = {"blas": Reference(batched, alike(1e-11))}
    size, parts = problems.size(shards), needed(shards, facts.loss, x)
    return Ready(lambda: local.gradient(x), reference, floor, data=size, full=not quick, needed=parts)
