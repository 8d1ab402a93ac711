"""Parties that hold records in a file each: `{party}` in [data] source is a party's number.

Files are opened one after another, those of other parties never. If memory is limited, a party's records are packed
before the next file is read. Each file is split into training and test rows by itself, whoever reads it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.config import data_source
from privadmm.config.file import Config
from privadmm.data import splits
from privadmm.data.label_source import LabelSource
from privadmm.data.misread import Misread, all_misread, longer
from privadmm.data.shards import Collector, Shards
from privadmm.data.storage import Clip, Store
from privadmm.errors import ConfigError, DataError


@dataclass(frozen=True)
class Elsewhere:
    """What is declared about records that only the workers read."""

    ids: NDArray[np.int64]
    sizes: NDArray[np.int64]
    dim: int


def path_of(config: Config, party: int) -> Path:
    """The file of this party, which must be there."""
    path = config.resolve(config.data.of_party(party))
    if not path.is_file():
        raise ConfigError(
            f"{config.path}: [data] source: the file of party {party} is missing where its records are read, "
            f"{path}; put it there, or correct source"
        )
    return path


def collect(
    config: Config, parties: Sequence[int], measured: bool
) -> tuple[Shards, Shards | None, tuple[str, ...], Misread]:
    """Read these parties' files: what they train on, what they hold out, the features' names, and counts of misreading.

    Records are held out only if `measured`, and misread cells counted only if this is also a simulation.
    """
    bound, misread = data_source.row_bound(config), list[Misread]()
    counted = measured and config.run.mode == "simulation"
    store, clip = Store(config.run.limit, config.run.hands), Clip(bound, config.data.intercept)
    source = LabelSource.declared(config.data.label, config.data.classes) if config.randomises else None
    train, test = (Collector(clip, config.data.classes is not None, store, source) for _ in range(2))
    names: tuple[str, ...] | None = None
    for party in parties:
        path = path_of(config, party)
        loaded = data_source.read_file(config, path, counted)
        if names not in (None, loaded.names):
            raise DataError(
                f"{path}: party {party}'s file has other columns than party {parties[0]}'s, or in another order; "
                "make them alike, or declare [data] schema"
            )
        names = loaded.names
        rows, held_out = split(config, len(loaded), party)
        declared = len(rows) if config.parties.sizes is None else config.parties.sizes[party]
        if declared != len(rows):  # noise and weights rest on the declared number
            raise ConfigError(
                f"{path}: [parties] sizes declares {declared} records for party {party}, whose file has {len(rows)} "
                f"to train on; correct sizes in {config.path}, or the file"
            )
        clipped = longer(loaded.X, bound) if counted and config.data.rows == "clip" else None
        misread.append(Misread(len(loaded), loaded.unread, clipped))
        train.add(party, loaded.X, loaded.y, rows)
        if measured and len(held_out):
            test.add(party, loaded.X, loaded.y, held_out)
        del loaded  # frees memory before the next file is read
    block, held = train.block(), test.block()
    if block is None or names is None:
        raise ConfigError(f"{config.path}: there are no parties whose files to read; set [parties] count")
    if measured and held is None and config.holds_out:
        raise DataError(
            f"{config.path}: [data] test_fraction = {config.data.test_fraction:g} leaves nothing to test on in any "
            "party's file; raise it, or set it to 0"
        )
    return block, held, names, all_misread(misread)


def split(config: Config, n: int, party: int) -> tuple[Any, Any]:
    """Rows of a party's file to train on, and to test on."""
    if config.holds_out:
        return splits.of_party(n, config.data.test_fraction, config.data.split_seed, party)
    return np.arange(n), np.arange(0)


def elsewhere(config: Config, names: Sequence[str]) -> Elsewhere:
    """The declared sizes and width of records that only a deployment's workers read."""
    sizes = np.asarray(config.parties.sizes, dtype=np.int64)
    return Elsewhere(np.arange(len(sizes)), sizes, len(names) + (config.data.intercept > 0))
