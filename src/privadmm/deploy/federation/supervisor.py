"""Flower's processes, kept up: a party's node; the coordinator's SuperLink, and what runs its ServerApp.

After a crash Flower takes a node back only when its last heartbeat has run out, a minute. A SuperLink that is started
again finds its runs in its database, and those who talk to it try until it is there.
"""

import ctypes
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from privadmm.errors import ConfigError

TRIES = 24  # in a row, each of which ended soon after its start
PAUSE = 5.0  # seconds between two of them
SOON = 60.0
LOOK = 0.2  # seconds between looks at who is still there
LEAVING = 10.0  # seconds that one which was asked to end may take
PR_SET_PDEATHSIG = 1  # of Linux's prctl


@dataclass
class Process:
    """One process, started again whenever it fails."""

    command: Sequence[str]
    environment: Mapping[str, str]
    child: "subprocess.Popen[bytes] | None" = None
    due: float = 0.0  # when it is to be started
    began: float = 0.0
    failed: int = 0  # how often in a row

    @property
    def name(self) -> str:
        return self.command[0].rpartition("/")[2]

    def look(self) -> int | None:
        """Its exit code if it ended well or never stays up, else None."""
        now = time.monotonic()
        if self.child is None:
            if now >= self.due:
                self.began = now
                self.child = subprocess.Popen(self.command, env=dict(self.environment), preexec_fn=end_with_parent)
            return None
        if (code := self.child.poll()) is None:
            return None
        self.child = None
        self.failed = self.failed + 1 if now - self.began < SOON else 1
        if code == 0 or self.failed >= TRIES:
            return code
        self.due = now + PAUSE
        print(
            f"privadmm: {self.name} ended with code {code}; it is started again in {PAUSE:g} s",
            file=sys.stderr,
        )
        return None

    def end(self, told: bool) -> None:
        """`told`: a terminal has told it already, and to be told twice confuses it."""
        if self.child is None:
            return
        if told and self._ends():
            return
        self.child.terminate()
        if not self._ends():
            self.child.kill()
            self.child.wait()

    def _ends(self) -> bool:
        assert self.child is not None
        try:
            self.child.wait(timeout=LEAVING)
        except subprocess.TimeoutExpired:
            return False
        return True


def keep_up(commands: Sequence[Sequence[str]], environment: Mapping[str, str]) -> int:
    """Start these and keep them up until they are told to stop; the exit code of one that never stays up."""
    kept = [Process(command, environment) for command in commands]
    with asked_to_end() as asked:
        try:
            while not asked:
                for one in kept:
                    if (code := one.look()) is not None:
                        return code
                time.sleep(LOOK)
            return 0
        finally:
            for one in reversed(kept):
                one.end(told=signal.SIGINT in asked)


def end_with_parent() -> None:
    """In a new process: ask it to end when this one does, however that ends. Only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def need_port(host: str, port: int, whose: str, change: str) -> None:
    """Refuse to start what would find its place taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} cannot be listened at ({error.strerror}): if {whose} runs already, end it first; else "
            f"change {change}"
        ) from None


@contextmanager
def asked_to_end() -> Iterator[list[int]]:
    """The signals by which somebody asked this process to end: none so far."""
    asked: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        asked.append(number)

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
