"""A party's budget, jobs and proposals for its steward: the facts as data, and sentences made from them.

Nothing here reads a record. Every text of a proposal was written by whoever asks: `plain` spells out characters that
could move a cursor, or turn the direction of reading.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from privadmm.algorithms.evaluation_noise import accuracy_words, foreseen
from privadmm.config.file import Config
from privadmm.data.arrays import digest
from privadmm.data.files import finite
from privadmm.deploy.federation.desk.agreement import disagreement
from privadmm.deploy.federation.desk.approvals import MOST, Decision, Entry, Proposals, checked_reason
from privadmm.deploy.federation.desk.party_server import Desk
from privadmm.deploy.federation.desk.records import bound_of
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.proposal import Kept, Proposal, read_text
from privadmm.engine.job import Job
from privadmm.engine.phases import at_parties
from privadmm.errors import ConfigError, LockedError, PrivadmmError, RefusedError, visible
from privadmm.privacy.accounting import certified, epsilon, printed, totals
from privadmm.privacy.events import Spent, less, merge
from privadmm.privacy.ledger import Asked, affordable
from privadmm.privacy.ledger_file import moment
from privadmm.privacy.meaning import large_epsilon
from privadmm.privacy.register import register
from privadmm.privacy.sqlite_ledger import SqliteLedger

Facts = dict[str, Any]
UNITS = {
    "replace-one": "one record, replaced by any other",
    "label": "the label of one record",
    "person": "one person's whole row at this party",
    "column": "one column of this party",
}
SHOWN = 100  # jobs and parties that are listed


def plain(text: object, lines: bool = False) -> str:
    """A text in which nothing moves a cursor or turns the direction of reading; such characters are spelt out."""
    return visible(text, "\n" if lines else "")


def standing(party: Party) -> Facts:
    """A party's budget, jobs and proposals, as data."""
    facts: Facts = {
        "party": party.number,
        "name": plain(party.name),
        "directory": str(party.folder),
        "mode": party.policy.mode,
        "approve": party.policy.approve,
        "coordinator": plain(party.node.superlink),
        "authority": authority(party),
        "problem": None,
        "hidden": None,  # words that say until when budget, jobs and refusals cannot be shown; None if they are shown
        "budget": None,
        "jobs": [],
        "refusals": None,
        "proposals": [],
    }
    opened = None
    try:
        with closing(opened := Desk(party).opened()) as ledger:
            facts |= {"budget": budget(party, ledger), "jobs": jobs(party, ledger), "refusals": refusals(party)}
            if ledger.failed is not None:
                facts["problem"] = "the ledger is locked: `privadmm ledger show` says why, and `unlock` lets it go on"
            facts["proposals"] = [brief(party, entry, ledger) for entry in Proposals(party).entries()]
    except (PrivadmmError, OSError) as error:
        facts["problem"] = plain(error)
        if opened is None:
            facts["hidden"] = hidden(party)
    return facts


def hidden(party: Party) -> str:
    """Say until when a ledger that could not be opened is not shown."""
    with suppress(PrivadmmError, OSError):
        if party.has_ledger and disagreement(party) is not None:
            return "until party.toml and the ledger agree: `privadmm federation check` says how to make them"
    return "until the problem above is solved"


def authority(party: Party) -> str | None:
    """Fingerprint of the authority's certificate, by which the party knows its coordinator."""
    from privadmm.deploy.federation.keys import certificate_fingerprint

    try:
        return certificate_fingerprint((party.folder / party.node.ca).read_bytes())
    except (OSError, ValueError):
        return None


def budget(party: Party, ledger: SqliteLedger) -> Facts | None:
    """The party's budget: all of it, what is spent, what is set aside beyond that, and what is left."""
    known = party.fixed.budget
    if known is None:
        return None
    spent = epsilon(ledger.spent(party.number), known.delta)
    taken = epsilon(ledger.others(party.number, ""), known.delta)
    return {
        "epsilon": known.epsilon,
        "delta": known.delta,
        "spent": finite(spent),
        "set_aside": finite(max(0.0, taken - spent)),
        "left": max(0.0, known.epsilon - taken),
    }


