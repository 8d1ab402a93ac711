"""Secure sums against noise of one's own: ever more parties, the same records

Forty thousand people are spread over 3 to 300 parties that do not trust each other. Usually each party adds all of the
noise that protects its own people, and the sum of N messages carries N such noises: the more parties, the worse the
model, at the same epsilon.

In a secure sum every party adds a share of one noise and masks its message, so that only the sum of all can be read.
The model is then nearly as good as that of a curator who is trusted with every record, however many parties there are.
The price: the guarantee is computational, and holds while no more than a third of the parties collude with whoever
reads the sum. It is one argument, `secure_sum=True`, or one line of a config, `sum = "secure"`.
"""

import argparse
from pathlib import Path

import numpy as np

from privadmm import ADMMClassifier
from privadmm.data import adult
from privadmm.runs.style import band, finish, pictures

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer parties, records and seeds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

EPSILON, DELTA = 0.5, 1e-6
BOUND = 14**0.5  # declared: each of the fourteen binned columns puts a single one into a row
PARTIES = (3, 30) if chosen.quick else (3, 10, 30, 100, 300)
SEEDS = range(1 if chosen.quick else 5)
TRAIN = 6_000 if chosen.quick else 40_000

records = adult.load(encoding="binned")  # embedded, and in a fixed order, so the seed shuffles it
order = np.random.default_rng(0).permutation(len(records))
X, income = records.X[order], records.columns["income"][order]
X_train, y_train, X_test, y_test = X[:TRAIN], income[:TRAIN], X[40_000:], income[40_000:]


def accuracy(parties: int, seed: int, secure: bool = False) -> float:
    """Test accuracy in per cent of one private fit."""
    model = ADMMClassifier(
        classes=("<=50K", ">50K"), row_bound=BOUND, epsilon=EPSILON, delta=DELTA, parties=parties, random_state=seed,
        secure_sum=secure,
    )  # fmt: skip
    return 100 * model.fit(X_train, y_train).score(X_test, y_test)


curator = np.array([accuracy(1, seed) for seed in SEEDS])
own = np.array([[accuracy(parties, seed) for seed in SEEDS] for parties in PARTIES])
secure = np.array([[accuracy(parties, seed, secure=True) for seed in SEEDS] for parties in PARTIES])
majority = 100 * max(np.mean(y_test == name) for name in ("<=50K", ">50K"))
print(f"epsilon = {EPSILON:g}, {TRAIN:,} records; a curator with all of them: {curator.mean():.1f} %")
for parties, alone, together in zip(PARTIES, own.mean(axis=1), secure.mean(axis=1), strict=True):
    print(f"{parties:>4} parties: each its own noise {alone:.1f} %, secure sum {together:.1f} %")

title = "Secure sums: nearly a curator's accuracy, however many parties"
words = (
    f"Adult, {TRAIN:,} records to train on and {len(y_test):,} to test, epsilon = {EPSILON:g}, delta = {DELTA:g}. "
    f"Lines are means, bands the range, over {len(SEEDS)} noise seeds. In a secure sum a third of the parties may "
    "collude."
)
for figure, theme in pictures(chosen.out / "secure_sums", title=title, words=words, quick=chosen.quick):
    axes = figure.subplots()
    axes.axhline(curator.mean(), color=theme.curator, linestyle="--", linewidth=1.3)
    axes.axhline(majority, color=theme.majority, linestyle=":", linewidth=1.3)
    for values, color in ((own, theme.own_noise), (secure, theme.secure_sum)):
        band(axes, PARTIES, values.min(axis=1), values.max(axis=1), color, among=2)
        axes.plot(PARTIES, values.mean(axis=1), "o-", color=color)
    middle = len(PARTIES) // 2
    for text, x, y, dy, color in (
        ("a curator with all records", PARTIES[0], curator.mean(), 5, theme.curator),
        ("secure sum", PARTIES[-1], secure[-1].min(), -14, theme.secure_sum),
        ("each party adds its own noise", PARTIES[middle], own[middle].min(), -16, theme.own_noise),
        ("always the majority", PARTIES[0], majority, 6, theme.majority),
    ):
        side = "right" if x == PARTIES[-1] else "left" if x == PARTIES[0] else "right"
        axes.annotate(text, (x, y), xytext=(0, dy), textcoords="offset points", color=color, ha=side)
    axes.set(xscale="log", xlabel="number of parties", ylabel="test accuracy (%)")
    finish(axes, x=PARTIES, legend=False)
