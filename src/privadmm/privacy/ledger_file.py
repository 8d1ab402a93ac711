"""Format of a ledger's file: its identity, its rows as bytes and hashes, and connections that fail closed on damage."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from time import gmtime, strftime
from typing import Any

import numpy as np

from privadmm.errors import ConfigError, LedgerError
from privadmm.privacy.alike import Alike
from privadmm.privacy.events import Spent, added, dump, load
from privadmm.privacy.limits import Limits
from privadmm.privacy.policy import SILENT_DAYS, Budget, Policy

APPLICATION_ID = 0x70616D6D
FORMAT = 2  # 1 had no times, no facts of jobs and no refusals; such a ledger is brought to 2 when it is opened
READABLE = (1, 2)
TABLES = (
    "CREATE TABLE identity (fact TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    """CREATE TABLE ticks (
        seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, job TEXT NOT NULL, round INTEGER NOT NULL, phase INTEGER NOT NULL,
        inbox TEXT NOT NULL, charges TEXT NOT NULL, outbox BLOB NOT NULL, state TEXT NOT NULL, hash TEXT NOT NULL,
        UNIQUE (job, kind, round, phase)) STRICT""",
    """CREATE TABLE states (
        job TEXT PRIMARY KEY, round INTEGER NOT NULL, phase INTEGER NOT NULL, state BLOB NOT NULL) STRICT""",
)
# Ledgers of earlier versions lack these; opening such a ledger adds them. `intents` holds one row at most, since only
# one process has a deployment's turn. The indexes find the last failure, proof of missing rows and change of policy
# without reading all rows. `summaries`: see verification.Accounts. `anchored` has a row if there is an anchor
# (anchor.py), so that its removal is noticed. `activity` has the time of each job's last row, in seconds since 1970;
# nothing is decided by it. `refused` counts the refusals of a day: see refusals.py.
ADDED = (
    """CREATE TABLE IF NOT EXISTS intents (
        job TEXT NOT NULL, round INTEGER NOT NULL, phase INTEGER NOT NULL, inbox TEXT NOT NULL,
        charges TEXT NOT NULL) STRICT""",
    """CREATE TABLE IF NOT EXISTS summaries (
        seq INTEGER PRIMARY KEY, job TEXT NOT NULL UNIQUE, account TEXT NOT NULL, seal TEXT NOT NULL) STRICT""",
    "CREATE INDEX IF NOT EXISTS locks ON ticks (seq) WHERE kind IN ('fail', 'unlock')",
    "CREATE INDEX IF NOT EXISTS doubts ON ticks (seq) WHERE kind IN ('behind', 'restore')",
    "CREATE INDEX IF NOT EXISTS amendments ON ticks (seq) WHERE kind = 'amend'",
    "CREATE TABLE IF NOT EXISTS anchored (since REAL NOT NULL) STRICT",
    "CREATE TABLE IF NOT EXISTS activity (job TEXT PRIMARY KEY, at REAL NOT NULL) STRICT",
    """CREATE TABLE IF NOT EXISTS refused (
        key TEXT PRIMARY KEY, day TEXT NOT NULL, seq INTEGER NOT NULL, count INTEGER NOT NULL, last TEXT NOT NULL,
        seal TEXT NOT NULL) STRICT""",
)
ALTERED = "its hash does not fit; this row or one before it was altered or removed"
# The account that is charged for the rows that a ledger lost when a copy was put back. No job has such a name.
PUT_BACK = "put back"
ROWS = "SELECT seq, kind, job, round, phase, inbox, charges, outbox, state, hash FROM ticks"
Receipt = tuple[str, int, int, str]  # job, round, phase, and the hash of that row


# Kinds of rows that cost nothing and begin nothing, so that what an anchor knows of spending stays true.
NOTES = ("refuse", "decide", "format")


def utc_now() -> str:
    """The current time to a second, as it stands in a deployment's rows."""
    return strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())


