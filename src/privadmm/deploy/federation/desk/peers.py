"""Keys of a secure sum between organisations: each party signs its own, and checks the others' by pinned keys.

Whoever picks the keys of a sum can read every message in it. So a party takes no coordinator's word for them: it pins
the other parties' public node keys in its own directory, peers/party-N.pub, as their owners handed them over.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from privadmm.deploy.federation.party import PEERS, Party
from privadmm.deploy.federation.protocol import refused
from privadmm.engine.job import Job
from privadmm.engine.sums import accept_roster, introduced
from privadmm.errors import ConfigError
from privadmm.privacy.ledger import Ledger
from privadmm.privacy.masks import Entry, Roster


def pin(folder: Path, number: int) -> Path:
    """Where a party keeps the public key of another."""
    return folder / PEERS / f"party-{number}.pub"


def own_entry(party: Party, job: Job, ledger: Ledger) -> str:
    """The party's entry of the roster, signed with its node key."""
    from privadmm.deploy.federation.signing import seal

    entry, last = introduced(job, np.array([party.number]), ledger), ledger.latest(job.id)
    done = last is not None and last[0].round + 1 == job.public.rounds
    if ledger.secret(job.id) is None and not done:  # refuse now, before the other parties pay for another round
        raise refused(f"the key of job {job.id} is lost or was erased, and the job cannot go on here")
    if not entry.signature:
        entry = replace(entry, signature=seal(party.folder / party.node.key, entry.content(job.id, job.digest)))
    return entry.pack()


def accept(party: Party, job: Job, ledger: Ledger, roster: Roster) -> None:
    """Take the first roster of a job, if every party in it signed for the job as it was proposed here."""
    try:
        check_pins(party.folder, party.number, job.public.parties)
    except ConfigError as error:
        raise refused(str(error)) from None
    accept_roster(job, np.array([party.number]), ledger, roster.pack(), signed(party.folder, job))


def signed(folder: Path, job: Job) -> Callable[[Entry, int], bool]:
    """Make a function that refuses an entry unless the key pinned for its party signed it."""
    from privadmm.deploy.federation.signing import sealed

    def check(entry: Entry, number: int) -> bool:
        if len(entry.parties) > 1:
            raise refused(f"the roster has one key for {len(entry.parties)} parties, and each has its own here")
        try:
            check_pin(folder, number)
        except ConfigError as error:
            raise refused(str(error)) from None
        if not sealed(pin(folder, number).read_bytes(), entry.content(job.id, job.digest), entry.signature):
            raise refused(
                f"the key of party {number} in the roster is not signed, for the job as it was proposed here, by the "
                f"key in {PEERS}/{pin(folder, number).name}: that party was told another job, or has another key; ask "
                "it, and not the coordinator"
            )
        return True

    return check


def check_pin(folder: Path, number: int) -> None:
    """Refuse a pinned key that is missing, or is no public key."""
    from privadmm.deploy.federation.keys import check_public_key

    path = pin(folder, number)
    if not path.is_file():
        raise ConfigError(
            f"{path}: no such file; put the public key of party {number} there (its node-key.pub), as that party and "
            "not the coordinator handed it over"
        )
    check_public_key(path)


def check_pins(folder: Path, own: int, parties: int) -> None:
    """Refuse a directory in which the key of one of the other parties is missing, unreadable, or somebody else's."""
    owners: dict[bytes, int] = {}
    for number in range(parties):
        if number != own:
            check_pin(folder, number)
            path = pin(folder, number)
            first = owners.setdefault(key_in(path), number)
            if first != number:
                raise ConfigError(f"{path}: is the key of party {first}, too; ask party {number} for its own")


def key_in(path: Path) -> bytes:
    """A public key without the comment behind it."""
    return b" ".join(path.read_bytes().split()[:2])
