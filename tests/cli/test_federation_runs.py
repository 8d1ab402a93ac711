"""Commands at the coordinator's directory, without Flower's processes: what they say, and their exit codes."""

import json
import os
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from federations import Desks, Federated, ending, federated
from privadmm.cli.views.runs_of_federation import milestone
from privadmm.config.file import read
from privadmm.deploy.federation.hub import state
from privadmm.deploy.federation.hub.coordinator import Patience
from privadmm.deploy.federation.hub.state import Status, Wanted, driving, note, standing, wanted
from privadmm.deploy.federation.hub.supervisor import Resumption
from privadmm.deploy.federation.protocol import Letter
from privadmm.deploy.federation.setup.health import of_coordinator
from privadmm.errors import CheckpointError, ClusterError, ConfigError, RefusedError
from privadmm.privacy.verification import verify
from privadmm.runs.asking import start
from privadmm.runs.federated import Asked, end, federate
from privadmm.runs.reporting import Reporter, StopRequestedError
from privadmm.runs.rundir import RunDir
from small_runs import PRIVATE, Place, charged, with_changes

ROUNDS = 6
TABLES = with_changes(PRIVATE, {"privacy": {"budget": 10.0}})


@pytest.fixture
def made(tmp_path: Path) -> Federated:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    return federated(tmp_path, TABLES, port)  # nobody listens there


@pytest.fixture
def folder(made: Federated) -> Path:
    return made.made.coordinator.folder


def reported(made: Federated, post: Desks, out: str = "runs/first", resume: bool = False) -> tuple[Status, Any]:
    """Run the job with a report, in this process; its status, and the result or the error that ended it."""
    place = made.made.coordinator
    path = place.folder / out
    with driving(place), Status(place.status, "7", str(path)) as status:
        Wanted(out, runs=("7",)).save(place)
        report = Reporter(place, status, len(made.folders), {100 + party: party for party in range(3)}.get)
        post_watch(post, report)
        try:
            return status, federate(read(place.job), post, Asked(path, place, resume, Patience(1.0)), report)
        except StopRequestedError as error:
            return status, error


def post_watch(post: Desks, report: Reporter) -> None:
    """Let the report hear of every letter who has not answered yet, as the post of Flower does."""
    before = post.before

    def watched(party: int, letter: Letter) -> None:
        report.waiting([100 + other for other in range(party, 3)], [100, 101, 102])
        before(party, letter)

    post.before = watched


def test_a_report_of_a_run(made: Federated, folder: Path, place: Place) -> None:
    """Status tells who is waited for, and what each party has spent of the job at most and what is left."""
    seen: list[dict[str, Any]] = []
    paid: list[list[float]] = []

    def look(party: int, letter: Letter) -> None:
        seen.append(json.loads((folder / "status.json").read_text()))
        if seen[-1]["rounds"]:
            paid.append([verify(ledger).epsilon[number] for number, ledger in enumerate(made.ledgers)])

    _, result = reported(made, Desks(made.folders, before=look))
    assert seen[0]["waiting_for"] == ["party 0", "party 1", "party 2"]
    steps = [status for status in seen if status["rounds"]]
    assert [status["round"] for status in steps] == [t for t in range(ROUNDS) for _ in range(3)]
    assert [status["waiting_for"] for status in steps[:3]] == [
        ["party 0", "party 1", "party 2"],
        ["party 1", "party 2"],
        ["party 2"],
    ]
    spent = [status["parties"][0]["epsilon_spent"] for status in steps[::3]]
    left = [status["parties"][0]["epsilon_left"] for status in steps[::3]]
    assert spent == sorted(spent)
    # An answer is paid for before the round is over.
    said = [[party["epsilon_spent"] for party in status["parties"]] for status in steps]
    assert all(
        told >= own for row, ledgers in zip(said, paid, strict=True) for told, own in zip(row, ledgers, strict=True)
    )
    assert left == sorted(left, reverse=True)
    account = json.loads((Path(result["out"]) / "ledger.json").read_text())["parties"]
    last = json.loads((folder / "status.json").read_text())["parties"][0]
    assert (last["epsilon_spent"], last["epsilon_left"]) == (account[0]["epsilon"], 0.0)
    assert {"pid", "beat", "started", "seconds_left"} <= seen[0].keys()
    events = [json.loads(line)["event"] for line in (folder / "log").read_text().splitlines()]
    assert [event for event in events if event.startswith("round")] == [f"round {t + 1} of {ROUNDS}" for t in range(6)]


