"""The ADMM sharing paper's runs: a9a and gisette split by columns, and measures of a method after some epochs.

An epoch is a round of ADMM sharing, or a pass over all people with gradient steps. The measures of weights x are the
training objective mean(loss) + lam/(2N) |x|^2, the mean loss on the test records, and the accuracy there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from privadmm.algorithms.admm_sharing import ADMMSharing
from privadmm.algorithms.fdml_sgd import FDMLSGD
from privadmm.algorithms.sharing import Sharing
from privadmm.data import adult
from privadmm.data.arrays import Floats
from privadmm.data.columns import Columns, People
from privadmm.engine.inprocess import InProcess
from privadmm.engine.job import Job
from privadmm.engine.loop import View
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import Logistic
from privadmm.optim.regularizers import L2
from privadmm.papers.framework import sets
from privadmm.papers.framework.runs import follow
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

OBJECTIVE, LOSS, ACCURACY = 0, 1, 2  # what is measured
WIDTHS = {"a9a": (66, 57), "gisette": (2000, 2000, 1000)}  # section 5
BOUNDS = {"a9a": math.sqrt(8), "gisette": math.sqrt(2000)}  # of a party's part of a row
LAM = 1.0  # on the summed loss, in the files' units: sklearn's default
DELTA = 1e-6

Kind = Literal["published", "certified"]


@dataclass(frozen=True)
class Where:
    """A data set: which, from where, and of how many people (None: all)."""

    name: str
    data: Path | None = None
    people: int | None = None


@dataclass(frozen=True)
class Split:
    """Parties with their columns, and the test records in the same columns. Rows are divided by `bound`."""

    train: People
    test: People
    bound: float

    @property
    def lam(self) -> float:
        """LAM, for weights on divided rows."""
        return LAM / self.bound**2

    def look(self, view: View, parties: InProcess) -> Floats:
        return self.measure(view.model)

    def measure(self, x: Floats) -> Floats:
        """Objective, test loss and accuracy of weights x (..., d): (3, ...)."""
        weight = self.lam / (2 * self.train.dim)
        rows = [self.judge(self.train.scores(w), self.test.scores(w), weight * (w @ w)) for w in np.atleast_2d(x)]
        return np.stack(rows, axis=-1)

    def judge(self, train: Floats, test: Floats, penalty: float) -> Floats:
        """Objective, test loss and accuracy of these scores, (3,)."""
        objective = Logistic().value(train, self.train.y).mean() + penalty
        return np.array([objective, Logistic().value(test, self.test.y).mean(), (test * self.test.y > 0).mean()])


@cache
def load(where: Where) -> Split:
    if where.name == "a9a":
        records = adult.load("a9a")
        part = records.columns["part"]
        (X, y), test = ((records.X[part == name], records.y[part == name]) for name in ("train", "test"))
    else:
        assert where.data is not None
        (X, y), test = sets.gisette(where.data)
    train = X[: where.people], y[: where.people]
    return Split(split(where.name, *train), split(where.name, *test), BOUNDS[where.name])


def split(name: str, X: Any, y: Floats) -> People:
    """Give every party its columns."""
    parts = [X[:, a:b] for a, b in pairwise(np.cumsum((0, *WIDTHS[name])))]
    return People.build(Columns.build(parts, row_bounds=[BOUNDS[name]] * len(parts)), y)


def job(data: Split, method: Algorithm, rounds: int, lam: float, privacy: Target | NoPrivacy) -> Job:
    people, star = data.train, graphs.star(len(data.train.widths))
    facts = (people.sizes, people.dim, rounds, star, Logistic(), L2(lam / people.dim), privacy)
    return Job(method, Public(*facts, columns=people.widths))


def by_epoch(where: Where, method: Algorithm, epochs: int, rounds: int = 1) -> Floats:
    """Measure a method without noise after each epoch of this many rounds: (epochs, 3)."""
    data = load(where)
    this = job(data, method, epochs * rounds, data.lam, NoPrivacy())
    ends = range(rounds, epochs * rounds + 1, rounds)
    return np.asarray(follow(this, data.train, 1, data.look, at=ends)[..., 0])


def admm(where: Where, rho: float, form: Literal["sharing", "printed"], epochs: int) -> Floats:
    return by_epoch(where, ADMMSharing(rho, form), epochs)


def sgd(where: Where, step: float, batches: int, epochs: int) -> Floats:
    return by_epoch(where, FDMLSGD(step, batches), epochs, batches)


def alone(where: Where, parties: int | None) -> Floats:
    """sklearn's logistic regression with its defaults on the columns of the first parties (None: of all), (3,)."""
    from sklearn.linear_model import LogisticRegression

    data = load(where)
    first = sum(WIDTHS[where.name][:parties])
    train, test = (beside(people, first) * data.bound for people in (data.train, data.test))
    model = LogisticRegression(C=1 / LAM).fit(train, data.train.y)
    penalty = LAM / (2 * data.train.dim) * np.sum(model.coef_**2)
    return data.judge(model.decision_function(train), model.decision_function(test), penalty)


def beside(people: People, first: int) -> Any:
    """The first columns of all parties' columns side by side."""
    parts = [features.A for features in people.columns.features]
    if hasattr(parts[0], "tocsr"):
        from scipy.sparse import hstack

        return hstack(parts, format="csr")[:, :first]
    return np.hstack(parts)[:, :first]


@dataclass(frozen=True)
class Noisy:
    """Runs at a noise level, each of which releases its weights at the end: values (epochs, 3, seeds)."""

    epochs: tuple[int, ...]
    values: Floats
    claimed: tuple[float | None, ...]  # each run's total by the paper's Corollary 1, for one column
    per_party: float | None  # certified epsilon of a person's data at one party
    per_person: float | None  # certified epsilon of a person's data at all parties

    @property
    def best(self) -> int:
        """The index of the run with the least mean test loss."""
        return int(np.argmin(self.values[:, LOSS].mean(axis=-1)))


@dataclass(frozen=True)
class Level:
    """A noise level: the paper's epsilon of a round, or the certified epsilon of a whole run at one party.

    Published runs have the objective of `by_epoch`; certified ones keep weights in a ball, under a weight of their own.
    """

    kind: Kind
    epsilon: float
    rho: float
    ball: float | None = None
    weight: float | None = None  # on the summed loss, of divided rows

    def job(self, data: Split, rounds: int) -> Job:
        lam = self.weight or data.lam
        if self.kind == "published":
            method = Sharing(self.rho, calibration="published", round_epsilon=self.epsilon)
            return job(data, method, rounds, lam, Target(None, DELTA, Simulation.kind, "column"))
        target = Target(self.epsilon, DELTA, Simulation.kind, "person")
        return job(data, Sharing(self.rho, ball=self.ball), rounds, lam, target)


def noisy(where: Where, level: Level, epochs: Sequence[int], seeds: int) -> Noisy:
    """Do a run for each number of epochs: weights leave only at the end of a run."""
    data, values, claimed = load(where), [], list[float | None]()
    for rounds in epochs:
        this = level.job(data, rounds)
        values.append(follow(this, data.train, seeds, data.look, at=(rounds,))[-1])
        claimed.append(None if this.published is None else this.published.epsilon)
    people = this.of_people  # the same for all: a certified total is that of a whole run, whatever its length
    return Noisy(tuple(epochs), np.array(values), tuple(claimed), people["per_party"], people["per_person"])
