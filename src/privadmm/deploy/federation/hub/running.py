"""Runs beside Flower's processes: a mark that they are kept up, and a watch over the parties' keys."""

import json
import os
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
from privadmm.deploy.federation.hub.state import is_locked, take_lock
from privadmm.deploy.federation.hub.supervisor import reachable
from privadmm.deploy.federation.layout import Coordinator, json_table
from privadmm.errors import ConfigError, visible

MARK = "running.json"  # names the process that keeps a node or a SuperLink up, which locks the file
LOOK = 2.0  # seconds between looks at nodes/
REGISTRY = "privadmm.deploy.flower.registry"


@contextmanager
def marked(folder: Path) -> Iterator[None]:
    """Hold the mark of a directory; a ConfigError if another process holds it."""
    with open(folder / MARK, "a+", encoding="utf-8", opener=for_owner) as file:
        if not take_lock(file, 0.0):
            raise ConfigError(f"{folder}: runs already{who(folder)}; end that first")
        file.truncate(0)
        facts = {"pid": os.getpid(), "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "version": __version__}
        file.write(json.dumps(facts))
        file.flush()
        yield


def running(folder: Path) -> dict[str, Any] | None:
    """The process that keeps the node or SuperLink of this directory up; None if there is none."""
    with suppress(OSError):
        if is_locked(folder / MARK):
            return json_table(folder / MARK)
    return None


def who(folder: Path) -> str:
    """Id and start of the process that holds the mark, for a message."""
    facts = json_table(folder / MARK)
    return f" (process {facts.get('pid')}, since {facts.get('since')})" if facts else ""


class Registrar(threading.Thread):
    """Watches nodes/: whenever its keys change, the SuperLink is made to let in these, and no retired ones.

    A process of its own does that and ends, so that Flower is not loaded here.
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
        if stamp == self.done or not reachable(*self.place.address):
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
    """Say what was done with keys; `printed` ends with the registry's line of JSON."""
    try:
        done = json.loads(printed.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return ""
    parts = [f"{what} {', '.join(names)}" for what, names in done.items() if names and what != "spent"]
    if done.get("spent"):
        parts.append(f"not let in, with a key that was taken back: {', '.join(done['spent'])}; rotate it there")
    return "; ".join(parts)
