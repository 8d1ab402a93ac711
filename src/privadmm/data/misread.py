"""Counts of cells that were read as something else than they hold, and of rows that were clipped.

They are facts about records: only a simulation may show them, and a party to its own people where it reads its file.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privadmm.data.storage import cut_up

Unread = Mapping[str, Mapping[str, int]]  # cells by column and by what was amiss
AMISS = {
    "unknown": "in no declared category, read as zeros",
    "other": "in no declared category, read as the level (other)",
    "missing": "left empty, read as zeros",
    "clipped": "beyond the declared range, clipped to it",
    "no_number": "with no number, read as the low end of the range",
    "no_date": "with no date in the declared format, read as the low end of the range",
    "default": "without a value, read as the declared default",
    "indicated": "without a value, marked as missing",
    "label": "beyond label_bound, clipped to it",
}
MANY = 0.25  # the share of clipped labels above which there is a warning
NEARLY_ALL = 0.9  # the share of clipped rows above which there is a warning
HARDLY_CLIPPED = 1 + 1e-9  # a row counts as clipped if it is longer than this times the bound: less is rounding


def amiss(unread: Unread, rows: int) -> list[str]:
    """A line for each column and kind of misread cells: counts, never what a cell holds."""
    return [
        f"{name}: {count} of {rows} cells {AMISS[kind]}"
        for name, kinds in unread.items()
        for kind, count in kinds.items()
    ]


def with_labels(unread: Unread, name: str, y: Any, bound: float | None) -> Unread:
    """Add how many labels lie beyond the declared bound, if there is one."""
    beyond = 0 if bound is None else int(np.count_nonzero(np.abs(y) > bound))
    return {**unread, name: {"label": beyond}} if beyond else unread


@dataclass(frozen=True)
class Misread:
    """What happened to the rows of one file or of several."""

    rows: int = 0
    cells: Unread = field(default_factory=dict)
    clipped: int | None = None  # rows longer than the row bound; None: not counted

    @property
    def lines(self) -> list[str]:
        return amiss(self.cells, self.rows)

    @property
    def table(self) -> dict[str, Any]:
        return {"rows": self.rows, "cells": self.cells, "rows_clipped": self.clipped}


def all_misread(parts: Iterable[Misread]) -> Misread:
    """The counts of several files together, in the order of their columns."""
    rows, clipped, cells = 0, list[int | None](), dict[str, dict[str, int]]()
    for part in parts:
        rows += part.rows
        clipped.append(part.clipped)
        for name, kinds in part.cells.items():
            known = cells.setdefault(name, {})
            for kind, count in kinds.items():
                known[kind] = known.get(kind, 0) + count
    whole = None if None in clipped else sum(count for count in clipped if count is not None)
    return Misread(rows, cells, whole)


def longer(X: Any, bound: float) -> int:
    """How many rows, dense or sparse, are longer than the bound in l2 norm."""
    most = (bound * HARDLY_CLIPPED) ** 2
    with np.errstate(over="ignore"):
        if not isinstance(X, np.ndarray):
            return int(np.count_nonzero(np.asarray(X.multiply(X).sum(axis=1)).ravel() > most))
        return sum(int(np.count_nonzero((part * part).sum(axis=1) > most)) for _, part in cut_up(X))


def clipped_warning(count: int, rows: int, bound: float) -> str | None:
    """The warning that nearly all rows are clipped; None if they are not."""
    if count <= NEARLY_ALL * rows:
        return None
    return (
        f"{100 * count / rows:.0f} % of the rows are longer than row_bound = {bound:g} and are clipped to it, so that "
        "only their direction is left: declare a larger row_bound, or bring columns to a common scale by declared "
        "ranges first (a simulation may look; a deployment would not tell)"
    )


def labels_warning(count: int, rows: int) -> str | None:
    """The warning that many labels are clipped; None if few are."""
    if count <= MANY * rows:
        return None
    return (
        f"{100 * count / rows:.0f} % of the labels lie beyond label_bound and are clipped to it, and predictions with "
        "them: declare a larger label_bound, or a label whose public middle is 0 (a simulation may look; a deployment "
        "would not tell)"
    )
