"""The directory of a run: what was asked, how it went, what came out, what it cost.

    config.toml     the config as it was read
    job.json        the job's id, and what has to be the same for it to be resumed
    ledger.sqlite   the parties' ledger, unless the config names one elsewhere; ledgers/ where each block has its own
    checkpoint      where the rounds stand
    receipts.csv    the hash of the ledger's row, as it came with each release
    metrics.csv     a row per round, in a simulation
    model.json      the weights
    ledger.json     events and epsilon of every party
    convergence.png, epsilon.png
    result.json     the summary

result.json is written last: a directory that has it is complete. Ledgers, receipts and the checkpoint may be read by
their owner alone: ledgers keep what parties drew, and a coordinator's rounds may be derived from labels.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from privadmm.data.files import PARTIAL, write_text
from privadmm.errors import CheckpointError, ConfigError

# What job.json remembers besides the id, and how a person would call it.
SAME = {
    "config": "config or seed",
    "shape": "number of parties, records or columns",
    "ledger": "ledger",
}


@dataclass(frozen=True)
class RunDir:
    path: Path
    resume: str = "--resume"  # how whoever reads a message says that
    out: str = "--out"

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def job(self) -> Path:
        return self.path / "job.json"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.sqlite"

    @property
    def ledgers(self) -> Path:
        return self.path / "ledgers"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def model(self) -> Path:
        return self.path / "model.json"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def ledger_export(self) -> Path:
        return self.path / "ledger.json"

    @property
    def convergence(self) -> Path:
        return self.path / "convergence.png"

    @property
    def spending(self) -> Path:
        return self.path / "epsilon.png"

    def check(self, resume: bool) -> None:
        """Refuse a place that this run may not use; cheap, so that it can come before the data are read."""
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path}: is a file, and a run needs a directory; name another {self.out}")
        if self.result.exists():
            raise ConfigError(f"{self.path}: holds a finished run; name another {self.out}")
        if self.job.exists():
            if not resume:
                raise ConfigError(f"{self.path}: holds an unfinished run; add {self.resume} to go on with it")
        elif resume:
            raise CheckpointError(f"{self.path}: holds no run to resume; leave out {self.resume} to start one")
        elif self.path.exists() and any(item.suffix != PARTIAL for item in self.path.iterdir()):
            raise ConfigError(f"{self.path}: is not empty and holds no run; name another {self.out}")

    @contextlib.contextmanager
    def opened(self, facts: dict[str, str], text: str, fresh: str, resume: bool) -> Iterator[str]:
        """The id of the job to run here: `fresh` in a new place; when resuming, the interrupted one if the
        facts of SAME are what they were.
        """
        self.check(resume)
        if resume:
            job = self._known(facts)
        else:
            job = fresh
            self._begin(job, facts, text)
        with self._held():
            yield job

    def _begin(self, job: str, facts: dict[str, str], text: str) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            file = self.job.open("x", encoding="utf-8")
        except FileExistsError:
            raise ConfigError(f"{self.path}: another run has just been started here") from None
        try:
            with file:
                file.write(json.dumps({"job": job, **facts}, indent=1) + "\n")
            write_text(self.config, text)
        except BaseException:
            self.discard()
            raise

    def _known(self, facts: dict[str, str]) -> str:
        try:
            known = json.loads(self.job.read_text(encoding="utf-8"))
            job, before = str(known["job"]), {name: str(known[name]) for name in SAME}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{self.job}: is damaged; start anew in another {self.out}") from error
        if changed := [words for name, words in SAME.items() if facts[name] != before[name]]:
            raise CheckpointError(
                f"{self.path}: the run there was started with another {changed[0]}; resume it with the same "
                f"(its config is kept as {self.config})"
            )
        return job

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """One process at a time. The lock goes with the process, however it ends."""
        try:
            from fcntl import LOCK_EX, LOCK_NB, flock
        except ImportError:  # not on this system: the ledger still refuses what is out of order
            yield
            return
        with self.job.open() as file:
            try:
                flock(file, LOCK_EX | LOCK_NB)
            except BlockingIOError:
                raise CheckpointError(f"{self.path}: another process is at work on this run") from None
            except OSError:  # a file system without locks
                pass
            yield

    def discard(self) -> None:
        """Take back what `opened` and a run without any release left, so that the place can be used again."""
        for name in ("config.toml", "job.json", "checkpoint", "metrics.csv", "receipts.csv"):
            (self.path / name).unlink(missing_ok=True)
        for ledger in (self.ledger, *self.ledgers.glob("*.sqlite")):
            for suffix in ("", "-wal", "-shm", "-journal"):
                ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.ledgers.rmdir()
        with contextlib.suppress(OSError):  # somebody's other files may stand here
            for item in self.path.glob(f"*{PARTIAL}"):
                item.unlink()
            self.path.rmdir()
