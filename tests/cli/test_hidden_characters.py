"""Characters that move a cursor, turn the direction of reading or hide are spelt out wherever people read them."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from privadmm import ConfigError
from privadmm.errors import PrivadmmError, visible
from privadmm.estimators.coefficients import Coefficients
from privadmm.runs.report.safe import safe

CLEAR, TURN = "\x1b[2J", "\u202e"
HIDDEN = re.compile("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\x1b(?!\\[[0-9;]*m)")
BROKEN = '[algorithm]\nx = 1\n"\\u001b[2J" = 2\n'  # TOML that spells it out itself
COLUMN, CATEGORY, YES = f"a{CLEAR}ge", f"w{CLEAR}ard", f"ye{TURN}s"


def lines(rows: int = 300) -> str:
    """Records with such characters in a column's name, a category, and a class."""
    rng = np.random.default_rng(0)
    cells = zip(
        rng.integers(20, 60, rows), rng.choice([CATEGORY, "b"], rows), rng.choice(["no", YES], rows), strict=True
    )
    return "\n".join([f"{COLUMN},ward,label", *(f"{age}.5,{ward},{label}" for age, ward, label in cells)]) + "\n"


def at_a_terminal(folder: Path, *words: str) -> str:
    """What a command writes to a terminal, on both streams."""
    main, end = pty.openpty()
    command = [sys.executable, "-m", "privadmm", *words]
    done = subprocess.Popen(command, cwd=folder, stdout=end, stderr=end, stdin=end, env={**os.environ, "TERM": "xterm"})
    os.close(end)
    said = b""
    try:
        while part := os.read(main, 65536):
            said += part
    except OSError:  # as Linux says that nobody has the other end any more
        pass
    os.close(main)
    done.wait(60)
    return said.decode()


def test_nothing_hidden_reaches_a_terminal_or_a_page(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text(lines())
    (tmp_path / "broken.toml").write_text(BROKEN)
    (tmp_path / "other.csv").write_text(f"more{CLEAR},ward\n1,b\n")
    schema = ["--label", "label", "--public"]
    commands = [
        ["schema", "data.csv", *schema, "--out", "schema.toml"],
        ["schema", "data.csv", "--label", COLUMN, "--public", "--out", "none.toml"],
        ["init", "config.toml", "--source", "data.csv", *schema, "--epsilon", "20", "--parties", "3"],
        ["account", "config.toml"],
        ["train", "config.toml", "--out", "out"],
        ["report", "out"],
        ["predict", "out", "data.csv"],
        ["predict", "out", "data.csv", "--out", "predicted.csv"],
        ["predict", "out", "other.csv"],
        ["account", "broken.toml"],
        ["train", f"no{CLEAR}file.toml"],
        ["predict", "out", "data.csv", "--keep", f"x{CLEAR}"],
    ]
    seen = ""
    for words in commands:
        said = at_a_terminal(tmp_path, *words)
        # Rich draws its bar of progress with such codes, and takes it away again.
        plain = re.sub("\x1b\\[(\\?25[lh]|[0-9]*[AK])", "", said)
        assert not HIDDEN.search(plain.replace("\r", "")), (words, plain)
        seen += plain
    assert "\\u001b[2J" in seen
    # A program that reads predictions compares them with the records.
    assert YES in (tmp_path / "predicted.csv").read_text()
    pages = [*tmp_path.rglob("*.html"), *tmp_path.rglob("*.svg")]
    assert any(page.suffix == ".html" for page in pages)
    for page in pages:
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page.read_text()), page


@pytest.mark.parametrize("kind", [PrivadmmError, ConfigError])
def test_errors_and_summaries_spell_them_out(kind: type[PrivadmmError]) -> None:
    assert str(kind(f"column {COLUMN}\nof {TURN}")) == "column a\\u001b[2Jge\nof \\u202e"
    shown = repr(Coefficients((COLUMN, "b"), np.zeros((1, 2)), np.zeros(1), True))
    assert not HIDDEN.search(shown)
    assert safe(f"<{CLEAR}>") == "&lt;\\u001b[2J&gt;"
    assert visible("plain \u00e9\u4e2d") == "plain \u00e9\u4e2d"
    assert visible("a\nb", "\n") == "a\nb"
