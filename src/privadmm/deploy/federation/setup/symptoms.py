"""Checks of a machine that a coordinator and a party share: versions, certificates, clock, disk, ports, permissions."""

import errno
import importlib.metadata
import shutil
import socket
import ssl
import stat
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

from privadmm import __version__
from privadmm.deploy.federation.hub.running import running
from privadmm.deploy.federation.keys import check_certificate, days_left, ends_soon, from_der
from privadmm.deploy.federation.layout import FLOWER, host_and_port
from privadmm.errors import ConfigError, PrivadmmError

AHEAD, BEHIND = 5, 300  # seconds that Flower lets a node's clock differ from the SuperLink's
ROOM = (200_000_000, 2_000_000_000)  # bytes free on the disk: bad below the first, worth a note below the second
# OpenSSL's numbers for what may be wrong with a certificate.
NOT_YET, EXPIRED, OTHER_HOST = 9, 10, {62, 64}


@dataclass(frozen=True)
class Finding:
    """Outcome of one check. A note is no fault: another side is not there yet, say, or a check was not asked for."""

    what: str
    state: Literal["good", "note", "bad"]
    said: str
    fix: str = ""


class Noted(Exception):  # noqa: N818  it reports no fault
    """Raised by a check to report something that is not wrong."""

    def __init__(self, said: str, fix: str = "") -> None:
        super().__init__(said)
        self.fix = fix


class FaultError(ConfigError):
    """What is wrong, and what to do about it."""

    def __init__(self, said: str, fix: str) -> None:
        super().__init__(said)
        self.fix = fix


def looked(what: str, look: Callable[[], str], fix: str = "") -> Finding:
    """Run one check, which returns good news or raises an error; `fix` is for errors that bring no fix."""
    try:
        return Finding(what, "good", look())
    except Noted as note:
        return Finding(what, "note", str(note), note.fix)
    except FaultError as error:
        return Finding(what, "bad", str(error), error.fix)
    except (PrivadmmError, OSError) as error:
        return Finding(what, "bad", str(error), fix)


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


def versions(others: Iterable[tuple[str, str]]) -> str:
    """The versions here; noted if `others`, by name, had another privadmm when they last told, maybe long ago."""
    own = f"privadmm {__version__}, Python {'.'.join(map(str, sys.version_info[:3]))}"
    if odd := [f"{name} had {version}" for name, version in others if version != __version__]:
        raise Noted(
            f"{own}; {', '.join(odd)} when keys were exchanged",
            "a run is refused unless all have the same version: see that all were upgraded (docs/operations.md)",
        )
    return own


def certificate(
    path: Path, rotate: str, ca: Path | None = None, key: Path | None = None, host: str | None = None
) -> str:
    """Check that a certificate is good, and for a while; `rotate` says how to get another."""
    try:
        said = check_certificate(path, ca, key, host)
    except ConfigError as error:
        raise FaultError(str(error), rotate) from None
    if ends_soon(path):
        raise Noted(said, rotate)
    return said


def answers(address: str, ca: Path, where: str) -> tuple[str, float | None]:
    """Check that a SuperLink answers at HOST:PORT with a good certificate; also returns how far its clock is ahead."""
    host, port = host_and_port(address, where)
    name = host.strip("[]")
    try:
        context = ssl.create_default_context(cafile=str(ca))
        plain = socket.create_connection((name, port), timeout=5)
        with plain, context.wrap_socket(plain, server_hostname=name) as secure:
            own = from_der(secure.getpeercert(binary_form=True) or b"")
            ahead = clock_of(secure, host)
    except ssl.SSLCertVerificationError as error:
        raise refused_certificate(address, host, error) from None
    except ssl.SSLError as error:
        raise FaultError(
            f"{address} answers, but not as a SuperLink does ({error.reason})", f"see what listens at {address}"
        ) from None
    except OSError as error:
        raise Noted(
            f"nothing answers at {address} ({error.strerror or error})", unreachable(error, host, port)
        ) from None
    left = days_left(own)
    said = f"{address} answers, with a certificate of this authority that has {left:.0f} days left"
    if left < 1:
        raise FaultError(said, "the coordinator makes another: `privadmm federation rotate` in its directory")
    return said, ahead


