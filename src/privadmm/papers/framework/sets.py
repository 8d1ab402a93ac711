"""Data that the package does not carry, from `--data-dir`: Raetsch's sets and gisette."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.data.readers import read
from privadmm.errors import ConfigError, DataError

RAETSCH = tuple(
    f"raetsch/{name}.npz" for name in ("banana", "german", "image", "ringnorm", "splice", "twonorm", "waveform")
)


class Raw(NamedTuple):
    """Features, and labels -1 and +1, as the file has them."""

    X: Floats
    y: Floats


def need(data: Path | None, files: Sequence[str], what: str, about: str = "") -> Path:
    """Return the folder if these files are in it; `about` says what they hold and where they come from."""
    needed, about = f"{what} needs {', '.join(files)}, which the package does not carry", about and f". {about}"
    if data is None:
        raise ConfigError(f"{needed}: name the folder that has them with --data-dir{about}")
    if missing := [name for name in files if not (data / name).is_file()]:
        raise ConfigError(f"{data}: {needed}; missing here: {', '.join(missing)}. Correct --data-dir{about}")
    return data


ABOUT_RAETSCH = (
    "They are Raetsch's benchmark collection (the IDA repository), a NumPy file for each set with X (records by "
    "columns), y (-1 or +1) and unique_idx (the rows left when records that are there twice are dropped)"
)


def raetsch(data: Path, name: str) -> Raw:
    """Read one of Raetsch's sets, without duplicate records."""
    path = need(data, [f"raetsch/{name}.npz"], f"the set {name}", ABOUT_RAETSCH) / f"raetsch/{name}.npz"
    with np.load(path) as file:
        if lacking := [key for key in ("X", "y", "unique_idx") if key not in file]:
            raise DataError(f"{path}: has no {', '.join(lacking)}. {ABOUT_RAETSCH}; write it anew")
        rows = file["unique_idx"]
        return Raw(file["X"][rows].astype(float), file["y"][rows].astype(float))


GISETTE_WIDTH, GISETTE_LARGEST = 5000, 999
LIBSVM, UCI, SURROGATE = "gisette, as LIBSVM has it", "gisette, as UCI has it", "a surrogate of gisette"
GISETTE = (
    (LIBSVM, ("gisette_scale", "gisette_scale.t")),
    (LIBSVM, ("gisette_scale.bz2", "gisette_scale.t.bz2")),
    (UCI, ("gisette_train.data", "gisette_train.labels", "gisette_valid.data", "gisette_valid.labels")),
    (SURROGATE, ("gisette_surrogate.npz",)),
)


def gisette_source(data: Path | None) -> tuple[str, tuple[str, ...]] | None:
    """Find gisette in the folder, the real set before the surrogate: its name and files; None if there is none."""
    for source, files in GISETTE:
        if data is not None and all((data / name).is_file() for name in files):
            return source, files
    return None


def gisette(data: Path) -> tuple[Raw, Raw]:
    """Read 6,000 training and 1,000 test records; LIBSVM's as they are, others scaled from 0..999 to [-1, 1]."""
    if (present := gisette_source(data)) is None:
        raise ConfigError(
            f"{data}: no gisette here. Give gisette_scale and gisette_scale.t from LIBSVM, packed by bz2 or not; "
            "or gisette_train.data, .labels, gisette_valid.data and .labels from UCI"
        )
    source, files = present
    if source == LIBSVM:
        return libsvm(data / files[0]), libsvm(data / files[1])
    if source == SURROGATE:
        with np.load(data / files[0]) as file:
            X, y, Xt, yt = (file[name] for name in ("X_train", "y_train", "X_test", "y_test"))
    else:
        X, y, Xt, yt = (table(data / name) for name in files)
    for rows, name in ((X, files[0]), (Xt, files[-2:][0])):
        if rows.ndim != 2 or rows.shape[1] != GISETTE_WIDTH:
            raise DataError(f"{data / name}: has no {GISETTE_WIDTH} columns; get the file anew")
    return Raw(ranged(X), y.astype(float)), Raw(ranged(Xt), yt.astype(float))


def libsvm(path: Path) -> Raw:
    records: Any = read(path, "libsvm", classes=(-1, 1), dim=GISETTE_WIDTH)
    return Raw(records.X.toarray(), records.y)


def ranged(X: NDArray[np.integer | np.floating]) -> Floats:
    """Scale the declared range 0..999 to [-1, 1]. LIBSVM scales each column by its own range, read off the records."""
    return np.clip(2 * X.astype(float) / GISETTE_LARGEST - 1, -1.0, 1.0)


def table(path: Path) -> Floats:
    """Read whole numbers that are separated by blanks."""
    try:
        return np.loadtxt(path, dtype=float, ndmin=1)
    except ValueError as error:
        raise DataError(f"{path}: is no table of numbers; get the file anew ({type(error).__name__})") from None
