"""Tests import their neighbours by name: `from cases import ALGORITHMS`. Whole runs share a place to happen in."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from small_runs import Place, write_npz


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    write_npz(tmp_path / "data.npz")
    return Place(tmp_path, capsys)
