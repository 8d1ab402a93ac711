"""One budget for many fits: an `Account` counts every fit on a ledger and refuses those that it cannot pay for.

    account = Account(epsilon=2.0, delta=1e-6)                        in memory, for one process
    account = Account(epsilon=2.0, delta=1e-6, path="fits.ledger")    in a file, for all processes and days

A fit is charged before anything is fitted, by the events of its whole plan, and stays charged if it fails. Events
compose over fits; epsilons are never added. Folds of a cross-validation hold the same people, so every fit counts for
every person.

One account stands for one person, whichever party holds the record: rows are often dealt out again by each fit. Where
parties release with different noise, the fit is charged for the least noise of them, release by release. A person whose
columns are at several parties loses what all of them release, and is charged for all.
"""

import json
import math
import os
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from privadmm.engine.job import Job
from privadmm.errors import ConfigError, LedgerError, RefusedError
from privadmm.params import check_positive, check_probability
from privadmm.privacy.accounting import epsilon as cost
from privadmm.privacy.accounting import largest_next, printed
from privadmm.privacy.events import (
    Event,
    GammaObjective,
    GammaOutput,
    Gaussian,
    GaussianObjective,
    SharedGaussian,
    Spent,
    merge,
    merge_all,
)
from privadmm.privacy.ledger import Asked, Tick
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.meaning import large_epsilon
from privadmm.privacy.new_ledger import new_ledger
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.refusals import recording
from privadmm.privacy.sqlite_ledger import SqliteLedger

USE_A_PATH = (
    "an Account in memory cannot be copied to another process, which would count apart from this one: give it a file, "
    'Account(epsilon=..., delta=..., path="fits.ledger"), or use n_jobs=1'
)
FIT = "a fit of an estimator"  # stands where a tick of a run has the digest of its inbox
WRONG = "ledger is {}: give the path of a ledger, or an Account(epsilon=..., delta=...)"


@dataclass(frozen=True)
class Spending:
    """What an account has counted: as a table for people, and by `dict(...)` or `as_dict()` for programs."""

    epsilon: float  # of all fits together, at delta; infinite if no finite one covers them
    budget: float
    delta: float
    fits: int
    largest_next: float  # the epsilon of the largest fit with Gaussian noise that is still affordable
    adjacency: str
    path: str | None
    caveats: tuple[str, ...]  # what the fits' epsilons do not cover

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def keys(self) -> Iterator[str]:
        return iter(asdict(self))

    def __getitem__(self, name: str) -> Any:
        return asdict(self)[name]

    def __repr__(self) -> str:
        place = self.path or "in memory"
        lines = [
            f"{self.fits} fit{'' if self.fits == 1 else 's'} on this account ({place})",
            f"  spent   epsilon = {printed(self.epsilon)} at delta = {printed(self.delta, '.6g')}, all fits composed",
            f"  budget  epsilon = {self.budget:g}",
            f"  left    a fit of up to epsilon = {math.floor(self.largest_next * 1e4) / 1e4:g} (with Gaussian noise)",
            f"  counts  {self.adjacency} neighbours",
            *(f"  note    {words}" for words in self.caveats),
        ]
        return "\n".join(lines)


