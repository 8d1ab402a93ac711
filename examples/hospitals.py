"""Four hospitals of unequal size choose a model together, and count every fit of the search on one ledger.

Run it: python examples/hospitals.py. The patients are invented, and everything is a simulation in this process.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import privadmm
from privadmm import Account, ADMMClassifier, RefusedError

HOSPITALS = {"north": 9000, "south": 4000, "east": 1500, "west": 500}
# Declared by people who know the columns, and not read off any patient: a looked-up range would be a release.
RANGES = {"age": (0, 110), "pressure": (80, 220), "sugar": (2, 20), "smoker": (0, 1)}
LOW, HIGH = (np.array(ends, dtype=float) for ends in zip(*RANGES.values(), strict=True))


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


def main() -> None:
    X, y, hospital = patients(np.random.default_rng(0))
    X, X_test, y, y_test, hospital, _ = train_test_split(
        X, y, hospital, test_size=0.2, random_state=0, stratify=hospital
    )
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "patients.ledger"
        Account(epsilon=2.0, delta=1e-6, path=path)  # what all that we do with these patients may cost
        model = ADMMClassifier(
            classes=("home", "back"), row_bound=2.0, epsilon=0.4, delta=1e-6, random_state=0, ledger=path
        )
        pipeline = make_pipeline(FunctionTransformer(declared_scale), model)

        print("1. Search: two losses, two folds each, every fit with epsilon = 0.4")
        grid = {"admmclassifier__loss": ["half_logistic", "logistic"]}
        search = GridSearchCV(pipeline, grid, cv=2, refit=False, error_score="raise")
        search.fit(X, y, admmclassifier__groups=hospital)
        for loss, score in zip(grid["admmclassifier__loss"], search.cv_results_["mean_test_score"], strict=True):
            print(f"   {loss:<14} {100 * score:.1f} % right on the held-out fold")
        print(privadmm.account(path))

        left = privadmm.account(path).largest_next
        print(f"\n2. The last fit takes what is left, epsilon = {left:.4f}")
        pipeline.set_params(**search.best_params_, admmclassifier__epsilon=0.999 * left)
        pipeline.fit(X, y, admmclassifier__groups=hospital)
        majority = max(np.mean(y_test == name) for name in ("home", "back"))
        print(f"   {100 * pipeline.score(X_test, y_test):.1f} % right; always the same answer {100 * majority:.1f} %")
        print(f"   hospitals: {', '.join(model.parties_)}")
        print(model.coefficients(names=list(RANGES), draws=5))

        print("\n3. One more fit is refused, before anything is fitted")
        try:
            pipeline.fit(X, y, admmclassifier__groups=hospital)
        except RefusedError as error:
            print(f"   {error}")


if __name__ == "__main__":
    main()
