"""Vertical parties: each holds columns of its own, D_m (N x d_m), about the same N people in the same order.

Every row of a party lies in the unit ball, as in `Shards`: clipped to that party's declared bound and divided by it. An
intercept is a constant feature of the last party. Where neighbours differ in one column (`column_bound` q given), a row
cannot be clipped, since that would change other columns too: entries are divided by the bound, and every column is
scaled down to norm q at most. The labels sit at a coordinator, beside the parties: `People` holds both.

In files, a column of ids brings all parties' rows into one order. The coordinator's file gives ids and labels, a
party's ids and features. Errors count what does not match, and never name an id.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.data.label_source import UNNAMED, LabelSource, digest_of
from privadmm.data.misread import Unread
from privadmm.data.raw import Classes, OnBad, distinct_columns, repeated, require_column, words
from privadmm.data.readers import Format, Records, label_values, load_features, opened
from privadmm.data.schema import Schema
from privadmm.data.shards import check_labels, party_ids, positions
from privadmm.data.storage import Clip, Store, clip_sparse, gram, pack_dense, transposed
from privadmm.errors import ConfigError, DataError
from privadmm.params import check_positive


@dataclass(frozen=True, eq=False)
class Features:
    """One party's D, dense or CSR, with its products by stacks x (R, d) and g (R, N)."""

    A: Any
    factors: dict[float, Any] = field(default_factory=dict, repr=False)  # the factor of `ridge` for the last mu

    @property
    def people(self) -> int:
        return int(self.A.shape[0])

    @property
    def width(self) -> int:
        return int(self.A.shape[1])

    def scores(self, x: Floats) -> Floats:
        """D x"""
        return self._times(self.A, x)

    def pull(self, g: Floats) -> Floats:
        """D^T g"""
        return self._times(self._across, g)

    @cached_property
    def _across(self) -> Any:
        return transposed(self.A)

    @staticmethod
    def _times(A: Any, v: Floats) -> Floats:
        return np.asarray(A @ v[0])[None] if len(v) == 1 else np.ascontiguousarray(np.asarray(A @ v.T).T)

    @cached_property
    def spectrum(self) -> tuple[Floats, Floats]:
        """Eigenvalues (r,) and vectors (d, r) of D^T D; with fewer people than columns, only the first N of them."""
        if self.people >= self.width:
            values, vectors = np.linalg.eigh(gram(self.A))
            return np.maximum(values, 0.0), vectors
        dense = self.A.toarray() if hasattr(self.A, "toarray") else self.A
        _, singular, rows = np.linalg.svd(dense, full_matrices=False)
        return singular**2, np.ascontiguousarray(rows.T)

    def ridge(self, t: Floats, mu: float) -> Floats:
        """(D^T D + mu)^-1 D^T t by a Cholesky factor, which is kept for the next t (R, N) with the same mu.

        With fewer people than columns the factor is of D D^T + mu, since D^T (D D^T + mu)^-1 is the same matrix.
        """
        from scipy.linalg import cho_factor, cho_solve

        few = self.people < self.width
        if mu not in self.factors:
            square = self.kernel if few else gram(self.A)
            square[np.diag_indices_from(square)] += mu
            self.factors.clear()
            self.factors[mu] = cho_factor(square, overwrite_a=True, check_finite=False)
        factor = self.factors[mu]
        if few:
            return self.pull(cho_solve(factor, t.T, check_finite=False).T)
        return np.asarray(cho_solve(factor, self.pull(t).T, check_finite=False).T)

    @property
    def kernel(self) -> Floats:
        """D D^T"""
        square = self.A @ self.A.T
        return np.asarray(square.toarray() if hasattr(square, "toarray") else square)

    def __reduce__(self) -> tuple[Any, ...]:
        return Features, (self.A,)  # the receiver makes the factorisations again


