"""One small instance of everything. A new algorithm adds one line to ALGORITHMS, and every contract runs on it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privadmm import graphs
from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.admm_star import ADMMStar
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.dvp import DVP
from privadmm.data.shards import Shards
from privadmm.drive import View
from privadmm.graphs import Graph
from privadmm.job import Job, cluster, train
from privadmm.losses import HalfLogistic, Hinge, HuberHinge, Logistic, Loss, Squared
from privadmm.phases import Algorithm, Mail, Public
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.mechanisms import Simulation
from privadmm.regularizers import L1, L2, ElasticNet, Regularizer

SIZES = (7, 12, 7, 5, 12)  # ragged, with ties
DIM = 4


@dataclass(frozen=True)
class Case:
    name: str
    algorithm: Algorithm
    graph: Callable[[int], Graph]
    privacy: Target | NoPrivacy
    loss: Loss = field(default_factory=Logistic)
    regularizer: Regularizer = field(default_factory=lambda: L2(0.01))
    weighting: Any = "records"

    def public(self, sizes: tuple[int, ...] = SIZES, rounds: int = 4, replicas: int | None = None) -> Public:
        return Public(
            sizes=np.array(sizes, dtype=np.int64),
            dim=DIM,
            rounds=rounds,
            graph=self.graph(len(sizes)),
            loss=self.loss,
            regularizer=self.regularizer,
            privacy=self.trimmed(len(sizes), rounds),
            weighting=self.weighting,
            replicas=replicas,
        )

    def trimmed(self, parties: int, rounds: int) -> Target | NoPrivacy:
        """The target for this many parties and rounds, where it has a figure for each."""
        if isinstance(self.privacy, NoPrivacy):
            return self.privacy
        spread = tuple(np.resize(self.privacy.profile, rounds)) if self.privacy.profile else ()
        return replace(self.privacy, party_epsilon=self.privacy.party_epsilon[:parties], profile=spread)

    def job(self, **public: Any) -> Job:
        return Job(self.algorithm, self.public(**public), id="case")

    @property
    def private(self) -> bool:
        return isinstance(self.privacy, Target)


def triangle_tail(n: int) -> Graph:
    return graphs.random(n, min(n, n * (n - 1) // 2), seed=3)


BUDGET = Target(1.0, 1e-5)
OFF = NoPrivacy()
DP = DPADMM(D_w=3.0, rho=0.1)
ROUGH = replace(DP, step_size="nonsmooth")
PAPER = replace(DP, calibration="published", round_epsilon=0.1)
DUAL = DVP(eta=0.1)

ALGORITHMS = [
    Case("admm_star", ADMMStar(rho=0.1), graphs.star, OFF),
    Case("admm_star-elastic", ADMMStar(rho=0.1), graphs.star, OFF, regularizer=ElasticNet(0.01)),
    Case("admm_graph", ADMMGraph(eta=0.1), triangle_tail, OFF),
    Case("admm_graph-ring-huber", ADMMGraph(eta=0.1), graphs.ring, OFF, loss=HuberHinge(0.5)),
    Case("dp_admm", DP, graphs.star, BUDGET),
    Case("dp_admm-off", DP, graphs.star, OFF),
    Case("dp_admm-half", DP, graphs.star, BUDGET, loss=HalfLogistic()),
    Case("dp_admm-hinge-l1", ROUGH, graphs.star, BUDGET, loss=Hinge(), regularizer=L1(0.01)),
    Case("dp_admm-squared", DP, graphs.star, BUDGET, loss=Squared(1.0, radius=0.5)),
    Case("dp_admm-published", PAPER, graphs.star, Target(None, 1e-3), weighting="parties"),
    Case("dvp", DUAL, triangle_tail, BUDGET),
    Case("dvp-off", DUAL, triangle_tail, OFF),
    Case("dvp-half-phi", DVP(eta=1e-3), graphs.ring, BUDGET, loss=HalfLogistic()),
    Case("dvp-pure", replace(DUAL, law="gamma"), graphs.ring, Target(2.0, 0.0)),
    Case("dvp-label", DUAL, triangle_tail, replace(BUDGET, adjacency="label")),
    Case(
        "dvp-uneven",
        DUAL,
        triangle_tail,
        Target(None, 1e-5, party_epsilon=(1.0, 2.0, 1.0, 0.5, 3.0), decay=0.8),
    ),
    Case("dvp-proof", replace(DUAL, calibration="proof", alpha=0.5), graphs.ring, Target(None, 1e-5)),
    Case("dvp-box", replace(DUAL, calibration="box", alpha=30.0), graphs.ring, Target(None, 1e-5)),
    Case("dp_admm-label", DP, graphs.star, replace(BUDGET, adjacency="label")),
    Case("dp_admm-uneven", DP, graphs.star, Target(1.0, 1e-5, profile=(1.0, 2.0, 1.0, 0.5))),
]
PRIVATE = [case for case in ALGORITHMS if case.private]


def named(case: Case) -> str:
    return case.name


def records(seed: int, sizes: tuple[int, ...] = SIZES, dim: int = DIM) -> list[tuple[Any, Any]]:
    """Per party, rows of any norm (many beyond the bound) and labels in {-1, +1}."""
    rng = np.random.default_rng(seed)
    return [(rng.normal(size=(m, dim)), np.where(rng.random(m) < 0.5, -1.0, 1.0)) for m in sizes]


def shards(seed: int = 0, sizes: tuple[int, ...] = SIZES, sparse: bool = False) -> Shards:
    parties = records(seed, sizes)
    if sparse:
        from scipy.sparse import csr_array

        parties = [(csr_array(np.where(X > 0, X, 0.0)), y) for X, y in parties]
    return Shards.from_parties(parties, row_bound=1.0)


def objective(public: Public, data: Shards, w: Any) -> float:
    """C mean(loss) + R(w), written out plainly."""
    scores = data.margins(np.broadcast_to(w, (len(data.ids), data.dim)))
    return float(public.C * public.loss.value(scores, data.y).mean() + public.regularizer.value(w))


class Transcript:
    """A callback that keeps what the parties sent."""

    def __init__(self) -> None:
        self.mail: list[Mail] = []

    def __call__(self, view: View) -> None:
        self.mail.append(view.released)

    def bytes(self) -> list[bytes]:
        return [mail.pack() for mail in self.mail]


def transcript(job: Job, data: Shards, seed: int = 0, parts: Any = None, noise: Any = None) -> list[bytes]:
    tape = Transcript()
    train(job, cluster(job, data, noise or Simulation(seed), parts=parts), [tape])
    return tape.bytes()
