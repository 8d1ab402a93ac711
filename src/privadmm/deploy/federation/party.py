"""A party's own directory: party.toml says who it is and what it allows, and is the authority on both.

    party.toml      who the party is, how its records are read, its policy
    peers/          the public keys of the other parties, party-N.pub: who may take part in a secure sum with it
    ledger.sqlite   what it has released, and its state in every job
    jobs/           the jobs that it takes part in, as they were proposed
    proposals/      with approve = "ask": the jobs that its steward is asked about, and what was decided
    public.json     public facts about its records that party.toml does not declare: names of columns
    cache/          its packed records, for its owner alone; may be removed at any time
    retired-keys/   the public halves of node keys that were replaced: what they signed still counts
    requests.log    a line for each letter and its answer; it stays here

A job is a proposal: it never says where records and ledger are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt

from privadmm.config.file import Config
from privadmm.config.reader import Lines, Report, load, read_table
from privadmm.config.rules import NAME
from privadmm.config.sections import DataTable
from privadmm.data.arrays import digest
from privadmm.deploy.federation.protocol import refused
from privadmm.errors import ConfigError, RefusedError, show
from privadmm.params import BAD, Doc, Rule, fields_of
from privadmm.privacy.limits import Limits
from privadmm.privacy.policy import SILENT_DAYS, Budget, Policy
from privadmm.privacy.sums import SecureSum, usual_colluding, usual_fewest

FILE = "party.toml"
APPROVAL_DAYS = 30.0
LONGEST_NAME = 80  # characters
PEERS = "peers"  # the folder of the other parties' public keys
# Keys of [data] that a job does not decide: the place of the records, and a split, as nothing is held out.
ITS_OWN = ("source", "format", "test_fraction", "split_seed")


def _algorithms_problem(value: tuple[str, ...]) -> str | None:
    from privadmm.algorithms import ALGORITHMS

    if not value:
        return "is an empty list"
    unknown = [name for name in value if name not in ALGORITHMS]
    return f"names {unknown[0]!r}" if unknown else None


def _called_problem(value: str) -> str | None:
    return None if value.strip() and value.isprintable() and len(value) <= LONGEST_NAME else "is no name"


CALLED = Rule(_called_problem, f"one line of up to {LONGEST_NAME} characters", {"maxLength": LONGEST_NAME})


@dataclass(frozen=True)
class PartyTable:
    """Who the party is. Paths are relative to this file."""

    number: Annotated[int, Ge(0), Doc("which of the federation's parties this is, counted from 0")]
    records: Annotated[int, Ge(1), Doc("how many it declares to hold; everybody may know")]
    ledger: Annotated[str, NAME, Doc("what it has released, over all jobs")] = "ledger.sqlite"
    name: Annotated[str | None, CALLED, Doc("what people call it, in logs and reports; everybody may know")] = None


EVERY_JOB = "it holds for every job, whatever fewest a secure sum has"  # of minimum_parties


@dataclass(frozen=True, kw_only=True)
class PolicyTable:
    """What the party allows. A job that asks for more is refused, and told why."""

    mode: Annotated[
        Literal["simulation", "deployment"],
        Doc("secure noise; or noise from a seed that the job brings, which protects nobody: for tests only"),
    ] = "deployment"
    epsilon: Annotated[
        float | None, Gt(0), Doc("what it may spend in all; a deployment needs it, without it nothing is private")
    ] = None
    delta: Annotated[float, Ge(0), Lt(1), Doc("at this delta")] = 1e-6
    per_job: Annotated[float | None, Gt(0), Doc("the most that one job may cost")] = None
    algorithms: Annotated[
        tuple[str, ...],
        Rule(_algorithms_problem, "a list of names of algorithms", {"minItems": 1}),
        Doc("the only ones that it takes part in"),
    ]
    row_bound: Annotated[
        float | None, Gt(0), Doc("the only bound to which its rows may be clipped; any if left out")
    ] = None
    minimum_parties: Annotated[
        int,
        Ge(1),
        Doc("of every job: it takes part only among so many, and stops when fewer are left; secure sums: also fewest"),
    ] = 2
    adjacency: Annotated[
        Literal["replace-one", "label", "person", "column"], Doc("between which neighbours it counts")
    ] = "replace-one"
    label_epsilon: Annotated[float | None, Gt(0), Doc("its labels are randomised with this, once for all jobs")] = None
    colluding: Annotated[
        int | None,
        Ge(1),
        Doc("of secure sums: how many must be free to collude; a third of all pinned if left out"),
    ] = None
    fewest: Annotated[
        int | None,
        Ge(2),
        Doc(
            "of secure sums, beside minimum_parties: the fewest parties of a sum; nine tenths of all pinned if left out"
        ),
    ] = None
    silent_days: Annotated[
        float, Gt(0), Doc("a job that nobody asked about for longer is listed, with what it holds")
    ] = SILENT_DAYS
    approve: Annotated[
        Literal["policy", "ask"],
        Doc('who says yes to a job that keeps this policy: nobody has to, or with "ask" the steward, to each one'),
    ] = "policy"
    approval_days: Annotated[
        float, Gt(0), Le(3650), Doc('of approve = "ask": for how long a decision holds, unless it says otherwise')
    ] = APPROVAL_DAYS

    @property
    def weak_promise(self) -> str | None:
        """The warning of a budget that promises little once it is spent; None if there is none."""
        return self.made().weak_promise

    def weak_delta(self, records: int | None = None) -> str | None:
        """The warning of a delta that promises nothing about so many records; None if there is none."""
        return self.made().weak_delta(records)

    def made(self, limits: Limits | None = None) -> Policy:
        """The policy that a ledger fixes when it is made."""
        return Policy(
            None if self.epsilon is None else Budget(self.epsilon, self.delta),
            self.per_job,
            self.algorithms,
            self.row_bound,
            self.adjacency,
            self.label_epsilon,
            limits,
            self.colluding,
            self.fewest,
            self.silent_days,
        )


@dataclass(frozen=True)
class NodeTable:
    """Its node: how it reaches the coordinator. Paths are relative to this file."""

    superlink: Annotated[str, NAME, Doc("HOST:PORT of the coordinator's SuperLink")]
    port: Annotated[int, Ge(1), Le(65535), Doc("on 127.0.0.1, between the node and its own processes")] = 9094
    ca: Annotated[str, NAME, Doc("certificate (PEM) of the authority that signed the SuperLink's")] = "ca.pem"
    key: Annotated[str, NAME, Doc("its private key, as ssh-keygen makes it; the coordinator has the public one")] = (
        "node-key"
    )


@dataclass(frozen=True)
class Party:
    """A party's directory, read."""

    folder: Path
    party: PartyTable
    data: DataTable
    policy: PolicyTable
    node: NodeTable
    limits: Limits
    texts: tuple[tuple[Path, str], ...] = ()  # the files that were read, party.toml and a schema, with digests

    @property
    def number(self) -> int:
        return self.party.number

    @property
    def name(self) -> str:
        return self.party.name or f"party {self.number}"

    @property
    def source(self) -> Path:
        return self.folder / self.data.source

    @property
    def ledger(self) -> Path:
        return self.folder / self.party.ledger

    @property
    def has_ledger(self) -> bool:
        """Whether a file is there that may be a ledger; an empty file would become a new ledger when it is opened."""
        return self.ledger.exists() and self.ledger.stat().st_size > 0

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def asks(self) -> bool:
        """Whether its steward decides about every job."""
        return self.policy.approve == "ask"

    @cached_property
    def fixed(self) -> Policy:
        """The policy that its ledger fixes when it is made."""
        return self.policy.made(self.limits)

    def admit(self, config: Config, parties: int) -> None:
        """Refuse, before a record is read, a job that this party does not take part in at any cost."""
        mode, least, privacy = self.policy.mode, self.policy.minimum_parties, config.privacy
        if config.run.mode != mode:
            why = (
                "noise from a seed protects nobody: the party's steward has to allow it, for a test"
                if mode == "deployment"
                else "it is set up for a test"
            )
            raise refused(f'the policy has mode = "{mode}" and the job "{config.run.mode}"; {why}', "policy")
        if parties < least:
            raise refused(f"the policy has minimum_parties = {least} and the job {parties}; {EVERY_JOB}", "policy")
        for key in fields_of(DataTable):
            own, asked = getattr(self.data, key), getattr(config.data, key)
            # To learn whether records can be read in another way would tell something about them.
            if key not in ITS_OWN and own != asked:
                raise refused(
                    f"party.toml has [data] {key} = {show(own)} and the job {show(asked)}: a party's records are read "
                    "as it declares",
                    "policy",
                )
        self.fixed.admit(config.algorithm.name)
        if privacy is not None:
            self.fixed.agree(privacy.adjacency, privacy.label_epsilon)
            if privacy.delta != self.policy.delta:
                own_delta = self.policy.delta
                raise refused(f"the policy counts at delta = {own_delta:g} and the job at {privacy.delta:g}", "policy")
            if privacy.sum == "secure":
                self.admit_sum(SecureSum(privacy.colluding, privacy.fewest), parties)

    def admit_sum(self, asked: SecureSum, parties: int) -> None:
        """Refuse a secure sum that tolerates fewer who collude, or has fewer parties, than the policy accepts.

        Where the policy is silent, the usual shares count all parties that are pinned, even if the job has only a few.
        """
        self.fixed.admit_sum(asked, parties)
        known = max(parties, 1 + len(list((self.folder / PEERS).glob("party-*.pub"))))
        everybody = replace(self.fixed, fewest=self.policy.fewest or usual_fewest(known))
        replace(everybody, colluding=self.policy.colluding or usual_colluding(known)).admit_sum(asked, parties)

    def stay(self, present: int) -> None:
        """Refuse to go on among fewer parties than the policy asks for."""
        if present < (least := self.policy.minimum_parties):
            raise RefusedError(
                f"the policy has minimum_parties = {least}, and {present} are left; {EVERY_JOB}. Nothing more was "
                "released",
                "policy",
            )


