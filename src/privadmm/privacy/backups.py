"""Copy a ledger, and put a copy back in its place without forgetting what was released since the copy was made.

A backup lacks what was released after it was made. The anchor, which stays where the ledger is, knows what every party
had spent or set aside in all. So a backup that is put back is charged with that, and has the ledger's total again. Jobs
that were open in the backup are over, since they may have gone on. If the anchor is missing or does not know, the
steward decides what is charged. Everything is on record in a row of kind `restore`.

Putting back is done in this order, and can be done again after a crash at any point of it:

    copy the backup beside the ledger, and charge it there      the ledger is as it was
    move what is in the ledger's place aside                    it is missing; its anchor locks its place
    move the copy there                                         it lacks the anchor's last row, and is locked
    erase the keys of its jobs                                  the same
    write a new anchor                                          done
"""

import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privadmm.errors import ConfigError, LedgerError, LockedError, RefusedError
from privadmm.params import check_nonnegative
from privadmm.privacy.accounting import epsilon, printed
from privadmm.privacy.anchor import DOUBTED, Anchor, AnchorFile, Known, lacks
from privadmm.privacy.events import Lost, Spent, less, merge
from privadmm.privacy.key_file import erase_keys
from privadmm.privacy.ledger_file import PUT_BACK, Identity, alone_beside, connect, identity_of, readable, start_of
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import Verification, sound, verify

DECIDE = (
    "say with --charge EPSILON --at-delta DELTA what that cost at most (--charge 0: nothing was released since), or "
    "with --spend-all"
)


def backup(path: Path, copy: Path) -> Verification:
    """Copy a ledger as of one moment, without keys, and verify the copy. It is put back with `restore`."""
    if copy.exists():
        raise LedgerError(f"{copy}: exists already, and a backup overwrites nothing; name another file")
    _opened(path).close()  # a ledger that is behind its anchor, or damaged, is not worth a copy
    fresh = copy.with_name(f"{copy.name}-{os.getpid()}.new")
    with _removed_if_left(fresh):
        _copy(path, fresh)
        verified = verify(fresh)
        if verified.problems:
            raise LedgerError(f"{path}: its copy does not verify: {verified.problems[0]}")
        try:
            os.link(fresh, copy)  # which overwrites nothing
        except FileExistsError:
            raise LedgerError(f"{copy}: exists already, and a backup overwrites nothing; name another file") from None
        except OSError:  # no links there
            fresh.replace(copy)
    return verified


@dataclass(frozen=True)
class Decision:
    """A steward's decision about lost rows: the reason, and what to charge for them if their cost is unknown."""

    why: str
    charge: float | None = None
    spend_all: bool = False
    at_delta: float | None = None  # the delta at which `charge` holds

    def __post_init__(self) -> None:
        if not self.why.strip():
            raise LedgerError("say why a backup is put back; it is kept in the ledger")
        if self.charge is not None and self.spend_all:
            raise ConfigError("--charge and --spend-all exclude each other")
        check_nonnegative(charge=self.charge or 0.0, at_delta=self.at_delta or 0.0)
        if self.charge and self.at_delta is None:
            raise ConfigError(
                "--charge needs --at-delta: at which delta that epsilon holds. 0, if it holds without one; else it is "
                "taken off the ledger's delta, so it has to be smaller"
            )

    @property
    def made(self) -> bool:
        return self.charge is not None or self.spend_all


@dataclass(frozen=True)
class Restored:
    """What putting a backup back has done."""

    rows: int  # of the backup
    missing: str | None  # what the backup lacked; None: nothing
    known: bool  # whether the anchor knew what was spent or set aside
    ended: tuple[str, ...]  # jobs that were open in the backup, and are over
    charged: dict[int, Spent]  # by party
    replaced: Path | None  # the new place of the file that the backup replaced


