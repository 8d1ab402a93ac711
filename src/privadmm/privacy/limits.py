"""Limits on the parameters that a party accepts from a job, whatever the job costs.

Within them every tick is proved to end in a release, for every value of the records: nothing overflows, and every solve
ends within its worst case (docs/privacy.md#no-outcome-is-free). A job outside of the limits is refused by public facts
alone, before a record is read.
"""

import dataclasses
import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Annotated, Any, NoReturn

from annotated_types import Ge, Gt, Le

from privadmm.errors import ConfigError, RefusedError
from privadmm.params import Doc, check_positive, check_whole
from privadmm.privacy.calibration import Target

SMALLEST = "of penalties, weights, steps and bounds, unless they are 0"
TOLERANCE = "the largest gradient norm that a solve may leave, where it may choose"
CONDITION = "the most by which curvature of records may exceed what penalty and regulariser add; a solve's worst case"


@dataclass(frozen=True)
class Limits:
    """What a job may ask of a party. The defaults are safe; a party may narrow or widen them within what is proved."""

    rounds: Annotated[int, Ge(1), Le(1_000_000), Doc("the most rounds of a job")] = 10_000
    parties: Annotated[int, Ge(1), Le(10_000_000), Doc("the most parties of a job")] = 10_000
    edges: Annotated[int, Ge(1), Le(1_000_000_000), Doc("the most edges of its graph")] = 1_000_000
    releases: Annotated[int, Ge(1), Le(10**10), Doc("the most rounds times parties, which a plan lists")] = 1_000_000
    dim: Annotated[int, Ge(1), Le(100_000_000), Doc("the most numbers in a message")] = 10_000_000
    smallest: Annotated[float, Ge(1e-20), Le(1), Doc(SMALLEST)] = 1e-9
    largest: Annotated[float, Ge(1), Le(1e20), Doc("of penalties, weights, steps and bounds")] = 1e9
    tolerance: Annotated[float, Gt(0), Le(1), Doc(TOLERANCE)] = 1e-2
    condition: Annotated[float, Ge(1), Le(1e9), Doc(CONDITION)] = 1e6

    def __post_init__(self) -> None:
        check_whole(rounds=self.rounds, parties=self.parties, edges=self.edges)
        check_whole(releases=self.releases, dim=self.dim)
        check_positive(smallest=self.smallest, largest=self.largest, tolerance=self.tolerance, condition=self.condition)
        if not (1e-20 <= self.smallest <= 1 <= self.largest <= 1e20 and 1 <= self.condition <= 1e9):
            raise ConfigError(
                "limits are proved for smallest from 1e-20 to 1, largest from 1 to 1e20, condition from 1 to 1e9"
            )

    def admit_size(self, rounds: int, parties: int, edges: int = 0) -> None:
        """Refuse a job by its size, before anything is derived from it: a plan alone would take time and memory."""
        asked = {"rounds": rounds, "parties": parties, "edges": edges, "releases": rounds * parties}
        for name, value in asked.items():
            if value > (most := getattr(self, name)):
                refuse(f"the party accepts {name} up to {most}, and the job has {value}")

    def admit(self, algorithm: Any, public: Any) -> None:
        """Refuse a job with a number that the proofs do not cover."""
        self.admit_size(public.rounds, public.parties)
        if (widest := max(public.dim, *public.columns, 0)) > self.dim:
            refuse(f"the party accepts messages of up to {self.dim} numbers, and the job has {widest}")
        levels = public.privacy.levels(public.rounds) if isinstance(public.privacy, Target) else (1.0,)
        if max(levels) > self.largest * min(levels):
            refuse(
                f"the party accepts noise that differs between rounds by up to {self.largest:g} times, and the job's "
                f"decay or profile by {max(levels) / min(levels):.3g}"
            )
        parts = (algorithm, public.loss, public.regularizer)
        for name, value in [*chain.from_iterable(map(numbers_of, parts)), ("C", public.C)]:
            if name == "tolerance":
                if value > self.tolerance:
                    refuse(f"the party accepts tolerance up to {self.tolerance:g}, and the job has {value:g}")
            elif value and not self.smallest <= abs(value) <= self.largest:
                allowed = f"from {self.smallest:g} to {self.largest:g}"
                refuse(f"the party accepts {name} {allowed}, and the job has {value:g}")
        if not (condition := algorithm.condition(public)) <= self.condition:
            refuse(
                f"the party solves problems of condition up to {self.condition:g}, and this job's have "
                f"{condition:.3g}: raise the penalty or the regulariser's weight"
            )


def refuse(why: str) -> NoReturn:
    raise RefusedError(f"{why}. Nothing was released", "policy")


def numbers_of(part: Any) -> Iterator[tuple[str, float]]:
    """Every number that a method, loss or regulariser was made with, and those of its parts."""
    for item in dataclasses.fields(part):
        value = getattr(part, item.name)
        for entry in value if isinstance(value, tuple) else (value,):
            if isinstance(entry, numbers.Real) and not isinstance(entry, bool):
                yield item.name, float(entry)
            elif dataclasses.is_dataclass(entry):
                yield from numbers_of(entry)
