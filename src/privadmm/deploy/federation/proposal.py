"""A job as it is proposed to the parties: the config without anybody's files, and public facts.

The text is a config file, so that a party reads it with the same checks as any other config. It holds no path, and
nothing that concerns the coordinator alone, such as where it keeps the run or how long it waits.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from privadmm import __version__
from privadmm.config import build, data_source
from privadmm.config.file import SECTIONS, Config, check_seed, read
from privadmm.config.reader import load
from privadmm.config.undeclared import undeclared_columns, undeclared_dim, undeclared_sizes
from privadmm.data import adult
from privadmm.data.arrays import digest
from privadmm.data.files import write_text
from privadmm.deploy.federation.protocol import refused
from privadmm.engine.job import Job
from privadmm.errors import ConfigError
from privadmm.params import fields_of

JOB = re.compile(r"[0-9a-f]{32}")
CODE = 32  # digits of a digest that people compare
MOST = 2**53  # records, columns and dimensions: whole numbers up to here are exact as floats


def parties_of(config: Config) -> int:
    known = config.parties.known
    if known is None or config.parties.use != "all":
        raise ConfigError(f"{config.path}: a federation has a known number of parties: set [parties] count, and no use")
    return known


def neutral(config: Config) -> Config:
    """The job without any party's files, as it is proposed to all."""
    data, parties, run = config.data, config.parties, config.run
    split = "features" if parties.split == "features" else "even"
    if data.embedded:
        onehot = data.source == "embedded:adult"
        bound = data.row_bound or (adult.SCHEMA.row_bound if onehot else adult.A9A_BOUND)
        data = replace(data, classes=adult.CLASSES, row_bound=None if data.rows == "unit" else bound, encoding="minmax")
    source = "own.npz" if data.schema is None else "own.csv"  # a placeholder: every party reads its own file
    return replace(
        config,
        data=replace(data, source=source, format=None, test_fraction=0.0, split_seed=0),
        parties=replace(
            parties, count=parties_of(config), split=split, sizes=None, records=None, columns=None, files=None, seed=0
        ),
        privacy=None if config.privacy is None else replace(config.privacy, budget=None),
        run=replace(type(run)(), mode=run.mode, seed=run.seed, purpose=run.purpose, requester=run.requester),
    )


def written(config: Config) -> str:
    """The config as TOML: every key whose value is not the default."""
    tables = {name: getattr(config, name) for name in SECTIONS}
    texts = [section(name, table) for name, table in tables.items() if table is not None]
    return "\n\n".join(text for text in texts if "\n" in text) + "\n"  # without sections that say nothing


def section(name: str, table: Any) -> str:
    """One section of a config as TOML."""
    lines = [f"[{name}]"]
    for part in (table, table.parameters) if name == "algorithm" else (table,):
        values = {key: (getattr(part, key), declared.default) for key, declared in fields_of(type(part)).items()}
        lines += [f"{key} = {_toml(value)}" for key, (value, default) in values.items() if value != default]
    return "\n".join(lines)