TABLES: Mapping[str, type[Any]] = {
    "party": PartyTable,
    "data": DataTable,
    "policy": PolicyTable,
    "node": NodeTable,
    "limits": Limits,
}


def made(kind: type[Any], raw: object, at: tuple[str, ...], report: Report) -> Any:
    """Make a table of this kind from a file's section; BAD if anything in it is wrong, which the report then has."""
    values = read_table(fields_of(kind), raw, at, report)
    return BAD if values is None else kind(**values)


def check_sections(raw: Mapping[str, Any], known: Mapping[str, Any], report: Report) -> None:
    """Report the sections of a file that it cannot have."""
    for name in raw.keys() - known.keys():
        report.add((name,), "unknown section", ", ".join(f"[{section}]" for section in known))


def read(folder: Path) -> Party:
    """Read the party of this directory; a ConfigError lists everything that is wrong with its file."""
    path = folder / FILE
    text, raw = load(path)
    report = Report(str(path), Lines(text))
    check_sections(raw, TABLES, report)
    tables: dict[str, Any] = {}
    texts = [(path, digest(text.encode()))]
    for name, kind in TABLES.items():
        section = raw.get(name, {})
        if name == "data" and isinstance(section, dict) and isinstance(section.get("schema"), str):
            schema = folder / section["schema"]
            words, columns = load(schema)
            texts.append((schema, digest(words.encode())))
            section = section | {"schema": columns}
        tables[name] = made(kind, section, (name,), report)
    policy = tables["policy"]
    if policy is not BAD and policy.mode == "deployment" and policy.epsilon is None:
        report.add(("policy", "epsilon"), 'missing beside mode = "deployment"', "a number > 0")
    report.check()
    party = Party(folder, **tables, texts=tuple(texts))
    try:
        _ = party.fixed
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return party
