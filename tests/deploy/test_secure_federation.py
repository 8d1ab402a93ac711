"""Secure sums between organisations: keys pinned, drawn once and erased; lost rounds; policies; restored ledgers."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.cli.views import steward
from privadmm.deploy.federation.desk import party_server
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.protocol import Letter
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.errors import AbsentError, ClusterError, LockedError, RefusedError
from privadmm.privacy.ledger_file import Identity, identity_of
from privadmm.privacy.masks import Roster
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.sums import Summing, opened
from privadmm.privacy.verification import verify
from privadmm.runs.model import Model
from privadmm.runs.rundir import receipts_of
from small_runs import PRIVATE, Place, charged, with_changes

pytest.importorskip("cryptography")
from federations import (
    DEPLOYED,
    SUMMED,
    Backup,
    Desks,
    Federated,
    Unreliable,
    ending,
    federated,
    found_in,
    key_of,
    silent_from,
)

pytestmark = pytest.mark.usefixtures("skipped_plots")

ROUNDS, PARTIES = 4, 4
STAR = with_changes(
    PRIVATE,
    {
        "algorithm": {**(SUMMED["algorithm"] or {}), "rounds": ROUNDS},
        "privacy": {"sum": "secure", "colluding": 1, "fewest": 3},
        "parties": {"count": PARTIES},
    },
)
SECURE = with_changes(STAR, {"run": DEPLOYED})
CENTRED = with_changes(STAR, {"features": {"moments": True}})


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    return federated(tmp_path, STAR)


def fresh(folder: Path, tables: Any = STAR) -> Federated:
    folder.mkdir()
    return federated(folder, tables)


def job_of(made: Federated, out: str = "runs/first") -> str:
    return str(json.loads((made.made.coordinator.folder / out / "job.json").read_text())["job"])


def steps(post: Desks, party: int) -> list[tuple[Letter, Letter]]:
    return [(letter, said) for one, letter, said in post.captured if one == party and letter["kind"] == "step"]


def erased(made: Federated, keys: list[bytes | None]) -> None:
    """Check that these keys were there, and that no file has one any more."""
    for folder, key in zip(made.folders, keys, strict=True):
        assert key is not None
        assert found_in(folder.parent, key) == []


class Noting(Desks):
    """A post that notes the keys of all parties before each step."""

    keys: tuple[bytes | None, ...] = ()

    def ask(self, party: int, letter: Letter) -> Letter:
        if letter["kind"] == "step":
            ledgers = [folder / "ledger.sqlite" for folder in self.folders]
            found = [key_of(ledger, str(letter["job"])) for ledger in ledgers]
            self.keys = self.keys or tuple(found)
            # One key for the whole job, until it is erased.
            assert all(one in (None, first) for one, first in zip(found, self.keys, strict=True))
        return super().ask(party, letter)


# What is made, and what a run says


def test_every_party_has_the_keys_of_the_others_and_a_policy_that_lets_the_job_through(made: Federated) -> None:
    place = made.made.coordinator
    for number, folder in enumerate(made.folders):
        others = {f"party-{other}.pub" for other in range(PARTIES) if other != number}
        assert {path.name for path in (folder / "peers").iterdir()} == others
        for name in others:
            assert (folder / "peers" / name).read_bytes() == (place.keys / name).read_bytes()
        known = identity_of(folder / "ledger.sqlite")
        assert known is not None
        assert (known.policy.colluding, known.policy.fewest) == (None, 3)
    result = made.run()
    assert result["peers"] == "pinned"
    assert list(result).index("peers") - list(result).index("epsilon") < 5


def test_templates_need_no_sizes(place: Place) -> None:
    """How many records others have is known when they say hello, and the noise of a sum depends on it only then."""
    config = place.config(with_changes(STAR, {"privacy": {"colluding": None, "fewest": None}}))
    assert place.call("federation", "init", config, "--out", place.path / "fed").code == 0
    invitations = sorted((place.path / "fed" / "coordinator" / "invitations").iterdir())
    assert len(invitations) == PARTIES
    assert not {"colluding", "fewest"} & set(invitations[1].read_text().split())
    job = place.call("federation", "check", place.path / "fed" / "coordinator", "--json").object["checked"]
    assert {one["state"] for found in job.values() for one in found if one["what"] == "job"} == {"good"}


def test_a_ledger_from_before_secure_sums_is_the_same(tmp_path: Path) -> None:
    """Facts that have their usual values are not part of what a ledger fixes."""
    made = federated(tmp_path, PRIVATE)
    known = identity_of(made.ledgers[0])
    assert known is not None
    assert not {"colluding", "fewest"} & set(known.facts())
    assert party_server.Desk(party_server.party.read(made.folders[0])).differs() is None
    for line in ("colluding = 1", "fewest = 3"):
        made.change(0, "minimum_parties", f"{line}\nminimum_parties")
        said = party_server.Desk(party_server.party.read(made.folders[0])).differs()
        assert said is not None
        assert line.split()[0] in said
        made.change(0, f"{line}\nminimum_parties", "minimum_parties")
    assert "peers" not in made.run()
    assert Identity.of(known.facts()) == known


def test_what_check_says_of_peers(place: Place) -> None:
    made = federated(place.path, STAR)
    folder, job = made.folders[1], made.made.coordinator.job

    def found(*words: Any) -> tuple[str, str]:
        said = place.call("federation", "check", folder, "--json", *words).object["checked"][str(folder)]
        (one,) = [finding for finding in said if finding["what"] == "peers"]
        return one["state"], one["said"]

    assert found("--job", job) == ("good", "of all 3 others")
    kept = (folder / "peers" / "party-2.pub").read_bytes()
    (folder / "peers" / "party-2.pub").write_text("ssh-rsa nonsense")
    state, said = found()
    assert (state, "party-2.pub: is no public key" in said) == ("bad", True)
    (folder / "peers" / "party-2.pub").write_bytes((folder / "peers" / "party-3.pub").read_bytes())
    assert "party-3.pub: is the key of party 2, too; ask party 3" in found("--job", job)[1]
    (folder / "peers" / "party-2.pub").unlink()
    assert found()[0] == "bad"  # the job to which it was invited sums securely
    state, said = found("--job", job)
    assert (state, "put the public key of party 2 there" in said) == ("bad", True)
    (folder / "peers" / "party-2.pub").write_bytes(kept)
    shutil.rmtree(folder / "peers")
    assert found()[0] == "bad"
    plain = place.config(PRIVATE, "plain.toml")
    assert found("--job", plain)[0] == "note"  # no fault where nobody sums securely


# The same sums, and real noise


def test_letters_that_come_twice_and_answers_that_are_lost(made: Federated, tmp_path: Path) -> None:
    result = made.run(Unreliable(made.folders), absent="wait")
    assert result["transcript"] == fresh(tmp_path / "again").run()["transcript"]
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS] * PARTIES


def test_a_deployment_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise from OpenDP, real masks: what leaves tells nothing by itself, and adds up to the sum and its noise."""
    pytest.importorskip("opendp")
    plain, seen = Summing.sealed, list[tuple[int, Any, Any, float]]()

    def sealed(self: Summing, x: Any, ids: Any, noise: Any, call: int) -> Any:
        seen.append((self.at[0], np.rint(x / self.sums.step).astype(np.int64), noise, self.sums.step))
        return plain(self, x, ids, noise, call)

    made = federated(tmp_path, SECURE)
    post = Noting(made.folders)
    with monkeypatch.context() as patch:
        patch.setattr(Summing, "sealed", sealed)
        result = made.run(post)
    assert (result["mode"], result["accuracy_train"]) == ("deployment", None)
    for round in range(ROUNDS):
        mails = [Mail.unpack(steps(post, party)[round][1]["mail"]) for party in range(PARTIES)]  # type: ignore[arg-type]
        assert all(mail.sealed and mail.values.shape == (1, 4) for mail in mails)
        rows = [(x, noise, step) for t, x, noise, step in seen if t == round]
        assert len(rows) == PARTIES
        together = opened(Mail.join(mails).values, PARTIES, rows[0][2])
        assert np.array_equal(together, rows[0][2] * sum(x + noise for x, noise, _ in rows).astype(np.float64))
        for mail, (x, noise, _) in zip(mails, rows, strict=True):
            assert not np.any(mail.values[:, :-1].view(np.int64) == x + noise)
            assert mail.values[0, -1] != 1
            assert np.all(np.abs(noise) > 2.0**20)
    for party, ledger in enumerate(made.ledgers):
        assert verify(ledger, receipts_of(Path(result["out"]), ledger)).problems == ()
        assert charged(ledger) == ROUNDS, party
    erased(made, list(post.keys))
    assert fresh(tmp_path / "again", SECURE).run()["transcript"] != result["transcript"]
    assert np.isfinite(Model.load(Path(result["out"])).weights).all()


