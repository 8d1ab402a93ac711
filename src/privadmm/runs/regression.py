"""How much noise alone is in the predictions of a regression: public, since only invented records are read.

The job is trained on as many invented records as it has: rows of norm 1 in random directions, with labels that are all
0. So all that it predicts for them is noise. What comes out is compared with the spread of labels, which is the data's
secret; a quarter of label_bound stands for it. In 18 simulations (three methods, 2,000 to 50,000 records, epsilon from
0.2 to 5, labels that spread by 0.25 to 0.28 of their bound) the twelve with up to 0.17 of label_bound beat the
constant, and those with 0.22, and with 0.29 or more, were worse than it. It is an estimate, and no bound.
At so small an epsilon that a method takes hardly a step, nothing is learned, and yet there is no noise to warn of.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.algorithms.moments import Centred
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.errors import PrivadmmError
from privadmm.optim.losses import Squared
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Simulation

USUAL = 0.25  # spread of labels over their bound
TIMES = 4  # trainings, each with noise and rows of its own
LARGEST = 400_000_000  # numbers read in all of them
MOST = 20_000_000  # numbers that the invented records are made of


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a prediction by noise alone, beside the bound of labels."""

    deviation: float
    label_bound: float

    @property
    def warning(self) -> str | None:
        if self.deviation < USUAL * self.label_bound:
            return None
        return (
            f"the noise makes this regression worse than a constant, unless the labels spread unusually far: noise "
            f"alone moves a prediction by {self.deviation:.3g}, and labels within label_bound = {self.label_bound:g} "
            f"spread by about {USUAL * self.label_bound:.3g} (an estimate from public facts). Use more records, a "
            'larger epsilon, [privacy] sum = "secure", or a smaller label_bound if labels allow'
        )

    @property
    def table(self) -> dict[str, Any]:
        return {"prediction_noise": self.deviation, "label_bound": self.label_bound, "warning": self.warning}


def of_noise_alone(job: Job) -> Noise | str:
    """How far noise alone moves a prediction, or why that is not estimated."""
    public, target = job.public, job.public.privacy
    if not isinstance(public.loss, Squared) or not isinstance(target, Target):
        return "nothing is private here, or no number is predicted"
    if public.columns:
        return "no estimate is made for parties that hold columns"
    if isinstance(job.algorithm, Centred):
        return "no estimate is made for a regression on features that a private release centres and scales"
    numbers = int(public.sizes.sum()) * public.dim
    if numbers > MOST or numbers * public.rounds * TIMES > LARGEST:
        return "the job is too large to be tried on invented records"
    again = Job(job.algorithm, replace(public, privacy=replace(target, kind=Simulation.kind)))
    try:
        squares = [float(np.mean(np.square(predictor(again, seed)))) for seed in range(TIMES)]
    except PrivadmmError:
        return "tried on invented records, the job comes to no end"
    return Noise(math.sqrt(float(np.mean(squares))), public.loss.label_bound)


def predictor(job: Job, seed: int) -> Any:
    """The weights of a training on invented records. Their mean square is that of a prediction for a row of norm 1."""
    rng, parties = np.random.default_rng(seed), list[Any]()
    for size in job.public.sizes.tolist():
        X = rng.normal(size=(size, job.public.dim))
        parties.append((X / np.linalg.norm(X, axis=1, keepdims=True), np.zeros(size)))
    shards = Shards.from_parties(parties, row_bound=1.0, classification=False)
    return weights(job, train(job, cluster(job, shards, Simulation(seed))))
