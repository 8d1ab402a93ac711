"""How much epsilon is enough? What a budget buys, before a single record is read

How many records and parties there are is public, and so is the budget. From these facts alone one can estimate how loud
the noise will be beside what data usually have to say, and so see in time that a budget cannot work: before it is
spent, and before anybody has asked for a record.

The picture is that estimate as a map, for ten parties. Find your number of records on the left and follow it to the
right: in the green zone most of what the data can tell gets through, in the red one nothing better than a constant
answer is to be expected. With secure sums, in which the parties share one noise, the map shifts by a factor of about
2.6: fewer records are enough, or less epsilon. To give an idea of the zones, the picture says how many points of
accuracy the public Adult data lost at the noise of each border, which are Adult's and not those of other data. It is
an estimate, not an accuracy; `privadmm frontier --records 10000 --parties 10` prints it for your own numbers, and
`train` warns of a budget in the red zone.
"""

import argparse
from pathlib import Path

import numpy as np

from privadmm.privacy.sums import SecureSum
from privadmm.runs.accuracy_lost import curve
from privadmm.runs.recommend import THIN, TOO_SMALL, Expected, Facts, recommend
from privadmm.runs.style import finish, pictures

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="a coarser map")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

PARTIES, DELTA = 10, 1e-6
EPSILONS = np.geomspace(0.05, 10, 8 if chosen.quick else 60)
WAYS = {"each party adds its own noise": None, "secure sum": SecureSum()}


def enough(epsilon: float, sum: SecureSum | None, limit: float) -> float:
    """So many records bring the noise down to `limit` times the signal that data usually have."""
    records = 10_000
    facts = Facts(records, (epsilon,) * PARTIES, DELTA, sum=sum)
    return records * recommend(facts).expected.noise_to_signal / limit  # noise falls as 1/records


borders = {
    way: [np.array([enough(epsilon, sum, limit) for epsilon in EPSILONS]) for limit in (TOO_SMALL, THIN)]
    for way, sum in WAYS.items()
}
for way, sum in WAYS.items():
    little, good = (enough(1.0, sum, limit) for limit in (TOO_SMALL, THIN))
    print(f"epsilon = 1, {PARTIES} parties, {way}: hopeless below {little:,.0f} records, good from {good:,.0f} on")

adult, everything = Expected(THIN).on_adult, curve().majority
print(f"on Adult the green zone ends where {adult.mean:.1f} points of accuracy are lost, of {everything:.1f}")

title = "How much epsilon is enough? A map from public facts, before any record is read"
words = (
    f"{PARTIES} parties of equal size, delta = {DELTA:g}, the recommended method; a signal like the median of nine "
    "public data sets. A third of the parties may collude in the secure sum. An estimate: nothing was run. Points of "
    f"accuracy were measured on Adult at the same noise; there a model is {everything:.0f} points ahead of a constant."
)
how = {"words": words, "mode": None, "quick": chosen.quick}
for figure, theme in pictures(chosen.out / "frontier", height=4.1, title=title, **how):
    both = figure.subplots(1, 2, sharey=True)
    low, high = 100.0, 200_000.0
    colors = (theme.own_noise, theme.secure_sum)
    for axes, (way, (little, good)), color in zip(both, borders.items(), colors, strict=True):
        axes.fill_between(EPSILONS, low, little, color=theme.zones["poor"], linewidth=0)
        axes.fill_between(EPSILONS, little, good, color=theme.zones["thin"], linewidth=0)
        axes.fill_between(EPSILONS, good, high, color=theme.zones["good"], linewidth=0)
        axes.plot(EPSILONS, good, color=color)
        axes.plot(EPSILONS, little, color=color, linestyle="--", linewidth=1.2)
        points = f"Adult loses less than {adult.mean:.0f} points"
        axes.text(1.6, 85_000, "most gets through", color=theme.verdicts["good"], fontweight="bold", ha="center")
        axes.text(1.6, 58_000, points, color=theme.verdicts["good"], fontsize=8.5, ha="center")
        axes.text(0.056, 180, "no better\nthan always\nthe same", color=theme.verdicts["poor"], fontweight="bold")
        axes.text(0.056, 125, f"Adult loses all {everything:.0f}", color=theme.verdicts["poor"], fontsize=8.5)
        between = float(np.sqrt(np.interp(0.35, EPSILONS, little) * np.interp(0.35, EPSILONS, good)))
        axes.text(0.35, between, "a part is lost", color=theme.verdicts["thin"], fontweight="bold", ha="center",
                  va="center", rotation=-35)  # fmt: skip
        axes.set(title=way, xlabel="epsilon of each party", xscale="log", yscale="log")
        axes.set(xlim=(EPSILONS[0], EPSILONS[-1]), ylim=(low, high))
        finish(axes, x=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10), legend=False)
        axes.title.set_color(color)
    both[0].set_ylabel("records of all parties together")
