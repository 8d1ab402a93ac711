"""Figures of a private evaluation, with error bars: made of what was released, so that they cost nothing.

Each figure comes with two standard deviations: `noise`, what privacy may have changed in it on these held-out records,
and `error`, which has the chance with it that these records and no others were held out.

The area under the ROC is A + T - T' (optim/class_curves.py). Its noise is that of T, and what the noise of the counts
makes of A - T': the fitted curves are taken for the truth, and fitted again to REDRAWN draws of counts from them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privadmm.algorithms.counting import LESS
from privadmm.algorithms.evaluated import Evaluated
from privadmm.algorithms.evaluation_noise import GUESS, noise_of
from privadmm.algorithms.score_table import Judged, curves_of, function_of
from privadmm.data.arrays import Floats
from privadmm.engine.job import Job
from privadmm.engine.loop import Progress
from privadmm.optim.class_curves import Curves
from privadmm.optim.losses import LINKED, Loss, link

REDRAWN = 24
LOST = "nobody with held-out records was left, or a message was missing, without which a secure sum cannot be read"
WORDS = "held-out records, by a charged release with noise"


@dataclass(frozen=True)
class Counted:
    """What two releases, with noise, told of held-out records.

    The first counted n of them by class and by bin of their score: `counts`, (2, B). The second summed three figures
    over `summed` of them, fewer than n if a party left in between: `sums`, (3,). `sigma` is the noise of each release.
    """

    n: int
    summed: int
    table: Floats  # by which the counts were made: its first numbers are the edges
    counts: Floats
    sums: Floats
    sigma: tuple[float, float]
    clip: float
    loss_of: Loss  # of the job

    @property
    def bins(self) -> int:
        return int(self.counts.shape[1])

    @property
    def edges(self) -> Floats:
        return self.table[: self.bins - 1]

    @cached_property
    def curves(self) -> Curves:
        return curves_of(self.counts.ravel(), self.table, self.n, self.bins)

    @cached_property
    def clean(self) -> Floats:
        """The counts without noise that cannot be: none is below 0, and there are n in all."""
        cells, free = self.counts.ravel().copy(), np.ones(self.counts.size, dtype=bool)
        while free.any():
            cells[free] -= (cells[free].sum() - self.n) / free.sum()
            if (cells[free] >= 0).all():
                break
            free &= cells > 0
            cells[~free] = 0.0
        return cells.reshape(self.counts.shape)

    @property
    def positives(self) -> tuple[float, float]:
        """How many records are of the second class, and the noise in it: all of them are n."""
        found = (self.n + float(self.counts[1].sum() - self.counts[0].sum())) / 2
        return min(max(found, 1.0), self.n - 1.0), self.sigma[0] * math.sqrt(2 * self.bins) / 2

    def auc(self) -> dict[str, float]:
        own = function_of(self.curves, self.table, self.n)
        rng, again = np.random.default_rng(0), []  # draws for an error bar: nothing is hidden by them
        for _ in range(REDRAWN):
            drawn = self.n * self.curves.cells(self.edges) + self.sigma[0] * rng.standard_normal(self.counts.shape)
            other = function_of(curves_of(drawn.ravel(), self.table, self.n, self.bins), self.table, self.n)
            again.append(other.area + other.total(self.curves) - other.expected - self.curves.area)
        each = self.n / self.summed  # records of the counts, for one in the sums
        A = min(max(own.corrected(each * float(self.sums[0])), 0.0), 1.0)
        return figure(A, math.hypot(own.reach * each * self.sigma[1], float(np.std(again))), self.sampling_of_area(A))

    def sampling_of_area(self, A: float) -> float:
        """The standard deviation of the area over samples of this many records, for scores of exponential tails."""
        P = self.positives[0]
        N, both, one = self.n - P, 2 * A**2 / (1 + A) - A**2, A / (2 - A) - A**2
        return math.sqrt(max(0.0, A * (1 - A) + (P - 1) * one + (N - 1) * both) / max(P * N, 1.0))

    def share(self, value: float, noise: float, n: float) -> dict[str, float]:
        """A share of n records, with both errors."""
        p = min(max(value, 0.0), 1.0)
        return figure(p, noise, math.sqrt(p * (1 - p) / max(n, 1.0)))

    def loss(self) -> dict[str, float]:
        noise = self.clip * self.sigma[1] / (LESS * self.summed)
        value = min(max(self.clip * float(self.sums[1]) / (LESS * self.summed), 0.0), self.clip)
        return figure(value, noise, math.sqrt(value * (self.clip - value) / self.summed))  # no sample spreads further

    def accuracy(self) -> dict[str, float]:
        n = self.summed
        return self.share(float(self.sums[2]) / (LESS * n), self.sigma[1] / (LESS * n), n)

    def majority(self) -> dict[str, float]:
        P, noise = self.positives
        return self.share(max(P, self.n - P) / self.n, noise / self.n, self.n)

    def confusion(self) -> dict[str, float]:
        """Records by class and by the sign of the score, the middle edge being 0, and the noise in each number."""
        low, high = (part.sum(axis=1) for part in np.split(self.clean, 2, axis=1))
        names = ("true_negative", "false_positive", "false_negative", "true_positive")
        found = zip(names, (low[0], high[0], low[1], high[1]), strict=True)
        return {**{name: float(count) for name, count in found}, "noise": self.sigma[0] * math.sqrt(self.bins / 2)}

    def roc(self) -> list[dict[str, float]]:
        """Points of the ROC at the edges, by falling threshold, each rate with its error."""
        sizes, points = np.maximum(self.clean.sum(axis=1), 1.0), []
        for k in range(1, self.bins):
            rates = self.clean[:, -k:].sum(axis=1) / sizes
            noise = self.sigma[0] * math.sqrt(min(k, self.bins - k)) / sizes
            error = np.sqrt(noise**2 + rates * (1 - rates) / sizes)
            points.append(dict(zip(("false", "true", "false_error", "true_error"), (*rates, *error), strict=True)))
        return [{key: float(value) for key, value in point.items()} for point in points]

    def calibration(self) -> list[dict[str, float]]:
        """Predicted probability and share of the second class, of each bin that holds more than noise."""
        grid, rows = self.curves.grid, []
        middles = (grid[1:] + grid[:-1]) / 2
        mass = np.diff(self.curves.below(grid), axis=1) * np.array([[1 - self.curves.share], [self.curves.share]])
        bin_of = np.searchsorted(self.edges, middles, side="right")
        for b in range(self.bins):
            size, weight = float(self.clean[:, b].sum()), mass.sum(axis=0) * (bin_of == b)
            if size <= 3 * math.sqrt(2) * self.sigma[0] or not weight.sum() > 0:
                continue
            share = float(self.clean[1, b]) / size
            noise = self.sigma[0] * math.hypot(share, 1 - share) / size
            error = math.hypot(noise, math.sqrt(share * (1 - share) / size))
            predicted = float((weight * link(self.loss_of, np.clip(middles, -700, 700))).sum() / weight.sum())
            rows.append({"predicted": predicted, "share": share, "error": error, "records": size})
        return rows


def figure(value: float, noise: float, sampling: float) -> dict[str, float]:
    return {"value": value, "noise": noise, "error": math.hypot(noise, sampling)}


def told(found: Mapping[str, Any], key: str, sign: str = "+-") -> str:
    """A figure with its two errors, for people; or that it tells nothing, where a blind guess errs no more."""
    factor, spec, unit = (100, ".1f", " %") if key in ("accuracy", "majority") else (1, ".4f", "")
    most = found["clip"] if key in ("log_loss", "loss") else 1.0
    if found[key]["error"] >= GUESS * most:
        return "it tells nothing: its noise is as large as all that it can be"
    value, noise, error = (f"{factor * found[key][part]:{spec}}" for part in ("value", "noise", "error"))
    return f"{value}{unit} {sign} {noise} by noise, {sign} {error} in all"


def found(job: Job, progress: Progress) -> dict[str, Any] | None:
    """The figures of a job's private evaluation; None where it has none."""
    method, memory = job.algorithm, progress.memory
    if not isinstance(method, Evaluated) or not isinstance(memory, Judged):
        return None
    facts = {"on": WORDS, "share": method.share, "held_out": method.held_out, "records": int(memory.held.max())}
    lost = [name for name, n in zip(("counts", "sums"), memory.held, strict=True) if not n]
    if lost or memory.counts.ndim > 1:
        return {**facts, "missing": f"{' and '.join(lost)}: {LOST}"}
    try:
        return {**facts, **figures(job, method, memory, progress)}
    except (ArithmeticError, ValueError) as error:  # the model was paid for, and is not lost for a figure of it
        return {**facts, "missing": f"no figures can be made of what was released ({error})"}


def figures(job: Job, method: Evaluated, memory: Judged, progress: Progress) -> dict[str, Any]:
    """The figures of what was released, each with its errors."""
    first, second = (noise_of(job, method, progress.mail.absent, k) for k in (0, 1))
    linked = isinstance(job.public.loss, LINKED)
    table = method.layout.edges(memory.model, method.range)
    counts = memory.counts.reshape(2, method.bins)
    n, summed = (int(held) for held in memory.held)
    seen = Counted(n, summed, table, counts, memory.sums, (first, second), method.clip, job.public.loss)
    return {
        "auc": seen.auc(),
        "log_loss" if linked else "loss": seen.loss(),
        "clip": method.clip,
        "accuracy": seen.accuracy(),
        "majority": seen.majority(),
        "confusion": seen.confusion(),
        "roc": seen.roc(),
        "calibration": seen.calibration() if linked else [],
        "noise": {"counts": first, "sums": second},
    }
