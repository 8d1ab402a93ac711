"""The state of a coordinator's run: status.json, the run that is wanted, the log, and the lock of its process.

One process drives a run at a time: it locks run.lock, and the lock ends with the process, however that happens. A run
is wanted from the moment it is asked for until it ends by itself or is stopped. If its process is gone before that, the
supervisor submits it again.
"""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

from privadmm.data.files import for_owner, write_json
from privadmm.deploy.federation.layout import Coordinator, json_table
from privadmm.errors import ConfigError

BEAT = 5.0  # seconds between heartbeats in status.json
SILENT = 60.0  # seconds without a heartbeat, after which a run is not shown as running
LOG = 4 << 20  # bytes of the log, after which it is moved to log.1, and that to log.2
OLD = 3  # logs that are kept
UNHEARD = "asked, not heard"  # state of a party at the end of a run: it may have answered, as its ledger knows
Absent = Literal["wait", "continue", "abort"]
Stop = Literal["", "stop", "for good"]


@dataclass(frozen=True)
class Wanted:
    """A run that was asked for, and Flower's runs that were submitted for it, of which the last counts."""

    out: str  # inside the coordinator's directory
    timeout: float | None = None  # None: as the app's pyproject.toml says
    absent: Absent | None = None
    resume: bool = False  # an earlier request began it
    runs: tuple[str, ...] = ()
    over: bool = False  # it ended by itself, or was stopped
    round: int = 0  # rounds that were done when it was last submitted
    idle: int = 0  # submissions in a row since which no round was done

    def save(self, place: Coordinator) -> None:
        write_json(place.wanted, asdict(self))

    def submitted(self, run: str) -> "Wanted":
        return replace(self, runs=(*self.runs, run))


def wanted(place: Coordinator) -> Wanted | None:
    """The run that was asked for last; None if there is none, or the file cannot be read."""
    try:
        table = json.loads(place.wanted.read_text(encoding="utf-8"))
        return Wanted(**{**table, "runs": tuple(table["runs"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def settle(place: Coordinator) -> None:
    """Forget the wanted run: it ended, or was stopped."""
    if (asked := wanted(place)) is not None:
        replace(asked, over=True).save(place)
    place.stop.unlink(missing_ok=True)


def asked_to_stop(place: Coordinator) -> Stop:
    """Whether the run is asked to stop, and whether its job is then over for good."""
    try:
        said = place.stop.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
    return "for good" if said == "for good" else "stop"


def take_lock(file: IO[str], seconds: float) -> bool:
    """Lock an open file, unless another process holds its lock for so long; closing the file lets go of it."""
    from fcntl import LOCK_EX, LOCK_NB, flock

    deadline = time.monotonic() + seconds
    while True:
        with suppress(BlockingIOError):
            flock(file, LOCK_EX | LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file. This takes a shared lock, so that two looks do not collide."""
    from fcntl import LOCK_NB, LOCK_SH, flock

    with open(path) as file, suppress(BlockingIOError):
        flock(file, LOCK_SH | LOCK_NB)
        return False
    return True


@contextmanager
def driving(place: Coordinator, seconds: float = 5.0) -> Iterator[bool]:
    """Hold the lock for driving or submitting a run; yields whether it was free within this many seconds."""
    with open(place.lock, "a", opener=for_owner) as file:
        yield take_lock(file, seconds)


def driven(place: Coordinator) -> bool:
    """Whether a process drives a run, or submits one, at this moment."""
    return place.lock.exists() and is_locked(place.lock)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def seconds_since(at: object) -> float:
    """Seconds since a time with its zone; infinite for anything else."""
    try:
        return (datetime.now(UTC) - datetime.fromisoformat(str(at))).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


@dataclass
class Status:
    """status.json of a run, written by the process that drives it, with a heartbeat while that is alive."""

    path: Path
    run: str
    out: str
    facts: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Status":
        self.facts = {"run": self.run, "out": self.out, "state": "running", "at": "started", "pid": os.getpid()}
        self.facts |= {"started": now(), "round": 0, "rounds": None, "waiting_for": [], "parties": []}
        self.facts |= {"evaluation": None, "seconds_left": None, "error": None, "message": None, "exit_code": None}
        self.write()
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()

    def write(self, **changes: Any) -> None:
        """Change these facts; the file is replaced in one step."""
        with self._lock:
            self.facts |= changes
            write_json(self.path, {**self.facts, "beat": now()})

    def _beat(self) -> None:
        while not self._end.wait(BEAT):
            with suppress(OSError):  # the disk may be full for a moment; changes of facts are written elsewhere
                self.write()


def read_status(place: Coordinator) -> dict[str, Any]:
    return json_table(place.status)


def at_rest(status: dict[str, Any]) -> dict[str, Any]:
    """The status of a run that no process drives: nobody is waited for, and parties that were asked were not heard."""
    if "parties" not in status:
        return status
    parties = [{**party, "state": UNHEARD} if party.get("state") == "asked" else party for party in status["parties"]]
    return {**status, "parties": parties, "waiting_for": [], "seconds_left": None}


def standing(place: Coordinator) -> dict[str, Any]:
    """status.json, corrected: `state` is "interrupted" if the file says "running" and no process drives the run.

    `wanted` tells whether the run is taken up again by itself once `privadmm federation superlink` is up.
    """
    alive = driven(place)  # before the file is read: a run writes its end before it lets go of the lock
    status, asked = read_status(place), wanted(place)
    going = asked is not None and not asked.over
    if status.get("state") == "running":
        quiet = seconds_since(status.get("beat"))
        if not alive:
            status, why = at_rest(status), "its process is gone"
        elif quiet > SILENT:
            why = f"its process gave no sign of life for {quiet:.0f} s"
        else:
            return {**status, "wanted": going}
        return {**status, "state": "interrupted", "message": why, "exit_code": 1, "wanted": going}
    return {**at_rest(status), "wanted": going}


def note(place: Coordinator, event: str, **facts: Any) -> None:
    """Append a line to the coordinator's log; old logs are moved aside. A log that cannot be written stops nothing."""
    path = place.log
    with suppress(OSError):
        if path.exists() and path.stat().st_size > LOG:
            for number in range(OLD - 1, 0, -1):
                older = path.with_name(f"log.{number}")
                if older.exists():
                    older.replace(path.with_name(f"log.{number + 1}"))
            path.replace(path.with_name("log.1"))
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"at": now(), "event": event, **facts}) + "\n")


def inside(place: Coordinator, out: str) -> Path:
    """The directory of a run, which has to be in runs/ of the coordinator's."""
    path = place.folder / out
    if not path.resolve().is_relative_to(place.runs.resolve()) or path.resolve() == place.runs.resolve():
        raise ConfigError(f'out = "{out}" is not inside runs/ of the coordinator\'s directory')
    return path
