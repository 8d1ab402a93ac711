"""Arrays as bytes and back, the same on every engine: in messages, ledgers and checkpoints.

The layout is the length of a JSON header, the header, then the arrays' memory one after another. It is
deterministic, so that equal content has equal bytes and digests can be compared between machines.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Array = NDArray[Any]
Layout = Sequence[tuple[str, str, tuple[int, ...]]]  # name, type and shape of each array


def pack(arrays: Mapping[str, Array], **facts: Any) -> bytes:
    """Named arrays and JSON-able facts as one run of bytes."""
    solid = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    layout = tuple((name, array.dtype.str, array.shape) for name, array in solid.items())
    head = heading(layout, json.dumps(facts, sort_keys=True))
    return b"".join([head, *(array.tobytes() for array in solid.values())])


@lru_cache(maxsize=256)
def heading(layout: Layout, facts: str) -> bytes:
    """Memoised: the messages of all rounds look alike."""
    header = f'{{"arrays": {json.dumps(layout)}, "facts": {facts}}}'.encode()
    return len(header).to_bytes(8, "little") + header


def size(layout: Layout, **facts: Any) -> int:
    """How long `pack` would make arrays of these names, types and shapes."""
    body = sum(np.dtype(dtype).itemsize * math.prod(shape) for _, dtype, shape in layout)
    return len(heading(tuple(layout), json.dumps(facts, sort_keys=True))) + body


def unpack(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """What `pack` wrote. Raises ValueError on anything else."""
    try:
        return _unpacked(data)
    except (KeyError, TypeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"the bytes are not what was packed ({type(error).__name__})") from error


def _unpacked(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
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


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
