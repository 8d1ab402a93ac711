"""A survey with one sensitive answer: who took part is public, what they answered is not.

Run it: python examples/survey.py. The people are invented, and everything is a simulation in this process.
"""

import numpy as np
from sklearn.metrics import brier_score_loss, roc_auc_score
from sklearn.model_selection import cross_val_score, train_test_split

import privadmm
from privadmm import Account, ADMMClassifier

COLUMNS = ("age", "income", "city", "children")
DELTA = 1e-6


def people(rng: np.random.Generator, n: int = 12000) -> tuple[np.ndarray, np.ndarray]:
    """Invent rows, within declared ranges, and whether each person has cheated on taxes."""
    X = np.column_stack([rng.uniform(-1, 1, (n, 2)), rng.integers(0, 2, n), rng.integers(0, 4, n) / 3])
    odds = 1.5 * X[:, 1] - 1.0 * X[:, 0] + 0.8 * X[:, 2] - 0.6 * X[:, 3] - 0.2
    return X, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-2 * odds)), "yes", "no")


def model(**how: object) -> ADMMClassifier:
    declared = {"classes": ("no", "yes"), "row_bound": 2.0, "parties": 3, "delta": DELTA, "random_state": 0}
    return ADMMClassifier(**{**declared, "algorithm": {"name": "dp_fedsgd", "step": 4.0}, "rounds": 30, **how})


def main() -> None:
    X, y = people(np.random.default_rng(0))
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)

    print("What is protected at epsilon = 0.2, and what that leaves of the answer:")
    for words, how in {
        "a person's whole row": {"adjacency": "replace-one"},
        "the answer alone": {"adjacency": "label"},
        "the answer, and nobody is trusted with it": {"adjacency": "label", "label_epsilon": 1.0},
    }.items():
        fitted = model(epsilon=0.2, **how).fit(X, y)
        likely = fitted.predict_proba(X_test)[:, 1]
        auc, brier = roc_auc_score(y_test == "yes", likely), brier_score_loss(y_test == "yes", likely)
        print(f"  {words:<42} AUC {auc:.3f}, Brier score {brier:.3f}")

    print("\nFive folds on one ledger that counts answers:")
    ledger = Account(epsilon=1.0, delta=DELTA, adjacency="label")
    scores = cross_val_score(model(epsilon=0.2, adjacency="label", ledger=ledger), X, y, cv=5, error_score="raise")
    print(f"  {100 * scores.mean():.1f} % right, give or take {100 * scores.std():.1f}")
    print(privadmm.account(ledger))


if __name__ == "__main__":
    main()
