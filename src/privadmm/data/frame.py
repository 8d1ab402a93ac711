"""How a row becomes a record inside the unit ball: declared once, shared by training and prediction, kept as JSON."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats, Ints
from privadmm.data.columns import Columns, People
from privadmm.data.encoder import Encoder
from privadmm.data.label_source import LabelSource
from privadmm.data.raw import OnBad
from privadmm.data.schema import Category, Column, Date, Number, Schema
from privadmm.data.shards import Shards
from privadmm.data.storage import Store
from privadmm.errors import DataError
from privadmm.params import check_nonnegative, check_positive

LARGEST = 1e100  # the largest number that a model file may hold


@dataclass(frozen=True)
class Frame:
    """Everything declared about rows, from raw columns to records and parties."""

    row_bound: float
    intercept: float
    names: tuple[str, ...]
    classes: tuple[Any, Any] | None
    groups: tuple[tuple[int, ...], ...] = ()  # the columns that each vertical party holds
    row_bounds: tuple[float, ...] = ()  # the norm to which each vertical party clips its part of a row
    clipped: bool = True  # False: rows are only divided by the bound, since neighbours differ in one column
    schema: Schema | None = None  # how raw columns become `names`; None: they are plain numbers
    on_bad: OnBad = "refuse"
    label: str | None = None
    unused: tuple[str, ...] = ()  # columns of the training file that name a row's party or person, and are no features

    @property
    def encoder(self) -> Encoder:
        """Turns raw columns into rows."""
        beside = self.unused if self.label is None else (self.label, *self.unused)
        return Encoder(self.names, self.schema, self.on_bad, beside)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the weights: the features, and the intercept if there is one."""
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
        """Parties' records. Their rows are digested, unless the caller knows that no label is `randomised`."""
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
        """All norms to which rows are clipped."""
        return self.row_bounds or (self.row_bound,)

    def split(self, held: Sequence[Sequence[int]], row_bounds: Sequence[float] = (), clipped: bool = True) -> "Frame":
        """Give vertical parties these columns. Without `row_bounds` every party has this frame's bound."""
        bounds = tuple(map(float, row_bounds)) or (self.row_bound,) * len(held)
        return replace(self, groups=tuple(map(tuple, held)), row_bounds=bounds, clipped=clipped)

    def people(self, X: Any, y: Any, rows: Any, column_bound: float | None = None, randomised: bool = True) -> People:
        """These rows as vertical parties hold them; with a `column_bound` columns are scaled down to it."""
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
    def party_order(self) -> Ints:
        """The places in `columns` of the weights of one party after another; the last party has the intercept."""
        places = [place for group in self.groups for place in group] or list(range(len(self.names)))
        return np.array([*places, len(self.names)] if self.intercept else places)

    def arranged(self, w: Floats) -> Floats:
        """Put a job's weights, which stand one party after another, into the order of `columns`."""
        return w[np.argsort(self.party_order)] if self.groups else w


def frame_of(kept: Any) -> Frame:
    """Read a frame out of a model's JSON, and check it."""
    names, classes, label = kept["names"], kept["classes"], kept.get("label")
    groups, bounds, clipped = kept.get("groups", []), kept.get("row_bounds", []), kept.get("clipped", True)
    need(bool(names) and texts(names) and len(set(names)) == len(names), "its features are not distinct names")
    schema = loaded(kept.get("schema"))
    names = names if schema is None else schema.present(names)
    pair = isinstance(classes, list) and len(classes) == 2 and classes[0] != classes[1]
    plain = pair and all(isinstance(name, str) or math.isfinite(name) for name in classes)
    need(classes is None or plain, "its classes are not two different texts or numbers")
    need(label is None or texts([label]), "its label is not a name")
    need(texts(unused := kept.get("unused", [])), "its unused columns are not names")
    check_positive(**{"row_bound": kept["row_bound"]} | {f"row_bounds {i}": bound for i, bound in enumerate(bounds)})
    check_nonnegative(intercept=kept["intercept"])
    need(kept["intercept"] < 1, "its intercept is not below 1")
    held = [place for group in groups for place in group]
    whole = all(type(place) is int for place in held) and sorted(held) == list(range(len(names)))
    need(not groups or whole, "its parties do not hold every feature once")
    need(len(bounds) == len(groups) and type(clipped) is bool, "its parties' bounds are not one for each")
    frame = Frame(
        *(kept["row_bound"], kept["intercept"], tuple(names), classes and tuple(classes)),
        *(tuple(map(tuple, groups)), tuple(bounds), clipped),
        *(schema, kept.get("on_bad", "refuse"), label),
        unused=tuple(unused),
    )
    _ = frame.encoder  # making it refuses a schema that does not have these features
    return frame


def need(good: bool, problem: str) -> None:
    if not good:
        raise DataError(problem)


def texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def numbers_of(values: Any, length: int) -> Floats:
    """Check that these are `length` numbers, small enough that sums and products of a few do not overflow."""
    need(all(type(value) in (int, float) for value in values), "a weight, centre or scale is no number")
    array = np.array(values, dtype=np.float64)
    need(array.shape == (length,), f"it has {len(array)} numbers where {length} belong")
    need(bool((np.abs(array) <= LARGEST).all()), f"it has a number beyond {LARGEST:g}")
    return array


def loaded(kept: Any) -> Schema | None:
    """Read a schema out of a model's JSON, and check it."""
    if kept is None:
        return None
    columns = dict[str, Column]()
    for name, entry in kept["columns"].items():
        lists = (entry.get(key, []) for key in ("values", "parts", "edges", "cuts"))
        need(all(isinstance(value, list) for value in lists), f"the categories, parts or bins of {name!r} are no list")
        held: Any = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
        kind: Any = Category if "values" in entry else Date if "format" in entry else Number
        if kind is Number:
            edges = numbers_of(entry["edges"], len(entry["edges"]))
            rising = not len(edges) or (edges[0] == 0 and edges[-1] < 1 and bool((np.diff(edges) > 0).all()))
            need(rising, f"the bins of {name!r} do not rise from 0 to below 1")
        columns[name] = kind(**held)
    return Schema(columns, kept["label"], kept["classes"], kept["row_bound"])
