"""A ledger that was put back is noticed by what its party signed; a job that is over frees what it did not spend."""

import json
import os
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
from federations import Backup, Desks, Federated, accounts, federated
from privadmm import __version__
from privadmm.deploy.federation.desk import party_server
from privadmm.deploy.federation.desk.party_server import Desk, answer
from privadmm.deploy.federation.hub import coordinator
from privadmm.deploy.federation.keys import make_node_key
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.protocol import MOST_TOLD, Letter, receipt_content, split_signature
from privadmm.deploy.federation.signing import public_of, seal
from privadmm.errors import ClusterError, LockedError, RefusedError
from privadmm.privacy.backups import Decision, restore
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.new_ledger import new_ledger
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify
from privadmm.runs.rundir import RunDir, read_receipts, signed_receipts
from small_runs import PRIVATE, charged, with_changes

pytestmark = pytest.mark.usefixtures("skipped_plots")

SHORT = with_changes(PRIVATE, {"algorithm": {"rounds": 3}, "privacy": {"budget": 20.0}})
SUMS = with_changes(
    SHORT, {"algorithm": {"name": "first_order_consensus", "D_w": None, "rho": None}, "privacy": {"sum": "secure"}}
)


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    return federated(tmp_path, SHORT)


def out(made: Federated, name: str = "first") -> Path:
    return made.made.coordinator.runs / name


def begin_of(post: Desks, party: int = 1) -> dict[str, Any]:
    return dict(next(letter for one, letter, _ in post.captured if (one, letter["kind"]) == (party, "begin")))


def stop_in(round: int) -> Any:
    def before(party: int, letter: Letter) -> None:
        if letter.get("round") == round:
            raise ClusterError("the network is gone")

    return before


# --- receipts


def test_receipts_are_signed_kept_and_shown_to_the_party_when_the_next_run_begins(made: Federated) -> None:
    made.run()
    rows = signed_receipts(out(made))
    assert len(rows) == 9
    for receipt, party, signature in rows:
        key = public_of(made.folders[party] / "node-key")
        epoch, rest = split_signature(signature)
        assert coordinator.sealed(key, receipt_content(receipt, epoch), rest)
    assert [(receipt, party) for receipt, party, _ in rows] == read_receipts(out(made))
    post = Desks(made.folders)
    made.run(post, out="runs/second")
    told = json.loads(begin_of(post)["receipts"])
    assert told == [[*receipt, signature] for receipt, party, signature in rows if party == 1][-1:]


def test_a_backup_that_was_put_back_with_its_anchor_is_locked(made: Federated) -> None:
    """Whatever beside the ledger was put back with it: the coordinator has the party's own signature."""
    before = Backup.of(made.ledgers[1])
    made.run()
    before.put_back()
    for path in (made.folders[1] / "jobs").iterdir():
        path.unlink()
    with pytest.raises(LockedError, match="party 1: its ledger is locked until its steward has looked at it"):
        made.run(out="runs/second")
    log = (made.folders[1] / "requests.log").read_text()
    assert "a receipt that this party signed shows that round 3, phase 0" in log
    with pytest.raises(LockedError, match="party 1"):  # and stays so, whoever asks
        made.run(out="runs/third")
    assert [charged(ledger) for ledger in made.ledgers] == [3, 0, 3]


def test_jobs_that_the_ledger_does_not_know_show_it_too(made: Federated) -> None:
    before = Backup.of(made.ledgers[1])
    made.run()
    before.put_back()
    (out(made) / "receipts.csv").unlink()
    with pytest.raises(LockedError, match="party 1"):
        made.run(out="runs/second")
    assert "was set aside here" in (made.folders[1] / "requests.log").read_text()


def test_a_tail_that_was_cut_off_in_the_middle_of_a_job_is_found_when_it_is_resumed(made: Federated) -> None:
    copies = []

    def before(party: int, letter: Letter) -> None:
        if (party, letter.get("round")) == (1, 1) and not copies:
            copies.append(Backup.of(made.ledgers[1]))
        stop_in(2)(party, letter)

    with pytest.raises(ClusterError):
        made.run(Desks(made.folders, before))
    copies[0].put_back()
    with pytest.raises(LockedError, match="party 1"):
        made.run(resume=True)


