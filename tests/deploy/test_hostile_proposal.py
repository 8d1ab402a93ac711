"""Hostile proposals: answers depend on party.toml, the ledger and declared facts, and on no file of records.

Two parties have the same party.toml and ledgers but different records: if hello and begin get the same answers from
both, the coordinator learns nothing of either file. The answer to a hello is of use to the one who asked only.
"""

import json
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.config.file import read
from privadmm.deploy.federation import letters
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.desk.records import announce
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import neutral, written
from privadmm.deploy.federation.protocol import Letter
from privadmm.deploy.federation.setup.init import Made, init
from privadmm.deploy.federation.setup.joining import with_ledger
from privadmm.errors import ClusterError, RefusedError
from small_runs import PRIVATE, with_changes

pytest.importorskip("cryptography")
from federations import OWN_FILES, Desks, Federated, federated, joined

pytestmark = pytest.mark.usefixtures("skipped_plots")

ROWS = OWN_FILES.format(count=2, more='id = "name"')
COLUMNS = """
[data]
source = "labels.csv"
label = "y"
classes = ["no", "yes"]
row_bound = 2.0
id = "name"

[parties]
count = 2
split = "features"

[algorithm]
name = "sharing"
rounds = 3
column_bound = 1.0

[privacy]
epsilon = 1.0
delta = 1e-5
adjacency = "column"

[run]
seed = 1
"""
PEOPLE = 10


@dataclass(frozen=True)
class Two:
    """One party's directory twice, with different records, and the coordinator that asks them."""

    made: Made
    folders: tuple[Path, Path]

    @property
    def text(self) -> str:
        return written(neutral(read(self.made.coordinator.job)))

    def begin(self, text: str, number: int = 1, **facts: Any) -> list[dict[str, Any]]:
        """The answers of both to a begin and then to forgetting the job; asking costs nothing."""
        job = f"{number:032x}"
        proposal = {"id": job, "text": text, "sizes": [PEOPLE] * 2, "dim": 3, "columns": [], **facts}
        letter: Letter = {"kind": "begin", "proposal": json.dumps(proposal).encode(), "heads": "[]"}
        said = [dict(answer(folder, letter)) for folder in self.folders]
        for folder in self.folders:
            assert answer(folder, {"kind": "give_up", "job": job})["status"] == "ok"
        return said

    def hello(self, text: str) -> list[dict[str, Any]]:
        letter = asking(self.made, text)
        said = [dict(answer(folder, letter)) for folder in self.folders]
        for one in said:
            one.pop("signature", None)  # another every time
        return said


def asking(made: Made, text: str, nonce: str | None = None) -> dict[str, Any]:
    """A hello from this federation's coordinator."""
    from privadmm.deploy.federation.keys import Credentials

    own = Credentials(made.coordinator.certificates)
    return dict(own.hello(own.greeting(nonce or secrets.token_hex(16), text), text))


def twice(folder: Path, config: str, first: list[str], second: list[str], bound: bool = True) -> Two:
    """Make two copies of a party, with a `bound` on rows in the policy or only in [data]."""
    (folder / "config.toml").write_text(config)
    made = init(read(folder / "config.toml"), folder / "federation", "127.0.0.1", 9100, rehearse=False)
    party = joined(made)[0]
    path = party / "party.toml"
    path.write_text(path.read_text().replace("# records = ...", f"records = {PEOPLE}"))
    if not bound:
        assert "row_bound = 2.0\nepsilon" in path.read_text()
        path.write_text(path.read_text().replace("row_bound = 2.0\nepsilon", "epsilon"))
    with_ledger(party)
    other = folder / "other"
    shutil.copytree(party, other)
    for place, lines in ((party, first), (other, second)):
        (place / "data.csv").write_text("\n".join(lines) + "\n")
        announce(read_party(place), neutral(read(made.coordinator.job)))
    return Two(made, (party, other))


