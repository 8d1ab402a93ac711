"""How an organisation becomes a party: it is invited, joins, is admitted, and pins the others' keys.

coordinator   invite   writes an invitation for each party
party         join     makes its directory, with a private key that never leaves it, and a reply
coordinator   admit    takes the reply's public key, and writes peers.toml for everybody
party         pin      takes the others' public keys from peers.toml, or from their replies
"""

import json
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from privadmm import __version__
from privadmm.config.file import Config, read
from privadmm.config.sections import DataTable
from privadmm.data.arrays import digest
from privadmm.data.files import write_text
from privadmm.deploy.federation.desk.peers import key_in
from privadmm.deploy.federation.desk.records import PUBLIC, announce, bound_of, own_records
from privadmm.deploy.federation.keys import make_node_key
from privadmm.deploy.federation.layout import FLOWER, Coordinator
from privadmm.deploy.federation.party import FILE, PEERS, NodeTable, Party, PartyTable, PolicyTable
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import neutral, parties_of, section
from privadmm.deploy.federation.setup import kit
from privadmm.deploy.federation.setup.invitation import (
    AuthorityTable,
    Invitation,
    InvitationTable,
    Peers,
    Reply,
    read_invitation,
    read_peers,
    signed_reply,
)
from privadmm.errors import ConfigError, DataError, LedgerError, PrivadmmError
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.limits import Limits
from privadmm.privacy.new_ledger import earlier, new_ledger
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.sums import SecureSum

INVITED, PROPOSED, REPLY = "invitation.toml", "proposed.toml", "reply.toml"  # in a party's directory
PARTY = """# Party {number} of a federation of {parties}. This file is its owner's: what it says, no job can change.
[party]
number = {number}
{name}{records}
ledger = "ledger.sqlite"

{data}

{policy}
# per_job = 0.5       # the most that one job may cost

[node]
superlink = {superlink}
port = {port}           # on 127.0.0.1, between the node and its own processes
ca = "ca.pem"
key = "node-key"
"""


def invite(place: Coordinator, number: int, job: Config, policy: PolicyTable, source: str) -> Path:
    """Write the invitation of one party: the job as it is proposed, and a policy that lets it through once."""
    reached, parties = place.reached, parties_of(job)
    facts = InvitationTable(
        number,
        parties,
        reached.federation,
        reached.address,
        # On machines of their own all could take the same port; in a rehearsal they share a machine.
        reached.port + 1 + number,
        __version__,
        FLOWER,
        (place.certificates / "ca.pem").read_text(encoding="ascii"),
        place.job.read_text(encoding="utf-8"),
        job.privacy is not None and job.privacy.sum == "secure",
    )
    # The held-out share is each party's own choice: the default is not written into the invitation.
    data = replace(job.data, source=source, test_fraction=0.2)
    path = place.invitations / f"party-{number}.toml"
    place.invitations.mkdir(exist_ok=True)
    write_text(path, Invitation(facts, data, policy).written(path.name))
    return path


def own_file(config: Config) -> str:
    """The default name of a party's file of records."""
    return "data.csv" if config.parties.split == "features" or config.data.label is not None else "data.npz"


def proposed_policy(config: Config, job: Config, number: int) -> PolicyTable:
    """A policy that allows this job once, or as often as the budget in the original `config` pays for."""
    count, bounds = parties_of(job), job.parties.row_bounds
    values: dict[str, Any] = {
        "mode": job.run.mode,
        "algorithms": (job.algorithm.name,),
        "row_bound": job.data.row_bound if bounds is None else bounds[number],
        "minimum_parties": min(2, count),
    }
    if table := config.privacy:
        values["epsilon"] = table.budget or (table.party_epsilon[number] if table.party_epsilon else table.epsilon)
        values |= {"delta": table.delta, "adjacency": table.adjacency, "label_epsilon": table.label_epsilon}
        if table.sum == "secure":
            values |= SecureSum(table.colluding, table.fewest).below_usual(count)
    return PolicyTable(**values)


@dataclass(frozen=True)
class Joined:
    """A party's directory as `join` made it; `party` is None while its file lacks the number of records."""

    folder: Path
    invitation: Invitation
    reply: Reply
    party: Party | None


