"""Read the arrays of an npz file. Features are read a few megabytes at a time, and kept where a `Store` says."""

import math
from typing import IO, Any, cast
from zipfile import ZipFile

import numpy as np
from numpy.lib import format
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from privadmm.data.arrays import Floats
from privadmm.data.raw import require_column
from privadmm.data.storage import Store
from privadmm.errors import DataError

NUMBERS_AT_ONCE = 1 << 19
HEADERS = {(1, 0): format.read_array_header_1_0, (2, 0): format.read_array_header_2_0}


def opened(file: IO[bytes]) -> NpzFile:
    """Open a file of several arrays. Arrays of Python objects are refused: reading them could run code."""
    arrays = np.load(file, allow_pickle=False)
    if not isinstance(arrays, NpzFile):
        raise DataError("holds one array; save X and y together, np.savez(path, X=X, y=y)")
    return arrays


def array(arrays: NpzFile, name: str) -> NDArray[Any]:
    """Read one array into memory, with the type that it has in the file."""
    require_column(name, arrays.files)
    value = arrays[name]
    if not isinstance(value, np.ndarray):  # numpy hands over the bytes of what is no array
        raise DataError(f"{name} is no array; save X and y with np.savez(path, X=X, y=y)")
    return value


def features(arrays: NpzFile, store: Store) -> Floats:
    """Read X (n, d) as floats, in the order in which the file has them."""
    require_column("X", arrays.files)
    archive = cast(ZipFile, arrays.zip)  # None once it is closed
    member = archive.getinfo("X.npy" if "X.npy" in archive.namelist() else "X")
    with archive.open(member) as file:
        version = format.read_magic(file)
        if version not in HEADERS:
            raise DataError("X must be numbers of shape (n, d), not records with named fields")
        shape, by_column, kind = HEADERS[version](file)
        if kind.hasobject:
            raise ValueError("objects")
        if kind.kind not in "biuf" or len(shape) != 2 or shape[1] == 0:
            raise DataError(f"X must be numbers of shape (n, d), not {kind} of shape {shape}")
        count = math.prod(shape)
        if count * kind.itemsize > member.file_size:  # the header promises more than there is: reserve no memory
            raise EOFError
        flat = store.empty((count,))
        for start in range(0, count, NUMBERS_AT_ONCE):
            part = flat[start : start + NUMBERS_AT_ONCE]
            content = file.read(len(part) * kind.itemsize)
            if len(content) < len(part) * kind.itemsize:
                raise EOFError
            part[...] = np.frombuffer(content, kind)
    return flat.reshape(shape, order="F" if by_column else "C")
