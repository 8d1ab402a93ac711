"""Time of a letter at a party's desk: does it grow with the rounds done, with earlier jobs, or with records to read?

    python benchmarks/letters.py [--json] [--quick] [--rows N] [--csv-rounds N] [--csv-jobs N ...]

A federation of two parties in this process, each with a ledger of its own on disk (DP-ADMM, 20 columns). Each figure is
the median over up to twenty-one `step` letters around rounds 1, 50 and 200, after 0, 10 and 20 jobs of fifty rounds. A
ratio is against the letters around round 1 of an empty ledger with the same records; the second ratio is of the
processor's time, which others on the machine disturb less.

First both parties have 400 records in a file of numpy's. Then party 0 has 500,000 rows of CSV, and one of its letters
is answered by a process of its own, as in a deployment: its seconds (with the imports), and its memory at the most.
"""

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config.file import read
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.hub.coordinator import Patience
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.protocol import Letter
from privadmm.deploy.federation.setup.init import init
from privadmm.deploy.federation.setup.joining import REPLY, admit, join, with_ledger
from privadmm.runs.federated import Asked, federate
from small_data import DATA

RECORDS, ROWS, DIM = 400, 500_000, 20
AT, AROUND, BETWEEN = (1, 50, 200), 10, 50
ALONE = 2  # the round, counted from 0, that a process of its own answers
TRAINING = """[parties]
count = 2
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
TABLE = """
[data]
source = "data.csv"
label = "y"
classes = ["no", "yes"]
row_bound = 2.0
schema = {{ {columns} }}
"""
# Answers the letter in a file, and tells what that took.
CHILD = r"""
import time; began = time.perf_counter()
import json, pickle, re, sys
from pathlib import Path
from privadmm.deploy.federation.desk.party_server import answer
place = Path(sys.argv[1])
folder, letter = pickle.loads(place.read_bytes())
ready = time.perf_counter()
said = answer(folder, letter)
ended = time.perf_counter()
place.write_bytes(pickle.dumps(said))
# Of this process alone: getrusage would count what its parent held when it was started.
most = int(re.search(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text()).group(1)) / 1024
print(json.dumps({"imports": ready - began, "letter": ended - ready, "most_megabytes": most}))
"""


@dataclass
class Timed:
    """Carries letters to the parties' desks in this process, and times those of a step at party 0."""

    folders: list[Path]
    alone: bool = False
    seconds: dict[int, tuple[float, float]] = field(default_factory=dict)  # on the clock, and of the processor
    process: dict[str, float] = field(default_factory=dict)  # what one letter took in a process of its own

    def nodes(self) -> list[int]:
        return list(range(len(self.folders)))

    def exchange(self, letters: Mapping[int, Letter], seconds: float) -> dict[int, Letter]:
        return {node: self.ask(node, letter) for node, letter in letters.items()}

    def ask(self, node: int, letter: Letter) -> Letter:
        if self.alone and node == 0 and letter.get("round") == ALONE:
            return self.apart(letter)
        began, worked = time.perf_counter(), time.process_time()
        said = answer(self.folders[node], letter)
        if node == 0 and letter["kind"] == "step":
            self.seconds[int(letter["round"])] = (time.perf_counter() - began, time.process_time() - worked)
        return said

    def apart(self, letter: Letter) -> Letter:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name) / "letter"
            place.write_bytes(pickle.dumps((self.folders[0], dict(letter))))
            child = [sys.executable, "-c", CHILD, str(place)]
            self.process = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout)
            said: Letter = pickle.loads(place.read_bytes())
            return said

    def around(self, round: int, which: int) -> float:
        """Median milliseconds of the letters up to ten rounds away."""
        near = [spent[which] for t, spent in self.seconds.items() if abs(t + 1 - round) <= AROUND]
        return 1000 * statistics.median(near)


