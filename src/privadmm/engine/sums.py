"""Secure sums of a job: which methods can have them, their noise, a block's part in one, and how a sum is read.

A message may be summed if it is a function of records and inbox alone, and if the coordinator needs only the sum. It
may not be summed if the party keeps it: no sum releases that one message, so the party's next message would have a term
that nobody counted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import Mail
from privadmm.engine.phases import Algorithm, AtParties, vertical
from privadmm.engine.public import Public
from privadmm.errors import AbsentError, ConfigError, RefusedError
from privadmm.privacy import sums
from privadmm.privacy.accounting import Plan, epsilon, printed, totals, worst
from privadmm.privacy.calibration import Target
from privadmm.privacy.events import Event, Gaussian, SharedGaussian, Spent
from privadmm.privacy.ledger import Ledger
from privadmm.privacy.masks import Entry, Masker, Roster, Told, new_key, public_key
from privadmm.privacy.sums import Summands, Summing, Sums, Words

if TYPE_CHECKING:
    from privadmm.engine.job import Job

ROSTER = "roster"  # the name under which a ledger keeps the first roster of a job
INSTEAD = 'use first_order_consensus or dp_fedsgd, or remove [privacy] sum = "secure"'


def check_summable(algorithm: Algorithm, public: Public) -> None:
    """Refuse a secure sum of messages that must be read one by one, and say why."""
    if public.privacy.sum is None:
        return
    if (why := unsummable(algorithm)) is not None:
        raise ConfigError(f"{algorithm.name} cannot sum securely: {why}. Instead {INSTEAD}")
    public.privacy.sum.check(public.parties)


def unsummable(algorithm: Algorithm) -> str | None:
    """Why a method's messages cannot be summed securely; None where they can."""
    at_parties = [phase for phase in algorithm.phases if isinstance(phase, AtParties)]
    if vertical(algorithm):
        return "each party's scores enter the next round of every other, one by one and not as a sum of all"
    if algorithm.topology == "graph":
        return "neighbours need what each of them said, and a sum over everybody hides just that"
    if len(at_parties) != 1 or at_parties[0].sums is None:
        return (
            "a party keeps the iterate that it released and starts its next message from it; under a sum that iterate "
            "is never released by itself, so the next message would tell of records in a term that no noise was "
            "counted for"
        )
    return None


def gradients(public: Public, t: int) -> Summands:
    """The bounds of messages that are gradients of the weighted losses, which are at most C omega_i L long."""
    moves = public.moved(public.ids, public.summation(public.ids))[:, 0]
    return Summands(moves, public.scale(public.ids)[:, 0] * public.loss.lipschitz)


def uneven(public: Public, row: tuple[Event, ...]) -> bool:
    """Whether one noise protects the parties of a secure sum differently: by their budgets, or by their sizes.

    If parties are weighted by records, a record moves a sum equally wherever it is, and no size need be known.
    """
    return public.privacy.sum is not None and (len(set(row)) > 1 or public.weighting == "parties")


def planned_sums(algorithm: Algorithm, public: Public) -> Sums | None:
    """The sums of the whole job; None where messages are not summed securely."""
    if public.privacy.sum is None:
        return None
    return public.once((algorithm, "sums"), lambda: _planned(algorithm, public, algorithm.plan(public)))


def _planned(algorithm: Algorithm, public: Public, plan: Plan) -> Sums:
    assert public.privacy.sum is not None
    releases = {}
    for (t, number), (events,) in plan.items():
        phase = algorithm.phases[number]
        assert isinstance(phase, AtParties)
        assert phase.sums is not None
        releases[t, number] = (events, phase.sums(public, t), int(phase.sends(public, t).shape[-1]))
    assert isinstance(public.privacy, Target)
    return Sums.planned(public.privacy.sum, releases, public.privacy.kind)


# What a block does


def introduced(job: "Job", ids: Ints, ledger: Ledger) -> Entry:
    """The block's entry for the roster, not signed yet; its key is drawn once for a job.

    If there is a roster already, the entry is that in it, even if the job is over and its key erased.
    """
    if (packed := ledger.kept(job.id, ROSTER)) is not None:
        return next(entry for entry in Roster.unpack(packed).entries if entry.number == int(ids.min()))
    private = None if ledger.over(job.id) else ledger.secret(job.id, new_key)
    if private is None:
        raise RefusedError(f"the key of job {job.id} was erased: it is over here. Nothing was released")
    return Entry(tuple(ids.tolist()), public_key(private))


def accept_roster(job: "Job", ids: Ints, ledger: Ledger, packed: bytes, signed: Callable[[Entry, int], bool]) -> None:
    """Keep the first roster of a job that `Roster.check` accepts. The same again changes nothing; others are refused.

    signed(entry, party) says whether a party signed the entry that it is in.
    """
    roster, first = Roster.unpack(packed), ledger.kept(job.id, ROSTER)
    if first is None:
        mine = introduced(job, ids, ledger)
        roster.check(mine, job.public.parties, largest_block(job.public), signed)
        private = ledger.secret(job.id)
        assert private is not None
        masker = Masker(job.id, mine.number, private, roster)
        for entry in roster.entries:
            if entry.number != mine.number:
                masker.pair(entry)  # raises now if the entry has no valid key
        first = ledger.keep(job.id, ROSTER, roster.pack, None)
    if first != roster.pack():
        raise RefusedError(
            f"another roster was accepted for job {job.id}, and the first one holds. Nothing was released"
        )


