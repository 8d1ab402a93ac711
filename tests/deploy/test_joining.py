"""Organisations become parties: invited, joined, admitted, pinned; keys and certificates change; one more, one less."""

import io
import json
import os
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from federations import OWN_FILES, Desks, Federated, node_key, own_csv, public_half
from privadmm.config.file import read
from privadmm.privacy.meaning import large_delta, large_epsilon
from small_runs import Outcome, Place

pytest.importorskip("cryptography")
from privadmm.deploy.federation import keys
from privadmm.deploy.federation.hub.state import driving
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.setup.init import Made, init
from privadmm.deploy.federation.setup.invitation import read_peers

SECURE_FILES = OWN_FILES.replace('name = "dp_admm"', 'name = "first_order_consensus"').replace("D_w = 5.0\n", "")
SECURE_FILES = SECURE_FILES.replace("delta = 1e-5", 'delta = 1e-5\nsum = "secure"')
COUNT = 3


@pytest.fixture(autouse=True)
def without_superlink(monkeypatch: pytest.MonkeyPatch) -> None:
    """No SuperLink runs here, and none that somebody else runs is asked."""
    monkeypatch.setattr("privadmm.cli.federation_members.registered", lambda place: None)


class Organisations:
    """A coordinator and parties, each in a folder of its own. Files travel only by `send`."""

    def __init__(self, place: Place, text: str = OWN_FILES, count: int = COUNT, words: tuple[str, ...] = ()) -> None:
        self.place, self.root, self.fed = place, place.path, place.path / "hub" / "federation"
        (self.root / "config.toml").write_text(text.format(count=count, more=""))
        self.made = self.call("init", self.root / "config.toml", "--out", self.fed, "--host", "hub.example", *words)
        self.coordinator = Coordinator(self.fed / "coordinator")

    def call(self, *words: Any, code: int = 0) -> Outcome:
        done = self.place.call("federation", *words)
        assert done.code == code, done.out + done.err
        return done

    def own(self, number: int) -> Path:
        return self.root / f"org-{number}" / f"party-{number}"

    def send(self, file: Path, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).write_bytes(file.read_bytes())
        return folder / file.name

    def join(self, number: int, *words: Any, code: int = 0) -> Outcome:
        home = self.own(number).parent
        invitation = self.send(self.coordinator.invitations / f"party-{number}.toml", home)
        data = own_csv(home / "data.csv", 10 + number, seed=number)
        name = f"Clinic {number}"
        return self.call(
            *("join", invitation, "--out", self.own(number), "--records", data, "--name", name, "--yes", *words),
            code=code,
        )

    def admit(self, *numbers: int, code: int = 0, words: tuple[str, ...] = ()) -> Outcome:
        files = [self.send(self.own(number) / "reply.toml", self.root / "hub" / f"mail-{number}") for number in numbers]
        return self.call("admit", self.fed, *files, "--yes", *words, code=code)

    def pin(self, number: int, *words: Any, code: int = 0) -> Outcome:
        peers = self.send(self.coordinator.peers, self.own(number).parent)
        return self.call("pin", self.own(number), peers, *(words or ("--yes",)), code=code)

    def everybody(self, count: int = COUNT) -> "Organisations":
        for number in range(count):
            self.join(number)
        self.admit(*range(count))
        for number in range(count):
            self.pin(number)
        return self

    def run(self, out: str = "runs/first", count: int = COUNT) -> dict[str, Any]:
        folders = [self.own(number) for number in range(count)]
        made = Made(self.coordinator, [read_party(folder) for folder in folders], [])
        return Federated(made, folders).run(Desks(folders), out=out)


def test_three_organisations_train_from_files_that_travel(place: Place) -> None:
    """Two commands at each party before its node, and no edit."""
    all_of_them = Organisations(place, SECURE_FILES).everybody()
    result = all_of_them.run()
    assert (Path(result["out"]) / "model.json").exists()
    assert result["peers"] == "pinned"
    for number in range(COUNT):
        party = read_party(all_of_them.own(number))
        assert (party.party.records, party.party.name) == (10 + number, f"Clinic {number}")
        assert party.node.superlink == "hub.example:9100"