class Account:
    """A budget (epsilon, delta) that every fit with `ledger=` this account is counted on.

    epsilon, delta  what all fits together may cost. With the path of a file that exists they may be left out
    path            a file that keeps the account, made if there is none; without it the account is in memory
    adjacency       between which neighbours all fits are counted

    The file is an ordinary ledger of a simulation: `privadmm ledger show` and `privadmm ledger verify` read it.
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        path: str | Path | None = None,
        adjacency: str = "replace-one",
    ) -> None:
        self.path = None if path is None else file_of(path).absolute()
        self._process = os.getpid()
        self._lock, self._fits = threading.RLock(), dict[str, tuple[Spent, dict[str, Any]]]()
        stored = None if self.path is None else identity_of(self.path)
        if (epsilon is None) != (delta is None):
            raise ConfigError("an account has an epsilon and a delta: give both")
        if stored is None:
            if epsilon is None or delta is None:
                where = "" if self.path is None else f"{self.path}: there is no such ledger. "
                raise ConfigError(f"{where}A new account needs its budget: Account(epsilon=..., delta=...)")
            check_positive(epsilon=epsilon)
            check_probability(delta=delta)
            related: Any = adjacency  # checked by Policy
            # Each fit says how many may collude, and is counted so.
            self._made = Policy(Budget(float(epsilon), float(delta)), adjacency=related, colluding=1, fewest=1)
            if self.path is not None:
                new_ledger(self.path, [0], self._made, "simulation")
            return
        if stored.mode != "simulation":
            raise ConfigError(
                f"{self.path}: is the ledger of a deployment, and an estimator's fit is a simulation: name a ledger of "
                "its own, Account(epsilon=..., delta=..., path=...)"
            )
        if stored.policy.budget is None:
            raise ConfigError(f"{self.path}: has no budget, so it refuses nothing: name a ledger that has one")
        self._made = stored.policy
        if epsilon is not None and (epsilon, delta) != (self._budget.epsilon, self._budget.delta):
            raise ConfigError(
                f"{self.path}: has a budget of epsilon = {self._budget.epsilon:g} at delta = {self._budget.delta:g}, "
                f"and Account was given {epsilon!r} and {delta!r}: leave them out, or name another file"
            )

    @property
    def policy(self) -> Policy:
        """The policy as it is now: a policy in a file may be amended while the account is in use."""
        if self.path is None:
            if os.getpid() != self._process:
                raise ConfigError(f"an account in memory was copied into another process. {USE_A_PATH}")
            return self._made
        stored = identity_of(self.path)
        return self._made if stored is None else stored.policy

    @property
    def _budget(self) -> Budget:
        assert self.policy.budget is not None
        return self.policy.budget

    def charge(self, job: Job, spent: Spent, bounds: Sequence[float] = ()) -> tuple[str, int]:
        """Count a fit that begins with this job and costs a person `spent`, or refuse it.

        Returns the entry's name and how many stood before it, so that no two fits need draw the same noise.
        """
        if job.public.label_epsilon is not None:
            raise RefusedError(
                "each fit with label_epsilon reports every label once more, and a ledger of many fits cannot keep what "
                "that promises of labels. Nothing was fitted: leave out label_epsilon (adjacency='label' protects "
                "labels over many fits), or fit once without a ledger"
            )
        if not job.private:
            raise RefusedError(
                "this fit is not private, and no epsilon would cover the account after it. Nothing was fitted: give "
                "epsilon and delta, or leave out ledger"
            )
        job.admit(self.policy, bounds)
        facts = {
            "algorithm": job.algorithm.name,
            "parties": job.public.parties,
            "epsilon": cost(spent, self._budget.delta),
            "caveats": job.caveats,
        }
        entry = uuid.uuid4().hex
        with self._lock:
            self._append(entry, spent, facts)
            return entry, self._jobs().index(entry)

    def _append(self, entry: str, spent: Spent, facts: dict[str, Any]) -> None:
        if self.path is None:
            if cost(merge(self._spent(), spent), self._budget.delta) > self._budget.epsilon:
                raise self._refusal(spent)
            self._fits[entry] = spent, facts
            return
        with self._opened() as ledger:
            try:
                asked = Asked(algorithm=facts["algorithm"])
                with recording(ledger, asked, entry):
                    ledger.reserve(entry, dict.fromkeys(ledger.ids, spent), asked)
            except RefusedError as error:
                raise self._refusal(spent) from error
            events = tuple(event for event, count in spent for _ in range(count))
            with ledger.transaction():
                ledger.commit(
                    Tick(entry, 0, 0), FIT, dict.fromkeys(ledger.ids, events), json.dumps(facts).encode(), b""
                )

    def _refusal(self, spent: Spent) -> RefusedError:
        before, delta = self._spent(), self._budget.delta
        return RefusedError(
            f"the ledger allows epsilon = {self._budget.epsilon:g} at delta = {delta:g} over all fits; "
            f"{printed(cost(before, delta))} is spent in {len(self.entries())}, and this fit "
            f"(epsilon = {printed(cost(spent, delta))} by itself) would bring it to "
            f"{printed(cost(merge(before, spent), delta))}. Nothing was fitted: ask for a smaller epsilon, or "
            "stop here",
            "budget",
        )

    @contextmanager
    def _opened(self) -> Iterator[SqliteLedger]:
        assert self.path is not None
        stored = identity_of(self.path)
        if stored is None:
            raise LedgerError(f"{self.path}: the ledger is gone, and what was spent with it. Nothing was fitted")
        with closing(SqliteLedger(self.path, stored.parties, stored.policy, stored.mode)) as ledger:
            yield ledger

    def _spent(self) -> Spent:
        """Everything spent or reserved; in a file with several parties, by the party that spent most."""
        if self.path is None:
            return merge_all(spent for spent, _ in self._fits.values())
        with self._opened() as ledger, ledger.transaction():
            each = {ledger.others(party, "") for party in ledger.ids}
        return max(each, key=lambda spent: cost(spent, self._budget.delta))

    def _jobs(self) -> list[str]:
        """Names of all jobs on the account, oldest first: fits, and in a file also runs of `privadmm train`."""
        if self.path is None:
            return list(self._fits)
        with self._opened() as ledger:
            return ledger.jobs()

    def entries(self) -> dict[str, dict[str, Any]]:
        """Facts of each fit (algorithm, parties, epsilon, caveats) by the name of its entry, oldest first."""
        if self.path is None:
            return {entry: facts for entry, (_, facts) in self._fits.items()}
        with self._opened() as ledger, ledger.transaction():
            kept = {entry: recorded(ledger, entry) for entry in ledger.jobs()}
        return {entry: json.loads(data) for entry, data in kept.items() if data is not None}

    def weak_promise(self) -> str | None:
        """Warn that several fits together cost a large epsilon; None if it is small, or if there is only one fit."""
        total = self.total()
        of = "people" if total.adjacency == "person" else total.adjacency
        problem = large_epsilon(total.epsilon, of) if total.fits > 1 else None
        return problem and f"together, the {total.fits} fits of this ledger: {problem}"

    def total(self) -> Spending:
        """Add up what is spent and what is left."""
        with self._lock:
            spent, entries, budget = self._spent(), self.entries(), self._budget
        return Spending(
            cost(spent, budget.delta),
            budget.epsilon,
            budget.delta,
            len(entries),
            largest_next(spent, budget.epsilon, budget.delta),
            self.policy.adjacency,
            None if self.path is None else str(self.path),
            tuple(dict.fromkeys(words for facts in entries.values() for words in facts["caveats"])),
        )

    def __repr__(self) -> str:
        where = "" if self.path is None else f", path={str(self.path)!r}"
        return f"Account(epsilon={self._budget.epsilon:g}, delta={self._budget.delta:g}{where})"

    def __sklearn_clone__(self) -> "Account":
        """Clones of an estimator share its account."""
        return self

    def __copy__(self) -> "Account":
        return self

    def __deepcopy__(self, memo: Any) -> "Account":
        return self

    def __reduce__(self) -> Any:
        if self.path is None:
            raise ConfigError(USE_A_PATH)
        return reopened, (str(self.path.resolve()),)


def recorded(ledger: SqliteLedger, entry: str) -> bytes | None:
    """Facts of a fit as stored; None for a job that is no fit, or for a fit whose process died while it was charged."""
    try:
        return ledger.recall(Tick(entry, 0, 0), FIT)
    except RefusedError:  # a round of `privadmm train` stands there, under the digest of its inbox
        return None


def reopened(path: str) -> Account:
    """Open the account of a file again; pickle calls this in another process."""
    return Account(path=path)


def file_of(path: Any) -> Path:
    if not isinstance(path, str | Path) or not str(path):
        raise ConfigError(WRONG.format(repr(path)))
    if Path(path).is_dir():
        raise ConfigError(f"{path}: is a directory, and a ledger is a file: {Path(path) / 'fits.ledger'}, say")
    return Path(path)


def account_of(ledger: Any) -> Account | None:
    """The account that an estimator's `ledger` names."""
    if ledger is None or isinstance(ledger, Account):
        return ledger
    return Account(path=file_of(ledger))


