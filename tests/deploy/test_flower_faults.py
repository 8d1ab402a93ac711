"""Faults on a real federation: whatever dies, hangs or lies, ledgers equal the transcript and nothing is paid twice."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ledgers import without_refusals
from privadmm.engine.mail import Mail
from small_runs import PRIVATE, SHARING, Place, with_changes

pytest.importorskip("flwr", reason="the extra flower is not installed: pip install 'privadmm[flower]'")
from federations import SUMMED, key_of, only_releases
from flower_deployment import (
    ENVIRONMENT,
    FLOWERS,
    PATIENCE,
    Deployed,
    deployed,
    in_order,
    in_process,
    job_of,
    paid,
    party,
)
from privadmm.deploy.federation.layout import node, node_environment

pytestmark = pytest.mark.slow
ROUNDS = 4
STAR = with_changes(PRIVATE, {"algorithm": {"rounds": ROUNDS}, "privacy": {"budget": 100.0}})
GRAPH = with_changes(
    STAR,
    {
        "algorithm": {"name": "mr_admm", "eta": 0.5, "gamma": 0.5, "D_w": None, "rho": None},
        "graph": {"kind": "ring"},
    },
)
PEOPLE = with_changes(STAR, SHARING)
SUMS = with_changes(STAR, SUMMED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return in_process(tmp_path_factory.mktemp("whole") / "star", STAR)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    # One test starts another run, which Flower's own command executes at the coordinator.
    with deployed(tmp_path_factory.mktemp("faults"), STAR, pinned=False, heartbeat=FLOWERS) as found:
        yield found


def test_a_node_killed_in_the_middle_of_a_round(made: Deployed, whole: str) -> None:
    made.run(out="runs/node")
    made.wait_for(lambda: made.at(f"round 1 of {ROUNDS}"), "a round")
    os.kill(made.child("node-1"), signal.SIGKILL)
    result = made.finish()
    assert result["transcript"] == whole
    in_order(made, result, [ROUNDS] * 3)


@pytest.mark.parametrize("killed", [["superlink"], ["superexec", "superlink"]], ids="+".join)
def test_the_coordinator_s_processes_killed_and_started_again(killed: list[str], made: Deployed, whole: str) -> None:
    """A run waits for its SuperLink and continues; if its driver dies as well, it has to be resumed."""
    out = f"runs/without-{len(killed)}"
    made.run(out=out)
    made.wait_for(lambda: made.at(f"round 2 of {ROUNDS}"), "two rounds")
    for name in killed:
        made.kill(name)
    made.superlink()
    if "superexec" in killed:
        made.run(out=out, resume=True)
    result = made.finish()
    assert result["transcript"] == whole
    in_order(made, result, [ROUNDS] * 3)


def test_a_party_that_does_not_answer(made: Deployed, whole: str) -> None:
    frozen = made.child("node-2")
    made.run(out="runs/frozen", timeout=40.0, absent="continue")
    made.wait_for(lambda: made.at(f"round 1 of {ROUNDS}"), "a round")
    os.kill(frozen, signal.SIGSTOP)
    try:
        result = made.finish()
    finally:
        os.kill(frozen, signal.SIGCONT)
    (gone,) = result["absent"]
    assert (gone["party"], gone["why"]) == (2, "no answer for 40 s")
    assert result["transcript"] != whole
    job = job_of(Path(result["out"]))
    assert [paid(ledger, job) for ledger in made.federated.ledgers[:2]] == [ROUNDS] * 2
    # At most one of its answers came too late to be used.
    assert paid(made.federated.ledgers[2], job) - (gone["from_round"] - 1) in (0, 1)


def test_a_party_whose_budget_ends(made: Deployed) -> None:
    """A party whose steward closes the job stops, the others finish, and the report says so."""
    made.run(out="runs/closed", absent="continue")
    made.wait_for(lambda: made.at(f"round 1 of {ROUNDS}"), "a round")
    job = job_of(made.place.folder / "runs/closed")
    words = [sys.executable, "-m", "privadmm", "ledger", "close", str(made.federated.ledgers[0]), job]
    subprocess.run(words, check=True, capture_output=True, env=ENVIRONMENT)
    result = made.finish()
    (gone,) = result["absent"]
    assert gone["party"] == 0
    assert gone["why"].startswith("refused: ")
    in_order(made, result, [gone["from_round"] - 1, ROUNDS, ROUNDS])


FORGER = '''"""Asks a round again with another inbox, and brings a ClientApp of its own."""
import pickle
from pathlib import Path

from flwr.app import Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from privadmm.deploy.flower.post import FlowerPost

app = ServerApp()
thief = ClientApp()


@app.main()
def main(grid, context):
    letter = pickle.loads(Path(context.run_config["letter"]).read_bytes())
    post = FlowerPost(grid)
    said = post.exchange({node: letter for node in post.nodes()}, 120.0)
    Path(context.run_config["said"]).write_bytes(pickle.dumps(list(said.values())))


@thief.query()
def steal(message, context):
    Path(context.node_config["party"], "stolen").write_text("stolen")
    return Message(message.content, reply_to=message)
'''
UNRULY = '''"""The coordinator's app over a post that brings letters twice, too early and too late."""
from flwr.serverapp import ServerApp

