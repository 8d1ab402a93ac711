"""A node answers each letter in a process of its own that was forked: nothing of one letter is in another."""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from privadmm.deploy.federation.layout import CLIENT, EXECUTOR, pinned
from privadmm.deploy.flower import forking
from small_runs import alive

# In a Python of its own, as a node's SuperExec is: two letters that draw secure noise.
NOISE = """
import os, sys
from types import SimpleNamespace
from privadmm.deploy.flower import forking, pinned

pinned.client_runtime()
loaded = "opendp" in sys.modules

def run(token, **_):
    from privadmm.privacy.mechanisms import Deployment
    drawn = Deployment().shares((1, 8), 1e9, None, None).tolist()
    print(os.getpid(), loaded, *drawn[0], flush=True)

class Executor:
    launch = reconcile = None

forking.fork_for_letters(SimpleNamespace(run_clientapp=run), Executor, "flwr-clientapp")
for token in ("one", "two"):
    Executor().launch(SimpleNamespace(task_type="flwr-clientapp", token=token, runtime_api_address="", insecure=True,
                                      root_certificates_path=None, parent_pid=None))
    os.wait()
"""


# A SuperExec that forks for one letter and waits. Whoever reads what it prints kills it.
PARENT = """
import os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from flwr.app import ConfigRecord, Context, RecordDict
from flwr.supercore.app_utils import start_parent_process_monitor
from flwr.supercore.exit import register_signal_handlers
from flwr.supercore.telemetry import EventType
from privadmm.deploy.federation.hub import supervisor
from privadmm.deploy.flower import client, forking, pinned

what, place = sys.argv[1], Path(sys.argv[2])

def step(folder, letter):
    (place / "begun").touch()
    time.sleep(1.0)
    (place / "committed").touch()
    return {"status": "ok"}

def run(parent_pid, **_):
    print(os.getpid(), flush=True)
    start_parent_process_monitor(parent_pid)
    register_signal_handlers(event_type=EventType.PING)
    if what == "steps":
        client.answer = step
        letter = SimpleNamespace(content=RecordDict({client.LETTER: ConfigRecord({"kind": "step"})}))
        client.query(letter, Context(1, 1, {"party": "."}, RecordDict(), {}))
    time.sleep(300)  # Flower asks a node that is gone, again and again

def late(*words):
    print(os.getpid(), flush=True)
    while os.getppid() == parent:
        time.sleep(0.02)
    return known(*words)

parent, known = os.getpid(), supervisor.PRCTL
if what == "late":  # it is gone before the fork has asked to end with it
    supervisor.PRCTL = late

class Executor:
    launch = reconcile = None

forking.fork_for_letters(SimpleNamespace(run_clientapp=run), Executor, "flwr-clientapp")
Executor().launch(SimpleNamespace(task_type="flwr-clientapp", token="", runtime_api_address="", insecure=True,
                                  root_certificates_path=None, parent_pid=os.getpid()))
time.sleep(300)
"""


class Executor:
    """In place of Flower's."""

    def __init__(self) -> None:
        self.anew: list[Any] = []

    def launch(self, spec: Any) -> str:
        self.anew.append(spec)
        return "anew"

    def reconcile(self) -> None: ...


def prepared(run: Any) -> Executor:
    kind: Any = type("Known", (Executor,), {"launch": Executor.launch, "reconcile": Executor.reconcile})
    forking.fork_for_letters(SimpleNamespace(run_clientapp=run), kind, CLIENT)  # type: ignore[arg-type]
    made: Executor = kind()
    return made


def letter(token: str, kind: str = CLIENT) -> Any:
    return SimpleNamespace(
        task_type=kind,
        token=token,
        runtime_api_address="127.0.0.1:1",
        insecure=True,
        root_certificates_path=None,
        parent_pid=os.getpid(),
    )


def waited(path: Path) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    found = json.loads(path.read_text())
    assert isinstance(found, dict)
    return found


@pytest.fixture(autouse=True)
def without_opendp(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a node, whose SuperExec draws no noise; another test of this process may have."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "opendp"]:
        monkeypatch.delitem(sys.modules, name)


def test_forks_draw_nothing_twice(tmp_path: Path) -> None:
    from random import random

    def run(**options: Any) -> None:
        signals = [signal.getsignal(number) for number in forking.SIGNALS]
        drawn = {"random": random(), "secret": secrets.token_hex(16), "pid": os.getpid()}
        drawn["signals"] = signals == [signal.default_int_handler, signal.SIG_DFL, signal.SIG_DFL]
        fresh = tmp_path / f"{options['token']}.new"
        fresh.write_text(json.dumps(drawn))
        fresh.rename(tmp_path / options["token"])
        sys.exit(3)

    made = prepared(run)
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        for token in ("one", "two"):
            made.launch(letter(token))
        one, two = waited(tmp_path / "one"), waited(tmp_path / "two")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len({one["pid"], two["pid"], os.getpid()}) == 3
    assert one["random"] != two["random"]
    assert one["secret"] != two["secret"]
    assert one["signals"]
    assert made.anew == []
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in (one["pid"], two["pid"])):
        made.reconcile()
        assert time.monotonic() < deadline, "no process is left behind"
        time.sleep(0.02)


def test_secure_noise_of_two_letters_differs() -> None:
    pytest.importorskip("opendp")
    done = subprocess.run([sys.executable, "-c", NOISE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    one, two = (line.split() for line in done.stdout.splitlines())
    assert one[0] != two[0]
    assert (one[1], two[1]) == ("False", "False")  # what answers letters does not load the generator before they come
    assert len(set(one[2:] + two[2:])) == 16


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux ends a process with its parent")
@pytest.mark.parametrize("what", ["waits", "late", "steps"])
def test_a_letter_ends_with_its_node(what: str, tmp_path: Path) -> None:
    """Nobody waits for the dead node here, so its number stays taken. A step that is under way ends first."""
    line = [sys.executable, "-c", PARENT, what, str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child, began = int(parent.stdout.readline()), time.monotonic()
        while what == "steps" and not (tmp_path / "begun").exists() and time.monotonic() < began + 60:
            time.sleep(0.02)
        parent.kill()
        deadline = time.monotonic() + 10
        while alive(child) and status_of(child) != "Z":
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                raise AssertionError("the letter outlived its node")
            time.sleep(0.02)
    assert (tmp_path / "committed").exists() == (what == "steps")


def status_of(pid: int) -> str:
    """The letter with which Linux says how a process is: Z for a dead one that nobody waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


def test_when_a_new_python_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a generator of noise is loaded already, another privadmm was installed, or another app is asked for."""
    made = prepared(lambda **_: os._exit(9))
    assert made.launch(letter("other", "flwr-agentapp")) == "anew"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "opendp", sys)
        assert made.launch(letter("noise")) == "anew"
    monkeypatch.setattr(forking, "stamp", lambda: (1, 2))
    assert made.launch(letter("upgraded")) == "anew"


def test_only_a_node_has_it(tmp_path: Path) -> None:
    (tmp_path / "party").mkdir()
    pinned(tmp_path / "party", CLIENT)
    assert "import executor\n" in (tmp_path / "party" / "bin" / EXECUTOR).read_text()
    (tmp_path / "coordinator").mkdir()
    pinned(tmp_path / "coordinator", "flwr-serverapp")
    assert "import coordinators_executor\n" in (tmp_path / "coordinator" / "bin" / EXECUTOR).read_text()