def test_a_large_budget_is_warned_of_where_it_becomes_a_policy(place: Place) -> None:
    weak, large = f"warning: {large_epsilon(8.0)}\n", OWN_FILES.replace("epsilon = 1.0", "epsilon = 8.0")
    assert "weak promise" not in place.call("federation", "check", Organisations(place).fed).out
    again = replace(place, path=place.path / "again")
    again.path.mkdir()
    all_of_them = Organisations(again, large)
    assert all_of_them.made.err == weak
    joined = all_of_them.join(0)
    assert joined.err == weak
    assert "weak promise" in place.call("federation", "check", all_of_them.own(0)).out
    assert "weak promise" in place.call("federation", "check", all_of_them.fed).out


def test_a_large_delta_is_warned_of_where_it_becomes_a_policy(place: Place) -> None:
    """Party 0 has 10 records; while nobody said how many there are, 1000 are assumed."""
    text = re.sub(r"delta = \S+", "delta = 0.1", OWN_FILES)
    assert "delta = 0.1" in text
    all_of_them = Organisations(place, text)
    assert all_of_them.made.err == f"warning: {large_delta(0.1, None)}\n"
    joined = all_of_them.join(0)
    assert joined.err == f"warning: {large_delta(0.1, 10)}\n"
    assert "1/10" in joined.err
    for folder in (all_of_them.own(0), all_of_them.fed):
        shown = " ".join(place.call("federation", "check", folder).out.split())
        assert ("delta = 0.1 is not below 1/10" in shown) is (folder != all_of_them.fed)
    party = all_of_them.own(0) / "party.toml"
    party.write_text(party.read_text().replace("delta = 0.1", "delta = 0.2"))
    amended = all_of_them.call("ledger", all_of_them.own(0), "--amend", "--because", "more is allowed")
    assert amended.err == f"warning: {large_delta(0.2, 10)}\n"


def test_private_keys_never_travel(place: Place) -> None:
    all_of_them = Organisations(place).everybody()
    for number in range(COUNT):
        key = all_of_them.own(number) / "node-key"
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        secret = node_key(key).private_numbers().private_value.to_bytes(48, "big")
        raw = key.read_bytes()
        for path in all_of_them.root.rglob("*"):
            if path.is_file() and path != key:
                assert raw not in path.read_bytes()
                assert secret not in path.read_bytes()
    travelled = [*all_of_them.coordinator.invitations.glob("*"), all_of_them.coordinator.peers]
    assert not any(b"PRIVATE" in path.read_bytes() for path in travelled)
    assert not list((all_of_them.root / "hub").rglob("node-key"))


def test_join_counts_the_records_and_makes_nothing_if_it_cannot(place: Place) -> None:
    some = Organisations(place)
    invitation = some.coordinator.invitations / "party-0.toml"
    bad = some.root / "bad.csv"
    bad.write_text("y,age\nyes,5\n")
    done = some.call("join", invitation, "--out", some.own(0), "--records", bad, "--yes", code=1)
    assert "cannot be read as the invitation's [data] declares, and nothing was made" in done.err
    assert not (some.own(0) / "node-key").exists()
    assert some.join(0, "--json").object["records"] == 10
    again = some.join(0, code=2)
    assert "exists already" in again.err


@pytest.mark.parametrize("words", [(), ("--json",), ("--yes", "--no-ledger")])
def test_where_nobody_can_be_asked_the_answer_is_an_option(words: tuple[str, ...], place: Place) -> None:
    """Without it nothing is made: a party without a ledger would find out when a job comes."""
    some = Organisations(place)
    data, invitation = own_csv(some.root / "data.csv", 12), some.coordinator.invitations / "party-0.toml"
    done = some.call("join", invitation, "--out", some.own(0), "--records", data, *words, code=2)
    assert "--yes" in done.err
    assert "--no-ledger" in done.err
    assert not some.own(0).exists()


