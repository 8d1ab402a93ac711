"""A party's own log, requests.log: one line of JSON for each letter. It stays at the party.

    at, kind, job, round (counted from 1), phase     what was asked, and when
    name                                             the party's
    outcome, why                                     answered, refused, locked or failed
    seconds                                          how long it took
    epsilon_spent, epsilon_left                      of the party's budget, once the letter was answered

Beyond SIZE the file becomes requests.log.1, that one requests.log.2, and so on; the oldest of KEPT is removed.
"""

import contextlib
import errno
import json
import math
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privadmm.data.files import for_owner
from privadmm.deploy.federation.desk.spending import spent_and_left
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.proposal import JOB
from privadmm.deploy.federation.protocol import Letter
from privadmm.errors import LockedError, PrivadmmError, RefusedError, show
from privadmm.privacy.ledger import NOBODY, Asked
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.refusals import PATIENCE
from privadmm.privacy.sqlite_ledger import SqliteLedger

LOG = "requests.log"
SIZE = 10_000_000  # bytes
LONGEST = 10_000  # characters of a text in a line
KEPT = 5  # older files
CUT = 80  # characters of a field that the coordinator wrote


def asked(letter: Letter) -> dict[str, str | int]:
    """What a letter asks for; rounds count from 1, as people do."""
    told: dict[str, str | int] = {}
    for key in ("kind", "job", "round", "phase"):
        if key in letter:
            value: Any = letter[key]
            if type(value) is not int or abs(value) >= 2**53:
                value = value[:CUT] if isinstance(value, str) else show(value)
            told[key] = value
    if isinstance(number := told.get("round"), int):
        told["round"] = number + 1
    return told


def note(folder: Path, **fields: Any) -> None:
    """Write a line. If it cannot be written, the letter is not answered."""
    known = {name: cut(value) for name, value in fields.items() if value not in (None, "")}
    line = json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%S%z"), **known}, default=repr).encode() + b"\n"
    with _alone(folder / LOG) as file:
        size = os.fstat(file.fileno()).st_size
        if file.write(line) < len(line):  # a disk that runs full has taken only a part
            os.truncate(file.fileno(), size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / LOG))


def cut(value: Any) -> Any:
    """Leave out the middle of a long text: an error may quote what a letter sent, and would fill the log with it."""
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[: LONGEST // 2]} ... {value[-LONGEST // 2 :]}"
    return value


def tell(folder: Path, why: str) -> None:
    """Write a line for the steward; unlike `note`, a failure to write is ignored."""
    with contextlib.suppress(OSError):
        note(folder, kind="notice", why=why)


@dataclass
class Line:
    """What the party's log says about a letter, besides the letter's own fields."""

    name: str | None = None
    ledger: Path | None = None  # where a refusal goes on record
    asked: Asked = NOBODY  # what is known of the job by then
    job: str = ""
    epsilon: dict[str, float | str] = field(default_factory=dict)

    def of(self, party: Party) -> None:
        """Note the party whose line this is."""
        self.name, self.ledger, self.asked = party.name, party.ledger, Asked(party=party.name)

    def about(self, asked: Asked, job: str = "") -> None:
        """Note the job that the line is about."""
        self.asked, self.job = replace(asked, party=self.name), job

    def count(self, party: Party, ledger: SqliteLedger, job: str, before: str | None = None) -> None:
        """Note what is spent and left of the party's budget. No answer depends on it."""
        budget = party.fixed.budget
        if budget is None:
            return
        try:
            spent, left = spent_and_left(party.folder, ledger, party.number, budget, job, before)
            told = spent if math.isfinite(spent) else "infinite"  # JSON has no infinity
            self.epsilon = {"epsilon_spent": told, "epsilon_left": left}
        except (PrivadmmError, sqlite3.Error, ArithmeticError) as error:
            self.epsilon = {"epsilon_spent": f"could not be counted: {type(error).__name__}"}

    def refuse(self, letter: Letter, error: RefusedError | LockedError) -> None:
        """Put a refusal into the ledger too, unless it is there, or the ledger is missing or cannot be written now.

        The coordinator gets the same answer either way.
        """
        with contextlib.suppress(Exception):
            if self.ledger is None or error.recorded or not self.ledger.exists() or not self.ledger.stat().st_size:
                return
            job, known = str(letter.get("job", self.job)), identity_of(self.ledger)
            if known is not None:
                facts = (known.parties, known.policy, known.mode)
                with contextlib.closing(SqliteLedger(self.ledger, *facts, patience=PATIENCE)) as ledger:
                    ledger.note_refusal(error, self.asked, job if JOB.fullmatch(job) else "")


def full(error: BaseException | None) -> bool:
    """Whether the error comes from a disk that is full or cannot be used."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        code = getattr(error, "sqlite_errorcode", None)  # on a full disk SQLite may report a failed read
        if code is not None and code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[Any]:
    """Open the log to append, while other processes wait; beyond SIZE, put it away and open a new one."""
    for _ in range(100):
        with open(path, "ab", buffering=0, opener=for_owner) as file:
            with contextlib.suppress(ImportError):
                from fcntl import LOCK_EX, flock

                flock(file, LOCK_EX)
            state = os.fstat(file.fileno())
            try:
                mine = os.stat(path).st_ino == state.st_ino
            except FileNotFoundError:
                mine = False
            if not mine:  # another process has just put it away
                continue
            if state.st_size < SIZE:
                yield file
                return
            put_away(path)
    raise OSError(f"{path}: is put away again and again")


def put_away(path: Path) -> None:
    """Move a log and its predecessors on by one number."""
    names = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, KEPT + 1))]
    for old, new in zip(names[-2::-1], names[:0:-1], strict=True):
        if old.exists():
            old.replace(new)
