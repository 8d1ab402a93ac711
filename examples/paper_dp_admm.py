"""Paper: DP-ADMM. The comparison turns round once both methods have their own sensitivity

Huang, Hu, Chan-Tin and Gong linearise ADMM, so that noise does not disrupt it, and compare with Algorithm 2, which
solves each subproblem and then adds noise. In their figures Algorithm 2 is ruined. It comes out like that here too,
with the paper's noise: the left picture, where its loss is a hundred to two thousand times larger.

But the sensitivity that they give Algorithm 2 forgets the penalty rho, and its noise is 589 times what the argmin
needs. On the right both have exactly the noise that the same certified total asks for, and Algorithm 2 is the better
one from a total of 0.2 on. `privadmm reproduce dp-admm` runs the paper's whole experiment.
"""

import argparse
from pathlib import Path

import numpy as np

from privadmm.papers.dp_admm.runs import Case, Found, several
from privadmm.privacy.accounting import moments_accountant
from privadmm.runs.style import band, finish, pictures

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer rounds, settings and seeds")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

ROUNDS, SEEDS = (10, 2) if chosen.quick else (100, 5)
EPSILONS = (0.05, 0.2) if chosen.quick else (0.01, 0.02, 0.05, 0.1, 0.2)  # of one round, as the paper has them
DELTA = 1e-3  # the paper's
PROVIDERS = 100
totals = [moments_accountant(epsilon, DELTA, ROUNDS) for epsilon in EPSILONS]  # what the paper claims for all rounds


def found(method: str, noise: str) -> list[Found]:
    """Runs over all epsilons, with the l2 penalty."""
    cases = [Case("l2", method, noise, epsilon, DELTA) for epsilon in EPSILONS]
    return list(several(cases, ROUNDS, SEEDS).values())


(clear,) = several([Case("l2", "Algorithm 1", "off", 0.1, DELTA)], ROUNDS, SEEDS).values()
runs = {
    (method, noise): found(method, noise)
    for method in ("DP-ADMM", "Algorithm 2")
    for noise in ("published", "certified")
}
for (method, noise), cells in runs.items():
    losses = ", ".join(f"{cell.loss[-1].mean() / PROVIDERS:.4g}" for cell in cells)
    costs = ", ".join(f"{cell.certified:.3g}" for cell in cells)
    print(f"{method:<11} {noise:<9} noise: loss {losses}; certified totals {costs}")

title = "DP-ADMM: who wins depends on whether the other's noise is right"
words = (
    f"Adult, 21,000 records at {PROVIDERS} providers, {ROUNDS} rounds, l2, delta = {DELTA:g}; lines and bands: "
    f"mean and range over {SEEDS} runs with records and noise of their own. Left: the total that the paper's "
    "accountant claims; the certified one of Algorithm 2 is 0 there, so far too large is its noise."
)
for figure, theme in pictures(chosen.out / "paper_dp_admm", height=3.9, title=title, words=words, quick=chosen.quick):
    both = figure.subplots(1, 2)
    for axes, noise, head in zip(
        both, ("published", "certified"), ("with the paper's noise", "with certified noise"), strict=True
    ):
        least = clear.loss[-1].mean() / PROVIDERS
        axes.axhline(least, color=theme.non_private, linestyle="--", linewidth=1.2, label="Algorithm 1, no noise")
        for method, color, marker in (("Algorithm 2", theme.baseline, "s-"), ("DP-ADMM", theme.certified, "o-")):
            losses = np.array([cell.loss[-1] for cell in runs[method, noise]]) / PROVIDERS
            band(axes, totals, losses.min(axis=1), losses.max(axis=1), color, among=2)
            axes.plot(totals, losses.mean(axis=1), marker, color=color, label=method)
        kind = "claimed by the paper" if noise == "published" else "certified"
        axes.set(xscale="log", title=head, xlabel=f"total epsilon, {kind}")
        if noise == "published":
            axes.set(yscale="log", ylabel="mean loss of a record")
        finish(
            axes,
            x=[float(f"{total:.1g}") for total in totals],
            legend="center left" if noise == "published" else False,
        )
        axes.title.set_color(theme.of(noise))
