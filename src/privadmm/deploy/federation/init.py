"""`privadmm federation init`: the files of a coordinator and of its parties, and the commands that start them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privadmm.config.file import Config
from privadmm.data.files import write_text
from privadmm.deploy.federation import rehearsal
from privadmm.deploy.federation.keys import make_authority, make_node_key
from privadmm.deploy.federation.label_holder import LABELS, label_ledger
from privadmm.deploy.federation.layout import FLOWER, NAME, Coordinator
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import expected, neutral, parties_of, section, written
from privadmm.deploy.federation.rehearsal import Rehearsal
from privadmm.errors import ConfigError
from privadmm.privacy.sqlite_ledger import SqliteLedger

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


@dataclass(frozen=True)
class Made:
    coordinator: Coordinator
    parties: list[Party]


def init(config: Config, folder: Path, host: str, port: int, rehearse: bool) -> Made:
    """Write everything into a folder that is not there yet."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder}: is not empty; name another directory for the federation")
    found = rehearsal.split(config) if rehearse else awaited(config)
    # A job that cannot be is found out here, and not at the parties.
    job = declared(found)
    expected(job)
    place = Coordinator(folder / "coordinator")
    parties = [folder / f"party-{number}" for number in range(len(found.files))]
    folder.mkdir(parents=True, exist_ok=True)
    for made in (place.folder, *parties):
        made.mkdir(mode=0o700)  # records, ledgers and keys are their owner's
    for made in (place.app, place.keys, place.flower, place.runs):
        made.mkdir()
    write_text(place.job, JOB + written(job))
    app = APP.format(
        flower=FLOWER, coordinator=json.dumps(str(place.folder.absolute())), timeout=f"{config.run.timeout:g}"
    )
    write_text(place.app / "pyproject.toml", app)
    make_authority(place.certificates, host)
    connect(place, host, port)
    found.write(place.folder, parties)
    reported = job.privacy and job.parties.split == "features" and job.privacy.label_epsilon
    if job.privacy is not None and reported:
        label_ledger(place.folder / LABELS, job.privacy.adjacency, reported, job.run.mode).close()
    for number, own in enumerate(parties):
        write_text(own / "party.toml", described(config, found, number, f"{host}:{port}", port + 1 + number))
        (own / "ca.pem").write_bytes((place.certificates / "ca.pem").read_bytes())
        (place.keys / f"party-{number}.pub").write_bytes(make_node_key(own))
    return Made(place, [with_ledger(own) for own in parties] if rehearse else [])


def declared(found: Rehearsal) -> Config:
    """The job with how many records each party has, where that is known: what it costs may depend on it."""
    return replace(found.config, parties=replace(found.config.parties, sizes=tuple(found.sizes) or None))


def awaited(config: Config) -> Rehearsal:
    """The same without records: each party puts its own file there."""
    plain, count = neutral(config), parties_of(config)
    vertical = plain.parties.split == "features"
    suffix = ".csv" if vertical or config.data.label is not None else ".npz"
    data = replace(plain.data, source=rehearsal.LABELS) if vertical else plain.data
    sizes = list(config.parties.sizes or ())
    return Rehearsal(replace(plain, data=data), [(f"data{suffix}", None)] * count, sizes)


def connect(place: Coordinator, host: str, port: int) -> None:
    """Flower's own config, in a home of its own: where the coordinator's SuperLink is."""
    ca = json.dumps(str((place.certificates / "ca.pem").absolute()))
    lines = [
        "[superlink]",
        f'default = "{NAME}"',
        "",
        f"[superlink.{NAME}]",
        f'address = "{host}:{port}"',
        f"root-certificates = {ca}",
    ]
    write_text(place.flower / "config.toml", "\n".join(lines) + "\n")


def described(config: Config, found: Rehearsal, number: int, superlink: str, port: int) -> str:
    """A template of party.toml, which lets this one job through once."""
    job, count = found.config, len(found.files)
    bounds = job.parties.row_bounds
    bound = job.data.row_bound if bounds is None else bounds[number]
    policy: dict[str, Any] = {"mode": job.run.mode, "algorithms": [job.algorithm.name]}
    if bound is not None:
        policy["row_bound"] = bound
    if config.privacy is not None:
        each, table = config.privacy.party_epsilon, config.privacy
        given = table.budget or (each[number] if each else table.epsilon)
        policy |= {"epsilon": given} if given is not None else {}
        policy |= {"delta": table.delta, "adjacency": table.adjacency}
        policy |= {} if table.label_epsilon is None else {"label_epsilon": table.label_epsilon}
    records = f"records = {found.sizes[number]}" if found.sizes else "# records = ...    # how many it declares to hold"
    return PARTY.format(
        number=number,
        parties=count,
        data=section("data", replace(job.data, source=found.files[number][0], test_fraction=0.2)),
        records=records,
        policy="\n".join(f"{key} = {json.dumps(value)}" for key, value in policy.items()),
        least=min(2, count),
        superlink=json.dumps(superlink),
        port=port,
    )


def with_ledger(folder: Path) -> Party:
    """The party of a directory, its ledger made with the policy that party.toml has."""
    found = read_party(folder)
    if found.ledger.exists():
        raise ConfigError(f"{found.ledger}: exists already, and a ledger is made once")
    SqliteLedger(found.ledger, (found.number,), found.fixed, found.policy.mode).close()
    return found
