"""Jobs that wait for a party's steward: what is approved is one proposal, at one party, for a while."""

import json
import os
import shutil
import threading
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from privadmm.cli.views.runs_of_federation import headline, shown
from privadmm.config.file import read
from privadmm.deploy.federation.desk import approvals, records
from privadmm.deploy.federation.desk.approvals import Entry, Proposals
from privadmm.deploy.federation.desk.party_server import Desk, answer
from privadmm.deploy.federation.hub.coordinator import Patience
from privadmm.deploy.federation.hub.state import Status
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import Proposal
from privadmm.deploy.federation.protocol import Letter
from privadmm.deploy.federation.setup import doctor, health
from privadmm.deploy.federation.setup.init import init
from privadmm.deploy.federation.steward import words
from privadmm.errors import ConfigError, RefusedError, WaitingError
from privadmm.privacy import backups
from privadmm.privacy.backups import backup, restore
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.runs.federated import Asked, federate
from privadmm.runs.reporting import UNDECIDED, Reporter, StopRequestedError
from privadmm.runs.rundir import RunDir
from small_runs import DVP, PRIVATE, SHARING, with_changes

pytest.importorskip("cryptography")
from federations import OWN_FILES, SUMMED, Desks, Federated, accounts, federated, joined, own_csv

ASKING = 1  # the party whose steward is asked


def asking(tmp_path: Path, more: str = "", tables: Any = PRIVATE) -> Federated:
    made = federated(tmp_path, tables)
    made.change(ASKING, "[policy]", f'[policy]\napprove = "ask"\n{more}')
    return made


def proposals(made: Federated, party: int = ASKING) -> Proposals:
    return Proposals(read_party(made.folders[party]))


def epoch(made: Federated, party: int = ASKING) -> str:
    with closing(Desk(read_party(made.folders[party])).opened()) as ledger:
        return ledger.epoch


def decide(made: Federated, approved: bool, entry: Entry | None = None, **said: Any) -> None:
    known = proposals(made)
    known.decide(entry or known.entries()[-1], approved, epoch(made), **said)


def begins(post: Desks, party: int = ASKING) -> list[tuple[Letter, Letter]]:
    return [(letter, said) for who, letter, said in post.captured if who == party and letter["kind"] == "begin"]


def waited(made: Federated, **patience: Any) -> Letter:
    """The `begin` letter of a run that nobody approved."""
    post = Desks(made.folders)
    with pytest.raises(WaitingError):
        made.run(post, **{"timeout": 0.01, **patience})
    return begins(post)[-1][0]


def changed(letter: Letter, **facts: Any) -> Letter:
    proposal = replace(Proposal.unpack(letter["proposal"]), **facts)  # type: ignore[arg-type]
    return {**letter, "proposal": proposal.pack()}


def test_a_job_waits_and_goes_on_under_its_id_once_it_is_approved(tmp_path: Path) -> None:
    made = asking(tmp_path)
    letter = waited(made)
    (entry,) = proposals(made).entries()
    assert entry.state == "waiting"
    assert entry.proposal.pack() == letter["proposal"]
    directory = RunDir(made.made.coordinator.folder / "runs/first")
    assert directory.job_id == entry.proposal.id
    decide(made, True)
    post = Desks(made.folders)
    assert made.run(post, resume=True)["rounds"] == 6
    assert [said["status"] for _, said in begins(post)] == ["ok"]
    assert proposals(made).entries()[0].state == "approved"


def test_old_files_ask_nobody(tmp_path: Path) -> None:
    made = federated(tmp_path, PRIVATE)
    made.run()
    assert not any((folder / "proposals").exists() for folder in made.folders)


def test_before_approval_no_record_is_read_and_nothing_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = asking(tmp_path)
    letter = waited(made)
    (made.folders[ASKING] / read_party(made.folders[ASKING]).data.source).unlink()
    monkeypatch.setattr(records, "own_rows", lambda *_: pytest.fail("records were read"))
    before = accounts(made.ledgers[ASKING])
    said = answer(made.folders[ASKING], letter)
    assert said["status"] == "waiting"
    assert set(said) == {"status", "party", "error", "message"}
    assert accounts(made.ledgers[ASKING]) == before == {}
    assert list((made.folders[ASKING] / "jobs").glob("*.json")) == []


