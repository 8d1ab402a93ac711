"""The site's navigation has every page, and its pages of algorithms are made of what the code says."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from privadmm.algorithms import ALGORITHMS
from privadmm.params import fields_of
from small_runs import toml
from test_citations import anchors

ROOT = Path(__file__).parents[1]
CONFIG = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
MADE = {"index.md", "changelog.md", "contributing.md", "security.md", "algorithms/index.md", "gallery.md"}


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES: dict[str, str] = tool("algorithm_pages").pages()


def test_the_navigation_has_every_page() -> None:
    """Those of decisions are put there when the site is built, and named by their own first page."""
    named = set(re.findall(r"^ +- (?:[^:\n]+: )?([\w/.-]+\.md)$", CONFIG, re.MULTILINE))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    decisions = {page for page in written if re.match(r"decisions/\d", page)}
    assert named == (written - decisions) | MADE
    listed = re.findall(r"\]\((\d[\w.-]+)\)", (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8"))
    assert {f"decisions/{name}" for name in listed} == decisions


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_page_has_update_promise_parameters_example_and_accuracy(name: str) -> None:
    page = PAGES[f"algorithms/{name}.md"]
    wanted = ["The update", "Parameters", "Example", "Measured accuracy"]
    private = "privacy" in toml(ROOT / f"examples/{name}.toml")
    wanted += ["What is promised"] if private else []
    assert ("**Not private.**" in page) != private
    assert set(wanted) <= set(re.findall(r"^## (.*)$", page, re.MULTILINE))
    assert all(f"| `{key}` |" in page for key in fields_of(ALGORITHMS[name]))
    assert f'name = "{name}"' in page
    there = anchors((ROOT / "docs/privacy.md").read_text(encoding="utf-8"))
    assert set(re.findall(r"\.\./privacy\.md#([\w-]+)", page)) <= there


def test_a_link_to_a_statement_has_the_words_of_its_heading() -> None:
    assert "[First-order releases](../privacy.md#first-order)" in PAGES["algorithms/dp_fedsgd.md"]
    heading = tool("algorithm_pages").heading
    assert (heading("privacy.md"), heading("operations.md", "approval")) == ("Privacy", "Approval")
    with pytest.raises(ValueError, match="no-such-place"):
        heading("privacy.md", "no-such-place")


def test_accuracies_are_rows_of_the_table() -> None:
    """Every private method for rows has at least one, and no page has another's."""
    table = (ROOT / "docs/accuracy.md").read_text(encoding="utf-8")
    for name in ALGORITHMS:
        rows = [row for row in PAGES[f"algorithms/{name}.md"].splitlines() if "±" in row]
        assert all(row in table for row in rows)
        assert bool(rows) == (name not in ("admm_graph", "local_only", "sharing", "admm_sharing", "fdml_sgd")), name
        assert not any(f"| {other} " in row for row in rows for other in ALGORITHMS if other != name)


def test_the_list_of_released_versions_has_every_pin() -> None:
    lock = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    made = tool("sbom").sbom(lock)
    assert len(made["components"]) == len(re.findall(r"^\S+==", lock, re.MULTILINE)) > 10
    with pytest.raises(ValueError, match="NAME==VERSION"):
        tool("sbom").sbom("numpy>=2\n")


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs/papers").glob("*.md")), ROOT / "docs/theory.md"], ids=lambda page: page.stem
)
def test_files_that_a_page_of_papers_names_are_there(page: Path) -> None:
    """Named from src/privadmm, or from the repository's own folder."""
    for name in re.findall(r"`([\w/]+\.py)\b", page.read_text(encoding="utf-8")):
        assert any((ROOT / folder / name).is_file() for folder in ("src/privadmm", ".")), name
