"""`privadmm federation check`: what is wrong with a party's or a coordinator's directory, before anybody is asked."""

import importlib.metadata
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from privadmm.config.file import check_seed, read
from privadmm.config.reader import load
from privadmm.deploy.federation.keys import check_certificate, check_node_key, check_public_key
from privadmm.deploy.federation.layout import FLOWER, NAME, Coordinator
from privadmm.deploy.federation.party import FILE, PEERS, Party
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.party_server import Desk
from privadmm.deploy.federation.peers import check_pins
from privadmm.deploy.federation.proposal import expected, neutral, parties_of
from privadmm.deploy.federation.records import held
from privadmm.errors import ConfigError, PrivadmmError, RefusedError
from privadmm.privacy.accounting import epsilon, printed, totals
from privadmm.privacy.events import alone
from privadmm.privacy.ledger import affordable
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify


@dataclass(frozen=True)
class Finding:
    """Outcome of one check. A note is no fault: somebody else is not there yet, or it was not asked for."""

    what: str
    state: Literal["good", "note", "bad"]
    said: str


class Noted(Exception):  # noqa: N818  what it says is no fault
    """Raised by a check for what somebody should know, though nothing is wrong."""


def check(folder: Path, job: Path | None = None) -> dict[str, list[Finding]]:
    """Findings by directory: of a party, of a coordinator, or of all in a federation that `init` made."""
    if (folder / FILE).is_file():
        return {str(folder): list(of_party(folder, job))}
    if Coordinator(folder).job.is_file():
        return {str(folder): list(of_coordinator(Coordinator(folder)))}
    job = job or Coordinator(folder / "coordinator").job
    findings: dict[str, list[Finding]] = {}
    for inner in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (inner / FILE).is_file() or Coordinator(inner).job.is_file():
            findings |= check(inner, job if job.is_file() else None)
    if not findings:
        raise ConfigError(f"{folder}: is no directory of a party (party.toml) or of a coordinator (job.toml)")
    return findings


def looked(what: str, look: Callable[[], str]) -> Finding:
    """Run one check, which returns what is good or raises an error that says what is not."""
    try:
        return Finding(what, "good", look())
    except Noted as note:
        return Finding(what, "note", str(note))
    except (PrivadmmError, OSError) as error:
        return Finding(what, "bad", str(error))


def of_party(folder: Path, job: Path | None) -> Iterator[Finding]:
    try:
        party = read_party(folder)
    except ConfigError as error:
        yield Finding("policy", "bad", str(error))
        return
    yield Finding("policy", "good", f"party {party.number}, {party.policy.mode}, {', '.join(party.policy.algorithms)}")
    yield looked("flower", flower)
    if party.policy.mode == "deployment":
        yield looked("noise", secure)
    yield looked("records", lambda: records(party, job))
    yield looked("ledger", lambda: ledger(party, job))
    yield looked("certificate", lambda: check_certificate(folder / party.node.ca))
    yield looked("key", lambda: check_node_key(folder / party.node.key))
    yield looked("peers", lambda: peers(party, job))
    yield looked("SuperLink", lambda: superlink(party))
    yield looked("port", lambda: port(party.node.port))


def of_coordinator(place: Coordinator) -> Iterator[Finding]:
    own, ca, key = (place.certificates / name for name in ("server.pem", "ca.pem", "server-key.pem"))
    yield looked("job", lambda: proposed(place))
    yield looked("flower", flower)
    yield looked("certificate", lambda: check_certificate(own, ca, key))
    yield looked("keys of nodes", lambda: node_keys(place))
    yield looked("app", lambda: app(place))
    yield looked("connection", lambda: connection(place))


def flower() -> str:
    try:
        version = importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError("Flower is not installed: pip install 'privadmm[flower]'") from None
    if not version.startswith(f"{FLOWER}."):
        raise ConfigError(
            f"Flower {version} is installed, and privadmm is made for {FLOWER}: pip install 'privadmm[flower]'"
        )
    return version


def secure() -> str:
    from privadmm.privacy.mechanisms import Deployment

    Deployment()
    return "OpenDP is there"


def records(party: Party, job: Path | None) -> str:
    """Read the party's records as the party does when this job is proposed, if one is given."""
    if job is None:
        if not party.source.is_file():
            raise ConfigError(f"{party.source}: no such file; put the party's records there")
        raise Noted(f"{party.source}: is there; with --job JOB.toml it is read as the job would")
    config = neutral(read(job))
    parties = parties_of(config)
    if party.number >= parties:
        raise ConfigError(f"this is party {party.number}, and the job has {parties}, counted from 0")
    Desk(party).admitted(parties, config)
    own = held(party, config, parties)
    return f"{own.records} records, {own.width} columns, as party.toml and the job declare"


