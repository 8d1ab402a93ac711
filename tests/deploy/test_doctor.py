"""`privadmm federation check` finds what will fail, and says how to mend it: on real files, certificates, sockets."""

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any

import pytest

from federations import Federated, federated
from privadmm.config.file import read
from privadmm.deploy.federation.hub.supervisor import free_ports
from small_runs import PRIVATE, Outcome, Place, write_config

pytest.importorskip("cryptography")
from privadmm.deploy.federation import keys
from privadmm.deploy.federation.hub.running import marked
from privadmm.deploy.federation.layout import Coordinator, dialled, listened
from privadmm.deploy.federation.setup import doctor, symptoms
from privadmm.deploy.federation.setup.init import init


@pytest.fixture(autouse=True)
def flower(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that Flower is installed; these checks do not use it."""
    monkeypatch.setattr(doctor, "flower", lambda: "1.41.0")


@pytest.fixture
def made(place: Place) -> Federated:
    return federated(place.path, PRIVATE, free_ports(4))


@pytest.fixture
def coordinator(made: Federated) -> Coordinator:
    return made.made.coordinator


def checked(place: Place, folder: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and the findings by the name of their check."""
    done: Outcome = place.call("federation", "check", folder, "--json")
    (findings,) = done.object["checked"].values()
    return done.code, {one["what"]: one for one in findings}


def fault(place: Place, folder: Path, what: str, state: str = "bad") -> dict[str, str]:
    """The only thing that is wrong, or worth a note, and this one."""
    code, found = checked(place, folder)
    odd = {name for name, one in found.items() if one["state"] == "bad"}
    assert odd == ({what} if state == "bad" else set()), found
    assert code == bool(odd)
    assert found[what]["state"] == state
    assert found[what]["fix"]
    return found[what]


@contextmanager
def superlink(certificates: Path, port: int, date: str | None = None) -> Iterator[None]:
    """A TLS server as a SuperLink is one; it says what time it is, if asked to."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server-key.pem")
    over = threading.Event()
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.settimeout(0.1)

        def serve() -> None:
            while not over.is_set():
                try:
                    with listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as secure:
                        secure.settimeout(2)
                        secure.recv(1000)
                        said = "" if date is None else f"date: {date}\r\n"
                        secure.sendall(f"HTTP/1.1 404 Not Found\r\n{said}\r\n".encode())
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(timeout=10)


def issued(coordinator: Coordinator, host: str) -> None:
    """Another certificate of the same authority."""
    keys.make_server(coordinator.certificates, host)


def dial(made: Federated, host: str) -> None:
    """Have party 0 dial the SuperLink under this name."""
    port = made.made.coordinator.address[1]
    made.change(0, f'"127.0.0.1:{port}"', f'"{host}:{port}"')


def test_all_is_well(place: Place, made: Federated, coordinator: Coordinator) -> None:
    with superlink(coordinator.certificates, coordinator.address[1], formatdate(usegmt=True)):
        code, found = checked(place, made.folders[0])
    assert (code, {one["state"] for one in found.values()}) == (0, {"good"})
    assert "certificate of this authority that has 365 days left" in found["SuperLink"]["said"]
    assert keys.fingerprint((coordinator.keys / "party-0.pub").read_bytes()) in found["key"]["said"]


def test_a_certificate_for_another_host(place: Place, made: Federated, coordinator: Coordinator) -> None:
    dial(made, "localhost.localdomain")
    monkey = socket.getaddrinfo

    def home(host: Any, *rest: Any, **more: Any) -> Any:
        return monkey("127.0.0.1" if host == "localhost.localdomain" else host, *rest, **more)

    with pytest.MonkeyPatch.context() as patch, superlink(coordinator.certificates, coordinator.address[1]):
        patch.setattr(socket, "getaddrinfo", home)
        found = fault(place, made.folders[0], "SuperLink")
    assert "not for localhost.localdomain" in found["said"]
    assert "federation rotate" in found["fix"]


def test_the_coordinator_sees_that_its_certificate_is_for_another_host(place: Place, coordinator: Coordinator) -> None:
    text = coordinator.settings.read_text()
    coordinator.settings.write_text(text.replace('host = "127.0.0.1"', 'host = "hub.example"'))
    found = fault(place, coordinator.folder, "certificate")
    assert "is not for hub.example, but for localhost, 127.0.0.1" in found["said"]
    place.call("federation", "rotate", coordinator.folder)
    assert checked(place, coordinator.folder)[0] == 0


@pytest.mark.parametrize(
    ("days", "state", "told"),
    [(0.9, "bad", "hours left"), (20, "note", "20 days"), (-1 / 1440, "bad", "by this machine's clock it is")],
)
def test_days_that_are_left(
    place: Place, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch, days: float, state: str, told: str
) -> None:
    monkeypatch.setattr(keys, "DAYS", days)
    issued(coordinator, "127.0.0.1")
    _, found = checked(place, coordinator.folder)
    assert (found["certificate"]["state"], told in found["certificate"]["said"]) == (state, True)
    assert "federation rotate" in found["certificate"]["fix"]


@pytest.mark.parametrize(("days", "told"), [(0.9, "1 days left"), (-1 / 1440, "has expired")])
def test_a_party_sees_how_long_the_certificate_lasts(
    place: Place,
    made: Federated,
    coordinator: Coordinator,
    monkeypatch: pytest.MonkeyPatch,
    days: float,
    told: str,
) -> None:
    monkeypatch.setattr(keys, "DAYS", days)
    issued(coordinator, "127.0.0.1")
    with superlink(coordinator.certificates, coordinator.address[1]):
        found = fault(place, made.folders[0], "SuperLink")
    assert told in found["said"]


def test_another_authority(place: Place, made: Federated, coordinator: Coordinator) -> None:
    keys.make_authority(place.path / "other", "127.0.0.1")
    with superlink(place.path / "other", coordinator.address[1]):
        found = fault(place, made.folders[0], "SuperLink")
    assert "does not show a certificate of this authority" in found["said"]
    assert "federation pin" in found["fix"]


def test_an_authority_that_ends_soon(place: Place, made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "AUTHORITY_DAYS", 3)
    keys.make_authority(place.path / "other", "127.0.0.1")
    shutil.copy(place.path / "other" / "ca.pem", made.folders[0] / "ca.pem")
    assert "3 days" in fault(place, made.folders[0], "certificate", "note")["said"]


@pytest.mark.parametrize(("ahead", "state"), [(3600, "bad"), (-3600, "bad"), (200, "good"), (-30, "bad"), (0, "good")])
def test_a_clock_that_is_off(place: Place, made: Federated, coordinator: Coordinator, ahead: float, state: str) -> None:
    with superlink(coordinator.certificates, coordinator.address[1], formatdate(time() + ahead, usegmt=True)):
        _, found = checked(place, made.folders[0])
    assert found["clock"]["state"] == state, found["clock"]
    if state == "bad":
        assert "timedatectl" in found["clock"]["fix"]
        assert ("behind" if ahead > 0 else "ahead of") in found["clock"]["said"]


def test_nobody_answers(place: Place, made: Federated) -> None:
    assert "federation superlink" in fault(place, made.folders[0], "SuperLink", "note")["fix"]
    dial(made, "nowhere.invalid")
    assert "is no name that this machine can look up" in fault(place, made.folders[0], "SuperLink", "note")["fix"]


def test_ports_of_others_and_of_its_own(place: Place, made: Federated, coordinator: Coordinator) -> None:
    port = coordinator.address[1]
    with socket.create_server(("127.0.0.1", port + 1)):
        assert "[node] port" in fault(place, made.folders[0], "port")["fix"]
        with marked(made.folders[0]):
            _, found = checked(place, made.folders[0])
            assert "is taken by its own process" in found["port"]["said"]
            assert found["port"]["state"] == "good"
    with socket.create_server(("127.0.0.1", port)):
        _, found = checked(place, coordinator.folder)
    assert found["port"]["state"] == "bad"
    assert "coordinator.toml" in found["port"]["fix"]


def test_files_that_others_may_read(place: Place, made: Federated, coordinator: Coordinator) -> None:
    (made.folders[0] / "ledger.sqlite").chmod(0o644)
    made.folders[0].chmod(0o755)
    found = fault(place, made.folders[0], "permissions")
    assert f"chmod 700 {made.folders[0]}; chmod 600" in found["fix"]
    (coordinator.certificates / "ca-key.pem").chmod(0o640)
    assert "ca-key.pem" in fault(place, coordinator.folder, "permissions")["said"]


@pytest.mark.parametrize(("free", "state"), [(10**8, "bad"), (10**9, "note"), (10**10, "good")])
def test_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, state: str) -> None:
    monkeypatch.setattr(symptoms.shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    assert symptoms.looked("disk", lambda: symptoms.disk(tmp_path)).state == state


def test_versions_that_differ(place: Place, made: Federated, coordinator: Coordinator) -> None:
    path = made.folders[0] / "invitation.toml"
    path.write_text(path.read_text().replace(f'privadmm = "{symptoms.__version__}"', 'privadmm = "0.0.9"'))
    assert "the coordinator had 0.0.9" in fault(place, made.folders[0], "versions", "note")["said"]
    assert "Python 3" in checked(place, coordinator.folder)[1]["versions"]["said"]


def test_a_reply_of_another_key(place: Place, made: Federated) -> None:
    (made.folders[0] / "node-key").unlink()
    keys.make_node_key(made.folders[0])
    found = fault(place, made.folders[0], "key")
    assert "federation rotate" in found["fix"]


def test_a_ledger_that_was_put_back(place: Place, made: Federated) -> None:
    """check says that it is behind its anchor, and does not call it good."""
    kept = place.path / "kept.sqlite"
    shutil.copy(made.ledgers[0], kept)
    made.run()
    shutil.copy(kept, made.ledgers[0])
    code, found = checked(place, made.folders[0])
    assert (code, found["ledger"]["state"]) == (1, "bad")
    assert "anchor" in found["ledger"]["said"]
    assert "privadmm ledger" in found["ledger"]["fix"]


def test_registration_is_asked_of_the_superlink(
    place: Place, made: Federated, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = pytest.importorskip("privadmm.deploy.flower.registry")
    assert "does not answer" in checked(place, coordinator.folder)[1]["registered"]["said"]
    there = registry.Registered(1, "online", b"")
    gone = registry.Registered(2, "unregistered", b"")
    with superlink(coordinator.certificates, coordinator.address[1]):
        for known, told in [
            ({0: there, 1: None}, "the key of party 1 is not registered"),
            ({0: there, 1: gone}, "the key of party 1 was taken back"),
        ]:
            monkeypatch.setattr(registry, "known", lambda place, known=known: known)
            found = checked(place, coordinator.folder)[1]["registered"]
            assert (found["state"], told in found["said"], bool(found["fix"])) == ("bad", True, True)
        monkeypatch.setattr(registry, "known", lambda place: {0: there})
        found = checked(place, coordinator.folder)[1]["registered"]
        assert (found["state"], found["said"]) == ("good", "connected now: party 0")
        # Somebody who is not there is not called ok: since when, and what to do.
        away = registry.Registered(3, "offline", b"", "2026-01-02T03:04:05+00:00")
        new = registry.Registered(4, "registered", b"")
        monkeypatch.setattr(registry, "known", lambda place: {0: there, 1: away, 2: new})
        found = checked(place, coordinator.folder)[1]["registered"]
        assert found["state"] == "note"
        assert "party 1 (not since 2026-01-02T03:04:05), party 2 (never yet)" in found["said"]
        assert "privadmm federation node" in found["fix"]


def test_directories_of_before_are_good(place: Place, made: Federated, coordinator: Coordinator) -> None:
    """Of a federation that was made before there were invitations, replies, and a file of the coordinator's own."""
    for path in (coordinator.settings, coordinator.peers):
        path.unlink()
    for folder in (coordinator.replies, coordinator.invitations, coordinator.folder / "kit"):
        shutil.rmtree(folder)
    for folder in made.folders:
        for name in ("invitation.toml", "proposed.toml", "reply.toml"):
            (folder / name).unlink()
    assert checked(place, coordinator.folder)[0] == checked(place, made.folders[0])[0] == 0
    assert coordinator.reached.address == f"127.0.0.1:{coordinator.address[1]}"
    made.run()


def test_people_are_told_how_to_mend_it(place: Place, made: Federated) -> None:
    (made.folders[0] / "node-key").chmod(0o644)
    said = place.call("federation", "check", made.folders[0])
    assert said.code == 1
    assert "BAD  key:" in said.out
    assert "to mend it: chmod 600" in said.out


@pytest.mark.parametrize(
    ("host", "listen", "dialled_at"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("localhost", "127.0.0.1", "127.0.0.1"),
        ("hub.example", "0.0.0.0", "127.0.0.1"),
        ("10.1.2.3", "0.0.0.0", "127.0.0.1"),
        ("2001:db8::1", "::", "[::1]"),
    ],
)
def test_it_listens_where_the_host_needs_it_and_is_dialled_at_home(host: str, listen: str, dialled_at: str) -> None:
    assert listened(host) == listen
    assert dialled(listen, host) == dialled_at
    assert dialled("10.1.2.3", "hub.example") == "hub.example"


def test_init_says_where_it_listens(place: Place) -> None:
    config = write_config(place.path / "config.toml", PRIVATE)
    made = init(read(config), place.path / "fed", "hub.example", 9100, rehearse=False)
    place_of = made.coordinator
    assert (place_of.reached.listen, place_of.address) == ("0.0.0.0", ("127.0.0.1", 9100))
    words = place_of.superexec()
    assert words[words.index("--runtime-api-address") + 1] == "127.0.0.1:9100"
    certificate = keys.load(place_of.certificates / "server.pem")
    assert keys.is_for(certificate, "hub.example")
    assert keys.is_for(certificate, "127.0.0.1")
