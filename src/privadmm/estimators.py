"""scikit-learn estimators: the same jobs from a notebook.

Everything that a guarantee rests on is an argument. Nothing is read off the data: not the classes, not the
norm bound. `fit` simulates the parties in this process, so its noise comes from `random_state`.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from privadmm import check, graphs
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.data import splits
from privadmm.data.schema import labels
from privadmm.errors import ConfigError, DataError
from privadmm.graphs import Graph
from privadmm.job import Job, cluster, train, weights
from privadmm.losses import Logistic, Loss
from privadmm.model import Frame, Model, label_array
from privadmm.phases import Algorithm, Public
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.ledger import export
from privadmm.privacy.mechanisms import Simulation
from privadmm.regularizers import L2, Regularizer


def _is_logistic(estimator: Any) -> bool:
    return estimator.loss is None or isinstance(estimator.loss, Logistic)


class ADMMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier trained by ADMM over parties that share no record.

    classes       the two labels, negative first; declared, because reading them off y would be a release
    row_bound     rows are clipped to this l2 norm; declared likewise
    epsilon, delta  what each party's whole transcript may cost; epsilon=None for a non-private algorithm
    parties       how many to split the rows among, evenly; ignored when `fit` is given groups
    algorithm     an algorithm object such as DPADMM(D_w=30, rho=0.01) or ADMMStar(); the former if None
    rounds        how many
    loss          Logistic() if None
    regularizer   L2(1e-6) if None
    intercept     share of a row's norm that a constant feature takes, in [0, 1); 0 for none
    graph         for algorithms without a coordinator
    random_state  seed of the simulated noise and of the split; needed

    After `fit`:

    coef_, intercept_  of rows within the bound: decision_function(X) = X @ coef_.T + intercept_
    epsilon_, delta_   certified, the worst party; infinite and None where nothing is private
    private_           whether an epsilon covers the model
    ledger_            events and epsilon of every party
    parties_           the parties' names, in their order
    model_             the weights with all of that, to save
    classes_, n_iter_, n_features_in_  as everywhere in scikit-learn
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> "ADMMClassifier":
        """Train. `groups` names the party of each row; otherwise rows are dealt out evenly."""
        classes, row_bound, seed = self._declared()
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        if y is None:
            raise DataError("requires y to be passed, but the target y is None")
        target = labels(column_or_1d(y, warn=True), classes)
        owner, names = self._owners(X.shape[0], len(target), groups, seed)
        frame = Frame(row_bound, self.intercept, self._names(), classes)
        shards = frame.shards(X, target, splits.gather(X, owner, len(names)))
        job = self._job(shards.sizes, shards.dim)
        blocks = cluster(job, shards, Simulation(seed))
        w = weights(job, train(job, blocks))
        self.model_ = Model(w, frame, job.algorithm.name, Simulation.mode, job.epsilon, job.delta)
        self.classes_ = label_array(classes)
        d = self.n_features_in_
        self.coef_ = w[None, :d] * (math.sqrt(1 - self.intercept**2) / row_bound)
        self.intercept_ = self.intercept * w[d:] if self.intercept else np.zeros(1)
        self.private_ = job.private
        self.epsilon_ = math.inf if job.epsilon is None else job.epsilon
        self.delta_ = job.delta
        self.ledger_ = export(blocks.workers[0].ledger)
        self.parties_ = names
        self.n_iter_ = self.rounds
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """a.w for every row, clipped and scaled as in training."""
        check_is_fitted(self, "model_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self.model_.scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.decision_function(X)
        chosen: NDArray[Any] = self.classes_[(scores > 0).astype(int)]
        return chosen

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Of the logistic loss only, whose score is a log-odds: the probability of each class."""
        scores = self.decision_function(X)
        return np.stack([expit(-scores), expit(scores)], axis=1)

    def _declared(self) -> tuple[tuple[Any, Any], float, int]:
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
        negative, positive = (
            label.item() if isinstance(label, np.generic) else label for label in self.classes
        )
        return (negative, positive), float(self.row_bound), Simulation(self.random_state).seed

    def _owners(
        self, rows: int, labelled: int, groups: ArrayLike | None, seed: int
    ) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        if labelled != rows:
            raise DataError(f"X has {rows} rows and y has {labelled}")
        if groups is None:
            check.whole(parties=self.parties)
            owner = splits.even(rows, self.parties, seed)
            return owner, tuple(str(party) for party in range(self.parties))
        named = np.asarray(groups)
        if named.shape != (rows,):
            raise DataError(f"groups must name the party of each of the {rows} rows, not be {named.shape}")
        return splits.by_column(named)

    def _job(self, sizes: NDArray[np.int64], dim: int) -> Job:
        algorithm = self.algorithm or DPADMM(D_w=30.0, rho=0.01)
        privacy: Target | NoPrivacy = NoPrivacy("no epsilon was asked for")
        if self.epsilon is not None and self.delta is None:
            raise ConfigError("epsilon means little without delta: give both, or epsilon=None for no privacy")
        if self.delta is not None and (self.epsilon is not None or algorithm.private):
            privacy = Target(self.epsilon, self.delta)
        public = Public(
            sizes=sizes,
            dim=dim,
            rounds=self.rounds,
            graph=self.graph or graphs.star(len(sizes)),
            loss=self.loss or Logistic(),
            regularizer=self.regularizer or L2(1e-6),
            privacy=privacy,
        )
        return Job(algorithm, public, self.epsilon if isinstance(privacy, Target) else None)

    def _names(self) -> tuple[str, ...]:
        if hasattr(self, "feature_names_in_"):
            return tuple(map(str, self.feature_names_in_))
        return tuple(f"x{j + 1}" for j in range(self.n_features_in_))