def test_a_status_counts_what_was_paid_after_the_last_checkpoint(made: Federated, folder: Path) -> None:
    """A run that is resumed repeats rounds that are paid for: no figure on the way may leave them out."""
    job = made.made.coordinator.job
    job.write_text(job.read_text().replace("[run]", "[run]\ncheckpoint_every = 5"))
    with pytest.raises(ClusterError, match="gone"):
        made.run(ending(Desks(made.folders), 3))
    said: list[float] = []

    def look(party: int, letter: Letter) -> None:
        if letter["kind"] == "step":
            said.append(json.loads((folder / "status.json").read_text())["parties"][1]["epsilon_spent"])

    before = verify(made.ledgers[1]).epsilon[1]
    reported(made, Desks(made.folders, before=look), resume=True)
    assert min(said) >= before > 0


@pytest.mark.parametrize("asked", ["begin", "hello"])
def test_everybody_who_refused_is_named_and_shown(asked: str, made: Federated, folder: Path, place: Place) -> None:
    """Also after they heard that the job is over, and by the names that the table has."""
    made.change(0, "number = 0", 'number = 0\nname = "north"')
    for party in (0, 2):
        if asked == "hello":
            made.change(party, "minimum_parties = ", "minimum_parties = 9  # ")
        else:
            made.change(party, "[policy]\n", "[policy]\nper_job = 0.5\n")
            place.call("federation", "ledger", made.folders[party], "--amend", "--because", "less for each")
    with pytest.raises(RefusedError) as told:
        reported(made, Desks(made.folders))
    found = json.loads((folder / "status.json").read_text())["parties"]
    assert [one["state"] for one in found] == ["refused", "answered", "refused"]
    first = {"begin": "north (party 0) refused: ", "hello": "party 0 (node 100) did not take the job"}[asked]
    other = {"begin": "party 2 refused: ", "hello": "party 2 (node 102) did not take the job"}[asked]
    assert str(told.value).startswith(first)
    assert f"; {other}" in str(told.value)
    assert "refused" in place.call("federation", "status", folder).out


def test_a_run_that_is_going_on_is_named_at_once(made: Federated, folder: Path) -> None:
    """Without --resume too: its directory looks like that of an interrupted run, and --resume would not help."""
    coordinator = made.made.coordinator
    (folder / "runs/first").mkdir(parents=True)
    (folder / "runs/first/job.json").write_text("{}")
    Wanted("runs/first", runs=("7",)).save(coordinator)
    with driving(coordinator), pytest.raises(CheckpointError, match="a run is going on in runs/first"):
        start(coordinator, "runs/first")
    with pytest.raises(ConfigError, match="holds an unfinished run"):  # nobody drives it any more
        start(coordinator, "runs/first")


def test_a_run_that_is_stopped_can_be_resumed(made: Federated, folder: Path) -> None:
    def stop(party: int, letter: Letter) -> None:
        if letter.get("round") == 2 and party == 1:
            (folder / "stop").write_text("stop")

    _, error = reported(made, Desks(made.folders, before=stop))
    assert isinstance(error, StopRequestedError)
    (folder / "stop").unlink()
    _, result = reported(made, Desks(made.folders), resume=True)
    assert result["transcript"] == made.run(out="runs/whole")["transcript"]
    assert [charged(ledger) for ledger in made.ledgers] == [2 * ROUNDS] * 3


def test_a_run_that_is_stopped_before_its_first_release_gives_everything_back(made: Federated, folder: Path) -> None:
    def stop(party: int, letter: Letter) -> None:
        if letter["kind"] == "begin" and party == 1:
            (folder / "stop").write_text("stop")

    post = Desks(made.folders, before=stop)
    _, error = reported(made, post)
    assert isinstance(error, StopRequestedError)
    assert not (folder / "runs/first").exists()
    assert {letter["kind"] for _, letter, _ in post.captured} == {"hello", "begin", "give_up"}


def test_a_job_that_is_over_for_good(made: Federated, folder: Path, place: Place) -> None:
    """The parties hear it, and the run cannot be resumed."""

    def stop(party: int, letter: Letter) -> None:
        if letter.get("round") == 2 and party == 1:
            (folder / "stop").write_text("for good")

    _, error = reported(made, Desks(made.folders, before=stop))
    assert error.for_good
    post, directory = Desks(made.folders), RunDir(folder / "runs/first")
    assert end(post, made.made.coordinator, directory) == 3
    assert (folder / "ended-jobs").read_text() == f"{directory.job_id}\n"
    assert [letter for _, letter, _ in post.captured] == [{"kind": "end", "job": directory.job_id}] * 3
    said = place.call("federation", "run", folder, "--resume", "--json")
    assert (said.code, "was ended for good" in said.object["message"]) == (2, True)


