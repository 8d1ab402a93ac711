"""What `privadmm theory` and `privadmm tradeoff` print."""

from pathlib import Path
from typing import Any

from privadmm.cli.views import screen
from privadmm.cli.views.screen import escape, number
from privadmm.papers.framework.theory_figures import heading
from privadmm.runs.metrics import amount
from privadmm.runs.model import SIMULATED

HEADINGS = {
    "published": "published",
    "corrected": "corrected",
    "corrected_records": "without (28)",
    "measured": "measured",
    "standard_error": "+-",
}


def theory(r: dict[str, Any], out: Path | None) -> str:
    """The bounds beside the measured curve at a few rounds, what they rest on, and where the run deviates."""
    rounds, keys = len(r["rounds"]), [key for key in HEADINGS if key in r]
    rows = [
        (str(at + 1), *(number(None if r[key] is None else r[key][at]) for key in keys))
        for at in sorted({0, rounds // 4, rounds // 2, rounds - 1})
    ]
    tables = [screen.table(heading(r), ("round", *(HEADINGS[key] for key in keys)), rows)]
    facts: screen.Facts = []
    if r["theorem"] == 1:
        tables.append(terms(r))
        facts.append(("measured", "the distance from the optimum of the records at hand, which (28) is not about"))
        facts.append(("Lemma 5", escape(r["lemma5"]["statement"])))
    elif r["rounds_above_published"]:
        above = amount(r["rounds_above_published"], "round")
        facts.append(("published", f"[bold red]exceeded in {above}[/]: it leaves out noise (docs/theory.md)"))
    for one in r["conditions"]:
        mark = "[green]holds[/]" if one["holds"] else "[bold red]FAILS[/]"
        facts.append(("condition", f"{escape(one['condition'])}: {one['value']:.4g} <= {one['limit']:.4g} {mark}"))
    facts += [("deviation", escape(words)) for words in r["deviations"]]
    return screen.shown(*tables, screen.rows([*facts, ("mode", SIMULATED)], out))


def terms(r: dict[str, Any]) -> Any:
    """The terms of bound (27), and their sum."""
    rows = [(t["term"], t["equation"], number(t["published"]), number(t["corrected"])) for t in r["terms"]]
    published = None if r["published"] is None else r["published"][-1]
    rows.append(("total", "(27)", number(published), number(r["corrected"][-1])))
    title = f"Terms of (27) after {amount(len(r['rounds']), 'round')}"
    return screen.table(title, ("term", "", "published", "corrected"), rows, left=("term", ""))


def tradeoff(r: dict[str, Any], out: Path | None) -> str:
    """Losses, fits and the best alpha, by calibration and round."""
    facts: screen.Facts = []
    rows = []
    for line in r["lines"]:
        noise, after, fit = line["calibration"], line["round"], line["fit"]
        for point in line["points"]:
            figures = (point["loss"], point["standard_error"], point["epsilon_certified"])
            rows.append((noise, str(after), f"{point['alpha']:g}", *map(number, figures)))
            if point["problem"] is not None:
                facts.append((f"alpha = {point['alpha']:g}", escape(f"not run: {point['problem']}")))
        curve = f"{fit['c4']:.4g} exp(-{fit['c5']:.4g} alpha) + {fit['c6']:.4g}"
        facts.append((f"{noise}, {after}", f"{curve}, R^2 = {fit['r2']:.4f}, off by up to {100 * fit['off']:.3g} %"))
        facts.append(("best alpha", f"{best_alpha(line['best_measured'])}, as measured"))
        fitted = line["best_fitted"]
        poor = "[bold red]none to be read off the fit: it is poor[/]"
        facts.append(("", poor if fitted is None else f"{best_alpha(fitted)}, as fitted"))
    title, columns = (
        f"Loss by alpha, {amount(r['seeds'], 'run')} each",
        ("noise", "round", "alpha", "loss", "+-", "certified in all"),
    )
    return screen.shown(
        screen.table(title, columns, rows, left=("noise",)), screen.rows([*facts, ("mode", SIMULATED)], out)
    )


def best_alpha(best: dict[str, Any]) -> str:
    edge = "" if best["where"] == "inside" else f", the {best['where']} that was run"
    return f"{best['alpha']:.4g}{edge}; loss {best['loss']:.4g}"
