"""A party's node, kept up. After a crash Flower takes it back only when its last heartbeat has run out, a minute."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType

TRIES = 24  # in a row, each of which ended soon after its start
PAUSE = 5.0  # seconds between two of them
SOON = 60.0


def keep_up(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Start the node, again whenever it fails, until it is told to stop; its exit code if it never stays up."""
    failed, code = 0, 0
    while failed < TRIES:
        began = time.monotonic()
        child = subprocess.Popen(command, env=dict(environment))
        code = waited(child)
        if code == 0:
            return 0
        failed = failed + 1 if time.monotonic() - began < SOON else 1
        print(
            f"privadmm: the node ended with code {code}; it is started again in {PAUSE:g} s", file=sys.stderr
        )
        time.sleep(PAUSE)
    return code


def waited(child: "subprocess.Popen[bytes]") -> int:
    """Its exit code; 0 if somebody asked this process to end, and it with it."""
    asked = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        child.terminate()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0 if asked else code