def test_a_ledger_may_be_made_later_and_a_node_needs_it(place: Place) -> None:
    some = Organisations(place)
    data, invitation = own_csv(some.root / "data.csv", 12), some.coordinator.invitations / "party-0.toml"
    done = some.call("join", invitation, "--out", some.own(0), "--records", data, "--no-ledger")
    make = f"privadmm federation ledger {some.own(0)}"
    assert make in done.out
    assert "epsilon = 1.0" in done.out
    assert not (some.own(0) / "ledger.sqlite").exists()
    refused = some.call("node", some.own(0), code=2)
    assert "there is no ledger yet" in refused.err
    assert make in refused.err
    assert not (some.own(0) / "running.json").exists()
    some.call("ledger", some.own(0))
    assert (some.own(0) / "ledger.sqlite").exists()


@pytest.mark.parametrize("left", ["ledger.sqlite-anchor", "data.csv-ledger"])
def test_a_node_does_not_start_without_a_ledger_that_is_lost(left: str, place: Place) -> None:
    """Anchor or note tell that there was one; what it had spent would be forgotten."""
    some = Organisations(place).everybody()
    some.run()
    home = some.own(0)
    traces = [home / "ledger.sqlite-anchor", home.parent / "data.csv-ledger", *home.glob("ledger.sqlite-keys")]
    for file in (home / "ledger.sqlite", *(file for file in traces if file.name != left)):
        file.unlink()
    refused = some.call("node", home, code=1)
    assert "is lost" in refused.err
    assert left in refused.err
    assert "privadmm ledger restore" in refused.err
    assert not (home / "ledger.sqlite").exists()
    checked = some.call("check", home, code=1)
    assert "is lost" in checked.out


