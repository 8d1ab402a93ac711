"""Texts from outside, made fit for a page: nothing in them can be markup, reverse what stands beside it, or hide."""

from html import escape

from privadmm.errors import visible as spelt_out

LONGEST = 2000  # characters of a paragraph that are shown; the machine-readable twin has all of them
SHORT = 300  # characters of a name, a purpose, a cell


def visible(text: object, longest: int = LONGEST) -> str:
    """Show hidden characters by their numbers, and of a very long text its beginning."""
    told = str(text)
    cut = told if len(told) <= longest else f"{told[:longest]}… ({len(told)} characters)"
    return spelt_out(cut, "\u00a0")  # a space that keeps words together is seen as one


def safe(text: object, longest: int = LONGEST) -> str:
    """The text for HTML or SVG, between tags or inside of quotes."""
    return escape(visible(text, longest), quote=True)


def short(text: object) -> str:
    """The same for names and what people typed."""
    return safe(text, SHORT)
