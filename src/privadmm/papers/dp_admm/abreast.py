"""Runs several DP-ADMM runs as one, if they differ in their noise alone: same records, same D_w.

The block has a copy of every provider for each run. Copies share the provider's records, so one pass over them serves
all runs. Each copy is a party of its own, with the events of its run and a ledger that counts them, and draws the noise
that the provider draws when its run is alone. The results are those of single runs, except for the rounding of products
that are made together: within 1e-14 of each number.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, NamedTuple

import numpy as np

from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.method import output_plan
from privadmm.algorithms.star import Memory
from privadmm.data.arrays import Floats, Ints
from privadmm.data.shards import Shards
from privadmm.engine.job import Job
from privadmm.engine.mail import Mail
from privadmm.engine.phases import Topology
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.privacy.accounting import Plan
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Call, Simulation

# The public facts that runs abreast have in common.
SAME = ("dim", "rounds", "loss", "regularizer", "weighting", "C", "replicas", "start", "columns")


@dataclass(frozen=True)
class Abreast(DPADMM):
    """DP-ADMM on a star for each z. Party i len(z) + c is provider i in run c, and receives only that run's w."""

    z: tuple[float, ...] = (1.0,)  # the noise multiplier of each run

    topology: ClassVar[Topology] = "relay"

    def start(self, public: Public) -> tuple[Memory, Mail]:
        return self.told(public, np.repeat(public.origin(1), len(self.z), axis=-2))

    def combine(self, t: int, public: Public, memory: Memory, inbox: Mail) -> tuple[Memory, Mail]:
        providers = public.parties // len(self.z)
        rows = inbox.values.reshape(*inbox.values.shape[:-2], providers, len(self.z), public.dim)
        return self.told(public, rows.sum(axis=-3) / providers)  # (3c) of each run

    def told(self, public: Public, w: Floats) -> tuple[Memory, Mail]:
        """Send every run's w (..., runs, d) to its providers."""
        return Memory(w), Mail(public.ids, np.tile(w, (public.parties // len(self.z), 1)))

    def planned(self, public: Public) -> Plan:
        return output_plan(public, np.tile(self.z, public.parties // len(self.z)))


class Copies(Simulation):
    """Noise of a simulation in which all copies of a provider draw the provider's noise."""

    def __init__(self, seed: int, copies: int) -> None:
        super().__init__(seed)
        self.copies = copies

    def normal(self, shape: tuple[int, ...], ids: Ints, call: Call) -> Floats:
        *lead, parties, width = shape
        drawn = super().normal((*lead, parties // self.copies, width), ids[:: self.copies] // self.copies, call)
        return np.repeat(drawn, self.copies, axis=-2)


class Together(NamedTuple):
    """A job for several runs, the records of its parties, and their noise."""

    job: Job
    shards: Shards
    noise: Simulation


def abreast(jobs: Sequence[Job], shards: Shards, seed: int) -> Together:
    """Join jobs on these records that differ in noise alone; each one's noise is alike at all providers and rounds."""
    z, methods = list[float](), set[DPADMM]()
    first = jobs[0].public
    for job in jobs:
        other = job.public
        if not isinstance(other.privacy, Target) or not isinstance(first.privacy, Target):
            raise ValueError("runs abreast differ in their noise: each has some")
        alike = all(getattr(other, name) == getattr(first, name) for name in SAME)
        alike &= replace(other.privacy, epsilon=None, decay=1.0) == replace(first.privacy, epsilon=None, decay=1.0)
        if not alike or not np.array_equal(other.sizes, first.sizes):
            raise ValueError("runs abreast differ in their noise alone: one problem, with as many rounds")
        assert isinstance(job.algorithm, DPADMM)
        every = {job.algorithm.ratio(job.public, t).tobytes() for t in range(job.public.rounds)}
        ratios = job.algorithm.ratio(job.public, 0)
        if len(every) > 1 or np.ptp(ratios) > 0:
            raise ValueError("runs abreast need noise that is alike in all rounds and at all providers")
        z.append(float(ratios[0, 0]))
        methods.add(replace(job.algorithm, calibration="certified", round_epsilon=None))
    public, target, copies = jobs[0].public, jobs[0].public.privacy, len(jobs)
    if len(methods) > 1 or not isinstance(target, Target):
        raise ValueError("runs abreast differ in their noise alone: one D_w, one rho, one step size")
    method = methods.pop()
    own = {item.name: getattr(method, item.name) for item in fields(DPADMM)}
    many = replace(shards.repeat(copies), ids=np.arange(copies * len(shards.ids)))
    star, open_end = graphs.star(len(many.ids)), replace(target, epsilon=None)
    job = Job(Abreast(**own, z=tuple(z)), replace(public, sizes=many.sizes, graph=star, privacy=open_end))
    return Together(job, many, Copies(seed, copies))
