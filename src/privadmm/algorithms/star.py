"""What methods on a star share: a coordinator that averages what the parties released and broadcasts the result."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from privadmm.phases import COORDINATOR, Floats, Mail, Public
from privadmm.privacy.accounting import Claim


@dataclass(frozen=True)
class Memory:
    w: Floats  # (..., d), the global variable


class OnStar:
    """The parts of an algorithm that every method on a star has alike."""

    topology: ClassVar[Literal["star", "graph"]] = "star"
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one", "label")

    def width(self, public: Public) -> int:
        return public.dim

    def start(self, public: Public) -> tuple[Memory, Mail]:
        return broadcast(public.zeros(1)[..., 0, :])

    def model(self, public: Public, memory: Memory, mail: Mail) -> Floats:
        return memory.w

    def published(self, public: Public, delta: float) -> Claim | None:
        return None


def broadcast(w: Floats) -> tuple[Memory, Mail]:
    return Memory(w), Mail(np.array([COORDINATOR], dtype=np.int64), w[..., None, :])


def average(inbox: Mail) -> tuple[Memory, Mail]:
    """mean_i of the parties' messages, summed in party order."""
    return broadcast(inbox.values.sum(axis=-2) / inbox.values.shape[-2])
