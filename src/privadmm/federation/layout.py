"""Where a federation's files are, and the commands that start it: the coordinator's directory, and each party's."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from privadmm.federation.party import Party

NAME = "federation"  # of the connection in Flower's own config
FLOWER = "1.41"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
# Flower asks its own processes for work this often, in seconds; it would once a second.
PROMPT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
COMMANDS = ("flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation")


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

    def superlink(self, host: str, port: int) -> list[str]:
        path = self.certificates
        return [
            "flower-superlink",
            *("--host", host, "--port", str(port)),
            *("--ssl-ca-certfile", str(path / "ca.pem")),
            *("--ssl-certfile", str(path / "server.pem"), "--ssl-keyfile", str(path / "server-key.pem")),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *("--database", str(self.folder / "superlink.sqlite")),
        ]

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
    """What the node runs is what stands first on its path: privadmm's own ClientApp, and refusals."""
    folder = party.folder.absolute()
    return {
        "FLWR_HOME": str(folder / "flower"),
        **QUIET,
        **PROMPT,
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": os.pathsep.join(
            [str(shims(folder)), str(Path(sys.executable).parent), os.environ.get("PATH", "")]
        ),
    }


def shims(folder: Path) -> Path:
    """Commands of this Python, made anew at every start, in place of those that a job could ask a node for."""
    made = folder / "bin"
    made.mkdir(exist_ok=True)
    for name in (*COMMANDS, "flwr-clientapp"):
        act = "main" if name == "flwr-clientapp" else "refuse"
        path = made / name
        path.write_text(
            f"#!{sys.executable}\nfrom privadmm.engines.flower.pinned import {act}\n\n{act}()\n",
            encoding="utf-8",
        )
        path.chmod(0o755)
    return made


def spelled(command: list[str], environment: Mapping[str, str] | None = None) -> str:
    """For a terminal."""
    words = [f"{key}={shlex.quote(value)}" for key, value in (environment or {}).items()]
    return " ".join([*words, shlex.join(command)])
