"""Measure a model on records with known labels: exact figures, for those who may look at these records.

A simulation may, and so may people with records of their own. A deployment may not: see private_evaluation.py.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats

BINS = 10  # of a calibration curve
LEAST = 1e-15  # probability in a log loss: a model that was sure and wrong counts 34.5
HARDLY = 0.1  # a regression that explains a smaller share of the labels' spread is hardly better than a constant
FOR_NUMBERS = 'first_order_consensus with step = "numbers" and moments'  # an estimator's default
HUGE = 1e150  # an error this many times that of the constant has no R^2
Point = tuple[float, float]


@dataclass(frozen=True)
class Scored:
    """Scores of records of two classes, their labels -1 and 1, and the model's probability of the second class.

    `chances` is None for a loss whose scores tell the class, and not how likely it is.
    """

    scores: Floats
    labels: Floats
    chances: Floats | None = None

    @property
    def positive(self) -> NDArray[np.bool_]:
        return self.labels > 0

    def part(self, at: NDArray[Any]) -> "Scored":
        """Select the records at these places."""
        return Scored(self.scores[at], self.labels[at], None if self.chances is None else self.chances[at])

    @property
    def rates(self) -> tuple[Floats, Floats]:
        """False and true positive rates, by falling threshold; records with equal scores change sides together."""
        order = np.argsort(-self.scores, kind="stable")
        positive = self.positive[order]
        last = np.append(np.diff(self.scores[order]) != 0, True)
        true, false = np.cumsum(positive)[last], np.cumsum(~positive)[last]
        return np.append(0.0, false / max(1, false[-1])), np.append(0.0, true / max(1, true[-1]))

    @property
    def roc(self) -> list[Point]:
        """The points of `rates`."""
        false, true = self.rates
        return list(zip(false.tolist(), true.tolist(), strict=True))

    @property
    def auc(self) -> float | None:
        """Area under the ROC; None if a class has no record."""
        if not 0 < self.positive.sum() < len(self.labels):
            return None
        false, true = self.rates
        return float(np.trapezoid(true, false))

    @property
    def log_loss(self) -> float | None:
        if self.chances is None:
            return None
        own = np.where(self.positive, self.chances, 1 - self.chances)
        return float(-np.log(np.maximum(own, LEAST)).mean())

    @property
    def brier(self) -> float | None:
        return None if self.chances is None else float(np.mean((self.chances - self.positive) ** 2))

    @property
    def calibration(self) -> list[dict[str, float]]:
        """Mean predicted probability and share of the second class, in ten groups of equal size by score."""
        if self.chances is None:
            return []
        order = np.argsort(self.scores, kind="stable")
        chances, positive = self.chances[order], self.positive[order]
        groups = [group for group in np.array_split(np.arange(len(order)), BINS) if len(group)]
        return [
            {"predicted": float(chances[at].mean()), "share": float(positive[at].mean()), "records": len(at)}
            for at in groups
        ]

    @property
    def confusion(self) -> dict[str, int]:
        """Count records by true and by predicted class, at the threshold 0."""
        chosen, true = self.scores > 0, self.positive
        pairs = {"true_negative": ~chosen & ~true, "false_positive": chosen & ~true}
        pairs |= {"false_negative": ~chosen & true, "true_positive": chosen & true}
        return {name: int(records.sum()) for name, records in pairs.items()}

    @property
    def figures(self) -> dict[str, Any]:
        """Figures for one line of a table."""
        share, hits = float(self.positive.mean()), self.confusion
        return {
            "records": len(self.labels),
            "auc": self.auc,
            "log_loss": self.log_loss,
            "brier": self.brier,
            "accuracy": (hits["true_negative"] + hits["true_positive"]) / len(self.labels),
            "majority": max(share, 1 - share),
        }


def evaluated(scored: Scored, which: str, parties: Mapping[Any, NDArray[Any]] | None = None) -> dict[str, Any]:
    """Evaluate a classifier on these records, overall and by party; `parties` has the places of each one's records."""
    by_party = [{"party": name, **scored.part(at).figures} for name, at in (parties or {}).items()]
    return {
        "on": which,
        **scored.figures,
        "confusion": scored.confusion,
        "calibration": scored.calibration,
        "parties": by_party,
    }


def evaluated_numbers(
    predicted: Floats, labels: Floats, which: str, parties: Mapping[Any, NDArray[Any]] | None = None
) -> dict[str, Any]:
    """Evaluate a regression on these records, beside the constant that fits them best; `parties` as in `evaluated`."""

    def figures(at: Any) -> dict[str, Any]:
        misses = predicted[at] - labels[at]
        error, around = root_mean_square(misses), root_mean_square(labels[at] - labels[at].mean())
        ratio = error / around if around > 0 else math.inf
        r2 = 1 - ratio**2 if ratio < HUGE else None
        return {"records": len(misses), "rmse": error, "rmse_constant": around, "r2": r2}

    by_party = [{"party": name, **figures(at)} for name, at in (parties or {}).items()]
    return {"on": which, **figures(slice(None)), "parties": by_party}


def worse_than_constant(figures: Mapping[str, Any], summed: bool, chosen: bool, clipped: bool) -> str | None:
    """Warn if a regression is worse on measured records than the constant that fits best, or hardly better.

    "Hardly better" matters too: at a tiny epsilon a method may hardly take a step, so it learns nothing and shows no
    noise either. `summed` tells whether messages are summed securely already, `chosen` whether its steps were set for
    numbers, `clipped` whether label_bound is too small for many labels.
    """
    if "rmse" not in figures or figures["rmse"] <= math.sqrt(1 - HARDLY) * figures["rmse_constant"]:
        return None
    how = "worse than" if figures["rmse"] > figures["rmse_constant"] else "hardly better than"
    return (
        f"predictions are {how} a constant on {figures['on']} (RMSE {figures['rmse']:.3g}, and their mean has "
        f"{figures['rmse_constant']:.3g}): noise, or too few rounds, hide what the data say. "
        f"{'Use' if chosen else f'Try algorithm {FOR_NUMBERS}, or use'} more rows, a larger "
        f"epsilon, {'' if summed else 'secure sums, '}or a {'larger' if clipped else 'smaller'} label_bound"
        f"{'' if clipped else ' if labels allow'} (a simulation may look; a deployment would not tell)"
    )


def root_mean_square(values: Floats) -> float:
    """sqrt(mean(values^2)), also where a square would overflow."""
    size = float(np.abs(values).max(initial=0.0))
    return size * float(np.sqrt(np.mean((values / size) ** 2))) if size > 0 else 0.0
