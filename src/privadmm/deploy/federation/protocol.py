"""Letters between coordinator and party: flat tables of strings, whole numbers and bytes."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from privadmm.errors import Kind, RefusedError

Letter = Mapping[str, str | int | bytes]
LETTER = "letter"  # name of the record in a Flower message that carries a letter
HASH = re.compile("[0-9a-f]{64}")
MOST_TOLD = 10_000  # earlier receipts, and ended jobs, that one `begin` may list


@dataclass(frozen=True)
class Greeting:
    """What identifies one hello. Both sides sign all of it, so a signature does not fit another hello."""

    federation: str  # digest of the authority's certificate, by which a party knows its coordinator
    coordinator: str  # the coordinator's public key
    nonce: str  # drawn for this hello
    proposal: str  # digest of the proposal's text

    def question(self) -> bytes:
        """Bytes that the coordinator signs."""
        return self._signable("privadmm hello: question, version 2")

    def answer(self, facts: str) -> bytes:
        """Bytes that the party signs, with the facts it tells of itself."""
        return self._signable("privadmm hello: answer, version 2", facts)

    def _signable(self, *start: str) -> bytes:
        # Two different JSON lists never have the same text.
        return json.dumps([*start, self.federation, self.coordinator, self.nonce, self.proposal]).encode()


def text(letter: Letter, key: str) -> str:
    """One text of a party's answer; a ValueError if it is missing or of another type."""
    value = letter.get(key)
    if not isinstance(value, str):
        raise ValueError(f"the letter has no text {key!r}")
    return value


def receipt_content(receipt: tuple[str, int, int, str], epoch: str) -> bytes:
    """Bytes that a party signs with a release: job, round, phase, the hash of its ledger's row, the ledger's epoch."""
    return json.dumps(["privadmm receipt, version 2", *receipt, epoch]).encode()


def split_signature(signature: str) -> tuple[str, str]:
    """The epoch under which a receipt was signed, and the signature itself."""
    epoch, _, rest = signature.partition(":")
    return epoch, rest


def refused(why: str, kind: Kind = "request") -> RefusedError:
    """The error of a party that refuses a letter before it releases anything."""
    return RefusedError(f"{why}. Nothing was released", kind)
