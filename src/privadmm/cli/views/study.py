"""What `privadmm compare`, `theory`, `tradeoff`, `reproduce` and `papers` print, and the files of `compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privadmm.cli.views import screen
from privadmm.cli.views.screen import escape, number
from privadmm.data.files import write_json
from privadmm.papers.framework.pages import cells, kind, word
from privadmm.papers.framework.study import VERDICTS, Check, Study
from privadmm.papers.framework.theory_figures import heading
from privadmm.papers.references import REFERENCES
from privadmm.privacy.accounting import printed
from privadmm.runs.metrics import amount
from privadmm.runs.model import SIMULATED
from privadmm.runs.palette import Meaning
from privadmm.runs.style import SMALL, finish, picture

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

RANKING = ("config", "noise", "accuracy", "s.e.", "claimed", "certified")
BOUNDS = {
    "published": "published",
    "corrected": "corrected",
    "corrected_records": "without (28)",
    "measured": "measured",
    "standard_error": "+-",
}
CHECKS = ("check", "claimed by", "published", "ours", "verdict")
NOISES: dict[str, Meaning] = {"certified": "own_noise", "secure sum": "secure_sum", "not private": "non_private"}
STYLES = {True: "green", False: "bold red", None: "bold yellow"}


def compare(result: dict[str, Any], out: Path | None) -> str:
    """Rank the runs, the best first; below the tables, say what could not be run and why."""
    facts: screen.Facts = []
    tables = []
    for ranking in result["tables"]:
        title = f"{titled(result, ranking)}, {amount(result['seeds'], 'noise seed')}"
        rows = [ranked(line) for line in ranking["lines"] if line["problem"] is None]
        rows.append(("always the majority", "", screen.percent(result["majority"]), "", "", ""))
        tables.append(screen.table(title, RANKING, rows, left=RANKING[:2], no_wrap=True))
        for line in ranking["lines"]:
            if line["problem"] is not None:
                asked = "" if ranking["epsilon"] is None else f", epsilon = {ranking['epsilon']:g}"
                what = f"{line['algorithm']}, {line['calibration']}{asked}"
                facts.append((what, escape(f"not run: {line['problem']}")))
    few = {line["colluding"] for ranking in result["tables"] for line in ranking["lines"]} - {None}
    rests = f"computational, and certified if up to {' or '.join(map(str, sorted(few)))} parties collude"
    facts.append(("secure sums", f"{rests}; `account` says what is lost if more do" if few else None))
    return screen.shown(*tables, screen.rows([*facts, ("mode", SIMULATED), ("written to", out)]))


def titled(result: dict[str, Any], ranking: dict[str, Any]) -> str:
    """The title of a table of a comparison, with its budget."""
    if ranking["epsilon"] is None:
        return "Test accuracy, nothing private"
    return f"Test accuracy at epsilon = {ranking['epsilon']:g}, delta = {result['delta']:g}"


def ranked(line: dict[str, Any]) -> tuple[str, ...]:
    return (
        line["config"],
        "[bold red]NOT PRIVATE[/]" if line["calibration"] == "not private" else line["calibration"],
        screen.percent(line["accuracy"]),
        "" if line["standard_error"] is None else f"{100 * line['standard_error']:.2f}",
        number(line["epsilon_published"]),
        "[bold red]none[/]" if line["epsilon_certified"] is None else printed(line["epsilon_certified"]),
    )


def save_comparison(result: dict[str, Any], out: Path) -> None:
    write_json(out / "comparison.json", result)
    for ranking in result["tables"]:
        name = "comparison" if len(result["tables"]) == 1 else f"comparison-{ranking['epsilon']:g}"
        draw_comparison(result, ranking, out / name)


def draw_comparison(result: dict[str, Any], ranking: dict[str, Any], place: Path) -> None:
    """Draw a row for each run, the best at the top: accuracy and standard error, coloured by the kind of noise."""
    lines = [line for line in ranking["lines"] if line["problem"] is None][::-1]
    title = titled(result, ranking)
    words = f"Whiskers: the standard error over {amount(result['seeds'], 'noise seed')}"
    with picture(place, height=0.9 + 0.34 * (len(lines) + 1), title=title, words=words) as (drawing, theme):
        axes = drawing.subplots()
        most = 100 * result["majority"]
        axes.axvline(most, color=theme.majority, linestyle="--", linewidth=1.4)
        for at, line in enumerate(lines):
            value, error = 100 * line["accuracy"], 100 * (line["standard_error"] or 0.0)
            color = theme.of(NOISES.get(line["calibration"], "published"))
            axes.errorbar(value, at, xerr=error, fmt="o", color=color)
            words = f"{value:.1f} %"
            axes.annotate(
                words, (value + error, at), xytext=(8, 0), textcoords="offset points", va="center", fontsize=SMALL
            )
        axes.set_yticks(range(len(lines)), [f"{line['config']}: {noise_of(line)}" for line in lines])
        axes.set_ylim(-0.6, len(lines) - 0.4 + 0.5)
        label = f"always the majority, {most:.1f} %"
        axes.annotate(
            label,
            (most, len(lines) - 0.35),
            xytext=(5, 0),
            textcoords="offset points",
            color=theme.muted,
            fontsize=SMALL,
        )
        axes.set(xlabel="test accuracy (%)")
        axes.margins(x=0.16)
        finish(axes)


def noise_of(line: dict[str, Any]) -> str:
    """The noise of a line of a comparison, in words."""
    words = {"not private": "NOT PRIVATE", "certified": "certified, own noise", "secure sum": "certified, secure sum"}
    return (words | {"published": "as published"}).get(line["calibration"], f"the paper's {line['calibration']}")


def theory(r: dict[str, Any], out: Path | None) -> str:
    """The bounds beside the measured curve at a few rounds, their conditions, and how the run deviates."""
    rounds, keys = len(r["rounds"]), [key for key in BOUNDS if key in r]
    rows = [
        (str(at + 1), *(number(None if r[key] is None else r[key][at]) for key in keys))
        for at in sorted({0, rounds // 4, rounds // 2, rounds - 1})
    ]
    tables = [screen.table(heading(r), ("round", *(BOUNDS[key] for key in keys)), rows)]
    facts: screen.Facts = []
    if r["theorem"] == 1:
        tables.append(terms(r))
        facts.append(("measured", "the distance from the optimum of the records at hand, which (28) is not about"))
        facts.append(("Lemma 5", escape(r["lemma5"]["statement"])))
    elif r["rounds_above_published"]:
        above = amount(r["rounds_above_published"], "round")
        facts.append(("published", f"[bold red]exceeded in {above}[/]: it leaves out noise (docs/theory.md)"))
    for condition in r["conditions"]:
        mark = "[green]holds[/]" if condition["holds"] else "[bold red]FAILS[/]"
        facts.append(
            (
                "condition",
                f"{escape(condition['condition'])}: {condition['value']:.4g} <= {condition['limit']:.4g} {mark}",
            )
        )
    facts += [("deviation", escape(words)) for words in r["deviations"]]
    return screen.shown(*tables, screen.rows([*facts, ("mode", SIMULATED), ("written to", out)]))


def terms(r: dict[str, Any]) -> "Table":
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
    title = f"Loss by alpha, {amount(r['seeds'], 'run')} each"
    columns = ("noise", "round", "alpha", "loss", "+-", "certified in all")
    return screen.shown(
        screen.table(title, columns, rows, left=("noise",)),
        screen.rows([*facts, ("mode", SIMULATED), ("written to", out)]),
    )


def best_alpha(best: dict[str, Any]) -> str:
    edge = "" if best["where"] == "inside" else f", the {best['where']} that was run"
    return f"{best['alpha']:.4g}{edge}; loss {best['loss']:.4g}"


def reproduce(study: Study, out: Path, quick: bool = False) -> str:
    grids = []
    for grid in study.grids:
        names = [escape(name) for name in grid.columns]
        rows = [[escape(word(cell)) for cell in row] for row in grid.rows]
        grids.append(screen.table(escape(grid.caption), names, rows, left=names))
    checks = [(*map(escape, cells(c)[:4]), f"[{STYLES[c.ok]}]{VERDICTS[c.ok]}[/]") for c in study.checks]
    title = escape(f"{study.title}, {kind(quick)}: {study.tally}")
    return screen.shown(
        *grids,
        screen.table(title, CHECKS, checks, left=CHECKS),
        remarks(study.checks),
        screen.rows([*(("note", escape(note)) for note in study.notes), ("written to", out)]),
    )


def remarks(checks: Sequence[Check]) -> "list[Text]":
    """Why checks do not hold or cannot be judged, each below the check's name."""
    from rich.text import Text

    room, lines = min(screen.console().width, 100), list[Text]()
    for check in checks:
        if not check.ok and check.why:
            lines += screen.wrapped(Text(f"{VERDICTS[check.ok]}: {check.name}", "bold"), room)
            lines += [Text("    ") + part for part in screen.wrapped(Text(check.why), room - 4)]
    return lines


def papers(listed: dict[str, Any]) -> str:
    """A table of how many claims of each paper hold, then the papers as a bibliography."""
    columns = ("name", "paper", "year", "hold", "do not", "open", "claims")
    rows = []
    for name, paper in listed["papers"].items():
        count = paper["verdicts"]["paper"]
        words = [str(count[key]) for key in ("held", "failed", "unjudged", "claims")]
        rows.append((name, escape(REFERENCES[name].names), str(paper["year"]), *words))
    total = [str(listed["total"][key]) for key in ("held", "failed", "unjudged", "claims")]
    rows.append(("all", "", "", *total))
    facts = [(name, escape(REFERENCES[name].cited)) for name in listed["papers"]]
    title = "The papers' claims in the last full run"
    return screen.shown(screen.table(title, columns, rows, left=columns[:2]), screen.rows([*facts]))
