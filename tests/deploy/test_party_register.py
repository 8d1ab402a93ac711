"""What a party's ledger remembers of the jobs that a coordinator asked for, and of those that were refused."""

import json
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from privadmm.cli.views import steward
from privadmm.deploy.federation.desk import party_log
from privadmm.deploy.federation.desk.approvals import Entry, Proposals
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.protocol import Letter
from privadmm.deploy.federation.steward import page, words
from privadmm.errors import PrivadmmError, RefusedError, WaitingError
from privadmm.privacy.ledger import Tick
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.register import Refusal, Register, register
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify
from small_runs import PRIVATE, with_changes

pytest.importorskip("cryptography")
from federations import Backup, Desks, Federated, federated

SAID = {"purpose": "Readmissions <b>", "requester": "Dr. A"}
JOB = with_changes(PRIVATE, {"run": SAID})


def asked(made: Federated, kind: str, party: int = 0, **run: Any) -> Letter:
    """The first letter of a kind that a run sends to a party."""
    post = Desks(made.folders)
    with suppress(PrivadmmError):
        made.run(post, out="runs/tried", **run)
    return next(letter for who, letter, _ in post.captured if who == party and letter["kind"] == kind)


def refused(made: Federated, party: int = 0) -> list[Refusal]:
    return list(register(made.ledgers[party]).refusals or ())


def test_purpose_and_requester_reach_every_ledger_and_steward(tmp_path: Path) -> None:
    made = federated(tmp_path, JOB)
    made.change(1, "[party]", '[party]\nname = "St. Mary\'s"')
    made.run()
    for party, ledger in enumerate(made.ledgers):
        (entry,) = register(ledger).entries
        assert (entry.asked.purpose, entry.asked.requester) == tuple(SAID.values())
        assert entry.asked.algorithm == "dp_admm"
        assert len(entry.asked.config or "") == 64
        assert register(ledger).name == ("St. Mary's" if party == 1 else f"party {party}")
    facts = words.standing(read_party(made.folders[1]))
    shown = page.overview([facts], "")
    assert "Readmissions &lt;b&gt;" in shown
    assert "Dr. A" in shown
    assert "<b>" not in shown.replace("<bdi>", "")


def waiting(folder: Path) -> tuple[Federated, Party, Entry]:
    """A job that waits for the steward of party 1."""
    made = federated(folder, JOB)
    made.change(1, "[policy]", '[policy]\napprove = "ask"')
    with pytest.raises(WaitingError):
        made.run(timeout=0.01)
    party = read_party(made.folders[1])
    (entry,) = Proposals(party).entries()
    return made, party, entry


def test_a_steward_is_told_what_for_and_who_asks_and_the_decision_is_on_record(tmp_path: Path) -> None:
    made, party, entry = waiting(tmp_path)
    told = {row["about"]: row["says"] for row in words.whole(party, entry)["sentences"]}
    assert "“Readmissions <b>”" in told["what for"]
    assert "“Dr. A”" in told["who asks"]
    words.decide(party, entry.code, False, "not for this")
    with pytest.raises(RefusedError):
        made.run(resume=True)
    (one,) = refused(made, 1)
    assert (one.kind, one.why, one.asked.requester) == ("approval", "refused by its steward", "Dr. A")
    (decision,) = register(made.ledgers[1]).decisions
    assert (decision.what, decision.why) == ("proposal refused", "not for this")
    words.decide(party, entry.code, True)
    assert [one.what for one in register(made.ledgers[1]).decisions] == ["proposal refused", "proposal approved"]
    assert verify(made.ledgers[1]).problems == ()


def test_a_refusal_by_its_steward_holds_though_it_cannot_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, party, entry = waiting(tmp_path)

    def full(*_: object) -> None:
        raise RefusedError("the ledger cannot be written")

    monkeypatch.setattr(SqliteLedger, "note_decision", full)
    words.decide(party, entry.code, False, "no")
    assert Proposals(party).entries()[0].state == "refused"
    with pytest.raises(RefusedError):
        words.decide(party, entry.code, True)
    assert Proposals(party).entries()[0].state == "refused"


def times(made: Federated) -> int:
    return sum(one.count or 0 for one in refused(made))


def version(made: Federated) -> Letter:
    return {**asked(made, "hello"), "version": "0.0"}


