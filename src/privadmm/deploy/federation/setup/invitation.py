"""Files that travel between a coordinator and its parties. Nothing in them is secret.

    invitation   coordinator to party: its number, the SuperLink's address and authority, the job, a proposed policy
    reply        party to coordinator: its number, name and public key, signed with that key
    peers.toml   coordinator to all parties: everybody's replies, and the authority's certificate

A reply is a peers.toml of one party: both are read alike, and parties may also send them to one another.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le

from privadmm import __version__
from privadmm.config.reader import Lines, Report, load
from privadmm.config.rules import NAME
from privadmm.config.sections import DataTable
from privadmm.deploy.federation.keys import certificate_fingerprint, fingerprint, need_public_key
from privadmm.deploy.federation.layout import host_and_port
from privadmm.deploy.federation.party import CALLED, PolicyTable, check_sections, made
from privadmm.deploy.federation.proposal import section
from privadmm.deploy.federation.setup.mistaken import need_kind
from privadmm.deploy.federation.signing import seal, sealed
from privadmm.errors import ConfigError
from privadmm.params import Doc

INVITATION = """# Invitation to be party {number} of {parties}. It holds nothing secret. At the party:
#   privadmm federation join {file} --out party-{number} --records data.csv --name "Who we are"
# Compare the authority's fingerprint with the coordinator, by telephone or on paper:
#   {fingerprint}
"""
REPLIES = """# Public keys of parties, each signed by its owner. At the coordinator:
#   privadmm federation admit DIRECTORY {file}
# At a party, for secure sums, after comparing fingerprints with their owners:
#   privadmm federation pin DIRECTORY {file}
"""


@dataclass(frozen=True)
class InvitationTable:
    """The section [invitation]; beside it are [data] and [policy]."""

    party: Annotated[int, Ge(0), Doc("the number of the party that is invited")]
    parties: Annotated[int, Ge(1), Doc("how many the federation has")]
    federation: Annotated[str, NAME, Doc("by which replies are told from those of another federation")]
    superlink: Annotated[str, NAME, Doc("HOST:PORT at which the coordinator is reached")]
    port: Annotated[int, Ge(1), Le(65535), Doc("proposed for the party's own machine")]
    privadmm: Annotated[str, NAME, Doc("the coordinator's version; all have the same")]
    flower: Annotated[str, NAME, Doc("the version of Flower that it needs")]
    authority: Annotated[str, NAME, Doc("certificate (PEM) of the authority that signed the SuperLink's")]
    job: Annotated[str, NAME, Doc("the job that will be proposed, as a config")]
    secure_sums: Annotated[bool, Doc("whether the job has secure sums, for which parties pin each other's keys")] = (
        False
    )


@dataclass(frozen=True)
class Invitation:
    """An invitation, read."""

    facts: InvitationTable
    data: DataTable
    policy: PolicyTable

    @property
    def fingerprint(self) -> str:
        return certificate_fingerprint(self.facts.authority.encode())

    def written(self, file: str) -> str:
        """Text of the file."""
        facts = self.facts
        head = INVITATION.format(number=facts.party, parties=facts.parties, file=file, fingerprint=self.fingerprint)
        tables = [table("invitation", vars(facts)), section("data", self.data), section("policy", self.policy)]
        return head + "\n" + "\n\n".join(tables) + "\n"


@dataclass(frozen=True)
class Reply:
    """Who a party is, signed with its key and, if that is new, with the key before it."""

    party: Annotated[int, Ge(0), Doc("its number")]
    federation: Annotated[str, NAME, Doc("as the invitation has it")]
    name: Annotated[str, CALLED, Doc("what people call it")]
    privadmm: Annotated[str, NAME, Doc("its version")]
    key: Annotated[str, NAME, Doc("its public key, in OpenSSH's format")]
    signature: Annotated[str, NAME, Doc("by that key")]
    replaces: Annotated[str | None, NAME, Doc("the key that it had before")] = None
    vouched: Annotated[str | None, NAME, Doc("by the key that it had before")] = None

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.key.encode())

    def content(self) -> bytes:
        """Bytes that are signed."""
        who = (self.federation, self.party, self.name, self.privadmm)
        return json.dumps(["privadmm reply, version 1", *who, self.key, self.replaces]).encode()

    def vouched_by(self, key: bytes) -> bool:
        """Whether the holder of an earlier key signed that this key replaces it."""
        same = self.replaces is not None and self.replaces.split()[:2] == key.decode().split()[:2]
        return same and self.vouched is not None and sealed(key, self.content(), self.vouched)

    def check(self, where: object, federation: str | None) -> None:
        """Refuse a reply that its own key did not sign, or that is for another federation."""
        need_plain(where, self.privadmm, self.key)
        need_public_key(self.key.encode(), f"{where}: party {self.party}")
        if not sealed(self.key.encode(), self.content(), self.signature):
            raise ConfigError(f"{where}: the reply of party {self.party} was not signed by the key in it")
        if federation is not None and self.federation != federation:
            raise ConfigError(
                f"{where}: the reply of party {self.party} is for another federation than this one: for "
                f"{short(self.federation)}, and this is {short(federation)}. A reply is made by `privadmm federation "
                "join` with an invitation of this federation's coordinator"
            )


@dataclass(frozen=True)
class AuthorityTable:
    """The authority that signs the SuperLink's certificates."""

    certificate: Annotated[str, NAME, Doc("in PEM")]
    vouched: Annotated[str | None, NAME, Doc("signed by the key of the authority before it")] = None

    def content(self) -> bytes:
        """Bytes that the authority before it signs."""
        return json.dumps(["privadmm authority, version 1", self.certificate]).encode()


