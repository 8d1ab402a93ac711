"""A reproduction that is killed goes on where it was, mixes no two runs, and ends with one page."""

import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privadmm.cli import main
from privadmm.cli.papers import left
from privadmm.errors import ConfigError
from privadmm.papers import PAPERS
from privadmm.papers.framework import bench, reproduction, store, web
from privadmm.papers.framework.bench import Clock, Failed, Setting, Task
from privadmm.papers.framework.reproduction import Reproduction
from privadmm.papers.framework.store import Store
from privadmm.papers.framework.study import Claim, Figure, Grid, Line, Panel, Parameter, Study, expect, near
from privadmm.papers.references import REFERENCES, bibliography, listed, verdicts
from privadmm.runs.report.head import hashed

HERE = Path(__file__).parent
FACTS = {"code": "a", "quick": True}


def counted(folder: Path, number: int, seconds: float = 0.0) -> tuple[int, Any]:
    """A task that leaves a mark each time it runs."""
    with (folder / "ran").open("a") as file:
        file.write(f"{number}\n")
    time.sleep(seconds)
    return number, np.arange(number, dtype=float)


def ran(folder: Path) -> list[int]:
    path = folder / "ran"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def tasks_of(folder: Path, count: int = 4) -> list[Task]:
    return [Task(n, counted, (folder, n), f"task {n}", cost=10 - n) for n in range(count)]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    tasks, kept = tasks_of(tmp_path), Store.new(tmp_path / "out", FACTS)
    first = bench.run(tasks[:2], 1, kept=kept)
    again = bench.run(tasks, 1, kept=Store.open(tmp_path / "out", FACTS))
    assert ran(tmp_path) == [0, 1, 2, 3]
    assert again[1][0] == first[1][0] == 1
    np.testing.assert_array_equal(again[1][1], first[1][1])
    assert list(again) == [0, 1, 2, 3]


@pytest.mark.parametrize("harm", ["cut", "changed", "empty"])
def test_half_of_a_result_is_computed_again(tmp_path: Path, harm: str) -> None:
    (task,), kept = tasks_of(tmp_path, 1), Store.new(tmp_path / "out", FACTS)
    bench.run([task], 1, kept=kept)
    path = kept.place(task)
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[:-3], "changed": whole[:-3] + b"abc", "empty": b""}[harm])
    bench.run([task], 1, kept=kept)
    assert ran(tmp_path) == [0, 0]
    assert path.read_bytes() == whole


def test_other_arguments_or_functions_are_other_tasks(tmp_path: Path) -> None:
    (task,), kept = tasks_of(tmp_path, 1), Store.new(tmp_path / "out", FACTS)
    kept.put(task, 1)
    assert kept.get(task) == (1,)
    assert kept.get(replace(task, arguments=(tmp_path, 1))) is None
    assert kept.get(replace(task, run=abs)) is None
    with pytest.raises(ValueError, match="all that they are"):
        kept.place(replace(task, arguments=(object(),)))


def test_a_run_of_other_code_or_settings_is_not_gone_on_with(tmp_path: Path) -> None:
    Store.new(tmp_path, FACTS)
    Store.open(tmp_path, FACTS)
    with pytest.raises(ConfigError, match=r"code was 'a' and is 'b'.*new folder"):
        Store.open(tmp_path, FACTS | {"code": "b"})
    with pytest.raises(ConfigError, match="no run to go on with"):
        Store.open(tmp_path / "elsewhere", FACTS)


def test_the_digest_of_code_and_data_notices_a_change(tmp_path: Path) -> None:
    assert re.fullmatch("[0-9a-f]{16}", store.code())
    (tmp_path / "a.npz").write_bytes(b"one")
    before = store.data_digest(tmp_path)
    assert store.data_digest(tmp_path) == before
    (tmp_path / "a.npz").write_bytes(b"more")
    assert store.data_digest(tmp_path) != before
    assert store.data_digest(None) is None
    facts = store.identity(("dvp",), True, None)
    assert facts["papers"] == ["dvp"]
    assert facts["numpy"] == np.__version__


class Planted:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def test_a_file_that_would_run_something_is_not_read(tmp_path: Path) -> None:
    (task,), kept = tasks_of(tmp_path, 1), Store.new(tmp_path / "out", FACTS)
    kept.put(task, Failed("a class of the papers"))
    assert kept.get(task) == (Failed("a class of the papers"),)
    for planted in (Planted(), store.code, os.path.join):
        kept.put(task, planted)
        with pytest.raises(pickle.UnpicklingError, match="no part of a result"):
            kept.get(task)


