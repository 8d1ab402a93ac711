"""DP-ADMM over three Flower nodes: a round of the engine against a bare exchange of the same bytes, in the same run.

    python benchmarks/flower_overhead.py [--json] [--quick] [--secure]

One SuperLink, six nodes: three parties, started as `privadmm federation node` does, and three bare ones, which run a
ClientApp that answers at once in as many bytes, by Flower's own command. One run asks the two in turns, some rounds
each, since machines are noisy. What both pay: nodes look for messages every three seconds and start a process for each.

With --secure: a round whose messages are summed securely against one in which every party adds all of its noise
(first-order consensus, a deployment's noise), on the same three nodes, by jobs of a few rounds in turns.
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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config.file import read
from privadmm.deploy.federation.hub.supervisor import free_ports
from privadmm.deploy.federation.keys import make_node_key
from privadmm.deploy.federation.layout import Coordinator, node, node_environment
from privadmm.deploy.federation.setup.init import init
from small_data import DATA

PARTIES, RECORDS, DIM = 3, 400, 100
GOAL, SECURE_GOAL = 1.15, 1.05
CONFIG = (
    DATA
    + """[parties]
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
)
SUMMABLE = {
    'name = "dp_admm"': 'name = "first_order_consensus"',
    "D_w = 30.0\nrho = 0.1\n": "",
    "delta = 1e-6": "delta = 1e-6\nbudget = 1000.0",
    "seed = 0": 'mode = "deployment"\nledger = "none"',
}
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
turns = {turns}
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
    from privadmm.deploy.federation.hub.coordinator import Patience
    from privadmm.deploy.federation.layout import Coordinator
    from privadmm.runs.federated import Asked, federate

    place, block = Coordinator(Path(context.run_config["coordinator"])), context.run_config["block"]
    deadline = time.monotonic() + 300
    post = FlowerPost(grid)
    while len(post.nodes()) < context.run_config["nodes"] and time.monotonic() < deadline:
        time.sleep(0.5)
    if turns := context.run_config["turns"]:
        times = {"plain": [], "secure": []}

        class Timed(FlowerPost):
            def exchange(self, letters, seconds):
                began = time.monotonic()
                said = super().exchange(letters, seconds)
                if {letter["kind"] for letter in letters.values()} == {"step"}:
                    times[kind].append(time.monotonic() - began)
                return said

        for turn in range(turns):
            for kind in times:
                asked = Asked(place.folder / f"runs/{kind}-{turn}", place, False, Patience(300.0))
                federate(read(place.folder / f"{kind}.toml"), Timed(grid), asked)
        Path(context.run_config["out"]).write_text(json.dumps(times))
        return
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


@contextmanager
def deployed(folder: Path, config: str, parties: int, bare: int = 0) -> Iterator[tuple[Coordinator, dict[str, str]]]:
    """A SuperLink, a node of each party and so many bare ones: the coordinator's place, and its environment."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(parties * RECORDS, DIM))
    np.savez(folder / "data.npz", X=X / np.linalg.norm(X, axis=1)[:, None], y=np.sign(X[:, 0]))
    (folder / "config.toml").write_text(config.replace("PARTIES", str(parties)))
    port = free_ports(parties + bare + 1)
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
        for number in range(bare):
            own = folder / f"bare-{number}"
            own.mkdir()
            (place.keys / f"party-{parties + number}.pub").write_bytes(make_node_key(own))
        for number in range(parties + bare):
            subprocess.run(place.register(number), env=environment, check=True, capture_output=True)
        for number, party in enumerate(made.parties):
            start(f"party-{number}", node(party), {**environment, **node_environment(party)})
        for number in range(bare):
            words, own = node(made.parties[0]), folder / f"bare-{number}"
            words[words.index("--auth-supernode-private-key") + 1] = str(own / "node-key")
            words[words.index("--port") + 1] = str(port + 1 + parties + number)
            start(f"bare-{number}", words, {**environment, "FLWR_HOME": str(own / "flower")})
        yield place, environment
    finally:
        for process in reversed(processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            process.wait()


def measured(folder: Path, rounds: int, block: int, parties: int = PARTIES) -> dict[str, list[float]]:
    """Seconds of every round and of every bare exchange."""
    config = CONFIG.replace("ROUNDS", str(rounds))
    with deployed(folder, config, parties, parties) as (place, environment):
        return launched(folder, place, {"block": block, "nodes": 2 * parties, "turns": 0}, environment)


def measured_sums(folder: Path, rounds: int, turns: int, parties: int = PARTIES) -> dict[str, list[float]]:
    """Seconds of every plain round and of every secure one."""
    config = CONFIG.replace("ROUNDS", str(rounds))
    for before, after in SUMMABLE.items():
        config = config.replace(before, after)
    with deployed(folder, config, parties) as (place, environment):
        plain = place.job.read_text()
        (place.folder / "plain.toml").write_text(plain)
        (place.folder / "secure.toml").write_text(plain.replace("[privacy]", '[privacy]\nsum = "secure"'))
        return launched(folder, place, {"block": 0, "nodes": parties, "turns": turns}, environment)


def launched(
    folder: Path, place: Coordinator, counts: dict[str, int], environment: dict[str, str]
) -> dict[str, list[float]]:
    """Run the app, and return the times that it wrote."""
    app, out = folder / "app", folder / "times.json"
    app.mkdir()
    (app / "overhead.py").write_text(OVERHEAD)
    given = {"coordinator": json.dumps(str(place.folder)), "out": json.dumps(str(out)), **counts}
    (app / "pyproject.toml").write_text(APP.format(**given))
    subprocess.run(["flwr", "run", str(app), "federation"], env=environment, check=True, capture_output=True)
    wait(out.exists, 1800)
    time.sleep(0.5)
    found = json.loads(out.read_text())
    assert isinstance(found, dict)
    return found


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
    parser.add_argument("--secure", action="store_true", help="a round of secure sums against a plain one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.secure:
            times, (ours, base) = measured_sums(Path(folder), 4, 2 if given.quick else 6), ("secure", "plain")
            names, goal = ("a round of secure sums", "a plain one"), SECURE_GOAL
        else:
            times, (ours, base) = measured(Path(folder), 8 if given.quick else 24, 4), ("round", "bare")
            names, goal = ("a round", "a bare exchange"), GOAL
    took = {key: statistics.median(times[key]) for key in (ours, base)}
    ratio = took[ours] / took[base]
    if given.json:
        counts = {"rounds": len(times[ours]), "exchanges": len(times[base])}
        seconds = {f"{key}_seconds": round(value, 3) for key, value in took.items()}
        print(json.dumps({"parties": PARTIES, **counts, **seconds, "ratio": round(ratio, 3), "goal": goal}))
    else:
        print(
            f"{names[0]} {took[ours]:.2f} s, {names[1]} {took[base]:.2f} s (medians of {len(times[ours])} and "
            f"{len(times[base])}): {ratio:.2f} times, goal {goal}"
        )


if __name__ == "__main__":
    main()