def restore(source: Path, path: Path, decision: Decision) -> Restored:
    """Put a backup in a ledger's place, charged with what was released since. `source` may be `path` itself."""
    sound(source)
    identity, path = _identity(source), path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    anchor, fresh = AnchorFile(path, durable=identity.mode == "deployment"), path.with_name(f"{path.name}-restored")
    with alone_beside(path):
        if _is_whole(path):
            raise LedgerError(f"{path}: lacks nothing that its anchor knows, and needs no backup in its place")
        read, missing = _compared(source, anchor)
        known, doubted = (None, False) if read is None else (anchor.known(), read.doubted)
        with _removed_if_left(fresh):
            _copy(source, fresh)
            with closing(_opened(fresh, anchored=False)) as made:
                rows = made.rows
                if made.doubted:
                    doubted, missing = True, DOUBTED
                ended, charged = ((), {}) if missing is None else _charge(made, path, known, decision, doubted)
            with closing(_opened(fresh, anchored=False)) as made:
                now = made.anchor_now()
            _as_one_file(fresh)
            replaced = _moved_aside(path)
            fresh.replace(path)
            if missing is not None:
                erase_keys(path)
            anchor.make(*now)
    return Restored(rows, missing, known is not None and not doubted, ended, charged, replaced)


def _charge(
    ledger: SqliteLedger, path: Path, known: Known | None, decision: Decision, doubted: bool
) -> tuple[tuple[str, ...], dict[int, Spent]]:
    """End the jobs that were open, charge what was lost, and return both. `path` is the place of the ledger.

    What the anchor knows is charged in any case. If others proved that there was more, the steward decides how much.
    """
    policy = ledger.policy if known is None else Identity.of(known.policy).policy
    budget = policy.budget
    if budget is not None and decision.charge and (decision.at_delta or 0.0) >= budget.delta > 0:
        raise ConfigError(
            f"{path}: --at-delta {decision.at_delta:g} leaves nothing of the ledger's delta = {budget.delta:g} for all "
            "other releases: name the epsilon at a smaller one, half of it, say"
        )
    if (known is None or doubted) and budget is not None and not decision.made:
        raise ConfigError(f"{path}: what was released since the backup was made is not known here; {DECIDE}")
    lost_draws = [name for name in (known.kept if known else ()) if name not in ledger.kept_for_all()]
    if (known is None or doubted) and ledger.policy.label_epsilon is not None and not ledger.kept_for_all():
        lost_draws = ["labels"]
    if lost_draws:
        raise RefusedError(
            f"{path}: the backup is older than what was drawn once for all jobs ({', '.join(lost_draws)}). To draw it "
            "again would tell more of the records than was promised. Nothing was changed: put a later backup back"
        )
    with ledger.transaction():
        before = {party: ledger.spent(party) for party in ledger.ids}
        ended = tuple(job for job in ledger.jobs() if ledger.unfinished(job))
        for job in ended:
            # If the anchor knows the total, that is charged below. Else the job may have spent all that it set aside.
            ledger.append("restore", job, (-1, -1), decision.why, {} if known else ledger.still_owed(job))
        ledger.forget_steps()
        spent = {party: ledger.spent(party) for party in ledger.ids}
        more = {party: less(known.aside.get(party, ()), spent[party]) for party in ledger.ids} if known else {}
        if budget is not None:
            for party in ledger.ids:
                most, at = decision.charge or 0.0, decision.at_delta or 0.0
                if decision.spend_all:
                    most = _left(merge(spent[party], more.get(party, ())), budget.epsilon, budget.delta)
                if most > 0:
                    more[party] = merge(more.get(party, ()), ((Lost(most, at), 1),))
        said: dict[str, Any] = {"known": known is not None and not doubted, "charge": decision.charge}
        said |= {"at_delta": decision.at_delta, "spend_all": decision.spend_all, "nonce": secrets.token_hex(8)}
        said["settled"] = sorted({*ledger.epochs(), *(known.epochs if known else ())})
        number = ledger.count("restore", PUT_BACK)
        ledger.append("restore", PUT_BACK, (-1, number), decision.why, more, json.dumps(said).encode())
        if known is not None and known.policy != ledger.identity.facts():
            # The policy was amended after the backup was made: the amendment holds.
            facts = json.dumps(known.policy).encode()
            ledger.append("amend", "", (-1, ledger.count("amend")), decision.why, outbox=facts)
        for party in ledger.ids:
            if budget and (total := epsilon(ledger.spent(party), budget.delta)) > budget.epsilon:
                raise RefusedError(
                    f"{path}: party {party} would have spent epsilon = {printed(total, '.6g')} of "
                    f"{budget.epsilon:.6g}. Nothing was changed: if that much may have been released, use "
                    "--spend-all, after which nothing more can be"
                )
        charged = {party: less(ledger.spent(party), before[party]) for party in ledger.ids}
    return ended, charged


