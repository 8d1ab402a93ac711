"""The coordinator's cluster: it writes each party one letter per phase at the parties; other phases run here.

A `Post` carries the letters. It may lose, repeat and reorder them: a party answers a repeated letter with the same
bytes and at no charge, and each answer is taken once.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.files import write_bytes
from privadmm.deploy.federation.proposal import JOB, Proposal
from privadmm.deploy.federation.protocol import HASH, MOST_TOLD, Letter, receipt_content, split_signature, text
from privadmm.deploy.federation.signing import sealed
from privadmm.engine.job import Job
from privadmm.engine.mail import Mail, unpack_from
from privadmm.engine.phases import at_parties, heard
from privadmm.errors import (
    ClusterError,
    LockedError,
    MessageError,
    PrivadmmError,
    RefusedError,
    WaitingError,
    visible,
)
from privadmm.privacy.ledger_file import Receipt
from privadmm.privacy.masks import Entry, Roster

logger = logging.getLogger(__name__)
LOOK = 1.0  # seconds between looks, during a wait for a steward, at whether the run was stopped
RARELY = 60.0  # seconds, at most, after which a steward's decision is asked for again
QUOTED = 2000  # characters of a party's error that are shown
REASONS = 4  # refusals that an error quotes; of further ones it has the names
FAREWELL = 30.0  # seconds that parties have to hear that a job is over; the next run tells the others


class Post(Protocol):
    """Carries letters to nodes and answers back."""

    def nodes(self) -> Sequence[int]:
        """The nodes that are connected now."""

    def exchange(self, letters: Mapping[int, Letter], seconds: float) -> dict[int, Letter]:
        """Send a letter to each node; returns the answers that came within this many seconds, by node."""


@dataclass(frozen=True)
class Patience:
    """How long a party may take, and what happens then: wait on, go on without it for good, or end the run."""

    timeout: float = 600.0
    absent: Literal["wait", "continue", "abort"] = "abort"


@dataclass(frozen=True)
class Earlier:
    """What a coordinator kept of earlier runs, and tells the parties when another run begins."""

    receipts: Mapping[int, Sequence[tuple[Receipt, str]]] = field(default_factory=dict)  # the last of each run, signed
    ended: Sequence[str] = ()  # jobs that are over

    def of(self, party: int) -> Letter:
        """The fields of a `begin` for this party; of very many runs it hears of the latest."""
        receipts = [[*receipt, signature] for receipt, signature in self.receipts.get(party, ())]
        return {
            "receipts": json.dumps(receipts[-MOST_TOLD:]),
            "ended": json.dumps(list(self.ended)[-MOST_TOLD:]),
        }


@dataclass
class Federation:
    """A cluster whose parties are elsewhere."""

    post: Post
    homes: Mapping[int, int]  # the node of each party
    keys: Mapping[int, Path]  # the public key of each party, with which it signs receipts
    patience: Patience = field(default_factory=Patience)
    labels: Floats | None = None  # the coordinator's, where parties hold columns
    ended: Path | None = None  # the file that lists the jobs that are over
    may_leave: bool = False  # whether parties may be missing at `begin`: a resumed run went on without some before
    job: Job = field(init=False)  # from `begin` on
    code: str = ""  # by which stewards know the proposal; from `begin` on
    asked: bool = False  # whether a release was asked for: a party may have made it even if no answer came
    undecided: list[int] = field(default_factory=list)  # parties whose stewards have not approved the job yet
    # Called with them and the proposal's code, while they are waited for.
    tell_undecided: Callable[[Collection[int], str], None] = lambda parties, code: None
    # Called with the nodes that refused, are locked or failed.
    tell_refused: Callable[[Mapping[int, str]], None] = lambda states: None
    names: Mapping[int, str] = field(default_factory=dict)  # what people call the parties
    left: dict[int, str] = field(default_factory=dict)  # why a party is not asked any more
    _heads: dict[int, list[tuple[str, int, int, str, int, str]]] = field(default_factory=dict)  # receipts by round
    _keys: dict[int, bytes] = field(default_factory=dict)
    _seen: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)  # round and phase of a party's hash

    @property
    def keeps_its_id(self) -> bool:
        """Whether the run must keep its job's id when resumed: releases or stewards' decisions refer to that id."""
        return self.asked or bool(self.undecided)

    def begin(
        self,
        job: Job,
        proposal: Proposal,
        seen: Sequence[tuple[Receipt, int]],
        roster: Path,
        earlier: Earlier | None = None,
    ) -> None:
        """Set the cost aside at every party, or end with the first refusal. `seen` are receipts of earlier rounds.

        For a job with secure sums, every party then gets the keys of all parties. The first roster is kept in the file
        `roster`, and a resumed run has the same one, whichever parties have left by then.
        """
        self.job, self.code, packed = job, proposal.code, proposal.pack()
        letters: dict[int, Letter] = {}
        for party in self.homes:
            heads = json.dumps([head for head, first in seen if first == party])
            letters[party] = {"kind": "begin", "proposal": packed, "heads": heads, **(earlier or Earlier()).of(party)}
        patience = self.patience if self.may_leave else replace(self.patience, absent="abort")
        answers = self._ask(letters, patience)
        if job.sums is None:
            return
        if not roster.exists():
            write_bytes(roster, Roster.of(entry_of(party, answer) for party, answer in answers.items()).pack())
        keys: Letter = {"kind": "roster", "job": job.id, "roster": roster.read_bytes()}
        self._ask(dict.fromkeys(self.homes, keys), patience)

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        self.asked = True
        letters: dict[int, Letter] = {}
        for party in sorted(self.homes.keys() - set(inbox.gone.tolist())):
            mail = inbox.only(heard(self.job.algorithm, self.job.public, np.array([party]))).pack()
            letters[party] = {"kind": "step", "job": self.job.id, "round": round, "phase": phase, "inbox": mail}
        mails = []
        for party, answer in self._ask(letters, self.patience).items():
            try:
                message, head, signature = self._checked(party, round, phase, answer)
            except MessageError as error:
                if self.patience.absent != "continue":
                    raise
                self._lose(party, str(error))
                continue
            mails.append(message)
            if head:
                self._heads.setdefault(round, []).append((self.job.id, round, phase, head, party, signature))
        return Mail.join(mails or [Mail.empty()])

    def _checked(self, party: int, round: int, phase: int, answer: Letter) -> tuple[Mail, str, str]:
        """A party's message, its receipt and the receipt's signature; an error unless they fit this round."""
        sent, head, signature = answer.get("mail"), answer.get("receipt"), answer.get("signature")
        if not isinstance(sent, bytes) or not isinstance(head, str) or not isinstance(signature, str):
            raise MessageError(f"party {party} sent an answer without mail, receipt or signature")
        if self.job.leave.get(party, self.job.public.rounds) <= round:
            if (sent, head) != (Mail.empty().pack(), ""):
                raise MessageError(f"party {party} sent mail after the round in which the job has it leave")
            return Mail.empty(), "", ""
        if not HASH.fullmatch(head):
            raise MessageError(f"party {party} sent a receipt that is not 64 hexadecimal digits")
        if self._seen.setdefault((party, head), (round, phase)) != (round, phase):
            raise MessageError(f"party {party} sent the receipt of another round")
        epoch, rest = split_signature(signature)
        content = receipt_content((self.job.id, round, phase, head), epoch)
        if not HASH.fullmatch(epoch) or not sealed(self._key(party), content, rest):
            raise MessageError(
                f"party {party} sent a receipt that is not signed with the key in {self.keys[party].name}"
            )
        message = at_parties(self.job.algorithm, phase).message(self.job.public, round)
        return unpack_from(party, sent, message), head, signature

    def _key(self, party: int) -> bytes:
        """A party's public key, read once a run: it may be replaced between runs."""
        return self._keys.setdefault(party, self.keys[party].read_bytes())

    def receipts(self, round: int) -> list[tuple[str, int, int, str, int, str]]:
        return self._heads.get(round, [])

    def iterates(self, rounds: int) -> Floats | None:
        """None: iterates are not released, and stay at the parties."""
        return None

    def give_up(self) -> None:
        self._note_ended()
        letters = {node: {"kind": "give_up", "job": self.job.id} for node in self.homes.values()}
        self.post.exchange(letters, min(self.patience.timeout, 60.0))

    def end(self) -> None:
        """Tell all parties, also those that left, that the job is over for good.

        A party that answered the last phase of the last round has nothing set aside any more, and is not asked.
        """
        self._note_ended()
        last = max(self.job.plan, default=(-1, -1))
        done = {party for _, round, phase, _, party, _ in self.receipts(last[0]) if (round, phase) == last}
        end_job(self.post, [node for party, node in self.homes.items() if party not in done], self.job.id)

    def _note_ended(self) -> None:
        if self.ended is not None:
            try:
                note_ended(self.ended, self.job.id)
            except OSError as error:  # a party that is away now will not hear of it; nothing else depends on the list
                logger.warning("%s: %s", self.ended, error.strerror or error)

    def _ask(self, letters: Mapping[int, Letter], patience: Patience) -> dict[int, Letter]:
        """Send letters; returns the answers by party. Parties that refuse or do not answer leave, or end the run."""
        waiting, answers, refusals = dict(letters), dict[int, Letter](), dict[int, str]()
        began = time.monotonic()
        while waiting:
            self.undecided, refusing = [], dict[int, Letter]()
            arrived = self.post.exchange({self.homes[party]: waiting[party] for party in waiting}, patience.timeout)
            for party in [party for party in waiting if self.homes[party] in arrived]:
                answer = arrived[self.homes[party]]
                if answer.get("status") == "waiting":
                    self.undecided.append(party)
                    continue
                del waiting[party]
                (answers if answer.get("status") == "ok" else refusing)[party] = answer
            if refusing:
                self.tell_refused({self.homes[party]: status_of(answer) for party, answer in refusing.items()})
            try:
                refusals |= allowed_to_leave(refusing, patience, self.names)
            except RefusedError:
                self.undecided = []  # the run is over, whatever other stewards would decide
                raise
            if silent := waiting.keys() - set(self.undecided):
                if patience.absent != "wait":
                    break
                logger.warning("no answer of %s for %g s; asked again", named(silent), patience.timeout)
            elif waiting and not self._rest(time.monotonic() - began):
                break
        if answers:  # mass refusals may come from a bad message, made by one of the others
            need_few(refusals, len(letters))
        for party, why in refusals.items():
            self._lose(party, f"refused: {why}")
        if waiting and patience.absent == "abort" and set(waiting) == set(self.undecided):
            raise WaitingError(
                f"{named(waiting)} did not approve the job within {patience.timeout:g} s: ask the steward, who sees it "
                f"with `privadmm federation proposals` under the code {self.code}, then go on with --resume. "
                'absent = "wait" would wait longer'
            )
        if waiting and patience.absent == "abort":
            raise ClusterError(
                f"{named(waiting)} gave no answer for {patience.timeout:g} s: see whether its node is up, or raise "
                'timeout; absent = "continue" would go on without it for good'
            )
        for party in waiting:
            what = "no approval" if party in self.undecided else "no answer"
            self._lose(party, f"{what} for {patience.timeout:g} s")
        self.undecided = []
        return dict(sorted(answers.items()))

    def _rest(self, waited: float) -> bool:
        """Wait before stewards are asked again, longer each time; False if the time is up."""
        left = float("inf") if self.patience.absent == "wait" else self.patience.timeout - waited
        if left <= 0:
            return False
        end = time.monotonic() + min(left, RARELY, max(LOOK, waited / 10))
        while (now := time.monotonic()) < end:
            self.tell_undecided(self.undecided, self.code)
            time.sleep(min(LOOK, end - now))
        return True

    def _lose(self, party: int, why: str) -> None:
        logger.warning("party %d left: %s", party, why)
        self.left[party] = why


