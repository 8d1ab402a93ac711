"""Files of `privadmm theory` and `privadmm tradeoff`: their results as JSON, and a figure of each."""

from pathlib import Path
from typing import Any

import numpy as np

from privadmm.data.files import write_json
from privadmm.papers.dvp.tradeoff import Fit, Weights
from privadmm.runs.metrics import amount
from privadmm.runs.model import SIMULATED
from privadmm.runs.plots import BLUE, GREY, ORANGE, RED, canvas


def save(result: dict[str, Any], out: Path, name: str) -> None:
    """Write NAME.json and NAME.png."""
    write_json(out / f"{name}.json", result)
    (draw_theory if name == "theory" else draw_tradeoff)(result, out / f"{name}.png")


def heading(result: dict[str, Any]) -> str:
    what = f"{result['algorithm']}, Theorem {result['theorem']}, {amount(result['parties'], 'party')}"
    return f"{what}, {amount(result['seeds'], 'run')}"


def draw_theory(result: dict[str, Any], path: Path) -> None:
    """Draw bounds and the measured curve by round, with a band of two standard errors."""
    drawing = canvas(height=4.6)
    axes, rounds = drawing.subplots(), np.array(result["rounds"])
    marker = "o" if len(rounds) < 3 else ""
    lines = [("published", GREY, "--", "published"), ("corrected", RED, "-", "corrected")]
    if result["theorem"] == 1:
        lines.append(("corrected_records", ORANGE, "-", "corrected, without the terms of (28)"))
    for key, color, style, label in lines:
        if result[key] is not None:
            axes.plot(rounds, result[key], color=color, linestyle=style, label=label, marker=marker)
    measured = np.array(result["measured"])
    axes.plot(rounds, measured, color=BLUE, label="measured", marker=marker)
    if result["standard_error"] is not None:
        error = 2 * np.array(result["standard_error"])
        low = np.maximum(measured - error, measured / 100)
        axes.fill_between(rounds, low, measured + error, color=BLUE, alpha=0.2, linewidth=0)
    failed = sum(not condition["holds"] for condition in result["conditions"])
    note = f"{amount(failed, 'condition')} of the theorem not met. " if failed else ""
    axes.set(xlabel="round", ylabel="expected distance from the optimum", yscale="log", title=heading(result))
    finish(axes)
    drawing.supxlabel(f"{note}{SIMULATED}", fontsize=9, color=GREY)
    drawing.savefig(path)


def draw_tradeoff(result: dict[str, Any], path: Path) -> None:
    """Draw the last round, a column for each noise: points and fit, below them the utilities and the best alpha."""
    drawing = canvas(height=6.2)
    drawing.set_size_inches(10, 6.2)
    weights, last = Weights(*result["weights"]), result["rounds"][-1]
    lines = [line for line in result["lines"] if line["round"] == last]
    for line, (above, below) in zip(lines, drawing.subplots(2, len(lines), sharex=True).T, strict=True):
        color = BLUE if line["calibration"] == "certified" else ORANGE
        ran = [point for point in line["points"] if point["problem"] is None]
        alphas, losses = (np.array([point[key] for point in ran]) for key in ("alpha", "loss"))
        fine, curve = np.geomspace(alphas[0], alphas[-1], 400), Fit(**line["fit"])
        errors = [2 * (point["standard_error"] or 0.0) for point in ran]
        above.errorbar(alphas, losses, yerr=errors, fmt="o", color=color, markersize=4, label="measured")
        quality = f"{'' if curve.good else 'a poor '}fit, R$^2$ = {curve.r2:.3f}"
        above.plot(fine, curve(fine), color=color, label=quality)
        best = line["best_measured"]
        below.plot(fine, weights.privacy(fine), color=GREY, linestyle="--", label="utility of privacy")
        if curve.good:
            below.plot(fine, weights.privacy(fine) - curve(fine), color=color, label="less the fitted loss")
        worth = weights.privacy(alphas) - losses
        below.plot(alphas, worth, "o", color=color, markersize=4, label="less the measured loss")
        label = f"best alpha {best['alpha']:.3g}"
        below.plot([best["alpha"]], [best["utility"]], "*", color=color, markersize=11, label=label)
        above.axvline(best["alpha"], color=GREY, linewidth=0.8, linestyle=":")
        scale = "log" if losses.max() > 10 * losses.min() > 0 else "linear"
        title = f"{line['calibration']} noise, {amount(last, 'round')}"
        above.set(ylabel="empirical loss", xscale="log", yscale=scale, title=title)
        below.set(xlabel="alpha of one round", ylabel="utility")
    for axes in drawing.axes:
        finish(axes)
    note = f"certified: one round costs alpha at delta = {result['delta']:g}. {SIMULATED}"
    drawing.supxlabel(note, fontsize=9, color=GREY)
    drawing.savefig(path)


def finish(axes: Any) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
