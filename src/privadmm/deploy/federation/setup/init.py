"""`privadmm federation init`: writes the coordinator's directory, and an invitation for each party.

A rehearsal also has every party join, with its share of the config's records, split as a run in process splits them:
the same simulation seed gives the same transcript, bit for bit. Sparse records go into libsvm files and dense rows into
npz, so that a party stores the records that it reads as a run in process stores them.
"""

import csv
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config import build, build_columns, build_rows, data_source
from privadmm.config.file import Config, check_seed
from privadmm.config.undeclared import UndeclaredError
from privadmm.data import splits
from privadmm.data.files import write_text
from privadmm.data.readers import Records
from privadmm.deploy.federation.hub import label_holder
from privadmm.deploy.federation.keys import make_authority
from privadmm.deploy.federation.layout import FLOWER, Coordinator, dialled, listened
from privadmm.deploy.federation.party import Party, PolicyTable
from privadmm.deploy.federation.proposal import expected, neutral, parties_of, written
from privadmm.deploy.federation.setup import kit
from privadmm.deploy.federation.setup.joining import (
    REPLY,
    admit,
    invite,
    join,
    look_at,
    own_file,
    proposed_policy,
    with_ledger,
    write_peers,
)
from privadmm.deploy.federation.setup.pinning import look, pin
from privadmm.engine.job import Job
from privadmm.errors import ConfigError

LABELS = "labels.csv"  # the coordinator's labels, where parties hold columns
APP = """[project]
name = "privadmm-federation"
version = "1.0.0"
description = "One job of privadmm over organisations that keep their records"
license = "MIT"
dependencies = ["flwr=={flower}.*", "privadmm"]

[tool.flwr.app]
publisher = "privadmm"

[tool.flwr.app.components]
serverapp = "privadmm.runs.flower_app:app"
clientapp = "privadmm.deploy.flower.client:app"

[tool.flwr.app.config]
coordinator = {coordinator}
out = "runs/first"   # inside that directory
resume = false       # go on with the run in out
timeout = {timeout}      # seconds that a party may take to answer
absent = "abort"     # then: "wait" on, "continue" without it for good, or "abort" to be resumed
"""
JOB = "# The job that the coordinator proposes. Each party reads records of its own: no path here is a party's.\n"
SETTINGS = """# How parties reach the SuperLink. After a change of host: privadmm federation rotate DIRECTORY
[superlink]
host = {host}
port = {port}
listen = {listen}   # the address of this machine at which it listens; 0.0.0.0: at all
federation = {federation}   # by which replies of parties are told from those of another federation
"""


@dataclass(frozen=True)
class Made:
    """What `init` wrote. `parties` is empty unless it is a rehearsal: they make their own directories."""

    coordinator: Coordinator
    parties: list[Party]
    invitations: list[Path]
    weak_promise: str | None = None  # the warning of a proposed budget, or of the job, that promises little
    weak_delta: str | None = None  # the warning of a delta that promises nothing


def weak_delta(job: Job, policy: PolicyTable) -> str | None:
    """The warning of a delta that promises nothing about the job's records; if their number is unknown, about many."""
    try:
        return job.weak_delta()
    except UndeclaredError:
        return policy.weak_delta()


@dataclass(frozen=True)
class Shares:
    """A job, and the share of its records that each party holds."""

    config: Config  # the job over the files below
    files: list[tuple[str, Any]]  # for each party its file's name and content; None: the party brings the content
    sizes: list[int]  # the parties' numbers of records; empty if not known
    labels: Any = None  # the coordinator's, where parties hold columns


def init(config: Config, folder: Path, host: str, port: int, rehearse: bool, listen: str | None = None) -> Made:
    """Write everything into a folder that does not exist yet or is empty."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; name another directory for the federation")
    check_seed(config)
    shares = split(config) if rehearse else awaited(config)
    # The cost may depend on the sizes. An impossible job fails here, and not at the parties.
    job = replace(shares.config, parties=replace(shares.config.parties, sizes=tuple(shares.sizes) or None))
    asked = expected(job)
    policies = [proposed_policy(config, shares.config, number) for number in range(len(shares.files))]
    largest, own = max(policies, key=lambda policy: policy.epsilon or 0.0), asked.weak_promise()
    # Where columns are split, a person loses more in the job than one party's budget says.
    together = bool(asked.public.columns) and (asked.epsilon or 0.0) >= (largest.epsilon or 0.0) * (1 - 1e-6)
    weak = (own if together else None) or largest.weak_promise or own
    place = Coordinator(folder / "coordinator")
    folder.mkdir(parents=True, exist_ok=True)
    place.folder.mkdir(mode=0o700)
    for path in (place.app, place.keys, place.flower, place.runs):
        path.mkdir()
    make_authority(place.certificates, host)
    write_text(place.job, JOB + written(job))
    own, timeout = json.dumps(str(place.folder.absolute())), f"{config.run.timeout:g}"
    write_text(place.app / "pyproject.toml", APP.format(flower=FLOWER, coordinator=own, timeout=timeout))
    settle(place, host, port, listen or listened(host))
    if shares.labels is not None:
        save(place.folder / LABELS, shares.labels)
    if job.privacy is not None and job.privacy.label_epsilon and job.parties.split == "features":
        path, adjacency = place.folder / label_holder.LABELS, job.privacy.adjacency
        label_holder.label_ledger(path, adjacency, job.privacy.label_epsilon, job.run.mode).close()
    invitations = [
        invite(place, number, shares.config, policies[number], name) for number, (name, _) in enumerate(shares.files)
    ]
    write_peers(place)
    kit.for_coordinator(place)
    parties = rehearsed(place, shares, invitations) if rehearse else []
    return Made(place, parties, invitations, weak, weak_delta(asked, largest))


def settle(place: Coordinator, host: str, port: int, listen: str) -> None:
    """Write where the SuperLink listens, and where parties and the coordinator's own processes reach it."""
    values = {"host": host, "listen": listen, "federation": secrets.token_hex(16)}
    text = SETTINGS.format(port=port, **{key: json.dumps(value) for key, value in values.items()})
    write_text(place.settings, text)
    place.connect(dialled(listen, host), port)


