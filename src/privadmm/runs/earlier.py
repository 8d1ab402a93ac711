"""Collect what a coordinator tells every party about earlier runs when another run begins.

By the last receipt of each run a party notices that its ledger was restored from an old backup. By the list of ended
jobs, a party that was away when they ended frees the budget that it had reserved for them.
"""

import json
from collections import defaultdict
from collections.abc import Callable

from privadmm.deploy.federation.hub.coordinator import Earlier, ended_jobs
from privadmm.deploy.federation.layout import Coordinator
from privadmm.errors import LedgerError
from privadmm.privacy.ledger_file import Receipt
from privadmm.runs.rundir import RunDir, signed_receipts


def earlier(place: Coordinator, tell: Callable[[str], None]) -> Earlier:
    """Read all run directories of a coordinator. Report a damaged one by `tell`, and leave it out."""
    receipts: dict[int, list[tuple[Receipt, str]]] = defaultdict(list)
    ended = dict.fromkeys(ended_jobs(place.ended))
    for path in sorted(place.runs.rglob("job.json"), key=lambda path: path.stat().st_mtime_ns):
        run = RunDir(path.parent)
        try:
            job = str(json.loads(run.job.read_bytes())["job"])
            signed = signed_receipts(run.path) if run.receipts.exists() else []
        except (LedgerError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            tell(f"{run.path}: its receipts cannot be shown to the parties: {error}")
            continue
        last = dict[int, tuple[Receipt, str]]()
        for receipt, party, signature in signed:
            if signature and (party not in last or receipt[1:3] >= last[party][0][1:3]):
                last[party] = (receipt, signature)
        for party, signed_receipt in last.items():
            receipts[party].append(signed_receipt)
        if run.result.exists():
            ended[job] = None
    return Earlier(receipts, list(ended))
