"""Write files in one step, so that a crash leaves no half-written one; files that only their owner may read; JSON."""

import json
import math
import os
from pathlib import Path
from typing import Any

PARTIAL = ".new"  # the suffix of a file that is being written


def for_owner(path: str, flags: int) -> int:
    """An `opener` for open() that makes files which only their owner may read and write."""
    return os.open(path, flags, 0o600)


def write_bytes(path: Path, content: bytes, private: bool = False) -> None:
    """Write a file in one step: no reader meets half of it. If `private`, only its owner may read it."""
    fresh = path.with_name(f"{path.name}-{os.getpid()}{PARTIAL}")
    try:
        with open(fresh, "wb", opener=for_owner if private else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:  # half of a file is of no use, and takes room on a disk that may be full
        fresh.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 in one step."""
    write_bytes(path, text.encode())


def finite(value: float | None) -> float | None:
    """A number as JSON can hold it: None in place of infinity and NaN, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


def write_json(path: Path, content: Any) -> None:
    """Write JSON in one step; NaN and infinity are refused, since JSON has neither."""
    write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
