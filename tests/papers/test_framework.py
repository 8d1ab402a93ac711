"""Tasks give the same results in any process; a study reports what does not hold and asks for missing data."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from privadmm.cli import main
from privadmm.cli.views import study as view
from privadmm.errors import ConfigError, DataError
from privadmm.papers import PAPERS, paper
from privadmm.papers.framework import bench, drawing, pages
from privadmm.papers.framework.bench import Failed, Setting, Task
from privadmm.papers.framework.sets import need, raetsch
from privadmm.papers.framework.study import (
    TOO_FEW,
    Claim,
    Figure,
    Grid,
    Line,
    Panel,
    Parameter,
    Study,
    expect,
    falls,
    near,
    rises,
    spread_words,
)
from privadmm.runs.palette import LIGHT
from privadmm.runs.style import QUICK, canvas


def refuse() -> None:
    raise ConfigError("as printed, it cannot be run")


APART = "1 of 3 of the paper's claims hold, 1 cannot be judged; 1 of 1 of our own expectations hold"
TASKS = [Task(n, pow, (2, n), f"2^{n}", cost=n) for n in range(5)]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_by_key_whoever_computes_them(workers: int) -> None:
    seen = []
    found = bench.run(TASKS, workers, lambda moment: seen.append((moment.done, moment.of)))
    assert found == {n: 2**n for n in range(5)}
    assert seen[0] == (0, 5)
    assert seen[-1] == (5, 5)


def test_results_come_in_one_order_whoever_is_first() -> None:
    slow = [Task("slow", time.sleep, (0.5,), cost=2), *(Task(n, abs, (n,)) for n in range(4))]
    assert list(bench.run(slow, 2)) == list(bench.run(slow, 1)) == ["slow", 0, 1, 2, 3]


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
    line = Line.of("noise as printed", values)
    return Study(
        "toy",
        "A toy",
        (Parameter("eta", "1", False, "not stated"),),
        (
            near("a figure", 0.5, 0.7, 0.1, "it is larger"),
            Claim("an order", "a < b").judged("a < b", True),
            Claim("a change", "none").judged("1 %", None, "one setting was run, and a change needs two"),
            expect("a guess", "no figure in the paper").judged("so it is", True),
        ),
        (Figure("figure-1", "Losses", (Panel("one", "round", "loss", (line,)),)),),
        (Grid("table-1", "Table I", ("set", "ours"), (("german", 0.71), ("image", None))),),
        ("nothing else was run",),
    )


def test_a_study_is_written_with_what_does_not_hold(tmp_path: Path) -> None:
    pages.save(a_study(), tmp_path)
    told = json.loads((tmp_path / "study.json").read_text())
    assert [check["ok"] for check in told["checks"]] == [False, True, None, True]
    assert [check["of"] for check in told["checks"]] == ["paper", "paper", "paper", "ours"]
    assert set(told["checks"][0]) == {"name", "of", "published", "ours", "tolerance", "ok", "why"}
    assert [told[name] for name in ("held", "failed", "unjudged")] == [2, 1, 1]
    assert told["figures"][0]["panels"][0]["lines"][0]["mean"] == [2.0, None]
    page = (tmp_path / "results.md").read_text()
    assert page.startswith("# A toy (toy): a full run\n\n" + APART)
    assert "| a guess | us | no figure in the paper | so it is | holds |" in page
    assert "| 0.5 +- 0.1 | 0.7 | **does not hold** | it is larger |" in page
    assert "| 1 % | cannot be judged | one setting was run, and a change needs two |" in page
    assert (tmp_path / "figure-1.png").stat().st_size > 1000
    assert "# A toy (toy): a quick run" in pages.page(a_study(), quick=True)


def test_the_terminal_tells_reasons_in_whole_lines(tmp_path: Path) -> None:
    shown = view.reproduce(a_study(), tmp_path, quick=True)
    assert "a quick run" in shown
    assert APART in " ".join(shown.split())
    assert "\ndoes not hold: a figure\n    it is larger\n" in shown
    assert "\ncannot be judged: a change\n    one setting was run, and a change needs two\n" in shown
    assert "\nnote        nothing else was run\n" in shown
    long = Claim("a name " * 30, "a").judged("b", False, "a reason " * 30)
    assert max(len(line.plain) for line in view.remarks([long])) <= 100


def test_what_cannot_be_judged_has_a_reason() -> None:
    assert Claim("a change", "none").judged("1 %", None).why == TOO_FEW
    assert (falls([3, 2, 1]), falls([3, 3]), falls([3]), falls([])) == (True, False, None, None)
    assert (rises([1, 2]), rises([2, 1]), rises([1])) == (True, False, None)


def test_a_picture_of_a_quick_run_says_so(tmp_path: Path) -> None:
    for quick in (True, False):
        pages.save(a_study(), tmp_path, quick)
        # matplotlib leaves the words beside their shapes, as comments.
        assert (QUICK in (tmp_path / "figure-1.svg").read_text()) is quick


def test_whole_figures_are_written_out() -> None:
    assert [pages.word(value) for value in (45222.0, 0.71, None, 1e12, 3)] == [
        "45222",
        "0.71",
        "-",
        "1e+12",
        "3",
    ]


def test_a_series_has_one_colour_in_all_panels() -> None:
    def panel(*labels: str) -> Panel:
        return Panel("", "round", "", tuple(Line.of(one, [1.0], series=one[:1]) for one in labels))

    figure = Figure("f", "", (panel("a1", "b1"), panel("b2", "c", "a2")))
    first, second = (drawing.colored(figure, each) for each in figure.panels)
    assert first["a1"] == second["a2"] == LIGHT.series(0)
    assert first["b1"] == second["b2"] == LIGHT.series(1)
    assert second["c"] == LIGHT.series(2)


def test_a_meaning_has_its_colour_and_levels_are_a_scale() -> None:
    lines = (
        Line.of("most", [1.0], level=4.0),
        Line.of("paper", [1.0], meaning="published", level=1.0),
        Line.of("least", [1.0], level=2.0),
    )
    panel = Panel("", "round", "", lines)
    colors = drawing.colored(Figure("f", "", (panel,)), panel)
    assert colors == {"most": LIGHT.scale(2)[1], "paper": LIGHT.published, "least": LIGHT.scale(2)[0]}


def test_a_line_has_one_marker_in_all_panels() -> None:
    def panel(*labels: str) -> Panel:
        return Panel("", "round", "", tuple(Line.of(one, [1.0]) for one in labels))

    figure = Figure("f", "", (panel("a; epsilon 1", "b"), panel("c", "b; best", "a")))
    first, second = (drawing.marked(figure, each) for each in figure.panels)
    assert first["a; epsilon 1"] == second["a"]
    assert first["b"] == second["b; best"]
    assert len(set(second.values())) == 3
    for labels in (("a; 1", "a; 2", "b"), tuple("abcdefgh")):  # names that are one, or too many for the markers
        many = panel(*labels)
        assert len(set(drawing.marked(Figure("f", "", (panel("z"), many)), many).values())) == min(len(labels), 7)


def test_axes_fit_what_is_drawn(tmp_path: Path) -> None:
    def panel(*values: float, lines: int = 1) -> Panel:
        line = Line.of("loss", values)
        return Panel("", "round", "loss", (line,) * lines, yscale="log")

    assert not drawing.wide(panel(1.0, 2.9))
    assert drawing.wide(panel(1.0, 3.0))
    assert not drawing.wide(Panel("", "round", "loss", ()))
    axes = canvas().subplots()
    drawing.fill(axes, panel(1.0, 2.0, lines=5), {"loss": "red"}, {"loss": "o"})
    assert axes.get_yscale() == "linear"
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    point = Panel("", "epochs", "loss", (Line.of("a", [1.0], (3,)), Line.of("b", [2.0], (3,))))
    alone = canvas().subplots()
    drawing.fill(alone, point, {"a": "red", "b": "blue"}, {"a": "o", "b": "s"})
    # A panel of single points has a row for each, and says in words where they are.
    assert [label.get_text() for label in alone.get_yticklabels()] == ["b", "a"]
    assert alone.get_xlabel() == "loss (epochs = 3)"
    assert not drawing.banded(panel(1.0, 2.0).lines[0])
    four = Figure("four", "", tuple(panel(1.0, 2.0 * n) for n in range(1, 5)))
    drawing.draw(four, tmp_path / "four")
    assert (tmp_path / "four.png").stat().st_size > 1000


def test_results_are_not_put_among_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "dp-admm", "--quick", "--json", "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "not an empty folder" in json.loads(capsys.readouterr().out)["message"]
    assert [path.name for path in tmp_path.iterdir()] == ["study.json"]


def test_spreads_are_over_runs() -> None:
    assert spread_words([1.0, 2.0, 6.0]) == "3 (1 to 6)"


def test_missing_data_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--data-dir"):
        need(None, ["raetsch/german.npz"], "Table I")
    with pytest.raises(ConfigError, match=r"missing here: raetsch/german\.npz"):
        need(tmp_path, ["raetsch/german.npz"], "Table I")
    with pytest.raises(ConfigError, match=r"Raetsch's benchmark collection .* unique_idx"):
        raetsch(tmp_path, "german")
    (tmp_path / "raetsch").mkdir()
    np.savez(tmp_path / "raetsch" / "german.npz", X=np.ones((2, 2)))
    with pytest.raises(DataError, match="has no y, unique_idx"):
        raetsch(tmp_path, "german")


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
