"""Encode tables by a declared schema, and find the steps of a Pipeline that learn from records.

A scaler or an imputer that is fitted on all parties' rows computes means, ranges or categories of private records, and
every later step depends on them. No epsilon covers that, and no sensitivity holds behind it: one record moves the
scaled rows of all others. `SchemaEncoder` learns nothing: `fit` reads the declaration and no row.

An estimator inside a Pipeline does not see the steps before it, so it cannot check them. `check_pipeline` takes the
whole Pipeline and names the steps that may learn from rows; `PrivatePipeline` refuses to be fitted with such a step.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from privadmm.config.reader import load
from privadmm.data import raw
from privadmm.data.arrays import Floats
from privadmm.data.encoder import Extra
from privadmm.data.raw import OnBad
from privadmm.data.schema import Column, Encoding, Schema, columns_of
from privadmm.errors import ConfigError, DataError
from privadmm.estimators.fitting import ADMMEstimator

# Transformers of scikit-learn that map each row by itself, and whose `fit` reads at most how many columns there are.
FIXED = {
    "sklearn.preprocessing._data": ("Normalizer", "Binarizer"),
    "sklearn.preprocessing._polynomial": ("PolynomialFeatures",),
    "sklearn.feature_extraction._hash": ("FeatureHasher",),
    "sklearn.feature_extraction.text": ("HashingVectorizer",),
}


class SchemaEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn raw columns into features in [0, 1] by declared ranges, categories and dates. Nothing is learnt from rows.

    schema      a TOML file of columns, a mapping of the same form, or a `privadmm.Schema`
    ranges      further numbers by name: {"age": (17, 90)}, or a table such as {"range": (0, 50), "missing": True}
    categories  further lists by name: {"sex": ["female", "male"]}, or {"categories": [...], "other": True}
    dates       further dates by name: {"admitted": {"date": "%Y-%m-%d", "range": ("2020-01-01", "2029-12-31")}}
    encoding    "minmax", "binned" or "coarse": how numbers are encoded that declare no edges
    on_bad      a cell that is no number or date, where its column does not say what it becomes: "default" reads it as
                the low end of the range, so that no value of a record raises an error; "refuse" stops
    extra       columns that are not declared: "ignore" or "refuse"

    Tables may be pandas or polars data frames, pyarrow tables, mappings of column to cells, lists of mappings,
    structured arrays, or plain arrays with the declared columns in their order. `unread` counts the cells of a table
    whose encoding stands for another value than they hold. `set_output` and `get_feature_names_out` work as everywhere
    in scikit-learn; fitting is not needed, and changes nothing.

    After `fit`, all from the declaration alone:

    schema_            the `Schema`
    row_bound_         the 2-norm that no encoded row exceeds. As an estimator's row_bound it clips no row
    feature_names_in_, n_features_in_  the declared columns
    """

    def __init__(
        self,
        schema: str | os.PathLike[str] | Mapping[str, Any] | Schema | None = None,
        *,
        ranges: Mapping[str, Any] | None = None,
        categories: Mapping[str, Any] | None = None,
        dates: Mapping[str, Any] | None = None,
        encoding: Encoding = "minmax",
        on_bad: OnBad = "default",
        extra: Extra = "ignore",
    ) -> None:
        self.schema = schema
        self.ranges = ranges
        self.categories = categories
        self.dates = dates
        self.encoding = encoding
        self.on_bad = on_bad
        self.extra = extra

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Read the declaration. X may be left out: its rows are not read, only whether it has the declared columns."""
        schema = self._declared()
        if X is not None and (header := header_of(X)) is not None:
            self._check_header(schema, header)
        self.schema_ = schema
        self.row_bound_ = schema.norm
        self.feature_names_in_ = np.array(list(schema.columns), dtype=object)
        self.n_features_in_ = len(schema.columns)
        return self

    def transform(self, X: Any) -> Floats:
        """Encode: (n, d), every entry in [0, 1]; a row's encoding depends on that row alone."""
        schema = self._known()
        table = table_of(X, tuple(schema.columns), lambda header: self._check_header(schema, header))
        return schema.encode(table, self.on_bad, lambda row: f"row {row + 1}")

    def unread(self, X: Any) -> dict[str, dict[str, int]]:
        """Count, by column, the cells whose encoding stands for another value: clipped, unknown, missing, no date.

        The counts are facts about private rows: look at them where the rows are, and do not publish them.
        """
        schema = self._known()
        return schema.unread(table_of(X, tuple(schema.columns), lambda header: self._check_header(schema, header)))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the features: `age`, `sex=female`, `sex=(missing)`."""
        schema = self._known()
        if input_features is not None:
            self._check_header(schema, [str(name) for name in input_features])
        return np.array(schema.names, dtype=object)

    def _known(self) -> Schema:
        """The schema as `fit` read it, even if its file has changed since; before `fit`, the declared one."""
        fitted: Schema | None = getattr(self, "schema_", None)
        return self._declared() if fitted is None else fitted

    def _declared(self) -> Schema:
        raw.check_choice(Encoding, encoding=self.encoding)
        raw.check_choice(OnBad, on_bad=self.on_bad)
        raw.check_choice(Extra, extra=self.extra)
        columns = dict[str, Column]()
        for key, kind in (("schema", None), ("ranges", "range"), ("categories", "categories"), ("dates", "date")):
            given = getattr(self, key)
            for name, column in ({} if given is None else declared(given, key, kind)).items():
                if name in columns:
                    raise ConfigError(f"column {name!r} is declared twice, the second time in {key}; keep one of them")
                columns[name] = column
        if not columns:
            raise ConfigError(
                'nothing is declared: give schema="schema.toml", or ranges={"age": (17, 90)} and categories={...}; '
                "reading ranges off X would be a release"
            )
        label = "label"
        while label in columns:  # a Schema must name a label; this one has features only, so the name is a dummy
            label += "'"
        return Schema(columns, label, None, 1.0).encoded(self.encoding)

    def _check_header(self, schema: Schema, header: Sequence[str]) -> None:
        for name in schema.columns:
            if name not in header:
                close = max(header, key=lambda other: raw.likeness(name, other), default="")
                hint = f"; did you mean {close!r}?" if raw.likeness(name, close) >= raw.ALIKE else ""
                raise DataError(f"X has no column {name!r}, which the schema declares{hint}")
        extra = [name for name in header if name not in schema.columns]
        if extra and self.extra == "refuse":
            raise DataError(
                f"X has column {extra[0]!r}, which the schema does not declare; remove it, or extra='ignore'"
            )


def declared(given: Any, key: str, kind: str | None) -> Mapping[str, Column]:
    """Read the columns that one argument of `SchemaEncoder` declares; all must be of `kind`, unless that is None."""
    if isinstance(given, Schema) and kind is None:
        return given.columns
    if isinstance(given, str | os.PathLike) and kind is None:
        path = Path(given)
        _, given = load(path)
        if isinstance(given.get("data"), dict) and "algorithm" in given:
            given = given["data"].get("schema", {})
            if not isinstance(given, dict):
                raise ConfigError(f"{path}: a config, whose schema is in a file of its own; name that file")
        try:
            return columns_of(given)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
    if not isinstance(given, Mapping):
        form = "a TOML file, a mapping or a Schema" if kind is None else "a mapping of column to its declaration"
        raise ConfigError(f"{key} is {form}, not {type(given).__name__}")
    columns = columns_of({name: plain(entry) for name, entry in given.items()})
    wanted = {"range": "Number", "categories": "Category", "date": "Date"}
    for name, column in columns.items():
        if kind is not None and type(column).__name__ != wanted[kind]:
            raise ConfigError(f"{key}: column {name!r} declares no {kind}; see its form in docs/data.md")
    return columns


def plain(entry: Any) -> Any:
    """Replace the arrays in a declaration by lists."""
    if isinstance(entry, Mapping):
        return {key: plain(value) for key, value in entry.items()}
    return entry.tolist() if isinstance(entry, np.ndarray) else entry


def header_of(X: Any) -> list[str] | None:
    """Names of a table's columns; None if it has none, or if each row names its own."""
    if isinstance(X, Mapping):
        return list(X)
    if isinstance(X, np.ndarray):
        return None if X.dtype.names is None else list(X.dtype.names)
    names = getattr(X, "column_names", None)  # pyarrow
    names = getattr(X, "columns", None) if names is None else names
    return None if names is None or callable(names) else [str(name) for name in names]


