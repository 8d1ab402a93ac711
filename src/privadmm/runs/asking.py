"""Asks for a run of a federation at the coordinator's directory: starts it, follows it, stops it."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from privadmm.config.file import read
from privadmm.deploy.federation.hub.coordinator import named
from privadmm.deploy.federation.hub.state import (
    Absent,
    Wanted,
    asked_to_stop,
    driven,
    driving,
    inside,
    note,
    settle,
    standing,
    wanted,
)
from privadmm.deploy.federation.hub.supervisor import reachable
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.proposal import parties_of
from privadmm.errors import CheckpointError, ClusterError
from privadmm.runs.rundir import RunDir

LOOK = 0.2  # seconds between looks at status.json
LEAVING = 90.0  # seconds that a run may take to stop
OVER = ("finished", "failed", "stopped")


def need_superlink(place: Coordinator) -> None:
    host, port = place.address
    if not reachable(host, port):
        raise ClusterError(
            f"no SuperLink listens at {host}:{port}: start it with `privadmm federation superlink {place.folder}`, in "
            "a terminal that stays open, or as a service"
        )


def need_admitted(place: Coordinator) -> None:
    """Refuse to begin while a party is not admitted: its node would not be let in, and would be waited for."""
    parties = parties_of(read(place.job))
    away = [number for number in range(parties) if not (place.keys / f"party-{number}.pub").is_file()]
    if away:
        who = "nobody is" if len(away) == parties else f"{named(away)} {'is' if len(away) == 1 else 'are'} not"
        raise ClusterError(
            f"{who} admitted yet, and a run begins with all {parties} parties: admit each with its reply, "
            f"`privadmm federation admit {place.folder} REPLY.toml...`"
        )


def going_on(place: Coordinator, asked: Wanted | None) -> CheckpointError:
    """The error that refuses a second run beside the one that is going on."""
    return CheckpointError(
        f"a run is going on in {asked.out if asked else place.runs}: see `privadmm federation status "
        f"{place.folder}`, or end it with `privadmm federation stop {place.folder}`"
    )


def start(
    place: Coordinator, out: str, resume: bool = False, absent: Absent | None = None, timeout: float | None = None
) -> list[str]:
    """Register the keys that are new, and submit a run; the names of those keys."""
    from privadmm.deploy.flower import control
    from privadmm.deploy.flower.registry import agree

    under_way = wanted(place)
    # Before the look at its directory, which would advise --resume for a run that needs none.
    if not resume and under_way is not None and not under_way.over and driven(place):
        raise going_on(place, under_way)
    RunDir(inside(place, out)).check(resume)
    if not resume:
        need_admitted(place)
    need_superlink(place)
    fresh = agree(place)["registered"]
    if fresh:
        note(place, "registered", keys=fresh)
    with driving(place) as free:
        before = wanted(place)
        # One that was interrupted may be asked for again with other options, and nothing else in its place.
        waiting = before is not None and not before.over and (before.out != out or not resume)
        if not free or waiting:
            raise going_on(place, before)
        if asked_to_stop(place) == "for good":
            raise CheckpointError(f"{place.folder / out}: is being ended for good; name another --out")
        place.stop.unlink(missing_ok=True)
        asked = Wanted(out, timeout, absent, resume, runs=before.runs if before else ())
        asked.save(place)
        try:
            control.submit(place, asked)
        except BaseException:
            settle(place)
            raise
    return fresh


def follow(place: Coordinator) -> Iterator[dict[str, Any]]:
    """Yield the status of the wanted run again and again; the last one is its end."""
    while True:
        asked = wanted(place)
        status = standing(place)
        mine = asked is not None and status.get("run") in asked.runs[-1:]
        if asked is None or (asked.over and (not mine or status.get("state") in OVER)):
            yield status
            return
        # A run that is being submitted, or was, has no status yet: what is there is of an earlier process.
        yield status if mine else {"state": "starting", "at": "submitted", "out": asked.out, "wanted": True}
        time.sleep(LOOK)


def stop(place: Coordinator, for_good: bool, seconds: float = LEAVING) -> dict[str, Any]:
    """Stop the run, and see that it has stopped. If it is `for_good`, its job ends at the parties as well."""
    from privadmm.deploy.flower import control

    asked = wanted(place)
    if asked is None or (asked.over and not for_good):
        raise CheckpointError(f"{place.folder}: no run is going on, so there is nothing to stop")
    directory = RunDir(inside(place, asked.out))
    if asked.over and (directory.result.exists() or directory.ended.exists() or not directory.job.exists()):
        raise CheckpointError(f"{directory.path}: holds no unfinished run, so there is nothing to end")
    if for_good and not driven(place):
        need_superlink(place)  # somebody has to carry the letters
    place.stop.write_text("for good" if for_good else "stop", encoding="utf-8")
    if asked.over:  # a process is started that tells the parties
        replace(asked, over=False, idle=0, round=0).save(place)
    note(place, "asked to stop", for_good=for_good)
    deadline = time.monotonic() + seconds
    for status in follow(place):
        # A run that had stopped before says so until a process has told the parties.
        if status.get("state") in OVER and (not asked.over or directory.ended.exists()):
            return status
        if not for_good and not driven(place):
            with driving(place) as free:
                if free and (found := wanted(place)) is not None and not found.over:
                    said = "the run was stopped: `privadmm federation run` with --resume goes on with it"
                    control.end(place, "stopped", said, "StopRequestedError")
        if time.monotonic() > deadline:
            raise ClusterError(
                f"the run has not stopped within {seconds:g} s; it will, as soon as its process or the SuperLink is "
                "back: `privadmm federation status` says so"
            )
    raise AssertionError("a run that is followed has an end")


def log_lines(place: Coordinator, follow: bool = False, last: int | None = None) -> Iterator[dict[str, Any]]:
    """Lines of the coordinator's log, the older ones first; then those that are added, until somebody stops it."""
    path = place.log
    older = sorted(path.parent.glob("log.[0-9]"), reverse=True)
    lines = [
        line for file in [*older, path] if file.is_file() for line in file.read_text(encoding="utf-8").splitlines()
    ]
    yield from parsed(lines if last is None else lines[-last:])
    seen = path.stat().st_size if path.exists() else 0
    while follow:
        time.sleep(LOOK)
        size = path.stat().st_size if path.exists() else 0
        if size < seen:  # moved aside
            seen = 0
        if size > seen:
            with path.open("rb") as file:
                file.seek(seen)
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            seen += len(whole)
            yield from parsed(whole.decode(errors="replace").splitlines())


def parsed(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                yield found
