"""What goes between parties and whoever drives them: released values by sender, and who has left."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from privadmm import wire

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
COORDINATOR = -1


def nobody() -> Ints:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Mail:
    """Released values by sender: row k of `values` (..., k, width) is what `senders[k]` said.

    `absent` are those who left, (party, round) in party order: from that round on they gave no answer. Whoever drives
    finds out and tells everybody; that somebody left must not depend on records.
    """

    senders: Ints
    values: Floats
    absent: Ints = field(default_factory=nobody)

    @property
    def broadcast(self) -> Floats:
        """What the coordinator said, (..., 1, width): it broadcasts over the parties."""
        return self.values

    @property
    def gone(self) -> Ints:
        """The parties that left."""
        return self.absent[:, 0]

    def only(self, senders: Ints) -> "Mail":
        """What these senders (ascending) said, but for those who left; all others must be here."""
        if len(self.absent):
            senders = np.setdiff1d(senders, self.gone)
        if np.array_equal(self.senders, senders):
            return self
        rows = np.minimum(np.searchsorted(self.senders, senders), len(self.senders) - 1)
        if not np.array_equal(self.senders[rows], senders):
            raise ValueError("the mail lacks a message that a block must hear")
        return replace(self, senders=senders, values=self.values[..., rows, :])

    @staticmethod
    def join(parts: Sequence["Mail"]) -> "Mail":
        """All parts, in sender order: sums over mail then do not depend on the partition."""
        parts = [part for part in parts if len(part.senders)] or parts[:1]
        if len(parts) == 1 and np.all(np.diff(parts[0].senders) > 0):
            return parts[0]
        senders = np.concatenate([part.senders for part in parts])
        order = np.argsort(senders)
        return Mail(senders[order], np.concatenate([part.values for part in parts], axis=-2)[..., order, :])

    @staticmethod
    def empty() -> "Mail":
        """Of nobody."""
        return Mail(np.empty(0, dtype=np.int64), np.empty((0, 0)))

    def after(self, round: int, before: Ints, parties: Ints) -> "Mail":
        """The same, knowing who was absent `before`: whoever else of the parties is no sender left in this round."""
        if not (len(before) or len(self.absent)) and np.array_equal(self.senders, parties):
            return self
        fresh = np.setdiff1d(parties, np.concatenate([self.senders, before[:, 0]]))
        absent = np.concatenate([before, np.stack([fresh, np.full_like(fresh, round)], axis=1)])
        return replace(self, absent=absent[np.argsort(absent[:, 0])])

    def sound(self, parties: int) -> bool:
        """Whether `absent` is what it should be, of so many parties."""
        absent = self.absent
        if absent.dtype != np.int64 or absent.ndim != 2 or absent.shape[1] != 2:
            return False
        gone = self.gone
        return not len(gone) or bool(
            np.all(np.diff(gone) > 0) and np.all((gone >= 0) & (gone < parties) & (absent[:, 1] >= 0))
        )

    def pack(self) -> bytes:
        absent = {"absent": self.absent} if len(self.absent) else {}
        return wire.pack({"senders": self.senders, "values": self.values} | absent)

    @staticmethod
    def unpack(data: bytes) -> "Mail":
        return Mail(**wire.unpack(data)[0])
