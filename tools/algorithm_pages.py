"""Write the site's page of each algorithm from the code: its docstring, its parameters, its example, what it reached.

    python tools/algorithm_pages.py [NAME]     # prints the pages, or one of them; `make docs` takes them from here

Nothing here is written by hand twice: the update and the promise are the module's docstring, the parameters its
declared fields, the config is examples/NAME.toml, and the accuracies are rows of docs/accuracy.md.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from privadmm.algorithms import ALGORITHMS
from privadmm.config.docs import markdown_table
from privadmm.params import fields_of

ROOT = Path(__file__).parents[1]
# How docs/accuracy.md calls a method, where it does not use the method's name.
ROWS = {
    "first_order_consensus": ("curator", "secure sum", "recommended"),
    "admm_star": ("non-private",),
}
# The recommended method first, and those that are not private last.
ORDER = sorted(ALGORITHMS, key=lambda name: (name != "first_order_consensus", not ALGORITHMS[name].adjacencies, name))
# The paragraphs of a docstring that get a heading of their own, by how they begin.
PARTS = {"Privacy": "What is promised", "Published.": "What its paper claims", "Deviation": "Deviations from the paper"}
NUMBERED = re.compile(r"(.*?\S) {2,}(\((?:T\d|line \d|Lemma \d|\w{1,3})\)(?:, \(\w+\))?)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CITED = re.compile(r"\s*\(docs/privacy\.md#([\w-]+)\)")


def heading(page: str, anchor: str = "") -> str:
    """The words to call a page of docs by, or a place on it: the heading there, up to its colon."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = [(re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-"), line) for line in HEADING.findall(text)]
    marked = re.findall(r'<a id="([\w-]+)"></a>\n+#+ (.+)', text)
    words = dict([*named, *marked, ("", named[0][1])]).get(anchor)
    if words is None:
        raise ValueError(f"docs/{page} has no heading at {anchor!r}")
    return words.partition(":")[0]


def docstring(name: str) -> tuple[str, str]:
    """The first line of a method's module, and the rest."""
    module = inspect.getmodule(ALGORITHMS[name])
    first, _, rest = inspect.cleandoc(module.__doc__ or "" if module else "").partition("\n")
    return first, rest.strip("\n")


def prose(paragraph: str) -> str:
    """A paragraph of a docstring as Markdown. Indented ones are formulas: their numbers stand in front of them."""
    if not paragraph.startswith("    "):
        return paragraph.replace("<", "&lt;")
    lines = [NUMBERED.fullmatch(line) or (line, line, "") for line in paragraph.splitlines()]
    width = max(len(line[2]) for line in lines)
    return "\n".join(f"    {line[2]:{width}}  {line[1].removeprefix('    ')}".rstrip() for line in lines)


def text_of(rest: str) -> Iterator[str]:
    """The docstring below its first line, with headings for what is promised, claimed and done otherwise."""
    yield "## The update"
    for paragraph in rest.split("\n\n"):
        begins = next((start for start in PARTS if paragraph.startswith(start)), None)
        if begins is None:
            yield prose(paragraph)
            continue
        yield f"## {PARTS[begins]}"
        body = paragraph.split(". ", 1)[1] if begins != "Published." else paragraph.removeprefix(begins).strip()
        if cited := CITED.search(paragraph.split(". ", 1)[0]):
            yield f"The statement and its proof: [{heading('privacy.md', cited[1])}](../privacy.md#{cited[1]})."
            body = CITED.sub("", paragraph).split(". ", 1)[1]
        yield prose(body)


def accuracy(name: str) -> list[str]:
    """The rows of docs/accuracy.md's first table that are about this method, below its header; or nothing."""
    text = (ROOT / "docs/accuracy.md").read_text(encoding="utf-8")
    lines = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)[0].splitlines()  # type: ignore[index]
    wanted = ROWS.get(name, (name,))
    rows = [line for line in lines[2:] if re.match(rf"\| ({'|'.join(map(re.escape, wanted))})( |,|\+)", line)]
    return [*lines[:2], *rows] if rows else []


def page(name: str) -> str:
    """The page of one algorithm, as Markdown; links are relative to a folder inside docs."""
    summary, rest = docstring(name)
    fields = fields_of(ALGORITHMS[name])
    private = bool(ALGORITHMS[name].adjacencies)  # neighbours between which it promises something
    parts = [f"# {name}", prose(summary)]
    if not private:
        parts.append(
            "**Not private.** A reference to compare with: its values leave in the clear, and every result says so."
        )
    parts += text_of(rest)
    if private and not any(line.startswith("## What is promised") for line in parts):
        parts += ["## What is promised", "See [what each algorithm releases](../privacy.md#algorithms)."]
    example = (ROOT / f"examples/{name}.toml").read_text(encoding="utf-8")
    parts += [
        "## Parameters",
        f'Keys of `[algorithm]` with `name = "{name}"`, beside those [of every method](../config.md); in Python, '
        f"arguments of `{ALGORITHMS[name].__name__}`.",
        markdown_table(fields) if fields else "It has no parameters of its own.",
        "## Example",
        f'```toml title="examples/{name}.toml"\n{example.strip()}\n```',
        f"```sh\nprivadmm examples\nprivadmm account examples/{name}.toml\nprivadmm train examples/{name}.toml\n```",
        "## Measured accuracy",
    ]
    if rows := accuracy(name):
        parts += ["Test accuracy on Adult in per cent, by parties and epsilon ([how it was measured](../accuracy.md)):"]
        parts += ["\n".join(rows)]
    else:
        parts += ["It is not in the table of [accuracy](../accuracy.md)."]
    if not rows and name in ("sharing", "admm_sharing", "fdml_sgd"):
        parts[-1] += " Columns of the same people are another problem: see [ADMM sharing](../papers/sharing.md)."
    return "\n\n".join(parts) + "\n"


def overview() -> str:
    """The list of all pages."""
    lines = [
        "# Algorithms",
        "One page for each, made from the code. [Choosing a method](../choosing.md) says which to take.",
        "",
    ]
    for name in ORDER:
        lines.append(f"- [`{name}`]({name}.md): {prose(docstring(name)[0])}")
    return "\n\n".join(lines[:2]) + "\n" + "\n".join(lines[2:]) + "\n"


def pages() -> dict[str, str]:
    """All of them by their place in docs."""
    return {"algorithms/index.md": overview(), **{f"algorithms/{name}.md": page(name) for name in ORDER}}


if __name__ == "__main__":
    for name in sys.argv[1:] or ALGORITHMS:
        print(page(name))
