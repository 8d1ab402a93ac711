"""Make a ledger, unless its records have one already: an empty ledger forgets what was spent.

`<ledger>-anchor` and `<ledger>-keys` stay where a ledger was. A note beside the records, `<records>-ledger`, names the
ledger that counts them. Whoever makes another ledger all the same gives a reason, which is its first row.
"""

import json
import secrets
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from privadmm.data.files import write_bytes
from privadmm.errors import LedgerError, RefusedError
from privadmm.privacy.accounting import epsilon, printed
from privadmm.privacy.anchor import AnchorFile
from privadmm.privacy.key_file import erase_keys, keys_beside
from privadmm.privacy.ledger_file import Identity, identity_of
from privadmm.privacy.policy import Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify


def new_ledger(
    path: Path,
    ids: Sequence[int],
    policy: Policy,
    mode: str,
    records: Path | None = None,
    anew: str | None = None,
    note: bool = True,
) -> None:
    """Make a ledger for these records. If they, or its place, had one before, `anew` has to give a reason.

    `note`: write beside the records which ledger counts them.
    """
    if path.exists():
        raise LedgerError(f"{path}: exists already, and a ledger is made once; name another file")
    before = earlier(path, records)
    if before and not (anew or "").strip():
        raise RefusedError(
            f"{path}: {'; '.join(before)}. A new ledger forgets what was spent, so the records would be protected less "
            "than it says. Nothing was made: go on with the ledger that there is (`privadmm ledger amend` changes its "
            "policy, `privadmm ledger restore` puts a backup back), or, for records that no job has read, say "
            '--anew --because "..."'
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if before:
        settled = known_epochs(path)
        erase_keys(path)
        for file in (AnchorFile(path).path, keys_beside(path)):
            if file is not None:
                file.unlink(missing_ok=True)
    with closing(SqliteLedger(path, ids, policy, mode)) as made:
        if before:
            with made.transaction():
                told = {"before": before, "settled": settled, "nonce": secrets.token_hex(8)}
                made.append("anew", "", (-1, 0), str(anew), outbox=json.dumps(told).encode())
        if records is not None and note:
            told = {"ledger": str(path.resolve()), "start": made.head, "made": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
            write_bytes(note_of(records), json.dumps(told).encode(), private=True)


def known_epochs(path: Path) -> list[str]:
    """The epochs of the ledger that was here, if its anchor can be read: a new ledger settles them."""
    try:
        known = AnchorFile(path).known()
    except LedgerError:
        return []
    return [] if known is None else list(known.epochs)


def note_of(records: Path) -> Path:
    """The note beside records that names their ledger."""
    place = records.resolve()
    return place.with_name(f"{place.name}-ledger")


def earlier(path: Path, records: Path | None = None) -> list[str]:
    """The traces of an earlier ledger at this place, or of these records; a sentence for each."""
    traces, anchor = [], AnchorFile(path)
    try:
        left = anchor.read()
        if left is not None and left.seq:
            traces.append(f"{anchor.path} is the anchor of a ledger with {left.seq} rows{_spent_by_anchor(anchor)}")
    except LedgerError as error:
        traces.append(str(error))
    if (keys := keys_beside(path)) is not None:
        traces.append(f"{keys} has the keys of an earlier ledger's jobs")
    if records is not None and (note := note_of(records)).exists():
        try:
            first = Path(json.loads(note.read_text())["ledger"])
        except (OSError, ValueError, KeyError, TypeError):
            traces.append(f"{note} says that these records have a ledger, and cannot be read")
        else:
            traces.append(f"{records} is counted by the ledger {first} ({_spent(first)}), says {note}")
    return traces


def _spent(path: Path) -> str:
    """What the ledger at a path has spent, for people."""
    try:
        known = identity_of(path)
        if known is None:
            return "which is not there now" + _spent_by_anchor(AnchorFile(path))
        if known.policy.budget is None:
            return "which has no budget"
        most = max(verify(path).epsilon.values())
    except LedgerError:
        return "which cannot be read now"
    return f"which has spent epsilon = {printed(most, '.6g')} at delta = {printed(known.policy.budget.delta, '.6g')}"


def _spent_by_anchor(anchor: AnchorFile) -> str:
    """What an anchor knows of spending, as the end of a sentence; nothing if it does not know."""
    try:
        known = anchor.known()
    except LedgerError:
        return ""
    budget = None if known is None else Identity.of(known.policy).policy.budget
    if known is None or budget is None or not known.aside:
        return ""
    most = max(epsilon(spent, budget.delta) for spent in set(known.aside.values()))
    return f"; epsilon = {printed(most, '.6g')} was spent or set aside at delta = {printed(budget.delta, '.6g')}"
