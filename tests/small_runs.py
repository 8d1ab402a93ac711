"""Small data, small configs, and the command line called in this process: what the tests of whole runs share."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from privadmm.cli import main
from privadmm.config.file import read
from privadmm.privacy.events import Spent, load, merge
from privadmm.privacy.ledger_file import unpack_charges
from privadmm.runs.run import Finished, run

ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "80"}
# Buffer output as users do: otherwise a failure to write it would show at another moment.
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)
Tables = dict[str, dict[str, Any]]

# Data sets that the project may not redistribute: in PRIVADMM_DATA, or in shared/data beside the project.
ORIGINALS = Path(os.environ.get("PRIVADMM_DATA") or Path(__file__).parents[2] / "shared" / "data")

PNG = b"\x89PNG\r\n\x1a\n"  # how such a file begins
ROUNDS, PARTIES = 6, 3
RECORDS, TRAINED = 60, 48  # rows, and those of them that PRIVATE and CLEAR train on

PRIVATE: Tables = {
    "data": {"source": "data.npz", "classes": [0, 1], "row_bound": 2.0, "test_fraction": 0.2},
    "parties": {"count": PARTIES},
    "algorithm": {"name": "dp_admm", "rounds": ROUNDS, "D_w": 5.0, "rho": 0.1},
    "privacy": {"epsilon": 1.0, "delta": 1e-5},
    "run": {"seed": 1},
}
CLEAR: Tables = {
    "data": PRIVATE["data"],
    "parties": PRIVATE["parties"],
    "algorithm": {"name": "admm_star", "rounds": ROUNDS, "rho": 0.1},
    "run": {"seed": 1},
}
# Changes that make other jobs of PRIVATE: parties on a ring, secure sums, and parties that hold columns.
DVP: dict[str, dict[str, Any] | None] = {
    "algorithm": {"name": "dvp", "eta": 0.5, "D_w": None, "rho": None},
    "graph": {"kind": "ring"},
}
SECURE: dict[str, dict[str, Any] | None] = {
    "parties": {"count": 5},
    "algorithm": {"name": "dp_fedsgd", "step": 2.0, "D_w": None, "rho": None},
    "privacy": {"sum": "secure", "colluding": 2, "fewest": 4},
}
SHARING: dict[str, dict[str, Any] | None] = {
    "parties": {"count": 3, "split": "features"},
    "algorithm": {"name": "sharing", "ball": 5.0, "rho": 0.3, "D_w": None},
    "privacy": {"adjacency": "person"},
}


def rows(n: int = 60, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """n rows of d features, the first of which tells the class (0 or 1) more often than not."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)


def write_npz(path: Path, X: Any = None, y: Any = None, **columns: Any) -> Path:
    if X is None:
        X, y = rows()
    np.savez(path, X=X, y=y, **columns)
    return path


def write_csv(path: Path, X: Any, y: Any) -> Path:
    lines = [",".join([*(f"f{j}" for j in range(X.shape[1])), "y"])]
    lines += [",".join([*(repr(float(cell)) for cell in row), str(label)]) for row, label in zip(X, y, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def with_changes(tables: Tables, changes: dict[str, dict[str, Any] | None]) -> Tables:
    """The tables with these keys in place of theirs. None removes a key, or a whole section."""
    merged = {name: dict(table) for name, table in tables.items()}
    for section, keys in changes.items():
        if keys is None:
            merged.pop(section, None)
            continue
        table = merged.setdefault(section, {})
        table.update({key: value for key, value in keys.items() if value is not None})
        for key in [key for key, value in keys.items() if value is None]:
            table.pop(key, None)
    return merged


def spelled(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {spelled(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(spelled, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("Infinity", "inf").replace("NaN", "nan")


def write_config(path: Path, tables: Tables) -> Path:
    sections = (
        f"[{name}]\n" + "".join(f"{key} = {spelled(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
    path.write_text("\n".join(sections))
    return path


@dataclass(frozen=True)
class Place:
    """A folder with data.npz, in which configs are written and commands called."""

    path: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def out(self) -> Path:
        return self.path / "out"

    def config(self, tables: Tables = PRIVATE, name: str = "config.toml", /, **changes: Any) -> Path:
        return write_config(self.path / name, with_changes(tables, changes))

    def call(self, *words: Any) -> "Outcome":
        self.capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        said = self.capsys.readouterr()
        return Outcome(int(ended.value.code or 0), said.out, said.err)

    def train(self, config: Path, *words: Any, out: Path | None = None) -> "Outcome":
        return self.call("train", config, "--out", out or self.out, *words)

    def run(self, tables: Tables = PRIVATE, out: Path | None = None, **options: Any) -> Finished:
        """Train without the command line."""
        return run(read(write_config(self.path / "config.toml", tables)), out or self.out, **options)

    def names(self) -> set[str]:
        """Names of all files in the folder, to see that nothing was left."""
        return {str(item.relative_to(self.path)) for item in self.path.rglob("*")}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """The JSON object that standard output holds, and nothing else."""
        assert self.out.count("\n") == 1, self.out
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


def spawn(*words: Any, **options: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, which hears Ctrl-C even if tests run in the background of a shell."""
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", heard + "from privadmm.cli import main; main()", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, **options
    )


def wait_for(done: Callable[[], object], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.02)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def alive(pid: int) -> bool:
    """Whether there is a process with this id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def no_plots(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Skip plots, which take most of a small run's time. The list notes what would have been drawn."""
    drawn: list[str] = []
    for name in ("convergence", "spending", "side_by_side"):
        monkeypatch.setattr(f"privadmm.runs.plots.{name}", lambda *arguments, name=name: drawn.append(name))
    return drawn


def words_of(figure: Path) -> list[str]:
    """The texts of an SVG file, its title first."""
    return [item.text or "" for item in ElementTree.parse(figure).iter() if item.tag.endswith(("}title", "}text"))]


def result(out: Path) -> dict[str, Any]:
    found = json.loads((out / "result.json").read_text())
    assert isinstance(found, dict)
    return found


def charged(ledger: Path) -> int:
    """How many events the ledger holds, over all parties and jobs."""
    with closing(sqlite3.connect(ledger)) as db:
        rows = db.execute("SELECT charges FROM ticks WHERE kind = 'tick'").fetchall()
    return sum(count for (text,) in rows for charge in unpack_charges(text).values() for _, count in charge)


def toml(path: Path) -> Tables:
    return tomllib.loads(path.read_text())


def events(estimator: Any, party: int = 0) -> Spent:
    """What a party released in the last fit, over all classes, read off the exported ledgers."""
    spent: Spent = ()
    for ledger in estimator.ledgers_:
        for entry in ledger["parties"][party]["events"]:
            count, event = entry["count"], {key: value for key, value in entry.items() if key != "count"}
            spent = merge(spent, ((load(json.dumps(event)), count),))
    return spent
