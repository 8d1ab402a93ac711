"""README's picture: test accuracy on Adult by epsilon, for who adds how much noise, and for other methods.

    python benchmarks/accuracy_picture.py            # draw it again from docs/pictures/accuracy.json (a second)
    python benchmarks/accuracy_picture.py --run      # run it again first (about fifteen minutes on one core)

Ten parties, 40,000 records to train on and 5,222 to test, delta = 1e-6, five splits with four noise seeds each. All
lines have the same features: numbers in ten bins, unit rows, and the private moments in front, which are part of every
budget. Parameters are those of the examples: the recommended method's were fixed on other data, the others' chosen on
Adult with scaled numbers. The file also holds every other method as its example has it, with scaled numbers and
without moments, and DP-FedSGD without moments.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from accuracy import OTHERS, bar, configs, kept, pooled, renamed
from privadmm.config.file import Config
from privadmm.runs.palette import THEMES, Meaning, Theme
from privadmm.runs.style import Kind, band, finish, picture

PLACE = Path(__file__).parents[1] / "docs" / "pictures"
EPSILONS = [0.1, 0.25, 0.5, 1.0, 2.0]
PARTIES, DELTA = 10, 1e-6
TITLE = "What epsilon buys: one model of ten parties, by who adds the noise"
OURS = ("curator, binned", "secure sum, binned", "recommended, binned", "non-private, binned")
LINES: tuple[tuple[str, str, Meaning, str], ...] = (  # of the picture: name, label, colour, style
    ("non-private, binned", "no privacy", "non_private", "--"),
    ("curator, binned", "a trusted curator", "curator", "o-"),
    ("secure sum, binned", "secure sum", "secure_sum", "o-"),
    ("recommended, binned", "each party's own noise", "own_noise", "o-"),
    ("dp_fedsgd + moments, binned", "DP-FedSGD", "baseline", "o-"),
)
PAPERS = tuple(name for name in OTHERS if name != "dp_fedsgd")


def lines(split: int) -> list[Config]:
    """Every method on the features of the recommended one, and as its example has it."""
    by_name = {config.path.stem: config for config in configs(PARTIES, split)}
    found = [by_name[name] for name in OURS]
    for name in OTHERS:
        found += [by_name[name], binned(by_name[f"{name} + moments"], f"{name} + moments, binned")]
    return [*found, binned(by_name["dp_fedsgd"], "dp_fedsgd, binned")]


def binned(config: Config, name: str) -> Config:
    return renamed(replace(config, data=replace(config.data, encoding="binned", rows="unit", row_bound=None)), name)


def run(splits: int, seeds: int, keep: Path | None) -> dict[str, Any]:
    """Train everything; the mean of every line by epsilon, and its means by split."""
    results = []
    for split in range(splits):
        with bar(f"split {split + 1} of {splits}") as done:
            results.append(kept(keep, PARTIES, split, lines(split), EPSILONS, seeds, done))
    both = pooled(results)
    names = [line["config"] for line in both["tables"][0]["lines"]]
    facts = {"data": "Adult, 40,000 records to train on and 5,222 to test", "parties": PARTIES, "delta": DELTA}
    return {
        **facts,
        "epsilon": EPSILONS,
        "splits": splits,
        "seeds_per_split": seeds,
        "majority": both["majority"],
        "lines": {name: [summary(table, name, splits) for table in both["tables"]] for name in sorted(names)},
    }


def summary(table: dict[str, Any], name: str, splits: int) -> dict[str, Any] | None:
    """Mean accuracy of a line at one budget, and its means by split; None where no noise reaches the budget."""
    (line,) = (line for line in table["lines"] if line["config"] == name)
    if line["accuracy"] is None:
        return None
    by_split = np.reshape(line["accuracies"], (splits, -1)).mean(axis=1)
    return {"mean": float(line["accuracy"]), "by_split": by_split.tolist()}


def draw(found: dict[str, Any], theme: Theme, place: Path, kinds: Sequence[Kind] = ("svg",)) -> None:
    """Draw it: labels at the ends of lines, bands of one standard error, and the papers' methods as thin lines."""
    epsilons, width = found["epsilon"], 7.6
    words = (
        f"{found['data']}; {found['parties']} parties, delta = {found['delta']:g}, certified noise, the same "
        f"features for all. Means over {found['splits']} splits of {found['seeds_per_split']} noise seeds; bands: "
        "a standard error of the gap to no privacy. In the secure sum a third of the parties may collude."
    )
    with picture(place, width, 4.5, title=TITLE, words=words, theme=theme, kinds=kinds) as (figure, _):
        axes = figure.subplots()
        axes.axhline(100 * found["majority"], color=theme.majority, linestyle=":", linewidth=1.4)
        papers = np.array([means(found, f"{name} + moments, binned") for name in PAPERS])
        low, high = np.nanmin(papers, axis=0), np.nanmax(papers, axis=0)
        axes.fill_between(epsilons, low, high, color=theme.published, alpha=0.12, linewidth=0, zorder=0.8)
        for line in papers:
            axes.plot(epsilons, line, color=theme.published, linewidth=0.8, alpha=0.6, zorder=0.9)
        ends = [(100 * found["majority"], "always the majority", theme.majority)]
        ends.append((float(np.nanmean(papers[:, -1])), "the papers' methods", theme.published))
        for name, label, meaning, style in LINES:
            mean, color = means(found, name), theme.of(meaning)
            if style == "o-":
                error = apart_from_clear(found, name)
                band(axes, epsilons, mean - error, mean + error, color, among=2)
            axes.plot(epsilons, mean, style, color=color, linewidth=1.4 if style == "--" else 2.0)
            ends.append((float(mean[-1]), label, color))
        axes.set(xscale="log", xlim=(0.093, 2.02), ylim=(74.4, 86.4))
        axes.set(xlabel="epsilon of each party, for the whole of training", ylabel="test accuracy (%)")
        finish(axes, x=epsilons, legend=False)
        edge = 1.13 * epsilons[-1]  # where labels begin, each joined to the end of its line
        for at, (end, label, color) in zip(apart([end for end, _, _ in ends]), ends, strict=True):
            axes.annotate(
                label, (edge, at), xytext=(2, 0), textcoords="offset points", color=color, va="center",
                annotation_clip=False,
            )  # fmt: skip
            axes.plot([1.01 * epsilons[-1], 0.99 * edge], [end, at], color=color, linewidth=0.8, clip_on=False)