def note_ended(path: Path, job: str) -> None:
    """Add a job to the list of ended jobs, which every `begin` letter carries."""
    if job not in ended_jobs(path):
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{job}\n")


def ended_jobs(path: Path) -> list[str]:
    """The jobs on the list of `note_ended`, the oldest first."""
    lines = path.read_text(encoding="ascii", errors="replace").split() if path.is_file() else []
    return [line for line in lines if JOB.fullmatch(line)]


def end_job(post: Post, nodes: Sequence[int], job: str) -> int:
    """Tell nodes that a job is over for good; returns how many heard it. The next run tells the others."""
    if not nodes:
        return 0
    letter: Letter = {"kind": "end", "job": job}
    try:
        answers = post.exchange(dict.fromkeys(nodes, letter), FAREWELL)
    except Exception as error:  # the run is over, and its results are safe
        logger.warning("parties could not be told that job %s is over: %s", job, error)
        return 0
    deaf = [node for node in nodes if answers.get(node, {}).get("status") != "ok"]
    for node in deaf:
        why = told(answers.get(node, {"message": f"no answer for {FAREWELL:g} s"}))[1]
        logger.warning("node %d was not told that job %s is over (%s); the next run will", node, job, why)
    return len(nodes) - len(deaf)


def entry_of(party: int, answer: Letter) -> Entry:
    """A party's key for a job with secure sums, from its answer to `begin`; the parties check who signed it."""
    try:
        entry = Entry.unpack(text(answer, "entry"))
    except ValueError:
        raise MessageError(f"party {party} sent no key for the secure sums of the job") from None
    if entry.parties != (party,):
        raise MessageError(f"party {party} sent a key for the secure sums of the job in the name of another")
    return entry


