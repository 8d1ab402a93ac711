"""A party's own records for a job: read where they are, with the same checks as in every other run."""

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privadmm.config import build, build_columns, data_source
from privadmm.config.file import Config
from privadmm.data import arrays
from privadmm.data.columns import Columns, align, read_features
from privadmm.data.files import write_text
from privadmm.data.frame import Frame
from privadmm.data.misread import amiss
from privadmm.data.raw import words
from privadmm.data.shards import Shards
from privadmm.deploy.federation.desk.admitted import code
from privadmm.deploy.federation.desk.cache import FOLDER, Cache
from privadmm.deploy.federation.desk.party_log import tell
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.proposal import parties_of
from privadmm.deploy.federation.protocol import refused
from privadmm.engine.phases import vertical
from privadmm.errors import ConfigError, DataError

PUBLIC = "public.json"  # public facts about a party's records that [data] does not declare


@dataclass(frozen=True)
class Held:
    """A party's part of a job's data, and the facts that it tells about it."""

    block: Shards | Columns
    records: int
    dim: int  # how wide a message is: a number for each feature, or for each person
    width: int  # how many columns the party trains on
    names: tuple[str, ...]
    people: str | None = None  # where columns are split: digest of the people's ids, in order


def bound_of(party: Party, config: Config) -> float:
    """The norm to which a job clips this party's rows; refused where the job and party.toml disagree about records.

    Checked before a file is opened: whether records can be read, split or scaled in a way that somebody else chose
    would tell something about them. Nothing that this and `Party.admit` do not compare decides how records are read.
    """
    columns, method, policy = config.parties.split == "features", config.algorithm.parameters, party.fixed
    if vertical(method) != columns:
        held, given = ("records", "columns") if columns else ("columns", "records")
        raise refused(f"{method.name} is for parties that hold {held}, and the job splits {given}")
    if config.privacy is None:
        policy.agree(None, None)
        if policy.budget is not None:
            raise refused(f"the policy has epsilon = {policy.budget.epsilon:g}, and the job is not private")
    if build.plain_loss(config).classification and party.data.classes is None:
        raise refused(f"party.toml has no [data] classes, which the loss {config.loss.name} needs")
    own, bounds = data_source.row_bound(replace(config, data=party.data)), config.parties.row_bounds
    asked = own if bounds is None else bounds[party.number]
    policy.admit(method.name, asked)
    if policy.row_bound is None and asked != own:
        raise refused(f"party.toml clips rows to {own:g} and the job those of party {party.number} to {asked:g}")
    return asked


def held(party: Party, config: Config, parties: int, anew: bool = False) -> Held:
    """The records of this party, read as party.toml declares; refused if they are not as many as it declares.

    They come from the party's cache, if they were read before; `anew` checks the cache in full. Every failure of
    reading is a `DataError`: the coordinator learns this kind alone, and the party's own log has the rest.
    """
    bound = bound_of(party, config)
    own = replace(config, data=party.data)
    try:
        # All that decides how records are read: another value of one of these is another entry.
        declared = (own.data, own.parties, own.randomises, build_columns.scaling(own))
        reading = (code(), party.number, parties, bound, *declared)
        cache = Cache(party.folder / FOLDER, lambda why: tell(party.folder, why))
        read = cache.fetch(party.source, reading, Held, lambda: own_records(party, own, parties, bound), anew)
    except Exception as error:
        raise DataError(f"{party.source}: cannot be read as party.toml declares: {error}") from error
    if read.records != party.party.records:
        raise DataError(
            f"{party.folder}: party.toml declares records = {party.party.records}, and {party.data.source} has "
            f"{read.records}; correct one of them"
        )
    return read


def misread(party: Party, config: Config) -> list[str]:
    """Warnings about cells that party.toml reads as something else than they hold; for the party's own people."""
    own, table = replace(config, data=party.data), party.data
    if config.parties.split != "features":
        loaded = data_source.read_file(own, party.source, counted=True)
        return amiss(loaded.unread, len(loaded))
    if table.id is None or table.label is None:
        return []  # `own_columns` refuses it
    schema = data_source.schema(own)
    part = read_features(party.source, table.format, table.id, table.label, schema, table.on_bad, counted=True)
    return amiss(part.unread, len(part.ids))


