"""`privadmm federation check`: what is wrong with a party's or a coordinator's directory, before anybody is asked."""

import importlib.metadata
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from privadmm.config.file import Config, check_seed, read
from privadmm.config.reader import load
from privadmm.deploy.federation import keys, party
from privadmm.deploy.federation.layout import FLOWER, Coordinator
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.party_server import Desk
from privadmm.deploy.federation.proposal import expected, neutral, parties_of
from privadmm.deploy.federation.records import held
from privadmm.errors import ConfigError, PrivadmmError, RefusedError
from privadmm.privacy.accounting import epsilon, printed, totals
from privadmm.privacy.ledger import affordable
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify

State = Literal["good", "note", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. A note is no fault: somebody else is not there yet, or it was not asked for."""

    what: str
    state: State
    said: str


def check(folder: Path, job: Path | None = None) -> dict[str, list[Finding]]:
    """By directory: of a party, of a coordinator, or of all in a federation that `init` made."""
    if (folder / party.FILE).is_file():
        return {str(folder): list(of_party(folder, job))}
    if Coordinator(folder).job.is_file():
        return {str(folder): list(of_coordinator(Coordinator(folder)))}
    inside = sorted(one for one in folder.iterdir() if one.is_dir()) if folder.is_dir() else []
    job = job or Coordinator(folder / "coordinator").job
    found: dict[str, list[Finding]] = {}
    for one in inside:
        if (one / party.FILE).is_file() or Coordinator(one).job.is_file():
            found |= check(one, job if job.is_file() else None)
    if not found:
        raise ConfigError(f"{folder}: is no directory of a party (party.toml) or of a coordinator (job.toml)")
    return found


class Noted(Exception):  # noqa: N818  what it says is no fault
    """What somebody should know, though nothing is wrong."""


def looked(what: str, look: Callable[[], str]) -> Finding:
    """What looking found, or the error that it met."""
    try:
        return Finding(what, "good", look())
    except Noted as note:
        return Finding(what, "note", str(note))
    except (PrivadmmError, OSError) as error:
        return Finding(what, "bad", str(error))


def of_party(folder: Path, job: Path | None) -> Iterator[Finding]:
    try:
        one = party.read(folder)
    except ConfigError as error:
        yield Finding("policy", "bad", str(error))
        return
    yield Finding("policy", "good", f"party {one.number}, {one.policy.mode}, {', '.join(one.policy.algorithms)}")
    yield looked("flower", flower)
    if one.policy.mode == "deployment":
        yield looked("noise", secure)
    yield looked("records", lambda: records(one, job)) if job else present(one)
    yield looked("ledger", lambda: ledger(one, job))
    yield looked("certificate", lambda: certificate(one.folder / one.node.ca))
    yield looked("key", lambda: key(one.folder / one.node.key))
    yield reached(one)
    yield port(one.node.port, "node")


def of_coordinator(place: Coordinator) -> Iterator[Finding]:
    yield looked("job", lambda: proposed(place))
    yield looked("flower", flower)
    path = place.certificates
    yield looked("certificate", lambda: certificate(path / "server.pem", path / "ca.pem", path / "server-key.pem"))
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


def present(one: Party) -> Finding:
    if not one.source.is_file():
        return Finding("records", "bad", f"{one.source}: no such file; put the party's records there")
    return Finding("records", "note", f"{one.source}: is there; with --job JOB.toml it is read as the job would")


def records(one: Party, job: Path) -> str:
    """As a desk does when a job is proposed."""
    config = neutral(read(job))
    parties = parties_of(config)
    if one.number >= parties:
        raise ConfigError(f"this is party {one.number}, and the job has {parties}, counted from 0")
    Desk(one).admitted(parties, config)
    found = held(one, config, parties)
    return f"{found.records} records, {found.width} columns, as party.toml and the job declare"


def ledger(one: Party, job: Path | None) -> str:
    if not one.ledger.is_file():
        raise ConfigError(f"{one.ledger}: no such file; make it with `privadmm federation ledger {one.folder}`")
    if differs := Desk(one).differs():
        raise ConfigError(f"{one.ledger}: {differs}")
    if problems := verify(one.ledger).problems:
        raise ConfigError(f"{one.ledger}: {problems[0]}")
    opened = SqliteLedger(one.ledger, (one.number,), one.fixed, one.policy.mode)
    enough = True
    try:
        if opened.failed is not None:
            raise ConfigError(
                f"{one.ledger}: is locked, since a step failed: see `privadmm ledger show {one.ledger}`, then unlock it"
            )
        aside, budget = opened.others(one.number, ""), one.fixed.budget
        if job is not None and one.number < parties_of(config := read(job)):
            cost = totals(expected(config).plan, parties_of(config))[one.number]
            affordable(opened, "", {one.number: cost})
    except RefusedError:
        if not aside:
            raise
        enough = False
    finally:
        opened.close()
    if budget is None:
        return "without a budget: nothing here is private"
    spent = epsilon(aside, budget.delta)
    said = f"epsilon = {printed(spent, '.6g')} of {budget.epsilon:g} is spent or set aside, at delta = {budget.delta:g}"
    if not enough:
        raise Noted(f"{said}; this job, unless that was it, will be refused")
    return said


def certificate(path: Path, ca: Path | None = None, own: Path | None = None) -> str:
    if problem := keys.certificate_problem(path, ca, own):
        raise ConfigError(f"{path}: {problem}")
    return f"{path.name} is valid until {keys.load(path).not_valid_after_utc:%Y-%m-%d}"


def key(path: Path) -> str:
    if problem := keys.key_problem(path):
        raise ConfigError(f"{path}: {problem}")
    return "there, and its owner's alone"


def reached(one: Party) -> Finding:
    """Whether the SuperLink answers, with a certificate that the party's authority signed."""
    what, (host, _, number) = "SuperLink", one.node.superlink.rpartition(":")
    if not number.isdigit() or not host:
        return Finding(what, "bad", f"[node] superlink = {one.node.superlink!r} is not HOST:PORT")
    try:
        context = ssl.create_default_context(cafile=str(one.folder / one.node.ca))
        with (
            socket.create_connection((host, int(number)), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return Finding(what, "good", f"{one.node.superlink} answers, with a certificate of this authority")
    except ssl.SSLError as error:
        return Finding(
            what,
            "bad",
            f"{one.node.superlink} does not show a certificate of this authority ({error.reason})",
        )
    except OSError as error:
        return Finding(what, "note", f"nothing answers at {one.node.superlink} ({error.strerror or error})")


def port(number: int, whose: str) -> Finding:
    try:
        socket.create_server(("127.0.0.1", number)).close()
    except OSError:
        return Finding("port", "note", f"127.0.0.1:{number} is taken: by this {whose}, or change [node] port")
    return Finding("port", "good", f"127.0.0.1:{number} is free for the {whose}")


def proposed(place: Coordinator) -> str:
    config: Config = read(place.job)
    check_seed(config)
    parties, job, labels = parties_of(config), expected(config), config.resolve(config.data.source)
    if job.public.columns and not labels.is_file():
        raise ConfigError(f"{labels}: no such file; the coordinator's labels are read there")
    cost = "NOT PRIVATE" if job.epsilon is None else f"epsilon = {printed(job.epsilon, '.6g')} at delta = {job.delta:g}"
    return f"{job.algorithm.name}, {job.public.rounds} rounds, {parties} parties, {cost} for each"


def node_keys(place: Coordinator) -> str:
    parties = parties_of(read(place.job))
    for number in range(parties):
        path = place.keys / f"party-{number}.pub"
        if not path.is_file():
            raise ConfigError(f"{path}: no such file; ask party {number} for its public key")
        if problem := keys.public_problem(path):
            raise ConfigError(f"{path}: {problem}")
    return f"of {parties} parties"


def app(place: Coordinator) -> str:
    _, raw = load(place.app / "pyproject.toml")
    given = raw.get("tool", {}).get("flwr", {}).get("app", {}).get("config", {})
    named, here = given.get("coordinator"), str(place.folder.absolute())
    if named != here:
        raise ConfigError(f"{place.app / 'pyproject.toml'}: coordinator is {named!r}; set it to {here}")
    return "is for this directory"


def connection(place: Coordinator) -> str:
    _ = place.address
    _, raw = load(place.flower / "config.toml")
    given = raw.get("superlink", {}).get("federation", {})
    path = Path(str(given.get("root-certificates")))
    if not path.is_file():
        raise ConfigError(f"{place.flower / 'config.toml'}: root-certificates: no file {path}")
    return f"{given.get('address')}"
