"""What methods over split features share: parties with columns, and a coordinator that holds the labels.

Every round begins at the labels. A party sends a row of two parts: its scores, one for each of N people, and its
weights, filled up to the width of the widest party. A part that is not released, or not yet, is NaN.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privadmm.algorithms.star import OnStar
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import COORDINATOR, Mail
from privadmm.engine.public import Public


@dataclass(frozen=True)
class State:
    u: Floats  # (..., P, N), a party's scores as released


class OnColumns(OnStar):
    """What every method over split features shares."""

    def message(self, public: Public, t: int) -> Floats:
        """What a party sends in round t: its scores, and its weights where it hands them over."""
        weights = public.zeros(1, max(public.columns)) if self.hands_over(public, t) else nothing(public, 1)
        return message(public.zeros(1), weights)

    def hands_over(self, public: Public, t: int) -> bool:
        """Whether a party's message of round t has its weights."""
        return True

    def init(self, public: Public, ids: Ints) -> Any:
        return State(public.zeros(len(ids)))

    def model(self, public: Public, memory: Any, mail: Mail) -> Floats:
        """The parties' weights one after another; NaN until they are handed over."""
        weights = mail.values[..., public.dim :]
        return np.concatenate([weights[..., m, :d] for m, d in enumerate(public.columns)], axis=-1)


def silence(public: Public) -> Mail:
    """The parties' mail before the first round: no scores, no weights."""
    return Mail(public.ids, message(public.zeros(public.parties), nothing(public, public.parties)))


def nothing(public: Public, rows: int) -> Floats:
    return np.full_like(public.zeros(rows, max(public.columns)), np.nan)


def message(scores: Floats, weights: Floats) -> Floats:
    return np.concatenate([scores, weights], axis=-1)


def scores_of(public: Public, inbox: Mail) -> Floats:
    """The sum of the parties' scores, (..., N), in party order."""
    return np.asarray(inbox.values[..., : public.dim].sum(axis=-2))


def broadcast(v: Floats) -> Mail:
    return Mail(np.array([COORDINATOR], dtype=np.int64), v[..., None, :])
