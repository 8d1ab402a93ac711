"""A run over Flower that waits for a party's steward, and what its command then says."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from privadmm.deploy.federation.desk.approvals import Proposals
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.steward import words
from small_runs import PRIVATE, with_changes

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from flower_deployment import PATIENCE, Deployed, deployed

pytestmark = pytest.mark.slow
STAR = with_changes(PRIVATE, {"algorithm": {"rounds": 3}, "privacy": {"budget": 100.0}})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("approval"), STAR) as found:
        path = folder(found) / "party.toml"
        path.write_text(path.read_text().replace("[policy]", '[policy]\napprove = "ask"'))
        yield found


def folder(made: Deployed) -> Path:
    return made.federated.folders[1]


def begun(made: Deployed, out: str) -> tuple["subprocess.Popen[str]", str]:
    """Start a run; its process, and the code of its proposal once the status shows whose approval is waited for."""
    made.place.status.unlink(missing_ok=True)
    process = made.command("run", "--timeout", str(PATIENCE), "--json", "--out", out)
    made.wait_for(lambda: "waiting for approval of party 1" in str(made.status().get("at")), "the steward's question")
    return process, str(made.status()["at"]).rpartition(" ")[2]


def test_a_run_goes_on_once_its_steward_says_yes(made: Deployed) -> None:
    process, code = begun(made, "runs/yes")
    assert [row["state"] for row in made.status()["parties"]].count("waits for its steward") == 1
    words.decide(read_party(folder(made)), code, True)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert json.loads(out)["state"] == "finished"
    assert "waiting for approval of party 1" in err


def test_a_run_that_its_steward_refuses_ends_with_3(made: Deployed) -> None:
    process, code = begun(made, "runs/no")
    words.decide(read_party(folder(made)), code, False, "the board has not met", tell=True)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "refused by its steward: the board has not met" in json.loads(out)["message"]
    assert [entry.state for entry in Proposals(read_party(folder(made))).entries()] == ["approved", "refused"]
