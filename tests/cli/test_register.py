"""`ledger show` and `ledger register`: what a steward sees, and what leaves the house signed."""

import csv
import json
import re
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ledgers import NOISE, ONE, TWO, opened, pay
from privadmm.cli.views.ledger_text import figures
from privadmm.errors import DataError, RefusedError
from privadmm.privacy.accounting import rounded_down
from privadmm.privacy.ledger import Asked
from privadmm.privacy.refusals import recording
from privadmm.runs import register as document
from small_runs import PARTIES, Place, write_npz

pytest.importorskip("cryptography")
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from privadmm.deploy.federation.keys import make_node_key
from privadmm.deploy.federation.signing import public_of

ASKED = Asked("readmissions", "Dr. A", "dp_admm", "c" * 64, "St. Mary's")
EVIL = Asked("=cmd|' /C calc'!A0", "\x1b[31m<script>\u202e", "+1", "@x", "-2+3")


def ledger(path: Path, asked: Asked = ASKED) -> Path:
    """A finished job, an open one, and a refusal that came three times."""
    path.parent.mkdir(exist_ok=True)
    with closing(opened(path)) as made:
        made.reserve(ONE, {0: ((NOISE, 2),)}, asked)
        made.reserve(TWO, {0: ((NOISE, 3),)}, asked)
        for _ in range(3):
            with suppress(RefusedError), recording(made, asked):
                made.reserve("3" * 32, {0: ((NOISE, 10**6),)}, asked)
    pay(path, 0, 1)
    pay(path, 0, job=TWO)
    return path


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_node_key(tmp_path, "key")
    return tmp_path / "key"


def test_show_says_budget_spent_set_aside_and_left(place: Place, tmp_path: Path) -> None:
    path = ledger(tmp_path / "party.sqlite")
    found = place.call("ledger", "show", path, "--json").object
    (party,) = found["parties"]
    assert party["epsilon_budget"] == 2.0
    assert party["epsilon_set_aside"] > 0
    taken = party["epsilon_spent"] + party["epsilon_set_aside"]
    assert party["epsilon_left"] == pytest.approx(2.0 - taken)
    assert taken == pytest.approx(party["epsilon_with_reservations"])
    first, second = found["jobs"]
    assert (first["state"], first["epsilon_set_aside"]) == ("finished", 0)
    assert (second["state"], second["ended"]) == ("open", None)
    assert second["epsilon_set_aside"] > 0
    for job in (first, second):
        assert (job["purpose"], job["requester"], job["algorithm"]) == ("readmissions", "Dr. A", "dp_admm")
        assert job["admitted"].endswith("Z")
    assert [(one["kind"], one["times"]) for one in found["refusals"]] == [("budget", 3)]
    text = place.call("ledger", "show", path).out
    for words in ("St. Mary's", "readmissions", "Dr. A", "left of 2", "3 times"):
        assert words in text
    assert party["epsilon_next"] > party["epsilon_left"]
    said = " ".join(text.split())
    assert f"a further job with Gaussian noise may ask for up to {rounded_down(party['epsilon_next'])}" in said
    assert "1 different request" in said
    assert "1 different requests" not in said
    assert "jobs must tolerate that a third of their parties collude; a sum has at least nine tenths" in said
    (finished,) = [line for line in text.splitlines() if "finished" in line]
    assert "set aside" not in finished


@pytest.mark.parametrize(("left", "following", "told"), [(9e-10, 2e-5, False), (0.5, 0.9, True), (0.5, 0.1, False)])
def test_a_further_job_is_spoken_of_where_it_may_ask_for_more_than_is_left(
    left: float, following: float, told: bool
) -> None:
    party = {"releases": 3, "epsilon_budget": 1.0, "epsilon_spent": 1.0 - left, "epsilon_set_aside": 0.0}
    said = figures(party | {"epsilon_left": left, "epsilon_next": following})
    assert ("a further job" in said) == told


def test_show_of_a_spent_budget_says_that_nothing_is_left(place: Place) -> None:
    """And of one party, one round and one sum it speaks in the singular."""
    file = place.path / "party.sqlite"
    words = ("--parties", PARTIES, "--delta", 1e-5, "--mode", "simulation", "--colluding", 1, "--fewest", 2)
    place.call("ledger", "create", file, *words, "--epsilon", 1)
    place.train(place.config(run={"ledger": file.name}, algorithm={"rounds": 1}))
    found = place.call("ledger", "show", file, "--json").object["parties"][0]
    assert (found["epsilon_left"], found["epsilon_next"]) == (pytest.approx(0.0, abs=1e-9), 0.0)
    said = " ".join(place.call("ledger", "show", file).out.split())
    assert "0 left of 1" in said
    assert "a further job" not in said
    assert "finished, 1 round, epsilon 1 spent" in said
    assert "1 release)" in said
    assert "jobs must tolerate 1 colluding party; a sum has at least 2 parties" in said


