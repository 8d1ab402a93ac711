"""A party's log has a line for each letter and stays small; a full disk is said plainly and spends nothing twice."""

import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")
from federations import DEPLOYED, Desks, Federated, accounts, ending, federated, small_disk
from privadmm.deploy.federation.desk import party_log
from privadmm.deploy.federation.desk.party_server import answer
from privadmm.deploy.federation.protocol import Letter
from privadmm.errors import ClusterError, LockedError, PrivadmmError
from privadmm.privacy.verification import verify
from small_runs import PRIVATE, charged, with_changes

pytestmark = pytest.mark.usefixtures("skipped_plots")

SHORT = with_changes(PRIVATE, {"algorithm": {"rounds": 3}, "privacy": {"budget": 20.0}})


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    return federated(tmp_path, SHORT)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "requests.log").read_text().splitlines()]


def test_a_line_for_each_letter_as_people_count(made: Federated) -> None:
    made.change(1, "[party]", '[party]\nname = "Clinic of the north"')
    post = Desks(made.folders)
    made.run(post)
    made.run(out="runs/second")
    asked = [letter for party, letter, _ in post.captured if party == 1]
    told = lines(made.folders[1])[: len(asked)]
    assert [line["kind"] for line in told] == [letter["kind"] for letter in asked]
    steps = [line for line in told if line["kind"] == "step"]
    assert [(line["round"], line["phase"]) for line in steps] == [(1, 0), (2, 0), (3, 0)]
    assert {line["job"] for line in steps} == {asked[-1]["job"]}
    for line in told:
        assert {"at", "kind", "name", "outcome", "seconds"} <= set(line)
        assert (line["name"], line["outcome"]) == ("Clinic of the north", "answered")
        assert line["seconds"] > 0


