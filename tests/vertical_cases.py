"""Small instances of methods over split features: people seen by several parties, and the contracts' cases."""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from privadmm.algorithms.admm_sharing import ADMMSharing
from privadmm.algorithms.fdml_sgd import FDMLSGD
from privadmm.algorithms.sharing import Sharing
from privadmm.data.columns import Columns, People
from privadmm.engine.job import Job
from privadmm.engine.phases import Algorithm
from privadmm.engine.public import Public
from privadmm.optim import graphs
from privadmm.optim.losses import Debiased, HalfLogistic, Hinge, Logistic, Loss
from privadmm.optim.regularizers import L2, ElasticNet, Regularizer
from privadmm.privacy.calibration import NoPrivacy, Target

WIDTHS = (3, 2, 4, 1, 13)  # the last has more columns than there are people
N = 9


@dataclass(frozen=True)
class Case:
    name: str
    algorithm: Algorithm
    privacy: Target | NoPrivacy
    loss: Loss = field(default_factory=Logistic)
    regularizer: Regularizer = field(default_factory=lambda: L2(0.05))

    def public(self, widths: tuple[int, ...] = WIDTHS, n: int = N, rounds: int = 4, **more: Any) -> Public:
        return Public(
            sizes=np.full(len(widths), n, dtype=np.int64),
            dim=n,
            rounds=rounds,
            graph=graphs.star(len(widths)),
            loss=self.loss,
            regularizer=self.regularizer,
            privacy=self.privacy,
            columns=widths,
            **more,
        )

    def job(self, **public: Any) -> Job:
        return Job(self.algorithm, self.public(**public), id="case")

    def data(self, seed: int = 0, **more: Any) -> People:
        return people(seed, column_bound=self.column_bound, **more)

    @property
    def private(self) -> bool:
        return isinstance(self.privacy, Target)

    @property
    def certified(self) -> bool:
        return self.private and self.job().private

    @property
    def column_bound(self) -> float | None:
        by_column = isinstance(self.privacy, Target) and self.privacy.adjacency == "column"
        return getattr(self.algorithm, "column_bound", None) or 1.0 if by_column else None


PERSON = Target(1.0, 1e-5, adjacency="person")
COLUMN = replace(PERSON, adjacency="column")
OFF = NoPrivacy()
BALL = Sharing(rho=0.5, ball=2.0)
FREE = Sharing(rho=0.5, column_bound=0.5)

ALGORITHMS = [
    Case("admm_sharing", ADMMSharing(rho=0.5), OFF),
    Case("admm_sharing-elastic", ADMMSharing(rho=0.5), OFF, regularizer=ElasticNet(0.05)),
    Case("admm_sharing-printed-hinge", ADMMSharing(rho=2.0, form="printed", ball=3.0), OFF, loss=Hinge()),
    Case("fdml_sgd", FDMLSGD(step=0.5, batches=2), OFF),
    Case("sharing-off", BALL, OFF),
    Case("sharing-person", BALL, PERSON),
    Case("sharing-person-half", replace(BALL, form="printed"), PERSON, loss=HalfLogistic()),
    Case("sharing-column", FREE, COLUMN),
    Case("sharing-column-ball", replace(FREE, ball=0.3), COLUMN),
    Case("sharing-uneven", BALL, replace(PERSON, profile=(2.0, 1.0, 2.0, 0.5))),
    Case(
        "sharing-parties",
        BALL,
        Target(None, 1e-5, adjacency="person", party_epsilon=(1.0, 2.0, 1.0, 0.5, 3.0), decay=0.8),
    ),
    Case("sharing-labels", BALL, PERSON, loss=Debiased(Logistic(), 1.0)),
    Case(
        "sharing-published",
        replace(FREE, calibration="published", round_epsilon=0.5),
        Target(None, 1e-3, adjacency="column"),
    ),
]
CASES = {case.name: case for case in ALGORITHMS}
CERTIFIED = [case for case in ALGORITHMS if case.certified]


def named(case: Case) -> str:
    return case.name


def tables(seed: int, widths: tuple[int, ...] = WIDTHS, n: int = N) -> list[Any]:
    """Rows of any norm, many beyond the bound, with zeros among the entries."""
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7) for d in widths]


def people(
    seed: int = 0,
    widths: tuple[int, ...] = WIDTHS,
    n: int = N,
    sparse: bool = False,
    column_bound: float | None = None,
) -> People:
    parts, rng = tables(seed, widths, n), np.random.default_rng([seed, 1])
    y = np.where(sum(X.sum(axis=1) for X in parts) + rng.normal(size=n) > 0, 1.0, -1.0)
    if sparse:
        from scipy.sparse import csr_array

        parts = [csr_array(X) for X in parts]
    columns = Columns.build(parts, row_bounds=[1.0] * len(widths), column_bound=column_bound)
    return People.build(columns, y)


def dense(people: People) -> Any:
    """All columns side by side."""
    parts = [features.A for features in people.columns.features]
    return np.hstack([A.toarray() if hasattr(A, "toarray") else A for A in parts])


def optimum(people: People, public: Public, ball: float | None = None) -> Any:
    """The minimiser of C mean(loss) + R by scipy; `ball` bounds the weights of every party."""
    from scipy.optimize import minimize

    D, y = dense(people), people.y

    def value(w: Any) -> tuple[float, Any]:
        scores = D @ w
        slope = public.C * D.T @ public.loss.deriv(scores, y) / len(y) + public.regularizer.subgradient(w)
        return float(public.C * public.loss.value(scores, y).mean() + public.regularizer.value(w)), slope

    zero = np.zeros(D.shape[1])
    if ball is None:
        found = minimize(value, zero, jac=True, method="L-BFGS-B", options={"ftol": 1e-20, "gtol": 1e-10, "maxcor": 50})
        return found.x
    ends = np.cumsum((0, *people.widths))
    inside = [
        {
            "type": "ineq",
            "fun": lambda w, a=a, b=b: ball**2 - w[a:b] @ w[a:b],
            "jac": lambda w, a=a, b=b: np.concatenate([zero[:a], -2 * w[a:b], zero[b:]]),
        }
        for a, b in pairwise(ends.tolist())
    ]
    found = minimize(value, zero, jac=True, method="SLSQP", constraints=inside, options={"ftol": 1e-14, "maxiter": 500})
    return found.x
