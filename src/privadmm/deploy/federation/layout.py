"""Where a federation's files are, and the commands that start its processes."""

import json
import os
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from privadmm.config.reader import Lines, Report, load, read_table
from privadmm.config.rules import NAME as NAMED
from privadmm.data.files import for_owner, write_text
from privadmm.deploy.federation.party import Party
from privadmm.errors import ConfigError
from privadmm.params import Doc, fields_of

NAME = "federation"  # the connection's name in Flower's config
FLOWER = "1.41"  # pinned.py replaces Flower's internals, which may change with any minor version
# Flower logs a line for every request; our own logs have the events. FLWR_LOG_LEVEL=INFO brings Flower's lines back.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_LOG_LEVEL": os.environ.get("FLWR_LOG_LEVEL", "WARNING"),
}
# Seconds after which Flower's processes look for work again; its default is 1.
PROMPT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
CLIENT, SERVER = "flwr-clientapp", "flwr-serverapp"
COMMANDS = ("flwr-agentapp", CLIENT, "flwr-connector", "flwr-model", SERVER, "flwr-simulation")
NODE = "flower-supernode"  # takes the SuperLink's messages to a party
EXECUTOR = "flower-superexec"  # starts a ClientApp for each message of a node, or a ServerApp for a run
SECRET = 32  # bytes
CONNECTION = """[superlink]
default = "{name}"

[superlink.{name}]
address = "{address}"
root-certificates = {ca}
"""
COORDINATOR = "PRIVADMM_COORDINATOR"  # a SuperLink's environment variable: the directory of the only job it runs


@dataclass(frozen=True)
class Reached:
    """How the SuperLink is reached."""

    host: Annotated[str, NAMED, Doc("the name or address under which parties reach it; its certificate is for it")]
    port: Annotated[int, Ge(1), Le(65535), Doc("of the SuperLink")]
    listen: Annotated[str, NAMED, Doc("the address of this machine at which it listens; 0.0.0.0: at all")]
    federation: Annotated[str, NAMED, Doc("by which replies are told from those of another federation")]

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def dialled(listen: str, host: str) -> str:
    """The host at which the coordinator's own processes reach a SuperLink: loopback, if it listens there."""
    if listen in ("::", "::1"):
        return "[::1]"
    return "127.0.0.1" if listen in ("", "0.0.0.0", "127.0.0.1", "localhost") else host


def listened(host: str) -> str:
    """The default address at which a SuperLink listens, if parties reach it at this host."""
    plain = host.strip("[]")
    if plain in ("127.0.0.1", "::1", "localhost"):
        return "127.0.0.1" if plain == "localhost" else plain
    return "::" if ":" in plain else "0.0.0.0"


def host_and_port(address: str, where: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"{where} is {address!r} and not HOST:PORT")
    return host, int(port)


