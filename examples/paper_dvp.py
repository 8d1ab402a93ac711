"""Paper: dual variable perturbation. Rounds compose, whatever a theorem says of one

Zhang and Zhu put noise into every node's dual variable. Their theorem is about one round, alpha-private, and their text
says that privacy does not depend on the number of rounds. But an adversary sees all of them. The left picture has what
100 rounds at the paper's own alpha = 0.3 really cost, by round, beside that claim.

The right picture is the good news: certified noise, Gaussian and composed exactly, buys the same loss for far less. At
equal certified totals it stands well below the paper's noise, and the paper's loss at a total of 17 is had for less
than 2. `privadmm reproduce dvp` runs the paper's whole experiment.
"""

import argparse
from pathlib import Path

import numpy as np

from privadmm import DVP
from privadmm.papers.dvp import paper
from privadmm.papers.framework import nodes
from privadmm.privacy.accounting import totals, worst
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs.style import band, finish, pictures, symbols

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer rounds, settings and seeds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

ROUNDS, SEEDS = (5, 2) if chosen.quick else (paper.ROUNDS, 5)
ALPHAS = (0.1, 0.3) if chosen.quick else (0.05, 0.1, 0.2, 0.3, 0.5)
TOTALS = (1.0, 4.0) if chosen.quick else (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)

# What the paper's noise for alpha = 0.3 a round costs after so many rounds: its events, composed.
method = DVP(eta=paper.ETA, tolerance=nodes.TOLERANCE, calibration="proof", alpha=paper.CHOSEN)
job = nodes.job(method, ROUNDS, paper.RHO, nodes.PUBLISHED)
spent = []
for end in range(1, ROUNDS + 1):
    so_far = {key: events for key, events in job.plan.items() if key[0] < end}
    spent.append(worst(totals(so_far, job.public.parties), nodes.DELTA))
print(f"alpha = {paper.CHOSEN:g} a round, certified: {spent[0]:.2f} after one round, {spent[-1]:.1f} after {ROUNDS}")


def certified(epsilon: float) -> nodes.Seen:
    """The same method with Gaussian noise, of which all rounds together are certified to cost epsilon."""
    method = DVP(eta=paper.ETA, tolerance=nodes.TOLERANCE)
    target = Target(epsilon, nodes.DELTA, Simulation.kind)
    return nodes.run(nodes.job(method, ROUNDS, paper.RHO, target), SEEDS)


papers = {alpha: paper.proof(alpha, paper.RHO, ROUNDS, SEEDS) for alpha in ALPHAS}
ours = {epsilon: certified(epsilon) for epsilon in TOTALS}
clear = paper.plain(paper.CONTROL, ROUNDS).last.mean()
for alpha, seen in papers.items():
    print(f"the paper's noise, {alpha:g} a round: loss {seen.last.mean():.3f}, certified total {seen.epsilon:.3g}")
for epsilon, seen in ours.items():
    print(f"certified noise, total {epsilon:g}: loss {seen.last.mean():.3f}")

title = "Dual variable perturbation: 100 rounds cost more than one"
words = (
    f"Adult, 40,000 records at 5 nodes, {ROUNDS} rounds, delta = {nodes.DELTA:g} for certified figures; lines and "
    f"bands: mean and range over {SEEDS} noise seeds."
)
for figure, theme in pictures(chosen.out / "paper_dvp", height=3.9, title=title, words=words, quick=chosen.quick):
    left, right = figure.subplots(1, 2)
    rounds = np.arange(1, ROUNDS + 1)
    left.plot(rounds, spent, color=theme.certified)
    left.axhline(paper.CHOSEN, color=theme.published, linestyle="--")
    left.annotate(
        f"certified, {spent[-1]:.0f} in the end", (rounds[-1], spent[-1]), xytext=(-4, 3), textcoords="offset points",
        ha="right", color=theme.certified,
    )  # fmt: skip
    left.annotate(
        symbols(f"the paper: alpha = {paper.CHOSEN:g}, whatever the rounds"), (rounds[-1], paper.CHOSEN), ha="right",
        xytext=(0, 5), textcoords="offset points", color=theme.published, fontsize=8.5,
    )  # fmt: skip
    left.set(
        title="what the paper's noise costs",
        xlabel="rounds",
        ylabel="epsilon of all rounds",
        ylim=(0, 1.12 * spent[-1]),
    )
    finish(left, legend=False)
    right.axhline(clear, color=theme.non_private, linestyle="--", linewidth=1.2, label="without noise")
    for runs, color, label in (
        (papers, theme.published, "the paper's noise"),
        (ours, theme.certified, "certified noise"),
    ):
        x, losses = [seen.epsilon for seen in runs.values()], np.array([seen.last for seen in runs.values()])
        band(right, x, losses.min(axis=1), losses.max(axis=1), color, among=2)
        right.plot(x, losses.mean(axis=1), "o-", color=color, label=label)
    right.set(xscale="log", yscale="log", title="what it buys", xlabel="certified epsilon of all rounds")
    right.set(ylabel="mean loss of the nodes")
    finish(right, legend="upper right")
