"""What a coordinator knows of its earlier runs, and tells every party when another one begins.

The last receipt of each run lets a party notice that its ledger was put back from a backup. The jobs that are over let
a party that was away when they ended free what it had set aside.
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
    """Read all run directories of a coordinator; one that is damaged is told, and left out."""
    found: dict[int, list[tuple[Receipt, str]]] = defaultdict(list)
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
        for party, one in last.items():
            found[party].append(one)
        if run.result.exists():
            ended[job] = None
    return Earlier(found, list(ended))