@pytest.fixture
def rows(tmp_path: Path) -> Two:
    rng = np.random.default_rng(0)
    ages = rng.integers(20, 60, PEOPLE)
    first = [f"{'yes' if age > 40 else 'no'},{age},clerk,p{row},1,x" for row, age in enumerate(ages)]
    second = [f"{'no' if age > 30 else 'yes'},{age + 1},smith,q{row}" for row, age in enumerate(ages)]
    return twice(tmp_path, ROWS, ["y,age,job,name,site,secret", *first], ["y,age,job,name", *second])


@pytest.fixture
def columns(tmp_path: Path) -> Two:
    def table(largest: float) -> list[str]:
        cells = [f"p{row},{row},{largest if row == 3 else 0.5}" for row in range(PEOPLE)]
        return ["name,f0,f1", *cells]

    return twice(tmp_path, COLUMNS, table(0.7), table(1e300), bound=False)


def changed(text: str, *changes: tuple[str, str]) -> str:
    for before, after in changes:
        assert before in text, before
        text = text.replace(before, after)
    return text


D, P, A, R = "[data]\n", "[parties]\n", "[algorithm]\n", "[run]\n"
COUNT = "count = 2"
SCHEMA = 'schema = { "age" = [0.0, 100.0], "job" = ["clerk", "smith"] }'
SPLIT: tuple[str, str] = (COUNT, 'split = "features"\ncount = 2')
ASKED: dict[str, tuple[tuple[str, str], ...]] = {
    "a column that one file has": ((COUNT, 'split = "column:site"'),),
    "another that one file has": ((COUNT, 'split = "column:secret"'),),
    "a column that both have": ((COUNT, 'split = "column:age"'),),
    "a column that none has": ((COUNT, 'split = "column:none"'),),
    "a column, and how many": ((P, P + 'split = "column:site"\n'),),
    "by labels": ((P, P + 'split = "dirichlet:0.3"\n'),),
    "parties of columns, a method for records": (SPLIT,),
    "parties of columns": (SPLIT, ('name = "dp_admm"', 'name = "admm_sharing"'), ("D_w = 5.0", "")),
    "the first party alone": (SPLIT, (P, P + 'use = "first"\n')),
    "sizes": ((P, P + f"sizes = [{PEOPLE}, {PEOPLE}]\n"),),
    "sizes in place of a count": ((COUNT, f"sizes = [{PEOPLE}, {PEOPLE}]"),),
    "columns by name": (SPLIT, (P, P + 'columns = [["age"], ["secret"]]\n')),
    "files": (SPLIT, (P, P + 'files = ["data.csv", "../other/data.csv"]\n')),
    "bounds of rows": (SPLIT, (P, P + "row_bounds = [1e-300, 2.0]\n")),
    "a seed of the split": ((P, P + "seed = 3\n"),),
    "another label": (('label = "y"', 'label = "secret"'),),
    "other classes": (('classes = ["no", "yes"]', 'classes = ["yes", "no"]'),),
    "another column": ((SCHEMA, SCHEMA[:-2] + ', "secret" = ["x"] }'),),
    "another range": ((SCHEMA, SCHEMA.replace("100.0", "39.0")),),
    "no schema": ((SCHEMA, ""), ('"own.csv"', '"own.npz"')),
    "another id": (('id = "name"', 'id = "site"'),),
    "no id": (('id = "name"', ""),),
    "another source": (('"own.csv"', '"data.csv"'),),
    "a file for each party": (('"own.csv"', '"{party}.csv"'),),
    "a format": ((D, D + 'format = "parquet"\n'),),
    "a number of features": ((D, D + "dim = 4\n"),),
    "unit rows": (("row_bound = 2.0", 'rows = "unit"'),),
    "another bound": (("row_bound = 2.0", "row_bound = 1.0"),),
    "an intercept": ((D, D + "intercept = 0.5\n"),),
    "another encoding": ((D, D + 'encoding = "binned"\n'),),
    "what is not a number": ((D, D + 'on_bad = "default"\n'),),
    "some held out": (("test_fraction = 0.0", "test_fraction = 0.5"),),
    "another ledger": ((R, R + 'ledger = "other.sqlite"\n'),),
    "memory": ((R, R + 'memory = "1 kB"\n'),),
    "another engine": ((R, R + 'engine = "dask"\n'),),
    "no seed": (("seed = 1", ""),),
    "a deployment": (("seed = 1", 'mode = "deployment"'),),
    "not private": (("[privacy]\nepsilon = 1.0\ndelta = 1e-05", ""), ('"dp_admm"', '"admm_star"'), ("D_w = 5.0", "")),
    "other neighbours": (("delta = 1e-05", 'delta = 1e-05\nadjacency = "label"'),),
    "randomised labels": (("delta = 1e-05", "delta = 1e-05\nlabel_epsilon = 1.0"),),
    "another algorithm": (('name = "dp_admm"', 'name = "pvp"'), ("D_w = 5.0", "")),
    "a label that is a number": ((A, '[loss]\nname = "squared"\nlabel_bound = 1.0\nradius = 1.0\n\n' + A),
                                 ('classes = ["no", "yes"]', "")),
    "no TOML": (("[data]", "[data"),),
}  # fmt: skip


