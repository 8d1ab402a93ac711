"""DP-ADMM on two Dask workers: a round of the engine against a bare exchange of the same bytes between the same two.

    python benchmarks/dask_overhead.py [--json] [--quick] [--disk]

The bare exchange is an actor on each of the same workers that takes the same request and returns an answer of the same
size, called as Dask's manual has it. A round has in addition the phase itself (a gradient over the block's records, and
noise) and the commit of the ledger; afterwards another actor does the same work and says how long it took, and what is
left of the round is the engine's own. That is no more than the bare exchange, since the engine asks all its actors in
one visit to the client's thread and sends bytes as they are; the bare exchange made in that way is measured as well.
Rounds and exchanges alternate, since machines are noisy. The goal is about the whole round, whatever it is made of.
Ledgers are in memory, which flatters it; with --disk they are where temporary files are, and commits wait.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config import build
from privadmm.config.file import read
from privadmm.deploy.dask import Block, DaskCluster
from privadmm.deploy.engines import orders
from privadmm.deploy.remote_block import Order, Site
from privadmm.engine.loop import drive
from privadmm.engine.mail import Mail
from small_data import DATA

PARTIES, RECORDS, DIM, WORKERS = 10, 400, 100, 2
GOAL = 1.5
CONFIG = (
    DATA
    + f"""[parties]
count = COUNT
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
engine = "dask"
workers = {WORKERS}
"""
)


class Echo:
    """Answers at once, in so many bytes."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def step(self, round: int, phase: int, inbox: bytes) -> tuple[bytes, str]:
        return self.answer, "0" * 64


class Timed:
    """A block of its own, on a ledger of its own: how long its phase and its ledger take, in seconds."""

    def __init__(self, order: Order) -> None:
        self.site = Site(order)

    def begin(self) -> None:
        self.site.open()
        self.site.begin()

    def step(self, round: int, phase: int, inbox: bytes) -> float:
        start = time.perf_counter()
        self.site.step(round, phase, inbox)
        return time.perf_counter() - start

    def close(self) -> None:
        self.site.close()


def order(folder: Path, rounds: int, parties: int = PARTIES, records: int = RECORDS) -> Order:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(parties * records, DIM), scale=0.1)
    np.savez(folder / "data.npz", X=X, y=np.where(X @ rng.normal(size=DIM) > 0, 1, -1))
    (folder / "config.toml").write_text(CONFIG.replace("ROUNDS", str(rounds)).replace("COUNT", str(parties)))
    config = read(folder / "config.toml")
    train = build.prepare(config).train
    job = build.job(config, train.sizes, train.dim)
    return Order(config, job, tuple(train.ids.tolist()), folder / "ledgers")


class Alternating:
    """Carries every request three times: to the parties, and in two ways to the echoes."""

    def __init__(self, engine: DaskCluster, echoes: list[Any], lean: list[Block]) -> None:
        self.engine, self.echoes, self.lean = engine, echoes, lean
        self.requests: list[tuple[int, int, bytes]] = []
        self.rounds: list[float] = []
        self.bare: list[float] = []
        self.thrifty: list[float] = []

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        start = time.perf_counter()
        mail = self.engine.step(round, phase, inbox)
        middle = time.perf_counter()
        request = (round, phase, inbox.pack())
        for answer in [echo.step(*request) for echo in self.echoes]:
            answer.result()
        self.rounds.append(middle - start)
        end = time.perf_counter()
        self.bare.append(end - middle)
        self.engine._ask("step", [request] * len(self.lean), self.lean)
        self.thrifty.append(time.perf_counter() - end)
        self.requests.append(request)
        return mail


def timed(client: Any, blocks: Sequence[Order], requests: Sequence[tuple[int, int, bytes]]) -> list[float]:
    """Seconds of phase and ledger in each round, of the slower block; both at once, as in a round."""
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])
    made = [client.submit(Timed, one, actor=True, workers=[at]) for one, at in zip(blocks, addresses, strict=True)]
    actors = [future.result() for future in made]
    for answer in [one.begin() for one in actors]:
        answer.result()
    work = []
    for request in requests:
        waiting = [one.step(*request) for one in actors]
        work.append(max(answer.result() for answer in waiting))
    for answer in [one.close() for one in actors]:
        answer.result()
    return work


def measure(rounds: int, disk: bool) -> dict[str, Any]:
    memory = "/dev/shm" if Path("/dev/shm").is_dir() and not disk else None
    with tempfile.TemporaryDirectory(dir=memory) as place:
        folder = Path(place)
        whole = order(folder, rounds)
        job, start = whole.job, whole.job.algorithm.start(whole.job.public)[1]
        answer = Mail(np.arange(PARTIES // WORKERS), np.zeros((PARTIES // WORKERS, DIM))).pack()
        engine = DaskCluster(orders(whole))
        try:
            engine.begin()
            client = engine.client
            addresses = list(client.scheduler_info(n_workers=-1)["workers"])
            with client.as_current():
                made = [client.submit(Echo, answer, actor=True, workers=[at]) for at in addresses]
                echoes = [future.result() for future in made]
                lean = [
                    replace(block, future=future, address=at)
                    for block, future, at in zip(engine.blocks, made, addresses, strict=True)
                ]
                carrier = Alternating(engine, echoes, lean)
                drive(carrier, job.algorithm, job.public)
                work = timed(client, orders(replace(whole, ledger=folder / "beside")), carrier.requests)
        finally:
            engine.close()
    skip = rounds // 10  # connections are made and caches filled
    times = (carrier.rounds, carrier.bare, carrier.thrifty, work)
    round_ms, bare_ms, lean_ms, work_ms = (1e3 * statistics.median(one[skip:]) for one in times)
    return {
        "rounds": rounds,
        "ledgers": "on disk" if memory is None else "in memory",
        "bytes_to_worker": len(start.pack()),
        "bytes_from_worker": len(answer),
        "round_ms": round_ms,
        "bare_ms": bare_ms,
        "lean_ms": lean_ms,
        "work_ms": work_ms,
        "ratio": round_ms / bare_ms,
        "lean_ratio": round_ms / lean_ms,
        "own_ratio": (round_ms - work_ms) / bare_ms,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="100 rounds instead of 500")
    parser.add_argument("--disk", action="store_true", help="ledgers on disk, and not in memory")
    options = parser.parse_args()
    found = measure(100 if options.quick else 500, options.disk)
    if options.json:
        print(json.dumps(found))
        return
    print(f"DP-ADMM, {PARTIES} parties of {RECORDS} records, {DIM} features, on {WORKERS} Dask workers (TLS, loopback)")
    print(
        f"  {found['round_ms']:.2f} ms a round; a bare exchange of {found['bytes_to_worker']:.0f} + "
        f"{found['bytes_from_worker']:.0f} bytes a worker {found['bare_ms']:.2f} ms; "
        f"phase and ledger {found['work_ms']:.2f} ms"
    )
    met = "met" if found["ratio"] <= GOAL else "missed"
    print(f"  a round takes {found['ratio']:.2f} x the bare exchange, ledgers {found['ledgers']}", end=" ")
    print(f"(goal: at most {GOAL}; {met})")
    print(f"  without phase and ledger, the engine's own: {found['own_ratio']:.2f} x")
    print(
        f"  an exchange that is bare, but made as the engine makes its own, {found['lean_ms']:.2f} ms: a round takes "
        f"{found['lean_ratio']:.2f} x that"
    )


if __name__ == "__main__":
    main()
