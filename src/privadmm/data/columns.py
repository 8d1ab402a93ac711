"""Vertical parties: each holds other columns, D_m (N x d_m), about the same N people in the same order.

Every row of a party lies in the unit ball, as in `Shards`: clipped to that party's declared bound and divided by it. An
intercept is a constant feature of the last party. Where neighbours differ in one column (`column_bound` q given), a row
cannot be clipped, since that would change other columns too: entries are divided by the bound, and every column is
scaled down to norm q at most.

The labels sit at a coordinator, beside the parties: `People` holds both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privadmm.data.arrays import Floats, Ints
from privadmm.data.label_source import UNNAMED, LabelSource, digest_of
from privadmm.data.packing import Clip, clip_sparse, gram, pack_dense
from privadmm.data.schema import words
from privadmm.data.store import Store
from privadmm.errors import ConfigError, DataError
from privadmm.params import check_positive

Index = Ints


@dataclass(frozen=True, eq=False)
class Features:
    """One party's D, dense or CSR, behind products with stacks: x (R, d) and g (R, N)."""

    A: Any

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
        return self._times(self.A.T, g)

    @staticmethod
    def _times(A: Any, v: Floats) -> Floats:
        return np.asarray(A @ v[0])[None] if len(v) == 1 else np.ascontiguousarray(np.asarray(A @ v.T).T)

    @cached_property
    def spectrum(self) -> tuple[Floats, Floats]:
        """Eigenvalues (r,) and vectors (d, r) of D^T D, those of value 0 left out where there are fewer people."""
        if self.people >= self.width:
            values, vectors = np.linalg.eigh(gram(self.A, np.ones(self.people)))
            return np.maximum(values, 0.0), vectors
        dense = self.A.toarray() if hasattr(self.A, "toarray") else self.A
        _, singular, rows = np.linalg.svd(dense, full_matrices=False)
        return singular**2, np.ascontiguousarray(rows.T)

    def __reduce__(self) -> tuple[Any, ...]:
        return Features, (self.A,)  # the factorisation is made anew where it is needed


@dataclass(frozen=True, eq=False)
class Columns:
    """A block of vertical parties."""

    ids: Index  # (P,)
    features: tuple[Features, ...]
    column_bound: float | None = None
    rows: tuple[str, ...] = ()  # a digest of each party's table, for labels that are randomised

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
        """From one (N, d_m) table per party, dense or scipy sparse, which are copied.

        With an infinite `column_bound` entries are divided by the bounds and nothing is clipped: for prediction.
        """
        names = np.arange(len(tables)) if ids is None else np.asarray(ids, dtype=np.int64)
        if not len(tables) or names.shape != (len(tables),) or len(np.unique(names)) != len(tables):
            raise ConfigError(f"ids must name each of {len(tables)} parties once, and one party at least")
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
        last = len(tables) - 1
        found = []
        for place, (name, X, bound) in enumerate(zip(names.tolist(), tables, row_bounds, strict=True)):
            clip = Clip(bound, intercept if place == last else 0.0)
            A = rows_clipped(name, X, clip) if column_bound is None else columns_clipped(name, X, clip, column_bound)
            found.append(Features(A))
        everybody = np.arange(tables[0].shape[0])
        rows = tuple(digest_of(X, everybody) for X in tables) if digested else ()
        return cls(names, tuple(found), column_bound, rows)

    @property
    def people(self) -> int:
        return self.features[0].people

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(features.width for features in self.features)

    def frobenius(self, party: int) -> float:
        """A bound on the Frobenius norm of D_m, from what was declared."""
        if self.column_bound is None:
            return math.sqrt(self.people)
        return self.column_bound * math.sqrt(self.features[party].width)

    def take(self, parties: ArrayLike) -> Columns:
        """The sub-block of these positions, which must increase."""
        chosen = np.asarray(parties, dtype=np.int64)
        if not len(chosen) or np.any(np.diff(chosen) <= 0) or chosen[0] < 0 or chosen[-1] >= len(self.ids):
            raise ConfigError("take needs increasing positions inside the block, at least one")
        features, rows = (tuple(self.features[i] for i in chosen), tuple(self.rows[i] for i in chosen if self.rows))
        return replace(self, ids=self.ids[chosen], features=features, rows=rows)


def rows_clipped(name: int, X: Any, clip: Clip) -> Any:
    if hasattr(X, "tocsr"):
        return clip_sparse(name, X.copy(), clip)
    (dense,) = pack_dense([(name, X, np.arange(X.shape[0]))], clip, Store())
    return dense.A[0]


