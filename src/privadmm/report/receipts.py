"""Receipts: the hash of the ledger's row, as it came with each release.

A run keeps them, so that a ledger from which rows were cut off, or which was replaced by an older copy, shows.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from privadmm.drive import View
from privadmm.engines.inprocess import InProcess
from privadmm.errors import LedgerError
from privadmm.privacy.durable import Receipt

NAME = "receipts.csv"


@dataclass(frozen=True)
class Receipts:
    """A callback that appends what the ledgers answered in the round."""

    path: Path
    cluster: InProcess

    def __call__(self, view: View) -> None:
        fresh = not self.path.exists()
        with self.path.open("a", newline="") as file:
            table = csv.writer(file)
            if fresh:
                table.writerow(("job", "round", "phase", "hash"))
            table.writerows(self.cluster.receipts(view.progress.round - 1))


def read(directory: Path) -> list[Receipt]:
    """(job, round, phase, hash). A line that was torn by a crash is the last one, and is left out."""
    path = directory / NAME
    if not path.is_file():
        raise LedgerError(f"{directory}: has no {NAME}; name the directory of a run")
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) == 4 and len(row[3]) == 64]
    return [(job, int(round), int(phase), seen) for job, round, phase, seen in rows]
