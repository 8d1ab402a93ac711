"""R^2 of regressions: steps for two classes, DPFedSGD, and ADMMRegressor's own. Ten minutes; --quick: one draw.

Bounds are declared as somebody who knows the kind of data would: labels spread by about a third of label_bound.
"""

import sys
import warnings
from collections.abc import Callable

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_regression
from sklearn.linear_model import LinearRegression

from privadmm import ADMMRegressor, Centred, DPFedSGD, FirstOrderConsensus
from privadmm.data.arrays import Floats

Made = tuple[Floats, Floats]
METHODS = {
    "classes": {"algorithm": Centred(FirstOrderConsensus()), "rounds": 41},
    "DPFedSGD": {"algorithm": DPFedSGD(step=1.0), "rounds": 30},
    "numbers": {},
}


def linear(n: int, d: int, told: int, seed: int, rank: int | None = None) -> Made:
    """Labels of which a line explains 80 %."""
    X, y = make_regression(n, d, n_informative=told, effective_rank=rank, random_state=seed)
    X = X if rank is None else X / X.std(0).mean()
    noise = np.random.default_rng(seed + 1).normal(size=n)
    return X, 10 * (np.sqrt(0.8) * y / y.std() + np.sqrt(0.2) * noise)


def friedman(n: int, seed: int, centred: bool) -> Made:
    X, y = make_friedman1(n, 10, noise=1.0, random_state=seed)
    return 2 * X - 1 if centred else X, y - 15


def diabetes(times: int, seed: int) -> Made:
    """The 442 people drawn again and again, with a little noise."""
    X, y = load_diabetes(return_X_y=True)
    rng = np.random.default_rng(seed)
    pick = rng.integers(0, len(y), len(y) * times)
    X = (X / X.std(0))[pick]
    return X + 0.1 * rng.normal(size=X.shape), y[pick] - 150 + 5 * rng.normal(size=len(pick))


def table(n: int, seed: int) -> Made:
    """Five columns of categories, some of them frequent."""
    rng, parts, y = np.random.default_rng(seed), list[Floats](), np.zeros(n)
    for count, often in ((10, 0.6), (10, 0.3), (6, 0.1), (4, 0.4), (2, 0.5)):
        drawn = rng.choice(count, n, p=[often, *[(1 - often) / (count - 1)] * (count - 1)])
        parts.append(np.eye(count)[drawn])
        y = y + 2 * rng.normal(size=count)[drawn]
    return np.concatenate(parts, axis=1), y - np.median(y) + 1.5 * rng.normal(size=n)


# Name, records (a fifth is held out), row_bound, label_bound, parties.
SETS: list[tuple[str, Callable[[int], Made], float, float, int]] = [
    ("linear 2k d5", lambda seed: linear(2500, 5, 5, seed), 3.0, 30.0, 3),
    ("linear 10k d10", lambda seed: linear(12500, 10, 10, seed), 4.0, 30.0, 10),
    ("linear 50k d20", lambda seed: linear(62500, 20, 10, seed), 6.0, 30.0, 10),
    ("low rank 10k d50", lambda seed: linear(12500, 50, 10, seed, 10), 9.0, 30.0, 5),
    ("friedman 10k d10", lambda seed: friedman(12500, seed, True), 10**0.5, 15.0, 5),
    ("friedman 50k d10 in 0..1", lambda seed: friedman(62500, seed, False), 10**0.5, 15.0, 10),
    ("diabetes 7k d10", lambda seed: diabetes(20, seed), 5.0, 200.0, 5),
    ("table 5k d32", lambda seed: table(6250, seed), 5**0.5, 12.0, 3),
    ("table 50k d32", lambda seed: table(62500, seed), 5**0.5, 12.0, 10),
    ("linear 10k d10", lambda seed: linear(12500, 10, 10, seed), 4.0, 30.0, 1),
]


def main(draws: int) -> None:
    warnings.simplefilter("ignore")
    print(f"| records | parties | sums | epsilon | least squares | {' | '.join(METHODS)} |")
    print("|---" * (5 + len(METHODS)) + "|")
    for name, make, row_bound, label_bound, parties in SETS:
        records = [make(100 + draw) for draw in range(draws)]
        for secure in (True, False) if parties > 2 else (False,):
            for epsilon in (0.5, 1.0, 4.0):
                found = list[list[float]]()
                for draw, (X, y) in enumerate(records):
                    n = len(y) * 4 // 5
                    declared = {"row_bound": row_bound, "label_bound": label_bound, "parties": parties}
                    asked = {"epsilon": epsilon, "delta": 1e-6, "secure_sum": secure, "random_state": draw}
                    private = [ADMMRegressor(**declared, **asked, **how) for how in METHODS.values()]
                    fitted = [model.fit(X[:n], y[:n]) for model in (LinearRegression(), *private)]
                    found.append([float(model.score(X[n:], y[n:])) for model in fitted])
                figures = " | ".join(f"{figure:.2f}" for figure in np.mean(found, axis=0))
                print(f"| {name} | {parties} | {'secure' if secure else 'own'} | {epsilon:g} | {figures} |", flush=True)


main(1 if "--quick" in sys.argv else 5)