def table_of(X: Any, names: Sequence[str], check: Any) -> dict[str, NDArray[Any]]:
    """Read the declared columns of any kind of table, each as an array."""
    header = header_of(X)
    if header is not None:
        check(header)
        return {name: cells(X[name]) for name in names}
    if isinstance(X, np.ndarray) or hasattr(X, "__array__"):
        array = np.asarray(X)
        if array.ndim != 2 or array.shape[1] != len(names):
            raise DataError(
                f"an array without names has the {len(names)} declared columns in their order; "
                f"this one has shape {array.shape}. Give a data frame, or a mapping of column to cells"
            )
        return {name: array[:, place] for place, name in enumerate(names)}
    if isinstance(X, Iterable) and not isinstance(X, str | bytes):
        rows = list(X)
        if all(isinstance(row, Mapping) for row in rows):
            if rows:
                check(list(dict.fromkeys(key for row in rows for key in row)))
            # An error would tell which keys this record has, so an absent key is a missing cell.
            return {name: objects([row.get(name) for row in rows]) for name in names}
    raise DataError(
        f"X is a {type(X).__name__}; give a data frame, a mapping of column to cells, or a list of mappings"
    )


def cells(column: Any) -> NDArray[Any]:
    """Make an array of a column's cells: of objects if it is a list; pandas' NA becomes None."""
    if isinstance(column, list | tuple):
        return objects(column)
    values = column.to_numpy() if hasattr(column, "to_numpy") else np.asarray(column)
    if values.dtype == object:
        return objects([None if type(cell).__name__ == "NAType" else cell for cell in values.tolist()])
    return np.asarray(values)


