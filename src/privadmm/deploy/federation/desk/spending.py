"""What is spent and left of a party's budget, for its log at every letter, fast however many jobs there were.

Adding up all jobs takes longer with every job. So cache/ remembers what the other jobs spent or set aside, together
with the end of the ledger's chain: as long as only this job adds rows, their sum does not change.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from privadmm.data.arrays import digest
from privadmm.deploy.federation.desk.cache import FOLDER
from privadmm.privacy.accounting import epsilon
from privadmm.privacy.events import Spent, less, merge
from privadmm.privacy.ledger_file import pack_charges, unpack_charges
from privadmm.privacy.policy import Budget
from privadmm.privacy.sqlite_ledger import SqliteLedger

FILE = "spent.json"


@dataclass(frozen=True)
class Others:
    """What all jobs except `job` have spent, and spent or set aside, when the ledger ended with `head`."""

    head: str
    job: str
    spent: Spent
    aside: Spent

    @staticmethod
    def counted(ledger: SqliteLedger, party: int, job: str) -> "Others":
        mine = ledger.spent(party, job)
        return Others(ledger.head, job, less(ledger.spent(party), mine), ledger.others(party, job))

    @staticmethod
    def remembered(folder: Path) -> "Others | None":
        """Read what `keep` wrote; None if there is nothing, or the file is damaged."""
        with suppress(OSError):
            line = (folder / FOLDER / FILE).read_bytes().partition(b"\n")[0]
            if line[:64] == digest(line[64:]).encode():
                head, job, spent, aside = json.loads(line[64:])
                return Others(head, job, unpack_charges(spent)[0], unpack_charges(aside)[0])
        return None

    def keep(self, folder: Path) -> None:
        """Overwrite the file in place: replacing it would wait for the disk.

        A file that is damaged by this does no harm: its digest shows it, and the jobs are counted again.
        """
        tables = [pack_charges({0: self.spent}), pack_charges({0: self.aside})]
        content = json.dumps([self.head, self.job, *tables]).encode()
        with suppress(OSError):
            file = os.open(folder / FOLDER / FILE, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                os.write(file, digest(content).encode() + content + b"\n")
            finally:
                os.close(file)


def spent_and_left(
    folder: Path, ledger: SqliteLedger, party: int, budget: Budget, job: str, before: str | None = None
) -> tuple[float, float]:
    """Epsilon of all releases so far, and the part of the budget that is neither spent nor set aside.

    `before` is where the chain ended before this letter, which added rows of `job` only.
    """
    known = None if before is None else Others.remembered(folder)
    if known is None or (known.head, known.job) != (before, job):
        known = Others.counted(ledger, party, job)
    Others(ledger.head, job, known.spent, known.aside).keep(folder)
    mine, promised = ledger.spent(party, job), ledger.reserved(party, job)
    aside = merge(known.aside, mine if promised is None else promised)
    left = budget.epsilon - epsilon(aside, budget.delta)
    return epsilon(merge(known.spent, mine), budget.delta), max(0.0, left)