# Is it true?


def claimed(folder: Path, **changes: Any) -> None:
    found = {"run": "7", "out": str(folder / "runs/first"), "state": "running", "at": "round 1 of 6", "round": 1}
    found |= {"rounds": 6, "pid": os.getpid(), "beat": state.now(), "waiting_for": ["party 1"], "parties": []}
    (folder / "status.json").write_text(json.dumps({**found, **changes}))


def test_a_dead_run_is_not_called_running(made: Federated, folder: Path, place: Place) -> None:
    said = place.call("federation", "status", folder)
    assert (said.code, "no run was started here yet" in said.out) == (0, True)
    claimed(folder)
    said = place.call("federation", "status", folder, "--json")
    assert (said.code, said.object["state"], said.object["message"]) == (1, "interrupted", "its process is gone")
    assert said.object["wanted"] is False
    with driving(made.made.coordinator):
        said = place.call("federation", "status", folder)
        assert (said.code, "running, round 1 of 6 is done, waiting for party 1" in said.out) == (0, True)
        claimed(folder, beat="2026-01-01T00:00:00+00:00")
        said = place.call("federation", "status", folder, "--json")
        assert (said.code, said.object["state"]) == (1, "interrupted")
        assert "no sign of life" in said.object["message"]


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ({"state": "finished", "exit_code": 0}, 0),
        ({"state": "failed", "error": "RefusedError", "message": "party 1 refused", "exit_code": 3}, 3),
        ({"state": "stopped", "error": "StopRequestedError", "message": "stopped", "exit_code": 1}, 1),
    ],
)
def test_the_exit_code_is_the_run_s(ended: dict[str, Any], code: int, folder: Path, place: Place) -> None:
    claimed(folder, **ended)
    assert place.call("federation", "status", folder).code == code


def test_a_run_before_parties_are_admitted(folder: Path, place: Place) -> None:
    """It says so at once, and with which command they are, whether or not a SuperLink runs."""
    keys = sorted((folder / "nodes").glob("*.pub"))
    keys[1].unlink()
    said = place.call("federation", "run", folder)
    assert (said.code, "party 1 is not admitted" in said.err) == (1, True), said.err
    for key in (keys[0], keys[2]):
        key.unlink()
    said = place.call("federation", "run", folder)
    assert said.code == 1
    assert "nobody is admitted" in said.err
    assert f"privadmm federation admit {folder}" in said.err


def test_what_cannot_be_started(folder: Path, place: Place) -> None:
    for words, code, what in [
        ((folder,), 1, "no SuperLink listens at 127.0.0.1:"),
        ((folder, "--out", "elsewhere"), 2, "not inside runs/"),
        ((folder, "--out", "runs"), 2, "not inside runs/"),
        ((folder, "--resume"), 1, "holds no run to resume; leave out --resume"),
        ((folder.parent,), 1, "no SuperLink listens at 127.0.0.1:"),
        ((folder.parent.parent,), 2, "is no coordinator's directory"),
        ((folder, "--absent", "never"), 2, "never"),
    ]:
        said = place.call("federation", "run", *words, "--json")
        assert (said.code, what in said.object["message"]) == (code, True), said
    assert wanted_run(folder) is None


def wanted_run(folder: Path) -> Wanted | None:
    from privadmm.deploy.federation.layout import Coordinator

    return wanted(Coordinator(folder))


PARTIES = [
    {"party": number, "name": name, "state": said, "epsilon_spent": 0.25001, "epsilon_left": 0.75}
    for number, (name, said) in enumerate([("north", "asked"), ("south", "answered"), ("lakeside", "left")])
]


@pytest.mark.parametrize("ended", ["stopped", "failed", "running"])
def test_nobody_is_waited_for_once_a_run_is_over(ended: str, made: Federated, folder: Path, place: Place) -> None:
    """Who was asked when it ended was not heard, and may have paid for its answer."""
    claimed(folder, state=ended, parties=PARTIES, waiting_for=["north"], seconds_left=120.0)
    found = standing(made.made.coordinator)
    assert [party["state"] for party in found["parties"]] == ["asked, not heard", "answered", "left"]
    assert (found["waiting_for"], found["seconds_left"]) == ([], None)
    said = " ".join(place.call("federation", "status", folder).out.split())
    assert "0.2501" in said  # rounded up
    assert "asked, not heard" in said
    assert "its own ledger knows" in said
    if ended != "running":
        told = of_coordinator(made.made.coordinator)["run"]
        assert (told["parties"][0]["state"], told["waiting_for"]) == ("asked, not heard", [])
    with driving(made.made.coordinator):
        claimed(folder, state="running", parties=PARTIES, waiting_for=["north"], beat=state.now())
        assert standing(made.made.coordinator)["parties"][0]["state"] == "asked"


