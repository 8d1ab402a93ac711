"""Flower's ServerApp: runs the coordinator's job. The run's config names the coordinator's directory."""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from privadmm.config.file import read
from privadmm.data.files import write_json
from privadmm.deploy.federation.coordinator import Patience
from privadmm.deploy.federation.layout import COORDINATOR, Coordinator
from privadmm.deploy.flower.post import FlowerPost
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.runs.federated import Asked, federate

logger = logging.getLogger("flwr")


@dataclass(frozen=True)
class Status:
    """status.json, which belongs to the run that began last.

    A run outlives its SuperLink for some seconds. If another has begun by then, the first must not write its end.
    """

    path: Path
    run: str
    out: str

    def begin(self) -> None:
        self._replace("running", at="started")

    def write(self, state: str, **more: str | int) -> None:
        try:
            latest = json.loads(self.path.read_text())["run"]
        except (OSError, ValueError, KeyError, TypeError):  # gone, or no status: then it is not this run's
            return
        if latest == self.run:
            self._replace(state, **more)

    def _replace(self, state: str, **more: str | int) -> None:
        write_json(self.path, {"run": self.run, "out": self.out, "state": state, **more})


def main(grid: Grid, context: Context) -> None:
    place = Coordinator(Path(os.environ.get(COORDINATOR) or setting(context, "coordinator", str)))
    out = place.folder / setting(context, "out", str)
    if not out.resolve().is_relative_to(place.runs.resolve()):
        raise ConfigError(f'out = "{setting(context, "out", str)}" is not inside runs/ of the coordinator\'s directory')
    status = Status(place.status, str(grid.run.run_id), str(out))
    status.begin()

    def tell(line: str) -> None:
        logger.info("privadmm: %s", line)
        status.write("running", at=line)

    try:
        absent = setting(context, "absent", str)
        if absent not in ("wait", "continue", "abort"):
            raise ConfigError(f'absent must be "wait", "continue" or "abort", not {absent!r}')
        patience = Patience(float(setting(context, "timeout", (int, float))), absent)
        asked = Asked(out, place, setting(context, "resume", bool), patience)
        result = federate(read(place.job), FlowerPost(grid), asked, tell)
    except PrivadmmError as error:
        status.write("failed", error=type(error).__name__, message=str(error), exit_code=error.exit_code)
        raise error.with_traceback(None) from None  # the log then ends with what happened
    except BaseException as error:
        status.write("failed", error=type(error).__name__, exit_code=1)
        raise
    status.write("finished")
    logger.info("privadmm: %s", f"finished: {result['transcript']}, see {out / 'result.json'}")


def setting(context: Context, key: str, kind: Any) -> Any:
    value = context.run_config.get(key)
    if not isinstance(value, kind):
        raise ConfigError(f"the Flower app's config lacks {key}; `privadmm federation init` writes it")
    return value


app = ServerApp()
app.main()(main)
