"""The inbox that an adversary sends to steer a party's next query to a target.

Apart from the records' gradient, a query x is affine in the inbox v, with one slope in all coordinates: x = a v + b.
The adversary knows the party's code and state. So it runs that code twice, on a party whose records have no gradient,
and solves for v. If the query depends on the inbox only through the records (a gradient at v), v is the target itself.
"""

from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import Algorithm, Mapped, Wrapped, at_parties, heard, inbox_width
from privadmm.privacy.release import Door, Released


class QueryError(Exception):
    """Ends a phase, and carries the query that the phase was about to release."""

    def __init__(self, query: Floats) -> None:
        super().__init__()
        self.query = query


class Weightless(Local):
    """A party whose records contribute no gradient."""

    def gradient(self, x: Floats) -> Floats:
        return np.zeros_like(x)

    def argmin(self, linear: Floats, quadratic: Floats | float, *rest: Any, **more: Any) -> Floats:
        return np.asarray(-linear / quadratic)

    def perturbed(self, release: Door, linear: Floats, k: Floats, *rest: Any, **more: Any) -> Released:
        raise QueryError(-linear / k)


class Listening(Door):
    """A door that releases nothing, and raises the query instead."""

    def output(self, x: Floats, sensitivity: Floats | float) -> Released:
        raise QueryError(x)

    def summand(self, x: Floats, sensitivity: Floats | float) -> Released:
        raise QueryError(x)


def steer(algorithm: Algorithm, number: int, t: int, local: Local, state: Any, target: Floats) -> Mail:
    """The inbox that makes `target` (..., 1, d), plus what the records add, the query of phase `number` in round t.

    Every part of the inbox but the last repeats the party's own iterate, as an honest neighbour who agrees would. A map
    of the features leaves records as they are.
    """
    public, senders = local.public, heard(algorithm, local.public, local.ids)
    memory, plain = algorithm.start(public)[0], np.zeros((*target.shape[:-1], 0))
    if isinstance(memory, Wrapped):  # what stands in front of the method's own message changes nothing in its rounds
        plain, memory = np.zeros((*target.shape[:-1], memory.front)), memory.inner
    if isinstance(memory, Mapped):
        map = np.broadcast_to(np.repeat([0.0, 1.0], public.dim), (*target.shape[:-1], 2 * public.dim))
        plain = np.concatenate([plain, map], axis=-1)
    mine = state.model[..., : target.shape[-2], :]  # the victim is the first of several parties that hear one row
    own = np.broadcast_to(mine, (*target.shape[:-1], mine.shape[-1]))
    aim = np.concatenate([target, np.zeros((*own.shape[:-1], own.shape[-1] - target.shape[-1]))], axis=-1)
    copies = (inbox_width(algorithm, public) - plain.shape[-1]) // own.shape[-1]

    def inbox(last: Floats) -> Mail:
        return Mail(senders, np.concatenate([plain, *[own] * (copies - 1), last], axis=-1))

    def query(last: Floats) -> Floats:
        party = Weightless(public, local.shards, kept=local.kept)
        door = Listening(local.ids, (), None, t, number, lambda _: None, target.shape[:-1])  # type: ignore[arg-type]
        try:
            at_parties(algorithm, number).run(t, party, state, inbox(last), door)
        except QueryError as reached:
            return reached.query
        raise AssertionError("a party phase releases something")

    base, moved = query(own), query(own + 1.0)
    if base.shape != aim.shape or np.array_equal(base, moved):
        return inbox(aim)
    return inbox(own + (aim - base) / (moved - base))
