"""What methods on a star share: a coordinator that averages what the parties released and broadcasts the result."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privadmm.features import Map
from privadmm.phases import COORDINATOR, Floats, Ints, Local, Mail, Public, Topology
from privadmm.privacy.accounting import Claim
from privadmm.privacy.mechanisms import Noise


@dataclass(frozen=True)
class Memory:
    w: Floats  # (..., d), the global variable


class OnStar:
    """The parts of an algorithm that every method on a star has alike."""

    topology: ClassVar[Topology] = "star"
    raw_shows: ClassVar[bool] = False
    adjacencies: ClassVar[tuple[str, ...]] = ("replace-one", "label")

    def width(self, public: Public) -> int:
        return public.dim

    def keepsakes(self, local: Local, noise: Noise) -> dict[str, Floats]:
        return {}

    def go_on(self, public: Public, here: Ints) -> None:
        """The mean is over those who answer."""

    def anew(self, state: Any) -> Any:
        """As it is: a mean over those present brings their duals into balance within a round."""
        return state

    def start(self, public: Public) -> tuple[Any, Mail]:
        return broadcast(public.origin(1)[..., 0, :])

    def model(self, public: Public, memory: Memory, mail: Mail) -> Floats:
        return memory.w

    def features(self, public: Public, memory: Any) -> Map | None:
        return None

    def published(self, public: Public, delta: float) -> Claim | None:
        return None

    def advice(self, public: Public) -> str | None:
        return None


def broadcast(w: Floats) -> tuple[Memory, Mail]:
    return Memory(w), Mail(np.array([COORDINATOR], dtype=np.int64), w[..., None, :])


def average(inbox: Mail) -> tuple[Memory, Mail]:
    """mean_i of the parties' messages, summed in party order."""
    return broadcast(inbox.values.sum(axis=-2) / inbox.values.shape[-2])