def columns_clipped(name: int, X: Any, clip: Clip, q: float) -> Any:
    """Of each column only that column is asked: x_j/bound, scaled down to norm q."""
    with np.errstate(over="ignore"):
        A = X.astype(np.float64) / clip.bound
    if bad := int(np.sum(~np.isfinite(A.data if hasattr(A, "tocsr") else A))):
        raise DataError(f"party {name}: {bad} entries are not finite; clean or drop these people")
    largest = np.asarray(abs(A).max(axis=0).todense() if hasattr(A, "tocsr") else abs(A).max(axis=0)).ravel()
    # Divided by its largest entry first, no square overflows.
    scale = np.maximum(largest, 1e-300)
    unit = A.multiply(1 / scale) if hasattr(A, "tocsr") else A / scale
    squares = unit.multiply(unit).sum(axis=0) if hasattr(A, "tocsr") else (unit * unit).sum(axis=0)
    factor = np.minimum(scale, q / np.sqrt(np.maximum(np.asarray(squares).ravel(), 1e-300)))
    return unit.multiply(factor).tocsr() if hasattr(A, "tocsr") else unit * factor


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
        labels = np.asarray(y, dtype=np.float64)
        if labels.shape != (columns.people,):
            raise DataError(f"there are {columns.people} people and labels of shape {labels.shape}")
        bad = np.abs(labels) != 1 if classification else ~np.isfinite(labels)
        if bad.any():
            what = "-1 or +1; map the classes to these" if classification else "finite; clean or drop these people"
            raise DataError(f"{int(bad.sum())} of {len(labels)} labels are not {what}")
        return cls(columns, labels, declared)

    @property
    def source(self) -> LabelSource | None:
        """Whose labels these are: of the people in all tables, in this order; None if these were not digested."""
        return replace(self.declared, rows=self.columns.rows) if self.columns.rows else None

    @property
    def ids(self) -> Index:
        return self.columns.ids

    @property
    def sizes(self) -> Index:
        """A record at every party for each of N people."""
        return np.full(len(self.ids), self.columns.people, dtype=np.int64)

    @property
    def dim(self) -> int:
        """How wide a message is: a number for each person."""
        return self.columns.people

    @property
    def widths(self) -> tuple[int, ...]:
        return self.columns.widths

    def scores(self, w: Floats) -> Floats:
        """The sum over parties of D_m w_m, for all weights w, the parties' one after another."""
        parts = np.split(w, np.cumsum(self.widths)[:-1])
        return sum(
            (features.scores(x[None])[0] for features, x in zip(self.columns.features, parts, strict=True)),
            np.zeros(self.dim),
        )


def align(tables: Sequence[tuple[str, NDArray[Any]]]) -> list[Index]:
    """For each table, a name and its column of ids, the row numbers that bring all tables into one order of people.

    Everybody must be in every table once. What does not match is counted, and never named: an id is a record.
    """
    keys = []
    for name, ids in tables:
        found = np.array(words(ids))
        if blank := int(np.sum(found == "")):
            raise DataError(f"{name}: {blank} of {len(found)} rows have no id; fill them in or drop them")
        distinct = np.unique(found)
        if extra := len(found) - len(distinct):
            raise DataError(f"{name}: {extra} of {len(found)} rows repeat an id; leave one row for each person")
        keys.append((name, found, distinct))
    first, _, people = keys[0]
    for name, _, distinct in keys[1:]:
        missing = len(np.setdiff1d(people, distinct, assume_unique=True))
        foreign = len(np.setdiff1d(distinct, people, assume_unique=True))
        if missing or foreign:
            raise DataError(
                f"{name}: lacks {missing} of the {len(people)} people of {first} and has {foreign} that are not there; "
                "agree on the people first, for example by private set intersection"
            )
    return [np.argsort(found, kind="stable") for _, found, _ in keys]


def by_names(names: Sequence[str], groups: Sequence[Sequence[str]]) -> list[list[int]]:
    """The column numbers of declared groups of column names.

    A name may also stand for the columns that were made of it: "sex" for sex=Female and sex=Male.
    """
    found = []
    for group in groups:
        columns: list[int] = []
        for name in group:
            whole = re.compile(rf"(.*<=)?{re.escape(name)}((=|>=|<).*)?")
            made = [j for j, other in enumerate(names) if other == name] or [
                j for j, other in enumerate(names) if whole.fullmatch(other)
            ]
            if not made:
                raise ConfigError(f"{name!r} is no column of the data")
            columns += made
        found.append(columns)
    return found
