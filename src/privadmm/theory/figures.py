"""What `privadmm theory` and `privadmm tradeoff` leave: text for people, a figure, and both as data."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table

from privadmm.cli.views import screen
from privadmm.data.files import write_json
from privadmm.runs.metrics import amount
from privadmm.runs.model import SIMULATED
from privadmm.runs.plots import BLUE, GREY, ORANGE, RED, canvas
from privadmm.theory.tradeoff import Fit, Weights


def save(result: dict[str, Any], out: Path, name: str) -> None:
    """NAME.json and NAME.png."""
    write_json(out / f"{name}.json", result)
    (draw_theory if name == "theory" else draw_tradeoff)(result, out / f"{name}.png")


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def heading(result: dict[str, Any]) -> str:
    what = f"{result['algorithm']}, Theorem {result['theorem']}, {amount(result['parties'], 'party')}"
    return f"{what}, {amount(result['seeds'], 'run')}"


def theory_shown(result: dict[str, Any], out: Path | None) -> str:
    """The bounds beside the measured curve at a few rounds, what they rest on, and where the run deviates."""
    rounds, table = len(result["rounds"]), Table(title=heading(result), title_justify="left")
    columns = {"published": "published", "corrected": "corrected", "corrected_records": "without (28)"}
    columns |= {"measured": "measured", "standard_error": "+-"}
    keys = [key for key in columns if key in result]
    for words in ("round", *(columns[key] for key in keys)):
        table.add_column(words, justify="right")
    for at in sorted({0, rounds // 4, rounds // 2, rounds - 1}):
        figures = [None if result[key] is None else result[key][at] for key in keys]
        table.add_row(str(at + 1), *map(number, figures))
    facts: screen.Facts = []
    if result["theorem"] == 1:
        facts.append(
            ("measured", "the distance from the optimum of the records at hand, which (28) is not about")
        )
        facts.append(("Lemma 5", escape(result["lemma5"]["statement"])))
    elif result["rounds_above_published"]:
        above = amount(result["rounds_above_published"], "round")
        facts.append(("published", f"[bold red]exceeded in {above}[/]: it leaves out noise (docs/theory.md)"))
    for one in result["conditions"]:
        mark = "[green]holds[/]" if one["holds"] else "[bold red]FAILS[/]"
        facts.append(
            ("condition", f"{escape(one['condition'])}: {one['value']:.4g} <= {one['limit']:.4g} {mark}")
        )
    facts += [("deviation", escape(words)) for words in result["deviations"]]
    facts.append(("mode", SIMULATED))
    if out is not None:
        facts.append(("written to", out))
    parts = [table, terms_table(result)] if result["theorem"] == 1 else [table]
    return screen.shown([*parts, screen.rows(facts)])


def terms_table(result: dict[str, Any]) -> Table:
    table = Table(title=f"Terms of (27) after {amount(len(result['rounds']), 'round')}", title_justify="left")
    for words, side in (("term", "left"), ("", "left"), ("published", "right"), ("corrected", "right")):
        table.add_column(words, justify=side)  # type: ignore[arg-type]
    for term in result["terms"]:
        table.add_row(term["term"], term["equation"], number(term["published"]), number(term["corrected"]))
    printed = None if result["published"] is None else result["published"][-1]
    table.add_row("total", "(27)", number(printed), number(result["corrected"][-1]))
    return table


def draw_theory(result: dict[str, Any], path: Path) -> None:
    """Bounds and measured curve by round; a band of two standard errors."""
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
    failed = sum(not one["holds"] for one in result["conditions"])
    note = f"{amount(failed, 'condition')} of the theorem not met. " if failed else ""
    axes.set(xlabel="round", ylabel="expected distance from the optimum", yscale="log", title=heading(result))
    finish(axes)
    drawing.supxlabel(f"{note}{SIMULATED}", fontsize=9, color=GREY)
    drawing.savefig(path)


def tradeoff_shown(result: dict[str, Any], out: Path | None) -> str:
    """Losses, fits and the best alpha, by calibration and round."""
    table = Table(title=f"Loss by alpha, {amount(result['seeds'], 'run')} each", title_justify="left")
    for words in ("noise", "round", "alpha", "loss", "+-", "certified in all"):
        table.add_column(words, justify="left" if words == "noise" else "right")
    facts: screen.Facts = []
    for line in result["lines"]:
        for one in line["points"]:
            figures = (one["loss"], one["standard_error"], one["epsilon_certified"])
            table.add_row(line["calibration"], str(line["round"]), f"{one['alpha']:g}", *map(number, figures))
            if one["problem"] is not None:
                facts.append((f"alpha = {one['alpha']:g}", escape(f"not run: {one['problem']}")))
        fit = line["fit"]
        curve = f"{fit['c4']:.4g} exp(-{fit['c5']:.4g} alpha) + {fit['c6']:.4g}"
        quality = f"R^2 = {fit['r2']:.4f}, off by up to {100 * fit['off']:.3g} %"
        facts.append((f"{line['calibration']}, {line['round']}", f"{curve}, {quality}"))
        facts.append(("best alpha", f"{best_words(line['best_measured'])}, as measured"))
        fitted = line["best_fitted"]
        poor = "[bold red]none to be read off the fit: it is poor[/]"
        facts.append(("", poor if fitted is None else f"{best_words(fitted)}, as fitted"))
    facts.append(("mode", SIMULATED))
    if out is not None:
        facts.append(("written to", out))
    return screen.shown([table, screen.rows(facts)])


def best_words(best: dict[str, Any]) -> str:
    edge = "" if best["where"] == "inside" else f", the {best['where']} that was run"
    return f"{best['alpha']:.4g}{edge}; loss {best['loss']:.4g}"


def draw_tradeoff(result: dict[str, Any], path: Path) -> None:
    """After the last round, a column for each noise: points and fit, below them the utilities and the best alpha."""
    drawing = canvas(height=6.2)
    drawing.set_size_inches(10, 6.2)
    weights, last = Weights(*result["weights"]), result["rounds"][-1]
    lines = [line for line in result["lines"] if line["round"] == last]
    for line, (above, below) in zip(lines, drawing.subplots(2, len(lines), sharex=True).T, strict=True):
        color = BLUE if line["calibration"] == "certified" else ORANGE
        ran = [one for one in line["points"] if one["problem"] is None]
        alphas, losses = (np.array([one[key] for one in ran]) for key in ("alpha", "loss"))
        fine, curve = np.geomspace(alphas[0], alphas[-1], 400), Fit(**line["fit"])
        errors = [2 * (one["standard_error"] or 0.0) for one in ran]
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