def test_a_hello_reads_no_record_whether_columns_are_declared_or_not(tmp_path: Path) -> None:
    """What is not declared was put on file by the party's own people; a hello says the same without the records."""
    for name, tables in (("rows", PRIVATE), ("columns", with_changes(PRIVATE, SHARING))):
        (tmp_path / name).mkdir()
        made = federated(tmp_path / name, tables)
        post = Desks(made.folders)
        made.run(post)
        hello, said = next((ask, told) for party, ask, told in post.captured if (party, ask["kind"]) == (1, "hello"))
        source = read_party(made.folders[1]).source
        shutil.rmtree(made.folders[1] / "cache")
        for harm in (partial(source.write_bytes, b"no records"), source.unlink):
            harm()
            assert answer(made.folders[1], hello)["facts"] == said["facts"]
        (made.folders[1] / "public.json").unlink()
        told = answer(made.folders[1], hello)
        assert (told["status"], told["error"]) == ("failed", "ConfigError")
        assert "federation check" in str(told["message"])


def test_the_hello_of_declared_columns_opens_no_file(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(OWN_FILES.format(count=2, more=""))
    made = init(read(tmp_path / "job.toml"), tmp_path / "federation", "127.0.0.1", 9100, False)
    folders = joined(made)
    config = read(tmp_path / "job.toml")
    for folder in folders:
        text = (folder / "party.toml").read_text().replace("# records = ...", "records = 7 #")
        (folder / "party.toml").write_text(text)
        party = read_party(folder)
        own_csv(party.source, 7)
        found = records.told(party, config, 2)
        (folder / "party.toml").write_text(text.replace("[policy]", '[policy]\napprove = "ask"'))
        party.source.unlink()
        assert records.told(read_party(folder), config, 2) == found


def test_another_proposal_under_an_approved_id_waits_anew(tmp_path: Path) -> None:
    made = asking(tmp_path)
    letter = waited(made)
    decide(made, True)
    other = Proposal.unpack(letter["proposal"])  # type: ignore[arg-type]
    text = other.text.replace("rho = 0.1", "rho = 0.2")
    assert text != other.text
    sizes = (other.sizes[0] + 1, *other.sizes[1:])
    for forged in (changed(letter, text=text), changed(letter, sizes=sizes)):
        assert answer(made.folders[ASKING], forged)["status"] == "waiting"
    assert [entry.state for entry in proposals(made).entries()] == ["approved", "waiting", "waiting"]
    assert accounts(made.ledgers[ASKING]) == {}
    assert answer(made.folders[ASKING], letter)["status"] == "ok"
    assert answer(made.folders[ASKING], changed(letter, text=text))["status"] == "refused"


def test_an_approval_is_for_one_job(tmp_path: Path) -> None:
    made = asking(tmp_path)
    letter = waited(made)
    decide(made, True)
    assert answer(made.folders[ASKING], changed(letter, id="ab" * 16))["status"] == "waiting"


def test_a_job_that_is_over_is_not_begun_again_by_its_approval(tmp_path: Path) -> None:
    made = asking(tmp_path, tables=with_changes(PRIVATE, {"privacy": {"budget": 3.0}}))
    letter = waited(made)
    decide(made, True)
    post = Desks(made.folders)
    made.run(post, resume=True)
    before = accounts(made.ledgers[ASKING])
    answer(made.folders[ASKING], {"kind": "end", "job": Proposal.unpack(letter["proposal"]).id})  # type: ignore[arg-type]
    answer(made.folders[ASKING], letter)
    assert {job: spent for job, (spent, _, _) in accounts(made.ledgers[ASKING]).items()} == {
        job: spent for job, (spent, _, _) in before.items()
    }


def test_an_approval_ends_also_in_the_middle_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = asking(tmp_path, "approval_days = 2")
    waited(made)
    decide(made, True)
    later = time.time() + 2.1 * 86400
    steps: list[int] = []

    def count(party: int, letter: Letter) -> None:
        if letter["kind"] == "step" and party == ASKING:
            steps.append(1)
            if len(steps) == 3:
                monkeypatch.setattr(approvals.time, "time", lambda: later)

    with pytest.raises(WaitingError, match="resume"):
        made.run(Desks(made.folders, count), resume=True, timeout=0.01)
    assert proposals(made).entries()[0].state in ("ended", "waiting")
    decide(made, True)
    assert made.run(resume=True)["rounds"] == 6


def test_a_refusal_ends_the_run_and_tells_what_the_steward_says(tmp_path: Path) -> None:
    made = asking(tmp_path)
    waited(made)
    with pytest.raises(ConfigError, match="reason"):
        decide(made, False)
    decide(made, False, why="the board has not met")
    with pytest.raises(RefusedError) as refused:
        made.run(resume=True)
    assert "refused by its steward" in str(refused.value)
    assert "board" not in str(refused.value)
    assert refused.value.exit_code == 3
    decide(made, False, why="the board has not met", tell=True)
    with pytest.raises(RefusedError, match="the board has not met"):
        made.run(resume=True)


def test_a_run_that_is_refused_leaves_nothing_set_aside_elsewhere(tmp_path: Path) -> None:
    made = asking(tmp_path)

    def refuse(party: int, letter: Letter) -> None:
        if party == ASKING and letter["kind"] == "begin" and proposals(made).entries():
            decide(made, False, why="no")

    with pytest.raises(RefusedError):
        made.run(Desks(made.folders, refuse), timeout=30.0)
    assert all(over and not aside for _, aside, over in accounts(made.ledgers[0]).values())
    assert not (made.made.coordinator.folder / "runs/first").exists()


def test_a_run_asks_again_while_it_is_patient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = asking(tmp_path)

    def approve(party: int, letter: Letter) -> None:
        if party == ASKING and letter["kind"] == "begin" and proposals(made).entries():
            decide(made, True)

    post = Desks(made.folders, approve)
    assert made.run(post, timeout=30.0)["rounds"] == 6
    assert [said["status"] for _, said in begins(post)] == ["waiting", "ok"]
    assert [said["status"] for _, said in begins(post, 0)] == ["ok"]


@pytest.mark.parametrize("harm", ["signature", "days", "yes", "other", "renamed", "moved", "nonsense"])
def test_a_decision_that_the_party_did_not_sign_does_not_count(tmp_path: Path, harm: str) -> None:
    made = asking(tmp_path)
    made.change(0, "[policy]", '[policy]\napprove = "ask"')
    letter = waited(made)
    digest = Proposal.unpack(letter["proposal"]).digest  # type: ignore[arg-type]
    decide(made, harm != "yes", why="no" if harm == "yes" else "")
    path = made.folders[ASKING] / "proposals" / f"{digest}.decision"
    table = json.loads(path.read_text())
    party = ASKING
    if harm == "moved":  # the same proposal waits at another party, too
        party = 0
        (made.folders[0] / "proposals" / path.name).write_text(path.read_text())
    elif harm == "other":
        entry = proposals(made).entries()[0]
        answer(made.folders[ASKING], letter := changed(letter, id="cd" * 16))
        decide(made, False, why="no", entry=proposals(made).entries()[-1])
        table["digest"] = Proposal.unpack(letter["proposal"]).digest  # type: ignore[arg-type]
        table["job"] = "cd" * 16
        assert entry.digest != table["digest"]
        path = path.with_name(f"{table['digest']}.decision")
    elif harm == "renamed":  # a true decision about one proposal, under the name of another
        answer(made.folders[ASKING], letter := changed(letter, id="cd" * 16))
        path = path.with_name(f"{proposals(made).entries()[-1].digest}.decision")
    table |= {"days": {"until": table["until"] + 1e9}, "yes": {"approved": True}}.get(harm, {})
    if harm == "signature":
        table["signature"] = "00" + table["signature"][2:]
    if harm != "moved":
        path.write_text(json.dumps(table) if harm != "nonsense" else "{")
    said = answer(made.folders[party], letter)
    assert said["status"] == "waiting", said
    assert "does not count" in (made.folders[party] / "requests.log").read_text()


def test_an_approval_does_not_outlive_a_ledger_that_was_put_back(tmp_path: Path) -> None:
    made = asking(tmp_path, tables=with_changes(PRIVATE, {"privacy": {"budget": 5.0}}))
    letter = waited(made)
    ledger, copy = made.ledgers[ASKING], tmp_path / "copy.sqlite"
    backup(ledger, copy)
    decide(made, True)
    assert answer(made.folders[ASKING], letter)["status"] == "ok"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{ledger}{suffix}").unlink(missing_ok=True)
    restore(copy, ledger, backups.Decision("a disk was lost"))
    assert answer(made.folders[ASKING], letter)["status"] == "waiting"
    assert proposals(made).entries()[0].state == "waiting"


def test_a_flood_of_proposals_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "MOST", 3)
    made = asking(tmp_path)
    first = waited(made)
    decide(made, False, why="no")
    for number in range(6):
        assert answer(made.folders[ASKING], changed(first, id=f"{number:032x}"))["status"] == "waiting"
        for age, path in enumerate(
            sorted((made.folders[ASKING] / "proposals").glob("*.json"), key=approvals.last_asked)
        ):
            os.utime(path, (age, age))  # in the order in which they came, on any file system
    kept = [entry.proposal.id for entry in proposals(made).entries()]
    assert kept[0] == Proposal.unpack(first["proposal"]).id  # type: ignore[arg-type]
    assert kept[1:] == [f"{number:032x}" for number in (3, 4, 5)]
    assert len(list((made.folders[ASKING] / "jobs").iterdir())) == 2  # proposed.toml and lock
    monkeypatch.setattr(approvals, "LARGEST", 100)
    assert answer(made.folders[ASKING], changed(first, id="e" * 32))["status"] == "refused"


