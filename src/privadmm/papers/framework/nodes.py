"""Adult at the nodes of a random network, as the papers on dual perturbation and on recycled ADMM have it.

The second of them names 40,000 records for training, dealt out evenly, and the rest for testing; the first names
neither, and gets the same. Records are one-hot, 105 columns of norm at most 1. They are stored sparse: that is faster.
"""

import functools
from dataclasses import dataclass

import numpy as np

from privadmm.data import adult
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job
from privadmm.engine.loop import View
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Logistic
from privadmm.optim.regularizers import L2
from privadmm.papers.framework.runs import Look, accuracies, follow, own_losses
from privadmm.papers.framework.study import Parameter
from privadmm.privacy.accounting import totals, worst
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

C = 1750.0
TRAINING, DELTA, TOLERANCE = 40_000, 1e-6, 1e-7
EDGES = {5: 7, 20: 40}  # of the random network, by its nodes
PUBLISHED = Target(None, DELTA, Simulation.kind)  # noise from a paper's own formula; delta is for what it costs

OURS = (
    Parameter("nodes", "5, of 8000 records each, 7 edges at random", False, "degrees are not stated"),
    Parameter("row bound", "3, declared", False, "rows are clipped to it and divided by it, never by a row's own"),
    Parameter(
        "tolerance", f"{TOLERANCE:g}", False, "gradient norm of a local solve; the noise that covers it is small"
    ),
    Parameter("delta", f"{DELTA:g}", False, "of certified epsilons; the papers' own figures have none"),
)  # fmt: skip


@dataclass(frozen=True)
class Held:
    """Records at the nodes, and those kept for testing, in one hand."""

    nodes: Shards
    test: Shards


@functools.cache
def held(nodes: int) -> Held:
    from scipy.sparse import csr_array

    found, bound = adult.load("onehot"), adult.SCHEMA.row_bound
    rows = np.random.default_rng(0).permutation(len(found))
    parts = np.split(rows[:TRAINING], nodes)
    X, y = csr_array(found.X), found.y
    return Held(Shards.build(X, y, parts, row_bound=bound), Shards.build(X, y, [rows[TRAINING:]], row_bound=bound))


def network(nodes: int) -> Graph:
    return graphs.random(nodes, EDGES[nodes])


def job(algorithm: Algorithm, rounds: int, weight: float, privacy: Target | NoPrivacy, nodes: int = 5) -> Job:
    """This method on Adult with the penalty weight/2 |f|^2 in every node's problem."""
    shards = held(nodes).nodes
    public = Public(
        sizes=shards.sizes,
        dim=shards.dim,
        rounds=rounds,
        graph=network(nodes),
        loss=Logistic(),
        regularizer=L2(weight),
        privacy=privacy,
        C=C,
    )
    return Job(algorithm, public)


@dataclass(frozen=True)
class Seen:
    """What a task found. Arrays (rounds, seeds): the nodes' mean loss on their own records, without C; the error
    rate of their mean classifier on the test records; and the mean loss at what is sent beside the iterates, if any."""

    loss: Floats
    error: Floats
    even: Floats
    epsilon: float | None  # certified, of all rounds
    one_round: float | None  # certified, of the first round alone
    claimed: float | None  # by the paper

    @property
    def last(self) -> Floats:
        return np.asarray(self.loss[-1])


def run(this: Job, seeds: int, failing: bool = False) -> Seen:
    """With `failing`, a run that breaks down is infinite from there on."""
    public = this.public
    found = follow(this, held(public.parties).nodes, seeds, look(this), failing=failing)
    loss, even, error = np.moveaxis(found, 1, 0)
    first = None if this.delta is None else worst(totals({(0, 0): this.plan[0, 0]}, public.parties), this.delta)
    claim = this.published
    return Seen(loss, error, even, this.epsilon, first, None if claim is None else claim.epsilon)


def look(this: Job) -> Look:
    """(3, seeds) after a round: the loss, that of the even iterates (mail of [odd, even]), the error rate."""
    data, d = held(this.public.parties), this.public.dim

    def loss(f: Floats) -> Floats:
        return np.asarray(own_losses(this, data.nodes, f).mean(axis=-1) / C)

    def seen(view: View, parties: InProcess) -> Floats:
        odd, mail = loss(parties.local_models()), view.progress.mail.values
        even = loss(mail[..., d:]) if mail.shape[-1] == 2 * d else odd
        return np.stack([odd, even, 1 - accuracies(data.test, view.model)])

    return seen
