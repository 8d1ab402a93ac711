"""Every command that README and the pages show is run, in a folder of its own, or it is said why not.

A block of commands is a fence ```sh. It is run by bash, the blocks of a page in their order in one folder, but for
those that a comment right before them marks,

    <!-- not run: WHY -->

and those of the pages in ELSEWHERE. A fence of any kind behind <!-- file: NAME --> is written to that file, and one
of Python behind <!-- run --> is run in its place among the commands. Tests that
a reason names have to exist. A line ends with exit code 0, or with the one that its comment names ("exit code 3").
Indented lines that begin with privadmm show a form, often with words to be replaced: they are not run. Of what is not
run, every command and option has to exist.
"""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from typer.main import get_command

from privadmm.cli import program
from small_runs import ENVIRONMENT

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    privadmm [^\n]*\n(?:    [^\n]+\n)*", re.MULTILINE)
MARK = re.compile(r"<!-- not run: ([^>]+?) -->\s*\Z")
FILE = re.compile(r"<!-- file: ([\w.-]+) -->\s*\Z")
PYTHON = re.compile(r"<!-- run -->\s*\Z")
# Pages whose commands are not run from the page, and why.
ELSEWHERE = {
    "docs/deploy.md": "several machines; tests/deploy/test_joining.py and tests/deploy/test_flower_runs.py run these",
    "docs/dask.md": "several machines; tests/deploy/test_dask.py and tests/deploy/test_dask_operations.py run these",
    "docs/operations.md": "services, a running federation; tests/deploy/test_operations.py, tests/deploy/test_kit.py",
    "docs/errata.md": "it is itself a test: tests/papers/errata",
    "docs/theory.md": "forms; tests/papers/test_theory.py and tests/papers/test_tradeoff.py run them",
    "docs/papers/dp-admm.md": "minutes; tests/papers/test_dp_admm.py",
    "docs/papers/dvp.md": "minutes; tests/papers/test_dvp.py",
    "docs/papers/mr-admm.md": "minutes; tests/papers/test_mr_admm.py",
    "docs/papers/pdml.md": "needs data that are not ours to hand on; tests/papers/test_pdml.py",
    "docs/papers/sharing.md": "minutes; tests/papers/test_sharing.py",
}
NAMED = re.compile(r"\btests/[\w/]+(?:\.py)?")
CODE = re.compile(r"#.*exit code (\d)")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    text: str
    why: str  # it is not run; empty if it is

    @property
    def lines(self) -> list[str]:
        """Its commands, those that go on in the next line put together."""
        return [line.strip() for line in self.text.replace("\\\n", " ").splitlines() if line.strip()]


def blocks_of(page: str, text: str) -> list[Block]:
    """The fenced commands of a page, in their order; a file that it shows is written by a command, too."""
    blocks = []
    for fence in FENCE.finditer(text):
        if file := FILE.search(text[: fence.start()]):
            written = f"{printed(fence[2])} > {file[1]}"
            blocks.append(Block(page, text.count("\n", 0, fence.start()) + 1, written, ""))
        elif fence[1] == "python" and PYTHON.search(text[: fence.start()]):
            blocks.append(Block(page, text.count("\n", 0, fence.start()) + 1, f"{printed(fence[2])} | python -", ""))
        elif fence[1] == "sh":
            mark = MARK.search(text[: fence.start()])
            why = mark[1] if mark else ELSEWHERE.get(page, "")
            blocks.append(Block(page, text.count("\n", 0, fence.start()) + 1, fence[2], why))
    return blocks


def printed(text: str) -> str:
    """The command, in one line, that prints this text."""
    lines = text.replace("\\", r"\\").replace("\n", r"\n")
    return f"printf %b {shlex.quote(lines)}"


def forms_of(page: str, text: str) -> list[Block]:
    """The indented ones."""
    bare = FENCE.sub(lambda fence: "\n" * fence[0].count("\n"), text)  # without fences; lines keep their numbers
    found = INDENTED.finditer(bare)
    return [Block(page, bare.count("\n", 0, form.start()) + 1, form[0], "a form") for form in found]


def texts() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}


def script(blocks: list[Block]) -> str:
    """What bash runs: each line, and then whether it ended as it says."""
    parts = ["set -u"]
    for block in blocks:
        for line in block.lines:
            wanted = int(found[1]) if (found := CODE.search(line)) else 0
            told = f"{block.page}:{block.line}: {line}".replace("'", "'\\''")
            parts.append(
                f"{line}\ncode=$?; [ $code -eq {wanted} ] || {{ echo '{told}' \"ended with $code\" >&2; exit 1; }}"
            )
    return "\n".join(parts)


