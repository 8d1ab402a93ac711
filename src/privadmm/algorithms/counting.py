"""What a party releases about its held-out records: counts by class and score, and sums of bounded numbers.

A record's score under a public model is s, its class c. Given any table of public numbers,

    counts   of records of class c whose score lies between two edges of the table                         (1)
    totals   of g_c(s), of LESS min(loss, clip)/clip, and of LESS where s has the right sign               (2)

g is linear between the table's knots, and cut to [0, 1] here, whatever the table says; so are the other two terms. Each
term is rounded to a multiple of 2^-20. Its bound is such a multiple, so the term stays within it, and sums are exact.
To replace a record, or its label alone, moves one record from one count to another: (1) by sqrt(2) at most, and (2) by
sqrt(1 + 2 LESS^2) at most (docs/privacy.md#evaluation).
"""

import math
from dataclasses import dataclass

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.data.storage import Mask
from privadmm.optim.losses import LINKED, Loss, link

LESS = 0.3125  # the weight of losses and hits beside g: a multiple of 1/FINE, so that rounding stays within it
# How far (1) and (2) move. The roots are rounded up, or they would be no bounds.
MOVES = tuple(math.nextafter(math.sqrt(square), math.inf) for square in (2, 1 + 2 * LESS**2))
FINE = 2.0**20


@dataclass(frozen=True)
class HeldOut:
    """Held-out records of a block under a public model."""

    shards: Shards
    scores: Floats  # (..., n)

    @staticmethod
    def under(w: Floats, shards: Shards) -> "HeldOut":
        """Score these records with the model w (..., d), without a map of the features."""
        return HeldOut(
            shards, shards.margins(np.broadcast_to(w[..., None, :], (*w.shape[:-1], len(shards.ids), shards.dim)))
        )

    @property
    def positive(self) -> Mask:
        return self.shards.y > 0

    def counts(self, edges: Floats) -> Floats:
        """The counts (1) of each party: (..., P, 2 bins), the negative class first."""
        bins = len(edges) + 1
        cell = self.positive * bins + np.searchsorted(np.sort(edges), self.scores, side="right")
        return np.stack([self.shards.sums((cell == number) * 1.0) for number in range(2 * bins)], axis=-1)

    def totals(self, table: Floats, loss: Loss, clip: float) -> Floats:
        """The totals (2) of each party: (..., P, 3). The table: knots, g of the negative class, g of the other."""
        order = np.argsort(table[0], kind="stable")
        g = [np.interp(self.scores, table[0, order], bounded(row[order])) for row in table[1:]]
        terms = (
            np.where(self.positive, g[1], g[0]),
            LESS * np.minimum(self.losses(loss) / clip, 1.0),
            LESS * ((self.scores > 0) == self.positive),
        )
        return np.stack([self.shards.sums(bounded(term)) for term in terms], axis=-1)

    def losses(self, loss: Loss) -> Floats:
        """The log loss if a score tells how likely a class is; else the loss of the training."""
        if isinstance(loss, LINKED):
            return np.asarray(-np.log(np.maximum(link(loss, self.shards.y * np.clip(self.scores, -700, 700)), 1e-300)))
        return loss.value(np.clip(self.scores, -1e6, 1e6), self.shards.y)


def bounded(term: Floats) -> Floats:
    """Cut a term of every record to [0, 1], in steps that add up without rounding; NaN counts as 0."""
    return np.asarray(np.rint(np.clip(np.nan_to_num(term), 0.0, 1.0) * FINE) / FINE)