def _left(spent: Spent, most: float, delta: float) -> float:
    """The largest pure epsilon that a budget still covers on top of what is spent; 0 if none."""
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        fits = middle > 0 and epsilon(merge(spent, ((Lost(middle), 1),)), delta) <= most
        low, high = (middle, high) if fits else (low, middle)
    return low


def _compared(source: Path, anchor: AnchorFile) -> tuple[Anchor | None, str | None]:
    """The anchor, if it can be read, and what the backup lacks of it; None if nothing."""
    try:
        known = anchor.read()
    except LedgerError as error:
        return None, str(error)
    if known is None:
        return None, f"the anchor {anchor.path.name} is missing"
    with readable(source), closing(connect(source, read_only=True)) as db:
        start = start_of(db).hash
        if known.start != start:
            raise LedgerError(
                f"{source}: is a copy of another ledger than the one whose anchor is {anchor.path}; name another file"
            )
        return known, DOUBTED if known.doubted else lacks(db, start, known)


def _is_whole(path: Path) -> bool:
    """Whether there is a ledger that verifies and has all that its anchor knows."""
    try:
        if not path.is_file() or verify(path).problems:
            return False
        _opened(path).close()
        return True
    except (LedgerError, LockedError):
        return False


def _identity(path: Path) -> Identity:
    if (known := identity_of(path)) is None:
        raise LedgerError(f"{path}: there is no ledger there")
    return known


def _opened(path: Path, anchored: bool = True) -> SqliteLedger:
    """Open a ledger; anchored=False: a copy that has no anchor yet."""
    known = _identity(path)
    return SqliteLedger(path, known.parties, known.policy, known.mode, anchored=anchored)


def _files(path: Path) -> list[Path]:
    """The paths of a database and of the files that SQLite may have left beside it."""
    return [path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", "-shm")]


@contextmanager
def _removed_if_left(fresh: Path) -> Iterator[None]:
    """Remove a temporary file on entry, where a crash may have left one, and on exit."""
    for file in _files(fresh):
        file.unlink(missing_ok=True)
    try:
        yield
    except OSError as error:
        raise LedgerError(f"{error.filename or fresh}: could not be written ({error.strerror})") from error
    finally:
        for file in _files(fresh):
            file.unlink(missing_ok=True)


def _copy(path: Path, fresh: Path) -> None:
    """Copy a database as of one moment into one file, for its owner alone."""
    os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    with readable(path), closing(connect(path, read_only=True)) as source, closing(sqlite3.connect(fresh)) as made:
        source.backup(made)
    _as_one_file(fresh)


def _as_one_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")


def _moved_aside(path: Path) -> Path | None:
    """Move the files in the ledger's place aside, where nothing opens them as a ledger: they have no anchor there."""
    there = [file for file in _files(path) if file.exists()]
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    numbers = (path.with_name(f"{path.name}-replaced-{stamp}{more}") for more in ("", *map("-{}".format, range(1, 99))))
    aside = next(name for name in numbers if not name.exists())
    for file in there:
        file.rename(aside.with_name(aside.name + file.name.removeprefix(path.name)))
    return aside if path in there else None
