"""What an operator gets: units, compose files, a table of ports; health and metrics that tell public facts only."""

import configparser
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from federations import Backup, Federated, federated
from ledgers import begin, killed_at, opened, pay
from privadmm.deploy.federation.hub.supervisor import free_ports
from small_runs import ENVIRONMENT, PRIVATE, Place, free_port

pytest.importorskip("cryptography")
from privadmm.deploy.federation.hub.running import Registrar, marked, running
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.setup import health, kit
from privadmm.errors import ConfigError

SECRET = "the mean of the records is 0.123"


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    return federated(tmp_path, PRIVATE, free_ports(4))


@pytest.fixture
def port() -> int:
    return free_port()


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string("\n".join(line for line in path.read_text().splitlines() if not line.startswith("#")))
    return parser


def units(made: Federated) -> list[Path]:
    folders = [made.made.coordinator.folder, *made.folders]
    return [path for folder in folders for path in (folder / "kit").glob("*.service")]


def test_units_have_few_rights(made: Federated) -> None:
    assert len(units(made)) == 4
    for path in units(made):
        service = unit(path)["Service"]
        folder = str(path.parent.parent)
        assert service["ExecStart"].endswith(folder)
        assert service["ReadWritePaths"] == folder
        assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
        assert (service["Restart"], service["CapabilityBoundingSet"]) == ("on-failure", "")
        assert service["User"] != "root"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units(made: Federated) -> None:
    for path in (units(made)[0], units(made)[1]):
        done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    broken = units(made)[0].parent / "privadmm-broken.service"
    broken.write_text(units(made)[0].read_text().replace("ProtectSystem=strict", "ProtectSystem=stricter"))
    done = subprocess.run(["systemd-analyze", "verify", str(broken)], capture_output=True, text=True, check=False)
    assert "stricter" in done.stderr


def test_words_of_a_unit_are_quoted() -> None:
    assert kit.quoted("/srv/party-0") == "/srv/party-0"
    assert kit.quoted("/srv/St. Mary/50%/$HOME") == '"/srv/St. Mary/50%%/$$HOME"'
    assert "\n" not in kit.escaped("two\nlines")


