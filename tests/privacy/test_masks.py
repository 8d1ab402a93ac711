"""Masks: known answers, what they depend on, rosters that are refused, and bugs that would let one be taken off."""

import hashlib
import hmac
import json
import struct
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from privadmm.errors import RefusedError
from privadmm.privacy import masks
from privadmm.privacy.masks import Entry, Masker, Roster, Told, framed, new_key, pair_key, public_key

WIDTH = 40
JOB = "job"
PRIVATE = [bytes([number + 1]) * 32 for number in range(5)]
TOLD = Told(JOB, "terms", 2, 2.0**41, (0, 1, 2, 3, 4), 3, 0, -60, "inbox")


def entries(private: list[bytes] = PRIVATE) -> list[Entry]:
    return [Entry((number,), public_key(key)) for number, key in enumerate(private)]


def maskers(roster: Roster, private: list[bytes] = PRIVATE) -> list[Masker]:
    return [Masker(JOB, number, key, roster) for number, key in enumerate(private)]


ROSTER = Roster.of(entries())


def rows(told: list[Told], call: int = 0, of: list[Masker] | None = None) -> list[Any]:
    return [masker.hide(own, call, (1, WIDTH)) for masker, own in zip(of or maskers(ROSTER), told, strict=True)]


def total(words: list[Any]) -> Any:
    return np.sum(words, axis=0, dtype=np.uint64)


# Known answers, from the documents that define the primitives


def chacha20(key: bytes, length: int) -> bytes:
    """RFC 8439's block function with nonce and counter 0, in plain words."""

    def quarter(x: list[int], a: int, b: int, c: int, d: int) -> None:
        for one, two, three, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[one] = (x[one] + x[two]) & 0xFFFFFFFF
            mixed = x[three] ^ x[one]
            x[three] = ((mixed << turn) | (mixed >> (32 - turn))) & 0xFFFFFFFF

    stream = b""
    for counter in range(-(-length // 64)):
        start = [*struct.unpack("<4I", b"expand 32-byte k"), *struct.unpack("<8I", key), counter, 0, 0, 0]
        state = list(start)
        for _ in range(10):
            for at in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)):
                quarter(state, *at)
            for at in ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
                quarter(state, *at)
        stream += struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(state, start, strict=True)))
    return stream[:length]


