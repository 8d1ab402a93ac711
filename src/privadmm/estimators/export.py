"""Turn a fitted model into plain scikit-learn objects, which work where privadmm is not installed."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelBinarizer, Normalizer, StandardScaler

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError
from privadmm.optim.losses import LINKED, Logistic, Loss
from privadmm.runs.model import Model
from privadmm.runs.refits import coefficients


def plain(models: Sequence[Model], classes: Any, loss: Loss) -> Any:
    """Make a linear model of scikit-learn, with a scaler and a normaliser before it if the method released moments."""
    if classes is not None and not isinstance(loss, Logistic):
        alike = "the model was not trained with the logistic loss: the plain LogisticRegression decides alike, but "
        chances = (
            "its predict_proba is further from 1/2 than that of the estimator, by up to 0.086"
            if isinstance(loss, LINKED)
            else f"its predict_proba tells nothing: scores of {type(loss).__name__} say which class, not how likely"
        )
        warnings.warn(alike + chances, UserWarning, stacklevel=3)
    frame, map = models[0].frame, models[0].features
    if map is None:
        linear = coefficients(models)
        assert linear is not None
        return final(*linear, classes)
    if frame.intercept:
        raise ConfigError(
            "with moments and intercept > 0 a constant column is centred and scaled along with the others, which no "
            "plain scikit-learn object does: fit with intercept=0 (the moments bring a constant of their own)"
        )
    d = len(frame.names)
    scaler = StandardScaler()
    scaler.mean_, scaler.scale_ = frame.row_bound * map.M, frame.row_bound / map.A
    scaler.var_, scaler.n_features_in_, scaler.n_samples_seen_ = scaler.scale_**2, d, 1
    normalizer = Normalizer()
    normalizer.n_features_in_ = d
    coef = math.sqrt(1 - map.b**2) * np.stack([model.weights[:-1] for model in models])
    return make_pipeline(
        scaler, normalizer, final(coef, np.array([map.b * model.weights[-1] for model in models]), classes)
    )


def final(coef: Floats, constant: Floats, classes: Any) -> Any:
    """Make a linear model with these coefficients; of more than two classes, each against the rest."""
    if classes is None:
        model = LinearRegression()
        model.coef_, model.intercept_, model.n_features_in_ = coef[0], float(constant[0]), coef.shape[1]
        return model
    if len(coef) == 1:
        return logistic(coef, constant, classes)
    many = OneVsRestClassifier(LogisticRegression())
    many.estimators_ = [logistic(coef[[k]], constant[[k]], np.array([0, 1])) for k in range(len(coef))]
    many.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
    # The binarizer sorts the classes, so their models must be in the same order.
    many.estimators_ = [many.estimators_[k] for k in np.argsort(classes)]
    many.n_features_in_ = coef.shape[1]
    if not hasattr(type(many), "classes_"):  # in some versions a property of the binarizer
        many.classes_ = many.label_binarizer_.classes_
    return many


def logistic(coef: Floats, constant: Floats, classes: Any) -> Any:
    model = LogisticRegression()
    model.classes_, model.coef_, model.intercept_ = np.asarray(classes), coef, constant
    model.n_features_in_, model.n_iter_ = coef.shape[1], np.array([0], dtype=np.int32)
    return model
