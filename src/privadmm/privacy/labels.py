"""Labels that are randomised once, before anything is learnt from them (docs/privacy.md#labels).

Every label is reported as it is with probability e^epsilon/(1 + e^epsilon), and otherwise as the other one. Whatever is
done with the reported labels, nobody learns more than epsilon of a true one; a second report of the same label would
add another epsilon. So the reports are drawn once for a data set and kept in its ledger, every job on that ledger reads
these and no others, and a ledger is made for such jobs or for none.

A ledger is of one data set: one label column, its classes in one order, and the same records in the same order. The
reports are kept with all three, and a job that differs in one of them is refused before anything is set aside for it.

What a refusal tells. Column and classes are declared by the party itself: another one is a RefusedError, whose text may
be told to a coordinator. Records are compared by a digest of their features, which never leaves the ledger (a secret
stands before it in the hash chain). Another digest is a DataError, of which a party tells its coordinator the kind
only. Nothing that a coordinator chooses enters the digest, so every job gets the same answer; and for a data set that
does not change, which is what a guarantee is about, that answer never depends on what the records are.
"""

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Floats, Ints
from privadmm.data.columns import People
from privadmm.data.label_source import LabelSource
from privadmm.data.shards import Shards
from privadmm.errors import DataError, LedgerError, RefusedError
from privadmm.privacy.events import RandomizedResponse
from privadmm.privacy.ledger import Ledger
from privadmm.privacy.mechanisms import Noise

LABELS = "labels"
HOLDER = 2**64 - 1  # the coordinator's number, for the stream of noise on labels that no party holds


def reported(shards: Shards, ledger: Ledger, noise: Noise, epsilon: float) -> Shards:
    """The block with its randomised labels, drawn now if they never were."""

    def draw() -> Floats:
        parties = zip(shards.ids, shards.sizes, shards.labels(), strict=True)
        return np.concatenate([np.where(noise.flips(epsilon, int(n), int(i)), -y, y) for i, n, y in parties])

    labels = _drawn_once(draw, shards.sizes, shards.source, ledger, epsilon)
    return shards.with_labels(np.split(labels, np.cumsum(shards.sizes)[:-1]))


def reported_by_holder(y: Floats, source: LabelSource | None, ledger: Ledger, noise: Noise, epsilon: float) -> Floats:
    """The randomised labels (N,) of a coordinator, which `ledger` keeps; drawn now if they never were."""

    def draw() -> Floats:
        return np.where(noise.flips(epsilon, len(y), HOLDER), -y, y)

    return _drawn_once(draw, np.array([len(y)]), source, ledger, epsilon)


def check_kept(data: Shards | People, ledger: Ledger, epsilon: float) -> None:
    """Refuse a job whose ledger keeps reports of other labels. Call it before anything is set aside for the job."""
    if ledger.policy.label_epsilon != epsilon:
        return  # the ledger's policy refuses the job, and says why
    if (stored := ledger.kept("", LABELS)) is not None:
        sizes = np.array([data.columns.people]) if isinstance(data, People) else data.sizes
        _matched(stored, sizes, data.source, ledger, epsilon)


def _drawn_once(
    draw: Callable[[], Floats], sizes: Ints, source: LabelSource | None, ledger: Ledger, epsilon: float
) -> Floats:
    """The reports that the ledger keeps of these labels, one party after another, drawn now if there are none."""

    def make() -> bytes:
        known = _known(source)
        facts = {"column": known.column, "classes": list(known.classes), "rows": list(known.rows)}
        return arrays.pack({"labels": draw().astype(np.int8), "sizes": sizes}, epsilon=epsilon, **facts)

    stored = ledger.keep("", LABELS, make, RandomizedResponse(epsilon))
    return _matched(stored, sizes, source, ledger, epsilon)


def _known(source: LabelSource | None) -> LabelSource:
    """Refuse records without a digest: their randomised labels could later be given to other records."""
    if source is None:
        raise DataError("labels can be randomised only of records that were digested when they were read")
    return source


def _matched(stored: bytes, sizes: Ints, source: LabelSource | None, ledger: Ledger, epsilon: float) -> Floats:
    """The kept reports; refused unless they are of these labels of these records."""
    file = f"{path}: " if (path := getattr(ledger, "path", None)) else ""
    try:
        before, facts = arrays.unpack(stored)
        reports, _ = before["labels"], facts["epsilon"]
        if reports.ndim != 1 or len(reports) != before["sizes"].sum() or not np.all(np.abs(reports) == 1):
            raise ValueError("they are not one report of -1 or +1 for each record")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LedgerError(f"{file}the labels that it keeps are damaged ({error})") from error
    known = _known(source)
    if not facts.keys() >= {"column", "classes", "rows"}:
        raise RefusedError(
            f"{file}the labels kept here were randomised by a version of privadmm that did not record of which "
            "column, classes and records they are, so they may be others than the job's. Nothing was released: end "
            "its jobs with that version, and make a new ledger for records whose labels were not reported before"
        )
    kept = LabelSource(str(facts["column"]), tuple(facts["classes"]), tuple(facts["rows"]))
    if facts["epsilon"] != epsilon or not np.array_equal(before["sizes"], sizes):
        raise RefusedError(
            f"{file}the labels of parties with {_few(before['sizes'])} records were randomised with label_epsilon = "
            f"{facts['epsilon']}, and the job has {_few(sizes)} and {epsilon}: a second report of a label would tell "
            "more of it. Nothing was released: use the records and label_epsilon of the ledger"
        )
    if (kept.column, kept.classes) != (known.column, known.classes):
        raise RefusedError(
            f"{file}the labels kept here are reports of column {kept.column!r} with classes {list(kept.classes)}, "
            f"negative first, and the job has {known.column!r} with {list(known.classes)}: it would learn from the "
            "wrong labels. Nothing was released: use the label and classes of the ledger; other labels of the same "
            "records need a ledger of their own, and what both tell of a record adds up"
        )
    if kept.rows != known.rows:
        differ = sum(old != new for old, new in zip_longest(kept.rows, known.rows))
        raise DataError(
            f"{file}the records (of {differ} of {len(kept.rows)} parties) are not those whose labels were randomised, "
            "not in that order, or read into other features: reports would go to the wrong records. Nothing was "
            "released: put records, their order and [data] back as they were; other records need a ledger of their own"
        )
    return np.asarray(before["labels"], dtype=np.float64)


def _few(sizes: Any) -> list[int]:
    return [int(size) for size in sizes[:5]]
