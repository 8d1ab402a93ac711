"""Decisions of a party's steward about jobs, if party.toml says approve = "ask".

    proposals/DIGEST.json        a proposal as it came, and when; the file's mtime is when it was last asked for
    proposals/DIGEST.decision    the steward's decision about exactly this proposal, signed with the party's key
    proposals/DIGEST.earlier     a decision that ended when the ledger began another epoch
    jobs/lock                    a lock: one `begin` at a time is answered

The digest covers all of a proposal: the job's id, its config, everybody's facts, and the version of privadmm that
counts its cost. So a proposal that differs in anything waits again. A decision also names the party and the ledger's
epoch: it does not count at another party, nor after a ledger was put back or made again, where the same job would be
paid a second time. Every release needs a decision that holds at that moment. A decision that has ended, or that the
party's present key did not sign, does not count, and the steward is asked again.

A coordinator may send as many proposals as it likes. A party keeps those that its policy allows and its budget can pay,
and at most `MOST` undecided ones: beyond that it drops the one that was asked for longest ago.
"""

import json
import math
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Literal

from privadmm.data.files import for_owner, write_bytes
from privadmm.deploy.federation.desk.party_log import tell as notice
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.proposal import CODE, Proposal
from privadmm.deploy.federation.protocol import refused
from privadmm.errors import ConfigError, RefusedError, WaitingError

FOLDER, ENTRY, DECISION, EARLIER = "proposals", ".json", ".decision", ".earlier"
MOST = 20  # proposals that wait
LARGEST = 1 << 20  # bytes of a proposal that can wait
LONGEST = 500  # characters of a reason
DIGEST = re.compile("[0-9a-f]{64}")
DAY = 86400.0
State = Literal["waiting", "approved", "refused", "ended"]


@dataclass(frozen=True)
class Decision:
    """What the steward said about one proposal. Times are in seconds since 1970."""

    digest: str
    job: str
    party: int
    epoch: str  # of the ledger
    approved: bool
    at: float
    until: float
    why: str = ""
    tell: bool = False  # whether the coordinator is told why

    def content(self) -> bytes:
        """Bytes that the party's key signs."""
        return json.dumps(["privadmm decision, version 1", *astuple(self)]).encode()

    @property
    def ended(self) -> bool:
        return not self.at <= self.until or time.time() > self.until


@dataclass(frozen=True)
class Entry:
    """A proposal that came, and the decision about it, if there is one that counts."""

    digest: str
    proposal: Proposal
    first: float  # when it came
    last: float  # when it was last asked for
    decision: Decision | None

    @property
    def code(self) -> str:
        return self.proposal.code

    @property
    def state(self) -> State:
        """Where it stands. A proposal whose decision has ended waits again once it is asked for again."""
        if self.decision is None or (self.decision.ended and self.last > self.decision.until):
            return "waiting"
        if self.decision.ended:
            return "ended"
        return "approved" if self.decision.approved else "refused"


