"""What a private evaluation keeps and sends: the layout of its messages, and the public table that it is counted by.

In front of every message of the method stand a table of three rows and the model, in its rounds and after them:

    table of 3 x KNOTS | model | the method's own message

Before counting, the table's first row has the edges of the bins; after it, its rows are the knots of a function of the
score, and its values for the two classes (optim/class_curves.py). All of it is made of released values.
"""

from dataclasses import dataclass, replace

import numpy as np

from privadmm.algorithms.moments import with_front
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import COORDINATOR, Mail
from privadmm.engine.phases import Topology, Wrapped
from privadmm.engine.public import Public
from privadmm.errors import ConfigError
from privadmm.optim.class_curves import Curves, Influence, fitted, influence

KNOTS = 32  # the least number of knots of the function; more bins have more
# Edges of the bins on each side of 0, as shares of the largest score that the model can give: its norm.
INNERMOST, OUTERMOST = 0.02, 0.4


@dataclass(frozen=True)
class Judged(Wrapped):
    """The memory of a coordinator that evaluates: the method's own, and what was released about held-out records."""

    model: Floats  # (..., d), the method's model so far
    row: Floats  # (..., width), the method's last message
    table: Floats  # (..., 3 K)
    counts: Floats  # (..., 2 B) of all parties, with noise; the negative class first
    sums: Floats  # (..., 3)
    held: Floats  # (2,), the numbers of records in counts and in sums; 0: not yet, or lost

    @property
    def front(self) -> int:
        return int(self.table.shape[-1] + self.model.shape[-1])


@dataclass(frozen=True)
class Layout:
    """The places of the parts of a message."""

    bins: int
    mapped: bool  # the method has moments in front: its messages begin with a map of the features

    @property
    def knots(self) -> int:
        return max(KNOTS, self.bins)

    def width(self, public: Public) -> int:
        """Numbers of the model."""
        return int(public.dim) + self.mapped

    def front(self, public: Public) -> int:
        """Numbers in front of the method's message."""
        return 3 * self.knots + self.width(public)

    def read(self, row: Floats, public: Public) -> tuple[Floats, Floats, tuple[Floats, Floats] | None]:
        """The table (3, K), the model (..., d), and the map's centres and scales if there is a map."""
        n, front, d = 3 * self.knots, self.front(public), public.dim * self.mapped
        common = np.concatenate([row[..., :n], row[..., front : front + 2 * d]], axis=-1).reshape(-1, n + 2 * d)
        if not (common == common[:1]).all():
            raise ConfigError("replicas have tables or maps of their own: run them one by one")
        map = (common[0, n : n + d], common[0, n + d :]) if self.mapped else None
        return common[0, :n].reshape(3, -1), row[..., n:front], map

    def edges(self, model: Floats, reach: float | None) -> Floats:
        """The table before counting: edges of the bins, even in the logarithm, on both sides of 0.

        A row is at most 1 long, so no score is beyond the model's norm, which is public. Scores beyond the last edge
        are counted in the last bin.
        """
        norm = np.linalg.norm(model, axis=-1, keepdims=True)
        far = np.minimum(np.where(norm > 0, OUTERMOST * norm, 1.0), 1e90) if reach is None else reach
        side = np.geomspace(INNERMOST / OUTERMOST, 1.0, self.bins // 2 - 1)
        shares = np.concatenate([-side[::-1], [0.0], side])
        table = np.zeros((*model.shape[:-1], 3 * self.knots))
        table[..., : self.knots] = np.pad(shares, (0, self.knots - len(shares)), mode="edge") * far
        return table

    def same_to_all(self, topology: Topology, inbox: Mail, memory: Judged) -> Mail:
        """Repeat the method's last message, to everybody who expects one."""
        here: Ints = np.array([COORDINATOR], dtype=np.int64) if topology == "star" else inbox.senders
        rows = np.broadcast_to(memory.row[..., None, :], (*memory.row.shape[:-1], len(here), memory.row.shape[-1]))
        return Mail(here, rows)


def widened(memory: Judged, mail: Mail) -> Mail:
    """Mail with the table and the model in front of every row."""
    return with_front(np.concatenate([memory.table, memory.model], axis=-1), mail)


def judge(memory: Judged, k: int, total: Floats, held: int, bins: int) -> Judged:
    """Keep the sum of the parties' releases in the k-th round of the evaluation; after the first, make the table."""
    both = np.where(np.arange(2) == k, held, memory.held)
    if k == 1:
        return replace(memory, sums=total, held=both)
    memory = replace(memory, counts=total, held=both)
    if total.ndim > 1 or not held:
        return memory
    table = function_of(curves_of(total, memory.table, held, bins), memory.table, held)
    return replace(memory, table=np.concatenate([table.knots, *table.table]))


def curves_of(counts: Floats, table: Floats, held: int, bins: int) -> Curves:
    """The law of each class's scores, from counts (2 B,) between the edges of the first table."""
    return fitted(counts.reshape(2, bins), table[: bins - 1], held)


def function_of(curves: Curves, table: Floats, held: int) -> Influence:
    """The function of a score whose values the second round sums, in a table as large as the first."""
    return influence(curves, held, len(table) // 3)
