"""An audit with planted bugs: what an attacker proves, beside what is certified

A certificate says that nobody can lose more than epsilon. An audit tries: an attacker who knows everything but one
record plays hundreds of thousands of games against the code that trains, guesses each time which of two records was in
it, and the guesses that come true prove a lower bound of epsilon. A sound implementation stays below its certificate,
whatever the attacker does.

An audit that never finds anything proves little about the auditor. So the same games are played against bugs that have
shipped elsewhere: half the noise, rounds that nobody counted, the raw iterate kept in the dual. Every one of them has
to end up beyond the certificate. The command for your own job is `privadmm audit CONFIG.toml`.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from privadmm.config.file import read
from privadmm.runs.preview import audited
from privadmm.runs.style import finish, pictures, symbols

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--out", type=Path, default=Path("runs/gallery"), help="where the picture goes")
options.add_argument("--quick", action="store_true", help="fewer games, and methods")
chosen = options.parse_args()
chosen.out.mkdir(parents=True, exist_ok=True)

# Ten rounds: what matters to a guarantee is how noise and rounds relate, and ten are played sooner than a hundred.
EPSILON, DELTA = 1.0, 1e-3  # so many games see nothing as rare as 1e-6
ROUNDS, GAMES = 10, 40_000 if chosen.quick else 400_000
METHODS = {"dp_admm": "DP-ADMM"}
if not chosen.quick:
    METHODS |= {"first_order_consensus": "the recommended method", "mr_admm": "MR-ADMM"}

audits = {}
for name in METHODS:
    config = read(Path(__file__).with_name(f"{name}.toml"))
    asked = replace(config.privacy, epsilon=EPSILON, delta=DELTA)
    short = replace(config, algorithm=replace(config.algorithm, rounds=ROUNDS), privacy=asked)
    audits[name] = found = audited(short, GAMES, lambda games, of: None)
    proved = found["epsilon_lower"]
    print(f"{METHODS[name]}: certified {found['epsilon_certified']:.3f}, the attack proves {proved:.3f}")
    for bug in found["negative_controls"]:
        print(f"  {bug['name']:<42} proves {bug['epsilon_lower']:.3f}, {'caught' if bug['caught'] else 'MISSED'}")

title = "Honest code stays below its certificate, and every planted bug is caught"
words = (
    f"Lower bounds of epsilon with 95 % confidence from {GAMES:,} games on each of two neighbouring data sets; "
    f"{ROUNDS} rounds, delta = {DELTA:g}. The bugs claim what the sound implementation claims."
)
most = max(bug["epsilon_lower"] for found in audits.values() for bug in found["negative_controls"])
rows = [
    (name, bug)
    for name, found in audits.items()
    for bug in [{"name": "as it is", "epsilon_lower": found["epsilon_lower"]}, *found["negative_controls"]]
]
size = {"height": 0.9 + 0.3 * len(rows)}
for figure, theme in pictures(chosen.out / "audit", title=title, words=words, quick=chosen.quick, **size):
    axes = figure.subplots()
    limit = max(found["epsilon_certified"] for found in audits.values())
    axes.axvspan(0, limit, color=theme.zones["good"], linewidth=0)
    axes.axvline(limit, color=theme.certified, linewidth=1.6)
    axes.annotate(
        symbols(f"certified epsilon = {limit:.2g}"), (limit, -0.75), xytext=(5, 0), textcoords="offset points",
        color=theme.certified, va="center",
    )  # fmt: skip
    place, ticks, labels, heads = 0.0, [], [], []
    for number, (name, bug) in enumerate(rows):
        if number and name != rows[number - 1][0]:
            place += 0.7
        if not number or name != rows[number - 1][0]:
            heads.append((place, METHODS[name]))
        honest = bug["name"] == "as it is"
        color = theme.verdicts["good"] if honest else theme.verdicts["poor"]
        axes.plot([0, bug["epsilon_lower"]], [place, place], color=color, linewidth=1.4, alpha=0.6)
        axes.plot(bug["epsilon_lower"], place, "o" if honest else "X", color=color, markersize=7)
        right = max(limit, bug["epsilon_lower"])  # a number never stands on the certificate's line
        axes.annotate(
            f"{bug['epsilon_lower']:.2f}", (right, place), xytext=(8, 0), textcoords="offset points", va="center",
            fontsize=8.5, color=color,
        )  # fmt: skip
        ticks.append(place)
        labels.append(f"{METHODS[name]}, {bug['name']}" if honest else bug["name"])
        place += 1
    axes.set(xlabel="epsilon that the attack proves", xlim=(0, 1.13 * most), ylim=(place - 0.4, -1.2))
    axes.set_yticks(ticks, labels)
    for text in axes.get_yticklabels():
        text.set_fontweight("bold" if text.get_text().endswith("as it is") else "normal")
    axes.tick_params(axis="y", length=0)
    finish(axes, legend=False)
    axes.grid(axis="y", visible=False)
