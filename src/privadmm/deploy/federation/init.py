"""`privadmm federation init`: writes the files of a coordinator and of its parties.

A rehearsal also gives every party its share of the config's records, split as a run in process splits them: the same
simulation seed gives the same transcript, bit for bit. Sparse records go into libsvm files and dense rows into npz, so
that a party stores what it reads as the run in process does.
"""

import csv
import json
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config import build, build_columns, build_rows
from privadmm.config.file import Config
from privadmm.data import splits
from privadmm.data.files import write_text
from privadmm.data.readers import Records
from privadmm.deploy.federation import label_holder
from privadmm.deploy.federation.keys import make_authority, make_node_key
from privadmm.deploy.federation.layout import FLOWER, NAME, Coordinator
from privadmm.deploy.federation.party import FILE, PEERS, Party
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.peers import pin
from privadmm.deploy.federation.proposal import expected, neutral, parties_of, section, written
from privadmm.errors import ConfigError
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.sums import SecureSum

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
PARTY = """# Party {number} of a federation of {parties}. This file is its owner's: what it says, no job can change.
[party]
number = {number}
{records}
ledger = "ledger.sqlite"

{data}

[policy]
{policy}
minimum_parties = {least}   # it stops when fewer are left
# per_job = 0.5       # the most that one job may cost

[node]
superlink = {superlink}
port = {port}           # on 127.0.0.1, between the node and its own processes
ca = "ca.pem"
key = "node-key"
"""
CONNECTION = """[superlink]
default = "{name}"

[superlink.{name}]
address = "{address}"
root-certificates = {ca}
"""


@dataclass(frozen=True)
class Made:
    """What `init` wrote. `parties` is empty unless it is a rehearsal, since they have no ledgers yet."""

    coordinator: Coordinator
    parties: list[Party]


@dataclass(frozen=True)
class Shares:
    """A job, and what each party holds of its records."""

    config: Config  # the job over the files below
    files: list[tuple[str, Any]]  # of each party: its file's name, and the content; None: the party puts it there
    sizes: list[int]  # records of each party; empty if not known
    labels: Any = None  # the coordinator's, where parties hold columns