def test_how_long_is_left_follows_from_the_tasks_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(bench.time, "monotonic", lambda: now[0])
    tasks = [Task(n, abs, (n,), cost=cost) for n, cost in enumerate((30.0, 60.0, 10.0))]
    clock = Clock(tasks)
    assert clock.seconds is None
    now[0] += 15
    clock.finish(tasks[0])
    assert clock.seconds == pytest.approx(35)  # 15 s for 30, and 70 are left
    clock.finish(tasks[1])
    clock.finish(tasks[2])
    assert clock.seconds == 0
    assert [left(value) for value in (None, 0.2, 50, 600, 7200)] == [
        "time left unknown yet",
        "about 1 s left",
        "about 50 s left",
        "about 10 min left",
        "about 2.0 h left",
    ]


# A paper of its own: what `privadmm reproduce` does with one, without hours of work.
@dataclass(frozen=True)
class Stand:
    folder: Path
    seconds: float = 0.0

    def tasks(self, setting: Setting) -> list[Task]:
        return [Task(n, counted, (self.folder, n, self.seconds), f"task {n}") for n in range(6)]

    def study(self, setting: Setting, results: dict[Any, Any]) -> Study:
        values = [results[n][0] for n in range(6)]
        line = Line.of("measured <b>", values, meaning="certified")
        levels = [Line.of(f"{level}", values, level=level) for level in (1.0, 2.0, 4.0)]
        return Study(
            "stand",
            "A stand-in & more",
            (Parameter("eta", "1", False, "not stated"),),
            (
                near("Figure 1: the end", 5.0, float(values[-1]), 0.0),
                Claim("Figure 1(b): it falls", "falls").judged("rises", False, "noise <script>alert(1)</script>"),
                Claim("Table I: a change", "none").judged("1 %", None),
                expect("a guess", "nothing").judged("so it is", True),
            ),
            (Figure("figure-1", "Figure 1: losses at epsilon = 1", (Panel("one", "round", "loss", (line, *levels)),)),),
            (Grid("table-1", "Table I: numbers", ("set", "ours"), (("german", 0.71), ("image", None))),),
        )


def stand_in(monkeypatch: pytest.MonkeyPatch, folder: Path, seconds: float = 0.0) -> None:
    stand: Any = Stand(folder, seconds)
    monkeypatch.setattr(reproduction, "paper", lambda name: stand)
    monkeypatch.setattr("privadmm.cli.papers.PAPERS", ("stand",))


CALL = """
from pathlib import Path
import pytest
from test_reproduction import stand_in
from privadmm.cli import main
stand_in(pytest.MonkeyPatch(), Path({folder!r}), seconds=0.25)
main(["reproduce", "stand", "--quick", "--workers", "1", "--json", "--out", {out!r}, *{more!r}])
"""


def started(folder: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """`privadmm reproduce` of the stand-in, in a process of its own."""
    code = CALL.format(folder=str(folder), out=str(out), more=more)
    paths = os.pathsep.join([str(HERE), str(HERE.parent)])
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)


def test_a_run_killed_with_9_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = started(tmp_path, out)
    try:
        limit = time.monotonic() + 60
        while len(ran(tmp_path)) < 3 and time.monotonic() < limit:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
    finally:
        process.kill()
    before, done = ran(tmp_path), len(list((out / store.FOLDER).glob("*.task")))
    assert 2 <= done < 6
    assert not (out / "index.html").exists()
    resumed = started(tmp_path, out, "--resume")
    said = json.loads(resumed.communicate(timeout=60)[0])
    assert resumed.returncode == 0
    assert (said["held"], said["failed"], said["unjudged"]) == (2, 1, 1)
    # What was done stayed done; the task that was running when it was killed ran once more.
    assert ran(tmp_path)[len(before) :] == list(range(done, 6))
    assert (out / "index.html").is_file()
    counts = json.loads((out / "counts.json").read_text())["papers"]["stand"]
    assert counts["paper"] == {"held": 1, "failed": 1, "unjudged": 1, "claims": 3}
    assert counts["ours"] == {"held": 1, "failed": 0, "unjudged": 0, "claims": 1}


def test_resume_needs_a_folder_and_the_same_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch, tmp_path)

    heard = ""

    def said(*words: str) -> tuple[int, dict[str, Any]]:
        nonlocal heard
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", "stand", "--workers", "1", "--json", *words])
        out, heard = capsys.readouterr()
        return int(str(ended.value.code)), json.loads(out)

    assert said("--resume")[0] == 2
    out = ("--out", str(tmp_path / "out"))
    assert said("--quick", *out)[0] == 0
    assert "before" not in heard
    code, told = said("--quick", *out)
    assert code == 2
    assert "to go on with the run in it: --resume" in told["message"]
    code, told = said("--resume", *out)
    assert code == 2
    assert "quick was True and is False" in told["message"]
    assert len(ran(tmp_path)) == 6
    assert said("--quick", "--resume", *out)[0] == 0
    assert "6 of 6 tasks were done before" in heard
    assert len(ran(tmp_path)) == 6