def moment(seconds: float) -> str:
    """A time in seconds since 1970, for people and for JSON."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def stamped(digest: str, at: str) -> str:
    """The column `state` of a row: the digest of the state that a tick kept ("" for other rows), and the row's time.

    A simulation's rows have no time: the same job gives the same hashes, whenever it runs.
    """
    return f"{digest} {at}" if at else digest


def digest_in(state: str) -> str:
    return state.partition(" ")[0]


def time_in(state: str) -> str | None:
    """When a row was written; None in a simulation, and of a row of format 1."""
    return state.partition(" ")[2] or None


def sha(*parts: str | bytes) -> str:
    """Hash of the parts with their lengths, so that no two lists of parts look alike."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()


def count_seal(row: str, *values: str | int) -> str:
    """Seal a count of refusals with the hash of the row that it continues."""
    return sha(row, *map(str, values))


def link(before: str, row: tuple[Any, ...]) -> str:
    """Hash of a row (seq, kind, job, round, phase, inbox, charges, outbox, state) that follows the hash `before`."""
    *facts, outbox, state = row
    return sha(before, json.dumps(facts), outbox, state)


def pack_charges(charges: Mapping[int, Spent]) -> str:
    """[[party, ...], [[event, count], ...]] for each distinct charge: short when parties are charged alike."""
    by_number = Alike.of(charges)
    by_number = by_number.over(np.sort(by_number.ids))
    equal: dict[Spent, Spent] = {}
    alike = by_number.map(lambda charge: equal.setdefault(charge, charge))
    if len(equal) < len(alike.kinds):
        alike = Alike.listed(alike.ids, alike.listing())
    numbers = [_numbers(parties.tobytes()) for parties in alike.groups()]
    return f"[{', '.join(map('[{}, {}]'.format, numbers, map(_counted, alike.kinds)))}]"


@lru_cache(maxsize=256)
def _counted(charge: Spent) -> str:
    """Events and their counts in JSON. Memoised: most rounds charge the same."""
    return json.dumps([[dump(event), count] for event, count in charge])


@lru_cache(maxsize=16)
def _numbers(parties: bytes) -> str:
    """Party numbers (64 bits each) in JSON. Memoised: every row of a job lists the same ones."""
    return json.dumps(np.frombuffer(parties, dtype=np.int64).tolist())


def unpack_charges(text: str) -> Alike[Spent]:
    charges: dict[int, Spent] = {}
    for parties, packed in json.loads(text):
        charge = tuple((load(event), count) for event, count in packed)
        charges |= dict.fromkeys(parties, charge)
    return Alike.of(charges)


@dataclass
class Account:
    """What one job has spent and set aside in one ledger, and its last tick."""

    spent: Alike[Spent] = field(default_factory=lambda: Alike.of({}))
    reserved: Alike[Spent] | None = None
    over: bool = False  # closed, or failed
    last: tuple[int, int, str] | None = None  # round, phase and hash of the state of its last tick
    kept: int = 0  # rows of what was drawn once
    amended: int = 0  # rows that changed the policy

    def read(self, kind: str, charges: Alike[Spent], last: tuple[int, int, str]) -> None:
        """Count one more row of the job."""
        if kind in ("tick", "fail", "restore"):
            self.spent = added(self.spent, charges)
            self.reserved = self.spent if self.over else self.reserved
        if kind == "tick":
            self.last = (*last[:2], digest_in(last[2]))
        elif kind == "reserve":
            self.reserved = charges
        elif kind == "fail":
            # All that the job set aside stays counted: what is left of a budget must not tell how far the job came.
            # Format 1, whose rows have no time, freed it.
            freed = self.reserved is None or time_in(last[2]) is None
            self.reserved, self.over = self.spent if freed else self.reserved, True
        elif kind in ("close", "restore"):
            self.reserved, self.over = self.spent, True
        elif kind == "keep":
            self.kept += 1
        elif kind == "amend":
            self.amended += 1
        elif kind not in ("unlock", "behind", "anew", *NOTES):
            raise LedgerError(f"the ledger holds a row of a kind this version cannot count: {kind!r}")

    @property
    def counts(self) -> Alike[Spent]:
        """What counts against each party's budget: what is set aside or, without that, what is spent."""
        return self.spent if self.reserved is None else self.reserved

    def pack(self) -> str:
        reserved = None if self.reserved is None else pack_charges(self.reserved)
        amended = [self.amended] if self.amended else []  # summaries of earlier versions lack it
        return json.dumps([pack_charges(self.spent), reserved, self.over, self.last, self.kept, *amended])

    @staticmethod
    def unpack(text: str) -> "Account":
        spent, reserved, over, last, *counts = json.loads(text)
        aside = None if reserved is None else unpack_charges(reserved)
        return Account(unpack_charges(spent), aside, over, None if last is None else tuple(last), *counts)


