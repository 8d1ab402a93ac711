"""The letters that a party answers: the fields of each, what is allowed in them, and how they are read.

A letter comes from a coordinator that may be hostile, and may hold anything. `read` compares it with its declaration
before anything else happens: what differs is refused, by the letter alone, and the refusal names the field.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from privadmm import __version__
from privadmm.deploy.federation.proposal import JOB, MOST, Proposal
from privadmm.deploy.federation.protocol import HASH, MOST_TOLD, Letter, refused
from privadmm.engine.mail import Mail
from privadmm.errors import RefusedError, listed, show
from privadmm.privacy.ledger_file import Receipt
from privadmm.privacy.masks import Roster

Signed = tuple[Receipt, str]
NONCE = re.compile("[0-9a-f]{32}")
MOST_HEADS = 1_000_000  # as many receipts as a job may have rounds
LONGEST = 1 << 24  # characters of a job's text
SHORT = 1 << 16  # characters of a certificate or a signature
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError, RecursionError, MemoryError)


class Form(NamedTuple):
    """How a field comes, what is allowed in it, and a function that reads it or raises one of UNREADABLE."""

    python: type
    allowed: str
    read: Callable[[Any], Any]


def matching(pattern: re.Pattern[str], value: str) -> str:
    if not pattern.fullmatch(value):
        raise ValueError("another form")
    return value


def up_to(most: int, value: str) -> str:
    if len(value.encode()) > most:  # a lone surrogate cannot be encoded, which is a ValueError
        raise ValueError("too long")
    return value


def counted(value: int) -> int:
    if not 0 <= value <= MOST:
        raise ValueError("out of range")
    return value


def entries(most: int, value: str) -> list[Any]:
    """A list in JSON."""
    found = json.loads(value)
    if not isinstance(found, list) or len(found) > most:
        raise ValueError("no list, or a long one")
    return found


def receipt(entry: Any) -> Receipt:
    """What a party wrote of a release: job, round, phase, and the hash of the ledger's row."""
    job, t, phase, seen = entry
    if type(t) is not int or type(phase) is not int:
        raise TypeError("no numbers")
    return matching(JOB, job), counted(t), counted(phase), matching(HASH, seen)


def heads_in(value: str) -> tuple[Receipt, ...]:
    return tuple(receipt(entry) for entry in entries(MOST_HEADS, value))


def receipts_in(value: str) -> tuple[Signed, ...]:
    """Signed receipts; entries that no party ever wrote are left out."""
    found = []
    for entry in entries(MOST_TOLD, value):
        with suppress(*UNREADABLE):
            *parts, signature = entry
            found.append((receipt(parts), up_to(SHORT, signature)))
    return tuple(found)


def ended_in(value: str) -> tuple[str, ...]:
    """Ids of jobs; entries that are none are left out."""
    return tuple(job for job in entries(MOST_TOLD, value) if isinstance(job, str) and JOB.fullmatch(job))


def inbox_in(value: bytes) -> Mail:
    mail = Mail.unpack(value)
    if not mail.sound(MOST):
        raise ValueError("nobody leaves like this")
    return mail


JobId = Annotated[str, Form(str, "32 hexadecimal digits", partial(matching, JOB))]
Whole = Annotated[int, Form(int, f"a whole number from 0 to {MOST}", counted)]
Word = Annotated[str, Form(str, f"a text of up to {SHORT:,} bytes", partial(up_to, SHORT))]
TOLD = f"a list of at most {MOST_TOLD:,} entries, in JSON"


@dataclass(frozen=True)
class Hello:
    """A job is coming: is it allowed?"""

    version: Annotated[str, Form(str, "the coordinator's version of privadmm", str)]
    text: Annotated[str, Form(str, f"the job's config, up to {LONGEST:,} bytes", partial(up_to, LONGEST))]
    nonce: Annotated[str, Form(str, "32 hexadecimal digits", partial(matching, NONCE))]
    certificate: Word
    signature: Word


@dataclass(frozen=True)
class Begin:
    """The job with everybody's facts, what this party released for it so far, and for earlier jobs."""

    proposal: Annotated[Proposal, Form(bytes, "a table of id, text, sizes, dim and columns, in JSON", Proposal.unpack)]
    heads: Annotated[tuple[Receipt, ...], Form(str, "a list of job, round, phase and hash, in JSON", heads_in)]
    receipts: Annotated[tuple[Signed, ...], Form(str, TOLD, receipts_in)] = ()
    ended: Annotated[tuple[str, ...], Form(str, TOLD, ended_in)] = ()


@dataclass(frozen=True)
class Keys:
    """Everybody's keys of a job with secure sums."""

    job: JobId
    roster: Annotated[Roster, Form(bytes, "a list of everybody's keys, as the parties packed them", Roster.unpack)]


@dataclass(frozen=True)
class Step:
    """One phase of one round, and what was sent for it."""

    job: JobId
    round: Whole
    phase: Whole
    inbox: Annotated[Mail, Form(bytes, "mail as privadmm packs it", inbox_in)]


@dataclass(frozen=True)
class GiveUp:
    """The job ended without a release."""

    job: JobId


@dataclass(frozen=True)
class End:
    """The job is over for good."""

    job: JobId


Asked = Hello | Begin | Keys | Step | GiveUp | End
KINDS: Mapping[str, type[Asked]] = {
    "hello": Hello,
    "begin": Begin,
    "roster": Keys,
    "step": Step,
    "give_up": GiveUp,
    "end": End,
}


def forms(shape: type[Any]) -> Mapping[str, Form]:
    """The fields of a letter, as declared."""
    hints = get_type_hints(shape, include_extras=True)
    return {name: next(note for note in get_args(hint) if isinstance(note, Form)) for name, hint in hints.items()}


FORMS = {kind: forms(shape) for kind, shape in KINDS.items()}


def read(letter: Letter) -> Asked:
    """The letter as its kind declares it; anything else is refused."""
    kind = letter.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise refused(f"the kind of a letter is {show(kind)}, and a party answers {listed(list(KINDS))}")
    shape = KINDS[kind]
    if shape is Hello and (theirs := letter.get("version")) != __version__:  # whose letters may have other fields
        raise RefusedError(
            f"this party has privadmm {__version__} and the coordinator {show(theirs)}, and all of a run have the "
            "same version: install the same one everywhere. Nothing was told",
            "version",
        )
    known = FORMS[kind]
    if strange := [name for name in letter if name != "kind" and name not in known]:
        raise refused(f"a {kind} letter has no field {show(strange[0])}: it has {', '.join(known)}")
    needed = {field.name for field in dataclasses.fields(shape) if field.default is dataclasses.MISSING}
    given = {name: form for name, form in known.items() if name in letter or name in needed}
    fields: dict[str, Any] = {name: field(letter, kind, name, form) for name, form in given.items()}
    return shape(**fields)


def field(letter: Letter, kind: str, name: str, form: Form) -> Any:
    """One field of a letter, read."""
    if name not in letter:
        raise refused(f"{name} of a {kind} letter is missing; it is {form.allowed}")
    value = letter[name]
    try:
        if type(value) is form.python:
            return form.read(value)
    except UNREADABLE:
        pass
    raise refused(f"{name} of a {kind} letter is {show(value)}, and must be {form.allowed}")
