"""The coordinator's side: one letter to each party per phase at the parties; all else is free and happens here.

Whoever carries the letters is a `Post`. It may lose, repeat and reorder them: a party answers a repeated letter with
the same bytes and at no charge, and an answer is taken once.
"""

import json
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from privadmm.engines.worker import heard
from privadmm.errors import ClusterError, DataError, LockedError, RefusedError
from privadmm.federation.letters import Letter, data, signed, text
from privadmm.federation.proposal import Proposal
from privadmm.job import Job
from privadmm.phases import Floats, Mail
from privadmm.privacy.durable import Receipt

logger = logging.getLogger(__name__)
Absent = Literal["wait", "continue", "abort"]


class Post(Protocol):
    """Carries letters to nodes and answers back."""

    def nodes(self) -> Sequence[int]:
        """Who is there now."""
        ...

    def exchange(self, letters: Mapping[int, Letter], seconds: float) -> dict[int, Letter]:
        """The answers that came within so many seconds, by node; it asks again where that helps."""
        ...


@dataclass(frozen=True)
class Patience:
    """How long a party may take, and what then: wait on, go on without it for good, or end the run to be resumed."""

    timeout: float = 600.0
    absent: Absent = "abort"


@dataclass(frozen=True)
class Facts:
    """What everybody may know of a party's part in a job."""

    party: int
    records: int
    dim: int
    width: int
    names: tuple[str, ...]
    people: str | None

    @staticmethod
    def of(letter: Letter) -> "Facts":
        found = json.loads(text(letter, "facts"))
        party, records, dim, width = (int(found[key]) for key in ("party", "records", "dim", "width"))
        return Facts(party, records, dim, width, tuple(map(str, found["names"])), found["people"])


@dataclass
class Federation:
    """A cluster whose parties are elsewhere."""

    post: Post
    homes: Mapping[int, int]  # the node of each party
    patience: Patience = field(default_factory=Patience)
    labels: Floats | None = None  # those at the coordinator, where parties hold columns
    job: Job | None = None
    asked: bool = False  # for a release, which a party may have made even if no answer came
    left: dict[int, str] = field(default_factory=dict)  # why a party is not asked any more
    heads: dict[int, list[tuple[Receipt, int]]] = field(default_factory=dict)  # by round, with the party

    def begin(self, job: Job, proposal: Proposal, seen: Sequence[tuple[Receipt, int]]) -> None:
        """Set the cost aside at every party, or end with the first refusal. `seen` are receipts of rounds before."""
        self.job = job
        letters: dict[int, Letter] = {
            party: {
                "kind": "begin",
                "proposal": proposal.pack(),
                "heads": json.dumps([head for head, first in seen if first == party]),
            }
            for party in self.homes
        }
        self._ask(letters, Patience(self.patience.timeout, "abort"))

    def step(self, round: int, phase: int, inbox: Mail) -> Mail:
        assert self.job is not None, "begin comes first"
        self.asked = True
        here = [party for party in sorted(self.homes) if party not in set(inbox.gone.tolist())]
        letters: dict[int, Letter] = {}
        for party in here:
            senders = heard(self.job.algorithm, self.job.public, np.array([party]))
            mail = inbox.only(senders).pack()
            letters[party] = {
                "kind": "step",
                "job": self.job.id,
                "round": round,
                "phase": phase,
                "inbox": mail,
            }
        answers = self._ask(letters, self.patience)
        for party, answer in answers.items():
            if seen := text(answer, "receipt"):
                self.heads.setdefault(round, []).append(((self.job.id, round, phase, seen), party))
        mails = [unpacked(party, data(answer, "mail")) for party, answer in answers.items()]
        return Mail.join(mails or [Mail.empty()])

    def receipts(self, round: int) -> list[tuple[str, int, int, str, int]]:
        return [(*seen, party) for seen, party in self.heads.get(round, ())]

    def iterates(self, rounds: int) -> Floats | None:
        """What is not released stays where it is."""
        return None

    def give_up(self) -> None:
        assert self.job is not None, "begin comes first"
        letters = {node: {"kind": "give_up", "job": self.job.id} for node in self.homes.values()}
        self.post.exchange(letters, min(self.patience.timeout, 60.0))

    def _ask(self, letters: Mapping[int, Letter], patience: Patience) -> dict[int, Letter]:
        """Answers by party, of those that gave one."""
        waiting, found = dict(letters), dict[int, Letter]()
        while waiting:
            asked = {self.homes[party]: letter for party, letter in waiting.items()}
            answers = self.post.exchange(asked, patience.timeout)
            for party in [party for party in waiting if self.homes[party] in answers]:
                del waiting[party]
                answer = answers[self.homes[party]]
                if self._good(party, answer, patience):
                    found[party] = answer
            if not waiting or patience.absent != "wait":
                break
            logger.warning("no answer of %s for %g s; asked again", named(waiting), patience.timeout)
        for party in waiting:
            if patience.absent == "abort":
                raise ClusterError(
                    f"{named(waiting)} gave no answer for {patience.timeout:g} s: see whether its node is up, or raise "
                    'timeout; absent = "continue" would go on without it for good'
                )
            self._lose(party, f"no answer for {patience.timeout:g} s")
        return dict(sorted(found.items()))

    def _good(self, party: int, answer: Letter, patience: Patience) -> bool:
        """Whether it is an answer; a refusal is the party's right, and the others may go on without it."""
        status = answer.get("status")
        if status == "ok":
            return True
        kind, why = told(answer)
        if status == "refused" and patience.absent == "continue":
            self._lose(party, f"refused: {why}")
            return False
        if status == "refused":
            raise RefusedError(f"party {party} refused: {why}")
        if status == "locked":
            raise LockedError(f"party {party}: {why}")
        # An abort that records may have caused must not look like a party that left, and the run go on.
        raise ClusterError(f"party {party} failed, {kind}: {why}")

    def _lose(self, party: int, why: str) -> None:
        logger.warning("party %d left: %s", party, why)
        self.left[party] = why


