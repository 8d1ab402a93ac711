"""The coordinator's side: one letter to each party per phase at the parties; all else is free and happens here.

Whoever carries the letters is a `Post`. It may lose, repeat and reorder them: a party answers a repeated letter with
the same bytes and at no charge, and an answer is taken once.
"""

import json
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.deploy.federation.proposal import MOST, Proposal
from privadmm.deploy.federation.protocol import Greeting, Letter, text
from privadmm.engine.job import Job
from privadmm.engine.mail import Mail, unpack_from
from privadmm.engine.phases import at_parties, heard
from privadmm.errors import ClusterError, DataError, LockedError, MessageError, RefusedError
from privadmm.privacy.ledger_file import Receipt

if TYPE_CHECKING:
    from privadmm.deploy.federation.keys import Credentials

logger = logging.getLogger(__name__)
Absent = Literal["wait", "continue", "abort"]
HASH = re.compile("[0-9a-f]{64}")
LONGEST = 1 << 24  # characters of what a party says of itself
QUOTED = 2000  # characters of an error that a party tells


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
        """Read the facts in an answer to a hello; a ValueError if a field is missing or has another type."""
        said = text(letter, "facts")
        if len(said) > LONGEST:
            raise ValueError(f"{len(said)} characters of facts")
        found = json.loads(said)
        if not isinstance(found, dict):
            raise ValueError("facts are a table")
        numbers: list[Any] = [found.get(key) for key in ("party", "records", "dim", "width")]
        names, people = found.get("names"), found.get("people")
        if not all(type(value) is int and 0 <= value <= MOST for value in numbers):
            raise ValueError("a party, its records, dim and width are whole numbers")
        party, records, dim, width = numbers
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("the names of columns are a list of texts")
        # Each column has a name, and an intercept has none: nobody can declare more columns than it names.
        if width - len(names) not in (0, 1) or min(records, len(names)) < 1:
            raise ValueError("a party has records, and as many columns as it names")
        if people is not None and not (isinstance(people, str) and HASH.fullmatch(people)):
            raise ValueError("people are told by a digest")
        if dim != (width if people is None else records):
            raise ValueError("a message has a number for each column, or for each person")
        return Facts(party, records, dim, width, tuple(names), people)


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
    hashes: dict[tuple[int, str], tuple[int, int]] = field(default_factory=dict)  # round and phase of a receipt

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
        mails = []
        for party, answer in self._ask(letters, self.patience).items():
            try:
                said, seen = self._taken(party, round, phase, answer)
            except MessageError as error:
                if self.patience.absent != "continue":
                    raise
                self._lose(party, str(error))
                continue
            mails.append(said)
            if seen:
                self.heads.setdefault(round, []).append(((self.job.id, round, phase, seen), party))
        return Mail.join(mails or [Mail.empty()])

    def _taken(self, party: int, round: int, phase: int, answer: Letter) -> tuple[Mail, str]:
        """A party's message and its receipt, if they are what it sends in this round: a party speaks for itself."""
        assert self.job is not None, "begin comes first"
        sent, seen = answer.get("mail"), answer.get("receipt")
        if not isinstance(sent, bytes) or not isinstance(seen, str):
            raise MessageError(f"party {party} sent an answer without mail or receipt")
        if self.job.leave.get(party, self.job.public.rounds) <= round:
            if (sent, seen) != (Mail.empty().pack(), ""):
                raise MessageError(f"party {party} sent mail after the round in which the job has it leave")
            return Mail.empty(), ""
        if not HASH.fullmatch(seen):
            raise MessageError(f"party {party} sent a receipt that is not 64 hexadecimal digits")
        if self.hashes.setdefault((party, seen), (round, phase)) != (round, phase):
            raise MessageError(f"party {party} sent the receipt of another round")
        return unpack_from(party, sent, at_parties(self.job.algorithm, phase).sends(self.job.public, round)), seen

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
        waiting, found, refused = dict(letters), dict[int, Letter](), dict[int, str]()
        while waiting:
            asked = {self.homes[party]: letter for party, letter in waiting.items()}
            answers = self.post.exchange(asked, patience.timeout)
            for party in [party for party in waiting if self.homes[party] in answers]:
                del waiting[party]
                answer = answers[self.homes[party]]
                if self._good(party, answer, patience):
                    found[party] = answer
                else:
                    refused[party] = told(answer)[1]
            if not waiting or patience.absent != "wait":
                break
            logger.warning("no answer of %s for %g s; asked again", named(waiting), patience.timeout)
        if found and 2 * len(refused) >= len(letters):
            # What was sent may have made them, and one of the others may have made what was sent.
            raise RefusedError(
                f"{named(refused)} refused at once, half of those asked or more, and the run does not go on with the "
                f"others alone: {next(iter(refused.values()))}"
            )
        for party, why in refused.items():
            self._lose(party, f"refused: {why}")
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
    post: Post,
    proposal: str,
    parties: Mapping[int, Path],
    patience: Patience,
    nodes: Sequence[int],
    credentials: "Credentials",
) -> dict[int, Facts]:
    """Ask every node who it is; facts by node. Each of these parties, given with their public keys, has to be there.

    A key that is registered lets a node in and does not say which party's it is: that a party signs for itself, and for
    this question of this coordinator.
    """
    greeting = credentials.greeting(secrets.token_hex(16), proposal)
    letter = credentials.hello(greeting, proposal)
    wanted = {*parties, None}  # one that cannot say who it is may be one of them
    answers = {
        node: answer
        for node, answer in post.exchange(dict.fromkeys(nodes, letter), patience.timeout).items()
        if isinstance(number := answer.get("party"), int | None) and number in wanted
    }
    facts: dict[int, Facts] = {}
    for node, answer in sorted(answers.items()):
        if answer.get("status") != "ok":
            # What a node says of a failure is not signed: the node is what is known.
            name, why = told(answer)
            who = f"node {node}" if answer.get("party") is None else f"party {answer['party']!r} (node {node})"
            kind = RefusedError if answer.get("status") == "refused" else ClusterError
            raise kind(f"{who} did not take the job, {name}: {why}")
        facts[node] = recognise(node, answer, greeting, parties)
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


def recognise(node: int, answer: Letter, greeting: Greeting, parties: Mapping[int, Path]) -> Facts:
    """What a node says of itself; refused unless it has the key of the party which it says it is."""
    from privadmm.deploy.federation.keys import sealed

    try:
        facts = Facts.of(answer)
        said, signature = text(answer, "facts"), text(answer, "signature")
    except (ValueError, RecursionError) as error:
        raise MessageError(f"node {node} sent what no party says of itself ({error})"[:QUOTED]) from None
    if facts.party not in parties:
        raise MessageError(f"node {node} says that it is a party of this job, and then another")
    key = parties[facts.party]
    if not key.is_file():
        raise ClusterError(f"{key}: no such file; put the public key of that party there, as it handed it over")
    if not sealed(key.read_bytes(), greeting.answer(said), signature):
        raise ClusterError(
            f"node {node} says that it is party {facts.party} and has not the key in {key}, or answers for another "
            "federation: unregister it, or put the key of that party there"
        )
    return facts


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
    """The kind of an error and its message, as far as they are fit to be shown: a party may say anything."""
    kind, why = (
        "".join(c if c.isprintable() else " " for c in value[:QUOTED]) if isinstance(value, str) else "nothing said"
        for value in (answer.get("error"), answer.get("message"))
    )
    return kind, why


def named(parties: Any) -> str:
    found = sorted(parties)
    return f"party {found[0]}" if len(found) == 1 else f"parties {', '.join(map(str, found))}"
