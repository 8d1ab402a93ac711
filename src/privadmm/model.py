"""A trained linear model as it is handed out: a function of the transcript, so using it costs nothing more."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.shards import Shards
from privadmm.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Frame:
    """How a row becomes a record inside the unit ball: what training and prediction share. All declared."""

    row_bound: float
    intercept: float
    names: tuple[str, ...]
    classes: tuple[Any, Any] | None

    def shards(self, X: Any, y: Any, rows: list[Any]) -> Shards:
        return Shards.build(
            X,
            y,
            rows,
            row_bound=self.row_bound,
            intercept=self.intercept,
            classification=self.classes is not None,
        )


@dataclass(frozen=True)
class Model:
    """Weights in the unit-ball frame, and the claim that comes with them (epsilon None: not private)."""

    weights: Floats
    frame: Frame
    algorithm: str
    mode: str
    epsilon: float | None
    delta: float | None

    def scores(self, X: Any) -> Floats:
        """a.w for every row of X, clipped and scaled as in training."""
        if X.shape[1] != len(self.frame.names):
            raise DataError(f"the model has {len(self.frame.names)} features and the rows have {X.shape[1]}")
        whole = self.frame.shards(X, np.ones(X.shape[0]), [np.arange(X.shape[0])])
        return whole.margins(self.weights[None])

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.scores(X)
        return (
            scores if self.frame.classes is None else np.asarray(self.frame.classes)[(scores > 0).astype(int)]
        )

    def save(self, path: Path) -> None:
        names = [*self.frame.names, *(["(intercept)"] if self.frame.intercept else [])]
        facts = {
            "private": self.epsilon is not None,
            "algorithm": self.algorithm,
            "mode": self.mode,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "frame": asdict(self.frame),
            "weights": list(zip(names, self.weights.tolist(), strict=True)),
        }
        path.write_text(json.dumps(facts, indent=1) + "\n")

    @staticmethod
    def load(path: Path) -> "Model":
        try:
            facts = json.loads(path.read_text())
            kept = facts["frame"]
            classes = None if kept["classes"] is None else tuple(kept["classes"])
            frame = Frame(kept["row_bound"], kept["intercept"], tuple(kept["names"]), classes)
            weights = np.array([weight for _, weight in facts["weights"]], dtype=np.float64)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not a model that privadmm saved ({type(error).__name__})") from error
        if not all(map(math.isfinite, weights)):
            raise DataError(f"{path}: the model has weights that are not finite")
        return Model(weights, frame, facts["algorithm"], facts["mode"], facts["epsilon"], facts["delta"])
