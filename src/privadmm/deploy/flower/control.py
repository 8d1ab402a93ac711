"""Asks the coordinator's SuperLink to start or stop a run, without calling the command `flwr`.

As a program it submits a run again whose process is gone. The supervisor starts that program, so that Flower is loaded
by a process that ends.
"""

import contextlib
import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from privadmm.deploy.federation.hub.state import (
    Stop,
    Wanted,
    asked_to_stop,
    driving,
    inside,
    note,
    read_status,
    settle,
    wanted,
)
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.flower.registry import connected
from privadmm.errors import ClusterError, ConfigError

TRIES = 5  # submissions in a row without a round done, after which a run has failed


def submit(place: Coordinator, asked: Wanted) -> Wanted:
    """Start a run for this request; the caller holds the lock for driving."""
    from flwr.cli.build import build_fab_from_disk
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    options: dict[str, Any] = {"out": asked.out, "resume": begun(place, asked)}
    options |= {"timeout": asked.timeout} if asked.timeout is not None else {}
    options |= {"absent": asked.absent} if asked.absent is not None else {}
    with connected(place) as client:
        bundle = build_fab_from_disk(place.app)
        fab = Fab(hashlib.sha256(bundle).hexdigest(), bundle, {})
        request = StartRunRequest(fab=fab_to_proto(fab), override_config=user_config_to_proto(options))
        answer = client.StartRun(request)
    if not answer.HasField("run_id"):
        raise ClusterError("the SuperLink did not start the run, and said nothing of why: see its output")
    made = asked.submitted(str(answer.run_id))
    made.save(place)
    note(place, "submitted", run=made.runs[-1], **options)
    return made


def begun(place: Coordinator, asked: Wanted) -> bool:
    """Whether there is something to resume: a run that released nothing has removed its directory."""
    return asked.resume or (inside(place, asked.out) / "job.json").exists()


def stop(place: Coordinator, run: str) -> None:
    """Stop a run at the SuperLink, whatever its state. It is no error if the run is over already."""
    from flwr.proto.control_pb2 import StopRunRequest

    with contextlib.suppress(ClusterError), connected(place) as client:
        client.StopRun(StopRunRequest(run_id=int(run)))


def stopped_by_hand(place: Coordinator, run: str) -> bool:
    """Whether somebody stopped a run with Flower's own command."""
    from flwr.proto.control_pb2 import ListRunsRequest

    with contextlib.suppress(ClusterError), connected(place) as client:
        runs = client.ListRuns(ListRunsRequest(run_id=int(run))).run_dict
        return any(known.status.sub_status == "stopped" for known in runs.values())
    return False


def again(place: Coordinator) -> None:
    """Submit the wanted run again, unless it is driven, over, asked to stop, or makes no progress."""
    with driving(place, 0.0) as free:
        asked, status = wanted(place), read_status(place)
        if not free or asked is None or asked.over:
            return
        last = asked.runs[-1] if asked.runs else None
        ask: Stop = asked_to_stop(place)
        if ask == "stop" or (last is not None and not ask and stopped_by_hand(place, last)):
            end(place, "stopped", "the run was stopped", "InterruptedRunError")
            return
        if last is not None:
            stop(place, last)  # so that the old one does not start after all
        done = int(status.get("round") or 0) if status.get("run") == last else asked.round
        idle = 0 if done > asked.round else asked.idle + 1
        if idle > TRIES:
            why = f"the run's process ended {TRIES} times without finishing a round"
            end(place, "failed", f"{why}; `privadmm federation logs` says more", "ClusterError")
            return
        note(place, "taken up again", run=last, rounds_done=done)
        submit(place, replace(asked, round=max(done, asked.round), idle=idle))


def end(place: Coordinator, state: str, why: str, error: str) -> None:
    """Write the end of a run that no process drives any more."""
    from privadmm.data.files import write_json

    told = {"state": state, "message": why, "error": error, "exit_code": 1}
    write_json(place.status, {**read_status(place), **told, "waiting_for": []})
    settle(place)
    note(place, state, message=why)


if __name__ == "__main__":
    folder = Coordinator(Path(sys.argv[1]))
    try:
        again(folder)
    except (ClusterError, ConfigError) as failure:
        note(folder, "not submitted", message=str(failure))
        sys.exit(1)
