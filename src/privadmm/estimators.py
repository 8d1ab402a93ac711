"""scikit-learn estimators: the same jobs from a notebook.

Everything that a guarantee rests on is an argument. Nothing is read off the data: not the classes, not the
norm bound. `fit` simulates the parties in this process, so its noise comes from `random_state`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted

from privadmm import graphs
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data import splits
from privadmm.data.schema import labels
from privadmm.errors import ConfigError, DataError
from privadmm.graphs import Graph
from privadmm.job import Job, cluster, train, weights
from privadmm.losses import Logistic, Loss
from privadmm.model import Frame, Model
from privadmm.phases import Algorithm, Public
from privadmm.privacy.accounting import NoPrivacy, Target
from privadmm.privacy.ledger import export
from privadmm.privacy.mechanisms import Simulation
from privadmm.regularizers import L2, Regularizer


class ADMMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier trained by ADMM over parties that share no record.

    classes       the two labels, negative first; declared, because reading them off y would be a release
    row_bound     rows are clipped to this l2 norm; declared likewise
    epsilon, delta  what each party's whole transcript may cost; both None for a non-private algorithm
    parties       how many to split the rows among, evenly; ignored when `fit` is given groups
    algorithm     an algorithm object such as DPADMM(D_w=30, rho=0.01) or ADMMStar()
    graph         for algorithms without a coordinator
    random_state  seed of the simulated noise and of the split

    After `fit`: model_, coef_, epsilon_ (certified, the worst party), delta_, private_, ledger_ (per party), n_iter_.
    """

    def __init__(
        self,
        *,
        classes: Sequence[Any] | None = None,
        row_bound: float | None = None,
        epsilon: float | None = 1.0,
        delta: float | None = 1e-6,
        parties: int = 10,
        algorithm: Algorithm | None = None,
        rounds: int = 200,
        loss: Loss | None = None,
        regularizer: Regularizer | None = None,
        intercept: float = 0.0,
        graph: Graph | None = None,
        random_state: int | None = None,
    ) -> None:
        self.classes = classes
        self.row_bound = row_bound
        self.epsilon = epsilon
        self.delta = delta
        self.parties = parties
        self.algorithm = algorithm
        self.rounds = rounds
        self.loss = loss
        self.regularizer = regularizer
        self.intercept = intercept
        self.graph = graph
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> "ADMMClassifier":
        """Train. `groups` names the party of each row; otherwise rows are dealt out evenly."""
        if self.classes is None or len(self.classes) != 2:
            raise ConfigError(
                "declare the two labels, classes=(negative, positive); reading them off y is a release"
            )
        if self.row_bound is None:
            raise ConfigError(
                "declare row_bound, the l2 norm that rows are clipped to; reading it off X is a release"
            )
        if self.random_state is None:
            raise ConfigError("fit is a simulation and needs a seed: random_state=0, say")
        noise = Simulation(self.random_state)
        X = check_array(X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
        target = labels(np.asarray(y), tuple(self.classes))
        if len(target) != X.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and y has {len(target)}")
        if groups is None:
            owner, count = splits.even(X.shape[0], self.parties, self.random_state), self.parties
        else:
            owner, names = splits.by_column(np.asarray(groups))
            count = len(names)
        frame = Frame(self.row_bound, self.intercept, self._names(X), tuple(self.classes))
        shards = frame.shards(X, target, splits.gather(X, owner, count))
        job = Job(self.algorithm or DPADMM(D_w=30.0, rho=0.01), self._public(shards.sizes, shards.dim, count))
        blocks = cluster(job, shards, noise)
        w = weights(job, train(job, blocks))
        self.model_ = Model(w, frame, job.algorithm.name, noise.mode, job.epsilon, job.delta)
        self.classes_ = np.asarray(self.classes)
        self.coef_ = w[None]
        self.private_ = job.private
        self.epsilon_ = math.inf if job.epsilon is None else job.epsilon
        self.delta_ = job.delta
        self.ledger_ = export(blocks.workers[0].ledger)
        self.n_iter_ = self.rounds
        self.n_features_in_ = X.shape[1]
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self, "model_")
        X = check_array(X, accept_sparse="csr", dtype=np.float64)
        return self.model_.scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        return self.classes_[(self.decision_function(X) > 0).astype(int)]

    def _public(self, sizes: NDArray[np.int64], dim: int, parties: int) -> Public:
        if (self.epsilon is None) != (self.delta is None):
            raise ConfigError(
                "epsilon and delta go together: give both, or neither for a non-private algorithm"
            )
        privacy: Target | NoPrivacy = NoPrivacy("no epsilon was asked for")
        if self.delta is not None:
            privacy = Target(self.epsilon, self.delta)
        return Public(
            sizes=sizes,
            dim=dim,
            rounds=self.rounds,
            graph=self.graph or graphs.star(parties),
            loss=self.loss or Logistic(),
            regularizer=self.regularizer or L2(1e-6),
            privacy=privacy,
        )

    def _names(self, X: Any) -> tuple[str, ...]:
        return tuple(f"x{j}" for j in range(X.shape[1]))