def test_records_that_had_a_ledger_are_not_forgotten(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joining again with the same records would count from zero; also where nothing can be written beside them."""
    some = Organisations(place).everybody()
    some.own(0).rename(some.root / "kept")
    done = some.join(0, code=3)
    assert "A new ledger forgets what was spent" in done.err
    assert "Send " in done.out  # the rest is made
    assert not (some.own(0) / "ledger.sqlite").exists()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # as root may always write
    assert "is counted by the ledger" in some.call("ledger", some.own(0), code=3).err
    some.call("ledger", some.own(0), "--anew", code=2)
    some.call("ledger", some.own(0), "--anew", "--because", "no job has read them")


def test_a_policy_is_amended_from_party_toml(place: Place) -> None:
    some = Organisations(place).everybody()
    path = some.own(0) / "party.toml"
    path.write_text(path.read_text().replace("epsilon = 1.0", "epsilon = 3.0"))
    found = some.call("check", some.own(0), "--json", code=1).object["checked"][str(some.own(0))]
    (wrong,) = [one for one in found if one["what"] == "ledger"]  # others look at the machine's ports and disk
    assert wrong["state"] == "bad"
    assert "--amend --because" in wrong["fix"]
    assert "need --because" in some.call("ledger", some.own(0), "--amend", code=2).err
    some.call("ledger", some.own(0), "--amend", "--because", "the board agreed")
    some.call("check", some.own(0))
    some.run()


def test_without_records_party_toml_waits_for_their_number(place: Place) -> None:
    some = Organisations(place)
    invitation = some.coordinator.invitations / "party-0.toml"
    assert some.call("join", invitation, "--out", some.own(0), "--yes", "--json").object["ledger"] is None
    assert "# records = ..." in (some.own(0) / "party.toml").read_text()


def test_a_reply_of_another_federation_is_refused(place: Place) -> None:
    first = Organisations(place)
    first.join(0)
    other = init(read(first.root / "config.toml"), first.root / "other", "127.0.0.1", 9200, rehearse=False)
    done = first.call("admit", other.coordinator.folder, first.own(0) / "reply.toml", code=2)
    assert "is for another federation" in done.err
    assert not list(other.coordinator.keys.glob("*.pub"))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("party = 0", "party = 1", "was not signed by the key in it"),
        ("Clinic 0", "Clinic X", "was not signed by the key in it"),
        ("ecdsa-sha2", "ssh-rsa", "is no public key"),
        ("signature =", "sig =", "unknown key"),
        ("[[party]]", "[party]", "is not [[party]]"),
    ],
)
def test_a_reply_that_was_changed_on_its_way(place: Place, before: str, after: str, told: str) -> None:
    some = Organisations(place)
    some.join(0)
    path = some.own(0) / "reply.toml"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))
    assert told in some.admit(0, code=2).err
    assert not (some.coordinator.keys / "party-0.pub").exists()


def test_another_key_needs_the_one_before_or_a_person(place: Place) -> None:
    some = Organisations(place).everybody()
    (some.own(0) / "node-key").unlink()
    assert "nobody vouches" in some.call("rotate", some.own(0)).out
    before = (some.coordinator.keys / "party-0.pub").read_bytes()
    assert "which the one before did not sign" in some.admit(0, code=2).err
    assert (some.coordinator.keys / "party-0.pub").read_bytes() == before
    some.admit(0, words=("--replace",))
    assert (some.coordinator.keys / "party-0.pub").read_bytes() != before
    done = some.pin(1, "--yes", code=2)
    assert "party 0: the key before did not sign this one" in done.err
    assert (some.own(1) / "peers" / "party-0.pub").read_bytes() == before
    some.pin(1, "--yes", "--replace")
    assert (some.own(1) / "peers" / "party-0.pub").read_bytes() != before


def test_one_key_for_two_parties_is_refused(place: Place) -> None:
    from privadmm.deploy.federation.setup.invitation import Peers, signed_reply

    some = Organisations(place)
    some.join(0)
    some.admit(0)
    key, federation = some.own(0) / "node-key", some.coordinator.reached.federation
    twin = signed_reply(1, federation, "Clinic 1", key, public_half(key))
    path = some.root / "twin.toml"
    path.write_text(Peers((twin,)).written("twin.toml"))
    assert "have the same key" in some.call("admit", some.fed, path, code=2).err


def test_pinning_asks_and_shows_one_code_to_all(place: Place) -> None:
    some = Organisations(place)
    for number in range(COUNT):
        some.join(number)
    some.admit(*range(COUNT))
    done = some.pin(0, "--json", code=2)  # nobody can be asked
    assert "nothing was changed" in json.loads(done.out.splitlines()[-1])["message"]
    assert not list((some.own(0) / "peers").glob("*.pub"))
    codes = {some.pin(number, "--yes", "--json").object["code"] for number in range(COUNT)}
    assert len(codes) == 1
    # A reply from its owner does as well as the coordinator's file, and shows another code if it differs.
    some.call("pin", some.own(0), some.own(1) / "reply.toml", "--yes")
    assert "as before" in some.call("pin", some.own(0), some.own(1) / "reply.toml", "--yes").out


def test_keys_are_compared_again_after_the_question(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else admits another key for the party while a person thinks: that key is not written over."""
    from privadmm.cli import federation_members as members
    from privadmm.deploy.federation.setup import joining
    from privadmm.deploy.federation.setup.invitation import Peers, signed_reply

    some = Organisations(place)
    some.join(0)
    reply, others = some.own(0) / "reply.toml", some.root / "others.toml"
    key = some.root / "node-key"
    keys.make_node_key(some.root)
    federation = some.coordinator.reached.federation
    others.write_text(Peers((signed_reply(0, federation, "Clinic 0", key, public_half(key)),)).written("others.toml"))

    def meanwhile(*_: object) -> bool:
        joining.admit(joining.look_at(some.coordinator, [others]))
        return True

    monkeypatch.setattr(members, "agreed", meanwhile)
    said = some.call("admit", some.fed, reply, code=2).err
    assert "another key" in said or "admitted while you were asked" in said
    kept = (some.coordinator.keys / "party-0.pub").read_bytes()
    assert keys.fingerprint(kept) == keys.fingerprint(public_half(key))


def test_admitting_shows_keys_and_asks(place: Place) -> None:
    """Where nobody can be asked nothing is taken, as by `pin`."""
    some = Organisations(place)
    for number in range(2):
        some.join(number)
    replies = [some.own(number) / "reply.toml" for number in range(2)]
    before = some.coordinator.peers.exists(), sorted(some.coordinator.keys.glob("*"))
    for words in ((), ("--json",)):
        done = some.call("admit", some.fed, *replies, *words, code=2)
        assert "nothing was changed; --yes" in done.out + done.err
        assert (some.coordinator.peers.exists(), sorted(some.coordinator.keys.glob("*"))) == before
    said = some.call("admit", some.fed, *replies, code=2).out
    for number in range(2):
        mark = keys.fingerprint(public_half(some.own(number) / "node-key"))
        assert f'{mark}  new  "Clinic {number}"' in said
    done = some.call("admit", some.fed, *replies, "--yes")
    assert ("Compare" in done.out, "No reply yet of party-2" in done.out) == (True, True)
    assert [path.name for path in sorted(some.coordinator.keys.glob("*.pub"))] == ["party-0.pub", "party-1.pub"]


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2)])
def test_a_person_is_asked_before_keys_are_admitted(
    answer: str, code: int, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = Organisations(place)
    some.join(0)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal(answer))
    some.call("admit", some.fed, some.own(0) / "reply.toml", code=code)
    assert (some.coordinator.keys / "party-0.pub").is_file() == (code == 0)


