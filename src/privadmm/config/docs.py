"""A schema for people (text, Markdown) and for editors (JSON Schema), from the same declarations."""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from privadmm.params import Field, show


@dataclass(frozen=True)
class Section:
    title: str  # "[loss]", or "[algorithm] with name = ..."
    doc: str
    fields: Mapping[str, Field]


def as_text(sections: Iterable[Section]) -> str:
    blocks = []
    for section in sections:
        lines = [section.title, fill(section.doc, 100, initial_indent="  ", subsequent_indent="  ")]
        for field in section.fields.values():
            lines += ["", f"  {field.name}: {field.doc}"]
            for words in (f"allowed: {field.kind.allowed()}", _presence(field)):
                lines.append(fill(words, 100, initial_indent="    ", subsequent_indent="      "))
        blocks.append("\n".join(lines))
    return "\n\n\n".join(blocks) + "\n"


def as_markdown(sections: Iterable[Section]) -> str:
    blocks = []
    for section in sections:
        lines = [f"## `{section.title}`", "", section.doc]
        if section.fields:
            lines += ["", "| key | meaning | allowed | if left out |", "|---|---|---|---|"]
        for field in section.fields.values():
            cells = (f"`{field.name}`", field.doc, field.kind.allowed(), _presence(field))
            lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;") for cell in cells) + " |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _presence(field: Field) -> str:
    if field.required:
        return "required"
    if field.when is not None and (field.default is None or field.when.required):
        return field.when.words
    default = "optional" if field.default is None else f"default: {show(field.default)}"
    return default if field.when is None else f"{field.when.words}, {default}"


def as_json(fields: Mapping[str, Field], doc: str) -> dict[str, Any]:
    """One table. A key that belongs to one value of another is refused beside other values."""
    schema: dict[str, Any] = {
        "type": "object",
        "description": doc,
        "properties": {field.name: _property(field) for field in fields.values()},
        "required": [field.name for field in fields.values() if field.required],
        "additionalProperties": False,
    }
    conditions = [_condition(field, fields) for field in fields.values() if field.when is not None]
    return schema | ({"allOf": conditions} if conditions else {})


def _property(field: Field) -> dict[str, Any]:
    default = {} if field.default in (None, dataclasses.MISSING) else {"default": field.default}
    return field.kind.json() | {"description": field.doc} | default


def _condition(field: Field, fields: Mapping[str, Field]) -> dict[str, Any]:
    assert field.when is not None
    when = field.when
    chosen: dict[str, Any] = {"properties": {when.key: {"const": when.value}}}
    if fields[when.key].default != when.value:
        chosen["required"] = [when.key]
    condition = {"if": chosen, "else": {"properties": {field.name: False}}}
    return condition | ({"then": {"required": [field.name]}} if when.required else {})
