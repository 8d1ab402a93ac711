"""Labels that are randomised once, before anything is learnt from them (docs/privacy.md#labels).

Every label is reported as it is with probability e^epsilon/(1 + e^epsilon), and as the other one else. Whatever is done
with the reported labels, by whomever and for how long, nobody learns more than epsilon of a true one; but a second
report of the same label would add another epsilon. So the reports are drawn once for a data set and kept in its ledger,
every job on that ledger reads these and no others, and a ledger is made for such jobs or for none.

A ledger is of one data set: the same records, in the same order.
"""

import numpy as np

from privadmm import wire
from privadmm.data.packing import Array
from privadmm.data.shards import Shards
from privadmm.errors import RefusedError
from privadmm.privacy.events import RandomizedResponse
from privadmm.privacy.ledger import Ledger
from privadmm.privacy.mechanisms import Noise

LABELS = "labels"
HOLDER = 2**64 - 1  # whose labels are drawn where no party has them: the coordinator, as a stream of noise


def reported(shards: Shards, ledger: Ledger, noise: Noise, epsilon: float) -> Shards:
    """The block with the labels that its parties report, drawn now if they never were."""

    def draw() -> bytes:
        found = [
            np.where(noise.flips(epsilon, len(y), int(party)), -y, y).astype(np.int8)
            for party, y in zip(shards.ids, shards.labels(), strict=True)
        ]
        return wire.pack({"labels": np.concatenate(found), "sizes": shards.sizes}, epsilon=epsilon)

    arrays, facts = wire.unpack(ledger.keep("", LABELS, draw, RandomizedResponse(epsilon)))
    if facts["epsilon"] != epsilon or not np.array_equal(arrays["sizes"], shards.sizes):
        raise RefusedError(
            f"the labels of parties with {arrays['sizes'].tolist()[:5]} records were randomised with label_epsilon = "
            f"{facts['epsilon']}, and the job has {shards.sizes.tolist()[:5]} and {epsilon}: a second report of a "
            "label would tell more of it. Nothing was released: use the records and label_epsilon of the ledger"
        )
    labels = arrays["labels"].astype(np.float64)
    return shards.with_labels(np.split(labels, np.cumsum(shards.sizes)[:-1]))


def reported_by_holder(y: Array, ledger: Ledger, noise: Noise, epsilon: float) -> Array:
    """The same for labels (N,) at a coordinator. They are kept in the ledger that counts for its people."""

    def draw() -> bytes:
        said = np.where(noise.flips(epsilon, len(y), HOLDER), -y, y).astype(np.int8)
        return wire.pack({"labels": said}, epsilon=epsilon)

    arrays, facts = wire.unpack(ledger.keep("", LABELS, draw, RandomizedResponse(epsilon)))
    if facts["epsilon"] != epsilon or len(arrays["labels"]) != len(y):
        raise RefusedError(
            f"the labels of {len(arrays['labels'])} people were randomised with label_epsilon = {facts['epsilon']}, "
            f"and the job has {len(y)} people and {epsilon}: a second report of a label would tell more of it. "
            "Nothing was released: use the people and label_epsilon of the ledger"
        )
    return np.asarray(arrays["labels"], dtype=np.float64)
