"""Masks of a secure sum: words that hide a block's message, and cancel only if all blocks present were told the same.

A block is a node or a worker that holds a key, with its party or parties. Its number is that of its first party.

    k_ij = HKDF-SHA256(X25519(sk_i, pk_j), salt = (job, roster), info = (lower number, higher number, their keys))  (1)
    ctx  = SHA256 of the length-prefixed facts of the tick                                                          (2)
    m_ij = ChaCha20 key stream of HMAC-SHA256(k_ij, ctx);  the lower number adds it, the higher one takes it away   (3)

Facts of (2): version, job, roster, terms, t, s, S, copy, round, phase, call, d, k, and a digest of what all were told.
The roster has every block's key of this job, each signed by its owner. A block accepts one roster and no other.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np

from privadmm.errors import RefusedError
from privadmm.privacy.sums import Words

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.ciphers import Cipher

VERSION = "privadmm secure sum, version 1"
KEY = 32  # bytes of an X25519 key


def framed(*parts: str | int | bytes) -> bytes:
    """Join parts as bytes, each after its length, so that two different lists never have the same bytes."""
    raw = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
    return b"".join(len(part).to_bytes(8, "little") + part for part in raw)


def new_key() -> bytes:
    """A private key, from the operating system's entropy."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.generate().private_bytes_raw()


def public_key(private: bytes) -> bytes:
    return loaded(private).public_key().public_bytes_raw()


@dataclass(frozen=True)
class Entry:
    """A block in a roster: its parties, its public key for this job, and its owner's signature ("" if not signed)."""

    parties: tuple[int, ...]
    key: bytes
    signature: str = ""

    @cached_property
    def number(self) -> int:
        return min(self.parties)

    def content(self, job: str, terms: str) -> bytes:
        """What the owner signs."""
        return framed(VERSION, "key", job, terms, json.dumps(self.parties), self.key)

    def pack(self) -> str:
        return json.dumps([list(self.parties), self.key.hex(), self.signature])

    @staticmethod
    def unpack(text: str) -> "Entry":
        """Read what `pack` wrote; a ValueError for anything else."""
        try:
            parties, key, signature = json.loads(text)
            whole = isinstance(parties, list) and parties and all(type(party) is int for party in parties)
            entry = Entry(tuple(parties), bytes.fromhex(key), signature)
        except (TypeError, RecursionError) as error:
            raise ValueError("no entry of a roster") from error
        if not whole or len(entry.key) != KEY or not isinstance(signature, str):
            raise ValueError("no entry of a roster")
        return entry


@dataclass(frozen=True)
class Roster:
    """The keys of all blocks of one job, in the order of their parties."""

    entries: tuple[Entry, ...]

    @staticmethod
    def of(entries: Iterable[Entry]) -> "Roster":
        return Roster(tuple(sorted(entries, key=lambda entry: entry.number)))

    def pack(self) -> bytes:
        return json.dumps([entry.pack() for entry in self.entries]).encode()

    @staticmethod
    def unpack(data: bytes) -> "Roster":
        try:
            packed = json.loads(data)
            if not isinstance(packed, list):
                raise ValueError("a roster is a list")
            return Roster(tuple(Entry.unpack(entry) for entry in packed))
        except (ValueError, TypeError, RecursionError):
            raise RefusedError("what was sent is no roster of a secure sum. Nothing was released") from None

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.pack()).hexdigest()

    def check(self, mine: Entry, parties: int, most: int, signed: Callable[[Entry, int], bool]) -> None:
        """Refuse a roster unless it has every party once, this block's own key, and no key twice.

        signed(entry, party) says whether that party signed the entry. A block of more than `most` parties is refused:
        whoever has its key knows the noise of all of them.
        """
        held = [party for entry in self.entries for party in entry.parties]
        if sorted(held) != list(range(parties)):
            raise RefusedError("the roster is not of every party of the job once. Nothing was released")
        if (mine.parties, mine.key) not in [(entry.parties, entry.key) for entry in self.entries]:
            raise RefusedError(f"the roster lacks the key of party {mine.number} of this job. Nothing was released")
        if len({entry.key for entry in self.entries}) < len(self.entries):
            raise RefusedError("the roster has one key for two parties. Nothing was released")
        for entry in self.entries:
            if entry.number == mine.number:
                continue
            if unsigned := [party for party in entry.parties if not signed(entry, party)]:
                raise RefusedError(
                    f"the key of party {unsigned[0]} in the roster is not signed for this job by the key that is "
                    "pinned for that party here. Nothing was released"
                )
            if len(entry.parties) > most:
                raise RefusedError(
                    f"the roster has {len(entry.parties)} parties under one key, that of party {entry.number}, and the "
                    f"job tolerates {most} that collude: have more workers, or raise colluding. Nothing was released"
                )


