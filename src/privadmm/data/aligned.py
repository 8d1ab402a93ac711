"""Vertical parties' own files -> one table: each has a column of ids, by which all are brought into one order.

One file has the labels and is the coordinator's; of it nothing but ids and labels is read. Every other file is a
party's: ids and features. Errors count what does not match, and never name an id.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.data.columns import align
from privadmm.data.readers import DROP, DROP_OR_DECLARE, Format, Records, opened
from privadmm.data.schema import DROP_OR_DEFAULT, Classes, Number, OnBad, Schema, bad_numbers, labels, require_column
from privadmm.errors import ConfigError, DataError


@dataclass(frozen=True, eq=False, repr=False)
class Part:
    """What one file says of the people that it names."""

    ids: NDArray[Any]
    X: Floats
    names: tuple[str, ...]


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
) -> tuple[Records, list[list[int]]]:
    """All parties' features side by side, and the columns that each file brought."""
    holder, y = read_labels(source, format, id, label, classes)
    parts = [read_features(path, format, id, label, schema, on_bad) for path in files]
    names = [name for part in parts for name in part.names]
    if len(set(names)) < len(names):
        raise DataError("two files have a column of the same name; rename one of them")
    if schema is not None and (absent := set(schema.names) - set(names)):
        raise DataError(f"no file has the declared column {min(absent)!r}; add it or take it off the schema")
    orders = align([(str(source), holder), *((str(path), part.ids) for path, part in zip(files, parts, strict=True))])
    X = np.concatenate([part.X[order] for part, order in zip(parts, orders[1:], strict=True)], axis=1)
    ends = np.cumsum([0, *(len(part.names) for part in parts)]).tolist()
    groups = [list(range(start, stop)) for start, stop in pairwise(ends)]
    return Records(X, y[orders[0]], tuple(names)), groups


def read_labels(
    path: Path, format: Format | None, id: str, label: str, classes: Classes | None
) -> tuple[NDArray[Any], Floats]:
    with opened(path, format) as table:
        for name in (id, label):
            require_column(name, table.header)
        columns = table.load([] if classes else [label], [id, label] if classes else [id])
        if classes is not None:
            return columns[id], labels(columns[label], classes, label)
        bad = np.isnan(columns[label])
        if bad.any():
            raise DataError(bad_numbers(label, bad, table.where(int(bad.argmax())), DROP))
        return columns[id], columns[label]


def read_features(path: Path, format: Format | None, id: str, label: str, schema: Schema | None, on_bad: OnBad) -> Part:
    with opened(path, format) as table:
        require_column(id, table.header)
        if len(set(table.header)) < len(table.header):
            raise DataError("two columns have one name; rename one of them")
        if label in table.header:
            raise DataError(f"holds the label, {label!r}: labels sit at the coordinator, remove it from a party's file")
        features = [name for name in table.header if name != id]
        if schema is not None:
            if id in schema.columns:
                raise ConfigError(f"the schema declares {id!r}, which names people and is no feature; remove it")
            features = [name for name in schema.columns if name in table.header]
        if not features:
            raise DataError("has no feature columns beside the ids; add at least one")
        mine = schema and replace(schema, columns={name: schema.columns[name] for name in features})
        measured = [name for name in features if mine is None or isinstance(mine.columns[name], Number)]
        columns = table.load(measured, [id, *(name for name in features if name not in measured)])
        for name in measured:
            bad = np.isnan(columns[name])
            if bad.any() and on_bad == "refuse":
                fix = DROP_OR_DECLARE if mine is None else DROP_OR_DEFAULT
                raise DataError(bad_numbers(name, bad, table.where(int(bad.argmax())), fix))
        if mine is not None:
            return Part(columns[id], mine.encode(columns, on_bad), mine.names)
        return Part(columns[id], np.stack([columns[name] for name in features], axis=1), tuple(features))
