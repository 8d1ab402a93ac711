"""Draw a run: how it converged and what each round cost, and several runs side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from privadmm.privacy.accounting import Claim, printed
from privadmm.runs.chart import Line, Panel, draw
from privadmm.runs.metrics import Row, amount
from privadmm.runs.model import SIMULATED
from privadmm.runs.palette import LIGHT, Meaning
from privadmm.runs.style import symbols

DEMO: tuple[Meaning, ...] = ("non_private", "secure_sum", "own_noise")  # the demo's three runs, in this order
BEYOND = 1e100  # from which on a model has run away, and an axis has no ticks


def convergence(
    rows: Sequence[Row], result: Mapping[str, Any], path: Path, reference: Mapping[str, Any] | None = None
) -> None:
    """Draw objective and accuracy by round, or the consensus gap where nothing is classified.

    Dashed lines show the non-private model, where `reference` is its result, and the majority class.
    """
    values = [(row.round, row.objective) for row in rows if abs(row.objective) < BEYOND]
    words = "objective" if len(rows) > 1 or result["rounds"] == 1 else "a model is there after the last round only"
    heights = [value for _, value in values]
    color = LIGHT.certified if result["private"] else LIGHT.non_private
    above = Panel("objective", log=bool(heights) and max(heights) > 100 * min(heights) > 0)
    above.lines.append(Line(values, words if values else "the model ran away: no objective is finite", color))
    if reference is not None and reference["objective"] is not None:
        above.level(reference["objective"], "non-private model", "dashed")
    if result["accuracy_train"] is None:
        gaps = [(row.round, row.gap) for row in rows if row.gap is not None and 0 < row.gap < BEYOND]
        below = Panel("consensus gap", log=bool(gaps), lines=[Line(gaps, "largest over the parties", color)])
    else:
        below = accuracies(rows, result, reference)
    draw(path, panels=[above, below], rounds=result["rounds"], **heading(result))


def accuracies(rows: Sequence[Row], result: Mapping[str, Any], reference: Mapping[str, Any] | None) -> Panel:
    """Accuracy by round on the records to train on and on those held out, if there are any."""
    panel = Panel("accuracy (%)")
    shares = [(row.round, 100 * row.accuracy_train) for row in rows if row.accuracy_train is not None]
    color = LIGHT.certified if result["private"] else LIGHT.non_private
    panel.lines.append(Line(shares, f"train, {shares[-1][1]:.1f} % at the end", LIGHT.baseline))
    shares = [(row.round, 100 * row.accuracy_test) for row in rows if row.accuracy_test is not None]
    if shares:
        panel.lines.append(Line(shares, f"test, {shares[-1][1]:.1f} % at the end", color))
    if reference is not None and reference["accuracy_test"] is not None:
        best = 100 * reference["accuracy_test"]
        panel.level(best, f"non-private model, test, {best:.1f} %", "dashed")
    most = 100 * (result["majority_test"] or result["majority_train"])
    panel.level(most, f"always the majority, {most:.1f} %", "dotted")
    return panel


def spending(epsilons: Sequence[float], result: Mapping[str, Any], claim: Claim | None, path: Path) -> None:
    """Draw epsilon of the transcript so far, by round. Without a guarantee there is nothing to draw."""
    if not epsilons:
        return
    points = list(enumerate([0.0, *epsilons]))
    panel = Panel(symbols(f"epsilon of a party (delta = {printed(result['delta'], '.6g')})"), zero=True)
    panel.lines.append(
        Line(points, f"certified, {printed(epsilons[-1])} at the end, spent by each party", LIGHT.certified)
    )
    if claim is not None and claim.epsilon is not None:
        # A published figure never stands without its caveat.
        label = fill(f"published, {claim.epsilon:.4g} at the end ({claim.caveat})", 90)
        panel.lines.append(Line([(len(epsilons), claim.epsilon)], label, LIGHT.published, "cross"))
    draw(path, panels=[panel], rounds=len(epsilons), **heading(result))


def side_by_side(lines: Mapping[str, tuple[Sequence[Row], Mapping[str, Any]]], title: str, path: Path) -> None:
    """Draw the test accuracy of several runs on the same records by round; by name, their metrics and results."""
    panel, most = Panel("test accuracy (%)"), 0.0
    for (name, (rows, result)), meaning in zip(lines.items(), DEMO, strict=True):
        shares = [(row.round, 100 * row.accuracy_test) for row in rows if row.accuracy_test is not None]
        promise = symbols(f"epsilon = {printed(result['epsilon'])}") if result["private"] else "NOT PRIVATE"
        panel.lines.append(Line(shares, f"{name}, {promise}: {shares[-1][1]:.1f} % at the end", LIGHT.of(meaning)))
        most = 100 * result["majority_test"]
    panel.level(most, f"always the majority, {most:.1f} %", "dotted")
    draw(path, title, [panel], max(result["rounds"] for _, result in lines.values()), SIMULATED)


def heading(result: Mapping[str, Any]) -> dict[str, str]:
    """The title of a run's figure, which names the method and its guarantee, its colour, and the note below."""
    what = f"{result['algorithm']}, {amount(result['parties'], 'party')}, {amount(result['rounds'], 'round')}"
    note = SIMULATED if result["mode"] == "simulation" else ""
    if not result["private"]:
        return {"title": f"{what}, NOT PRIVATE", "color": LIGHT.verdicts["poor"], "note": note}
    promise = symbols(f"epsilon = {printed(result['epsilon'])}, delta = {printed(result['delta'], '.6g')}")
    return {"title": f"{what}, {promise}", "color": LIGHT.ink, "note": note}
