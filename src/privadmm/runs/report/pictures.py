"""Charts of a run: convergence, epsilon by round, noise against signal, coefficients, and a simulation's evaluation."""

from typing import TYPE_CHECKING

import numpy as np

from privadmm.algorithms.evaluation_noise import GUESS
from privadmm.errors import PrivadmmError
from privadmm.privacy.accounting import printed
from privadmm.runs.recommend import THIN, TOO_SMALL, expected_fields
from privadmm.runs.report.charts import Chart, Lines, Series, Spread, apart
from privadmm.runs.report.evaluation import FEWEST_BINS, evaluate, private_pictures
from privadmm.runs.report.evaluation import pictures as evaluated
from privadmm.runs.report.noise_alone import noise_alone

if TYPE_CHECKING:
    from privadmm.runs.report.runs import Run

BEYOND = 1e100  # from which on a model has run away
MOST_WEIGHTS = 30  # of the largest, in the chart
Missing = tuple[str, str]
NOT_PAID = "in a deployment no figure is computed on records that was not paid for"
UNKNOWN = "the run's config names files that are not beside it; name the original config with --config"


def of(run: "Run") -> tuple[list[Chart], list[Missing]]:
    """All charts that can be drawn, and why others cannot."""
    charts: list[Chart] = []
    missing: list[Missing] = []
    for name, found, why in (
        ("Convergence", *convergence(run)),
        ("Epsilon by round", *spending(run)),
        ("Noise against signal", *against_signal(run)),
        ("Coefficients", *coefficients(run)),
        ("ROC and calibration", *evaluation(run)),
        ("Calibration by the private evaluation", [], too_noisy(run)),
    ):
        charts += found
        if why:
            missing.append((name, why))
    return charts, missing


def convergence(run: "Run") -> tuple[list[Chart], str]:
    if not run.simulation:
        return [], NOT_PAID
    values = tuple((float(row.round), row.objective) for row in run.rows if abs(row.objective) < BEYOND)
    if not values:
        return [], "no round was measured, or the model ran away in the first one"
    told = f"The objective after each measured round: {values[0][1]:.4g} at first, {values[-1][1]:.4g} at the end."
    series, log = (Series("objective", values),), apart(values)
    charts: list[Chart] = [Lines("objective", "Objective by round", told, "round", "objective", series, log=log)]
    shares = []
    for name, key in (("training records", "accuracy_train"), ("held-out records", "accuracy_test")):
        points = tuple((float(r.round), 100 * v) for r in run.rows if (v := getattr(r, key)) is not None)
        shares += [Series(name, points)] if points else []
    if shares:
        last = ", ".join(f"{one.points[-1][1]:.1f} % on {one.name}" for one in shares)
        most = (run.result or {}).get("majority_test") or (run.result or {}).get("majority_train")
        levels = () if most is None else (("always the larger class", 100 * most),)
        told = f"Accuracy after each measured round; at the end {last}."
        charts.append(Lines("accuracy", "Accuracy by round", told, "round", "accuracy (%)", tuple(shares), levels))
    return charts, ""


def spending(run: "Run") -> tuple[list[Chart], str]:
    """What the transcript so far has cost the party that paid most: from the plan, so it is public."""
    epsilons = [(float(row.round), row.epsilon) for row in run.rows if row.epsilon is not None]
    try:
        if run.job is not None and run.job.epsilon_by_round:
            epsilons = [(float(t), total) for t, total in enumerate(run.job.epsilon_by_round, start=1)]
    except PrivadmmError:  # a fact that it needs is not declared
        pass
    if not epsilons:
        return [], "nothing is private" if run.fact("epsilon") is None else UNKNOWN
    points = ((0.0, 0.0), *epsilons)
    said = (
        f"Epsilon of everything that has left by then, for the party that paid most: {printed(epsilons[0][1])} after "
        f"round {epsilons[0][0]:g}, {printed(epsilons[-1][1])} after round {epsilons[-1][0]:g}, at one delta."
    )
    return [Lines("epsilon", "Epsilon by round", said, "round", "epsilon", (Series("certified", points),))], ""


def against_signal(run: "Run") -> tuple[list[Chart], str]:
    """The estimate of `runs.recommend`, which is made from public facts."""
    try:
        expected = (run.result or {}).get("expected") or (None if run.job is None else expected_fields(run.job))
    except PrivadmmError:  # a fact that it needs is not declared
        expected = None
    if not expected:
        return [], "no estimate is made: it is for private classifiers whose parties hold records"
    ratio, words = expected["noise_to_signal"], {"good": "small", "thin": "a part of the signal", "too small": "larger"}
    said = (
        f"Noise is estimated at {ratio:.2g} times the signal that data usually have: {words[expected['verdict']]}. "
        f"From {THIN:g} on a part is lost, from {TOO_SMALL:g} on nearly all. An estimate from public facts."
    )
    levels = (("a part is lost from", THIN), ("nearly all is lost from", TOO_SMALL))
    rows = (("this run", ratio, None),)
    return [Spread("noise", "Noise against signal", said, "noise over signal", rows, levels)], ""


def coefficients(run: "Run") -> tuple[list[Chart], str]:
    """The released weights, the largest first, with what noise alone would make of each where that is known."""
    model = run.model
    if model is None:
        return [], "there is no model yet"
    spread, why = None, UNKNOWN
    if run.config is not None and run.job is not None:
        spread, why = noise_alone(run.config, run.job)
    order = np.argsort(-np.abs(model.weights), kind="stable")[:MOST_WEIGHTS]
    rows = tuple((model.columns[place], float(model.weights[place]), spread) for place in order.tolist())
    count = len(model.weights)
    which = f"The {MOST_WEIGHTS} largest of {count} weights" if count > MOST_WEIGHTS else f"All {count} weights"
    bars = (
        "no uncertainty is shown" if spread is None else "bars reach one standard deviation of the noise to each side"
    )
    said = f"{which}, on rows scaled into the unit ball; {bars}: {why}. What other records would give is not shown."
    return [Spread("weights", "Coefficients", said, "weight", rows)], ""


def evaluation(run: "Run") -> tuple[list[Chart], str]:
    """What a private evaluation released, and what a simulation measures beside it."""
    paid = (run.result or {}).get("private_evaluation")
    charts, why = ([], "") if paid is None or "missing" in paid else (private_pictures(paid), "")
    if paid is not None and not charts:
        noisy = "the private evaluation tells nothing: its noise is as large as all that its figures can be"
        why = f"the private evaluation was lost: {paid['missing']}" if "missing" in paid else noisy
    measured, told = measured_evaluation(run)
    return charts + measured, why or ("" if charts and not run.simulation else told)


def too_noisy(run: "Run") -> str:
    """Why the calibration that a private evaluation paid for is not drawn; empty where it is, or there is none."""
    paid = (run.result or {}).get("private_evaluation") or {}
    if "log_loss" not in paid or paid["auc"]["error"] >= GUESS or (kept := len(paid["calibration"])) >= FEWEST_BINS:
        return ""
    told = f"{kept} of {len(paid['roc']) + 1} bins of the score hold more records than noise"
    return f"it is too noisy to draw: {told}" + ("; the table above has them" if kept else "")


def measured_evaluation(run: "Run") -> tuple[list[Chart], str]:
    if not run.simulation:
        return [], NOT_PAID
    if run.model is None:
        return [], "there is no model yet"
    if run.config is None:
        return [], UNKNOWN
    found, why = evaluate(run.config, run.model)
    return (evaluated(found), "") if found is not None else ([], why)