def account(ledger: str | Path | Account) -> Spending:
    """What all fits on this ledger have cost together, and what is left: `print(privadmm.account("fits.ledger"))`."""
    counted = account_of(ledger)
    if counted is None:
        raise ConfigError(WRONG.format("None"))
    return counted.total()


def person(jobs: Sequence[Job]) -> Spent:
    """Events that a fit costs one person, over the jobs of all its classes."""
    return merge_all(map(for_a_person, jobs))


def for_a_person(job: Job) -> Spent:
    """Events that the job's whole plan costs one person, whichever party holds the record."""
    if job.public.columns and job.public.privacy.adjacency != "column":
        return merge_all(job.costs)
    releases = Counter(events for tick in job.plan.values() for events in tick)
    spent: Spent = ()
    for events, times in releases.items():
        spent = merge(spent, ((least_noise(events), times),))
    return spent


def least_noise(events: Sequence[Event]) -> Event:
    """An event that costs at least as much as each of these, which are alike except for their noise."""
    kinds, first = set(events), events[0]
    if len(kinds) == 1:
        return first
    if len({type(event) for event in kinds}) == 1:
        if isinstance(first, GaussianObjective):
            ratio = min(event.ratio for event in kinds if isinstance(event, GaussianObjective))
            return GaussianObjective(ratio, max(event.w for event in kinds if isinstance(event, GaussianObjective)))
        if isinstance(first, GammaObjective):
            slope = max(event.slope for event in kinds if isinstance(event, GammaObjective))
            return GammaObjective(slope, max(event.w for event in kinds if isinstance(event, GammaObjective)))
        if isinstance(first, Gaussian | GammaOutput):
            return min((event for event in kinds if isinstance(event, type(first))), key=lambda event: event.ratio)
        if isinstance(first, SharedGaussian):
            ratio = min(event.ratio for event in kinds if isinstance(event, SharedGaussian))
            alike = {replace(event, ratio=ratio) for event in kinds if isinstance(event, SharedGaussian)}
            if len(alike) == 1:
                return alike.pop()
    raise RefusedError(
        "the parties of this fit release in different ways, and a ledger of many fits has no figure for all of them. "
        "Nothing was fitted: give every party the same epsilon"
    )


class Series:
    """Counts the fits of an estimator's clones, as searches and cross-validations make them, if there is no ledger."""

    def __init__(self, elsewhere: bool = False) -> None:
        self.elsewhere = elsewhere  # whether other clones may be fitted in other processes, which this one cannot count
        self.spent: Spent = ()
        self.fits, self.warned = 0, False

    def count(self, fit: Spent, delta: float) -> str | None:
        """Count the fit of a clone. The first time that one fit's epsilon is not the whole cost, return a warning."""
        self.spent, self.fits = merge(self.spent, fit), self.fits + 1
        if self.warned or (self.fits < 2 and not self.elsewhere):
            return None
        self.warned = True
        total = (
            f"the {self.fits} fits so far cost epsilon = {printed(cost(self.spent, delta))} together"
            if self.fits > 1
            else "others may be fitted in other processes"
        )
        return (
            f"clones of one estimator are being fitted, as a search or a cross-validation does: a fit costs epsilon = "
            f"{printed(cost(fit, delta))}, and {total}. What counts is the total of all fits on these records, and "
            'nobody counts it: give ledger=Account(epsilon=..., delta=..., path="fits.ledger")'
        )

    def __reduce__(self) -> Any:
        return Series, (True,)
