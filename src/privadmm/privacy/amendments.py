"""Amendments: what a steward may change in a ledger's policy, and what stays fixed.

Spending is recorded as events, so all that was ever released can be counted again with another epsilon or delta. What
decided how events were recorded stays: the mode, the parties, the adjacency, and how labels are randomised.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from privadmm.errors import ConfigError, LedgerError, RefusedError
from privadmm.privacy.accounting import epsilon, printed
from privadmm.privacy.events import Spent
from privadmm.privacy.ledger_file import Identity
from privadmm.privacy.policy import Policy

FIXED = {
    "adjacency": "all that is on record was counted between these neighbours, and the two do not add up",
    "label_epsilon": "labels are randomised once, and another report of them would tell more",
}


class Amendable(Protocol):
    """What a check of an amendment asks of a ledger."""

    identity: Identity

    @property
    def path(self) -> object: ...
    def aside(self) -> Mapping[int, Spent]: ...
    def jobs(self) -> list[str]: ...
    def freed_by(self, job: str) -> dict[int, Spent]: ...


def check_amended(ledger: Amendable, policy: Policy, why: str) -> Identity:
    """The ledger's identity with this policy. Refused if that changes what is fixed, or allows less than was promised.

    Open jobs keep what was set aside for them, so the new budget must cover that too.
    """
    old, path = ledger.identity, ledger.path
    if not why.strip():
        raise LedgerError(f"{path}: say why the policy changes; it is kept in the ledger")
    for fact, reason in FIXED.items():
        if (was := getattr(old.policy, fact)) != (asked := getattr(policy, fact)):
            raise ConfigError(
                f"{path}: {fact} = {was!r} was fixed when this ledger was made and cannot become {asked!r}: {reason}. "
                "Records that no job has read can have a ledger of their own"
            )
    amended = replace(old, policy=replace(policy, limits=policy.limits or old.policy.limits))
    if amended.facts() == old.facts():
        raise ConfigError(f"{path}: this is its policy already; nothing was changed")
    budget = policy.budget
    if budget is None:
        if old.policy.budget is not None:
            raise ConfigError(f"{path}: a ledger with a budget keeps one; without it, nothing would be refused")
        return amended
    held = max(epsilon(spent, budget.delta) for spent in set(ledger.aside().values()))
    if held > budget.epsilon:
        open_jobs = [job for job in ledger.jobs() if ledger.freed_by(job)]
        closing = "".join(f"; `privadmm ledger close {path} {job}` frees what job {job} holds" for job in open_jobs[:3])
        raise RefusedError(
            f"{path}: epsilon = {printed(held, '.6g')} is spent or set aside at delta = {budget.delta:g}, and the new "
            f"budget would be {budget.epsilon:.6g}. Nothing was changed: ask for {printed(held, '.6g')} at least, with "
            f"which nothing more can be released{closing}"
        )
    return amended
