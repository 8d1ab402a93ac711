"""A job as it is proposed to the parties: the config without anybody's files, and public facts.

The text is TOML of the config's own language, so that a party reads it with the same checks as anybody else. What the
coordinator alone decides (where it keeps the run, how long it waits) is not in it, and neither is a path.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.config import build
from privadmm.config.file import SECTIONS, Config, check_seed, read
from privadmm.config.reader import load
from privadmm.config.undeclared import undeclared_columns, undeclared_dim, undeclared_sizes
from privadmm.data import adult
from privadmm.data.files import write_text
from privadmm.engine.job import Job
from privadmm.errors import ConfigError, RefusedError
from privadmm.params import fields_of

OWN = "own.npz"  # stands where a config names a file; every party reads its own
JOB = re.compile(r"[0-9a-f]{32}")
MOST = 2**53  # of records, columns and dimensions: whole numbers that a float has


def parties_of(config: Config) -> int:
    known = config.parties.known
    if known is None or config.parties.use != "all":
        raise ConfigError(f"{config.path}: a federation has a known number of parties: set [parties] count, and no use")
    return known


def neutral(config: Config) -> Config:
    """The same job with nobody's files in it: each party holds what it holds."""
    data, parties, run = config.data, config.parties, config.run
    split = "features" if parties.split == "features" else "even"
    if data.embedded:
        onehot = data.source == "embedded:adult"
        bound = data.row_bound or (adult.SCHEMA.row_bound if onehot else 14**0.5)
        data = replace(data, classes=adult.CLASSES, row_bound=None if data.rows == "unit" else bound, encoding="minmax")
    return replace(
        config,
        data=replace(
            data,
            source=OWN if data.schema is None else "own.csv",
            format=None,
            test_fraction=0.0,
            split_seed=0,
        ),
        parties=replace(parties, count=parties_of(config), split=split, sizes=None, columns=None, files=None, seed=0),
        privacy=None if config.privacy is None else replace(config.privacy, budget=None),
        run=replace(type(run)(), mode=run.mode, seed=run.seed),
    )


def written(config: Config) -> str:
    """The config as TOML: every key whose value is not the default."""
    tables = {name: getattr(config, name) for name in SECTIONS}
    return "\n\n".join(section(name, table) for name, table in tables.items() if table is not None) + "\n"


def section(name: str, table: Any) -> str:
    keys = _said(table, type(table))
    if name == "algorithm":
        keys |= _said(table.parameters, type(table.parameters))
    return "\n".join([f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in keys.items())])


def _said(table: Any, kind: type[Any]) -> dict[str, Any]:
    found = {key: (getattr(table, key), declared.default) for key, declared in fields_of(kind).items()}
    return {key: value for key, (value, default) in found.items() if value != default}


def _toml(value: Any) -> str:
    # Of strings, numbers and lists, JSON's spelling is TOML's.
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Proposal:
    """What makes a job: the same at every party and at the coordinator."""

    id: str
    text: str
    sizes: tuple[int, ...]
    dim: int
    columns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not JOB.fullmatch(self.id):
            raise RefusedError("a job has an id of 32 hexadecimal digits. Nothing was released")
        numbers = (*self.sizes, *self.columns, self.dim)
        if not self.sizes or not all(type(number) is int and 1 <= number <= MOST for number in numbers):
            raise RefusedError("sizes, columns and dim of a job are whole numbers from 1 on. Nothing was released")

    def pack(self) -> bytes:
        facts = {
            "id": self.id,
            "text": self.text,
            "sizes": self.sizes,
            "dim": self.dim,
            "columns": self.columns,
        }
        return json.dumps(facts, sort_keys=True).encode()

    @staticmethod
    def unpack(data: bytes) -> "Proposal":
        try:
            facts = json.loads(data)
            sizes, columns = tuple(facts["sizes"]), tuple(facts["columns"])
            return Proposal(str(facts["id"]), str(facts["text"]), sizes, facts["dim"], columns)
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RefusedError(
                "a proposal is a table of id, text, sizes, dim and columns. Nothing was released"
            ) from None

    def keep(self, folder: Path) -> "Kept":
        """Write it down in a party's jobs/. The same again changes nothing, and another under its id is refused."""
        folder.mkdir(exist_ok=True)
        path, config = folder / f"{self.id}.json", folder / f"{self.id}.toml"
        if path.exists() and path.read_bytes() != self.pack():
            raise RefusedError(f"job {self.id} was proposed before and said something else. Nothing was released")
        if path.exists():
            return Kept(self, read_text(config))
        write_text(config, self.text)
        try:
            kept = Kept(self, read_text(config))
        except BaseException:
            config.unlink()
            raise
        write_text(path, self.pack().decode())
        return kept


@dataclass(frozen=True)
class Kept:
    """A proposal and its config, read."""

    proposal: Proposal
    config: Config

    def __post_init__(self) -> None:
        """The facts beside the text are of as many parties as it says, and of columns if it splits these."""
        parties, given = parties_of(self.config), self.proposal
        wanted = parties if self.config.parties.split == "features" else 0
        if (len(given.sizes), len(given.columns)) != (parties, wanted):
            raise RefusedError(
                f"the job has {parties} parties, with sizes of {len(given.sizes)} and columns of {len(given.columns)}. "
                "Nothing was released"
            )

    @staticmethod
    def at(folder: Path, job: str) -> "Kept | None":
        if not JOB.fullmatch(job) or not (folder / f"{job}.json").is_file():
            return None
        proposal = Proposal.unpack((folder / f"{job}.json").read_bytes())
        return Kept(proposal, read_text(folder / f"{job}.toml"))

    def forget(self, folder: Path) -> None:
        for suffix in ("json", "toml", "admitted"):
            (folder / f"{self.proposal.id}.{suffix}").unlink(missing_ok=True)

    @cached_property
    def job(self) -> Job:
        given = self.proposal
        sizes = np.array(given.sizes, dtype=np.int64)
        return build.job(self.config, sizes, given.dim, given.id, given.columns or None)


def read_text(path: Path) -> Config:
    """A proposal's config. It may name no file to read: which one would be the coordinator's choice."""
    _, raw = load(path)
    data = raw.get("data")
    if isinstance(data, dict) and (
        isinstance(data.get("schema"), str) or str(data.get("source")).startswith("embedded:")
    ):
        raise RefusedError("a proposal says everything itself and names no file. Nothing was released")
    config = read(path)
    if config.parties.known is None or neutral(config) != config:
        raise RefusedError(
            "a proposal leaves it to each party how its records are read and split: only what `privadmm federation` "
            "writes is accepted. Nothing was released"
        )
    check_seed(config)
    return config


def expected(config: Config) -> Job:
    """The job as far as it is known before parties are asked, with the sizes that the config declares.

    Where its plan depends on numbers that are not declared, an error asks for them.
    """
    plain, sizes = neutral(config), config.parties.sizes
    known = undeclared_sizes(config, parties_of(config)) if sizes is None else sizes
    if plain.parties.split == "features":
        people = known if sizes is None else sizes[0]
        return build.job(plain, known, people, columns=undeclared_columns(config))
    names = build.names(plain)
    dim = undeclared_dim(config) if names is None else len(names) + (plain.data.intercept > 0)
    return build.job(plain, known, dim)
