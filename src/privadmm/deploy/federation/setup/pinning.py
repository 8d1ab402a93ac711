"""`privadmm federation pin`: a party takes the public keys of the others, once its people have looked at them.

Whoever picks the keys of a secure sum can read it. So nothing is taken on a coordinator's word alone: a new key must
be signed by the one that it replaces, or confirmed by a person, and no key is dropped unless a person says so.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from privadmm.data.arrays import digest
from privadmm.data.files import write_bytes, write_text
from privadmm.deploy.federation.desk.peers import pin as pinned_at
from privadmm.deploy.federation.keys import certificate_fingerprint, sealed_by
from privadmm.deploy.federation.party import PEERS, Party
from privadmm.deploy.federation.party import read as read_party
from privadmm.deploy.federation.setup.invitation import AuthorityTable, read_invitation, read_peers
from privadmm.deploy.federation.setup.joining import INVITED, REPLY, Change, changes, check_distinct
from privadmm.deploy.federation.signing import public_of
from privadmm.errors import ConfigError


@dataclass(frozen=True)
class Pinning:
    """What `pin` would change in a party's directory; its people look at it first."""

    party: Party
    changes: tuple[Change, ...]
    authority: Literal["same", "vouched", "replaced"] | None  # None: the files do not have it
    authority_fingerprint: str | None
    absent: tuple[int, ...]  # parties that are pinned here and not in the files
    code: str  # the same at every party that pins the same keys
    certificate: str | None = None

    @property
    def suspicious(self) -> list[str]:
        """Keys that no known key signed, which a person has to confirm."""
        odd = [f"party {change.party}" for change in self.changes if change.state == "replaced"]
        return odd + (["the authority"] if self.authority == "replaced" else [])


def look(folder: Path, paths: Sequence[Path]) -> Pinning:
    """Compare files of public keys with those that a party has pinned."""
    party = read_party(folder)
    peers = read_peers(paths, federation_of(folder))
    own, others = public_of(folder / party.node.key), []
    for reply in peers.replies:
        if reply.party != party.number:
            others.append(reply)
        elif own.split()[:2] != reply.key.encode().split()[:2]:
            raise ConfigError(
                f"{paths[0]}: has another key for party {party.number} than {folder / party.node.key}: have the "
                f"coordinator admit {folder / REPLY} first"
            )
    check_distinct(peers.replies)
    files = {reply.party: pinned_at(folder, reply.party) for reply in others}
    known = {int(path.stem.removeprefix("party-")) for path in (folder / PEERS).glob("party-*.pub")}
    keys = {party.number: own} | {number: pinned_at(folder, number).read_bytes() for number in known}
    keys |= {reply.party: reply.key.encode() for reply in others}
    listed = [[number, " ".join(keys[number].decode().split()[:2])] for number in sorted(keys)]
    state, mark = authority_of(folder / party.node.ca, peers.authority)
    return Pinning(
        party,
        tuple(changes(files, others)),
        state,
        mark,
        tuple(sorted(known - files.keys())),
        "-".join(digest(json.dumps(listed).encode())[start : start + 4] for start in range(0, 20, 4)),
        None if peers.authority is None else peers.authority.certificate,
    )


def authority_of(ca: Path, sent: AuthorityTable | None) -> tuple[Any, str | None]:
    """How the authority in a file relates to the one that the party knows, and its fingerprint."""
    if sent is None:
        return None, None
    try:
        mark = certificate_fingerprint(sent.certificate.encode())
        if mark == certificate_fingerprint(ca.read_bytes()):
            return "same", mark
    except ValueError:
        raise ConfigError(f"{ca}: this, or the certificate of the authority that was sent, is none in PEM") from None
    good = sent.vouched is not None and sealed_by(ca, sent.content(), sent.vouched)
    return ("vouched" if good else "replaced"), mark


def pin(pinning: Pinning, drop: Sequence[int] = ()) -> None:
    """Take the keys of the others, and the authority; forget the keys of the parties in `drop`."""
    folder = pinning.party.folder
    if unknown := set(drop) - set(pinning.absent):
        raise ConfigError(f"party {min(unknown)} is not pinned here, or is in the file that was sent")
    (folder / PEERS).mkdir(exist_ok=True)
    for change in pinning.changes:
        if change.reply is not None and change.state != "same":
            write_text(pinned_at(folder, change.party), change.reply.key + "\n")
    for number in drop:
        pinned_at(folder, number).unlink()
    if pinning.authority in ("vouched", "replaced") and pinning.certificate is not None:
        write_bytes(folder / pinning.party.node.ca, pinning.certificate.encode())


def federation_of(folder: Path) -> str:
    """The federation of a party, from its invitation; without one, its authority's certificate stands for it."""
    path = folder / INVITED
    if path.is_file():
        return read_invitation(path).facts.federation
    return (folder / read_party(folder).node.ca).read_text(encoding="ascii")
