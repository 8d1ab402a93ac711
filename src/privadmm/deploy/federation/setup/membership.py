"""Changes a federation that exists: new certificates and keys, one party more, one party less."""

import re
from dataclasses import dataclass
from pathlib import Path

from privadmm.config.file import Config, read
from privadmm.config.reader import Lines, load
from privadmm.data.files import write_bytes, write_text
from privadmm.deploy.federation.desk.history import RETIRED
from privadmm.deploy.federation.hub.state import driven
from privadmm.deploy.federation.keys import fingerprint, make_authority, make_node_key, make_server
from privadmm.deploy.federation.layout import Coordinator
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.proposal import neutral, parties_of
from privadmm.deploy.federation.setup.invitation import AuthorityTable, Peers, Reply, read_peers, signed_reply
from privadmm.deploy.federation.setup.joining import REPLY, invite, own_file, proposed_policy, retire, write_peers
from privadmm.deploy.federation.setup.pinning import federation_of
from privadmm.deploy.federation.signing import public_of, seal
from privadmm.errors import ConfigError


def rotate_key(folder: Path) -> Reply:
    """Make another key for a party, signed by the one before; returns its reply, which is also in reply.toml.

    A lost key cannot sign: then a person vouches for the new key at the coordinator and the other parties. A process
    that dies halfway leaves the old key or the new one, and the reply of the new one: call this again to finish.
    """
    party = read_party(folder)
    key, fresh, answer = folder / party.node.key, folder / f"{party.node.key}.new", folder / f"{REPLY}.new"
    before = public_of(key) if key.exists() else None
    if before is not None and answer.exists():
        (begun,) = read_peers([answer], None).replies
        if begun.key == before.decode().strip():
            answer.replace(folder / REPLY)
            return begun
    public = make_node_key(folder, fresh.name)
    reply = signed_reply(party.number, federation_of(folder), party.name, fresh, public, key if before else None)
    if before is not None:
        keep_public(folder, before)
    write_text(answer, Peers((reply,)).written(REPLY))
    fresh.replace(key)
    answer.replace(folder / REPLY)
    return reply


def keep_public(folder: Path, public: bytes) -> None:
    """Keep the public half of a key that is replaced."""
    (folder / RETIRED).mkdir(exist_ok=True)
    mark = re.sub("[^A-Za-z0-9]", "", fingerprint(public).removeprefix("SHA256:"))[:16]
    write_bytes(folder / RETIRED / f"{mark}.pub", public)


def between_runs(place: Coordinator) -> None:
    """Refuse while a run is under way: its parties would lose the coordinator during the run."""
    if driven(place):
        raise ConfigError(
            f"{place.folder}: a run is under way. Wait for its end, or stop it with `privadmm federation stop "
            f"{place.folder}` and resume it afterwards"
        )


def rotate_certificate(place: Coordinator) -> None:
    """Make another certificate and key for the SuperLink, signed by the same authority. Parties do nothing."""
    between_runs(place)
    make_server(place.certificates, place.reached.host)


def rotate_authority(place: Coordinator) -> Peers:
    """Make a new authority, signed by the old one, and a certificate from it; parties pin it with peers.toml."""
    between_runs(place)
    ca, key = place.certificates / "ca.pem", place.certificates / "ca-key.pem"
    if not key.is_file():
        raise ConfigError(f"{key}: no such file; whoever is the authority of this federation makes the new one")
    kept = place.certificates / "retired"
    kept.mkdir(mode=0o700, exist_ok=True)
    mark = f"{int(ca.stat().st_mtime)}"
    for path in (ca, key):
        write_bytes(kept / f"{mark}-{path.name}", path.read_bytes(), private=True)
    make_authority(place.certificates, place.reached.host)
    fresh = AuthorityTable(ca.read_text(encoding="ascii"))
    return write_peers(place, seal(kept / f"{mark}-{key.name}", fresh.content()))


@dataclass(frozen=True)
class Seat:
    """A party's place in a federation, and how job.toml changed for it."""

    number: int
    parties: int
    invitation: Path | None
    changed: str | None  # the line of job.toml that changed, as it is now


def add(place: Coordinator, number: int | None = None) -> Seat:
    """Invite one more party, or a party to a place that is empty."""
    between_runs(place)
    config = read(place.job)
    parties = parties_of(config)
    if number is None:
        number = next((seat for seat in range(parties) if not place.key_of(seat).is_file()), parties)
        if number < parties and (place.invitations / f"party-{number}.toml").is_file():
            number = parties
    if number > parties:
        raise ConfigError(f"the next party of this federation is {parties}, counted from 0, and not {number}")
    if place.key_of(number).is_file():
        raise ConfigError(f"{place.key_of(number)}: there is a party {number} already; withdraw it first")
    changed = resized(place, config, parties + 1) if number == parties else None
    config = read(place.job)
    job = neutral(config)
    path = invite(place, number, job, proposed_policy(config, job, number), own_file(config))
    return Seat(number, parties_of(config), path, changed)


def withdraw(place: Coordinator, number: int) -> Seat:
    """Remove a party: its key is no longer valid. The last party's place goes too; another's can be filled again."""
    between_runs(place)
    config = read(place.job)
    parties, path = parties_of(config), place.key_of(number)
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; there is no party {number} here")
    changed = resized(place, config, parties - 1) if number == parties - 1 else None
    retire(path, place.retired)
    for folder in (place.replies, place.invitations):
        (folder / f"party-{number}.toml").unlink(missing_ok=True)
    write_peers(place)
    return Seat(number, parties_of(read(place.job)), None, changed)


def resized(place: Coordinator, config: Config, parties: int) -> str:
    """Change the number of parties in job.toml; refused if other keys have a value for each party."""
    text, raw = load(place.job)
    table, privacy = config.parties, config.privacy
    per_party = {
        "[parties] row_bounds": table.row_bounds,
        "[parties] leave": table.leave,
        "[privacy] party_epsilon": None if privacy is None else privacy.party_epsilon,
    }
    if named := [key for key, value in per_party.items() if value is not None]:
        raise ConfigError(
            f"{place.job}: {', '.join(named)} names parties one by one: take it out, try again, and put it back for "
            f"{parties} parties"
        )
    lines, at = text.split("\n"), Lines(text)
    if "count" not in raw.get("parties", {}):
        raise ConfigError(f"{place.job}: has no [parties] count to change to {parties}; write it, and try again")
    where = at[("parties", "count")] - 1
    lines[where] = re.sub(r"count\s*=\s*\d+", f"count = {parties}", lines[where], count=1)
    if "sizes" in raw["parties"]:  # not known any more: parties declare their sizes
        first = at[("parties", "sizes")] - 1
        lines[first] = "# " + lines[first]
    fresh = "\n".join(lines)
    trial = place.job.with_name("job.toml.new")
    write_text(trial, fresh)
    try:
        if parties_of(read(trial)) != parties:
            raise ConfigError(f"{place.job}: change [parties] count to {parties} by hand, and try again")
    except BaseException:
        trial.unlink()
        raise
    trial.replace(place.job)
    return lines[where].strip()