def test_epsilon_spent_and_left_are_those_of_the_ledger(made: Federated) -> None:
    """After every letter, over several jobs of which one is left half-way, and by a count that starts from nothing."""
    seen = []

    class Watching(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            said = super().ask(party, letter)
            if party == 0 and letter["kind"] in ("begin", "step"):
                last = lines(made.folders[0])[-1]
                seen.append((last["epsilon_spent"], verify(made.ledgers[0]).epsilon[0], last["epsilon_left"]))
            return said

    made.run(Watching(made.folders))
    with pytest.raises(ClusterError):
        made.run(ending(Watching(made.folders), 2), out="runs/second")
    (made.folders[0] / "cache" / "spent.json").write_text("nonsense")
    made.run(Watching(made.folders), out="runs/third")
    made.run(Watching(made.folders), out="runs/second", resume=True)
    assert len(seen) == 4 + 3 + 4 + 2
    assert [spent for spent, _, _ in seen] == pytest.approx([total for _, total, _ in seen], rel=1e-9)
    spent, left = [one[0] for one in seen], [one[2] for one in seen]
    assert spent == sorted(spent)
    assert left == sorted(left, reverse=True)
    assert left[-1] == pytest.approx(20.0 - spent[-1])
    assert left[0] < 20.0 - spent[0], "what is set aside is not left"


def test_what_the_coordinator_wrote_is_cut(made: Federated) -> None:
    answer(made.folders[0], {"kind": "x" * 10_000, "job": "y\n" * 10_000, "round": 2**70, "phase": b"z" * 1000})
    (line,) = lines(made.folders[0])
    assert all(len(str(value)) <= 200 for key, value in line.items() if key != "why")
    assert line["outcome"] == "refused"


def test_the_log_is_put_away_when_it_has_grown(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party_log, "SIZE", 400)
    monkeypatch.setattr(party_log, "KEPT", 3)
    for number in range(40):
        assert answer(made.folders[0], {"kind": "end", "job": f"{number:032x}"})["status"] == "ok"
    files = sorted(made.folders[0].glob("requests.log*"))
    assert [path.name for path in files] == ["requests.log", *(f"requests.log.{n}" for n in (1, 2, 3))]
    assert all(path.stat().st_size < 800 and path.stat().st_mode & 0o777 == 0o600 for path in files)
    told = [json.loads(line)["job"] for path in reversed(files[1:]) for line in path.read_text().splitlines()]
    told += [line["job"] for line in lines(made.folders[0])]
    assert told == [f"{number:032x}" for number in range(40 - len(told), 40)]


def test_processes_that_write_at_once_lose_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party_log, "SIZE", 2000)
    monkeypatch.setattr(party_log, "KEPT", 100)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: party_log.note(tmp_path, kind="end", job=str(number)), range(300)))
    found = [json.loads(line)["job"] for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(found, key=int) == [str(number) for number in range(300)]
    assert len(list(tmp_path.iterdir())) > 3


def test_a_letter_of_a_round_opens_the_ledger_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a deployment's has one more, to be alone with it; whatever the rounds and jobs before."""
    plain, opened, seen = sqlite3.connect, list[str](), list[list[str]]()

    def connect(path: Any, *rest: Any, **more: Any) -> Any:
        opened.append(str(path).partition("?")[0].rpartition("/")[2])
        return plain(path, *rest, **more)

    class Counting(Desks):
        def ask(self, party: int, letter: Letter) -> Letter:
            opened.clear()
            said = super().ask(party, letter)
            if letter["kind"] == "step":
                seen.append(list(opened))
            return said

    monkeypatch.setattr(sqlite3, "connect", connect)
    for mode, expected in (({}, ["ledger.sqlite"]), (DEPLOYED, ["ledger.sqlite", "ledger.sqlite-turn"])):
        if mode:
            pytest.importorskip("opendp")
        folder = tmp_path / (mode.get("mode") or "simulation")  # type: ignore[attr-defined]
        folder.mkdir()
        made = federated(folder, with_changes(SHORT, {"run": mode} if mode else {}))
        for number in range(2):
            made.run(Counting(made.folders), out=f"runs/{number}")
        assert seen
        assert all(one == expected for one in seen), seen
        seen.clear()


# --- a full disk


class FillingUp(Desks):
    """Fills the disk before letters for party 1 of a kind and round, and makes room again after the answer."""

    fill: Path
    when: tuple[str, int | None]

    def ask(self, party: int, letter: Letter) -> Letter:
        if party != 1 or (letter["kind"], letter.get("round")) != self.when:
            return super().ask(party, letter)
        with suppress(OSError), self.fill.open("wb", buffering=0) as file:
            while file.write(bytes(512)):
                pass
        try:
            return super().ask(party, letter)
        finally:
            self.fill.unlink()


def moved(made: Federated, disk: Path) -> Federated:
    """The same federation, with party 1 on this disk."""
    place = disk / "party-1"
    shutil.copytree(made.folders[1], place)
    return Federated(made.made, [made.folders[0], place, made.folders[2]])


MOMENTS = [("hello", None), ("begin", None), ("step", 0), ("step", 2)]


@pytest.mark.parametrize("when", MOMENTS, ids=str)
def test_a_full_disk_at_a_party_spends_nothing_twice(made: Federated, tmp_path: Path, when: Any) -> None:
    (tmp_path / "again").mkdir()
    whole = federated(tmp_path / "again", SHORT).run()
    with small_disk(tmp_path / "disk", 1024) as disk:
        made = moved(made, disk)
        post = FillingUp(made.folders)
        post.fill, post.when = disk / "filler", when
        with pytest.raises(ClusterError, match="StorageError") as failed:
            made.run(post)
        assert "disk" in str(failed.value) or "log could not be written" in str(failed.value)
        early = when[0] != "step" or when[1] == 0
        begun = (made.made.coordinator.runs / "first" / "job.json").exists()
        result = made.run(out="runs/first", resume=begun)
        assert begun or early
        assert result["transcript"] == whole["transcript"]
        assert [charged(ledger) for ledger in made.ledgers] == [3, 3, 3]
        ((spent, aside, _),) = [one for one in accounts(made.ledgers[1]).values() if one[0]]
        assert (spent, aside) == (3, 3)
        assert not verify(made.ledgers[1]).problems
        assert not list(disk.rglob("*.new")), "nothing half-written is left"


def test_a_disk_that_is_full_in_the_middle_of_a_deployments_step_locks_or_answers(tmp_path: Path) -> None:
    """In a deployment a step is on record before records are read, so a step that could not be finished is charged."""
    pytest.importorskip("opendp")
    made = federated(tmp_path, with_changes(SHORT, {"run": DEPLOYED}))
    with small_disk(tmp_path / "disk", 1024) as disk:
        made = moved(made, disk)
        post = FillingUp(made.folders)
        post.fill, post.when = disk / "filler", ("step", 1)
        with pytest.raises((ClusterError, LockedError)) as failed:
            made.run(post)
        assert "StorageError" in str(failed.value) or "is locked" in str(failed.value)
        before = charged(made.ledgers[1])
        with suppress(PrivadmmError):
            made.run(resume=True)
        assert charged(made.ledgers[1]) <= 3
        assert charged(made.ledgers[1]) >= before
        assert not verify(made.ledgers[1]).problems
        assert all(sum(one[:1]) <= 3 for one in accounts(made.ledgers[1]).values())


def test_the_steward_reads_what_to_do(made: Federated, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    from privadmm.deploy.federation.desk import party_server

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(party_server, "write_text", full)
    with pytest.raises(ClusterError, match="StorageError: its disk is full"):
        made.run()
    (line,) = lines(made.folders[0])
    assert line["outcome"] == "failed"
    assert "make room" in line["why"]
