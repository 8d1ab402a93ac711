"""The directory of a run: what was asked, how it went, what came out, what it cost.

config.toml  the config as it was read      job.json     the job's id and what it must match to be resumed
ledger.sqlite  the parties' ledger          checkpoint   where the rounds stand
metrics.csv  a row per round (simulation)   model.json   the weights
result.json  the summary                    ledger.json  events and epsilon of every party
convergence.png, epsilon.png
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privadmm.errors import CheckpointError, ConfigError


@dataclass(frozen=True)
class RunDir:
    path: Path

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

    def open(self, text: str, digest: str, fresh_id: str, resume: bool) -> str:
        """The id of the job to run here: a fresh one in an empty place, the interrupted one when resuming."""
        if not self.job.exists():
            if resume:
                raise CheckpointError(f"{self.path}: holds no run to resume; leave out --resume to start one")
            if self.path.exists() and any(self.path.iterdir()):
                raise ConfigError(f"{self.path}: is not empty and holds no run; name another --out")
            self.path.mkdir(parents=True, exist_ok=True)
            self.config.write_text(text)
            write_json(self.job, {"job": fresh_id, "config": digest})
            return fresh_id
        try:
            known = json.loads(self.job.read_text())
            job, config = str(known["job"]), known["config"]
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{self.job}: is damaged; start anew in another --out") from error
        if self.result.exists():
            raise ConfigError(f"{self.path}: holds a finished run; name another --out")
        if not resume:
            raise ConfigError(f"{self.path}: holds an unfinished run; add --resume to go on with it")
        if config != digest:
            raise CheckpointError(
                f"{self.path}: the run there was started with another config or seed ({self.config}); "
                "resume it with that one"
            )
        return job


def write_json(path: Path, content: Any) -> None:
    """In one step: no reader meets half a file."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    fresh.replace(path)
