"""What an operator does with Dask: workers that come back, parts that are ended or absent, versions that differ."""

import json
import shlex
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import privadmm
from dask_deployment import Deployed, at_round, dasked, deployed, ledgers, said
from privadmm.engine.job import Job
from privadmm.engine.loop import Callback, View
from privadmm.errors import ClusterError
from privadmm.privacy.verification import verify
from small_runs import PRIVATE, Place, charged, free_port, spawn, wait_for, with_changes

pytestmark = pytest.mark.usefixtures("skipped_plots")

PARTIES, ROUNDS = 5, 6
STAR = with_changes(PRIVATE, {"parties": {"count": PARTIES}})
NAMES = ("block-0", "block-1")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    with deployed(tmp_path_factory.mktemp("dask"), NAMES) as made:
        yield made


def paid_once(out: Path, rounds: int = ROUNDS) -> None:
    """Check that every party of every block is charged once a round, and that the ledgers are whole."""
    assert [verify(path).problems for path in ledgers(out)] == [(), ()]
    assert sum(charged(path) for path in ledgers(out)) == PARTIES * rounds


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_a_worker_that_comes_back_by_its_name_is_taken_at_once(
    how: signal.Signals, cluster: Deployed, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It is ended with its nanny: nothing is left of it but its name and its ledger."""
    whole = place.run(STAR, out=place.path / "whole")
    back: list[float] = []

    def replaced() -> None:
        cluster.end("block-1", how)
        cluster.start("block-1")
        back.append(time.monotonic())

    done = place.run(dasked(STAR, cluster, timeout=600.0), bar=at_round(2, replaced))
    assert time.monotonic() - back[0] < 100  # seconds, on cores that have much else to do
    assert "it goes on from its ledger when worker block-1 is back" in caplog.text
    assert said(done) == said(whole)
    paid_once(place.out)


def test_a_worker_whose_ports_are_fixed_comes_back_at_its_old_address(cluster: Deployed, place: Place) -> None:
    """Whoever answers at a block's address need not be the process that holds the block."""
    ports = ("--worker-port", str(free_port()), "--nanny-port", str(free_port()))

    def replaced() -> None:
        cluster.end("block-1")
        cluster.start("block-1", *ports)

    @contextmanager
    def twice(job: Job, done: int) -> Iterator[Callback]:
        def look(view: View) -> None:
            if view.progress.round in (2, 4):
                replaced()

        yield look

    done = place.run(dasked(STAR, cluster), bar=twice)
    assert said(done) == said(place.run(STAR, out=place.path / "whole"))
    paid_once(place.out)


def other_version(folder: Path) -> Path:
    """A folder with this privadmm under another version."""
    shutil.copytree(Path(privadmm.__file__).parent, folder / "other" / "privadmm")
    module = folder / "other" / "privadmm" / "__init__.py"
    module.write_text(module.read_text().replace(f'__version__ = "{privadmm.__version__}"', '__version__ = "0.0.7"'))
    return folder / "other"


def test_a_worker_with_another_version_is_refused(cluster: Deployed, place: Place) -> None:
    """At the start, and when it takes the place of one that was lost; both versions are named."""
    other, refused = other_version(place.path), rf"worker block-1 .*privadmm 0\.0\.7 .*{privadmm.__version__}: install"

    def replaced() -> None:
        cluster.end("block-1")
        cluster.start("block-1", PYTHONPATH=str(other))

    with pytest.raises(ClusterError, match=refused + ".* --resume"):
        place.run(dasked(STAR, cluster), bar=at_round(2, replaced))
    with pytest.raises(ClusterError, match=refused + ".*nothing was released"):
        place.run(dasked(STAR, cluster), out=place.path / "second")
    assert not (place.path / "second").exists()
    cluster.end("block-1")
    cluster.start("block-1")
    done = place.run(dasked(STAR, cluster), resume=True)
    assert said(done) == said(place.run(STAR, out=place.path / "whole"))
    paid_once(place.out)


def test_an_absent_scheduler_is_said_within_five_seconds(place: Place) -> None:
    address, began = f"tcp://127.0.0.1:{free_port()}", time.monotonic()
    done = place.train(place.config(STAR, run={"engine": "dask", "scheduler": address}), "--json")
    assert time.monotonic() - began < 5
    assert (done.code, done.object["error"]) == (1, "ClusterError")
    assert f"nothing answers at {address} (Connection refused): start `dask scheduler`" in done.object["message"]
    assert not place.out.exists()


def test_somebody_who_listens_and_does_not_answer_is_no_scheduler(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privadmm.deploy.dask_client.PROBE", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"whoever listens at {address} does not answer"):
            place.run(with_changes(STAR, {"run": {"engine": "dask", "scheduler": address, "timeout": 1.0}}))


def started(place: Place, cluster: Deployed, rounds: int) -> tuple[list[str], Any]:
    """`privadmm train` in a process of its own, some rounds after its start, and its command."""
    config = place.config(dasked(STAR, cluster), algorithm={"rounds": rounds})
    command = ["train", str(config), "--out", str(place.out)]
    process = spawn(*command, "--json")
    path = place.out / "metrics.csv"
    wait_for(lambda: path.exists() and path.read_text().count("\n") > 10, "a round")
    return command, process


@pytest.mark.parametrize("whom", ["the driver", "scheduler"])
def test_a_part_is_told_to_end(whom: str, place: Place, tmp_path_factory: pytest.TempPathFactory) -> None:
    """SIGTERM: a message that says how to go on, exit code 1, and a run directory that can be resumed."""
    rounds = 160
    with deployed(tmp_path_factory.mktemp("mortal"), NAMES) as cluster:
        command, process = started(place, cluster, rounds)
        try:
            if whom == "scheduler":
                cluster.end(whom, signal.SIGTERM)
            else:
                process.terminate()
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
        told = json.loads(out)
        assert process.returncode == told["exit_code"] == 1
        assert "Traceback" not in err
        if whom == "scheduler":
            assert "is gone: start it and its workers again; then go on with --resume" in told["message"]
            cluster.begin(NAMES)
        else:
            advice = shlex.split(err.partition("Go on with: privadmm ")[2])
            assert sorted(advice) == sorted([*command, "--resume"])
        assert not (place.out / "result.json").exists()
        assert place.call(*command).code == 2  # it holds an unfinished run, and says so
        done = place.call(*command, "--scheduler", cluster.address, "--resume", "--json")
        assert done.code == 0, done.err
    whole = place.run(with_changes(STAR, {"algorithm": {"rounds": rounds}}), out=place.path / "whole")
    assert json.loads((place.out / "result.json").read_text())["transcript"] == whole.result["transcript"]
    paid_once(place.out, rounds)


LEFT = {"parties": {"leave": ["1@2", "3@4"]}, "privacy": {"budget": 1.5}}


@pytest.mark.parametrize("engine", ["inprocess", "dask"])
def test_what_parties_that_left_did_not_spend_is_free_when_the_run_is_over(
    engine: str, cluster: Deployed, place: Place
) -> None:
    tables = with_changes(STAR, {**LEFT, "run": {"ledger": "kept"}})
    if engine == "dask":
        tables = dasked(tables, cluster)
    done = place.run(tables)
    files = sorted((place.path / "kept").glob("*.sqlite")) if engine == "dask" else [place.path / "kept"]
    for file in files:
        assert verify(file).problems == ()
        shown = place.call("ledger", "show", file, "--json").object
        for party in shown["parties"]:
            assert party["epsilon_with_reservations"] == party["epsilon_spent"]
    spent, left = ({party["party"]: party[key] for party in done.ledger["parties"]} for key in ("epsilon", "left"))
    assert spent[1] < spent[3] < spent[0]
    assert left[1] > left[3] > left[0]
