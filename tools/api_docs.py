"""How the API reference reads docstrings: an extension of griffe, which mkdocs.yml names.

A method's class has its docstring in its module. Names in a column with their meaning beside them are a list.
A citation of a statement of docs/privacy.md is a link to it.
"""

import re
import sys
from pathlib import Path
from typing import Any

from griffe import Class, Docstring, Extension, Object

sys.path.insert(0, str(Path(__file__).parent))

from algorithm_pages import heading

ENTRY = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)")
CITED = re.compile(r"docs/(\w+)\.md(?:#([\w-]+))?")


def as_list(paragraph: str) -> str:
    """A Markdown list, if the paragraph is names in a column; otherwise the paragraph."""
    items: list[str] = []
    for line in paragraph.splitlines():
        if entry := ENTRY.fullmatch(line):
            names = ", ".join(f"`{name}`" for name in entry[1].split(", "))
            items.append(f"- {names}: {entry[2]}")
        elif items and line.startswith("  "):
            items[-1] += f" {line.strip()}"
        else:
            return paragraph
    return "\n".join(items)


def linked(paragraph: str) -> str:
    """The paragraph with links for its citations; a formula stays as it is."""
    if paragraph.startswith("    "):
        return paragraph

    def link(cite: re.Match[str]) -> str:
        page, anchor = f"{cite[1]}.md", cite[2] or ""
        return f"[{heading(page, anchor)}](../{page}{'#' + anchor if anchor else ''})"

    return CITED.sub(link, paragraph)


def markdown(text: str) -> str:
    return "\n\n".join(linked(as_list(paragraph)) for paragraph in text.split("\n\n"))


class Plain(Extension):
    def on_class_instance(self, *, cls: Class, **_: Any) -> None:
        method = cls.module.path.removeprefix("privadmm.algorithms.")
        if cls.docstring is None and method != cls.module.path and cls.module.docstring is not None:
            first = cls.module.docstring.value.split("\n")[0]
            cls.docstring = Docstring(f"{first} [Its page](../algorithms/{method}.md).", parent=cls)

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