def small(folder: Path) -> tuple[Coordinator, list[Path]]:
    """A federation whose parties have 400 records each."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * RECORDS, DIM)) / DIM
    np.savez(folder / "data.npz", X=X, y=np.sign(X[:, 0]))
    (folder / "config.toml").write_text(DATA + TRAINING.format(rounds=max(AT)))
    made = init(read(folder / "config.toml"), folder / "federation", "127.0.0.1", 9100, rehearse=True)
    return made.coordinator, [party.folder for party in made.parties]


def large(folder: Path, rows: int) -> tuple[Coordinator, list[Path]]:
    """A federation whose party 0 has so many rows of CSV."""
    columns = ", ".join(f"x{j} = [-4, 4]" for j in range(DIM))
    (folder / "config.toml").write_text(TABLE.format(columns=columns) + TRAINING.format(rounds=max(AT)))
    made = init(read(folder / "config.toml"), folder / "federation", "127.0.0.1", 9100, rehearse=False)
    folders = [folder / f"party-{number}" for number in range(2)]
    for number, (place, invited, many) in enumerate(zip(folders, made.invitations, (rows, RECORDS), strict=True)):
        place.mkdir()
        write_table(place / "data.csv", many, number)
        join(invited, place, place / "data.csv")
        with_ledger(place)
    admit(made.coordinator, [place / REPLY for place in folders])
    return made.coordinator, folders


def write_table(path: Path, rows: int, seed: int) -> None:
    X = np.random.default_rng(seed).normal(size=(rows, DIM)).clip(-4, 4)
    with path.open("w") as file:
        file.write(",".join(["y", *(f"x{j}" for j in range(DIM))]) + "\n")
        for row in X.tolist():
            file.write(("yes," if row[0] > 0 else "no,") + ",".join(map(repr, row)) + "\n")


def grid(place: Coordinator, folders: list[Path], rounds: int, jobs: Sequence[int], alone: bool) -> dict[str, Any]:
    """Milliseconds by number of earlier jobs and round."""
    plain, found, worked, done = place.job.read_text(), dict[str, Any](), dict[str, Any](), 0
    process: dict[str, float] = {}

    def run(name: str, rounds_now: int, alone: bool = False) -> Timed:
        place.job.write_text(plain.replace(f"rounds = {max(AT)}", f"rounds = {rounds_now}"))
        post = Timed(folders, alone)
        federate(read(place.job), post, Asked(place.runs / name, place, False, Patience(timeout=600.0)))
        return post

    for earlier in jobs:
        while done < earlier:
            done += 1
            run(f"between-{done}", min(BETWEEN, rounds))
        post = run(f"after-{earlier}", rounds, alone)
        done += 1  # it is an earlier one, too
        found[f"after {earlier} jobs"] = {t: post.around(t, 0) for t in AT if t <= rounds}
        worked[f"after {earlier} jobs"] = {t: post.around(t, 1) for t in AT if t <= rounds}
        process = post.process or process
    told = {"milliseconds": found, "processor": worked, "ratio": ratios(found), "processor_ratio": ratios(worked)}
    return {**told, **({"process": process} if process else {})}


def ratios(found: dict[str, Any]) -> dict[str, Any]:
    base = next(iter(found.values()))[1]
    return {after: {t: spent / base for t, spent in row.items()} for after, row in found.items()}


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    jobs, rounds = ([0, 3], 60) if asked.quick else ([0, 10, 20], max(AT))
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        found[f"{RECORDS} records"] = grid(*small(Path(name)), rounds, jobs, False)
    with tempfile.TemporaryDirectory() as name:
        csv_rounds, csv_jobs = asked.csv_rounds or rounds, jobs if asked.csv_jobs is None else asked.csv_jobs
        found[f"{asked.rows:,} rows of CSV"] = grid(*large(Path(name), asked.rows), csv_rounds, csv_jobs, True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="sixty rounds and three jobs")
    parser.add_argument("--rows", type=int, default=ROWS, help="of the CSV")
    parser.add_argument("--csv-rounds", type=int, help="rounds of the jobs on the CSV")
    parser.add_argument("--csv-jobs", type=int, nargs="+", help="earlier jobs on the CSV")
    asked = parser.parse_args()
    found = measure(asked)
    if asked.json:
        print(json.dumps(found))
        return
    for records, part in found.items():
        print(records)
        for after, row in part["milliseconds"].items():
            other = part["processor_ratio"][after]
            cells = (
                f"round {t}: {spent:7.1f} ms ({part['ratio'][after][t]:.2f} x, {other[t]:.2f} x)"
                for t, spent in row.items()
            )
            print(f"{after:>15}   {', '.join(cells)}")
        if took := part.get("process"):
            print(
                f"  in a process of its own: {took['letter']:.2f} s after {took['imports']:.2f} s of imports, and "
                f"{took['most_megabytes']:.0f} MB at the most"
            )


if __name__ == "__main__":
    main()
