"""Whether a regression can beat a constant with its noise: public, since only invented records are read.

The job is trained on as many invented records as it has, of two kinds:

- rows of norm 1 in random directions, with labels that are all 0. So all that it predicts for them is noise. That is
  compared with the spread of labels, which is the data's secret; a quarter of label_bound stands for it. In 18
  simulations (three methods, 2,000 to 50,000 records, epsilon from 0.2 to 5, labels that spread by 0.25 to 0.28 of
  their bound) the twelve with up to 0.17 of label_bound beat the constant, and those with 0.22, and with 0.29 or more,
  were worse than it.
- rows with half of their square in one direction, as encoded tables have it (Adult in bins 0.47), on either side of 0;
  labels are a quarter of label_bound on that side. Nothing is easier to learn. A method that hardly takes a step at so
  small an epsilon has no noise to warn of, and learns nothing here. One whose steps are too long for such rows runs
  away here, and not on rows in random directions or in bins that are filled evenly: first_order_consensus does, and on
  Adult it was far worse than a constant, with any noise.

It is an estimate, and no bound.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privadmm.algorithms.dp_fedsgd import DPFedSGD
from privadmm.algorithms.first_order_consensus import FirstOrderConsensus
from privadmm.algorithms.shared_budget import SharedBudget
from privadmm.algorithms.step_sizes import USUAL
from privadmm.data.arrays import Floats
from privadmm.data.shards import Shards
from privadmm.engine.block import cluster
from privadmm.engine.job import Job, train, weights
from privadmm.engine.phases import Algorithm, features
from privadmm.errors import PrivadmmError
from privadmm.optim.losses import Squared
from privadmm.privacy.calibration import Target
from privadmm.privacy.mechanisms import Simulation
from privadmm.runs.measures import FOR_NUMBERS

LITTLE = 0.5  # share of that spread that has to be explained where nothing is easier
AWAY = -1.0  # share below which a model has not stayed where it was, but has run away
TIMES = 4  # trainings of each kind, each with noise and rows of its own
LARGEST = 1_000_000_000  # numbers read in all of them
SHORTER = {"dp_fedsgd": "a smaller step", "dp_admm": "a smaller D_w"}  # what shortens a method's steps
ROWS = 4000  # invented rows that a training is judged on
MOST = 20_000_000  # numbers that the invented records are made of


@dataclass(frozen=True)
class Noise:
    """The standard deviation of a prediction by noise alone, beside the bound of labels; and what is learned.

    `learned` is the share of their spread that is explained of labels that nothing is easier to learn than; None where
    the noise alone is too much already.
    """

    deviation: float
    label_bound: float
    learned: float | None = None
    summed: bool = False  # messages are summed securely already
    method: str = ""

    @property
    def drowned(self) -> bool:
        """Whether noise alone makes it worse than a constant."""
        return self.deviation >= USUAL * self.label_bound

    @property
    def steadier(self) -> str:
        """What to use where steps are too long: shorter ones, or those that are set for numbers."""
        return " or ".join([*([SHORTER[self.method]] if self.method in SHORTER else []), FOR_NUMBERS])

    @property
    def warning(self) -> str | None:
        sums = "" if self.summed else '[privacy] sum = "secure", '
        more = f"Use more records, a larger epsilon, {sums}or a smaller label_bound if labels allow"
        if self.drowned:
            return (
                f"the noise makes this regression worse than a constant, unless the labels spread unusually far: noise "
                f"alone moves a prediction by {self.deviation:.3g}, and labels within label_bound = "
                f"{self.label_bound:g} spread by about {USUAL * self.label_bound:.3g} (an estimate from public facts). "
                f"{more}"
            )
        if self.learned is None or self.learned >= LITTLE:
            return None
        if self.learned < AWAY:
            return (
                "this regression may run away and be far worse than a constant: the method's steps are too long where "
                "rows have half of their square in one direction, as encoded tables often have it (an estimate from "
                f"public facts). Use {self.steadier}"
            )
        return (
            "this regression is hardly better than a constant: of labels that nothing is easier to learn than, it "
            f"explains {max(0.0, 100 * self.learned):.0f} % of their spread (an estimate from public facts). {more}"
        )

    @property
    def table(self) -> dict[str, Any]:
        return {
            "prediction_noise": self.deviation,
            "label_bound": self.label_bound,
            "learned": self.learned,
            "warning": self.warning,
        }


def chosen(algorithm: Algorithm) -> bool:
    """Whether a method's steps were set for the numbers that it predicts, by a person or by label_bound."""
    while isinstance(algorithm, SharedBudget):
        algorithm = algorithm.method
    return isinstance(algorithm, FirstOrderConsensus | DPFedSGD) and algorithm.step is not None


