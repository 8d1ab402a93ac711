"""State and messages are functions of the transcript: replay the releases over other data, and nothing changes."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from cases import ALGORITHMS, Case, named, shards
from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.dp_admm import DPADMM, State
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.job import Job
from privadmm.engine.mail import Mail
from privadmm.engine.party import Local
from privadmm.engine.phases import AtParties, pack_state, tick
from privadmm.privacy import release
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.release import Door, Released

Tape = list[Floats]


class Recorder(Door):
    """A door that also writes what it released to a tape."""

    tape: Tape

    def output(self, x: Floats, sensitivity: Any) -> Released:
        released = super().output(x, sensitivity)
        self.tape.append(released.value)
        return released


class Player(Door):
    """A door that lets the tape out, whatever the query."""

    tape: Tape

    def output(self, x: Floats, sensitivity: Any) -> Released:
        self._next()
        self._calls += 1
        return Released(self.tape.pop(0), release._KEY)


def run(job: Job, data: Shards, kind: type[Recorder] | type[Player], tape: Tape) -> list[bytes]:
    """Every state and message of a run, through doors of this kind."""
    local, algorithm = Local(job.public, data), job.algorithm
    state = algorithm.init(job.public, local.ids)
    memory, mail = algorithm.start(job.public)
    seen = []
    for t in range(job.public.rounds):
        for number, phase in enumerate(algorithm.phases):
            if isinstance(phase, AtParties):
                door = kind(local.ids, job.plan[(t, number)], Simulation(0), t, number, lambda charges: None)
                door.tape = tape
                state, mail = tick(phase, t, local, state, mail, door)
                seen += [pack_state(state), mail.pack()]
            else:
                memory, mail = phase.run(t, job.public, memory, mail)
                seen += [pack_state(memory), mail.pack()]
    return seen


def replayed(job: Job) -> tuple[list[bytes], list[bytes]]:
    tape: Tape = []
    first = run(job, shards(seed=0), Recorder, tape)
    return first, run(job, shards(seed=1), Player, list(tape))


@pytest.mark.parametrize("case", ALGORITHMS, ids=named)
def test_replay(case: Case) -> None:
    first, again = replayed(case.job())
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
    """Post-processing that is none: the message carries the gradient."""

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
    """The solver's anchor is moved by a rule on the records."""

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
    case = next(case for case in ALGORITHMS if case.name == bug.name)
    first, again = replayed(replace(case, algorithm=bug).job())
    assert again != first


def test_a_plain_array_cannot_leave() -> None:
    @dataclass(frozen=True)
    class NoDoor(DPADMM):
        def update(self, t: int, local: Local, s: State, inbox: Mail, release: Door) -> Any:
            return s, s.w

    case = next(case for case in ALGORITHMS if case.name == "dp_admm")
    with pytest.raises(TypeError, match="never a plain array"):
        replayed(replace(case, algorithm=NoDoor(D_w=3.0)).job())


def test_nobody_else_makes_released_values() -> None:
    with pytest.raises(TypeError, match="only a door"):
        Released(np.zeros(3))