def jobs(party: Party, ledger: SqliteLedger) -> list[Facts]:
    """The latest jobs of the ledger, and their states."""
    rows: list[Facts] = []
    names = ledger.jobs()
    kept = register(party.ledger)
    for name in names[-SHOWN:]:
        entry = kept.of(name)
        asked = Asked() if entry is None else entry.asked
        spent, aside = ledger.spent(party.number, name), ledger.reserved(party.number, name) or ()
        latest = ledger.latest(name)
        over = ledger.over(name)
        rows.append(
            {
                "job": plain(name),
                "state": "finished" if spent and spent == aside else "over" if over else "open",
                "rounds": 0 if latest is None else latest[0].round + 1,
                "epsilon_spent": cost(party, spent),
                "epsilon_set_aside": cost(party, () if over else less(aside, spent)),
                "purpose": said(asked.purpose),
                "requester": said(asked.requester),
                "admitted": None if entry is None else entry.admitted,
            }
        )
    return rows


def refusals(party: Party) -> list[Facts] | None:
    """The latest refusals on record; None if the ledger keeps none, since an earlier version made it."""
    known = register(party.ledger).refusals
    if known is None:
        return None
    facts = [refusal.as_dict().items() for refusal in known[-SHOWN:]]
    return [{name: said(value) if isinstance(value, str) else value for name, value in refusal} for refusal in facts]


def said(text: str | None) -> str | None:
    return None if text is None else plain(text)


def cost(party: Party, spent: Spent) -> float | None:
    """The epsilon of these releases at the party's delta; None if no epsilon can be given."""
    known = party.fixed.budget
    return None if known is None else certified(spent, known.delta)


def brief(party: Party, entry: Entry, ledger: SqliteLedger) -> Facts:
    """A proposal as an entry of a list: what it is, its state, and its cost."""
    decision = entry.decision
    facts: Facts = {
        "code": entry.code,
        "digest": entry.digest,
        "job": entry.proposal.id,
        "state": entry.state,
        "first": moment(entry.first),
        "last": moment(entry.last),
        "decided": None if decision is None else decided(decision),
    }
    try:
        kept = understood(entry.proposal)
    except PrivadmmError as error:
        return {**facts, "problem": plain(error)}
    spend = spends(entry.proposal, party.number)
    others = ledger.others(party.number, entry.proposal.id)
    known, after = party.fixed.budget, cost(party, merge(others, spend))
    return {
        **facts,
        "problem": obstacle(party, kept, ledger),
        "purpose": said(kept.config.run.purpose),
        "requester": said(kept.config.run.requester),
        "algorithm": kept.config.algorithm.name,
        "rounds": kept.config.algorithm.rounds,
        "parties": len(entry.proposal.sizes),
        "releases": sum(count for _, count in spend),
        "epsilon": cost(party, spend),
        "delta": None if known is None else known.delta,
        "left_now": None if known is None else max(0.0, known.epsilon - epsilon(others, known.delta)),
        "left_after": None if known is None or after is None else max(0.0, known.epsilon - after),
    }


def decided(decision: Decision) -> Facts:
    return {
        "approved": decision.approved,
        "at": moment(decision.at),
        "until": moment(decision.until),
        "why": plain(decision.why),
        "told": decision.tell,
    }


def whole(party: Party, entry: Entry) -> Facts:
    """All that a steward needs to decide about a proposal."""
    with closing(Desk(party).opened()) as ledger:
        facts = brief(party, entry, ledger)
    if "algorithm" not in facts:
        return {**facts, "sentences": [], "text": plain(entry.proposal.text, lines=True)}
    kept = understood(entry.proposal)
    return {
        **facts,
        "sentences": [{"about": about, "says": says} for about, says in sentences(party, kept, facts)],
        "records": list(entry.proposal.sizes[:SHOWN]),
        "text": plain(entry.proposal.text, lines=True),
    }