def test_a_coordinator_that_died_goes_on_with_the_same_roster(made: Federated, tmp_path: Path) -> None:
    """Signatures differ from one begin to the next: the first roster is kept, and parties have no other."""
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), 2, party=2))
    path = made.made.coordinator.folder / "runs/first/roster.json"
    first, post = path.read_bytes(), Noting(made.folders)
    result = made.run(post, resume=True)
    assert result["transcript"] == fresh(tmp_path / "again").run()["transcript"]
    assert path.read_bytes() == first
    assert {letter["roster"] for _, letter, _ in post.captured if letter["kind"] == "roster"} == {first}
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS] * PARTIES


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_coordinator_that_died_in_the_last_round(asked: int, made: Federated, tmp_path: Path) -> None:
    """Some parties are done and have erased their keys; they answer from their ledgers."""
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), ROUNDS - 1, asked))
    assert [key_of(ledger, job_of(made)) is None for ledger in made.ledgers] == [n < asked for n in range(PARTIES)]
    assert made.run(resume=True)["transcript"] == fresh(tmp_path / "again").run()["transcript"]
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS] * PARTIES


def test_a_key_that_its_party_lost(made: Federated) -> None:
    """It draws no other: the others have the first."""
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), 2, party=2))
    Path(f"{made.ledgers[1]}-keys").unlink()
    with pytest.raises(RefusedError, match=r"party 1 refused: the key of job .* is lost or was erased"):
        made.run(resume=True)
    assert [charged(ledger) for ledger in made.ledgers] == [3, 3, 2, 2]
    assert not Path(f"{made.ledgers[1]}-keys").exists()


