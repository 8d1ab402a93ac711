"""A real federation on loopback: a SuperLink and a node for each party, with TLS and node authentication."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from federations import Federated, federated, only_releases
from privadmm.config.file import read
from privadmm.deploy.federation.hub.supervisor import free_ports
from privadmm.deploy.federation.layout import NAME, Coordinator, node, node_environment
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.protocol import Letter
from privadmm.privacy.ledger_file import connect, unpack_charges
from privadmm.privacy.verification import verify
from privadmm.runs.run import run
from privadmm.runs.rundir import receipts_of
from small_runs import ENVIRONMENT, Tables, no_plots, write_config, write_npz

PATIENCE = 180.0  # seconds for anything; a loaded machine is slow
# Like the node's own command that answers letters; it also writes what goes in and out beside the party's files.
CAPTURING = """#!{python}
import os, pickle, time
import flwr.common.constant as constant
import privadmm

constant.HEARTBEAT_DEFAULT_INTERVAL = {seconds}  # as at its node, which would not wait for slower ones

privadmm.__version__ = os.environ.get("PLANTED_VERSION", privadmm.__version__)
from privadmm.deploy.flower import client, pinned

plain = client.answer

def answer(folder, letter):
    said = plain(folder, letter)
    place = folder / "captured"
    path = place / f"{{time.time_ns()}}.pickle"
    try:
        place.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps((letter, said)))
    except OSError:  # its disk is full
        path.unlink(missing_ok=True)
    return said

client.answer = answer
{fault}
pinned.executor()
"""
# A party that is slow or fails after its records were read, or whose process dies there, as long as the file says so.
FAULT = """
import os, signal, time
from pathlib import Path
from privadmm.engine.phases import Local

plain_gradient = Local.gradient

def gradient(self, x):
    for act in Path({file!r}).read_text().split() if Path({file!r}).exists() else ():
        if act == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        if act == "slow":
            time.sleep(4.0)
            continue
        raise ZeroDivisionError("the mean of the records is 0.123")
    return plain_gradient(self, x)

Local.gradient = gradient
"""
# A process that takes its task and ends once, by the signal that the file names, before it reads its letter.
UNREAD = """
import os, signal, time
from pathlib import Path

runtime = pinned.client_runtime()
plain_input = runtime.pull_task_input

def pull_task_input(client):
    unread = Path({file!r})
    if unread.exists():
        how = getattr(signal, unread.read_text())
        client.PullTaskInput(runtime.PullTaskInputRequest())
        unread.unlink()
        os.kill(os.getpid(), how)
        time.sleep(60)
    return plain_input(client)

runtime.pull_task_input = pull_task_input
"""

# Flower's node with heartbeats of another pace: one that was killed is taken back when two of them have run out.
BEATING = """#!{python}
import flwr.common.constant as constant

constant.HEARTBEAT_DEFAULT_INTERVAL = {seconds}
from privadmm.deploy.flower.pinned import node

