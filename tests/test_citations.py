"""Every citation of docs/privacy.md leads to a statement there, and every link between pages leads somewhere."""

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "examples", "tools", "docs")
KINDS = {".py", ".md", ".toml"}
PAGE = "docs/privacy.md"
# Citations of the old page, which is not part of the project: its name, or the word alone before a number.
OLD = re.compile("PRIVACY" + r"(\.md|:| \d)")
CITED = re.compile(re.escape(PAGE) + r"(?:\s*#([\w-]+))?")  # the anchor may stand on the next line
ANCHOR = re.compile(r'<a id="([^"]*)"></a>')
FILE_NAME = re.compile(r"\[(`?[\w./-]+(?:\.(?:md|py|toml|cff|json)(?:#[\w-]+)?|/)`?)\]\(")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def texts(root: Path) -> dict[str, str]:
    """Every source, test, example and page of the project, by its path."""
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*")] + list(root.glob("*.md"))
    return {
        path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(files)
        if path.suffix in KINDS
    }


def slug(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")


def anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ +(.*?) *$", FENCE.sub("", page), re.MULTILINE)
    return {*ANCHOR.findall(page), *map(slug, headings)}


def line_of(text: str, cite: re.Match[str]) -> int:
    return text.count("\n", 0, cite.start()) + 1


def citation_problems(found: dict[str, str]) -> list[str]:
    """Citations of the page that name no anchor of it, anchors that are there twice, and citations of the old page."""
    named = Counter(ANCHOR.findall(found[PAGE]))
    problems = [f"{PAGE}: the anchor {name!r} is there {n} times" for name, n in named.items() if n > 1]
    for path, text in found.items():
        wrong = [cite for cite in CITED.finditer(text) if cite[1] and cite[1] not in named]
        problems += [f"{path}:{line_of(text, cite)}: no statement is called {cite[1]}" for cite in wrong]
        problems += [
            f"{path}:{line_of(text, cite)}: cites a page that is not in the project" for cite in OLD.finditer(text)
        ]
    return problems


def link_problems(root: Path, found: dict[str, str]) -> list[str]:
    """Links from one page to another file, or to a place in one, that lead nowhere."""
    problems = []
    for path, text in found.items():
        if not path.endswith(".md"):
            continue
        for target in LINK.findall(FENCE.sub("", text)):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, place = target.partition("#")
            there = (root / path).parent / file if file else root / path
            if not there.exists():
                problems.append(f"{path}: {target} does not exist")
            elif place and place not in anchors(there.read_text(encoding="utf-8")):
                problems.append(f"{path}: {target} has no such place")
    return problems


def test_citations_resolve() -> None:
    assert citation_problems(texts(ROOT)) == []


def test_links_between_pages_resolve() -> None:
    assert link_problems(ROOT, texts(ROOT)) == []


def nameless_links(found: dict[str, str]) -> list[str]:
    """Links of pages whose words are the name of a file."""
    pages = {path: FENCE.sub("", text) for path, text in found.items() if path.endswith(".md")}
    return [f"{path}: [{words}]" for path, text in pages.items() for words in FILE_NAME.findall(text)]


def test_links_are_words() -> None:
    assert nameless_links(texts(ROOT)) == []
    planted = {"docs/one.md": "see [privacy.md](privacy.md#objective), [`a/b.py`](a/b.py), [papers/](papers/index.md)"}
    assert len(nameless_links(planted)) == 3


def test_the_page_is_cited_from_code_and_tests() -> None:
    cited = {path.split("/")[0] for path, text in texts(ROOT).items() if CITED.search(text)}
    assert {"src", "tests"} <= cited


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project's texts that a test may change."""
    for name in texts(ROOT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


PLANTED = {
    "an anchor that is not there": ("src/privadmm/optim/gossip.py", f"# {PAGE}#no-such-statement\n"),
    "an anchor cut short": ("tests/optim/test_gossip.py", f"# see {PAGE}#objective-gauss.\n"),
    "an anchor on the next line": ("src/privadmm/engine/mail.py", f'"""see {PAGE}\n#no-such-statement"""\n'),
    "an anchor twice": (PAGE, '<a id="objective"></a>\n'),
    "the old page": ("examples/dvp.toml", "# PRIVACY" + ".md 3\n"),
    "the old page without its ending": ("docs/notation.md", "(PRIVACY" + " 3.4)\n"),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_citation_is_caught(copy: Path, what: str) -> None:
    path, line = PLANTED[what]
    with (copy / path).open("a", encoding="utf-8") as file:
        file.write(line)
    (problem,) = citation_problems(texts(copy))
    assert problem.startswith(path)


@pytest.mark.parametrize("target", ["nowhere.md", "privacy.md#no-such-statement", "#no-such-heading"])
def test_a_planted_link_is_caught(copy: Path, target: str) -> None:
    with (copy / "docs/notation.md").open("a", encoding="utf-8") as file:
        file.write(f"\n[a link]({target})\n")
    # A copy of the texts alone has no folders or other files that pages link to: only the new problem counts.
    before = link_problems(copy, texts(ROOT))
    (problem,) = [line for line in link_problems(copy, texts(copy)) if line not in before]
    assert problem.startswith(f"docs/notation.md: {target} ")
