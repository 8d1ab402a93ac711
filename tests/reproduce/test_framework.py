"""Tasks give the same whoever runs them; a study reports what does not hold; data that are missing are asked for."""

import json
from pathlib import Path

import numpy as np
import pytest

from privadmm.cli import main
from privadmm.errors import ConfigError
from privadmm.reproduce import PAPERS, bench, pages, paper
from privadmm.reproduce.bench import Failed, Setting, Task
from privadmm.reproduce.sets import need
from privadmm.reproduce.study import (
    Figure,
    Grid,
    Line,
    Panel,
    Parameter,
    Spread,
    Study,
    claim,
    near,
    spread_words,
)


def refuse() -> None:
    raise ConfigError("as printed, it cannot be run")


TASKS = [Task(n, pow, (2, n), f"2^{n}", cost=n) for n in range(5)]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_by_key_whoever_computes_them(workers: int) -> None:
    seen = []
    found = bench.run(TASKS, workers, lambda done, of, now: seen.append((done, of)))
    assert found == {n: 2**n for n in range(5)}
    assert seen[0] == (0, 5)
    assert seen[-1] == (5, 5)


def test_a_named_failure_is_a_result_where_a_paper_may_fail() -> None:
    (found,) = bench.run([Task("a", refuse, may_fail=True)], 1).values()
    assert found == Failed("as printed, it cannot be run")
    with pytest.raises(ConfigError, match="cannot be run"):
        bench.run([Task("a", refuse)], 1)


def test_two_tasks_of_one_key_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="same key"):
        bench.run([TASKS[0], TASKS[0]], 1)


def a_study() -> Study:
    values = np.array([[1.0, 3.0], [np.inf, np.inf]])
    line = Line("noise as printed", (1, 2), Spread.of(values))
    return Study(
        "toy",
        "A toy",
        (Parameter("eta", "1", False, "not stated"),),
        (near("a figure", 0.5, 0.7, 0.1, "it is larger"), claim("an order", "a < b", "a < b", True)),
        (Figure("figure-1", "Losses", (Panel("one", "round", "loss", (line,)),)),),
        (Grid("table-1", "Table I", ("set", "ours"), (("german", 0.71), ("image", None))),),
        ("nothing else was run",),
    )


def test_a_study_is_written_with_what_does_not_hold(tmp_path: Path) -> None:
    pages.save(a_study(), tmp_path)
    told = json.loads((tmp_path / "study.json").read_text())
    assert [check["ok"] for check in told["checks"]] == [False, True]
    assert told["held"] == 1
    assert told["figures"][0]["panels"][0]["lines"][0]["mean"] == [2.0, None]
    page = (tmp_path / "results.md").read_text()
    assert "1 of 2 checks hold" in page
    assert "**no**" in page
    assert "it is larger" in page
    assert (tmp_path / "figure-1.png").stat().st_size > 1000
    assert "1 of 2 checks hold" in pages.shown(a_study(), tmp_path)


def test_spreads_are_over_runs() -> None:
    assert spread_words([1.0, 2.0, 6.0]) == "3 (1 to 6)"


def test_missing_data_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--data-dir"):
        need(None, ["raetsch/german.npz"], "Table I")
    with pytest.raises(ConfigError, match=r"missing here: raetsch/german\.npz"):
        need(tmp_path, ["raetsch/german.npz"], "Table I")


@pytest.mark.parametrize("name", ["pdml", "all"])
def test_a_paper_without_its_data_ends_at_once(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PRIVADMM_DATA", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", name, "--quick", "--json"])
    assert ended.value.code == 2
    assert "--data-dir" in json.loads(capsys.readouterr().out)["message"]


def test_an_unknown_paper_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "dpv", "--json"])
    assert ended.value.code == 2
    assert "mr-admm" in json.loads(capsys.readouterr().out)["message"]


@pytest.mark.parametrize("name", PAPERS)
def test_every_paper_has_a_room(name: str) -> None:
    found = paper(name)
    assert name == found.NAME
    assert Setting(quick=True).seeds < Setting().seeds
    assert found.TITLE