@dataclass(frozen=True)
class Identity:
    """What a ledger is for: its mode and parties, fixed when it is made, and a policy, which its steward may amend."""

    mode: str
    parties: tuple[int, ...]
    policy: Policy

    def facts(self) -> dict[str, str]:
        values = {
            "mode": self.mode,
            "parties": list(self.parties),
            "adjacency": self.policy.adjacency,
            "budget": asdict(self.policy.budget) if self.policy.budget else None,
            "per_job": self.policy.per_job,
            "algorithms": self.policy.algorithms,
            "row_bound": self.policy.row_bound,
        }
        if self.policy.label_epsilon is not None:
            values["label_epsilon"] = self.policy.label_epsilon
        if self.policy.limits not in (None, Limits()):  # older ledgers lack the fact, and have the defaults
            values["limits"] = asdict(self.policy.limits)
        for name in ("colluding", "fewest"):
            if (value := getattr(self.policy, name)) is not None:
                values[name] = value
        if self.policy.silent_days != SILENT_DAYS:
            values["silent_days"] = self.policy.silent_days
        return {fact: json.dumps(value) for fact, value in values.items()}

    @staticmethod
    def of(facts: dict[str, str]) -> "Identity":
        values = {fact: json.loads(value) for fact, value in facts.items()}
        budget = None if values["budget"] is None else Budget(**values["budget"])
        allowed = None if values["algorithms"] is None else tuple(values["algorithms"])
        limits = Limits(**values["limits"]) if "limits" in values else default_limits(values["mode"])
        later = (values.get("colluding"), values.get("fewest"), values.get("silent_days", SILENT_DAYS))
        bounds = (values["row_bound"], values["adjacency"], values.get("label_epsilon"), limits, *later)
        return Identity(values["mode"], tuple(values["parties"]), Policy(budget, values["per_job"], allowed, *bounds))

    @property
    def hash(self) -> str:
        return hash_of(self.facts())


def same_but_for_policy(one: Identity, other: Identity) -> bool:
    """Whether two identities agree in what no amendment may change."""
    first, second = one.policy, other.policy
    counted = (first.adjacency, first.label_epsilon) == (second.adjacency, second.label_epsilon)
    return counted and (one.mode, one.parties) == (other.mode, other.parties)


def default_limits(mode: str) -> Limits | None:
    """The limits of a ledger that was made without any: a deployment always has some."""
    return Limits() if mode == "deployment" else None


DAMAGE = (sqlite3.Error, ConfigError, ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError)


def printable(text: object) -> str:
    """Text that may come from a damaged file, made safe for one line of a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in str(text))[:200]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn whatever reading a damaged ledger raises into a LedgerError that names the file."""
    try:
        yield
    except LedgerError as error:
        if str(path) in str(error):
            raise
        raise LedgerError(f"{path}: {error}") from error
    except (*DAMAGE, TypeError, ValueError) as error:
        why = getattr(error, "sqlite_errorname", type(error).__name__)
        raise LedgerError(
            f"{path}: is damaged, or in use by another process ({why}). Nothing was released: find out what happened "
            "to it before anything else; an older copy forgets what was released since"
        ) from error


