"""What goes between coordinator and party: a flat table of strings, whole numbers and bytes."""

from collections.abc import Mapping
from typing import Literal

Letter = Mapping[str, str | int | bytes]
Kind = Literal["hello", "begin", "step", "give_up"]


def signed(nonce: str, facts: str) -> bytes:
    """What a party signs to show who it is: the facts, for this one question."""
    return f"privadmm hello\n{nonce}\n{facts}".encode()


def text(letter: Letter, key: str) -> str:
    value = letter.get(key)
    if not isinstance(value, str):
        raise ValueError(f"the letter has no text {key!r}")
    return value


def whole(letter: Letter, key: str) -> int:
    value = letter.get(key)
    if type(value) is not int:
        raise ValueError(f"the letter has no whole number {key!r}")
    return value


def data(letter: Letter, key: str) -> bytes:
    value = letter.get(key)
    if not isinstance(value, bytes):
        raise ValueError(f"the letter has no bytes {key!r}")
    return value
