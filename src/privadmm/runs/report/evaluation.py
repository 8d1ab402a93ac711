"""ROC and calibration of a simulation's model on its own records, which nobody may look at in a deployment."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.config import build
from privadmm.config.file import Config
from privadmm.data.arrays import Floats
from privadmm.errors import ConfigError, DataError
from privadmm.runs.metrics import scores, through
from privadmm.runs.model import Model
from privadmm.runs.report.charts import Chart, Lines, Series, area, thinned

BINS = 10
LINKS = ("logistic", "half_logistic")  # losses whose score is the logarithm of odds


@dataclass(frozen=True)
class Evaluation:
    """What a model does on records with known labels, in -1 and 1."""

    scores: Floats
    labels: Floats
    which: str  # which records they are, in words

    @property
    def roc(self) -> list[tuple[float, float]]:
        """False against true positive rates, by falling threshold; records with equal scores change sides together."""
        order = np.argsort(-self.scores, kind="stable")
        positive = self.labels[order] > 0
        last = np.append(np.diff(self.scores[order]) != 0, True)
        true, false = np.cumsum(positive)[last], np.cumsum(~positive)[last]
        rates = zip((false / max(1, false[-1])).tolist(), (true / max(1, true[-1])).tolist(), strict=True)
        return [(0.0, 0.0), *rates]

    @property
    def auc(self) -> float:
        return area(self.roc)

    @property
    def calibration(self) -> list[tuple[float, float]]:
        """Mean predicted probability against the share of the second class, in ten groups of equal size."""
        order = np.argsort(self.scores, kind="stable")
        chances, positive = 1 / (1 + np.exp(-np.clip(self.scores[order], -700, 700))), self.labels[order] > 0
        groups = [group for group in np.array_split(np.arange(len(order)), BINS) if len(group)]
        return [(float(chances[group].mean()), float(positive[group].mean())) for group in groups]


def evaluate(config: Config, model: Model) -> tuple[Evaluation | None, str]:
    """Measure a simulation's model on its held-out records, or on all; or say why it cannot be done."""
    if config.run.mode != "simulation" or model.mode != "simulation":
        return None, "in a deployment no figure is computed on records that was not paid for"
    if model.frame.classes is None:
        return None, "there are no classes"
    try:
        # Who left during the run makes no difference to which records it has.
        prepared = build.prepare(replace(config, run=replace(config.run, engine="inprocess")))
    except (ConfigError, DataError, OSError):
        return None, "the records are not where the config of the run says; name the original config with --config"
    data: Any = prepared.train if prepared.test is None else prepared.test
    which = "the training records" if prepared.test is None else "held-out records"
    if data.dim != len(model.frame.columns) and not model.frame.groups:
        return None, "the records have other columns than the model"
    found = scores(through(data, model.features), in_party_order(model))
    return Evaluation(np.ravel(found), np.ravel(data.y), which), ""


def in_party_order(model: Model) -> Floats:
    """The weights in the order in which vertical parties hold their columns."""
    return model.weights[model.frame.party_order] if model.frame.groups else model.weights


def pictures(found: Evaluation, config: Config) -> list[Chart]:
    """The two charts of an evaluation."""
    whole = (
        "How many of the second class are found (upwards) when so many of the first are taken for it (to the right), "
        f"on {found.which}. The area under the line is {found.auc:.3f}; guessing has 0.5, a perfect model 1."
    )
    lines: list[Chart] = [
        Lines(
            "roc",
            f"ROC of the simulation, area {found.auc:.3f}",
            whole,
            "false positive rate",
            "true positive rate",
            (Series("the model", tuple(thinned(found.roc, 200))),),
            diagonal="guessing",
        )
    ]
    if config.loss.name in LINKS:
        words = (
            f"What share of each tenth of {found.which}, by predicted probability, is of the second class. Points "
            "above the dotted line: the model says less than is true; below: more."
        )
        series = (Series("tenths of the records", tuple(found.calibration)),)
        names = ("predicted probability", "share of the second class")
        lines.append(Lines("calibration", "Calibration", words, *names, series, diagonal="calibrated"))
    return lines
