"""The common part of the PDML paper's experiments: ten servers, and the two phases of a configuration."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from privadmm.algorithms.pdml import PDML
from privadmm.data.shards import Shards
from privadmm.engine.job import Job
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Debiased, Logistic
from privadmm.optim.regularizers import L2
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation

SERVERS, LINKS = 10, 13  # section VI-A3
A, BETA, V, DELTA = 0.15, 0.03, 0.1, 1e-5  # ours
STIFF = 0.3  # beta where noise is certified: it stands in the sensitivity's denominator
RECORD = 1.0  # the certified total epsilon of a record against other servers
TENTH = 0.1

Noise = Literal["off", "printed", "certified"]


@dataclass(frozen=True)
class Setup:
    """A configuration. `label` is the epsilon of phase 1, R the bound on eta, `noise` what phase 2 adds to iterates."""

    label: float | None = None
    R: float = 0.0
    noise: Noise = "off"
    rho: float = 0.8
    rounds: int = 40
    a: float = A
    V: float = V

    @property
    def algorithm(self) -> PDML:
        if self.noise == "printed":
            return PDML(beta=BETA, R=self.R, tolerance=1e-6, calibration="published", V=self.V)
        return PDML(beta=BETA if self.noise == "off" else STIFF, R=self.R, tolerance=1e-6)

    @property
    def privacy(self) -> Target | NoPrivacy:
        if self.noise == "off":
            return NoPrivacy("phase 2 is left out")
        total = RECORD if self.noise == "certified" else None
        return Target(total, DELTA, Simulation.kind, decay=self.rho)

    def job(self, shards: Shards) -> Job:
        loss = Logistic() if self.label is None else Debiased(Logistic(), self.label)
        facts = (shards.sizes, shards.dim, self.rounds, graph(), loss, L2(self.a / SERVERS), self.privacy)
        return Job(self.algorithm, Public(*facts))


@cache
def graph(seed: int = 0) -> Graph:
    return graphs.random(SERVERS, LINKS, seed)


def against(job: Job) -> tuple[float | None, float | None]:
    """The epsilons against other servers, of a record and of a label; None if there is no guarantee."""
    others: dict[str, Any] = job.adversaries["others"]
    known = (others[name] for name in ("record", "label"))
    record, label = (float(view["epsilon"]) if isinstance(view, dict) else None for view in known)
    return record, label
