"""A trained linear model as it is handed out: a function of the transcript, so using it costs nothing more."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.columns import Columns, People
from privadmm.data.encoder import Encoder, Extra, RawRows, Rows, encode_file, encode_rows
from privadmm.data.label_source import LabelSource
from privadmm.data.readers import Format
from privadmm.data.schema import Category, Number, OnBad, Schema
from privadmm.data.shards import Shards
from privadmm.data.store import Store
from privadmm.errors import ConfigError, DataError
from privadmm.features import Map
from privadmm.params import check_nonnegative, check_positive

if TYPE_CHECKING:
    from privadmm.job import Job

Floats = NDArray[np.float64]

NOT_PRIVATE = "NOT PRIVATE: no epsilon covers this run"
LARGEST = 1e100  # of a number in a model's file
SIMULATED = "simulation: noise from a seed, to study and not to publish"


def notices(private: bool, mode: str) -> list[str]:
    """What everybody has to know who meets this run's output, wherever that is."""
    return [*([] if private else [NOT_PRIVATE]), *([SIMULATED] if mode == "simulation" else [])]


def about(job: "Job", mode: str) -> dict[str, Any]:
    """What every result says first of the job that it is of."""
    return {
        "notices": [*notices(job.private, mode), *job.caveats],
        "algorithm": job.algorithm.name,
        "private": job.private,
        "parties": job.public.parties,
        "rounds": job.public.rounds,
        "epsilon": job.epsilon,
        "delta": job.delta,
        "mode": mode,
    }


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
    schema: Schema | None = None  # how raw columns become `names`; None: they are numbers as they stand
    on_bad: OnBad = "refuse"
    label: str | None = None

    @property
    def encoder(self) -> Encoder:
        """From raw columns to rows."""
        return Encoder(self.names, self.schema, self.on_bad, self.label)

    @property
    def columns(self) -> tuple[str, ...]:
        """What each weight belongs to."""
        return (*self.names, "(intercept)") if self.intercept else self.names

    def shards(
        self,
        X: Any,
        y: Any,
        rows: list[Any],
        ids: Sequence[int] | None = None,
        store: Store | None = None,
        randomised: bool = True,
    ) -> Shards:
        """Parties' records. Unless it is known that no label is `randomised`, their rows are digested too."""
        return Shards.build(
            X,
            y,
            rows,
            ids=ids,
            row_bound=self.row_bound,
            intercept=self.intercept,
            classification=self.classes is not None,
            store=store,
            source=LabelSource.declared(self.label, self.classes) if randomised else None,
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

    def people(
        self, X: Any, y: Any, rows: Any, column_bound: float | None = None, randomised: bool = True
    ) -> People:
        """These rows as vertical parties hold them. Columns that were scaled down come with `column_bound`."""
        columns = Columns.build(
            [X[:, list(group)][rows] for group in self.groups],
            row_bounds=self.row_bounds,
            intercept=self.intercept,
            column_bound=column_bound if self.clipped else column_bound or math.inf,
            digested=randomised,
        )
        declared = LabelSource.declared(self.label, self.classes)
        return People.build(columns, np.asarray(y)[rows], self.classes is not None, declared)

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
            people = self.frame.people(X, np.ones(X.shape[0]), np.arange(X.shape[0]), randomised=False)
            return people.scores(self.weights[self.frame.party_order])
        whole = self.frame.shards(X, np.ones(X.shape[0]), [np.arange(X.shape[0])], randomised=False)
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

    def read(
        self,
        path: str | Path,
        format: Format | None = None,
        *,
        keep: Sequence[str] = (),
        extra: Extra = "refuse",
    ) -> RawRows:
        """A csv or parquet file of raw rows, encoded as in training; `keep` names columns to carry along."""
        return encode_file(self.frame.encoder, path, format, keep=keep, extra=extra)

    def predict_rows(self, rows: Rows, *, extra: Extra = "refuse") -> NDArray[Any]:
        """The class (or score) of raw rows, encoded as in training: mappings of column to cell, or one of columns."""
        return self.predict(encode_rows(self.frame.encoder, rows, extra=extra))

    def score_rows(self, rows: Rows, *, extra: Extra = "refuse") -> Floats:
        """a.w for raw rows."""
        return self.scores(encode_rows(self.frame.encoder, rows, extra=extra))

    def predict_file(self, path: str | Path, *, extra: Extra = "refuse") -> NDArray[Any]:
        """The class (or score) of every raw row of a file."""
        return self.predict(self.read(path, extra=extra).X)

    def save(self, path: str | Path) -> None:
        facts = {
            "notices": [*notices(self.epsilon is not None, self.mode), *self.caveats],
            "caveats": list(self.caveats),
            "private": self.epsilon is not None,
            "algorithm": self.algorithm,
            "mode": self.mode,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "frame": asdict(replace(self.frame, schema=None)) | {"schema": dumped(self.frame.schema)},
            "weights": list(zip(self.columns, self.weights.tolist(), strict=True)),
        }
        if (seen := self.features) is not None:
            facts["features"] = {"centre": seen.M.tolist(), "scale": seen.A.tolist(), "constant": seen.b}
        Path(path).write_text(json.dumps(facts, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: str | Path) -> "Model":
        """From the file, or from the run directory that holds it."""
        path = Path(path)
        if not path.exists():
            raise DataError(
                f"{path}: no such directory or file; give the run directory that a training wrote"
            )
        path = path / "model.json" if path.is_dir() else path
        if not path.exists():
            raise DataError(f"{path}: no such file; the directory holds no finished run with a model")
        try:
            return of_facts(json.loads(path.read_text(encoding="utf-8")))
        except (DataError, ConfigError) as error:
            raise DataError(f"{path}: not a model that privadmm saved: {error}") from None
        except (
            OSError,
            ArithmeticError,
            LookupError,
            AttributeError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise DataError(f"{path}: not a model that privadmm saved ({type(error).__name__})") from error


def load(path: str | Path) -> Model:
    """The model of a run directory: `privadmm.load("runs/first").predict_file("new.csv")`."""
    return Model.load(path)


def dumped(schema: Schema | None) -> dict[str, Any] | None:
    return None if schema is None else asdict(schema)


def of_facts(facts: Any) -> Model:
    """What `save` wrote, out of JSON. Nothing is taken over that a model would fail on later, or claim wrongly."""
    frame = frame_of(facts["frame"])
    epsilon, delta = facts["epsilon"], facts["delta"]
    for name, claim in (("epsilon", epsilon), ("delta", delta)):
        if claim is not None:
            check_nonnegative(**{name: claim})
    need(facts["mode"] in ("simulation", "deployment"), "mode is neither simulation nor deployment")
    need(facts.get("private", epsilon is not None) is (epsilon is not None), "private and epsilon disagree")
    need(epsilon is None or delta is not None, "there is an epsilon without a delta")
    caveats, features = facts.get("caveats", []), None
    need(texts([facts["algorithm"], *caveats]), "algorithm and caveats are not texts")
    if (seen := facts.get("features")) is not None:
        centre, scale = (numbers_of(seen[name], len(frame.columns)) for name in ("centre", "scale"))
        check_nonnegative(constant=seen["constant"])
        features = Map(centre, scale, seen["constant"])
    columns = [name for name, _ in facts["weights"]]
    weights = numbers_of([weight for _, weight in facts["weights"]], len(columns))
    model = Model(weights, frame, facts["algorithm"], facts["mode"], epsilon, delta, features, tuple(caveats))
    need(columns == list(model.columns), "its weights belong to other columns")
    return model


def frame_of(kept: Any) -> Frame:
    names, classes, label = kept["names"], kept["classes"], kept.get("label")
    groups, bounds, clipped = kept.get("groups", []), kept.get("row_bounds", []), kept.get("clipped", True)
    need(
        bool(names) and texts(names) and len(set(names)) == len(names), "its features are not distinct names"
    )
    pair = isinstance(classes, list) and len(classes) == 2 and classes[0] != classes[1]
    plain = pair and all(isinstance(name, str) or math.isfinite(name) for name in classes)
    need(classes is None or plain, "its classes are not two different texts or numbers")
    need(label is None or texts([label]), "its label is not a name")
    check_positive(
        **{"row_bound": kept["row_bound"]} | {f"row_bounds {i}": bound for i, bound in enumerate(bounds)}
    )
    check_nonnegative(intercept=kept["intercept"])
    need(kept["intercept"] < 1, "its intercept is not below 1")
    held = [place for group in groups for place in group]
    whole = all(type(place) is int for place in held) and sorted(held) == list(range(len(names)))
    need(not groups or whole, "its parties do not hold every feature once")
    need(len(bounds) == len(groups) and type(clipped) is bool, "its parties' bounds are not one for each")
    frame = Frame(
        *(kept["row_bound"], kept["intercept"], tuple(names), classes and tuple(classes)),
        *(tuple(map(tuple, groups)), tuple(bounds), clipped),
        *(loaded(kept.get("schema")), kept.get("on_bad", "refuse"), label),
    )
    _ = frame.encoder  # which refuses a schema that does not make these features
    return frame


def need(good: bool, problem: str) -> None:
    if not good:
        raise DataError(problem)


def texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def numbers_of(values: Any, length: int) -> Floats:
    """So many numbers, of a size that sums and products of a few do not overflow."""
    need(all(type(value) in (int, float) for value in values), "a weight, centre or scale is no number")
    found = np.array(values, dtype=np.float64)
    need(found.shape == (length,), f"it has {len(found)} numbers where {length} belong")
    need(bool((np.abs(found) <= LARGEST).all()), f"it has a number beyond {LARGEST:g}")
    return found


def loaded(kept: Any) -> Schema | None:
    """What `dumped` made, out of JSON."""
    if kept is None:
        return None
    columns = dict[str, Number | Category]()
    for name, entry in kept["columns"].items():
        if "values" in entry:
            need(isinstance(entry["values"], list), f"the categories of {name!r} are no list")
            columns[name] = Category(tuple(entry["values"]))
        else:
            edges = numbers_of(entry["edges"], len(entry["edges"]))
            rising = not len(edges) or (edges[0] == 0 and edges[-1] < 1 and bool((np.diff(edges) > 0).all()))
            need(rising, f"the bins of {name!r} do not rise from 0 to below 1")
            columns[name] = Number(entry["low"], entry["high"], tuple(entry["edges"]))
    return Schema(columns, kept["label"], kept["classes"], kept["row_bound"])


def label_array(classes: tuple[Any, Any]) -> NDArray[Any]:
    """Both labels as numpy keeps them best; a word beside a number stays what it is."""
    labels = np.asarray(classes)
    if labels.dtype.kind in "US" and not all(isinstance(label, str) for label in classes):
        labels = np.array(classes, dtype=object)
    return labels
