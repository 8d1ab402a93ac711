"""Types of arrays, and arrays as bytes in messages, ledgers and checkpoints, the same on every engine.

The layout is the length of a JSON header, the header, then the arrays' memory one after another. It is deterministic:
equal content has equal bytes, so digests can be compared between machines.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Array = NDArray[Any]
Layout = Sequence[tuple[str, str, tuple[int, ...]]]  # name, type and shape of each array


def pack(arrays: Mapping[str, Array], **facts: Any) -> bytes:
    """Pack named arrays and JSON-able facts into bytes."""
    return b"".join(pieces(arrays, **facts))


def pieces(arrays: Mapping[str, Array], **facts: Any) -> list[bytes | memoryview]:
    """The bytes of `pack` in pieces: a header, and the memory of each array, copied only if not contiguous."""
    solid = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    layout = tuple((name, array.dtype.str, array.shape) for name, array in solid.items())
    head = heading(layout, json.dumps(facts, sort_keys=True) if facts else "{}")
    return [head, *(array.reshape(-1).view(np.uint8).data for array in solid.values())]


@lru_cache(maxsize=256)
def heading(layout: Layout, facts: str) -> bytes:
    """The header and its length. Memoised: the messages of all rounds have the same header."""
    header = f'{{"arrays": {json.dumps(layout)}, "facts": {facts}}}'.encode()
    return len(header).to_bytes(8, "little") + header


def size(layout: Layout, **facts: Any) -> int:
    """The number of bytes that `pack` would make of arrays of these names, types and shapes."""
    body = sum(np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in layout)
    return len(heading(tuple(layout), json.dumps(facts, sort_keys=True))) + body


def unpack(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """Read what `pack` wrote: arrays and facts. Raises ValueError on anything else."""
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:start].decode())
        arrays = {}
        for name, dtype, shape in header["arrays"]:
            kind = np.dtype(dtype)
            if kind.hasobject:
                raise ValueError("objects are not data")
            if not all(type(length) is int and length >= 0 for length in shape):
                raise ValueError("a shape is whole numbers")
            end = start + kind.itemsize * math.prod(shape)
            arrays[name] = np.frombuffer(data[start:end], dtype=kind).reshape(shape)
            start = end
        if start != len(data):
            raise ValueError("the bytes do not match their header")
        return arrays, header["facts"]
    except (KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"the bytes are not what was packed ({type(error).__name__})") from error


@dataclass(frozen=True)
class Later:
    """Bytes that are made only when somebody reads them: those of a ledger in memory hardly ever are."""

    make: Callable[[], bytes]

    def __bytes__(self) -> bytes:
        return self.make()


def digest(*data: bytes | memoryview) -> str:
    """The SHA-256 of these bytes, one after another."""
    sha256 = hashlib.sha256()
    for part in data:
        sha256.update(part)
    return sha256.hexdigest()
