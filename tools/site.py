"""What `make docs` adds to the pages in docs: a hook of mkdocs (mkdocs.yml names it).

README.md is the site's home, and CHANGELOG.md, CONTRIBUTING.md and SECURITY.md are pages of it. Pages of algorithms and
the gallery are made from the code and from the examples. Links work in the repository and on the site alike: one that
leaves docs is turned to the site's page of that file, or to a copy of it.
"""

import ast
import json
import posixpath
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from algorithm_pages import heading  # noqa: E402
from algorithm_pages import pages as algorithm_pages  # noqa: E402

# Pages that stand outside docs, and where the site has them.
OUTSIDE = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
DARK = "-dark"  # ends the name of a drawing for dark paper
TEXT = ".txt"  # added to the name of a copied page, which is then no page of the site
LINK = re.compile(r"(\]\(|src=\"|srcset=\")([^)\s\"]+)")
MENTION = re.compile(r"(?<!\]\()(?<![\w/.\"])docs/([\w/-]+\.md)(?:#([\w-]+))?")
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
DRAWING = re.compile(r"!\[([^]]*)\]\(([\w./-]+)\.svg\)")
PICTURE = re.compile(r"<picture>.*?</picture>", re.DOTALL)
ALERT = re.compile(r"^> \[!(\w+)\]\n((?:^>.*\n)+)", re.MULTILINE)

LOADED = re.compile(r"""<(?:script|img|iframe|source|link[^>]+stylesheet)[^>]+(?:src|href)=["']?(https?:[^"' >]+)""")
# Browsers start no worker from a file. They start one from its text.
WORKER = """if (location.protocol === "file:") {
  const text = TEXT;
  const Plain = window.Worker;
  window.Worker = class extends Plain {
    constructor() { super(URL.createObjectURL(new Blob([text], {type: "text/javascript"}))); }
  };
}
"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of algorithms and decisions into the navigation, where mkdocs.yml names their first page."""
    lists = {
        "algorithms/index.md": [{Path(place).stem: place} for place in algorithm_pages()][1:],
        "decisions/index.md": [f"decisions/{path.name}" for path in sorted((ROOT / "docs/decisions").glob("0*.md"))],
    }
    fill(config.nav, lists)
    return config


def fill(items: Any, lists: dict[str, list[Any]]) -> None:
    """Put each list behind the page that it belongs to, at any depth."""
    for item in list(items):
        if isinstance(item, dict):
            for inner in item.values():
                fill(inner if isinstance(inner, list) else [], lists)
        elif item in lists:
            items[items.index(item) + 1 : items.index(item) + 1] = lists[item]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made, and a copy of every file outside docs that a page links to."""
    made = algorithm_pages()
    for source, place in OUTSIDE.items():
        made[place] = (ROOT / source).read_text(encoding="utf-8")
    if (ROOT / "docs/gallery").is_dir():
        made["gallery.md"] = gallery()
    texts = {place: for_site(text, place) for place, text in made.items()}
    for place, text in texts.items():
        files.append(File.generated(config, place, content=text))
    own = {file.src_uri: file.content_string for file in files.documentation_pages() if file.src_uri not in texts}
    for copy in sorted(copies({**texts, **{place: for_site(text, place) for place, text in own.items()}})):
        original = ROOT / copy.removeprefix("files/").removesuffix(TEXT)
        files.append(File.generated(config, copy, content=original.read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    if page.file.src_uri == "index.md":  # it is alone in its section
        page.meta["hide"] = ["navigation"]
    more = references() if page.file.src_uri == "papers/index.md" else ""
    return for_site(markdown, page.file.src_uri) + more


def references() -> str:
    """The papers as a bibliography has them, their numbers as links."""
    from privadmm.papers.references import REFERENCES, bibliography

    cited = [(*reference.cited.rpartition(" "), reference.link) for reference in REFERENCES.values()]
    lines = [f"- {words} [{number}]({link})" for words, _, number, link in cited]
    return "\n\n".join(("", "## References", "\n".join(lines), f"```bibtex\n{bibliography()}```\n"))


@event_priority(-200)
def on_post_build(config: MkDocsConfig) -> None:
    """Write the script with which the search works on a site that is opened from the file system.

    A page that would load anything from elsewhere is refused.
    """
    scripts = Path(config.site_dir) / "assets" / "javascripts"
    (worker,) = (scripts / "workers").glob("search.*.js")
    text = WORKER.replace("TEXT", json.dumps(worker.read_text(encoding="utf-8")))
    (scripts / "iframe-worker.js").write_text(text, encoding="utf-8")
    for page in Path(config.site_dir).rglob("*.html"):
        if loaded := LOADED.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page}: loads {loaded[1]}; the site is read without a network")


def for_site(text: str, place: str) -> str:
    """The page with its links as the site needs them. Done twice, nothing changes any more."""
    if place == "index.md":
        text = ALERT.sub(box, PICTURE.sub(both_colours, text))
    text = DRAWING.sub(lambda found: for_both(found, place), text)
    parts = CODE.split(text)
    parts[::2] = [MENTION.sub(lambda found: named(found, place), part) for part in parts[::2]]
    parts[::2] = [LINK.sub(lambda found: found[1] + turned(found[2], place), part) for part in parts[::2]]
    return "".join(parts).replace(" ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}")


def named(found: re.Match[str], place: str) -> str:
    """A page of docs that is mentioned by its file's name, as a link with the words of its heading."""
    page, anchor = found[1], found[2] or ""
    if not (ROOT / "docs" / page).exists():  # the changelog may name pages of its time
        return found[0]
    target = posixpath.relpath(page, posixpath.dirname(place) or ".")
    return f"[{heading(page, anchor)}]({target}{'#' + anchor if anchor else ''})"