class Outline(HTMLParser):
    """What a page refers to, its ids, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.tags.append(tag)
        self.ids += [facts["id"] or ""] if "id" in facts else []
        self.links += [value or "" for name, value in facts.items() if name in ("src", "href", "xlink:href", "action")]


def a_page(tmp_path: Path, quick: bool = True) -> str:
    stand = Stand(tmp_path)
    results = {n: (n, None) for n in range(6)}
    asked = Reproduction(("stand",), Setting(quick), tmp_path)
    asked.save([stand.study(Setting(quick), results)])
    return (tmp_path / "index.html").read_text()


def test_the_page_is_whole_and_its_parts_are_found(tmp_path: Path) -> None:
    text = a_page(tmp_path)
    outline = Outline()
    outline.feed(text)
    assert len(outline.ids) == len(set(outline.ids))
    inside = [link for link in outline.links if link.startswith("#")]
    assert inside
    assert {link[1:] for link in inside} <= set(outline.ids)
    # Nothing is loaded from anywhere: links are for readers to follow.
    assert not re.search(r"<(img|link|iframe|script src|object)", text)
    assert [link for link in outline.links if not link.startswith("#")] == []
    assert "default-src 'none'" in text
    assert "script>alert" not in text.replace("&lt;script&gt;alert", "")
    assert "measured &lt;b&gt;" in text
    assert "var(--certified)" in text
    # Every colour of a figure follows the reader's theme.
    assert not re.search(r"#[0-9a-f]{6}", text[text.index("<main") :])
    assert "quick run" in text
    assert text.count('class="claim ') == 4
    assert 'data-verdict="thin"' in text
    assert "ε = 1" in text
    # On a narrow screen a row of the score is a list, in which each number has its column's name beside it.
    score = text[text.index('<table class="score"') :].split("</table>")[0]
    heads = re.findall(r'<th class="n"[^>]*>([^<]*)</th>', score)
    assert re.findall(r'data-name="([^"]*)"', score) == heads
    assert heads[-1] == "our expectations that hold"


def test_the_policy_admits_the_pages_own_style_and_script(tmp_path: Path) -> None:
    text = a_page(tmp_path, quick=False)
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert (len(styles), len(scripts)) == (1, 1)
    for content in (*styles, *scripts):
        assert hashed(content) in text


def test_claims_stand_beside_their_figure_or_table(tmp_path: Path) -> None:
    study = Stand(tmp_path).study(Setting(), {n: (n, None) for n in range(6)})
    first, table, rest = web.blocks(study)
    assert (first.title, len(first.figures), len(first.checks)) == ("Figure 1", 1, 2)
    assert (table.title, len(table.grids), len(table.checks)) == ("Table I", 1, 1)
    assert [check.name for check in rest.checks] == ["a guess"]
    assert web.places("Figures 3 and 4: MR-ADMM") == {"Figure 3", "Figure 4"}
    assert web.places("Figure 5(d)-(f): totals") == {"Figure 5"}
    assert web.places("Table III: cost") == {"Table III"}
    assert web.places("Control: Figure 5 again") == set()


def test_every_paper_has_a_reference_and_counts_that_its_page_shows() -> None:
    assert set(REFERENCES) == set(verdicts()) == set(PAPERS)
    docs = HERE.parents[1] / "docs" / "papers"
    for name in PAPERS:
        reference, count = REFERENCES[name], verdicts()[name]
        page = (docs / f"{name}.md").read_text()
        assert f"{count['paper']['held']} of {count['paper']['claims']} of the paper's claims hold" in page
        assert f"{count['ours']['held']} of {count['ours']['claims']} of our own expectations hold" in page
        for whose in count.values():
            assert whose["held"] + whose["failed"] + whose["unjudged"] == whose["claims"]
        assert re.fullmatch(r"10\.\d{4,5}/\S+\d", reference.doi)
        assert reference.published or reference.arxiv
        assert reference.link in page, f"docs/papers/{name}.md has no link to the paper"
        assert str(reference.year) in page
        assert reference.title in " ".join(page.split())
    assert listed()["total"]["claims"] == sum(verdicts()[name]["paper"]["claims"] for name in PAPERS)


def test_the_bibliography_is_bibtex() -> None:
    entries = bibliography().split("\n\n")
    assert len(entries) == len(PAPERS)
    for entry in entries:
        assert re.match(r"@(article|inproceedings)\{[a-z]+\d{4}[a-z]+,\n", entry)
        assert entry.count("{") == entry.count("}")
        assert re.search(r"^  (journal|booktitle) = ", entry, re.MULTILINE)
    assert len({reference.key for reference in REFERENCES.values()}) == len(PAPERS)


def test_papers_are_listed_for_people_and_machines(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--json"], ["--bibtex"]):
        with pytest.raises(SystemExit) as ended:
            main(["papers", *words])
        assert ended.value.code == 0
        said = capsys.readouterr().out
        assert "10.1145/2996758.2996762" in said
        if "--json" in words:
            assert json.loads(said)["papers"]["dvp"]["verdicts"]["paper"]["claims"] == 17