@dataclass(frozen=True)
class Peers:
    """A file of replies, read."""

    replies: tuple[Reply, ...]
    authority: AuthorityTable | None = None

    def written(self, file: str) -> str:
        """Text of the file."""
        tables = [] if self.authority is None else [table("authority", vars(self.authority))]
        tables += [
            table("party", vars(reply), "[[{}]]") for reply in sorted(self.replies, key=lambda reply: reply.party)
        ]
        return REPLIES.format(file=file) + "\n" + "\n\n".join(tables) + "\n"


def signed_reply(party: int, federation: str, name: str, key: Path, public: bytes, before: Path | None = None) -> Reply:
    """The reply of a party, signed with its key and, if there was one, with the key `before`."""
    from privadmm.deploy.federation.signing import public_of

    replaces = None if before is None else public_of(before).decode().strip()
    reply = Reply(party, federation, name, __version__, public.decode().strip(), "", replaces)
    vouched = None if before is None else seal(before, reply.content())
    return replace(reply, signature=seal(key, reply.content()), vouched=vouched)


def read_invitation(path: Path) -> Invitation:
    """Read an invitation; a ConfigError lists everything that is wrong with it."""
    need_kind(path, "invitation")
    text, raw = load(path)
    report = Report(str(path), Lines(text))
    kinds: Mapping[str, type[Any]] = {"invitation": InvitationTable, "data": DataTable, "policy": PolicyTable}
    check_sections(raw, kinds, report)
    tables = [made(kind, raw.get(name, {}), (name,), report) for name, kind in kinds.items()]
    report.check()
    invitation = Invitation(*tables)
    facts = invitation.facts
    need_plain(path, facts.superlink, facts.federation, facts.privadmm, facts.flower)
    host_and_port(facts.superlink, f"{path}: [invitation] superlink")
    # The coordinator must not choose which file of the party's machine is read.
    source = invitation.data.source
    if Path(source).name != source or invitation.data.embedded or names_a_schema(path, facts.job):
        raise ConfigError(f"{path}: names a file of somebody's machine, in [data] source or in the job's schema")
    try:
        certificate_fingerprint(facts.authority.encode())
    except ValueError:
        raise ConfigError(f"{path}: [invitation] authority is no certificate in PEM") from None
    if facts.party >= facts.parties:
        raise ConfigError(f"{path}: invites party {facts.party} of {facts.parties}, counted from 0")
    return invitation


def short(federation: str) -> str:
    """The start of a federation's name, enough for people to tell it from others."""
    return repr(federation[:8]) if federation.isalnum() else "one without a name"


def names_a_schema(where: object, job: str) -> bool:
    """Whether a job, as text, has its schema in another file."""
    try:
        asked = tomllib.loads(job).get("data")
    except (ValueError, RecursionError):
        raise ConfigError(f"{where}: [invitation] job is not valid TOML") from None
    return isinstance(asked, dict) and isinstance(asked.get("schema"), str)


def need_plain(where: object, *texts: str) -> None:
    """Refuse texts with control characters, which could do something to a terminal."""
    if not all(text.isprintable() for text in texts):
        raise ConfigError(f"{where}: has control characters where a word belongs")


def read_peers(paths: Sequence[Path], federation: str | None) -> Peers:
    """Read files of replies and check their signatures. Replies of one party in several files must be the same."""
    known, authority = dict[int, Reply](), None
    for path in paths:
        need_kind(path, "replies")
        text, raw = load(path)
        report = Report(str(path), Lines(text))
        for name in raw.keys() - {"party", "authority"}:
            report.add((name,), "unknown section", "[[party]] and [authority]")
        entries = raw.get("party", [])
        if not isinstance(entries, list):
            raise ConfigError(f"{path}: [party] is not [[party]], one for each")
        replies = [made(Reply, entry, ("party",), report) for entry in entries]
        if "authority" in raw:
            authority = made(AuthorityTable, raw["authority"], ("authority",), report)
        report.check()
        for reply in replies:
            reply.check(path, federation)
            if known.setdefault(reply.party, reply) != reply:
                raise ConfigError(f"{path}: has another reply of party {reply.party} than a file before it")
    if not known and authority is None:
        raise ConfigError(f"{', '.join(map(str, paths))}: no reply of a party in it")
    return Peers(tuple(known.values()), authority)


def table(name: str, values: Mapping[str, Any], header: str = "[{}]") -> str:
    """A table as TOML; texts of several lines keep their lines."""
    lines = [f"{key} = {_value(value)}" for key, value in values.items() if value is not None]
    return "\n".join([header.format(name), *lines])


def _value(value: Any) -> str:
    if isinstance(value, str) and "\n" in value:
        escaped = value.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
        return f'"""\n{escaped}"""'
    return json.dumps(value)