# Who is away


@pytest.mark.parametrize("tables", [STAR, CENTRED], ids=["plain", "moments"])
def test_a_missing_message_loses_its_round(tables: Any, tmp_path: Path) -> None:
    """It is charged, the model stays, and the others go on. A simulation that has it leave does the same."""
    made, seen = fresh(tmp_path / "one", tables), list[Any]()

    def note(party: int, letter: Letter) -> None:
        if party == 0 and letter["kind"] == "step":
            seen.append(Mail.unpack(letter["inbox"]))  # type: ignore[arg-type]

    post = silent_from(made, 2, 1)
    leave, post.before = post.before, lambda party, letter: (leave(party, letter), note(party, letter))[0]
    result = made.run(post, absent="continue")
    assert [(gone["party"], gone["from_round"]) for gone in result["absent"]] == [(1, 3)]
    paid = {gone["party"]: gone["epsilon"] for gone in result["absent"]}[1]
    assert paid >= steward.overview(made.ledgers[1])["parties"][0]["epsilon_spent"]
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS, 2, ROUNDS, ROUNDS]
    assert np.array_equal(seen[2].values, seen[3].values)  # nothing was learnt in the lost round
    assert (seen[2].absent.tolist(), seen[3].absent.tolist()) == ([], [[1, 2]])
    assert not np.array_equal(seen[1].values, seen[2].values)
    simulated = fresh(tmp_path / "two", with_changes(tables, {"parties": {"leave": ["1@3"]}}))
    assert simulated.run()["transcript"] == result["transcript"]
    for ledger in made.ledgers:
        assert verify(ledger, receipts_of(Path(result["out"]), ledger)).problems == ()


def test_a_late_answer_changes_nothing(made: Federated, tmp_path: Path) -> None:
    """The party has paid for it, as it says, and the sum of that round stays lost."""
    reference = fresh(tmp_path / "again")
    expected = reference.run(silent_from(reference, 2, 1), absent="continue")["transcript"]
    post = silent_from(made, 2, 1)
    leave, late = post.before, list[Letter]()

    def before(party: int, letter: Letter) -> None:
        leave(party, letter)
        if letter.get("round") == 3 and not late:
            others = steps(post, 0)
            late.append(answer(made.folders[1], others[2][0] | {"inbox": inbox_for(others[2][0], 1)}))

    post.before = before
    result = made.run(post, absent="continue")
    assert late[0]["status"] == "ok"
    assert result["transcript"] == expected
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS, 3, ROUNDS, ROUNDS]


