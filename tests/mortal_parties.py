"""Parties whose processes are killed: each letter is answered by a process of its own, as Flower does it.

One process loads privadmm and forks for each letter; it has one thread, so that this is safe. A child counts the
moments just before and just after it touches a database or a file, and kills itself (SIGKILL) at the one it was told.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from federations import Desks
from ledgers import Mortal
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.protocol import Letter
from privadmm.engine.loop import one_blas_thread
from privadmm.errors import ConfigError
from privadmm.privacy.mechanisms import Deployment

TOUCHES = {"execute", "executemany", "fsync", "fdatasync", "replace", "open", "write", "unlink", "close"}


class Killed(Exception):  # noqa: N818  an outcome
    """The process died before it answered."""


@dataclass
class Mortals:
    """A process that answers letters by children. `ask` kills one at a moment, counted from 1; 0 kills none."""

    process: subprocess.Popen[bytes] = field(init=False)

    def __enter__(self) -> "Mortals":
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        self.process.wait(timeout=60)

    def ask(self, folder: Path, letter: Letter, moment: int = 0) -> tuple[Letter, int]:
        """The answer, and how many moments there were."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        put(self.process.stdin, (folder, dict(letter), moment))
        said = take(self.process.stdout)
        if said is None:
            raise Killed
        found: tuple[Letter, int] = said
        return found


@dataclass
class MortalDesks(Desks):
    """A post whose letters are answered by mortals; one of them dies once at its letter, which is then sent again."""

    mortals: Mortals = field(default_factory=Mortals)
    party: int = 1
    kind: str = ""  # the letter at which it dies
    round: int | None = None
    moment: int = 0
    died: int = 0
    moments: dict[tuple[str, int | None], int] = field(default_factory=dict)  # of that party, by letter

    def ask(self, party: int, letter: Letter) -> Letter:
        self.before(party, letter)
        round = letter.get("round")
        at = (str(letter["kind"]), round if isinstance(round, int) else None)
        here = party == self.party and at == (self.kind, self.round) and not self.died
        try:
            said, count = self.mortals.ask(self.folders[party], letter, self.moment if here else 0)
        except Killed:
            self.died += 1
            said, count = self.mortals.ask(self.folders[party], letter)
        if party == self.party:
            self.moments[at] = count
        self.captured.append((party, letter, said))
        return said


def put(stream: BinaryIO, content: Any) -> None:
    data = pickle.dumps(content)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def take(stream: BinaryIO) -> Any:
    """What was put; None if the other side ended."""
    head = stream.read(8)
    return pickle.loads(stream.read(int.from_bytes(head, "little"))) if len(head) == 8 else None


def child(folder: Path, letter: Mapping[str, Any], moment: int, out: BinaryIO) -> None:
    """Answer a letter, or die at this moment."""
    mortal = Mortal(moment, TOUCHES)
    with one_blas_thread():
        sys.setprofile(mortal)
        said = answer(folder, letter)
        sys.setprofile(None)
    put(out, (said, mortal.count))


def serve() -> None:
    """Answer letters from standard input until it ends."""
    with suppress(ConfigError):
        Deployment()  # loads OpenDP
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    while (asked := take(incoming)) is not None:
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reader)
            with suppress(BaseException), os.fdopen(writer, "wb") as out:
                child(*asked, out)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as said:
            found = take(said)
        os.waitpid(pid, 0)
        put(outgoing, found)


if __name__ == "__main__":
    serve()
