"""What secure sums cost: a round against a plain one on Dask workers, and the masks alone by the number of parties.

    python benchmarks/secure_sums.py [--json] [--quick] [--disk]
    python benchmarks/secure_sums.py --draw docs/secure_sums.svg  # masks by parties, beside `privadmm scale`

Both rounds are of first-order consensus with the same ten parties and records, once on ten workers, one for each party,
and once on two. Plain: every party adds all of its noise. Secure: keys, masks, shares, and the note beside the ledger
that a tick was sent. Rounds of the two take turns, since machines are noisy. Ledgers are in memory, which makes the
goal harder; with --disk they are where temporary files are, and commits wait.

Masks are one party's work in a process of its own: of the first round, in which it exchanges a key with every other
party, and of a later one; messages have 200 numbers. Times are of the processor, the least of several.
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from privadmm.config import build
from privadmm.config.file import read
from privadmm.deploy.dask import DaskCluster
from privadmm.deploy.engines import orders
from privadmm.deploy.remote_block import Order
from privadmm.engine.loop import drive
from privadmm.engine.mail import Mail
from privadmm.privacy.masks import Entry, Masker, Roster, Told, new_key, public_key
from privadmm.runs.scale import ENGINES, sealing
from small_data import DATA

PARTIES, RECORDS, DIM = 10, 400, 100
WORKERS = (10, 2)
WIDTH = 200
ROUND_GOAL = 1.2  # of a plain round
MASKS_GOAL = 0.1  # seconds, of a thousand parties
CONFIG = (
    DATA
    + f"""[parties]
count = {PARTIES}
[algorithm]
name = "first_order_consensus"
rounds = ROUNDS
[privacy]
epsilon = 1.0
delta = 1e-6
sum = "SUM"
[run]
seed = 0
engine = "dask"
workers = WORKERS
timeout = 60.0
"""
)


def order(folder: Path, rounds: int, sum: str, workers: int) -> Order:
    text = CONFIG.replace("ROUNDS", str(rounds)).replace("SUM", sum).replace("WORKERS", str(workers))
    (folder / f"{sum}.toml").write_text(text)
    config = read(folder / f"{sum}.toml")
    train = build.prepare(config).train
    job = build.job(config, train.sizes, train.dim)
    return Order(config, job, tuple(train.ids.tolist()), folder / sum)


class Turns:
    """Lets two runs do one round each in turn."""

    def __init__(self) -> None:
        self.changed, self.next, self.alone = threading.Condition(), 0, False

    def take(self, mine: int) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.alone or self.next == mine)

    def give(self, mine: int) -> None:
        with self.changed:
            self.next = 1 - mine
            self.changed.notify_all()

    def leave(self) -> None:
        with self.changed:
            self.alone = True
            self.changed.notify_all()


class Watched:
    """Carries requests when it is this run's turn, and looks at the clock."""

    def __init__(self, cluster: DaskCluster, turns: Turns, number: int) -> None:
        self.cluster, self.turns, self.number, self.seconds = cluster, turns, number, list[float]()

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        self.turns.take(self.number)
        start = time.perf_counter()
        mail = self.cluster.step(round, phase, inbox)
        self.seconds.append(time.perf_counter() - start)
        self.turns.give(self.number)
        return mail


def same_workers(engine: DaskCluster, folder: Path) -> dict[str, str]:
    """The keys of [run] with which another engine finds the workers of this one."""
    known = engine.client.security
    (folder / "cert.pem").write_text(known.tls_client_cert)
    (folder / "key.pem").write_text(known.tls_client_key)
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    return {"scheduler": engine.address, "tls_ca": cert, "tls_cert": cert, "tls_key": key}


