"""scikit-learn estimators: the same jobs from a notebook.

Everything that a guarantee rests on is an argument. Nothing is read off the data: not the classes, not the
norm bound. `fit` simulates the parties in this process, so its noise comes from `random_state`.
"""

import hashlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.moments import Centred
from privadmm.data import splits
from privadmm.data.arrays import Floats, Ints
from privadmm.data.columns import People
from privadmm.data.frame import Frame
from privadmm.data.raw import labels
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.errors import BudgetWarning, ConfigError, DataError
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Debiased, HalfLogistic, Logistic, Loss, Squared
from privadmm.optim.regularizers import L2, Regularizer
from privadmm.params import check_whole
from privadmm.privacy.accounting import together as of_a_person
from privadmm.privacy.calibration import NoPrivacy, Target, epsilons
from privadmm.privacy.history import STARTED_UNPROTECTED, Start
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.sums import SecureSum
from privadmm.runs.ending import model_of
from privadmm.runs.model import Model, label_array
from privadmm.runs.recommend import warning
from privadmm.runs.refits import Fit, coefficients, cost, starts_of


class ADMMEstimator(BaseEstimator):  # type: ignore[misc]
    """The part that classifier and regressor share: parties, budget, jobs, and a linear model of clipped rows."""

    row_bound: float | None
    epsilon: float | None
    delta: float | None
    party_epsilon: Sequence[float] | None
    adjacency: str
    secure_sum: bool
    colluding: int | None
    label_epsilon: float | None = None
    parties: int
    algorithm: Algorithm | None
    rounds: int | None
    loss: Loss | None = None
    regularizer: Regularizer | None
    intercept: float
    graph: Graph | None
    warm_start: bool
    random_state: int | None
    columns: Sequence[int] | None = None

    def _keep(self, arguments: dict[str, Any]) -> None:
        """Set each argument of a constructor as the attribute of that name, as scikit-learn expects."""
        self.__dict__.update({name: value for name, value in arguments.items() if name != "self"})

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _scores(self, X: Any) -> list[Floats]:
        """a.w for every row, clipped and scaled as in training, by each model."""
        check_is_fitted(self, "models_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return [model.scores(X) for model in self.models_]

    def _fit(self, X: Any, targets: list[Floats], classes: tuple[Any, Any] | None, groups: Any) -> None:
        """Train one job for each target, all under one budget, each with noise of its own."""
        row_bound, seed = self._declared()
        frame = Frame(row_bound, self.intercept, self._names(), classes)
        rows, all_rows = list[Any](), np.arange(X.shape[0])
        if X.shape[0] != len(targets[0]):
            raise DataError(f"X has {X.shape[0]} rows and y has {len(targets[0])}")
        if self.columns is None:
            owner, names = self._owners(X.shape[0], groups, seed)
            rows = splits.gather(X, owner, len(names))
        elif groups is not None:
            raise ConfigError("groups name the parties of rows, and with columns every party has all rows")
        else:
            held = splits.by_columns(X.shape[1], self.columns)
            frame = frame.split([part.tolist() for part in held], clipped=self.adjacency != "column")
            names = tuple(str(party) for party in range(len(held)))
        q = None if frame.clipped else getattr(self.algorithm, "column_bound", None)
        starts = starts_of(self, frame, len(targets)) if self.warm_start else []
        fit = Fit(names, groups is None, starts[0].past if starts else ())
        models = list[Model]()
        try:
            for number, target in enumerate(targets):
                data: Shards | People = frame.shards(X, target, rows) if rows else frame.people(X, target, all_rows, q)
                widths = data.widths if isinstance(data, People) else ()
                start = starts[number] if starts else None
                job = self._job(data.sizes, data.dim, len(targets), start, widths)
                if number == 0:
                    fit.check(job)
                    if (problem := warning(job)) is not None:
                        warnings.warn(problem, BudgetWarning, stacklevel=3)
                map = models[0].features if models else None
                if map is not None and isinstance(data, Shards):
                    data, job = data.mapped([map] * len(data.ids), data.dim + 1), behind(fit.jobs[0])
                blocks = cluster(job, data, Simulation(stream(seed, number, len(fit.before))))
                fit.begin(job, blocks.workers[0].ledger)
                models.append(model_of(job, train(job, blocks), frame, Simulation.mode, map))
            self.history_ = fit.finished(models)
        except BaseException:
            if fit.jobs:  # no model is handed out, but what was released stays spent
                self.history_ = (*getattr(self, "history_", ()), fit.broken())
            raise
        self._publish(fit, models)

    def _publish(self, fit: Fit, models: list[Model]) -> None:
        """Set the fitted attributes, and remove those of an earlier fit that this one does not have."""
        for name in ("coef_", "intercept_", "epsilon_person_", "model_", "ledger_"):
            self.__dict__.pop(name, None)
        self.epsilon_ = total = cost(self.history_)
        self.private_ = math.isfinite(total)
        if self.epsilon is not None and not all(past.private for past in fit.before):
            warnings.warn(STARTED_UNPROTECTED, BudgetWarning, stacklevel=4)
        self.delta_ = fit.delta if self.private_ else None
        # Whoever has one of several models has only a part of what was released for all.
        shown = total if self.private_ else None
        self.models_ = [replace(model, epsilon=shown, delta=self.delta_) for model in models]
        self.ledgers_ = fit.exports(total)
        if len(models) == 1:
            self.model_, self.ledger_ = self.models_[0], self.ledgers_[0]
        if (linear := coefficients(models)) is not None:
            self.coef_, self.intercept_ = linear
        if models[0].frame.groups:
            spent = [ledger.spent(party) for ledger in fit.ledgers for party in ledger.ids]
            whole = self.private_ and self.adjacency == "person"
            self.epsilon_person_ = of_a_person(spent, fit.delta or 0.0) if whole else math.inf
        self.parties_ = fit.parties
        self.n_iter_ = fit.jobs[0].public.rounds

    def _declared(self) -> tuple[float, int]:
        if self.row_bound is None:
            raise ConfigError("declare row_bound, the l2 norm that rows are clipped to; reading it off X is a release")
        if self.random_state is None:
            raise ConfigError("fit is a simulation and needs a seed: random_state=0, say")
        return float(self.row_bound), Simulation(self.random_state).seed

    def _owners(self, rows: int, groups: ArrayLike | None, seed: int) -> tuple[Ints, tuple[str, ...]]:
        """The party of each row, and the parties' names."""
        if groups is None:
            check_whole(parties=self.parties)
            return splits.even(rows, self.parties, seed), tuple(str(party) for party in range(self.parties))
        named = np.asarray(groups)
        if named.shape != (rows,):
            raise DataError(f"groups must name the party of each of the {rows} rows, not be {named.shape}")
        return splits.by_column(named)

    def _job(self, sizes: Ints, dim: int, copies: int, start: Start | None, columns: tuple[int, ...] = ()) -> Job:
        algorithm = self.algorithm or Centred(FirstOrderConsensus())
        privacy: Target | NoPrivacy = NoPrivacy("no epsilon was asked for")
        shares = epsilons(self.party_epsilon)
        asked = self.epsilon is not None or bool(shares)
        if asked and self.delta is None:
            raise ConfigError("epsilon means little without delta: give both, or epsilon=None for no privacy")
        if not isinstance(self.secure_sum, bool | np.bool_):
            raise ConfigError(f"secure_sum must be True or False, not {self.secure_sum!r}")
        if self.secure_sum and not asked:
            raise ConfigError("secure_sum=True shares the noise of an epsilon: give one, or leave out secure_sum")
        if self.colluding is not None and not self.secure_sum:
            raise ConfigError("colluding is of secure sums only: set secure_sum=True, or leave it out")
        if self.delta is not None and (asked or algorithm.adjacencies):
            related: Any = self.adjacency  # checked by Target
            summed = SecureSum(self.colluding) if self.secure_sum else None
            privacy = Target(
                self.epsilon, self.delta, adjacency=related, party_epsilon=shares, copies=copies, sum=summed
            )
        public = Public(
            sizes=sizes,
            dim=dim,
            rounds=(41 if self.algorithm is None else 200) if self.rounds is None else self.rounds,
            graph=self.graph or graphs.star(len(sizes)),
            loss=self._loss(),
            regularizer=self.regularizer or L2(0.0 if self.algorithm is None else 1e-6),
            privacy=privacy,
            start=start,
            columns=columns,
        )
        allowance = max(shares) if shares else self.epsilon
        return Job(algorithm, public, allowance if isinstance(privacy, Target) else None)

    def _loss(self) -> Loss:
        loss = self.loss or (HalfLogistic() if self.algorithm is None else Logistic())
        return loss if self.label_epsilon is None else Debiased(loss, self.label_epsilon)

    def _names(self) -> tuple[str, ...]:
        if hasattr(self, "feature_names_in_"):
            return tuple(map(str, self.feature_names_in_))
        return tuple(f"x{j + 1}" for j in range(self.n_features_in_))


def stream(seed: int, number: int, fits: int) -> int:
    """A seed for each job of a fit: one noise vector for two classes, or two fits, would tell their difference."""
    if number == fits == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}/{fits}".encode()).digest()[:8], "little")


