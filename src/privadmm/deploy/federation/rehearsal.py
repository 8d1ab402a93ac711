"""A federation on one machine, to try: a config's records in files of their parties, split as a run in process does.

So the same simulation seed gives the same transcript, bit for bit. Sparse records go into libsvm files, dense ones of
rows into npz: a party stores what it reads as the run in process does.
"""

import csv
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config import build, build_columns, build_rows
from privadmm.config.file import Config
from privadmm.data import splits
from privadmm.data.readers import Records
from privadmm.deploy.federation.proposal import neutral, parties_of

LABELS = "labels.csv"


@dataclass(frozen=True)
class Rehearsal:
    """A config's records in their parties' hands."""

    config: Config  # of the job over the files below
    files: list[tuple[str, Any]]  # of each party: name, and what to write
    sizes: list[int]
    labels: Any = None  # at the coordinator, where parties hold columns

    def write(self, coordinator: Path, parties: list[Path]) -> None:
        for folder, (name, content) in zip(parties, self.files, strict=True):
            if content is not None:
                save(folder / name, content)
        if self.labels is not None:
            save(coordinator / LABELS, self.labels)


def save(path: Path, content: Any) -> None:
    if path.suffix == ".npz":
        np.savez(path, **content)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=" " if path.suffix == ".libsvm" else ",").writerows(content)


def split(config: Config) -> Rehearsal:
    return of_columns(config) if config.parties.split == "features" else of_rows(config)


def of_rows(config: Config) -> Rehearsal:
    if config.data.by_party:
        bound, classes = build.row_bound(config), config.data.classes
        held = [own_file(config, party) for party in range(parties_of(config))]
    else:
        found, bound, classes = build.records(config)
        rows = trained(config, found)
        owner, count = build.owners(config, found, rows)
        held = [found.take(rows[part]) for part in splits.gather(rows, owner, count)]
    parties, dim = len(held), None
    files: list[tuple[str, Any]]
    if hasattr(held[0].X, "tocsr"):
        classes, dim = None if classes is None else (-1, 1), held[0].X.shape[1]  # its labels are numbers
        files = [("data.libsvm", lines(part.X, part.y)) for part in held]
    else:
        files = [("data.npz", {"X": part.X, "y": spoken(part.y, classes)}) for part in held]
    plain = neutral(replace(config, parties=replace(config.parties, count=parties)))
    data = replace(
        plain.data,
        source=files[0][0],
        schema=None,
        encoding="minmax",
        on_bad="refuse",
        label=None,
        id=None,
        dim=dim,
        classes=classes,
        row_bound=None if config.data.rows == "unit" else bound,
    )
    return Rehearsal(replace(plain, data=data), files, [len(part) for part in held])


def own_file(config: Config, party: int) -> Records:
    found = build.read_file(config, build_rows.path_of(config, party))
    return found.take(build_rows.split(config, len(found), party)[0])


def of_columns(config: Config) -> Rehearsal:
    """Ids are row numbers, filled up with zeros, so that people keep their order."""
    if config.parties.files is not None:
        found, groups = build_columns.aligned(config, build.schema(config))
        classes = config.data.classes
    else:
        found, _, classes = build.records(config)
        groups = build_columns.groups(config, found)
    rows = trained(config, found)
    ids = [f"{row:09d}" for row in range(len(rows))]
    files = []
    for group in groups:
        table = dense(found.X[rows][:, group])
        names = [found.names[column] for column in group]
        cells = [[id, *map(repr, map(float, row))] for id, row in zip(ids, table, strict=True)]
        files.append(("data.csv", [["id", *names], *cells]))
    said = [[id, value] for id, value in zip(ids, spoken(found.y[rows], classes).tolist(), strict=True)]
    plain = neutral(replace(config, parties=replace(config.parties, count=len(groups))))
    data = replace(
        plain.data,
        source=LABELS,
        id="id",
        label="y",
        schema=None,
        encoding="minmax",
        on_bad="refuse",
        dim=None,
    )
    return Rehearsal(replace(plain, data=data), files, [len(rows)] * len(groups), [["id", "y"], *said])


def trained(config: Config, found: Records) -> Any:
    """The rows that a run in process trains on."""
    if config.data.test_fraction and config.run.mode == "simulation":
        return splits.train_test(len(found), config.data.test_fraction, config.data.split_seed)[0]
    return np.arange(len(found))


def spoken(y: Any, classes: tuple[Any, Any] | None) -> Any:
    """Labels as a file of the declared classes has them."""
    return y if classes is None else np.where(y > 0, np.array(classes[1]), np.array(classes[0]))


def lines(X: Any, y: Any) -> list[list[str]]:
    """Of a libsvm file."""
    cells = [f"{j + 1}:{v!r}" for j, v in zip(X.indices.tolist(), X.data.tolist(), strict=True)]
    return [[repr(v), *cells[a:b]] for v, (a, b) in zip(y.tolist(), pairwise(X.indptr.tolist()), strict=True)]


def dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X
