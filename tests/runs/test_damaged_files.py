"""Damaged files: every command says so in one line, exits with a code, and does not use them."""

import json
import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from privadmm.errors import LedgerError
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.policy import Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.runs.rundir import read_receipts
from small_runs import CLEAR, PRIVATE, SHARING, Outcome, Place, rows, with_changes, write_csv

pytestmark = pytest.mark.usefixtures("skipped_plots")

CASES = 240
FILE = "party.sqlite"
TABLES = with_changes(
    PRIVATE,
    {
        "algorithm": {"rounds": 2},
        "privacy": {"label_epsilon": 1.0, "epsilon": 0.5, "budget": 3.0},
        "run": {"ledger": FILE},
    },
)


def one_line(said: Outcome, *kinds: str) -> None:
    """A named failure in one line, and its JSON if that was asked for."""
    assert said.code, said
    assert "Traceback" not in said.err, said.err
    assert "bug in privadmm" not in said.err, said.err
    assert said.err.startswith("privadmm: "), said.err
    assert said.err.count("\n") == 1, said.err
    assert said.err.isprintable() or said.err.rstrip("\n").isprintable(), said.err
    if kinds:
        assert said.object["error"] in kinds, said.out


def content(file: Path) -> list[Any]:
    """The content of a ledger."""
    with closing(sqlite3.connect(file)) as db:
        return [db.execute(f"SELECT * FROM {table}").fetchall() for table in ("identity", "ticks", "states")]


def damaged(good: bytes, seed: int) -> bytes:
    """Bytes flipped, a stretch overwritten, or the end cut off."""
    draw, bad = random.Random(seed), bytearray(good)
    match seed % 4:
        case 0:  # anywhere
            for _ in range(draw.choice((1, 3, 30))):
                bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
        case 1:  # where something is written
            for _ in range(draw.choice((1, 3))):
                place = draw.choice([at for at in range(len(bad)) if bad[at]])
                bad[place] = draw.randrange(256)
        case 2:
            start = draw.randrange(len(bad))
            stretch = bytes(draw.randrange(256) for _ in range(draw.choice((8, 200, 4096))))
            bad[start : start + len(stretch)] = stretch[: len(bad) - start]
        case 3:
            del bad[draw.randrange(len(bad)) :]
    return bytes(bad)


@pytest.fixture
def ledger(place: Place) -> tuple[Path, str]:
    """A ledger with a finished job, randomised labels, and a second job that is open; and that job."""
    assert place.train(place.config(TABLES), out=place.path / "first").code == 0
    file, job = place.path / FILE, "0" * 32
    known = identity_of(file)
    assert known is not None
    with closing(SqliteLedger(file, known.parties, known.policy, known.mode)) as opened:
        spent = {party: opened.spent(party)[:1] for party in known.parties}
        opened.reserve(job, {party: ((events[0][0], 1),) for party, events in spent.items()})
    return file, job


def test_a_damaged_ledger_is_told_in_one_line(place: Place, ledger: tuple[Path, str]) -> None:
    file, job = ledger
    good, said = file.read_bytes(), content(file)
    anchor = file.with_name(f"{FILE}-anchor")
    config, known = place.config(TABLES), anchor.read_bytes()
    shown = {word: place.call("ledger", word, file).out for word in ("show", "export")}
    refused = fits = 0
    for seed in range(CASES):
        bad = damaged(good, seed)
        for beside in place.path.glob(f"{FILE}*"):
            beside.unlink()
        file.write_bytes(bad)
        anchor.write_bytes(known)
        verified = place.call("ledger", "verify", file, "--json")
        against = place.call("ledger", "verify", file, "--against", place.path / "first", "--json")
        assert verified.code in (0, 1), (seed, verified)
        if verified.code:
            refused += 1
            for one in (verified, against):
                assert one.code == 1
                if "error" in one.object:
                    one_line(one, "LedgerError")
                else:
                    assert one.object["problems"], seed
                    assert "Traceback" not in one.err
        else:
            fits += 1
            assert content(file) == said, (seed, "altered, and nobody noticed")
            assert against.code == 0
        for word in ("show", "export"):
            told = place.call("ledger", word, file)
            if verified.code:
                one_line(told)
                one_line(place.call("ledger", word, file, "--json"), "LedgerError")
            else:
                assert (told.code, told.out) == (0, shown[word]), seed
        closed = place.call("ledger", "close", file, job, "--json")
        if verified.code:
            one_line(closed, "LedgerError")
            assert file.read_bytes() == bad, (seed, "a damaged ledger was written to")
        else:
            assert closed.code == 0
        if verified.code and seed % 5 == 0:
            trained = place.train(config, "--json", out=place.path / "second")
            one_line(trained, "LedgerError")
            assert not (place.path / "second").exists()
    assert refused > CASES / 2
    assert fits > 0


