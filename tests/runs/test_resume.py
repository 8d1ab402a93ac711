"""A run stopped anywhere and resumed ends the same and pays once; or it leaves nothing behind."""

import errno
import json
import os
import resource
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from privadmm.engine.job import Job
from privadmm.engine.loop import Callback, View
from privadmm.errors import ToleranceError
from privadmm.runs import metrics
from privadmm.runs.run import Bar, InterruptedRunError
from small_runs import (
    CLEAR,
    PARTIES,
    PRIVATE,
    ROUNDS,
    Place,
    Tables,
    charged,
    result,
    rows,
    spawn,
    with_changes,
    write_config,
    write_npz,
)

pytestmark = pytest.mark.usefixtures("skipped_plots")


def stop(at: int) -> Bar:
    """Press Ctrl-C after this many rounds are done and stored; 0 is before the first."""

    @contextmanager
    def bar(job: Job, done: int) -> Iterator[Callback]:
        def interrupt(view: View | None) -> None:
            if view is None or view.progress.round == at:
                raise KeyboardInterrupt

        if at == 0:
            interrupt(None)
        yield interrupt

    return bar


def interrupted(place: Place, tables: Tables = PRIVATE, at: int = 4, resume: bool = False) -> Path:
    with pytest.raises(InterruptedRunError):
        place.run(tables, bar=stop(at), resume=resume)
    return place.out


def left_behind(out: Path) -> dict[str, Any]:
    """The files that a resumed run must have in common with one that was never stopped."""
    ledger = json.loads((out / "ledger.json").read_text())
    del ledger["head"]  # it covers the job's id, which every run has of its own
    return {
        "transcript": result(out)["transcript"],
        "model": (out / "model.json").read_text(),
        "ledger": ledger,
        "metrics": (out / "metrics.csv").read_text(),
    }


EVERY_FIFTH = with_changes(PRIVATE, {"run": {"checkpoint_every": 5}})


def tear(out: Path) -> None:
    text = (out / "metrics.csv").read_text()
    (out / "metrics.csv").write_text(text[:-4])


DAMAGE: dict[str, tuple[Tables, Callable[[Path], object]]] = {
    "none": (PRIVATE, lambda out: None),
    "not private": (CLEAR, lambda out: None),
    "checkpoint behind the ledger": (EVERY_FIFTH, lambda out: None),
    "checkpoint lost": (PRIVATE, lambda out: (out / "checkpoint").unlink()),
    "row of metrics torn": (PRIVATE, tear),
    "half a file left": (PRIVATE, lambda out: (out / "checkpoint.new").write_bytes(b"half")),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("at", [1, 4, ROUNDS])
def test_a_stopped_run_resumes_to_the_same_end(damage: str, at: int, place: Place) -> None:
    tables, harm = DAMAGE[damage]
    place.run(tables, out=place.path / "whole")
    harm(interrupted(place, tables, at))
    place.run(tables, resume=True)
    assert left_behind(place.out) == left_behind(place.path / "whole")
    assert charged(place.out / "ledger.sqlite") == ROUNDS * PARTIES


def test_a_replay_without_metrics_knows_all_but_the_gap(place: Place) -> None:
    whole = place.run(out=place.path / "whole")
    out = interrupted(place)
    (out / "checkpoint").unlink()
    (out / "metrics.csv").unlink()
    again = place.run(resume=True)
    for one, other in zip(whole.rows, again.rows, strict=True):
        replayed = one.round < 4
        assert (other.gap is None) == replayed
        assert other == (metrics.Row(**{**vars(one), "gap": None}) if replayed else one)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["SIGINT", "SIGKILL"])
def test_a_signal_in_the_middle_of_a_run(sent: signal.Signals, place: Place) -> None:
    many = with_changes(PRIVATE, {"algorithm": {"rounds": 500}, "run": {"seed": None}})
    command = ["train", str(place.config(many, "the config.toml")), "--seed", "3", "--out", str(place.out)]
    process = spawn(*command, "--json")
    try:
        wait_for_rows(place.out / "metrics.csv", 20, process)
        process.send_signal(sent)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert 20 <= len(metrics.read(place.out / "metrics.csv")) < 500
    if sent == signal.SIGINT:
        assert process.returncode == 1
        assert json.loads(out)["error"] == "InterruptedRunError"
        assert "Traceback" not in err
        advice = shlex.split(err.partition("Go on with: privadmm ")[2])
        assert sorted(advice) == sorted([*command, "--resume"])
    assert place.call(*command, "--resume").code == 0
    place.run(with_changes(many, {"run": {"seed": 3}}), out=place.path / "whole")
    assert left_behind(place.out) == left_behind(place.path / "whole")
    assert charged(place.out / "ledger.sqlite") == 500 * PARTIES


