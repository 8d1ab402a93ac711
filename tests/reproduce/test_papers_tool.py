"""tools/papers.py: results go between the markers, images do not, and a quick run is refused."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "papers.py"
RESULTS = (
    "# Toy: a full run\n\n1 of 2 of the paper's claims hold.\n\n### Checks\n\n| a |\n\n### Figure 2\n\n"
    "![Figure 2](figure-2.png)\n\n- a note\n"
)


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("papers", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages = tmp_path / "docs" / "papers"
    pages.mkdir(parents=True)
    monkeypatch.setattr(module, "PAGES", pages)
    return module


def put(folder: Path, paper: str, quick: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    record = {"paper": paper, "quick": quick, "tally": "1 of 2 of the paper's claims hold"}
    (folder / "study.json").write_text(json.dumps(record))
    (folder / "results.md").write_text(RESULTS)


def test_results_replace_what_was_between_the_markers(tool: ModuleType, tmp_path: Path) -> None:
    page = tool.PAGES / "toy.md"
    page.write_text(f"# Toy\n\n{tool.BEGIN}\nstale\n{tool.END}\n\nafter\n")
    put(tmp_path / "out" / "toy", "toy")
    tool.main(tmp_path / "out")
    text = page.read_text()
    assert "| a |" in text
    assert "- a note" in text
    assert text.endswith("after\n")
    assert not any(word in text for word in ("stale", "figure-2.png", "### Figure 2", "a full run"))
    put(tmp_path / "one", "toy")
    tool.main(tmp_path / "one")
    assert page.read_text() == text  # a second time changes nothing


def test_what_cannot_be_filled_is_said(tool: ModuleType, tmp_path: Path) -> None:
    put(tmp_path / "out", "toy", quick=True)
    with pytest.raises(SystemExit, match="without --quick"):
        tool.main(tmp_path / "out")
    put(tmp_path / "out", "toy")
    with pytest.raises(SystemExit, match="no such page"):
        tool.main(tmp_path / "out")
    (tool.PAGES / "toy.md").write_text("no markers")
    with pytest.raises(SystemExit, match="once each"):
        tool.main(tmp_path / "out")
    with pytest.raises(SystemExit, match=r"no study\.json"):
        tool.main(tmp_path / "docs")