def allowed_to_leave(refusing: Mapping[int, Letter], patience: Patience, names: Mapping[int, str]) -> dict[int, str]:
    """Why parties refused, if the others may go on without them; else an error that names those that end the run."""
    leave, ends, kinds = dict[int, str](), list[str](), list[type[PrivadmmError]]()
    for party, answer in refusing.items():
        (kind, why), status, who = told(answer), status_of(answer), called(party, names)
        if status == "refused" and patience.absent == "continue":
            leave[party] = why
            continue
        # A failure that records may have caused must not look like a party that left: the run would go on.
        kinds.append({"refused": RefusedError, "locked": LockedError}.get(status, ClusterError))
        said = {"refused": f"{who} refused: {why}", "locked": f"{who}: {why}"}.get(
            status, f"{who} failed, {kind}: {why}"
        )
        ends.append(said if len(ends) < REASONS else f"{who} {status}")
    if kinds:
        raise kinds[0]("; ".join(ends))
    return leave


def need_few(refusals: Mapping[int, str], asked: int) -> None:
    """End the run if half of the parties that were asked, or more, refused at once."""
    if refusals and 2 * len(refusals) >= asked:
        raise RefusedError(
            f"{named(refusals)} refused at once, half of those asked or more, and the run does not go on with the "
            f"others alone: {next(iter(refusals.values()))}"
        )


def status_of(answer: Letter) -> str:
    """How a letter failed: "refused", "locked" or "failed"."""
    status = answer.get("status")
    return str(status) if status in ("refused", "locked") else "failed"


def called(party: int, names: Mapping[int, str]) -> str:
    """Name a party as people call it, with its number."""
    number = f"party {party}"
    return number if names.get(party, number) == number else f"{names[party]} ({number})"


def told(answer: Letter) -> tuple[str, str]:
    """Kind and message of a party's error, cut and without control characters: a party may send anything."""
    kind, why = (
        visible(value[:QUOTED])[:QUOTED] if isinstance(value, str) else "nothing said"
        for value in (answer.get("error"), answer.get("message"))
    )
    return kind, why


def named(parties: Collection[int]) -> str:
    return f"{'party' if len(parties) == 1 else 'parties'} {', '.join(map(str, sorted(parties)))}"