@pytest.mark.parametrize("changes", ASKED.values(), ids=ASKED.keys())
def test_what_a_proposal_asks_of_records_is_what_the_party_declares(
    changes: tuple[tuple[str, str], ...], rows: Two
) -> None:
    text = changed(rows.text, *changes)
    for said in (rows.begin(text), rows.begin(text, 2, columns=[3, 3]), rows.hello(text)):
        assert said[0] == said[1]
        assert (said[0]["status"], "facts" in said[0]) in (("refused", False), ("failed", False))
    # Both accept the job that they declare.
    for said in (rows.begin(rows.text, 3), rows.hello(rows.text)):
        assert [one["status"] for one in said] == ["ok", "ok"]
        assert said[0] == said[1]


def test_begin_does_not_tell_which_columns_a_file_has(rows: Two) -> None:
    """The attack: begin, see whether it is accepted, give up; repeated at will, and the ledger stays empty."""
    learnt = []
    for number, name in enumerate(("site", "secret", "age", "none")):
        said = rows.begin(changed(rows.text, (COUNT, f'split = "column:{name}"')), number)
        learnt.append([one["status"] for one in said])
    assert learnt == [["refused", "refused"]] * 4


FACTS: dict[str, dict[str, Any]] = {
    "another size": {"sizes": [PEOPLE - 1, PEOPLE]},
    "no size": {"sizes": []},
    "fewer parties": {"sizes": [PEOPLE]},
    "more parties": {"sizes": [PEOPLE] * 3},
    "another width": {"dim": 4},
    "a width of nothing": {"dim": 0},
    "sizes that are no numbers": {"sizes": ["10", 10]},
    "sizes that are fractions": {"sizes": [10.5, 10]},
    "sizes beyond all numbers": {"sizes": [10, 10**40]},
    "columns": {"columns": [3, 3]},
    "columns of one": {"columns": [3]},
    "no table": {"sizes": None},
    "an id that is a path": {"id": "../../x"},
}


@pytest.mark.parametrize("facts", FACTS.values(), ids=FACTS.keys())
def test_the_facts_beside_the_text_are_compared_too(facts: dict[str, Any], rows: Two) -> None:
    said = rows.begin(rows.text, **facts)
    assert said[0] == said[1]
    assert (said[0]["status"], said[0]["error"]) == ("refused", "RefusedError")


def test_a_bound_that_somebody_else_chose_tells_nothing(columns: Two) -> None:
    """Divided by a tiny bound, large entries overflow and small ones do not: one refusal would tell the largest."""
    texts = [changed(columns.text, (P, f"{P}row_bounds = [{bound}, 2.0]\n")) for bound in (1e-50, 1e-5, 1.0)]
    begun = [columns.begin(text, number, dim=PEOPLE, columns=[2, 2]) for number, text in enumerate(texts)]
    assert [one["status"] for said in begun for one in said] == ["refused"] * 6
    for said in (*begun, *map(columns.hello, texts)):
        assert said[0] == said[1]
        assert "party.toml clips rows to 2" in said[0]["message"]
    for number, text in enumerate((columns.text, changed(columns.text, (P, P + "row_bounds = [2.0, 1.0]\n")))):
        said = columns.begin(text, 10 + number, dim=PEOPLE, columns=[2, 2])
        assert [one["status"] for one in said] == ["ok", "ok"]


