"""What a party's budget has spent and left, for a line of its log at every letter, however many jobs there were.

To add up all jobs takes the longer the more there were. So what the others spent or set aside is remembered, in cache/,
together with the end of the ledger's chain: while only this job adds rows, it stays what it is.
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
    """What all jobs but one have spent, and spent or set aside, when a ledger ended with `head`."""

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
        """Write it down, over what was there: a file system waits for the disk when a file is replaced.

        Whatever comes of that, it can be counted again.
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
    """Epsilon of all releases so far, and what is neither spent nor set aside of the budget.

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