def objects(values: Sequence[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):  # one by one: numpy would unpack a cell that is a list
        array[place] = value
    return array


def check_pipeline(pipeline: Any, public: Sequence[str] = ()) -> list[str]:
    """Name the steps before the last that may learn from rows, or mix them; an empty list if there is none.

    It knows `SchemaEncoder` and a few fixed maps of scikit-learn, and looks into pipelines, column transformers and
    unions. It names every other step, since nobody can see from outside that a step learns nothing. In `public`, name
    steps that you know to be functions of one row and of public facts, such as a scaler that was fitted on public data
    and frozen; a step inside another is named columns__scaler.
    """
    if not isinstance(pipeline, Pipeline):
        raise ConfigError(f"check_pipeline takes a scikit-learn Pipeline, not {type(pipeline).__name__}")
    steps = [(name, step) for name, step in pipeline.steps if name not in public]
    last = pipeline.steps[-1][1]
    front = [(name, step) for name, step in steps if step is not last or hasattr(step, "transform")]
    return [problem for name, step in front for problem in problems(name, step, public)]


def problems(name: str, step: Any, public: Sequence[str]) -> Iterator[str]:
    """Say what is wrong with a step, or with the steps inside of it."""
    if name in public or step is None or isinstance(step, str):  # "passthrough", "drop"
        return
    kind = type(step)
    inner = None
    if kind.__name__ in ("Pipeline", "PrivatePipeline") and isinstance(step, Pipeline):
        inner = step.steps
    elif (kind.__module__, kind.__name__) == ("sklearn.compose._column_transformer", "ColumnTransformer"):
        chosen = [columns for _, _, columns in step.transformers if callable(columns)]
        if chosen:
            yield f"step {name!r} chooses columns by a function of the table; name the columns"
        inner = [(inside, transformer) for inside, transformer, _ in step.transformers] + [
            ("remainder", step.remainder)
        ]
    elif (kind.__module__, kind.__name__) == ("sklearn.pipeline", "FeatureUnion"):
        inner = step.transformer_list
    if inner is not None:
        for inside, part in inner:
            yield from problems(f"{name}__{inside}", part, public)
    elif kind is not SchemaEncoder and kind.__name__ not in FIXED.get(kind.__module__, ()):
        yield (
            f"step {name!r} ({kind.__name__}) may learn from private rows, or mix them: no epsilon covers what it "
            "computes. Declare ranges and categories with SchemaEncoder instead"
        )


class PrivatePipeline(Pipeline):  # type: ignore[misc]
    """A Pipeline that is private end to end, or refuses to be fitted.

    Its last step is an ADMM estimator, and each step before it maps a row by declared facts alone. `public` names steps
    of which only you can know this (see `check_pipeline`).
    """

    def __init__(
        self,
        steps: Any,
        *,
        public: Sequence[str] = (),
        transform_input: Any = None,
        memory: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(steps, transform_input=transform_input, memory=memory, verbose=verbose)
        self.public = public

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        self.check()
        super().fit(X, y, **params)
        return self

    def fit_transform(self, X: Any, y: Any = None, **params: Any) -> Any:
        self.check()
        return super().fit_transform(X, y, **params)

    def fit_predict(self, X: Any, y: Any = None, **params: Any) -> Any:
        self.check()
        return super().fit_predict(X, y, **params)

    def check(self) -> None:
        """Refuse steps that may learn from rows, before a row is read."""
        last = self.steps[-1][1]
        wrong = check_pipeline(self, self.public)
        if not isinstance(last, ADMMEstimator) and not hasattr(last, "transform"):
            wrong.append(f"the last step ({type(last).__name__}) is no ADMM estimator, and reads rows without a budget")
        if wrong:
            raise ConfigError("; ".join(wrong))


def make_private_pipeline(*steps: Any, public: Sequence[str] = ()) -> PrivatePipeline:
    """Make a `PrivatePipeline` of these steps, named as scikit-learn's make_pipeline names them."""
    from sklearn.pipeline import make_pipeline

    return PrivatePipeline(make_pipeline(*steps).steps, public=public)