BROKEN: dict[str, str | None] = {
    "no file": None,
    "a cell that is no number": "y,age,job,name\n" + "yes,old,clerk,p\n" * PEOPLE,
    "a label of no class": "y,age,job,name\n" + "maybe,30,clerk,p\n" * PEOPLE,
    "a record less": "y,age,job,name\n" + "yes,30,clerk,p\n" * (PEOPLE - 1),
    "no such column": "y,age,name\n" + "yes,30,p\n" * PEOPLE,
    "no text": "\udcff",
    "empty": "",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN.keys())
def test_a_file_that_cannot_be_read_is_told_in_the_same_words_whatever_is_asked(content: str | None, rows: Two) -> None:
    for folder in rows.folders:
        (folder / "data.csv").unlink()
        if content is not None:
            (folder / "data.csv").write_bytes(content.encode("utf-8", "surrogateescape"))
    others = [
        rows.text,
        changed(rows.text, ("rounds = 3", "rounds = 7")),
        changed(rows.text, ("D_w = 5.0", "D_w = 0.1")),
    ]
    greeted = [one for text in others for one in rows.hello(text)]
    assert {(one["status"], one["facts"]) for one in greeted} == {("ok", greeted[0]["facts"])}  # nothing was opened
    said = [one for i, text in enumerate(others) for one in rows.begin(text, i)]
    for one in said:
        assert one == {"status": "failed", "party": 0, "error": "DataError", "message": said[0]["message"]}
    assert "requests.log" in said[0]["message"]
    log = (rows.folders[0] / "requests.log").read_text()
    assert "cannot be read as party.toml declares" in log or "party.toml declares records = 10" in log


STAR = with_changes(PRIVATE, {"algorithm": {"rounds": 2}})


def two_federations(folder: Path) -> tuple[Federated, Federated]:
    """Two federations; party 1 is in both, with one key."""
    places = [folder / "a", folder / "b"]
    for place in places:
        place.mkdir()
    first, second = (federated(place, STAR) for place in places)
    (second.folders[1] / "node-key").write_bytes((first.folders[1] / "node-key").read_bytes())
    known = [made.made.coordinator.keys / "party-1.pub" for made in (first, second)]
    known[1].write_bytes(known[0].read_bytes())
    return first, second


@dataclass
class Relaying(Desks):
    """The coordinator of another federation with a node here: it passes our hello on to party 1 there."""

    elsewhere: Path = Path()
    own: Made | None = None  # it asks in its own name, with our nonce

    def ask(self, party: int, letter: Letter) -> Letter:
        if party == 1 and letter["kind"] == "hello":
            if self.own is not None:
                letter = asking(self.own, str(letter["text"]), str(letter["nonce"]))
            said = answer(self.elsewhere, letter)
            self.captured.append((party, letter, said))
            return said
        return super().ask(party, letter)


def test_a_question_serves_in_one_federation(tmp_path: Path) -> None:
    here, there = two_federations(tmp_path)
    with pytest.raises(RefusedError, match=r"not signed by ca\.pem"):
        here.run(Relaying(here.folders, elsewhere=there.folders[1]))
    assert here.run()["rounds"] == 2  # party 1 itself is accepted


def test_an_answer_serves_in_one_federation(tmp_path: Path) -> None:
    here, there = two_federations(tmp_path)
    post = Relaying(here.folders, elsewhere=there.folders[1], own=there.made)
    with pytest.raises(ClusterError, match=r"party 1 .*another federation"):
        here.run(post)
    assert [said["status"] for party, _, said in post.captured if party == 1] == ["ok"]