def rounds_of(workers: int, rounds: int, disk: bool) -> dict[str, float]:
    """Median seconds of a plain and of a secure round, and the median ratio of a secure one to the plain one before."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() and not disk else None
    with tempfile.TemporaryDirectory(dir=memory) as place:
        folder, rng, turns = Path(place), np.random.default_rng(0), Turns()
        X = rng.normal(size=(PARTIES * RECORDS, DIM), scale=0.1)
        np.savez(folder / "data.npz", X=X, y=np.where(X @ rng.normal(size=DIM) > 0, 1, -1))
        asked = [order(folder, rounds, sum, workers) for sum in ("local", "secure")]
        with ExitStack() as stack:
            plain = stack.enter_context(closing(DaskCluster(orders(asked[0]))))
            beside = replace(asked[1].config, run=replace(asked[1].config.run, **same_workers(plain, folder)))
            secure = stack.enter_context(closing(DaskCluster(orders(replace(asked[1], config=beside)))))
            engines = (plain, secure)
            watched = [Watched(engine.begin(), turns, number) for number, engine in enumerate(engines)]

            def run(number: int) -> None:
                try:
                    drive(watched[number], asked[number].job.algorithm, asked[number].job.public)
                finally:
                    turns.leave()

            threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    skip = rounds // 10  # connections are made, caches filled, keys exchanged
    pairs = list(zip(*(one.seconds[skip:] for one in watched), strict=True))
    return {
        "workers": workers,
        "plain": statistics.median(plain for plain, _ in pairs),
        "secure": statistics.median(secure for _, secure in pairs),
        "ratio": statistics.median(secure / plain for plain, secure in pairs),
    }


def masks_of(parties: int, repeats: int) -> dict[str, float]:
    """Seconds of one party's masks in its first round, with all keys, and in a later one."""
    keys = [new_key() for _ in range(parties)]
    roster = Roster.of(Entry((party,), public_key(key)) for party, key in enumerate(keys))
    first, later = [], []
    for number in range(repeats):
        packed, seconds = roster.pack(), list[float]()
        start = time.process_time()
        masker = Masker("job", parties // 2, keys[parties // 2], Roster.unpack(packed))
        for round in range(2):
            told = Told("job", "terms", 1, 2.0**40, tuple(range(parties)), round, 0, -40, str(number))
            masker.hide(told, 0, (1, WIDTH + 1))
            seconds.append(time.process_time() - start)
        first.append(seconds[0])
        later.append(seconds[1] - seconds[0])
    return {"parties": parties, "first": min(first), "later": min(later)}


def draw(path: Path) -> None:
    """Cost of masks by the number of parties, measured and by the model."""
    from matplotlib.figure import Figure

    counts = (3, 10, 30, 100, 300, 1000, 3000)
    found = [masks_of(parties, 5) for parties in counts]
    model = [sealing(parties, WIDTH + 1, ENGINES["dask"]) for parties in counts]
    drawing = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = drawing.subplots()
    for key, colour, words, told in (
        (
            "first",
            "#d1660a",
            "first round, with a key exchanged with every other party",
            [m.masks + m.keys for m in model],
        ),
        ("later", "#1f5fa8", "a later round", [m.masks for m in model]),
    ):
        axes.plot(counts, [one[key] for one in found], "o", color=colour, label=words)
        axes.plot(counts, told, "--", color=colour, linewidth=1)
    axes.plot([1000], [MASKS_GOAL], "k_", markersize=16, label=f"goal: {MASKS_GOAL:g} s for 1,000 parties")
    axes.set(xlabel="parties", ylabel="seconds a party", xscale="log", yscale="log")
    axes.set_title(f"Masks of a secure sum of {WIDTH} numbers (dashed: privadmm scale)", fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    drawing.savefig(path, metadata={"Date": None})
    for one in found:
        print(f"{one['parties']:>6,} parties: {1e3 * one['first']:.3g} ms, then {1e3 * one['later']:.3g} ms a round")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--draw", type=Path, help="draw masks by parties to this file, and measure nothing else")
    parser.add_argument("--quick", action="store_true", help="200 rounds instead of 400")
    parser.add_argument("--disk", action="store_true", help="ledgers on disk, and not in memory")
    given = parser.parse_args()
    if given.draw is not None:
        draw(given.draw)
        return
    masks = [masks_of(parties, 5) for parties in (10, 100, 1000)]
    rounds = [rounds_of(workers, 200 if given.quick else 400, given.disk) for workers in WORKERS]
    if given.json:
        print(json.dumps({"rounds": rounds, "masks": masks}))
        return
    print(f"first-order consensus, {PARTIES} parties of {RECORDS} records, {DIM} features, on Dask (TLS, loopback)")
    for one in rounds:
        met = "met" if one["ratio"] <= ROUND_GOAL else "missed"
        print(
            f"  {one['workers']:2d} workers: {1e3 * one['plain']:.2f} ms a plain round, {1e3 * one['secure']:.2f} ms a "
            f"secure one: {one['ratio']:.2f} x (goal: at most {ROUND_GOAL}; {met})"
        )
    print(f"masks of one party, {WIDTH} numbers")
    for one in masks:
        goal = f" (goal: at most {MASKS_GOAL:g} s; {'met' if one['first'] <= MASKS_GOAL else 'missed'})"
        print(
            f"  {one['parties']:4d} parties: {1e3 * one['first']:.2f} ms with exchanging keys, then "
            f"{1e3 * one['later']:.2f} ms a round{goal if one['parties'] == 1000 else ''}"
        )


if __name__ == "__main__":
    main()
