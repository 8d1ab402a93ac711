"""A run goes on by itself: whatever process dies, it is taken up again, its status is true and its exit code right."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from small_runs import ENVIRONMENT, PRIVATE, with_changes, write_config, write_npz

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from flower_deployment import PATIENCE, Deployed, deployed, in_order, in_process

pytestmark = pytest.mark.slow
ROUNDS = 5
STAR = with_changes(PRIVATE, {"algorithm": {"rounds": ROUNDS}, "privacy": {"budget": 100.0}})
AWAY = 100.0  # seconds; Flower gives up a run after 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return in_process(tmp_path_factory.mktemp("whole") / "star", STAR)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("runs"), STAR) as found:
        yield found


@pytest.fixture(autouse=True)
def no_run_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """End a run that a failed test left behind, or the next test could not begin one."""
    yield
    if "made" in request.fixturenames:
        found: Deployed = request.getfixturevalue("made")
        if not found.ended():
            found.command("stop").communicate(timeout=PATIENCE)


def pids(made: Deployed) -> dict[str, int]:
    """The processes of the coordinator and of a node, by name."""
    return {
        "supervisor": made.running["superlink"].pid,
        "superlink": made.child("superlink", "flower-superlink"),
        "superexec": made.child("superlink", "flower-superexec"),
        "serverapp": int(made.status()["pid"]),
        "node": made.child("node-1"),
    }


def began(made: Deployed, *words: str) -> Any:
    """Start a run by its command and wait for its first round."""
    made.place.status.unlink(missing_ok=True)
    process = made.command("run", "--timeout", str(PATIENCE), "--json", *words)

    def there() -> bool:
        assert process.poll() is None, process.communicate()
        return bool(made.status().get("round"))

    made.wait_for(there, "a round")
    return process


def ended_well(made: Deployed, process: Any, whole: str) -> None:
    """The command ended with 0 and the whole transcript, ledgers hold that and no more, and the status says so."""
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    assert "Traceback" not in err
    said = json.loads(out)
    assert (said["state"], said["transcript"], said["round"]) == ("finished", whole, ROUNDS)
    result = json.loads((Path(said["out"]) / "result.json").read_text())
    in_order(made, result, [ROUNDS] * 3)
    code, status = made.said("status")
    assert (code, status["state"], status["wanted"]) == (0, "finished", False)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL], ids=lambda sent: sent.name)
@pytest.mark.parametrize("who", ["superlink", "superexec", "serverapp", "node"])
def test_a_process_that_dies(who: str, sent: signal.Signals, made: Deployed, whole: str) -> None:
    process = began(made, "--out", f"runs/{who}-{sent.name}")
    os.kill(pids(made)[who], sent)
    ended_well(made, process, whole)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL], ids=lambda sent: sent.name)
def test_the_whole_coordinator_dies_and_is_started_again(sent: signal.Signals, made: Deployed, whole: str) -> None:
    """Nobody has to resume: starting `superlink` again is enough, and whoever watched the run sees its end."""
    process = began(made, "--out", f"runs/supervisor-{sent.name}")
    os.kill(made.running["superlink"].pid, sent)
    made.running.pop("superlink").wait(timeout=60)
    deadline = time.monotonic() + 60
    while (found := made.said("status"))[1]["state"] == "running" and time.monotonic() < deadline:
        time.sleep(0.5)
    made.superlink()
    assert (found[0], found[1]["state"], found[1]["wanted"]) == (1, "interrupted", True)
    ended_well(made, process, whole)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda sent: sent.name)
def test_who_watches_a_run_does_not_end_it(sent: signal.Signals, made: Deployed, whole: str) -> None:
    process = began(made, "--out", f"runs/watched-{sent.name}")
    os.kill(process.pid, sent)
    out, err = process.communicate(timeout=30)
    if sent is not signal.SIGKILL:
        assert process.returncode == 1
        assert json.loads(out)["state"] == "detached"
        assert "the run goes on" in err
    code, status = made.said("status")
    assert (code, status["state"]) == (0, "running")
    result = made.finish()
    assert result["transcript"] == whole
    in_order(made, result, [ROUNDS] * 3)


def test_a_superlink_that_is_away_for_longer_than_flower_waits(made: Deployed, whole: str) -> None:
    process = began(made, "--out", "runs/away")
    first = made.status()["run"]
    supervisor, superlink = (pids(made)[name] for name in ("supervisor", "superlink"))
    os.kill(supervisor, signal.SIGSTOP)  # so that nobody starts it again
    try:
        os.kill(superlink, signal.SIGKILL)
        time.sleep(AWAY)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    ended_well(made, process, whole)
    assert made.status()["run"] != first


def test_a_run_is_stopped_and_resumed(made: Deployed, whole: str) -> None:
    process = began(made, "--out", "runs/stopped")
    code, said = made.said("stop")
    assert (code, said["state"], said["exit_code"]) == (0, "stopped", 1)
    process.communicate(timeout=30)
    assert process.returncode == 1
    code, status = made.said("status")
    assert (code, status["state"], status["wanted"]) == (1, "stopped", False)
    code, said = made.said("stop")
    assert (code, said["error"]) == (1, "CheckpointError")
    code, said = made.said("run", "--out", "runs/stopped")
    assert (code, said["error"]) == (2, "ConfigError")
    ended_well(made, began(made, "--out", "runs/stopped", "--resume"), whole)
    events = [json.loads(line)["event"] for line in made.place.folder.joinpath("log").read_text().splitlines()]
    assert {"asked to stop", "stopped", "finished"} <= set(events)


def test_two_runs_at_once_are_refused(made: Deployed, whole: str) -> None:
    process = began(made, "--out", "runs/one")
    code, said = made.said("run", "--out", "runs/two")
    assert (code, said["error"]) == (1, "CheckpointError")
    assert "a run is going on in runs/one" in said["message"]
    ended_well(made, process, whole)


def test_a_run_that_a_budget_refuses(tmp_path: Path) -> None:
    """The parties' budget allows the job once: the command says so in one line, and ends with 3."""
    once = with_changes(PRIVATE, {"algorithm": {"rounds": 1}})
    with deployed(tmp_path, once) as found:
        assert found.said("run", "--timeout", "120")[0] == 0
        process = found.command("run", "--out", "runs/second", "--timeout", "120")
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (3, "")
        assert "refused: " in err.splitlines()[-1]
        assert "may spend epsilon = 1 in all" in err.splitlines()[-1]
        assert "Traceback" not in err
        code, status = found.said("status")
        assert (code, status["state"], status["error"]) == (3, "failed", "RefusedError")


