"""Where a federation's files are, and the commands that start it: the coordinator's directory, and each party's."""

import os
import secrets
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from privadmm.config.reader import load
from privadmm.data.files import for_owner
from privadmm.deploy.federation.party import Party
from privadmm.errors import ConfigError

NAME = "federation"  # of the connection in Flower's own config
FLOWER = "1.41"  # what pinned.py replaces is inside Flower, and may change with any minor version
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
# Flower asks its own processes for work this often, in seconds; it would once a second.
PROMPT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
CLIENT, SERVER = "flwr-clientapp", "flwr-serverapp"
COMMANDS = ("flwr-agentapp", CLIENT, "flwr-connector", "flwr-model", SERVER, "flwr-simulation")
SECRET = 32  # bytes
COORDINATOR = "PRIVADMM_COORDINATOR"  # in the environment of a SuperLink: whose job it runs, and no other


@dataclass(frozen=True)
class Coordinator:
    """The coordinator's directory."""

    folder: Path

    @property
    def job(self) -> Path:
        return self.folder / "job.toml"

    @property
    def app(self) -> Path:
        return self.folder / "app"

    @property
    def flower(self) -> Path:
        """Flower's home: its config, and what it unpacks."""
        return self.folder / "flower"

    @property
    def certificates(self) -> Path:
        return self.folder / "certificates"

    @property
    def keys(self) -> Path:
        """The parties' public keys."""
        return self.folder / "nodes"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def status(self) -> Path:
        """Where the latest run stands."""
        return self.folder / "status.json"

    @property
    def environment(self) -> dict[str, str]:
        return {"FLWR_HOME": str(self.flower.absolute()), **QUIET, **PROMPT}

    @property
    def address(self) -> tuple[str, int]:
        """Where parties and Flower's own commands reach the SuperLink."""
        path = self.flower / "config.toml"
        given = str(load(path)[1].get("superlink", {}).get(NAME, {}).get("address"))
        host, _, port = given.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f"{path}: [superlink.{NAME}] address is {given!r} and not HOST:PORT")
        return host, int(port)

    def superlink(self, host: str) -> list[str]:
        """Listening at this address of the machine."""
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
        """What runs the ServerApp, beside the SuperLink and not under it: so a run outlives a SuperLink that dies."""
        host, port = self.address
        return [
            "flower-superexec",
            *("--runtime-api-address", f"{host}:{port}"),
            *("--root-certificates", str(self.certificates / "ca.pem")),
            *("--superexec-auth-secret-file", str(self.secret())),
            *("--parent-pid", str(os.getpid())),
        ]

    def secret(self) -> Path:
        """By which the SuperLink knows who may run the ServerApp; made when it is asked for first."""
        path, fresh = self.folder / "superexec-secret", self.folder / f"superexec-secret.{os.getpid()}"
        if not path.exists():
            with open(fresh, "wb", opener=for_owner) as file:
                file.write(secrets.token_bytes(SECRET))
            with suppress(FileExistsError):
                os.link(fresh, path)  # whole, and only one of two that are made at once
            fresh.unlink()
        state = path.stat()
        if state.st_size < SECRET or state.st_mode & 0o077:
            raise ConfigError(f"{path}: is too short, or not its owner's alone; remove it, and another is made")
        return path

    def register(self, number: int) -> list[str]:
        return ["flwr", "supernode", "register", str(self.keys / f"party-{number}.pub"), NAME]

    def run(self, **changes: str | float | bool) -> list[str]:
        """`out` and the like in place of what the app's pyproject.toml has."""
        given = [f"--run-config={key}={toml(value)}" for key, value in changes.items()]
        return ["flwr", "run", str(self.app), NAME, *given]


def toml(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def node(party: Party) -> list[str]:
    """The node of a party."""
    folder, table = party.folder.absolute(), party.node
    return [
        "flower-supernode",
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
    """A path on which Flower finds, of the commands that run apps, privadmm's `own` one, and refusals.

    They are made anew whenever something is started, and are of this Python.
    """
    made = folder / "bin"
    made.mkdir(exist_ok=True)
    for name in COMMANDS:
        act = {CLIENT: "client", SERVER: "server"}[own] if name == own else "refuse"
        path = made / name
        path.write_text(
            f"#!{sys.executable}\nfrom privadmm.deploy.flower.pinned import {act}\n\n{act}()\n",
            encoding="utf-8",
        )
        path.chmod(0o755)
    return os.pathsep.join([str(made), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
