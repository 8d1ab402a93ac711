"""How good a model is on records with known labels: exact figures, for whoever may look at these records.

A simulation may, and so may everybody with records of their own. A deployment may not: see private_evaluation.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats

BINS = 10  # of a calibration curve
LEAST = 1e-15  # probability in a log loss: a model that was sure and wrong counts 34.5
Point = tuple[float, float]


@dataclass(frozen=True)
class Scored:
    """Scores of records of two classes, their labels -1 and 1, and how likely the second class is by the model.

    Without `chances` a score says which class, and not how likely it is.
    """

    scores: Floats
    labels: Floats
    chances: Floats | None = None

    @property
    def positive(self) -> NDArray[np.bool_]:
        return self.labels > 0

    def part(self, at: NDArray[Any]) -> "Scored":
        """The records at these places."""
        return Scored(self.scores[at], self.labels[at], None if self.chances is None else self.chances[at])

    @property
    def roc(self) -> list[Point]:
        """False against true positive rates, by falling threshold; records with equal scores change sides together."""
        order = np.argsort(-self.scores, kind="stable")
        positive = self.positive[order]
        last = np.append(np.diff(self.scores[order]) != 0, True)
        true, false = np.cumsum(positive)[last], np.cumsum(~positive)[last]
        rates = zip((false / max(1, false[-1])).tolist(), (true / max(1, true[-1])).tolist(), strict=True)
        return [(0.0, 0.0), *rates]

    @property
    def auc(self) -> float | None:
        """The area under the ROC; None where a class has no record."""
        return area(self.roc) if 0 < self.positive.sum() < len(self.labels) else None

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
        """Records by class and by what the model says, at the threshold 0."""
        said, true = self.scores > 0, self.positive
        pairs = {"true_negative": ~said & ~true, "false_positive": said & ~true}
        pairs |= {"false_negative": ~said & true, "true_positive": said & true}
        return {name: int(found.sum()) for name, found in pairs.items()}

    @property
    def figures(self) -> dict[str, Any]:
        """The figures that one line of a table has."""
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
    """All figures of a classifier on these records, overall and by party; `parties` are the places of their records."""
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
    """All figures of a regression on these records, beside what the constant that fits best would have."""

    def figures(at: Any) -> dict[str, Any]:
        misses, spread = predicted[at] - labels[at], labels[at] - labels[at].mean()
        error, around = float(np.mean(misses**2)), float(np.mean(spread**2))
        r2 = 1 - error / around if around > 0 else None
        return {"records": len(misses), "rmse": error**0.5, "rmse_constant": around**0.5, "r2": r2}

    by_party = [{"party": name, **figures(at)} for name, at in (parties or {}).items()]
    return {"on": which, **figures(slice(None)), "parties": by_party}


def area(points: Sequence[Point]) -> float:
    """The area below a line of points, by trapezoids."""
    return sum((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in pairwise(points))
