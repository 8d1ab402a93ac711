"""Every public name has an example on the pages of docs/api, and the examples do what they show."""

import doctest
import re
from pathlib import Path

import pytest

import privadmm

PAGES = sorted((Path(__file__).parents[1] / "docs" / "api").glob("*.md"))
BLOCK = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def failures(name: str, text: str) -> tuple[int, int, str]:
    """How many examples failed and how many there are, with what the failed ones said."""
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(text, {}, name, name, 0)
    outcome = doctest.DocTestRunner(verbose=False, optionflags=FLAGS).run(test, out=said.append)
    return outcome.failed, outcome.attempted, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_examples_of_a_page_do_what_they_show(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, attempted, said = failures(page.name, "\n".join(blocks(page)))
    assert attempted
    assert not failed, said


def test_an_example_that_shows_something_else_fails() -> None:
    failed, attempted, _ = failures("planted", ">>> 1 + 1\n3\n")
    assert (failed, attempted) == (1, 1)


def test_every_public_name_has_an_entry_and_an_example() -> None:
    """An entry is the line from which its docstring is shown; the block behind it uses the name."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    entries = re.findall(r"^::: privadmm\.([\w.]+)\.(\w+)\n\n```pycon\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    assert sorted(name for _, name, _ in entries) == sorted(set(privadmm.__all__) - {"__version__"})
    for module, name, example in entries:
        assert re.search(rf"\b{name}\b", example), name
        assert getattr(privadmm, name).__module__ == f"privadmm.{module}", name