def told(party: Party, config: Config, parties: int) -> dict[str, Any]:
    """The public facts about the party's part in a job.

    No record is read: columns are declared, with [data] schema or dim, or the party's own people put them on file.
    `begin` compares the facts with the records, once the job is admitted and, where the steward decides, approved.
    """
    bound_of(party, config)
    columns, records = config.parties.split == "features", party.party.records
    names, people = None if columns else data_source.names(replace(config, data=party.data)), None
    if names is None:
        names, people = announced(party, columns)
    has_intercept = party.data.intercept > 0 and (not columns or party.number == parties - 1)
    width = len(names) + has_intercept
    dim = records if columns else width
    return {"records": records, "dim": dim, "width": width, "names": names, "people": people}


def check_told(party: Party, config: Config, records: Held, parties: int) -> None:
    """Refuse records with other columns, or about other people, than the party told in its hello."""
    said = told(party, config, parties)
    if (tuple(said["names"]), said["people"]) != (tuple(records.names), records.people):
        raise DataError(
            f"{party.source}: has other columns, or is about other people, than {PUBLIC} or [data] says: `privadmm "
            f"federation check {party.folder} --job JOB.toml` puts on file what it has now"
        )


def announce(party: Party, config: Config) -> Held:
    """Read the records, and put the public facts about them on file. Only the party's own people start this."""
    own = held(party, config, parties_of(config))
    table = {"of": reading_of(party, own.people is not None), "names": own.names, "people": own.people}
    path, text = party.folder / PUBLIC, json.dumps(table)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)
    return own


def announced(party: Party, columns: bool) -> tuple[tuple[str, ...], str | None]:
    """The names of columns and the digest of ids on file, if [data] is the same as when they were put there."""
    path = party.folder / PUBLIC
    with suppress(OSError, ValueError, KeyError, TypeError):
        table = json.loads(path.read_text(encoding="utf-8"))
        if table["of"] == reading_of(party, columns):
            return tuple(map(str, table["names"])), table["people"]
    raise ConfigError(
        f"{path}: what everybody may know of the records, the names of their columns, is not on file, or is of another "
        "[data], and a letter reads no record for it: its steward runs `privadmm federation check DIRECTORY --job "
        "JOB.toml`, which does, or declares them with [data] schema"
    )


def reading_of(party: Party, columns: bool) -> str:
    """Digest of what party.toml says about how records are read."""
    return arrays.digest(repr((party.data, columns)).encode())


def own_records(party: Party, config: Config, parties: int, bound: float) -> Held:
    """Read the party's rows or columns, whichever the job splits."""
    if config.parties.split == "features":
        return own_columns(party, config, parties, bound)
    return own_rows(party, config, bound)


def own_rows(party: Party, config: Config, bound: float) -> Held:
    records, table = data_source.read_file(config, party.source), config.data
    frame = Frame(bound, table.intercept, records.names, table.classes, label=table.label)
    rows = [np.arange(len(records))]
    shards = frame.shards(records.X, records.y, rows, [party.number], randomised=config.randomises)
    return Held(shards, len(records), shards.dim, shards.dim, records.names)


def own_columns(party: Party, config: Config, parties: int, bound: float) -> Held:
    table = config.data
    if table.id is None or table.label is None:
        raise ConfigError(f"{party.folder}: parties that hold columns need [data] id and label")
    part = read_features(party.source, table.format, table.id, table.label, data_source.schema(config), table.on_bad)
    (order,) = align([(str(party.source), part.ids)])
    scale = build_columns.scaling(config)
    if scale is not None and table.rows == "unit":
        raise ConfigError(
            f'{party.folder}: [data] rows = "unit" and adjacency = "column" do not go together: use rows = "clip"'
        )
    columns = Columns.build(
        [part.X[order]],
        row_bounds=[bound],
        intercept=table.intercept if party.number == parties - 1 else 0.0,  # the last party has it
        column_bound=scale,
        ids=[party.number],
    )
    people = columns.people
    return Held(columns, people, people, columns.widths[0], part.names, digest(part.ids[order]))


def digest(ids: NDArray[Any]) -> str:
    """Digest of all ids in order, equal for the same people. It hides ids only if they are too many to try."""
    return arrays.digest(json.dumps(words(ids)).encode())