def inbox_for(letter: Letter, party: int) -> bytes:
    """An inbox of another party, sent to this one: in a secure sum all are told the same."""
    mail = Mail.unpack(letter["inbox"])  # type: ignore[arg-type]
    return Mail(np.array([party]), mail.values, mail.absent).pack()


def test_too_few_for_a_sum(made: Federated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two of four are silent where three must be there: the run ends and says what it cost, until they are back."""
    post = silent_from(made, 2, 1)
    leave = post.before

    def both(party: int, letter: Letter) -> None:
        leave(party, letter)
        if letter.get("round") == 2:
            post.silent.add(2)

    post.before = both
    said = r"party 1 gave no answer in round 3.* 2 parties are left, and the job sums over 3 at least .*: .* = 0\.\d"
    with pytest.raises(AbsentError, match=said) as ended:
        made.run(post, absent="continue")
    assert ended.value.exit_code == 1
    assert [charged(ledger) for ledger in made.ledgers] == [3, 2, 2, 3]
    # A coordinator that asks all the same is refused before a record is read.
    letter, _ = steps(post, 0)[-1]
    mail = Mail.unpack(letter["inbox"])  # type: ignore[arg-type]
    fewer = Mail(mail.senders, mail.values, np.array([[1, 2], [2, 2]])).pack()
    with monkeypatch.context() as patch:
        patch.setattr(party_server, "held", lambda *_: pytest.fail("records were read"))
        told = answer(made.folders[0], {**letter, "round": 3, "inbox": fewer})
    assert (told["status"], "sums over 3 parties at least, and 2 are present" in str(told["message"])) == (
        "refused",
        True,
    )
    assert made.run(resume=True)["transcript"] == fresh(tmp_path / "again").run()["transcript"]


def test_a_lost_moments_round_ends_the_job_and_says_what_it_cost(tmp_path: Path) -> None:
    made = federated(tmp_path, CENTRED)
    with pytest.raises(AbsentError, match=r"every later round needs that sum: .*Each party has spent epsilon = 0\.\d"):
        made.run(silent_from(made, 0, 1), absent="continue")
    assert [charged(ledger) for ledger in made.ledgers] == [1, 0, 1, 1]


def test_the_roster_of_a_run_that_goes_on_without_a_party(made: Federated) -> None:
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(silent_from(made, 1, 1), 3), absent="continue")

    class Three(Desks):
        def nodes(self) -> list[int]:
            return [100, 102, 103]

    result = made.run(Three(made.folders), resume=True, absent="continue")
    assert [(gone["party"], gone["from_round"]) for gone in result["absent"]] == [(1, 2)]
    assert [charged(ledger) for ledger in made.ledgers] == [ROUNDS, 1, ROUNDS, ROUNDS]


# When a key is erased


@pytest.mark.parametrize("tables", [STAR, SECURE], ids=["simulation", "deployment"])
def test_a_key_is_erased_after_the_last_round(tables: Any, tmp_path: Path) -> None:
    made = federated(tmp_path, tables)
    post = Noting(made.folders)
    made.run(post)
    assert len(set(post.keys)) == PARTIES
    erased(made, list(post.keys))
    assert key_of(made.ledgers[0], job_of(made)) is None


def test_the_probe_finds_a_key_that_is_there(made: Federated) -> None:
    """Control for the tests around it."""
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), 2, party=2))
    key = key_of(made.ledgers[0], job_of(made))
    assert key is not None
    assert found_in(made.folders[0], key) == ["ledger.sqlite-keys"]
    assert (Path(f"{made.ledgers[0]}-keys").stat().st_mode & 0o077) == 0


def test_a_key_is_erased_where_a_job_is_given_up(made: Federated) -> None:
    """Before its first round the coordinator gives a job up; after that the steward closes it."""
    keys = list[bytes | None]()

    def refuse(party: int, letter: Letter) -> None:
        if party == 3 and letter["kind"] == "roster":
            keys.extend(key_of(ledger, str(letter["job"])) for ledger in made.ledgers)
            shutil.rmtree(made.folders[3] / "peers")

    post = Desks(made.folders, before=refuse)
    with pytest.raises(RefusedError, match=r"party 3 refused: .*peers/party-0\.pub: no such file; put the public key"):
        made.run(post)
    assert not (made.made.coordinator.folder / "runs/first").exists()
    erased(made, keys)
    roster = next(letter for party, letter, _ in post.captured if letter["kind"] == "roster")
    for folder, ledger in zip(made.folders, made.ledgers, strict=True):
        answer(folder, roster)  # a job that is over draws no other key
        assert key_of(ledger, str(roster["job"])) is None
    shutil.copytree(made.folders[2] / "peers", made.folders[3] / "peers")
    (made.folders[3] / "peers" / "party-2.pub").write_bytes((made.folders[0] / "peers" / "party-2.pub").read_bytes())
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), 2, party=2))
    for ledger in made.ledgers:
        key = key_of(ledger, job_of(made))
        with closing(steward.opened(ledger)) as mine:
            mine.close_job(job_of(made))
        assert key is not None
        assert found_in(ledger.parent, key) == []


def test_a_key_is_erased_where_a_step_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opendp")
    made = federated(tmp_path, SECURE)
    post = Noting(made.folders)

    def fail(self: Local, x: Any) -> Any:
        raise ZeroDivisionError("the mean of the records is 0.123")

    with monkeypatch.context() as patch:
        patch.setattr(Local, "gradient", fail)
        with pytest.raises(LockedError, match="party 0: its ledger is locked"):
            made.run(post, absent="continue")
    assert "0.123" not in str(post.captured)
    erased(made, list(post.keys))
    for ledger in made.ledgers:
        with closing(steward.opened(ledger)) as mine:
            assert sum(count for _, count in mine.spent(mine.ids[0])) == 1
            mine.unlock("the test planted it")
    with pytest.raises(RefusedError, match="failed or was closed here"):
        made.run(resume=True)


# A ledger that was put back


def copied(made: Federated, round: int) -> tuple[Backup, Desks]:
    """The ledger of party 1 as it was before this round, and the letters of a run that went on from there.

    Its anchor is put back with it: else it would be locked for that.
    """
    copies, post = list[Backup](), ending(Desks(made.folders), ROUNDS - 2, party=2)
    die = post.before

    def copy(party: int, letter: Letter) -> None:
        die(party, letter)
        if party == 1 and letter.get("round") == round:
            copies.append(Backup.of(made.ledgers[1]))

    post.before = copy
    with pytest.raises(ClusterError, match="gone"):
        made.run(post)
    return copies[0], post


def test_a_ledger_that_was_put_back_answers_no_round_again(tmp_path: Path) -> None:
    """Masks would be the same and the noise another one: who has both answers has a second release, for nothing."""
    pytest.importorskip("opendp")
    made = federated(tmp_path, SECURE)
    copy, post = copied(made, 1)
    key = key_of(made.ledgers[1], job_of(made))
    copy.put_back()
    (first, said), (second, _) = steps(post, 1)[:2]
    assert answer(made.folders[1], first) == said  # which it remembers
    again = answer(made.folders[1], second)
    assert (again["status"], again["error"]) == ("failed", "LedgerError")
    assert "put back from a copy" in str(again["message"])
    assert key is not None
    assert found_in(made.folders[1], key) == []
    assert answer(made.folders[1], second)["status"] == "failed"
    with pytest.raises(LockedError, match="party 1"):  # it is shown its receipts
        made.run(resume=True)


def test_without_that_it_would_answer_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control for the test above."""
    pytest.importorskip("opendp")
    made = federated(tmp_path, SECURE)
    copy, post = copied(made, 1)
    copy.put_back()
    monkeypatch.setattr(SqliteLedger, "check_sent", lambda *_: None)
    letter, said = steps(post, 1)[1]
    again = answer(made.folders[1], letter)
    assert again["status"] == "ok"
    assert again["mail"] != said["mail"]


@pytest.mark.parametrize("moment", ["before the job", "before the roster"])
def test_a_ledger_from_before_the_roster(moment: str, tmp_path: Path) -> None:
    """It can be begun and told the same roster again, and answers nothing."""
    made = federated(tmp_path, STAR)
    copies, post = [Backup.of(made.ledgers[1])], ending(Desks(made.folders), 2, party=2)
    die = post.before

    def copy(party: int, letter: Letter) -> None:
        die(party, letter)
        if party == 1 and letter["kind"] == "roster" and moment == "before the roster":
            copies[0] = Backup.of(made.ledgers[1])

    post.before = copy
    with pytest.raises(ClusterError, match="gone"):
        made.run(post)
    copies[0].put_back()
    if moment == "before the job":  # or jobs/ would show that the ledger lacks it
        (made.folders[1] / "jobs" / f"{job_of(made)}.admitted").unlink()
    key = key_of(made.ledgers[1], job_of(made))
    letters = {str(letter["kind"]): letter for party, letter, _ in reversed(post.captured) if party == 1}
    begun = answer(made.folders[1], letters["begin"])
    assert begun["status"] == "ok"
    entries = Roster.unpack(letters["roster"]["roster"]).entries  # type: ignore[arg-type]
    assert json.loads(str(begun["entry"]))[1] == entries[1].key.hex()  # no other key was drawn
    assert answer(made.folders[1], letters["roster"])["status"] == "ok"
    said = answer(made.folders[1], letters["step"])
    assert (said["status"], "put back from a copy" in str(said["message"])) == ("failed", True)
    assert key is not None
    assert found_in(made.folders[1], key) == []


# What a party's policy says


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (
            "colluding = 2\nfewest = 3",
            r"tolerate 2 colluding parties, and the job .* 1\..* set \[privacy\] colluding = 2",
        ),
        ("fewest = 4", r"sums over 4 parties at least, and the job over 3.* fewest = 4"),
        ("# fewest is left out", r"sums over 4 parties at least, and the job over 3.* fewest = 4"),
    ],
)
def test_a_policy_refuses_before_records_are_read(
    after: str, told: str, made: Federated, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = Desks(made.folders)
    begun = made.run(post)["rounds"]
    begin = next(letter for party, letter, _ in post.captured if party == 1 and letter["kind"] == "begin")
    assert begun == ROUNDS
    made.change(1, "fewest = 3", after)
    known, wanted = identity_of(made.ledgers[1]), read_party(made.folders[1]).fixed
    assert known is not None
    with closing(SqliteLedger(made.ledgers[1], known.parties, known.policy, known.mode)) as ledger:
        ledger.amend(wanted, "others may collude now")
    monkeypatch.setattr(party_server, "read_records", lambda *_: pytest.fail("records were read"))
    said = answer(made.folders[1], begin)
    assert said["status"] == "refused"
    monkeypatch.undo()
    with pytest.raises(RefusedError, match=told):
        made.run(out="runs/second")
    log = (made.folders[1] / "requests.log").read_text().splitlines()
    assert [json.loads(line)["kind"] for line in log[-1:]] == ["hello"]
    assert charged(made.ledgers[1]) == ROUNDS


def test_a_job_for_few_of_those_who_are_pinned_gets_no_smaller_sum(made: Federated) -> None:
    """Six others are pinned, and a third of seven is two."""
    for other in (4, 5, 6):
        shutil.copy(made.folders[1] / "peers" / "party-0.pub", made.folders[1] / "peers" / f"party-{other}.pub")
    with pytest.raises(RefusedError, match="tolerate 2 colluding parties, and the job tolerates 1"):
        made.run()


def test_one_pinned_key_for_two_parties_is_refused(made: Federated) -> None:
    peers = made.folders[1] / "peers"
    shutil.copy(peers / "party-0.pub", peers / "party-2.pub")
    with pytest.raises(RefusedError, match=r"party-2.pub: is the key of party 0, too"):
        made.run()


def test_a_proposal_of_absurd_width_is_refused_before_anything_is_made_of_it(made: Federated) -> None:
    post = Desks(made.folders)
    made.run(post)
    begin = dict(next(letter for party, letter, _ in post.captured if party == 1 and letter["kind"] == "begin"))
    facts = json.loads(begin["proposal"])  # type: ignore[arg-type]
    begin["proposal"] = json.dumps({**facts, "dim": 2**40, "id": "0" * 32}).encode()
    said = answer(made.folders[1], begin)
    assert said["status"] == "refused"
    assert "numbers" in str(said["message"])