def policy(made: Federated) -> Letter:
    letter = asked(made, "hello")
    made.change(0, '["dp_admm"]', '["dvp"]')
    with closing(opened(made.ledgers[0])) as ledger:
        ledger.amend(read_party(made.folders[0]).fixed, "a test")
    return letter


def budget(made: Federated) -> Letter:
    made.run()
    return asked(made, "begin")


def lock(made: Federated) -> Letter:
    made.run()
    letter = asked(made, "begin")
    with closing(opened(made.ledgers[0])) as ledger, ledger.turn():
        with ledger.transaction():
            ledger.intend(Tick("7" * 32, 0, 0), "in", {0: ()})
        with suppress(PrivadmmError):
            ledger.fail(Tick("7" * 32, 0, 0), "why")
    return letter


def unknown(made: Federated) -> Letter:
    return {"kind": "step", "job": "f" * 32, "round": 0, "phase": 0, "inbox": b""}


def opened(path: Path) -> SqliteLedger:
    known = identity_of(path)
    assert known is not None
    return SqliteLedger(path, known.parties, known.policy, known.mode)


KINDS = {"version": version, "policy": policy, "budget": budget, "locked": lock, "request": unknown}
TABLES = {"locked": with_changes(JOB, {"run": {"mode": "deployment", "seed": None, "ledger": "none"}})}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_refusal_is_on_record_and_the_answer_is_the_same(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "locked":
        pytest.importorskip("opendp")
    made = federated(tmp_path, TABLES.get(kind, JOB))
    letter = KINDS[kind](made)
    before = times(made)
    first = answer(made.folders[0], letter)
    assert first["status"] in ("refused", "locked")
    found = refused(made)
    assert times(made) == before + 1
    assert found[-1].kind == kind
    assert found[-1].asked.party == "party 0"
    assert str(tmp_path) not in found[-1].why
    answers = [answer(made.folders[0], letter)]
    assert refused(made)[-1].count == (found[-1].count or 0) + 1
    monkeypatch.setattr(party_log, "SqliteLedger", None)  # whatever goes wrong with the record
    monkeypatch.setattr(SqliteLedger, "note_refusal", lambda *_: None)
    answers.append(answer(made.folders[0], letter))
    assert answers == [first, first]
    assert verify(made.ledgers[0]).problems == ()


def test_a_coordinator_that_asks_for_ever_leaves_a_bounded_ledger(tmp_path: Path) -> None:
    made = federated(tmp_path, JOB)
    letter = asked(made, "hello")
    before = verify(made.ledgers[0]).rows
    for number in range(40):
        assert answer(made.folders[0], {**letter, "version": f"0.{number}"})["status"] == "refused"
    assert verify(made.ledgers[0]).rows - before == 11
    found = refused(made)
    assert sum(one.count or 0 for one in found) == 40


def test_an_old_copy_is_not_changed_by_a_refusal(tmp_path: Path) -> None:
    made = federated(tmp_path, JOB)
    old = Backup.of(made.ledgers[0], with_anchor=False)
    made.run()
    letter = asked(made, "begin")
    old.put_back()
    before = verify(made.ledgers[0]).head
    assert answer(made.folders[0], letter)["status"] == "locked"
    assert verify(made.ledgers[0]).head == before


def test_neighbouring_records_leave_the_same_register(tmp_path: Path) -> None:
    """Of a refused job no record is read, and what is kept of it is a function of public facts."""
    import numpy as np

    from small_runs import rows, write_npz

    told = []
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        folder.mkdir()
        X, y = rows(seed=0)
        X[0] = np.roll(X[0], 1) * (1 - 2 * seed)
        write_npz(folder / "data.npz", X, y)
        made = federated(folder, JOB)
        made.run()
        for kind in ("version", "request"):
            answer(made.folders[0], KINDS[kind](made))
        found = register(made.ledgers[0])
        told.append((kept(found), shown(made.ledgers[0])))
    assert told[0] == told[1]


def kept(found: Register) -> Any:
    """All of it but the ids of jobs, which are drawn."""
    return [entry.asked for entry in found.entries], [(one.kind, one.why, one.count) for one in found.refusals or ()]


def shown(path: Path) -> str:
    view = steward.overview(path)
    jobs = [{**job, "job": None} for job in view["jobs"]]
    refusals = [{**one, "job": None} for one in view["refusals"]]
    return json.dumps({**view, "file": None, "head": None, "jobs": jobs, "refusals": refusals})
