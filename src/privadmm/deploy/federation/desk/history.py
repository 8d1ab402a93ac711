"""Proof that a party's ledger lacks rows: a backup was put back, and what was released since would be spent again.

The party signs a receipt with every release: job, round, phase and the hash of the ledger's row. The coordinator keeps
the receipts, and `begin` brings back the last one of every earlier run. If the ledger lacks a row that the party signed
for, rows are missing. Receipts that the party did not sign are ignored, so a coordinator that lies cannot lock a
ledger. A key that was replaced left its public half in retired-keys/, and its receipts still count.

The party has a proof of its own, too: jobs/ID.admitted is written after the job's cost was committed to the ledger.

A steward who restores a backup, or makes the ledger anew, decides about the missing rows: this begins a new epoch of
the ledger, and settles the epochs before it. A receipt and jobs/ID.epoch name the epoch in which they were made. A
proof from an epoch that the ledger does not know locks the ledger once, until the steward's decision settles it.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from privadmm.data.files import write_text
from privadmm.deploy.federation.letters import Signed
from privadmm.deploy.federation.party import Party
from privadmm.deploy.federation.proposal import JOB
from privadmm.deploy.federation.protocol import HASH, receipt_content, split_signature
from privadmm.privacy.ledger_file import Receipt
from privadmm.privacy.sqlite_ledger import SqliteLedger

RETIRED = "retired-keys"  # the folder of the public halves of keys that were replaced
MOST_CHECKED = 1000  # receipts of missing rows whose signatures are looked at: each takes a millisecond


def signed_receipt(party: Party, receipt: Receipt, epoch: str) -> str:
    """The ledger's epoch, a colon, and the party's signature of a receipt."""
    from privadmm.deploy.federation.signing import seal

    return f"{epoch}:{seal(party.folder / party.node.key, receipt_content(receipt, epoch))}"


def missing(party: Party, ledger: SqliteLedger, receipts: Sequence[Signed]) -> tuple[str, str] | None:
    """A proof that the ledger lacks rows, in words for its steward, and the rows' epoch; None without a proof."""
    known, settled = set(ledger.jobs()), set(ledger.settled)
    for path in sorted(party.jobs.glob("*.admitted")):
        began = began_in(party, ledger, path.stem)
        if JOB.fullmatch(path.stem) and path.stem not in known and began not in settled:
            return f"jobs/{path.name} shows that the cost of job {path.stem} was set aside here", began
    lost = [(receipt, *split_signature(signature)) for receipt, signature in receipts if not ledger.has(receipt)]
    open_proofs = [(receipt, epoch, rest) for receipt, epoch, rest in lost if epoch not in settled]
    keys = list(own_keys(party)) if open_proofs else []
    for receipt, epoch, rest in open_proofs[:MOST_CHECKED]:
        if signed_by(keys, receipt_content(receipt, epoch), rest):
            job, t, phase, _ = receipt
            said = f"a receipt that this party signed shows that round {t + 1}, phase {phase} of job {job} was released"
            return said, epoch
    return None


def epoch_of(party: Party, job: str) -> Path:
    return party.jobs / f"{job}.epoch"


def began_in(party: Party, ledger: SqliteLedger, job: str) -> str:
    """The epoch in which a job was last begun here; the first epoch, if an earlier version began it."""
    path = epoch_of(party, job)
    said = path.read_text().strip() if path.is_file() else ""
    return said if HASH.fullmatch(said) else ledger.first_epoch


def begins(party: Party, ledger: SqliteLedger, job: str) -> None:
    """Note the ledger's epoch before anything is set aside for a job; proofs of earlier epochs are settled by then."""
    path, now = epoch_of(party, job), ledger.epoch
    if not path.is_file() or path.read_text() != now:
        (party.jobs / f"{job}.admitted").unlink(missing_ok=True)
        write_text(path, now)


def own_keys(party: Party) -> Iterator[bytes]:
    """The public halves of the party's key and of those that it replaced."""
    from privadmm.deploy.federation.signing import public_of

    yield public_of(party.folder / party.node.key)
    for path in sorted((party.folder / RETIRED).glob("*.pub")):
        with suppress(OSError):
            yield path.read_bytes()


def signed_by(keys: list[bytes], content: bytes, signature: str) -> bool:
    from privadmm.deploy.federation.signing import sealed

    return any(sealed(key, content, signature) for key in keys)
