"""The scripts in examples/ run as they are, and print what a person wants to read."""

import runpy
import time
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SAID = {
    "hospitals": ("4 fits on this account", "hospitals: east, north, south, west", "Nothing was fitted", "age"),
    "banks": ("NOT PRIVATE", "a customer loses", "person neighbours", "labels are not protected"),
    "survey": ("the answer alone", "AUC 0.8", "5 fits on this account", "label neighbours"),
}


def test_every_script_is_listed() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_a_script_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.process_time()
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert time.process_time() - began < 10
    said = capsys.readouterr().out
    for words in SAID[name]:
        assert words in said
