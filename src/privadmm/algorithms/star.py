"""What methods on a star share: a coordinator that averages what the parties released and broadcasts the result."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privadmm.algorithms.method import Method
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import COORDINATOR, Mail
from privadmm.engine.phases import Topology
from privadmm.engine.public import Public
from privadmm.optim.regularizers import Regularizer


@dataclass(frozen=True)
class Memory:
    w: Floats  # (..., d), the global variable


@dataclass(frozen=True)
class State:
    w: Floats  # a party's iterate

    @property
    def model(self) -> Floats:
        return self.w


class OnStar(Method):
    """What methods on a star share, unless they override it."""

    topology: ClassVar[Topology] = "star"

    def init(self, public: Public, ids: Ints) -> Any:
        return State(public.origin(len(ids)))

    def start(self, public: Public) -> tuple[Any, Mail]:
        return broadcast(public.origin(1)[..., 0, :])

    def combine(self, t: int, public: Public, memory: Memory, inbox: Mail) -> tuple[Memory, Mail]:
        """A coordinator's phase: the mean of what the parties sent is the next w."""
        return average(inbox)

    def model(self, public: Public, memory: Memory, mail: Mail) -> Floats:
        return memory.w


def broadcast(w: Floats) -> tuple[Memory, Mail]:
    return Memory(w), Mail(np.array([COORDINATOR], dtype=np.int64), w[..., None, :])


def average(inbox: Mail, rest: Regularizer | None = None, step: float = 1.0) -> tuple[Memory, Mail]:
    """Broadcast the mean of the parties' messages, summed in party order, or the prox of R's `rest` at it."""
    mean = inbox.values.sum(axis=-2) / inbox.values.shape[-2]
    return broadcast(mean if rest is None else rest.prox(mean, step))
