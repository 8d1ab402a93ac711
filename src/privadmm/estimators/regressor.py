"""The regressor."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from privadmm.data.arrays import Floats
from privadmm.data.misread import labels_warning
from privadmm.engine.phases import Algorithm
from privadmm.errors import ConfigError, DataError, FitWarning
from privadmm.estimators.account import Account
from privadmm.estimators.evaluation import Evaluation, places
from privadmm.estimators.fitting import ADMMEstimator, numbers
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Loss, Squared
from privadmm.optim.regularizers import Regularizer
from privadmm.params import check_positive
from privadmm.runs.measures import evaluated_numbers, worse_than_constant
from privadmm.runs.regression import chosen


class ADMMRegressor(RegressorMixin, ADMMEstimator):  # type: ignore[misc]
    """Least squares over parties that share no record: ADMMClassifier's arguments, and two bounds of the target.

    The default method goes as far as noise allows, by public facts (docs/choosing.md#numbers); with the steps for two
    classes it is algorithm=Centred(FirstOrderConsensus()), rounds=41.

    label_bound   y is clipped to [-label_bound, label_bound]; declared, like row_bound. Shift y to a public middle
    radius        beyond this prediction the squared loss goes on straight, so that its derivative is bounded; private
                  methods need it. At least label_bound, and label_bound if None
    """

    _step = "numbers"

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
        fewest: int | None = None,
        parties: int = 10,
        algorithm: Algorithm | str | Mapping[str, Any] | None = None,
        rounds: int | None = None,
        regularizer: Regularizer | str | Mapping[str, Any] | None = None,
        intercept: float = 0.0,
        graph: Graph | str | None = None,
        warm_start: bool = False,
        random_state: int | None = None,
        ledger: str | Path | Account | None = None,
    ) -> None:
        self._keep(locals())

    def fit(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Train. `groups` names the party of each row; otherwise rows are dealt out evenly."""
        if self.label_bound is None:
            raise ConfigError("declare label_bound, to which y is clipped; reading it off y is a release")
        self._declared()
        check_positive(label_bound=self.label_bound)
        if self.radius is not None:
            check_positive(radius=self.radius)
        X, y = self._numbers(X, y, y_numeric=True)
        target = numbers(y)
        self._fit(X, [target], None, groups)
        if self.private_:
            self._warn_worse(X, target)
        return self

    def _warn_worse(self, X: Any, y: Floats) -> None:
        """Warn of what a simulation may see: many clipped labels, and predictions that are worse than a constant."""
        figures = evaluated_numbers(self.models_[0].scores(X), y, "the rows that were fitted")
        many = labels_warning(int(np.count_nonzero(np.abs(y) > self.label_bound)), len(y))
        worse = worse_than_constant(figures, self.secure_sum, chosen(self.jobs_[0].algorithm), many is not None)
        for problem in (many, worse):
            if problem is not None:
                warnings.warn(problem, FitWarning, stacklevel=3)

    def _invented(self, X: Floats, rng: np.random.Generator) -> Floats:
        """A target for each of these rows, from the released model."""
        return self.models_[0].scores(X)

    def predict(self, X: Any) -> Floats:
        return self._scores(X)[0]

    def evaluate(self, X: Any, y: ArrayLike, groups: ArrayLike | None = None) -> Evaluation:
        """RMSE and R^2, beside the constant that fits best, on rows that may be looked at; `groups` as for `fit`."""
        said, answers = self.predict(X), np.asarray(y, dtype=np.float64)
        if answers.shape != said.shape or not len(said):
            raise DataError(f"y has a number for each row: its shape is {answers.shape}, of {len(said)} rows")
        return Evaluation(evaluated_numbers(said, answers, "these rows", places(groups, len(said))))

    def _loss(self) -> Loss:
        assert self.label_bound is not None
        exact = self.epsilon is None and self.party_epsilon is None
        radius = None if exact and self.radius is None else self.radius or self.label_bound
        return Squared(float(self.label_bound), radius)
