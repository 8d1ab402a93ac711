"""DP-ADMM over three Flower nodes: a round of the engine against a bare exchange of the same bytes, in the same run.

    python benchmarks/flower_overhead.py [--json] [--quick]

One SuperLink, six nodes: three parties, started as `privadmm federation node` does, and three bare ones, which run a
ClientApp that answers at once in as many bytes, by Flower's own command. One run asks the two in turns, some rounds
each, since machines are noisy. What both pay: nodes look for messages every three seconds and start a process for each.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config.file import read
from privadmm.deploy.federation.init import init
from privadmm.deploy.federation.keys import make_node_key
from privadmm.deploy.federation.layout import Coordinator, node, node_environment

PARTIES, RECORDS, DIM = 3, 400, 100
GOAL = 1.15
CONFIG = """
[data]
source = "data.npz"
classes = [-1, 1]
row_bound = 1.0
test_fraction = 0.0
[parties]
count = PARTIES
[algorithm]
name = "dp_admm"
rounds = ROUNDS
D_w = 30.0
rho = 0.1
[privacy]
epsilon = 1.0
delta = 1e-6
[run]
seed = 0
"""
APP = """[project]
name = "overhead"
version = "1.0.0"
description = "A round against a bare exchange"
license = "MIT"
dependencies = []
[tool.flwr.app]
publisher = "privadmm"
[tool.flwr.app.components]
serverapp = "overhead:app"
clientapp = "overhead:echo"
[tool.flwr.app.config]
coordinator = {coordinator}
out = {out}
block = {block}
nodes = {nodes}
"""
OVERHEAD = '''"""Both sides of the bare exchange, and a run that alternates between it and the engine."""
import json
import time
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

app = ServerApp()
echo = ClientApp()


@echo.query()
def answer(message, context):
    asked = message.content["letter"]
    said = {"status": "echo", "mail": bytes(asked.get("back", 0)), "receipt": "0" * 64}
    return Message(RecordDict({"letter": ConfigRecord(said)}), reply_to=message)


@app.main()
def main(grid, context):
    from privadmm.config.file import read
    from privadmm.deploy.flower.post import FlowerPost
    from privadmm.deploy.federation.coordinator import Patience
    from privadmm.deploy.federation.layout import Coordinator
    from privadmm.runs.federated import Asked, federate

    place, block = Coordinator(Path(context.run_config["coordinator"])), context.run_config["block"]
    deadline = time.monotonic() + 300
    post = FlowerPost(grid)
    while len(post.nodes()) < context.run_config["nodes"] and time.monotonic() < deadline:
        time.sleep(0.5)
    hello = post.exchange({node: {"kind": "hello", "text": ""} for node in post.nodes()}, 300)
    bare = [node for node, said in hello.items() if said["status"] == "echo"]
    times = {"round": [], "bare": []}

    class Alternating(FlowerPost):
        def nodes(self):
            return [node for node in hello if node not in bare]

        def exchange(self, letters, seconds):
            kinds = {letter["kind"] for letter in letters.values()}
            began = time.monotonic()
            said = super().exchange(letters, seconds)
            if kinds != {"step"}:
                return said
            times["round"].append(time.monotonic() - began)
            if len(times["round"]) % block == 0:
                size = len(next(iter(said.values()))["mail"])
                for _ in range(block):
                    same = {node: {**next(iter(letters.values())), "back": size} for node in bare}
                    began = time.monotonic()
                    super().exchange(same, seconds)
                    times["bare"].append(time.monotonic() - began)
            return said

    federate(read(place.job), Alternating(grid), Asked(place.folder / "runs/first", place, False, Patience(300.0)))
    Path(context.run_config["out"]).write_text(json.dumps(times))
'''


def free_ports(count: int) -> int:
    for first in range(20000 + os.getpid() % 20000, 60000, count):
        with suppress(OSError):
            held = [socket.create_server(("127.0.0.1", first + one)) for one in range(count)]
            for one in held:
                one.close()
            return first
    raise SystemExit("no free ports")


def measured(folder: Path, rounds: int, block: int, parties: int = PARTIES) -> dict[str, list[float]]:
    """Seconds of every round and of every bare exchange."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(parties * RECORDS, DIM))
    np.savez(folder / "data.npz", X=X / np.linalg.norm(X, axis=1)[:, None], y=np.sign(X[:, 0]))
    (folder / "config.toml").write_text(CONFIG.replace("ROUNDS", str(rounds)).replace("PARTIES", str(parties)))
    port = free_ports(2 * parties + 1)
    made = init(read(folder / "config.toml"), folder / "federation", "127.0.0.1", port, rehearse=True)
    place = made.coordinator
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **place.environment, "OPENBLAS_NUM_THREADS": "1", "PATH": path}
    processes = []

    def start(name: str, words: list[str], env: dict[str, str]) -> None:
        with (folder / f"{name}.log").open("wb") as log:
            processes.append(subprocess.Popen(words, stdout=log, stderr=log, env=env, start_new_session=True))

    try:
        start("superlink", place.superlink("127.0.0.1"), environment)
        start("superexec", place.superexec(), environment)
        wait(lambda: listens(port), 60)
        for number in range(parties):
            bare = folder / f"bare-{number}"
            bare.mkdir()
            (place.keys / f"party-{parties + number}.pub").write_bytes(make_node_key(bare))
        for number in range(2 * parties):
            subprocess.run(place.register(number), env=environment, check=True, capture_output=True)
        for number, party in enumerate(made.parties):
            start(f"party-{number}", node(party), {**environment, **node_environment(party)})
            words = node(party)
            bare = folder / f"bare-{number}"
            words[words.index("--auth-supernode-private-key") + 1] = str(bare / "node-key")
            words[words.index("--port") + 1] = str(port + 1 + parties + number)
            start(f"bare-{number}", words, {**environment, "FLWR_HOME": str(bare / "flower")})
        out = launched(folder, place, {"block": block, "nodes": 2 * parties}, environment)
        wait(out.exists, 1800)
        time.sleep(0.5)
        found = json.loads(out.read_text())
        assert isinstance(found, dict)
        return found
    finally:
        for process in reversed(processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait()


def launched(folder: Path, place: Coordinator, counts: dict[str, int], environment: dict[str, str]) -> Path:
    """Start the run; where it writes its times."""
    app, out = folder / "app", folder / "times.json"
    app.mkdir()
    (app / "overhead.py").write_text(OVERHEAD)
    given = {"coordinator": json.dumps(str(place.folder)), "out": json.dumps(str(out)), **counts}
    (app / "pyproject.toml").write_text(APP.format(**given))
    subprocess.run(["flwr", "run", str(app), "federation"], env=environment, check=True, capture_output=True)
    return out


def listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def wait(done: Any, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit("it took too long: see the logs")
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    given = parser.parse_args()
    rounds, block = (8, 4) if given.quick else (24, 4)
    with tempfile.TemporaryDirectory() as folder:
        times = measured(Path(folder), rounds, block)
    ours, bare = (statistics.median(times[key]) for key in ("round", "bare"))
    result = {
        "parties": PARTIES,
        "rounds": len(times["round"]),
        "exchanges": len(times["bare"]),
        "round_seconds": round(ours, 3),
        "bare_seconds": round(bare, 3),
        "ratio": round(ours / bare, 3),
        "goal": GOAL,
    }
    if given.json:
        print(json.dumps(result))
    else:
        print(
            f"a round {ours:.2f} s, a bare exchange {bare:.2f} s (medians of {len(times['round'])} and "
            f"{len(times['bare'])}): {ours / bare:.2f} times, goal {GOAL}"
        )


if __name__ == "__main__":
    main()