def greet(
    post: Post, proposal: str, parties: Mapping[int, Path], patience: Patience, nodes: Sequence[int]
) -> dict[int, Facts]:
    """Ask every node who it is; facts by node. Each of these parties, given with their public keys, has to be there.

    A key that is registered lets a node in and does not say which party's it is: that a party signs for itself.
    """
    nonce = secrets.token_hex(16)
    letters: dict[int, Letter] = {node: {"kind": "hello", "text": proposal, "nonce": nonce} for node in nodes}
    wanted = {*parties, None}  # one that cannot say who it is may be one of them
    answers = {
        node: answer
        for node, answer in post.exchange(letters, patience.timeout).items()
        if answer.get("party") in wanted
    }
    for node, answer in sorted(answers.items()):
        if answer.get("status") != "ok":
            name, why = told(answer)
            who = f"node {node}" if answer.get("party") is None else f"party {answer['party']!r}"
            kind = RefusedError if answer.get("status") == "refused" else ClusterError
            raise kind(f"{who} did not take the job, {name}: {why}")
        recognise(node, answer, nonce, parties)
    facts = {node: Facts.of(answer) for node, answer in answers.items()}
    numbers = sorted(found.party for found in facts.values())
    if twice := [number for number in set(numbers) if numbers.count(number) > 1]:
        raise ClusterError(f"two nodes say that they are party {twice[0]}: each party runs one node")
    if missing := sorted(set(parties) - set(numbers)):
        raise ClusterError(
            f"{named(missing)} did not answer within {patience.timeout:g} s, and a run begins with all of them: start "
            "its node, see that its key is registered, and try again"
        )
    agree([found for _, found in sorted(facts.items(), key=lambda item: item[1].party)])
    return facts


def recognise(node: int, answer: Letter, nonce: str, parties: Mapping[int, Path]) -> None:
    """Refuse a node that has not the key of the party which it says it is."""
    from privadmm.federation.certificates import sealed

    said, key = text(answer, "facts"), parties[Facts.of(answer).party]
    if not key.is_file():
        raise ClusterError(
            f"{key}: no such file; put the public key of that party there, as it handed it over"
        )
    if not sealed(key, signed(nonce, said), text(answer, "signature")):
        raise ClusterError(
            f"node {node} says that it is party {Facts.of(answer).party} and has not the key in {key}: unregister it, "
            "or put the key of that party there"
        )


def agree(facts: Sequence[Facts]) -> None:
    first = facts[0]
    for other in facts[1:]:
        if other.dim != first.dim or other.people != first.people:
            what = "columns" if first.people is None else "people"
            raise DataError(
                f"party {other.party} has other {what} than party {first.party}: agree on them first, for columns "
                "with [data] schema"
            )
        if first.people is None and other.names != first.names:
            raise DataError(
                f"the columns of party {other.party} have other names, or another order, than those of party "
                f"{first.party}: declare them with [data] schema"
            )


def told(answer: Letter) -> tuple[str, str]:
    """The kind of an error and its message."""
    return str(answer.get("error")), str(answer.get("message"))


def unpacked(party: int, sent: bytes) -> Mail:
    """A party speaks for itself alone."""
    try:
        mail = Mail.unpack(sent)
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"party {party} sent what is no mail ({type(error).__name__})") from error
    if mail.senders.tolist() not in ([party], []):
        raise ClusterError(f"party {party} sent mail in the name of another")
    return mail


def named(parties: Any) -> str:
    found = sorted(parties)
    return f"party {found[0]}" if len(found) == 1 else f"parties {', '.join(map(str, found))}"
