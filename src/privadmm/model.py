"""A trained linear model as it is handed out: a function of the transcript, so using it costs nothing more."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.columns import Columns, People
from privadmm.data.shards import Shards
from privadmm.errors import DataError
from privadmm.features import Map

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
    groups: tuple[tuple[int, ...], ...] = ()  # of vertical parties: the columns that each holds
    row_bounds: tuple[float, ...] = ()  # and the norm to which each clips its part of a row
    clipped: bool = True  # or only divided by it, where neighbours differ in one column

    @property
    def columns(self) -> tuple[str, ...]:
        """What each weight belongs to."""
        return (*self.names, "(intercept)") if self.intercept else self.names

    def shards(self, X: Any, y: Any, rows: list[Any], ids: Sequence[int] | None = None) -> Shards:
        return Shards.build(
            X,
            y,
            rows,
            ids=ids,
            row_bound=self.row_bound,
            intercept=self.intercept,
            classification=self.classes is not None,
        )

    @property
    def bounds(self) -> tuple[float, ...]:
        """Every norm to which rows are clipped."""
        return self.row_bounds or (self.row_bound,)

    def split(
        self, held: Sequence[Sequence[int]], row_bounds: Sequence[float] = (), clipped: bool = True
    ) -> "Frame":
        """The same with these columns at vertical parties; `row_bound` is each one's if no others are given."""
        bounds = tuple(map(float, row_bounds)) or (self.row_bound,) * len(held)
        return replace(self, groups=tuple(map(tuple, held)), row_bounds=bounds, clipped=clipped)

    def people(self, X: Any, y: Any, rows: Any, column_bound: float | None = None) -> People:
        """These rows as vertical parties hold them. Columns that were scaled down come with `column_bound`."""
        columns = Columns.build(
            [X[:, list(group)][rows] for group in self.groups],
            row_bounds=self.row_bounds,
            intercept=self.intercept,
            column_bound=column_bound if self.clipped else column_bound or math.inf,
        )
        return People.build(columns, np.asarray(y)[rows], self.classes is not None)

    @property
    def party_order(self) -> NDArray[np.int64]:
        """Where in `columns` the weights of one party after another stand; the last one holds the intercept."""
        places = [place for group in self.groups for place in group] or list(range(len(self.names)))
        return np.array([*places, len(self.names)] if self.intercept else places)

    def arranged(self, w: Floats) -> Floats:
        """A job's weights, one party after another, in the order of `columns`."""
        if not self.groups:
            return w
        found = np.empty_like(w)
        found[self.party_order] = w
        return found


@dataclass(frozen=True)
class Model:
    """Weights in the unit-ball frame, and the claim that comes with them (epsilon None: not private)."""

    weights: Floats
    frame: Frame
    algorithm: str
    mode: str
    epsilon: float | None
    delta: float | None
    features: Map | None = None  # through which the weights see a record; it adds a constant
    caveats: tuple[str, ...] = ()  # what that claim does not cover

    def __post_init__(self) -> None:
        if self.weights.shape != (len(self.columns),):
            raise DataError(f"{self.weights.shape} weights for {len(self.columns)} columns")
        if not np.isfinite(self.weights).all():
            raise DataError("the model has weights that are not finite")

    @property
    def columns(self) -> tuple[str, ...]:
        """What each weight belongs to."""
        return self.frame.columns if self.features is None else (*self.frame.columns, "(constant)")

    def scores(self, X: Any) -> Floats:
        """a.w for every row of X, clipped and scaled as in training."""
        if len(X.shape) != 2 or X.shape[1] != len(self.frame.names):
            raise DataError(
                f"the model was trained on {len(self.frame.names)} features; X must be (n, that many), not {X.shape}"
            )
        if X.shape[0] == 0:
            return np.empty(0)
        if self.frame.groups:
            people = self.frame.people(X, np.ones(X.shape[0]), np.arange(X.shape[0]))
            return people.scores(self.weights[self.frame.party_order])
        whole = self.frame.shards(X, np.ones(X.shape[0]), [np.arange(X.shape[0])])
        if self.features is not None:
            whole = whole.mapped([self.features], len(self.weights))
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
            "notices": [*notices(self.epsilon is not None, self.mode), *self.caveats],
            "caveats": list(self.caveats),
            "private": self.epsilon is not None,
            "algorithm": self.algorithm,
            "mode": self.mode,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "frame": asdict(self.frame),
            "weights": list(zip(self.columns, self.weights.tolist(), strict=True)),
        }
        if (seen := self.features) is not None:
            facts["features"] = {"centre": seen.M.tolist(), "scale": seen.A.tolist(), "constant": seen.b}
        Path(path).write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> "Model":
        try:
            facts = json.loads(Path(path).read_text(encoding="utf-8"))
            kept = facts["frame"]
            classes = None if kept["classes"] is None else tuple(kept["classes"])
            groups, bounds = tuple(map(tuple, kept.get("groups", ()))), tuple(kept.get("row_bounds", ()))
            vertical = (groups, bounds, kept.get("clipped", True))
            frame = Frame(kept["row_bound"], kept["intercept"], tuple(kept["names"]), classes, *vertical)
            weights = np.array([weight for _, weight in facts["weights"]], dtype=np.float64)
            claim = (facts["algorithm"], facts["mode"], facts["epsilon"], facts["delta"])
            seen = facts.get("features")
            features = seen and Map(np.array(seen["centre"]), np.array(seen["scale"]), seen["constant"])
            return Model(weights, frame, *claim, features, tuple(facts.get("caveats", ())))
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
