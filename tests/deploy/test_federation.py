"""Federations without a network: the same transcripts, sovereign parties, and letters lost, repeated or forged."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgers import without_refusals
from privadmm import __version__
from privadmm.cli.views import steward
from privadmm.config.file import read
from privadmm.data import arrays
from privadmm.deploy.federation.desk import party_server
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.desk.records import announce
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import Proposal, neutral, read_text, written
from privadmm.deploy.federation.protocol import Letter
from privadmm.engine.mail import Mail
from privadmm.errors import (
    ClusterError,
    ConfigError,
    DataError,
    LockedError,
    PrivadmmError,
    RefusedError,
    ToleranceError,
)
from privadmm.privacy.verification import verify
from privadmm.runs.model import Model
from privadmm.runs.rundir import receipts_of
from small_runs import (
    DVP,
    ENVIRONMENT,
    PRIVATE,
    SHARING,
    Place,
    charged,
    rows,
    with_changes,
    write_config,
    write_csv,
    write_npz,
)

pytest.importorskip("cryptography")
from federations import (
    OWN_FILES,
    SUMMED,
    Desks,
    Federated,
    Unreliable,
    ending,
    federated,
    joined,
    only_releases,
    own_csv,
    released,
    silent_from,
)

pytestmark = pytest.mark.usefixtures("skipped_plots")

STAR = with_changes(PRIVATE, {"data": {"intercept": 0.2}})
GRAPH = with_changes(STAR, DVP)
RECYCLED = with_changes(GRAPH, {"algorithm": {"name": "mr_admm", "eta": 0.5, "gamma": 0.5}})
PEOPLE = with_changes(STAR, SHARING)
SCHEMA = "f0 = [-2.0, 2.0]\nf1 = [-2.0, 2.0]\nf2 = [-1.0, 1.0]\n"
KINDS = {
    "star": STAR,
    "graph": GRAPH,
    "recycled": RECYCLED,
    "files of their own": with_changes(STAR, {"data": {"source": "data-{party}.npz"}}),
    "mostly zeros": with_changes(
        STAR,
        {"data": {"source": "rows.csv", "label": "y", "schema": "schema.toml", "encoding": "binned"}},
    ),
    "relay": with_changes(STAR, {"algorithm": {"name": "first_order_consensus", "D_w": None, "rho": None}}),
    "moments": with_changes(STAR, {"features": {"moments": True}, "data": {"intercept": None}}),
    "evaluation": with_changes(STAR, {"evaluation": {"kind": "private", "held_out": 0.3}}),
    "secure sum, moments, evaluation": with_changes(
        STAR,
        {**SUMMED, "features": {"moments": True}, "data": {"intercept": None}, "evaluation": {"kind": "private"}},
    ),
    "randomised labels": with_changes(STAR, {"privacy": {"label_epsilon": 1.0}}),
    "a party leaves": with_changes(STAR, {"parties": {"leave": ["1@2"]}}),
    "secure sum": with_changes(STAR, SUMMED),
    "secure sum, moments": with_changes(STAR, {**SUMMED, "features": {"moments": True}, "data": {"intercept": None}}),
    "secure sum, randomised labels": with_changes(
        STAR,
        {
            "algorithm": {"name": "dp_fedsgd", "step": 0.5, "D_w": None, "rho": None},
            "privacy": {"sum": "secure", "label_epsilon": 1.0},
        },
    ),
    "secure sum, a party leaves": with_changes(
        STAR, {**SUMMED, "privacy": {"sum": "secure", "fewest": 2}, "parties": {"leave": ["1@2"]}}
    ),
    "columns": PEOPLE,
    "columns, randomised labels": with_changes(PEOPLE, {"privacy": {"label_epsilon": 1.0}}),
    "one column replaced": with_changes(
        PEOPLE,
        {
            "data": {"intercept": None},
            "privacy": {"adjacency": "column"},
            "algorithm": {"ball": None, "column_bound": 1.0},
        },
    ),
    "not private": with_changes(STAR, {"algorithm": {"name": "admm_star", "rounds": 6, "D_w": None}, "privacy": None}),
}


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    return federated(tmp_path, STAR)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_transcript_as_in_process(kind: str, place: Place) -> None:
    for party in range(3):
        write_npz(place.path / f"data-{party}.npz", *rows(20 + party, seed=party))
    write_csv(place.path / "rows.csv", *rows(60))
    (place.path / "schema.toml").write_text(SCHEMA)
    whole = place.run(KINDS[kind], out=place.path / "whole")
    made = federated(place.path, KINDS[kind])
    post = Desks(made.folders)
    result = made.run(post)
    assert result["transcript"] == whole.result["transcript"]
    model = Model.load(made.made.coordinator.folder / "runs/first/model.json")
    assert model.weights.tobytes() == whole.model.weights.tobytes()
    assert (result["epsilon"], result["accuracy_test"]) == (whole.result["epsilon"], None)
    for party, ledger in enumerate(made.ledgers):
        assert verify(ledger, receipts_of(Path(result["out"]), ledger)).problems == ()
        only_releases(ledger, [said for one, _, said in post.captured if one == party])
    assert sum(map(charged, made.ledgers)) == charged(place.path / "whole" / "ledger.sqlite")
    account = json.loads((Path(result["out"]) / "ledger.json").read_text())
    assert [one["epsilon"] for one in account["parties"]] == pytest.approx(
        [one["epsilon"] for one in whole.ledger["parties"]]
    )


def test_the_probe_sees_what_was_not_released(made: Federated) -> None:
    """Control for the test above."""
    post = Desks(made.folders)
    made.run(post)
    party, _, said = next(one for one in post.captured if "mail" in one[2])
    mail = Mail.unpack(said["mail"])  # type: ignore[arg-type]
    forged = {**said, "mail": Mail(mail.senders, mail.values + 1e-9).pack()}
    with pytest.raises(AssertionError, match="not released"):
        only_releases(made.ledgers[party], [forged])
    with pytest.raises(AssertionError):
        only_releases(made.ledgers[party], [{**said, "iterate": b""}])


def test_one_letter_per_phase_and_party(tmp_path: Path) -> None:
    """Recycled rounds are free, and no party is asked for them."""
    made = federated(tmp_path, RECYCLED)
    post = Desks(made.folders)
    made.run(post)
    kinds = [letter["kind"] for _, letter, _ in post.captured]
    asked = {(letter["round"], letter["phase"]) for _, letter, _ in post.captured if letter["kind"] == "step"}
    assert kinds.count("hello") == kinds.count("begin") == 3
    assert kinds.count("step") == 3 * len(asked)


def test_letters_that_come_twice_and_answers_that_are_lost(made: Federated, tmp_path: Path) -> None:
    post = Unreliable(made.folders)
    result = made.run(post, absent="wait")
    (tmp_path / "again").mkdir()
    assert result["transcript"] == federated(tmp_path / "again", STAR).run()["transcript"]
    assert [charged(ledger) for ledger in made.ledgers] == [6, 6, 6]


def refusing(made: Federated, **options: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        made.run(**options)
    assert sum(map(charged, made.ledgers)) == 0
    assert not (made.made.coordinator.folder / "runs/first").exists()
    log = (made.folders[1] / "requests.log").read_text()
    assert '"outcome": "refused"' in log
    return str(refused.value)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('mode = "simulation"', 'mode = "deployment"', "noise from a seed protects nobody"),
        (
            "minimum_parties = 2",
            "minimum_parties = 4",
            "minimum_parties = 4 and the job 3; it holds for every job, whatever fewest",
        ),
        ('algorithms = ["dp_admm"]', 'algorithms = ["pvp", "dvp"]', "allows pvp, dvp and not dp_admm"),
        ("\nrow_bound = 2.0\nepsilon", "\nrow_bound = 1.0\nepsilon", "row_bound = 1 and the job to 2"),
        (
            "row_bound = 2.0\nintercept",
            "row_bound = 1.0\nintercept",
            "[data] row_bound = 1.0 and the job 2.0",
        ),
        ("classes = [0, 1]", "classes = [1, 0]", "[data] classes = a list of 2 and the job a list of 2"),
        ("delta = 1e-05", "delta = 1e-06", "counts at delta = 1e-06 and the job at 1e-05"),
        (
            'adjacency = "replace-one"',
            'adjacency = "label"',
            "adjacency = 'label' and the job of 'replace-one'",
        ),
        (
            "epsilon = 1.0",
            "epsilon = 1.0\nlabel_epsilon = 2.0",
            "label_epsilon = 2.0, and the job reads them as",
        ),
        ("epsilon = 1.0", "epsilon = 0.5", "party 1 may spend epsilon = 0.5 in all"),
        ("epsilon = 1.0", "epsilon = 3.0\nper_job = 0.9", "party 1 may spend epsilon = 0.9 for one job"),
    ],
)
def test_a_party_refuses_what_its_policy_does_not_allow(made: Federated, before: str, after: str, told: str) -> None:
    from privadmm.deploy.federation.setup.joining import with_ledger

    made.change(1, before, after)
    made.ledgers[1].unlink()
    with_ledger(made.folders[1], "a test of policies")
    assert told in refusing(made)
    # What the others reserved for it is free again.
    for path in (made.folders[0], made.folders[2]):
        assert '"kind": "step"' not in (path / "requests.log").read_text()
    made.change(1, after, before)
    made.ledgers[1].unlink()
    with_ledger(made.folders[1], "a test of policies")
    assert made.run()["epsilon"] == pytest.approx(1.0)


def test_a_budget_holds_over_jobs(made: Federated) -> None:
    made.run()
    with pytest.raises(RefusedError, match=r"party 0 refused: .* epsilon = 1 in all"):
        made.run(out="runs/second")
    assert [charged(ledger) for ledger in made.ledgers] == [6, 6, 6]


def test_a_ledger_keeps_the_policy_that_it_was_made_with(made: Federated) -> None:
    made.change(1, "epsilon = 1.0", "epsilon = 2.0")
    told = r"party 1 .*LedgerError: ledger\.sqlite: .*another policy"
    with pytest.raises(ClusterError, match=told) as failed:
        made.run()
    assert "2.0" not in str(failed.value)  # only its steward is told how they differ


def test_records_are_those_that_the_party_declares(made: Federated) -> None:
    made.change(1, "records = 16", "records = 17")
    with pytest.raises(ClusterError, match=r"its steward finds the reason in its requests\.log") as failed:
        made.run()
    assert "16" not in str(failed.value)  # an undeclared number of records is not told
    assert "has 16" in (made.folders[1] / "requests.log").read_text()


def test_errors_tell_nothing_of_records(made: Federated) -> None:
    X, y = rows(16)
    X[3, 1] = np.nan
    np.savez(made.folders[1] / "data.npz", X=X, y=y)
    with pytest.raises(ClusterError) as failed:
        made.run()
    assert "DataError" in str(failed.value)
    assert str(made.folders[1]) not in str(failed.value)
    assert "DataError" in (made.folders[1] / "requests.log").read_text()


def ask(made: Federated, party: int, **letter: Any) -> Letter:
    return answer(made.folders[party], letter)


def began(made: Federated) -> tuple[Desks, list[tuple[int, Letter, Letter]]]:
    post = Desks(made.folders)
    made.run(post)
    return post, [one for one in post.captured if one[0] == 1 and one[1]["kind"] == "step"]


def test_a_round_with_another_inbox_is_refused_and_on_record(made: Federated) -> None:
    _, steps = began(made)
    before = released(made.ledgers[1])
    _, letter, said = steps[3]
    assert ask(made, 1, **letter) == said  # the same again: the same bytes, free
    mail = Mail.unpack(letter["inbox"])  # type: ignore[arg-type]
    other = Mail(mail.senders, mail.values + 0.5).pack()
    refused = ask(made, 1, **{**letter, "inbox": other})
    assert refused["status"] == "refused"
    assert "answered for another inbox" in str(refused["message"])
    assert "answered for another inbox" in (made.folders[1] / "requests.log").read_text()
    assert released(made.ledgers[1]) == before


def proposed(made: Federated, number: int, **changes: str) -> dict[str, Any]:
    """A begin letter for the federation's job, with an id of its own and some words replaced."""
    text = written(neutral(read(made.made.coordinator.job)))
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    sizes = tuple(read_party(folder).party.records for folder in made.folders)
    return {"kind": "begin", "proposal": Proposal(f"{number:032x}", text, sizes, 4).pack(), "heads": "[]"}


