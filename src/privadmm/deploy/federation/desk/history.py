"""Proof that a party's ledger lacks rows: a backup was put back, and what was released since would be spent again.

The party signs a receipt with every release: job, round, phase and the hash of the ledger's row. The coordinator keeps
them, and `begin` brings the last one of every earlier run back. A row that the party signed for and does not find is
missing. Nobody else can make such a proof: what the party did not sign is ignored, so a coordinator that lies cannot
lock a ledger. A key that was replaced left its public half in retired-keys/, and its receipts still count.

The party has a proof of its own, too: jobs/ID.admitted is written after the job's cost was committed to the ledger.

Rows that are missing since the steward restored a backup, or made the ledger anew, were decided about by that. They are
of jobs that had begun before: jobs/ID.epoch says how many such decisions the ledger had when a job began, whatever the
clock said. A job that is not in jobs/ counts as a later one.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from privadmm.data.files import write_text
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.proposal import JOB, MOST
from privadmm.deploy.federation.protocol import HASH, MOST_TOLD, Letter, receipt_content, refused, text
from privadmm.privacy.ledger_file import PUT_BACK, Receipt
from privadmm.privacy.sqlite_ledger import SqliteLedger

RETIRED = "retired-keys"  # the folder of the public halves of keys that were replaced
Signed = tuple[Receipt, str]


def told_receipts(letter: Letter) -> list[Signed]:
    """The receipts that a `begin` brings; entries that no party ever wrote are left out."""
    found = []
    for entry in told_list(letter, "receipts"):
        match entry:
            case [str(job), int(t), int(phase), str(seen), str(signature)]:
                whole = 0 <= t <= MOST and 0 <= phase <= MOST
                if whole and JOB.fullmatch(job) and HASH.fullmatch(seen):
                    found.append(((job, t, phase, seen), signature))
    return found


def told_ended(letter: Letter) -> list[str]:
    """The ids of jobs that a `begin` says are over."""
    return [job for job in told_list(letter, "ended") if isinstance(job, str) and JOB.fullmatch(job)]


def told_list(letter: Letter, key: str) -> list[object]:
    """A list of limited length in a letter; empty where the letter has none, as before there were any."""
    if key not in letter:
        return []
    try:
        told = json.loads(text(letter, key))
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, list) or len(told) > MOST_TOLD:
        raise refused(f"{key} of a begin is a list of at most {MOST_TOLD:,} entries")
    return told


def signed_receipt(party: Party, receipt: Receipt) -> str:
    """The party's signature under a receipt."""
    from privadmm.deploy.federation.signing import seal

    return seal(party.folder / party.node.key, receipt_content(receipt))


def missing(party: Party, ledger: SqliteLedger, receipts: list[Signed]) -> str | None:
    """What proves that the ledger lacks rows, for its steward; None: nothing does."""
    known = set(ledger.jobs())
    for path in sorted(party.jobs.glob("*.admitted")):
        if JOB.fullmatch(path.stem) and path.stem not in known and not settled(party, ledger, path.stem):
            return f"jobs/{path.name} shows that the cost of job {path.stem} was set aside here"
    lost = [(receipt, signature) for receipt, signature in receipts if not ledger.has(receipt)]
    absent = [(receipt, signature) for receipt, signature in lost if not settled(party, ledger, receipt[0])]
    keys = list(own_keys(party)) if absent else []
    for receipt, signature in absent:
        if signed_by(keys, receipt, signature):
            job, t, phase, _ = receipt
            return f"a receipt that this party signed shows that round {t + 1}, phase {phase} of job {job} was released"
    return None


def settled(party: Party, ledger: SqliteLedger, job: str) -> bool:
    """Whether the steward has decided, since this job began, what is charged for rows that are missing."""
    if not (party.jobs / f"{job}.json").is_file():
        return False
    path = epoch_of(party, job)
    # Without one it began with an earlier version, when nobody could restore anything.
    began = path.read_text() if path.is_file() else "0"
    return began.isdecimal() and int(began) < epoch(ledger)


def epoch(ledger: SqliteLedger) -> int:
    """How often the steward has decided about rows that an earlier file of this ledger had."""
    return ledger.count("restore", PUT_BACK) + ledger.count("anew")


def epoch_of(party: Party, job: str) -> Path:
    return party.jobs / f"{job}.epoch"


def begins(party: Party, ledger: SqliteLedger, job: str) -> None:
    """Note, before anything is set aside for a job, how many decisions the ledger has."""
    if not (path := epoch_of(party, job)).is_file():
        write_text(path, str(epoch(ledger)))


def own_keys(party: Party) -> Iterator[bytes]:
    """The public halves of the party's key and of those that it replaced."""
    from privadmm.deploy.federation.signing import public_of

    yield public_of(party.folder / party.node.key)
    for path in sorted((party.folder / RETIRED).glob("*.pub")):
        with suppress(OSError):
            yield path.read_bytes()


def signed_by(keys: list[bytes], receipt: Receipt, signature: str) -> bool:
    from privadmm.deploy.federation.signing import sealed

    return any(sealed(key, receipt_content(receipt), signature) for key in keys)
