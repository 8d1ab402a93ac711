"""The wheel alone is enough: installed in an empty environment, the demo and the quick start work from it."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import privadmm
from privadmm.cli import main
from test_commands_shown import BLOCKS, run

ROOT = Path(__file__).parents[1]
TRACKED = ("src", "examples", "README.md", "LICENSE", "pyproject.toml")


def pip(*words: str | Path, python: Path = Path(sys.executable)) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "--disable-pip-version-check", "--quiet", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of a copy of the project, built with the hatchling of an environment of its own."""
    copy = tmp_path_factory.mktemp("project")
    for name in TRACKED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.sqlite"))
        else:
            shutil.copyfile(ROOT / name, copy / name)
    pip("wheel", "--no-deps", "--wheel-dir", copy / "dist", copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_examples_and_no_tests(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"privadmm/examples/{path.name}" for path in (ROOT / "examples").glob("*.*")} <= names
    assert not [name for name in names if name.split("/")[0] in ("tests", "examples", "docs", "benchmarks")]
    assert {"privadmm/py.typed", "privadmm/data/adult.npz"} <= names


@pytest.mark.slow
def test_the_quick_start_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """In an environment with the wheel and what it depends on, in a folder without the project.

    PRIVADMM_PYTHON names another interpreter, such as python3.13, to try it with.
    """
    made_with = os.environ.get("PRIVADMM_PYTHON", sys.executable)
    subprocess.run([made_with, "-m", "venv", tmp_path / "empty"], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    pip("install", wheel, python=python)
    (tmp_path / "room").mkdir()
    quick = [block for block in BLOCKS if block.page == "docs/quickstart.md" and not block.why]
    assert "privadmm demo" in quick[0].text
    done = run(quick, tmp_path / "room", python.parent)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "room" / "first-report.html").exists()
    where = subprocess.run(
        [python, "-c", "import privadmm; print(privadmm.__file__)"], capture_output=True, text=True, cwd=tmp_path
    )
    assert where.stdout.startswith(str(tmp_path / "empty"))


def test_examples_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["examples"])
    assert end.value.code == 0
    assert {path.name for path in (tmp_path / "examples").iterdir()} >= {"dp_admm.toml", "hospitals.py", "patients.csv"}
    with pytest.raises(SystemExit) as end:
        main(["examples"])
    assert end.value.code == 2


def test_the_made_up_patients_are_those_of_the_tool(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "tools" / "build_patients.py", tmp_path], check=True)
    for made in tmp_path.iterdir():
        assert made.read_bytes() == (ROOT / "examples" / made.name).read_bytes(), made.name


def test_one_version_everywhere() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert declared == privadmm.__version__
    assert f"\nversion: {declared}\n" in cited
