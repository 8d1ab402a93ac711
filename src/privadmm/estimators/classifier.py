"""`ADMMClassifier`, for two classes or more."""

import warnings
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d

from privadmm.data.arrays import Floats
from privadmm.data.raw import labels, numbers, words
from privadmm.engine.phases import Algorithm
from privadmm.errors import ConfigError, DataError, FitWarning
from privadmm.estimators.account import Account
from privadmm.estimators.evaluation import Evaluation, of_classes
from privadmm.estimators.fitting import ADMMEstimator
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import LINKED, Loss, link
from privadmm.optim.regularizers import Regularizer
from privadmm.runs.model import label_array

MORE = ". If there are more than two, declare all of them: classes=(a, b, c)"


def _has_link(estimator: Any) -> bool:
    """Return True if a score of the loss tells how likely a class is; otherwise raise an error that says why not."""
    loss = estimator._plain_loss()
    if isinstance(loss, LINKED):
        return True
    raise AttributeError(
        f"predict_proba: a score of {type(loss).__name__} says which class, not how likely it is: its minimum is the "
        "same for a whole range of probabilities. Fit with loss='logistic' or 'half_logistic'"
    )


def check_encoded(answers: NDArray[Any], classes: tuple[Any, ...]) -> None:
    """Refuse labels 0, 1, ... if other classes were declared: meta-estimators pass on places in place of labels."""
    places = np.arange(len(classes))
    if answers.dtype.kind not in "iu" or not np.isin(answers, places).all():
        return
    if not np.isin(answers, numbers(np.array(classes, dtype=object))).all():
        raise DataError(
            f"y has labels that are not among the declared classes {list(classes)}: only 0 to {len(classes) - 1}. "
            "Meta-estimators (VotingClassifier, StackingClassifier, BaggingClassifier, cross_val_predict with a "
            "method) hand on labels as their places in sorted order: inside of them declare "
            f"classes={tuple(range(len(classes)))}"
        )


