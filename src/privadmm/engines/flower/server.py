"""The ServerApp: runs the coordinator's job over Grid. The run's config names the coordinator's directory."""

import logging
import os
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from privadmm.config import read
from privadmm.engines.flower.post import FlowerPost
from privadmm.errors import ConfigError, PrivadmmError
from privadmm.federation.coordinator import Patience
from privadmm.federation.layout import COORDINATOR, Coordinator
from privadmm.federation.running import Asked, federate
from privadmm.report.rundir import write_json

logger = logging.getLogger("flwr")


def main(grid: Grid, context: Context) -> None:
    place = Coordinator(Path(os.environ.get(COORDINATOR) or said(context, "coordinator", str)))
    out = place.folder / said(context, "out", str)
    if not out.resolve().is_relative_to(place.runs.resolve()):
        raise ConfigError(
            f'out = "{said(context, "out", str)}" is not inside runs/ of the coordinator\'s directory'
        )
    status: dict[str, Any] = {"run": str(grid.run.run_id), "out": str(out), "state": "running"}

    def tell(line: str) -> None:
        logger.info("privadmm: %s", line)
        write_json(place.status, status | {"at": line})

    try:
        absent = said(context, "absent", str)
        if absent not in ("wait", "continue", "abort"):
            raise ConfigError(f'absent must be "wait", "continue" or "abort", not {absent!r}')
        patience = Patience(float(said(context, "timeout", (int, float))), absent)
        asked = Asked(out, place.keys, said(context, "resume", bool), patience)
        tell("started")
        result = federate(read(place.job), FlowerPost(grid), asked, tell)
    except PrivadmmError as error:
        failed = {"error": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
        write_json(place.status, status | {"state": "failed", **failed})
        raise error.with_traceback(None) from None  # the log then ends with what happened
    except BaseException as error:
        write_json(place.status, status | {"state": "failed", "error": type(error).__name__, "exit_code": 1})
        raise
    write_json(place.status, status | {"state": "finished"})
    logger.info("privadmm: %s", f"finished: {result['transcript']}, see {out / 'result.json'}")


def said(context: Context, key: str, kind: Any) -> Any:
    value = context.run_config.get(key)
    if not isinstance(value, kind):
        raise ConfigError(f"the Flower app's config lacks {key}; `privadmm federation init` writes it")
    return value


app = ServerApp()
app.main()(main)