def of_noise_alone(job: Job) -> Noise | str:
    """How far noise alone moves a prediction, and whether anything is learned; or why that is not estimated."""
    public, target = job.public, job.public.privacy
    if not isinstance(public.loss, Squared) or not isinstance(target, Target):
        return "nothing is private here, or no number is predicted"
    if public.columns:
        return "no estimate is made for parties that hold columns"
    numbers = (int(public.sizes.sum()) + ROWS) * public.dim
    if numbers > MOST or numbers * public.rounds * 2 * TIMES > LARGEST:
        return "the job is too large to be tried on invented records"
    again = Job(job.algorithm, replace(public, privacy=replace(target, kind=Simulation.kind)))
    bound = public.loss.label_bound
    try:
        squares = [noise_alone(again, seed) for seed in range(TIMES)]
        noise = Noise(math.sqrt(float(np.mean(squares))), bound, summed=job.sums is not None, method=job.algorithm.name)
        if noise.drowned:
            return noise
        return replace(noise, learned=float(np.mean([explained(again, seed, USUAL * bound) for seed in range(TIMES)])))
    except PrivadmmError:
        return "tried on invented records, the job comes to no end"


def noise_alone(job: Job, seed: int) -> float:
    """The mean square of predictions for rows of norm 1 after a training on labels of 0."""
    rng, d = np.random.default_rng(seed), job.public.dim
    parties = [(directions(rng, size, d), np.zeros(size)) for size in job.public.sizes.tolist()]
    return float(np.mean(np.square(trained(job, parties, seed)(directions(rng, ROWS, d)))))


def explained(job: Job, seed: int, spread: float) -> float:
    """The share of the labels' spread that a training explains where half of every row's square tells the label."""
    rng, d = np.random.default_rng(seed), job.public.dim
    (common,), half = directions(rng, 1, d), math.sqrt(0.5)

    def rows(size: int) -> tuple[Floats, Floats]:
        side = rng.choice([-1.0, 1.0], size)
        others = directions(rng, size, d)
        others -= np.outer(others @ common, common)
        return half * (side[:, None] * common + others), spread * side

    predict = trained(job, [rows(size) for size in job.public.sizes.tolist()], seed)
    X, y = rows(ROWS)
    return 1 - float(np.mean(np.square(y - predict(X)))) / spread**2


def directions(rng: np.random.Generator, size: int, dim: int) -> Floats:
    """This many random rows of norm 1."""
    X = rng.normal(size=(size, dim))
    made: Floats = X / np.linalg.norm(X, axis=1, keepdims=True)
    return made


def trained(job: Job, parties: list[tuple[Floats, Floats]], seed: int) -> Callable[[Floats], Floats]:
    """Train on these rows and labels, and return a function that predicts."""
    shards = Shards.from_parties(parties, row_bound=1.0, classification=False)
    done = train(job, cluster(job, shards, Simulation(seed)))
    w, map = np.ravel(weights(job, done)), features(done.memory)
    return lambda X: np.asarray((X if map is None else map(X)) @ w)