def test_the_next_epsilon_is_what_a_job_may_ask_for(place: Place) -> None:
    """With noise from a seed, which is Gaussian: a little more is refused."""
    file = place.path / "party.sqlite"
    words = ("--parties", PARTIES, "--delta", 1e-5, "--mode", "simulation")
    place.call("ledger", "create", file, *words, "--epsilon", 1.2)
    done = place.train(place.config(run={"ledger": file.name}, algorithm={"rounds": 2}))
    most = place.call("ledger", "show", file, "--json").object["parties"][0]["epsilon_next"]
    said = " ".join(done.out.split())
    assert f"another run may ask for up to {most:.4g} (more than the plain rest of 0.2, since" in said
    for asked, code in ((most * 1.001, 3), (most * 0.999, 0)):
        again = place.config(run={"ledger": file.name}, privacy={"epsilon": asked}, algorithm={"rounds": 2})
        assert place.train(again, out=place.path / f"ended-{code}").code == code
    place.call("ledger", "amend", file, "--per-job", 0.01, "--epsilon", 9, "--because", "small ones")
    assert place.call("ledger", "show", file, "--json").object["parties"][0]["epsilon_next"] == 0.01


@pytest.mark.parametrize("asked", [ASKED, EVIL], ids=["plain", "evil"])
def test_show_fits_a_narrow_terminal_and_moves_no_cursor(
    place: Place, tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    ledger(tmp_path / "some" / "party.sqlite", asked)
    for words in (("show", "some/party.sqlite"), ("show", "some"), ("show", ".")):
        text = place.call("ledger", *words).out
        assert max(map(len, text.splitlines())) <= 80
        assert all(sign.isprintable() or sign == "\n" for sign in text)


def test_show_takes_a_folder_of_ledgers(place: Place, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "all").mkdir(exist_ok=True)
        ledger(tmp_path / "all" / name / "ledger.sqlite")
    found = place.call("ledger", "show", tmp_path / "all", "--json").object
    assert [Path(one["file"]).parent.name for one in found["ledgers"]] == ["a", "b"]
    assert place.call("ledger", "show", tmp_path / "all").out.count("St.") == 2
    (tmp_path / "none").mkdir()
    assert "holds no ledgers" in place.call("ledger", "show", tmp_path / "none").err


def written(place: Place, tmp_path: Path, key: Path | None, asked: Asked = ASKED) -> Path:
    path, out = ledger(tmp_path / "party.sqlite", asked), tmp_path / "register.json"
    sign = () if key is None else ("--sign", key)
    assert place.call("ledger", "register", path, "--out", out, *sign).code == 0
    return out


def verified(place: Place, out: Path, *more: Any) -> tuple[int, dict[str, Any]]:
    said = place.call("ledger", "verify", out, *more, "--json")
    return said.code, said.object


def test_a_signed_register_is_verified_and_names_its_signer(place: Place, tmp_path: Path, key: Path) -> None:
    out = written(place, tmp_path, key)
    believed = tmp_path / "key.pub"
    believed.write_bytes(public_of(key))
    code, found = verified(place, out, "--key", believed, "--against", tmp_path / "party.sqlite")
    assert (code, found["ok"], found["signed"], found["ledgers"]) == (0, True, True, ["St. Mary's"])
    content = json.loads(out.read_text())["content"]
    (one,) = content["ledgers"]
    assert one["jobs"][0]["purpose"] == "readmissions"
    assert one["refusals"][0]["times"] == 3
    assert one["parties"][0]["epsilon_budget"] == 2.0
    rows = list(csv.DictReader(out.with_suffix(".csv").read_text().splitlines()))
    assert [row["what"] for row in rows] == ["job", "job", "refused"]


def test_an_unsigned_register_is_not_called_signed(place: Place, tmp_path: Path, key: Path) -> None:
    out = written(place, tmp_path, None)
    assert verified(place, out)[1]["signed"] is False
    believed = tmp_path / "key.pub"
    believed.write_bytes(public_of(key))
    assert verified(place, out, "--key", believed)[0] == 1


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a nested table."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [way for key, part in inner for way in leaves(part, (*at, key))] or [at]


def test_whatever_is_changed_in_a_register_shows(place: Place, tmp_path: Path, key: Path) -> None:
    out = written(place, tmp_path, key)
    whole = out.read_text()
    ways = leaves(json.loads(whole))
    assert len(ways) > 60
    for way in ways:
        changed = json.loads(whole)
        part = changed
        for step in way[:-1]:
            part = part[step]
        part[way[-1]] = f"{part[way[-1]]}x"
        out.write_text(document.written(changed))
        with suppress(DataError):  # of another shape than any register
            assert not document.check(out, None)["ok"], way
    out.write_text(whole)
    assert document.check(out, None)["ok"]
    table = out.with_suffix(".csv")
    table.write_text(table.read_text().replace("readmissions", "marketing"))
    assert not document.check(out, None)["ok"]


@pytest.mark.parametrize("field", ['"epsilon_spent": 0.0001,', '"purpose": "none",'])
def test_a_field_that_stands_twice_or_beside_shows(place: Place, tmp_path: Path, key: Path, field: str) -> None:
    """A reader sees the first of two equal names, a parser the second."""
    out = written(place, tmp_path, key)
    whole = out.read_text()
    name = field.split(":")[0]
    assert f"{name}:" in whole
    twice = whole.replace(f"{name}:", f"{field} {name}:", 1)
    beside = whole.replace("{", '{"note": "epsilon is 0",', 1)
    for text in (twice, beside):
        out.write_text(text)
        with pytest.raises(DataError, match="not as it was written"):
            document.check(out, None)


def test_another_key_or_another_ledger_shows(place: Place, tmp_path: Path, key: Path) -> None:
    out = written(place, tmp_path, key)
    believed = tmp_path / "other.pub"
    believed.write_bytes(make_node_key(tmp_path, "other"))
    code, found = verified(place, out, "--key", believed)
    assert code == 1
    assert "not signed by the key" in found["problems"][0]
    stranger = ledger(tmp_path / "stranger.sqlite")
    code, found = verified(place, out, "--against", stranger)
    assert code == 1
    assert place.call("ledger", "verify", stranger, "--key", believed).code == 2


def test_what_was_not_checked_is_said(place: Place, tmp_path: Path, key: Path) -> None:
    out = written(place, tmp_path, key)
    assert verified(place, out)[1]["table"] == str(out.with_suffix(".csv"))
    out.with_suffix(".csv").unlink()
    assert verified(place, out)[1]["table"] is None
    assert "not beside it, and not checked" in place.call("ledger", "verify", out).out
    said = place.call("ledger", "verify", tmp_path / "missing.json", "--key", key)
    assert (said.code, "there is no such file" in said.err) == (2, True)


def test_a_key_that_cannot_sign_is_named_with_one_that_can(place: Place, tmp_path: Path) -> None:
    key = tmp_path / "ed25519"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    key.write_bytes(ed25519.Ed25519PrivateKey.generate().private_bytes(*form))
    path = ledger(tmp_path / "party.sqlite")
    said = place.call("ledger", "register", path, "--out", tmp_path / "register.json", "--sign", key)
    assert said.code == 2
    assert "ssh-keygen -t ecdsa" in said.err


def test_no_cell_of_the_table_is_a_formula_or_hides_text(place: Place, tmp_path: Path) -> None:
    out = written(place, tmp_path, None, EVIL)
    text = out.with_suffix(".csv").read_text()
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    for row in csv.reader(text.splitlines()):
        assert not [cell for cell in row if cell.lstrip()[:1] in set("=+-@|%")]


@pytest.mark.parametrize("text", ["a;=cmd|' /C calc'!A0", "\uff1d1+1", "x, @sum", 'y"\t-1', " +1"])
def test_no_separator_makes_a_formula(text: str) -> None:
    """Whatever a spreadsheet splits at, what is behind it begins with an apostrophe."""
    for part in re.split('[;,\t"]', document.cell(text)):
        assert part.lstrip()[:1] not in set("=+-@|%\uff1d\uff0b\uff0d\uff20")


@pytest.mark.parametrize("content", ["{", "{}", '{"content": {}}', '{"content": []}', "{" * 100_000])
def test_what_is_no_register_is_named(place: Place, tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    said = place.call("ledger", "verify", path)
    assert said.code == 1
    assert "is no register" in said.err


def test_what_a_run_is_for_is_kept_from_the_command_line_on(place: Place) -> None:
    write_npz(place.path / "data.npz")
    config = place.config(run={"requester": "the file's"})
    assert place.train(config, "--purpose", "readmissions", "--requester", "Dr. A").code == 0
    (job,) = place.call("ledger", "show", place.out / "ledger.sqlite", "--json").object["jobs"]
    assert (job["purpose"], job["requester"], job["algorithm"]) == ("readmissions", "Dr. A", "dp_admm")
    assert job["admitted"] is None  # a simulation has no clock
    card = place.call("report", place.out, "--json").object
    assert (card["requests"][0]["purpose"], card["requests"][0]["requester"]) == ("readmissions", "Dr. A")
    said = place.train(config, "--purpose", "two\nlines", out=place.path / "other")
    assert said.code == 2
    assert "--purpose" in said.err


def test_a_run_that_the_ledger_refuses_is_in_its_register(place: Place) -> None:
    write_npz(place.path / "data.npz")
    file, shared = place.path / "party.sqlite", {"ledger": "party.sqlite", "purpose": "again"}
    assert place.train(place.config(run=shared)).code == 0
    said = place.train(place.config(run=shared), out=place.path / "other")
    assert said.code == 3
    found = place.call("ledger", "show", file, "--json").object
    assert [(one["kind"], one["purpose"], one["times"]) for one in found["refusals"]] == [("budget", "again", 1)]
    assert "(purpose: again)" in " ".join(place.call("ledger", "show", file).out.split())
