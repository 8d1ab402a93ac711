"""Banks: a bank and a card company hold different columns about the same customers

Neither may show its columns to the other, and together they know better who pays a loan back. Each sends one noisy
number for every customer and round; who holds the labels fits the sum. A customer loses what both companies release, so
the account is one for each person, and epsilon counts both together.

The picture says what that costs. With noise on every customer's score, columns need far more epsilon than records do:
the two companies together beat what the bank could do alone, without any noise, only from an epsilon of about 5 for a
customer on, and at 1 they are hardly better than chance. It is better to see that before the project than after it.
Labels are not hidden here. The customers are invented, and everything is a simulation in this process.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np

import privadmm
from privadmm import Account, ADMMClassifier, BudgetWarning, Sharing
from privadmm.runs.style import band, finish, pictures

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer epsilons and seeds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

COLUMNS = ("income", "savings", "loans", "spending", "late payments")  # the first three are the bank's
DELTA = 1e-6
EPSILONS = (1.0, 2.0, 10.0) if chosen.quick else (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
SEEDS = range(1 if chosen.quick else 5)


def customers(rng: np.random.Generator, n: int = 5000) -> tuple[np.ndarray, np.ndarray]:
    """Invent rows, already within declared ranges, and who paid a loan back."""
    X = rng.uniform(-1, 1, size=(n, len(COLUMNS)))
    worth = X @ np.array([1.0, 0.8, -0.7, -0.4, -1.2]) + 0.3 * rng.normal(size=n)
    return X, np.where(worth > 0, "paid", "failed")


def model(**how: object) -> ADMMClassifier:
    declared = {"classes": ("failed", "paid"), "row_bound": 1.8, "columns": (3, 2), "random_state": 0, "rounds": 4}
    return ADMMClassifier(**{**declared, "regularizer": {"name": "l2", "weight": 1e-3}, **how})


X, y = customers(np.random.default_rng(0))
X, y, X_test, y_test = X[:4000], y[:4000], X[4000:], y[4000:]
clear = model(algorithm={"name": "admm_sharing", "rho": 0.1}, epsilon=None, delta=None, rounds=20).fit(X, y)
best = 100 * clear.score(X_test, y_test)
bank = ADMMClassifier(
    classes=("failed", "paid"), row_bound=1.8, algorithm="admm_star", rounds=20, epsilon=None, delta=None, parties=1,
    random_state=0,
).fit(X[:, :3], y)  # fmt: skip
alone = 100 * bank.score(X_test[:, :3], y_test)
majority = 100 * max(np.mean(y_test == name) for name in ("failed", "paid"))
print(f"without privacy          {best:.1f} % right; {clear.model_}")
print(f"the bank's columns alone {alone:.1f} %, always the same answer {majority:.1f} %")

# One account for a person: what both companies release about a customer composes.
ledger = Account(epsilon=300.0, delta=DELTA, adjacency="person")
accuracies, persons = [], []
for epsilon in EPSILONS:
    fitted = []
    for seed in SEEDS:
        private = model(
            algorithm=Sharing(rho=0.1, ball=5.0), epsilon=epsilon, delta=DELTA, adjacency="person", random_state=seed,
            ledger=ledger if seed == 0 else None,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BudgetWarning)
            fitted.append(100 * private.fit(X, y).score(X_test, y_test))
    accuracies.append(fitted)
    persons.append(private.epsilon_person_)
    print(
        f"epsilon = {epsilon:<4g} at each    {np.mean(fitted):.1f} % right; a customer loses {persons[-1]:.3f} at both"
    )
print(f"\n{private.coefficients(names=COLUMNS)}\n")
print(privadmm.account(ledger))

found = np.array(accuracies)
title = "Two companies, one model: what hiding each customer costs"
words = (
    f"{len(y):,} invented customers to train on, {len(y_test):,} to test; bank 3 columns, card company 2; ADMM "
    f"sharing, 4 rounds, delta = {DELTA:g}; line and band: mean and range over {len(SEEDS)} noise seeds. Labels "
    "are not hidden."
)
for figure, theme in pictures(chosen.out / "banks", height=3.8, title=title, words=words, quick=chosen.quick):
    axes = figure.subplots()
    band(axes, persons, found.min(axis=1), found.max(axis=1), theme.certified)
    axes.plot(persons, found.mean(axis=1), "o-", color=theme.certified)
    for value, text, color, style, side in (
        (best, "both companies' columns, without privacy", theme.non_private, "--", "bottom"),
        (alone, "the bank's columns alone, without privacy", theme.baseline, "-.", "top"),
        (majority, "always the majority", theme.majority, ":", "bottom"),
    ):
        axes.axhline(value, color=color, linestyle=style, linewidth=1.3)
        axes.annotate(
            text, (persons[-1], value), xytext=(0, 4 if side == "bottom" else -9), textcoords="offset points",
            color=color, fontsize=9, ha="right", va=side,
        )  # fmt: skip
    below = len(persons) // 2 - 1  # there is room under the band
    axes.annotate(
        "both companies' columns, private", (persons[below], found[below].min()), xytext=(10, -4),
        textcoords="offset points", color=theme.certified, fontsize=9, va="top",
    )  # fmt: skip
    axes.set(xscale="log", xlabel="epsilon of a customer, at both companies together", ylabel="test accuracy (%)")
    axes.set(ylim=(35, 100))
    finish(axes, x=[float(f"{value:.2g}") for value in persons], legend=False)