class ADMMClassifier(ClassifierMixin, ADMMEstimator):  # type: ignore[misc]
    """A linear classifier trained by ADMM over parties that share no record.

    classes       the labels; of two, the negative first. Declared, because reading them off y would be a release.
                  With more than two, each is trained against the rest, in a job of its own; the jobs share the budget
    row_bound     rows are clipped to this l2 norm; declared likewise
    epsilon, delta  what each party's whole transcript may cost; epsilon=None for a non-private algorithm
    party_epsilon   instead of epsilon, one for each party
    adjacency     which two data sets must look alike: "replace-one", or "label" if rows are no secret
    secure_sum    messages are masked and only their sum is read, so that all parties share one noise, little more than
                  a curator's. For the recommended method, FirstOrderConsensus and DPFedSGD, with three parties or more
    colluding     with secure_sum, how many parties may tell all they know to the reader of the sum, at least 1; a third
                  of them if None. If more do, epsilon_ does not hold: `privadmm account` says what does. Without
                  secure_sum it is not used, so that a search may try both
    fewest        with secure_sum, how few parties may be present; nine tenths of them if None. No party leaves a fit;
                  the number is checked as a deployment would check it
    parties       how many to split the rows among, evenly; ignored when `fit` is given groups
    label_epsilon  labels are randomised first, and the loss debiased for it; a fit with another random_state reports
                  every label once more
    algorithm     an object such as DPADMM(D_w=30, rho=0.01), or as in a config file: "admm_star",
                  {"name": "dp_admm", "D_w": 30}; None is the recommended method, Centred(FirstOrderConsensus())
    rounds        None is 41 for the recommended method, and 200 for others
    loss          an object or a name; None is HalfLogistic() for the recommended method, and Logistic() for others
    regularizer   likewise; None is no penalty for the recommended method, and L2(1e-6) for others
    intercept     share of a row's norm that a constant feature takes, in [0, 1); 0 for none
    graph         for algorithms without a coordinator: a Graph, "ring" or "complete"
    warm_start    start from the model of the last fit; not with the default algorithm, nor another with moments. Each
                  fit draws its own noise (two estimators with one random_state draw the same) and may cost `epsilon`
                  once more. What all fits released, also those that failed half way, is composed into epsilon_; after a
                  fit that was not private, none is. The fits agree on delta, adjacency and parties
    random_state  seed of the simulated noise and of the split; needed
    columns       how many columns each party holds, from left to right, instead of rows: for Sharing(ball=...) with
                  adjacency="person" and its like. All rows of X are then everybody's, and `parties` is not used
    ledger        the path of a ledger, or an Account, on which every fit is counted, clones' and warm starts' included,
                  and refused before it begins when that is spent (docs/python.md). Each fit on it has its own noise

    `fit` gives a BudgetWarning where the budget is too small, by the number of records and parties, to beat a constant,
    and where clones are fitted without a ledger; a FitWarning where nearly all rows are clipped. After it:

    coef_, intercept_  for rows within the bound: decision_function(X) = X @ coef_.T + intercept_; missing if the
                       algorithm maps features, as Centred does
    epsilon_, delta_   certified for the worst party, over all classes and all fits that a warm start descends from;
                       infinite and None where nothing is private
    epsilon_person_    where parties hold columns: epsilon of a person's rows at all parties together
    private_           whether an epsilon covers the model
    ledger_            events and epsilon of every party, over the same fits; with more than two classes `ledgers_`
    history_, counted_  what each of these fits released, oldest first, and their entries in the ledger
    jobs_, path_       the public facts of each class's job, and the models by round, for the plots
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
        fewest: int | None = None,
        label_epsilon: float | None = None,
        parties: int = 10,
        algorithm: Algorithm | str | Mapping[str, Any] | None = None,
        rounds: int | None = None,
        loss: Loss | str | Mapping[str, Any] | None = None,
        regularizer: Regularizer | str | Mapping[str, Any] | None = None,
        intercept: float = 0.0,
        graph: Graph | str | None = None,
        warm_start: bool = False,
        random_state: int | None = None,
        columns: Sequence[int] | None = None,
        ledger: str | Path | Account | None = None,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train. `groups` names the party of each row; otherwise rows are dealt out evenly."""
        classes = self._classes()
        self._declared()
        X = self._numbers(X)
        if y is None:
            raise DataError("requires y to be passed, but the target y is None")
        answers, kinds = column_or_1d(y, warn=True), label_array(classes)
        check_encoded(answers, classes)
        if len(answers) > 1 and (answers == answers[0]).all():
            warnings.warn(
                f"all {len(answers)} labels in y are the same, so there is nothing to tell apart: check y, or the rows "
                "that were chosen (fit is a simulation and may look; a deployment would not tell)",
                FitWarning,
                stacklevel=2,
            )
        if len(classes) == 2:
            pair = (classes[0], classes[1])
            self._fit(X, [labels(answers, pair, "y", MORE)], pair, groups)
        elif not np.isin(answers, kinds).all():
            blank = "" in words(answers[~np.isin(answers, kinds)])
            raise DataError(
                f"y has labels that are not among the declared classes {list(classes)}"
                f"{', and some that are empty' if blank else ''}: drop or relabel these rows, or declare their classes"
            )
        else:
            self._fit(X, [np.where(answers == kind, 1.0, -1.0) for kind in kinds], (False, True), groups)
        self.classes_ = kinds
        return self

    def decision_function(self, X: Any) -> Floats:
        """Score every row. With more than two classes, there is a column of scores for each."""
        scores = self._scores(X)
        return scores[0] if len(scores) == 1 else np.stack(scores, axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.decision_function(X)
        chosen = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    @available_if(_has_link)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Probability of each class: the one for which this score minimises the expected loss, normalised over classes.

        Only for the logistic and the half-logistic loss; computed from public constants of the loss. Noise in the
        weights spreads the scores, so a model with a small budget is too sure of itself.
        """
        return self._probabilities(self.decision_function(X))

    def evaluate(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Evaluation:
        """AUC, log loss, Brier score, calibration, confusion and accuracy on rows that may be looked at.

        `groups` names the party of each row, for figures by party. Of private rows, such figures are a release that no
        ledger counts.
        """
        scores = self.decision_function(X)
        chances = self._probabilities(scores) if isinstance(self._plain_loss(), LINKED) else None
        return of_classes(scores, chances, column_or_1d(y, warn=True), self.classes_, groups)

    def _probabilities(self, scores: Floats) -> Floats:
        each = link(self._plain_loss(), scores)
        if scores.ndim == 1:
            return np.stack([1 - each, each], axis=1)
        odds = each + np.finfo(float).tiny
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))

    def _invented(self, X: Floats, rng: np.random.Generator) -> NDArray[Any]:
        """Draw a label for each of these rows from the released model."""
        scores = np.stack([model.scores(X) for model in self.models_], axis=1)
        shares = self._probabilities(scores[:, 0] if scores.shape[1] == 1 else scores)
        chosen = (shares.cumsum(axis=1) < rng.uniform(size=(len(X), 1))).sum(axis=1)
        return np.asarray(self.classes_[np.minimum(chosen, len(self.classes_) - 1)])

    def _classes(self) -> tuple[Any, ...]:
        declared: Any = self.classes
        if declared is not None and (isinstance(declared, str) or not hasattr(declared, "__len__")):
            raise ConfigError(f"classes is a list of labels, (negative, positive), say, and not {declared!r}")
        if declared is None or len(declared) < 2:
            raise ConfigError(
                "declare the labels, classes=(negative, positive) or all of them; reading them off y is a release"
            )
        classes = tuple(label.item() if isinstance(label, np.generic) else label for label in declared)
        if not all(isinstance(label, Hashable) for label in classes):
            raise ConfigError(f"classes are words or numbers, each named once, and not {declared!r}")
        if len(set(classes)) != len(classes):
            raise ConfigError("classes must be different values, each named once: two different values at least")
        return classes