def rehearsed(folder: Path, tables: Any) -> Any:
    """Start a rehearsal by its command."""
    write_npz(folder / "data.npz")
    config = write_config(folder / "config.toml", tables)
    line = [
        sys.executable,
        "-m",
        "privadmm",
        "federation",
        "rehearse",
        str(config),
        "--out",
        str(folder / "all"),
        "--json",
    ]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, stdout=pipe, stderr=pipe, env=ENVIRONMENT, text=True, start_new_session=True)


def left_behind(folder: Path) -> list[str]:
    """Processes of a rehearsal in this folder that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (
                str(folder) in (path / "environ").read_text()
                and "Z" not in (path / "stat").read_text().rpartition(")")[2]
            ):
                found.append((path / "cmdline").read_text().replace("\0", " "))
    return found


@pytest.mark.parametrize("mode", ["simulation", "deployment"])
def test_a_rehearsal(mode: str, tmp_path: Path) -> None:
    if mode == "deployment":
        pytest.importorskip("opendp")
    run = {"mode": "deployment", "seed": None, "ledger": "precious.sqlite"} if mode == "deployment" else {"seed": 1}
    process = rehearsed(tmp_path, with_changes(PRIVATE, {"algorithm": {"rounds": 2}, "run": run}))
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, out + err
    said = json.loads(out)
    assert (said["good"], said["ledgers_good"]) == (True, True)
    assert said["same_transcript"] is (True if mode == "simulation" else None)
    assert (said["letters"], said["repeats"]) == (3 * 4, 0)  # hello, begin and two rounds
    assert "first: running" in err
    assert not (tmp_path / "precious.sqlite").exists()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda sent: sent.name)
def test_a_rehearsal_that_is_interrupted_leaves_no_process(sent: signal.Signals, tmp_path: Path) -> None:
    process = rehearsed(tmp_path, with_changes(PRIVATE, {"algorithm": {"rounds": 50}}))
    status, deadline = tmp_path / "all/federation/coordinator/status.json", time.monotonic() + PATIENCE
    while not status.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert left_behind(tmp_path)
    process.send_signal(sent)
    process.communicate(timeout=60)
    assert process.returncode == 1
    deadline = time.monotonic() + 20
    while left_behind(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert left_behind(tmp_path) == []
