"""A bank and a card company hold different columns about the same customers, and fit one model without showing them.

Run it: python examples/banks.py. The customers are invented, and everything is a simulation in this process.
"""

import warnings

import numpy as np

import privadmm
from privadmm import Account, ADMMClassifier, Sharing

COLUMNS = ("income", "savings", "loans", "spending", "late payments")  # the first three are the bank's
DELTA = 1e-6


def customers(rng: np.random.Generator, n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Invent rows, already within declared ranges, and who paid a loan back."""
    X = rng.uniform(-1, 1, size=(n, len(COLUMNS)))
    worth = X @ np.array([1.0, 0.8, -0.7, -0.4, -1.2]) + 0.3 * rng.normal(size=n)
    return X, np.where(worth > 0, "paid", "failed")


def model(**how: object) -> ADMMClassifier:
    declared = {"classes": ("failed", "paid"), "row_bound": 1.8, "columns": (3, 2), "random_state": 0, "rounds": 4}
    return ADMMClassifier(**{**declared, "regularizer": {"name": "l2", "weight": 1e-3}, **how})


def main() -> None:
    X, y = customers(np.random.default_rng(0))
    clear = model(algorithm={"name": "admm_sharing", "rho": 0.1}, epsilon=None, delta=None, rounds=20).fit(X, y)
    print(f"without privacy          {100 * clear.score(X, y):.1f} % right; {clear.model_}")

    # One account for a person: what both companies release about a customer composes.
    ledger = Account(epsilon=30.0, delta=DELTA, adjacency="person")
    for epsilon in (2.0, 10.0):
        private = model(
            algorithm=Sharing(rho=0.1, ball=5.0), epsilon=epsilon, delta=DELTA, adjacency="person", ledger=ledger
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            private.fit(X, y)
        print(
            f"epsilon = {epsilon:<4g} at each    {100 * private.score(X, y):.1f} % right; "
            f"a customer loses {private.epsilon_person_:.3f} at both together"
        )
    print(f"\n{private.coefficients(names=COLUMNS)}\n")
    print(privadmm.account(ledger))


if __name__ == "__main__":
    main()