class Coordinator:
    """The coordinator's directory: its files, and the commands of Flower that use them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = folder / "job.toml"
        self.app = folder / "app"
        self.flower = folder / "flower"  # Flower's home: its config, and what it unpacks
        self.certificates = folder / "certificates"
        self.keys = folder / "nodes"  # the parties' public keys
        self.runs = folder / "runs"
        self.status = folder / "status.json"  # where the latest run stands
        self.wanted = folder / "wanted.json"  # the run that was asked for last
        self.lock = folder / "run.lock"  # held by the process that drives a run
        self.stop = folder / "stop"  # there while the run is asked to stop
        self.log = folder / "log"  # a line for each event of the runs
        self.ended = folder / "ended-jobs"  # the jobs that are over: every new run tells the parties
        self.settings = folder / "coordinator.toml"  # where the SuperLink listens, and under which name it is reached
        self.invitations = folder / "invitations"  # one for each party, to be sent to it
        self.replies = folder / "replies"  # what parties sent back
        self.retired = self.keys / "retired"  # public keys that are no longer valid
        self.peers = folder / "peers.toml"  # everybody's public keys, for every party
        self.environment = {"FLWR_HOME": str(self.flower.absolute()), **QUIET, **PROMPT}

    def key_of(self, number: int) -> Path:
        """File of a party's public key."""
        return self.keys / f"party-{number}.pub"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port at which the coordinator's own processes and Flower's commands reach the SuperLink."""
        path = self.flower / "config.toml"
        address = str(load(path)[1].get("superlink", {}).get(NAME, {}).get("address"))
        return host_and_port(address, f"{path}: [superlink.{NAME}] address")

    @property
    def reached(self) -> "Reached":
        """How the SuperLink is reached; without a coordinator.toml, as Flower's commands reach it."""
        if not self.settings.exists():
            host, port = self.address
            ca = self.certificates / "ca.pem"
            return Reached(host, port, "127.0.0.1", ca.read_text(encoding="ascii") if ca.is_file() else "")
        text, raw = load(self.settings)
        report = Report(str(self.settings), Lines(text))
        values = read_table(fields_of(Reached), raw.get("superlink", {}), ("superlink",), report)
        report.check()
        return Reached(**(values or {}))

    def connect(self, host: str, port: int) -> None:
        """Write the address of the SuperLink into the config of Flower's commands."""
        ca = json.dumps(str((self.certificates / "ca.pem").absolute()))
        text = CONNECTION.format(name=NAME, address=f"{host}:{port}", ca=ca)
        path = self.flower / "config.toml"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)

    def superlink(self, host: str) -> list[str]:
        """Command that starts the SuperLink, listening at this address of the machine."""
        path, (_, port) = self.certificates, self.address
        return [
            "flower-superlink",
            *("--host", host, "--port", str(port)),
            *("--ssl-ca-certfile", str(path / "ca.pem")),
            *("--ssl-certfile", str(path / "server.pem"), "--ssl-keyfile", str(path / "server-key.pem")),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *("--database", str(self.folder / "superlink.sqlite")),
            *("--isolation", "process", "--superexec-auth-secret-file", str(self.secret())),
        ]

    def superexec(self) -> list[str]:
        """Command that runs the ServerApp as a process of its own, so that a run outlives a SuperLink that dies."""
        host, port = self.address
        return [
            EXECUTOR,
            *("--runtime-api-address", f"{host}:{port}"),
            *("--root-certificates", str(self.certificates / "ca.pem")),
            *("--superexec-auth-secret-file", str(self.secret())),
            *("--parent-pid", str(os.getpid())),
        ]

    def secret(self) -> Path:
        """File of the secret that lets a process run the ServerApp for the SuperLink; made on first use."""
        path, fresh = self.folder / "superexec-secret", self.folder / f"superexec-secret.{os.getpid()}"
        if not path.exists():
            with open(fresh, "wb", opener=for_owner) as file:
                file.write(secrets.token_bytes(SECRET))
            with suppress(FileExistsError):
                os.link(fresh, path)  # atomic: if two processes make a secret at once, the first wins
            fresh.unlink()
        state = path.stat()
        if state.st_size < SECRET or state.st_mode & 0o077:
            raise ConfigError(f"{path}: is too short, or not its owner's alone; remove it, and another is made")
        return path


def json_table(path: Path) -> dict[str, Any]:
    """Read a JSON object; empty if the file is missing, unreadable or holds something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def coordinator_in(folder: Path) -> Coordinator:
    """The coordinator whose directory this is, or that is in coordinator/ of this folder."""
    for place in (Coordinator(folder), Coordinator(folder / "coordinator")):
        if place.job.is_file():
            return place
    raise ConfigError(f"{folder}: is no coordinator's directory, which has job.toml, nor has it one in coordinator/")


def node(party: Party) -> list[str]:
    """Command that starts the node of a party."""
    folder, table = party.folder.absolute(), party.node
    return [
        NODE,
        *("--superlink", table.superlink, "--root-certificates", str(folder / table.ca)),
        *("--auth-supernode-private-key", str(folder / table.key)),
        *("--host", "127.0.0.1", "--port", str(table.port)),
        *("--node-config", f'party="{folder}"'),
    ]


def node_environment(party: Party) -> dict[str, str]:
    folder = party.folder.absolute()
    home = {"FLWR_HOME": str(folder / "flower"), "OPENBLAS_NUM_THREADS": "1"}
    return {**home, **QUIET, **PROMPT, "PATH": pinned(folder, CLIENT)}


def superlink_environment(place: Coordinator) -> dict[str, str]:
    folder = place.folder.absolute()
    return {**place.environment, COORDINATOR: str(folder), "PATH": pinned(folder, SERVER)}


def pinned(folder: Path, own: str) -> str:
    """Make a PATH on which Flower finds privadmm's `own` app command, and a refusal for every other app command.

    The files are written again at every start, since they name this Python.
    """
    scripts = folder / "bin"
    scripts.mkdir(exist_ok=True)
    acts = {name: "refuse" for name in COMMANDS} | {own: {CLIENT: "client", SERVER: "server"}[own]}
    if own == CLIENT:
        acts |= {NODE: "node", EXECUTOR: "executor"}
    else:
        acts |= {EXECUTOR: "coordinators_executor"}
    for name, act in acts.items():
        path = scripts / name
        code = f"#!{sys.executable}\nfrom privadmm.deploy.flower.pinned import {act}\n\n{act}()\n"
        path.write_text(code, encoding="utf-8")
        path.chmod(0o755)
    return os.pathsep.join([str(scripts), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