def test_what_the_policy_refuses_never_waits(tmp_path: Path) -> None:
    made = asking(tmp_path)
    letter = waited(made)
    text = Proposal.unpack(letter["proposal"]).text.replace("epsilon = 1.0", "epsilon = 5.0")  # type: ignore[arg-type]
    assert answer(made.folders[ASKING], changed(letter, text=text, id="f" * 32))["status"] == "refused"
    assert len(proposals(made).entries()) == 1


def test_many_begins_at_once_keep_one_job(tmp_path: Path) -> None:
    made = asking(tmp_path)
    letter = waited(made)
    said: list[Letter] = []
    threads = [threading.Thread(target=lambda: said.append(answer(made.folders[ASKING], letter))) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.02)
    decide(made, True)
    for thread in threads:
        thread.join()
    assert {one["status"] for one in said} <= {"waiting", "ok"}
    assert answer(made.folders[ASKING], letter)["status"] == "ok"
    (job,) = accounts(made.ledgers[ASKING])
    assert (made.folders[ASKING] / "jobs" / f"{job}.json").exists()
    assert made.run(resume=True)["rounds"] == 6


def test_an_approval_can_be_taken_back_in_the_middle(tmp_path: Path) -> None:
    made = asking(tmp_path)
    waited(made)
    decide(made, True)
    steps: list[int] = []

    def take_back(party: int, letter: Letter) -> None:
        steps.extend([1] if letter["kind"] == "step" and party == ASKING else [])
        if len(steps) == 3:
            decide(made, False, why="changed our mind")

    with pytest.raises(RefusedError, match="refused by its steward"):
        made.run(Desks(made.folders, take_back), resume=True)
    with closing(SqliteLedger(made.ledgers[ASKING], (1,), read_party(made.folders[ASKING]).fixed, "simulation")) as own:
        latest = own.latest(proposals(made).entries()[0].proposal.id)
    assert latest is not None
    assert latest[0].round == 1


