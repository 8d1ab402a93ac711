"""Keeps Flower's processes up: a party's node, or the coordinator's SuperLink and the process that runs its ServerApp.

After a crash Flower takes a node back only when its last heartbeat has expired, after a minute. A SuperLink that is
started again finds its runs in its database, and its clients retry until it is back. But it gives up a run that was
silent for a minute, and then the process that drives the run ends. The supervisor of the SuperLink submits such a run
again, to be resumed, as long as it is wanted (state.py).
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from privadmm.deploy.federation.hub.state import driven, read_status, wanted
from privadmm.deploy.federation.layout import COORDINATOR, Coordinator
from privadmm.errors import ClusterError, ConfigError

TRIES = 24  # starts in a row that end soon, after which the process is given up
SOON = 60.0  # seconds within which an end counts as soon
PAUSE = 5.0  # seconds before the next start
LOOK = 0.2  # seconds between looks at the processes
LEAVING = 10.0  # seconds that a process may take to end
STARTING = 60.0  # seconds that the process of a submitted run may take to begin
RESUMING = 1.0  # seconds between looks at the run
SUBMIT = "privadmm.deploy.flower.control"  # the program that submits a run again
PORTS = range(20000, 60000)  # of a rehearsal
PR_SET_PDEATHSIG = 1  # of Linux's prctl
PRCTL = getattr(ctypes.CDLL(None), "prctl", None)  # found now: between fork and exec another thread may hold a lock


@dataclass
class Process:
    """A process that is started again whenever it ends. Flower's end with code 0 when somebody else signals them."""

    command: Sequence[str]
    environment: Mapping[str, str]
    forever: bool = False  # start it again however often it ends
    hint: str = ""  # what to do about an end
    child: "subprocess.Popen[bytes] | None" = None
    due: float = 0.0  # when to start it
    began: float = 0.0
    failures: int = 0  # in a row
    log: Path | None = None  # a file for what it prints
    announce: Callable[[], bool] | None = None  # tells people that it is up; False: it is not up yet
    announced: bool = False

    def look(self) -> int | None:
        """Start the process if it is due. Returns an exit code other than 0 if it never stays up, else None."""
        now = time.monotonic()
        if self.child is None:
            if now >= self.due:
                self.began, self.announced = now, False
                with nullcontext() if self.log is None else self.log.open("ab") as out:
                    self.child = subprocess.Popen(
                        self.command,
                        env=dict(self.environment),
                        stdout=out,
                        stderr=out,
                        preexec_fn=partial(end_with_parent, os.getpid()),
                    )
            return None
        if (code := self.child.poll()) is None:
            if self.announce is not None and not self.announced:
                self.announced = self.announce()
            return None
        self.child = None
        self.failures = self.failures + 1 if now - self.began < SOON else 1
        if not self.forever and self.failures >= TRIES:
            return code or 1
        self.due = now + PAUSE
        name = self.command[0].rpartition("/")[2]
        said = f"privadmm: {name} ended with code {code}; it is started again in {PAUSE:g} s"
        print(f"{said}. {self.hint}" if self.hint else said, file=sys.stderr, flush=True)
        return None

    def end(self, interrupted: bool) -> None:
        """End the process. If `interrupted`, Ctrl-C has already reached it: wait before it is signalled again."""
        if self.child is None:
            return
        steps: list[Callable[[], object]] = [self.child.terminate, self.child.kill]
        for step in [self.child.poll, *steps] if interrupted else steps:
            step()
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(timeout=LEAVING)
                return


@dataclass
class Resumption:
    """Watches the run that is wanted of a coordinator, and has it submitted again when its process is gone."""

    place: Coordinator
    environment: Mapping[str, str]
    child: "subprocess.Popen[bytes] | None" = None
    due: float = 0.0

    def look(self) -> None:
        now = time.monotonic()
        if self.child is not None and self.child.poll() is not None:
            self.due, self.child = now + (PAUSE if self.child.returncode else RESUMING), None
        if self.child is None and now >= self.due:
            self.due = now + RESUMING
            if self.lost():
                words = [sys.executable, "-m", SUBMIT, str(self.place.folder)]
                self.child = subprocess.Popen(
                    words, env=dict(self.environment), preexec_fn=partial(end_with_parent, os.getpid())
                )

    def lost(self) -> bool:
        """Whether a run is wanted that no process drives, while the SuperLink is there to take it."""
        asked = wanted(self.place)
        if asked is None or asked.over or driven(self.place):
            return False
        began = bool(asked.runs) and read_status(self.place).get("run") == asked.runs[-1]
        with suppress(OSError):
            if not began and time.time() - self.place.wanted.stat().st_mtime < STARTING and asked.runs:
                return False
        return reachable(*self.place.address)

    def end(self) -> None:
        if self.child is not None:
            self.child.terminate()
            self.child.wait()


def keep_up(
    commands: Sequence[Sequence[str]],
    environment: Mapping[str, str],
    forever: bool = False,
    hint: str = "",
    announce: Callable[[], bool] | None = None,
) -> int:
    """Keep these commands running until a signal asks to stop; returns the exit code of one that never stays up.

    With `forever` no command is given up, since others may mend what ails it; `hint` says how. In a coordinator's
    environment, the run that is wanted there is kept going too. `announce` is called again and again, after each start
    of the first command, until it returns True.
    """
    processes = [Process(command, environment, forever, hint) for command in commands]
    processes[0].announce = announce
    folder = environment.get(COORDINATOR)
    run = None if folder is None else Resumption(Coordinator(Path(folder)), environment)
    with stop_signals() as signals:
        try:
            while not signals:
                for process in processes:
                    if (code := process.look()) is not None:
                        return code
                if run is not None:
                    run.look()
                time.sleep(LOOK)
            return 0
        finally:
            if run is not None:
                run.end()
            for process in reversed(processes):
                process.end(interrupted=signal.SIGINT in signals)


def reachable(host: str, port: int) -> bool:
    """Whether a process listens there. An IPv6 address may stand in brackets, as in HOST:PORT."""
    with suppress(OSError), socket.create_connection((host.strip("[]"), port), timeout=2.0):
        return True
    return False


def end_with_parent(parent: int | None = None) -> None:
    """Ask Linux to end this new process when its parent ends, however that happens.

    Linux does not report a parent that is gone already; its process id, if it is given, shows that.
    """
    if PRCTL is not None:
        PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
        if parent is not None and os.getppid() != parent:
            os._exit(1)


def need_port(host: str, port: int, whose: str, change: str) -> None:
    """Refuse to start a process whose port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise ConfigError(
            f"{host}:{port} cannot be listened at ({error.strerror}): if {whose} runs already, end it first; else "
            f"change {change}"
        ) from None


def free_ports(count: int) -> int:
    """The first of this many free ports in a row on loopback."""
    for first in range(PORTS.start + os.getpid() % 10000, PORTS.stop - count, count):
        with suppress(OSError), ExitStack() as held:
            for offset in range(count):
                held.enter_context(socket.create_server(("127.0.0.1", first + offset)))
            return first
    raise ClusterError(f"there are no {count} free ports in a row on 127.0.0.1")


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list to which signals to stop are added as they arrive; a terminal that is closed sends SIGHUP."""
    received: list[int] = []
    others = (signal.SIGHUP, signal.SIGQUIT)  # unless they are ignored, as under nohup
    numbers = (signal.SIGINT, signal.SIGTERM, *(n for n in others if signal.getsignal(n) != signal.SIG_IGN))
    before = {number: signal.signal(number, lambda got, frame: received.append(got)) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
