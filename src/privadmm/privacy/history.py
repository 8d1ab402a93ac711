"""What weights have cost before a job starts from them.

Weights to start from are public, or released by earlier trainings. In the second case each party's releases in all
these trainings and in the new job compose: events are merged, and epsilon is evaluated once, at one delta. Trainings
that disagree on what is counted are refused. If one was not private, no noise added later makes the result private.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError, apart
from privadmm.privacy.accounting import worst
from privadmm.privacy.events import NotPrivate, Spent, merge

UNPROTECTED = NotPrivate("it descends from a training that was not private")
STARTED_UNPROTECTED = (
    "it started from the weights of a training that was not private; noise added later does not hide them"
)
AFRESH = "or start afresh (of an estimator: warm_start=False)"


@dataclass(frozen=True)
class Past:
    """What one training released, party by party. Without an epsilon it has no delta, adjacency or mode."""

    parties: tuple[str, ...]  # their names; a name stands for the same people in every training
    dealt: bool  # rows were dealt out to the parties, so a person may be at another party in the next training
    spent: tuple[Spent, ...]  # by party, every event with its count
    delta: float | None  # at which epsilon is evaluated
    adjacency: str | None  # between which neighbours the events are counted
    mode: str | None  # "simulation" or "deployment"
    label_epsilon: float | None  # the epsilon with which labels were randomised; None: they were read as they are
    models: tuple[str, ...] = ()  # digests of the weights that were handed out; empty if the training failed half way

    @property
    def private(self) -> bool:
        return self.delta is not None and math.isfinite(worst(list(self.spent), self.delta))

    @property
    def uneven(self) -> bool:
        """Whether what a person has lost depends on the party."""
        return len(set(self.spent)) > 1


def composed(pasts: Sequence[Past]) -> tuple[Spent, ...]:
    """Add up the events of all trainings, by party of the last one; refuse what cannot be added up."""
    *before, last = pasts
    if before and any(past.label_epsilon is not None for past in pasts):
        used = ", then ".join(str(past.label_epsilon) for past in pasts[-2:])
        raise ConfigError(
            f"label_epsilon = {used}: another training would report every label once more, or read it as it is, and "
            f"what was promised of labels would not hold. Train once, without label_epsilon from the first on, {AFRESH}"
        )
    if before and not all(past.private for past in pasts):
        return tuple(merge(spent, ((UNPROTECTED, 1),)) for spent in last.spent)
    for past in before:
        for name in ("delta", "adjacency", "mode"):
            if (earlier := getattr(past, name)) != (now := getattr(last, name)):
                raise ConfigError(
                    f"the start comes from a training with {name} = {earlier!r} and the job has {name} = {now!r}: "
                    f"their costs do not add up. Set {name} = {earlier!r}, {AFRESH}"
                )
        if past.parties != last.parties:
            raise ConfigError(
                f"the start comes from {listed(past.parties)} and the job has {listed(last.parties)}: it is not known "
                f"what each has spent. Train with the same parties, {AFRESH}"
            )
    if before and any(past.dealt for past in pasts) and any(past.uneven for past in pasts):
        raise ConfigError(
            "the parties' costs differ, and rows are dealt out anew in every training, so it is not known what a "
            f"person has lost in all: name the party of each row with fit(X, y, groups=...) every time, {AFRESH}"
        )
    total = last.spent
    for past in before:
        total = tuple(merge(so_far, more) for so_far, more in zip(total, past.spent, strict=True))
    return total


def listed(parties: Sequence[str]) -> str:
    names = ", ".join(map(apart, parties[:5])) + (", ..." if len(parties) > 5 else "")
    return f"{len(parties)} {'party' if len(parties) == 1 else 'parties'} ({names})"


@dataclass(frozen=True, eq=False)
class Start:
    """Weights (d,) that every party starts from, and the trainings that they descend from, oldest first.

    Use `Start.public(w)` for weights that depend on no private record, and `Start(w, job.past)` for those of a job.
    """

    weights: Floats
    past: tuple[Past, ...]

    def __post_init__(self) -> None:
        weights = np.array(self.weights, dtype=np.float64)
        if weights.ndim != 1 or not np.isfinite(weights).all():
            raise ConfigError(f"a start is one row of finite weights, not {weights.shape} of any kind")
        weights.flags.writeable = False
        object.__setattr__(self, "weights", weights)
        if not all(isinstance(past, Past) for past in self.past):
            raise ConfigError("the past of a start is what its trainings released: job.past, say")

    @staticmethod
    def public(weights: Floats) -> "Start":
        """Declare that these weights depend on no private record."""
        return Start(weights, ())

    @property
    def private(self) -> bool:
        return all(past.private for past in self.past)


def digest(weights: Floats) -> str:
    """A digest that shows whether weights were changed since they were released."""
    return hashlib.sha256(np.ascontiguousarray(weights, dtype=np.float64).tobytes()).hexdigest()
