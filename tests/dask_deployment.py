"""A Dask scheduler and two workers on this machine, each a process of its own, for tests of the engine."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.config import build
from privadmm.config.file import read
from privadmm.deploy.remote_block import Order
from privadmm.engine.job import Job
from privadmm.engine.loop import Callback, View
from privadmm.runs.run import Bar, Finished
from small_runs import ENVIRONMENT, Place, Tables, rows, wait_for, with_changes, write_config, write_npz

distributed = pytest.importorskip("distributed")
pytest.importorskip("cryptography")


@dataclass(frozen=True)
class Certificates:
    """One self-signed certificate for all processes of a cluster."""

    folder: Path

    @staticmethod
    def make(folder: Path) -> "Certificates":
        folder.mkdir()
        made = distributed.Security.temporary()
        (folder / "cert.pem").write_text(made.tls_client_cert)
        (folder / "key.pem").write_text(made.tls_client_key)
        return Certificates(folder)

    @property
    def run(self) -> dict[str, str]:
        cert, key = str(self.folder / "cert.pem"), str(self.folder / "key.pem")
        return {"tls_ca": cert, "tls_cert": cert, "tls_key": key}

    @property
    def options(self) -> list[str]:
        cert, key = str(self.folder / "cert.pem"), str(self.folder / "key.pem")
        return ["--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key]


@dataclass
class Deployed:
    """A scheduler and two workers, each a process of its own under a nanny."""

    folder: Path
    certificates: Certificates
    processes: list[subprocess.Popen[bytes]]
    address: str = ""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def run(self) -> dict[str, Any]:
        return {"engine": "dask", "scheduler": self.address, "timeout": 60.0, **self.certificates.run}

    @contextmanager
    def client(self) -> Iterator[Any]:
        """A client of its own, once both workers are there."""
        certificates = self.certificates.run
        security = distributed.Security(
            tls_ca_file=certificates["tls_ca"],
            tls_client_cert=certificates["tls_cert"],
            tls_client_key=certificates["tls_key"],
            require_encryption=True,
        )
        with distributed.Client(self.address, security=security, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            yield client

    def launch(self, name: str, *words: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a part of Dask. Its processes form a group, so that a worker can be killed together with its nanny."""
        pages = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
        common = [*self.certificates.options, *pages, "--scheduler-file", str(self.folder / "scheduler.json")]
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words, *common],
                stdout=log,
                stderr=log,
                env={**ENVIRONMENT, **environment},
                start_new_session=True,
            )
        self.processes.append(process)
        self.running[name] = process
        return process

    def begin(self, names: Sequence[str]) -> None:
        """Start the scheduler at a new address, and its workers."""
        known = self.folder / "scheduler.json"
        known.unlink(missing_ok=True)
        self.launch("scheduler", "scheduler", "--host", "127.0.0.1", "--port", "0", "--protocol", "tls")
        wait_for(lambda: known.exists() and known.stat().st_size > 0, "the scheduler")
        self.address = json.loads(known.read_text())["address"]
        for name in names:
            self.start(name)
        if not names:
            self.launch("workers", "worker", "--host", "127.0.0.1", "--nworkers", "2", "--nthreads", "1")
            wait_for(lambda: len(self.pids()) == 2, "the workers")

    def start(self, name: str, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker of this name."""
        common = ("worker", "--host", "127.0.0.1", "--nthreads", "1", "--name", name)
        return self.launch(name, *common, *options, **environment)

    def end(self, name: str, how: signal.Signals = signal.SIGKILL) -> None:
        """End a part and all that it started; other signals than SIGKILL are for the process that was started."""
        process = self.running.pop(name)
        if how == signal.SIGKILL:
            os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        process.wait(timeout=60)

    def pids(self) -> list[int]:
        """The ids of the two worker processes, children of the process that holds their nannies."""
        nanny = self.processes[1].pid
        found = subprocess.run(
            ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(nanny)],
            capture_output=True,
            text=True,
        )  # which fails where there are none
        workers = [line.split()[0] for line in found.stdout.splitlines() if "spawn_main" in line]
        return [int(pid) for pid in workers]


@contextmanager
def deployed(folder: Path, names: Sequence[str] = ()) -> Iterator[Deployed]:
    """A scheduler, and two workers under nannies of one process; or workers of these names, each a process of its own.

    `end` with the name of a worker, or "scheduler", ends its processes; `start` brings a worker back.
    """
    made = Deployed(folder, Certificates.make(folder / "certificates"), [])
    try:
        made.begin(names)
        yield made
    finally:
        for process in reversed(made.processes):  # the workers first: they take their leave of the scheduler
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def dasked(tables: Tables, cluster: Deployed, **run: Any) -> Tables:
    return with_changes(tables, {"run": {**cluster.run, **run}})


def said(done: Finished) -> dict[str, Any]:
    """The results that two engines must agree on, bit for bit. Only blocks that sum securely keep a roster."""
    ledger = {key: value for key, value in done.ledger.items() if key not in ("head", "kept")}
    ledger["kept"] = [one for one in done.ledger["kept"] if one["name"] != "roster"]
    return {
        "transcript": done.result["transcript"],
        "weights": done.model.weights.tobytes(),
        "metrics": done.rows,
        "ledger": ledger,
    }


def ledgers(out: Path) -> list[Path]:
    return sorted((out / "ledgers").glob("*.sqlite"))


def at_round(round: int, act: Callable[[], object]) -> Bar:
    """Do something once, after so many rounds."""

    @contextmanager
    def bar(job: Job, done: int) -> Iterator[Callback]:
        def look(view: View) -> None:
            if view.progress.round == round:
                act()

        yield look

    return bar


def kill_in_the_middle(cluster: Deployed) -> None:
    """Stop a worker, so that it is asked and cannot answer; then kill it."""
    pid = cluster.pids()[0]
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.5, os.kill, (pid, signal.SIGKILL)).start()


def by_party(place: Place, tables: Tables, **run: Any) -> Tables:
    """The tables with a file for each of five parties, with sizes that are declared."""
    sizes = [20, 12, 20, 12, 9]
    for party, (X, y) in enumerate(
        zip(*(np.split(one, np.cumsum(sizes)[:-1]) for one in rows(sum(sizes))), strict=True)
    ):
        write_npz(place.path / f"party-{party}.npz", X, y)
    data = {"source": "party-{party}.npz", "dim": 3, "test_fraction": 0.0}
    return with_changes(tables, {"data": data, "parties": {"count": None, "sizes": sizes}, "run": run})


def order(place: Place, tables: Tables) -> Order:
    """The order of all parties, as a run makes it."""
    config = read(write_config(place.path / "config.toml", tables))
    prepared = build.prepare(config)
    job = build.job(config, prepared.train.sizes, prepared.train.dim)
    return Order(config, job, tuple(prepared.train.ids.tolist()), place.path / "ledgers")


def plant(place: str, act: str) -> None:
    """Run in a worker's process: make this function fail or end the process; `act` "undo" restores it."""
    import importlib
    import os
    import signal

    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(module)
    *names, last = path.split(".")
    for name in names:
        owner = getattr(owner, name)

    def fails(*_: Any, **__: Any) -> Any:
        if act == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ZeroDivisionError("the mean of the records is 0.123")

    if act == "undo":
        setattr(owner, last, owner.planted)
    else:
        owner.planted = getattr(owner, last)
        setattr(owner, last, fails)


plant.__module__ = "__main__"  # pickled by value: workers cannot import the tests


@contextmanager
def planted(cluster: Deployed, place: str, act: str = "fails") -> Iterator[None]:
    """Plant a fault in every worker process."""
    with cluster.client() as client:
        client.run(plant, place, act)
        try:
            yield
        finally:
            if act == "fails":
                client.run(plant, place, "undo")
