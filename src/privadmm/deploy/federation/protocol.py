"""What goes between coordinator and party: a flat table of strings, whole numbers and bytes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Letter = Mapping[str, str | int | bytes]
LETTER = "letter"  # the name of the one record of a message that carries a letter
Kind = Literal["hello", "begin", "step", "give_up"]


@dataclass(frozen=True)
class Greeting:
    """Who asks whom for what, in one hello: both sides sign it, so that neither's words serve anywhere else."""

    federation: str  # digest of the authority's certificate, by which a party knows its coordinator
    coordinator: str  # the coordinator's public key
    nonce: str  # of this one question
    proposal: str  # digest of the proposal's text

    def question(self) -> bytes:
        """What the coordinator signs."""
        return self._words("privadmm hello: question, version 2")

    def answer(self, facts: str) -> bytes:
        """What the party signs, with what it says of itself."""
        return self._words("privadmm hello: answer, version 2", facts)

    def _words(self, *said: str) -> bytes:
        # A JSON list: however odd its items are, no two lists have the same text.
        return json.dumps([*said, self.federation, self.coordinator, self.nonce, self.proposal]).encode()


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
