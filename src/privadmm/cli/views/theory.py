"""What `privadmm theory` and `privadmm tradeoff` print."""

from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from privadmm.cli.views import screen
from privadmm.papers.framework.theory_figures import heading
from privadmm.runs.metrics import amount
from privadmm.runs.model import SIMULATED


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


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
        facts.append(("measured", "the distance from the optimum of the records at hand, which (28) is not about"))
        facts.append(("Lemma 5", escape(result["lemma5"]["statement"])))
    elif result["rounds_above_published"]:
        above = amount(result["rounds_above_published"], "round")
        facts.append(("published", f"[bold red]exceeded in {above}[/]: it leaves out noise (docs/theory.md)"))
    for one in result["conditions"]:
        mark = "[green]holds[/]" if one["holds"] else "[bold red]FAILS[/]"
        facts.append(("condition", f"{escape(one['condition'])}: {one['value']:.4g} <= {one['limit']:.4g} {mark}"))
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