def test_a_proposal_carries_any_schema(tmp_path: Path) -> None:
    every = {
        "age": {"range": [0, 100], "missing": True, "default": 50, "edges": [18.5, 65]},
        "ward": {"categories": ["a", 'b"'], "other": True},
        "seen": {"date": "%d.%m.%Y", "range": ["01.01.2020", "31.12.2029"], "parts": ["month"]},
        "sex": ["f", "m"],
    }
    data = {"source": "own.csv", "label": "y", "classes": ["no", "yes"], "schema": every, "test_fraction": 0.0}
    config = neutral(read(write_config(tmp_path / "job.toml", with_changes(PRIVATE, {"data": data}))))
    (tmp_path / "proposal.toml").write_text(written(config))
    again = read_text(tmp_path / "proposal.toml")
    assert (again.data, again.digest) == (config.data, config.digest)


def first_step(number: int) -> dict[str, Any]:
    inbox = Mail(np.array([-1]), np.zeros((1, 4))).pack()
    return {"kind": "step", "job": f"{number:032x}", "round": 0, "phase": 0, "inbox": inbox}


def unsigned(text: str) -> dict[str, Any]:
    """A hello about a job from somebody who has no certificate."""
    rest = {"nonce": "0" * 32, "certificate": "", "signature": ""}
    return {"kind": "hello", "version": __version__, "text": text, **rest}