def join(
    path: Path, folder: Path, source: Path | None = None, name: str | None = None, port: int | None = None
) -> Joined:
    """Make the directory of a party that was invited: its key, party.toml, and a reply to send back.

    The records, if given, are read as the job declares them, and counted; if they cannot be, nothing is made.
    """
    invitation = read_invitation(path)
    for file in (FILE, "node-key"):
        if (folder / file).exists():
            raise ConfigError(f"{folder / file}: exists already; name another directory for the party")
    facts = invitation.facts
    table = invitation.data if source is None else replace(invitation.data, source=from_folder(source, folder))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(folder / PROPOSED, facts.job)
    try:
        records = None if source is None else counted(folder, invitation, table)
    except BaseException:
        (folder / PROPOSED).unlink()
        raise
    write_text(folder / INVITED, path.read_text(encoding="utf-8"))
    write_text(folder / "ca.pem", facts.authority)
    write_text(folder / FILE, described(invitation, table, records, name, port or facts.port))
    (folder / PEERS).mkdir(exist_ok=True)
    public = make_node_key(folder)
    reply = signed_reply(facts.party, facts.federation, name or f"party {facts.party}", folder / "node-key", public)
    write_text(folder / REPLY, Peers((reply,)).written(REPLY))
    party = None if records is None else read_party(folder)
    if party is not None:
        kit.for_party(party)
        announce(party, neutral(read(folder / PROPOSED)))
    return Joined(folder, invitation, reply, party)


def from_folder(source: Path, folder: Path) -> str:
    """How party.toml names a file: relative to the party's directory if it is inside, else by its whole path."""
    whole = source.absolute()
    return str(whole.relative_to(folder.absolute()) if whole.is_relative_to(folder.absolute()) else whole)


def counted(folder: Path, invitation: Invitation, data: DataTable) -> int:
    """Read the party's records as the invitation's job will, and count them."""
    facts, config = invitation.facts, neutral(read(folder / PROPOSED))
    node = NodeTable(facts.superlink)
    party = Party(folder, PartyTable(facts.party, 1), data, invitation.policy, node, Limits())
    own, bound = replace(config, data=data), bound_of(party, config)
    try:
        return own_records(party, own, parties_of(config), bound).records
    except Exception as error:
        raise DataError(
            f"{party.source}: cannot be read as the invitation's [data] declares, and nothing was made: {error}. Agree "
            "with the coordinator on another declaration, or correct the file"
        ) from error


def described(invitation: Invitation, data: DataTable, records: int | None, name: str | None, port: int) -> str:
    """Text of party.toml."""
    facts = invitation.facts
    return PARTY.format(
        number=facts.party,
        parties=facts.parties,
        name="" if name is None else f"name = {json.dumps(name)}\n",
        records=f"records = {records}" if records else "# records = ...    # how many it declares to hold",
        data=section("data", data),
        policy=policy_section(invitation.policy),
        superlink=json.dumps(facts.superlink),
        port=port,
    )


def policy_section(policy: PolicyTable) -> str:
    """A policy as TOML. The keys that a steward decides are written out even where they have their defaults."""
    shown = ("mode", "algorithms", "row_bound", "epsilon", "delta", "adjacency", "label_epsilon")
    values = {key: getattr(policy, key) for key in (*shown, "colluding", "fewest")}
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value is not None]
    if policy.epsilon is None:
        lines = [line for line in lines if not line.startswith(("delta", "adjacency"))]
    lines.append(f"minimum_parties = {policy.minimum_parties}   # it stops when fewer are left")
    return "\n".join(["[policy]", *lines])


def with_ledger(folder: Path, anew: str | None = None) -> Party:
    """Make the ledger of a party, with the policy in its party.toml; `anew`: why its records get another ledger."""
    party = read_party(folder)
    if party.ledger.exists():
        raise ConfigError(
            f"{party.ledger}: exists already, and a ledger is made once; change its policy with --amend --because"
        )
    kit.for_party(party)
    told_of_records(party)
    # A note that is there counts even where none could be written.
    new_ledger(party.ledger, (party.number,), party.fixed, party.policy.mode, party.source, anew, notable(party))
    return party


def need_ledger(party: Party) -> None:
    """Refuse to go on without the party's ledger, whether it was never made or is lost.

    A lost ledger must not simply be made again: an empty one forgets what was spent.
    """
    if identity_of(party.ledger) is not None:
        return
    if before := earlier(party.ledger, party.source):
        raise LedgerError(
            f"{party.ledger}: is lost: {'; '.join(before)}. Without it nobody knows what was spent, and nothing may be "
            f"released. Put a backup back: `privadmm ledger restore BACKUP {party.ledger} --because ...`"
        )
    raise ConfigError(
        f"{party.ledger}: there is no ledger yet, and without one nothing may be released: look at [policy] in "
        f"{party.folder / FILE}, then make it with `privadmm federation ledger {party.folder}`"
    )


def told_of_records(party: Party) -> None:
    """Put the public facts about the records on file, if there are records; errors are left to `check`."""
    known = (party.folder / PUBLIC).is_file()
    if not known and party.source.is_file() and (party.folder / PROPOSED).is_file():
        with suppress(PrivadmmError):
            announce(party, neutral(read(party.folder / PROPOSED)))


def notable(party: Party) -> bool:
    """Whether a note that names the ledger can be written beside the records."""
    return party.source.exists() and os.access(party.source.parent, os.W_OK)