def refused_certificate(address: str, host: str, error: ssl.SSLCertVerificationError) -> FaultError:
    """What is wrong with the certificate that was shown, and who can mend it."""
    now = f"{datetime.now(UTC):%F %R} UTC by this machine's clock"
    if error.verify_code in OTHER_HOST:
        return FaultError(
            f"{address} shows a certificate that is not for {host}",
            "dial it under a name that the certificate has, in [node] superlink; or the coordinator corrects host in "
            "coordinator.toml and makes another with `privadmm federation rotate`",
        )
    if error.verify_code in (NOT_YET, EXPIRED):
        when = "is not valid yet" if error.verify_code == NOT_YET else "has expired"
        return FaultError(
            f"{address} shows a certificate that {when} ({now})",
            "see that the clocks are right (timedatectl); else the coordinator makes another with `privadmm federation "
            "rotate`",
        )
    return FaultError(
        f"{address} does not show a certificate of this authority ({error.verify_message})",
        "if the coordinator has another authority now: `privadmm federation pin DIRECTORY peers.toml`, with the file "
        "that it sent; if not, somebody else listens there",
    )


def unreachable(error: OSError, host: str, port: int) -> str:
    if isinstance(error, socket.gaierror):
        return f"{host} is no name that this machine can look up: ask the coordinator, or use its address"
    if error.errno == errno.ECONNREFUSED:
        return (
            "start `privadmm federation superlink` at the coordinator, and see that it listens at more than 127.0.0.1"
        )
    return f"see that the firewall, or the VPN, lets this machine out to {host}, port {port}"


def clock_of(secure: ssl.SSLSocket, host: str) -> float | None:
    """Seconds by which the clock of an HTTP server is ahead of this one; None if it tells no time."""
    try:
        secure.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        said = secure.recv(4096).decode("latin-1")
        dates = [line[5:].strip() for line in said.split("\r\n") if line.lower().startswith("date:")]
        return (parsedate_to_datetime(dates[0]) - datetime.now(UTC)).total_seconds()
    except (OSError, ValueError, IndexError, TypeError):
        return None


def clock(ahead: float | None) -> str:
    """Check that this machine's clock agrees with the SuperLink's, within Flower's limits."""
    now = f"it is {datetime.now(UTC):%F %T} UTC by this machine's clock"
    if ahead is None:
        raise Noted(f"{now}; the SuperLink's was not asked")
    said = f"{now}, {abs(ahead):.0f} s {'behind' if ahead > 0 else 'ahead of'} the SuperLink's"
    # The date has whole seconds.
    if ahead < -AHEAD - 1 or ahead > BEHIND:
        raise FaultError(
            f"{said}; a node may be {AHEAD} s ahead and {BEHIND} s behind",
            "set the clock, and keep it right: timedatectl set-ntp true",
        )
    return said


def disk(folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    said, fix = f"{free / 1e9:.1f} GB are free at {folder}", "make room: a step that cannot be written locks a ledger"
    if free < ROOM[0]:
        raise FaultError(said, fix)
    if free < ROOM[1]:
        raise Noted(said, fix)
    return said


def permissions(folder: Path, names: Iterable[str]) -> str:
    """Refuse a directory, or secret files in it, that somebody besides the owner may read."""
    paths = [folder, *(folder / name for name in names)]
    open_ones = [path for path in paths if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077]
    if open_ones:
        modes = [f"chmod {'700' if path.is_dir() else '600'} {path}" for path in open_ones]
        raise FaultError(f"others may read {', '.join(map(str, open_ones))}", "; ".join(modes))
    return "are their owner's alone"


def port(host: str, number: int, folder: Path, setting: str) -> str:
    """Check that a port is free, or taken by this directory's own process."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    own = running(folder)
    try:
        socket.create_server((host, number), family=family).close()
    except OSError as error:
        if own is not None:
            return f"{host}:{number} is taken by its own process, {own.get('pid')}, since {own.get('since')}"
        raise FaultError(
            f"{host}:{number} cannot be listened at ({error.strerror}), and not because this directory's own process "
            "does",
            f"end what listens there (ss -ltnp), or change {setting}",
        ) from None
    if own is not None:
        raise Noted(f"{host}:{number} is free, though process {own.get('pid')} keeps it up: see what that prints")
    return f"{host}:{number} is free"