from privadmm.deploy.flower.post import FlowerPost
from privadmm.runs import flower_app as server


class Unruly(FlowerPost):
    old = {}

    def exchange(self, letters, seconds):
        if not all(letter["kind"] == "step" for letter in letters.values()):
            return super().exchange(letters, seconds)
        next_ones = {node: {**letter, "round": letter["round"] + 1} for node, letter in letters.items()}
        assert {said["status"] for said in super().exchange(next_ones, seconds).values()} == {"refused"}
        found = super().exchange(letters, seconds)
        assert found.keys() == letters.keys()
        if self.old:
            assert super().exchange(self.old, seconds) == self.answers
        type(self).old, type(self).answers = letters, found
        return found

    def _push(self, letters, seconds):
        backwards = dict(reversed(letters.items()))
        return super()._push(letters, seconds) | super()._push(backwards, seconds)


server.FlowerPost = Unruly
app = ServerApp()
app.main()(server.main)
'''
BUNDLE = """[project]
name = "{name}"
version = "1.0.0"
description = "x"
license = "MIT"
dependencies = []
[tool.flwr.app]
publisher = "nobody"
[tool.flwr.app.components]
serverapp = "{name}:app"
clientapp = "{client}"
[tool.flwr.app.config]
"""


def bundle(folder: Path, name: str, code: str, client: str, **config: str | float | bool) -> Path:
    """A foreign app, to be run in place of the coordinator's."""
    made = folder / name
    made.mkdir()
    (made / f"{name}.py").write_text(code)
    given = "".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items())
    (made / "pyproject.toml").write_text(BUNDLE.format(name=name, client=client) + given)
    return made


def started(made: Deployed, app: Path) -> None:
    made.place.status.unlink(missing_ok=True)
    words = ["flwr", "run", str(app), "federation"]
    subprocess.run(words, check=True, capture_output=True, env=made.environment)


def test_letters_that_come_twice_too_early_and_too_late(made: Deployed, whole: str, tmp_path: Path) -> None:
    config = {"coordinator": str(made.place.folder), "out": "runs/unruly", "absent": "abort"}
    client = "privadmm.deploy.flower.client:app"
    started(made, bundle(tmp_path, "unruly", UNRULY, client, **config, resume=False, timeout=PATIENCE))
    result = made.finish()
    assert result["transcript"] == whole
    in_order(made, result, [ROUNDS] * 3)
    job = job_of(Path(result["out"]))
    for number in range(3):
        asked = [(letter, said) for letter, said in made.captured(number) if letter.get("job") == job]
        for t in range(ROUNDS):
            given = [said for letter, said in asked if letter["round"] == t and said["status"] == "ok"]
            early = [said for letter, said in asked if letter["round"] == t and said["status"] == "refused"]
            assert len(given) >= 2
            assert all(said == given[0] for said in given)
            assert bool(early) == (t > 0)


def test_a_coordinator_that_forges_a_round_and_brings_its_own_code(made: Deployed, tmp_path: Path) -> None:
    if not made.captured(1):
        made.run(out="runs/plain")
        made.finish()
    # For the first job, which all three parties finished.
    letter = dict(next(one for one, _ in made.captured(1) if one["kind"] == "step"))
    mail = Mail.unpack(letter["inbox"])  # type: ignore[arg-type]
    letter["inbox"] = Mail(mail.senders, mail.values + 0.5, mail.absent).pack()
    (tmp_path / "letter").write_bytes(pickle.dumps(letter))
    paths = {key: str(tmp_path / key) for key in ("letter", "said")}
    forger = bundle(tmp_path, "forger", FORGER, "forger:thief", **paths)
    before = [without_refusals(ledger) for ledger in made.federated.ledgers]
    started(made, forger)
    made.wait_for((tmp_path / "said").exists, "the answers")
    answers = pickle.loads((tmp_path / "said").read_bytes())
    assert {said["status"] for said in answers} == {"refused"}
    assert all("answered for another inbox" in said["message"] for said in answers)
    assert "answered for another inbox" in (made.federated.folders[1] / "requests.log").read_text()
    assert not any((folder / "stolen").exists() for folder in made.federated.folders)
    assert [without_refusals(ledger) for ledger in made.federated.ledgers] == before


STRANGERS = {
    "a key that nobody registered": "is not let in by the SuperLink",
    "another authority": "CERTIFICATE_VERIFY_FAILED",
    "plain text": "Server disconnected",
}


@pytest.mark.parametrize("who", STRANGERS)
def test_strangers_are_not_let_in(made: Deployed, tmp_path: Path, who: str) -> None:
    from privadmm.deploy.federation.keys import make_authority, make_node_key

    one = party(made, 0)
    words = [*node(one), "--max-retries", "1"]
    words[words.index("--port") + 1] = str(made.port + 4)
    if who == "a key that nobody registered":
        make_node_key(tmp_path)
        words[words.index("--auth-supernode-private-key") + 1] = str(tmp_path / "node-key")
    elif who == "another authority":
        make_authority(tmp_path / "other", "127.0.0.1")
        words[words.index("--root-certificates") + 1] = str(tmp_path / "other" / "ca.pem")
    else:  # by Flower's own program: a party's refuses to start without its key
        words[0] = str(Path(sys.executable).with_name("flower-supernode"))
        at = words.index("--root-certificates")
        del words[at : at + 2]
        at = words.index("--auth-supernode-private-key")
        words[at : at + 2] = ["--insecure"]
    environment = {**ENVIRONMENT, **node_environment(one)}
    log = tmp_path / "stranger.log"
    with log.open("wb") as file:
        process = subprocess.Popen(words, env=environment, stdout=file, stderr=file, start_new_session=True)
    try:
        made.wait_for(lambda: process.poll() is not None, "the end of a stranger")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert process.returncode != 0, log.read_text()
    assert STRANGERS[who] in log.read_text()
    assert "SuperNode ID" not in log.read_text()


@pytest.mark.parametrize(("kind", "tables"), [("graph", GRAPH), ("columns", PEOPLE), ("secure sum", SUMS)])
def test_the_same_transcript_on_other_shapes(kind: str, tables: dict[str, Any], place: Place) -> None:
    expected = in_process(place.path / "one", tables)
    with deployed(place.path, tables) as found:
        found.run()
        result = found.finish()
        assert result["transcript"] == expected
        for number, ledger in enumerate(found.federated.ledgers):
            only_releases(ledger, [said for _, said in found.captured(number)])
            letters = [letter["kind"] for letter, _ in found.captured(number)]
            assert ("roster" in letters) == (kind == "secure sum")
            assert key_of(ledger, job_of(Path(result["out"]))) is None


@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM"])
def test_a_process_that_ends_before_it_reads_its_letter(how: str, tmp_path: Path, whole: str) -> None:
    """Nobody else would answer that letter: the node says so, and it is sent again."""
    with deployed(tmp_path, STAR) as made:
        unread = made.federated.folders[1] / "unread"
        made.run(out="runs/first")
        made.wait_for(lambda: made.at(f"round 1 of {ROUNDS}"), "a round")
        unread.write_text(how)
        made.wait_for(lambda: not unread.exists(), "a process that ends")
        result = made.finish()
        assert result["transcript"] == whole
        in_order(made, result, [ROUNDS] * 3)


@pytest.mark.parametrize("act", ["fails", "dies"])
def test_a_party_that_fails_in_a_deployment_is_locked(act: str, tmp_path: Path) -> None:
    """On real nodes whose process fails or dies: charged and reported once, and only the steward unlocks."""
    pytest.importorskip("opendp")
    from contextlib import closing

    from privadmm.cli.views import steward

    run = {"mode": "deployment", "seed": None, "ledger": "none"}
    with deployed(tmp_path, with_changes(STAR, {"run": run}), pinned=False) as made:
        fault = made.federated.folders[1] / "fault"
        fault.write_text(act)
        made.run(out="runs/first", timeout=60.0)
        made.wait_for(made.ended, "the end of the run")
        status = made.status()
        assert status["state"] == "failed"
        # A dead process sends nothing: its party is silent, and then locked.
        steps = [said for letter, said in made.captured(1) if letter["kind"] == "step"]
        assert {said["status"] for said in steps} <= {"locked"}
        assert "0.123" not in json.dumps(status) + repr(made.captured(1))
        fault.unlink()
        made.run(out="runs/second")
        made.wait_for(made.ended, "the end of the second run")
        assert made.status()["error"] == "LockedError", made.status()
        ledger = made.federated.ledgers[1]
        with closing(steward.opened(ledger)) as opened:
            assert opened.failed is not None
            assert ("0.123" in (opened.why or "")) == (act == "fails")
            assert sum(count for _, count in opened.spent(1)) == 1
            opened.unlock("the test planted it")
        made.run(out="runs/third")
        assert made.finish()["rounds"] == ROUNDS
        with closing(steward.opened(ledger)) as opened:
            assert sum(count for _, count in opened.spent(1)) == 1 + ROUNDS


def test_a_node_that_is_stopped_in_the_middle_of_a_step_is_not_locked(tmp_path: Path) -> None:
    """As a service is stopped, every process of it at once: the step ends first, and the next node has its answer."""
    pytest.importorskip("opendp")
    from contextlib import closing

    from privadmm.cli.views import steward
    from privadmm.privacy.ledger_file import connect

    run = {"mode": "deployment", "seed": None, "ledger": "none"}
    with deployed(tmp_path, with_changes(STAR, {"run": run})) as made:
        ledger, fault = made.federated.ledgers[1], made.federated.folders[1] / "fault"

        def at_work() -> bool:
            with closing(connect(ledger, read_only=True)) as db:
                return bool(db.execute("SELECT count(*) FROM intents").fetchone()[0])

        fault.write_text("slow")
        made.run(out="runs/first")
        made.wait_for(at_work, "a step")
        node = made.running.pop("node-1")
        os.killpg(node.pid, signal.SIGTERM)
        node.wait(timeout=60)
        fault.unlink()
        made.wait_for(lambda: not at_work(), "the end of the step")
        with closing(steward.opened(ledger)) as opened:
            assert opened.failed is None
        made.node(1)
        result = made.finish()
        in_order(made, result, [ROUNDS] * 3)
