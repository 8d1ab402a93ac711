"""The mail between parties and the driver of a run: released values by sender, and who has left."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from privadmm.data import arrays
from privadmm.data.arrays import Array, Floats, Ints
from privadmm.errors import DivergedError, MessageError

COORDINATOR = -1
LARGEST = 1e100  # the largest entry of an inbox that a party accepts
# The largest entry of a message that a party sends: twenty orders of magnitude below LARGEST, so that inboxes made of
# such messages, by sums and steps, are far from what parties refuse.
LARGEST_SENT = 1e80


def nobody() -> Ints:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class Mail:
    """Released values by sender: row k of `values` (..., k, width) is what `senders[k]` said.

    Sealed mail has words in place of numbers, and one row for all of its senders together: it tells nothing until the
    mail of all parties is added up (privacy/sums.py).

    `absent` lists the parties that left, as (party, round) in party order: from that round on they gave no answer. The
    driver notices it and tells everybody. That somebody left must not depend on records.
    """

    senders: Ints
    values: Array
    absent: Ints = field(default_factory=nobody)

    @property
    def sealed(self) -> bool:
        return self.values.dtype == np.uint64

    @property
    def broadcast(self) -> Floats:
        """The coordinator's message, (..., 1, width), which numpy broadcasts over the parties."""
        return self.values

    @property
    def gone(self) -> Ints:
        """The parties that left."""
        return self.absent[:, 0]

    def only(self, senders: Ints) -> "Mail":
        """The messages of these senders (ascending), without those who left; a missing one is an error."""
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
        """Join parts in sender order, so that sums over mail do not depend on the partition; add sealed ones up."""
        parts = [part for part in parts if len(part.senders)] or parts[:1]
        if len(parts) == 1 and np.all(np.diff(parts[0].senders) > 0):
            return parts[0]
        senders = np.concatenate([part.senders for part in parts])
        order = np.argsort(senders)
        if parts[0].sealed:
            return Mail(senders[order], np.stack([part.values for part in parts]).sum(axis=0, dtype=np.uint64))
        return Mail(senders[order], np.concatenate([part.values for part in parts], axis=-2)[..., order, :])

    @staticmethod
    def empty() -> "Mail":
        """Mail without any sender."""
        return Mail(np.empty(0, dtype=np.int64), np.empty((0, 0)))

    def after(self, round: int, before: Ints, parties: Ints) -> "Mail":
        """Add to `absent` the parties that did not answer in this round; `before` lists those absent already."""
        if not (len(before) or len(self.absent)) and np.array_equal(self.senders, parties):
            return self
        fresh = np.setdiff1d(parties, np.concatenate([self.senders, before[:, 0]]))
        absent = np.concatenate([before, np.stack([fresh, np.full_like(fresh, round)], axis=1)])
        return replace(self, absent=absent[np.argsort(absent[:, 0])])

    def sound(self, parties: int) -> bool:
        """Whether `absent` is well formed for this many parties."""
        absent = self.absent
        if absent.dtype != np.int64 or absent.ndim != 2 or absent.shape[1] != 2:
            return False
        gone = self.gone
        return not len(gone) or bool(
            np.all(np.diff(gone) > 0) and np.all((gone >= 0) & (gone < parties) & (absent[:, 1] >= 0))
        )

    def pack(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes | memoryview]:
        """The bytes of `pack` in pieces; no array is copied."""
        absent = {"absent": self.absent} if len(self.absent) else {}
        return arrays.pieces({"senders": self.senders, "values": self.values} | absent)

    @staticmethod
    def unpack(data: bytes) -> "Mail":
        return Mail(**arrays.unpack(data)[0])


def limited(values: Floats) -> Floats:
    """A party's message, cut to `LARGEST_SENT`: no inbox can make an honest party send more. NaN stays."""
    return np.clip(values, -LARGEST_SENT, LARGEST_SENT)


