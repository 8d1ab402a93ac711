"""On a real federation: a backup that is put back is noticed, and what a party that left had set aside is freed."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from federations import Backup, accounts
from flower_deployment import Deployed, deployed
from privadmm import __version__
from small_runs import PRIVATE, with_changes

pytestmark = pytest.mark.slow
ROUNDS = 4
STAR = with_changes(PRIVATE, {"algorithm": {"rounds": ROUNDS}, "privacy": {"budget": 100.0}})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("history"), STAR) as found:
        yield found


def test_what_a_party_that_left_had_set_aside_is_free_after_the_next_begin(made: Deployed) -> None:
    made.run(out="runs/left", absent="continue", timeout=20.0)
    made.wait_for(lambda: made.at(f"round 1 of {ROUNDS}"), "a round")
    made.kill("node-1")
    result = made.finish()
    assert result["versions"] == {"coordinator": __version__, **{f"party {n}": __version__ for n in range(3)}}
    (job,) = accounts(made.federated.ledgers[1])
    spent, aside, over = accounts(made.federated.ledgers[1])[job]
    assert (spent < ROUNDS, aside, over) == (True, ROUNDS, False)
    made.node(1)
    made.run(out="runs/after")
    made.finish()
    assert accounts(made.federated.ledgers[1])[job] == (spent, spent, True)
    log = [json.loads(line) for line in (made.federated.folders[1] / "requests.log").read_text().splitlines()]
    assert [line["round"] for line in log if line["kind"] == "step"][-ROUNDS:] == [1, 2, 3, 4]
    assert all("epsilon_left" in line for line in log if line["kind"] == "step")


def test_a_backup_that_was_put_back_with_all_that_is_beside_it_is_locked(made: Deployed) -> None:
    ledger = made.federated.ledgers[1]
    before, jobs = Backup.of(ledger), set((made.federated.folders[1] / "jobs").iterdir())
    made.run(out="runs/before")
    made.finish()
    before.put_back()
    for path in set((made.federated.folders[1] / "jobs").iterdir()) - jobs:
        path.unlink()
    spent = [accounts(one) for one in made.federated.ledgers]
    made.run(out="runs/again")
    made.wait_for(made.ended, "the end of the run")
    status = made.status()
    assert (status["state"], status["error"], status["exit_code"]) == ("failed", "LockedError", 3)
    assert "party 1" in status["message"]
    assert "receipt that this party signed" in (made.federated.folders[1] / "requests.log").read_text()
    after = [accounts(one) for one in made.federated.ledgers]
    assert after[1] == spent[1]
    assert [sum(one[1] for one in ledger.values()) for ledger in after] == [
        sum(one[1] for one in ledger.values()) for ledger in spent
    ], "the others gave back what they had set aside"
    assert not (Path(made.place.runs) / "again").exists()
