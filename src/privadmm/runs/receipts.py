"""Receipts: the hash of the ledger's row, as it came with each release.

A run keeps them, so that a ledger from which rows were cut off, or which was replaced by an older copy, shows.
"""

import csv
import io
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from privadmm.data.files import for_owner
from privadmm.engine.loop import Parties, View
from privadmm.errors import LedgerError
from privadmm.privacy.ledger_file import Receipt, identity_of

NAME = "receipts.csv"
HEADER = ("job", "round", "phase", "hash", "party")
ROW = re.compile(r"([ !#-+\--~]+),([0-9]{1,18}),([0-9]{1,18}),([0-9a-f]{64}),([0-9]{1,18})")


@dataclass(frozen=True)
class Receipts:
    """A callback that appends what the ledgers answered in the round."""

    path: Path
    cluster: Parties

    def __call__(self, view: View) -> None:
        text = io.StringIO()
        table = csv.writer(text)
        with open(self.path, "ab+", opener=for_owner) as file:
            if not forget_torn_line(file):
                table.writerow(HEADER)
            table.writerows(self.cluster.receipts(view.progress.round - 1))
            file.write(text.getvalue().encode())


def forget_torn_line(file: IO[bytes]) -> int:
    """How long the file is without a line that a crash tore, to which the next one would be joined."""
    size = file.seek(0, os.SEEK_END)
    if size:
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            size = file.truncate(len(whole_lines(file.read())))
    return size


def whole_lines(data: bytes) -> bytes:
    """Without a last line that has no end."""
    return data[: data.rfind(b"\n") + 1]


def read(directory: Path) -> list[tuple[Receipt, int]]:
    """Receipts, each with the first party of its block. A line torn by a crash is the last one, and is left out.

    Any other that is no receipt is an error: what it said would be missed when a ledger is compared.
    """
    path = directory / NAME
    if not path.is_file():
        raise LedgerError(f"{directory}: has no {NAME}; name the directory of a run")
    lines = whole_lines(path.read_bytes()).decode(errors="replace").splitlines()
    found = []
    for number, line in enumerate(lines, start=1):
        row = ROW.fullmatch(line)
        if number > 1 and row is not None:
            job, round, phase, seen, party = row.groups()
            found.append(((job, int(round), int(phase), seen), int(party)))
        elif number > 1 or line != ",".join(HEADER):
            raise LedgerError(f"{path}: line {number} is damaged; put the file back as the run left it")
    return found


def of_ledger(directory: Path, file: Path) -> list[Receipt]:
    """Those of the block whose ledger this is; all of them if none is, so that a stranger shows."""
    found, known = read(directory), identity_of(file)
    if not found:
        raise LedgerError(f"{directory / NAME}: holds no receipt, so there is nothing to compare the ledger with")
    mine = [seen for seen, first in found if known is not None and first == known.parties[0]]
    return mine or [seen for seen, _ in found]