def test_stopping_what_nobody_drives(made: Federated, folder: Path, place: Place) -> None:
    said = place.call("federation", "stop", folder, "--json")
    assert (said.code, said.object["error"]) == (1, "CheckpointError")
    claimed(folder)
    Wanted("runs/first", runs=("7",)).save(made.made.coordinator)
    said = place.call("federation", "stop", folder, "--json")
    assert (said.code, said.object["state"], said.object["exit_code"]) == (0, "stopped", 1)
    assert standing(made.made.coordinator)["wanted"] is False
    assert not (folder / "stop").exists()


def test_logs_for_people_and_machines(
    made: Federated, folder: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LOG", 300)
    for number in range(40):
        note(made.made.coordinator, f"event {number}", run="7")
    assert {path.name for path in folder.glob("log*")} == {"log", "log.1", "log.2", "log.3"}
    said = place.call("federation", "logs", folder, "--last", "2")
    assert [line.split("  ", 1)[1] for line in said.out.splitlines()] == ["event 38  [run=7]", "event 39  [run=7]"]
    lines = [json.loads(line)["event"] for line in place.call("federation", "logs", folder, "--json").out.splitlines()]
    assert lines[-1] == "event 39"
    assert lines == [f"event {number}" for number in range(40 - len(lines), 40)]


# Who takes it up again


def test_when_a_run_is_submitted_again(made: Federated, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = made.made.coordinator
    watch = Resumption(place, {})
    assert not watch.lost()  # nothing was asked for
    Wanted("runs/first", runs=("7",)).save(place)
    claimed(folder)
    assert not watch.lost()  # no SuperLink is there to take it
    with closing(socket.create_server(place.address)):
        assert watch.lost()
        with driving(place):
            assert not watch.lost()
        Wanted("runs/first", runs=("7", "8")).save(place)
        assert not watch.lost()  # it was submitted just now, and its process has not begun
        os.utime(place.wanted, (0, 0))
        assert watch.lost()
        Wanted("runs/first", runs=("7",), over=True).save(place)
        assert not watch.lost()


def test_a_run_that_makes_no_progress_fails_in_the_end(
    made: Federated, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = pytest.importorskip("privadmm.deploy.flower.control")
    place, submitted = made.made.coordinator, list[Wanted]()

    def submit(place: Any, asked: Wanted) -> None:
        submitted.append(asked)
        asked.submitted(str(len(submitted))).save(place)

    monkeypatch.setattr(control, "submit", submit)
    monkeypatch.setattr(control, "stop", lambda *_: None)
    monkeypatch.setattr(control, "stopped_by_hand", lambda *_: False)
    Wanted("runs/first", runs=("0",)).save(place)
    for number in range(3):  # each of these did a round
        claimed(folder, run=str(number), round=number + 1)
        control.again(place)
    assert [asked.idle for asked in submitted] == [0, 0, 0]
    for number in range(3, 3 + control.TRIES + 1):
        claimed(folder, run=str(number), round=3)
        control.again(place)
    assert [asked.idle for asked in submitted[3:]] == [*range(1, control.TRIES + 1)]
    found = standing(place)
    assert (found["state"], found["exit_code"], found["wanted"]) == ("failed", 1, False)
    assert "without finishing a round" in found["message"]


def test_a_run_that_was_stopped_by_hand_is_not_taken_up(
    made: Federated, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = pytest.importorskip("privadmm.deploy.flower.control")
    place = made.made.coordinator
    monkeypatch.setattr(control, "submit", lambda *_: pytest.fail("it was submitted"))
    monkeypatch.setattr(control, "stopped_by_hand", lambda *_: True)
    Wanted("runs/first", runs=("7",)).save(place)
    claimed(folder)
    control.again(place)
    assert (standing(place)["state"], standing(place)["wanted"]) == ("stopped", False)


def test_where_nobody_watches_a_line_is_told_for_each_tenth_of_the_rounds() -> None:
    def lines(rounds: int) -> int:
        said = [milestone({"state": "running", "round": done, "rounds": rounds}) for done in range(rounds + 1)]
        assert f"round {rounds} of {rounds}" in said[-1]
        return len(set(said))

    assert (lines(100), lines(41), lines(6)) == (11, 11, 7)
