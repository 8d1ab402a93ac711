"""A party's refusals, put into its ledger. Whatever comes of that, the coordinator gets the same answer."""

from contextlib import closing, suppress

from privadmm.deploy.federation.desk.party_log import Line
from privadmm.deploy.federation.proposal import JOB
from privadmm.deploy.federation.protocol import Letter
from privadmm.errors import LockedError, RefusedError
from privadmm.privacy.ledger_file import identity_of
from privadmm.privacy.refusals import PATIENCE
from privadmm.privacy.sqlite_ledger import SqliteLedger


def noted(line: Line, letter: Letter, error: RefusedError | LockedError) -> None:
    """Record a refusal, unless the ledger has it, is not there, or cannot be written now. requests.log has it too."""
    with suppress(Exception):
        if line.ledger is None or error.recorded or not line.ledger.exists() or not line.ledger.stat().st_size:
            return
        job = str(letter.get("job", line.job))
        known = identity_of(line.ledger)
        if known is not None:
            facts = (known.parties, known.policy, known.mode)
            with closing(SqliteLedger(line.ledger, *facts, patience=PATIENCE)) as ledger:
                ledger.note_refusal(error, line.asked, job if JOB.fullmatch(job) else "")