def check_sent(mail: Mail, allowed: Ints, like: Array, who: str) -> None:
    """Refuse mail that is not what these parties send in this round; the error names the sender.

    `like` is one row (..., 1, width) of such a message, of words if it is sealed. It has NaN where nothing is said, and
    a number where one must be. `who` begins an error that is about all senders.
    """
    senders, values = mail.senders, mail.values
    if not isinstance(senders, np.ndarray) or senders.dtype != np.int64 or senders.ndim != 1:
        raise MessageError(f"{who} sent mail whose senders are not a list of whole numbers")
    strange = not np.array_equal(senders, allowed) and not np.all(np.isin(senders, allowed))
    if strange or np.any(np.diff(senders) <= 0):
        raise MessageError(f"{who} sent mail in the name of another, or two messages of one party")
    if len(mail.absent):
        raise MessageError(f"{who} sent mail that says who has left, which parties do not say")
    if not len(senders):
        return
    sealed = like.dtype == np.uint64
    shape = (*like.shape[:-2], 1 if sealed else len(senders), like.shape[-1])
    if values.dtype != like.dtype or values.shape != shape:
        raise MessageError(
            f"{who} sent {values.dtype} of shape {values.shape}, and messages of this round are {like.dtype} of {shape}"
        )
    if sealed:
        return
    good = np.abs(values) <= LARGEST_SENT
    if np.isnan(like).any():
        good = np.where(np.isnan(like), np.isnan(values), good)
    if not good.all():
        rows = good.reshape(-1, *good.shape[-2:]).all(axis=(0, -1))
        bad = senders[~rows].tolist()
        raise MessageError(
            f"{_named(bad)} sent a number that is not finite, or larger than {LARGEST_SENT:g}, or one where none is due"
        )


def unpack_sent(sent: bytes, allowed: Ints, like: Array, who: str) -> Mail:
    """Read bytes from these parties as mail; refuse what `check_sent` refuses."""
    try:
        mail = Mail.unpack(sent)
    except (ValueError, KeyError, TypeError) as error:
        raise MessageError(f"{who} sent what is no mail ({type(error).__name__})") from error
    check_sent(mail, allowed, like, who)
    return mail


def unpack_from(party: int, sent: bytes, like: Array) -> Mail:
    """Read bytes from one party as its message of this round.

    The header is known beforehand, to the byte: no part of a hostile one is interpreted.
    """
    plain = Mail(np.array([party], dtype=np.int64), like).pack()
    head = 8 + int.from_bytes(plain[:8], "little")
    if len(sent) != len(plain) or sent[:head] != plain[:head]:
        raise MessageError(
            f"party {party} sent {len(sent)} bytes that are no message of this round, which is {len(plain)} bytes: one "
            f"sender, and {like.dtype} of shape {like.shape}"
        )
    return unpack_sent(sent, np.array([party], dtype=np.int64), like, f"party {party}")


def check_inbox(mail: Mail, round: int, last: Mail | None) -> None:
    """Refuse to send an inbox that honest parties refuse: their refusals would look as if they had left.

    `last` has the messages that the inbox was made of. The error names the sender of the largest message without
    blaming it: what the coordinator remembers of earlier rounds is in the inbox, too.
    """
    if np.all(np.abs(mail.values) <= LARGEST):
        return
    said = ""
    if last is not None and len(last.senders):
        sizes = np.nan_to_num(np.abs(last.values)).reshape(-1, *last.values.shape[-2:]).max(axis=(0, -1))
        said = f" Of the messages before it the largest, {sizes.max():.3g}, is of party {last.senders[sizes.argmax()]}."
    raise DivergedError(
        f"what the parties would be sent in round {round + 1} is not finite, or larger than {LARGEST:g}, and all of "
        f"them would refuse it: the run ends and nobody is left out.{said} Choose a larger penalty or a smaller step"
    )


def _named(parties: Sequence[int]) -> str:
    return f"party {parties[0]}" if len(parties) == 1 else f"parties {', '.join(map(str, parties))}"
