"""Adult at the nodes of a random network, the setting of the papers on dual perturbation and on recycled ADMM.

The second paper trains on 40,000 records, dealt out evenly, and tests on the rest; the first states neither, and gets
the same. Records are one-hot, 105 columns of norm at most 1, stored sparse, which is faster.
"""

import functools
from dataclasses import dataclass
from typing import NamedTuple

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
from privadmm.papers.framework.runs import accuracies, follow, own_losses
from privadmm.papers.framework.study import ours
from privadmm.privacy.accounting import totals, worst
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

C = 1750.0
TRAINING, DELTA, TOLERANCE = 40_000, 1e-6, 1e-7
EDGES = {5: 7, 20: 40}  # of the random network, by its nodes
PUBLISHED = Target(None, DELTA, Simulation.kind)  # noise from a paper's own formula; delta is for what it costs

OURS = (
    ours("nodes", "5, of 8000 records each, 7 edges at random", "degrees are not stated"),
    ours("row bound", "3, declared", "rows are clipped to it and divided by it, never by a row's own"),
    ours("tolerance", f"{TOLERANCE:g}", "gradient norm of a local solve; the noise that covers it is small"),
    ours("delta", f"{DELTA:g}", "of certified epsilons; the papers' own figures have none"),
)


class Held(NamedTuple):
    """Records at the nodes, and the pooled test records."""

    nodes: Shards
    test: Shards


@functools.cache
def held(nodes: int) -> Held:
    from scipy.sparse import csr_array

    records, bound = adult.load("onehot"), adult.SCHEMA.row_bound
    rows = np.random.default_rng(0).permutation(len(records))
    parts, X = (np.split(rows[:TRAINING], nodes), [rows[TRAINING:]]), csr_array(records.X)
    return Held(*(Shards.build(X, records.y, part, row_bound=bound) for part in parts))


def network(nodes: int) -> Graph:
    return graphs.random(nodes, EDGES[nodes])


def job(algorithm: Algorithm, rounds: int, weight: float, privacy: Target | NoPrivacy, nodes: int = 5) -> Job:
    """Make the job of a method on Adult, with the penalty weight/2 |f|^2 in every node's problem."""
    shards = held(nodes).nodes
    facts = (shards.sizes, shards.dim, rounds, network(nodes), Logistic(), L2(weight), privacy)
    return Job(algorithm, Public(*facts, C=C))


@dataclass(frozen=True)
class Seen:
    """The curves of a run, arrays (rounds, seeds), and its cost."""

    loss: Floats  # the nodes' mean loss on their own records, without C
    error: Floats  # error rate of their mean classifier on the test records
    even: Floats  # the loss at the even iterates, if the method sends any; else the same as `loss`
    epsilon: float | None  # certified, of all rounds
    one_round: float | None  # certified, of the first round alone
    claimed: float | None  # by the paper

    @property
    def last(self) -> Floats:
        return np.asarray(self.loss[-1])


def run(job: Job, seeds: int, failing: bool = False) -> Seen:
    """Run a job once per seed. With `failing`, a run that breaks down is infinite from there on."""
    public, data = job.public, held(job.public.parties)

    def loss(f: Floats) -> Floats:
        return np.asarray(own_losses(public, data.nodes, f).mean(axis=-1) / C)

    def look(view: View, parties: InProcess) -> Floats:
        """Returns (3, seeds): the loss, the loss of even iterates (mail of [odd, even]), the error rate."""
        odd, mail = loss(parties.local_models()), view.progress.mail.values
        even = loss(mail[..., public.dim :]) if mail.shape[-1] == 2 * public.dim else odd
        return np.stack([odd, even, 1 - accuracies(data.test, view.model)])

    losses, even, error = np.moveaxis(follow(job, data.nodes, seeds, look, failing=failing), 1, 0)
    first = None if job.delta is None else one_round(job)
    return Seen(losses, error, even, job.epsilon, first, None if job.published is None else job.published.epsilon)


def one_round(job: Job) -> float:
    """The certified epsilon of the first round alone, for the party that pays most."""
    assert job.delta is not None
    return worst(totals({(0, 0): job.plan[0, 0]}, job.public.parties), job.delta)