def connect(path: Path, read_only: bool = False, patience: float = 30.0, make: bool = True) -> sqlite3.Connection:
    """Connect to a ledger of this format or, if `make`, to a file without tables; refuse any other file.

    Only the owner may read a file that is made here. The files that SQLite keeps beside it get the same permissions.
    """
    if (read_only or not make) and not path.is_file():
        raise LedgerError(f"{path}: there is no ledger there")
    try:
        if not read_only:
            # Never open a file that exists: closing it would drop the locks that this process has on it.
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        # Opened for writing even if only read, where that is allowed: then SQLite leaves no file of its own behind.
        access = ("rw" if os.access(path, os.W_OK) else "ro") if read_only else "rwc"
        source = f"{path.absolute().as_uri()}?mode={access}"
        db = sqlite3.connect(source, uri=True, isolation_level=None, timeout=patience)
        try:
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if tables and db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise LedgerError(f"{path}: is a database, but not a privadmm ledger; name another file")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if tables and version not in READABLE:
                raise LedgerError(
                    f"{path}: has ledger format {version}, and this version of privadmm reads {FORMAT} and before: "
                    "install the version that wrote it"
                )
            if (read_only or not make) and not tables:
                raise LedgerError(f"{path}: is empty, not a ledger; if making one was cut short, remove it and make it")
        except BaseException:
            db.close()
            raise
    except (sqlite3.Error, OSError, ValueError) as error:
        why = printable(getattr(error, "strerror", None) or error)
        raise LedgerError(f"{path}: cannot be used as a ledger ({why}); name another file") from error
    return db


@contextmanager
def alone_beside(path: Path, patience: float = 30.0) -> Iterator[None]:
    """Be the only process at work on a ledger; the lock ends with this process at the latest.

    A file beside the ledger is locked and not the ledger itself, which must be free for commits meanwhile.
    """
    place = path.resolve()  # one ledger has one lock, by whatever path it is opened
    beside = place.with_name(f"{place.name}-turn")
    if not beside.exists():  # else this open and close would drop the locks that this process holds on it
        with suppress(FileExistsError):
            os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with closing(sqlite3.connect(beside, isolation_level=None, timeout=patience)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            raise LedgerError(
                f"{path}: another process is at work on this ledger ({error}); nothing was released"
            ) from error
        yield


def facts_of(db: sqlite3.Connection) -> dict[str, str]:
    """The facts that the ledger was made with, as they are stored."""
    return dict(db.execute("SELECT fact, value FROM identity"))


def hash_of(facts: Mapping[str, str]) -> str:
    """The hash from which the chain of a ledger with these facts starts."""
    return sha(json.dumps(dict(facts), sort_keys=True))


def current_facts(db: sqlite3.Connection) -> dict[str, str]:
    """The facts of the last row that amended the policy; without one, those that the ledger was made with."""
    last = db.execute(f"{ROWS} WHERE kind = 'amend' ORDER BY seq DESC LIMIT 1").fetchone()
    if last is None:
        return facts_of(db)
    *row, stored = last
    before = db.execute("SELECT hash FROM ticks WHERE seq = ?", (row[0] - 1,)).fetchone()
    if link(hash_of(facts_of(db)) if row[0] == 1 else str(before and before[0]), tuple(row)) != stored:
        raise LedgerError(f"row {row[0]}: {ALTERED}; nothing was released")
    facts: dict[str, str] = json.loads(row[7])
    return facts


def start_of(db: sqlite3.Connection) -> Identity:
    """The identity that the ledger was made with; the chain starts from its hash."""
    return Identity.of(facts_of(db))


def current(db: sqlite3.Connection) -> Identity:
    """The ledger's identity with its current policy."""
    return Identity.of(current_facts(db))


def identity_of(path: Path) -> Identity | None:
    """The identity of the ledger at this path, with its current policy; None if there is none yet."""
    if not path.exists():
        return None
    with readable(path), closing(connect(path, read_only=True)) as db:
        return current(db)


def row_with(path: Path, head: str) -> int | None:
    """Find the row with this hash in a ledger, and return its number.

    0 stands for the hash from which the chain starts. None: the ledger has no such row.
    """
    with readable(path), closing(connect(path, read_only=True)) as db:
        if head == hash_of(facts_of(db)):
            return 0
        row = db.execute("SELECT seq FROM ticks WHERE hash = ?", (head,)).fetchone()
        return None if row is None else int(row[0])


def extent_of(path: Path) -> tuple[str, int]:
    """The hash from which the chain of the ledger at the path starts, and the number of its last row."""
    with readable(path), closing(connect(path, read_only=True)) as db:
        (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM ticks").fetchone()
        return hash_of(facts_of(db)), int(last)