@dataclass(frozen=True)
class Proposals:
    """The proposals/ of a party's directory."""

    party: Party

    @property
    def folder(self) -> Path:
        return self.party.folder / FOLDER

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Answer one `begin` at a time: one that fails must not remove what another has kept."""
        self.party.jobs.mkdir(exist_ok=True)
        with open(self.party.jobs / "lock", "a", opener=for_owner) as file:
            with suppress(ImportError):
                from fcntl import LOCK_EX, flock

                flock(file, LOCK_EX)
            yield

    def need(self, proposal: Proposal, epoch: str) -> None:
        """Return if the steward approved exactly this proposal; raise an error if it was refused, or waits."""
        if not self.party.asks:
            return
        decision = self.decision(proposal.digest)
        if decision is not None and decision.epoch != epoch:
            self._path(proposal.digest).replace(self.folder / f"{proposal.digest}{EARLIER}")
            decision = None
        if decision is not None and not decision.ended:
            if decision.approved:
                return
            why = f": {decision.why}" if decision.tell else ""
            raise RefusedError(f"refused by its steward{why}", "approval")
        self.keep(proposal)
        raise WaitingError(f"its steward has not approved the job yet; the proposal has the code {proposal.code}")

    def _path(self, digest: str) -> Path:
        return self.folder / f"{digest}{DECISION}"

    def keep(self, proposal: Proposal) -> None:
        """Keep a proposal for the steward to decide about; if it is there already, note that it was asked for again."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / f"{proposal.digest}{ENTRY}"
        packed = proposal.pack().decode()
        if len(packed) > LARGEST:
            raise refused(f"a proposal that waits for a steward has {LARGEST:,} bytes at most, and this one more")
        if path.exists():
            os.utime(path)
            return
        write_bytes(path, json.dumps({"at": time.time(), "proposal": packed}).encode(), private=True)
        waiting = [other for other in self._files() if not other.with_suffix(DECISION).exists() and other != path]
        for old in sorted(waiting, key=last_asked)[: max(0, len(waiting) + 1 - MOST)]:
            old.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return [path for path in self.folder.glob(f"*{ENTRY}") if DIGEST.fullmatch(path.stem)]

    def entries(self) -> list[Entry]:
        """All proposals, the oldest first; a file whose content does not fit its name is left out."""
        entries = [entry for path in self._files() if (entry := self.entry(path.stem)) is not None]
        return sorted(entries, key=lambda entry: (entry.first, entry.digest))

    def entry(self, digest: str) -> Entry | None:
        """The proposal with this digest, if it is there and unchanged."""
        path = self.folder / f"{digest}{ENTRY}"
        with suppress(OSError, ValueError, KeyError, TypeError, RefusedError):
            table = json.loads(path.read_bytes())
            proposal, first = Proposal.unpack(str(table["proposal"]).encode()), float(table["at"])
            if proposal.digest == digest and math.isfinite(first):
                return Entry(digest, proposal, first, last_asked(path), self.decision(digest))
        return None

    def find(self, word: str, to_decide: bool = False) -> Entry:
        """The proposal that a person names by its code; to look at it, its job or the code's first digits will do.

        To decide, the whole code is needed: it tells a proposal from another that was sent in its place.
        """
        plain = word.replace("-", "").lower()
        known = self.entries()
        whole = [entry for entry in known if entry.digest[:CODE] == plain or entry.digest == plain]
        loose = [entry for entry in known if entry.proposal.id == plain or (plain and entry.digest.startswith(plain))]
        matches = whole if to_decide or whole else loose
        if len(matches) == 1:
            return matches[0]
        command = f"`privadmm federation proposals {self.party.folder}` lists them"
        if to_decide and loose:
            raise ConfigError(f"{word}: give the whole code of the proposal that you looked at; {command}")
        what = "several proposals" if matches else "no proposal here"
        raise ConfigError(f"{word}: names {what}; {command}")

    def decide(
        self, entry: Entry, approved: bool, epoch: str, why: str = "", tell: bool = False, days: float | None = None
    ) -> Decision:
        """Record a decision about exactly this proposal; it replaces an earlier one."""
        from privadmm.deploy.federation.signing import seal

        why = checked_reason(why)
        if not approved and not why:
            raise ConfigError("a refusal needs a reason, which stays here unless you say that it is told")
        days = self.party.policy.approval_days if days is None else days
        if not 0 < days <= 3650:
            raise ConfigError(f"a decision holds for more than 0 and up to 3650 days, not {days:g}")
        now = time.time()
        made = Decision(
            entry.digest,
            entry.proposal.id,
            self.party.number,
            epoch,
            approved,
            now,
            now + days * DAY,
            why,
            tell and not approved,
        )
        signature = seal(self.party.folder / self.party.node.key, made.content())
        path = self._path(entry.digest)
        write_bytes(path, json.dumps({**asdict(made), "signature": signature}, indent=1).encode(), private=True)
        return made

    def decision(self, digest: str) -> Decision | None:
        """The decision about a proposal; None, with a line in the log, if this party's key did not sign it."""
        from privadmm.deploy.federation.signing import public_of, sealed

        path = self._path(digest)
        try:
            table = json.loads(path.read_bytes())
            signature = str(table.pop("signature"))
            made = Decision(**table)
            own = public_of(self.party.folder / self.party.node.key)
            mine = (made.digest, made.party) == (digest, self.party.number)
            if mine and sealed(own, made.content(), signature):
                return made
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        notice(
            self.party.folder, f"{path.name} was not signed by this party's key for this proposal, and does not count"
        )
        return None


def last_asked(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def checked_reason(why: str) -> str:
    """Check a reason, which is kept and may be told: one line, and not a long one."""
    why = why.strip()
    if len(why) > LONGEST or not why.isprintable():
        raise ConfigError(f"a reason is one line of up to {LONGEST} characters")
    return why
