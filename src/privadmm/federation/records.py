"""A party's own records, as a job asks for them: read where they are, with the checks of every other run."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm import assembly, assembly_columns
from privadmm.config import Config
from privadmm.data.aligned import read_features
from privadmm.data.columns import Columns, align
from privadmm.data.schema import words
from privadmm.data.shards import Shards
from privadmm.errors import ConfigError, DataError
from privadmm.federation.party import Party
from privadmm.model import Frame


@dataclass(frozen=True)
class Held:
    """What a party holds of a job's data, and what it tells of that."""

    block: Shards | Columns
    bound: float
    names: tuple[str, ...]
    people: str | None = None  # of columns: a digest of whom they are about, in order

    @property
    def records(self) -> int:
        return self.block.people if isinstance(self.block, Columns) else int(self.block.sizes[0])

    @property
    def dim(self) -> int:
        """How wide a message is: a number for each feature, or for each person."""
        return self.block.people if isinstance(self.block, Columns) else self.block.dim

    @property
    def width(self) -> int:
        return self.block.widths[0] if isinstance(self.block, Columns) else self.block.dim


def held(party: Party, config: Config, parties: int) -> Held:
    """The records of this party alone; refused if they are not as many as it declares."""
    vertical = config.parties.split == "features"
    found = own_columns(party, config, parties) if vertical else own_rows(party, config)
    if found.records != party.party.records:
        raise DataError(
            f"{party.folder}: party.toml declares records = {party.party.records}, and {party.data.source} has "
            f"{found.records}; correct one of them"
        )
    return found


def bound_of(party: Party, config: Config) -> float:
    """The bound to which its rows are clipped: declared, and known without a look at them."""
    bounds = config.parties.row_bounds
    split = config.parties.split == "features" and bounds is not None
    return bounds[party.number] if split and bounds is not None else assembly.row_bound(config)


def own_rows(party: Party, config: Config) -> Held:
    declared = replace(config, data=replace(config.data, format=party.data.format))
    found, bound = assembly.read_file(declared, party.source), bound_of(party, config)
    frame = Frame(bound, config.data.intercept, found.names, config.data.classes, label=config.data.label)
    rows, randomised = [np.arange(len(found))], config.randomises
    shards = frame.shards(found.X, found.y, rows, [party.number], randomised=randomised)
    return Held(shards, bound, found.names)


def own_columns(party: Party, config: Config, parties: int) -> Held:
    table = config.data
    if table.id is None or table.label is None:
        raise ConfigError(f"{config.path}: parties that hold columns need [data] id and label")
    part = read_features(
        party.source, party.data.format, table.id, table.label, assembly.schema(config), table.on_bad
    )
    (order,) = align([(str(party.source), part.ids)])
    bound = bound_of(party, config)
    scale = assembly_columns.scaling(config)
    if scale is not None and table.rows == "unit":
        raise ConfigError(
            f'{config.path}: [data] rows = "unit" and adjacency = "column" do not go together: use rows = "clip"'
        )
    last = party.number == parties - 1
    columns = Columns.build(
        [part.X[order]],
        row_bounds=[bound],
        intercept=table.intercept if last else 0.0,
        column_bound=scale,
        ids=[party.number],
    )
    return Held(columns, bound, part.names, digest(part.ids[order]))


def digest(ids: NDArray[Any]) -> str:
    """Of all ids in order: whoever has the same people has the same. Who could list all possible ids could try them."""
    return hashlib.sha256(json.dumps(words(ids)).encode()).hexdigest()
