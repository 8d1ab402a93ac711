"""tools/digests.py tells a changed bit, and keeps what it digested so that the change can be read."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "digests.py"
RUN = {"result": {"transcript": "ab", "seconds_all": 1.0}, "model": {"weights": [0.5]}}


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("digests", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    toys = {"example toy": RUN, "federation toy": {"result": RUN["result"]}, "paper toy": {"study": ["a", "b"]}}
    monkeypatch.setattr(module, "computed", lambda tree: toys)
    return module


def test_the_same_bits_keep_nothing(tool: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, kept = tmp_path / "digests.json", tmp_path / "kept"
    assert tool.main(["--write", str(file)]) == 0
    assert tool.main(["--check", str(file), "--keep", str(kept)]) == 0
    assert "3 of 3 digests are the same" in capsys.readouterr().out
    assert not kept.exists()


def test_a_study_that_differs_is_kept(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, kept = tmp_path / "digests.json", tmp_path / "kept"
    tool.main(["--write", str(file)])
    other = {**tool.computed(tmp_path), "paper toy": {"study": ["b", "a"]}}
    monkeypatch.setattr(tool, "computed", lambda tree: other)
    assert tool.main(["--check", str(file), "--keep", str(kept)]) == 1
    told = capsys.readouterr().out
    assert "2 of 3 digests are the same" in told
    assert str(kept) in told
    (path,) = kept.iterdir()
    assert json.loads(path.read_text()) == other["paper toy"]
