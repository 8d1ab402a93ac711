"""The records of [data], read as that section declares them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from privadmm.config.file import Config
from privadmm.data import adult
from privadmm.data.frame import Frame
from privadmm.data.misread import with_labels
from privadmm.data.readers import Records, feature_names, read
from privadmm.data.schema import Schema
from privadmm.data.storage import PIECE, Store
from privadmm.errors import ConfigError

UNIT = 1e-150  # a row bound below any row's norm: every row but 0 is scaled to norm 1


def records(config: Config, counted: bool = False) -> tuple[Records, float, tuple[Any, Any] | None]:
    """The records of one file for all parties, the declared row bound and the declared classes."""
    table = config.data
    if table.by_party:
        raise ConfigError(
            f"{config.path}: [data] source = {table.source!r} is a file for each party, and this is for one file of all"
        )
    if not table.embedded:
        return read_file(config, config.resolve(table.source), counted), row_bound(config), table.classes
    check_embedded(config)
    raw = config.parties.column is not None
    if table.source == "embedded:adult":
        sparse = stored_sparse(config, schema(config))
        loaded, bound = adult.load("onehot", None, table.encoding, sparse, raw), adult.SCHEMA.row_bound
    else:
        loaded, bound = adult.load("a9a", raw=raw), adult.A9A_BOUND
    return loaded, row_bound(config) or bound, adult.CLASSES


def check_embedded(config: Config) -> None:
    if config.data.classes not in (None, tuple(adult.CLASSES)):
        raise ConfigError(f"{config.path}: [data] classes of {config.data.source} are {list(adult.CLASSES)}")


def people_of(config: Config) -> Records:
    """The rows of embedded data, not encoded, in the order of the encoded ones of `records`."""
    check_embedded(config)
    rows: adult.Rows = "complete" if config.data.source == "embedded:adult" else "all"
    return adult.load("raw", rows, raw=config.parties.column is not None)


def names(config: Config) -> tuple[str, ...] | None:
    """The names of the encoded features, if the config alone tells them; else None."""
    if config.data.source == "embedded:a9a":
        return adult.A9A_NAMES
    declared = schema(config)
    if declared is not None:
        return declared.names
    return None if config.data.dim is None else feature_names(config.data.dim)


def read_file(config: Config, path: Path, counted: bool = False) -> Records:
    """Read a file as [data] declares it; `counted`: also count cells and labels that are misread."""
    table, declared = config.data, schema(config)
    loaded = read(
        path,
        table.format,
        label=table.label,
        classes=table.classes,
        schema=declared,
        keep=tuple(name for name in (config.parties.column, table.id) if name is not None),
        on_bad=table.on_bad,
        dim=table.dim,
        counted=counted,
        store=Store(None if config.run.limit is None else min(config.run.limit, 8 * PIECE)),  # until they are packed
    )
    if counted:
        beyond = with_labels(loaded.unread, table.label or "y", loaded.y, config.loss.label_bound)
        loaded = replace(loaded, unread=beyond)
    if not stored_sparse(config, declared):
        return loaded
    from scipy.sparse import csr_array

    return replace(loaded, X=csr_array(loaded.X))


def stored_sparse(config: Config, declared: Schema | None) -> bool:
    """Whether the schema makes the matrix sparse. Values have no say: the last bits of results depend on the answer."""
    return declared is not None and declared.sparse and config.parties.split != "features"


def row_bound(config: Config) -> float:
    """The norm to which rows are clipped; 0 if the file does not say."""
    return UNIT if config.data.rows == "unit" else config.data.row_bound or 0.0


def schema(config: Config) -> Schema | None:
    """The declared schema of a file, or that of the embedded Adult data."""
    table = config.data
    if table.source == "embedded:adult":
        return adult.SCHEMA.encoded(table.encoding)
    if table.schema is None:
        return None
    bound, label = row_bound(config), table.label or "y"
    declared = Schema.from_table(table.schema, label=label, classes=table.classes, row_bound=bound)
    return declared.encoded(table.encoding)


def framed(config: Config, names: tuple[str, ...], bound: float, classes: tuple[Any, Any] | None) -> Frame:
    """How raw columns become rows with these features; the model keeps it."""
    table = config.data
    label = adult.SCHEMA.label if table.source == "embedded:adult" else table.label
    unused = tuple(name for name in (config.parties.column, table.id) if name is not None)
    return Frame(bound, table.intercept, names, classes, (), (), True, schema(config), table.on_bad, label, unused)