def turned(target: str, place: str) -> str:
    """Where a link of this page leads on the site."""
    path, mark, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return target
    source = {page: name for name, page in OUTSIDE.items()}.get(place, f"docs/{place}")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    there = place_of(wanted)
    if there is None:  # a page or picture of docs, or a link that was turned before: mkdocs checks it
        there = wanted.removeprefix("docs/") if wanted.startswith("docs/") else None
    if there is None:
        return target
    return posixpath.relpath(there, posixpath.dirname(place) or ".") + mark + anchor


def place_of(path: str) -> str | None:
    """The site's place for a file of the repository that is not in docs."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if path.startswith("docs/") or not (ROOT / path).exists():
        return None
    method = Path(path).stem
    if path.startswith("src/privadmm/algorithms/") and f"algorithms/{method}.md" in algorithm_pages():
        return f"algorithms/{method}.md"
    return f"files/{path}{TEXT if path.endswith('.md') else ''}" if (ROOT / path).is_file() else None


def copies(texts: dict[str, str]) -> set[str]:
    """The files that pages link to as copies."""
    found = set()
    for place, text in texts.items():
        for part in CODE.split(text)[::2]:
            for link in LINK.findall(part):
                there = posixpath.normpath(posixpath.join(posixpath.dirname(place), link[1]))
                if there.startswith("files/"):
                    found.add(there)
    return found


def both_colours(found: re.Match[str]) -> str:
    """README's picture, which follows the browser's colours, as two that follow the site's."""
    dark = re.search(r'srcset="([^"]+)"', found[0])
    light = re.search(r'<img[^>]*src="([^"]+)"', found[0])
    words = re.search(r'alt="([^"]*)"', found[0])
    if not (dark and light and words):
        raise ValueError(f"README.md: a <picture> needs srcset, src and alt: {found[0]}")
    return f"![{words[1]}]({light[1]}#only-light)\n![{words[1]}]({dark[1]}#only-dark)"


def for_both(found: re.Match[str], place: str) -> str:
    """A drawing of a page; beside one for dark paper, if there is one, of which the site shows the fitting one."""
    words, path = found[1], found[2]
    if not (ROOT / "docs" / posixpath.dirname(place) / f"{path}{DARK}.svg").exists():
        return found[0]
    return f"![{words}]({path}.svg#only-light)\n![{words}]({path}{DARK}.svg#only-dark)"


def box(found: re.Match[str]) -> str:
    """A box as the repository writes it, as the site does."""
    lines = [line.removeprefix(">").removeprefix(" ") for line in found[2].splitlines()]
    title = lines[0].strip("*") if lines[0].startswith("**") else found[1].capitalize()
    body = lines[1:] if lines[0].startswith("**") else lines
    return f'!!! {found[1].lower()} "{title}"\n\n' + "\n".join(f"    {line}".rstrip() for line in body) + "\n"


def place_in_gallery(picture: Path) -> tuple[bool, int, str]:
    """People first, papers last."""
    first = ("hospitals", "banks", "survey", "secure_sums", "frontier", "audit", "killed_node")
    name = picture.stem
    return name.startswith("paper_"), first.index(name) if name in first else len(first), name


def gallery() -> str:
    """Every picture of docs/gallery, with the words of the script that draws it."""
    parts = [
        "# Gallery",
        "Three people who might use this, then what secure sums, budgets, attacks and a killed node look like, then a "
        "picture for each paper. Each is drawn by one script, and every record in them is invented or public. "
        "`privadmm examples` writes the scripts; each takes `--out`, and says what it found.",
    ]
    drawings = [path for path in (ROOT / "docs/gallery").glob("*.svg") if not path.stem.endswith(DARK)]
    for picture in sorted(drawings, key=place_in_gallery):
        script = ROOT / "examples" / f"{picture.stem}.py"
        words = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
        title, _, rest = words.partition("\n")
        parts += [
            f"## {title.rstrip('.')}",
            f"![{title.rstrip('.')}](gallery/{picture.name})",
            rest.strip().replace("<", "&lt;"),
            f"[The script](../examples/{script.name}): `python examples/{script.name} --out pictures`",
        ]
    return "\n\n".join(parts) + "\n"
