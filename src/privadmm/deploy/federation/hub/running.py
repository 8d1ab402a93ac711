"""What runs beside Flower's processes while they are kept up: a mark that they run, and a look at the parties' keys."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from privadmm import __version__
from privadmm.data.files import for_owner
from privadmm.deploy.federation.layout import Coordinator
from privadmm.errors import ConfigError, visible

MARK = "running.json"  # locked by the process that keeps a node or a SuperLink up, and says which that is
LOOK = 2.0  # seconds between looks at nodes/
REGISTRY = "privadmm.deploy.flower.registry"


@contextmanager
def marked(folder: Path) -> Iterator[None]:
    """Hold the mark of a directory until the process ends; a ConfigError if another process has it."""
    from fcntl import LOCK_EX, LOCK_NB, flock

    with open(folder / MARK, "a+", encoding="utf-8", opener=for_owner) as file:
        try:
            flock(file, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            raise ConfigError(f"{folder}: runs already{who(folder)}; end that first") from None
        file.truncate(0)
        facts = {"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "version": __version__}
        file.write(json.dumps(facts))
        file.flush()
        yield


def running(folder: Path) -> dict[str, Any] | None:
    """Who keeps the node or SuperLink of this directory up; None: nobody."""
    from fcntl import LOCK_NB, LOCK_SH, flock

    try:
        with open(folder / MARK, encoding="utf-8") as file:
            flock(file, LOCK_SH | LOCK_NB)  # shared: those who look do not get into one another's way
    except OSError as error:
        return marks(folder) if isinstance(error, BlockingIOError) else None
    return None


def marks(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def who(folder: Path) -> str:
    """Process and start of whoever has the mark, for a message."""
    facts = marks(folder)
    return f" (process {facts.get('pid')}, since {facts.get('since')})" if facts else ""


def listens(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host.strip("[]"), port), timeout=2):
        return True
    return False


class Registrar(threading.Thread):
    """Keeps the keys that the SuperLink lets in equal to those in nodes/ that are not retired, whenever these change.

    The process that does it ends again: Flower is not loaded here.
    """

    def __init__(self, place: Coordinator, environment: Mapping[str, str]) -> None:
        super().__init__(daemon=True)
        self.place, self.environment = place, environment
        self.done: object = None
        self.said = ""

    def run(self) -> None:
        while True:
            with suppress(OSError, subprocess.SubprocessError):
                self.look()
            time.sleep(LOOK)

    def look(self) -> None:
        files = [*self.place.keys.glob("party-*.pub"), *self.place.retired.glob("party-*.pub")]
        stamp = sorted((str(path), path.stat().st_mtime_ns) for path in files)
        if stamp == self.done or not listens(*self.place.address):
            return
        words = [sys.executable, "-m", REGISTRY, str(self.place.folder)]
        ended = subprocess.run(
            words, env=dict(self.environment), capture_output=True, text=True, timeout=120, check=False
        )
        if ended.returncode == 0:
            self.done = stamp
            self.tell(outcome(ended.stdout))
        else:
            self.tell((ended.stderr.strip().splitlines() or ["the parties' keys could not be registered"])[-1])

    def tell(self, line: str) -> None:
        if line and line != self.said:
            self.said = line
            print(f"privadmm: {visible(line)}", file=sys.stderr, flush=True)


def outcome(printed: str) -> str:
    """What became of the keys, in words; `printed` ends with the registry's line of JSON."""
    try:
        done = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return ""
    parts = [f"{what} {', '.join(names)}" for what, names in done.items() if names and what != "spent"]
    if done.get("spent"):
        parts.append(f"not let in, with a key that was taken back: {', '.join(done['spent'])}; rotate it there")
    return "; ".join(parts)
