"""Texts from outside, made fit for a page: nothing in them can be markup, reverse what stands beside it, or hide."""

import unicodedata
from html import escape

LONGEST = 300  # characters of a text that are shown; the machine-readable twin has all of them
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}  # controls, marks of direction, and what has no glyph


def visible(text: object) -> str:
    """Show hidden characters by their numbers, and of a very long text its beginning."""
    told = str(text)
    cut = told if len(told) <= LONGEST else f"{told[:LONGEST]}… ({len(told)} characters)"
    return "".join(f"\\u{ord(sign):04x}" if unicodedata.category(sign) in HIDDEN else sign for sign in cut)


def safe(text: object) -> str:
    """The text for HTML or SVG, between tags or inside of quotes."""
    return escape(visible(text), quote=True)