def test_a_begin_that_fails_forgets_nothing_of_another_one(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two letters begin one new job at the same moment. The one that fails must not remove what the other kept."""
    post = Desks(made.folders, stop_in(0))
    with pytest.raises(ClusterError):
        made.run(post)
    good = begin_of(post)
    job = json.loads(bytes(good["proposal"]))["id"]  # type: ignore[arg-type]
    answer(made.folders[1], {"kind": "give_up", "job": job})
    fresh = {**good, "proposal": bytes(good["proposal"]).replace(job.encode(), b"ab" * 16)}  # type: ignore[arg-type]
    bad = {**fresh, "heads": json.dumps([["ab" * 16, 0, 0, "0" * 64]])}  # of a row that the ledger does not have
    plain, there = party_server.check_in_full, threading.Event()

    def slowly(order: Any) -> None:
        if order.heads:
            there.set()
            time.sleep(1.0)  # in which the other one is answered, if nothing keeps it
        plain(order)

    monkeypatch.setattr(party_server, "check_in_full", slowly)
    said: dict[str, Any] = {}
    first = threading.Thread(target=lambda: said.update(bad=answer(made.folders[1], bad)))
    first.start()
    assert there.wait(30)
    said["good"] = answer(made.folders[1], fresh)
    first.join()
    assert (said["good"]["status"], said["bad"]["status"]) == ("ok", "failed"), said
    kept = {path.suffix for path in (made.folders[1] / "jobs").glob("ab" * 16 + ".*")}
    assert kept == {".json", ".toml", ".admitted", ".epoch"}


def test_what_the_party_did_not_sign_locks_nothing(made: Federated, tmp_path: Path) -> None:
    """A coordinator may lie about receipts as it likes."""
    post = Desks(made.folders)
    made.run(post)
    begin = begin_of(post)
    (tmp_path / "other").mkdir()
    make_node_key(tmp_path / "other")
    (own, signature), *_ = [(r, s) for r, party, s in signed_receipts(out(made)) if party == 1]
    other = [(r, s) for r, party, s in signed_receipts(out(made)) if party == 2]
    unknown = ("ab" * 16, 0, 0, "0" * 64)
    forged: list[Any] = [
        [*unknown, signature],
        [*unknown, f"{'0' * 64}:{seal(tmp_path / 'other' / 'node-key', receipt_content(unknown, '0' * 64))}"],
        [*unknown, "nonsense"],
        [*other[0][0], other[0][1]],
        [own[0], own[1], own[2], "0" * 64, signature],
        [own[0], own[1] + 1, own[2], own[3], signature],
        ["\ud800", 0, 0, "0" * 64, ""],
        ["ab" * 16, 2**80, 0, "0" * 64, ""],
        ["ab" * 16, -1, 0, "0" * 64, ""],
        ["ab" * 16, True, 0, 7, None],
        [],
        {},
        None,
        7,
    ]
    rows = accounts(made.ledgers[1])
    said = answer(made.folders[1], {**begin, "receipts": json.dumps(forged), "ended": json.dumps(forged)})
    assert said["status"] == "ok"
    assert accounts(made.ledgers[1]) == rows
    for wrong in ("nonsense", "{}", "7", "null", "[" * 100_000, json.dumps([[]] * (MOST_TOLD + 1))):
        for key in ("receipts", "ended"):
            assert answer(made.folders[1], {**begin, key: wrong})["status"] == "refused"
    assert answer(made.folders[1], begin)["status"] == "ok"


def test_a_key_that_was_replaced_still_counts(made: Federated) -> None:
    before = Backup.of(made.ledgers[1])
    made.run()
    before.put_back()
    for path in (made.folders[1] / "jobs").iterdir():
        path.unlink()
    folder, retired = made.folders[1], made.folders[1] / "retired-keys"
    old = public_of(folder / "node-key")
    (folder / "node-key").unlink()
    public = make_node_key(folder)
    (made.made.coordinator.keys / "party-1.pub").write_bytes(public)
    retired.mkdir()
    (retired / "damaged.pub").write_bytes(b"nonsense")
    (retired / "2026-01-01.pub").write_bytes(old)
    with pytest.raises(LockedError, match="party 1"):
        made.run(out="runs/second")


def test_what_a_steward_restored_and_had_charged_proves_nothing_more(made: Federated, tmp_path: Path) -> None:
    before = Backup.of(made.ledgers[1])
    made.run()
    for path in (made.folders[1] / "jobs").iterdir():
        os.utime(path, (2**33, 2**33))  # whatever the clock said
    before.put_back()
    with pytest.raises(LockedError):
        made.run(out="runs/second")
    copy = tmp_path / "copy.sqlite"
    copy.write_bytes(before.files[""])
    restore(copy, made.ledgers[1], Decision("a disk died", charge=1.0, at_delta=0.0))
    result = made.run(out="runs/third")
    assert result["rounds"] == 3
    # What is released after that is not covered by it.
    again = Backup.of(made.ledgers[1])
    made.run(out="runs/fourth")
    for path in (made.folders[1] / "jobs").iterdir():
        os.utime(path, (0, 0))
    again.put_back()
    with pytest.raises(LockedError):
        made.run(out="runs/fifth")


def test_a_ledger_that_its_steward_made_anew_is_not_held_to_the_old_one(made: Federated) -> None:
    made.run()
    ledger, party = made.ledgers[1], read_party(made.folders[1])
    for path in (ledger, *(Path(f"{ledger}{suffix}") for suffix in ("-wal", "-shm"))):
        path.unlink(missing_ok=True)
    with pytest.raises(ClusterError, match="there is no ledger"):
        made.run(out="runs/second")
    new_ledger(ledger, [1], party.fixed, party.policy.mode, anew="other records")
    assert made.run(out="runs/third")["rounds"] == 3


FORGERIES = {
    "none": lambda said: {key: value for key, value in said.items() if key != "signature"},
    "empty": lambda said: {**said, "signature": ""},
    "of another": lambda said: {**said, "signature": said["signature"][:-2] + "00"},
    "no text": lambda said: {**said, "signature": 7},
}


@pytest.mark.parametrize("how", FORGERIES)
@pytest.mark.parametrize("absent", ["abort", "continue"])
def test_a_receipt_without_its_partys_signature_is_not_taken(made: Federated, how: str, absent: str) -> None:
    class Forging(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            said = super().ask(party, letter)
            return FORGERIES[how](said) if (party, letter.get("round")) == (1, 1) else said

    if absent == "abort":
        with pytest.raises(ClusterError, match="party 1 sent"):
            made.run(Forging(made.folders))
    else:
        result = made.run(Forging(made.folders), absent="continue")
        assert [one["party"] for one in result["absent"]] == [1]


def test_runs_of_before_there_were_signatures_can_be_read_and_resumed(made: Federated) -> None:
    with pytest.raises(ClusterError):
        made.run(Desks(made.folders, stop_in(2)))
    path = out(made) / "receipts.csv"
    plain = [",".join(line.split(",")[:5]) for line in path.read_text().splitlines()]
    path.write_text("\n".join(plain) + "\n")
    assert made.run(resume=True)["rounds"] == 3
    assert [bool(signature) for _, _, signature in signed_receipts(out(made))] == [False] * 6 + [True] * 3


def test_a_damaged_run_directory_is_told_and_stops_nothing(made: Federated) -> None:
    from privadmm.config.file import read
    from privadmm.runs.federated import Asked, federate
    from privadmm.runs.reporting import Silent

    told = list[str]()

    class Heard(Silent):
        def tell(self, line: str) -> None:
            told.append(line)

    made.run()
    (out(made) / "receipts.csv").write_text("nonsense\n")
    place = made.made.coordinator
    federate(read(place.job), Desks(made.folders), Asked(out(made, "second"), place), Heard())
    assert any("receipts.csv" in line for line in told)


# --- the end of a job


def test_a_party_that_left_gets_back_what_it_did_not_spend(made: Federated) -> None:
    post = Desks(made.folders)

    def leave(party: int, letter: Letter) -> None:
        if letter.get("round") == 1:
            post.silent.add(1)
        if letter["kind"] == "step" and letter["round"] == 2:
            post.silent.discard(1)  # its node is back, too late

    post.before = leave
    made.run(post, absent="continue")
    ends = [(party, said["status"]) for party, letter, said in post.captured if letter["kind"] == "end"]
    assert ends == [(1, "ok")], "the others have nothing set aside any more"
    ((spent, aside, over),) = accounts(made.ledgers[1]).values()
    assert (spent, aside, over) == (1, 1, True)
    assert [one for one in accounts(made.ledgers[0]).values()] == [(3, 3, False)]


def test_a_party_that_was_away_is_told_when_the_next_run_begins(made: Federated) -> None:
    post = Desks(made.folders)

    def leave(party: int, letter: Letter) -> None:
        if letter.get("round") == 1:
            post.silent.add(1)

    post.before = leave
    made.run(post, absent="continue")
    (job,) = accounts(made.ledgers[1])
    assert accounts(made.ledgers[1])[job] == (1, 3, False)
    again = Desks(made.folders)
    made.run(again, out="runs/second")
    assert json.loads(begin_of(again)["ended"]) == [job]
    assert accounts(made.ledgers[1])[job] == (1, 1, True)


def test_a_run_that_began_nowhere_is_told_to_who_was_away_then(made: Federated) -> None:
    """A party refuses; the others are told to give up, and one of them does not hear it."""
    post = Desks(made.folders)

    def before(party: int, letter: Letter) -> None:
        if letter["kind"] == "begin" and party == 2:
            made.change(2, "minimum_parties = 2", "minimum_parties = 9")
        if letter["kind"] == "give_up":
            post.silent.add(1)

    post.before = before
    with pytest.raises(RefusedError):
        made.run(post)
    post.exchange({}, 1.0)
    made.change(2, "minimum_parties = 9", "minimum_parties = 2")
    made.run(out="runs/second")
    first, second = accounts(made.ledgers[1]).values()
    assert (first[2], second) == (True, (3, 3, False))


def test_ending_is_idempotent_and_makes_no_room_twice(made: Federated) -> None:
    post = Desks(made.folders, stop_in(2))
    with pytest.raises(ClusterError):
        made.run(post)
    job = str(json.loads(RunDir(out(made)).job.read_text())["job"])
    steps = [(letter, said) for party, letter, said in post.captured if party == 1 and letter["kind"] == "step"]
    end: Letter = {"kind": "end", "job": job}
    assert [answer(made.folders[1], end)["status"] for _ in range(3)] == ["ok"] * 3
    assert accounts(made.ledgers[1]) == {job: (2, 2, True)}
    for letter, said in steps:
        assert answer(made.folders[1], letter) == said, "what was answered before is answered again"
    said = answer(made.folders[1], {**steps[-1][0], "round": 2})
    assert (said["status"], "is over here" in str(said["message"])) == ("refused", True)
    begin = answer(made.folders[1], begin_of(post))
    assert (begin["status"], "closed here" in str(begin["message"])) == ("refused", True)
    assert answer(made.folders[1], {"kind": "give_up", "job": job})["status"] == "ok"
    assert accounts(made.ledgers[1]) == {job: (2, 2, True)}
    assert answer(made.folders[1], {"kind": "end", "job": "0" * 32})["status"] == "ok"
    for wrong in ("../../x", "\ud800", "", None):
        assert answer(made.folders[1], {"kind": "end", "job": wrong})["status"] == "refused"  # type: ignore[dict-item]
    with pytest.raises(RefusedError, match="closed here"):
        made.run(resume=True)


def test_ending_frees_no_more_than_what_was_not_spent(tmp_path: Path) -> None:
    """A coordinator that ends its jobs early, again and again, gets no more out of a budget than one that does not."""
    made = federated(tmp_path, with_changes(SHORT, {"privacy": {"budget": 2.0}}))
    asked = 0
    for number in range(20):
        post = Desks(made.folders, stop_in(1))
        with pytest.raises((ClusterError, RefusedError)) as ended:
            made.run(post, out=f"runs/{number}")
        if isinstance(ended.value, RefusedError):
            assert "epsilon" in str(ended.value)
            break
        asked += 1
        job = str(json.loads(RunDir(out(made, str(number))).job.read_text())["job"])
        for folder in made.folders:
            answer(folder, {"kind": "end", "job": job})
    assert 2 < asked < 20, "what was not spent came back, and nothing more"
    assert all(max(verify(ledger).epsilon.values()) <= 2.0 for ledger in made.ledgers)


def test_the_key_of_a_job_that_ended_is_erased(tmp_path: Path) -> None:
    from federations import key_of

    made = federated(tmp_path, SUMS)
    post = Desks(made.folders, stop_in(2))
    with pytest.raises(ClusterError):
        made.run(post)
    job = str(json.loads(RunDir(out(made)).job.read_text())["job"])
    assert all(key_of(ledger, job) for ledger in made.ledgers)
    answer(made.folders[1], {"kind": "end", "job": job})
    assert [bool(key_of(ledger, job)) for ledger in made.ledgers] == [True, False, True]


def test_a_locked_ledger_stays_locked(made: Federated) -> None:
    before = Backup.of(made.ledgers[1], with_anchor=False)
    made.run()
    (job,) = accounts(made.ledgers[1])
    before.put_back()
    said = answer(made.folders[1], {"kind": "end", "job": job})
    assert (said["status"], said["error"]) == ("locked", "LockedError")


def test_an_end_that_cannot_be_told_loses_nothing(made: Federated, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Desks):
        def exchange(self, letters: Any, seconds: float) -> dict[int, Letter]:
            if any(letter["kind"] == "end" for letter in letters.values()):
                assert seconds <= 30
                raise ConnectionError("gone")
            return super().exchange(letters, seconds)

    post = Broken(made.folders)
    post.before = lambda party, letter: post.silent.add(1) if letter.get("round") == 1 else None  # type: ignore[func-returns-value]
    assert made.run(post, absent="continue")["rounds"] == 3
    assert RunDir(out(made)).result.exists()
    assert "gone" in caplog.text


# --- versions


def test_two_versions_in_one_run_are_refused_and_both_named(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party_server, "__version__", "9.9.9")
    with pytest.raises(RefusedError, match=rf"9\.9\.9.*{__version__}"):
        made.run()
    assert not any(accounts(ledger) for ledger in made.ledgers)


def test_a_coordinator_refuses_a_party_that_did_not(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older party has no such check."""
    from privadmm.deploy.federation import facts

    monkeypatch.setattr(facts, "__version__", "9.9.9")
    with pytest.raises(RefusedError, match=rf"party 0 has privadmm {__version__} and the coordinator 9\.9\.9"):
        made.run()


def test_versions_and_names_are_on_record(made: Federated) -> None:
    made.change(1, "[party]", '[party]\nname = "Clinic of the north"')
    result = made.run()
    assert result["versions"] == {"coordinator": __version__, **{f"party {n}": __version__ for n in range(3)}}
    told = json.loads((out(made) / "parties.json").read_text())
    assert [(one["version"], one["name"]) for one in told] == [
        (__version__, "party 0"),
        (__version__, "Clinic of the north"),
        (__version__, "party 2"),
    ]
    assert json.loads((out(made) / "result.json").read_text())["versions"] == result["versions"]


def test_parties_that_left_before_names_were_told_can_be_read(made: Federated) -> None:
    post = Desks(made.folders)

    def before(party: int, letter: Letter) -> None:
        if letter.get("round") == 1:
            post.silent.add(1)
        stop_in(2)(party, letter)

    post.before = before
    with pytest.raises(ClusterError):
        made.run(post, absent="continue")
    path = out(made) / "parties.json"
    old = [
        {key: value for key, value in one.items() if key not in ("version", "name")}
        for one in json.loads(path.read_text())
    ]
    path.write_text(json.dumps(old))
    assert made.run(resume=True, absent="continue")["versions"]["party 1"] == "unknown"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_list_of_ended_jobs_that_cannot_be_written_stops_nothing(made: Federated) -> None:
    made.made.coordinator.folder.chmod(0o500)
    try:
        made.run()
    finally:
        made.made.coordinator.folder.chmod(0o700)


# --- policies


def test_a_policy_that_was_amended_counts_and_says_how_to_amend_before(made: Federated) -> None:
    made.run()
    made.change(1, "epsilon = 20.0", "epsilon = 30.0")
    with pytest.raises(ClusterError, match="has another policy, mode or party than party") as told:
        made.run(out="runs/second")
    assert "30" not in str(told.value), "how they differ stays at the party"
    party = read_party(made.folders[1])
    said = str(Desk(party).differs())
    assert f'privadmm federation ledger {party.folder} --amend --because "..."' in said
    assert "30.0" in said
    known = identity_of(made.ledgers[1])
    assert known is not None
    with closing(SqliteLedger(made.ledgers[1], known.parties, known.policy, known.mode)) as ledger:
        ledger.amend(party.fixed, "the board decided")
    assert Desk(party).differs() is None
    made.run(out="runs/third")
    assert charged(made.ledgers[1]) == 6, "what was spent stays"
    last = json.loads((made.folders[1] / "requests.log").read_text().splitlines()[-1])
    assert last["epsilon_left"] == pytest.approx(30.0 - last["epsilon_spent"])


def test_what_no_steward_can_amend_is_to_be_changed_back(made: Federated) -> None:
    made.change(1, 'adjacency = "replace-one"', 'adjacency = "label"')
    said = str(Desk(read_party(made.folders[1])).differs())
    assert '[policy] adjacency = "replace-one"' in said
    assert "adjacency cannot be amended" in said
    assert "--amend" not in said