def wait_for_rows(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 30
    while not (path.exists() and path.read_text().count("\n") > count):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "harm",
    [
        flip,
        lambda path: path.write_bytes(path.read_bytes()[:-8]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("somebody's notes"),
    ],
    ids=["flipped-bit", "truncated", "empty", "text"],
)
def test_a_corrupted_checkpoint_is_refused_and_not_needed(harm: Callable[[Path], object], place: Place) -> None:
    out = interrupted(place)
    harm(out / "checkpoint")
    before = charged(out / "ledger.sqlite")
    said = place.train(place.path / "config.toml", "--resume", "--json")
    assert (said.code, said.object["error"]) == (1, "CheckpointError")
    assert str(out / "checkpoint") in said.err
    assert charged(out / "ledger.sqlite") == before
    (out / "checkpoint").unlink()
    assert place.train(place.path / "config.toml", "--resume").code == 0
    place.run(out=place.path / "whole")
    assert left_behind(out) == left_behind(place.path / "whole")


@pytest.mark.parametrize("older", [2, None], ids=["restored", "missing"])
def test_a_ledger_behind_the_checkpoint_is_refused(older: int | None, place: Place) -> None:
    ledger = interrupted(place, at=older or 4) / "ledger.sqlite"
    kept = ledger.read_bytes()
    if older is not None:
        interrupted(place, resume=True)
    ledger.unlink()
    if older is not None:
        ledger.write_bytes(kept)
    said = place.train(place.path / "config.toml", "--resume", "--json")
    assert (said.code, said.object["error"]) == (1, "LedgerError")
    assert str(ledger) in said.err
    assert ledger.exists() == (older is not None)
    assert not ledger.exists() or charged(ledger) == 2 * PARTIES


FINISHED, UNFINISHED, NEW = "finished", "unfinished", "new"


@pytest.mark.parametrize(
    ("there", "words", "changes", "code", "said"),
    [
        (FINISHED, [], {}, 2, "finished run"),
        (FINISHED, ["--resume"], {}, 2, "finished run"),
        (UNFINISHED, [], {}, 2, "--resume"),
        (UNFINISHED, ["--resume", "--seed", "2"], {}, 1, "another config or seed"),
        (UNFINISHED, ["--resume"], {"algorithm": {"rho": 0.2}}, 1, "another config or seed"),
        (UNFINISHED, ["--resume"], {"data": {"split_seed": 1}}, 1, "another config or seed"),
        (NEW, ["--resume"], {}, 1, "no run to resume"),
    ],
)
def test_what_a_directory_holds_decides(
    there: str, words: list[str], changes: dict[str, Any], code: int, said: str, place: Place
) -> None:
    if there == FINISHED:
        place.run()
    elif there == UNFINISHED:
        interrupted(place)
    before = {item: item.read_bytes() for item in place.out.glob("*")}
    outcome = place.train(place.config(**changes), *words)
    assert outcome.code == code
    assert said in outcome.err
    assert str(place.out) in outcome.err
    assert {item: item.read_bytes() for item in place.out.glob("*")} == before


def test_data_of_another_shape_do_not_resume_a_run(place: Place) -> None:
    interrupted(place)
    write_npz(place.path / "data.npz", *rows(n=61))
    said = place.train(place.path / "config.toml", "--resume")
    assert (said.code, "number of parties, records or columns" in said.err) == (1, True)


def test_two_processes_do_not_work_on_one_run(place: Place) -> None:
    fcntl = pytest.importorskip("fcntl")
    out = interrupted(place)
    with (out / "job.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = place.train(place.path / "config.toml", "--resume")
    assert (said.code, "another process" in said.err) == (1, True)
    assert place.train(place.path / "config.toml", "--resume").code == 0


def test_a_run_that_ends_before_its_first_release_leaves_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = place.names() | {"config.toml"}
    with pytest.raises(InterruptedRunError, match="nothing was released"):
        place.run(bar=stop(at=0))
    assert place.names() == before

    def unsolved(*arguments: Any) -> None:
        raise ToleranceError("party 0 was not solved")

    with monkeypatch.context() as patch:
        patch.setattr("privadmm.runs.run.train", unsolved)
        assert place.train(place.path / "config.toml").code == 1
    assert place.names() == before
    assert place.train(place.path / "config.toml").code == 0


def test_an_unfinished_run_is_never_discarded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if the ledger cannot tell what was released."""
    ledger = interrupted(place) / "ledger.sqlite"
    ledger.write_text("overwritten by accident")
    before = place.names()
    assert place.train(place.path / "config.toml", "--resume").code == 1
    assert place.names() == before


@pytest.mark.parametrize("limit", [0, 300, 2000, 40_000])
def test_a_full_disk_is_a_message_and_a_run_to_resume(limit: int, place: Place) -> None:
    """A file may not grow beyond `limit` bytes: the job, the config, the checkpoint or the ledger fails."""
    many = with_changes(PRIVATE, {"algorithm": {"rounds": 40}})
    config = write_config(place.path / "config.toml", many)
    process = spawn(
        *("train", config, "--out", place.out, "--json"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert json.loads(out)["error"] in ("StorageError", "LedgerError")
    assert "Traceback" not in err
    assert str(place.out) in err
    assert place.train(config, *(["--resume"] if place.out.exists() else [])).code == 0
    place.run(many, out=place.path / "whole")
    assert left_behind(place.out) == left_behind(place.path / "whole")


def test_a_disk_that_fills_while_the_results_are_written(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    config = place.config()
    with monkeypatch.context() as patch:
        patch.setattr("privadmm.runs.plots.spending", full)
        said = place.train(config, "--json")
    assert (said.code, said.object["error"]) == (1, "StorageError")
    assert f"{place.out}: No space left on device" in said.err
    assert "--resume" in said.err
    assert not (place.out / "result.json").exists()
    assert place.train(config, "--resume").code == 0
    assert charged(place.out / "ledger.sqlite") == ROUNDS * PARTIES