def ledger(party: Party, job: Path | None) -> str:
    path, budget = party.ledger, party.fixed.budget
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; make it with `privadmm federation ledger {party.folder}`")
    if problem := Desk(party).differs() or next(iter(verify(path).problems), None):
        raise ConfigError(f"{path}: {problem}")
    enough = True
    with closing(SqliteLedger(path, (party.number,), party.fixed, party.policy.mode)) as opened:
        if opened.failed is not None:
            raise ConfigError(
                f"{path}: is locked, since a step failed: see `privadmm ledger show {path}`, then unlock it"
            )
        aside = opened.others(party.number, "")
        if job is not None and party.number < parties_of(config := read(job)):
            cost = totals(expected(config).plan, parties_of(config))[party.number]
            try:
                affordable(opened, "", {party.number: cost})
            except RefusedError:
                if not aside:
                    raise
                enough = False
    if budget is None:
        return "without a budget: nothing here is private"
    spent = printed(epsilon(aside, budget.delta), ".6g")
    said = f"epsilon = {spent} of {budget.epsilon:g} is spent or set aside, at delta = {budget.delta:g}"
    if (apart := alone(aside)) is not None:
        said += f" ({printed(epsilon(apart, budget.delta), '.6g')} if, in secure sums, everybody else colluded)"
    if not enough:
        raise Noted(f"{said}; this job, unless that was it, will be refused")
    return said


def peers(party: Party, job: Path | None) -> str:
    """The public keys of the other parties, without which this one takes part in no secure sum."""
    config = None if job is None else read(job)
    known = sorted(party.folder.glob(f"{PEERS}/party-*.pub"))
    for path in known:
        check_public_key(path)
    if config is not None and config.privacy is not None and config.privacy.sum == "secure":
        check_pins(party.folder, party.number, parties_of(config))
        return f"of all {parties_of(config) - 1} others"
    if not known:
        raise Noted(
            f"{party.folder / PEERS}: has no public key of another party, and a job with secure sums needs all of them"
        )
    return f"of {len(known)} others; with --job JOB.toml of secure sums it is seen whether all are there"


def superlink(party: Party) -> str:
    """Whether the SuperLink answers, with a certificate that the party's authority signed."""
    address = party.node.superlink
    host, _, number = address.rpartition(":")
    if not number.isdigit() or not host:
        raise ConfigError(f"[node] superlink = {address!r} is not HOST:PORT")
    try:
        context = ssl.create_default_context(cafile=str(party.folder / party.node.ca))
        with socket.create_connection((host, int(number)), timeout=5) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLError as error:
        raise ConfigError(f"{address} does not show a certificate of this authority ({error.reason})") from None
    except OSError as error:
        raise Noted(f"nothing answers at {address} ({error.strerror or error})") from None
    return f"{address} answers, with a certificate of this authority"


def port(number: int) -> str:
    try:
        socket.create_server(("127.0.0.1", number)).close()
    except OSError:
        raise Noted(f"127.0.0.1:{number} is taken: by this node, or change [node] port") from None
    return f"127.0.0.1:{number} is free for the node"


def proposed(place: Coordinator) -> str:
    config = read(place.job)
    check_seed(config)
    parties, job, labels = parties_of(config), expected(config), config.resolve(config.data.source)
    if job.public.columns and not labels.is_file():
        raise ConfigError(f"{labels}: no such file; the coordinator's labels are read there")
    cost = "NOT PRIVATE" if job.epsilon is None else f"epsilon = {printed(job.epsilon, '.6g')} at delta = {job.delta:g}"
    said = f"{job.algorithm.name}, {job.public.rounds} rounds, {parties} parties, {cost} for each"
    return "; ".join([said, *job.caveats])


def node_keys(place: Coordinator) -> str:
    parties = parties_of(read(place.job))
    for number in range(parties):
        path = place.keys / f"party-{number}.pub"
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; ask party {number} for its public key")
        check_public_key(path)
    return f"of {parties} parties"


def app(place: Coordinator) -> str:
    path, here = place.app / "pyproject.toml", str(place.folder.absolute())
    named = load(path)[1].get("tool", {}).get("flwr", {}).get("app", {}).get("config", {}).get("coordinator")
    if named != here:
        raise ConfigError(f"{path}: coordinator is {named!r}; set it to {here}")
    return "is for this directory"


def connection(place: Coordinator) -> str:
    path, (host, number) = place.flower / "config.toml", place.address
    ca = Path(str(load(path)[1]["superlink"][NAME].get("root-certificates")))
    if not ca.is_file():
        raise ConfigError(f"{path}: root-certificates: no file {ca}")
    return f"{host}:{number}"
