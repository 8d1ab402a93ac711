"""A ledger and party.toml that differ: what the steward is told to set so that they agree."""

import re
from pathlib import Path

import pytest

pytest.importorskip("cryptography")
from federations import Federated, federated
from privadmm.deploy.federation.desk.party_server import Desk
from privadmm.deploy.federation.party import read as read_party
from small_runs import PRIVATE, Place


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    return federated(tmp_path, PRIVATE)


AMENDMENTS = [
    (("--epsilon", "40"), ["[policy] epsilon = 40.0"]),
    (("--delta", "1e-9", "--per-job", "2"), ["[policy] delta = 1e-09", "[policy] per_job = 2.0"]),
    (("--limit", "rounds=77", "--silent-days", "3"), ["[limits] rounds = 77", "[policy] silent_days = 3.0"]),
    (("--drop", "row-bound"), ["[policy] without row_bound"]),
]


@pytest.mark.parametrize(("words", "settings"), AMENDMENTS)
def test_a_ledger_that_was_amended_by_itself_says_what_party_toml_needs(
    words: tuple[str, ...], settings: list[str], made: Federated, place: Place
) -> None:
    """And `check` says the same: to amend the ledger again would undo what its steward decided."""
    ledger, folder = made.ledgers[1], made.folders[1]
    done = place.call("ledger", "amend", ledger, *words, "--because", "the board decided")
    found = place.call("federation", "check", folder, "--json").object["checked"][str(folder)]
    (wrong,) = [one for one in found if one["what"] == "ledger"]
    amend = f"`privadmm federation ledger {folder} --amend"
    for said in (done.err, wrong["fix"]):
        assert f"set {folder / 'party.toml'} to the ledger's policy ({', '.join(settings)})" in said
        assert f"or amend the ledger to party.toml's, which keeps what was spent: {amend}" in said
    text = (folder / "party.toml").read_text()
    for setting in settings:
        section, _, line = setting.partition(" ")
        key = line.removeprefix("without ").split(" ")[0]
        text = re.sub(rf"(?m)^{key} = .*\n", "", text)
        if not line.startswith("without "):
            text = text if section in text else f"{text}\n{section}\n"
            text = text.replace(f"{section}\n", f"{section}\n{line}\n")
    (folder / "party.toml").write_text(text)
    assert Desk(read_party(folder)).differs() is None


def test_a_ledger_without_a_list_of_algorithms_is_amended_to_party_toml(made: Federated, place: Place) -> None:
    ledger, folder = made.ledgers[1], made.folders[1]
    done = place.call("ledger", "amend", ledger, "--drop", "algorithm", "--because", "any will do")
    assert f"privadmm federation ledger {folder} --amend" in done.err
    place.call("federation", "ledger", folder, "--amend", "--because", "as party.toml")
    assert Desk(read_party(folder)).differs() is None


def test_an_amendment_that_no_party_toml_is_about_says_nothing_of_one(made: Federated, place: Place) -> None:
    other = made.folders[1] / "other.sqlite"
    place.call("ledger", "create", other, "--parties", 1, "--epsilon", 1, "--delta", "1e-6")
    assert "party.toml" not in place.call("ledger", "amend", other, "--epsilon", 2, "--because", "more").err