def test_a_code_is_whole_to_decide(tmp_path: Path) -> None:
    made = asking(tmp_path)
    waited(made)
    known = proposals(made)
    (entry,) = known.entries()
    assert known.find(entry.proposal.id) == known.find(entry.code[:9]) == known.find(entry.code, True) == entry
    for word in (entry.proposal.id, entry.code[:9], entry.code[:-1], ""):
        with pytest.raises(ConfigError, match=r"code|no proposal"):
            known.find(word, to_decide=True)


def reported(made: Federated, before: Any) -> dict[str, Any]:
    """Run with a report, as the coordinator's app does; the last status."""
    place = made.made.coordinator
    with Status(place.status, "1", str(place.folder / "runs/first")) as status:
        asked = Asked(place.folder / "runs/first", place, False, Patience(30.0))
        federate(read(place.job), Desks(made.folders, before), asked, Reporter(place, status, 3))
        return dict(status.facts)


def test_the_status_says_whose_approval_is_waited_for(tmp_path: Path) -> None:
    made = asking(tmp_path)
    seen: list[dict[str, Any]] = []

    def look(party: int, letter: Letter) -> None:
        if party == ASKING and letter["kind"] == "begin" and proposals(made).entries():
            seen.append(json.loads(made.made.coordinator.status.read_text()))
            decide(made, True)

    last = reported(made, look)
    (entry,) = proposals(made).entries()
    assert seen[0]["at"] == f"waiting for approval of party 1, code {entry.code}"
    assert seen[0]["waiting_for"] == ["party 1"]
    assert headline(seen[0]).count("waiting for") == 1
    assert seen[0]["parties"][1]["state"] == UNDECIDED
    assert {row["state"] for row in last["parties"]} <= {"answered", "there"}


