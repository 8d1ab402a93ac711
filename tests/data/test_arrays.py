"""Arrays as bytes: what comes back is what went in, and anything else is refused by one kind of error."""

import json

import numpy as np
import pytest

from privadmm.data import arrays
from privadmm.engine.mail import Mail, nobody


def forged(header: object, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def one(dtype: str, shape: object) -> dict[str, object]:
    return {"arrays": [["a", dtype, shape]], "facts": {}}


HOSTILE = {
    "nothing": b"",
    "no header": b"\xff" * 8,
    "not json": forged(b"{"),
    "no arrays": forged({"facts": {}}),
    "no facts": forged({"arrays": []}),
    "a list": forged([1, 2]),
    "very deep": forged(b"[" * 100_000),
    "an object": forged(one("|O", [1]), bytes(8)),
    "an unknown type": forged(one("<q17", [1]), bytes(8)),
    "a negative shape": forged(one("<f8", [-1, -1]), bytes(8)),
    "an inferred shape": forged(one("<f8", [-1]), bytes(8)),
    "half a row": forged(one("<f8", [0.5]), bytes(8)),
    "true": forged(one("<f8", [True]), bytes(8)),
    "enormous": forged(one("<f8", [2**62, 2**62]), bytes(8)),
    "no shape": forged(one("<f8", None), bytes(8)),
    "too long": forged(one("<f8", [1]), bytes(16)),
    "too short": forged(one("<f8", [2]), bytes(8)),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  whatever it says
        arrays.unpack(data)


def test_equal_content_has_equal_bytes() -> None:
    named = {"x": np.arange(6.0).reshape(2, 3), "n": np.array([1, 2])}
    packed = arrays.pack(named)
    assert packed == arrays.pack({name: array.copy(order="F") for name, array in named.items()})
    assert packed != arrays.pack(named, round=1)
    found, facts = arrays.unpack(packed)
    assert facts == {}
    for name, array in named.items():
        np.testing.assert_array_equal(found[name], array)
    assert arrays.size([("x", "<f8", (2, 3)), ("n", "<i8", (2,))]) == len(packed)


def test_mail_is_packed_as_it_is_now() -> None:
    """Packing is not cached: a buffer that was changed gives other bytes."""
    mail = Mail(np.array([0]), np.zeros((1, 3)))
    before = mail.pack()
    mail.values[:] = 5.0
    assert mail.pack() != before


def test_who_is_absent_is_not_what_a_party_says() -> None:
    mail = Mail(np.array([0]), np.zeros((1, 3)), np.array([[0, 0]]))
    assert len(mail.after(0, nobody(), np.array([0])).absent) == 0