@dataclass(frozen=True, eq=False)
class Columns:
    """A block of vertical parties."""

    ids: Ints  # (P,)
    features: tuple[Features, ...]
    column_bound: float | None = None
    rows: tuple[str, ...] = ()  # a digest of each party's table, if labels are randomised

    @classmethod
    def build(
        cls,
        tables: Sequence[Any],
        *,
        row_bounds: Sequence[float],
        intercept: float = 0.0,
        column_bound: float | None = None,
        ids: ArrayLike | None = None,
        digested: bool = True,
    ) -> Columns:
        """Copy and clip one (N, d_m) table per party, dense or scipy sparse.

        With an infinite `column_bound` entries are divided by the bounds and nothing is clipped: for prediction.
        """
        names = party_ids(ids, len(tables))
        if len(row_bounds) != len(tables):
            raise ConfigError(f"{len(row_bounds)} row bounds for {len(tables)} parties; give one for each")
        if column_bound is not None:
            if column_bound != math.inf:
                check_positive(column_bound=column_bound)
            if intercept:
                raise ConfigError('adjacency = "column" and an intercept do not go together: set intercept = 0')
        tables = [X.tocsr() if hasattr(X, "tocsr") else np.asarray(X, dtype=np.float64) for X in tables]
        if any(X.ndim != 2 or X.shape[1] < 1 for X in tables):
            raise DataError("every party must hold an (N, d) table with one column at least")
        if len({X.shape[0] for X in tables}) > 1:
            raise DataError("vertical parties must hold the same people: their tables differ in length")
        if not tables[0].shape[0]:
            raise DataError("there are no people in the tables; give at least one")
        features: list[Features] = []
        for name, X, bound in zip(names.tolist(), tables, row_bounds, strict=True):
            clip = Clip(bound, intercept if len(features) == len(tables) - 1 else 0.0)
            A = rows_clipped(name, X, clip) if column_bound is None else columns_clipped(name, X, clip, column_bound)
            features.append(Features(A))
        rows = tuple(digest_of(X, np.arange(X.shape[0])) for X in tables) if digested else ()
        return cls(names, tuple(features), column_bound, rows)

    @property
    def people(self) -> int:
        return self.features[0].people

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(features.width for features in self.features)

    def frobenius(self, party: int) -> float:
        """A bound on the Frobenius norm of D_m that follows from what was declared."""
        if self.column_bound is None:
            return math.sqrt(self.people)
        return self.column_bound * math.sqrt(self.features[party].width)

    def take(self, parties: ArrayLike) -> Columns:
        """The sub-block of these positions, which must increase."""
        chosen = positions(parties, len(self.ids))
        features, rows = (tuple(held[i] for i in chosen) if held else () for held in (self.features, self.rows))
        return replace(self, ids=self.ids[chosen], features=features, rows=rows)


def rows_clipped(name: int, X: Any, clip: Clip) -> Any:
    if hasattr(X, "tocsr"):
        return clip_sparse(name, X.copy(), clip)
    (dense,) = pack_dense([(name, X, np.arange(X.shape[0]))], clip, Store())
    return dense.A[0]


def columns_clipped(name: int, X: Any, clip: Clip, q: float) -> Any:
    """Divide by the bound and scale each column, by its own entries alone, down to norm q."""
    sparse = hasattr(X, "tocsr")
    with np.errstate(over="ignore"):
        A = X.astype(np.float64) / clip.bound
    if bad := int(np.sum(~np.isfinite(A.data if sparse else A))):
        raise DataError(f"party {name}: {bad} entries are not finite; clean or drop these people")
    largest = np.asarray(abs(A).max(axis=0).todense() if sparse else abs(A).max(axis=0)).ravel()
    # Columns are divided by their largest entries first, so that no square overflows.
    scale = np.maximum(largest, 1e-300)
    unit = A.multiply(1 / scale) if sparse else A / scale
    squares = (unit.multiply(unit) if sparse else unit * unit).sum(axis=0)
    factor = np.minimum(scale, q / np.sqrt(np.maximum(np.asarray(squares).ravel(), 1e-300)))
    return unit.multiply(factor).tocsr() if sparse else unit * factor


@dataclass(frozen=True, eq=False)
class People:
    """All vertical parties of a job, and the labels of their people at the coordinator."""

    columns: Columns
    y: Floats  # (N,)
    declared: LabelSource = UNNAMED

    @classmethod
    def build(
        cls, columns: Columns, y: ArrayLike, classification: bool = True, declared: LabelSource = UNNAMED
    ) -> People:
        """Check that there is one usable label for each person."""
        labels = np.asarray(y, dtype=np.float64)
        if labels.shape != (columns.people,):
            raise DataError(f"there are {columns.people} people and labels of shape {labels.shape}")
        check_labels(labels, classification)
        return cls(columns, labels, declared)

    @property
    def source(self) -> LabelSource | None:
        """Which people these labels belong to; None if the tables were not digested."""
        return replace(self.declared, rows=self.columns.rows) if self.columns.rows else None

    @property
    def ids(self) -> Ints:
        return self.columns.ids

    @property
    def sizes(self) -> Ints:
        """Every party has N records, one for each person."""
        return np.full(len(self.ids), self.columns.people, dtype=np.int64)

    @property
    def dim(self) -> int:
        """The width of a message: a number for each person."""
        return self.columns.people

    @property
    def widths(self) -> tuple[int, ...]:
        return self.columns.widths

    def scores(self, w: Floats) -> Floats:
        """The sum over parties of D_m w_m; w holds all parties' weights, one after another."""
        parts = np.split(w, np.cumsum(self.widths)[:-1])
        return sum(
            (features.scores(x[None])[0] for features, x in zip(self.columns.features, parts, strict=True)),
            np.zeros(self.dim),
        )


