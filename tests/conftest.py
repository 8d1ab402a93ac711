"""Tests import shared helpers by name: `from cases import ALGORITHMS`. Fixtures that several files use are here."""

from pathlib import Path

import pytest

from small_runs import Place, no_plots, write_npz


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    """A folder with data.npz, in which configs are written and commands called."""
    write_npz(tmp_path / "data.npz")
    return Place(tmp_path, capsys)


@pytest.fixture
def skipped_plots(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs draw no plots; the names of those that they would have drawn."""
    return no_plots(monkeypatch)


@pytest.fixture(scope="module")
def drawn_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that drawn configs name."""
    from config_draws import write_sources

    return write_sources(tmp_path_factory.mktemp("drawn"))
