"""Flower's ServerApp: runs the coordinator's job. The run's config names the coordinator's directory."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import RunNotRunningException

from privadmm.config.file import Config, read
from privadmm.deploy.federation.hub.coordinator import Patience
from privadmm.deploy.federation.hub.state import Status, Wanted, driving, inside, note, settle, wanted
from privadmm.deploy.federation.keys import as_flower
from privadmm.deploy.federation.layout import COORDINATOR, Coordinator
from privadmm.deploy.federation.proposal import parties_of
from privadmm.deploy.flower.post import FlowerPost
from privadmm.errors import ClusterError, ConfigError, PrivadmmError
from privadmm.runs.federated import Asked, end, federate
from privadmm.runs.reporting import Reporter, StopRequestedError
from privadmm.runs.rundir import RunDir

logger = logging.getLogger("flwr")
TURN = 30.0  # seconds to wait for the process that drives a run to end
# What Flower's client says when its SuperLink does not know the run any more: this process is over, and not the run.
CUT_OFF = (httpx.HTTPError, RunNotRunningException)


def main(grid: Grid, context: Context) -> None:
    place = Coordinator(Path(os.environ.get(COORDINATOR) or setting(context, "coordinator", str)))
    run, out = str(grid.run.run_id), setting(context, "out", str)
    path = inside(place, out)
    with driving(place, TURN) as mine:
        if not mine:
            raise ClusterError(
                "another process is at work on a run of this coordinator: `privadmm federation status` shows it, and "
                "`stop` ends it"
            )
        asked = wanted(place)
        if asked is not None and run in asked.runs and (asked.over or run != asked.runs[-1]):
            logger.info("privadmm: this run was submitted again, or stopped, before it began")
            return
        if asked is None or run not in asked.runs:  # started by hand
            Wanted(out, runs=(*(asked.runs if asked else ()), run)).save(place)
        with Status(place.status, run, str(path)) as status:
            drive(grid, context, place, path, status)


def drive(grid: Grid, context: Context, place: Coordinator, path: Path, status: Status) -> None:
    """Drive the run, and write how it ended. If its SuperLink gave it up, it is still wanted, and submitted again."""

    def ended(state: str, **facts: str | int | None) -> None:
        told = {"error": None, "message": None, "exit_code": 0} | facts
        status.write(state=state, waiting_for=[], at=state, **told)
        note(place, state, run=status.run, **told)
        settle(place)

    try:
        absent = setting(context, "absent", str)
        if absent not in ("wait", "continue", "abort"):
            raise ConfigError(f'absent must be "wait", "continue" or "abort", not {absent!r}')
        patience = Patience(float(setting(context, "timeout", (int, float))), absent)
        asked = Asked(path, place, setting(context, "resume", bool), patience)
        keep_options(place, patience)
        config = read(place.job)
        post = FlowerPost(grid)
        report = Reporter(place, status, parties_of(config), owners(place, config, post))
        post.watch = report.waiting
        report.check()
        result = federate(config, post, asked, report)
    except StopRequestedError as error:
        if error.for_good:
            report.close()
        ended("stopped", error=type(error).__name__, message=stopped(post, place, path, error.for_good), exit_code=1)
        return
    except PrivadmmError as error:
        ended("failed", error=type(error).__name__, message=str(error), exit_code=error.exit_code)
        raise error.with_traceback(None) from None  # the log then ends with what happened
    except CUT_OFF as error:
        note(place, "cut off from the SuperLink", run=status.run, error=type(error).__name__)
        raise
    except Exception as error:
        ended("failed", error=type(error).__name__, message=None, exit_code=1)
        raise
    ended("finished")
    logger.info("privadmm: %s", f"finished: {result['transcript']}, see {path / 'result.json'}")


def stopped(post: FlowerPost, place: Coordinator, path: Path, for_good: bool) -> str:
    """Say what is left of a stopped run; if it is over for good, see that the parties know."""
    directory = RunDir(path)
    if not directory.job.exists():
        return "the run was stopped, and nothing had been released"
    if not for_good:
        return "the run was stopped: `privadmm federation run` with --resume goes on with it"
    heard = end(post, place, directory)
    return f"the run was ended for good, and {heard} parties heard it: what they had set aside for it is free again"


def keep_options(place: Coordinator, patience: Patience) -> None:
    """Keep the options of a run that was started by hand, for the next process that takes it up."""
    if (asked := wanted(place)) is not None and asked.timeout is None:
        replace(asked, timeout=patience.timeout, absent=patience.absent).save(place)


def owners(place: Coordinator, config: Config, post: FlowerPost) -> Any:
    """A function that tells the party of a node, by the key with which it was registered; None if nobody's."""
    keys: dict[bytes, int] = {}
    for party in range(parties_of(config)):
        path = place.keys / f"party-{party}.pub"
        if path.is_file():
            keys[as_flower(path)] = party
    return lambda node: keys.get(post.owners.get(node, b""))


def setting(context: Context, key: str, kind: Any) -> Any:
    value = context.run_config.get(key)
    if not isinstance(value, kind):
        raise ConfigError(f"the Flower app's config lacks {key}; `privadmm federation init` writes it")
    return value


app = ServerApp()
app.main()(main)