def _toml(value: Any) -> str:
    # JSON spells strings, numbers and lists as TOML does.
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Proposal:
    """A job's id, its config as text, and its public facts: the same at every party and at the coordinator."""

    id: str
    text: str
    sizes: tuple[int, ...]
    dim: int
    columns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not JOB.fullmatch(self.id):
            raise refused("a job has an id of 32 hexadecimal digits")
        numbers = (*self.sizes, *self.columns, self.dim)
        if not self.sizes or not all(type(number) is int and 1 <= number <= MOST for number in numbers):
            raise refused("sizes, columns and dim of a job are whole numbers from 1 on")

    def pack(self) -> bytes:
        return json.dumps(asdict(self), sort_keys=True).encode()

    @staticmethod
    def unpack(data: bytes) -> "Proposal":
        try:
            facts = json.loads(data)
            facts["text"].encode()  # half of a character cannot be written down
            lists = {key: facts[key] for key in ("sizes", "columns")}
            if not all(isinstance(value, list) for value in lists.values()):
                raise TypeError("no lists")
            return Proposal(**{**facts, **{key: tuple(value) for key, value in lists.items()}})
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise refused("a proposal is a table of id, text, sizes, dim and columns") from None

    @cached_property
    def digest(self) -> str:
        """Digest of all that a steward approves: the whole proposal, and the version that counts its cost."""
        said = ["privadmm proposal, version 1", __version__, self.pack().decode()]
        return digest(json.dumps(said).encode())

    @property
    def code(self) -> str:
        """The start of the digest, which no other proposal has, for people to compare and type."""
        return "-".join(self.digest[at : at + 4] for at in range(0, CODE, 4))

    def keep(self, folder: Path) -> "Kept":
        """Write it into a party's jobs/. The same again changes nothing; another proposal with this id is refused."""
        folder.mkdir(exist_ok=True)
        path, config = folder / f"{self.id}.json", folder / f"{self.id}.toml"
        if path.exists():
            if path.read_bytes() != self.pack():
                raise refused(f"job {self.id} was proposed before and said something else")
            return Kept(self, read_text(config))
        write_text(config, self.text)
        try:
            kept = Kept(self, asked(config))
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
        """Refuse facts that do not fit the text: another number of parties, or columns where it splits rows."""
        parties, sizes, columns = parties_of(self.config), len(self.proposal.sizes), len(self.proposal.columns)
        if (sizes, columns) != (parties, parties if self.config.parties.split == "features" else 0):
            raise refused(f"the job has {parties} parties, with sizes of {sizes} and columns of {columns}")

    @staticmethod
    def at(folder: Path, job: str) -> "Kept | None":
        """Read a job of a party's jobs/; None if it was never kept there."""
        if not JOB.fullmatch(job) or not (folder / f"{job}.json").is_file():
            return None
        proposal = Proposal.unpack((folder / f"{job}.json").read_bytes())
        return Kept(proposal, read_text(folder / f"{job}.toml"))

    def forget(self, folder: Path) -> None:
        for suffix in ("json", "toml", "admitted", "epoch"):
            (folder / f"{self.proposal.id}.{suffix}").unlink(missing_ok=True)

    @cached_property
    def job(self) -> Job:
        facts = self.proposal
        return build.job(self.config, np.array(facts.sizes), facts.dim, facts.id, facts.columns or None)


def read_text(path: Path) -> Config:
    """Read a proposal's config. It may name no file: the coordinator would choose what a party reads."""
    _, raw = load(path)
    data = table if isinstance(table := raw.get("data"), dict) else {}
    if isinstance(data.get("schema"), str) or str(data.get("source")).startswith("embedded:"):
        raise refused("a proposal says everything itself and names no file")
    config = read(path)
    if config.parties.known is None or neutral(config) != config:
        raise refused(
            "a proposal leaves it to each party how its records are read and split: only what `privadmm federation` "
            "writes is accepted"
        )
    check_seed(config)
    return config


def asked(path: Path) -> Config:
    """Read the config that a letter brought; whatever is wrong with it is refused."""
    try:
        parties_of(config := read_text(path))
    except ConfigError as error:
        raise refused(str(error)) from None
    return config


def expected(config: Config) -> Job:
    """The job as it is known before parties are asked; using a number that is not known raises an error."""
    plain, sizes = neutral(config), config.parties.sizes
    known = undeclared_sizes(config, parties_of(config)) if sizes is None else sizes
    if plain.parties.split == "features":
        people = known if sizes is None else sizes[0]
        return build.job(plain, known, people, columns=undeclared_columns(config))
    names = data_source.names(plain)
    dim = undeclared_dim(config) if names is None else len(names) + (plain.data.intercept > 0)
    return build.job(plain, known, dim)
