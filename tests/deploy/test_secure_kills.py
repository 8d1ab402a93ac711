"""Kill -9 at a party of a secure sum, between key, roster, commit and send: one key, one share, nothing paid twice.

Processes are real, and end themselves by SIGKILL at a moment that they were told (tests/mortal_parties.py): just before
or just after they touch a database or a file. Every kind of letter to one party is tried.
"""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from privadmm.cli.views import steward
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.protocol import Letter
from privadmm.deploy.federation.setup.init import Made
from privadmm.errors import LockedError
from privadmm.privacy.key_file import RECORD
from privadmm.privacy.masks import Roster
from privadmm.privacy.verification import verify
from privadmm.runs.rundir import receipts_of
from small_runs import PRIVATE, charged, no_plots, with_changes

pytest.importorskip("cryptography")
if not hasattr(os, "fork"):
    pytest.skip("processes cannot be forked here", allow_module_level=True)
from federations import DEPLOYED, SUMMED, Federated, federated, found_in, key_of, released
from mortal_parties import MortalDesks, Mortals

ROUNDS, PARTIES, VICTIM = 2, 3, 1
STAR = with_changes(PRIVATE, {**SUMMED, "algorithm": {**(SUMMED["algorithm"] or {}), "rounds": ROUNDS}})
SECURE = with_changes(STAR, {"run": DEPLOYED})
LETTERS = [("begin", None), ("roster", None), ("step", 0), ("step", 1)]


@pytest.fixture(scope="module")
def mortals() -> Iterator[Mortals]:
    with Mortals() as found:
        yield found


class Trial:
    """Makes one federation again and again; has the result of a run in which nobody dies."""

    def __init__(self, folder: Path, tables: Any, mortals: Mortals) -> None:
        self.folder, self.mortals, self.number = folder, mortals, 0
        federated(folder, tables)
        made, post = self.fresh(), MortalDesks([], mortals=mortals)
        post.folders = made.folders
        self.transcript = made.run(post)["transcript"]
        self.moments = post.moments

    def fresh(self) -> Federated:
        self.number += 1
        folder = self.folder / str(self.number)
        shutil.copytree(self.folder / "federation", folder)
        folders = [folder / f"party-{number}" for number in range(PARTIES)]
        return Federated(Made(Coordinator(folder / "coordinator"), [], []), folders)

    def killed_at(self, letter: tuple[str, int | None], moment: int) -> bool:
        """Run it with a kill at this moment, and check what is left; whether the party was locked."""
        made, keys = self.fresh(), list[bytes | None]()

        def note(party: int, asked: Letter) -> None:
            if asked["kind"] == "step" and not keys:
                keys.extend(key_of(ledger, str(asked["job"])) for ledger in made.ledgers)

        kind, round = letter
        post = MortalDesks(made.folders, note, mortals=self.mortals, kind=kind, round=round, moment=moment)
        try:
            result, locked = made.run(post), False
        except LockedError:
            result, locked = {}, True
        assert post.died == 1
        out = made.made.coordinator.folder / "runs/first"
        roster = Roster.unpack((out / "roster.json").read_bytes())
        for party, (folder, ledger) in enumerate(zip(made.folders, made.ledgers, strict=True)):
            self.in_order(post, party, ledger, roster, failed=locked and party == VICTIM)
            if not locked:
                assert verify(ledger, receipts_of(out, ledger)).problems == ()
            if not locked or party == VICTIM:
                key = keys[party]
                assert key is not None
                assert found_in(folder, key) == []
        if not locked and result["mode"] == "simulation":
            assert result["transcript"] == self.transcript
        shutil.rmtree(made.folders[0].parent)
        return locked

    def in_order(self, post: MortalDesks, party: int, ledger: Path, roster: Roster, failed: bool) -> None:
        """Check that a party has drawn one key and kept one roster, and that no tick was paid or answered twice."""
        said = [(letter, said) for one, letter, said in post.captured if one == party]
        (begun,) = {json.loads(str(answer["entry"]))[1] for letter, answer in said if letter["kind"] == "begin"}
        assert roster.entries[party].key.hex() == begun
        assert Path(f"{ledger}-keys").stat().st_size == 2 * RECORD  # the file's first, and that of one job
        asked = {letter["round"] for letter, _ in said if letter["kind"] == "step"}
        sent = [answer["mail"] for letter, answer in said if letter["kind"] == "step" and "mail" in answer]
        assert released(ledger) == sent  # once each, and what was sent is on record
        assert charged(ledger) == len(asked) - failed
        with closing(steward.opened(ledger)) as mine:
            assert [kept.name for kept in mine.keepsakes()] == ["roster"]
            assert sum(count for _, count in mine.spent(party)) == len(asked)
            assert (mine.failed is not None) == failed


def evenly(parts: int) -> list[float]:
    return [(2 * at + 1) / (2 * parts) for at in range(parts)]


def kills(trial: Trial, plan: dict[tuple[str, int | None], list[float]]) -> tuple[int, int]:
    """Kill at these parts of the way through each letter; how often that was, and how often the party was locked."""
    tried = {(at, 1 + int(part * trial.moments[at])) for at, parts in plan.items() for part in parts}
    return len(tried), sum(trial.killed_at(*one) for one in sorted(tried, key=repr))


def test_a_party_that_is_killed(tmp_path: Path, mortals: Mortals, monkeypatch: pytest.MonkeyPatch) -> None:
    no_plots(monkeypatch)
    parts = {letter: [0.75] for letter in LETTERS}
    parts["step", 1] = [0.9]  # between the last commit and the key's end
    assert kills(Trial(tmp_path, STAR, mortals), parts) == (4, 0)


def test_a_party_of_a_deployment_that_is_killed(
    tmp_path: Path, mortals: Mortals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If records had been read and nothing was committed, the step is charged once, and the key is erased."""
    pytest.importorskip("opendp")
    no_plots(monkeypatch)
    count, locked = kills(Trial(tmp_path, SECURE, mortals), {("step", 0): [0.75], ("step", 1): [0.95]})
    assert (count, locked) == (2, 1)


@pytest.mark.slow
def test_a_party_that_is_killed_at_two_hundred_moments(
    tmp_path: Path, mortals: Mortals, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_plots(monkeypatch)
    count, locked = kills(Trial(tmp_path, STAR, mortals), dict.fromkeys(LETTERS, evenly(55)))
    assert count >= 200
    assert not locked


@pytest.mark.slow
def test_a_party_of_a_deployment_that_is_killed_at_eighty_moments(
    tmp_path: Path, mortals: Mortals, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opendp")
    no_plots(monkeypatch)
    count, locked = kills(Trial(tmp_path, SECURE, mortals), dict.fromkeys(LETTERS[2:], evenly(40)))
    assert count >= 80
    assert 0 < locked < count