def amended(folder: Path, why: str) -> Party:
    """Replace the ledger's policy by that of party.toml, in a row of the ledger; what was spent stays."""
    party = read_party(folder)
    known = identity_of(party.ledger)
    if known is None:
        raise ConfigError(f"{party.ledger}: there is no ledger yet; make it without --amend")
    if (known.mode, known.parties) != (party.policy.mode, (party.number,)):
        raise ConfigError(
            f"{party.ledger}: is of party {known.parties[0]} in mode {known.mode}, which stays; {FILE} has party "
            f"{party.number} in mode {party.policy.mode}"
        )
    with closing(SqliteLedger(party.ledger, known.parties, known.policy, known.mode)) as opened:
        opened.amend(party.fixed, why)
    return party


@dataclass(frozen=True)
class Change:
    """How one party's key changes, at the coordinator or at another party."""

    party: int
    name: str
    fingerprint: str
    state: Literal["same", "new", "replaced", "vouched"]  # vouched: replaced, and the key before it signed that
    reply: Reply | None = None


def changes(files: dict[int, Path], replies: Sequence[Reply]) -> list[Change]:
    """Compare replies with the public keys in these files, by party."""
    compared = []
    for reply in sorted(replies, key=lambda reply: reply.party):
        path, state = files[reply.party], "new"
        if path.is_file():
            if key_in(path) == b" ".join(reply.key.encode().split()[:2]):
                state = "same"
            else:
                state = "vouched" if reply.vouched_by(path.read_bytes()) else "replaced"
        compared.append(Change(reply.party, reply.name, reply.fingerprint, state, reply))  # type: ignore[arg-type]
    return compared


@dataclass(frozen=True)
class Admission:
    """Replies whose keys `admit` would take; the coordinator's people look at them first."""

    place: Coordinator
    replies: tuple[Reply, ...]
    changes: tuple[Change, ...]


def look_at(place: Coordinator, paths: Sequence[Path], replace_keys: bool = False) -> Admission:
    """Compare the public keys in these replies with those that were admitted; nothing is changed.

    A key may replace another if that one signed it, or with `replace_keys`, after somebody has asked the party.
    """
    parties, federation = parties_of(read(place.job)), place.reached.federation
    peers = read_peers(paths, federation)
    for reply in peers.replies:
        if reply.party >= parties:
            raise ConfigError(
                f"{paths[0]}: is the reply of party {reply.party}, and {place.job} has {parties}, counted from 0"
            )
    files = {reply.party: place.key_of(reply.party) for reply in peers.replies}
    compared = changes(files, peers.replies)
    if (odd := [change for change in compared if change.state == "replaced"]) and not replace_keys:
        raise ConfigError(
            f"party {odd[0].party} ({odd[0].name}) has another key, {odd[0].fingerprint}, which the one before did not "
            "sign. Ask that party whether it lost its key; then --replace takes it"
        )
    others = [reply for reply in kept_replies(place) if reply.party not in files]
    check_distinct([*others, *peers.replies])
    return Admission(place, peers.replies, tuple(compared))


def admit(admission: Admission) -> None:
    """Take the public keys of these replies, and write peers.toml again."""
    place = admission.place
    for change in admission.changes:
        if change.state in ("vouched", "replaced"):
            retire(place.key_of(change.party), place.retired)
    place.replies.mkdir(exist_ok=True)
    for reply in admission.replies:
        write_text(place.key_of(reply.party), reply.key + "\n")
        write_text(place.replies / f"party-{reply.party}.toml", Peers((reply,)).written(f"party-{reply.party}.toml"))
    write_peers(place)


def check_distinct(replies: Sequence[Reply]) -> None:
    """Refuse the same key for two parties: its holder could answer for both."""
    owners: dict[str, int] = {}
    for reply in replies:
        if owners.setdefault(reply.fingerprint, reply.party) != reply.party:
            first = owners[reply.fingerprint]
            raise ConfigError(f"parties {first} and {reply.party} have the same key; each makes its own")


def retire(path: Path, folder: Path) -> None:
    """Move a public key into the folder of keys that are no longer valid."""
    folder.mkdir(exist_ok=True)
    mark = digest(key_in(path))[:16]
    path.replace(folder / f"{path.stem}-{mark}.pub")


def kept_replies(place: Coordinator) -> list[Reply]:
    paths = sorted(place.replies.glob("party-*.toml"))
    return list(read_peers(paths, None).replies) if paths else []


def write_peers(place: Coordinator, vouched: str | None = None) -> Peers:
    """Write everybody's public keys and the authority into one file, for all parties."""
    if vouched is None and place.peers.exists():
        known = read_peers([place.peers], None).authority
        vouched = None if known is None else known.vouched
    ca = (place.certificates / "ca.pem").read_text(encoding="ascii")
    peers = Peers(tuple(kept_replies(place)), AuthorityTable(ca, vouched))
    write_text(place.peers, peers.written(place.peers.name))
    return peers
