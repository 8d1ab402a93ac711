"""Document the config file from its declarations: as text, as a page, and as JSON Schema for editors."""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any

from privadmm.config.file import SECTIONS, Algorithms, algorithm_fields, known_algorithms
from privadmm.errors import show
from privadmm.params import Field, fields_of

PAGE = """# The config file

One TOML file serves every command. Unknown sections and keys are errors, and so is a value outside what is
allowed; an error names the file, the line, the key, what is allowed, and the nearest valid name. Every path
is relative to the file's folder. `privadmm config --schema` prints this list, with `--json` as JSON Schema.

```toml
[data]
source = "embedded:adult"

[parties]
count = 10

[algorithm]
name = "dp_admm"
rounds = 50
D_w = 5.0

[privacy]
epsilon = 1.0
delta = 1e-5

[run]
seed = 0
```

"""


def _sections(algorithms: Algorithms | None) -> Iterator[tuple[str, str, Mapping[str, Field]]]:
    """Title, summary and keys of each section. [algorithm] has an entry for all algorithms, and one for each."""
    known = known_algorithms(algorithms)
    for name, table in SECTIONS.items():
        yield f"[{name}]", _summary(table), algorithm_fields(known) if name == "algorithm" else fields_of(table)
        for choice, algorithm in known.items() if name == "algorithm" else ():
            yield f"[algorithm] name = {show(choice)}", _summary(algorithm), fields_of(algorithm)


def _summary(table: type[Any]) -> str:
    """The first line of the class's docstring, or of its module's if the class has only the one that Python makes."""
    own = table.__doc__ or ""
    doc = sys.modules[table.__module__].__doc__ or "" if own.startswith(f"{table.__name__}(") else own
    return doc.split("\n")[0]


def schema_text(algorithms: Algorithms | None = None) -> str:
    """Every section and key, for people."""
    blocks = []
    for title, doc, fields in _sections(algorithms):
        lines = [title, fill(doc, 100, initial_indent="  ", subsequent_indent="  ")]
        for field in fields.values():
            lines += ["", f"  {field.name}: {field.doc}"]
            for words in (f"allowed: {field.kind.allowed()}", _presence(field)):
                lines.append(fill(words, 100, initial_indent="    ", subsequent_indent="      "))
        blocks.append("\n".join(lines))
    return "\n\n\n".join(blocks) + "\n"


def schema_markdown(algorithms: Algorithms | None = None) -> str:
    """Every section and key, as a page of documentation."""
    blocks = []
    for title, doc, fields in _sections(algorithms):
        lines = [f"## `{title}`", "", doc, *(["", markdown_table(fields)] if fields else [])]
        blocks.append("\n".join(lines))
    return PAGE + "\n\n".join(blocks) + "\n"


def markdown_table(fields: Mapping[str, Field]) -> str:
    """The keys with their meaning, limits and defaults."""
    lines = ["| key | meaning | allowed | if left out |", "|---|---|---|---|"]
    for field in fields.values():
        cells = (f"`{field.name}`", field.doc, field.kind.allowed(), _presence(field))
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |")
    return "\n".join(lines)


def _presence(field: Field) -> str:
    """Whether a key is required, and its default."""
    if field.required:
        return "required"
    if field.when is not None and (field.default is None or field.when.required):
        return field.when.words
    default = "optional" if field.default is None else f"default: {show(field.default)}"
    return default if field.when is None else f"{field.when.words}, {default}"


def schema_json(algorithms: Algorithms | None = None) -> dict[str, Any]:
    """A JSON Schema (draft 2020-12) of the file, for editors. Conditions across sections are not in it."""
    known = known_algorithms(algorithms)
    properties = {name: _json(fields_of(table), _summary(table)) for name, table in SECTIONS.items()}
    variants = []
    for name, algorithm in known.items():
        variant = _json({**algorithm_fields(known), **fields_of(algorithm)}, _summary(algorithm))
        variant["properties"]["name"] = {"const": name}
        variants.append(variant)
    properties["algorithm"] = {"oneOf": variants}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "privadmm config",
        "type": "object",
        "properties": properties,
        "required": ["data", "algorithm"],
        "additionalProperties": False,
    }


def _json(fields: Mapping[str, Field], doc: str) -> dict[str, Any]:
    """The schema of one section. A key that belongs to one value of another key is refused beside other values."""
    properties, conditions = {}, []
    for field in fields.values():
        default = {} if field.default in (None, dataclasses.MISSING) else {"default": field.default}
        properties[field.name] = field.kind.json() | {"description": field.doc} | default
        if (when := field.when) is not None:
            chosen: dict[str, Any] = {"properties": {when.key: {"const": when.value}}}
            if fields[when.key].default != when.value:
                chosen["required"] = [when.key]
            condition: dict[str, Any] = {"if": chosen, "else": {"properties": {field.name: False}}}
            conditions.append(condition | ({"then": {"required": [field.name]}} if when.required else {}))
    return {
        "type": "object",
        "description": doc,
        "properties": properties,
        "required": [field.name for field in fields.values() if field.required],
        "additionalProperties": False,
    } | ({"allOf": conditions} if conditions else {})
