"""What a run tells while it goes: which round, who is waited for, what each party has spent of this job.

Everything here is public: the plan of the job, and whose message came.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from privadmm.algorithms.evaluation_noise import foreseen
from privadmm.deploy.federation.facts import Facts
from privadmm.deploy.federation.hub.state import Status, Stop, asked_to_stop, note
from privadmm.deploy.federation.layout import Coordinator
from privadmm.engine.job import Job
from privadmm.engine.loop import View
from privadmm.errors import InterruptedRunError
from privadmm.privacy.accounting import certified, totals
from privadmm.privacy.events import Spent
from privadmm.runs.charges import rounds_paid, spent_until_it_left

UNDECIDED = "waits for its steward"
KEPT = ("left", UNDECIDED, "refused", "locked", "failed")  # states of a party that no further answer changes


class StopRequestedError(InterruptedRunError):
    """Somebody asked the run to stop. `for_good`: its job is over at the parties, too."""

    def __init__(self, for_good: bool) -> None:
        super().__init__("the run was stopped" + (" for good" if for_good else ""), kept=True)
        self.for_good = for_good


class Report(Protocol):
    """Hears what a run does."""

    def tell(self, line: str) -> None:
        """What goes on, in words."""

    def here(self, nodes: Collection[int]) -> None:
        """These nodes are there; the run waits for the others."""

    def met(self, homes: Mapping[int, int], known: Sequence[Facts]) -> None:
        """All parties of the job, and the node of each that takes part."""

    def undecided(self, parties: Collection[int], code: str) -> None:
        """The stewards of these parties have not approved the proposal with this code yet; told again and again."""

    def refused(self, states: Mapping[int, str]) -> None:
        """These nodes did not do what they were asked: each "refused", is "locked", or "failed"."""

    def begun(self, job: Job, done: int, gone: Mapping[int, int], heard: Mapping[int, int]) -> None:
        """The job goes on after this many rounds, without those that are gone, each since a round.

        `heard`: the last round, by party, of which a receipt is kept.
        """

    def round(self, view: View) -> None:
        """A round is done."""


class Silent:
    """A report to nobody."""

    def tell(self, line: str) -> None: ...

    def here(self, nodes: Collection[int]) -> None: ...

    def met(self, homes: Mapping[int, int], known: Sequence[Facts]) -> None: ...

    def undecided(self, parties: Collection[int], code: str) -> None: ...

    def refused(self, states: Mapping[int, str]) -> None: ...

    def begun(self, job: Job, done: int, gone: Mapping[int, int], heard: Mapping[int, int]) -> None: ...

    def round(self, view: View) -> None: ...


@dataclass
class Reporter:
    """Writes status.json and the coordinator's log, and stops the run when somebody asks for that."""

    place: Coordinator
    status: Status
    parties: int
    owner: Callable[[int], int | None] = lambda node: None  # the party whose key a node registered with
    names: dict[int, str] = field(default_factory=dict)
    homes: dict[int, int] = field(default_factory=dict)  # party by node
    states: dict[int, str] = field(default_factory=dict)
    job: Job | None = None
    gone: dict[int, int] = field(default_factory=dict)
    heard: dict[int, int] = field(default_factory=dict)  # by party, the last round with a receipt before this process
    done: int = 0
    stopping: bool = False
    began: tuple[int, float] = (0, 0.0)  # the round with which this process began, and when
    spent: dict[int, tuple[float | None, float | None]] = field(default_factory=dict)  # and left, by party
    _prices: dict[Spent, float | None] = field(default_factory=dict)
    _first: tuple[int, list[Spent]] | None = None

    def __post_init__(self) -> None:
        self.states = dict.fromkeys(range(self.parties), "not there")

    def check(self) -> None:
        """Raise an error if the run is to be stopped; once, since the parties may still have to be told something."""
        if not self.stopping and (ask := self.stop):
            self.stopping = True
            raise StopRequestedError(ask == "for good")

    @property
    def stop(self) -> Stop:
        return asked_to_stop(self.place)

    def tell(self, line: str) -> None:
        self.check()
        note(self.place, line, run=self.status.run)
        self.write(at=line)

    def here(self, nodes: Collection[int]) -> None:
        self.check()
        found = {party for node in nodes if (party := self.owner(node)) is not None}
        before = dict(self.states)
        for party in self.states:
            self.states[party] = "there" if party in found else "not there"
        if self.states != before:
            self.write()

    def met(self, homes: Mapping[int, int], known: Sequence[Facts]) -> None:
        self.homes = {node: party for party, node in homes.items()}
        for facts in known:
            self.names[facts.party] = str(getattr(facts, "name", "") or f"party {facts.party}")
            self.states[facts.party] = "there" if facts.party in homes else "left"

    def undecided(self, parties: Collection[int], code: str) -> None:
        self.check()
        line = f"waiting for approval of {', '.join(self.name(party) for party in sorted(parties))}, code {code}"
        for party in parties:
            self.states[party] = UNDECIDED
        if line != self.status.facts.get("at"):
            self.tell(line)

    def refused(self, states: Mapping[int, str]) -> None:
        for node, state in states.items():
            if (party := self.homes.get(node, self.owner(node))) is not None:
                self.states[party] = state
        self.write()

    def decided(self) -> None:
        self.states |= {party: "answered" for party, state in self.states.items() if state == UNDECIDED}

    def begun(self, job: Job, done: int, gone: Mapping[int, int], heard: Mapping[int, int]) -> None:
        self.heard = dict(heard)
        self.job, self.done, self.gone, self.began = job, done, dict(gone), (done, time.monotonic())
        self.decided()
        self.account()
        self.write(round=done, rounds=job.public.rounds, evaluation=foreseen(job))

    def round(self, view: View) -> None:
        self.done, self.gone = view.progress.round, dict(view.progress.mail.absent.tolist())
        self.decided()
        for party in self.gone:
            self.states[party] = "left"
        self.account()
        first, since = self.began
        a_round = (time.monotonic() - since) / max(1, self.done - first)
        left = round(a_round * (view.public.rounds - self.done), 1)
        self.tell_round(f"round {self.done} of {view.public.rounds}", left)

    def tell_round(self, line: str, left: float) -> None:
        note(self.place, line, run=self.status.run, round=self.done)
        self.write(at=line, round=self.done, seconds_left=left)
        self.check()

    def waiting(self, nodes: Collection[int], asked: Collection[int]) -> None:
        """Of the nodes that were asked, these have not answered yet."""
        self.check()
        before = dict(self.states)
        for node in asked:
            party = self.homes.get(node, self.owner(node))
            # A party that waits for its steward is asked again and again, and answers that it waits; one that refused
            # still hears that the job is over.
            if party is not None and self.states.get(party) not in KEPT:
                self.states[party] = "asked" if node in nodes else "answered"
        if self.states != before:
            self.write()

    def close(self) -> None:
        """The job is over for good: nothing of its cost is left to spend."""
        self.spent = {party: (spent, left and 0.0) for party, (spent, left) in self.spent.items()}
        self.write()

    def write(self, **changes: Any) -> None:
        waited = [
            self.name(party) for party, state in self.states.items() if state in ("not there", "asked", UNDECIDED)
        ]
        self.status.write(waiting_for=waited, parties=[self.row(party) for party in self.states], **changes)

    def name(self, party: int) -> str:
        return self.names.get(party, f"party {party}")

    def row(self, party: int) -> dict[str, Any]:
        spent, left = self.spent.get(party, (None, None))
        return {
            "party": party,
            "name": self.name(party),
            "state": self.states[party],
            "epsilon_spent": spent,
            "epsilon_left": left,
        }

    def account(self) -> None:
        """What each party has spent of this job at most, and what is left then; None where no epsilon can be given.

        The round under way counts: a party has paid for its answer before anybody hears of it. So do rounds that an
        interrupted run had asked for since its checkpoint.
        """
        assert self.job is not None
        job = self.job
        for party in range(job.public.parties):
            if party in self.gone:
                self.spent[party] = self.price(spent_until_it_left(job, party, self.gone, self.heard)), 0.0
                continue
            paid = self.price(self.first_rounds(max(self.done + 1, rounds_paid(party, self.heard)))[party])
            whole = self.price(self.wholes[party])
            self.spent[party] = paid, None if paid is None or whole is None else max(0.0, whole - paid)

    def first_rounds(self, count: int) -> list[Spent]:
        """What each party has spent after this many rounds of the plan."""
        assert self.job is not None
        if self._first is None or self._first[0] != count:
            before = {tick: releases for tick, releases in self.job.plan.items() if tick[0] < count}
            self._first = count, totals(before, self.job.public.parties)
        return self._first[1]

    @cached_property
    def wholes(self) -> list[Spent]:
        assert self.job is not None
        return totals(self.job.plan, self.job.public.parties)

    def price(self, spent: Spent) -> float | None:
        assert self.job is not None
        if spent not in self._prices:
            self._prices[spent] = certified(spent, self.job.delta) if spent else 0.0
        return self._prices[spent]
