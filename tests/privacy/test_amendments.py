"""Policies that are amended: history and spending stay, what was promised stays, and what is fixed stays."""

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledgers import NOISE, ONE, POLICY, TWO, aside, begin, copied, locked, opened, pay, put_back
from privadmm.errors import ConfigError, LedgerError, LockedError, RefusedError
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.ledger import Statement, export
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.limits import Limits
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.verification import verify

WIDER = replace(POLICY, budget=Budget(3.0, 1e-5))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Job one: two of its five rounds are done."""
    begin(tmp_path / "ledger")
    pay(tmp_path / "ledger", 0, 1)
    return tmp_path / "ledger"


def amend(path: Path, policy: Policy, before: Policy = POLICY, why: str = "the board decided") -> None:
    with closing(opened(path, policy=before)) as ledger:
        ledger.amend(policy, why)


def policy_of(path: Path) -> Policy:
    known = identity_of(path)
    assert known is not None
    return known.policy


def test_history_and_spending_stay(path: Path) -> None:
    before, rows = aside(path), verify(path).rows
    start = verify(path).head
    amend(path, WIDER)
    assert policy_of(path).budget == Budget(3.0, 1e-5)
    assert aside(path, policy=WIDER) == before
    found = verify(path)
    assert (found.problems, found.rows) == ((), rows + 1)
    assert found.head != start
    pay(path, 2, policy=WIDER)  # a job that was open goes on
    with closing(opened(path, policy=WIDER)) as ledger:
        said = export(Statement.of(ledger))
    assert said["policy"]["budget"] == {"epsilon": 3.0, "delta": 1e-5}
    assert said["budget"] == {"epsilon": 3.0, "delta": 1e-5}


def test_a_ledger_is_opened_with_its_current_policy(path: Path) -> None:
    amend(path, WIDER)
    with pytest.raises(LedgerError, match="budget"):
        opened(path)
    amend(path, POLICY, before=WIDER)
    with closing(opened(path)):
        pass


def test_more_can_be_spent_only_after_a_raise(path: Path) -> None:
    costly = {0: ((NOISE, 4000),)}
    price = epsilon(((NOISE, 4005),), 1e-5)
    with closing(opened(path)) as ledger, pytest.raises(RefusedError, match="in all"):
        ledger.reserve(TWO, costly)
    high = replace(POLICY, budget=Budget(price, 1e-5))
    amend(path, high)
    with closing(opened(path, policy=high)) as ledger:
        ledger.reserve(TWO, costly)
    assert verify(path).problems == ()


FIXED: dict[str, Any] = {"adjacency": "label", "label_epsilon": 1.0}


@pytest.mark.parametrize("fact", FIXED)
def test_what_decides_how_events_are_counted_stays(fact: str, path: Path) -> None:
    with closing(opened(path)) as ledger, pytest.raises(ConfigError, match=fact):
        ledger.amend(replace(POLICY, **{fact: FIXED[fact]}), "why not")
    assert verify(path).rows == 3


def test_a_budget_below_what_is_spent_or_set_aside_is_refused(path: Path) -> None:
    """What was set aside is promised. The steward may close the job, and then has what it freed."""
    spent, held = (epsilon(((NOISE, count),), 1e-5) for count in (2, 5))
    between = replace(POLICY, budget=Budget((spent + held) / 2, 1e-5))
    with closing(opened(path)) as ledger:
        with pytest.raises(RefusedError, match=f"close .* {ONE}"):
            ledger.amend(between, "less")
        ledger.close_job(ONE)
        with pytest.raises(RefusedError, match="spent or set aside"):
            ledger.amend(replace(POLICY, budget=Budget(spent * 0.999, 1e-5)), "less")
        ledger.amend(between, "less")
    assert verify(path).problems == ()
    with closing(opened(path, policy=between)) as ledger, pytest.raises(RefusedError):
        ledger.reserve(TWO, {0: ((NOISE, 3),)})


def test_another_delta_counts_all_of_it_anew(path: Path) -> None:
    strict = replace(POLICY, budget=Budget(2.0, 1e-9))
    amend(path, strict)
    assert verify(path).epsilon[0] == epsilon(((NOISE, 2),), 1e-9)
    tight = epsilon(((NOISE, 5),), 1e-9)
    with closing(opened(path, policy=strict)) as ledger, pytest.raises(RefusedError, match="delta = 1e-12"):
        ledger.amend(replace(POLICY, budget=Budget(tight, 1e-12)), "stricter")


def test_a_budget_is_not_taken_away(path: Path) -> None:
    with closing(opened(path)) as ledger:
        with pytest.raises(ConfigError, match="keeps one"):
            ledger.amend(replace(POLICY, budget=None), "free")
        with pytest.raises(ConfigError, match="already"):
            ledger.amend(POLICY, "nothing")
        with pytest.raises(LedgerError, match="say why"):
            ledger.amend(WIDER, " ")


def test_all_rules_can_be_changed(path: Path) -> None:
    other = replace(
        WIDER,
        per_job=0.7,
        algorithms=("dp_admm", "pvp"),
        row_bound=2.0,
        limits=Limits(rounds=77),
        colluding=3,
        fewest=4,
        silent_days=2.0,
    )
    amend(path, other)
    assert policy_of(path) == other
    back = replace(POLICY, limits=Limits())
    amend(path, back, before=other)
    assert policy_of(path) == back
    assert verify(path).problems == ()


def test_an_open_job_keeps_what_it_was_promised(path: Path) -> None:
    """A lower price of one job holds for the next ones."""
    lower = replace(POLICY, per_job=epsilon(((NOISE, 3),), 1e-5))
    amend(path, lower)
    pay(path, 2, 3, 4, policy=lower)
    with closing(opened(path, policy=lower)) as ledger, pytest.raises(RefusedError, match="for one job"):
        ledger.reserve(TWO, {0: ((NOISE, 4),)})


def test_a_process_that_has_it_open_does_not_go_on_with_the_old_one(path: Path) -> None:
    low = replace(POLICY, budget=Budget(epsilon(((NOISE, 5),), 1e-5), 1e-5))
    with closing(opened(path)) as running:
        running.spent(0)
        amend(path, low)
        with pytest.raises(LedgerError, match="amended"):
            running.reserve(TWO, {0: ((NOISE, 1),)})


def test_an_amendment_that_was_altered_is_noticed(path: Path) -> None:
    amend(path, WIDER)
    known = identity_of(path)
    assert known is not None
    forged = json.dumps({**known.facts(), "budget": json.dumps({"epsilon": 99.0, "delta": 1e-5})}).encode()
    alter(path, "UPDATE ticks SET outbox = ? WHERE kind = 'amend'", forged)
    assert verify(path).problems
    with pytest.raises(LedgerError, match="altered"):
        identity_of(path)
    with pytest.raises(LedgerError, match="altered"):
        opened(path, policy=replace(POLICY, budget=Budget(99.0, 1e-5)))


def alter(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement, values)


def test_an_amendment_that_was_removed_is_noticed_at_once(path: Path) -> None:
    """It may be the last row, one among others, or one of several."""
    low = replace(POLICY, budget=Budget(1.0, 1e-5))
    amend(path, low)
    last, among, several = (copied_whole(path, name) for name in ("last", "among", "several"))
    for other in (among, several):
        pay(other, 2, 3, policy=low)
    amend(several, replace(low, per_job=0.9), before=low)
    pay(several, 4, policy=replace(low, per_job=0.9))
    for other, policy in ((last, POLICY), (among, POLICY), (several, replace(low, per_job=0.9))):
        alter(other, "DELETE FROM ticks WHERE kind = 'amend' AND phase = 0")
        with pytest.raises((LedgerError, LockedError)):
            opened(other, policy=policy)
        assert verify(other).problems or verify(other).behind


def copied_whole(path: Path, to: str) -> Path:
    """A ledger with its anchor, elsewhere."""
    folder = path.with_name(to)
    folder.mkdir()
    for suffix in ("", "-anchor"):
        shutil.copy(f"{path}{suffix}", folder)
    return folder / path.name


def test_what_is_amended_is_part_of_the_anchor(path: Path) -> None:
    old = copied(path, "old")
    amend(path, replace(POLICY, budget=Budget(1.0, 1e-5)))
    put_back(old, path)
    assert "anchor knows of row 4" in str(locked(path))


def test_identities_of_earlier_versions_are_the_same(tmp_path: Path) -> None:
    """Ten days are on record, and the default is not: it is not part of older identities."""
    for days, written in ((7.0, False), (10.0, True)):
        path = tmp_path / str(days)
        policy = replace(POLICY, silent_days=days)
        opened(path, policy=policy).close()
        known = identity_of(path)
        assert known is not None
        assert ("silent_days" in known.facts()) == written
        assert known.policy.silent_days == days
