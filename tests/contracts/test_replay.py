"""State and messages are functions of the transcript: replay the releases over other data, and nothing changes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cases import CASES, named
from contract_tools import EVERY, Case, replayed
from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.dp_admm import DPADMM, State
from privadmm.data.arrays import Floats
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.privacy.release import Door, Released


@pytest.mark.parametrize("case", EVERY, ids=named)
def test_replay(case: Case) -> None:
    first, again = replayed(case)
    assert again == first


@dataclass(frozen=True)
class RawDual(DPADMM):
    """The classic bug: the dual is updated from the un-noised primal."""

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        kept: list[Floats] = []

        class Peeping:
            def output(self, x: Floats, sensitivity: Any) -> Released:
                kept.append(x)
                return release.output(x, sensitivity)

        state, message = super().update(t, local, s, inbox, Peeping())  # type: ignore[arg-type]
        return replace(state, w=kept[0]), message


@dataclass(frozen=True)
class RawMessage(DPADMM):
    """The message carries the gradient, disguised as post-processing."""

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        state, message = super().update(t, local, s, inbox, release)
        return state, message.map(lambda w: w + 1e-12 * local.gradient(s.w))


@dataclass(frozen=True)
class DataStep(DPADMM):
    """A step size that looks at the records."""

    def inverse_eta(self, t: int, local: Local) -> Floats:
        return super().inverse_eta(t, local) * (1 + 1e-9 * abs(local.shards.y.sum()))

    def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> tuple[State, Released]:
        state, message = super().update(t, local, s, inbox, release)
        return replace(state, gamma=state.gamma * self.inverse_eta(t, local)), message


@dataclass(frozen=True)
class RawAnchor(ADMMGraph):
    """The solver's anchor depends on the records."""

    def update(self, t: int, local: Local, s: Any, inbox: Mail, release: Door) -> tuple[Any, Released]:
        state, message = super().update(t, local, s, inbox, release)
        return replace(state, anchor=state.anchor + local.gradient(s.f)), message


BUGS = [
    RawDual(D_w=3.0, rho=0.1),
    RawMessage(D_w=3.0, rho=0.1),
    DataStep(D_w=3.0, rho=0.1),
    RawAnchor(eta=0.1),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: type(bug).__name__)
def test_planted_leaks_are_caught(bug: Any) -> None:
    case = CASES[bug.name]
    first, again = replayed(replace(case, algorithm=bug))
    assert again != first


def test_a_plain_array_cannot_leave() -> None:
    @dataclass(frozen=True)
    class NoDoor(DPADMM):
        def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> Any:
            return s, s.w

    case = CASES["dp_admm"]
    with pytest.raises(TypeError, match="never a plain array"):
        replayed(replace(case, algorithm=NoDoor(D_w=3.0)))


def test_nobody_else_makes_released_values() -> None:
    with pytest.raises(TypeError, match="only a door"):
        Released(np.zeros(3))
