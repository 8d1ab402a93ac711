"""The coordinator of a star: it averages what the parties released and broadcasts the result."""

from dataclasses import dataclass

import numpy as np

from privadmm.phases import COORDINATOR, Floats, Mail, Public


@dataclass(frozen=True)
class Memory:
    w: Floats  # (..., d), the global variable


def broadcast(w: Floats) -> tuple[Memory, Mail]:
    return Memory(w), Mail(np.array([COORDINATOR], dtype=np.int64), w[..., None, :])


def start(public: Public) -> tuple[Memory, Mail]:
    return broadcast(public.zeros(1)[..., 0, :])


def average(inbox: Mail) -> tuple[Memory, Mail]:
    """mean_i of the parties' messages, summed in party order."""
    return broadcast(inbox.values.sum(axis=-2) / inbox.values.shape[-2])
