"""What methods between neighbours share: consensus ADMM's dual, penalty and state, and the mean as the model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privadmm.algorithms.method import Method
from privadmm.data.arrays import Floats, Ints
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import Nothing, Topology
from privadmm.engine.public import Public
from privadmm.privacy.accounting import Plan
from privadmm.privacy.calibration import Law, NoPrivacy, fit, objective, scaled


@dataclass(frozen=True)
class State:
    f: Floats  # f_p, as released
    dual: Floats  # lambda_p
    anchor: Floats  # where the solver's frozen Hessian was taken

    @property
    def model(self) -> Floats:
        return self.f


class OnGraph(Method):
    """What every method between neighbours shares."""

    topology: ClassVar[Topology] = "graph"

    def init(self, public: Public, ids: Ints) -> Any:
        return State(public.origin(len(ids)), public.zeros(len(ids)), public.zeros(len(ids)))

    def start(self, public: Public) -> tuple[Any, Mail]:
        return Nothing(), Mail(public.ids, public.origin(public.parties))

    def model(self, public: Public, memory: Any, mail: Mail) -> Floats:
        mean: Floats = mail.values.sum(axis=-2) / len(mail.senders)
        return mean


def neighbours(local: Local, inbox: Mail, own: Floats) -> tuple[Floats, Floats]:
    """V_p as a column, and the sum of the neighbours' messages in sender order, with `own` for each who left."""
    graph = local.public.graph
    return degrees(local.public)[local.ids], graph.neighbour_sum(inbox.values, inbox.senders, local.ids, own)


def carried_dual(s: Any, inbox: Mail, t: int) -> Floats:
    """lambda_p of the last round; 0 in the first round after somebody left.

    The duals of those who are left no longer sum to zero, and would pull the limit away. The curvature k stays as it
    was, since the planned noise rests on it: a party hears its own iterate in place of those who left.
    """
    dual: Floats = s.dual
    return np.zeros_like(dual) if (inbox.absent[:, 1] == t - 1).any() else dual


def degrees(public: Public) -> Floats:
    """V_p of every party, as a column."""
    return public.graph.degrees[:, None].astype(np.float64)


def objective_plan(public: Public, k: Callable[[int], Floats], law: Law, zeta: Callable[[int], Floats] | None) -> Plan:
    """Plan one perturbed argmin a round. k(t) is the curvature that is not data's; noise is the target's, or zeta's."""
    target = public.privacy
    if isinstance(target, NoPrivacy):
        return {(t, 0): (public.everyone(target.event),) * 2 for t in range(public.rounds)}
    shapes: dict[bytes, Any] = {}
    plan: dict[tuple[int, int], Any] = {}
    for t, level in enumerate(target.levels(public.rounds)):
        loud = np.full(public.parties, level) if zeta is None else 1 / (public.sensitivity * zeta(t))
        w = public.scale(public.ids)[:, 0] / public.sizes * public.curvature / k(t)
        # Equal rounds share one object, and are calibrated once.
        key = loud.tobytes() + w.tobytes()
        if key not in shapes:
            pairs = [objective(law, target.kind, x, own) for x, own in zip(loud.tolist(), w.tolist(), strict=True)]
            shapes[key] = tuple(zip(*pairs, strict=True))
        plan[(t, 0)] = shapes[key]
    if zeta is None:
        return fit(target, plan)
    return {tick: tuple(tuple(scaled(e, 1.0) for e in row) for row in rows) for tick, rows in plan.items()}
