"""ROC and calibration: of a simulation on its own records, and of a private evaluation from what was paid for."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.algorithms.evaluation_noise import GUESS
from privadmm.config import build
from privadmm.config.file import Config
from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError, DataError
from privadmm.runs.evaluations import HELD_OUT, TRAINED_ON, chances, measurable
from privadmm.runs.measures import Scored
from privadmm.runs.metrics import scores, through
from privadmm.runs.model import Model
from privadmm.runs.report.charts import Chart, Lines, Series, thinned

RATES = ("false positive rate", "true positive rate")
CHANCES = ("predicted probability", "share of the second class")
NO_CLASSES = "there are no classes"
FEWEST_BINS = 3  # of a calibration that is drawn


@dataclass(frozen=True)
class Evaluation(Scored):
    """Scores of records with known labels, and in words which records they are."""

    which: str = ""


def evaluate(config: Config, model: Model) -> tuple[Evaluation | None, str]:
    """Measure a simulation's model on its held-out records, or on all; or say why it cannot be done."""
    if config.run.mode != "simulation" or model.mode != "simulation":
        return None, "in a deployment no figure is computed on records that was not paid for"
    if model.frame.classes is None:
        return None, NO_CLASSES
    try:
        # Who left during the run makes no difference to which records it has.
        prepared = measurable(config, build.prepare(replace(config, run=replace(config.run, engine="inprocess"))))
    except (ConfigError, DataError, OSError):
        return None, "the records are not where the config of the run says; name the original config with --config"
    data: Any = prepared.train if prepared.test is None else prepared.test
    if data.dim != len(model.frame.columns) and not model.frame.groups:
        return None, "the records have other columns than the model"
    found = np.ravel(scores(through(data, model.features), in_party_order(model)))
    which = TRAINED_ON if prepared.test is None else HELD_OUT
    return Evaluation(found, np.ravel(data.y), chances(config, found), which), ""


def in_party_order(model: Model) -> Floats:
    """The weights in the order in which vertical parties hold their columns."""
    return model.weights[model.frame.party_order] if model.frame.groups else model.weights


def pictures(found: Evaluation) -> list[Chart]:
    """The two charts of a simulation's evaluation."""
    area = math.nan if found.auc is None else found.auc
    series = Series("the model", tuple(thinned(found.roc, 200)))
    drawn: list[Chart] = [roc("roc", f"ROC of the simulation, area {area:.3f}", found.which, series)]
    if found.chances is not None:
        words = f"What share of each tenth of {found.which}, by predicted probability, is of the second class."
        rows = tuple((row["predicted"], row["share"]) for row in found.calibration)
        drawn.append(calibration("calibration", "Calibration", words, Series("tenths of the records", rows)))
    return drawn


def private_pictures(found: Mapping[str, Any]) -> list[Chart]:
    """The charts of a private evaluation, with bands of one standard deviation; few bins are no calibration.

    None where the area is known no better than by a blind guess.
    """
    if found["auc"]["error"] >= GUESS:
        return []
    area, rows = found["auc"], sorted(found["roc"], key=lambda row: (row["false"], row["true"]))
    points = [(0.0, 0.0), *((row["false"], row["true"]) for row in rows), (1.0, 1.0)]
    errors = (0.0, *upright(points, rows), 0.0)
    title = f"ROC by the private evaluation, area {area['value']:.3f} ± {area['error']:.3f}"
    which = (
        f"{found['records']:,} held-out records, from counts with noise; bands reach one standard deviation, of noise "
        "and of chance together, to each side. The area is released by itself, and has less noise than the line"
    )
    drawn: list[Chart] = [roc("paid-roc", title, which, Series("counted with noise", tuple(points), errors))]
    bins = found["calibration"]
    if len(bins) >= FEWEST_BINS:
        words = "What share of each bin of scores is of the second class, counted with noise; bands as beside the ROC."
        shares = tuple((row["predicted"], row["share"]) for row in bins)
        series = Series("bins of the score", shares, tuple(row["error"] for row in bins))
        drawn.append(calibration("paid-calibration", "Calibration by the private evaluation", words, series))
    return drawn


def upright(points: Sequence[tuple[float, float]], rows: Sequence[Mapping[str, float]]) -> list[float]:
    """The errors of both rates at each point, as one upwards: that to the right, times the slope there."""
    found = []
    for place, row in enumerate(rows, start=1):
        (x1, y1), (x2, y2) = points[place - 1], points[place + 1]
        slope = (y2 - y1) / (x2 - x1) if x2 > x1 else 0.0
        found.append(min(1.0, math.hypot(row["true_error"], slope * row["false_error"])))
    return found


def roc(key: str, title: str, which: str, series: Series) -> Chart:
    words = (
        "How many of the second class are found (upwards) when so many of the first are taken for it (to the right), "
        f"on {which}. Guessing has an area of 0.5, a perfect model 1."
    )
    return Lines(key, title, words, *RATES, (series,), diagonal="guessing")


def calibration(key: str, title: str, words: str, series: Series) -> Chart:
    told = f"{words} Points above the dotted line: the model says less than is true; below: more."
    return Lines(key, title, told, *CHANCES, (series,), diagonal="calibrated")
