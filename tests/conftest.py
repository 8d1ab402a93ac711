"""Tests import shared helpers by name: `from cases import ALGORITHMS`. Fixtures that several files use are here."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from small_runs import Place, no_plots, write_npz

MEMORY, ENOUGH = Path("/dev/shm"), 2**31  # a file system in memory that Linux has, and the bytes it needs to have free


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Put temporary folders in memory if there is room: ledgers sync at every step, and no test cuts the power.

    They are removed at the end. `--basetemp FOLDER` puts them elsewhere, and keeps them.
    """
    if config.option.basetemp is not None or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < ENOUGH:
        return
    if os.access(MEMORY, os.W_OK) and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:  # tests start what they write there
        config.option.basetemp = folder = tempfile.mkdtemp(prefix="privadmm-tests-", dir=MEMORY)
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


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
