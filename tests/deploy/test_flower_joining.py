"""Three organisations with real processes: nodes that are not let in yet go on trying, and are let in when admitted."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from federations import OWN_FILES, own_csv, public_half
from flower_deployment import PATIENCE
from privadmm.deploy.federation.hub.supervisor import free_ports
from small_runs import ENVIRONMENT

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from privadmm.deploy.federation import keys
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.flower.registry import known

pytestmark = pytest.mark.slow
# The command line with a supervisor that gives up soon, unless it never does.
HASTY = """
import sys
from privadmm.deploy.federation.hub import supervisor
supervisor.TRIES, supervisor.PAUSE = 2, 1.0
from privadmm.cli import main
main(sys.argv[1:])
"""
COUNT = 3


class Town:
    """Organisations in folders of their own, and the processes that they started."""

    def __init__(self, root: Path) -> None:
        self.root, self.port = root, free_ports(8)
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        (root / "config.toml").write_text(OWN_FILES.format(count=COUNT, more=""))
        self.call("init", root / "config.toml", "--out", root / "hub", "--port", self.port)
        self.place = Coordinator(root / "hub" / "coordinator")

    def call(self, *words: Any) -> dict[str, Any]:
        line = [sys.executable, "-m", "privadmm", "federation", *map(str, words), "--json"]
        done = subprocess.run(
            line, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE, check=False, cwd=self.root
        )
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found | {"code": done.returncode}

    def own(self, number: int) -> Path:
        return self.root / f"party-{number}"

    def start(self, name: str, *words: Any) -> None:
        line = [sys.executable, "-c", HASTY, "federation", *map(str, words)]
        with (self.root / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                line, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=ENVIRONMENT, start_new_session=True
            )

    def log(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text()

    def wait(self, done: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} ended: {self.log(name)[-2000:]}"
            assert time.monotonic() < deadline, f"{what} did not come"
            time.sleep(0.2)

    def online(self) -> set[int]:
        return {number for number, one in known(self.place).items() if one is not None and one.status == "online"}

    def health(self, port: int) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def stop(self) -> list[int]:
        for process in self.running.values():
            process.send_signal(signal.SIGTERM)
        return [process.wait(timeout=60) for process in self.running.values()]

    def kill(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    try:
        yield made
    finally:
        made.kill()


def test_a_node_that_is_not_let_in_goes_on_trying(town: Town) -> None:
    place, again = town.place, "is started again"
    for number in range(COUNT):
        data = own_csv(town.root / f"data-{number}.csv", 10 + number, seed=number)
        invitation = place.invitations / f"party-{number}.toml"
        joined = town.call("join", invitation, "--out", town.own(number), "--records", data, "--yes")
        assert joined["ledger"]
    town.start("superlink", "superlink", place.folder, "--health", town.port + 6)
    for number in range(COUNT):
        more = ("--health", town.port + 5, "--metrics", town.root / "node.prom") if number == 0 else ()
        town.start(f"node-{number}", "node", town.own(number), *more)
    # Nobody is admitted: more ends than the supervisor's patience, and none gives up.
    town.wait(lambda: all(town.log(f"node-{n}").count(again) > 3 for n in range(COUNT)), "three refusals each")
    fingerprint = keys.fingerprint(public_half(town.own(0) / "node-key"))
    assert f"its key {fingerprint} is not admitted yet" in town.log("node-0")

    town.call("admit", town.root / "hub", *(town.own(number) / "reply.toml" for number in range(COUNT)), "--yes")
    town.wait(lambda: town.online() == {0, 1, 2}, "all nodes")
    assert town.health(town.port + 5)[0] == town.health(town.port + 6)[0] == 200
    town.wait(lambda: "privadmm_healthy 1" in (town.root / "node.prom").read_text(), "the next textfile")
    checked = town.call("check", place.folder)
    found = {one["what"]: one for one in checked["checked"][str(place.folder)]}
    assert found["registered"]["said"] == "connected now: party 0, party 1, party 2"
    assert "is taken by its own process" in found["port"]["said"]
    assert checked["code"] == 0, [one for one in found.values() if one["state"] == "bad"]
    own = town.call("check", town.own(1))
    findings = {one["what"]: one for one in own["checked"][str(town.own(1))]}
    assert (own["code"], findings["SuperLink"]["state"], findings["clock"]["state"]) == (0, "good", "good")

    # A key is taken back while the node runs: it is not let in, and goes on trying; another key is.
    before = town.log("node-2").count(again)
    town.call("withdraw", place.folder, 2, "--yes")
    town.wait(lambda: town.log("node-2").count(again) > before + 2, "refusals of a key that was taken back")
    assert town.online() == {0, 1}
    assert town.call("add", place.folder)["party"] == 2
    assert town.call("rotate", town.own(2))["fingerprint"]
    town.call("admit", place.folder, town.own(2) / "reply.toml", "--yes")
    town.wait(lambda: town.online() == {0, 1, 2}, "the node with its new key")
    assert town.stop() == [0] * 4


def test_a_superlink_registers_what_it_finds(town: Town) -> None:
    """Keys that were admitted before it started, and after that without asking it."""
    place = town.place
    for number in range(2):
        data = own_csv(town.root / f"data-{number}.csv", 10, seed=number)
        invitation = place.invitations / f"party-{number}.toml"
        assert town.call("join", invitation, "--out", town.own(number), "--records", data, "--yes")["code"] == 0
    town.call("admit", place.folder, town.own(0) / "reply.toml", "--yes")
    town.start("superlink", "superlink", place.folder)
    town.wait(lambda: "registered party-0" in town.log("superlink"), "the first key")
    (place.keys / "party-1.pub").write_bytes(public_half(town.own(1) / "node-key"))
    town.wait(lambda: "registered party-1" in town.log("superlink"), "the second key")
    assert {number for number, one in known(place).items() if one is not None} == {0, 1}
    for fault in ("already in use", "retrying"):
        assert fault not in town.log("superlink")
    assert town.stop() == [0]
