"""One small instance of everything. A new algorithm adds one line to ALGORITHMS, and every contract runs on it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from privadmm.algorithms.admm_graph import ADMMGraph
from privadmm.algorithms.admm_star import ADMMStar
from privadmm.algorithms.dp_admm import DPADMM
from privadmm.algorithms.dp_fedsgd import DPFedSGD
from privadmm.algorithms.dvp import DVP
from privadmm.algorithms.evaluated import Evaluated
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.local_only import LocalOnly
from privadmm.algorithms.m_admm import MADMM
from privadmm.algorithms.moments import Centred
from privadmm.algorithms.mr_admm import MRADMM
from privadmm.algorithms.pdml import PDML
from privadmm.algorithms.pvp import PVP
from privadmm.algorithms.r_admm import RADMM
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train
from privadmm.engine.loop import View
from privadmm.engine.mail import Mail
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.graphs import Graph
from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, HuberHinge, Logistic, Loss, Squared
from privadmm.optim.regularizers import L1, L2, ElasticNet, Regularizer
from privadmm.privacy.calibration import NoPrivacy, Target
from privadmm.privacy.ledger import Ledger, MemoryLedger
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.sums import SecureSum

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
        """The target, with its lists cut to this many parties and rounds."""
        if isinstance(self.privacy, NoPrivacy):
            return self.privacy
        spread = tuple(np.resize(self.privacy.profile, rounds)) if self.privacy.profile else ()
        summed = self.privacy.sum
        if summed is not None:
            t = min(summed.tolerated(parties), parties - 1)
            summed = SecureSum(t, min(max(t + 1, summed.fewest or 0), parties))
        return replace(self.privacy, party_epsilon=self.privacy.party_epsilon[:parties], profile=spread, sum=summed)

    def job(self, **public: Any) -> Job:
        return Job(self.algorithm, self.public(**public), id="case")

    def data(self, seed: int = 0, sparse: bool = False) -> Shards:
        return shards(seed, sparse=sparse)

    @property
    def private(self) -> bool:
        return isinstance(self.privacy, Target)


def triangle_tail(n: int) -> Graph:
    return graphs.random(n, min(n, n * (n - 1) // 2), seed=3)


BUDGET = Target(1.0, 1e-5)
SUMMED = replace(BUDGET, sum=SecureSum(fewest=3))
OFF = NoPrivacy()
DP = DPADMM(D_w=3.0, rho=0.1)
ROUGH = replace(DP, step_size="nonsmooth")
PAPER = replace(DP, calibration="published", round_epsilon=0.1)
DUAL = DVP(eta=0.1)
PENALTY = MADMM(eta=3.0)
RECYCLED = RADMM(eta=3.0, gamma=0.5)
GROWING = MRADMM(eta=2.0, growth=1.5, gamma=0.1)
PRIMAL = PVP(rho=0.1)
DECAYING = PDML(beta=0.1)
SGD = DPFedSGD(step=1.0, momentum=0.5)

ALGORITHMS = [
    Case("admm_star", ADMMStar(rho=0.1), graphs.star, OFF),
    Case("admm_star-relaxed", ADMMStar(rho=0.1, relaxation=1.6), graphs.star, OFF),
    Case("admm_star-elastic", ADMMStar(rho=0.1), graphs.star, OFF, regularizer=ElasticNet(0.01)),
    Case("admm_graph", ADMMGraph(eta=0.1), triangle_tail, OFF),
    Case("admm_graph-ring-huber", ADMMGraph(eta=0.1), graphs.ring, OFF, loss=HuberHinge(0.5)),
    Case("dp_admm", DP, graphs.star, BUDGET),
    Case("dp_admm-off", DP, graphs.star, OFF),
    Case("dp_admm-half", DP, graphs.star, BUDGET, loss=HalfLogistic()),
    Case("dp_admm-hinge-l1", ROUGH, graphs.star, BUDGET, loss=Hinge(), regularizer=L1(0.01)),
    Case("dp_admm-squared", DP, graphs.star, BUDGET, loss=Squared(1.0, radius=1.0)),
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
    Case("m_admm", PENALTY, triangle_tail, BUDGET),
    Case("m_admm-off", MADMM(eta=0.1), triangle_tail, OFF),
    Case("m_admm-grows", replace(PENALTY, growth=1.5, theta=2.0), graphs.ring, BUDGET, loss=HalfLogistic()),
    Case("m_admm-pure", replace(PENALTY, law="gamma"), graphs.ring, Target(2.0, 0.0)),
    Case(
        "m_admm-published",
        replace(PENALTY, calibration="published", alpha=2.0),
        triangle_tail,
        Target(None, 1e-5),
        weighting="parties",
    ),
    Case("r_admm", RECYCLED, triangle_tail, BUDGET, loss=HalfLogistic()),
    Case("r_admm-off", RADMM(eta=0.1, gamma=0.5), triangle_tail, OFF),
    Case("r_admm-label", RECYCLED, graphs.ring, replace(BUDGET, adjacency="label")),
    Case("mr_admm", GROWING, triangle_tail, Target(2.0, 1e-5, decay=0.8)),
    Case("mr_admm-off", MRADMM(eta=0.1, growth=1.002, gamma=0.5), graphs.ring, OFF),
    Case("mr_admm-pure", replace(GROWING, law="gamma"), graphs.ring, Target(2.0, 0.0)),
    Case(
        "mr_admm-published",
        replace(GROWING, calibration="published", alpha=0.5),
        triangle_tail,
        Target(None, 1e-5),
    ),
    Case("dp_admm-label", DP, graphs.star, replace(BUDGET, adjacency="label")),
    Case("dp_admm-uneven", DP, graphs.star, Target(1.0, 1e-5, profile=(1.0, 2.0, 1.0, 0.5))),
    Case("dp_admm-reported", DP, graphs.star, BUDGET, loss=Debiased(Logistic(), 1.0)),
    Case("dp_admm-reported-half", DP, graphs.star, BUDGET, loss=Debiased(HalfLogistic(), 0.5)),
    Case("dvp-reported", DUAL, triangle_tail, BUDGET, loss=Debiased(Logistic(), 1.0)),
    Case(
        "dvp-reported-label",
        DUAL,
        graphs.ring,
        replace(BUDGET, adjacency="label"),
        loss=Debiased(Logistic(), 2.0),
    ),
    Case("admm_star-reported", ADMMStar(rho=0.1), graphs.star, OFF, loss=Debiased(Logistic(), 1.0)),
    Case("pvp", PRIMAL, graphs.star, BUDGET, loss=HalfLogistic()),
    Case("pvp-off", PRIMAL, graphs.star, OFF),
    Case("pvp-l1", PRIMAL, graphs.star, BUDGET, regularizer=L1(0.01)),
    Case("pvp-label", PRIMAL, graphs.star, replace(BUDGET, adjacency="label")),
    Case(
        "pvp-uneven",
        PRIMAL,
        graphs.star,
        Target(None, 1e-5, party_epsilon=(1.0, 2.0, 1.0, 0.5, 3.0), decay=0.8),
    ),
    Case(
        "pvp-published",
        replace(PRIMAL, calibration="published", round_epsilon=0.1),
        graphs.star,
        Target(None, 1e-3),
        weighting="parties",
    ),
    Case("dp_fedsgd", SGD, graphs.star, BUDGET, loss=HalfLogistic()),
    Case("dp_fedsgd-off", SGD, graphs.star, OFF),
    Case(
        "dp_fedsgd-hinge-l1",
        replace(SGD, step_decay="sqrt"),
        graphs.star,
        BUDGET,
        loss=Hinge(),
        regularizer=L1(0.01),
    ),
    Case("dp_fedsgd-label", SGD, graphs.star, replace(BUDGET, adjacency="label")),
    Case("dp_fedsgd-uneven", SGD, graphs.star, Target(1.0, 1e-5, profile=(1.0, 2.0, 1.0, 0.5))),
    Case("foc", Centred(FirstOrderConsensus()), triangle_tail, BUDGET, loss=HalfLogistic()),
    Case("foc-off", Centred(FirstOrderConsensus(step=1.0)), graphs.star, OFF),
    Case("foc-sum", Centred(FirstOrderConsensus()), graphs.star, SUMMED, loss=HalfLogistic()),
    Case("foc-sum-plain", FirstOrderConsensus(), triangle_tail, replace(SUMMED, adjacency="label")),
    Case(
        "foc-sum-uneven",
        Centred(FirstOrderConsensus(), nonnegative=True),
        graphs.star,
        Target(None, 1e-5, party_epsilon=(1.0, 2.0, 1.0, 0.5, 3.0), decay=0.8, sum=SecureSum(2, 3)),
        weighting="parties",
    ),
    Case("dp_fedsgd-sum", SGD, graphs.star, SUMMED, loss=Hinge(), regularizer=L1(0.01)),
    Case("dp_fedsgd-sum-reported", SGD, graphs.star, SUMMED, loss=Debiased(Logistic(), 1.0)),
    Case("foc-plain", FirstOrderConsensus(), graphs.star, BUDGET, loss=Hinge()),
    Case("foc-gossip", Centred(FirstOrderConsensus(gossip=3), nonnegative=True), graphs.ring, BUDGET),
    Case(
        "foc-uneven",
        Centred(FirstOrderConsensus()),
        triangle_tail,
        Target(None, 1e-5, party_epsilon=(1.0, 2.0, 1.0, 0.5, 3.0), decay=0.8),
    ),
    Case(
        "foc-weighed",
        Centred(FirstOrderConsensus(weights="noise", gossip=3)),
        graphs.ring,
        Target(None, 1e-5, party_epsilon=(1.0, 2.0, 1.0, 0.5, 3.0)),
        loss=HalfLogistic(),
    ),
    Case("dp_admm-centred", Centred(DP), graphs.star, BUDGET, loss=HalfLogistic()),
    Case("dvp-centred", Centred(DUAL), triangle_tail, BUDGET),
    Case("mr_admm-centred", Centred(MRADMM(eta=1.0)), triangle_tail, BUDGET),
    Case("foc-evaluated", Evaluated(Centred(FirstOrderConsensus())), graphs.star, BUDGET, loss=HalfLogistic()),
    Case("foc-sum-evaluated", Evaluated(Centred(FirstOrderConsensus()), held_out=0.4), graphs.star, SUMMED),
    Case(
        "foc-sum-uneven-evaluated",
        Evaluated(FirstOrderConsensus(), bins=4),
        graphs.star,
        Target(None, 1e-5, party_epsilon=(1.0, 2.0, 1.0, 0.5, 3.0), decay=0.8, sum=SecureSum(2, 3)),
        weighting="parties",
    ),
    Case("dp_admm-evaluated", Evaluated(ROUGH, range=2.0), graphs.star, BUDGET, loss=Hinge()),
    Case("dp_admm-evaluated-off", Evaluated(DP), graphs.star, OFF),
    Case("dvp-evaluated", Evaluated(DUAL, held_out=0.3, seed=5), triangle_tail, BUDGET),
    Case("pdml-evaluated", Evaluated(replace(DECAYING, R=2.0)), graphs.ring, replace(BUDGET, decay=0.9)),
    Case("local_only", LocalOnly(), graphs.star, OFF),
    Case("pdml", DECAYING, triangle_tail, replace(BUDGET, decay=0.9)),
    Case("pdml-off", DECAYING, triangle_tail, OFF),
    Case("pdml-bounded", replace(DECAYING, R=2.0), graphs.ring, BUDGET),
    Case("pdml-label", DECAYING, triangle_tail, replace(BUDGET, adjacency="label")),
    Case(
        "pdml-uneven",
        DECAYING,
        triangle_tail,
        Target(None, 1e-5, party_epsilon=(1.0, 2.0, 1.0, 0.5, 3.0), decay=0.8),
    ),
    Case(
        "pdml-published",
        replace(DECAYING, calibration="published", V=0.5),
        graphs.ring,
        Target(None, 1e-5, decay=0.9),
        weighting="parties",
    ),
]
CASES = {case.name: case for case in ALGORITHMS}
PRIVATE = [case for case in ALGORITHMS if case.private]

POLICY = Policy(Budget(1.0, 1e-5))
LEDGERS: dict[str, Callable[[Path], Ledger]] = {
    "memory": lambda folder: MemoryLedger([0, 1], POLICY),
    "sqlite": lambda folder: SqliteLedger(folder / "ledger", [0, 1], POLICY, "simulation"),
}
both_ledgers = pytest.mark.parametrize("make", LEDGERS.values(), ids=LEDGERS.keys())


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


def optimum(public: Public, data: Shards, linear: Any = 0.0) -> Any:
    """The weights that minimise a smooth objective, with a linear term if there is one, by scipy."""
    start = np.zeros(data.dim)
    found = minimize(
        lambda w: objective(public, data, w) + np.sum(linear * w), start, method="BFGS", options={"gtol": 1e-10}
    )
    return found.x


def least_objective(public: Public, data: Shards) -> float:
    """The least value of a smooth objective."""
    return objective(public, data, optimum(public, data))


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
