"""Survey: who took part is public, what they answered is not

A survey asks one sensitive question. Three promises can be made, and they are not the same: to hide a person's whole
row; to hide the answer alone, where everything else about the person is known anyway; or to trust nobody with the
answer, so that each person's answer is randomised before it is stored.

The picture shows what each promise leaves of the answer, by epsilon: the area under the ROC curve, 0.5 for guessing. To
hide the answer alone takes half the noise that hiding the row takes, and so half the epsilon for the same curve. To
trust nobody with the answer costs about as much as hiding the row. At the end five folds of a cross-validation are
counted on one ledger. The people are invented, and everything is a simulation in this process.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score, train_test_split

import privadmm
from privadmm import Account, ADMMClassifier, BudgetWarning
from privadmm.runs.style import band, finish, pictures, symbols

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer epsilons and seeds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

DELTA, LABEL_EPSILON = 1e-6, 1.0
EPSILONS = (0.1, 0.5) if chosen.quick else (0.05, 0.1, 0.2, 0.5, 1.0)
SEEDS = range(2 if chosen.quick else 20)
PROMISES = {
    "the answer alone": {"adjacency": "label"},
    "a person's whole row": {"adjacency": "replace-one"},
    "the answer, and nobody is trusted with it": {"adjacency": "label", "label_epsilon": LABEL_EPSILON},
}


def people(rng: np.random.Generator, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Invent rows (age, income, city, children) within declared ranges, and whether each has cheated on taxes."""
    X = np.column_stack([rng.uniform(-1, 1, (n, 2)), rng.integers(0, 2, n), rng.integers(0, 4, n) / 3])
    odds = 1.5 * X[:, 1] - 1.0 * X[:, 0] + 0.8 * X[:, 2] - 0.6 * X[:, 3] - 0.2
    return X, np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-2 * odds)), "yes", "no")


def model(**how: object) -> ADMMClassifier:
    declared = {"classes": ("no", "yes"), "row_bound": 2.0, "parties": 3, "delta": DELTA, "random_state": 0}
    return ADMMClassifier(**{**declared, "algorithm": {"name": "dp_fedsgd", "step": 4.0}, "rounds": 30, **how})


def auc(fitted: ADMMClassifier) -> float:
    return float(roc_auc_score(y_test == "yes", fitted.predict_proba(X_test)[:, 1]))


warnings.simplefilter("ignore", BudgetWarning)  # the small epsilons are too small: that is what is shown
X, y = people(np.random.default_rng(0))
X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=0)
clear = auc(model(algorithm="admm_star", epsilon=None, delta=None).fit(X, y))
found = {}
for promise, how in PROMISES.items():
    fits = [[model(epsilon=e, random_state=seed, **how).fit(X, y) for seed in SEEDS] for e in EPSILONS]
    found[promise] = np.array([[auc(fitted) for fitted in row] for row in fits])
print(f"Median AUC: without privacy {clear:.3f}; with epsilon = {', '.join(f'{epsilon:g}' for epsilon in EPSILONS)}:")
for promise, areas in found.items():
    print(f"  {promise:<42} {', '.join(f'{area:.3f}' for area in np.median(areas, axis=1))}")

print("\nFive folds on one ledger that counts answers:")
ledger = Account(epsilon=1.0, delta=DELTA, adjacency="label")
scores = cross_val_score(model(epsilon=0.2, adjacency="label", ledger=ledger), X, y, cv=5, error_score="raise")
print(f"  {100 * scores.mean():.1f} % right, give or take {100 * scores.std():.1f}")
print(privadmm.account(ledger))

title = "Three promises to the people of a survey, and what each costs"
words = (
    f"{len(y):,} invented people at three parties, {len(y_test):,} to test; DP-FedSGD, 30 rounds, delta = "
    f"{DELTA:g}; lines: medians over {len(SEEDS)} noise seeds, bands: their middle half. Randomised answers have "
    f"epsilon = {LABEL_EPSILON:g} against everybody, and the axis counts what the parties release on top."
)
for figure, theme in pictures(chosen.out / "survey", height=4.0, title=title, words=words, quick=chosen.quick):
    axes = figure.subplots()
    axes.axhline(clear, color=theme.non_private, linestyle="--", linewidth=1.2, label="without privacy")
    for number, ((promise, areas), marker) in enumerate(zip(found.items(), "osD", strict=True)):
        color = theme.series(number)
        band(axes, EPSILONS, *np.quantile(areas, (0.25, 0.75), axis=1), color, among=3)
        axes.plot(EPSILONS, np.median(areas, axis=1), marker + "-", color=color, label=f"hidden: {promise}")
    axes.axhline(0.5, color=theme.majority, linestyle=":", linewidth=1.2)
    axes.text(EPSILONS[0], 0.495, "guessing", color=theme.majority, va="top")
    axes.set(xscale="log", xlabel="epsilon of each person", ylabel=symbols("area under the ROC curve"))
    axes.set_ylim(0.42, 0.92)
    finish(axes, x=EPSILONS, legend="center right")