def test_one_authority_for_two_coordinators(tmp_path: Path) -> None:
    """If one organisation signs all its servers, the coordinators differ by their own keys."""
    from cryptography.hazmat.primitives import serialization

    from privadmm.deploy.federation import keys

    here, there = two_federations(tmp_path)
    ours, theirs = here.made.coordinator.certificates, there.made.coordinator.certificates
    authority: Any = serialization.load_pem_private_key((ours / "ca-key.pem").read_bytes(), None)
    server: Any = serialization.load_pem_private_key((theirs / "server-key.pem").read_bytes(), None)
    (theirs / "server.pem").write_bytes(keys.issue("127.0.0.1", server.public_key(), authority))
    for path in (theirs / "ca.pem", *(folder / "ca.pem" for folder in there.folders)):
        path.write_bytes((ours / "ca.pem").read_bytes())
    assert there.run()["rounds"] == 2
    with pytest.raises(ClusterError, match="says that it is party 1"):
        here.run(Relaying(here.folders, elsewhere=there.folders[1], own=there.made))


TAMPERED: dict[str, tuple[dict[str, Any], str]] = {
    "another nonce": ({"nonce": "0" * 32}, "was not signed for this federation"),
    "a nonce of any length": ({"nonce": "0"}, "nonce"),
    "another proposal": ({"text": "# \n"}, "was not signed for this federation"),
    "no signature": ({"signature": None}, "signature"),
    "a signature that is none": ({"signature": "xyz"}, "was not signed for this federation"),
    "no certificate": ({"certificate": None}, "certificate"),
    "a certificate that is none": ({"certificate": "-----BEGIN"}, "certificate"),
}


@pytest.mark.parametrize(("changes", "told"), TAMPERED.values(), ids=TAMPERED.keys())
def test_a_hello_that_was_changed_on_its_way(changes: dict[str, Any], told: str, rows: Two) -> None:
    letter = asking(rows.made, rows.text)
    assert answer(rows.folders[0], letter)["status"] == "ok"
    if "text" in changes:
        changes = {"text": changes["text"] + rows.text}
    given = {key: value for key, value in {**letter, **changes}.items() if value is not None}
    said = answer(rows.folders[0], given)
    assert said["status"] == "refused"
    assert told in str(said["message"])


def test_a_coordinator_of_another_host(rows: Two) -> None:
    path = rows.folders[0] / "party.toml"
    path.write_text(path.read_text().replace('"127.0.0.1:9100"', '"coordinator.example:9100"'))
    said = answer(rows.folders[0], asking(rows.made, rows.text))
    assert (said["status"], "is not for coordinator.example" in str(said["message"])) == ("refused", True)


SAID: dict[str, Any] = {
    "no table": 7,
    "no names": {"names": None},
    "names that are numbers": {"names": [1, 2, 3]},
    "a party that is a text": {"party": "1"},
    "a party that is true": {"party": True},
    "a negative number of records": {"records": -5},
    "no records": {"records": 0},
    "more records than numbers go": {"records": 10**40},
    "a fraction": {"records": 16.0},
    "more columns than names": {"width": 10**9, "dim": 10**9},
    "another width of messages": {"dim": 9},
    "people that are no digest": {"people": "everybody"},
    "a party that this is not": {"party": 2},
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID.keys())
def test_what_no_party_says_of_itself_names_the_node(said: Any, tmp_path: Path) -> None:
    """The answer is signed with its own key, so the party itself sent it."""
    from privadmm.deploy.federation import keys

    made = federated(tmp_path, STAR)

    class Boasting(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            heard = super().ask(party, letter)
            if party != 1 or letter["kind"] != "hello":
                return heard
            told = {**json.loads(str(heard["facts"])), **said} if isinstance(said, dict) else said
            folder = made.folders[1]
            hello = letters.read(letter)
            assert isinstance(hello, letters.Hello)
            greeting = keys.greeted(hello, folder / "ca.pem", "127.0.0.1")
            seal = keys.seal(folder / "node-key", greeting.answer(json.dumps(told)))
            return {**heard, "facts": json.dumps(told), "signature": seal}

    with pytest.raises(ClusterError, match=r"^node 101 (sent what no party says of itself|says that it is party 2)"):
        made.run(Boasting(made.folders))


def test_a_coordinator_with_an_rsa_key(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    from privadmm.deploy.federation import keys

    key = rsa.generate_private_key(65537, 2048)
    path = tmp_path / "key.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    signature = keys.seal(path, b"words")
    public = keys.public(key.public_key())
    assert keys.sealed(public, b"words", signature)
    assert not keys.sealed(public, b"other words", signature)