def test_an_index_that_lacks_a_row_is_found(place: Place, ledger: tuple[Path, str]) -> None:
    """A damaged index: it tells that a round was answered, while every row and hash is intact."""
    file, _ = ledger
    said, bad = content(file), bytearray(file.read_bytes())
    with closing(sqlite3.connect(file)) as db:
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_ticks_1'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    at = bad.index(b"tick", (page - 1) * size)
    assert at < page * size
    bad[at] ^= 1
    file.write_bytes(bad)
    assert content(file) == said
    found = place.call("ledger", "verify", file, "--json")
    assert found.code == 1
    assert "SQLite finds the file damaged" in found.object["problems"][0]
    one_line(place.train(place.config(TABLES), "--json", out=place.path / "second"), "LedgerError")


SCHEMA = "f0 = [-2.0, 2.0]\nf1 = [-2.0, 2.0]\nf2 = [-1.0, 1.0]\n"
MODELS = {
    "numbers": with_changes(CLEAR, {"data": {"source": "data.csv", "label": "y"}}),
    "schema and moments": with_changes(
        PRIVATE,
        {
            "data": {"source": "data.csv", "label": "y", "schema": "schema.toml", "encoding": "coarse"},
            "features": {"moments": True},
        },
    ),
    "columns": with_changes(
        PRIVATE,
        {
            **SHARING,
            "data": {"source": "data.csv", "label": "y", "intercept": 0.2},
        },
    ),
}
VALUES: list[Any] = [
    *(None, True, 0, -1, 7, 10**400, 1e308, -1e300, 0.5, float("nan"), float("inf")),
    *("", "x", "1.5", "a\nb\x1b", [], [0], ["f0", 2], [[]], [[0, 1]], {}, {"values": "ab"}, {"low": 1}),
]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every key of every table and list in a JSON document, with what it is in."""
    keys = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [place for key, item in keys for place in ((node, key), *places(item))]


def malformed(good: str, seed: int) -> str:
    """A value replaced, a key removed, an item twice; a byte changed; the end cut off."""
    draw = random.Random(seed)
    if seed % 3 == 0:
        return damaged(good.encode(), seed).decode("latin-1")
    facts = json.loads(good)
    for _ in range(draw.choice((1, 1, 2))):
        inside, key = draw.choice(places(facts) or [([0], 0)])
        match draw.randrange(4):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, list):
                inside.append(inside[key])
            case _:
                inside[key] = draw.choice(VALUES)
    return json.dumps(facts)


@pytest.mark.parametrize("kind", MODELS)
def test_a_malformed_model_is_told_in_one_line(kind: str, place: Place) -> None:
    write_csv(place.path / "data.csv", *rows())
    (place.path / "schema.toml").write_text(SCHEMA)
    assert place.train(place.config(MODELS[kind])).code == 0
    file, refused = place.out / "model.json", 0
    good = file.read_text()
    assert place.call("predict", place.out, place.path / "data.csv").code == 0
    texts = [malformed(good, seed) for seed in range(CASES)]
    texts += ["", "[]", "null", '"model"', "[" * 100_000, '{"frame": ' * 50_000, good + "x", good[1:]]

    def none_allowed(word: str) -> None:
        pytest.fail(f"{word} is no score")

    for number, text in enumerate(texts):
        file.write_bytes(text.encode("latin-1", errors="replace"))
        said = place.call("predict", place.out, place.path / "data.csv", "--json")
        if said.code:
            one_line(said, "DataError")
            assert "model.json" in said.err or "data.csv" in said.err, (number, said.err)
            refused += 1
        else:
            scores = json.loads(said.out, parse_constant=none_allowed)["scores"]
            assert len(scores) == 60
    assert refused > CASES / 2


def test_a_model_with_another_claim_than_it_can_have(place: Place) -> None:
    write_csv(place.path / "data.csv", *rows())
    assert place.train(place.config(data={"source": "data.csv", "label": "y"})).code == 0
    assert place.call("predict", place.out, place.path / "data.csv").code == 0
    file = place.out / "model.json"
    facts = json.loads(file.read_text())
    for change in (
        {"epsilon": None},  # beside private = true
        {"epsilon": "0.1"},
        {"epsilon": -1.0},
        {"delta": None},
        {"mode": "published"},
        {"weights": facts["weights"][::-1]},
    ):
        file.write_text(json.dumps(facts | change))
        said = place.call("predict", place.out, place.path / "data.csv", "--json")
        one_line(said, "DataError")
        assert "model.json" in said.err


RECEIPTS = {
    "not UTF-8": lambda text: text.replace(b"0", b"\xff", 3),
    "a NUL": lambda text: text.replace(b",", b"\0", 1),
    "a number that is none": lambda text: text.replace(b",0,0,", b",x,0,", 1),
    "another header": lambda text: text.replace(b"round", b"rounds", 1),
    "a digit lost": lambda text: text.replace(b",0,0,", b",0,", 1),
    "a hash that is none": lambda text: text[:-40] + b"zz" + text[-38:],
    "empty": lambda text: b"",
    "a cell without end": lambda text: text[:80] + b'"' + b"x" * 200_000 + text[80:],
}


@pytest.mark.parametrize("harm", RECEIPTS.values(), ids=RECEIPTS)
def test_damaged_receipts_are_not_left_out(harm: Any, place: Place) -> None:
    """Ignoring an unreadable receipt would hide that an older ledger was restored."""
    assert place.train(place.config(run={"ledger": FILE})).code == 0
    path = place.out / "receipts.csv"
    good = path.read_bytes()
    path.write_bytes(harm(good))
    assert path.read_bytes() != good
    said = place.call("ledger", "verify", place.path / FILE, "--against", place.out, "--json")
    one_line(said, "LedgerError")
    assert "receipts.csv" in said.err


def test_a_receipt_torn_by_a_crash_is_left_out_and_written_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    config = place.config(run={"ledger": FILE})
    with monkeypatch.context() as patch:
        patch.setattr("privadmm.runs.run.finish", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert place.train(config).code == 1
    path, checkpoint = place.out / "receipts.csv", place.out / "checkpoint"
    whole, torn = read_receipts(place.out), path.read_bytes()[:-30]
    path.write_bytes(torn)
    assert read_receipts(place.out) == whole[:-1]
    checkpoint.unlink()  # so that rounds are replayed, and their receipts written again
    assert place.train(config, "--resume").code == 0
    assert set(read_receipts(place.out)) == set(whole)
    assert place.call("ledger", "verify", place.path / FILE, "--against", place.out).code == 0


@pytest.mark.parametrize(
    ("section", "key"),
    [("run", "ledger"), ("run", "out"), ("data", "source"), ("data", "label"), ("run", "tls_ca")],
)
def test_a_nul_in_a_name(section: str, key: str, place: Place) -> None:
    said = place.call("train", place.config(**{section: {key: "a\0b"}}), "--json")
    one_line(said, "ConfigError")
    assert (said.code, f"[{section}] {key}" in said.err, "NUL" in said.err) == (2, True, True)


@pytest.mark.parametrize("word", ["train", "account"])
def test_a_dimension_beyond_any_memory(word: str, place: Place) -> None:
    (place.path / "data.svm").write_text("1 1:0.5\n0 2:0.5\n" * 30)
    said = place.call(word, place.config(data={"source": "data.svm", "dim": 10**9}), "--json")
    one_line(said, "ConfigError")
    assert all(part in said.err for part in ("[data] dim", "1,000,000,000", "5,000,000", "hash"))


def test_no_file_has_a_nul_in_its_name(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="cannot be used as a ledger"):
        SqliteLedger(tmp_path / "a\0b", range(2), Policy(None), "simulation")


@pytest.fixture
def careless() -> Any:
    """The widest permissions that files may have."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_ledgers_are_their_owners_alone(place: Place, careless: None) -> None:
    words = ("--parties", 3, "--epsilon", 2, "--delta", 1e-5)
    assert place.call("ledger", "create", place.path / "made.sqlite", *words).code == 0
    assert place.train(place.config(TABLES)).code == 0
    for name in ("made.sqlite", FILE):
        file = place.path / name
        assert mode(file) == 0o600
        known = identity_of(file)
        assert known is not None
        with closing(SqliteLedger(file, known.parties, known.policy, known.mode)) as opened:
            opened.keep("", "drawn", lambda: b"x", None)
            beside = [file.with_name(name + suffix) for suffix in ("-wal", "-shm")]
            assert [mode(item) for item in beside] == [0o600, 0o600]


def test_what_a_run_keeps_of_ledgers_and_rounds_is_its_owners_alone(place: Place, careless: None) -> None:
    assert place.train(place.config()).code == 0
    for name in ("ledger.sqlite", "receipts.csv", "checkpoint"):
        assert mode(place.out / name) == 0o600, name
    assert mode(place.out / "model.json") == 0o666  # released, so it may be shared