def expected_mask(i: int, j: int, told: Told, copy: int, call: int) -> Any:
    """m_ij by the formulas of masks.py, with nothing of its code but the facts' order."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    def prefixed(*parts: Any) -> bytes:
        raw = [part if isinstance(part, bytes) else str(part).encode() for part in parts]
        return b"".join(struct.pack("<Q", len(part)) + part for part in raw)

    keys = [public_key(key) for key in PRIVATE]
    shared = X25519PrivateKey.from_private_bytes(PRIVATE[i]).exchange(X25519PublicKey.from_public_bytes(keys[j]))
    low, high = min(i, j), max(i, j)
    roster = hashlib.sha256(ROSTER.pack()).hexdigest()
    extracted = hmac.digest(prefixed(JOB, roster), shared, "sha256")
    info = prefixed("privadmm secure sum, version 1", "pair", low, high, keys[low], keys[high])
    pair = hmac.digest(extracted, info + b"\x01", "sha256")
    facts = ("privadmm secure sum, version 1", told.job, roster, told.terms, told.colluding, told.scale.hex())
    more = (copy, told.round, told.phase, call, WIDTH, told.exponent, told.inbox)
    context = hashlib.sha256(prefixed(*facts, json.dumps(told.present), *more)).digest()
    return np.frombuffer(chacha20(hmac.digest(pair, context, "sha256"), 8 * WIDTH), dtype="<u8")


def known_answer() -> bool:
    mine = Masker(JOB, 1, PRIVATE[1], ROSTER).hide(replace(TOLD, present=(0, 1)), 0, (1, WIDTH))[0]
    return bool(np.array_equal(-mine, expected_mask(1, 0, replace(TOLD, present=(0, 1)), 0, 0)))


def test_a_mask_is_the_one_of_the_formulas() -> None:
    assert known_answer()


def test_a_mask_of_a_seeded_generator_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def seeded(key: bytes, count: int) -> Any:
        seed = int.from_bytes(key[:4], "little")
        return np.random.default_rng(seed).integers(0, 2**64, size=count, dtype=np.uint64)

    monkeypatch.setattr(masks, "key_stream", seeded)
    assert not known_answer()


def test_a_folded_key_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = masks.key_stream
    monkeypatch.setattr(masks, "key_stream", lambda key, count: stream(key[:4] * 8, count))
    assert not known_answer()


def high_bits_are_hidden() -> bool:
    """The upper halves of masked zeros look random: no two of them are alike."""
    words = np.concatenate([row.ravel() for row in rows([TOLD] * 5)])
    return len(np.unique(words >> np.uint64(32))) == words.size


def test_all_64_bits_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert high_bits_are_hidden()
    stream = masks.key_stream
    monkeypatch.setattr(masks, "key_stream", lambda key, count: stream(key, count) & np.uint64(2**32 - 1))
    assert not high_bits_are_hidden()  # planted: arithmetic mod 2^32


# What masks depend on


def test_masks_cancel_if_all_were_told_the_same_and_no_row_is_plain() -> None:
    words = rows([TOLD] * 5)
    assert not total(words).any()
    assert all(row.all() for row in words)
    assert total(words[1:]).all()  # without one of them, what is left is masked


def test_masks_cancel_among_those_present() -> None:
    told = replace(TOLD, present=(0, 2, 3))
    of = [maskers(ROSTER)[number] for number in told.present]
    assert not total(rows([told] * 3, of=of)).any()


OTHERS = {
    "job": "other",
    "terms": "others",
    "colluding": 1,
    "scale": 2.0**41 + 2.0**20,
    "present": (0, 1, 2, 3),
    "round": 4,
    "phase": 1,
    "exponent": -61,
    "inbox": "another",
}


def test_every_fact_is_tried() -> None:
    assert OTHERS.keys() == {item.name for item in fields(Told)}


@pytest.mark.parametrize("fact", OTHERS)
def test_a_party_that_was_told_something_else_makes_noise_of_the_sum(fact: str) -> None:
    odd = replace(TOLD, **{fact: OTHERS[fact]})
    words = total(rows([TOLD, TOLD, odd, TOLD, TOLD]))
    assert words.all()


@pytest.mark.parametrize("fact", OTHERS)
def test_no_mask_is_used_twice(fact: str) -> None:
    mine = Masker(JOB, 0, PRIVATE[0], ROSTER)
    assert np.all(mine.hide(TOLD, 0, (1, WIDTH)) != mine.hide(replace(TOLD, **{fact: OTHERS[fact]}), 0, (1, WIDTH)))


def reused(masker: Masker) -> bool:
    """Whether two releases of a tick, or two copies of a release, have a mask in common."""
    first = masker.hide(TOLD, 0, (2, 1, WIDTH))
    second = masker.hide(TOLD, 1, (2, 1, WIDTH))
    wider = masker.hide(TOLD, 0, (2, 1, WIDTH + 1))[..., :WIDTH]
    return bool((first[0] == first[1]).any() or (first == second).any() or (first == wider).any())


def test_calls_copies_and_widths_have_masks_of_their_own() -> None:
    assert not reused(Masker(JOB, 0, PRIVATE[0], ROSTER))


@pytest.mark.parametrize("fact", ["copy", "call", "width"])
def test_a_fact_that_is_missing_from_the_context_is_caught(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Told.context

    def context(self: Told, roster: str, copy: int, call: int, width: int) -> bytes:
        facts = {"copy": copy, "call": call, "width": width} | {fact: 0}
        return whole(self, roster, **facts)

    monkeypatch.setattr(Told, "context", context)
    assert reused(Masker(JOB, 0, PRIVATE[0], ROSTER))


@pytest.mark.parametrize("fact", ["round", "inbox", "present", "scale", "terms"])
def test_a_fact_of_the_tick_that_is_missing_is_caught(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Told.context
    blank = {fact: type(getattr(TOLD, fact))()}
    monkeypatch.setattr(Told, "context", lambda self, *rest: whole(replace(self, **blank), *rest))
    mine = Masker(JOB, 0, PRIVATE[0], ROSTER)
    other = replace(TOLD, **{fact: (0, 1, 2, 3, 4)[::-1] if fact == "present" else OTHERS[fact]})
    assert np.array_equal(mine.hide(TOLD, 0, (1, WIDTH)), mine.hide(other, 0, (1, WIDTH)))


def test_blocks_of_several_parties_have_one_mask_between_them() -> None:
    pair = Roster.of([Entry((3, 0), public_key(PRIVATE[0])), Entry((1, 2, 4), public_key(PRIVATE[1]))])
    two = [Masker(JOB, 0, PRIVATE[0], pair), Masker(JOB, 1, PRIVATE[1], pair)]
    assert not total(rows([TOLD] * 2, of=two)).any()
    there = replace(TOLD, present=(0, 3))
    assert not two[0].hide(there, 0, (1, WIDTH)).any()  # the other block has nobody in this sum


# Keys


def test_both_sides_derive_one_key_and_other_pairs_another() -> None:
    found = {}
    for i, mine in enumerate(ROSTER.entries):
        for j, other in enumerate(ROSTER.entries):
            if i != j:
                found[i, j] = pair_key(PRIVATE[i], mine, other, JOB, ROSTER.digest)
    assert all(found[i, j] == found[j, i] for i, j in found)
    assert len(set(found.values())) == 10
    assert pair_key(PRIVATE[0], ROSTER.entries[0], ROSTER.entries[1], "another job", ROSTER.digest) != found[0, 1]
    assert pair_key(PRIVATE[0], ROSTER.entries[0], ROSTER.entries[1], JOB, "another roster") != found[0, 1]


def copied_key_shares_a_mask() -> bool:
    """Whether party 0 hides alike from party 3 and from a colluding party 4 that registered a copy of 3's key.

    It would then hide nothing: what it adds for the one, the adversary has from what it takes away for the other.
    """
    private = [*PRIVATE[:4], PRIVATE[3]]
    mine = maskers(Roster.of(entries(private)), private)[0]
    three, four = (mine.hide(replace(TOLD, present=(0, peer)), 0, (1, WIDTH)) for peer in (3, 4))
    return bool(np.array_equal(three, four))


def test_a_copied_key_shares_no_mask_with_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Told, "context", lambda self, *rest: b"one and the same")
    assert not copied_key_shares_a_mask()
    monkeypatch.setattr(masks, "framed", lambda *parts: framed(*(part for part in parts if not isinstance(part, int))))
    assert copied_key_shares_a_mask()  # planted: no numbers in the derivation


def test_a_key_of_small_order_is_refused() -> None:
    with pytest.raises(RefusedError, match="party 1 in the roster is no key"):
        pair_key(PRIVATE[0], ROSTER.entries[0], Entry((1,), bytes(32)), JOB, ROSTER.digest)


def test_new_keys_are_new() -> None:
    assert len({new_key() for _ in range(20)}) == 20


# Rosters

MINE = ROSTER.entries[2]


def refused(changed: list[Entry], why: str, signed: Any = lambda entry, party: True) -> None:
    with pytest.raises(RefusedError, match=why):
        Roster.of(changed).check(MINE, 5, 2, signed)


def test_a_roster_of_everybody_is_accepted() -> None:
    Roster.unpack(ROSTER.pack()).check(MINE, 5, 2, lambda entry, party: True)
    assert Roster.unpack(ROSTER.pack()) == ROSTER


def test_rosters_that_lack_or_repeat_somebody_are_refused() -> None:
    known = list(ROSTER.entries)
    refused(known[:4], "every party")
    refused([*known, Entry((5,), public_key(bytes([9]) * 32))], "every party")
    refused([*known[:4], replace(known[3], key=public_key(bytes([9]) * 32))], "every party")
    refused([*known[:4], replace(known[3], parties=(4,))], "one key for two")
    refused([*known[:2], replace(MINE, key=public_key(bytes([9]) * 32)), *known[3:]], "lacks the key of party 2")
    refused([*known[:2], replace(known[3], parties=(2,)), replace(MINE, parties=(3,)), known[4]], "lacks the key")


def test_a_key_that_its_owner_did_not_sign_is_refused() -> None:
    refused(list(ROSTER.entries), "party 4 in the roster is not signed", lambda entry, party: party != 4)


NO_ROSTERS = [b"", b"[]x", b"{}", b"null", b"[1]", b'["a"]', b'["[[0], \\"zz\\", 1]"]', b'["[[], \\"00\\", 1]"]']


def test_an_entry_in_the_name_of_others_needs_their_signatures() -> None:
    """A colluder that signs for parties 0 and 3 has only its own key, that of party 3."""
    known = ROSTER.entries
    claimed = [Entry((0, 3), known[3].key), known[1], MINE, known[4]]
    refused(claimed, "party 0 in the roster is not signed", lambda entry, party: entry.key == known[party].key)


def test_a_key_for_more_parties_than_may_collude_is_refused() -> None:
    known = ROSTER.entries
    many = [Entry((0, 1, 3), known[3].key), MINE, known[4]]
    refused(many, "3 parties under one key")
    Roster.of(many).check(MINE, 5, 3, lambda entry, party: True)


@pytest.mark.parametrize("sent", NO_ROSTERS)
def test_what_is_no_roster_is_refused(sent: bytes) -> None:
    with pytest.raises(RefusedError, match="no roster"):
        Roster.unpack(sent)


def test_what_is_signed_names_job_terms_number_and_key() -> None:
    entry, contents = ROSTER.entries[0], set()
    for changed in (entry, replace(entry, parties=(1,)), replace(entry, key=bytes(32))):
        contents |= {changed.content(job, terms) for job in ("a", "b") for terms in ("c", "d")}
    assert len(contents) == 12
    assert entry.content("ab", "c") != entry.content("a", "bc")