def means(found: dict[str, Any], name: str) -> Any:
    """Mean accuracies in per cent by epsilon; nan where no noise reaches the budget."""
    return np.array([np.nan if cell is None else 100 * cell["mean"] for cell in found["lines"][name]])


def apart_from_clear(found: dict[str, Any], name: str) -> Any:
    """Standard errors over splits of the distance to no privacy: a split is harder or easier for all lines alike."""
    lines = (found["lines"][which] for which in (name, "non-private, binned"))
    gaps = [np.subtract(ours["by_split"], clear["by_split"]) for ours, clear in zip(*lines, strict=True)]
    return 100 * np.std(gaps, axis=1, ddof=1) / np.sqrt(found["splits"])


def apart(heights: Sequence[float], least: float = 0.62) -> list[float]:
    """Heights for labels that do not touch: each as near to its line's end as the others allow."""
    order = np.argsort(heights)
    placed = np.array(heights, dtype=float)[order]
    for _ in range(200):
        for low in range(len(placed) - 1):
            if (short := least - (placed[low + 1] - placed[low])) > 0:
                placed[low] -= short / 2
                placed[low + 1] += short / 2
    back = np.empty_like(placed)
    back[order] = placed
    return [float(height) for height in back]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--run", action="store_true", help="train again, and write the numbers")
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--seeds", type=int, default=4, help="on each split")
    options.add_argument("--keep", type=Path, help="a directory: splits that are in it are not run again")
    options.add_argument("--png", action="store_true", help="as PNG as well")
    options.add_argument("--out", type=Path, default=PLACE, help="where the pictures and their numbers are")
    chosen = options.parse_args()
    numbers = chosen.out / "accuracy.json"
    if chosen.run:
        chosen.out.mkdir(parents=True, exist_ok=True)
        numbers.write_text(json.dumps(run(chosen.splits, chosen.seeds, chosen.keep), indent=1) + "\n")
    found = json.loads(numbers.read_text())
    for name, theme in THEMES.items():
        draw(found, theme, chosen.out / f"accuracy-{name}", ("svg", "png") if chosen.png else ("svg",))
    for name in found["lines"]:
        print(f"{name:<32}" + "  ".join(f"{value:5.2f}" for value in means(found, name)))


if __name__ == "__main__":
    main()