def test_compose_files_parse(made: Federated, tmp_path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    outside = made.folders[0].rename(tmp_path / "St. $Mary")
    (outside / "data.npz").rename(tmp_path / "data.npz")
    path = outside / "party.toml"
    path.write_text(path.read_text().replace('"data.npz"', json.dumps(str(tmp_path / "data.npz"))))
    kit.for_party(read_party(outside))
    for folder, name in ((outside, "node"), (made.made.coordinator.folder, "superlink")):
        found = yaml.safe_load((folder / "kit" / "compose.yaml").read_text())
        service = found["services"][name]
        assert service["command"][:2] == ["federation", name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["volumes"][0]["source"] == str(folder).replace("$", "$$")
        assert ("ports" in service) == (name == "superlink")
        assert service["logging"]["options"]["max-file"] == "5"
        assert (folder / "kit" / "Dockerfile").read_text().count("USER ") == 1
    mounted = yaml.safe_load((outside / "kit" / "compose.yaml").read_text())["services"]["node"]["volumes"]
    assert mounted[1] == {
        "type": "bind",
        "source": str(tmp_path / "data.npz"),
        "target": str(tmp_path / "data.npz"),
        "read_only": True,
    }


def test_ports_are_told(made: Federated) -> None:
    first = made.made.coordinator.address[1]
    assert f"127.0.0.1:{first + 1}" in (made.folders[0] / "kit" / "PORTS.md").read_text()
    assert f"| the SuperLink | 127.0.0.1:{first}" in (made.made.coordinator.folder / "kit" / "PORTS.md").read_text()


def asked(port: int, path: str = "/healthz") -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            body = error.read()
            return error.code, json.loads(body) if path == "/healthz" else body


@pytest.fixture
def listening(made: Federated) -> Iterator[None]:
    """Ports of the SuperLink and of party 0 that are listened at."""
    first = made.made.coordinator.address[1]
    with socket.create_server(("127.0.0.1", first)), socket.create_server(("127.0.0.1", first + 1)):
        yield


def beat(ago: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()


@pytest.mark.parametrize(("ago", "code"), [(1.0, 200), (120.0, 503)])
def test_health_of_a_coordinator(made: Federated, port: int, listening: None, ago: float, code: int) -> None:
    place = made.made.coordinator
    parties = [{"party": 0, "name": "St. Mary", "state": "answered", "epsilon_left": 0.5}]
    status = {"run": "7", "state": "running", "round": 3, "rounds": 6, "beat": beat(ago), "message": SECRET}
    place.status.write_text(json.dumps({**status, "parties": parties, "waiting_for": ["party 1"], "out": "/srv/x"}))
    server = health.serve(port, lambda: health.of_coordinator(place))
    try:
        found, facts = asked(port)
        assert (found, facts["run"]["round"], facts["run"]["waiting_for"]) == (code, 3, ["party 1"])
        assert facts["certificate"]["file"] == "server.pem"
        assert SECRET not in json.dumps(facts)
        assert asked(port, "/")[0] == 404
        assert server.server_address[0] == "127.0.0.1"
    finally:
        server.shutdown()
        server.server_close()


def test_health_copes_without_a_run(made: Federated) -> None:
    place = made.made.coordinator
    for text in (None, "{", "[]", '{"state": 3, "parties": "x", "waiting_for": 7, "beat": []}'):
        if text is not None:
            place.status.write_text(text)
        facts = health.of_coordinator(place)
        assert (facts["healthy"], facts["listening"]) == (False, False)
        assert "privadmm_healthy 0" in health.as_metrics(facts)


def test_health_of_a_party_tells_no_reason_and_no_time(made: Federated, listening: None) -> None:
    party = read_party(made.folders[0])
    made.run()
    with (party.folder / "requests.log").open("a") as log:
        line = {"at": beat(5), "kind": "step", "round": 3, "outcome": "locked", "why": SECRET, "seconds": 1.25}
        log.write(json.dumps(line | {"epsilon_spent": 0.25, "epsilon_left": 0.75}) + "\n")
        log.write(json.dumps({"at": beat(1), "kind": "notice", "why": SECRET}) + "\n")
    facts = health.of_party(party)
    assert (facts["listening"], facts["locked"], facts["healthy"]) == (True, False, True)
    text = json.dumps(facts) + health.as_metrics(facts)
    assert SECRET not in text
    assert "1.25" not in text
    assert "privadmm_epsilon_left 0.75" in text
    assert "privadmm_ledger_locked 0" in text


def test_health_says_whether_the_ledger_is_locked_and_not_the_last_letter(made: Federated) -> None:
    party = read_party(made.folders[0])
    ledger, beside = party.ledger, Path(f"{party.ledger}-anchor")

    def is_locked() -> bool:
        before = ledger.read_bytes() if ledger.exists() else b""
        found = health.of_party(party)["locked"]
        assert (ledger.read_bytes() if ledger.exists() else b"") == before
        return bool(found)

    assert not is_locked()  # it was never used
    old = Backup.of(ledger, with_anchor=False)
    made.run()
    assert not is_locked()
    now = Backup.of(ledger)
    old.put_back()
    assert is_locked()
    now.put_back()
    assert not is_locked()
    beside.unlink()
    assert is_locked()
    now.put_back()
    ledger.unlink()
    assert is_locked()
    beside.unlink()
    assert not is_locked()  # there is none


def test_health_of_a_step_that_failed_or_was_killed(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    begin(path)
    assert not health.locked(path)
    assert killed_at(lambda: pay(path, 0, read=lambda: os.kill(os.getpid(), signal.SIGKILL)), 10**6)
    assert health.locked(path)  # nobody has put it on record yet
    with closing(opened(path)) as ledger:
        ledger.settle()
        assert health.locked(path)
        ledger.unlock("the test killed it")
    assert not health.locked(path)


def test_a_textfile_is_written_and_kept(made: Federated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "EVERY", 0.02)
    place, path = made.made.coordinator, tmp_path / "privadmm.prom"
    health.export(path, lambda: health.of_coordinator(place))
    names = [line.split("{")[0].split(" ")[0] for line in path.read_text().splitlines() if line[0] != "#"]
    assert {"privadmm_info", "privadmm_healthy", "privadmm_certificate_expiry_timestamp_seconds"} <= set(names)
    place.status.write_text(json.dumps({"state": "finished", "round": 6, "rounds": 6}))
    deadline = time.monotonic() + 10
    while 'privadmm_run_state{state="finished"} 1' not in path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(ConfigError, match=r"has to end in \.prom"):
        health.export(tmp_path / "metrics.txt", lambda: {})


def test_a_health_port_that_is_taken(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ConfigError, match="cannot be listened at"):
        health.serve(port, lambda: {})


def test_labels_are_escaped() -> None:
    line = health.as_metrics(
        {"role": 'a"b\\c\n', "version": "1", "healthy": True, "listening": True, "disk_free": 1, "last": None}
    )
    assert 'privadmm_info{role="a\\"b\\\\c\\n",version="1"} 1' in line


def test_one_process_for_one_directory(tmp_path: Path) -> None:
    assert running(tmp_path) is None
    with marked(tmp_path):
        found = running(tmp_path)
        assert found is not None
        assert found["pid"] > 0
        with pytest.raises(ConfigError, match="runs already"), marked(tmp_path):
            pass
    assert running(tmp_path) is None


def test_keys_are_looked_at_when_they_change(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def ran(words: list[str], **_: Any) -> Any:
        calls.append(words[-1])
        code = 0 if len(calls) > 1 else 1  # the first time nobody answers
        return subprocess.CompletedProcess(words, code, '{"registered": ["party-0"]}\n', "no SuperLink answers\n")

    monkeypatch.setattr("privadmm.deploy.federation.hub.running.subprocess.run", ran)
    look = Registrar(made.made.coordinator, {}).look
    look()
    assert calls == []  # nobody listens
    with socket.create_server(made.made.coordinator.address):
        for _ in range(4):
            look()
        assert len(calls) == 2
        (made.made.coordinator.keys / "party-2.pub").touch()
        look()
        assert len(calls) == 3


def test_a_letter_is_answered_without_any_of_this(tmp_path: Path) -> None:
    """What a party's process imports for one letter has nothing of setting up or watching."""
    pytest.importorskip("flwr")
    code = "import privadmm.deploy.flower.client, sys; print(*sorted(sys.modules))"
    environment = {**ENVIRONMENT, "FLWR_HOME": str(tmp_path), "FLWR_TELEMETRY_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "privadmm.deploy.federation.desk.party_server" in loaded
    others = ("doctor", "health", "invitation", "joining", "kit", "membership", "pinning", "running", "symptoms")
    assert not loaded & {f"privadmm.deploy.federation.{name}" for name in others}
    assert "http.server" not in loaded


def test_the_commands_take_the_options(place: Place) -> None:
    said = place.call("federation", "node", "--help").out + place.call("federation", "superlink", "--help").out
    assert said.count("--health") >= 2
    assert said.count("--metrics") >= 2
