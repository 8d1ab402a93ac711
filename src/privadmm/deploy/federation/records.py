"""A party's own records, as a job asks for them: read where they are, with the checks of every other run."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.config import build, build_columns
from privadmm.config.file import Config
from privadmm.data.columns import Columns, align, read_features
from privadmm.data.frame import Frame
from privadmm.data.raw import words
from privadmm.data.shards import Shards
from privadmm.deploy.federation.party import Party
from privadmm.engine.phases import vertical
from privadmm.errors import ConfigError, DataError, RefusedError


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


def bound_of(party: Party, config: Config) -> float:
    """The norm to which a job clips this party's rows, once everything that it says of records is what party.toml says.

    Asked before a file is opened: whether records can be read, split or scaled in a way that somebody else chose would
    tell of them. What is not compared here or by `Party.admit` has no say in how records are read.
    """
    columns, method = config.parties.split == "features", config.algorithm.parameters
    if vertical(method) != columns:
        raise RefusedError(
            f"{method.name} is for parties that hold {'records' if columns else 'columns'}, and the job splits "
            f"{'columns' if columns else 'records'}. Nothing was released"
        )
    if config.privacy is None:
        party.fixed.agree(None, None)
        if party.fixed.budget is not None:
            raise RefusedError(
                f"the policy has epsilon = {party.fixed.budget.epsilon:g}, and the job is not private. "
                "Nothing was released"
            )
    if build.plain_loss(config).classification and party.data.classes is None:
        raise RefusedError(
            f"party.toml has no [data] classes, which the loss {config.loss.name} needs. Nothing was released"
        )
    own, bounds = build.row_bound(replace(config, data=party.data)), config.parties.row_bounds
    asked = own if bounds is None else bounds[party.number]
    party.fixed.admit(method.name, asked)
    if party.policy.row_bound is None and asked != own:
        raise RefusedError(
            f"party.toml clips rows to {own:g} and the job those of party {party.number} to {asked:g}. "
            "Nothing was released"
        )
    return asked


def held(party: Party, config: Config, parties: int) -> Held:
    """The records of this party alone, read as party.toml declares; refused if they are not as many as it declares.

    Whatever fails in reading them is a `DataError`: its kind tells nothing, and the rest is for the party's own log.
    """
    bound = bound_of(party, config)
    own = replace(config, data=party.data)
    try:
        found = (
            own_columns(party, own, parties, bound)
            if config.parties.split == "features"
            else own_rows(party, own, bound)
        )
    except Exception as error:
        raise DataError(f"{party.source}: cannot be read as party.toml declares: {error}") from error
    if found.records != party.party.records:
        raise DataError(
            f"{party.folder}: party.toml declares records = {party.party.records}, and {party.data.source} has "
            f"{found.records}; correct one of them"
        )
    return found


def own_rows(party: Party, config: Config, bound: float) -> Held:
    found = build.read_file(config, party.source)
    frame = Frame(bound, config.data.intercept, found.names, config.data.classes, label=config.data.label)
    rows, randomised = [np.arange(len(found))], config.randomises
    shards = frame.shards(found.X, found.y, rows, [party.number], randomised=randomised)
    return Held(shards, bound, found.names)


def own_columns(party: Party, config: Config, parties: int, bound: float) -> Held:
    table = config.data
    if table.id is None or table.label is None:
        raise ConfigError(f"{party.folder}: parties that hold columns need [data] id and label")
    part = read_features(party.source, table.format, table.id, table.label, build.schema(config), table.on_bad)
    (order,) = align([(str(party.source), part.ids)])
    scale = build_columns.scaling(config)
    if scale is not None and table.rows == "unit":
        raise ConfigError(
            f'{party.folder}: [data] rows = "unit" and adjacency = "column" do not go together: use rows = "clip"'
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
