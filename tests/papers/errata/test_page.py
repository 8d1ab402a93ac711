"""docs/errata.md names a check for every error, and every check here is on the page."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "errata.md"


def checks_in(path: Path) -> set[str]:
    return {
        f"tests/papers/errata/{path.name}::{name}" for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }


def test_the_page_and_the_checks_agree() -> None:
    named = re.findall(r"\| `(tests/papers/errata/\S+::\w+)` \|$", PAGE.read_text(), re.M)
    there = set.union(*(checks_in(path) for path in HERE.glob("test_*.py") if path.name != Path(__file__).name))
    assert len(named) == len(set(named))
    assert set(named) == there


@pytest.mark.parametrize("path", sorted((HERE.parents[2] / "docs" / "papers").glob("*.md")), ids=lambda path: path.stem)
def test_pages_of_papers_name_files_that_exist(path: Path) -> None:
    root = HERE.parents[2]
    for name in set(re.findall(r"`((?:src|tests|benchmarks|tools|examples)/[\w/.-]+\.\w+)`", path.read_text())):
        assert (root / name).exists(), name
