"""Files of `privadmm theory` and `privadmm tradeoff`: their results as JSON, and a figure of each."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privadmm.data.arrays import Floats
from privadmm.data.files import write_json
from privadmm.papers.dvp.tradeoff import Fit, Weights
from privadmm.runs.metrics import amount
from privadmm.runs.palette import Theme
from privadmm.runs.style import band, finish, picture, plain

FAR = 3.0  # how far below the utility of privacy a point is drawn, in ranges of that utility


def save(result: dict[str, Any], out: Path, name: str) -> None:
    """Write NAME.json, NAME.svg and NAME.png."""
    write_json(out / f"{name}.json", result)
    (draw_theory if name == "theory" else draw_tradeoff)(result, out / name)


def heading(result: dict[str, Any]) -> str:
    what = f"{result['algorithm']}, Theorem {result['theorem']}, {amount(result['parties'], 'party')}"
    return f"{what}, {amount(result['seeds'], 'run')}"


def draw_theory(result: dict[str, Any], place: Path) -> None:
    """Draw bounds and the measured curve by round, with a band of two standard errors."""
    failed = sum(not condition["holds"] for condition in result["conditions"])
    words = f"{amount(failed, 'condition')} of the theorem not met" if failed else ""
    with picture(place, height=4.2, title=heading(result), words=words) as (drawing, theme):
        axes, rounds = drawing.subplots(), np.array(result["rounds"])
        marker = "o" if len(rounds) < 3 else ""
        lines = [("published", theme.published, "--", "published"), ("corrected", theme.certified, "-", "corrected")]
        if result["theorem"] == 1:
            lines.append(("corrected_records", theme.certified, ":", "corrected, without the terms of (28)"))
        for key, color, style, label in lines:
            if result[key] is not None:
                axes.plot(rounds, result[key], color=color, linestyle=style, label=label, marker=marker)
        measured = np.array(result["measured"])
        axes.plot(rounds, measured, color=theme.ink, label="measured, with two standard errors", marker=marker)
        if result["standard_error"] is not None:
            error = 2 * np.array(result["standard_error"])
            band(axes, rounds, np.maximum(measured - error, measured / 100), measured + error, theme.ink)
        axes.set(xlabel="round", ylabel="expected distance from the optimum", yscale="log")
        finish(axes)


def draw_tradeoff(result: dict[str, Any], place: Path) -> None:
    """Draw the last round, a column for each noise: losses and their fit, below them utilities and the best alpha.

    A fit that was rejected is not drawn: its curve says nothing of the points.
    """
    weights, last = Weights(*result["weights"]), result["rounds"][-1]
    lines = [line for line in result["lines"] if line["round"] == last]
    words = f"Whiskers: two standard errors. Certified: one round costs alpha at delta = {result['delta']:g}"
    title = f"What an alpha costs in loss, after {amount(last, 'round')}"
    with picture(place, width=10, height=6.0, title=title, words=words) as (drawing, theme):
        for line, (above, below) in zip(lines, drawing.subplots(2, len(lines), sharex=True).T, strict=True):
            certified = line["calibration"] == "certified"
            color = theme.certified if certified else theme.published
            ran = [point for point in line["points"] if point["problem"] is None]
            alphas, losses = (np.array([point[key] for point in ran]) for key in ("alpha", "loss"))
            curve, best = Fit(**line["fit"]), line["best_measured"]
            draw_losses(above, ran, alphas, losses, curve, color)
            draw_utility(below, weights, alphas, losses, curve, color, theme)
            label = f"best alpha {best['alpha']:.3g}"
            below.plot([best["alpha"]], [best["utility"]], "*", color=color, markersize=11, label=label)
            above.set_title("certified noise" if certified else "noise of the paper's proof")
            for axes in (above, below):
                axes.axvline(best["alpha"], color=theme.majority, linewidth=1, linestyle=":")
                axes.set_xscale("log")
                finish(axes, x=alphas.tolist())


def draw_losses(
    axes: Any, ran: Sequence[dict[str, Any]], alphas: Floats, losses: Floats, curve: Fit, color: str
) -> None:
    """Measured losses, and the curve where it fits them."""
    errors = [2 * (point["standard_error"] or 0.0) for point in ran]
    axes.errorbar(alphas, losses, yerr=errors, fmt="o", color=color, label="measured")
    if curve.good:
        fine = np.geomspace(alphas[0], alphas[-1], 400)
        axes.plot(fine, curve(fine), color=color, label=f"fit, R$^2$ = {curve.r2:.3f}")
    else:
        label = f"c4 exp(-c5 alpha) + c6 does not fit: off by {plain(float(f'{curve.off:.2g}'))} times the loss"
        axes.plot(alphas, losses, color=color, linewidth=0.9, linestyle=":", label=label)
    axes.set(ylabel="empirical loss", yscale="log" if losses.max() > 10 * losses.min() > 0 else "linear")


def draw_utility(
    axes: Any, weights: Weights, alphas: Floats, losses: Floats, curve: Fit, color: str, theme: Theme
) -> None:
    """Draw the utility of privacy, and this less the loss. Points far below the rest are arrows at the floor."""
    fine = np.geomspace(alphas[0], alphas[-1], 400)
    gain, worth = weights.privacy(fine), weights.privacy(alphas) - losses
    axes.plot(fine, gain, color=theme.non_private, linestyle="--", label="utility of privacy")
    if curve.good:
        axes.plot(fine, gain - curve(fine), color=color, label="less the fitted loss")
    floor = min(float(gain.min()), float(worth.max())) - FAR * float(np.ptp(gain))
    low = worth < floor
    axes.plot(alphas[~low], worth[~low], "o", color=color, label="less the measured loss")
    if low.any():
        label = f"further down, to {plain(float(f'{worth.min():.2g}'))}"
        axes.plot(alphas[low], np.full(int(low.sum()), floor), "v", color=color, label=label)
    axes.set(xlabel="alpha of one round", ylabel="utility")