def test_a_coordinator_that_swaps_a_key_shows_another_code(place: Place) -> None:
    """Nothing but people who compare can tell; so the code must differ."""
    some = Organisations(place).everybody()
    honest = some.pin(0, "--yes", "--json").object["code"]
    impostor = some.root / "impostor"
    data = own_csv(some.root / "data.csv", 11)
    some.call("join", some.coordinator.invitations / "party-1.toml", "--out", impostor, "--records", data, "--yes")
    some.call("admit", some.fed, impostor / "reply.toml", "--replace", "--yes")
    assert some.pin(0, "--yes", "--replace", "--json").object["code"] != honest


def test_a_party_rotates_its_key(place: Place) -> None:
    some = Organisations(place, SECURE_FILES.replace("epsilon = 1.0", "epsilon = 1.0\nbudget = 5.0")).everybody()
    some.run()
    before = public_half(some.own(1) / "node-key")
    said = some.call("rotate", some.own(1), "--json").object
    assert said["fingerprint"] == keys.fingerprint(public_half(some.own(1) / "node-key"))
    assert [path.read_bytes() for path in (some.own(1) / "retired-keys").glob("*.pub")] == [before]
    assert stat.S_IMODE((some.own(1) / "node-key").stat().st_mode) == 0o600
    assert some.admit(1, words=("--json",)).object["admitted"][0]["state"] == "vouched"
    assert len(list(some.coordinator.retired.glob("party-1-*.pub"))) == 1
    for number in (0, 2):
        states = {one["party"]: one["state"] for one in some.pin(number, "--yes", "--json").object["peers"]}
        assert states == {1: "vouched", 2 - number: "same"}
    assert (some.own(0) / "peers" / "party-1.pub").read_bytes() != before
    some.run("runs/second")


