"""Parties that hold columns about the same people: who holds which columns, and to what norms they are clipped."""

import math
from dataclasses import replace

from privadmm.config import data_source
from privadmm.config.file import Config
from privadmm.data import splits
from privadmm.data.columns import by_names, read_aligned
from privadmm.data.frame import Frame
from privadmm.data.readers import Records
from privadmm.errors import ConfigError


def aligned(config: Config, counted: bool = False) -> tuple[Records, list[list[int]]]:
    """The parties' own files as one table, and the columns of each party."""
    table = config.data
    if config.parties.files is None or table.id is None or table.label is None:
        raise ConfigError(f"{config.path}: [parties] files needs [data] id and label")
    return read_aligned(
        config.resolve(table.source),
        [config.resolve(name) for name in config.parties.files],
        table.format,
        id=table.id,
        label=table.label,
        classes=table.classes,
        schema=data_source.schema(config),
        on_bad=table.on_bad,
        counted=counted,
    )


def widths(config: Config, names: tuple[str, ...]) -> tuple[int, ...]:
    """How many of these columns each party trains on; the last party has the intercept too."""
    held = [len(columns) for columns in groups(config, names)]
    held = held[:1] if config.parties.use == "first" else held
    return (*held[:-1], held[-1] + (config.data.intercept > 0))


def groups(config: Config, names: tuple[str, ...]) -> list[list[int]]:
    """The columns that each party holds, of a table with these names."""
    table, d = config.parties, len(names)
    if table.columns is None:
        if not (count := table.count or len(table.sizes or ())):
            raise ConfigError(f"{config.path}: [parties] count is missing; say how many parties share the columns")
        return [part.tolist() for part in splits.by_columns(d, count)]
    counts = [item for item in table.columns if isinstance(item, int)]
    lists = [item for item in table.columns if not isinstance(item, int)]
    try:
        parts = splits.by_lists(d, by_names(names, lists)) if lists else splits.by_columns(d, counts)
    except ConfigError as error:
        raise ConfigError(f"{config.path}: [parties] columns: {error}") from None
    return [part.tolist() for part in parts]


def split_columns(config: Config, loaded: Records, frame: Frame, held: list[list[int]]) -> tuple[Records, Frame]:
    """Split the frame into the parties' columns. If the first party alone is used, keep only its columns."""
    bounds = config.parties.row_bounds or (frame.row_bound,) * len(held)
    if config.parties.use == "first":
        rest = (loaded.columns, loaded.unread)
        loaded = Records(loaded.X[:, held[0]], loaded.y, tuple(loaded.names[j] for j in held[0]), *rest)
        held, bounds = [list(range(len(held[0])))], bounds[:1]
    if len(bounds) != len(held):
        raise ConfigError(f"{config.path}: [parties] row_bounds has {len(bounds)} figures for {len(held)} parties")
    rowwise = scaling(config) is None
    if not rowwise and config.data.rows == "unit":
        raise ConfigError(
            f'{config.path}: [data] rows = "unit" changes all columns of a row with one of them, and '
            'adjacency = "column" forbids that: use rows = "clip" with a row_bound'
        )
    return loaded, replace(frame, names=loaded.names).split(held, bounds, rowwise)


def scaling(config: Config) -> float | None:
    """The norm to which columns are scaled down to train on; None where rows are clipped instead."""
    if config.privacy is None or config.privacy.adjacency != "column":
        return None
    bound = getattr(config.algorithm.parameters, "column_bound", None)
    return math.inf if bound is None else float(bound)