def init(config: Config, folder: Path, host: str, port: int, rehearse: bool) -> Made:
    """Write everything into a folder that does not exist yet or is empty."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; name another directory for the federation")
    shares = split(config) if rehearse else awaited(config)
    # What a job costs may depend on the sizes. A job that is impossible fails here, and not at the parties.
    job = replace(shares.config, parties=replace(shares.config.parties, sizes=tuple(shares.sizes) or None))
    expected(job)
    place = Coordinator(folder / "coordinator")
    parties = [folder / f"party-{number}" for number in range(len(shares.files))]
    folder.mkdir(parents=True, exist_ok=True)
    for path in (place.folder, *parties):
        path.mkdir(mode=0o700)  # records, ledgers and keys are their owner's
    for path in (place.app, place.keys, place.flower, place.runs):
        path.mkdir()
    make_authority(place.certificates, host)
    ca = place.certificates / "ca.pem"
    write_text(place.job, JOB + written(job))
    own, timeout = json.dumps(str(place.folder.absolute())), f"{config.run.timeout:g}"
    write_text(place.app / "pyproject.toml", APP.format(flower=FLOWER, coordinator=own, timeout=timeout))
    connection = CONNECTION.format(name=NAME, address=f"{host}:{port}", ca=json.dumps(str(ca.absolute())))
    write_text(place.flower / "config.toml", connection)
    if shares.labels is not None:
        save(place.folder / LABELS, shares.labels)
    if job.privacy is not None and job.privacy.label_epsilon and job.parties.split == "features":
        path, adjacency = place.folder / label_holder.LABELS, job.privacy.adjacency
        label_holder.label_ledger(path, adjacency, job.privacy.label_epsilon, job.run.mode).close()
    for number, (path, (name, content)) in enumerate(zip(parties, shares.files, strict=True)):
        if content is not None:
            save(path / name, content)
        write_text(path / FILE, described(config, shares, number, f"{host}:{port}", port + 1 + number))
        (path / "ca.pem").write_bytes(ca.read_bytes())
        (place.keys / f"party-{number}.pub").write_bytes(make_node_key(path))
    for number, path in enumerate(parties):
        (path / PEERS).mkdir()
        for other in set(range(len(parties))) - {number}:
            pin(path, other).write_bytes((place.keys / f"party-{other}.pub").read_bytes())
    return Made(place, [with_ledger(path) for path in parties] if rehearse else [])


def described(config: Config, shares: Shares, number: int, superlink: str, port: int) -> str:
    """Text of party.toml: a template that lets this job through once."""
    job, count = shares.config, len(shares.files)
    bounds = job.parties.row_bounds
    bound = job.data.row_bound if bounds is None else bounds[number]
    policy: dict[str, Any] = {"mode": job.run.mode, "algorithms": [job.algorithm.name], "row_bound": bound}
    if table := config.privacy:
        policy["epsilon"] = table.budget or (table.party_epsilon[number] if table.party_epsilon else table.epsilon)
        policy |= {"delta": table.delta, "adjacency": table.adjacency, "label_epsilon": table.label_epsilon}
        if table.sum == "secure":
            policy |= SecureSum(table.colluding, table.fewest).below_usual(count)
    records = (
        f"records = {shares.sizes[number]}" if shares.sizes else "# records = ...    # how many it declares to hold"
    )
    return PARTY.format(
        number=number,
        parties=count,
        data=section("data", replace(job.data, source=shares.files[number][0], test_fraction=0.2)),
        records=records,
        policy="\n".join(f"{key} = {json.dumps(value)}" for key, value in policy.items() if value is not None),
        least=min(2, count),
        superlink=json.dumps(superlink),
        port=port,
    )


def with_ledger(folder: Path) -> Party:
    """Make the ledger of a party, with the policy in its party.toml."""
    party = read_party(folder)
    if party.ledger.exists():
        raise ConfigError(f"{party.ledger}: exists already, and a ledger is made once")
    SqliteLedger(party.ledger, (party.number,), party.fixed, party.policy.mode).close()
    return party


def awaited(config: Config) -> Shares:
    """The job without records: each party puts its own file there."""
    plain, count = neutral(config), parties_of(config)
    vertical = plain.parties.split == "features"
    name = "data.csv" if vertical or config.data.label is not None else "data.npz"
    if vertical:
        plain = replace(plain, data=replace(plain.data, source=LABELS))
    return Shares(plain, [(name, None)] * count, list(config.parties.sizes or ()))


def split(config: Config) -> Shares:
    """The records of a config, split among its parties for a rehearsal."""
    return split_columns(config) if config.parties.split == "features" else split_rows(config)


def split_rows(config: Config) -> Shares:
    held = []
    if config.data.by_party:
        bound, classes = build.row_bound(config), config.data.classes
        for party in range(parties_of(config)):
            records = build.read_file(config, build_rows.path_of(config, party))
            held.append(records.take(build_rows.split(config, len(records), party)[0]))
    else:
        records, bound, classes = build.records(config)
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
    """Ids are row numbers, padded with zeros so that people keep their order."""
    if config.parties.files is not None:
        records, groups = build_columns.aligned(config, build.schema(config))
        classes = config.data.classes
    else:
        records, _, classes = build.records(config)
        groups = build_columns.groups(config, records)
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
    """The job over files that hold encoded features, which need no schema any more."""
    plain = neutral(replace(config, parties=replace(config.parties, count=parties)))
    return replace(plain, data=replace(plain.data, schema=None, encoding="minmax", on_bad="refuse", **data))


def declared_labels(y: Any, classes: tuple[Any, Any] | None) -> Any:
    """Labels -1 and 1 as a file of the declared classes has them."""
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
