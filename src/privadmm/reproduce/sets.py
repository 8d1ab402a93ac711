"""Data that the package does not carry, from `--data-dir`: Raetsch's sets and gisette."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privadmm.errors import ConfigError
from privadmm.phases import Floats

RAETSCH = ("banana", "german", "image", "ringnorm", "splice", "twonorm", "waveform")


@dataclass(frozen=True)
class Raw:
    """Features and labels -1, +1, as they are in the file."""

    X: Floats
    y: Floats


def need(data: Path | None, files: Sequence[str], what: str) -> Path:
    """The folder, if these files are in it."""
    said = f"{what} needs {', '.join(files)}, which the package does not carry"
    if data is None:
        raise ConfigError(f"{said}: name the folder that has them with --data-dir")
    missing = [name for name in files if not (data / name).is_file()]
    if missing:
        raise ConfigError(f"{data}: {said}; missing here: {', '.join(missing)}. Correct --data-dir")
    return data


def raetsch_files() -> list[str]:
    return [f"raetsch/{name}.npz" for name in RAETSCH]


def raetsch(data: Path, name: str, unique: bool = False) -> Raw:
    """One of Raetsch's sets; `unique` leaves out records that are there twice."""
    with np.load(need(data, [f"raetsch/{name}.npz"], f"the set {name}") / f"raetsch/{name}.npz") as file:
        rows: NDArray[np.int64] | slice = file["unique_idx"] if unique else slice(None)
        return Raw(file["X"][rows].astype(float), file["y"][rows].astype(float))