node()
"""
FLOWERS, BRISK = 30, 10  # seconds between heartbeats: Flower's own, and the fewest that it takes
KEPT_UP = (
    "import os, sys; from privadmm.deploy.federation.hub.supervisor import keep_up; keep_up([sys.argv[1:]], os.environ)"
)


@dataclass
class Deployed:
    """A federation whose processes run."""

    federated: Federated
    port: int
    pinned: bool = True  # the SuperLink runs the coordinator's own app only
    heartbeat: int = BRISK
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def place(self) -> Coordinator:
        return self.federated.made.coordinator

    @property
    def logs(self) -> Path:
        return self.place.folder.parent

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(Path(sys.executable).parent), ENVIRONMENT.get("PATH", "")])
        return {**ENVIRONMENT, **self.place.environment, "PATH": path}

    def start(self, name: str, words: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                words,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        return self.running[name]

    def superlink(self) -> None:
        """Start the SuperLink: by its command, or without its protection, with a process that runs any ServerApp."""
        if self.pinned:
            own = [sys.executable, "-m", "privadmm", "federation", "superlink", str(self.place.folder)]
            self.start("superlink", own, self.environment)
        else:
            self.start("superlink", self.place.superlink("127.0.0.1"), self.environment)
            if "superexec" not in self.running:
                self.start("superexec", self.place.superexec(), self.environment)
        self.wait_for(lambda: listens(self.port), "the SuperLink")

    def register(self) -> None:
        """Have all keys registered at once; `privadmm federation superlink` would do so within seconds."""
        from privadmm.deploy.flower.registry import agree

        agree(self.place)

    def node(self, number: int, **more: str) -> None:
        """Start a party's node, with more in its environment; its requests and answers are captured."""
        party = read_party(self.federated.folders[number])
        environment = {**ENVIRONMENT, **node_environment(party), **more}
        fault = FAULT.format(file=str(party.folder / "fault"))
        fault += UNREAD.format(file=str(party.folder / "unread"))
        script = CAPTURING.format(python=sys.executable, fault=fault, seconds=self.heartbeat)
        (party.folder / "bin" / "flower-superexec").write_text(script)
        beating = party.folder / "bin" / "flower-supernode"
        beating.write_text(BEATING.format(python=sys.executable, seconds=self.heartbeat))
        beating.chmod(0o755)
        self.start(f"node-{number}", [sys.executable, "-c", KEPT_UP, *node(party)], environment)

    def run(self, **config: Any) -> None:
        self.place.status.unlink(missing_ok=True)
        options = [f"--run-config={key}={json.dumps(value)}" for key, value in {"timeout": PATIENCE, **config}.items()]
        words = ["flwr", "run", str(self.place.app), NAME, *options]
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def command(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command of the coordinator's: run, status, stop or logs."""
        line = [sys.executable, "-m", "privadmm", "federation", words[0], str(self.place.folder), *words[1:]]
        pipe = subprocess.PIPE
        return subprocess.Popen(line, stdout=pipe, stderr=pipe, env=ENVIRONMENT, text=True, start_new_session=True)

    def said(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Exit code and JSON of a command that ends."""
        process = self.command(*words, "--json")
        out, err = process.communicate(timeout=PATIENCE)
        assert "Traceback" not in err, err
        return process.returncode, json.loads(out)

    def status(self) -> dict[str, Any]:
        try:
            found = json.loads(self.place.status.read_text())
        except FileNotFoundError:
            return {}
        assert isinstance(found, dict)
        return found

    def at(self, line: str) -> bool:
        return self.ended() or self.status().get("at") == line

    def ended(self) -> bool:
        return self.status().get("state") in ("finished", "failed", "stopped")

    def finish(self) -> dict[str, Any]:
        """Wait for the result."""
        self.wait_for(self.ended, "the end of the run")
        status = self.status()
        assert status["state"] == "finished", status
        found = json.loads((Path(status["out"]) / "result.json").read_text())
        assert isinstance(found, dict)
        return found

    def wait_for(self, done: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            dead = [name for name, process in self.running.items() if process.poll() is not None]
            assert not dead, f"{dead}: {self.tail(dead[0])}"
            assert time.monotonic() < deadline, f"{what} did not come: {self.tail('superlink')}"
            time.sleep(0.1)

    def tail(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text()[-2000:]

    def child(self, name: str, which: str = "") -> int:
        """Id of a supervisor's child process; `which` is a word of its command, if there are several."""
        found = {}
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
                found[int(path.name)] = int(parent), (path / "cmdline").read_text().replace("\0", " ")
        mine = {pid: words for pid, (parent, words) in found.items() if parent == self.running[name].pid}
        pids = [pid for pid, words in mine.items() if which in words]
        assert pids, f"{name} has no process {which}: {mine}"
        return pids[0]

    def kill(self, name: str) -> None:
        """Kill a process and all that it started."""
        process = self.running.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        names = [*(name for name in self.running if name != "superlink"), "superlink"]
        for name in names:
            if name in self.running:
                with suppress(ProcessLookupError):
                    os.killpg(self.running[name].pid, signal.SIGKILL)
        for process in self.running.values():
            process.wait()
        self.running.clear()

    def captured(self, number: int) -> list[tuple[Letter, Letter]]:
        """What the party was asked and answered, in order."""
        files = sorted((self.federated.folders[number] / "captured").glob("*.pickle"))
        return [pickle.loads(file.read_bytes()) for file in files]


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@contextmanager
def deployed(folder: Path, tables: Tables, pinned: bool = True, heartbeat: int = BRISK) -> Iterator[Deployed]:
    """All processes up, every key registered; none is left behind."""
    port = free_ports(5)
    made = Deployed(federated(folder, tables, port), port, pinned, heartbeat)
    try:
        made.superlink()
        made.register()
        for number in range(len(made.federated.folders)):
            made.node(number)
        yield made
    finally:
        made.stop()


def party(made: Deployed, number: int) -> Party:
    return read_party(made.federated.folders[number])


def in_process(folder: Path, tables: dict[str, Any]) -> str:
    folder.mkdir()
    write_npz(folder / "data.npz")
    with pytest.MonkeyPatch.context() as patch:
        no_plots(patch)
        done = run(read(write_config(folder / "config.toml", tables)), folder / "whole")
    return str(done.result["transcript"])


def job_of(out: Path) -> str:
    return str(json.loads((out / "job.json").read_text())["job"])


def paid(ledger: Path, job: str) -> int:
    """How many releases of this job are in a ledger."""
    db = connect(ledger, read_only=True)
    try:
        found = db.execute("SELECT charges FROM ticks WHERE kind = 'tick' AND job = ?", (job,)).fetchall()
    finally:
        db.close()
    return sum(count for (text,) in found for charge in unpack_charges(text).values() for _, count in charge)


def in_order(made: Deployed, result: dict[str, Any], counts: list[int]) -> None:
    """Check that ledgers verify, hold what the run received, have so many releases, and that nothing else left."""
    out = Path(result["out"])
    for number, ledger in enumerate(made.federated.ledgers):
        assert verify(ledger, receipts_of(out, ledger)).problems == ()
        assert paid(ledger, job_of(out)) == counts[number]
        assert made.captured(number)
        only_releases(ledger, [said for _, said in made.captured(number)])