def rehearsed(place: Coordinator, shares: Shares, invitations: Sequence[Path]) -> list[Party]:
    """Make all parties in this folder: each joins with its records, is admitted, pins the others, makes its ledger."""
    folders = []
    for path, (name, content) in zip(invitations, shares.files, strict=True):
        folder = place.folder.parent / path.stem
        folder.mkdir(mode=0o700)  # records, ledgers and keys are their owner's
        save(folder / name, content)
        join(path, folder, folder / name)
        folders.append(folder)
    admit(look_at(place, [folder / REPLY for folder in folders]))
    for folder in folders:
        pin(look(folder, [place.peers]))
    return [with_ledger(folder) for folder in folders]


def awaited(config: Config) -> Shares:
    """The job without records: each party brings its own file."""
    plain, count = neutral(config), parties_of(config)
    if plain.parties.split == "features":
        plain = replace(plain, data=replace(plain.data, source=LABELS))
    return Shares(plain, [(own_file(config), None)] * count, list(config.parties.sizes or ()))


def split(config: Config) -> Shares:
    """The records of a config, split among its parties for a rehearsal."""
    return split_columns(config) if config.parties.split == "features" else split_rows(config)


def split_rows(config: Config) -> Shares:
    held = []
    if config.data.by_party:
        bound, classes = data_source.row_bound(config), config.data.classes
        for party in range(parties_of(config)):
            records = data_source.read_file(config, build_rows.path_of(config, party))
            held.append(records.take(build_rows.split(config, len(records), party)[0]))
    else:
        records, bound, classes = data_source.records(config)
        rows, _ = build.measured(config, len(records))
        owner, count = build.owners(config, records, rows)
        held = [records.take(rows[part]) for part in splits.gather(rows, owner, count)]
    dim, files = None, list[tuple[str, Any]]()
    if hasattr(held[0].X, "tocsr"):
        classes, dim = None if classes is None else (-1, 1), held[0].X.shape[1]  # libsvm's labels are numbers
        files = [("data.libsvm", libsvm_cells(part)) for part in held]
    else:
        files = [("data.npz", {"X": part.X, "y": declared_labels(part.y, classes)}) for part in held]
    data = {"source": files[0][0], "label": None, "id": None, "dim": dim, "classes": classes}
    data["row_bound"] = None if config.data.rows == "unit" else bound
    return Shares(encoded(config, len(held), data), files, [len(part) for part in held])


def split_columns(config: Config) -> Shares:
    """Split columns. People's ids are row numbers, padded with zeros so that people keep their order."""
    if config.parties.files is not None:
        records, groups = build_columns.aligned(config)
        classes = config.data.classes
    else:
        records, _, classes = data_source.records(config)
        groups = build_columns.groups(config, records.names)
    records = records.take(build.measured(config, len(records))[0])
    ids = [f"{row:09d}" for row in range(len(records))]
    files = []
    for group in groups:
        X = records.X[:, group]
        table = (X.toarray() if hasattr(X, "toarray") else X).astype(float).tolist()
        names = [records.names[column] for column in group]
        files.append(
            ("data.csv", [["id", *names], *([id, *map(repr, row)] for id, row in zip(ids, table, strict=True))])
        )
    labels = zip(ids, declared_labels(records.y, classes).tolist(), strict=True)
    job = encoded(config, len(groups), {"source": LABELS, "id": "id", "label": "y", "dim": None})
    return Shares(job, files, [len(ids)] * len(groups), [("id", "y"), *labels])


def encoded(config: Config, parties: int, data: dict[str, Any]) -> Config:
    """The job over files of encoded features, which need no schema any more."""
    plain = neutral(replace(config, parties=replace(config.parties, count=parties)))
    return replace(plain, data=replace(plain.data, schema=None, encoding="minmax", on_bad="refuse", **data))


def declared_labels(y: Any, classes: tuple[Any, Any] | None) -> Any:
    """Labels -1 and 1 written as the declared classes."""
    return y if classes is None else np.where(y > 0, np.array(classes[1]), np.array(classes[0]))


def libsvm_cells(records: Records) -> list[list[str]]:
    X: Any = records.X
    cells = [f"{j + 1}:{v!r}" for j, v in zip(X.indices.tolist(), X.data.tolist(), strict=True)]
    rows = zip(records.y.tolist(), pairwise(X.indptr.tolist()), strict=True)
    return [[repr(label), *cells[start:stop]] for label, (start, stop) in rows]


def save(path: Path, content: Any) -> None:
    """Write named arrays (npz), or rows of cells (csv, libsvm)."""
    if path.suffix == ".npz":
        np.savez(path, **content)
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=" " if path.suffix == ".libsvm" else ",").writerows(content)
