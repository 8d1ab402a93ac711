"""Time of a letter at a party's desk: does it grow with the rounds that were done, or with earlier jobs in the ledger?

    python benchmarks/letters.py [--json] [--quick]

A federation of two parties in this process, each with a ledger of its own on disk (DP-ADMM, 400 records and 20 columns
a party). Each figure is the median over twenty `step` letters around rounds 1, 50 and 200, first with an empty ledger
and then after twenty jobs of fifty rounds. Ratios are against the letters around round 1 of the empty ledger.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config.file import read
from privadmm.deploy.federation.coordinator import Patience
from privadmm.deploy.federation.init import init
from privadmm.deploy.federation.party_server import answer
from privadmm.deploy.federation.protocol import Letter
from privadmm.runs.federated import Asked, federate
from small_data import DATA

PARTIES, RECORDS, DIM = 2, 400, 20
AT, AROUND = (1, 50, 200), 10
CONFIG = (
    DATA
    + """[parties]
count = {parties}
[algorithm]
name = "dp_admm"
rounds = {rounds}
D_w = 30.0
rho = 0.1
[privacy]
epsilon = 0.1
delta = 1e-6
budget = 50.0
[run]
seed = 0
"""
)


@dataclass
class Timed:
    """Carries letters to the parties' desks in this process, and times those of a step at party 0."""

    folders: list[Path]
    seconds: dict[int, float] = field(default_factory=dict)

    def nodes(self) -> list[int]:
        return list(range(len(self.folders)))

    def exchange(self, letters: Mapping[int, Letter], seconds: float) -> dict[int, Letter]:
        return {node: self.ask(node, letter) for node, letter in letters.items()}

    def ask(self, node: int, letter: Letter) -> Letter:
        began = time.perf_counter()
        said = answer(self.folders[node], letter)
        if node == 0 and letter["kind"] == "step":
            self.seconds[int(letter["round"])] = time.perf_counter() - began
        return said

    def around(self, round: int) -> float:
        """Median milliseconds of the letters up to ten rounds away."""
        near = [spent for t, spent in self.seconds.items() if abs(t + 1 - round) <= AROUND]
        return 1000 * statistics.median(near)


def measure(quick: bool) -> dict[str, Any]:
    rounds, jobs = (60, 3) if quick else (200, 20)
    at = [t for t in AT if t <= rounds]
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {"earlier_jobs": jobs, "milliseconds": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X = rng.normal(size=(PARTIES * RECORDS, DIM)) / DIM
        np.savez(folder / "data.npz", X=X, y=np.sign(X[:, 0]))
        (folder / "config.toml").write_text(CONFIG.format(parties=PARTIES, rounds=rounds))
        made = init(read(folder / "config.toml"), folder / "federation", "127.0.0.1", 9100, rehearse=True)
        place, folders = made.coordinator, [party.folder for party in made.parties]
        plain = place.job.read_text()

        def job(name: str, rounds_now: int) -> Timed:
            place.job.write_text(plain.replace(f"rounds = {rounds}", f"rounds = {rounds_now}"))
            post = Timed(folders)
            federate(read(place.job), post, Asked(place.folder / name, place, False, Patience(timeout=60.0)))
            return post

        first = job("runs/first", rounds)
        found["milliseconds"]["empty ledger"] = {t: first.around(t) for t in at}
        for number in range(jobs):
            job(f"runs/between-{number}", 50)
        last = job("runs/last", rounds)
        found["milliseconds"][f"after {jobs} jobs"] = {t: last.around(t) for t in at}
    base = found["milliseconds"]["empty ledger"][1]
    found["ratio"] = {
        ledger: {t: spent / base for t, spent in row.items()} for ledger, row in found["milliseconds"].items()
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="sixty rounds and three jobs")
    asked = parser.parse_args()
    found = measure(asked.quick)
    if asked.json:
        print(json.dumps(found))
        return
    for ledger, row in found["milliseconds"].items():
        cells = ", ".join(f"round {t}: {spent:6.1f} ms ({found['ratio'][ledger][t]:.2f} x)" for t, spent in row.items())
        print(f"{ledger:>15}   {cells}")


if __name__ == "__main__":
    main()
