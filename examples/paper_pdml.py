"""Paper: label randomisation and ADMM perturbation. Noise that decays ends up protecting nothing

Wang, Ishii, Du, Cheng and Chen randomise labels before they reach a server (phase 1), and then add noise to what the
servers exchange (phase 2), which is to strengthen the labels' guarantee against the other servers. That noise falls by
rho every round, so that the model converges. But what is told last is told nearly in the clear.

The left picture counts it exactly: what other servers learn of a label, by round. At rho = 0.8 the noise of phase 2 is
worth next to nothing after forty rounds: the label is back at the epsilon = 1 of phase 1. Equal noise with a certified
total of 1 for the whole record leaves a label at 0.28. On the right is what that buys: bounded noise as printed, R = 1,
ends above the risk of a model that says nothing; certified noise stays near the model without privacy. `privadmm
reproduce pdml` runs the paper's whole experiment.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from privadmm.papers.pdml.adult import CERTIFIED, PHASE_ONE, PLAIN, ZERO, curves, perturbed, records
from privadmm.papers.pdml.runs import DELTA, TENTH, against
from privadmm.runs.style import band, finish, pictures, symbols

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer records, rounds and seeds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

COUNT, SEEDS, LAST = (4_500, 1, 10) if chosen.quick else (45_000, 3, 40)
ROUNDS = (2, 10) if chosen.quick else (1, 2, 3, 5, 7, 10, 13, 16, 20, 25, 30, 35, 40)

# What other servers learn of a label after so many rounds, at the paper's noise; and of one with certified noise.
shards = records(COUNT)
rates = (0.8, 0.9)
learnt = {
    rho: [against(replace(perturbed(TENTH, rho), rounds=rounds).job(shards)) for rounds in ROUNDS] for rho in rates
}
ours = against(CERTIFIED.job(shards))
for rho, costs in learnt.items():
    record, label = costs[-1]
    print(f"rho = {rho:g}, {ROUNDS[-1]} rounds: others learn of a record {record:.3g}, of a label {label:.4g}")
print(f"certified: others learn of a record {ours[0]:.3g}, of a label {ours[1]:.3g}")

setups = {
    "no privacy": PLAIN,
    "phase 1 alone": PHASE_ONE[1.0],
    "certified phase 2": CERTIFIED,
    "phase 2 as printed, R = 1": perturbed(1.0),
}
found = {}
for name, setup in setups.items():
    short = replace(setup, rounds=min(setup.rounds, LAST))
    found[name] = curves(short, 1 if setup == PLAIN else SEEDS, COUNT)[1]  # the risk, (rounds, seeds)
    print(f"{name:<26} risk {found[name][-1].mean():.4f}")

title = "Label randomisation and ADMM perturbation: what decaying noise is worth"
words = (
    f"Adult, {COUNT:,} records at 10 servers, labels randomised with epsilon = 1, delta = {DELTA:g}; V = 0.3, a "
    f"and beta are ours. Bands: range over {SEEDS} seeds. Certified: 20 rounds of equal noise, epsilon = 1 for a "
    "record."
)
for figure, theme in pictures(chosen.out / "paper_pdml", height=3.9, title=title, words=words, quick=chosen.quick):
    left, right = figure.subplots(1, 2)
    left.axhline(1.0, color=theme.muted, linestyle=":", linewidth=1.3)
    left.text(ROUNDS[-1], 1.02, "phase 1 alone", color=theme.muted, ha="right", fontsize=8.5)
    for (rho, costs), style in zip(learnt.items(), ("-", "--"), strict=True):
        labels = [label for _, label in costs]
        left.plot(ROUNDS, labels, style, color=theme.published, label=f"as printed, rho = {rho:g}")
    left.axhline(ours[1], color=theme.certified, label="certified, epsilon = 1 for a record")
    left.set(title="what others learn of a label", xlabel="rounds", ylabel="epsilon of a label", ylim=(0, 1.35))
    finish(left, legend="upper left")
    colors = (theme.non_private, theme.muted, theme.certified, theme.published)
    for (name, risks), color in zip(found.items(), colors, strict=True):
        x = np.arange(1, len(risks) + 1)
        if risks.shape[1] > 1:
            band(right, x, risks.min(axis=1), risks.max(axis=1), color, among=2)
        right.plot(x, risks.mean(axis=1), color=color, linestyle="--" if name == "no privacy" else "-", label=name)
    right.axhline(ZERO, color=theme.majority, linestyle=":", linewidth=1.3, label="a model that says nothing")
    right.set(title="what it buys", xlabel="rounds", ylabel=symbols("empirical risk"), yscale="log", ylim=(0.5, 4))
    finish(right, legend="upper right")
