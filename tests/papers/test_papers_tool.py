"""tools/papers.py writes results between markers, and a whole run of every paper finds stale pages."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from privadmm.papers import PAPERS
from privadmm.papers.framework import sets
from privadmm.papers.framework.study import VERDICTS
from small_runs import ORIGINALS

PROJECT = Path(__file__).parents[2]
PAGES = PROJECT / "docs" / "papers"
RESULTS = (
    "# Toy: a full run\n\n1 of 2 of the paper's claims hold.\n\n### Checks\n\n| a |\n\n### Figure 2\n\n"
    "![Figure 2](figure-2.png)\n\n- a note\n"
)
CHECKS = [{"ok": True, "of": "paper"}, {"ok": None, "of": "paper"}, {"ok": False, "of": "ours"}]


def load_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("papers", PROJECT / "tools" / "papers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["papers"] = module  # where its dataclass looks
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load_tool()
    pages = tmp_path / "docs" / "papers"
    pages.mkdir(parents=True)
    monkeypatch.setattr(module, "PAGES", pages)
    monkeypatch.setattr(module, "COUNTS", tmp_path / "verdicts.json")
    module.COUNTS.write_text('{"other": {}}')
    return module


def put(folder: Path, paper: str, quick: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.json").write_text(json.dumps({"paper": paper, "quick": quick, "checks": CHECKS}))
    (folder / "results.md").write_text(RESULTS)


def test_results_replace_what_was_between_the_markers(tool: ModuleType, tmp_path: Path) -> None:
    page = tool.PAGES / "toy.md"
    page.write_text(f"# Toy\n\n{tool.BEGIN}\nstale\n{tool.END}\n\nafter\n")
    put(tmp_path / "out" / "toy", "toy")
    with pytest.raises(SystemExit, match=r"toy\.md: - page: stale"):
        tool.main(["--results", str(tmp_path / "out"), "--check"])
    tool.main(["--results", str(tmp_path / "out")])
    counts = json.loads(tool.COUNTS.read_text())
    assert set(counts) == {"other", "toy"}
    assert counts["toy"]["paper"] == {"held": 1, "failed": 0, "unjudged": 1, "claims": 2}
    assert counts["toy"]["ours"] == {"held": 0, "failed": 1, "unjudged": 0, "claims": 1}
    text = page.read_text()
    assert "| a |" in text
    assert "- a note" in text
    assert text.endswith("after\n")
    assert not any(word in text for word in ("stale", "figure-2.png", "### Figure 2", "a full run"))
    put(tmp_path / "one", "toy")
    tool.main(["--results", str(tmp_path / "one")])
    assert page.read_text() == text  # a second time changes nothing
    tool.main(["--results", str(tmp_path / "one"), "--check"])


def test_what_cannot_be_filled_is_said(tool: ModuleType, tmp_path: Path) -> None:
    put(tmp_path / "out", "toy", quick=True)
    with pytest.raises(SystemExit, match="without --quick"):
        tool.main(["--results", str(tmp_path / "out")])
    put(tmp_path / "out", "toy")
    with pytest.raises(SystemExit, match="no such page"):
        tool.main(["--results", str(tmp_path / "out")])
    (tool.PAGES / "toy.md").write_text("no markers")
    with pytest.raises(SystemExit, match="once each"):
        tool.main(["--results", str(tmp_path / "out")])
    with pytest.raises(SystemExit, match=r"no study\.json"):
        tool.main(["--results", str(tmp_path / "docs")])


def row(heading: str, line: str) -> str:
    return f"### {heading}\n\n{line}"


@pytest.mark.parametrize(
    ("heading", "page", "run", "same"),
    [
        ("Checks", "| loss | 0.3242 |", "| loss | 0.3260 |", True),
        ("Checks", "| loss | 0.3242 |", "| loss | 0.3299 |", False),
        ("Checks", "| loss | 0.3 |", "| loss | 0.3002 |", True),
        ("Checks", "| loss | 6219 (2297 to 1.198e+04) |", "| loss | 6225 (2300 to 1.2e+04) |", True),
        ("Checks", "| loss | 6219 |", "| loss | 6300 |", False),
        ("Checks", "| cells | 16 of 21 |", "| cells | 17 of 21 |", False),
        ("Checks", "| loss | 0.1 | holds |", "| loss | 0.1 | **does not hold** |", False),
        ("Checks", "| off | +0.02 |", "| off | -0.01 |", False),
        ("Checks", "| Table III: costs | 217, 372.1 |", "| Table III: costs | 230, 360 |", True),
        ("Checks", "| Table III: costs | 255.2, 308.8 |", "| Table III: costs | 217, 338.8 |", False),
        ("Table III: the cost of 100 rounds", "| 0.1 | 255.2 |", "| 0.1 | 217 |", False),
        ("Table I: accuracy", "| german | 72.90 (sd 2.14) | -2.10 |", "| german | 72.97 (sd 2.2) | -2.03 |", True),
        ("Table I: accuracy", "| german | 72.90 |", "| german | 73.30 |", False),
        ("Runs", "| proof | 0.3 |", "| proof | 0.3 |\n| box | 0.3 |", False),
        ("Runs", "| proof | 0.3 |", "", False),
    ],
)  # fmt: skip
def test_figures_have_tolerances_and_words_have_none(heading: str, page: str, run: str, same: bool) -> None:
    assert (not list(load_tool().differences(row(heading, page), row(heading, run)))) == same


@pytest.mark.parametrize("name", PAPERS)
def test_a_page_agrees_with_itself_and_not_with_a_stale_one(name: str) -> None:
    tool = load_tool()
    between = tool.parted((PAGES / f"{name}.md").read_text(), name)[1]
    assert list(tool.differences(between, between)) == []
    rows = [line for line in between.splitlines() if line.startswith("| ")]
    for line in (rows[-1], rows[len(rows) // 2]):
        number = tool.NUMBER.findall(line)[-1]
        at = line.rindex(number)
        stale = line[:at] + f"{1.2 * abs(float(number.replace(',', ''))) + 1:.4g}" + line[at + len(number) :]
        assert line in "\n".join(tool.differences(between, between.replace(line, stale)))


@pytest.mark.parametrize("name", PAPERS)
def test_the_first_line_of_a_page_counts_its_verdicts(name: str) -> None:
    between = load_tool().parted((PAGES / f"{name}.md").read_text(), name)[1]
    section = between.split("### Checks")[1].split("\n### ")[0]
    checks = [
        [cell.strip() for cell in line.split(" | ")]
        for line in section.splitlines()
        if " | the paper | " in line or " | us | " in line
    ]
    verdicts = {of: [row[4].strip("*") for row in checks if row[1] == of] for of in ("the paper", "us")}
    assert all(verdict in VERDICTS.values() for some in verdicts.values() for verdict in some)
    said = between.splitlines()[0]
    for some, what in zip(verdicts.values(), ("the paper's claims", "our own expectations"), strict=True):
        assert f"{some.count('holds')} of {len(some)} of {what} hold" in said
        unjudged = some.count("cannot be judged")
        assert not unjudged or f"{what} hold, {unjudged} cannot be judged" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_the_tables_of_a_page_are_those_of_a_whole_run(name: str, tmp_path: Path) -> None:
    """Within the tolerances of tools/papers.py. If one is stale: `python tools/papers.py PAPER`, and read the page."""
    if name == "pdml" and not all((ORIGINALS / file).is_file() for file in sets.RAETSCH):
        pytest.skip("needs Raetsch's sets: name their folder in PRIVADMM_DATA")
    source = sets.gisette_source(ORIGINALS)
    if name == "sharing" and (source is None or source[0] != sets.SURROGATE):
        pytest.skip("needs the surrogate of gisette, which the page has: name its folder in PRIVADMM_DATA")
    tool = load_tool()
    tool.reproduce([name], tmp_path, ORIGINALS)
    assert tool.compare(tmp_path / name) == []
    results = tool.results_of(tmp_path / name)[1]
    between = tool.parted((PAGES / f"{name}.md").read_text(), name)[1]
    stale = between.replace("| holds |", "| **does not hold** |", 1)  # a claim that holds no more is seen
    assert list(tool.differences(stale, results))