def test_a_run_that_waits_can_be_stopped_and_resumed(tmp_path: Path) -> None:
    made = asking(tmp_path)

    def stop(party: int, letter: Letter) -> None:
        if letter["kind"] == "begin":
            made.made.coordinator.stop.write_text("stop")

    with pytest.raises(StopRequestedError):
        reported(made, stop)
    made.made.coordinator.stop.unlink()
    decide(made, True)
    assert made.run(resume=True)["rounds"] == 6


def test_health_counts_what_waits(tmp_path: Path) -> None:
    made = asking(tmp_path)
    waited(made)
    facts = health.of_party(read_party(made.folders[ASKING]))
    assert facts["waiting"] == 1
    assert "privadmm_proposals_waiting 1" in health.as_metrics(facts)
    assert "waiting" not in health.of_party(read_party(made.folders[0]))


JOBS: dict[str, tuple[Any, list[str]]] = {
    "ring": (DVP, ["neighbours"]),
    "secure sums": (with_changes(SUMMED, {"parties": {"count": 5}}), ["sums over at least 5", "collude"]),
    "columns": (SHARING, ["one person's whole row"]),
    "labels": ({"privacy": {"label_epsilon": 2.0}}, ["with noise added"]),
    "weak labels": ({"privacy": {"label_epsilon": 5.0}}, ["beware label_epsilon = 5 is a weak promise"]),
    "weak columns": (
        with_changes(SHARING, {"privacy": {"epsilon": 2.0}}),  # which is over 3 at three parties together
        ["is a weak promise: somebody who takes a suspicion about one person's rows at all parties"],
    ),
    "not private": (
        {"algorithm": {"name": "admm_star", "D_w": None}, "privacy": None},
        ["WITHOUT any noise", "NOTHING is protected"],
    ),
}


@pytest.mark.parametrize("kind", JOBS)
def test_every_kind_of_job_is_told_in_plain_words(tmp_path: Path, kind: str) -> None:
    changes, told = JOBS[kind]
    made = asking(tmp_path, tables=with_changes(PRIVATE, changes))
    waited(made)
    party = read_party(made.folders[ASKING])
    found = words.whole(party, proposals(made).entries()[0])
    said = " ".join(f"{row['about']} {row['says']}" for row in found["sentences"])
    assert all(part in said for part in told), said
    assert found["problem"] is None
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    decide(made, True)
    assert made.run(resume=True)["rounds"] == 6
    with closing(SqliteLedger(made.ledgers[ASKING], (1,), party.fixed, "simulation")) as own:
        assert sum(count for _, count in own.spent(ASKING)) == found["releases"]


def test_what_a_private_evaluation_will_know_is_told_everywhere(tmp_path: Path) -> None:
    """To a steward before it is approved, by `check`, and by the status of a run; it is what `train` then finds."""
    made = asking(tmp_path, tables=with_changes(PRIVATE, {"evaluation": {"kind": "private", "held_out": 0.25}}))
    seen: list[dict[str, Any]] = []
    said: list[str] = []

    def look(party: int, letter: Letter) -> None:
        if party == ASKING and letter["kind"] == "begin" and (found := proposals(made).entries()):
            facts = words.whole(read_party(made.folders[ASKING]), found[0])
            said.extend(row["says"] for row in facts["sentences"] if row["about"] == "how it is judged")
            decide(made, True)
        if letter["kind"] == "step":
            seen.append(json.loads(made.made.coordinator.status.read_text()))

    reported(made, look)
    result = json.loads((made.made.coordinator.folder / "runs/first/result.json").read_text())["private_evaluation"]
    assert result["accuracy"]["error"] > 0.3  # of so few records
    told = "accuracy no better than a blind guess"
    assert (told in said[0], f"{result['records']} held-out records" in said[0]) == (True, True), said
    assert told in " ".join(shown(seen[0]).split())
    assert "will know" not in shown({**seen[0], "state": "finished"})
    job = made.made.coordinator.job
    assert told in doctor.proposed(made.made.coordinator)
    job.write_text("\n".join(line for line in job.read_text().splitlines() if not line.startswith("sizes")))
    assert "once parties say how many records" in doctor.proposed(made.made.coordinator)
