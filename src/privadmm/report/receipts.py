"""Receipts: the hash of the ledger's row, as it came with each release.

A run keeps them, so that a ledger from which rows were cut off, or which was replaced by an older copy, shows.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from privadmm.drive import Parties, View
from privadmm.errors import LedgerError
from privadmm.privacy.durable import Receipt, identity_of

NAME = "receipts.csv"


@dataclass(frozen=True)
class Receipts:
    """A callback that appends what the ledgers answered in the round."""

    path: Path
    cluster: Parties

    def __call__(self, view: View) -> None:
        fresh = not self.path.exists()
        with self.path.open("a", newline="") as file:
            table = csv.writer(file)
            if fresh:
                table.writerow(("job", "round", "phase", "hash", "party"))
            table.writerows(self.cluster.receipts(view.progress.round - 1))


def read(directory: Path) -> list[tuple[Receipt, int]]:
    """Receipts, each with the first party of its block. A line torn by a crash is the last one, and is left out."""
    path = directory / NAME
    if not path.is_file():
        raise LedgerError(f"{directory}: has no {NAME}; name the directory of a run")
    with path.open(newline="") as file:
        rows = [row for row in csv.reader(file) if len(row) == 5 and len(row[3]) == 64 and row[4].isdigit()]
    return [((job, int(round), int(phase), seen), int(party)) for job, round, phase, seen, party in rows]


def of_ledger(directory: Path, file: Path) -> list[Receipt]:
    """Those of the block whose ledger this is; all of them if none is, so that a stranger shows."""
    found, known = read(directory), identity_of(file)
    mine = [seen for seen, first in found if known is not None and first == known.parties[0]]
    return mine or [seen for seen, _ in found]