def largest_block(public: Public) -> int:
    """How many parties may share a key: in a deployment no more than may collude, since its owner knows them all."""
    assert isinstance(public.privacy, Target)
    assert public.privacy.sum is not None
    simulated = public.privacy.kind is Gaussian
    return public.parties if simulated else public.privacy.sum.tolerated(public.parties)


def masker_of(job: "Job", ids: Ints, ledger: Ledger) -> Masker | None:
    """The block's masks, from its ledger; None if the block has all parties, so that there is nobody to hide from."""
    if len(ids) == job.public.parties:
        return None
    packed, private = ledger.kept(job.id, ROSTER), ledger.secret(job.id)
    if packed is None or private is None:
        raise RefusedError(
            f"job {job.id} has no roster here, or its key was erased: a secure sum begins with everybody's keys. "
            "Nothing was released"
        )
    return Masker(job.id, int(ids.min()), private, Roster.unpack(packed))


def present(public: Public, absent: Ints) -> Ints:
    """The parties that are not absent: those who take part in a sum (S in privacy/sums.py)."""
    if not len(absent):
        return public.ids
    return np.setdiff1d(public.ids, absent[:, 0])


def summing(job: "Job", plan: Sums, at: sums.At, inbox: Mail, masker: Masker | None, whole: bool) -> Summing:
    """What a block's door needs for one release into a secure sum."""
    here = present(job.public, inbox.absent)
    plan.check_present(len(here))
    row = arrays.pack({"values": inbox.values[..., :1, :], "absent": inbox.absent})
    scale = plan.share(at, len(here))
    facts = (job.id, job.digest, plan.colluding, scale, tuple(here.tolist()))
    told = Told(*facts, *at, plan.exponent, arrays.digest(row))

    def hide(call: int, shape: tuple[int, ...]) -> Words:
        return np.zeros(shape, dtype=np.uint64) if masker is None else masker.hide(told, call, shape)

    return Summing(plan, at, len(here), whole, hide)


# What the driver does


def opened(algorithm: Algorithm, public: Public, t: int, before: Ints, mail: Mail, asked: int = 0) -> Mail | None:
    """The sum of round t as one row; None if a message is missing, so that the sum cannot be read.

    `before` lists who was absent already. Refused if the job cannot go on without this sum, or with so few parties.
    `asked` as for `check_without`.
    """
    plan = planned_sums(algorithm, public)
    assert plan is not None
    everybody = present(public, before)
    if np.array_equal(mail.senders, everybody):
        return Mail(everybody, sums.opened(mail.values, len(everybody), plan.step), mail.absent)
    check_without(algorithm, public, t, everybody, mail.senders, asked)
    return None


def check_without(algorithm: Algorithm, public: Public, t: int, before: Ints, here: Ints, asked: int = 0) -> None:
    """Refuse to go on without the sum of round t, for which only `here` of `before` answered, if the job needs it.

    `asked`: how many rounds a run that was interrupted may have asked for already.
    """
    plan = planned_sums(algorithm, public)
    assert plan is not None
    gone = np.setdiff1d(before, here).tolist()
    lost = f"party {gone[0]} gave no answer in round {t + 1}, and without it the sum of that round cannot be read"
    phase = next(phase for phase in algorithm.phases if isinstance(phase, AtParties))
    if len(here) >= plan.fewest and not phase.vital(t):
        return
    why = (
        f"{len(here)} parties are left, and the job sums over {plan.fewest} at least ([privacy] fewest)"
        if len(here) < plan.fewest
        else "every later round needs that sum"
    )
    over = "the job ends here, unless that answer comes after all when the run is resumed"
    raise AbsentError(f"{lost}; {why}: {over}. {cost(algorithm, public, max(t + 1, asked))}")


def cost(algorithm: Algorithm, public: Public, rounds: int) -> str:
    """What so many rounds have cost, as a sentence."""
    assert isinstance(public.privacy, Target)
    tallies = totals({at: rows for at, rows in algorithm.plan(public).items() if at[0] < rounds}, public.parties)
    copies = [tuple((event, public.privacy.copies * n) for event, n in tally) for tally in tallies]
    spent = worst(public.in_all(copies), public.privacy.delta)
    few = public.privacy.sum.tolerated(public.parties) if public.privacy.sum else 0
    return (
        f"Each party has spent epsilon = {printed(spent)} at most (computational, and if up to {few} parties collude), "
        "and that stays spent; `privadmm ledger close` at each party frees the rest and erases the job's key"
    )


def spread(mail: Mail) -> Mail:
    """The mean of the summed messages, as one row for each party that is present."""
    mean: Floats = mail.values / len(mail.senders)
    return Mail(mail.senders, np.broadcast_to(mean, (*mean.shape[:-2], len(mail.senders), mean.shape[-1])), mail.absent)


# What colluding parties learn


def if_colluding(spent: Spent, delta: float, colluding: int, fewest: int) -> float:
    """The epsilon of these releases if this many parties collude with a coordinator who chooses who is present."""
    present = max(fewest, colluding + 1)
    events = tuple(
        (event.among(colluding, present) if isinstance(event, SharedGaussian) else event, count)
        for event, count in spent
    )
    return epsilon(events, delta)
