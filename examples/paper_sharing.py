"""Paper: ADMM sharing over split features. A column is not a person

Hu, Liu, Ge, Kong, Jiang and Niu let parties with different columns about the same people train one model. Without noise
it does what it promises: the shared model beats what the first party can do alone. With noise the paper counts what one
column costs, and the weights leave bare at the end.

A person is in every column. The picture shows the test loss by epsilon: in red the paper's noise at the total that it
claims for a column, of which nothing is certified for a person; in blue certified noise, at the total that a person
loses to both parties together. Where a person's epsilon is one that people would call small, sharing does not beat the
first party alone, which needs no noise at all. `privadmm reproduce sharing` runs the paper's whole experiment.
"""

import argparse
from pathlib import Path

import numpy as np

from privadmm.papers.sharing.paper import PLANS
from privadmm.papers.sharing.runs import DELTA, LOSS, Level, Where, admm, alone, noisy
from privadmm.runs.style import finish, pictures, symbols

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer people, epochs and seeds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

WHERE = Where("a9a", people=3000 if chosen.quick else None)
SEEDS, EPOCHS, RUNS = (2, 5, (1, 2)) if chosen.quick else (5, 40, (1, 2, 3, 5, 10))
PUBLISHED = (3.0, 1.0) if chosen.quick else (3.0, 1.0, 0.3, 0.1)  # the paper's epsilon of a round
plan = PLANS["a9a"]

first, pooled = (alone(WHERE, parties)[LOSS] for parties in (1, None))
shared = admm(WHERE, plan.rho, "sharing", EPOCHS)[-1, LOSS]
print(f"test loss: first party alone {first:.4f}, all columns in one hand {pooled:.4f}, shared, no noise {shared:.4f}")

# A published run of one epoch hands over its weights and has no noise at all, so it is left out.
published = [noisy(WHERE, Level("published", epsilon, plan.rho), RUNS[1:], SEEDS) for epsilon in PUBLISHED]
certified = [
    noisy(WHERE, Level("certified", epsilon, plan.rho, *limits), RUNS, SEEDS) for epsilon, *limits in plan.certified
]
points = {
    "published": [(runs.claimed[runs.best], runs.values[runs.best, LOSS]) for runs in published],
    "certified": [(runs.per_person, runs.values[runs.best, LOSS]) for runs in certified],
}
for kind, cells in points.items():
    for epsilon, losses in cells:
        print(f"{kind} noise, total {epsilon:.4g}: test loss {losses.mean():.4f}")

title = "ADMM sharing: noise for a person costs more than the second party brings"
words = (
    f"a9a (Adult), columns split 66 : 57 between two parties, delta = {DELTA:g}; dots and bars: mean and range "
    f"over {SEEDS} noise seeds, each at the best of its numbers of epochs, a choice that no epsilon covers. The "
    "first party alone and the pooled model have no noise."
)
for figure, theme in pictures(chosen.out / "paper_sharing", height=4.0, title=title, words=words, quick=chosen.quick):
    axes = figure.subplots()
    right = max(epsilon for cells in points.values() for epsilon, _ in cells)
    for value, text, color, style, up in (
        (first, "the first party alone, no noise", theme.baseline, "-.", 5),
        (shared, "both parties' columns, no noise", theme.non_private, "--", -14),
    ):
        axes.axhline(value, color=color, linestyle=style, linewidth=1.3)
        axes.annotate(
            text, (right, value), xytext=(0, up), textcoords="offset points", color=color, fontsize=9, ha="right"
        )
    names = {
        "published": "the paper's noise: claimed for a column, none certified",
        "certified": "certified noise: for a person",
    }
    for (kind, cells), marker in zip(points.items(), ("X", "o"), strict=True):
        epsilons, values = zip(*sorted(cells, key=lambda cell: cell[0]), strict=True)
        losses = np.array(values)
        means = losses.mean(axis=1)
        ends = [means - losses.min(axis=1), losses.max(axis=1) - means]
        axes.errorbar(epsilons, means, yerr=ends, fmt=f"{marker}-", color=theme.of(kind), label=symbols(names[kind]))
    axes.set(xscale="log", yscale="log", xlabel="total epsilon", ylabel="test loss", ylim=(0.3, 1.0))
    finish(axes, legend="upper right")
