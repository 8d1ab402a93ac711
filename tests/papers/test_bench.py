"""The benchmark command: whole and in parts, and that no fault of ours hides behind a good time."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryFile
from time import sleep
from typing import Any

import numpy as np
import pytest

from privadmm.cli import main
from privadmm.engine.loop import one_blas_thread
from privadmm.papers.bench import growth, machine, measuring, page, running, shares
from privadmm.papers.bench.workload import Agreement, Floor, Goal, Line, Part, Ready, Reference, Workload, alike, below
from privadmm.papers.bench.workloads import everything

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
NAMES = list(everything())
# Compared by the size of their noise or by their accuracy, so that a small fault is not seen.
STATISTICAL = {"dp-admm-many", "dp-admm-sweep", "dp-admm-reproduce", "replicas-dense", "replicas-sparse"}
STATISTICAL |= {"deployment-noise", "private-training"}
FLAT = ("pooled-", "dask-glm")  # compared near an optimum, where the objective hardly moves
LONG = {name for name in NAMES if name.startswith(("train-", "pooled-", "rounds-", "dask", "dp-admm-", "replicas-"))}
TINY = ("gradient-adult", "ledger")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(["bench", *words])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def made(ours: float = 1.0, theirs: float = 1.0, goal: Goal | None = None) -> Workload:
    """A workload whose sides give these answers at once."""

    def make(quick: bool) -> Ready:
        """Numbers.

        Fair: they are.
        """
        side = {"it": Reference(lambda: np.array([theirs]), alike(1e-6))}
        return Ready(lambda: np.array([ours]), side, Floor(bytes=8.0))

    return Workload("made", make, (Line("it", "itself", goal),))


def test_two_workloads_through_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "new" / "page.md"
    code, out, _ = said(capsys, *TINY, "--quick", "--json", "--out", str(written))
    assert code == 0
    result = json.loads(out)
    assert [line["name"] for line in result["lines"]] == list(TINY)
    assert result["failures"] == []
    for line in result["lines"]:
        assert line["agree"]
        assert line["ours"]["cpu"] > 0
        assert line["ours"]["wall"] > 0
        time = "wall" if line["goal"]["kind"] == "wall" else "cpu"
        assert math.isclose(line["ratio"], line["reference"][time] / line["ours"][time])
        assert line["ours"]["peak"] > 1e7
        assert line["distance"] > 0
        assert line["rates"]["bandwidth"] > 1e8
    text = written.read_text()
    assert all(f"| {name} |" in text for name in TINY)
    assert "A quick run" in text
    assert str(tmp_path) not in text
    assert "<svg" in written.with_suffix(".svg").read_text()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in NAMES]
)
def test_a_fault_of_ours_is_seen(name: str) -> None:
    """Both sides agree as they are, and not if our answer is off."""
    chosen = everything()[name]
    if (why := chosen.missing()) is not None:
        pytest.skip(why)
    with one_blas_thread():
        ready = chosen.make(True)
        ours = ready.ours()
        assert set(ready.references) == {line.name for line in chosen.lines}
        for reference in ready.references.values():
            theirs = ours if reference.run is None else reference.run()
            assert reference.check(ours, theirs).reached
            wrong = ours * (3.0 if name in STATISTICAL else 1.1 if name.startswith(FLAT) else 1.01)
            if reference.run is None and name in STATISTICAL:
                continue  # it has only its own spread to be compared with, and its line is about memory
            assert not reference.check(wrong, theirs if reference.run else wrong).reached
            with np.errstate(invalid="ignore"):
                assert not reference.check(np.full_like(ours, np.nan), theirs).reached


def test_every_workload_is_described() -> None:
    for one in everything().values():
        assert one.title
        assert len(one.fairness) > 20, one.name
        assert len({line.name for line in one.lines}) == len(one.lines)


def test_the_page_names_every_workload_and_no_machine() -> None:
    text = PAGE.read_text()
    for one in everything().values():
        assert f"`{one.name}`" in text
        assert all(f"| {one.label(line)} |" in text for line in one.lines), one.name
    assert all(f"| {name} |" in text for name in growth.STEPS)
    assert "/home" not in text
    assert "/work" not in text
    assert (PAGE.parent / "performance.svg").is_file()


def test_a_wrong_name_is_told_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "gradient", "--json")
    assert code == 2
    assert all(name in json.loads(out)["message"] for name in (*NAMES, "growth"))
    code, out, _ = said(capsys, "--list", "--json")
    assert code == 0
    assert [one["name"] for one in json.loads(out)["workloads"]] == [*NAMES, "growth"]
    assert said(capsys, "ledger", "--out", "page.txt")[0] == 2


def test_sides_that_disagree_fail_and_a_missed_goal_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(one: Workload) -> None:
        monkeypatch.setattr(running, "everything", lambda: {"made": one})
        monkeypatch.setattr(running, "in_a_process", lambda name, quick: measuring.measure(one, True))

    far = Goal("faster", 1e9)
    measured(made(goal=far))
    assert said(capsys, "made")[0] == 0
    code, out, _ = said(capsys, "made", "--strict", "--json")
    assert code == 1
    assert json.loads(out)["missed"] == ["made"]
    measured(made(goal=Goal("faster", 1e-9)))
    assert said(capsys, "made", "--strict")[0] == 0
    measured(made(theirs=1.1))
    code, out, _ = said(capsys, "made", "--json")
    assert code == 1
    assert "made" in json.loads(out)["failures"][0]


def test_a_workload_that_fails_or_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, quick: bool) -> Any:
        command = [running.sys.executable, "-c", "raise ValueError('no luck')"]
        return running.subprocess.run(command, capture_output=True, text=True)

    found = broken("made", True)
    monkeypatch.setattr(running, "everything", lambda: {"made": made()})
    monkeypatch.setattr(running.subprocess, "run", lambda *words, **more: found)
    result = running.run(["made"], True, lambda done, of, now: None)
    assert running.failures(result) == ["made: ValueError: no luck"]
    assert page.cells(result["lines"][0])[1] == "FAILED"
    absent = Workload("made", made().make, made().lines, missing=lambda: "needs more")
    (line,) = measuring.measure(absent, True)
    assert page.cells(line)[1:3] == ["skipped", "needs more"]


@pytest.mark.parametrize(
    ("kind", "figure", "margin"),
    [("faster", 20.0, 2.0), ("slower", 20.0, 0.5), ("wall", 5.0, 2.0), ("peak", 40, 0.25)],
)
def test_a_margin_above_one_is_a_goal_that_is_met(kind: Any, figure: float, margin: float) -> None:
    assert Goal(kind, 10.0).margin(figure) == margin


def test_the_reference_s_time_is_scaled_to_the_whole() -> None:
    """A reference that does a tenth of the work counts ten times."""
    side = measuring.Side(lambda: np.zeros(1))
    side.cpu, side.wall = [1.0], [1.0]
    ready = Ready(side.run, {"it": Reference(side.run, alike(0.0), share=0.1)}, units=5.0, data=2.0)
    rates = {"bandwidth": 1.0, "gemm": 1.0, "normals": 1.0}
    found = measuring.judged(made(goal=Goal("faster", 9.0)).lines[0], ready, side, side, 0, rates)
    assert math.isclose(found["ratio"], 10.0)
    assert math.isclose(found["ours"]["cpu"], 0.2)
    assert found["met"]


def test_floors_are_work_over_rates() -> None:
    rates = {"bandwidth": 10.0, "gemm": 100.0, "normals": 1.0}
    assert Floor(bytes=50.0, flops=100.0, normals=2.0).seconds(rates) == 7.0
    assert Floor().seconds(rates) is None


def test_checks_refuse_what_is_not_a_number() -> None:
    assert not Agreement(math.nan, 1.0).reached
    assert not alike(1.0)(np.zeros(2), np.zeros(3)).reached
    assert not below(1.0, lambda w: float(w[0]))(np.array([math.nan]), np.zeros(1)).reached


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    sizes = [10, 40, 160]
    assert math.isclose(growth.exponent(sizes, [3.0 * size**1.5 for size in sizes]), 1.5)


def slowly() -> float:
    total = 0.0  # in a loop: the profiler shares the time of a sum between it and what it adds up
    for number in range(200_000):
        total += number**0.5
    return total


def test_a_missed_goal_says_where_the_time_goes() -> None:
    """What was measured, not what somebody once thought: the function that takes longest, by its place in a package."""
    found = shares.of_call(lambda: (slowly(), json.dumps({})))
    assert found[0][0].startswith("test_bench.py")
    assert 0.5 < found[0][1] <= 1
    assert sum(share for _, share in found) <= 1 + 1e-9
    (line,) = measuring.measure(made(goal=Goal("faster", 1e9)), False)
    ((name, why),) = page.reasons({"lines": [line]})
    assert name == "made"
    assert all(f"{share:.0%} {function}" in why for function, share in line["shares"])
    assert shares.named("/somewhere/lib/site-packages/scipy/sparse/_base.py", "dot") == "scipy/sparse/_base.py dot"
    assert shares.named("/somewhere/src/privadmm/data/shards.py", "slope") == "data/shards.py slope"


@pytest.mark.parametrize(("kind", "best", "words"), [("faster", 4.0, "4x"), ("slower", 0.25, "0.25x slower")])
def test_what_our_side_needs_bounds_what_it_can_reach(kind: Any, best: float, words: str) -> None:
    """Beside a reference of 20 ms, two parts of 2 and 3 ms leave no more than 4x."""
    goal = Goal(kind, 1e9 if kind == "faster" else 1e-9)
    (line,) = measuring.measure(made(goal=goal), False)
    parts = [{"what": "reading", "times": 1.0, "cpu": 2e-3, "wall": 1.0}]
    parts.append({"what": "noise", "times": 3.0, "cpu": 3e-3, "wall": 1.0})
    line |= measuring.bounded(made(goal=goal).lines[0], {"reference": {"cpu": 20e-3, "wall": 9.0}}, parts)
    assert math.isclose(line["at_best"], best)
    ((_, why),) = page.reasons({"lines": [line]})
    assert f"reading 2 ms, noise 3 ms; at best {words}." in why


def test_a_part_counts_as_often_as_a_unit_has_it() -> None:
    one, many = (measuring.by_itself(Part("sum", slowly, times)) for times in (1.0, 1000.0))
    assert many["cpu"] > 100 * one["cpu"] > 0
    clock = measuring.bounded(made(goal=Goal("wall", 1.0)).lines[0], {"reference": None}, [one])
    assert clock["at_best"] == one["wall"]
    assert measuring.bounded(made(goal=Goal("peak", 1.0)).lines[0], {"reference": None}, [one])["at_best"] is None
    assert measuring.bounded(made(goal=Goal("cpu", 1.0)).lines[0], {"reference": None}, [])["at_best"] is None


def test_solves_are_counted_by_records_not_by_calls() -> None:
    """A quick run of the solver's workload takes several gradients of every record a round, and few Hessians."""
    ready = everything()["rounds-schema-1"].make(True)
    gradients, hessians, inverses = (part.times for part in ready.needed)
    assert 2 < gradients < 20
    assert 0 < hessians == inverses < 1