def run(
    blocks: list[Block], folder: Path, programs: Path = Path(sys.executable).parent
) -> subprocess.CompletedProcess[str]:
    """Run the blocks' commands in this folder, with the privadmm in `programs`."""
    place = os.pathsep.join((str(programs), ENVIRONMENT["PATH"]))
    return subprocess.run(
        ["bash", "-c", script(blocks)],
        cwd=folder,
        env={**ENVIRONMENT, "PATH": place},
        capture_output=True,
        text=True,
        timeout=600,
    )


def unknown(block: Block) -> list[str]:
    """Commands and options of privadmm that a block shows, and that do not exist."""
    problems = []
    for line in block.lines:
        words = re.sub(r"[\[\]]", " ", line.split(" #")[0]).split()
        if not words or words[0].removeprefix(".venv/bin/") != "privadmm":
            continue
        command = get_command(program())
        rest = words[1:]
        while rest and isinstance(command, click.Group):
            if (inner := command.commands.get(rest[0])) is None:
                problems.append(f"{block.page}:{block.line}: privadmm has no {rest[0]}")
                break
            command, rest = inner, rest[1:]
        options = {name for option in command.params for name in option.opts} | {"--help", "--version"}
        problems += [
            f"{block.page}:{block.line}: {command.name} has no {word}"
            for word in (word.split("=")[0] for word in rest)
            if re.match(r"--?[a-z]", word) and word not in options
        ]
    return problems


BLOCKS = [block for page, text in texts().items() for block in blocks_of(page, text)]
FORMS = [block for page, text in texts().items() for block in forms_of(page, text)]
RUN = sorted({block.page for block in BLOCKS if not block.why})


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_work(page: str, tmp_path: Path) -> None:
    done = run([block for block in BLOCKS if block.page == page and not block.why], tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_pages_that_lead_a_reader_in_are_run() -> None:
    assert {"README.md", "docs/quickstart.md", "docs/commands.md", "docs/plain.md", "docs/ledger.md"} <= set(RUN)


def test_the_tests_that_a_reason_names_are_there() -> None:
    for block in BLOCKS:
        for name in NAMED.findall(block.why):
            assert (ROOT / name).exists(), f"{block.page}:{block.line}: {name}"


def test_what_is_not_run_is_spelled_as_the_command_line_has_it() -> None:
    assert len(FORMS) > 5
    assert [problem for block in [*BLOCKS, *FORMS] if block.why for problem in unknown(block)] == []


PLANTED = """
```sh
privadmm no-such-command
```

<!-- not run: a reason -->
```sh
privadmm ledger show --no-such-option
```

    privadmm ledger forget FILE
"""


def test_a_planted_command_is_caught(tmp_path: Path) -> None:
    wrong, marked = blocks_of("planted.md", PLANTED)
    assert (wrong.line, wrong.why, marked.line, marked.why) == (2, "", 7, "a reason")
    done = run([wrong], tmp_path)
    assert done.returncode == 1
    assert "planted.md:2" in done.stderr
    assert unknown(marked) == ["planted.md:7: show has no --no-such-option"]
    (form,) = forms_of("planted.md", PLANTED)
    assert unknown(form) == ["planted.md:11: privadmm has no forget"]


def test_a_file_that_a_page_shows_is_written(tmp_path: Path) -> None:
    (block,) = blocks_of("p.md", '<!-- file: a.toml -->\n```toml\n[data]\npath = "it\'s\\\\here"\n```\n')
    assert run([block], tmp_path).returncode == 0
    assert (tmp_path / "a.toml").read_text() == '[data]\npath = "it\'s\\\\here"\n'


def test_python_that_a_page_marks_is_run(tmp_path: Path) -> None:
    shown = '```python\nprint("a")\nraise SystemExit(4)\n```\n'
    assert blocks_of("p.md", shown) == []
    (block,) = blocks_of("p.md", f"<!-- run -->\n{shown}")
    assert "ended with 4" in run([block], tmp_path).stderr


def test_a_promised_exit_code_is_compared(tmp_path: Path) -> None:
    (block,) = blocks_of("p.md", "```sh\nprivadmm account missing.toml    # refused, exit code 3\n```\n")
    assert "ended with 2" in run([block], tmp_path).stderr