def align(tables: Sequence[tuple[str, NDArray[Any]]]) -> list[Ints]:
    """Row numbers that bring all tables, given by name and column of ids, into one order of people.

    Everybody must be in every table once. What does not match is counted, and never named: an id is a record.
    """
    keys = []
    for name, ids in tables:
        key = np.array(words(ids))
        if blank := int(np.sum(key == "")):
            raise DataError(f"{name}: {blank} of {len(key)} rows have no id; fill them in or drop them")
        distinct = np.unique(key)
        if extra := len(key) - len(distinct):
            raise DataError(f"{name}: {extra} of {len(key)} rows repeat an id; leave one row for each person")
        keys.append((name, key, distinct))
    first, _, people = keys[0]
    for name, _, distinct in keys[1:]:
        missing = len(np.setdiff1d(people, distinct, assume_unique=True))
        foreign = len(np.setdiff1d(distinct, people, assume_unique=True))
        if missing or foreign:
            raise DataError(
                f"{name}: lacks {missing} of the {len(people)} people of {first} and has {foreign} that are not there; "
                "agree on the people first, for example by private set intersection"
            )
    return [np.argsort(key, kind="stable") for _, key, _ in keys]


def by_names(names: Sequence[str], groups: Sequence[Sequence[str]]) -> list[list[int]]:
    """The column numbers of declared groups of column names.

    A name may also stand for the columns that were made of it: "sex" for sex=Female and sex=Male.
    """

    def numbers(name: str) -> list[int]:
        made = re.compile(rf"(.*<=)?{re.escape(name)}((=|>=|<).*)?")
        exact = [j for j, other in enumerate(names) if other == name]
        if columns := exact or [j for j, other in enumerate(names) if made.fullmatch(other)]:
            return columns
        raise ConfigError(f"{name!r} is no column of the data")

    return [[j for name in group for j in numbers(name)] for group in groups]


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """What one party's file says about the people that it names."""

    ids: NDArray[Any]
    X: Floats
    names: tuple[str, ...]
    unread: Unread = field(default_factory=dict)


def read_aligned(
    source: Path,
    files: Sequence[Path],
    format: Format | None,
    *,
    id: str,
    label: str,
    classes: Classes | None,
    schema: Schema | None,
    on_bad: OnBad,
    counted: bool = False,
) -> tuple[Records, list[list[int]]]:
    """Read all parties' features side by side, and which columns each file brought."""
    holder, y = read_labels(source, format, id, label, classes)
    parts = [read_features(path, format, id, label, schema, on_bad, counted) for path in files]
    names = [name for part in parts for name in part.names]
    if repeated(names) is not None:
        raise DataError("two files have a column of the same name; rename one of them")
    if schema is not None and (absent := set(schema.names) - set(names)):
        raise DataError(f"no file has the declared column {min(absent)!r}; add it or take it off the schema")
    orders = align([(str(source), holder), *((str(path), part.ids) for path, part in zip(files, parts, strict=True))])
    X = np.concatenate([part.X[order] for part, order in zip(parts, orders[1:], strict=True)], axis=1)
    groups = np.split(np.arange(len(names)), np.cumsum([len(part.names) for part in parts])[:-1])
    unread = {name: kinds for part in parts for name, kinds in part.unread.items()}
    return Records(X, y[orders[0]], tuple(names), unread=unread), [group.tolist() for group in groups]


def read_labels(
    path: Path, format: Format | None, id: str, label: str, classes: Classes | None
) -> tuple[NDArray[Any], Floats]:
    """Read ids and labels from the coordinator's file, and nothing else."""
    with opened(path, format) as table:
        for name in (id, label):
            require_column(name, table.header)
        columns = table.load([] if classes else [label], [id, label] if classes else [id])
        return columns[id], label_values(columns[label], label, classes, table.where)


def read_features(
    path: Path,
    format: Format | None,
    id: str,
    label: str,
    schema: Schema | None,
    on_bad: OnBad,
    counted: bool = False,
) -> Part:
    """Read a party's file: ids and features. With a schema, those of its columns that the file has."""
    with opened(path, format) as table:
        require_column(id, table.header)
        distinct_columns(table.header)
        if label in table.header:
            raise DataError(f"holds the label, {label!r}: labels sit at the coordinator, remove it from a party's file")
        features, own = [name for name in table.header if name != id], None
        if schema is not None:
            if id in schema.columns:
                raise ConfigError(f"the schema declares {id!r}, which names people and is no feature; remove it")
            features = [name for name in schema.columns if name in table.header]
            own = replace(schema, columns={name: schema.columns[name] for name in features}) if features else None
        X, columns = load_features(table, features, own, on_bad, text=[id])
        unread = own.unread(columns) if counted and own is not None else {}
        return Part(columns[id], X, tuple(features) if own is None else own.names, unread)