@dataclass(frozen=True)
class Told:
    """What all blocks must have been told alike for their masks to cancel: the facts of (2) but copy, call and d."""

    job: str
    terms: str  # digest of the job
    colluding: int
    scale: float
    present: tuple[int, ...]  # S
    round: int
    phase: int
    exponent: int
    inbox: str  # digest

    def context(self, roster: str, copy: int, call: int, width: int) -> bytes:
        told = (self.job, roster, self.terms, self.colluding, self.scale.hex(), json.dumps(self.present))
        facts = (VERSION, *told, copy, self.round, self.phase, call, width, self.exponent, self.inbox)
        return hashlib.sha256(framed(*facts)).digest()


@dataclass(frozen=True)
class Masker:
    """Makes the masks of one block in one job."""

    job: str
    number: int
    private: bytes
    roster: Roster
    _pairs: dict[int, bytes] = field(default_factory=dict, compare=False, repr=False)

    def hide(self, told: Told, call: int, shape: tuple[int, ...]) -> Words:
        """The masks of a message of this shape (..., 1, width) towards every other block that is present."""
        out = np.zeros(shape, dtype=np.uint64)
        here = set(told.present)
        entries = [entry for entry in self.roster.entries if not here.isdisjoint(entry.parties)]
        peers = [(self.pair(entry), entry.number > self.number) for entry in entries if entry.number != self.number]
        for copy, row in enumerate(out.reshape(-1, shape[-1])):
            context = told.context(self.roster.digest, copy, call, shape[-1])
            for pair, above in peers:
                mask = key_stream(hmac.digest(pair, context, "sha256"), shape[-1])
                if above:
                    row += mask
                else:
                    row -= mask
        return out

    def pair(self, other: Entry) -> bytes:
        """k_ij of (1) with this other block, derived once."""
        if other.number not in self._pairs:
            self._pairs[other.number] = pair_key(self._own, self._mine, other, self.job, self.roster.digest)
        return self._pairs[other.number]

    @cached_property
    def _own(self) -> "X25519PrivateKey":
        return loaded(self.private)

    @cached_property
    def _mine(self) -> Entry:
        return next(entry for entry in self.roster.entries if entry.number == self.number)


def loaded(private: bytes) -> "X25519PrivateKey":
    """Parse a private key. That takes as long as an exchange with it."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    return X25519PrivateKey.from_private_bytes(private)


def pair_key(private: "bytes | X25519PrivateKey", mine: Entry, other: Entry, job: str, roster: str) -> bytes:
    """k_ij of (1); both sides get the same. An exchange with result zero is refused: only a forged key gives it."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    try:
        own = loaded(private) if isinstance(private, bytes) else private
        shared = own.exchange(X25519PublicKey.from_public_bytes(other.key))
    except ValueError:
        raise RefusedError(f"the key of party {other.number} in the roster is no key. Nothing was released") from None
    low, high = sorted((mine, other), key=lambda entry: entry.number)
    info = framed(VERSION, "pair", low.number, high.number, low.key, high.key)
    return HKDF(SHA256(), 32, salt=framed(job, roster), info=info).derive(shared)


@cache
def chacha20() -> "Callable[[bytes], Cipher[None]]":
    """A function from keys to ciphers. It is cached, since importing its modules for every key takes as long as it."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    return lambda key: Cipher(ChaCha20(key, b"\0" * 16), mode=None)


def key_stream(key: bytes, count: int) -> Words:
    """(3): this many words of ChaCha20 under this key, which is used once."""
    stream = chacha20()(key).encryptor().update(b"\0" * (8 * count))
    return np.frombuffer(stream, dtype="<u8")