def test_a_refused_job_is_not_even_tried(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a solver fails depends on records: nothing may run before its cost is reserved."""
    said = ask(made, 0, **proposed(made, 1))
    assert said["status"] == "ok", said
    assert ask(made, 0, **proposed(made, 2))["status"] == "refused"
    damaged = proposed(made, 3) | {"heads": json.dumps([["x", 0, 0, "00"]])}
    assert ask(made, 0, **damaged)["status"] == "refused"
    monkeypatch.setattr(party_server, "held", lambda *_: pytest.fail("records were read"))
    before = without_refusals(made.ledgers[0])
    for number in (2, 3, 4):
        said = ask(made, 0, **first_step(number))
        assert (said["status"], said["error"]) == ("refused", "RefusedError")
    assert without_refusals(made.ledgers[0]) == before


def test_a_proposal_does_not_say_how_records_are_read(made: Federated) -> None:
    begin = proposed(made, 5, **{"[parties]": '[parties]\nsplit = "column:f1"'})
    text = Proposal.unpack(begin["proposal"]).text
    for letter in (begin, unsigned(text)):
        said = ask(made, 0, **letter)
        assert (said["status"], said["error"]) == ("refused", "RefusedError")
        assert "how its records are read" in str(said["message"])


def test_without_a_log_nothing_is_answered(made: Federated) -> None:
    (made.folders[0] / "requests.log").unlink(missing_ok=True)
    (made.folders[0] / "requests.log").mkdir()
    said = ask(made, 0, **proposed(made, 6))
    assert said == {"status": "failed", "error": "StorageError", "message": "its log could not be written"}


def test_letters_that_nobody_sends(made: Federated) -> None:
    _, steps = began(made)
    letter = dict(steps[-1][1])
    assert ask(made, 1, kind="exec", text="import os")["status"] == "refused"
    assert ask(made, 1)["status"] == "refused"
    assert ask(made, 1, **{**letter, "job": "../../secret"})["status"] == "refused"
    assert "was never begun here" in str(ask(made, 1, **{**letter, "job": "0" * 32})["message"])
    assert ask(made, 1, **{**letter, "inbox": b"nonsense"})["status"] == "refused"
    assert ask(made, 1, **{**letter, "round": 17})["status"] == "refused"
    assert ask(made, 1, **{**letter, "round": "6"})["status"] == "refused"
    assert [charged(ledger) for ledger in made.ledgers] == [6, 6, 6]


def test_a_proposal_names_no_file_and_stays_what_it_was(made: Federated, tmp_path: Path) -> None:
    post, _ = began(made)
    begin = next(letter for party, letter, _ in post.captured if party == 1 and letter["kind"] == "begin")
    proposal = Proposal.unpack(begin["proposal"])  # type: ignore[arg-type]
    changed = Proposal(proposal.id, proposal.text + "\n", proposal.sizes, proposal.dim)
    said = ask(made, 1, kind="begin", proposal=changed.pack(), heads="[]")
    assert (said["status"], "said something else" in str(said["message"])) == ("refused", True)
    named = proposal.text.replace("[data]", '[data]\nlabel = "y"\nschema = "../party.toml"')
    said = ask(made, 1, **unsigned(named))
    assert (said["status"], "names no file" in str(said["message"])) == ("refused", True)
    said = ask(made, 1, **unsigned(proposal.text.replace('"own.npz"', '"embedded:adult"')))
    assert said["status"] == "refused"
    bad = json.dumps({**json.loads(proposal.pack()), "id": "../../x"}).encode()
    assert ask(made, 1, kind="begin", proposal=bad, heads="[]")["status"] == "refused"
    lied = Proposal("1" * 32, proposal.text, (16, 8, 16), proposal.dim)
    assert "epsilon = 1 in all" in str(ask(made, 1, kind="begin", proposal=lied.pack(), heads="[]")["message"])
    (tmp_path / "fresh").mkdir()
    said = ask(federated(tmp_path / "fresh", STAR), 1, kind="begin", proposal=lied.pack(), heads="[]")
    assert "made for 8 records of party 1" in str(said["message"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_is_the_config_without_files(kind: str, place: Place) -> None:
    (place.path / "schema.toml").write_text(SCHEMA)
    config = neutral(read(write_config(place.path / "c.toml", KINDS[kind])))
    (place.path / "p.toml").write_text(written(config))
    again = read_text(place.path / "p.toml")
    assert again.digest == config.digest
    assert "data.npz" not in again.text


def test_a_coordinator_that_died_goes_on(made: Federated, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), 3, party=2))
    result = made.run(resume=True)
    (tmp_path / "again").mkdir()
    assert result["transcript"] == federated(tmp_path / "again", STAR).run()["transcript"]
    assert [charged(ledger) for ledger in made.ledgers] == [6, 6, 6]


def test_a_ledger_that_went_back_is_found_out(made: Federated) -> None:
    empty = made.ledgers[1].read_bytes()
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), 3))
    for suffix in ("-wal", "-shm"):
        Path(f"{made.ledgers[1]}{suffix}").unlink(missing_ok=True)
    made.ledgers[1].write_bytes(empty)
    with pytest.raises(PrivadmmError, match="party 1: its ledger is locked"):
        made.run(resume=True)


def test_a_party_that_never_answers(made: Federated) -> None:
    post = silent_from(made, 2, 1)
    with pytest.raises(ClusterError, match=r'party 1 gave no answer .* absent = "continue"'):
        made.run(post)
    post = Desks(made.folders, silent=set())
    assert made.run(post, resume=True)["rounds"] == 6


def test_going_on_without_a_party(made: Federated) -> None:
    post = silent_from(made, 2, 1)
    result = made.run(post, absent="continue")
    (gone,) = result["absent"]
    assert (gone["party"], gone["from_round"], gone["why"]) == (1, 3, "no answer for 1 s")
    assert [charged(ledger) for ledger in made.ledgers] == [6, 2, 6]
    account = json.loads((Path(result["out"]) / "ledger.json").read_text())["parties"]
    assert account[1]["epsilon"] < account[0]["epsilon"]


def test_going_on_without_a_party_after_a_crash(made: Federated) -> None:
    """A resumed run does not wait for a party that left for good."""
    with pytest.raises(ClusterError, match="gone; then go on with --resume"):
        made.run(ending(silent_from(made, 2, 1), 4), absent="continue")

    class Two(Desks):
        def nodes(self) -> list[int]:
            return [100, 102]

    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Two(made.folders), 4), resume=True, absent="continue")
    # It cannot come back either.
    result = made.run(Desks(made.folders), resume=True)
    (gone,) = result["absent"]
    assert (gone["party"], gone["from_round"]) == (1, 3)
    assert [charged(ledger) for ledger in made.ledgers] == [6, 2, 6]


def test_a_refusal_after_a_release_keeps_the_run(made: Federated) -> None:
    """The releases of the others are kept."""

    def close(party: int, letter: Letter) -> None:
        if party == 1 and letter.get("kind") == "step":
            made.change(1, "minimum_parties = 2", "minimum_parties = 9")

    with pytest.raises(RefusedError, match="party 1 refused: the policy has minimum_parties = 9"):
        made.run(Desks(made.folders, before=close))
    made.change(1, "minimum_parties = 9", "minimum_parties = 2")
    assert made.run(resume=True)["rounds"] == 6
    assert [charged(ledger) for ledger in made.ledgers] == [6, 6, 6]


def test_a_party_that_fails_in_a_deployment_is_locked_and_tells_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tick is charged, the job is closed, and the party does nothing until its steward unlocks."""
    pytest.importorskip("opendp")
    from privadmm.engine.party import Local

    def fail(self: Local, x: Any) -> Any:
        raise ToleranceError("a local problem was not solved, with gradient 0.123")

    run = {"mode": "deployment", "seed": None, "ledger": "none"}
    made = federated(tmp_path, with_changes(STAR, {"run": run, "privacy": {"budget": 3.0}}))
    post = Desks(made.folders)
    with monkeypatch.context() as patch:
        patch.setattr(Local, "gradient", fail)
        with pytest.raises(LockedError, match="party 0: its ledger is locked until its steward") as failed:
            made.run(post, absent="continue")
    assert "0.123" not in str(failed.value)
    steps = [(party, letter, said) for party, letter, said in post.captured if letter["kind"] == "step"]
    assert [said["status"] for _, _, said in steps] == ["locked"] * 3
    assert "0.123" not in str(steps)
    letter, job = steps[1][1], str(steps[1][1]["job"])
    before = without_refusals(made.ledgers[1])
    for again in (letter, {**letter, "round": 1}, {"kind": "give_up", "job": job}):
        said = ask(made, 1, **again)
        assert (said["status"], said["message"]) == ("locked", party_server.LOCKED_HERE)
    with pytest.raises(LockedError):
        made.run(out="runs/second")
    assert without_refusals(made.ledgers[1]) == before
    for ledger in made.ledgers:
        with closing(steward.opened(ledger)) as opened:
            assert opened.failed is not None
            assert "0.123" in (opened.why or "")
            assert sum(count for _, count in opened.spent(opened.ids[0])) == 1
            opened.unlock("the test planted it")
    assert ask(made, 1, **letter)["status"] == "refused"  # the job stays over
    assert made.run(out="runs/second")["rounds"] == 6


def test_a_party_whose_budget_ends(made: Federated) -> None:
    """A party whose steward closes the job stops, the others finish, and the report says so."""
    from contextlib import closing

    from privadmm.privacy.ledger_file import identity_of
    from privadmm.privacy.sqlite_ledger import SqliteLedger

    def close(party: int, letter: Letter) -> None:
        if party == 1 and letter.get("round") == 2:
            known = identity_of(made.ledgers[1])
            assert known is not None
            with closing(SqliteLedger(made.ledgers[1], known.parties, known.policy, known.mode)) as ledger:
                ledger.close_job(str(letter["job"]))

    result = made.run(Desks(made.folders, before=close), absent="continue")
    (gone,) = result["absent"]
    assert (gone["party"], gone["from_round"]) == (1, 3)
    assert gone["why"].startswith("refused: ")
    assert "was closed" in gone["why"]
    assert [charged(ledger) for ledger in made.ledgers] == [6, 2, 6]


def test_a_budget_that_is_spent_is_no_fault(made: Federated) -> None:
    from privadmm.deploy.federation.setup.doctor import check

    def ledgers() -> list[tuple[str, str]]:
        found = check(made.made.coordinator.folder.parent)
        return [(one.state, one.said) for said in found.values() for one in said if one.what == "ledger"]

    assert [state for state, _ in ledgers()] == ["good"] * 3
    made.run()
    for state, said in ledgers():
        assert (state, said.startswith("epsilon = 1 of 1 is spent")) == ("note", True)
        assert "this job, unless that was it, will be refused" in said


def test_too_few_are_left(made: Federated) -> None:
    for party in (0, 2):
        made.change(party, "minimum_parties = 2", "minimum_parties = 3")
    post = silent_from(made, 2, 1)
    with pytest.raises(PrivadmmError, match="no party gave an answer"):
        made.run(post, absent="continue")
    assert "minimum_parties = 3, and 2 are left" in (made.folders[0] / "requests.log").read_text()


def test_columns_about_other_people(tmp_path: Path) -> None:
    made = federated(tmp_path, PEOPLE)
    path = made.folders[1] / "data.csv"
    path.write_text(path.read_text().replace("000000005,", "000000999,"))
    with pytest.raises(ClusterError, match="party 1 failed, DataError"):  # it says what was put on file, and notices
        made.run()
    assert "is about other people, than public.json" in (made.folders[1] / "requests.log").read_text()
    assert [charged(ledger) for ledger in made.ledgers] == [0] * len(made.ledgers)
    announce(read_party(made.folders[1]), neutral(read(made.made.coordinator.job)))  # as `check` does
    with pytest.raises(DataError, match="party 1 has other people than party 0"):
        made.run()


def test_messages_say_resume_as_it_is_said_here(made: Federated) -> None:
    def die(party: int, letter: Letter) -> None:
        if letter.get("round") == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.run(Desks(made.folders, before=die))
    with pytest.raises(ConfigError, match=r"unfinished run; .*--resume"):
        made.run()
    made.run(resume=True)
    with pytest.raises(ConfigError, match="holds a finished run; name another --out"):
        made.run()


def test_two_nodes_of_one_party(made: Federated) -> None:
    post = Desks([made.folders[0], made.folders[1], made.folders[1]])
    with pytest.raises(ClusterError, match="two nodes say that they are party 1"):
        made.run(post)
    made.change(2, "number = 2", "number = 7")
    with pytest.raises(ClusterError, match="party 2 did not answer"):
        made.run(Desks(made.folders))
    with pytest.raises(ClusterError, match=r"party 2 did not answer within 0\.1 s"):
        made.run(Desks(made.folders[:2]), timeout=0.1, absent="continue")
    with pytest.raises(ClusterError, match=r"no node came within 0\.1 s"):
        made.run(Desks([]), timeout=0.1)


def test_a_node_without_the_key_of_its_party(made: Federated, tmp_path: Path) -> None:
    """Any registered key could claim to be party 1."""
    from privadmm.deploy.federation.keys import make_node_key

    key = (made.folders[1] / "node-key").read_bytes()
    (made.folders[1] / "node-key").unlink()
    make_node_key(made.folders[1])
    with pytest.raises(ClusterError, match="says that it is party 1 and has not the key"):
        made.run()
    (made.folders[1] / "node-key").write_bytes(key)

    class Replaying(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            return super().ask(party, {**letter, "nonce": "0" * 32} if "nonce" in letter else letter)

    with pytest.raises(RefusedError, match="the hello was not signed for this federation"):
        made.run(Replaying(made.folders))
    assert made.run()["rounds"] == 6
    (made.made.coordinator.keys / "party-2.pub").unlink()
    with pytest.raises(ClusterError, match="put the public key of that party there"):
        made.run(out="runs/second")


def test_a_party_that_speaks_for_another(made: Federated) -> None:
    class Forging(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            said = super().ask(party, letter)
            if letter["kind"] == "step" and party == 1:
                mail = Mail.unpack(said["mail"])  # type: ignore[arg-type]
                return {**said, "mail": Mail(np.array([0]), mail.values).pack()}
            return said

    with pytest.raises(ClusterError, match="party 1 sent mail in the name of another"):
        made.run(Forging(made.folders))


def test_a_deployment_draws_secure_noise_and_measures_nothing(tmp_path: Path) -> None:
    pytest.importorskip("opendp")
    made = federated(tmp_path, with_changes(STAR, {"run": {"mode": "deployment", "seed": None, "ledger": "none"}}))
    result = made.run()
    assert (result["mode"], result["accuracy_train"], result["objective"]) == ("deployment", None, None)
    (tmp_path / "again").mkdir()
    again = federated(
        tmp_path / "again",
        with_changes(STAR, {"run": {"mode": "deployment", "seed": None, "ledger": "none"}}),
    )
    assert again.run()["transcript"] != result["transcript"]


def test_a_party_answers_without_heavy_libraries(made: Federated) -> None:
    """A process starts for every message."""
    _, steps = began(made)
    letter = {key: value for key, value in steps[-1][1].items()}
    code = (
        "import sys\nfrom pathlib import Path\nfrom privadmm.deploy.federation.desk.party_server import answer\n"
        f"assert answer(Path({str(made.folders[1])!r}), {letter!r})['status'] == 'ok'\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    loaded = set(done.stdout.split())
    assert "numpy" in loaded
    heavy = {
        "sklearn",
        "matplotlib",
        "dp_accounting",
        "networkx",
        "opendp",
        "rich",
        "typer",
        "pyarrow",
        "pandas",
    }
    assert not loaded & heavy


def test_parties_bring_files_of_their_own(tmp_path: Path) -> None:
    from privadmm.deploy.federation.setup.init import init
    from privadmm.deploy.federation.setup.joining import with_ledger

    own = OWN_FILES.format(count=3, more='on_bad = "default"')
    (tmp_path / "config.toml").write_text(own)
    made = init(read(tmp_path / "config.toml"), tmp_path / "federation", "127.0.0.1", 9100, rehearse=False)
    folders = joined(made)
    for number, folder in enumerate(folders):
        own_csv(folder / "data.csv", 10 + number, seed=number)
        path = folder / "party.toml"
        path.write_text(path.read_text().replace("# records = ...", f"records = {10 + number}"))
        with_ledger(folder)
    result = Federated(made, folders).run()
    model = Model.load(Path(result["out"]))
    assert model.columns == ("age", "job=clerk", "job=smith")
    assert set(model.predict_rows([{"age": 30, "job": "clerk"}])) <= {"no", "yes"}
    # Whether a job that reads records in another way would work is not told.
    for after in ("[0, 99]", '["clerk", "smith"], name = ["x"]'):
        changed = own.replace('["clerk", "smith"]' if "name" in after else "[0, 100]", after)
        (tmp_path / "other.toml").write_text(changed)
        proposed = written(neutral(read(tmp_path / "other.toml")))
        said = answer(folders[1], unsigned(proposed))
        assert said["status"] == "refused"
        assert "[data] schema = a table and the job a table" in str(said["message"])


def test_configs_that_are_no_federation(place: Place) -> None:
    with pytest.raises(ConfigError, match="a federation has a known number of parties"):
        neutral(read(place.config(STAR, parties={"count": None, "split": "column:site"})))


def test_wire_is_what_ledgers_keep(made: Federated) -> None:
    """The transcript digests the ledgers' releases, joined in party order."""
    result = made.run()
    found = arrays.digest(b"")
    for sent in zip(*map(released, made.ledgers), strict=True):
        mail = Mail.join([Mail.unpack(one) for one in sent])
        found = arrays.digest(found.encode() + mail.pack())
    assert found == result["transcript"]
