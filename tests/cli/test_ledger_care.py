"""What a steward does with a ledger over the years: back it up, put a backup back, amend it, close jobs in it."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from ledgers import copied, put_back
from privadmm.cli.views.steward import opened
from privadmm.privacy.events import Gaussian
from privadmm.privacy.ledger import Tick
from small_runs import PARTIES, Place, charged, spawn

pytestmark = pytest.mark.usefixtures("skipped_plots")

MADE = ("--parties", PARTIES, "--epsilon", 1.4, "--delta", 1e-5, "--mode", "simulation")
PART = ((Gaussian(20.0), 5),)


@pytest.fixture
def file(place: Place) -> Path:
    """A ledger with one finished run of epsilon 1, and a job that did one of five rounds."""
    file = place.path / "party.sqlite"
    assert place.call("ledger", "create", file, *MADE, "--json").code == 0
    assert place.train(place.config(run={"ledger": "party.sqlite"})).code == 0
    with closing(opened(file)) as ledger:
        ledger.reserve("abandoned", dict.fromkeys(range(PARTIES), PART))
        with ledger.transaction():
            ledger.commit(
                Tick("abandoned", 0, 0), "in", dict.fromkeys(range(PARTIES), (Gaussian(20.0),)), b"out", b"state"
            )
    return file


def spent(place: Place, file: Path) -> float:
    found = place.call("ledger", "show", file, "--json").object
    return float(found["parties"][0]["epsilon_with_reservations"])


def test_close_says_what_it_frees_and_a_dry_run_changes_nothing(place: Place, file: Path) -> None:
    before, rows = spent(place, file), file.read_bytes()
    dry = place.call("ledger", "close", file, "abandoned", "--dry-run", "--json").object
    assert file.read_bytes() == rows
    assert (dry["closed"], dry["frees"]) == (False, True)
    for party in dry["parties"]:
        assert party["releases"] == 4
        assert party["epsilon_before"] == before > party["epsilon_after"]
    assert "frees 4 releases" in " ".join(place.call("ledger", "close", file, "abandoned", "--dry-run").out.split())
    done = place.call("ledger", "close", file, "abandoned", "--json").object
    assert done == {**dry, "closed": True}
    assert spent(place, file) == dry["parties"][0]["epsilon_after"]
    again = place.call("ledger", "close", file, "abandoned")
    assert again.code == 0
    assert "nothing" in again.out


def test_jobs_that_are_silent_for_long_are_listed_with_the_way_to_free_them(place: Place, file: Path) -> None:
    def since(days: float) -> None:
        with closing(sqlite3.connect(file)) as db, db:
            db.execute("UPDATE activity SET at = ?", (time.time() - 86400 * days,))

    def silent() -> list[str]:
        jobs = place.call("ledger", "show", file, "--json").object["jobs"]
        return [job["job"] for job in jobs if job["silent_since"] is not None]

    assert silent() == []
    since(6.9)
    assert silent() == []
    since(7.1)
    assert silent() == ["abandoned"]  # the finished one holds nothing
    said = place.call("ledger", "show", file).out
    assert f"privadmm ledger close {file} abandoned" in said
    assert place.call("ledger", "amend", file, "--silent-days", 30, "--because", "slow partners").code == 0
    assert silent() == []
    since(31)
    place.call("ledger", "close", file, "abandoned")
    assert silent() == []


def test_backup_and_restore(place: Place, file: Path) -> None:
    made = place.call("ledger", "backup", file, place.path / "copy", "--json")
    assert made.code == 0
    assert (made.object["file"], made.object["backup"]) == (str(file), str(place.path / "copy"))
    said = place.call("ledger", "backup", file, place.path / "copy 2").out
    assert "privadmm ledger restore" in said
    assert place.call("ledger", "backup", file, place.path / "copy").code == 1
    small = place.config(privacy={"epsilon": 0.1}, run={"ledger": "party.sqlite"})
    assert place.train(small, out=place.path / "small").code == 0
    known = spent(place, file)
    put_back(place.path / "copy", file)
    refused = place.train(small, out=place.path / "more")
    assert refused.code == 3
    words = ("ledger", "restore", place.path / "copy", file)
    assert place.call(*words).code == 2
    assert place.call(*words, "--because", " ").code == 1
    done = place.call(*words, "--because", "the disk broke", "--json").object
    assert done["known"] is True
    assert done["ended"] == ["abandoned"]
    assert spent(place, file) == pytest.approx(known, rel=1e-12)
    assert place.call("ledger", "verify", file).code == 0
    (put_there,) = place.call("ledger", "show", file, "--json").object["restored"]
    assert put_there["because"] == "the disk broke"
    assert put_there["epsilon"] > 0.1
    assert "put back from a copy" in place.call("ledger", "show", file).out
    # The run that was lost does not fit any more, and nobody tampered with a row.
    lost = place.call("ledger", "verify", file, "--against", place.path / "small")
    assert (lost.code, "TAMPERED" in lost.out, "ITS ROWS FIT" in lost.out) == (1, False, True)
    assert "its steward's decision" in " ".join(lost.out.split())
    assert place.train(small, out=place.path / "more").code == 0
    assert spent(place, file) > known


def test_what_the_anchor_does_not_know_needs_a_decision(place: Place, file: Path) -> None:
    place.call("ledger", "backup", file, place.path / "copy")
    file.unlink()
    file.with_name(f"{file.name}-anchor").unlink()
    words = ("ledger", "restore", place.path / "copy", file, "--because", "stolen")
    undecided = place.call(*words)
    assert undecided.code == 2
    assert "--charge EPSILON" in undecided.err
    assert not file.exists()
    assert place.call(*words, "--charge", 9, "--at-delta", 0).code == 3
    assert place.call(*words, "--charge", 0.1, "--spend-all").code == 2
    assert "what you decided" in place.call(*words, "--charge", 0.05, "--at-delta", 0).out
    assert place.call("ledger", "verify", file).code == 0


def test_show_and_verify_work_on_a_ledger_that_was_put_back(place: Place, file: Path) -> None:
    old = copied(file, "old")
    assert place.call("ledger", "close", file, "abandoned").code == 0
    put_back(old, file)
    before = file.read_bytes()
    shown = place.call("ledger", "show", file, "--json").object
    assert "anchor knows of row" in shown["behind"]
    assert "LOCKED" in place.call("ledger", "show", file).out
    checked = place.call("ledger", "verify", file, "--json")
    assert checked.code == 1
    assert checked.object["problems"] == []
    assert "anchor knows of row" in checked.object["behind"]
    assert "PUT BACK FROM A COPY" in place.call("ledger", "verify", file).out
    for words in (
        ("close", file, "abandoned"),
        ("unlock", file, "--because", "no way around"),
        ("amend", file, "--epsilon", 9, "--because", "nor this"),
        ("backup", file, place.path / "copy"),
    ):
        said = place.call("ledger", *words)
        assert said.code == 3, words
        assert "ledger restore" in said.err
    assert file.read_bytes() == before
    assert not (place.path / "copy").exists()


def test_amend_changes_a_policy_and_keeps_its_history(place: Place, file: Path) -> None:
    before, rows = spent(place, file), charged(file)
    big = place.config(privacy={"epsilon": 1.0, "budget": 2.5}, run={"ledger": "party.sqlite"})
    assert place.train(big, out=place.path / "big").code != 0
    words = ("--epsilon", 2.5, "--per-job", 1.2, "--algorithm", "dp_admm", "--limit", "rounds=500")
    done = place.call("ledger", "amend", file, *words, "--because", "new consent", "--json").object
    assert done["policy"]["budget"] == {"epsilon": 2.5, "delta": 1e-5}
    assert done["policy"]["limits"]["rounds"] == 500
    assert [one["because"] for one in done["policies"]] == [None, "new consent"]
    assert done["policies"][1]["changed"]["per_job"] == 1.2
    assert (spent(place, file), charged(file)) == (before, rows)
    assert "amended: " in place.call("ledger", "show", file).out
    assert place.train(big, out=place.path / "big").code == 0
    found = place.call("ledger", "export", file, "--json").object
    assert found["identity"]["budget"]["epsilon"] == 1.4
    assert found["current"]["budget"]["epsilon"] == 2.5
    assert place.call("ledger", "verify", file, "--against", place.path / "big").code == 0
    dropped = place.call("ledger", "amend", file, "--drop", "per-job", "--because", "simpler", "--json").object
    assert dropped["policy"]["per_job"] is None
    assert dropped["policy"]["algorithms"] == ["dp_admm"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--epsilon", 0.5, "--because", "less"), 3, "spent or set aside"),
        (("--epsilon", 3), 2, "because"),
        (("--epsilon", 3, "--because", ""), 1, "--because"),
        (("--because", "nothing"), 2, "already"),
        (("--algorithm", "dp_adm", "--because", "x"), 2, "dp_adm"),
        (("--drop", "epsilon", "--because", "x"), 2, "per-job"),
        (("--limit", "rounds=0", "--because", "x"), 2, "rounds"),
        (("--adjacency", "label", "--because", "x"), 2, "adjacency"),
    ],
)
def test_wrong_amendments_are_named(words: tuple, code: int, says: str, place: Place, file: Path) -> None:  # type: ignore[type-arg]
    before = file.read_bytes()
    said = place.call("ledger", "amend", file, *words)
    assert said.code == code
    assert says in said.err
    assert file.read_bytes() == before


def test_another_ledger_for_the_same_records_asks(place: Place) -> None:
    records = place.path / "data.npz"
    first, second = place.path / "one.sqlite", place.path / "two.sqlite"
    assert place.call("ledger", "create", first, *MADE, "--records", records).code == 0
    assert place.train(place.config(run={"ledger": "one.sqlite"})).code == 0
    asked = place.call("ledger", "create", second, *MADE, "--records", records)
    assert asked.code == 3
    assert f"{first} (which has spent epsilon = 1" in asked.err
    assert place.call("ledger", "create", second, *MADE, "--records", records, "--anew").code == 2
    assert not second.exists()
    done = place.call(
        "ledger", "create", second, *MADE, "--records", records, "--anew", "--because", "a test", "--json"
    )
    assert done.code == 0
    assert "a test" in done.object["policies"][0]["because"]
    assert place.call("ledger", "create", place.path / "3", *MADE, "--records", place.path / "none").code == 2


def test_a_ledger_that_was_removed_is_not_made_anew_in_silence(place: Place, file: Path) -> None:
    file.unlink()
    asked = place.call("ledger", "create", file, *MADE)
    assert asked.code == 3
    assert "epsilon = 1" in asked.err
    run = place.train(place.config(run={"ledger": "party.sqlite"}), out=place.path / "again")
    assert run.code == 3
    assert "ledger restore" in run.err
    assert not file.exists()
    assert place.call("ledger", "create", file, *MADE, "--anew", "--because", "other records").code == 0
    assert charged(file) == 0


def test_a_run_in_a_process_of_its_own_is_refused_after_a_copy_was_put_back(place: Place) -> None:
    file = place.path / "party.sqlite"
    place.call("ledger", "create", file, *MADE)
    old = copied(file, "old")
    config = place.config(privacy={"epsilon": 0.9}, run={"ledger": "party.sqlite"})
    codes = []
    for name in "ab":
        run = spawn("train", config, "--out", place.path / name, "--json")
        run.communicate(timeout=120)
        codes.append(run.returncode)
        put_back(old, file)
    assert codes == [0, 3]
    assert charged(file) == 0


def test_a_backup_is_called_a_copy_and_not_a_ledger_that_was_put_back(place: Place) -> None:
    """In a folder beside the ledger in use, by `ledger show` and by the report, which keep a file's name as it is."""
    (place.path / "copies").mkdir()
    file = place.path / "party.sqlite"
    config = place.config(privacy={"budget": 2.0}, run={"ledger": "party.sqlite"})
    assert place.train(config).code == 0
    assert place.call("ledger", "backup", file, place.path / "copies/party.sqlite").code == 0
    shown = " ".join(place.call("ledger", "show", place.path).out.split())
    assert shown.count("(copy)") == 3  # a row for each party
    assert "not the ledger in use" in shown
    alone = " ".join(place.call("ledger", "show", place.path / "copies/party.sqlite").out.split())
    assert "NOT IN USE" in alone
    assert "LOCKED" not in alone
    place.path.joinpath("out").rename(place.path.parent / f"{place.path.name}-out")  # whose ledger is party.sqlite
    page = place.path / "page.html"
    card = place.call("report", place.path, "--out", page, "--json").object
    (notice,) = card["notices"]
    assert notice.startswith("The ledger copies/party.sqlite is a copy of party.sqlite")
    assert len(card["budgets"]) == 3  # a party's budget, once
    assert "not counted again: copies/party.sqlite" in " ".join(
        place.call("report", place.path, "--out", page).out.split()
    )
    assert notice in page.read_text(encoding="utf-8")
    # A digest of 64 digits is seen by its beginning, and whole in a title and in the card.
    (digest,) = {job["config"] for job in card["jobs"]}
    assert f'<bdi title="{digest}">{digest[:12]}…</bdi>' in page.read_text(encoding="utf-8")


def test_the_page_of_a_run_names_the_ledger_that_knows_what_was_refused(place: Place) -> None:
    config = place.config(privacy={"budget": 2.0}, run={"ledger": "party.sqlite"})
    out, page = place.train(config, "--json").object["out"], place.path / "page.html"
    told = " ".join(place.call("report", out, "--out", page).out.split())
    assert "cannot tell" in told
    assert "Not recorded." not in page.read_text(encoding="utf-8")
    assert f"the report of its ledger, {place.path / 'party.sqlite'}" in page.read_text(encoding="utf-8")