@lru_cache(maxsize=2 * MOST)
def spends(proposal: Proposal, party: int) -> Spent:
    """What a party would release for a proposal, by kind and number."""
    return totals(understood(proposal).job.plan, len(proposal.sizes))[party]


@lru_cache(maxsize=2 * MOST)
def understood(proposal: Proposal) -> Kept:
    """Read a proposal's config as a party reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proposal.toml"
        path.write_text(proposal.text, encoding="utf-8")
        try:
            return Kept(proposal, read_text(path))
        except PrivadmmError as error:
            raise type(error)(str(error).replace(f"{folder}/", "")) from None


def obstacle(party: Party, kept: Kept, ledger: SqliteLedger) -> str | None:
    """Why the job would be refused now, whatever its steward says; None if it would not."""
    try:
        Desk(party).admit(kept)
        if ledger.reserved(party.number, kept.proposal.id) is None:
            # Like `Job.afford`, but without a turn: there is no need to wait for a step that is under way.
            affordable(ledger, kept.proposal.id, {party.number: spends(kept.proposal, party.number)})
    except (RefusedError, LockedError, ConfigError) as error:
        return plain(error)
    return None


def sentences(party: Party, kept: Kept, facts: Facts) -> Iterator[tuple[str, str]]:
    """What a proposal means for this party, in plain words: pairs of a heading and a sentence."""
    proposal, config, job = kept.proposal, kept.config, kept.job
    yield "what for", quoted(config.run.purpose)
    yield (
        "who asks",
        f"{quoted(config.run.requester)}, by the coordinator at {plain(party.node.superlink)}, known here by the "
        f"authority {authority(party)}. What it says of purposes, people and the other parties is its word",
    )
    yield "with whom", with_whom(party, proposal)
    yield (
        "what is made",
        f"a {config.loss.name} model, by {config.algorithm.name}, in {config.algorithm.rounds:,} rounds",
    )
    if (told := foreseen(job)) is not None:
        yield (
            "how it is judged",
            f"{config.evaluation.held_out:.0%} of the records are held out of training; in two more rounds counts and "
            "sums of them leave, with noise, that tell how good the model is. Their cost is part of what it costs. To "
            f"be expected of the {told['records']:,} held-out records of all parties: {accuracy_words(told)}",
        )
    yield "what leaves", leaves(party, kept)
    yield "who sees it", seen(job)
    yield "what it costs", price(party, facts)
    yield "what remains", remains(facts)
    if party.policy.mode == "simulation":
        yield "beware", "this directory is set up for a test: noise comes from a seed, and protects nobody"
    own = large_epsilon(facts["epsilon"], party.policy.adjacency, party.policy.label_epsilon)
    for problem in (job.weak_promise() if job.public.columns else own, job.weak_delta()):
        if problem is not None:
            yield "beware", problem
    for caveat in job.caveats_where(pinned=True):
        yield "beware", plain(caveat)
    yield "how rows count", bounds(party, config)


def quoted(text: str | None) -> str:
    """What somebody says, in quotation marks."""
    return "not said" if text is None else f"“{plain(text)}”"


def with_whom(party: Party, proposal: Proposal) -> str:
    others = [size for number, size in enumerate(proposal.sizes) if number != party.number]
    if not others:
        return "nobody else"
    count = f"{len(others)} other {'party' if len(others) == 1 else 'parties'}"
    return f"{count} with {sum(others):,} records in all; this one declares {proposal.sizes[party.number]:,}"


def leaves(party: Party, kept: Kept) -> str:
    """How many messages leave, and of how many numbers each."""
    job, plan = kept.job, kept.job.plan
    ends: dict[int, tuple[int, int]] = {}
    for t, phase in plan:
        first, last = ends.get(phase, (t, t))
        ends[phase] = min(first, t), max(last, t)
    drawn = sum(len(releases) for (t, _), releases in plan.items() if t < 0)
    widths = [
        at_parties(job.algorithm, phase).message(job.public, t).size
        for phase, (first, last) in ends.items()
        for t in {first, min(first + 1, last), max(first, last - 1), last}  # where widths differ from other rounds'
        if t >= 0
    ]
    count = sum(1 for t, _ in plan if t >= 0)
    size = f"{widths[0]:,} numbers" if len(set(widths)) == 1 else f"up to {max(widths, default=0):,} numbers"
    kind = "with noise added" if job.private else "WITHOUT any noise that protects a record"
    own = f" {drawn} more draws stay at this party's own server." if drawn else ""
    return (
        f"{count:,} messages of {size} each, computed from the records, {kind}.{own} No record leaves, and nothing "
        "else that was computed from them"
    )


def seen(job: Job) -> str:
    if job.sums is not None:
        summed, parties = job.public.privacy.sum, job.public.parties
        fewest = parties if summed is None else summed.least(parties)
        return (
            f"the coordinator sees sums over at least {fewest} parties, and no single message, as long as few enough "
            "of them collude"
        )
    if job.algorithm.topology == "graph":
        return "the coordinator, who carries the messages, and this party's neighbours see every message as it leaves"
    return "the coordinator sees every message as it leaves, and so does everybody to whom it shows them"


def price(party: Party, facts: Facts) -> str:
    total, unit = facts["epsilon"], UNITS[party.policy.adjacency]
    if total is None or facts["delta"] is None:
        return "no epsilon can be given: NOTHING is protected by differential privacy"
    odds, delta = printed(math.exp(min(total, 700.0)), ".3g"), printed(facts["delta"], ".6g")
    return (
        f"epsilon {printed(total)} at delta {delta} for {unit}: whoever sees all of it can become surer of "
        f"any guess about that, and the odds change by a factor of {odds} at most, but for a chance of "
        f"{delta}"
    )


def left(value: float) -> str:
    """What may still be spent, rounded down."""
    return f"{math.floor(value * 1e4) / 1e4:.4f}"


def remains(facts: Facts) -> str:
    if facts["left_now"] is None:
        return "there is no budget here, and nothing is refused for its cost"
    if facts["left_after"] is None:
        return "nothing: the budget cannot pay it"
    return f"epsilon {left(facts['left_after'])} of the budget after it, and {left(facts['left_now'])} without it"


def bounds(party: Party, config: Config) -> str:
    return f"each is clipped to a norm of {bound_of(party, config):g}, as party.toml declares"


def decide(
    party: Party, code: str, approved: bool, why: str = "", tell: bool = False, days: float | None = None
) -> Facts:
    """Record the steward's decision about the proposal with exactly this code; returns the proposal's new entry."""
    if not party.asks:
        raise ConfigError(
            f'{party.folder / "party.toml"}: has [policy] approve = "{party.policy.approve}", and no job waits: to '
            'decide about each, set approve = "ask"'
        )
    known, reason = Proposals(party), checked_reason(why)
    entry = known.find(code, to_decide=True)
    with closing(Desk(party).opened()) as ledger:
        if approved and (problem := obstacle(party, understood(entry.proposal), ledger)) is not None:
            raise RefusedError(f"{entry.code}: would be refused all the same, and was not approved: {problem}")
        if approved:  # what is not on record is not approved
            ledger.note_decision(entry.proposal.id, True, reason)
        known.decide(entry, approved, ledger.epoch, reason, tell, days)
        if not approved:  # and a refusal holds whether it can be recorded or not
            with suppress(PrivadmmError):
                ledger.note_decision(entry.proposal.id, False, reason)
        return brief(party, known.find(code, to_decide=True), ledger)


def mark(parties: Sequence[Party]) -> str:
    """Digest of all that a page shows, except when a proposal was last asked for: it changes if the page would."""
    seen: list[Any] = []
    for party in parties:
        entries = Proposals(party).entries()
        seen.append([(entry.digest, entry.state, entry.decision and entry.decision.at) for entry in entries])
        with suppress(PrivadmmError, OSError), closing(Desk(party).opened()) as ledger:
            seen.append(ledger.head)
    return digest(repr(seen).encode())
