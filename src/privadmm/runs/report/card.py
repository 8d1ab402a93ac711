"""The model card: everything that the page says, as plain values, and the same as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from privadmm import __version__
from privadmm.runs.report.charts import Chart

VERSION = 1  # of the card's JSON
ELEMENT = '<script type="application/json" id="model-card">'  # before the card in a page
Row = Sequence[str]


@dataclass(frozen=True)
class Request:
    """What was asked, by whom and when, as far as a run or a ledger recorded it (None: not recorded)."""

    what: str
    purpose: str | None = None
    requester: str | None = None
    began: str | None = None
    ended: str | None = None


@dataclass(frozen=True)
class Holder:
    """A party, and how many records it has (None: not recorded)."""

    name: str
    records: int | None


@dataclass(frozen=True)
class Budget:
    """What a party may lose in all, has lost, and has lost or holds for open jobs together.

    `left` is the largest epsilon that one more such job may ask for; None where nobody computed it.
    """

    who: str
    budget: float | None
    spent: float | None  # None: not private
    committed: float | None
    left: float | None
    if_all_others_collude: float | None = None


@dataclass(frozen=True)
class Person:
    """What a person loses over the messages of vertical parties together: each holds a row of every person."""

    epsilon: float | None  # over these parties, at the card's delta; None: not known
    parties: int
    all_parties: bool  # False: others may hold columns of the same people, and their messages are not counted


@dataclass(frozen=True)
class Published:
    """What a paper claims, beside what is certified; `epsilon` None: it claims no figure."""

    calibration: str  # by whose rule the noise was set
    epsilon: float | None
    of_one_round: bool
    caveat: str


@dataclass(frozen=True)
class Card:
    """All facts of a report. Texts are as they were found: whoever shows them escapes them."""

    kind: str  # run, ledger or ledgers
    subject: str  # the path that was named
    simulation: bool
    status: str
    requests: tuple[Request, ...]
    holders: tuple[Holder, ...]
    adjacency: str | None
    epsilon: float | None
    delta: float | None
    learners: tuple[Row, ...]
    budgets: tuple[Budget, ...]
    refusals: tuple[Mapping[str, Any], ...] | None  # None: not recorded
    refusals_at: tuple[str, ...] = ()  # of a run: the ledgers whose reports have them, where it knows them
    register_is_partial: bool = False  # an earlier version kept a ledger, and recorded neither times nor refusals
    vertical: bool = False  # parties hold columns of the same people
    person: Person | None = None  # where `epsilon` is one party's part of a person
    epsilon_warning: str | None = None  # that an epsilon promises little, which is also the first notice
    notices: tuple[str, ...] = ()
    jobs: tuple[Mapping[str, Any], ...] = ()  # of ledgers
    results: tuple[Row, ...] = ()  # figures of the model, in a simulation
    charts: tuple[Chart, ...] = ()
    not_drawn: tuple[Row, ...] = ()  # which chart is missing, and why
    declared: tuple[Row, ...] = ()  # name, value, meaning
    not_protected: tuple[str, ...] = ()
    published: Published | None = None
    hashes: tuple[Row, ...] = ()
    commands: tuple[str, ...] = ()
    versions: tuple[Row, ...] = field(default=(("this report", __version__),))

    @property
    def private(self) -> bool:
        return self.epsilon is not None

    @property
    def as_dict(self) -> dict[str, Any]:
        """The card as JSON has it. Infinite and undefined values are null."""
        table = {"card": VERSION, "private": self.private, **asdict(self)}
        found: dict[str, Any] = json.loads(json.dumps(table), parse_constant=lambda name: None)
        return found


def embedded(card: Card) -> str:
    """The card's JSON for a script element: no character in it can end the element, or is seen as one."""
    text = json.dumps(card.as_dict, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def subject_of(page: Path) -> Path | None:
    """The run or the ledger that the report in this file, a page or its twin, is of; None if the file is no report."""
    try:
        text = page.read_text(encoding="utf-8")
        if page.suffix != ".json":
            text = text.partition(ELEMENT)[2].partition("</script>")[0]
        return page.parent / str(json.loads(text)["subject"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
