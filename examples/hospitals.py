"""Hospitals: four of them choose a model together, and one ledger counts every fit of the search

A search over settings is many fits, and every fit tells something about the same patients. Four hospitals of unequal
size agree on one account, epsilon = 2 for all that is ever done with these patients. A cross-validation of two losses
is counted on it fit by fit, the last fit takes exactly what is left, and one more is refused before anything is fitted.

Fits compose as the whole that they are: four of epsilon = 0.4 cost 0.84 together, and not 1.6. Each hospital is a party
(`groups=hospital`) and keeps its rows; ranges are declared by people who know the columns and not read off a patient.
The patients are invented, and everything is a simulation in this process.
"""

import argparse
import re
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import privadmm
from privadmm import Account, ADMMClassifier, RefusedError
from privadmm.runs.style import finish, pictures, symbols

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="the same: this takes a few seconds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

HOSPITALS = {"north": 9000, "south": 4000, "east": 1500, "west": 500}
# Declared by people who know the columns, and not read off any patient: a looked-up range would be a release.
RANGES = {"age": (0, 110), "pressure": (80, 220), "sugar": (2, 20), "smoker": (0, 1)}
LOW, HIGH = (np.array(ends, dtype=float) for ends in zip(*RANGES.values(), strict=True))
BUDGET, EACH, DELTA = 2.0, 0.4, 1e-6


def patients(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Invent rows, whether each came back within a month, and the hospital of each."""
    hospital = np.repeat(list(HOSPITALS), list(HOSPITALS.values()))
    n = len(hospital)
    older = np.where(hospital == "west", 12, 0)  # hospitals differ in whom they see
    age = np.clip(rng.normal(52 + older, 18, n), 0, 110)
    pressure, sugar, smoker = rng.normal(128, 17, n), rng.gamma(6, 1, n), rng.uniform(size=n) < 0.25
    risk = 0.06 * (age - 55) + 0.03 * (pressure - 130) + 0.25 * (sugar - 6) + 1.0 * smoker - 0.3
    back = rng.uniform(size=n) < 1 / (1 + np.exp(-1.5 * risk))
    return np.column_stack([age, pressure, sugar, smoker]), np.where(back, "back", "home"), hospital


def declared_scale(X: np.ndarray) -> np.ndarray:
    """Bring every column to [-1, 1] by its declared range."""
    return 2 * (np.clip(X, LOW, HIGH) - LOW) / (HIGH - LOW) - 1


X, y, hospital = patients(np.random.default_rng(0))
X, X_test, y, y_test, hospital, _ = train_test_split(X, y, hospital, test_size=0.2, random_state=0, stratify=hospital)
with tempfile.TemporaryDirectory() as place:
    path = Path(place) / "patients.ledger"
    Account(epsilon=BUDGET, delta=DELTA, path=path)  # what all that we do with these patients may cost
    model = ADMMClassifier(
        classes=("home", "back"), row_bound=2.0, epsilon=EACH, delta=DELTA, random_state=0, ledger=path
    )
    pipeline = make_pipeline(FunctionTransformer(declared_scale), model)

    print(f"1. Search: two losses, two folds each, every fit with epsilon = {EACH:g}")
    losses, spent = ["half_logistic", "logistic"], [0.0]
    scores = {}
    for loss in losses:
        search = GridSearchCV(pipeline, {"admmclassifier__loss": [loss]}, cv=2, refit=False, error_score="raise")
        search.fit(X, y, admmclassifier__groups=hospital)
        scores[loss] = 100 * search.best_score_
        spent.append(privadmm.account(path).epsilon)
        print(f"   {loss:<14} {scores[loss]:.1f} % right on the held-out fold")
    print(privadmm.account(path))

    left = privadmm.account(path).largest_next
    print(f"\n2. The last fit takes what is left, epsilon = {left:.4f}")
    pipeline.set_params(admmclassifier__loss=max(scores, key=scores.get), admmclassifier__epsilon=0.999 * left)
    pipeline.fit(X, y, admmclassifier__groups=hospital)
    spent.append(privadmm.account(path).epsilon)
    accuracy = 100 * pipeline.score(X_test, y_test)
    majority = 100 * max(np.mean(y_test == name) for name in ("home", "back"))
    print(f"   {accuracy:.1f} % right; always the same answer {majority:.1f} %")
    print(f"   hospitals: {', '.join(model.parties_)}")
    print(model.coefficients(names=list(RANGES), draws=5))

    print("\n3. One more fit is refused, before anything is fitted")
    pipeline.set_params(admmclassifier__epsilon=EACH)
    try:
        pipeline.fit(X, y, admmclassifier__groups=hospital)
    except RefusedError as error:
        refused = str(error)
        print(f"   {refused}")

steps = [f"search:\n{losses[0]},\n2 fits", f"search:\n{losses[1]},\n2 fits", "last fit,\nall that is left", "one more"]
title = "One ledger for a whole search: fits compose, and the budget holds"
words = (
    f"{len(y):,} invented patients of four hospitals; the search's fits have epsilon = {EACH:g} each, delta = "
    f"{DELTA:g}. The last model is right on {accuracy:.1f} % of {len(y_test):,} held-out patients, a constant "
    f"answer on {majority:.1f} %."
)
for figure, theme in pictures(chosen.out / "hospitals", height=3.6, title=title, words=words):
    axes = figure.subplots()
    axes.axhline(BUDGET, color=theme.ink, linewidth=1.2, linestyle="--")
    axes.text(-0.42, BUDGET + 0.04, symbols(f"budget, epsilon = {BUDGET:g}"))
    for number, (before, after) in enumerate(pairwise(spent)):
        axes.bar(number, before, color=theme.certified, alpha=0.25, width=0.62)
        axes.bar(number, after - before, bottom=before, color=theme.certified, width=0.62)
        middle = (before + after) / 2
        axes.text(number, middle, f"+ {after - before:.2f}", ha="center", va="center", color=theme.paper)
        added = EACH * 2 * (number + 1) if number < 2 else None
        if added is not None:
            axes.plot([number - 0.31, number + 0.31], [added, added], color=theme.muted, linewidth=1.2)
            axes.text(number, added + 0.04, f"{added:.1f} if added up", color=theme.muted, fontsize=8, ha="center")
    axes.bar(3, BUDGET, color=theme.certified, alpha=0.25, width=0.62)
    beyond = float(re.search(r"bring it to ([0-9.]*[0-9])", refused)[1])
    axes.bar(3, beyond - BUDGET, bottom=BUDGET, fill=False, edgecolor=theme.verdicts["poor"], linestyle=":", width=0.62)
    axes.text(3, beyond + 0.04, "refused", ha="center", color=theme.verdicts["poor"])
    axes.set_xticks(range(4), steps)
    axes.set(ylabel="epsilon spent on each patient", ylim=(0, 2.6), xlim=(-0.45, 3.5))
    finish(axes, legend=False)
    axes.grid(axis="x", visible=False)
