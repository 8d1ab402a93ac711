"""A hostile coordinator of secure sums: rosters that it forges, and parties that it tells different things."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.cli.views import steward
from privadmm.deploy.federation.desk import peers
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.proposal import Kept, Proposal
from privadmm.deploy.federation.protocol import Letter
from privadmm.engine.mail import Mail
from privadmm.engine.sums import ROSTER
from privadmm.errors import ClusterError, RefusedError
from privadmm.privacy.masks import Entry, Roster, new_key, public_key
from small_runs import PRIVATE, charged, with_changes

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from federations import SUMMED, Desks, Federated, federated
from privadmm.deploy.federation.keys import make_node_key
from privadmm.deploy.federation.signing import private, seal

pytestmark = pytest.mark.usefixtures("skipped_plots")

ROUNDS, PARTIES = 3, 4
STAR = with_changes(
    PRIVATE,
    {
        "algorithm": {**(SUMMED["algorithm"] or {}), "rounds": ROUNDS},
        "privacy": {"sum": "secure", "colluding": 1, "fewest": 3, "budget": 9.0},
        "parties": {"count": PARTIES},
    },
)


@dataclass(frozen=True)
class Begun:
    """A job that all parties have begun, and whose roster none has seen; party 0 is the one that is attacked."""

    made: Federated
    job: str
    roster: Roster

    def ask(self, roster: Roster | bytes, job: str | None = None) -> Letter:
        packed = roster if isinstance(roster, bytes) else roster.pack()
        return answer(self.made.folders[0], {"kind": "roster", "job": job or self.job, "roster": packed})

    def kept(self) -> bytes | None:
        with closing(steward.opened(self.made.ledgers[0])) as ledger:
            return ledger.kept(self.job, ROSTER)

    def entry(self, party: int) -> Entry:
        return self.roster.entries[party]

    def signed(self, entry: Entry, by: int | Path, terms: str | None = None) -> Entry:
        """An entry signed by this party, or with this key, for this job or for other terms."""
        digest = terms or self.terms(entry.number)
        key = self.made.folders[by] / "node-key" if isinstance(by, int) else by
        return replace(entry, signature=seal(key, entry.content(self.job, digest)))

    def terms(self, party: int) -> str:
        kept = Kept.at(self.made.folders[party] / "jobs", self.job)
        assert kept is not None
        return kept.job.digest

    def with_entries(self, *changed: Entry) -> Roster:
        """The roster with these entries in place of those of the same number."""
        others = {entry.number: entry for entry in (*self.roster.entries, *changed)}
        return Roster.of(others.values())


def begun(made: Federated, out: str = "runs/first") -> Begun:
    class Ends(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            if letter["kind"] in ("roster", "give_up"):
                found.append(letter)
                return {"status": "refused", "message": "not now"}
            return super().ask(party, letter)

    found = list[Letter]()
    with pytest.raises(RefusedError, match="not now"):
        made.run(Ends(made.folders), out=out)
    made.made.coordinator.ended.unlink()  # or the next begin would tell that the job was given up
    return Begun(made, str(found[0]["job"]), Roster.unpack(found[0]["roster"]))  # type: ignore[arg-type]


@pytest.fixture
def attacked(tmp_path: Path) -> Begun:
    return begun(federated(tmp_path, STAR))


def swapped(at: Begun) -> Roster:
    one, two = at.entry(1), at.entry(2)
    return at.with_entries(replace(one, key=two.key), replace(two, key=one.key))


def swapped_whole(at: Begun) -> Roster:
    one, two = at.entry(1), at.entry(2)
    return at.with_entries(replace(one, parties=(2,)), replace(two, parties=(1,)))


def duplicated(at: Begun) -> Roster:
    """Party 2 colludes and signs for a copy of the key of party 1."""
    return at.with_entries(at.signed(replace(at.entry(2), key=at.entry(1).key), 2))


def mine_twice(at: Begun) -> Roster:
    return at.with_entries(at.signed(replace(at.entry(2), key=at.entry(0).key), 2))


def other_key(at: Begun, party: int) -> Entry:
    return replace(at.entry(party), key=public_key(new_key()))


def unpinned(at: Begun) -> Roster:
    """The coordinator makes up a node key for party 1."""
    folder = at.made.made.coordinator.folder / "forged"
    folder.mkdir()
    make_node_key(folder)
    return at.with_entries(at.signed(other_key(at, 1), folder / "node-key"))


def by_another(at: Begun) -> Roster:
    return at.with_entries(at.signed(other_key(at, 1), 2))


def unsigned(at: Begun) -> Roster:
    return at.with_entries(replace(other_key(at, 1), signature=""))


def without_mine(at: Begun) -> Roster:
    return at.with_entries(at.signed(other_key(at, 0), 0))


def mine_elsewhere(at: Begun) -> Roster:
    """My key at the number of another, who signs for it, and another key at mine."""
    return at.with_entries(at.signed(other_key(at, 0), 0), at.signed(replace(at.entry(1), key=at.entry(0).key), 1))


def other_proposal(at: Begun) -> Roster:
    return at.with_entries(at.signed(at.entry(1), 1, terms="0" * 64))


def of_two(at: Begun) -> Roster:
    """Parties 1 and 2 together, with one key that party 1 signed."""
    both = at.signed(Entry((1, 2), public_key(new_key())), 1)
    return Roster.of([at.entry(0), both, at.entry(3)])


def fewer(at: Begun) -> Roster:
    return Roster.of(at.roster.entries[:3])


def more(at: Begun) -> Roster:
    return Roster.of([*at.roster.entries, at.signed(Entry((4,), public_key(new_key())), 3, terms=at.terms(3))])


def twice(at: Begun) -> Roster:
    return Roster.of([*at.roster.entries, at.entry(3)])


def no_key(at: Begun) -> Roster:
    """A key with which every exchange gives zero, so that everybody knows the masks."""
    return at.with_entries(at.signed(replace(at.entry(2), key=bytes(32)), 2))


FORGED: dict[str, tuple[Callable[[Begun], Roster], str]] = {
    "keys of two parties swapped": (swapped, "party 1 in the roster is not signed"),
    "entries of two parties swapped": (swapped_whole, "party 1 in the roster is not signed"),
    "a copy of another's key": (duplicated, "one key for two parties"),
    "a copy of my key": (mine_twice, "one key for two parties"),
    "a node key that nobody pinned": (unpinned, r"party 1 in the roster is not signed.* peers/party-1\.pub"),
    "signed by another party": (by_another, "party 1 in the roster is not signed"),
    "signed by nobody": (unsigned, "party 1 in the roster is not signed"),
    "without my key": (without_mine, "lacks the key of party 0"),
    "my key at another's number": (mine_elsewhere, "lacks the key of party 0"),
    "signed for another proposal": (other_proposal, "for the job as it was proposed here.* told another job"),
    "one key of two parties": (of_two, "one key for 2 parties"),
    "a party left out": (fewer, "not of every party of the job once"),
    "a stranger": (more, "not of every party of the job once"),
    "a party twice": (twice, "not of every party of the job once"),
    "a key that is none": (no_key, "the key of party 2 in the roster is no key"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_roster_is_refused_and_not_kept(name: str, attacked: Begun) -> None:
    forge, told = FORGED[name]
    said = attacked.ask(forge(attacked))
    assert said["status"] == "refused"
    with pytest.raises(RefusedError, match=told):
        raise RefusedError(str(said["message"]))
    assert str(said["message"]).endswith("Nothing was released")
    assert attacked.kept() is None
    step = {"kind": "step", "job": attacked.job, "round": 0, "phase": 0, "inbox": first_inbox()}
    refused = answer(attacked.made.folders[0], step)
    assert (refused["status"], "has no roster here" in str(refused["message"])) == ("refused", True)
    assert charged(attacked.made.ledgers[0]) == 0
    assert attacked.ask(attacked.roster)["status"] == "ok"  # control: the good one is taken after that
    assert attacked.kept() == attacked.roster.pack()


def first_inbox() -> bytes:
    return Mail(np.array([0]), np.zeros((1, 3))).pack()


def test_a_roster_of_another_job(attacked: Begun) -> None:
    """Neither as a whole, nor one entry of it: keys are of one job."""
    other = begun(attacked.made, "runs/second")
    assert other.job != attacked.job
    assert "lacks the key of party 0" in str(attacked.ask(other.roster)["message"])
    said = attacked.ask(attacked.with_entries(other.entry(1)))
    assert "party 1 in the roster is not signed" in str(said["message"])
    assert attacked.kept() is None
    assert attacked.ask(attacked.roster)["status"] == other.ask(other.roster)["status"] == "ok"


def test_the_first_roster_holds(attacked: Begun) -> None:
    """Also against one that everybody in it signed: party 2 colludes, and has drawn another key."""
    assert attacked.ask(attacked.roster)["status"] == "ok"
    second = attacked.with_entries(attacked.signed(other_key(attacked, 2), 2))
    said = attacked.ask(second)
    assert (said["status"], "the first one holds" in str(said["message"])) == ("refused", True)
    # What only looks different is another roster, too: its digest is in every mask.
    assert attacked.ask(Roster(attacked.roster.entries[::-1]))["status"] == "refused"
    one = attacked.entry(1)
    again = private(attacked.made.folders[1] / "node-key").sign(
        one.content(attacked.job, attacked.terms(1)), ec.ECDSA(hashes.SHA256())
    )
    signed_again = attacked.with_entries(replace(one, signature=again.hex()))
    assert signed_again != attacked.roster
    assert attacked.ask(signed_again)["status"] == "refused"
    assert attacked.ask(attacked.roster)["status"] == "ok"
    assert attacked.kept() == attacked.roster.pack()


def test_what_is_no_roster(attacked: Begun) -> None:
    good = json.loads(attacked.roster.pack())
    for packed in (
        b"",
        b"\xff",
        b"7",
        b"{}",
        b"[" * 100_000,
        b'["x"]',
        json.dumps([*good[:3], json.loads(good[3])]).encode(),
        json.dumps([*good[:3], json.dumps([[True], "00" * 32, ""])]).encode(),
        json.dumps([*good[:3], json.dumps([[3], "00" * 31, ""])]).encode(),
        json.dumps([*good[:3], json.dumps([[], "00" * 32, ""])]).encode(),
        json.dumps([*good[:3], json.dumps([[3], "00" * 32, 7])]).encode(),
    ):
        assert attacked.ask(packed)["status"] == "refused", packed[:40]
    assert attacked.kept() is None
    assert attacked.ask(attacked.roster, job="0" * 32)["status"] == "refused"
    assert attacked.ask(attacked.roster, job="../../x")["status"] == "refused"


def test_a_job_without_sums_has_no_roster(attacked: Begun, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    made = federated(
        tmp_path / "plain", with_changes(STAR, {"privacy": {"sum": None, "colluding": None, "fewest": None}})
    )
    post = Desks(made.folders)
    made.run(post)
    assert "roster" not in {letter["kind"] for _, letter, _ in post.captured}
    assert not any("entry" in said for _, _, said in post.captured)
    job = next(str(letter["job"]) for _, letter, _ in post.captured if "job" in letter)
    said = answer(made.folders[0], {"kind": "roster", "job": job, "roster": attacked.roster.pack()})
    assert (said["status"], "has no secure sums" in str(said["message"])) == ("refused", True)
    assert not Path(f"{made.ledgers[0]}-keys").exists()


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "no such file; put the public key of party 1 there"), ("ssh-rsa x", "is no public key")],
)
def test_a_peer_that_is_not_pinned(content: str | None, told: str, attacked: Begun) -> None:
    path = attacked.made.folders[0] / "peers" / "party-1.pub"
    kept = path.read_bytes()
    path.unlink()
    if content is not None:
        path.write_text(content)
    said = attacked.ask(attacked.roster)
    assert said["status"] == "refused"
    assert str(said["message"]).startswith("peers/party-1.pub: ")
    assert told in str(said["message"])
    path.write_bytes(kept)
    assert attacked.ask(attacked.roster)["status"] == "ok"


@pytest.mark.parametrize(
    "entry",
    [None, "", "nonsense", json.dumps([[2], "00" * 32, ""]), json.dumps([[1, 2], "00" * 32, ""]), 7],
)
def test_a_party_that_sends_no_key_of_its_own(entry: Any, tmp_path: Path) -> None:
    class Forging(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            said = dict(super().ask(party, letter))
            if letter["kind"] == "begin" and party == 1:
                said.pop("entry")
                said |= {} if entry is None else {"entry": entry}
            return said

    made = federated(tmp_path, STAR)
    with pytest.raises(ClusterError, match=r"^party 1 sent (no|a) key for the secure sums"):
        made.run(Forging(made.folders))
    assert sum(map(charged, made.ledgers)) == 0


# Parties that are told different things


@dataclass
class Telling(Desks):
    """Tells party 2 something else than the others."""

    tell: Callable[[Letter], Letter] = lambda letter: letter

    def ask(self, party: int, letter: Letter) -> Letter:
        return super().ask(party, self.tell(letter) if party == 2 else letter)


def proposing(before: str, after: str) -> Callable[[Letter], Letter]:
    """Another proposal under the same id."""

    def tell(letter: Letter) -> Letter:
        if letter["kind"] != "begin":
            return letter
        proposal = Proposal.unpack(letter["proposal"])  # type: ignore[arg-type]
        assert before in proposal.text
        return {**letter, "proposal": replace(proposal, text=proposal.text.replace(before, after)).pack()}

    return tell


def proposing_facts(change: Callable[[tuple[int, ...]], tuple[int, ...]]) -> Callable[[Letter], Letter]:
    """Other numbers of records, by which messages are weighted."""

    def tell(letter: Letter) -> Letter:
        if letter["kind"] != "begin":
            return letter
        proposal = Proposal.unpack(letter["proposal"])  # type: ignore[arg-type]
        return {**letter, "proposal": replace(proposal, sizes=change(proposal.sizes)).pack()}

    return tell


def steering(round: int, change: Callable[[Mail], Mail]) -> Callable[[Letter], Letter]:
    """Another inbox in one round, counted from 0."""

    def tell(letter: Letter) -> Letter:
        if letter.get("round") != round:
            return letter
        return {**letter, "inbox": change(Mail.unpack(letter["inbox"])).pack()}  # type: ignore[arg-type]

    return tell


PROPOSALS = {
    "another t": proposing("colluding = 1", "colluding = 2"),
    "another S_min": proposing("fewest = 3", "fewest = 4"),
    "other noise": proposing("epsilon = 1.0", "epsilon = 0.5"),
    "other parameters": proposing("rounds = 3", "rounds = 3\naverage = 0.25"),
    "other sizes": proposing_facts(lambda sizes: (sizes[0] + 5, *sizes[1:])),
    "another number of rounds": proposing("rounds = 3", "rounds = 4"),
}


def gone(mail: Mail) -> Mail:
    return Mail(mail.senders, mail.values, np.array([[3, 0]]))


INBOXES = {
    "other absentees": steering(1, gone),
    "other weights": steering(1, lambda mail: Mail(mail.senders, mail.values + 1e-9, mail.absent)),
}


@pytest.mark.parametrize("name", PROPOSALS)
def test_another_proposal_is_found_before_anything_is_sent(name: str, tmp_path: Path) -> None:
    made = federated(tmp_path, STAR)
    post = Telling(made.folders, tell=PROPOSALS[name])
    with pytest.raises(RefusedError, match=r"party 0 refused: the key of party 2 .* told another job"):
        made.run(post)
    assert "step" not in {letter["kind"] for _, letter, _ in post.captured}
    assert sum(map(charged, made.ledgers)) == 0


def nothing_trained_after(made: Federated, rounds: int) -> None:
    """Check that a run that ended has so many rounds and no model."""
    out = made.made.coordinator.folder / "runs/first"
    assert not (out / "model.json").exists()
    assert (out / "checkpoint").exists() == (rounds > 0)
    lines = (out / "receipts.csv").read_text().splitlines() if rounds else []
    assert len(lines) == (1 + rounds * PARTIES if rounds else 0)


@pytest.mark.parametrize("absent", ["abort", "continue"])
@pytest.mark.parametrize("name", [*PROPOSALS, *INBOXES])
def test_parties_that_were_told_different_things_add_up_to_noise(
    name: str, absent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word that counts them says so, also where nobody looks at signatures: nothing is trained on it."""
    monkeypatch.setattr(peers, "signed", lambda folder, job: lambda entry, party: True)
    made = federated(tmp_path, STAR)
    post = Telling(made.folders, tell={**PROPOSALS, **INBOXES}[name])
    with pytest.raises(ClusterError, match=r"messages add up to noise.* nothing was trained on it"):
        made.run(post, absent=absent)
    rounds = 1 if name in INBOXES else 0
    assert [charged(ledger) for ledger in made.ledgers] == [rounds + 1] * PARTIES
    nothing_trained_after(made, rounds)


