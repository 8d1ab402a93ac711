"""Files for the operator of a coordinator or a party, in kit/ of its directory: they start it and keep it up.

    privadmm-superlink.service, privadmm-node.service   for systemd, with as few rights as it needs
    compose.yaml, Dockerfile                            the same in a container
    PORTS.md                                            who listens where, and who dials whom

They name this machine's paths. Directories are mounted into containers under the path that they have outside.
"""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from privadmm import __version__
from privadmm.data.files import write_text
from privadmm.deploy.federation.layout import Coordinator, dialled
from privadmm.deploy.federation.party import Party

HEALTH = 9190  # port on 127.0.0.1, in a container of its own
USER = 10001  # user id in a container, if root made the files
UNIT = """# Install: cp {file} /etc/systemd/system/ && systemctl daemon-reload && systemctl enable --now {name}
# What it prints is in the journal, which rotates it: journalctl -u {name}
[Unit]
Description={what}
Wants=network-online.target
After=network-online.target time-sync.target
StartLimitIntervalSec=0

[Service]
Type=exec
User={user}
ExecStart={command}
Restart=on-failure
RestartSec=10
TimeoutStopSec=60
UMask=0077
Environment=FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1

# Its own directory is all that it may write to.
ProtectSystem=strict
ProtectHome=read-only
ReadWritePaths={folder}
PrivateTmp=yes
PrivateDevices=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""
DOCKERFILE = """# docker compose -f {folder}/kit/compose.yaml up -d --build
FROM python:3.11-slim
# Of a clone or a wheel: --build-arg PACKAGE=..., with the file in this folder and a COPY before this line.
ARG PACKAGE="privadmm[flower,deploy]=={version}"
RUN pip install --no-cache-dir "$PACKAGE"
ENV FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 PYTHONUNBUFFERED=1
USER {user}
ENTRYPOINT ["privadmm"]
"""
COORDINATOR_PORTS = """# Ports of the coordinator

| who listens | where | who dials it | for what |
|---|---|---|---|
| the SuperLink | {listen}:{port}, TCP, TLS | every party's node, as {host}:{port} | letters and answers |
| the same | {home}:{port} | the coordinator's own processes | running the job |
| `--health PORT`, if asked for | 127.0.0.1 | whoever watches this machine | /healthz |

Open one port to the parties, {port}, and to nobody else: whoever reaches it can ask for the job to be run, though
nobody but the parties, who sign, is taken for one. A VPN between the organisations, or a firewall with the parties'
addresses, is the place for that. Behind a NAT, forward {port}; the certificate is for {host}, which the parties have to
be able to look up. A proxy on the way must pass TLS through: a party trusts this federation's authority and no other.
"""
PARTY_PORTS = """# Ports of a party

| who listens | where | who dials it | for what |
|---|---|---|---|
| the node | 127.0.0.1:{port}, TCP | its own processes on this machine | one process for each letter |
| `--health PORT`, if asked for | 127.0.0.1 | whoever watches this machine | /healthz |

Nothing listens to the outside: the node dials out, to {superlink} (TCP, TLS). Behind a NAT there is nothing to forward;
a firewall lets this machine out to {superlink}, and nowhere else. A proxy on the way must pass TLS through.
"""


def for_coordinator(place: Coordinator) -> Path:
    """Write the kit of a coordinator."""
    reached, folder = place.reached, place.folder.absolute()
    command = ["federation", "superlink", str(folder)]
    inside = [*command, "--host", "0.0.0.0"]
    open_port = f"{reached.listen}:{reached.port}:{reached.port}".removeprefix("0.0.0.0:")
    home = dialled(reached.listen, reached.host)
    ports = COORDINATOR_PORTS.format(listen=reached.listen, port=reached.port, host=reached.host, home=home)
    service = container(folder, inside, [])
    service["ports"] = [open_port]
    what = f"privadmm: the coordinator's SuperLink, {reached.address}"
    return written(folder, "superlink", what, command, service, ports)


def for_party(party: Party) -> Path:
    """Write the kit of a party."""
    folder, source = party.folder.absolute(), party.source.absolute()
    command = ["federation", "node", str(folder)]
    outside = [] if source.is_relative_to(folder) else [source]
    ports = PARTY_PORTS.format(port=party.node.port, superlink=party.node.superlink)
    what = f"privadmm: the node of {party.name}, party {party.number}"
    return written(folder, "node", what, command, container(folder, command, outside), ports)


def written(folder: Path, name: str, what: str, command: list[str], service: dict[str, Any], ports: str) -> Path:
    kit = folder / "kit"
    kit.mkdir(exist_ok=True)
    own = Path(sys.executable).parent / "privadmm"
    program = [str(own)] if own.is_file() else [sys.executable, "-m", "privadmm"]
    unit = UNIT.format(
        file=shlex.quote(str(kit / f"privadmm-{name}.service")),
        name=f"privadmm-{name}",
        what=escaped(what),
        user=owner(),
        command=" ".join(map(quoted, [*program, *command])),
        folder=quoted(str(folder)),
    )
    write_text(kit / f"privadmm-{name}.service", unit)
    write_text(kit / "Dockerfile", DOCKERFILE.format(folder=folder, version=__version__, user=uid()))
    # JSON is YAML, so only the indentation is added; $ is doubled, since it would begin a variable.
    lines = [f"    {key}: {json.dumps(value).replace('$', '$$')}" for key, value in service.items()]
    head = ["# docker compose -f compose.yaml up -d --build", f"name: privadmm-{name}", "services:", f"  {name}:"]
    write_text(kit / "compose.yaml", "\n".join([*head, *lines]) + "\n")
    write_text(kit / "PORTS.md", ports)
    return kit


def container(folder: Path, command: list[str], records: list[Path]) -> dict[str, Any]:
    """A service of a compose file: it may write to its own directory only, has no rights, and rotates its logs."""
    look = f"import urllib.request as u; u.urlopen('http://127.0.0.1:{HEALTH}/healthz', timeout=5)"
    return {
        "build": {"context": "."},
        "image": f"privadmm:{__version__}",
        "command": [*command, "--health", str(HEALTH)],
        "user": f"{uid()}:{uid()}",
        "volumes": [
            {"type": "bind", "source": str(path), "target": str(path), "read_only": path != folder}
            for path in (folder, *records)
        ],
        "read_only": True,
        "tmpfs": ["/tmp"],
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "init": True,
        "restart": "unless-stopped",
        "stop_grace_period": "60s",
        "healthcheck": {
            "test": ["CMD", "python", "-c", look],
            "interval": "30s",
            "timeout": "10s",
            "start_period": "60s",
        },
        "logging": {"driver": "json-file", "options": {"max-size": "10m", "max-file": "5"}},
    }


def owner() -> str:
    """The user who owns the files, under whom the service runs; in place of root, privadmm."""
    import pwd

    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = "root"
    return "privadmm" if name == "root" else name


def uid() -> int:
    return os.getuid() or USER


def escaped(text: str) -> str:
    """Escape a text for a unit file, in which % begins a specifier."""
    return text.replace("%", "%%").replace("\\", "\\\\").replace("\n", " ")


def quoted(word: str) -> str:
    """Quote a word of a command line for a unit file."""
    text = escaped(word).replace("$", "$$").replace('"', '\\"')
    return f'"{text}"' if set(text) & set(" \t\"'\\;#") else text