def test_a_rotation_that_was_cut_short_is_finished(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    some = Organisations(place).everybody()
    plain = Path.replace

    def dies(self: Path, target: Path) -> Path:
        if self.name == "reply.toml.new":
            raise KeyboardInterrupt
        return plain(self, target)

    monkeypatch.setattr(Path, "replace", dies)
    some.call("rotate", some.own(0), code=1)
    monkeypatch.undo()
    monkeypatch.setattr("privadmm.cli.federation_members.registered", lambda place: None)
    fresh = public_half(some.own(0) / "node-key")
    some.call("rotate", some.own(0))
    assert public_half(some.own(0) / "node-key") == fresh
    some.admit(0)
    assert (some.coordinator.keys / "party-0.pub").read_bytes() == fresh


def test_the_coordinator_rotates_its_certificate(place: Place) -> None:
    some = Organisations(place).everybody()
    before = (some.coordinator.certificates / "server.pem").read_bytes()
    some.call("rotate", some.fed)
    folder = some.coordinator.certificates
    assert (folder / "server.pem").read_bytes() != before
    keys.check_certificate(folder / "server.pem", folder / "ca.pem", folder / "server-key.pem", "hub.example")
    some.run()  # parties change nothing
    (folder / "ca-key.pem").unlink()
    assert "have your authority issue one" in some.call("rotate", some.fed, code=2).err


def test_nothing_is_changed_while_a_run_is_under_way(place: Place) -> None:
    some = Organisations(place).everybody()
    changes = [("rotate", some.fed), ("rotate", some.fed, "--authority"), ("add", some.fed)]
    with driving(some.coordinator) as alone:
        assert alone
        for words in (*changes, ("withdraw", some.fed, 2, "--yes")):
            assert "a run is under way" in some.call(*words, code=2).err
    for words in changes:
        some.call(*words)


def test_the_coordinator_rotates_its_authority(place: Place) -> None:
    some = Organisations(place).everybody()
    some.call("rotate", some.fed, "--authority")
    with pytest.raises(Exception, match="was not signed by"):
        some.run()
    for number in range(COUNT):
        assert some.pin(number, "--yes", "--json").object["authority"] == "vouched"
    some.run("runs/second")


def test_an_authority_that_nobody_vouched_for(place: Place) -> None:
    some = Organisations(place).everybody()
    keys.make_authority(some.root / "other", "hub.example")
    text = some.coordinator.peers.read_text()
    ca = (some.coordinator.certificates / "ca.pem").read_text()
    some.coordinator.peers.write_text(text.replace(ca, (some.root / "other" / "ca.pem").read_text()))
    assert "the authority: the key before did not sign" in some.pin(0, "--yes", code=2).err
    assert (some.own(0) / "ca.pem").read_text() == ca


def test_a_fourth_party(place: Place) -> None:
    some = Organisations(place, SECURE_FILES.replace("epsilon = 1.0", "epsilon = 1.0\nbudget = 5.0")).everybody()
    some.run()
    said = some.call("add", some.fed, "--json").object
    assert (said["party"], said["parties"]) == (3, 4)
    some.join(3)
    some.admit(3)
    for number in range(4):
        some.pin(number)
    some.run("runs/second", count=4)
    assert "count = 4" in some.coordinator.job.read_text()


def test_the_last_party_withdraws(place: Place) -> None:
    some = Organisations(place, OWN_FILES.replace("epsilon = 1.0", "epsilon = 1.0\nbudget = 5.0")).everybody()
    assert "nothing was changed" in some.call("withdraw", some.fed, 2, code=2).err
    some.call("withdraw", some.fed, 2, "--yes")
    assert not (some.coordinator.keys / "party-2.pub").exists()
    assert {reply.party for reply in read_peers([some.coordinator.peers], None).replies} == {0, 1}
    peer = some.own(0) / "peers" / "party-2.pub"
    assert "Party 2 is pinned here and not in the file" in some.pin(0, "--yes").out
    assert peer.exists()  # the coordinator alone cannot make a party forget another
    some.pin(0, "--yes", "--drop", 2)
    assert not peer.exists()
    some.run(count=2)


def test_a_place_in_the_middle_is_filled_again(place: Place) -> None:
    some = Organisations(place).everybody()
    said = some.call("withdraw", some.fed, 1, "--yes", "--json").object
    assert "place 1 is empty" in said["done"]
    assert "there is a party 0 already" in some.call("add", some.fed, "--party", 0, code=2).err
    assert some.call("add", some.fed, "--json").object["party"] == 1
    some.own(1).parent.rename(some.root / "gone")
    some.join(1)
    some.admit(1)
    some.run()


def test_lists_of_parties_are_changed_by_people(place: Place) -> None:
    text = OWN_FILES.replace("[algorithm]", 'leave = ["2@2"]\n\n[algorithm]')
    some = Organisations(place, text, words=("--simulation",))
    job = some.coordinator.job.read_text()
    assert "[parties] leave" in some.call("add", some.fed, code=2).err
    assert some.coordinator.job.read_text() == job


def test_old_directories_rotate_too(place: Place) -> None:
    """Of a federation that was made before there were invitations."""
    some = Organisations(place).everybody()
    (some.coordinator.settings).unlink()
    (some.own(0) / "invitation.toml").unlink()
    some.call("rotate", some.own(0))
    some.admit(0)
    assert (some.coordinator.keys / "party-0.pub").read_bytes() == public_half(some.own(0) / "node-key")


def test_an_invitation_that_is_none(place: Place) -> None:
    some = Organisations(place)
    path = some.coordinator.invitations / "party-0.toml"
    text = path.read_text()
    for before, after, told in [
        ("party = 0", "party = 3", "invites party 3 of 3"),
        ("[policy]", "[polity]", "unknown section"),
        ("BEGIN CERTIFICATE", "BEGIN NOTHING", "is no certificate"),
        ("port = 9101", "port = 0", "port: is 0"),
        ("hub.example:9100", "hub.example", "and not HOST:PORT"),
        ("hub.example:9100", "\\u001b[2Jhub.example:9100", "control characters"),
        ('source = "data.csv"', 'source = "/etc/data.csv"', "names a file of somebody's machine"),
        ('source = "data.csv"', 'source = "embedded:adult"', "names a file of somebody's machine"),
        ("schema = {", 'schema = "/etc/schema.toml"\n# {', "names a file of somebody's machine"),
        ("[data]", "[data", "not valid TOML"),
    ]:
        assert before in text
        path.write_text(text.replace(before, after, 1))
        assert told in some.call("join", path, "--out", some.own(0), code=2).err
    assert not (some.own(0) / "node-key").exists()


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("reply", "a party's reply"),
        ("peers", "a peers.toml"),
        ("invitation", "the invitation of party 1"),
        ("party", "a party's party.toml"),
        ("config", "the config of a job"),
        ("settings", "coordinator.toml"),
        ("ledger", "a database, as ledgers are"),
        ("key", "A PRIVATE KEY"),
        ("ca", "a certificate"),
        ("csv", "perhaps a table of records"),
        (PNG, "a picture (PNG)"),
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"\xff\xfe\x00", "no text"),
        (b"{}", "a JSON file"),
        (b"[one]\n", "a TOML file with [one]"),
        (b"one = 1\n", "a TOML file without the sections"),
    ],
)
def test_a_file_in_the_place_of_another_is_called_what_it_is(given: str | bytes, what: str, place: Place) -> None:
    """And it is said what was expected, and which command makes that."""
    some = Organisations(place)
    some.join(0)
    here, hub = some.own(0), some.coordinator
    files = {"reply": here / "reply.toml", "peers": hub.peers, "invitation": hub.invitations / "party-1.toml"}
    files |= {"party": here / "party.toml", "config": some.root / "config.toml", "settings": hub.settings}
    files |= {"ledger": here / "ledger.sqlite", "key": here / "node-key", "ca": here / "ca.pem"}
    files["csv"] = here.parent / "data.csv"
    path = some.root / "given" if isinstance(given, bytes) else files[given]
    if isinstance(given, bytes):
        path.write_bytes(given)
    if given != "invitation":
        done = some.call("join", path, "--out", some.own(1), "--yes", code=2)
        for words in (f"{path}: is ", what, "an invitation was expected", "`privadmm federation init`"):
            assert words in done.err
        assert not some.own(1).exists()
    if given not in ("reply", "peers"):
        for words in (("admit", some.fed, path, "--yes"), ("pin", here, path, "--yes")):
            said = some.call(*words, code=2).err
            for part in (f"{path}: is ", what, "reply.toml", "`privadmm federation join`", "peers.toml"):
                assert part in said
    assert not list(hub.keys.glob("*.pub"))
    assert not list((here / "peers").iterdir())


def test_keys_of_another_federation(place: Place) -> None:
    some = Organisations(place)
    some.join(0)
    old = some.send(some.own(0) / "reply.toml", some.root / "mail")
    for folder in (some.fed, some.own(0).parent):
        folder.rename(some.root / f"gone-{folder.name}")
    other = Organisations(place)
    other.join(1)
    for words in (("admit", other.fed, old, "--yes"), ("pin", other.own(1), old, "--yes")):
        said = other.call(*words, code=2).err
        assert f"{old}: the reply of party 0 is for another federation" in said
        assert other.coordinator.reached.federation[:8] in said
        assert "`privadmm federation join`" in said