def behind(first: Job) -> Job:
    """The job of a further class. Moments are of features alone, so it uses those that the first job released."""
    assert isinstance(first.algorithm, Centred)
    return Job(first.algorithm.method, first.algorithm.inside(first.public), first.allowance)


def _is_logistic(estimator: Any) -> bool:
    default = estimator.loss is None and estimator.algorithm is not None
    return (default or isinstance(estimator.loss, Logistic)) and estimator.label_epsilon is None


class ADMMClassifier(ClassifierMixin, ADMMEstimator):  # type: ignore[misc]
    """A linear classifier trained by ADMM over parties that share no record.

    classes       the labels; of two, the negative first. Declared, because reading them off y would be a release.
                  More than two are told apart one against the rest, in as many jobs that share the budget
    row_bound     rows are clipped to this l2 norm; declared likewise
    epsilon, delta  what each party's whole transcript may cost; epsilon=None for a non-private algorithm
    party_epsilon   instead of epsilon, one for each party
    adjacency     which two data sets must look alike: "replace-one", or "label" if rows are no secret
    secure_sum    messages are masked and only their sum is read, so that all parties share one noise, little more than
                  a curator's. For the recommended method, FirstOrderConsensus and DPFedSGD, with three parties or more
    colluding     of a secure sum, how many parties may tell all they know to whoever reads it, at least 1; a third of
                  them if None. If more do, epsilon_ does not hold: `privadmm account` says what does
    parties       how many to split the rows among, evenly; ignored when `fit` is given groups
    label_epsilon  labels are randomised first, and the loss debiased for it; a fit with another random_state reports
                  every label once more
    algorithm     an object such as DPADMM(D_w=30, rho=0.01) or ADMMStar(); None is the recommended method,
                  Centred(FirstOrderConsensus())
    rounds        None is 41 for the recommended method, and 200 for others
    loss          None is HalfLogistic() for the recommended method, and Logistic() for others
    regularizer   None is no penalty for the recommended method, and L2(1e-6) for others
    intercept     share of a row's norm that a constant feature takes, in [0, 1); 0 for none
    graph         for algorithms without a coordinator
    warm_start    start from the model of the last fit. Each fit draws its own noise (two estimators with one
                  random_state draw the same) and may cost `epsilon` once more. What all fits released, also those
                  that failed half way, is composed into epsilon_; after a fit that was not private, none is. The fits
                  agree on delta, adjacency and parties
    random_state  seed of the simulated noise and of the split; needed
    columns       how many columns each party holds, from left to right, instead of rows: for Sharing(ball=...) with
                  adjacency="person" and its like. All rows of X are then everybody's, and `parties` is not used

    `fit` gives a BudgetWarning where the budget is too small, by the number of records and parties, to beat a constant.
    After it:

    coef_, intercept_  for rows within the bound: decision_function(X) = X @ coef_.T + intercept_; missing if the
                       algorithm maps features, as Centred does
    epsilon_, delta_   certified for the worst party, over all classes and all fits that a warm start descends from;
                       infinite and None where nothing is private
    epsilon_person_    where parties hold columns: epsilon of a person's rows at all parties together
    private_           whether an epsilon covers the model
    ledger_            events and epsilon of every party, over the same fits; with more than two classes `ledgers_`
    history_           what each of these fits released, oldest first
    parties_           the parties' names, in their order
    model_             the weights with all of that, to save; with more than two classes `models_`
    classes_, n_iter_, n_features_in_  as everywhere in scikit-learn
    """

    def __init__(
        self,
        *,
        classes: Sequence[Any] | None = None,
        row_bound: float | None = None,
        epsilon: float | None = 1.0,
        delta: float | None = 1e-6,
        party_epsilon: Sequence[float] | None = None,
        adjacency: str = "replace-one",
        secure_sum: bool = False,
        colluding: int | None = None,
        label_epsilon: float | None = None,
        parties: int = 10,
        algorithm: Algorithm | None = None,
        rounds: int | None = None,
        loss: Loss | None = None,
        regularizer: Regularizer | None = None,
        intercept: float = 0.0,
        graph: Graph | None = None,
        warm_start: bool = False,
        random_state: int | None = None,
        columns: Sequence[int] | None = None,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train. `groups` names the party of each row; otherwise rows are dealt out evenly."""
        classes = self._classes()
        self._declared()
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        if y is None:
            raise DataError("requires y to be passed, but the target y is None")
        answers, kinds = column_or_1d(y, warn=True), label_array(classes)
        if len(classes) == 2:
            pair = (classes[0], classes[1])
            self._fit(X, [labels(answers, pair)], pair, groups)
        elif not np.isin(answers, kinds).all():
            raise DataError(f"y has labels that are not among the declared classes {list(classes)}")
        else:
            self._fit(X, [np.where(answers == kind, 1.0, -1.0) for kind in kinds], (False, True), groups)
        self.classes_ = kinds
        return self

    def decision_function(self, X: Any) -> Floats:
        """The score of every row; a column of them for each class if there are more than two."""
        scores = self._scores(X)
        return scores[0] if len(scores) == 1 else np.stack(scores, axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    @available_if(_is_logistic)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Each class's probability, normalised over all. Only for the logistic loss, whose score is a log-odds."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.stack([expit(-scores), expit(scores)], axis=1)
        odds = expit(scores) + np.finfo(float).tiny
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def _classes(self) -> tuple[Any, ...]:
        if self.classes is None or len(self.classes) < 2:
            raise ConfigError(
                "declare the labels, classes=(negative, positive) or all of them; reading them off y is a release"
            )
        classes = tuple(label.item() if isinstance(label, np.generic) else label for label in self.classes)
        if len(set(classes)) != len(classes):
            raise ConfigError("classes must be different values, each named once: two different values at least")
        return classes


class ADMMRegressor(RegressorMixin, ADMMEstimator):  # type: ignore[misc]
    """Least squares over parties that share no record: ADMMClassifier's arguments, and two bounds of the target.

    label_bound   y is clipped to [-label_bound, label_bound]; declared, like row_bound
    radius        beyond this prediction the squared loss goes on straight, so that its derivative is bounded; private
                  methods need it, and label_bound if None
    """

    def __init__(
        self,
        *,
        label_bound: float | None = None,
        radius: float | None = None,
        row_bound: float | None = None,
        epsilon: float | None = 1.0,
        delta: float | None = 1e-6,
        party_epsilon: Sequence[float] | None = None,
        adjacency: str = "replace-one",
        secure_sum: bool = False,
        colluding: int | None = None,
        parties: int = 10,
        algorithm: Algorithm | None = None,
        rounds: int | None = None,
        regularizer: Regularizer | None = None,
        intercept: float = 0.0,
        graph: Graph | None = None,
        warm_start: bool = False,
        random_state: int | None = None,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train. `groups` names the party of each row; otherwise rows are dealt out evenly."""
        if self.label_bound is None:
            raise ConfigError("declare label_bound, to which y is clipped; reading it off y is a release")
        self._declared()
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, y_numeric=True)
        self._fit(X, [np.asarray(y, dtype=np.float64)], None, groups)
        return self

    def predict(self, X: Any) -> Floats:
        return self._scores(X)[0]

    def _loss(self) -> Loss:
        assert self.label_bound is not None
        exact = self.epsilon is None and self.party_epsilon is None
        radius = None if exact and self.radius is None else self.radius or self.label_bound
        return Squared(float(self.label_bound), radius)
