"""A trained linear model. It is a function of what was released, so using it costs no more privacy."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.data.encoder import Extra, RawRows, Rows, encode_file, encode_rows
from privadmm.data.frame import Frame, frame_of, need, numbers_of, texts
from privadmm.data.moments_map import Map
from privadmm.data.readers import Format
from privadmm.errors import ConfigError, DataError
from privadmm.optim.losses import Link
from privadmm.params import check_nonnegative, check_whole
from privadmm.privacy.accounting import printed

NOT_PRIVATE = "NOT PRIVATE: no epsilon covers this run"
SIMULATED = "simulation: noise from a seed, to study and not to publish"


def notices(private: bool, mode: str) -> list[str]:
    """Notices that go with every output of a run."""
    return [*([] if private else [NOT_PRIVATE]), *([SIMULATED] if mode == "simulation" else [])]


@dataclass(frozen=True, repr=False)
class Model:
    """Weights in the unit-ball frame, and the guarantee that comes with them (epsilon None: not private)."""

    weights: Floats
    frame: Frame
    algorithm: str
    mode: str
    epsilon: float | None
    delta: float | None
    features: Map | None = None  # maps a record before the weights apply; it adds a constant
    caveats: tuple[str, ...] = ()  # what the guarantee does not cover
    colluding: int | None = None  # parties that may collude in secure sums before epsilon is more; None: no such sums
    link: Link | None = None  # turns a score into a probability; None: nothing does, or an earlier version saved this

    def __post_init__(self) -> None:
        if self.weights.shape != (len(self.columns),):
            raise DataError(f"{self.weights.shape} weights for {len(self.columns)} columns")
        if not np.isfinite(self.weights).all():
            raise DataError("the model has weights that are not finite")

    def __repr__(self) -> str:
        promise = "NOT PRIVATE"
        if self.epsilon is not None and self.delta is not None:
            promise = f"epsilon = {printed(self.epsilon)} at delta = {printed(self.delta, '.6g')}{self.condition}"
        return f"<Model of {self.algorithm}: {len(self.weights)} weights, {promise}, {self.mode}>"

    @property
    def condition(self) -> str:
        """The condition of an epsilon that rests on secure sums, as words to append to it; empty without such sums."""
        return "" if self.colluding is None else f" if at most {self.colluding} of the parties collude"

    @property
    def columns(self) -> tuple[str, ...]:
        """Name of each weight's column."""
        return self.frame.columns if self.features is None else (*self.frame.columns, "(constant)")

    def scores(self, X: Any) -> Floats:
        """Score every row of X: a.w, with rows a that are clipped and scaled as in training."""
        X = X if hasattr(X, "shape") else table_of_numbers(X)
        if len(X.shape) != 2 or X.shape[1] != len(self.frame.names):
            raise DataError(
                f"the model was trained on {len(self.frame.names)} features; X must be (n, that many), not {X.shape}"
            )
        if X.shape[0] == 0:
            return np.empty(0)
        if self.frame.groups:
            people = self.frame.people(X, np.ones(X.shape[0]), np.arange(X.shape[0]), randomised=False)
            return people.scores(self.weights[self.frame.party_order])
        whole = self.frame.shards(X, np.ones(X.shape[0]), [np.arange(X.shape[0])], randomised=False)
        if self.features is not None:
            whole = whole.mapped([self.features], len(self.weights))
        return whole.margins(self.weights[None])

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of every row, or return its score if no classes were declared."""
        scores, classes = self.scores(X), self.frame.classes
        return scores if classes is None else np.asarray(label_array(classes)[(scores > 0).astype(int)])

    def read(
        self, path: str | Path, format: Format | None = None, *, keep: Sequence[str] = (), extra: Extra = "refuse"
    ) -> RawRows:
        """Read raw rows of a csv or parquet file, encoded as in training; `keep` names columns to carry along."""
        return encode_file(self.frame.encoder, path, format, keep=keep, extra=extra)

    def predict_rows(self, rows: Rows, *, extra: Extra = "refuse") -> NDArray[Any]:
        """Predict the class (or score) of raw rows: mappings of column to cell, or one mapping of column to cells."""
        return self.predict(encode_rows(self.frame.encoder, rows, extra=extra))

    def score_rows(self, rows: Rows, *, extra: Extra = "refuse") -> Floats:
        """Score raw rows, as `predict_rows` takes them."""
        return self.scores(encode_rows(self.frame.encoder, rows, extra=extra))

    def predict_file(self, path: str | Path, *, extra: Extra = "refuse") -> NDArray[Any]:
        """Predict the class (or score) of every raw row of a file."""
        return self.predict(self.read(path, extra=extra).X)

    def save(self, path: str | Path) -> None:
        facts = {
            "notices": [*notices(self.epsilon is not None, self.mode), *self.caveats],
            "caveats": list(self.caveats),
            "private": self.epsilon is not None,
            "colluding": self.colluding,
            "link": self.link,
            "algorithm": self.algorithm,
            "mode": self.mode,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "frame": asdict(self.frame),
            "weights": list(zip(self.columns, self.weights.tolist(), strict=True)),
        }
        if (map := self.features) is not None:
            facts["features"] = {"centre": map.M.tolist(), "scale": map.A.tolist(), "constant": map.b}
        Path(path).write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    def to_onnx(self, path: str | Path) -> None:
        """Write the model as an ONNX file. Needs privadmm[onnx].

        Its input are encoded columns; its outputs are scores, classes and, if there is a `link`, probabilities.
        """
        from privadmm.runs.onnx_file import save

        save(path, [self])

    @staticmethod
    def load(path: str | Path) -> "Model":
        """Load a model.json, or that of a run directory."""
        if not isinstance(path, str | Path):
            raise ConfigError(f"a model is loaded from a run directory or its model.json, not from {path!r}")
        path = Path(path)
        if not path.exists():
            raise DataError(f"{path}: no such directory or file; give the run directory that a training wrote")
        path = path / "model.json" if path.is_dir() else path
        if not path.exists():
            raise DataError(f"{path}: no such file; the directory holds no finished run with a model")
        try:
            return of_facts(json.loads(path.read_text(encoding="utf-8")))
        except (DataError, ConfigError) as error:
            raise DataError(f"{path}: not a model that privadmm saved: {error}") from None
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}: not a model that privadmm saved (no JSON); give the run directory that a training wrote"
            ) from error
        except (OSError, ArithmeticError, LookupError, AttributeError, RuntimeError, TypeError, ValueError) as error:
            raise DataError(f"{path}: not a model that privadmm saved ({type(error).__name__})") from error


def load(path: str | Path) -> Model:
    """Load the model of a run directory: `privadmm.load("runs/first").predict_file("new.csv")`."""
    return Model.load(path)


def of_facts(facts: Any) -> Model:
    """Make a model from what `save` wrote. Refuse facts that would fail later or claim a wrong guarantee."""
    frame = frame_of(facts["frame"])
    epsilon, delta = facts["epsilon"], facts["delta"]
    for name, claim in (("epsilon", epsilon), ("delta", delta)):
        if claim is not None:
            check_nonnegative(**{name: claim})
    need(facts["mode"] in ("simulation", "deployment"), "mode is neither simulation nor deployment")
    need(facts.get("private", epsilon is not None) is (epsilon is not None), "private and epsilon disagree")
    need(epsilon is None or delta is not None, "there is an epsilon without a delta")
    caveats, colluding, features = facts.get("caveats", []), facts.get("colluding"), None
    if colluding is not None:
        check_whole(colluding=colluding)
    need(texts([facts["algorithm"], *caveats]), "algorithm and caveats are not texts")
    need((link := facts.get("link")) in (None, *get_args(Link)), "link is no name of a loss that has one")
    if (map := facts.get("features")) is not None:
        centre, scale = (numbers_of(map[name], len(frame.columns)) for name in ("centre", "scale"))
        check_nonnegative(constant=map["constant"])
        features = Map(centre, scale, map["constant"])
    columns = [name for name, _ in facts["weights"]]
    columns = columns if frame.schema is None else frame.schema.present(columns)
    weights = numbers_of([weight for _, weight in facts["weights"]], len(columns))
    claim = (facts["algorithm"], facts["mode"], epsilon, delta)
    model = Model(weights, frame, *claim, features, tuple(caveats), colluding, link)
    need(columns == list(model.columns), "its weights belong to other columns")
    return model


def table_of_numbers(X: Any) -> Floats:
    """Make an array of rows of numbers; refuse any other rows."""
    try:
        return np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("X must be rows of numbers, of one length; raw rows are for predict_rows") from None


def label_array(classes: tuple[Any, ...]) -> NDArray[Any]:
    """Make an array of labels; of objects if words and numbers are mixed, since numpy would turn all into words."""
    labels = np.asarray(classes)
    mixed = labels.dtype.kind in "US" and not all(isinstance(label, str) for label in classes)
    return np.array(classes, dtype=object) if mixed else labels
