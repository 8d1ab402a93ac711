"""A trained linear model as it is handed out: a function of the transcript, so using it costs nothing more."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.shards import Shards
from privadmm.errors import DataError

Floats = NDArray[np.float64]

NOT_PRIVATE = "NOT PRIVATE: no epsilon covers this run"
SIMULATED = "simulation: noise from a seed, to study and not to publish"


def notices(private: bool, mode: str) -> list[str]:
    """What everybody has to know who meets this run's output, wherever that is."""
    return [*([] if private else [NOT_PRIVATE]), *([SIMULATED] if mode == "simulation" else [])]


@dataclass(frozen=True)
class Frame:
    """How a row becomes a record inside the unit ball: what training and prediction share. All declared."""

    row_bound: float
    intercept: float
    names: tuple[str, ...]
    classes: tuple[Any, Any] | None

    @property
    def columns(self) -> tuple[str, ...]:
        """What each weight belongs to."""
        return (*self.names, "(intercept)") if self.intercept else self.names

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

    def __post_init__(self) -> None:
        if self.weights.shape != (len(self.frame.columns),):
            raise DataError(f"{self.weights.shape} weights for {len(self.frame.columns)} columns")
        if not np.isfinite(self.weights).all():
            raise DataError("the model has weights that are not finite")

    def scores(self, X: Any) -> Floats:
        """a.w for every row of X, clipped and scaled as in training."""
        if len(X.shape) != 2 or X.shape[1] != len(self.frame.names):
            raise DataError(
                f"the model was trained on {len(self.frame.names)} features; X must be (n, that many), not {X.shape}"
            )
        if X.shape[0] == 0:
            return np.empty(0)
        whole = self.frame.shards(X, np.ones(X.shape[0]), [np.arange(X.shape[0])])
        return whole.margins(self.weights[None])

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every row; its score if no classes were declared."""
        found = self.scores(X)
        if self.frame.classes is None:
            return found
        chosen: NDArray[Any] = label_array(self.frame.classes)[(found > 0).astype(int)]
        return chosen

    def save(self, path: str | Path) -> None:
        facts = {
            "notices": notices(self.epsilon is not None, self.mode),
            "private": self.epsilon is not None,
            "algorithm": self.algorithm,
            "mode": self.mode,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "frame": asdict(self.frame),
            "weights": list(zip(self.frame.columns, self.weights.tolist(), strict=True)),
        }
        Path(path).write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> "Model":
        try:
            facts = json.loads(Path(path).read_text(encoding="utf-8"))
            kept = facts["frame"]
            classes = None if kept["classes"] is None else tuple(kept["classes"])
            frame = Frame(kept["row_bound"], kept["intercept"], tuple(kept["names"]), classes)
            weights = np.array([weight for _, weight in facts["weights"]], dtype=np.float64)
            return Model(weights, frame, facts["algorithm"], facts["mode"], facts["epsilon"], facts["delta"])
        except DataError as error:
            raise DataError(f"{path}: {error}") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not a model that privadmm saved ({type(error).__name__})") from error


def label_array(classes: tuple[Any, Any]) -> NDArray[Any]:
    """Both labels as numpy keeps them best; a word beside a number stays what it is."""
    labels = np.asarray(classes)
    if labels.dtype.kind in "US" and not all(isinstance(label, str) for label in classes):
        labels = np.array(classes, dtype=object)
    return labels