def test_a_command_s_imports_count_as_one() -> None:
    found = shares.of_command(["-m", "timeit", "-n", "1", "import fractions"], dict(os.environ))
    assert 0 < dict(found)["imports"] <= 1
    assert not [name for name, _ in found if name.startswith(shares.IMPORTING)]


def test_memory_of_its_own_leaves_out_files_that_are_mapped() -> None:
    if machine.own() is None:
        pytest.skip("this system does not tell what a process holds")
    size, peaks = 1 << 26, list[int]()
    with TemporaryFile() as file, machine.watched(peaks):  # on a disk: the tests' own folders may be in memory
        before = machine.own() or 0
        np.zeros(size // 64, dtype=np.uint8).tofile(file)
        file.truncate(size)
        assert np.memmap(file, dtype=np.uint8, mode="r").sum() == 0
    with machine.watched(peaks):
        held = np.ones(size, dtype=np.uint8)
        sleep(0.1)  # it is looked at now and then
        del held
    assert peaks[0] - before < size // 4
    assert peaks[1] - before > size // 2


def test_memory_is_counted_from_when_it_is_asked_to() -> None:
    """In a process of its own: one that has held much takes new arrays from what it was given before."""
    if machine.status("VmHWM") is None:
        pytest.skip("this system does not tell what a process holds")
    code = """
import numpy as np
from privadmm.papers.bench import machine
big = np.ones(1 << 24)
del big
machine.forget_peak()
before = machine.peak()
small = np.ones(1 << 22)
print(machine.peak() - before)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 1 << 25 <= int(said) < 1 << 26
