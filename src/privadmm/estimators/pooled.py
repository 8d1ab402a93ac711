"""Recognise features that were scaled by statistics of the same rows that are being fitted.

It recognises only what cannot happen by chance: columns whose mean is 0 and variance 1, or whose median is 0 and
interquartile range 1, to nine digits. It cannot see that columns were scaled to [0, 1], which looks like a declared
range, nor that cells were imputed: `check_pipeline` finds such steps if you give it the Pipeline.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats

FEWEST = 10  # rows; the mean of two or three may well be 0
EXACT = 1e-9
Statistic = Callable[[Floats], Floats]
STEPS: dict[str, tuple[Statistic, Statistic]] = {
    "mean 0 and variance 1": (lambda X: X.mean(axis=0), lambda X: X.var(axis=0)),
    "median 0 and interquartile range 1": (
        lambda X: np.median(X, axis=0),
        lambda X: np.percentile(X, 75, axis=0) - np.percentile(X, 25, axis=0),
    ),
}


def pooled(X: Any) -> str | None:
    """Warn if these rows look scaled by their own statistics; None if they do not, or are sparse."""
    if not isinstance(X, np.ndarray) or len(X) < FEWEST:
        return None
    varied = X[:, np.ptp(X, axis=0) > 0]
    if not varied.shape[1]:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = [
            what
            for what, (centre, spread) in STEPS.items()
            if (np.abs(centre(varied)) <= EXACT).all() and (np.abs(spread(varied) - 1) <= EXACT).all()
        ]
    if not scaled:
        return None
    return (
        f"every column of X has {scaled[0]} over these very rows, as a scaler leaves them that was fitted on all "
        "parties' private rows. No epsilon covers what it learnt, and behind it one record moves all rows: the "
        "guarantee does not hold. Declare ranges and categories with SchemaEncoder, or scale by public constants"
    )