def test_a_party_that_sends_other_words_spoils_one_run_and_no_model(tmp_path: Path) -> None:
    class Forging(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            said = super().ask(party, letter)
            if letter.get("round") == 1 and party == 1:
                mail = Mail.unpack(said["mail"])  # type: ignore[arg-type]
                return {**said, "mail": Mail(mail.senders, mail.values + np.uint64(1)).pack()}
            return said

    made = federated(tmp_path, STAR)
    with pytest.raises(ClusterError, match="messages add up to noise"):
        made.run(Forging(made.folders), absent="continue")
    nothing_trained_after(made, 1)
    assert made.run(resume=True)["rounds"] == ROUNDS


@pytest.mark.parametrize(
    "change",
    [
        lambda words: words.astype(np.float64),
        lambda words: words[:, :-1],
        lambda words: np.repeat(words, 2, axis=0),
        lambda words: words.astype(np.int64),
    ],
    ids=["numbers", "without the word that counts", "two rows", "signed words"],
)
def test_a_message_of_another_form_is_its_senders(change: Any, tmp_path: Path) -> None:
    class Forging(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            said = super().ask(party, letter)
            if letter.get("round") == 1 and party == 1:
                mail = Mail.unpack(said["mail"])  # type: ignore[arg-type]
                return {**said, "mail": Mail(mail.senders, change(mail.values)).pack()}
            return said

    made = federated(tmp_path, STAR)
    result = made.run(Forging(made.folders), absent="continue")
    assert [(one["party"], one["from_round"]) for one in result["absent"]] == [(1, 2)]
    assert result["absent"][0]["why"].startswith("party 1 sent ")
